"""Interference by class and setting, over ranks and rounds (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import fmean, median

import msgspec

from collscope.model import Interference, Op, bus_bandwidth
from collscope.stats import MAD_TO_SIGMA, mean_interval

SCHEMA = "collscope.interference/2"
_ERROR_OF_MEDIAN = 1.2533  # standard error of a median over that of a mean, of many normal samples
_CI = 1.96  # 95 %


class InterferenceRow(msgspec.Struct, frozen=True):
    """One class with one setting. Ratios are of performance: 1 is undisturbed."""

    label: str | None
    op: str
    datatype: str | None
    redop: str | None
    size_bytes: int | None
    count: int | None
    in_place: bool | None
    shape: str | None
    nranks: int | None
    nnodes: int | None
    compute: str | None
    channels: int | None  # None: the library's choice
    ranks: int  # that were measured
    rounds: int  # launches
    relative_compute: float  # mean over ranks
    relative_compute_worst: float  # of the rank that loses most
    relative_compute_ci: float | None  # half of its 95 % interval
    relative_compute_noise: float | None  # standard deviation of two undisturbed batches' ratio
    lost_multiprocessors: float | None  # (1 - R) times those of the GPU
    model: float | None  # 1 - channels / multiprocessors
    relative_busbw: float
    relative_busbw_worst: float
    relative_busbw_noise: float | None
    comm_alone_ns: float  # of one call on the slowest rank
    comm_with_ns: float
    busbw_alone_gbps: float | None
    busbw_with_gbps: float | None
    samples: int  # rounds of a rank that count
    uncovered: int  # that do not, over ranks


class Failed(msgspec.Struct, frozen=True):
    """One measurement without figures."""

    label: str | None
    op: Op
    size_bytes: int | None
    status: str
    message: str | None


class InterferenceReport(msgspec.Struct, frozen=True):
    """What `bench interference` found."""

    backend: str | None
    library: str | None
    device: str | None
    multiprocessors: int | None
    priority: str | None
    descriptions: tuple[str, ...]  # of the computation
    rows: tuple[InterferenceRow, ...]
    failed: tuple[Failed, ...]  # what has no figures
    schema: str = SCHEMA


_Key = tuple[object, ...]


def build_interference(measured: Sequence[Interference]) -> InterferenceReport:
    """One row for each class and setting, over ranks and rounds; settings in order of channels."""
    groups: dict[_Key, list[Interference]] = defaultdict(list)
    for m in measured:
        if m.status == "ok" and m.relative_compute and m.relative_busbw:
            groups[_key(m)].append(m)
    rows = [_row(group) for group in groups.values()]
    rows.sort(key=lambda r: (r.op, r.datatype or "", r.size_bytes or 0, r.channels or 1 << 30))
    first = measured[0] if measured else None
    return InterferenceReport(
        None if first is None else first.backend,
        None if first is None else first.library,
        None if first is None else first.device,
        None if first is None else first.multiprocessors,
        None if first is None else first.priority,
        tuple(dict.fromkeys(m.compute_description for m in measured if m.compute_description)),
        tuple(rows),
        tuple(
            dict.fromkeys(
                Failed(m.label, m.op, m.size_bytes, m.status, m.message)
                for m in measured
                if m.status != "ok"
            )
        ),
    )


def _key(m: Interference) -> _Key:
    return (
        m.label, m.op, m.datatype, m.redop, m.size_bytes, m.count, m.in_place, m.shape, m.nranks,
        m.nnodes, m.compute, m.channels, m.library, m.device,
    )  # fmt: skip


def _row(group: Sequence[Interference]) -> InterferenceRow:
    m = group[0]
    channels = int(m.channels) if m.channels and m.channels.isdecimal() else None
    compute = _of_ranks(group, "relative_compute")
    busbw = _of_ranks(group, "relative_busbw")
    relative = fmean(compute)
    alone, beside = (_slowest(group, name) for name in ("comm_alone_us", "comm_with_us"))
    return InterferenceRow(
        label=m.label,
        op=m.op.value,
        datatype=None if m.datatype is None else m.datatype.value,
        redop=m.redop,
        size_bytes=m.size_bytes,
        count=m.count,
        in_place=m.in_place,
        shape=m.shape,
        nranks=m.nranks,
        nnodes=m.nnodes,
        compute=m.compute,
        channels=channels,
        ranks=len(compute),
        rounds=len({other.round for other in group}),
        relative_compute=relative,
        relative_compute_worst=min(compute),
        relative_compute_ci=_half_interval(group),
        relative_compute_noise=_median_of(group, "relative_compute_noise"),
        lost_multiprocessors=m.multiprocessors and (1 - relative) * m.multiprocessors,
        model=model(channels, m.multiprocessors),
        relative_busbw=fmean(busbw),
        relative_busbw_worst=min(busbw),
        relative_busbw_noise=_median_of(group, "relative_busbw_noise"),
        comm_alone_ns=1000 * alone,
        comm_with_ns=1000 * beside,
        busbw_alone_gbps=_busbw(m, alone),
        busbw_with_gbps=_busbw(m, beside),
        samples=min(other.covered or 0 for other in group),
        uncovered=sum((other.samples or 0) - (other.covered or 0) for other in group),
    )


def model(channels: int | None, multiprocessors: int | None) -> float | None:
    """What is left of the compute performance when each channel's block fills a multiprocessor.

    A first-order bound: it ignores memory bandwidth, and blocks that leave room for others beside
    it; and a kernel in whole waves loses nothing or a wave (source: 2 of 132 give 0.985, measured
    0.984 to 0.986 with NCCL on H100, but 32 of 132 give 0.758 where 0.83 was measured).

    >>> round(model(2, 132), 3)
    0.985
    """
    if channels is None or not multiprocessors:
        return None
    return 1 - channels / multiprocessors


def _of_ranks(group: Iterable[Interference], name: str) -> list[float]:
    """Median over rounds of each rank."""
    by_rank: dict[int | None, list[float]] = defaultdict(list)
    for m in group:
        by_rank[m.rank].append(getattr(m, name))
    return [median(values) for values in by_rank.values()]


def _slowest(group: Iterable[Interference], name: str) -> float:
    return max(_of_ranks(group, name))


def _median_of(group: Iterable[Interference], name: str) -> float | None:
    values = [value for m in group if (value := getattr(m, name)) is not None]
    return median(values) if values else None


def _busbw(m: Interference, us: float) -> float | None:
    return bus_bandwidth(m.op, size=m.size_bytes, time_s=us * 1e-6, nranks=m.nranks)


def _half_interval(group: Sequence[Interference]) -> float | None:
    """Half of the 95 % interval of the mean over ranks: the larger of two estimates.

    From the spread of a launch's samples, and from that of launches, where there are three.
    """
    within = []
    launches: dict[int | None, list[float]] = defaultdict(list)
    for m in group:
        launches[m.round].append(m.relative_compute or 0.0)
        if m.relative_compute_mad is not None and (m.covered or 0) > 1:
            within.append(MAD_TO_SIGMA * m.relative_compute_mad / sqrt(m.covered or 1))
    if not within:
        return None
    # Ranks are disturbed at the same time, so that more of them do not make the mean surer.
    half = _ERROR_OF_MEDIAN * _CI * fmean(within) / sqrt(len(launches))
    means = [fmean(values) for values in launches.values()]
    if len(means) >= 3:
        half = max(half, mean_interval(means, 0.95)[1])
    return half
