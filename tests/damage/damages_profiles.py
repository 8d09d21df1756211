"""Damages of profiles that are SQLite files: kernels twice, beside each other, gone, renamed.

Each file is a trace of samples/traces as the profiler would have written it. RPD and rocpd number
what they write, and the calls of the host name what they launched, so a kernel that is gone leaves
a gap. A stream runs one row after the other. Names that are cut decide nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from random import Random

from damages import Damage, Damaged, Files, one

# Table of the kernels, in the order in which a file may have them.
_KERNELS = ("CUPTI_ACTIVITY_KIND_KERNEL", "rocpd_kernel_dispatch_1f", "rocpd_op")
# Table and column of the kernels' names.
_NAMES = (
    ("StringIds", "value"),
    ("rocpd_info_kernel_symbol_1f", "display_name"),
    ("rocpd_string", "string"),
)
_NEAR_NS, _LATER_NS = 500, 1_000_000
_LEAST = 12  # characters that are left of a name
_SHORT = 1_000  # ns; copies of a shorter row hardly touch it

Change = Callable[[sqlite3.Connection, str, list[int]], tuple[bool, str]]


def _damage(change: Change) -> Callable[[Files, Random, float], Damaged | None]:
    def apply(files: Files, draw: Random, part: float) -> Damaged | None:
        name = one(files, draw)
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(files[name])
            known = {t for (t,) in connection.execute("SELECT name FROM sqlite_master")}
            table = next(t for t in _KERNELS if t in known)
            rows = [r for (r,) in connection.execute(f"SELECT rowid FROM {table} ORDER BY start")]
            chosen = draw.sample(rows, max(2, round(part * len(rows))))
            decidable, why = change(connection, table, chosen)
            connection.commit()
            return Damaged({**files, name: connection.serialize()}, decidable, why)

    return apply


def _copied(connection: sqlite3.Connection, table: str, rows: list[int], later_ns: int) -> None:
    """Rows once more, with a number of their own where the table numbers them."""
    told = connection.execute(f"PRAGMA table_info({table})").fetchall()
    own = [f'"{column[1]}"' for column in told if not column[5]]
    taken = [f"{c} + {later_ns}" if c in ('"start"', '"end"') else c for c in own]
    connection.executemany(
        f"INSERT INTO {table} ({', '.join(own)})"
        f" SELECT {', '.join(taken)} FROM {table} WHERE rowid = ?",
        [(row,) for row in rows],
    )


def _twice(connection: sqlite3.Connection, table: str, rows: list[int]) -> tuple[bool, str]:
    _copied(connection, table, rows, 0)
    return True, "rows that equal another of their stream"


def _near(connection: sqlite3.Connection, table: str, rows: list[int]) -> tuple[bool, str]:
    _copied(connection, table, rows, _NEAR_NS)
    long = sum(
        connection.execute(
            f'SELECT "end" - start > {_SHORT} FROM {table} WHERE rowid = ?', (row,)
        ).fetchone()[0]
        for row in rows
    )
    (of,) = connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
    return long * 50 > of, f"{long} rows that overlap their copies, of {of}"


def _later(connection: sqlite3.Connection, table: str, rows: list[int]) -> tuple[bool, str]:
    connection.executemany(
        f'UPDATE {table} SET "end" = "end" + {_LATER_NS} WHERE rowid = ?', [(row,) for row in rows]
    )
    return True, "rows that overlap those behind them on their stream"


def _gone(connection: sqlite3.Connection, table: str, rows: list[int]) -> tuple[bool, str]:
    connection.executemany(f"DELETE FROM {table} WHERE rowid = ?", [(row,) for row in rows])
    return True, "launches without their kernel, and numbers that are missing"


def _cut(connection: sqlite3.Connection, _table: str, _rows: list[int]) -> tuple[bool, str]:
    for table, column in _NAMES:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            connection.execute(
                f"UPDATE {table} SET {column} = SUBSTR({column}, 1, {_LEAST})"
                f" WHERE {column} LIKE '%(%'"
            )
    return False, "what a kernel is stands in its name"


DAMAGES = (
    Damage("rows twice", _damage(_twice), (0.02, 0.3, 1.0)),
    Damage("near copies", _damage(_near), (0.1, 0.3, 1.0)),
    Damage("ends later", _damage(_later), (0.1, 0.3, 1.0)),
    Damage("rows gone", _damage(_gone), (0.02, 0.1, 0.5)),
    Damage("names cut", _damage(_cut), (1.0,)),
)
