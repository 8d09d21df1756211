"""Collectives that a setting or the transport slows, or that nothing hides (pure)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.model import CollectiveClass, Op
from collscope.timeline.recorded_job import thread_blocks
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence
from collscope.timeline.step_causes.tolerances import (
    FAR_BELOW_REACHABLE,
    FEW_BLOCKS,
    HOST_MEMORY_FACTORS,
    LATENCY_NS,
    LL_FACTORS,
    MICROBATCHES_PER_STAGE,
    REACHED,
    TREE_BUS_BANDWIDTH,
    USUAL_CHANNELS,
)
from collscope.timeline.step_causes.work import stages
from collscope.timeline.tolerances import SLOWDOWN_PRIOR
from collscope.units import format_size


class Facts(msgspec.Struct, frozen=True):
    """What logs show of a job.

    settings    name and value of settings that the library printed as used
    transports  what carries the data, in the library's words
    reachable   ns of one call of each class, by the system's reachable ceiling
    """

    settings: tuple[tuple[str, str], ...] = ()
    transports: tuple[str, ...] = ()
    reachable: dict[CollectiveClass, float] = msgspec.field(default_factory=dict)


def slow_settings(job: Job, facts: Facts) -> Iterator[Candidate]:
    """Settings that make the library slower than it is by itself, and detours of the data."""
    settings = dict(facts.settings)
    blocks = _blocks(job)
    detour = next((t for t in facts.transports if t.upper().startswith("SHM")), None)
    if _on(settings.get("NCCL_P2P_DISABLE")) and (detour or not facts.transports):
        name = "NCCL_P2P_DISABLE"
        yield _slower(
            job, "slow_transport", name, settings[name], HOST_MEMORY_FACTORS, detour or ""
        )
        return
    for name in ("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS"):
        few = _number(settings.get(name))
        if few is not None and few < USUAL_CHANNELS[0]:
            held = min(few, blocks) if blocks else few
            factors = (held / USUAL_CHANNELS[1], held / USUAL_CHANNELS[0])
            yield _with_more_channels(
                job, _slower(job, "slow_setting", name, settings[name], factors)
            )
            return
    protocol = settings.get("NCCL_PROTO", "")
    if protocol.strip().upper() == "LL":
        yield _slower(job, "slow_setting", "NCCL_PROTO", protocol, LL_FACTORS)
        return
    algorithm = settings.get("NCCL_ALGO", "")
    if _forces_tree(algorithm) and len(set(job.rows.hosts)) == 1:
        yield from _trees(job, algorithm)
        return
    if not settings and blocks is not None and blocks <= FEW_BLOCKS:
        factors = (blocks / USUAL_CHANNELS[1], blocks / USUAL_CHANNELS[0])
        yield _with_more_channels(job, _slower(job, "slow_setting", "", "", factors))
        return
    yield from _slow_calls(job, facts)


def _forces_tree(algorithm: str) -> bool:
    """Whether AllReduces may use trees alone: Tree, or allreduce:tree, by the words of NCCL."""
    for part in algorithm.lower().replace(" ", "").split(";"):
        operation, _, names = part.rpartition(":")
        if operation in ("", "allreduce") and set(names.split(",")) == {"tree"}:
            return True
    return False


def _trees(job: Job, value: str) -> Iterator[Candidate]:
    """AllReduces on one host that a ring would do faster."""
    calls, transfer = job.calls, job.graph.transfer
    ranks = calls.nranks[calls.call_of_part].astype(np.float64)
    op = np.array([key.op is Op.ALL_REDUCE for key in calls.classes] + [False])
    moves = op[calls.class_[calls.call_of_part]] & (ranks > 1) & (transfer > LATENCY_NS)
    inside = moves & (job.step_of_row[calls.row] >= 0)
    if not inside.any():
        return
    ring = TREE_BUS_BANDWIDTH * (ranks - 1) / np.maximum(ranks, 1)
    changes = [
        Change(transfer=np.where(moves, np.minimum(ring**part, 1.0), 1.0)) for part in (0.5, 1, 0)
    ]
    count = max(1, len(job.traces)) * job.count
    yield Candidate(
        "slow_setting", (), "collectives",
        Evidence("setting", "NCCL_ALGO", count=float(inside.sum()) / count,
                 ms=float(transfer[inside].sum()) / count / 1e6, detail=value),
        changes=(changes[0],), others=tuple(changes[1:]), direct=True, exact=True,
        at_power_cap=True,
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


def _slower(
    job: Job, cause: str, name: str, value: str, factors: tuple[float, float], detour: str = ""
) -> Candidate:
    """Collectives that would take as much of their time without a setting.

    factors  least and most; of transfers that are no latency
    """
    transfer = job.graph.transfer
    changes = [
        Change(
            transfer=np.where(
                transfer > LATENCY_NS,
                np.maximum(factor, LATENCY_NS / np.maximum(transfer, 1)),
                1.0,
            )
        )
        for factor in (float(np.sqrt(factors[0] * factors[1])), *factors)
    ]
    inside = job.calls.row[job.step_of_row[job.calls.row] >= 0]
    spent = float(transfer[job.step_of_row[job.calls.row] >= 0].sum())
    ranks = max(1, len(job.traces))
    return Candidate(
        cause, (), "collectives",
        Evidence("transport" if detour else "setting", name, count=len(inside) / job.count / ranks,
                 ms=spent / job.count / ranks / 1e6, usual=_blocks(job) or 0.0,
                 detail=f"{value} {detour}".strip()),
        changes=(changes[0],), others=tuple(changes[1:]), direct=True, at_power_cap=True,
    )  # fmt: skip


def _with_more_channels(job: Job, candidate: Candidate) -> Candidate:
    """The same, where more channels slow down the compute beside them, as they do in other jobs."""
    slowdown = np.where(job.graph.compute, SLOWDOWN_PRIOR, 0.0)
    slower = replace(candidate.changes[0], slowdown=slowdown)
    return replace(candidate, others=(*candidate.others, slower))


def _blocks(job: Job) -> float | None:
    """Thread blocks of the kernels that move most of a step's bytes; None: not known."""
    blocks = thread_blocks(job.rows, job.calls)[job.calls.call_of_part]
    transfer = job.graph.transfer
    moves = (job.step_of_row[job.calls.row] >= 0) & (transfer > LATENCY_NS) & np.isfinite(blocks)
    if not moves.any():
        return None
    order = np.argsort(blocks[moves])
    spent = np.cumsum(transfer[moves][order])
    return float(blocks[moves][order][np.searchsorted(spent, spent[-1] / 2)])


def _on(value: str | None) -> bool:
    return value is not None and value.strip() not in ("", "0", "-2")


def _number(value: str | None) -> float | None:
    try:
        return float(value) if value is not None else None
    except ValueError:
        return None


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
