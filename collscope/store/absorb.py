"""One store's sources into another: what was read from files is copied, what was matched is not.

Keys are shifted behind those that are there, so rows keep their order; names of kernels are shared.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import msgspec

from collscope.errors import InputError
from collscope.store import sources
from collscope.store.connection import DAMAGED, PART

# Tables of what was read, parents first. The others are made by the matching, or shared by runs.
READ_TABLES = (
    "_source", "_process", "_comm_handle", "_segment", "_kernel", "_kernel_total", "_trace",
    "_recording", "_link", "_setting", "_fact", "_message_bin", "_measurement", "_sample", "_copy",
    "_copy_sample", "_interference", "_metric", "_diagnostic",
)  # fmt: skip
# Columns that hold a key, and the table whose key it is.
_KEYS = {
    "source_id": "_source", "process_id": "_process", "handle_id": "_comm_handle",
    "kernel_id": "_kernel", "first_kernel": "_kernel", "trace_id": "_trace",
    "recording_id": "_recording", "measurement_id": "_measurement", "copy_id": "_copy",
    "interference_id": "_interference", "metric_id": "_metric",
}  # fmt: skip
_OWN_KEYS = {table: column for column, table in _KEYS.items() if column != "first_kernel"}
# Tables whose rows know their source through another table's.
_THROUGH = {
    "_comm_handle": ("process_id", "_process"),
    "_sample": ("measurement_id", "_measurement"),
    "_copy_sample": ("copy_id", "_copy"),
}
_TAKEN = "SELECT source_id FROM temp.taken"
# Totals of traces are written by the matching, those of profiles are read.
_FURTHER = {"_kernel_total": f" AND source_id NOT IN (SELECT source_id FROM {PART}._trace)"}
_NAMES = f"""
INSERT INTO main._kernel_name
    (name, family, op_hint, algorithm_hint, protocol_hint, redop_hint, datatype_hint)
SELECT name, family, op_hint, algorithm_hint, protocol_hint, redop_hint, datatype_hint
FROM {PART}._kernel_name WHERE name_id IN (
    SELECT name_id FROM {PART}._kernel WHERE source_id IN ({_TAKEN})
    UNION SELECT name_id FROM {PART}._kernel_total WHERE source_id IN ({_TAKEN}))
ORDER BY name_id
ON CONFLICT (name) DO UPDATE SET family = COALESCE(family, excluded.family)
"""
# The matching gave these ranks to kernels whose trace has none; it will do so again.
_RANKS = """
UPDATE main._kernel SET rank = NULL FROM main._trace t
WHERE t.trace_id >= ? AND t.rank IS NULL
AND kernel_id >= t.first_kernel AND kernel_id < t.first_kernel + t.kernels
"""
# A period is of the run that its traces were read into; the matching finds it again.
_RUNS = f"""
SELECT r.run_id, base.label, base.steps, MAX(NOT r.matched OR s.source_id IN (
    SELECT source_id FROM {PART}._segment UNION SELECT source_id FROM {PART}._trace
    UNION SELECT source_id FROM {PART}._recording))
