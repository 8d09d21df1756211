"""Sources of one store, with all that was read from them, as sources of another."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator

import msgspec

from collscope.store.sources import has_source, next_id, run_id, same_content

# Tables of what parsers found, parents first, each with its columns that are keys of a table. The
# first is the parent, without which a row is left out. What matching found is found anew.
_KEYS: dict[str, dict[str, str]] = {
    "_process": {"source_id": "_source", "process_id": "_process"},
    "_comm_handle": {"process_id": "_process", "handle_id": "_comm_handle"},
    "_fact": {"source_id": "_source", "process_id": "_process"},
    "_link": {
        "source_id": "_source", "process_id": "_process", "handle_id": "_comm_handle",
    },
    "_setting": {"source_id": "_source", "process_id": "_process"},
    "_segment": {"source_id": "_source"},
    "_message_bin": {"source_id": "_source"},
    "_kernel": {
        "source_id": "_source", "kernel_id": "_kernel", "process_id": "_process",
        "name_id": "_kernel_name",
    },
    "_kernel_total": {"source_id": "_source", "name_id": "_kernel_name"},
    "_trace": {"source_id": "_source", "trace_id": "_trace", "first_kernel": "_kernel"},
    "_recording": {"source_id": "_source", "recording_id": "_recording"},
    "_measurement": {
        "source_id": "_source", "measurement_id": "_measurement", "run_id": "_run",
    },
    "_sample": {"measurement_id": "_measurement"},
    "_copy": {"source_id": "_source", "copy_id": "_copy", "run_id": "_run"},
    "_copy_sample": {"copy_id": "_copy"},
    "_interference": {
        "source_id": "_source", "interference_id": "_interference", "run_id": "_run",
    },
    "_metric": {"source_id": "_source", "metric_id": "_metric", "run_id": "_run"},
    "_diagnostic": {"source_id": "_source", "run_id": "_run"},
}  # fmt: skip
_OWN = {
    "_process": "process_id", "_comm_handle": "handle_id", "_kernel": "kernel_id",
    "_trace": "trace_id", "_recording": "recording_id", "_measurement": "measurement_id",
    "_copy": "copy_id", "_interference": "interference_id", "_metric": "metric_id",
}  # fmt: skip
_WITHOUT_ROWID = ("_sample", "_copy_sample")
_PARENTS = ("_process", "_measurement", "_copy")  # of rows that have no source of their own
_SOURCES = """
SELECT source_id, COALESCE(p.label, r.label), sha256 FROM _source
JOIN _run r USING (run_id) LEFT JOIN _run p ON p.run_id = r.period_of ORDER BY source_id
"""
_RUNS = """
SELECT r.label, MAX(steps) FROM _run r JOIN _source USING (run_id)
WHERE period_of IS NULL GROUP BY r.run_id ORDER BY MIN(source_id)
"""


# What becomes of a value, by its table and its column.
Change = Callable[[str, str, object], object]


def _same(_table: str, _column: str, value: object) -> object:
    return value


class Copied(msgspec.Struct, frozen=True):
    """What came of a store's sources."""

    runs: tuple[str, ...]  # labels in the other store
    sources: int  # that were new
    known: int  # that the other store's run held already


def copy_sources(
    given: sqlite3.Connection,
    target: sqlite3.Connection,
    rename: Callable[[str], str],
    change: Change = _same,
) -> Copied:
    """Put every source of a store into another one, in the transaction that is open there.

    Traces of a run's periods go back into that run: matching separates them anew. The runs are
    marked as not matched.

    rename  label of a run in the target, by its label in the given store
    change  other values than those of the given store
    """
    keys: dict[str, tuple[str, int]] = {}
    for label, steps in given.execute(_RUNS):
        keys[label] = rename(label), run_id(target, rename(label))
        query = "UPDATE _run SET steps = COALESCE(steps, ?) WHERE run_id = ?"
        target.execute(query, (steps, keys[label][1]))
    copier = _Copier(given, target, change)
    known = 0
    for source, label, sha256 in given.execute(_SOURCES):
        run, key = keys[label]
        if any(has_source(target, run, same) for same in same_content(sha256)):
            known += 1
        else:
            copier.add_source(source, key)
    for table in _KEYS:
        copier.copy(table)
    changed = set(copier.runs.values())
    target.executemany("UPDATE _run SET matched = 0 WHERE run_id = ?", [(k,) for k in changed])
    return Copied(tuple(run for run, _ in keys.values()), len(copier.sources), known)


