"""What `collscope tune` says: frozen records, in its JSON and in evidence.json as they stand here.

Ratios lie in 0..1, `_us` and `_s` are microseconds and seconds. None: not known, or does not apply.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = "collscope.tune/1"
TUNED, NOT_WORTH, NOTHING_BETTER, UNCONFIRMED, INTERRUPTED, DRY_RUN = (
    "tuned", "not worth it", "nothing better", "not confirmed", "interrupted", "dry run",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the job's own setting, and where it is known from."""

    name: str
    value: str
    origin: str  # --env, logs, shell


@dataclass(frozen=True, slots=True)
class JobTime:
    """What the step or the GPU time is, in which the plan's calls are made.

    seconds   on one rank; None: only the fraction is known, or nothing
    fraction  collective part of that time; None: not known
    exposed   part of the collective time with no compute beside it
    """

    seconds: float | None = None
    fraction: float | None = None
    exposed: float = 1.0
    basis: str = "not known"


@dataclass(frozen=True, slots=True)
class TunedClass:
    """One class of the plan and how it came out."""

    class_id: int  # of the plan
    op: str
    datatype: str
    size_bytes: int
    nranks: int
    nnodes: int
    calls: float  # that one rank makes
    roof_us: float | None
    weight_s: float  # what could be won at most
    kept: bool  # worth tuning
    setting: str | None  # chosen for it; None: nothing was
    present_us: float | None
    default_us: float | None
    tuned_us: float | None  # confirmed, where that was done
    noise_floor: float | None


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting on one class in the search."""

    class_id: int
    setting: str
    rounds: int
    time_us: float
    saved: float | None  # of the present setting's time
    low: float | None  # of its interval
    high: float | None
    accepted: bool


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting and what became of it."""

    name: str
    variables: str
    launches: int
    classes: int  # that it was tried on
    outcome: str


@dataclass(frozen=True, slots=True)
class RowText:
    """A row of the tuner CSV."""

    op: str
    min_bytes: int
    max_bytes: int | None
    algorithm: str
    protocol: str
    channels: int | None
    nranks: int | None
    nnodes: int | None


@dataclass(frozen=True, slots=True)
class Gain:
    """What the tuned setting saves against the present one, confirmed.

    collective  part of the exposed collective time
    step        part of the job's time; None where that is not known
    """

    collective: float
    collective_low: float
    collective_high: float
    step: float | None
    step_low: float | None
    step_high: float | None
    saved_us: float  # of all calls on one rank
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The answer."""

    schema: str = SCHEMA
    outcome: str  # tuned, not worth it, nothing better, not confirmed, interrupted, dry run
    why: str
    kind: str  # nothing, environment, plugin
    library: str | None
    device: str | None
    nranks: int
    seed: int
    present: tuple[Variable, ...]
    kept: tuple[tuple[str, str], ...]  # other variables, of every launch
    job: JobTime
    classes: tuple[TunedClass, ...]
    settings: tuple[SettingRow, ...]
    environment: tuple[tuple[str, str], ...]  # to set
    unset: tuple[str, ...]  # to unset
    rows: tuple[RowText, ...]
    gain: Gain | None
    tried: tuple[Tried, ...]
    launches: int
    seconds: float
    estimated_s: float | None  # before the search began
    time_limit_s: float
    files: tuple[str, ...]
    notices: tuple[str, ...]
