"""Collectives that a setting or the transport slows, or that nothing hides (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.model import CollectiveClass, Op
from collscope.timeline.recorded_job import thread_blocks
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Bools, Candidate, Change, Evidence, Floats
from collscope.timeline.step_causes.settings import (
    ALGORITHMS,
    MINIMA,
    Slower,
    allowed,
    number,
    slower,
)
from collscope.timeline.step_causes.stages import stages
from collscope.timeline.step_causes.tolerances import (
    FAR_BELOW_REACHABLE,
    FEW_BLOCKS,
    LATENCY_NS,
    MICROBATCHES_PER_STAGE,
    MOST_CHANNELS,
    MULTIPROCESSORS,
    REACHED,
    TREE_BUS_BANDWIDTH,
    USUAL_CHANNELS,
)
from collscope.timeline.tolerances import SLOWDOWN_PRIOR
from collscope.units import format_size


class Facts(msgspec.Struct, frozen=True):
    """What logs show of a job.

    settings    name and value of settings that the library printed as used
    transports  what carries the data, in the library's words; /GDRDMA behind a network's where
                the NIC reads the GPU's memory
    reachable   ns of one call of each class, by the system's reachable ceiling
    direct      the GPUs of a host have links of their own, as NVLink
    nvls        their switches reduce
    """

    settings: tuple[tuple[str, str], ...] = ()
    transports: tuple[str, ...] = ()
    reachable: dict[CollectiveClass, float] = msgspec.field(default_factory=dict)
    direct: bool = False
    nvls: bool = False


def slow_settings(job: Job, facts: Facts) -> Iterator[Candidate]:
    """Settings that make the library slower than it is by itself, and detours of the data."""
    settings = dict(facts.settings)
    one_host = len(set(job.rows.hosts)) == 1
    found = list(slower(settings, facts.transports, one_host=one_host, direct=facts.direct))
    for cause in found:
        yield from _slower(job, cause)
    yield from _crowded(job, settings)
    if any(cause.cause == "slow_transport" for cause in found):
        return
    if one_host:
        algorithms = tuple(_algorithms(job, settings, facts))
        yield from algorithms
        if algorithms:
            return
    blocks = _blocks(job, job.graph.transfer > LATENCY_NS)
    if not settings and blocks is not None and blocks <= FEW_BLOCKS:
        few = (blocks / USUAL_CHANNELS[1], blocks / USUAL_CHANNELS[0])
        yield from _slower(job, Slower("slow_setting", "", "", {None: few}, channels=True))
        return
    if not found:
        yield from _slow_calls(job, facts)


def _algorithms(job: Job, settings: Mapping[str, str], facts: Facts) -> Iterator[Candidate]:
    """AllReduces on one host that another algorithm would do faster: a ring, or NVLS.

    A ring of n ranks moves 2 (n - 1) / n of the bytes, a tree twice all, NVLS all of them once.
    """
    ranks = job.calls.nranks[job.calls.call_of_part].astype(np.float64)
    moved = 2 * (ranks - 1) / np.maximum(ranks, 1)
    algorithm = settings.get("NCCL_ALGO", "")
    left = allowed(algorithm, Op.ALL_REDUCE, ALGORITHMS)
    if left == {"tree"}:
        yield from _all_reduces(
            job, ("NCCL_ALGO", algorithm), TREE_BUS_BANDWIDTH * moved / 2, certain=True
        )
        return
    off = settings.get("NCCL_NVLS_ENABLE", "").strip() == "0"
    if facts.nvls and (off or "nvls" not in left):
        name = "NCCL_NVLS_ENABLE" if off else "NCCL_ALGO"
        yield from _all_reduces(
            job, (name, settings[name]), 1 / np.maximum(moved, 1), certain=False
        )


def _all_reduces(
    job: Job, setting: tuple[str, str], least: Floats, *, certain: bool
) -> Iterator[Candidate]:
    """AllReduces that take from a part of their time to all of it without a setting."""
    calls, transfer = job.calls, job.graph.transfer
    op = np.array([key.op is Op.ALL_REDUCE for key in calls.classes] + [False])
    moves = op[calls.class_[calls.call_of_part]] & (transfer > LATENCY_NS)
    moves &= (least > 0) & (least < 1)
    inside = moves & (job.step_of_row[calls.row] >= 0)
    if not inside.any():
        return
    least = np.where(moves, least, 1.0)
    changes = [Change(transfer=least**part) for part in (0.5, 1, 0)]
    count = max(1, len(job.traces)) * job.count
    yield Candidate(
        "slow_setting", (), "collectives",
        Evidence("setting", setting[0], count=float(inside.sum()) / count,
                 ms=float(transfer[inside].sum()) / count / 1e6, detail=setting[1]),
        changes=(changes[0],), others=tuple(changes[1:]), direct=True, exact=certain,
        at_power_cap=True, certain=certain,
    )  # fmt: skip


def _slow_calls(job: Job, facts: Facts) -> Iterator[Candidate]:
    """Large calls that take far longer than the library's algorithms need on this system."""
    calls, transfer = job.calls, job.graph.transfer.astype(np.float64)
    least = np.array([facts.reachable.get(key, 0.0) for key in calls.classes] + [0.0])
    least = least[calls.class_[calls.call_of_part]] if len(calls) else least[:0]
    inside = (job.step_of_row[calls.row] >= 0) & (transfer > LATENCY_NS)
    slow = (least > 0) & inside & (least < FAR_BELOW_REACHABLE * transfer)
    if transfer[slow].sum() <= FAR_BELOW_REACHABLE * transfer[inside].sum():
        return
    part = np.where(slow, least / np.maximum(transfer, 1), 1.0)
    # What the library reaches in jobs lies between that and the ceiling.
    changes = [
        Change(transfer=np.minimum(part / reached, 1.0)) for reached in (REACHED**0.5, 1.0, REACHED)
    ]
    spent = np.bincount(calls.class_[calls.call_of_part][slow], transfer[slow])
    key = calls.classes[int(spent.argmax())]
    size = "" if key.size_bytes is None else format_size(key.size_bytes)
    of_class = slow & (calls.class_[calls.call_of_part] == int(spent.argmax()))
    ranks = max(1, len(job.traces))
    yield Candidate(
        "slow_setting", (), "collectives",
        Evidence("slow_calls", f"{key.op.value} {size}".strip(),
                 count=float(of_class.sum()) / job.count / ranks,
                 ms=float(transfer[slow].sum()) / job.count / ranks / 1e6,
                 usual=float(np.median(part[of_class])),
                 detail=f"{float(slow.sum()) / job.count / ranks:.6g}"),
        changes=(changes[0],), others=tuple(changes[1:]), certain=False,
    )  # fmt: skip


