"""`collscope bench backends`: AllReduce by NCCL and by others, in graphs, in turns.

PyTorch measures (`backends_worker.py`, under torchrun), in this interpreter or another.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

from collscope.bench import backends_worker
from collscope.bench.backends_plan import (
    BackendsPlan,
    Demand,
    calls_in_steps,
    run_points,
    sweep_points,
    worker_arguments,
)
from collscope.bench.start import check_start, error_of, read_csv
from collscope.errors import CollscopeError, InputError, MissingToolError, ReplayError
from collscope.ingest.commands import ingest_csvs
from collscope.ingest.match import reading, require_known, require_matched
from collscope.model import CollectiveClass, Datatype, Measurement, Op, Redop
from collscope.parsers import replay_csv
from collscope.programs import ask
from collscope.replay.launch import Ended, Job, find_program, run_job
from collscope.replay.names import datatype_named
from collscope.replay.results import digest
from collscope.replay.scratch import scratch_folder
from collscope.replay.session import Target
from collscope.store.step_stretches import STRETCHES

DEFAULT_LABEL = "backends"
DEFAULT_ROUNDS = 3
DEFAULT_TIMEOUT_S = 120.0
_RESTARTS = 8  # of the ranks: a backend that ends them is left out by the next start
_LIMIT = 16  # sizes of a run
_WHERE = "bench backends"
_OPTION = "--python"
_TORCH = "import torch; print(torch.cuda.device_count())"

_CLASSES = """
SELECT datatype, redop, size_bytes, nranks, SUM(calls)
FROM classes WHERE run = ? AND op = 'AllReduce' GROUP BY 1, 2, 3, 4
"""
_IN_STEPS = f"""
WITH {STRETCHES}
SELECT c.datatype, c.redop, c.size_bytes, c.nranks,
    MIN(k.family), s.rank, COUNT(DISTINCT k.call_id), SUM(k.duration_ns), SUM(k.exposed_ns)
