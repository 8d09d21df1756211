"""The record played again with other transfer times of the collectives (pure).

Nodes are rows' starts, ends of collectives and the host's stretches, in an order in which every
predecessor comes first; the shift of a node is the largest shift of its predecessors, each less
its slack. A collective's transfer starts when its last rank arrives, whoever that is now.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints
from collscope.timeline.clocks import Clocks
from collscope.timeline.dependencies import NONE, Bools, Edges, contract, find_edges
from collscope.timeline.waits import CallTimes

Floats = npt.NDArray[np.float64]
_SLOTS = 4
_NEVER, _FIXED = 0, 1  # two nodes before all others: shift minus infinity, and shift 0


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in the order of play. Slots without predecessor point to the node that never counts."""

    predecessors: tuple[list[int], ...]  # per slot; counted with the two fixed nodes
    slacks: tuple[list[float], ...]
    end_node: Ints  # (wanted,) the node whose shift is that of the row's end
    part_node: Ints  # (parts,) node, from 0, of each part's end
    alone: Bools  # (parts,) waits for no rank that is known: a root, a leaf, a call of one trace
    ignored: int  # predecessors left out since times contradict them


def build_graph(rows: Rows, calls: Calls, times: CallTimes, clocks: Clocks, wanted: Ints) -> Graph:
    """Graph of all ranks, on the common clock.

    wanted  rows whose shifts are asked for
    """
    return _Build(rows, calls, times, clocks, wanted).graph()


def play(graph: Graph, change: Floats) -> Floats:
    """Shifts of the ends of the wanted rows, ns, against the record.

    change  (parts,) ns by which the end of each part moves against the start of its transfer, or
            against its own start where it is alone
    """
    slacks = [list(s) for s in graph.slacks]
    first = slacks[0]
    for node, value in zip(graph.part_node.tolist(), change.tolist(), strict=True):
        first[node] = -value
    shift = [-np.inf, 0.0]
    append = shift.append
    # Every node needs the one before it, so this is no matter for numpy; a call of max() on four
    # values takes twice as long as three comparisons.
    for a, b, c, d, w, x, y, z in zip(*graph.predecessors, *slacks, strict=True):
        best = shift[a] - w
        value = shift[b] - x
        best = value if value > best else best
        value = shift[c] - y
        best = value if value > best else best
        value = shift[d] - z
        append(value if value > best else best)
    return np.array(shift)[graph.end_node]