def _slower(job: Job, found: Slower) -> Iterator[Candidate]:
    """Calls that would take a part of their time without a setting, or on other links."""
    calls, transfer = job.calls, job.graph.transfer
    moves = transfer > LATENCY_NS
    least, most = _of_parts(job, found.factors)
    moves &= least < 1.0
    inside = moves & (job.step_of_row[calls.row] >= 0)
    if not inside.any():
        return
    blocks = _blocks(job, moves)
    if found.channels and found.cause == "slow_setting" and blocks:
        # A kernel with fewer blocks than the setting allows has no more of them without it.
        held = float(least[moves].min()) * USUAL_CHANNELS[1]
        least, most = (np.where(moves, x * min(1.0, blocks / held), x) for x in (least, most))
    shortest = LATENCY_NS / np.maximum(transfer, 1)
    changes = [
        Change(transfer=np.where(moves, np.maximum(factor, shortest), 1.0))
        for factor in (np.sqrt(least * most), least, most)
    ]
    if found.channels:
        # More channels slow down the compute beside them, as they do in other jobs.
        slowdown = np.where(job.graph.compute, SLOWDOWN_PRIOR, 0.0)
        changes.append(replace(changes[0], slowdown=slowdown))
    count = job.count * max(1, len(job.traces))
    yield Candidate(
        found.cause, (), "collectives",
        Evidence("transport" if found.links else "setting", found.name,
                 count=float(inside.sum()) / count, ms=float(transfer[inside].sum()) / count / 1e6,
                 usual=blocks or 0.0,
                 detail=" with links by ".join(filter(None, (found.value, found.links)))),
        changes=(changes[0],), others=tuple(changes[1:]), direct=True, at_power_cap=True,
        certain=found.certain,
    )  # fmt: skip