FROM kernels k
JOIN stretches s ON s.rank = k.rank AND k.start_ns >= s.begin_ns AND k.start_ns < s.end_ns
JOIN calls c ON c.run = k.run AND c.call_id = k.call_id
WHERE k.run = :run AND c.op = 'AllReduce' GROUP BY 1, 2, 3, 4, 6
"""


class BackendsRequest(msgspec.Struct, frozen=True):
    """What to measure, as the command line has it; None leaves a choice to the program."""

    nranks: int | None = None
    sizes: str | None = None  # None: those of the run
    datatype: str = "bfloat16"  # of the sizes
    call_bytes: int | None = None  # of the run's AllReduces whose size is not known
    rounds: int = DEFAULT_ROUNDS  # launches of the ranks
    multimem: bool = False  # NVLink multicast may be used
    backend: str = "auto"  # host: without a GPU, which times nothing that matters
    python: str | None = None  # interpreter with torch
    timeout_s: float = DEFAULT_TIMEOUT_S  # of a step of the measurement
    environment: tuple[tuple[str, str], ...] = ()


class BackendsRun(msgspec.Struct, frozen=True):
    """What was measured, and what the run asks for; if it ended early, also why."""

    measurements: tuple[Measurement, ...]
    demand: Demand | None
    error: CollscopeError | None = None


def measure_backends(request: BackendsRequest, target: Target) -> BackendsRun:
    """Measure on this machine; rows are in the store, and in the CSV where one is named.

    raises  UsageError, InputError for what cannot be measured; MissingToolError without PyTorch;
            CollscopeError when nothing was measured
    """
    check_start(_WHERE, target)
    demand = stored_demand(request, target)
    plan = plan_of(request, demand)
    with contextlib.ExitStack() as held:
        csv = target.csv
        if csv is None:
            csv = held.enter_context(scratch_folder(None, local=True)) / "backends.csv"
        csv = csv.absolute()
        before = digest(csv)
        ended: Ended | None = None  # None: interrupted
        with contextlib.suppress(KeyboardInterrupt):
            ended = _launch_all(request, plan, target, csv)
        rows = replay_csv.parse(read_csv(csv)).measurements if digest(csv) != before else ()
        if rows:
            ingest_csvs([str(csv)], target.db, target.run)
    good = sum(row.usable for row in rows)
    error = error_of(ended, _WHERE, target, rows=len(rows), good=good, program="torchrun")
    return BackendsRun(rows, demand, error or wrong_results(rows))


def read_backends(csv: Path, request: BackendsRequest, target: Target) -> BackendsRun:
    """What `backends_worker.py` measured elsewhere.

    raises  InputError for a file without its rows
    """
    if not csv.exists():
        raise InputError(f"{csv}: no such file. Name the CSV of backends_worker.py.")
    rows = replay_csv.parse(read_csv(csv)).measurements
    if not rows:
        raise InputError(f"{csv}: no rows of a replay CSV. Name the CSV of backends_worker.py.")
    return BackendsRun(rows, stored_demand(request, target), wrong_results(rows))


def wrong_results(rows: Sequence[Measurement]) -> ReplayError | None:
    """The error of backends that gave wrong sums."""
    wrong = dict.fromkeys(row.label or "" for row in rows if row.wrong)
    if not wrong:
        return None
    return ReplayError(f"{_WHERE}: wrong results by {', '.join(wrong)}. Do not use them here.")


def plan_of(request: BackendsRequest, demand: Demand | None) -> BackendsPlan:
    """What is measured: the sizes named, else the run's.

    raises  UsageError, InputError for what cannot be measured
    """
    if request.sizes is not None:
        return sweep_points(request.sizes, datatype_named(request.datatype), request.nranks)
    if demand is None:
        raise InputError(f"{_WHERE}: no run and no sizes. Measure --sizes 8K..32M with -n RANKS.")
    return run_points(demand, request.nranks, _LIMIT)


def remote_commands(request: BackendsRequest, target: Target) -> tuple[tuple[str, ...], ...]:
    """The commands that measure on another machine, with PyTorch and a copy of the worker.

    raises  UsageError, InputError for what cannot be measured
    """
    plan = plan_of(request, stored_demand(request, target))
    csv = "backends.csv" if target.csv is None else str(target.csv)
    return tuple(("torchrun", *start) for start in _starts(request, plan, target, csv))


def _launch_all(request: BackendsRequest, plan: BackendsPlan, target: Target, csv: Path) -> Ended:
    """Every launch; one that fails is the last."""
    python, ended = _python(request), Ended(0)
    for start in _starts(request, plan, target, str(csv)):
        arguments = ("-m", "torch.distributed.run", *start)
        ended = run_job(Job(arguments, 1, request.environment, python), None)
        if ended.status:
            break
    return ended


def _starts(
    request: BackendsRequest, plan: BackendsPlan, target: Target, csv: str
) -> Iterator[tuple[str, ...]]:
    """Arguments of torchrun, launch by launch."""
    worker = str(Path(backends_worker.__file__).resolve())
    options = {
        "timeout": f"{request.timeout_s:g}",
        "label": target.label or DEFAULT_LABEL,
        "multimem": request.multimem,
        "device": "cpu" if request.backend == "host" else "cuda",
    }
    for launch in range(request.rounds):
        yield (
            "--standalone", "--nproc-per-node", str(plan.nranks), "--max-restarts", str(_RESTARTS),
            worker, *worker_arguments(plan, csv, launch, options),
        )  # fmt: skip


def _python(request: BackendsRequest) -> Path:
    """An interpreter that has PyTorch: the one given, else this one, else that of PATH."""
    name = request.python or "python3"
    if request.python is not None:
        found: str | Path | None = find_program(name, Path(name), _OPTION)
    elif importlib.util.find_spec("torch") is not None:
        found = sys.executable
    else:
        found = shutil.which(name)
    answer = None if found is None else ask([str(found), "-c", _TORCH])
    if found is None or answer is None or answer.error is not None:
        raise MissingToolError(
            f"{_WHERE}: {name} has no PyTorch. Name an interpreter that has it with {_OPTION} FILE."
        )
    if answer.stdout.strip() == "0" and request.backend != "host":
        raise MissingToolError(
            f"{_WHERE}: PyTorch of {found} sees no GPU. --dry-run prints the command for a machine"
            " that has some; read its CSV with --from."
        )
    return Path(found)


def stored_demand(request: BackendsRequest, target: Target) -> Demand | None:
    """The AllReduces of the run; None where the store has no such run, and sizes are named.

    raises  InputError for a store that cannot be read, and for a run that is needed and not there
    """
    if request.sizes is not None and not target.db.exists():
        return None
    with reading(target.db) as connection:
        require_matched(connection, target.db, target.run)
        if request.sizes is None:
            require_known(connection, target.db, target.run)
        demand = read_demand(connection, target.run).sized(request.call_bytes)
    if not demand.classes and request.sizes is None:
        raise InputError(
            f"{target.db}: run '{target.run}' has no AllReduce. Measure --sizes 8K..32M with -n"
            " RANKS."
        )
    return demand if demand.classes else None


def read_demand(connection: sqlite3.Connection, run: str) -> Demand:
    """AllReduces of a run, and how many of them a step has."""
    classes = tuple((_class(row[:4]), row[4]) for row in connection.execute(_CLASSES, (run,)))
    durations: dict[int, list[int]] = {}
    for rank, ns in connection.execute("SELECT rank, duration_ns FROM steps WHERE run = ?", (run,)):
        durations.setdefault(rank, []).append(ns)
    rows = [(_class(row[:4]), *row[4:]) for row in connection.execute(_IN_STEPS, {"run": run})]
    in_steps = calls_in_steps(rows, {rank: len(of_rank) for rank, of_rank in durations.items()})
    every = [ns for of_rank in durations.values() for ns in of_rank]
    return Demand(run, classes, in_steps, median(every) if every else None)


def _class(row: tuple[str | None, str | None, int | None, int | None]) -> CollectiveClass:
    datatype, redop, size, nranks = row
    return CollectiveClass(
        Op.ALL_REDUCE,
        Datatype.of_label(datatype),
        Redop.of_label(redop),
        size_bytes=size,
        nranks=nranks,
    )
