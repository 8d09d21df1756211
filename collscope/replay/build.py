"""A replay plan from the records of a run (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.model import Datatype, Redop
from collscope.replay.partition import partitions, place
from collscope.replay.patterns import completed, transfer_bytes
from collscope.replay.plan import (
    ONLY_TRANSFERS,
    REDOPS,
    REPLAYED,
    SEQUENCE,
    UNIQUE,
    Plan,
    PlanClass,
    PlanComm,
    PlanStep,
    PlanTransfer,
    PlanTransfers,
    itemsize,
    used,
)
from collscope.replay.records import Ints, RunClass, RunComm, RunRecords, RunSlot
from collscope.units import count

_Slots = tuple[tuple[int, ...], RunSlot]  # of one communicator, with their indices
_Part = list[_Slots]  # what one plan class stands for


class Planned(msgspec.Struct, frozen=True):
    """A plan, and what of the run it leaves out.

    notices    sentences about what is left out or assumed, each with its count
    kernel_ns  duration of one call in the job by plan class, waiting included, where known
    class_ids  class of the run, as the report shows it, by plan class; empty without a run
    """

    plan: Plan
    notices: tuple[str, ...] = ()
    kernel_ns: Mapping[int, float] = msgspec.field(default_factory=dict)
    class_ids: Mapping[int, int] = msgspec.field(default_factory=dict)


def build_plan(records: RunRecords, mode: str = UNIQUE) -> Planned:
    """The plan of a run: each class once, or every call in launch order.

    mode  unique or sequence; the latter needs the calls in `records`
    """
    ranks, notices = place(records.comms)
    classes = {c.id: c for c in records.classes}
    kept, reasons = _replayable(records, classes, ranks)
    notices += _left_out(reasons)
    notices += _assumptions(classes, kept)
    parts = _parts(kept, records.comms, ranks, mode)
    if mode == UNIQUE:  # most bytes first: a replay that is cut short has measured these
        parts.sort(key=lambda p: -_total_bytes(classes[p[0][1].class_id], p))
    planned = tuple(
        _plan_class(i, classes[p[0][1].class_id], p, ranks) for i, p in enumerate(parts)
    )
    comms = tuple(PlanComm(c, ranks[c]) for c in sorted(ranks))
    plan = Plan(mode, 0, comms, planned)
    comms, nranks = used(plan)
    steps = _steps(records, parts) if mode == SEQUENCE else ()
    plan = Plan(mode, nranks, comms, planned, steps)
    class_ids = {i: p[0][1].class_id for i, p in enumerate(parts)}
    kernels = {i: classes[key].kernel_ns for i, key in class_ids.items()}
    known = {i: ns for i, ns in kernels.items() if ns is not None}
    return Planned(plan, tuple(notices), known, class_ids)


def _replayable(
    records: RunRecords, classes: Mapping[int, RunClass], ranks: Mapping[int, tuple[int, ...]]
) -> tuple[list[tuple[int, RunSlot]], Counter[str]]:
    """Slots that can be replayed, their transfers complete; calls left out by reason."""
    kept: list[tuple[int, RunSlot]] = []
    reasons: Counter[str] = Counter()
    for index, slot in enumerate(records.slots):
        found = classes[slot.class_id]
        reason = _reason(found, slot, ranks)
        if reason:
            reasons[reason] += slot.calls
            continue
        if found.shape is not None and not slot.complete:
            transfers = completed(found.shape, len(ranks[slot.comm_id]), slot.transfers)
            if transfers is None:
                reasons[f"?{found.op.value}"] += slot.calls
            else:
                slot = replace(slot, transfers=transfers)  # noqa: PLW2901
        kept.append((index, slot))
    return kept, reasons


def _reason(found: RunClass, slot: RunSlot, ranks: Mapping[int, tuple[int, ...]]) -> str | None:
    """Why calls cannot be replayed; None when they can."""
    name = found.op.value
    if found.op.point_to_point:
        return f"{name} without its other half"
    if found.op not in REPLAYED:
        return f"{name} (no replay of this operation)"
    if found.datatype in (None, Datatype.UNKNOWN):
        return f"{name} of unknown datatype"
    if slot.comm_id not in ranks:
        return f"{name} on a communicator of unknown size"
    missing = _missing(found, slot, len(ranks[slot.comm_id]))
    return None if missing is None else f"{name} {missing}"


def _missing(found: RunClass, slot: RunSlot, nranks: int) -> str | None:
    """What the plan must say and the calls do not."""
    if found.shape is not None or found.op in ONLY_TRANSFERS:
        moved = sum(t.elements for t in slot.transfers)
        return None if found.shape and moved else "whose transfers are not known"
    if not found.count:
        return "of unknown size" if found.count is None else "without elements"
    if found.op.rooted and (found.root is None or found.root >= nranks):
        return "of unknown root"
    return None


def _left_out(reasons: Counter[str]) -> list[str]:
    """Sentences. A reason that begins with a question mark is a doubt, not an omission."""
    notices = [
        f"left out: {count(n, 'call')} of {reason}"
        for reason, n in reasons.items()
        if reason[0] != "?"
    ]
    return notices + [
        f"{count(n, 'call')} of {reason[1:]}: only the transfers of logged ranks are replayed"
        for reason, n in reasons.items()
        if reason[0] == "?"
    ]


def _assumptions(classes: Mapping[int, RunClass], kept: Sequence[tuple[int, RunSlot]]) -> list[str]:
    calls: Counter[str] = Counter()
    for _, slot in kept:
        found = classes[slot.class_id]
        if found.op.reduces and found.redop not in REDOPS:
            calls["with a custom or unknown reduction: replayed as Sum"] += slot.calls
        if found.in_place is None and found.shape is None:
            calls[
                "that may be in place or not (the log does not show it): replayed out of place"
            ] += slot.calls
    return [f"{count(n, 'call')} {text}" for text, n in calls.items()]


def _parts(
    kept: Sequence[tuple[int, RunSlot]],
    comms: Sequence[RunComm],
    ranks: Mapping[int, tuple[int, ...]],
    mode: str,
) -> list[_Part]:
    """Slots that make one plan class: same class and transfers; in mode unique disjoint."""
    alike: dict[tuple[int, tuple[PlanTransfer, ...]], dict[int, _Slots]] = defaultdict(dict)
    for index, slot in kept:
        by_comm = alike[slot.class_id, slot.transfers]
        before, same = by_comm.get(slot.comm_id, ((), None))
        calls = slot.calls + (same.calls if same else 0)  # equal once completed
        by_comm[slot.comm_id] = ((*before, index), replace(slot, calls=calls))
    if mode == SEQUENCE:
        return [list(by_comm.values()) for by_comm in alike.values()]
    parents = {c.id: c.parent for c in comms}
    return [
        [by_comm[c] for c in together]
        for by_comm in alike.values()
        for together in partitions(by_comm, ranks, parents)
    ]


def _total_bytes(found: RunClass, part: _Part) -> int:
    return sum(slot.calls for _, slot in part) * (found.size_bytes or 0)


def _redop(found: RunClass) -> Redop | None:
    if not found.op.reduces:
        return None
    return found.redop if found.redop in REDOPS else Redop.SUM


def _plan_class(
    key: int, found: RunClass, part: _Part, ranks: Mapping[int, tuple[int, ...]]
) -> PlanClass:
    datatype = found.datatype
    assert datatype is not None  # `_reason` refuses such calls
    slots = [slot for _, slot in part]
    nranks = len(ranks[slots[0].comm_id])
    transfers = () if found.shape is None else tuple(
        PlanTransfers(s.comm_id, s.transfers) for s in slots
    )  # fmt: skip
    return PlanClass(
        key,
        found.op,
        datatype,
        tuple(s.comm_id for s in slots),
        _redop(found),
        found.count,
        found.root if found.op.rooted else None,
        bool(found.in_place),
        sum(s.calls for s in slots),
        found.shape,
        max(
            (transfer_bytes(found.op, nranks, t.items, itemsize(datatype)) for t in transfers),
            default=None,
        ),
        transfers,
    )


def _steps(records: RunRecords, parts: Sequence[_Part]) -> tuple[PlanStep, ...]:
    """Launches in order; the calls of a group stand where its first one does."""
    items: list[tuple[int, int] | None] = [None] * len(records.slots)
    for number, part in enumerate(parts):
        for indices, slot in part:
            for index in indices:
                items[index] = (number, slot.comm_id)
    planned = np.array([i is not None for i in items], dtype=bool)[records.slot]
    slot, group = records.slot[planned], records.group[planned]
    leader = _leaders(group)
    order = np.argsort(leader, kind="stable")
    slot, leader = slot[order], leader[order]
    starts = np.flatnonzero(np.diff(leader, prepend=-1))
    ends = np.append(starts[1:], len(slot))
    # A step is known by a number: that of its slot, or one behind these for each distinct group.
    distinct = [PlanStep((i,) if i else ()) for i in items]
    number_of: dict[tuple[int, ...], int] = {}
    numbers = slot[starts]
    slots = slot.tolist()
    several = np.flatnonzero(ends - starts > 1)
    for k, a, b in np.stack([several, starts[several], ends[several]], axis=1).tolist():
        key = tuple(slots[a:b])
        if key not in number_of:
            number_of[key] = len(distinct)
            distinct.append(PlanStep(tuple(i for s in key if (i := items[s]))))
        numbers[k] = number_of[key]
    return tuple(map(distinct.__getitem__, numbers.tolist()))


def _leaders(group: Ints) -> Ints:
    """Per call the index of the first call of its group, its own when alone."""
    leader = np.arange(len(group))
    grouped = np.flatnonzero(group >= 0)
    _, first, inverse = np.unique(group[grouped], return_index=True, return_inverse=True)
    leader[grouped] = grouped[first][inverse]
    return leader