def _crowded(job: Job, settings: Mapping[str, str]) -> Iterator[Candidate]:
    """Kernels that a setting gives far more blocks than calls need: less is left to compute."""
    name = next((n for n in MINIMA if (number(settings.get(n)) or 0.0) > MOST_CHANNELS), None)
    if name is None:
        return
    blocks = _blocks(job, job.graph.transfer > LATENCY_NS) or number(settings[name]) or 0.0
    if blocks <= MOST_CHANNELS:
        return
    share = job.recorded.contention.share
    beside = (share > 0) & job.compute & (job.step_of_row >= 0)
    if not beside.any():
        return
    left = max(MULTIPROCESSORS - blocks, 0.0) / (MULTIPROCESSORS - USUAL_CHANNELS[1])
    changes = [
        Change(duration=np.where(job.compute, 1 - share * (1 - factor), 1.0))
        for factor in (float(np.sqrt(left)), left, 1.0)
    ]
    count = job.count * max(1, len(job.traces))
    held = (share * (job.rows.end - job.rows.start))[beside].sum()
    yield Candidate(
        "slow_setting", (), "collectives",
        Evidence("crowded", name, ms=float(held) / count / 1e6, usual=blocks,
                 detail=settings[name]),
        changes=(changes[0],), others=tuple(changes[1:]), direct=True, certain=False,
    )  # fmt: skip


def _of_parts(job: Job, factors: Mapping[Op | None, tuple[float, float]]) -> tuple[Floats, Floats]:
    """Least and most of each part's transfer, by its operation."""
    others = factors.get(None, (1.0, 1.0))
    of_class = np.array([factors.get(key.op, others) for key in job.calls.classes] + [(1.0, 1.0)])
    least, most = of_class[job.calls.class_[job.calls.call_of_part]].T
    return least, most


def _blocks(job: Job, chosen: Bools) -> float | None:
    """Thread blocks of the kernels that move most of the bytes of some parts; None: not known."""
    blocks = thread_blocks(job.rows, job.calls)[job.calls.call_of_part]
    transfer = job.graph.transfer
    moves = chosen & (job.step_of_row[job.calls.row] >= 0) & np.isfinite(blocks)
    if not moves.any():
        return None
    order = np.argsort(blocks[moves])
    spent = np.cumsum(transfer[moves][order])
    return float(blocks[moves][order][np.searchsorted(spent, spent[-1] / 2)])


def pipeline_bubble(job: Job) -> Iterator[Candidate]:
    """Stages of a pipeline that get too few microbatches to fill it.

    With m microbatches and p stages a step is (m + p - 1) / m of the work of a stage.
    """
    p = len(job.traces)
    if p < 2 or not stages(job):
        return
    inside = job.point_to_point & (job.step_of_row >= 0)
    of_rank = np.bincount(job.rows.trace[inside], minlength=len(job.rows.ranks))
    # A stage that sends and receives at once makes one call more than there are microbatches.
    m = float(of_rank[job.traces].min()) / job.count - 1
    if m < 1 or m >= MICROBATCHES_PER_STAGE * p:
        return
    step = job.recorded.step_ns or 0.0
    now, enough = (
        (m + p - 1) / m,
        (MICROBATCHES_PER_STAGE * p + p - 1) / (MICROBATCHES_PER_STAGE * p),
    )
    waited = float((job.rows.end - job.rows.start)[inside].sum())
    yield Candidate(
        "pipeline_bubble", (), "exchanges",
        Evidence("bubble", count=m, usual=float(p), ms=waited / job.count / p / 1e6),
        changes=(), certain=False, fixed=(step * (1 - enough / now), step * (1 - 1 / now)),
    )  # fmt: skip
