"""Rows of calls are stored as they are, be their numbers small or 64 bits wide."""

from __future__ import annotations

import sqlite3

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collscope.ingest.stored_calls import _store_calls

_COUNTS = st.integers(0, 40) | st.integers(-(2**63), 2**63 - 1)
_ROW = st.tuples(st.integers(1, 2**31), st.integers(0, 300), st.integers(-1, 5), _COUNTS)


@settings(deadline=None)
@given(st.integers(1, 2**40), st.lists(_ROW, max_size=12))
@example(1, [(1, 0, -1, 2**63 - 1), (1, 1, -1, -(2**63)), (9, 2, 3, -1)])
@example(7, [(i % 3 + 1, i, i % 2 - 1, i // 2) for i in range(70_000)])
def test_calls_survive_the_store(first: int, rows: list[tuple[int, int, int, int]]) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE _call_row (call_id INTEGER PRIMARY KEY, a, b, c, d)")
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    _store_calls(connection, first, dict(zip("abcd", columns, strict=True)))
    assert connection.execute("SELECT * FROM _call_row").fetchall() == [
        (first + i, total, seq, *(None if v == -1 else v for v in (group, op_count)))
        for i, (total, seq, group, op_count) in enumerate(rows)
    ]
