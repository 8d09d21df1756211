"""What keeps a measurement from being of exactly a class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

import msgspec

from collscope.model import CollectiveClass, Gap
from collscope.model.note import Note
from collscope.reports.calls.answer import ClassRow
from collscope.reports.efficiency.serving import Match
from collscope.units import count

IN_JOB = "time_in_job"  # the mark of a class whose time is that of the job


class Reason(Enum):
    """What keeps a measurement from being of exactly a class, beside a `Gap`."""

    NO_TIME = "no_time"
    FEWER_RANKS = "fewer_ranks"  # value: ranks measured
    SMALLER_JOB = "smaller_job"  # value: ranks of the job whose classes were measured
    ON_HOST = "on_host"


class Mark(msgspec.Struct, frozen=True):
    """One thing that keeps a measurement from being of exactly a class.

    values  of `Gap.NODES_DIFFER` and `Gap.ROOT_DIFFERS` what the measurements have; of a `Reason`
            its own values
    """

    of: Gap | Reason
    values: tuple[int | None, ...] = ()
    status: str = ""  # of the measurement, for `Reason.NO_TIME`


_PLAIN_MARKS: dict[Gap | Reason, str] = {
    Gap.NODES_UNKNOWN: "the nodes are not known",
    Gap.SHAPE_UNKNOWN: "the shape is not known",
    Gap.PLACE_UNKNOWN: "in place or out of place is not known",
    Gap.DATATYPE_UNKNOWN: "the datatype is not known",
    Gap.REDOP_UNKNOWN: "the reduction is not known",
    Gap.ROOT_UNKNOWN: "the root is not known",
    Reason.ON_HOST: "measured in host memory",
}
_MARK_WORDS = {  # with the values of the mark
    Gap.NODES_DIFFER: "measured on {}",
    Gap.ROOT_DIFFERS: "measured with root {}",
    Reason.FEWER_RANKS: "measured on {}, scaled",
    Reason.SMALLER_JOB: "measured in a job of fewer than its {} ranks, scaled",
}


def gap_marks(gaps: Iterable[Gap], measured: Sequence[CollectiveClass]) -> Iterator[Mark]:
    """Gaps but that of scaling; `measured` are the classes that serve."""
    for gap in gaps:
        if gap is Gap.NODES_DIFFER:
            yield Mark(gap, tuple(sorted({c.nnodes for c in measured if c.nnodes is not None})))
        elif gap is Gap.ROOT_DIFFERS:
            yield Mark(gap, tuple(sorted({c.root for c in measured if c.root is not None})))
        elif gap is not Gap.SCALED:
            yield Mark(gap)


def marks_of(match: Match, row: ClassRow) -> Iterator[Mark]:
    """What keeps a measurement from being of exactly a class."""
    if match.status != "ok":
        yield Mark(Reason.NO_TIME, status=match.status)
    if not match.nearest:
        return
    first = match.nearest[0].measurement
    if Gap.SCALED in match.gaps and first.nranks != row.nranks:
        yield Mark(Reason.FEWER_RANKS, (first.nranks,))
    elif Gap.SCALED in match.gaps:
        yield Mark(Reason.SMALLER_JOB, (first.scaled_from,))
    yield from gap_marks(match.gaps, [s.collective_class for s in match.nearest])
    if any(s.measurement.on_host for s in match.nearest):
        yield Mark(Reason.ON_HOST)


def mark_words(mark: Mark) -> str:
    """What keeps a measurement from being of exactly a class."""
    if mark.of in _PLAIN_MARKS:
        return _PLAIN_MARKS[mark.of]
    if mark.of is Reason.NO_TIME:
        return f"replay {mark.status}"
    values = " and ".join(map(str, mark.values))
    if mark.of is Gap.NODES_DIFFER:
        values = " and ".join(count(n, "node") for n in mark.values)
    elif mark.of is Reason.FEWER_RANKS:
        values = count(mark.values[0], "rank")
    return _MARK_WORDS[mark.of].format(values)


def class_marks(match: Match | None, row: ClassRow, *, in_job: bool) -> Iterator[Note]:
    """The marks of a class; `in_job`: its time is that of the job."""
    if match is not None:
        for mark in marks_of(match, row):
            values = {"values": mark.values, "status": mark.status or None}
            yield Note(mark.of.value, values, mark_words(mark))
    if in_job:
        yield Note(IN_JOB, {}, "measured in the job, not alone")
