"""The processes of a run: one may have lines in several logs."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import NamedTuple

# The ranks of a process, by the lowest: containers of one host may have equal process ids.
_RANKS = """
SELECT path, m.host, pid, MIN(COALESCE(world_rank, rank))
FROM members m JOIN sources USING (run, source_id)
WHERE run = ? AND pid IS NOT NULL GROUP BY path, m.host, pid
"""

# The communicators may not name the processes and GPUs of RCCL's kernel trace.
_OF_KERNELS = """
SELECT DISTINCT s.path, p.host, p.pid, k.bus_id
FROM _kernel k JOIN _process p USING (process_id) JOIN _source s ON s.source_id = p.source_id
JOIN _run r USING (run_id) WHERE r.label = ? AND s.kind = 'log' AND p.pid IS NOT NULL
"""


class Place(NamedTuple):
    """Where a process has lines."""

    path: str  # of the source
    host: str | None
    pid: int | None


class Processes:
    """Counts processes of a run by host, process id and rank, and by source where none is known."""

    def __init__(self, connection: sqlite3.Connection, run: str) -> None:
        """Take a run by its label."""
        self._ranks = {Place(*row[:3]): row[3] for row in connection.execute(_RANKS, (run,))}

    def count(self, places: Iterable[Place]) -> int:
        """Processes behind some places; a place without a rank is of any process of its id."""
        ranks: dict[Hashable, set[int]] = defaultdict(set)
        for place in places:
            own = ranks[place if place.pid is None else (place.host, place.pid)]
            if place in self._ranks:
                own.add(self._ranks[place])
        return sum(max(1, len(own)) for own in ranks.values())


def of_kernel_lines(connection: sqlite3.Connection, run: str) -> tuple[set[Place], int]:
    """Processes with lines of RCCL's kernel trace, and the number of their GPUs."""
    found = [(Place(*row[:3]), row[3]) for row in connection.execute(_OF_KERNELS, (run,))]
    gpus = {(place.host, bus_id) for place, bus_id in found if bus_id is not None}
    return {place for place, _ in found}, len(gpus)
