"""What names a cause, and what it costs (pure)."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Evidence(msgspec.Struct, frozen=True):
    """What the recording shows, as codes and values; `reports` turns it into a sentence.

    kind    extra_kernels, longer_kernels, taken, host_gaps, pauses, pauses_in_turns,
            unused_parameters, blocking_calls, blocking_launches, polls, nan_checks, barriers,
            objects, small_calls, slow_calls, setting, transport, crowded, copies, turns, bubble,
            long_steps
    name    of a kernel, call, setting, or kind of copy
    count   a step, of what is counted; of long_steps and pauses: steps, of `usual` recorded ones
    detail  value of a setting; ranks that take turns; rank that the hosts' gaps of another are
            held against; number of slow calls a step; of work that some steps lack: "1 of 3",
            those that have it
    ms      a step, what the recording shows of it: summed durations or idle time, not the cost;
            of work that some steps lack: a step that has it; so is `count`
    """

    kind: str
    name: str = ""
    count: float = 0.0
    ms: float = 0.0
    usual: float = 0.0  # what the other ranks have of `count`; waits that stay
    after: str = ""  # kernel before the place
    before: str = ""  # kernel behind it
    detail: str = ""


class Change(msgspec.Struct, frozen=True):
    """What is taken out of the recorded steps.

    A host's interval ends with the launch of a row. Rows keep their causes; the other arrays hold
    what stays. None: as recorded.
    """

    host_ns: Floats | None = None  # (rows,) taken from the host's time before each row's launch
    duration: Floats | None = None  # (rows,) in parts of the recorded: kernels and copies
    transfer: Floats | None = None  # (parts,) in parts of the recorded
    waits: Bools | None = None  # (nodes,) the host does not wait in this synchronising call
    slowdown: Floats | None = None  # (rows,) beside collectives, at least
    prompt: Bools | None = None  # (rows,) they start as soon as what they wait for is done


class Candidate(msgspec.Struct, frozen=True):
    """A cause that the recording may show, before its cost is known.

    changes  what the steps are without it, by each of `Job.contention`; one: whatever that is
    others   other readings of the same
    some     whole steps that have it; empty: all
    """

    cause: str
    ranks: tuple[int, ...]  # world ranks; empty: no particular one
    where: str  # code of the place in the step: begin, end, all, or a kernel's name
    evidence: Evidence
    changes: tuple[Change, ...]
    others: tuple[Change, ...] = ()
    certain: bool = True
    fixed: tuple[float, float] | None = None  # ns a step, where no play gives the cost
    irregular: bool = False  # as the host's work is interrupted: the less of it, the less often
    # The same in every step, or what the steps scatter by: its cost need not exceed their scatter.
    counted: bool = False
    # The same kernels, calls or setting in every step: it stands out above 1 % of a step, whatever
    # two starts differ by.
    exact: bool = False
    direct: bool = False  # a source names it: it stands out where any reading shows it
    surely: bool = False  # healthy jobs have it, too: it stands out by every reading, or not at all
    between_gpus: float = 0.0  # of the step: ranks may differ by so much for no cause
    at_power_cap: bool = False  # without it the GPU computes more of the time: its clock may fall
    recorded: bool = False  # of the host: it stands out as recorded, or not at all
    some: tuple[int, ...] = ()
    # One rank has it after the other: whose lead hides it decides what single steps save.
    turns: bool = False

    @property
    def makes_steps_differ(self) -> bool:
        """Single steps save more or less by what it is, and not by chance."""
        return bool(self.some) or self.turns


class Cost(msgspec.Struct, frozen=True):
    """ms a step."""

    value: float
    low: float
    high: float


class Cause(msgspec.Struct, frozen=True):
    """Why steps take as long as they do, and what they would be shorter by without it."""

    cause: str
    certain: bool
    ranks: tuple[int, ...]
    where: str
    cost: Cost
    evidence: Evidence
    within_starts: bool = False  # the recording shows a cost: only another start may hide it


class CauseSpan(msgspec.Struct, frozen=True):
    """Something of a cause on one rank; ns on the common clock."""

    trace: int
    start: float
    end: float


class RunCause(msgspec.Struct, frozen=True):
    """A cause that one of two runs has."""

    run: str  # label of the run
    both: bool  # the other run has it, too, on the same ranks
    cause: Cause


class Diagnosis(msgspec.Struct, frozen=True):
    """The causes of a traced job, the one that costs most first.

    step_ns    recorded, the mean of the whole steps; None without whole steps
    played_ns  the same without what the profiler costs, as assumed or as given: least and most
    """

    causes: tuple[Cause, ...]
    step_ns: float | None
    played_ns: tuple[float, float] | None
    steps: int
    profiled: bool  # no step time without the profiler was given
    marks: tuple[tuple[CauseSpan, ...], ...] = ()  # of each cause
