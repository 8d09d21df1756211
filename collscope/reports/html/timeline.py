"""The timeline of all ranks: kernels of collectives as packed arrays for the page's script."""

from __future__ import annotations

import base64
import gzip
import sqlite3
from collections.abc import Mapping
from itertools import chain

import msgspec
import numpy as np
from numpy.typing import NDArray

from collscope.reports.html.page import Strip
from collscope.reports.layout import NUMBER, TEXT, Table, table
from collscope.units import count

_MOST_BYTES = 7_000_000  # of the arrays on a page; beyond, the shortest kernels are left out
_UNKNOWN = 0xFFFFFFFF  # as a wait: not known

_OFFSETS = "SELECT rank, clock_offset_ns FROM traces WHERE run = ? AND used"
_CALLS = """
SELECT call_id, class_id, COALESCE(last_rank, -1), COALESCE(lateness_ns, 0), warm_up
FROM call_times WHERE run = ? ORDER BY call_id
"""
_KERNELS = """
SELECT rank, start_ns, duration_ns, COALESCE(wait_ns, -1), call_id, COALESCE(exposed_ns, 0)
FROM kernels
WHERE run = ?1 AND call_id IS NOT NULL AND rank IS NOT NULL AND start_ns IS NOT NULL
  AND end_ns IS NOT NULL AND source_id IN (
    SELECT source_id FROM traces WHERE run = ?1 AND used)
"""


class Traced(msgspec.Struct, frozen=True):
    """Collectives of all ranks that have a trace, on the common clock.

    kernels  (kernels, 6): rank, start, duration and wait in ns (-1: not known), class, call
    exposed  (kernels,): ns without a compute kernel beside it; 0 in the warm-up
    calls    (calls, 5), in launch order: call, class, rank that came last (-1: none beyond the
             clocks' error), its lateness in ns, 1 for the warm-up
    """

    kernels: NDArray[np.int64]
    exposed: NDArray[np.int64]
    calls: NDArray[np.int64]


def read_traced(connection: sqlite3.Connection, run: str) -> Traced:
    """What the store's views hold; empty arrays without traces."""
    offsets = dict(connection.execute(_OFFSETS, (run,)))
    calls = _table(connection, _CALLS, run, 5)
    found = _table(connection, _KERNELS, run, 6) if offsets else np.empty((0, 6), np.int64)
    known = np.isin(found[:, 0], list(offsets)) & np.isin(found[:, 4], calls[:, 0])
    found = found[known]
    ranks, place = np.unique(found[:, 0], return_inverse=True)
    ahead = np.array([offsets[rank] for rank in ranks.tolist()], dtype=np.int64)
    klass = calls[np.searchsorted(calls[:, 0], found[:, 4]), 1]
    kernels = np.column_stack((found[:, :4], klass, found[:, 4]))
    kernels[:, 1] -= ahead[place]
    return Traced(kernels, found[:, 5], calls)


def _table(connection: sqlite3.Connection, query: str, run: str, columns: int) -> NDArray[np.int64]:
    """Rows of whole numbers as an array."""
    values = chain.from_iterable(connection.execute(query, (run,)))
    return np.fromiter(values, dtype=np.int64).reshape(-1, columns)


def make_strip(found: NDArray[np.int64], names: Mapping[int, str]) -> Strip:
    """The strip of kernels.

    found  kernels as in `Traced`
    names  of classes
    """
    every = len(found)
    document = _document(found, names)
    while (size := sum(len(p) for p in document.values() if isinstance(p, str))) > _MOST_BYTES:
        most = int(len(found) * 0.95 * _MOST_BYTES / size)
        found = found[np.sort(np.argsort(-found[:, 2], kind="stable")[:most])]
        document = _document(found, names)
    left = every - len(found)
    ranks = len(np.unique(found[:, 0]))
    rest = f" The {left} shortest kernels are left out here and in the table." if left else ""
    return Strip(
        "Collectives of all ranks over time",
        f"{len(found)} kernels of {count(ranks, 'rank')} on one clock. Click it; then drag or the "
        "arrow keys move, the wheel or plus and minus zoom. Close up, lines lead from the rank "
        "that came last to those that waited for it." + rest,
        document, _window(found),
    )  # fmt: skip


def _document(found: NDArray[np.int64], names: Mapping[int, str]) -> dict[str, object]:
    """What the page's script reads."""
    found = found[np.lexsort((found[:, 1], found[:, 0]))]
    begin = int(found[:, 1].min())
    span = int((found[:, 1] + found[:, 2]).max()) - begin
    unit = max(1, -(-span // 0xFFFFFFF0))  # ns of one step, so that all fits 32 bits
    ranks, first = np.unique(found[:, 0], return_index=True)
    start = (found[:, 1] - begin) // unit
    step = np.diff(start, prepend=0)
    step[first] = 0
    ids, klass = np.unique(found[:, 4], return_inverse=True)
    _, call = np.unique(found[:, 5], return_inverse=True)
    wait = np.where(found[:, 3] < 0, _UNKNOWN, np.clip(found[:, 3], 0, found[:, 2]) // unit)
    classes = [f"{names[i]}, class {i}" if i in names else f"class {i}" for i in ids.tolist()]
    return {
        "unit": unit, "span": span // unit + 1, "ranks": [f"rank {r}" for r in ranks.tolist()],
        "classes": classes, "offsets": [*first.tolist(), len(found)],
        "first": start[first].tolist(), "step": _pack(step),
        "length": _pack(np.maximum(1, found[:, 2] // unit)), "wait": _pack(wait),
        "class": _pack(np.minimum(klass, 0xFFFF), np.uint16), "call": _pack(call),
    }  # fmt: skip


def _window(found: NDArray[np.int64]) -> Table:
    """Every rank's sums over the whole, as the page's script writes them of a window."""
    cells = []
    for rank in np.unique(found[:, 0]).tolist():
        part = found[found[:, 0] == rank]
        known = part[part[:, 3] >= 0]
        cells.append((
            f"rank {rank}", len(part), f"{known[:, 3].sum() / 1e6:.3f}",
            f"{(known[:, 2] - known[:, 3]).sum() / 1e6:.3f}",
            f"{part[part[:, 3] < 0][:, 2].sum() / 1e6:.3f}",
        ))  # fmt: skip
    return table(
        [("rank", TEXT), ("kernels", NUMBER), ("waiting ms", NUMBER), ("transfer ms", NUMBER),
         ("not known ms", NUMBER)],
        cells,
    )  # fmt: skip


def _pack(values: NDArray[np.int64], kind: type[np.unsignedinteger] = np.uint32) -> str:
    packed = gzip.compress(values.astype(f"<{np.dtype(kind).str[1:]}").tobytes(), 6, mtime=0)
    return base64.b64encode(packed).decode()
