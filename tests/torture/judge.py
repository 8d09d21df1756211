"""What a folder holds after a command, and whether that may be."""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import msgspec
from disturb import STDOUT, Ended
from scenarios import BEFORE, DB, Scenario

from collscope.store.connection import schema_version

# A command that ends so has answered; others (2, 3, 5) have not.
ANSWERED = (0, 1, 4)
_NEVER_PRINTED = re.compile(
    r"Traceback|internal error|Fatal Python error|Exception ignored|leaked|terminate called"
)
# Keys are numbered as rows come.
_KEY = re.compile(r".*_id")
# Of measured times: what was measured, whatever the times are, and how many of them there are.
_STEADY = {
    "sources": "kind dialect",
    "measurements": "op datatype redop root count size_bytes in_place nranks label status n_wrong",
}
# Files that others leave where files are temporary: MPI's launcher, Python's look at the folder,
# and SQLite, whose empty file has its name for a moment only.
_FOREIGN = re.compile(r"tmp/(s_\w{6}|\w{8}|etilqs_\w+)")
# What a run holds before its calls are matched.
_UNMATCHED_VIEWS = ("sources", "facts", "measurements", "metrics")


class Store(msgspec.Struct, frozen=True):
    """What a store holds.

    views      by run and view, a digest of its rows
    unmatched  runs whose sources changed since they were matched last
    due        of these, those that the next command matches, after an upgrade
    wrong      what SQLite finds damaged
    """

    version: int
    views: dict[str, dict[str, str]]
    unmatched: frozenset[str] = frozenset()
    due: frozenset[str] = frozenset()
    wrong: tuple[str, ...] = ()


class State(msgspec.Struct, frozen=True):
    """A folder: its store, the bytes of other outputs, and the names of all files."""

    store: Store | None
    outputs: dict[str, bytes | None]
    files: frozenset[str]


class Baseline(msgspec.Struct, frozen=True):
    """A scenario without a disturbance: before, after the command, and after it ran again."""

    before: State
    first: Ended
    after: State
    again: Ended
    end: State


def state_of(scenario: Scenario, folder: Path) -> State:
    """What a folder holds now; its store is copied first, as a backup after a crash would be."""
    outputs = {name: _output(folder / name, scenario.exact) for name in scenario.outputs}
    files = frozenset(
        name
        for path in folder.rglob("*")
        if not (name := str(path.relative_to(folder))).startswith(STDOUT)
        and not _FOREIGN.fullmatch(name)
    )
    return State(_store(folder / DB, scenario.exact), outputs, files)


def _output(path: Path, exact: bool) -> bytes | None:
    """Bytes of a file; of measured times only which rows there are."""
    if not path.exists():
        return None
    content = path.read_bytes()
    if exact:
        return content
    rows = [line for line in content.splitlines() if not line.startswith(b"#")]
    return b"\n".join(b",".join(row.split(b",")[:9]) for row in rows)


def _store(path: Path, exact: bool) -> Store | None:
    """The store as it stands on the disk: without the -shm, and without a process that has it."""
    if not path.exists():
        return None
    with tempfile.TemporaryDirectory() as name:
        for end in ("", "-wal", "-journal"):
            beside = path.with_name(path.name + end)
            if beside.exists():
                shutil.copy(beside, name)
        with closing(sqlite3.connect(Path(name) / DB)) as connection:
            try:
                return _read_store(connection, exact)
            except sqlite3.Error as error:
                return Store(-1, {}, wrong=(str(error),))


