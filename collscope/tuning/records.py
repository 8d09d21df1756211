"""The answer of `collscope tune`: frozen records; its JSON and evidence.json have the same fields.

Ratios lie in 0..1, `_ns` are nanoseconds. None: not known, or does not apply.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from collscope.model.note import Note
from collscope.tuning.csv_format import TunerRow

SCHEMA = "collscope.tune/2"
OUTCOMES = TUNED, NOT_WORTH, NOTHING_BETTER, UNCONFIRMED, INTERRUPTED, DRY_RUN = (
    "tuned", "not worth it", "nothing better", "not confirmed", "interrupted", "dry run",
)  # fmt: skip


class Variable(msgspec.Struct, frozen=True):
    """A variable of the job's own setting, and where it is known from."""

    name: str
    value: str
    origin: Annotated[str, ("--env", "logs", "shell")]


class JobTime(msgspec.Struct, frozen=True):
    """The step or the GPU time in which the plan's calls are made.

    time_ns   on one rank; None: only the fraction is known, or nothing
    fraction  collective part of that time; None: not known
    exposed   part of the collective time that compute does not hide
    """

    time_ns: float | None = None
    fraction: float | None = None
    exposed: float = 1.0
    basis: str = "not known"  # where that is known from


class TunedClass(msgspec.Struct, frozen=True):
    """One class of the plan and how it came out."""

    class_id: int  # as report shows it and --only takes it; of the plan where no run is known
    plan_id: int  # of the plan, as replay.csv and confirm.csv have it
    op: str
    datatype: str
    size_bytes: int  # nccl-tests size S
    nranks: int
    nnodes: int  # hosts that the ranks ran on
    calls: float  # that one rank makes
    roof_ns: float | None  # least time of a call
    weight_ns: float  # possible saving at most, exposed time of one rank
    kept: bool  # it is among those worth tuning
    setting: str | None  # chosen for it; None: nothing was
    present_ns: float | None  # with the job's own setting; None: the library refuses it
    default_ns: float | None  # with all knobs unset
    tuned_ns: float | None  # confirmed, where that was done
    noise_floor: float | None  # part of the time that a setting must save to be taken


class Tried(msgspec.Struct, frozen=True):
    """One setting on one class in the search."""

    class_id: int  # as in `classes`
    setting: str
    rounds: int  # that it was measured in
    time_ns: float  # median over them
    saved: float | None  # part of the present setting's time; below 0: slower
    low: float | None  # of its interval
    high: float | None  # of its interval
    accepted: bool  # surely better than the present setting, and not worse than the default


class SettingRow(msgspec.Struct, frozen=True):
    """One setting and what became of it."""

    name: str
    variables: str
    launches: int
    classes: int  # that it was tried on
    outcome: str


class Gain(msgspec.Struct, frozen=True):
    """What the tuned setting saves against the present one, confirmed.

    collective  part of the exposed collective time
    step        part of the job's time; None where that is not known
    """

    collective: float
    collective_low: float  # of its interval
    collective_high: float
    step: float | None
    step_low: float | None
    step_high: float | None
    saved_ns: float  # of all calls on one rank
    rounds: int  # of the confirmation


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    schema: str = SCHEMA
    outcome: Annotated[str, OUTCOMES]  # first word of the report
    why: str  # one sentence
    kind: Annotated[str, ("nothing", "environment", "plugin")]  # what the job gets
    library: str | None  # name and version
    device: str | None  # of the GPUs
    nranks: int  # of the plan
    seed: int  # of the order of launches
    present: tuple[Variable, ...]  # knobs that the job sets
    # by its logs; else knobs may be set that are unknown
    present_known: bool = msgspec.field(name="present_told")
    # fewest and most thread blocks of the collectives' kernels in the job's traces; None: unknown
    traced_blocks: tuple[int, int] | None
    kept: tuple[tuple[str, str], ...]  # other variables of every launch: name and value
    job: JobTime  # its time, and the share of it that the plan's calls take
    classes: tuple[TunedClass, ...]  # of the plan
    settings: tuple[SettingRow, ...]  # every setting, tried or not
    environment: tuple[tuple[str, str], ...]  # variables to set: name and value
    unset: tuple[str, ...]  # variables to unset
    rows: tuple[TunerRow, ...]  # of tuner.csv
    gain: Gain | None  # of the job, confirmed; None: nothing was confirmed
    tried: tuple[Tried, ...]  # times of the search
    launches: int  # of the replayer
    took_ns: float
    estimated_ns: float | None  # before the search; None: there was none
    time_limit_ns: float  # as given
    files: tuple[str, ...]  # in the folder of --out
    notices: tuple[Note, ...]  # further remarks
