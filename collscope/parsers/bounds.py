"""Records of a reader without the numbers that are beyond `collscope.model.limits`.

The one place that all readers' records pass on their way to the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from collscope.model import MeasurementSet, MetricSet, ProfileSet
from collscope.model.limits import LIMIT, MOST_RANKS, Limits
from collscope.model.scanned_log import LogScan, rows_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from collscope.model import Diagnostic, LogRecord, Profile
    from collscope.model.trace import RecordedCall, RecordedCalls, TraceFile
    from collscope.model.trace_collective import TraceCollective
    from collscope.parsers.reader import Records

    Ints = npt.NDArray[np.integer[Any]]

_Record = TypeVar("_Record", bound=msgspec.Struct)


def bounded(found: Records) -> Records:
    """The records within the limits; what was beyond them is a diagnostic of theirs."""
    if isinstance(found, MeasurementSet):
        return _measurements(found)
    if isinstance(found, MetricSet):
        limits = Limits()
        metrics = _all(limits, found.metrics)
        return replace(found, metrics=metrics, diagnostics=found.diagnostics + limits.diagnostics)
    if isinstance(found, ProfileSet):
        tables = [replace(t, profile=bounded_profile(t.profile)) for t in found.tables]
        return replace(found, tables=tuple(tables), bins=_all(Limits(), found.bins))
    from collscope.model.trace import RecordedCalls, TraceFile  # noqa: PLC0415 - it needs numpy

    if isinstance(found, RecordedCalls):
        return _recording(found)
    if isinstance(found, list):
        return [_trace(t) if isinstance(t, TraceFile) else t for t in found]
    return found


def bounded_log(
    scan: LogScan, records: Iterable[LogRecord]
) -> tuple[LogScan, list[LogRecord], tuple[Diagnostic, ...]]:
    """The scan of a log and the records of its messages within the limits, and what was beyond.

    Counts are a matter of `collscope.match.observe`, which knows the ranks of each call.
    """
    limits = Limits()
    kept = list(_all(limits, records))
    # One row for each communicator; those of kernels are as many as the kernel trace has lines.
    comms = replace(
        scan.comms,
        nranks=_known(limits, "nranks", scan.comms.nranks, MOST_RANKS),
        global_rank=_known(limits, "global_rank", scan.comms.global_rank, MOST_RANKS - 1),
    )
    nranks = _known(limits, "nranks", scan.kernel.nranks, MOST_RANKS)
    kernel = replace(scan.kernel, nranks=nranks)
    for name, limit in (("rank", MOST_RANKS), ("op_count", LIMIT)):
        column = getattr(kernel, name)
        wrong = column >= limit
        if wrong.any():  # a kernel cannot do without them
            limits.note(name, column[wrong][0], number=int(wrong.sum()))
            kernel = rows_of(kernel, ~wrong)
    return replace(scan, comms=comms, kernel=kernel), kept, limits.diagnostics


def _known(limits: Limits, name: str, column: Ints, most: int) -> Ints:
    """A column of the scanner with -1, which stands for no number there, where it is beyond."""
    wrong = column > most
    if not wrong.any():
        return column
    limits.note(name, column[wrong][0], number=int(wrong.sum()))
    found = column.copy()
    found[wrong] = -1
    return found


def _all(limits: Limits, records: Iterable[_Record]) -> tuple[_Record, ...]:
    held = (limits.hold(record) for record in records)
    return tuple(record for record in held if record is not None)


def _measurements(found: MeasurementSet) -> MeasurementSet:
    limits = Limits()
    return replace(
        found,
        measurements=_all(limits, found.measurements),
        copies=_all(limits, found.copies),
        interference=_all(limits, found.interference),
        diagnostics=found.diagnostics + limits.diagnostics,
    )


def bounded_profile(profile: Profile) -> Profile:
    """One profile, with totals of kernels, spans and what it holds on devices."""
    limits = Limits()
    spans = []
    for span in profile.spans:
        held = limits.hold(span)
        if held is not None and held.collective is not None:
            collective = limits.hold_entry(held.collective)
            if collective is not held.collective:
                held = replace(held, collective=collective)
        if held is not None:
            spans.append(held)
    return replace(
        profile,
        totals=_all(limits, profile.totals),
        spans=tuple(spans),
        devices=_all(limits, profile.devices),
        diagnostics=profile.diagnostics + limits.diagnostics,
    )


def _recording(found: RecordedCalls) -> RecordedCalls:
    limits = Limits()
    held = _within_limits(limits, found)
    return replace(
        held,
        calls=tuple(_call(limits, call) for call in found.calls),
        groups=tuple((name, ranks) for name, ranks in found.groups if limits.ranks(ranks)),
        status=_all(limits, found.status),
        diagnostics=found.diagnostics + limits.diagnostics,
    )


def _call(limits: Limits, call: RecordedCall) -> RecordedCall:
    held = _within_limits(limits, call)
    collective = limits.hold_entry(call.collective)
    assert collective is not None  # nothing that it needs is a number
    return held if collective is call.collective else replace(held, collective=collective)


def _trace(trace: TraceFile) -> TraceFile:
    limits = Limits()
    held = _within_limits(limits, trace)
    collectives: tuple[TraceCollective, ...] = tuple(
        _within_limits(limits, entry) for entry in trace.collectives
    )
    return replace(
        held,
        collectives=collectives,
        groups=tuple(ranks for ranks in trace.groups if limits.ranks(ranks)),
        diagnostics=trace.diagnostics + limits.diagnostics,
    )


def _within_limits(limits: Limits, record: _Record) -> _Record:
    """A record that has no number which it needs."""
    held = limits.hold(record)
    assert held is not None
    return held
