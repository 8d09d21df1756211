"""Notes on a comparison, most on differences between the labels: one record for each kind.

`collscope.reports.rendering.note_words` puts them into sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from collscope.model import CollectiveClass, Gap
from collscope.reports.compare.labels import CIRCUMSTANCES, POOLED, Label


class Unlike(msgspec.Struct, frozen=True):
    """Labels differ in a circumstance; the values that each has, none where not known."""

    circumstance: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


class Mixed(msgspec.Struct, frozen=True):
    """Every label has several values of a circumstance, where it should have one."""

    circumstance: str
    values: tuple[str, ...]


class WrongResults(msgspec.Struct, frozen=True):
    """Classes with a wrong result, which have no time."""

    label: str
    classes: int
    first: CollectiveClass


class WithoutTime(msgspec.Struct, frozen=True):
    """Rows that failed, ran out of time, contradict themselves or were skipped."""

    label: str
    rows: int


class NotEverywhere(msgspec.Struct, frozen=True):
    """Classes of a label that not every label has."""

    label: str
    classes: int
    of: int


class NoCounterpart(msgspec.Struct, frozen=True):
    """Classes of a label for which the other has no time."""

    label: str
    classes: int


class PlacesDiffer(msgspec.Struct, frozen=True):
    """Out of place and in place of one class are far apart."""

    label: str
    key: CollectiveClass
    out_ns: float
    in_ns: float


class HeldAgainst(msgspec.Struct, frozen=True):
    """Classes of a label that are compared although they are not exactly alike."""

    label: str
    classes: int
    gap: Gap


class Weighed(msgspec.Struct, frozen=True):
    """Calls of a run that weight a class although they may not belong to it."""

    run: str
    calls: int
    gap: Gap


class ControlRaises(msgspec.Struct, frozen=True):
    """The control raises thresholds; a ratio of times, minus one."""

    threshold: float


class OneCallEach(msgspec.Struct, frozen=True):
    """No calls are known: a class weighs the time of one call."""


class FewLaunches(msgspec.Struct, frozen=True):
    """Classes with too few launches of a label to know how launches differ."""

    classes: int
    of: int


class WeightsCoverage(msgspec.Struct, frozen=True):
    """How much of a run was measured; parts are None where the run has nothing."""

    run: str
    classes: int
    of: int
    calls: float | None  # part of the run's calls
    size: float | None  # part of their bytes


class NotApplicable(msgspec.Struct, frozen=True):
    """A system that such classes do not fit on."""

    system: str
    why: str  # as the bounds say it


class SeveralNodes(msgspec.Struct, frozen=True):
    """More ranks than one node of the system has GPUs."""

    system: str
    nranks: int
    gpus: int
    nodes: int
    nics: int
    network: str
    assumed: bool  # the number of nodes is not known


class Impossible(msgspec.Struct, frozen=True):
    """A value above what any schedule over the system's links can reach; rates in GB/s."""

    label: str
    key: CollectiveClass
    busbw_gbps: float
    limit_gbps: float  # highest bus bandwidth that the links allow
    why: str  # what sets the limit, and what it assumes


class Damaged(msgspec.Struct, frozen=True):
    """Content of a file that could not be read."""

    path: str
    severity: str
    count: int
    code: str
    message: str  # the diagnostic's
    line: int | None


class NoSteps(msgspec.Struct, frozen=True):
    """A traced run in which no step recurs."""

    label: str


class NotSplit(msgspec.Struct, frozen=True):
    """Classes of a traced run whose transfer is not known apart from the waiting."""

    label: str
    classes: int
    of: int


class WaitsUnknown(msgspec.Struct, frozen=True):
    """Kernels of collectives in the steps of a traced run whose waiting is not known."""

    label: str
    kernels: int
    of: int


class UnlikeProfilers(msgspec.Struct, frozen=True):
    """Traced runs were recorded with other activities or profilers."""

    values: tuple[tuple[str, str], ...]  # run, and `SampledRun.profiler`


class GroupsInferred(msgspec.Struct, frozen=True):
    """Process groups of some of the ranks that no trace of a run names."""

    groups: int


class OneRecording(msgspec.Struct, frozen=True):
    """Two traced runs hold the same recording."""


class OneRecordingEach(msgspec.Struct, frozen=True):
    """The variation between two recordings of one job is assumed; the largest host-bound part."""

    host: float


Note = (
    Unlike | Mixed | WrongResults | WithoutTime | NotEverywhere | NoCounterpart | PlacesDiffer
    | ControlRaises | OneCallEach | FewLaunches | WeightsCoverage | NotApplicable | SeveralNodes
    | Impossible | Damaged | HeldAgainst | Weighed | NoSteps | NotSplit | WaitsUnknown
    | UnlikeProfilers | GroupsInferred | OneRecording | OneRecordingEach
)  # fmt: skip


class NoResult(msgspec.Struct, frozen=True):
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
