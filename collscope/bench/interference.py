"""`collscope bench interference`: what computation and collectives cost each other.

The environment of a process sets the number of channels, so each number is a launch of its own;
launches are interleaved over rounds, so that a slow drift of the machine meets all alike.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from collscope.bench.start import check_start, error_of, read_csv, start_microbench
from collscope.errors import CollscopeError, InputError, ReplayError, UsageError
from collscope.ingest.commands import ingest_csvs
from collscope.ingest.match import reading, require_matched
from collscope.ingest.progress import NO_PROGRESS
from collscope.model import Interference
from collscope.parsers.interference_csv import parse
from collscope.replay.build import Planned
from collscope.replay.command import Choice, Source, choose, make_plan
from collscope.replay.launch import Ended, Job
from collscope.replay.plan import Plan
from collscope.replay.probe import probe
from collscope.replay.results import digest
from collscope.replay.scratch import scratch_folder, write_plan
from collscope.replay.session import Method, Session, Target
from collscope.replay.sweep import sweep_plan
from collscope.replay.variants import Variant, schedule

DEFAULT_LABEL = "interference"
DEFAULT_SWEEP = "allreduce,allgather,sendrecv:1M,16M,256M"
_WHERE = "bench interference"
_ROUNDS = 3  # of several settings, where the command line has none
# Not inherited from the shell: without a number of channels the library chooses.
CHANNEL_VARIABLES = (
    "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS",
)  # fmt: skip
_MOST_CHANNELS = 128  # RCCL's limit; NCCL's is 64
_CTAS_SINCE = (2, 17)
_WHEELS = ("cublas", "cuda_nvrtc", "cu1?")  # folders of the package nvidia

# The classes of a run that overlap compute kernels, most overlap first.
_BESIDE = """
SELECT t.class_id
FROM kernels k JOIN call_times t ON t.run = k.run AND t.call_id = k.call_id
WHERE k.run = ? AND NOT t.warm_up
GROUP BY t.class_id HAVING TOTAL(k.end_ns - k.start_ns - k.exposed_ns) > 0
ORDER BY TOTAL(k.end_ns - k.start_ns - k.exposed_ns) DESC
"""


class InterferenceRequest(msgspec.Struct, frozen=True):
    """What to measure, from the command line; None leaves a choice to the program."""

    nranks: int | None = None
    sweep: str | None = None
    datatypes: str = "bfloat16"
    overlapped: bool = False  # the run's classes that overlap compute kernels
    limit: int = 5  # of those
    channels: str | None = None  # separated by commas
    rounds: int | None = None
    compute: str = "auto"
    blas: str | None = None
    compiler: str | None = None
    priority: str = "high"
    backend: str = "auto"
    library: str | None = None
    runtime: str | None = None
    budget_s: float | None = None  # per class and launch
    timeout_s: float | None = None
    environment: tuple[tuple[str, str], ...] = ()
    program: Path | None = None
    launcher: str | None = None


class MeasuredInterference(msgspec.Struct, frozen=True):
    """What was measured; if it ended early, also why."""

    rows: tuple[Interference, ...]
    error: CollscopeError | None = None


def measure_interference(request: InterferenceRequest, target: Target) -> MeasuredInterference:
    """Measure on this machine; finished rows are in the store, and in the CSV where one is named.

    raises  UsageError, InputError for what cannot be measured; CollscopeError when nothing was
    """
    check_start(_WHERE, target)
    numbers = parse_channels(request.channels)
    plan = _plan(request, target)
    variants = channel_variants(
        numbers, target.label or DEFAULT_LABEL, _named_ctas(request, numbers)
    )
    rounds = request.rounds or (_ROUNDS if len(variants) > 1 else 1)
    with _files(target) as (folder, csv):
        path = write_plan(plan, folder / "plan")
        before = digest(csv)
        ended: Ended | None = None  # None: interrupted
        with contextlib.suppress(KeyboardInterrupt):
            ended = _launch_all(request, plan.nranks, (path, csv), variants, rounds)
        # A start that did not begin leaves the file of an earlier one.
        rows = parse(read_csv(csv)).interference if digest(csv) != before else ()
        if rows:
            ingest_csvs([str(csv)], target.db, target.run)
    good = sum(row.status == "ok" for row in rows)
    return MeasuredInterference(rows, error_of(ended, _WHERE, target, rows=len(rows), good=good))


@contextlib.contextmanager
def _files(target: Target) -> Iterator[tuple[Path, Path]]:
    """A folder for the plan, and the CSV."""
    with scratch_folder(target.csv) as folder:
        yield folder, (target.csv or folder / "interference.csv").absolute()


def parse_channels(text: str | None) -> tuple[int, ...]:
    """Numbers of channels of `1,2,4`, each once.

    raises  UsageError when one is none

    >>> parse_channels("1,2,2,16")
    (1, 2, 16)
    """
    parts = [part.strip() for part in text.split(",")] if text else []
    bad = next((p for p in parts if not p.isdecimal() or not 1 <= int(p) <= _MOST_CHANNELS), None)
    if bad is not None:
        raise UsageError(
            f"--channels {bad}: not a number of channels from 1 to {_MOST_CHANNELS}. Write"
            " 1,2,4,8; the library's own choice is measured too."
        )
    return tuple(dict.fromkeys(int(part) for part in parts))


def channel_variants(
    numbers: Sequence[int], label: str, ctas: bool
) -> tuple[tuple[int | None, Variant], ...]:
    """A launch for each number of channels, and one with the library's own choice.

    ctas     the library knows NCCL_MAX_CTAS (NCCL from 2.17 on); else NCCL_MAX_NCHANNELS
    returns  number and variant; Send and Recv have numbers of their own, which are set alike
    """
    what = "CTAS" if ctas else "NCHANNELS"
    names = (f"NCCL_MIN_{what}", f"NCCL_MAX_{what}", "NCCL_MIN_P2P_NCHANNELS",
             "NCCL_MAX_P2P_NCHANNELS")  # fmt: skip
    fixed = [
        (
            n,
            Variant(
                f"{label}: {n} channel{'s' * (n > 1)}", tuple((name, str(n)) for name in names)
            ),
        )
        for n in numbers
    ]
    return (*fixed, (None, Variant(f"{label}: default" if numbers else label)))


def _named_ctas(request: InterferenceRequest, numbers: Sequence[int]) -> bool:
    """Whether the library that will be used knows NCCL_MAX_CTAS.

    raises  UsageError when channels are requested and there is no library
    """
    if not numbers:
        return False
    method = Method(backend=request.backend, library=request.library, runtime=request.runtime)
    found = None if request.backend == "host" else probe(Session(method, launcher=request.launcher))
    if found is None or found.library is None:
        raise UsageError(
            "--channels: neither NCCL nor RCCL was found. Leave it out, or name one with --library."
        )
    return found.library == "nccl" and found.version >= _CTAS_SINCE


def _plan(request: InterferenceRequest, target: Target) -> Plan:
    """Classes of the sweep, or the run's that are overlapped.

    raises  UsageError, InputError when there are none
    """
    if request.overlapped:
        if request.sweep is not None:
            raise UsageError("--overlapped: measures the run's classes. Leave --sweep out.")
        return _overlapped(request, target).plan
    if request.nranks is None:
        raise UsageError(f"{_WHERE}: the number of ranks is not given. Give -n RANKS.")
    sweep = request.sweep or DEFAULT_SWEEP
    return sweep_plan(sweep, datatypes=request.datatypes, nranks=request.nranks).plan


def _overlapped(request: InterferenceRequest, target: Target) -> Planned:
    with reading(target.db) as connection:
        require_matched(connection, target.db, target.run)
        ids = [str(row[0]) for row in connection.execute(_BESIDE, (target.run,))]
    if not ids:
        raise InputError(
            f"{target.db}: no class of run '{target.run}' overlaps compute kernels. Ingest the "
            "traces of its ranks, or measure a --sweep."
        )
    planned = make_plan(Source(target.db, target.run), NO_PROGRESS)
    known = {str(c.id) for c in planned.plan.classes}
    only = ",".join([i for i in ids if i in known][: request.limit])
    if not only:
        raise InputError(
            f"{target.db}: none of the overlapped classes of run '{target.run}' can be replayed. "
            "Measure a --sweep of their sizes."
        )
    return choose(planned, Choice(only=only, scale_ranks=request.nranks))


def _launch_all(
    request: InterferenceRequest,
    nranks: int,
    files: tuple[Path, Path],
    variants: Sequence[tuple[int | None, Variant]],
    rounds: int,
) -> Ended:
    """Run every setting in every round; a class that fails in one does not stop the others."""
    channels_of = {variant.label: number for number, variant in variants}
    several = len(variants) > 1 or rounds > 1
    worst = Ended(0)
    starts = list(schedule([variant for _, variant in variants], rounds))
    for started, (number, variant) in enumerate(starts):
        job = Job(
            (
                *_arguments(request, files, variant.label, channels_of[variant.label]),
                *(("--round", str(number)) if several else ()),
                *(("--append",) if started else ()),
            ),
            nranks,
            (*_library_path(), *request.environment, *variant.environment),
            request.program,
            request.launcher,
            CHANNEL_VARIABLES,
        )
        what = f"{_WHERE}, launch {started + 1} of {len(starts)} ({variant.label})"
        ended = start_microbench(job, files[1], what)
        worst = ended if ended.status or ended.signal else worst
        if ended.status not in (0, ReplayError.exit_code):
            break
    return worst


def _library_path() -> tuple[tuple[str, str], ...]:
    """Where Python wheels keep a BLAS and a compiler, unless the user names a place."""
    wheels = importlib.util.find_spec("nvidia")
    if "COLLSCOPE_LIBRARY_PATH" in os.environ or wheels is None:
        return ()
    roots = [Path(root) for root in wheels.submodule_search_locations or ()]
    found = [str(f) for root in roots for part in _WHEELS for f in sorted(root.glob(f"{part}/lib"))]
    return (("COLLSCOPE_LIBRARY_PATH", ":".join(found)),) if found else ()


def _arguments(
    request: InterferenceRequest, files: tuple[Path, Path], label: str, channels: int | None
) -> tuple[str, ...]:
    options = {
        "--csv": files[1],
        "--compute": request.compute,
        "--blas": request.blas,
        "--compiler": request.compiler,
        "--priority": request.priority,
        "--channels": channels,
        "--backend": request.backend,
        "--library": request.library,
        "--runtime": request.runtime,
        "--budget": request.budget_s,
        "--timeout": request.timeout_s,
        "--label": label,
    }
    given = [(name, str(value)) for name, value in options.items() if value is not None]
    return ("interference", str(files[0]), *(part for pair in given for part in pair))
