"""Calls that one rank lacks, or saw differently than its peers."""

from __future__ import annotations

import sqlite3
from typing import Annotated

import msgspec
from msgspec.structs import replace

_DEVIATIONS = """
SELECT comm_id, rank, what, COUNT(*), detail, path, MIN(line)
FROM deviations WHERE run = ? GROUP BY comm_id, rank, what ORDER BY comm_id, rank, what
"""

# The last calls of a communicator that a rank with a log lacks: its last row of missing places
# without a gap, if it goes on to the end. Traces may end where they like, and have no process. Some
# log must show the rank's last call and the one behind it: of excerpts that overlap nowhere, none
# shows that a rank stopped.
_TAILS = """
WITH missing AS (
    SELECT comm_id, rank, seq, call_id,
           seq - ROW_NUMBER() OVER (PARTITION BY comm_id, rank ORDER BY seq) AS island
    FROM deviations WHERE run = :run AND what = 'missing'),
ends AS (
    SELECT comm_id, SUM(calls) - 1 AS last FROM call_totals
    WHERE run = :run AND comm_id IN (SELECT comm_id FROM missing) GROUP BY comm_id),
logged AS (
    SELECT comm_id, rank, source_id FROM members WHERE run = :run AND pid IS NOT NULL),
tails AS (
    SELECT s.comm_id, s.rank, MIN(s.seq) AS first, MIN(s.call_id) AS call_id, e.last, m.source_id
    FROM missing s JOIN ends e USING (comm_id) JOIN logged m USING (comm_id, rank)
    GROUP BY s.comm_id, s.rank, s.island HAVING MAX(s.seq) = e.last)
SELECT t.comm_id, t.rank, t.first, t.call_id, t.last,
       (SELECT path FROM sources WHERE run = :run AND source_id = t.source_id)
FROM tails t WHERE EXISTS (
    SELECT 1 FROM logged w WHERE w.comm_id = t.comm_id AND NOT EXISTS (
        SELECT 1 FROM missing x WHERE x.comm_id = t.comm_id AND x.rank = w.rank
            AND x.seq IN (t.first - 1, t.first)))
"""

_CALL = """
SELECT op, count, datatype FROM calls
WHERE run = ? AND comm_id = ? AND seq = ? AND call_id {side} ? ORDER BY call_id DESC LIMIT 1
"""


class LastCall(msgspec.Struct, frozen=True):
    """The last call that a rank's log has before it ends, of those that its peers made."""

    place: int  # counted from 1; 0: it made none
    calls: int  # that its peers made
    op: str | None
    count: int | None
    datatype: str | None


class Deviation(msgspec.Struct, frozen=True):
    """Calls that one rank of one communicator lacks, or saw differently than its peers."""

    comm_id: int
    rank: int  # in the communicator
    # missing, stopped (its log lacks the last calls) or differs
    what: Annotated[str, ("missing", "stopped", "differs")]
    calls: int
    detail: str | None  # of the first such call, as matching found it
    source: str | None  # the rank's source
    line: int | None  # of the first such call; None: it logged none
    last: LastCall | None = None  # of a rank that stopped


def read_deviations(connection: sqlite3.Connection, run: str) -> tuple[Deviation, ...]:
    """Deviations per communicator, rank and kind; a rank without the last calls has `stopped`."""
    rows = [Deviation(*row) for row in connection.execute(_DEVIATIONS, (run,))]
    if not any(row.what == "missing" for row in rows):
        return tuple(rows)
    stopped = _stopped(connection, run)
    found = []
    for row in rows:
        tail = stopped.get((row.comm_id, row.rank)) if row.what == "missing" else None
        if tail is None or row.calls > tail.calls:
            found.append(replace(row, calls=row.calls - (tail.calls if tail else 0)))
        if tail is not None:
            found.append(tail)
    return tuple(found)


def _stopped(connection: sqlite3.Connection, run: str) -> dict[tuple[int, int], Deviation]:
    """Ranks whose logs end before those of their peers, each with its last call."""
    found = {}
    for comm, rank, first, call_id, last, path in connection.execute(_TAILS, {"run": run}):
        call = _call(connection, (run, comm, first - 1), call_id) if first else None
        # the store counts from 0, people from 1
        own = LastCall(0 if call is None else first, last + 1, *(call or (None, None, None)))
        missing = last + 1 - first
        found[comm, rank] = Deviation(comm, rank, "stopped", missing, None, path, None, own)
    return found


def _call(
    connection: sqlite3.Connection, place: tuple[str, int, int], behind: int
) -> tuple[str, int | None, str | None] | None:
    """Operation, count and type of the call at a place of a communicator.

    Mostly it is launched shortly before the one that is behind it: no other rows are read then.
    """
    for side in ("<", ">="):
        found = connection.execute(_CALL.format(side=side), (*place, behind)).fetchone()
        if found is not None:
            return tuple(found)
    return None
