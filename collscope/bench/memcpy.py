"""`collscope bench memcpy`: plain copies, which bound what a library's transfer can reach."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from collscope.bench.start import check_start, error_of, read_csv, start_microbench
from collscope.errors import CollscopeError, UsageError
from collscope.ingest.commands import ingest_csvs
from collscope.model import MeasurementSet
from collscope.parsers.memcpy_csv import parse
from collscope.replay.launch import Ended, Job
from collscope.replay.results import digest
from collscope.replay.scratch import scratch_folder
from collscope.replay.session import Target
from collscope.replay.sweep import sizes_of

DEFAULT_LABEL = "memcpy"
DEFAULT_SIZES = "4K..1G*4"
GROUPS = ("peer", "within", "host", "ipc")
_PROCESSES = 2  # what passes between processes needs a second one
_WHERE = "bench memcpy"


class CopyRequest(msgspec.Struct, frozen=True):
    """What to measure, from the command line; None leaves a choice to the program."""

    sizes: str = DEFAULT_SIZES
    pairs: str = "all"  # or SRC:DST separated by commas
    only: str | None = None  # of GROUPS, separated by commas
    backend: str = "auto"
    runtime: str | None = None
    budget_s: float | None = None  # per row
    timeout_s: float | None = None  # per row
    rounds: int = 1
    environment: tuple[tuple[str, str], ...] = ()
    program: Path | None = None
    launcher: str | None = None


class CopiesMeasured(msgspec.Struct, frozen=True):
    """What was measured; if it ended early, also why."""

    found: MeasurementSet
    error: CollscopeError | None = None


def measure_copies(request: CopyRequest, target: Target) -> CopiesMeasured:
    """Measure on this host; finished rows are in the store, and in the CSV where one is named.

    raises  UsageError, InputError for what cannot be measured; CollscopeError when nothing was
    """
    arguments = _arguments(request, target.label or DEFAULT_LABEL)
    check_start(_WHERE, target)
    with contextlib.ExitStack() as stack:
        csv = target.csv
        if csv is None:
            csv = stack.enter_context(scratch_folder(None)) / "memcpy.csv"
        csv = csv.absolute()
        before = digest(csv)
        ended: Ended | None = None  # None: interrupted
        with contextlib.suppress(KeyboardInterrupt):
            job = Job(
                ("memcpy", "--csv", str(csv), *arguments),
                _PROCESSES,
                request.environment,
                request.program,
                request.launcher,
            )
            ended = start_microbench(job, csv, _WHERE)
        # A start that did not begin leaves the file of an earlier one.
        began = digest(csv) != before
        found = parse(read_csv(csv) if began else "")
        if found.copies:
            ingest_csvs([str(csv)], target.db, target.run)
    rows = len(found.copies)
    if ended == Ended(0) and began and request.only is not None and not rows:
        raise UsageError(
            f"{_WHERE} --only {request.only}: not available here. Without a GPU, name one of "
            "copies within a process, ipc (a shared window) and peer (messages). There are none to "
            "a host. Copies between GPUs need two GPUs."
        )
    return CopiesMeasured(found, error_of(ended, _WHERE, target, rows=rows, good=rows))


def _arguments(request: CopyRequest, label: str) -> tuple[str, ...]:
    """Options of the program.

    raises  UsageError for sizes, pairs or groups that cannot be understood
    """
    sizes = [s for part in request.sizes.split(",") for s in sizes_of(part.strip(), "--sizes")]
    only = [] if request.only is None else [word.strip() for word in request.only.split(",")]
    unknown = [word for word in only if word not in GROUPS]
    if unknown:
        raise UsageError(f"--only {unknown[0]}: not known. Use some of {', '.join(GROUPS)}.")
    options = {
        "--sizes": ",".join(map(str, dict.fromkeys(sizes))),
        "--pairs": None
        if request.pairs == "all"
        else ",".join(map(_pair, request.pairs.split(","))),
        "--only": ",".join(only) or None,
        "--backend": request.backend,
        "--runtime": request.runtime,
        "--budget": request.budget_s,
        "--timeout": request.timeout_s,
        "--rounds": request.rounds,
        "--label": label,
    }
    given = [(name, str(value)) for name, value in options.items() if value is not None]
    return tuple(part for pair in given for part in pair)


def _pair(text: str) -> str:
    src, colon, dst = text.strip().partition(":")
    if not (colon and src.isdecimal() and dst.isdecimal() and int(src) != int(dst)):
        raise UsageError(f"--pairs {text}: not a pair of two GPUs. Write 0:1,1:0, or all.")
    return f"{int(src)}:{int(dst)}"