class _Copier:
    """Rows of one store on their way into another, their keys changed."""

    def __init__(
        self, given: sqlite3.Connection, target: sqlite3.Connection, change: Change
    ) -> None:
        self._given, self._target, self._changed = given, target, change
        self.sources: dict[int, int] = {}  # key in the target, by the key here
        self.runs: dict[int, int] = {}  # key of the run in the target, by the source's key here
        self._names = _copy_names(given, target)
        self._shifts = {
            table: next_id(target, table, key) - _least(given, table, key)
            for table, key in _OWN.items()
        }
        self._kept: dict[str, set[int]] = {table: set() for table in _PARENTS}

    def add_source(self, source: int, run: int) -> None:
        """Copy a source alone into a run of the target."""
        columns = _columns(self._given, "_source")
        query = f"SELECT {', '.join(columns)} FROM _source WHERE source_id = ?"
        (row,) = self._given.execute(query, (source,))
        self.sources[source] = next_id(self._target, "_source", "source_id")
        self.runs[source] = run
        new = {"source_id": self.sources[source], "run_id": run}
        values = [new.get(column, value) for column, value in zip(columns, row, strict=True)]
        self._insert("_source", columns, [values])

    def copy(self, table: str) -> None:
        """Copy the rows of a table that are of the sources."""
        columns = _columns(self._given, table)
        self._insert(table, columns, self._rows(table, columns))

    def _insert(self, table: str, columns: list[str], rows: Iterable[list[object]]) -> None:
        marks = ", ".join("?" * len(columns))
        query = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        changed = (
            [self._changed(table, c, v) for c, v in zip(columns, row, strict=True)] for row in rows
        )
        self._target.executemany(query, rows if self._changed is _same else changed)

    def _rows(self, table: str, columns: list[str]) -> Iterator[list[object]]:
        keys, own = _KEYS[table], _OWN.get(table)
        parent = next(iter(keys))
        at = columns.index(parent)
        within = self.sources.keys() if parent == "source_id" else self._kept[keys[parent]]
        changes = [(columns.index(c), self._change(of)) for c, of in keys.items() if of != "_run"]
        run = columns.index("run_id") if "run_id" in keys else None
        order = own or ", ".join(columns if table in _WITHOUT_ROWID else ("rowid",))
        query = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}"
        for found in self._given.execute(query):
            if found[at] not in within:
                continue
            if table in _PARENTS:
                self._kept[table].add(found[columns.index(own or "")])
            row = list(found)
            for place, change in changes:
                row[place] = None if found[place] is None else change(found[place])
            if run is not None:
                row[run] = self.runs[found[at]]
            yield row

    def _change(self, table: str) -> Callable[[int], int]:
        """A key of a table in the target, by the key here."""
        if table == "_source":
            return self.sources.__getitem__
        if table == "_kernel_name":
            return self._names.__getitem__
        return self._shifts[table].__add__


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _least(connection: sqlite3.Connection, table: str, key: str) -> int:
    """The least key of a table, so that those of the target go on without a gap."""
    query = f"SELECT COALESCE(MIN({key}), 1) FROM {table}"
    return int(connection.execute(query).fetchone()[0])


def _copy_names(given: sqlite3.Connection, target: sqlite3.Connection) -> dict[int, int]:
    """Keys of kernel names in the target, by their keys here."""
    found = {}
    for key, name, *hints in given.execute(
        "SELECT name_id, name, family, op_hint, algorithm_hint, protocol_hint, redop_hint,"
        " datatype_hint FROM _kernel_name ORDER BY name_id"
    ):
        # What a source shows to be a collective is one, whichever source comes first.
        target.execute(
            "INSERT INTO _kernel_name (name, family, op_hint, algorithm_hint, protocol_hint,"
            " redop_hint, datatype_hint) VALUES (?,?,?,?,?,?,?)"
            " ON CONFLICT (name) DO UPDATE SET family = COALESCE(family, excluded.family)",
            (name, *hints),
        )
        query = "SELECT name_id FROM _kernel_name WHERE name = ?"
        (found[key],) = target.execute(query, (name,)).fetchone()
    return found
