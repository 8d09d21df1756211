"""What a plan needs before it runs: memory, time, and its classes as rows (pure)."""

from __future__ import annotations

from collections import Counter

import msgspec

from collscope.model import Extent, bus_factor
from collscope.replay.build import Planned
from collscope.replay.patterns import amounts
from collscope.replay.plan import SEQUENCE, Plan, PlanClass, itemsize
from collscope.replay.select import weights

# Guesses, not measured, for the expected time of a sequence; the output reports them as assumed.
ASSUMED_BUSBW_GBPS = 50.0
ASSUMED_LAUNCH_US = 20.0


class Estimate(msgspec.Struct, frozen=True):
    """Needs of a plan; buffers are allocated once, so they are those of its largest class."""

    send_bytes: int  # per rank, on the rank that needs most
    recv_bytes: int
    seconds: float  # without start-up, warm-up and verification
    assumption: str  # what `seconds` rests on, one sentence


class PlannedClass(msgspec.Struct, frozen=True):
    """One class of a plan for people; its communicators run at the same time in mode unique."""

    id: int  # as `--only` takes it: of the run that the plan was made from, else of the plan
    plan_id: int | None  # of the plan, where it is made from a run
    planned: PlanClass
    nranks: int
    size_bytes: int  # nccl-tests size S
    share: float  # of the weight of all classes, see `collscope.replay.select`
    send_bytes: int  # per rank, on the rank that needs most
    recv_bytes: int


def describe(planned: Planned) -> list[PlannedClass]:
    """The classes of a plan in their order."""
    plan = planned.plan
    nranks = {c.id: len(c.ranks) for c in plan.comms}
    weight = weights(planned)
    total = sum(weight.values()) or 1.0
    rows = []
    for c in plan.classes:
        n = nranks[c.comms[0]]
        rows.append(
            PlannedClass(
                planned.class_ids.get(c.id, c.id), c.id if planned.class_ids else None, c, n,
                c.size(n), weight[c.id] / total, *buffer_bytes(c, n),
            )
        )  # fmt: skip
    return rows


def estimate(
    plan: Plan,
    *,
    budget_s: float,
    repeat: int = 1,
    busbw_gbps: float = ASSUMED_BUSBW_GBPS,
    launch_us: float = ASSUMED_LAUNCH_US,
) -> Estimate:
    """Memory and time of a plan.

    budget_s    seconds of timed iterations per class; mode unique
    repeat      how often the steps are run; mode sequence
    busbw_gbps  bus bandwidth that every call is assumed to reach, GB = 1e9 bytes; mode sequence
    launch_us   assumed time of a launch beside that; mode sequence
    """
    nranks = {c.id: len(c.ranks) for c in plan.comms}
    buffers = [buffer_bytes(c, nranks[c.comms[0]]) for c in plan.classes]
    if plan.mode == SEQUENCE:
        seconds = repeat * _sequence_seconds(plan, nranks, busbw_gbps, launch_us)
        assumption = (
            f"every call at {busbw_gbps:g} GB/s bus bandwidth and {launch_us:g} us per launch"
        )
    else:
        seconds = len(plan.classes) * budget_s
        assumption = f"{budget_s:g} s of timed iterations per class"
    return Estimate(
        max((s for s, _ in buffers), default=0),
        max((r for _, r in buffers), default=0),
        seconds,
        assumption,
    )


def _sequence_seconds(
    plan: Plan, nranks: dict[int, int], busbw_gbps: float, launch_us: float
) -> float:
    """Steps one after the other, the calls of a step too."""
    call_s = {}
    for c in plan.classes:
        n = nranks[c.comms[0]]
        call_s[c.id] = c.size(n) * (bus_factor(c.op, n) or 1.0) / (busbw_gbps * 1e9)
    distinct = {id(step): step for step in plan.steps}
    times = Counter(id(step) for step in plan.steps)
    return sum(
        n * (launch_us * 1e-6 + sum(call_s[key] for key, _ in distinct[i].items))
        for i, n in times.items()
    )


def buffer_bytes(planned: PlanClass, nranks: int) -> tuple[int, int]:
    """Bytes of the send and the receive buffer on the rank that needs most.

    In place there is one buffer: that of the larger side.
    """
    if planned.transfers:
        sides = [amounts(t.items) for t in planned.transfers]
        send = max(max(sent.values(), default=0) for sent, _ in sides)
        recv = max(max(received.values(), default=0) for _, received in sides)
    else:
        count = planned.count or 0
        many = count * nranks
        send = many if planned.op.sends is Extent.PARTS else count
        recv = many if planned.op.receives is Extent.PARTS else count
    if planned.in_place:
        send, recv = (send, 0) if send > recv else (0, recv)
    size = itemsize(planned.datatype)
    return send * size, recv * size
