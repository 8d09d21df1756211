"""Replay plans of buckets and of plain all-reduces (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collscope.model import Datatype, Op, Redop
from collscope.replay.plan import SEQUENCE, UNIQUE, Plan, PlanClass, PlanComm, PlanStep, itemsize
from collscope.whatif.policies import Bucket


def unique_plan(sizes: Sequence[int], datatype: Datatype, nranks: int) -> Plan:
    """In-place all-reduces of sizes in bytes, each distinct size once with how often it is there.

    A size is rounded up to whole elements.
    """
    calls = Counter(-(-size // itemsize(datatype)) for size in sizes)
    classes = tuple(
        PlanClass(
            i, Op.ALL_REDUCE, datatype, (0,), Redop.SUM, count, in_place=True, calls=calls[count]
        )
        for i, count in enumerate(sorted(calls))
    )
    return Plan(UNIQUE, nranks, (PlanComm(0, tuple(range(nranks))),), classes)


def fused_plan(buckets: Sequence[Bucket], datatype: Datatype, nranks: int) -> Plan:
    """The buckets of a step in their order, queued one after the other."""
    unique = unique_plan([bucket.size_bytes for bucket in buckets], datatype, nranks)
    of_count = {planned.count: PlanStep(((planned.id, 0),)) for planned in unique.classes}
    steps = tuple(of_count[-(-b.size_bytes // itemsize(datatype))] for b in buckets)
    return Plan(SEQUENCE, nranks, unique.comms, unique.classes, steps)
