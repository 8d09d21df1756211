"""Remarks on an answer about labels, most on what is not like for like: one record for each kind.

`collscope.reports.comparison.words` puts them into sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collscope.analysis.labels import CIRCUMSTANCES, POOLED, Label
from collscope.model import CollectiveClass, Gap


@dataclass(frozen=True, slots=True)
class Unlike:
    """Labels differ in a circumstance; the values that each has, none where not known."""

    circumstance: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Mixed:
    """Every label has several values of a circumstance, where it should have one."""

    circumstance: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WrongResults:
    """Classes with a wrong result, which have no time."""

    label: str
    classes: int
    first: CollectiveClass


@dataclass(frozen=True, slots=True)
class WithoutTime:
    """Rows that failed, ran out of time or were skipped."""

    label: str
    rows: int


@dataclass(frozen=True, slots=True)
class NotEverywhere:
    """Classes of a label that not every label has."""

    label: str
    classes: int
    of: int


@dataclass(frozen=True, slots=True)
class NoCounterpart:
    """Classes of a label for which the other has no time."""

    label: str
    classes: int


@dataclass(frozen=True, slots=True)
class PlacesDiffer:
    """Out of place and in place of one class are far apart."""

    label: str
    key: CollectiveClass
    out_us: float
    in_us: float


@dataclass(frozen=True, slots=True)
class HeldAgainst:
    """Classes of a label that are compared though something keeps them from being equal."""

    label: str
    classes: int
    gap: Gap


@dataclass(frozen=True, slots=True)
class Weighed:
    """Calls of a run that weigh a class though something keeps them from being of it."""

    run: str
    calls: int
    gap: Gap


@dataclass(frozen=True, slots=True)
class ControlRaises:
    """The control raises thresholds; a ratio of times, minus one."""

    threshold: float


@dataclass(frozen=True, slots=True)
class OneCallEach:
    """No calls are known: a class weighs the time of one call."""


@dataclass(frozen=True, slots=True)
class FewLaunches:
    """Classes with too few launches of a label to tell how launches differ."""

    classes: int
    of: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a run was measured; parts are None where the run has nothing."""

    run: str
    classes: int
    of: int
    calls: float | None  # part of the run's calls
    size: float | None  # part of their bytes


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """A system that such classes do not fit on."""

    system: str
    why: str  # as the bounds say it


@dataclass(frozen=True, slots=True)
class SeveralNodes:
    """More ranks than one node of the system has GPUs."""

    system: str
    nranks: int
    gpus: int
    nodes: int
    nics: int
    network: str
    assumed: bool  # the number of nodes is not known


@dataclass(frozen=True, slots=True)
class Impossible:
    """A value above what any schedule over the system's links can reach; rates in GB/s."""

    label: str
    key: CollectiveClass
    busbw_gbps: float
    limit_gbps: float  # highest bus bandwidth that the links allow
    why: str  # what sets the limit, and what it assumes


@dataclass(frozen=True, slots=True)
class Damaged:
    """Content of a file that could not be read."""

    path: str
    severity: str
    count: int
    code: str
    message: str  # the diagnostic's
    line: int | None


@dataclass(frozen=True, slots=True)
class NoSteps:
    """A traced run in which no step recurs."""

    label: str


@dataclass(frozen=True, slots=True)
class NotSplit:
    """Classes of a traced run whose transfer is not known apart from the waiting."""

    label: str
    classes: int
    of: int


@dataclass(frozen=True, slots=True)
class OneRecordingEach:
    """How much two recordings of one job differ is assumed; the largest part of a host."""

    host: float


Note = (
    Unlike | Mixed | WrongResults | WithoutTime | NotEverywhere | NoCounterpart | PlacesDiffer
    | ControlRaises | OneCallEach | FewLaunches | Coverage | NotApplicable | SeveralNodes
    | Impossible | Damaged | HeldAgainst | Weighed | NoSteps | NotSplit | OneRecordingEach
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NoResult:
    """A label without a single right result; numbers of classes."""

    label: str
    wrong: int
    failed: int


def no_results(labels: Sequence[Label]) -> tuple[NoResult, ...]:
    """Labels without a single right result."""
    return tuple(
        NoResult(label.name, len(label.wrong), len(label.failed - label.wrong))
        for label in labels
        if not label.classes
    )


def without_times(label: Label) -> Iterator[Note]:
    """Classes and rows of a label that have no time."""
    if label.wrong:
        yield WrongResults(label.name, len(label.wrong), min(label.wrong))
    if label.left_out:
        yield WithoutTime(label.name, label.left_out)


def unlike(labels: Sequence[Label]) -> Iterator[Note]:
    """Circumstances in which labels differ, or one label has several values."""
    for name in CIRCUMSTANCES:
        values = tuple((label.name, label.circumstances[name]) for label in labels)
        if len({v for _, v in values}) > 1:
            yield Unlike(name, values)
        elif name in POOLED and any(len(v) > 1 for _, v in values):
            yield Mixed(name, values[0][1])


def held_against(labels: Sequence[Label]) -> Iterator[Note]:
    """Classes of the labels that serve those of the first without being equal."""
    for label in labels:
        for gap, classes in Counter(g for _, gaps in label.served for g in gaps).items():
            yield HeldAgainst(label.name, classes, gap)