def _read_store(connection: sqlite3.Connection, exact: bool) -> Store:
    wrong = [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    wrong += [f"foreign key: {row}" for row in connection.execute("PRAGMA foreign_key_check")]
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    if version < schema_version():  # without the views of now
        digest = hashlib.sha256("\n".join(connection.iterdump()).encode()).hexdigest()
        return Store(version, {"": {"every row": digest}} if version else {}, wrong=tuple(wrong))
    views = connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()
    runs = connection.execute("SELECT label, matched, due FROM _run").fetchall()
    return Store(
        version,
        {
            run: {
                view: _rows(connection, view, run, exact or run == BEFORE)
                for (view,) in views
                if not view.startswith("_")
            }
            for run, *_ in runs
        },
        frozenset(run for run, matched, _ in runs if not matched),
        frozenset(run for run, matched, due in runs if due and not matched),
        tuple(wrong),
    )


def _rows(connection: sqlite3.Connection, view: str, run: str, exact: bool) -> str:
    """Number and digest of a view's rows."""
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({view})")]
    kept = [n for n in names if not _KEY.fullmatch(n)] if exact else _STEADY.get(view, "").split()
    columns = ", ".join(f'"{name}"' for name in kept)
    query = f"SELECT {columns} FROM {view} WHERE run = ?"
    rows = connection.execute(query, (run,)).fetchall() if kept else []
    return f"{len(rows)} {hashlib.sha256(repr(sorted(map(repr, rows))).encode()).hexdigest()}"


def printed_problems(ended: Ended) -> list[str]:
    """What no command may print, and how none may end."""
    found = [f"printed {m[0]!r}" for m in _NEVER_PRINTED.finditer(ended.out + ended.err)][:1]
    if ended.code is None:
        found.append("does not end")
    elif ended.code < 0 and not ended.killed:
        found.append(f"signal {-ended.code}")
    elif ended.code > 0 and not ended.err and ended.code not in ANSWERED:
        found.append(f"exit {ended.code} without a word")
    return found


def disturbed_problems(
    scenario: Scenario, baseline: Baseline, ended: Ended, now: State
) -> list[str]:
    """What is wrong right after the disturbance."""
    found = printed_problems(ended)
    if ended.killed and ended.met is not None and not ended.met:
        found.append("killed by something else")
    found += _store_problems(scenario, baseline, now.store)
    for name, content in now.outputs.items():
        whole = (baseline.before.outputs[name], baseline.after.outputs[name])
        if scenario.exact and content not in whole:
            found.append(f"{name} is neither the old nor the new file")
    if ended.code in ANSWERED:
        if ended.code != baseline.first.code:
            found.append(f"exit {ended.code}, undisturbed {baseline.first.code}")
        found += different("exit code of an answer, but", baseline.after, now)
        if scenario.exact and ended.out != baseline.first.out:
            found.append("exit code of an answer, but other words on standard output")
    return found


def unmatched_problems(run: str, asked: Ended, before: State, now: State) -> list[str]:
    """What is wrong with a report of a run that its ingest stored and did not match."""
    found = printed_problems(asked)
    if asked.code != 3 or "collscope runs rematch" not in asked.err:
        found.append(f"report of the unmatched run {run!r}: exit {asked.code}: {asked.err.strip()}")
    if now.store != before.store:
        found.append(f"report of the unmatched run {run!r} changed the store")
    return found


def again_problems(scenario: Scenario, baseline: Baseline, ended: Ended, now: State) -> list[str]:
    """What is wrong after the same command again, undisturbed."""
    found = printed_problems(ended)
    if ended.code not in (baseline.first.code, baseline.again.code):
        found.append(f"again: exit {ended.code}: {ended.err.strip()}")
    found += different("again:", baseline.end, now)
    changes = baseline.first.out != baseline.again.out
    if scenario.exact and not changes and ended.out != baseline.again.out:
        found.append("again: other words on standard output")
    left, missing = now.files - baseline.end.files, baseline.end.files - now.files
    found += [f"left behind: {name}" for name in sorted(left)]
    found += [f"gone: {name}" for name in sorted(missing)]
    return found


def _store_problems(scenario: Scenario, baseline: Baseline, now: Store | None) -> list[str]:
    old = baseline.before.store
    if now is None:
        return [] if old is None else ["the store is gone"]
    found = [f"store: {what}" for what in now.wrong]
    if old is None or found:
        return found
    if now.version == old.version:
        kept = old
    elif now.version == schema_version() and baseline.after.store is not None:
        kept = baseline.after.store
    else:
        return [f"store: version {now.version}, was {old.version}"]
    for run, views in kept.views.items():
        if run not in ("", scenario.kept):
            continue
        for view, rows in views.items():
            if run in now.unmatched and view not in _UNMATCHED_VIEWS:
                continue
            told = now.views.get(run, {}).get(view, "nothing")
            if told != rows:
                found.append(f"lost: {view} of run {run!r}: {told[:12]} for {rows[:12]}")
    return found


def different(when: str, wanted: State, now: State) -> list[str]:
    """In what the stores and the outputs of two folders differ."""
    found = [
        f"{when} another {name}"
        for name, content in wanted.outputs.items()
        if now.outputs[name] != content
    ]
    if (wanted.store is None) != (now.store is None):
        found.append(f"{when} another store")
    elif wanted.store is not None and now.store is not None and wanted.store != now.store:
        both = wanted.store.views, now.store.views
        runs = sorted({*both[0], *both[1]})
        differing = [
            f"{run}.{view}"
            for run in runs
            for view in {**both[0].get(run, {}), **both[1].get(run, {})}
            if both[0].get(run, {}).get(view) != both[1].get(run, {}).get(view)
        ]
        found.append(f"{when} another store ({', '.join(differing[:5]) or now.store.unmatched})")
    return found
