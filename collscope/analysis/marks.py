"""What keeps a measurement from being of exactly a class, as codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

import msgspec

from collscope.analysis.serving import Match
from collscope.model import CollectiveClass, Gap
from collscope.reports.calls.answer import ClassRow


class Reason(Enum):
    """What keeps a measurement from being of exactly a class, beside a `Gap`."""

    NO_TIME = "no_time"
    FEWER_RANKS = "fewer_ranks"  # value: ranks measured
    SMALLER_JOB = "smaller_job"  # value: ranks of the job whose classes were measured
    ON_HOST = "on_host"


class Mark(msgspec.Struct, frozen=True):
    """One thing that keeps a measurement from being of exactly a class.

    values  of `Gap.NODES_DIFFER` and `Gap.ROOT_DIFFERS` what the measurements have; of a `Reason`
            as it says
    """

    of: Gap | Reason
    values: tuple[int | None, ...] = ()
    status: str = ""  # of the measurement, for `Reason.NO_TIME`


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
