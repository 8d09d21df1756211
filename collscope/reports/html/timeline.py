"""The timeline of all ranks: kernels of collectives as packed arrays for the page's script."""

from __future__ import annotations

import base64
import gzip
import sqlite3
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from collscope.analysis.classes import ClassRow
from collscope.reports.html.page import Strip
from collscope.reports.layout import NUMBER, TEXT, Table, table
from collscope.units import format_size

MOST_KERNELS = 500_000  # of a page; the shortest are left out beyond
_UNKNOWN = 0xFFFFFFFF  # as a wait: not known

_KERNELS = """
SELECT k.rank, k.start_ns - COALESCE(t.clock_offset_ns, 0), k.end_ns - k.start_ns, k.wait_ns,
       c.class_id, k.call_id
FROM kernels k JOIN calls c ON c.call_id = k.call_id AND c.run = k.run
LEFT JOIN traces t ON t.run = k.run AND t.rank = k.rank AND t.used
WHERE k.run = ? AND k.end_ns IS NOT NULL AND k.rank IS NOT NULL AND k.start_ns IS NOT NULL
"""


def timeline_strip(
    connection: sqlite3.Connection, run: str, classes: Iterable[ClassRow]
) -> Strip | None:
    """Collective kernels of all ranks on the common clock; None without any."""
    rows = connection.execute(_KERNELS, (run,)).fetchall()
    if not rows:
        return None
    # an unknown wait is -1 here
    found = np.array([[-1 if v is None else v for v in row] for row in rows], dtype=np.int64)
    return make_strip(found, {c.class_id: f"{c.op} {format_size(c.size_bytes)}" for c in classes})


def make_strip(found: NDArray[np.int64], names: dict[int, str]) -> Strip:
    """The strip of kernels.

    found  (kernels, 6): rank, start, duration and wait in ns (a wait of -1: not known), class, call
    names  of classes
    """
    left = max(0, len(found) - MOST_KERNELS)
    if left:
        found = found[np.sort(np.argsort(-found[:, 2], kind="stable")[:MOST_KERNELS])]
    found = found[np.lexsort((found[:, 1], found[:, 0]))]
    begin = int(found[:, 1].min())
    span = int((found[:, 1] + found[:, 2]).max()) - begin
    unit = max(1, -(-span // 0xFFFFFFF0))  # ns of one step, so that all fits 32 bits
    ranks, first = np.unique(found[:, 0], return_index=True)
    offsets = [*map(int, first), len(found)]
    start = (found[:, 1] - begin) // unit
    step = np.diff(start, prepend=0)
    step[first] = 0
    ids, klass = np.unique(found[:, 4], return_inverse=True)
    _, call = np.unique(found[:, 5], return_inverse=True)
    wait = np.where(found[:, 3] < 0, _UNKNOWN, np.clip(found[:, 3], 0, found[:, 2]) // unit)
    classes = [f"{names[i]}, class {i}" if i in names else f"class {i}" for i in map(int, ids)]
    document: dict[str, object] = {
        "unit": unit, "span": span // unit + 1, "ranks": [f"rank {int(r)}" for r in ranks],
        "classes": classes, "offsets": offsets, "first": [int(start[i]) for i in first],
        "step": _pack(step), "length": _pack(np.maximum(1, found[:, 2] // unit)),
        "wait": _pack(wait), "class": _pack(np.minimum(klass, 0xFFFF), np.uint16),
        "call": _pack(call),
    }  # fmt: skip
    rest = f" {left} of the shortest kernels are left out." if left else ""
    return Strip(
        "Collectives of all ranks over time",
        f"{len(found)} kernels of {len(ranks)} ranks on one clock. Click it; then drag or the "
        "arrow keys move, the wheel or plus and minus zoom. Close up, lines lead from the rank "
        "that came last to those that waited for it." + rest,
        document, _window(found, ranks, offsets),
    )  # fmt: skip


def _window(found: NDArray[np.int64], ranks: NDArray[np.int64], offsets: Sequence[int]) -> Table:
    """Every rank's sums over the whole, as the page's script writes them of a window."""
    cells = []
    for i, rank in enumerate(ranks):
        part = found[offsets[i] : offsets[i + 1]]
        known = part[part[:, 3] >= 0]
        cells.append((
            f"rank {int(rank)}", len(part), f"{known[:, 3].sum() / 1e6:.3f}",
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
