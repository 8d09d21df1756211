"""Size, time and ranks of a call, compared with the bandwidths computed from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.model import bus_bandwidth

if TYPE_CHECKING:
    from collscope.model.trace import RecordedCall

_DECIMALS = 1e-6
_TICK_NS = 1000
_GB = 1_000_000_000


def without_contradiction(
    call: RecordedCall, algbw: float | None, part_bytes: int | None = None
) -> RecordedCall:
    """The call without the fields that its bandwidths contradict.

    algbw       algobw_gbs: bytes over time; busbw_gbs is that times a factor of the number of ranks
    part_bytes  of one rank, where the recorder may take these for the bytes of the call
    source      ncclInspectorComputeCollBw: it uses the whole number of µs that the record has; some
                plugins round the time later, so that it may be off by 1 µs. JSON has six decimals.
    """
    busbw, size, time = call.busbw_gbps, call.size_bytes, call.duration_ns
    if not algbw or not busbw:
        return call
    rounded = _DECIMALS / min(algbw, busbw)
    ranks = call.collective.group_size
    factor = bus_bandwidth(call.collective.op, size=_GB, time_s=1.0, nranks=ranks)
    if factor is not None and abs(busbw / algbw - factor) > 2 * factor * rounded:
        what = replace(call.collective, group_size=None)
        part = call.collective.op.count_is_part
        return replace(call, collective=what, size_bytes=None if part else size, busbw_gbps=None)
    if size is None or not time:
        return call
    sizes = (size,) if part_bytes is None else (size, part_bytes)
    if all(abs(s / time - algbw) > algbw * (rounded + _TICK_NS / time) for s in sizes):
        return replace(call, size_bytes=None, duration_ns=None, busbw_gbps=None)
    return call
