"""How long each rank of a run waits in collectives, and how late it comes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

import msgspec

_RANKS = """
SELECT rank, calls, transfer_ns, wait_ns, unknown_ns, late_of, late_last, late_behind,
       late_typical_ns, late_max_ns, late_total_ns, caused_wait_ns, late_share, straggler,
       span_ns, compute_ns, copy_ns, collective_ns, exposed_ns, hidden_ns, idle_ns,
       late_inherited_ns, late_first_rank
FROM rank_times WHERE run = ? AND span_ns IS NOT NULL ORDER BY rank
"""

_LOGGED = """
SELECT rank, calls, transfer_ns, wait_ns, unknown_ns, late_of, late_last, late_behind,
       late_typical_ns, late_max_ns, late_total_ns, caused_wait_ns, late_share, straggler
FROM rank_waits WHERE run = ? AND origin != 'trace' ORDER BY rank
"""

_ORIGIN = "SELECT origin FROM rank_waits WHERE run = ? AND origin != 'trace' LIMIT 1"

_TRUTH = 13  # column of `straggler`


class RankWaits(msgspec.Struct, frozen=True):
    """How long one rank waits in collectives after the warm-up, and how late it comes."""

    rank: int
    calls: int
    transfer_ns: int
    wait_ns: int
    unknown_ns: int  # collective time that cannot be split
    late_of: int  # calls it could be late to
    late_last: int  # that it arrived last at, by more than the clock error
    late_behind: int  # of them, those with at least half the typical lateness
    late_typical_ns: float
    late_max_ns: int
    late_total_ns: int
    caused_wait_ns: int  # of the other ranks
    late_share: float  # ratio to the lateness of all ranks
    straggler: bool

    @property
    def seen_ns(self) -> int:
        """Time that the rank was seen: in collectives."""
        return self.transfer_ns + self.wait_ns + self.unknown_ns


class RankRow(RankWaits, frozen=True):
    """One rank's GPU time after the warm-up, its waiting, and how late it comes."""

    span_ns: int  # from the end of the warm-up to the last kernel's end
    compute_ns: int
    copy_ns: int
    collective_ns: int
    exposed_ns: int  # part of collective_ns that compute does not hide
    hidden_ns: int  # of collective_ns, beside one
    idle_ns: int
    late_inherited_ns: int  # of late_total_ns: it waited itself, for ranks late in other groups
    late_first_rank: int | None  # first cause of most of this; None where it is little

    @property
    def seen_ns(self) -> int:
        """Time that the rank was seen: that of its trace."""
        return self.span_ns


_Rank = TypeVar("_Rank", bound=RankWaits)


def read_ranks(connection: sqlite3.Connection, run: str) -> tuple[RankRow, ...]:
    """Ranks of the run's traces; none where their times are not known."""
    return _read(connection, _RANKS, run, RankRow)


def read_logged_ranks(connection: sqlite3.Connection, run: str) -> tuple[RankWaits, ...]:
    """Ranks of the kernel trace in the run's logs, or of its recordings."""
    return _read(connection, _LOGGED, run, RankWaits)


def read_logged_by(connection: sqlite3.Connection, run: str) -> str | None:
    """What `read_logged_ranks` is from: kernel_log or recording; None without such ranks."""
    row = connection.execute(_ORIGIN, (run,)).fetchone()
    return None if row is None else str(row[0])


def _read(
    connection: sqlite3.Connection, query: str, run: str, kind: Callable[..., _Rank]
) -> tuple[_Rank, ...]:
    """Rows of a query as records; the 14th column is a truth value."""
    return tuple(
        kind(*row[:_TRUTH], bool(row[_TRUTH]), *row[_TRUTH + 1 :])
        for row in connection.execute(query, (run,))
    )
