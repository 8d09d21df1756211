"""What collectives cost the computation that hides them, from measured interference.

First order (T_step = T_exposed_comp / R + T_exposed_comm): computation that took h beside
collectives would have taken R h without them, so they cost it (1 - R) h.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from math import log
from statistics import fmean, median

import msgspec

from collscope.reports.tolerances import MAX_SIZE_RATIO

_HIDDEN = """
SELECT c.class_id, c.op, c.datatype, c.size_bytes, c.nranks,
       CAST(TOTAL(k.end_ns - k.start_ns - k.exposed_ns) AS INTEGER), COUNT(DISTINCT k.rank)
FROM kernels k JOIN call_times t ON t.run = k.run AND t.call_id = k.call_id
JOIN classes c ON c.run = t.run AND c.class_id = t.class_id
WHERE k.run = ? AND NOT t.warm_up AND k.exposed_ns IS NOT NULL
GROUP BY c.class_id HAVING TOTAL(k.end_ns - k.start_ns - k.exposed_ns) > 0
ORDER BY 6 DESC
"""

# The library's own choice of channels: that is what the job had, as far as is known.
_MEASURED = """
SELECT op, datatype, nranks, size_bytes, compute, label, device, rank, relative_compute
FROM interference
WHERE run = ? AND status = 'ok' AND channels IS NULL AND relative_compute IS NOT NULL
  AND size_bytes > 0 AND backend <> 'host'
"""

_Key = tuple[str, str | None, int | None]  # operation, datatype, ranks
_What = tuple[int, str, str, str | None]  # size, computation, label, device


class BesideRow(msgspec.Struct, frozen=True):
    """A class that runs beside computation, with what such calls cost computation when measured."""

    class_id: int
    op: str
    size_bytes: int
    nranks: int | None
    hidden_ns: float  # of its kernels hidden by compute, mean over the ranks that have some
    relative_compute: float  # measured: performance beside such calls over that alone
    measured_size_bytes: int
    compute: str  # what was measured beside the calls: gemm, kernel
    label: str  # of the measurement
    device: str | None  # of the measurement


def read_beside(connection: sqlite3.Connection, run: str) -> tuple[BesideRow, ...]:
    """Classes that run beside computation and were measured so; most hidden time first."""
    measured: dict[_Key, dict[_What, list[tuple[int, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for op, datatype, nranks, size, compute, label, device, rank, ratio in connection.execute(
        _MEASURED, (run,)
    ):
        measured[op, datatype, nranks][size, compute or "", label, device].append((rank, ratio))
    if not measured:
        return ()
    found = []
    for class_id, op, datatype, size, nranks, hidden_ns, ranks in connection.execute(
        _HIDDEN, (run,)
    ):
        known = measured.get((op, datatype, nranks))
        what = None if known is None or not size else _nearest(tuple(known), size)
        if known is not None and what is not None:
            mean = hidden_ns / max(ranks, 1)
            found.append(BesideRow(class_id, op, size, nranks, mean, _mean(known[what]), *what))
    return tuple(found)


def _nearest(measured: Sequence[_What], size: int) -> _What | None:
    """The nearest measured size by factor, matrix products before kernels; None: none is near."""
    near = [what for what in measured if size / MAX_SIZE_RATIO <= what[0] <= size * MAX_SIZE_RATIO]
    return min(
        near, key=lambda w: (abs(log(w[0] / size)), w[1] != "gemm", w[1], w[2]), default=None
    )


def _mean(values: Sequence[tuple[int, float]]) -> float:
    """Median over rounds of each rank, mean over ranks."""
    by_rank = defaultdict(list)
    for rank, ratio in values:
        by_rank[rank].append(ratio)
    return fmean(median(ratios) for ratios in by_rank.values())
