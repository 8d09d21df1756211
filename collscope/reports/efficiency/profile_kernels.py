"""Kernels of a profile against the roof of the largest message they can serve."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from collscope.model import Datatype, Op
from collscope.reports.efficiency.judged_classes import Judged
from collscope.reports.share.answer import KernelShare, Share
from collscope.reports.tolerances import MIN_JOB_TO_ALONE, MIN_KERNEL_SHARE, SKEW_FACTOR
from collscope.roofline.chosen import AnyRoofs
from collscope.roofline.workload import RoofAt, Workload

if TYPE_CHECKING:
    from collscope.kernel_names import KernelName

KIB, MIB = 1024, 1024**2

# Largest AllReduce that RCCL gives to MSCCL with the algorithm files that it ships, by protocol of
# the kernel: tools/msccl-algorithms of ROCm/rccl @0cbce2a (8 ranks of one node; LL up to 512 KiB,
# Simple up to 16 MiB). Bytes may be an all-to-all, which has other limits.
_MSCCL_RANKS = 8
_MSCCL_LIMITS = {"LL": 512 * KIB, "SIMPLE": 16 * MIB}
_BYTES = {Datatype.INT8.value, Datatype.UINT8.value}

_Largest = tuple[RoofAt, int | None, float]  # roof, class, time alone or of the transfer in ns


class ProfileKernel(msgspec.Struct, frozen=True):
    """A kernel of a profile against the reachable time of the largest message it can serve."""

    name: str
    share: float  # ratio to GPU time
    mean_ns: float
    served_bytes: int
    served_class: int | None  # of that message; None: of RCCL's stock MSCCL algorithms
    roof_ns: float  # reachable time of that message
    several_sizes: bool  # it serves messages of several sizes: its mean is of no single one
    skewed: bool  # over three times that, and over twice what its class is known to take


def judge_kernels(
    shares: Sequence[Share], judged: Sequence[Judged], roofs: AnyRoofs | None
) -> tuple[ProfileKernel, ...]:
    """Kernels of all profiles together: those with 1 % of GPU time and a largest message known."""
    if roofs is None:
        return ()
    found = [
        row for kernel in _over_all(shares) if (row := _judge(kernel, judged, roofs)) is not None
    ]
    return tuple(sorted(found, key=lambda row: (-row.share, row.name)))


def _over_all(shares: Sequence[Share]) -> Iterable[KernelShare]:
    """Each kernel once, with its times and calls in all profiles and its part of their time.

    As the share of the whole run: of the sum of their times, else the mean of their percentages.
    """
    by_name: dict[str, list[KernelShare]] = defaultdict(list)
    for share in shares:
        for kernel in share.kernels:
            by_name[kernel.name].append(kernel)
    busy = sum(share.busy_ns or 0 for share in shares)
    has_totals = busy and all(share.busy_ns for share in shares)
    for same in by_name.values():
        total, calls = sum(k.total_ns for k in same), sum(k.calls for k in same)
        mean = sum(k.percent or 0.0 for k in same) / len(shares)
        yield replace(
            same[0],
            calls=calls,
            total_ns=total,
            mean_ns=total / calls if calls else None,
            percent=100 * total / busy if has_totals else mean,
        )


def _judge(kernel: KernelShare, judged: Sequence[Judged], roofs: AnyRoofs) -> ProfileKernel | None:
    """A kernel is skewed when its mean is over three roofs, and over twice its class's own time.

    That is the time alone or of the transfer in the job, whichever is longer, where known.
    """
    from collscope.kernel_names import classify  # noqa: PLC0415 - most reports ask for no roofs

    share, name = (kernel.percent or 0.0) / 100, classify(kernel.name)
    if share < MIN_KERNEL_SHARE or kernel.mean_ns is None or name is None:
        return None
    limit = _stock_limit(name, judged) if name.family == "msccl" else None
    largest = _largest_class(name, judged) if limit is None else _stock_msccl(limit, roofs)
    if largest is None:
        return None
    roof, source, known_ns = largest
    return ProfileKernel(
        name=kernel.name,
        share=share,
        mean_ns=kernel.mean_ns,
        served_bytes=roof.work.size_bytes,
        served_class=source,
        roof_ns=roof.time_ns,
        several_sizes=len({j.row.size_bytes for j in judged if _may_serve(name, j)}) > 1,
        skewed=kernel.mean_ns > max(SKEW_FACTOR * roof.time_ns, MIN_JOB_TO_ALONE * known_ns),
    )


def _stock_limit(name: KernelName, judged: Sequence[Judged]) -> int | None:
    """Bytes of the largest AllReduce of the shipped algorithm files, where they apply."""
    ranks = {j.row.nranks for j in judged}
    reduces = name.redop_hint is not None and name.datatype_hint not in _BYTES
    if not reduces or _MSCCL_RANKS not in ranks:
        return None
    return _MSCCL_LIMITS.get(name.protocol_hint or "")


def _stock_msccl(limit: int, roofs: AnyRoofs) -> _Largest | None:
    """The roof of an AllReduce of the shipped algorithm files."""
    roof = roofs.at(Workload(Op.ALL_REDUCE, limit, _MSCCL_RANKS, algorithm="MSCCL"))
    return None if isinstance(roof, str) else (roof, None, 0.0)


def _largest_class(name: KernelName, judged: Sequence[Judged]) -> _Largest | None:
    """The class with the longest roof time among those that the kernel's name allows."""
    fitting = [j for j in judged if j.roof is not None and _may_serve(name, j)]
    # Kernels of a trace served the classes that it shows.
    fitting = [j for j in fitting if j.kernel_ns or not j.counted] or fitting
    slowest = max(fitting, key=lambda j: j.roof.time_ns if j.roof else 0.0, default=None)
    if slowest is None or slowest.roof is None:
        return None
    known_ns = max(slowest.alone_ns or 0.0, slowest.row.transfer_ns or 0.0)
    return slowest.roof, slowest.row.class_id, known_ns


def _may_serve(name: KernelName, j: Judged) -> bool:
    hints = (
        (name.op_hint, j.row.op.value),
        (name.datatype_hint, j.row.datatype and j.row.datatype.value),
    )
    return all(hint is None or value is None or hint == value for hint, value in hints)
