"""Kernels of collectives of a run's traces, as arrays on the common clock."""

from __future__ import annotations

import sqlite3
from itertools import chain

import msgspec
import numpy as np
from numpy.typing import NDArray

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


class TracedKernels(msgspec.Struct, frozen=True):
    """Collectives of all ranks that have a trace, on the common clock.

    kernels  (kernels, 6): rank, start, duration and wait in ns (-1: not known), class, call
    exposed  (kernels,): ns without a compute kernel beside it; 0 in the warm-up
    calls    (calls, 5), in launch order: call, class, rank that arrived last (-1: none beyond the
             clocks' error), its lateness in ns, 1 for the warm-up
    """

    kernels: NDArray[np.int64]
    exposed: NDArray[np.int64]
    calls: NDArray[np.int64]


def read_traced_kernels(connection: sqlite3.Connection, run: str) -> TracedKernels:
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
    return TracedKernels(kernels, found[:, 5], calls)


def _table(connection: sqlite3.Connection, query: str, run: str, columns: int) -> NDArray[np.int64]:
    """Rows of whole numbers as an array."""
    values = chain.from_iterable(connection.execute(query, (run,)))
    return np.fromiter(values, dtype=np.int64).reshape(-1, columns)
