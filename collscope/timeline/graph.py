"""The causal graph: what it is made of, and how its nodes count (pure)."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from collscope._play import Player
from collscope.model.trace import Ints
from collscope.timeline.tolerances import EXPLAINED_NS

Bools = npt.NDArray[np.bool_]
NONE = -1
EVER = np.iinfo(np.int64).min // 2  # a time before all others
NEVER, ORIGIN, FIRST = 0, 1, 2
HOST, STREAM, EVENT, EVENT_2 = range(4)
"""Slots of a row's start."""


class Edges(msgspec.Struct, frozen=True):
    """How many event edges there are, by how they are known."""

    # the trace names the stream that waits; for which row, where no record is known, is inferred
    # from its order
    named: int = 0
    inferred: int = 0  # both are
    contradicted: int = 0  # dropped
    unknown: int = 0  # waits for which no rule was found

    def __add__(self, other: Edges) -> Edges:
        """Both together."""
        return Edges(
            self.named + other.named,
            self.inferred + other.inferred,
            self.contradicted + other.contradicted,
            self.unknown + other.unknown,
        )


class Graph(msgspec.Struct, frozen=True, dict=True):
    """Nodes in an order in which every predecessor comes first, up to four predecessors each.

    A node's time is the largest over its slots of: the predecessor's time, plus `gap`, plus the
    duration of the row `lasted` where there is one; in slot 0 also plus `work`, which is the
    host's, and, at the end of a collective's part, plus the transfer of that part.
    Predecessors count with two nodes before all others, `NEVER` and `ORIGIN`: their times are minus
    infinity and 0, the one of the clock. A node without a cause stays where it was recorded.
    """

    before: Ints  # (slots, nodes) `NEVER` where a slot is empty
    gap: Ints  # (slots, nodes) ns
    usual: Ints  # (slots, nodes) the same without the recorded starts: what such causes mostly need
    lasted: Ints  # (slots, nodes) row; -1: none
    unseen: Bools  # (slots, nodes) edges that no start shows: the order of calls alone names them
    work: Ints  # (nodes,) ns of the host
    part: Ints  # (nodes,) -1: the node is no end of a collective's part
    time: Ints  # (nodes,) recorded, common clock
    row: Ints  # (nodes,) row that starts or ends here, or ended last; -1: a synchronising call
    trace: npt.NDArray[np.int32]  # (nodes,)
    duration: Ints  # (rows,) ns, as recorded; 0 for collectives, whose ends are nodes
    compute: Bools  # (rows,) a kernel that is no collective
    transfer: Ints  # (parts,) ns from the last arrival to the end, or alone from start to end
    alone: Bools  # (parts,) waits for no rank that is known: a root, a leaf, a call of one trace
    start_node: Ints  # (rows,) node, counted as in `before`, of the row's start
    end_node: Ints  # (rows,) node from which the row's end follows, after its `duration`
    edges: Edges
    idle_ns: Ints  # (traces,) idle of streams that no edge ends within `EXPLAINED_NS`
    launches: Ints  # (traces,) rows whose launch is known
    bound: Ints  # (traces,) of these, those that the host held up: the GPU had nothing queued

    @cached_property
    def seen(self) -> Graph:
        """The graph without the edges that no start shows; a node keeps its only cause."""
        before = np.where(self.unseen, NEVER, self.before)
        before = np.where((before == NEVER).all(axis=0), self.before, before)
        return msgspec.structs.replace(self, before=before)

    @cached_property
    def unexplained_ns(self) -> Ints:
        """(slots, nodes) ns behind the last known cause that no cause explains."""
        longer = self.gap - self.usual
        return np.where(longer > EXPLAINED_NS, longer, 0)

    @cached_property
    def player(self) -> Player:
        """Plays the graph with other times than the recorded ones."""
        return self._player(self.gap, self.unexplained_ns)

    @cached_property
    def usual_player(self) -> Player:
        """The same with `usual` in place of `gap`."""
        return self._player(self.usual, np.zeros_like(self.usual))

    def _player(self, gap: Ints, unexplained: Ints) -> Player:
        """Edges by what they come from.

        Behind all nodes count the ends of rows, and only those of compute kernels are used:
        whatever waits for such a row follows its end.

        gap          (slots, nodes) ns
        unexplained  (slots, nodes) ns of that behind the last known cause that no cause explains
        """
        nodes, rows = len(self.time) + FIRST, len(self.duration)
        slot, place = np.nonzero(self.before != NEVER)
        source, lasted = self.before[slot, place], self.lasted[slot, place]
        ended = np.append(self.compute, False)[lasted]
        source = np.where(ended, nodes + lasted, source)
        order = np.argsort(source, kind="stable")
        slot, place, lasted, ended = slot[order], place[order], lasted[order], ended[order]
        kernel, change = np.full(nodes, NONE), np.zeros(nodes, dtype=np.int64)
        kernel[self.start_node] = np.where(self.compute, np.arange(rows), NONE)
        ends = FIRST + np.flatnonzero(self.part != NONE)
        np.add.at(change, self.start_node[self.row[ends - FIRST]], 1)
        change[ends] = -1
        trace = np.append(np.zeros(FIRST, dtype=np.int64), self.trace)
        return Player(
            first=np.searchsorted(source[order], np.arange(nodes + rows + 1)),
            target=place + FIRST,
            lasted=np.where(ended, NONE, lasted),
            host=slot == HOST,
            gap=gap[slot, place].astype(np.float64),
            unexplained=unexplained[slot, place].astype(np.float64),
            trace=np.append(trace, trace[self.start_node]),
            kernel=kernel,
            change=change,
            part=np.append(np.full(FIRST, NONE), self.part),
            parts=len(self.transfer),
        )
