"""Records of a reader without the numbers that cannot be, by the limits of `collscope.model.limits`.

The one place that all readers' records pass on their way to the store; those of logs, which are
columns, pass `collscope.match.observe`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from collscope.model import MeasurementSet, MetricSet, ProfileSet
from collscope.model.limits import Limits

if TYPE_CHECKING:
    from collscope.model import Profile
    from collscope.model.trace import RecordedCall, RecordedCalls, TraceFile
    from collscope.model.trace_collective import TraceCollective
    from collscope.parsers.reader import Records

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
    """One profile, with totals of kernels, spans and what it says of devices."""
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
    held = _whole(limits, found)
    return replace(
        held,
        calls=tuple(_call(limits, call) for call in found.calls),
        groups=tuple((name, ranks) for name, ranks in found.groups if limits.ranks(ranks)),
        status=_all(limits, found.status),
        diagnostics=found.diagnostics + limits.diagnostics,
    )


def _call(limits: Limits, call: RecordedCall) -> RecordedCall:
    held = _whole(limits, call)
    collective = limits.hold_entry(call.collective)
    assert collective is not None  # nothing that it needs is a number
    return held if collective is call.collective else replace(held, collective=collective)


def _trace(trace: TraceFile) -> TraceFile:
    limits = Limits()
    held = _whole(limits, trace)
    collectives: tuple[TraceCollective, ...] = tuple(
        _whole(limits, entry) for entry in trace.collectives
    )
    return replace(
        held,
        collectives=collectives,
        groups=tuple(ranks for ranks in trace.groups if limits.ranks(ranks)),
        diagnostics=trace.diagnostics + limits.diagnostics,
    )


def _whole(limits: Limits, record: _Record) -> _Record:
    """A record that has no number which it needs."""
    held = limits.hold(record)
    assert held is not None
    return held
