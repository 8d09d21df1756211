"""Ranks that stopped: the last call that their logs have, whatever the order of launches."""

from __future__ import annotations

import sqlite3

import pytest

from collscope.reports.coverage.deviations import Deviation, LastCall, read_deviations

OPS = ("AllReduce", "Broadcast", "AllGather", "ReduceScatter")


def _store(call_ids: list[int], since: int) -> sqlite3.Connection:
    """Four calls of one communicator of two ranks; rank 1's log ends before call `since`."""
    connection = sqlite3.connect(":memory:")
    for table in (
        "calls (run, comm_id, seq, call_id, op, count, datatype)",
        "call_totals (run, comm_id, class_id, calls)",
        "members (run, comm_id, rank, source_id, pid)",
        "sources (run, source_id, path)",
        "deviations (run, call_id, comm_id, seq, rank, what, detail, path, line)",
    ):
        connection.execute(f"CREATE TABLE {table}")
    for run in ("main", "other"):  # of the other run nothing counts
        for seq, (op, call_id) in enumerate(zip(OPS, call_ids, strict=True)):
            values = (run, 7, seq, call_id, op, 10 * seq if run == "main" else 1, "Float32")
            connection.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    connection.executemany("INSERT INTO call_totals VALUES ('main', 7, ?, 2)", [(1,), (2,)])
    connection.execute("INSERT INTO call_totals VALUES ('main', 8, 1, 9)")
    for rank in (0, 1):
        connection.execute("INSERT INTO members VALUES ('main', 7, ?, ?, 1)", (rank, rank))
        connection.execute("INSERT INTO sources VALUES ('main', ?, ?)", (rank, f"{rank}.log"))
    connection.executemany(
        "INSERT INTO deviations VALUES ('main', ?, 7, ?, 1, 'missing', NULL, NULL, NULL)",
        [(call_ids[seq], seq) for seq in range(since, len(OPS))],
    )
    return connection


@pytest.mark.parametrize("call_ids", [[1, 2, 3, 4], [10, 20, 30, 40], [4, 3, 2, 1], [2, 4, 1, 3]])
@pytest.mark.parametrize("since", [1, 2, 3])
def test_the_last_call_of_a_rank_that_stopped(call_ids: list[int], since: int) -> None:
    (found,) = read_deviations(_store(call_ids, since), "main")
    last = LastCall(since, 4, OPS[since - 1], 10 * (since - 1), "Float32")
    assert found == Deviation(7, 1, "stopped", 4 - since, None, "1.log", None, last)


def test_a_rank_that_made_no_call_has_no_last_one() -> None:
    (found,) = read_deviations(_store([1, 2, 3, 4], 0), "main")
    assert found.last == LastCall(0, 4, None, None, None)
