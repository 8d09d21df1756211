"""What the steps of the causal graph work on: every row, and what it waits for (pure)."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints
from collscope.timeline.clocks import Clocks
from collscope.timeline.graph import NONE
from collscope.timeline.waits import CallTimes


class Sync(msgspec.Struct, frozen=True):
    """A moment when the host of a trace went on; the first one is the beginning of its calls."""

    trace: int
    time: int
    earlier: int = NONE  # the one before it
    work: int = 0  # ns of the host from there to the call
    least: int = 0  # ns that the call takes where nothing is to be waited for
    wake: int = 0  # ns from the end of what it waits for
    awaited: tuple[int, ...] = ()  # rows, the last to end first


class RowCauses:
    """What is known of every row: when it ran, and what it waits for, as far as found."""

    def __init__(self, rows: Rows, calls: Calls, times: CallTimes, clocks: Clocks) -> None:
        """Nothing is known yet but what stands before each row on its stream."""
        self.rows, self.calls, self.times, self.clocks = rows, calls, times, clocks
        self.start = clocks.align(rows.start, rows.trace)
        self.end = clocks.align(rows.end, rows.trace)
        n = len(rows)
        self.host_of = np.full(n, NONE)  # sync (its place in `syncs`) that each row follows
        self.host_ns = np.zeros(n, dtype=np.int64)  # host time from there to the launch
        self.known = np.zeros(n, dtype=bool)  # the launch is known
        self.event = np.full((2, n), NONE)  # rows that each row waits for
        self.unseen = np.zeros((2, n), dtype=bool)  # the order of calls alone names that
        self.syncs: list[Sync] = []
        self.counts: Counter[str] = Counter()
        self.before = _on_stream(rows)
        self.by_end = [self._by_end(t) for t in range(len(rows.ranks))]

    def _by_end(self, trace: int) -> tuple[Ints, Ints]:
        """Rows of a trace in the order of their ends, and these."""
        mine = np.arange(self.rows.bounds[trace], self.rows.bounds[trace + 1])
        order = mine[np.argsort(self.end[mine], kind="stable")]
        return order, self.end[order]


def _on_stream(rows: Rows) -> Ints:
    """Row before each on its stream, -1 for the first."""
    order = np.argsort(rows.stream, kind="stable")
    before = np.full(len(rows), NONE, dtype=np.int64)
    same = rows.stream[order][1:] == rows.stream[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before