class _Build:
    """Node numbers: rows 0..n-1 (starts), then parts' arrivals, parts' ends, host segments."""

    def __init__(
        self, rows: Rows, calls: Calls, times: CallTimes, clocks: Clocks, wanted: Ints
    ) -> None:
        self.rows, self.calls, self.times, self.wanted = rows, calls, times, wanted
        self.split = times.known[calls.call_of_part] & (times.wait >= 0)
        keep = np.zeros(len(rows), dtype=bool)
        keep[wanted] = keep[calls.row] = True
        self.edges: Edges
        self.edges, self.stays = contract(rows, find_edges(rows), keep)
        self.n, self.parts = len(rows), len(calls.row)
        self.arrivals, self.ends = self.n, self.n + self.parts
        self.hosts = self.n + 2 * self.parts
        total = self.hosts + len(self.edges.blocked_by)
        self.before = np.full((_SLOTS, total), NONE, dtype=np.int64)
        self.slack = np.zeros((_SLOTS, total))
        self.key = np.zeros(total, dtype=np.int64)
        self.used = np.zeros(total, dtype=bool)
        self.start = clocks.align(rows.start, rows.trace)
        arrival = times.arrival[calls.call_of_part] if self.parts else times.arrival
        self.alone = ~self.split | (times.end < arrival)
        self.end_of_row = np.arange(self.n)
        self.end_of_row[calls.row] = self.ends + np.arange(self.parts)
        self.arrival = arrival

    def graph(self) -> Graph:
        """All nodes, in the order of play."""
        self._starts()
        self._arrivals()
        self._ends()
        self._hosts(self.start)
        return self._ordered()

    def _row_slots(self, row: Ints) -> tuple[Ints, Floats]:
        """Three predecessors of rows' starts (stream, other stream, host) and their slacks."""
        e = self.edges
        host = np.where(e.host_slack[row] >= 0, self.hosts + e.segment[row], NONE)
        before, other = (
            np.where(k[row] >= 0, self.end_of_row[k[row]], NONE) for k in (e.before, e.other)
        )
        free = (before < 0) & (other < 0) & (host < 0)
        nodes = np.stack([before, other, np.where(free, self.hosts, host)])
        slacks = np.stack([e.before_slack[row], e.other_slack[row], e.host_slack[row]])
        return nodes, np.maximum(slacks, 0).astype(np.float64)

    def _starts(self) -> None:
        """Rows whose start counts by itself: all but the joined parts of calls."""
        plain = self.stays.copy()
        plain[self.calls.row[~self.alone]] = False
        row = np.flatnonzero(plain)
        self.before[:3, row], self.slack[:3, row] = self._row_slots(row)
        self.key[row], self.used[row] = self.start[row], True

    def _arrivals(self) -> None:
        """Parts of a call in a chain: the shift of the last is that of the transfer's start."""
        part = np.flatnonzero(self.split)
        node, row = self.arrivals + part, self.calls.row[part]
        self.before[:3, node], slack = self._row_slots(row)
        self.slack[:3, node] = slack + (self.arrival[part] - self.start[row])
        call = self.calls.call_of_part[part]
        chained = np.flatnonzero(np.diff(call, prepend=-1) == 0)
        self.before[3, node[chained]] = node[chained - 1]
        self.key[node], self.used[node] = self.arrival[part], True

    def _ends(self) -> None:
        part, row = np.arange(self.parts), self.calls.row
        node, call = self.ends + part, self.calls.call_of_part
        last = self.arrivals + self.calls.offsets[call + 1] - 1
        self.before[0, node] = np.where(self.alone, row, last)
        self.key[node] = np.where(self.alone, self.start[row], self.arrival)
        self.used[node] = True

    def _hosts(self, start: Ints) -> None:
        e = self.edges
        node = self.hosts + np.arange(len(e.blocked_by))
        blocked = e.blocked_by
        self.before[0, node] = np.append(self.end_of_row, NONE)[blocked]
        self.before[1, node] = np.where(e.earlier >= 0, self.hosts + e.earlier, NONE)
        self.slack[1, node] = e.earlier_slack
        self.key[node] = e.resumed + np.append(start - self.rows.start, 0)[blocked]
        self.key[self.hosts] = np.iinfo(np.int64).min  # the start of all hosts does not shift
        self.used[node] = True

    def _ordered(self) -> Graph:
        """Nodes by time; those of one call together, arrivals before ends."""
        used = np.flatnonzero(self.used)
        tie = np.zeros(len(self.used), dtype=np.int64)
        tie[self.arrivals : self.hosts] = np.tile(self.calls.call_of_part, 2) + 1
        order = used[np.lexsort((used, tie[used], self.key[used]))]
        place = np.full(len(self.used), -1, dtype=np.int64)
        place[order] = np.arange(len(order))
        before = np.where(self.before[:, order] >= 0, place[self.before[:, order]] + 2, _NEVER)
        late = before >= np.arange(len(order)) + 2
        before[late] = _NEVER
        lost = (before == _NEVER).all(axis=0)
        before[0, lost] = _FIXED
        slack = np.where(before == _NEVER, 0.0, self.slack[:, order])
        slack[0, lost] = 0.0
        return Graph(
            tuple(p.tolist() for p in before),
            tuple(s.tolist() for s in slack),
            place[self.end_of_row[self.wanted]] + 2,
            place[self.ends : self.hosts],
            self.alone,
            int(late.sum()),
        )
