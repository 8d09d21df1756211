"""`collscope bench memcpy`: plain copies, the ceiling of what a library's transfer could reach."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from collscope.bench.start import error_of, start_microbench
from collscope.errors import CollscopeError, InputError, ReplayError, UsageError
from collscope.ingest.commands import ingest_csvs
from collscope.parsers.memcpy_csv import CopySet, parse
from collscope.replay.launch import Ended
from collscope.replay.mpi import launched
from collscope.replay.results import digest
from collscope.replay.session import Target
from collscope.replay.sweep import sizes_of
from collscope.store.connection import open_store

DEFAULT_LABEL = "memcpy"
DEFAULT_SIZES = "4K..1G*4"
GROUPS = ("peer", "within", "host", "ipc")
_PROCESSES = 2  # what passes between processes needs a second one
_WHERE = "bench memcpy"


@dataclass(frozen=True, slots=True)
class CopyWanted:
    """What to measure, as the command line says it; None leaves a choice to the program."""

    sizes: str = DEFAULT_SIZES
    pairs: str = "all"  # or SRC:DST parted by commas
    only: str | None = None  # of GROUPS, parted by commas
    backend: str = "auto"
    runtime: str | None = None
    budget_s: float | None = None  # per row
    timeout_s: float | None = None  # per row
    rounds: int = 1
    environment: tuple[tuple[str, str], ...] = ()
    program: Path | None = None
    launcher: Path | None = None


@dataclass(frozen=True, slots=True)
class CopiesMeasured:
    """What was measured, also when it ended early, and then why."""

    found: CopySet
    error: CollscopeError | None = None


class CopiesInterruptedError(ReplayError):
    """A signal asked the benchmark to end; it did, and kept what was finished."""

    exit_code = 130


def measure_copies(wanted: CopyWanted, target: Target) -> CopiesMeasured:
    """Measure on this host; finished rows are in the store, and in the CSV where one is named.

    raises  UsageError, InputError for what cannot be measured; CollscopeError when nothing was
    """
    arguments = _arguments(wanted, target.label or DEFAULT_LABEL)
    _check(target)
    with contextlib.ExitStack() as stack:
        csv = target.csv
        if csv is None:
            folder = tempfile.TemporaryDirectory(prefix="collscope-memcpy-")
            csv = Path(stack.enter_context(folder)) / "memcpy.csv"
        csv = csv.absolute()
        before = digest(csv)
        ended: Ended | None = None  # None: interrupted
        with contextlib.suppress(KeyboardInterrupt):
            ended = start_microbench(
                ("memcpy", "--csv", str(csv), *arguments),
                _PROCESSES,
                environment=wanted.environment,
                program=wanted.program,
                launcher=wanted.launcher,
            )
        # One that did not begin leaves what another start wrote there.
        found = _read(csv) if digest(csv) != before else CopySet((), 0)
        if found.copies:
            ingest_csvs([str(csv)], target.db, target.run)
    return _outcome(found, ended, target)


def _outcome(found: CopySet, ended: Ended | None, target: Target) -> CopiesMeasured:
    """What was measured with the error that ended it.

    raises  that error when nothing was measured
    """
    kept = f"{len(found.copies)} rows are kept in {os.path.relpath(target.csv or target.db)}."
    if not found.copies:
        kept = "Nothing was measured."
    error: CollscopeError | None
    if ended is None:
        error = CopiesInterruptedError(f"{_WHERE}: interrupted. {kept}")
    else:
        error = error_of(ended, _WHERE, kept)
    if not found.copies:
        raise error or ReplayError(f"{_WHERE}: ended without a result. Is it collscope-microbench?")
    return CopiesMeasured(found, error)


def _arguments(wanted: CopyWanted, label: str) -> tuple[str, ...]:
    """Options of the program.

    raises  UsageError for sizes, pairs or groups that cannot be understood
    """
    sizes = [s for part in wanted.sizes.split(",") for s in sizes_of(part.strip(), "--sizes")]
    only = [] if wanted.only is None else [word.strip() for word in wanted.only.split(",")]
    unknown = [word for word in only if word not in GROUPS]
    if unknown:
        raise UsageError(f"--only {unknown[0]}: not known. Use some of {', '.join(GROUPS)}.")
    options = {
        "--sizes": ",".join(map(str, dict.fromkeys(sizes))),
        "--pairs": None if wanted.pairs == "all" else ",".join(map(_pair, wanted.pairs.split(","))),
        "--only": ",".join(only) or None,
        "--backend": wanted.backend,
        "--runtime": wanted.runtime,
        "--budget": wanted.budget_s,
        "--timeout": wanted.timeout_s,
        "--rounds": wanted.rounds,
        "--label": label,
    }
    given = [(name, str(value)) for name, value in options.items() if value is not None]
    return tuple(part for pair in given for part in pair)


def _pair(text: str) -> str:
    src, colon, dst = text.strip().partition(":")
    if not (colon and src.isdecimal() and dst.isdecimal() and int(src) != int(dst)):
        raise UsageError(f"--pairs {text}: no pair of two GPUs. Write it as in 0:1,1:0, or all.")
    return f"{int(src)}:{int(dst)}"


def _check(target: Target) -> None:
    """Refuse, before anything starts, what cannot work.

    raises  UsageError, InputError
    """
    if launched(os.environ) is not None:
        raise UsageError(
            f"{_WHERE}: it starts its two processes itself. Run it alone, not by srun or mpirun."
        )
    for path, option in ((target.csv, "--csv"), (target.db, "--db")):
        if path is not None and not path.absolute().parent.is_dir():
            raise InputError(f"{path}: no such folder. Name another file with {option}.")
    if target.db.exists():
        # A file that is no store would be found out after all was measured.
        open_store(target.db).close()


def _read(csv: Path) -> CopySet:
    """What the CSV holds; nothing without the file.

    raises  InputError when it cannot be read
    """
    try:
        return parse(csv.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return CopySet((), 0)
    except OSError as error:
        raise InputError(f"{csv}: {error.strerror}. Check the path given by --csv.") from error
