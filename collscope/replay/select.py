"""A part of a plan: by name, by share, by number (pure)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from collscope.errors import UsageError
from collscope.model import Op
from collscope.replay.build import Planned
from collscope.replay.names import op_named
from collscope.replay.plan import SEQUENCE, Plan, PlanClass, PlanStep, used
from collscope.units import parse_size

_Test = Callable[[PlanClass], bool]


def select(
    planned: Planned,
    *,
    only: str | None = None,
    min_share: float | None = None,
    limit: int | None = None,
) -> Planned:
    """The requested classes; they keep their ids, and steps lose what is left out.

    only       separated by commas: an operation, a class id, or `operation:size` with the
               nccl-tests size S of one call, as in `allreduce,12,alltoall:64K`. Ids
               are those of the run that the plan was made from, else of the plan
    min_share  0 … 1, of the weight of all classes of the plan
    limit      number of classes, those of the largest weight
    raises     UsageError when an item of `only` fits no class, `min_share` is no share, or nothing
               is left

    The weight of a class is its calls times their ranks times the duration of their kernels in the
    job, or times their size S where that duration is not known of all classes. Ranks count because
    communicators of one class run at the same time.
    """
    if min_share is not None and not 0 <= min_share <= 1:
        raise UsageError(
            f"--min-share {min_share:g}: not between 0 and 1. For example, write 0.02 for 2 %."
        )
    plan = planned.plan
    kept = list(plan.classes)
    weight = weights(planned)
    total = sum(weight.values())
    if only is not None:
        tests = [_test(planned, item.strip()) for item in only.split(",")]
        kept = [c for c in kept if any(test(c) for test in tests)]
    if min_share is not None:
        kept = [c for c in kept if weight[c.id] >= min_share * total]
    if limit is not None:
        heaviest = sorted(kept, key=lambda c: -weight[c.id])[:limit]
        chosen = {c.id for c in heaviest}
        kept = [c for c in kept if c.id in chosen]
    if not kept:
        raise UsageError("replay: no class is left. Select more with --only, --min-share, --limit.")
    return replace(planned, plan=_restricted(plan, kept))


def weights(planned: Planned) -> dict[int, float]:
    """Weight of each class over all ranks: ns in the job where all are known, else bytes."""
    classes, kernel_ns = planned.plan.classes, planned.kernel_ns
    ranks_of = {c.id: len(c.ranks) for c in planned.plan.comms}
    nranks = {c.id: ranks_of[c.comms[0]] for c in classes}
    if all(c.id in kernel_ns for c in classes):
        return {c.id: c.calls * nranks[c.id] * kernel_ns[c.id] for c in classes}
    return {c.id: float(c.calls * nranks[c.id] * c.size(nranks[c.id])) for c in classes}


def _test(planned: Planned, item: str) -> _Test:
    """What an item of `--only` asks for."""
    plan, ids = planned.plan, planned.class_ids
    name, colon, size = item.partition(":")
    if name.isdecimal() and not colon:
        test: _Test = lambda c: ids.get(c.id, c.id) == int(name)  # noqa: E731
    else:
        op: Op = op_named(name)
        wanted = parse_size(size) if colon else None
        nranks = {c.id: len(c.ranks) for c in plan.comms}
        test = lambda c: c.op is op and wanted in (None, c.size(nranks[c.comms[0]]))  # noqa: E731
    if not any(test(c) for c in plan.classes):
        raise UsageError(f"--only {item}: no class of the plan matches. --dry-run lists them.")
    return test


def _restricted(plan: Plan, classes: list[PlanClass]) -> Plan:
    kept = {c.id for c in classes}
    cut: dict[int, PlanStep | None] = {}
    for step in plan.steps:
        if id(step) not in cut:
            items = tuple(i for i in step.items if i[0] in kept)
            cut[id(step)] = PlanStep(items) if items else None
    steps = tuple(s for step in plan.steps if (s := cut[id(step)]) is not None)
    if plan.mode == SEQUENCE and not steps:
        raise UsageError("replay: no step is left. Select more with --only or --min-share.")
    smaller = replace(plan, classes=tuple(classes), steps=steps)
    comms, nranks = used(smaller)
    return replace(smaller, comms=comms, nranks=nranks)