FROM {PART}._run r JOIN {PART}._run base ON base.run_id = COALESCE(r.period_of, r.run_id)
JOIN {PART}._source s ON s.run_id = r.run_id GROUP BY r.run_id ORDER BY r.run_id
"""


class Absorbed(msgspec.Struct, frozen=True):
    """What one store gave to another."""

    added: int  # sources
    known: frozenset[tuple[str, str]]  # path and dialect of those whose bytes the run has already
    runs: tuple[str, ...]  # their names in the store that took them


def absorb(connection: sqlite3.Connection, named: Callable[[str], str], where: str) -> Absorbed:
    """Copy the sources of the attached store `PART`; the caller holds the transaction.

    named   name that a run gets here, by its name there
    where   the attached store, for errors
    raises  InputError when it is damaged, or a run has another number of steps here
    """
    try:
        return _absorb(connection, named, where)
    except sqlite3.DatabaseError as error:
        if not any(text in str(error) for text in ("malformed", "not a database", "not decode")):
            raise
        raise InputError(f"{where}: {DAMAGED}") from error


def _absorb(connection: sqlite3.Connection, named: Callable[[str], str], where: str) -> Absorbed:
    connection.execute("DROP TABLE IF EXISTS temp.taken")
    connection.execute("CREATE TEMP TABLE taken (source_id INTEGER PRIMARY KEY, run_id INTEGER)")
    labels: dict[str, None] = {}
    known: set[tuple[str, str]] = set()
    for key, label, steps, to_match in connection.execute(_RUNS).fetchall():
        name = named(label)
        labels[name] = None
        rows = connection.execute(
            f"SELECT source_id, sha256, path, dialect FROM {PART}._source WHERE run_id = ?"
            " ORDER BY source_id",
            (key,),
        ).fetchall()
        old = {row for row in rows if _is_known(connection, name, row[1])}
        known |= {(path, dialect) for _, _, path, dialect in old}
        new = [row[0] for row in rows if row not in old]
        if not new:
            continue
        run = sources.run_id(connection, name)
        connection.executemany("INSERT INTO taken VALUES (?, ?)", [(s, run) for s in new])
        _set_steps(connection, run, steps, f"{where}: run '{label}'")
        if to_match:
            connection.execute("UPDATE main._run SET matched = 0 WHERE run_id = ?", (run,))
    added = connection.execute("SELECT COUNT(*) FROM taken").fetchone()[0]
    if added:
        connection.execute(_NAMES)
        _copy_rows(connection)
    return Absorbed(added, frozenset(known), tuple(labels))


def _is_known(connection: sqlite3.Connection, run: str, identity: str) -> bool:
    return any(sources.has_source(connection, run, same) for same in sources.same_content(identity))


def _set_steps(connection: sqlite3.Connection, run: int, steps: int | None, where: str) -> None:
    """Take the number of steps that a run was given where it was read."""
    (own,) = connection.execute("SELECT steps FROM main._run WHERE run_id = ?", (run,)).fetchone()
    if steps is None or own == steps:
        return
    if own is not None:
        raise InputError(
            f"{where}: read with --steps {steps}, and with --steps {own} in another store."
            " Merge with --rename to keep them apart."
        )
    connection.execute("UPDATE main._run SET steps = ? WHERE run_id = ?", (steps, run))


def _copy_rows(connection: sqlite3.Connection) -> None:
    first_trace = sources.next_id(connection, "main._trace", "trace_id")
    shifts = {table: _shift(connection, table) for table in _OWN_KEYS}
    for table in READ_TABLES:
        columns = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
        values = ", ".join(_value(column, shifts) for column in columns)
        order = ", ".join(columns[:2]) if table in ("_sample", "_copy_sample") else "rowid"
        connection.execute(
            f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {values} FROM {PART}.{table} t"
            f" WHERE {_of_taken(table)}{_FURTHER.get(table, '')} ORDER BY {order}"
        )
    connection.execute(_RANKS, (first_trace,))


def _shift(connection: sqlite3.Connection, table: str) -> int:
    """What is added to each key of a table."""
    key = _OWN_KEYS[table]
    (first,) = connection.execute(
        f"SELECT MIN({key}) FROM {PART}.{table} WHERE {_of_taken(table)}"
    ).fetchone()
    return 0 if first is None else sources.next_id(connection, f"main.{table}", key) - int(first)


def _of_taken(table: str) -> str:
    """Condition that a row of a table is of a source that is copied."""
    if table not in _THROUGH:
        return f"source_id IN ({_TAKEN})"
    column, parent = _THROUGH[table]
    return f"{column} IN (SELECT {column} FROM {PART}.{parent} WHERE source_id IN ({_TAKEN}))"


def _value(column: str, shifts: dict[str, int]) -> str:
    """What a column is copied as."""
    if column == "run_id":
        return "(SELECT run_id FROM temp.taken k WHERE k.source_id = t.source_id)"
    if column == "name_id":
        return (
            "(SELECT own.name_id FROM main._kernel_name own"
            f" JOIN {PART}._kernel_name theirs USING (name) WHERE theirs.name_id = t.name_id)"
        )
    return f"{column} + {shifts[_KEYS[column]]}" if column in _KEYS else column
