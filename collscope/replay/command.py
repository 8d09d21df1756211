"""What `collscope replay` does: make a plan from its source, and measure it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from collscope.errors import InputError, UnreadableError, UsageError
from collscope.ingest.commands import ingest_logs
from collscope.ingest.files import open_input
from collscope.ingest.match import reading, require_matched, require_run
from collscope.ingest.progress import Progress, Reading
from collscope.replay.build import Planned, build_plan
from collscope.replay.estimate import Estimate, estimate
from collscope.replay.load import load_run
from collscope.replay.parse import parse_plan
from collscope.replay.plan import SEQUENCE, UNIQUE, Plan
from collscope.replay.scale import scale
from collscope.replay.select import select
from collscope.replay.session import Method
from collscope.replay.sweep import sweep_plan
from collscope.temporary import temporary_folder

# The replayer's own defaults (options.h).
DEFAULT_BUDGET_S, DEFAULT_REPEAT = 1.0, 3


class Source(msgspec.Struct, frozen=True):
    """Where a plan comes from: a file, a sweep, logs, or else a run of the store."""

    db: Path
    run: str
    logs: tuple[str, ...] = ()
    plan: Path | None = None
    sweep: str | None = None
    datatype: str | None = None  # of the sweep, as the three below
    redop: str | None = None
    in_place: str | None = None  # no, yes, both
    ranks: int | None = None
    mode: str | None = None


def make_plan(source: Source, progress: Progress) -> Planned:
    """The plan that a command line asks for, before anything is chosen from it.

    raises  UsageError for options that exclude each other; InputError for an unusable source
    """
    given = [bool(source.logs), source.plan is not None, source.sweep is not None]
    if sum(given) > 1:
        raise UsageError("replay: logs, --plan and --sweep exclude each other. Give one of them.")
    if source.plan is not None:
        return Planned(_plan_file(source.plan, source.mode))
    if source.sweep is not None:
        return _sweep(source)
    with open_run(source, progress) as connection:
        return plan_of_run(connection, source)


@contextmanager
def open_run(source: Source, progress: Progress) -> Iterator[sqlite3.Connection]:
    """The store of the recorded run; logs on the command line go into a temporary one."""
    if not source.logs:
        with reading(source.db) as connection:
            require_run(connection, source.db, source.run)
            yield connection
        return
    with temporary_folder("logs") as folder:
        db = folder / "logs.db"
        ingest_logs(list(source.logs), db, source.run, Reading(progress))
        with reading(db) as connection:
            require_matched(connection, db, source.run)
            yield connection


def plan_of_run(connection: sqlite3.Connection, source: Source) -> Planned:
    """The plan of a recorded run of an open store.

    raises  InputError when it holds no calls, or none that can be replayed
    """
    mode = source.mode or UNIQUE
    where = source.logs[0] if source.logs else str(source.db)
    records = load_run(connection, source.run, calls=mode == SEQUENCE)
    if not records.slots:
        raise InputError(
            f"{where}: no calls in run '{source.run}'. Choose a run with --run, or ingest a log "
            "recorded with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL."
        )
    planned = build_plan(records, mode)
    if not planned.plan.classes:
        why = "; ".join(planned.notices) or "none of them can be replayed"
        raise InputError(f"{where}: {why}. Ingest the logs of all ranks.")
    return planned


def _plan_file(path: Path, mode: str | None) -> Plan:
    try:
        with open_input(str(path)) as file:
            text = file.read_all().decode()
    except (UnreadableError, UnicodeDecodeError) as error:
        why = error.reason if isinstance(error, UnreadableError) else "not UTF-8 text"
        raise InputError(f"{path}: {why}. Name a plan file, see schemas/plan.md.") from error
    plan = parse_plan(text, str(path))
    if mode is not None and mode != plan.mode:
        do = "Leave --mode out"
        if mode == SEQUENCE:
            do += ", or write 'mode sequence' and its steps into the plan (schemas/plan.md)"
        raise UsageError(f"{path}: a plan of mode {plan.mode}. {do}.")
    return plan


def _sweep(source: Source) -> Planned:
    if source.ranks is None:
        raise UsageError("--sweep: the number of ranks is not given. Give -n RANKS.")
    if source.mode == SEQUENCE:
        raise UsageError("--sweep: a sweep cannot run as a sequence. Leave --mode out.")
    return sweep_plan(
        source.sweep or "",
        datatypes=source.datatype or "float32",
        nranks=source.ranks,
        redop=source.redop or "sum",
        in_place=source.in_place or "no",
    )


class Choice(msgspec.Struct, frozen=True):
    """What is kept of a plan, and on how many ranks."""

    only: str | None = None
    min_share: float | None = None
    limit: int | None = None
    scale_ranks: int | None = None


def choose(planned: Planned, choice: Choice) -> Planned:
    """The requested classes, remapped to fewer ranks on request.

    raises  UsageError when nothing is left
    """
    kept = select(planned, only=choice.only, min_share=choice.min_share, limit=choice.limit)
    return kept if choice.scale_ranks is None else scale(kept, choice.scale_ranks)


def needs(planned: Planned, method: Method) -> Estimate:
    """Memory and time that measuring a plan takes."""
    return estimate(
        planned.plan,
        budget_s=DEFAULT_BUDGET_S if method.budget_s is None else method.budget_s,
        repeat=DEFAULT_REPEAT if method.repeat is None else method.repeat,
    )
