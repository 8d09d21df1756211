"""The timeline of all ranks: kernels of collectives as packed arrays for the page's script."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from collscope.reports.rendering.layout import NUMBER, TEXT, Table, table
from collscope.reports.rendering.page import Strip
from collscope.units import count

_MOST_BYTES = 7_000_000  # of the arrays on a page; beyond, the shortest kernels are left out
_UNKNOWN = 0xFFFFFFFF  # as a wait: not known


def make_strip(found: NDArray[np.int64], names: Mapping[int, str]) -> Strip:
    """The strip of kernels.

    found  kernels as in `TracedKernels`
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
    rest = f" The {left} shortest kernels are left out, here and in the table." if left else ""
    return Strip(
        "Collectives of all ranks over time",
        f"{len(found)} kernels of {count(ranks, 'rank')} on one clock. Click the figure; "
        "then drag or use the arrow keys to move, the wheel or plus and minus to zoom. When "
        "zoomed in, lines lead from the rank that arrived last to the ranks that waited for "
        "it." + rest,
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
