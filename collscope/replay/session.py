"""What a replay is started with: method, settings, ranks, and where its results go."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from collscope.errors import InputError, ReplayError, UsageError
from collscope.outputs import note_store, require_folder, require_output
from collscope.replay.mpi import LaunchedRank, launched
from collscope.replay.variants import Variant, parse_assignment, parse_variants
from collscope.store.connection import open_store

DEFAULT_LABEL = "replay"
COLLSCOPE, RCCL_REPLAYER = "collscope", "rccl_replayer"  # layouts of the CSV
_ROUNDS = 3  # of variants, where the command line names none
_OWN = b"# collscope-replay:"  # how a CSV of ours begins


class Method(msgspec.Struct, frozen=True):
    """How to measure; None leaves a choice to the replayer."""

    backend: str = "auto"
    library: str | None = None
    runtime: str | None = None
    gpus_per_process: int = 1
    threads: str | None = None  # per-gpu or one
    budget_s: float | None = None  # per class
    timing: str = "batch"  # batch, graph, isolated
    verify: int | None = None  # iterations verified; 0: none
    repeat: int | None = None  # passes of mode sequence
    timeout_s: float | None = None  # per class


class Target(msgspec.Struct, frozen=True):
    """Where results go, and under which names."""

    db: Path
    run: str
    csv: Path | None = None
    layout: str = COLLSCOPE
    label: str | None = None
    resume: bool = False


def check_target(target: Target) -> None:
    """Refuse, before anything starts, files that cannot be written.

    raises  InputError; it would else be found out after all was measured
    """
    for path, option in ((target.csv, "--csv"), (target.db, "--db")):
        if path is not None:
            require_folder(path, option)
    if target.csv is not None:
        _check_csv(target.csv, target.db)
    if target.db.exists():
        open_store(target.db).close()
        if target.csv is not None and not _of_replay(target.csv):
            require_output(target.csv, "--csv")  # once more, now that the store's sources are known


def _of_replay(csv: Path) -> bool:
    """Whether a file is of an earlier replay, whose place the next one takes."""
    try:
        with csv.open("rb") as file:
            return file.read(len(_OWN)) == _OWN
    except OSError:
        return False


def _check_csv(csv: Path, db: Path) -> None:
    """Refuse what a CSV must not replace, and what cannot be read again."""
    if csv.exists() and not csv.is_file():
        raise InputError(f"{csv}: not a regular file. Name another file with --csv.")
    note_store(db)  # one that is not there yet, too
    require_output(csv, "--csv")


class Session(msgspec.Struct, frozen=True):
    """What is started, with what, and how often."""

    method: Method
    variants: tuple[Variant, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # for every variant
    rounds: int = 1
    replayer: Path | None = None
    launcher: str | None = None
    place: LaunchedRank | None = None  # where a launcher started several of this process
    ranks: int | None = None  # at hand; None: as many as the plan needs
    oversubscribe: bool = False  # more ranks without a GPU than the host serves


class Options(msgspec.Struct, frozen=True):
    """Settings and ranks, as the command line gives them."""

    variants: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    rounds: int | None = None
    ranks: int | None = None
    replayer: Path | None = None
    launcher: str | None = None
    oversubscribe: bool = False


def make_session(method: Method, options: Options) -> Session:
    """The session that a command line asks for, at this process's place.

    raises  UsageError for options that cannot be read
    """
    variants = parse_variants(options.variants)
    place = launched(os.environ)
    ranks = options.ranks
    if ranks is None and place is not None:
        ranks = place.size * method.gpus_per_process
    return Session(
        method,
        variants,
        tuple(parse_assignment(text) for text in options.environment),
        options.rounds or (_ROUNDS if variants else 1),
        options.replayer,
        options.launcher,
        place,
        ranks,
        options.oversubscribe,
    )


@contextlib.contextmanager
def first_rank_speaks() -> Iterator[None]:
    """Let only the first of the ranks that a launcher started print.

    Errors that all ranks have (of the command line, of the replay) end the other ranks silently.
    An error that only one rank may have, such as a file it cannot see, is printed by that rank.
    """
    place = launched(os.environ)
    if place is None or place.rank == 0:
        yield
        return
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    except (UsageError, ReplayError) as error:
        sys.exit(error.exit_code)
