"""Stretches of steps: what is counted in them is what is counted in the steps."""

from __future__ import annotations

import sqlite3

from collscope.store.step_stretches import STRETCHES

STEPS = [
    ("main", 0, 10, 20), ("main", 0, 20, 30),  # one stretch
    ("main", 0, 35, 40),  # behind a gap
    ("main", 1, 30, 40), ("main", 1, 20, 30),  # another rank, in any order
    ("other", 0, 40, 50),
]  # fmt: skip


def test_steps_without_a_gap_are_one() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE steps (run, rank, begin_ns, end_ns)")
    connection.executemany("INSERT INTO steps VALUES (?, ?, ?, ?)", STEPS)
    query = f"WITH {STRETCHES} SELECT rank, begin_ns, end_ns FROM stretches ORDER BY 1, 2"
    found = connection.execute(query, {"run": "main"}).fetchall()
    assert found == [(0, 10, 30), (0, 35, 40), (1, 20, 40)]
    assert connection.execute(query, {"run": "none"}).fetchall() == []
