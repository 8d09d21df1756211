"""A plan remapped to fewer ranks than the job had (pure)."""

from __future__ import annotations

from collections import defaultdict

from msgspec.structs import replace

from collscope.errors import UsageError
from collscope.replay.build import Planned
from collscope.replay.patterns import resized, transfer_bytes
from collscope.replay.plan import UNIQUE, Plan, PlanClass, PlanComm, PlanTransfers, itemsize, used
from collscope.units import count

_Ranks = dict[int, tuple[int, ...]]


def scale(planned: Planned, nranks: int) -> Planned:
    """The plan on `nranks` ranks, marked by `scaled_from`.

    A plan that needs no more ranks does not change; a notice reports it where it needs fewer.
    Larger communicators shrink to all of these ranks, with the same count per rank; others keep
    their size and move where they must. A communicator of a class that no longer fits beside the
    others is left out, and its calls count for those that stay. A root that is gone becomes root
    modulo ranks.

    raises  UsageError when `nranks` is less than 1
    """
    plan = planned.plan
    if nranks < 1:
        raise UsageError(f"--scale-ranks {nranks}: too few. Give one or more.")
    if nranks > plan.nranks:
        note = (
            f"--scale-ranks {nranks} changes nothing: the plan needs {count(plan.nranks, 'rank')}"
        )
        return replace(planned, notices=(*planned.notices, note))
    if nranks == plan.nranks:
        return planned
    before = plan.comm_ranks()
    ranks = _placed(plan, before, nranks)
    classes = tuple(_scaled(c, plan.mode, before, ranks) for c in plan.classes)
    moved = tuple(PlanComm(c.id, ranks[c.id]) for c in plan.comms)
    smaller = replace(
        plan, comms=moved, classes=classes, scaled_from=plan.scaled_from or plan.nranks
    )
    comms, needed = used(smaller)
    job = count(plan.nranks, "rank")
    note = f"remapped from {job} to {needed}: times differ from those at the job's size"
    return replace(
        planned,
        plan=replace(smaller, comms=comms, nranks=needed),
        notices=(*planned.notices, note),
    )


def _placed(plan: Plan, before: _Ranks, nranks: int) -> _Ranks:
    """New ranks of every communicator, apart from those it runs beside where there is room."""
    beside: dict[int, set[int]] = defaultdict(set)
    for c in plan.classes:
        for comm in c.comms:
            beside[comm].update(c.comms)
    placed: _Ranks = {}
    for comm, old in before.items():
        if len(old) >= nranks:
            placed[comm] = tuple(range(nranks))
            continue
        busy = {r for other in beside[comm] for r in placed.get(other, ())}
        wrapped = tuple(r % nranks for r in old)
        distinct = len(set(wrapped)) == len(old)
        free = [r for r in range(nranks) if r not in busy]
        if distinct and not busy & set(wrapped):
            placed[comm] = wrapped
        elif len(free) >= len(old):
            placed[comm] = tuple(free[: len(old)])
        else:
            placed[comm] = wrapped if distinct else tuple(range(len(old)))
    return placed


def _scaled(planned: PlanClass, mode: str, before: _Ranks, ranks: _Ranks) -> PlanClass:
    full, size = len(before[planned.comms[0]]), len(ranks[planned.comms[0]])
    kept: list[int] = []
    busy: set[int] = set()
    for comm in planned.comms:
        if mode != UNIQUE or not busy & set(ranks[comm]):
            kept.append(comm)
            busy.update(ranks[comm])
    lists = [t for t in planned.transfers if t.comm in kept]
    if planned.shape is not None and size < full:
        lists = [PlanTransfers(t.comm, resized(planned.shape, full, size, t.items)) for t in lists]
    bytes_of = [
        transfer_bytes(planned.op, size, t.items, itemsize(planned.datatype)) for t in lists
    ]
    return replace(
        planned,
        comms=tuple(kept),
        root=None if planned.root is None else planned.root % size,
        transfers=tuple(lists),
        size_bytes=max(bytes_of, default=planned.size_bytes),
    )
