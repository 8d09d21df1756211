"""Which AllReduces `collscope bench backends` measures, and how often a step makes them (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from collscope.bench.backends_worker import TORCH_NAMES, Point
from collscope.errors import UsageError
from collscope.model import CollectiveClass, Datatype
from collscope.replay.sweep import sizes_of

LIBRARY_FAMILIES = frozenset(("nccl", "rccl"))  # whose calls another backend may take over


class StepCalls(msgspec.Struct, frozen=True):
    """Calls of a class that a rank makes in a step, as the run's traces show them."""

    collective_class: CollectiveClass
    calls: float  # a step
    family: str | None  # of the kernels
    duration_ns: float  # of these kernels, a step
    exposed_ns: float  # not hidden by compute


class Demand(msgspec.Struct, frozen=True):
    """The AllReduces of a run.

    classes   with how many calls the run has of each; without sizes too
    in_steps  empty: the run has no steps, or no AllReduce in them
    """

    run: str
    classes: tuple[tuple[CollectiveClass, int], ...]
    in_steps: tuple[StepCalls, ...] = ()
    step_ns: float | None = None  # median, as recorded

    def sized(self, call_bytes: int | None) -> Demand:
        """The demand with this size for every class that has none of its own."""
        if call_bytes is None:
            return self
        return replace(
            self,
            classes=tuple((_with_size(c, call_bytes), n) for c, n in self.classes),
            in_steps=tuple(
                replace(s, collective_class=_with_size(s.collective_class, call_bytes))
                for s in self.in_steps
            ),
        )


def _with_size(found: CollectiveClass, call_bytes: int) -> CollectiveClass:
    return found if found.size_bytes else replace(found, size_bytes=call_bytes)


class BackendsPlan(msgspec.Struct, frozen=True):
    """What is measured."""

    nranks: int
    points: tuple[Point, ...]


def sweep_points(sizes: str, datatype: Datatype, nranks: int | None) -> BackendsPlan:
    """Points of `8K..32M` or `64K,1M`, separated by commas.

    raises  UsageError for sizes that cannot be read, and without ranks
    """
    if nranks is None:
        raise UsageError("--sizes: the number of ranks is not given. Give -n RANKS.")
    found = [size for part in sizes.split(",") for size in sizes_of(part.strip(), "--sizes")]
    points = tuple(Point(size, datatype.value) for size in dict.fromkeys(found))
    return BackendsPlan(nranks, points)


def run_points(demand: Demand, nranks: int | None, limit: int) -> BackendsPlan:
    """The run's AllReduces, most bytes first where there are more than `limit`; sizes rise.

    nranks  of the communicators; None: those of most calls
    raises  UsageError where none can be measured
    """
    by_ranks: dict[int, int] = defaultdict(int)
    for found, calls in demand.classes:
        by_ranks[found.nranks or 0] += calls
    if nranks is None:
        nranks = max(by_ranks, key=by_ranks.__getitem__, default=0)
    weight: dict[Point, int] = defaultdict(int)
    for found, calls in demand.classes:
        if found.size_bytes and found.nranks == nranks:
            datatype = Datatype.BFLOAT16 if found.datatype is None else found.datatype
            if datatype.value in TORCH_NAMES:
                weight[Point(found.size_bytes, datatype.value)] += calls * found.size_bytes
    if not weight:
        raise UsageError(
            f"run '{demand.run}': no AllReduce of known size on {nranks} ranks. Name its size with"
            " --call-size, or measure --sizes 8K..32M with -n RANKS."
        )
    heaviest = sorted(weight, key=lambda point: -weight[point])[:limit]
    return BackendsPlan(nranks, tuple(sorted(heaviest)))


def worker_arguments(
    plan: BackendsPlan, csv: str, launch: int, options: Mapping[str, object]
) -> tuple[str, ...]:
    """The command line of backends_worker.py.

    launch   its number; further ones add to the rows of the first
    options  of the worker, by name; True: without a value
    """
    points = ",".join(f"{p.size_bytes}:{p.datatype}" for p in plan.points)
    given = {"points": points, "csv": csv, "round": launch, "append": launch > 0, **options}
    return tuple(
        part
        for name, value in given.items()
        if value is not False
        for part in ((f"--{name}",) if value is True else (f"--{name}", str(value)))
    )


def calls_in_steps(
    rows: Sequence[tuple[CollectiveClass, str | None, int, int, float, float]],
    steps: dict[int, int],
) -> tuple[StepCalls, ...]:
    """Calls a step of each class, on the rank that makes most of them.

    rows   class, family, rank, calls in steps, duration and exposed part of their kernels, ns
    steps  number of steps of each rank
    """
    found: dict[CollectiveClass, StepCalls] = {}
    for key, family, rank, calls, duration, exposed in rows:
        n = steps[rank]
        one = StepCalls(key, calls / n, family, duration / n, exposed / n)
        if key not in found or one.calls > found[key].calls:
            found[key] = one
    return tuple(found[key] for key in sorted(found))
