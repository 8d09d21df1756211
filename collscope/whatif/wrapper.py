"""`collscope bench allreduce-wrapper`: that wrapper's three tests, from ready plans.

Source of the tests: the wrapper's document. Value test: 5 floats; time test: 1, 100, 10 000 and
1 000 000 floats; ResNet50 test: the buckets of thresholds 1, 10, 100, 1000 and 10 000 KiB (policy
POST_GT), each waited for before the next. Two modes: one thread with n GPUs, and n threads.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from collscope.errors import CollscopeError, UsageError
from collscope.model import Datatype, Measurement
from collscope.replay.measure import measure
from collscope.replay.plan import Plan, itemsize
from collscope.replay.probe import probe
from collscope.replay.session import Session, Target
from collscope.units import in_ns
from collscope.whatif.plans import unique_plan
from collscope.whatif.policies import Policy, make_buckets
from collscope.whatif.resnet50 import resnet50

SCHEMA = "collscope.allreduce-wrapper/2"
DEFAULT_LABEL = "allreduce-wrapper"
VALUES = 5
COUNTS = (1, 100, 10_000, 1_000_000)
THRESHOLDS_KIB = (1, 10, 100, 1000, 10_000)
_ITEM = itemsize(Datatype.FLOAT32)


class Mode(msgspec.Struct, frozen=True):
    """How the ranks are spread; `threads` as the replayer has it."""

    name: str
    gpus_per_process: int
    threads: str | None


class ElementRow(msgspec.Struct, frozen=True):
    """Blocking all-reduces of one size; `n_wrong` counts wrong elements over all ranks."""

    mode: str  # how ranks are spread
    elements: int  # floats of a call
    time_ns: float | None  # blocking call, median; None: not measured
    iterations: int | None  # calls timed
    n_wrong: int | None  # wrong elements over all ranks; None: not checked
    status: str  # ok, wrong, failed, timeout, skipped, not measured


class BatchRow(msgspec.Struct, frozen=True):
    """The buckets of a threshold, one after the other."""

    mode: str  # how ranks are spread
    threshold_kib: int  # fusion threshold, 1024 bytes
    batches: int  # number of buckets
    time_ns: float | None  # sum over the buckets; None: one could not be measured
    sizes_bytes: tuple[int, ...]  # buckets in their order


class WrapperTables(msgspec.Struct, frozen=True):
    """What the command prints: the value test, the time test, the ResNet50 fusion test."""

    nranks: int
    backend: str | None  # cuda, hip, host
    library: str | None  # name and version
    device: str | None
    values: tuple[ElementRow, ...]  # value test
    times: tuple[ElementRow, ...]  # time test
    fusion: tuple[BatchRow, ...]  # ResNet50 fusion test
    schema: str = SCHEMA


def wrapper_plan(nranks: int) -> Plan:
    """Every size of the three tests, each once."""
    sizes = [VALUES * _ITEM, *(count * _ITEM for count in COUNTS)]
    return unique_plan(
        [*sizes, *(s for _, b in fused_resnet50() for s in b)], Datatype.FLOAT32, nranks
    )


def fused_resnet50() -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Threshold in KiB and the sizes of its buckets in bytes."""
    sizes = [layer.parameters * _ITEM for layer in resnet50()]
    return tuple(
        (kib, tuple(b.size_bytes for b in make_buckets(sizes, Policy.POST_GT, kib * 1024)))
        for kib in THRESHOLDS_KIB
    )


def modes(session: Session, nranks: int, gpus_per_process: int | None) -> tuple[Mode, ...]:
    """The wrapper's two modes; on the host, which has a rank per process, that one.

    gpus_per_process  None: all ranks in one process
    raises            UsageError when it does not divide the ranks
    """
    per_process = gpus_per_process or nranks
    if nranks % per_process:
        raise UsageError(
            f"--gpus-per-process {per_process}: {nranks} ranks are not a multiple of it. Choose"
            " one that divides them."
        )
    if _on_host(session, nranks):
        return (Mode("a process per rank", 1, None),)
    return (
        Mode(f"1 thread with {per_process} GPUs", per_process, "one"),
        Mode(f"{per_process} threads with 1 GPU", per_process, "per-gpu"),
    )


def _on_host(session: Session, processes: int) -> bool:
    """Whether the replayer will run on CPU memory: who names a library means a GPU."""
    backend, library = session.method.backend, session.method.library
    if backend != "auto" or library is not None:
        return backend == "host"
    return not probe(session, processes).gpus


def run_wrapper(
    nranks: int, spread: Sequence[Mode], session: Session, target: Target
) -> tuple[WrapperTables, CollscopeError | None]:
    """Measure the tests in every mode; a mode that fails does not keep the other out.

    raises  CollscopeError when nothing was measured at all
    """
    plan = wrapper_plan(nranks)
    measured: dict[str, tuple[Measurement, ...]] = {}
    error: CollscopeError | None = None
    for mode in spread:
        method = replace(
            session.method,
            gpus_per_process=mode.gpus_per_process,
            threads=mode.threads,
            timing="isolated",
        )
        outcome = measure(
            plan,
            replace(session, method=method),
            replace(target, label=f"{target.label or DEFAULT_LABEL}: {mode.name}"),
        )
        measured[mode.name] = outcome.measurements
        error = error or outcome.error
    if error is not None and not any(measured.values()):
        raise error
    return tables(nranks, measured), error


def tables(nranks: int, measured: dict[str, tuple[Measurement, ...]]) -> WrapperTables:
    """The three tables of the measurements of each mode."""
    first = next((m for found in measured.values() for m in found), None)
    by_mode = {mode: {m.size_bytes: m for m in found} for mode, found in measured.items()}
    return WrapperTables(
        nranks,
        None if first is None else first.backend,
        None if first is None else first.library,
        None if first is None else first.device,
        tuple(_elements(mode, VALUES, found) for mode, found in by_mode.items()),
        tuple(_elements(mode, n, found) for mode, found in by_mode.items() for n in COUNTS),
        tuple(
            BatchRow(mode, kib, len(sizes), _sum(sizes, found), sizes)
            for mode, found in by_mode.items()
            for kib, sizes in fused_resnet50()
        ),
    )


def _elements(mode: str, count: int, found: dict[int | None, Measurement]) -> ElementRow:
    m = found.get(count * _ITEM)
    if m is None:
        return ElementRow(mode, count, None, None, None, "not measured")
    time_ns = in_ns(m.time_us_median) if m.right else None
    return ElementRow(mode, count, time_ns, m.iterations, m.n_wrong, m.status)


def _sum(sizes: Sequence[int], found: dict[int | None, Measurement]) -> float | None:
    total = 0.0
    for size in sizes:
        m = found.get(size)
        if m is None or not m.right or m.time_us_median is None:
            return None
        total += 1000 * m.time_us_median
    return total
