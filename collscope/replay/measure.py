"""Measure a plan: start the replayer for every variant and round, then collect its CSV."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collscope.errors import (
    CollscopeError,
    InputError,
    MissingToolError,
    ReplayError,
    UsageError,
)
from collscope.model import Measurement
from collscope.model.note import Note
from collscope.outputs import write_file
from collscope.replay.host_limit import (
    available_cores,
    available_memory,
    check_host_ranks,
    hosts_of,
)
from collscope.replay.launch import Ended, Job, find_replayer, run_job
from collscope.replay.mpi import RUN_ALONE, LaunchedRank, launcher_words
from collscope.replay.plan import Plan
from collscope.replay.probe import probe
from collscope.replay.results import (
    digest,
    oversubscription_note,
    rccl_replayer_layout,
    read_results,
    relabel,
    store_results,
)
from collscope.replay.scratch import scratch_folder, write_plan
from collscope.replay.session import (
    COLLSCOPE,
    DEFAULT_LABEL,
    RCCL_REPLAYER,
    Method,
    Session,
    Target,
    check_target,
)
from collscope.replay.variants import Variant, schedule
from collscope.units import are, count, count_of

# What the replayer's exit statuses mean. It has printed what was wrong.
_ERRORS: dict[int, type[CollscopeError]] = {2: UsageError, 3: InputError, 5: MissingToolError}
_BAD = ("wrong", "failed", "timeout", "contradictory")
# MPICH aborts by itself where it finds a PMI that it does not support, and names no remedy.
_PMI_OF_SLURM = (
    " If MPI could not start: MPICH needs 'srun --mpi=pmi2', Open MPI 'srun --mpi=pmix'."
)
# Statuses of the replayer (start.h, watchdog.h); any other comes from what starts the ranks.
_OF_THE_REPLAYER = (2, 3, 5, 6)


class ReplayInterruptedError(ReplayError):
    """A signal ended the replay; what was finished is kept."""

    exit_code = 130


class Outcome(msgspec.Struct, frozen=True):
    """What was measured, why it ended early if it did, and what to know of the times."""

    measurements: tuple[Measurement, ...]
    error: CollscopeError | None = None
    notice: Note | None = None


class PlanPart(msgspec.Struct, frozen=True):
    """One of several plans that go into one CSV, with the label and round of its rows."""

    plan: Plan
    suffix: str = ""  # behind the label of every row
    suffix_of: Mapping[int, str] = msgspec.field(
        default_factory=dict
    )  # by class id; ids of no other part


def measure(plan: Plan, session: Session, target: Target) -> Outcome:
    """Run a plan; finished classes are in the CSV and in the store, however it ends.

    returns  every row of the CSV; nothing on another rank than 0
    raises   CollscopeError when nothing could be started; ReplayInterruptedError
    """
    return measure_parts((PlanPart(plan),), session, target)


def measure_parts(parts: Sequence[PlanPart], session: Session, target: Target) -> Outcome:
    """Run plans of equally many ranks, in each round and variant one after the other.

    As `measure` otherwise. Several cannot be resumed.
    """
    nranks = parts[0].plan.nranks
    _check(nranks, len(parts), session, target)
    with _files(target, session.place) as (folder, csv):
        before = digest(csv)
        first = session.place is None or session.place.rank == 0
        ended: Ended | None = None  # None: interrupted
        try:
            with contextlib.suppress(KeyboardInterrupt):
                ended = _run_all(parts, session, target, (folder, csv))
        finally:
            # A replay that refused to resume has left another replay's file there.
            resumed = target.resume and (ended is None or ended.status not in _ERRORS)
            if first and digest(csv) != before:
                relabel(csv, {key: text for p in parts for key, text in p.suffix_of.items()})
            measurements = _collect(csv, target, before, resumed) if first else ()
    # Rows of another label are not found again, nor is a plan that is not the file's first.
    resumable = len(parts) == 1 and not parts[0].suffix_of
    kept = _kept(measurements, target, resumable)
    if ended is None:
        raise ReplayInterruptedError(f"replay: interrupted. {kept}")
    error = _error(ended, measurements, kept, _starter(parts[0].plan.nranks, session))
    if error is None and first and not measurements:
        replayer = find_replayer(session.replayer)
        error = ReplayError(
            f"{replayer}: ended without a result. Check that it is collscope-replayer."
        )
    return Outcome(
        measurements, error, oversubscription_note(measurements, nranks, _cores(session.place))
    )


def _cores(place: LaunchedRank | None) -> int:
    """Cores of this host that the ranks share; a launcher may have bound this process to one."""
    return available_cores() if place is None else os.cpu_count() or 1


def _check(nranks: int, parts: int, session: Session, target: Target) -> None:
    """Refuse, before anything starts, what cannot work.

    raises  UsageError, InputError
    """
    per_process, place = session.method.gpus_per_process, session.place
    if nranks % per_process:
        raise UsageError(
            f"replay: {nranks} ranks are not a multiple of {per_process} GPUs per process. "
            "Choose another --gpus-per-process."
        )
    if session.ranks is not None and session.ranks < nranks:
        raise UsageError(
            f"replay: the plan needs {count(nranks, 'rank')}, but there {are(session.ranks)} "
            f"{session.ranks}. Use {nranks}, or measure on fewer with --scale-ranks"
            f" {session.ranks}."
        )
    if place is not None and place.size * per_process != nranks:
        raise UsageError(
            f"replay: the plan needs {count(nranks, 'rank')}, but the launcher started "
            f"{place.size} processes of {count(per_process, 'rank')} each. Start"
            f" {nranks // per_process}."
        )
    if place is not None and max(1, len(session.variants)) * session.rounds * parts > 1:
        raise UsageError(
            "replay: a rank of srun or mpirun can start the replayer once, not for several "
            f"variants or rounds. {RUN_ALONE}"
        )
    if target.resume and target.layout != COLLSCOPE:
        raise UsageError(
            f"replay: --resume cannot continue a CSV with --csv-layout {target.layout}. "
            "Leave --csv-layout out."
        )
    if target.label is not None and session.variants:
        raise UsageError("replay: each variant has its own label. Leave --label out.")
    check_target(target)
    if place is None and not session.oversubscribe:
        _check_host(nranks // per_process, session)


def _check_host(processes: int, session: Session) -> None:
    """Refuse ranks without a GPU that this host, or hosts like it, cannot serve.

    raises  UsageError
    """
    words = () if session.launcher is None else launcher_words(session.launcher)[1]
    hosts = hosts_of(os.environ, words)
    method = session.method
    # A library is named: a GPU is wanted.
    gpu = method.backend not in ("auto", "host") or method.library or method.gpus_per_process > 1
    if hosts is None or gpu:
        return
    try:
        check_host_ranks(processes, hosts, available_cores(), available_memory())
    except UsageError:
        if method.backend == "host" or not probe(session, processes).gpus:
            raise


@contextmanager
def _files(target: Target, place: LaunchedRank | None) -> Iterator[tuple[Path, Path]]:
    """Folder for plans, and the CSV that the replayer writes; temporary ones are removed.

    Ranks of a launcher write a plan each, all the same, and each reads its own.
    """
    with scratch_folder(target.csv, local=place is not None) as folder:
        own = target.csv is not None and target.layout == COLLSCOPE
        csv = target.csv if own and target.csv is not None else folder / "replay.csv"
        yield folder, csv.absolute()


def _run_all(
    parts: Sequence[PlanPart], session: Session, target: Target, files: tuple[Path, Path]
) -> Ended:
    """Run every variant in every round; a class that fails in one does not stop the others.

    files  folder for the plans, and the CSV
    """
    variants = session.variants or (Variant(target.label or DEFAULT_LABEL),)
    several = len(variants) > 1 or session.rounds > 1
    plans = [write_plan(part.plan, files[0] / f"plan{i}") for i, part in enumerate(parts)]
    worst = Ended(0)
    starts = product(schedule(variants, session.rounds), zip(plans, parts, strict=True))
    for started, ((number, variant), (plan, part)) in enumerate(starts):
        named = replace(variant, label=variant.label + part.suffix)
        arguments = replayer_arguments(
            session.method, named, number if several else None, (plan, files[1])
        )
        if target.resume:
            arguments.append("--resume")
        if started:
            arguments.append("--append")
        job = Job(
            tuple(arguments),
            part.plan.nranks // session.method.gpus_per_process,
            (*session.environment, *variant.environment),
            session.replayer,
            session.launcher,
        )
        ended = run_job(job, session.place)
        worst = ended if ended.status else worst
        if ended.status not in (0, ReplayError.exit_code):
            break
    return worst


def replayer_arguments(
    method: Method, variant: Variant, number: int | None, files: tuple[Path, Path]
) -> list[str]:
    """Arguments of the replayer; `files` are the plan and the CSV."""
    method = replace(
        method,
        library=variant.library or method.library,
        runtime=variant.runtime or method.runtime,
    )
    options = {
        "--csv": files[1],
        "--backend": method.backend,
        "--library": method.library,
        "--runtime": method.runtime,
        "--gpus-per-process": method.gpus_per_process,
        "--threads": method.threads,
        "--budget": method.budget_s,
        "--verify": method.verify,
        "--repeat": method.repeat,
        "--timeout": method.timeout_s,
        "--label": variant.label,
        "--round": number,
    }
    given = [(name, str(value)) for name, value in options.items() if value is not None]
    arguments = [str(files[0]), *(part for pair in given for part in pair)]
    if method.timing != "batch":
        arguments.append(f"--{method.timing}")
    # The ranks write to a pipe: only this process knows whether there is a terminal.
    if sys.stderr.isatty():
        arguments.append("--progress")
    return arguments


def _collect(
    csv: Path, target: Target, before: str | None, resumed: bool
) -> tuple[Measurement, ...]:
    """Rows of the CSV, put into the store and, if so wanted, written in the other layout.

    resumed  what the file held before belongs to this replay
    """
    # A job that died before it opened the file leaves that of another replay there.
    measurements = read_results(csv) if resumed or digest(csv) != before else ()
    if measurements:
        store_results(csv, target.db, target.run, before if target.resume else None)
    if target.csv is not None and target.layout == RCCL_REPLAYER:
        try:
            write_file(target.csv, rccl_replayer_layout(measurements))
        except OSError as error:
            raise InputError(
                f"{target.csv}: {error.strerror}. Name another file with --csv."
            ) from error
    return measurements


def _starter(nranks: int, session: Session) -> str:
    """What starts a rank: srun, say; the replayer itself where no launcher is needed."""
    if session.place is not None or nranks == session.method.gpus_per_process:
        return "the replayer"
    return "mpiexec" if session.launcher is None else launcher_words(session.launcher)[0].name


def _error(
    ended: Ended, measurements: tuple[Measurement, ...], kept: str, starter: str
) -> CollscopeError | None:
    """What a status other than 0 means, with the sentence of `_kept`.

    starter  what started the ranks
    """
    if ended.status == 0:
        return None
    if ended.signal is not None:
        name = signal.Signals(ended.signal).name
        return ReplayError(f"replay: a rank was killed by signal {name}. {kept}")
    kind = _ERRORS.get(ended.status, ReplayError)
    bad = sum(m.status in _BAD for m in measurements)
    if kind is ReplayError and bad:
        return ReplayError(
            f"replay: {count_of(bad, len(measurements), 'measurement')} failed, see their messages."
            f" {kept}"
        )
    if ended.status in _OF_THE_REPLAYER:
        return kind(f"replay: the replayer ended with status {ended.status}, see above. {kept}")
    slurm = starter == "srun" or "SLURM_STEP_NUM_TASKS" in os.environ
    return kind(
        f"replay: {starter} ended with status {ended.status}, see above. {kept}"
        f"{_PMI_OF_SLURM if slurm else ''}"
    )


def _kept(measurements: tuple[Measurement, ...], target: Target, resumable: bool) -> str:
    """A sentence: how many measurements are finished, where they are, and how to go on."""
    good = sum(m.status not in _BAD for m in measurements)
    if not good:
        return "Nothing was measured."
    kept = (
        "1 finished measurement is kept" if good == 1 else f"{good} finished measurements are kept"
    )
    if not resumable:
        return f"{kept} in {target.db if target.csv is None else os.path.relpath(target.csv)}."
    if target.csv is None or target.layout != COLLSCOPE:
        return f"{kept} in {target.db}; with --csv a replay can go on with --resume."
    return f"{kept} in {os.path.relpath(target.csv)}; go on with --resume."
