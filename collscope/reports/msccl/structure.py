"""The step structure of an MSCCL algorithm: messages, what each link carries, dependent steps.

Rules of the executor: a thread block runs its steps in order; a step that depends on another waits
for it; the k-th message of a connection (sender, receiver, channel) is what the k-th receive takes.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from collscope.parsers.msccl_xml import MscclAlgorithm


class Edge(msgspec.Struct, frozen=True):
    """Step `after` waits for step `before`; for a message, the ranks that it goes between."""

    before: int
    after: int
    link: tuple[int, int] | None = None


class Hops(msgspec.Struct, frozen=True):
    """Messages of a chain of dependent ones."""

    inside: int  # between GPUs of one node
    between: int  # between nodes


class Unpaired(msgspec.Struct, frozen=True):
    """A connection whose ends do not fit: one GPU sends other messages than the other takes."""

    sender: int
    receiver: int
    channel: int
    sent: int
    taken: int


class Structure(msgspec.Struct, frozen=True):
    """What does not depend on size; `link_chunks` by (sender, receiver), of one loop.

    unpaired  a connection whose ends do not fit
    circular  steps wait for each other in a circle
    """

    messages: int
    link_chunks: dict[tuple[int, int], int]
    unpaired: Unpaired | None
    circular: bool
    order: tuple[tuple[Edge, ...], ...]  # by the step they lead from, which they follow

    @property
    def finishes(self) -> bool:
        """Nothing keeps the algorithm from coming to its end."""
        return self.unpaired is None and not self.circular

    def critical(self, ranks_per_node: int, inside_us: float, between_us: float) -> Hops:
        """The chain of dependent messages that takes longest at these times per message.

        ranks_per_node  ranks 0 … k−1 are on the first node, and so on
        """
        times: dict[int, tuple[float, int, int]] = {}
        longest = (0.0, 0, 0)
        for edges in self.order:
            for edge in edges:
                time, inside, between = times.get(edge.before, (0.0, 0, 0))
                if edge.link is not None:
                    sender, receiver = edge.link
                    if sender // ranks_per_node == receiver // ranks_per_node:
                        time, inside = time + inside_us, inside + 1
                    else:
                        time, between = time + between_us, between + 1
                reached = (time, inside, between)
                times[edge.after] = max(times.get(edge.after, reached), reached)
                longest = max(longest, reached)
        return Hops(longest[1], longest[2])


def structure_of(algorithm: MscclAlgorithm) -> Structure:
    """Messages, loads and order of an algorithm's steps."""
    edges, ends = _own_edges(algorithm)
    link_chunks: dict[tuple[int, int], int] = defaultdict(int)
    unpaired = None
    messages = 0
    for (sender, receiver, channel), (sent, taken) in ends.items():
        if len(sent) != len(taken):
            unpaired = Unpaired(sender, receiver, channel, len(sent), len(taken))
        for (before, count), after in zip(sent, taken, strict=False):
            edges.append(Edge(before, after, (sender, receiver)))
            link_chunks[sender, receiver] += count
            messages += 1
    order = _ordered(edges, algorithm.steps)
    return Structure(messages, dict(link_chunks), unpaired, order is None, order or ())


# Of one connection (sender, receiver, channel): steps that send, with chunks; steps that receive.
_Ends = tuple[list[tuple[int, int]], list[int]]


def _own_edges(algorithm: MscclAlgorithm) -> tuple[list[Edge], dict[tuple[int, int, int], _Ends]]:
    """What steps wait for on their own GPU, and the ends of every connection, in order.

    Steps are numbered over all GPUs and thread blocks.
    """
    edges: list[Edge] = []
    ends: dict[tuple[int, int, int], _Ends] = defaultdict(lambda: ([], []))
    first = 0
    for rank, blocks in enumerate(algorithm.blocks):
        starts = {}
        for block in blocks:
            starts[block.block] = first
            first += len(block.steps)
        for block in blocks:
            for at, step in enumerate(block.steps, start=starts[block.block]):
                if at > starts[block.block]:
                    edges.append(Edge(at - 1, at))
                if step.depends_on is not None:
                    edges.append(Edge(starts[step.depends_on[0]] + step.depends_on[1], at))
                if step.sends and block.send_peer is not None:
                    ends[rank, block.send_peer, block.channel][0].append((at, step.count))
                if step.receives and block.receive_peer is not None:
                    ends[block.receive_peer, rank, block.channel][1].append(at)
    return edges, ends


def _ordered(edges: list[Edge], steps: int) -> tuple[tuple[Edge, ...], ...] | None:
    """Edges by the step that they lead from, each after those that lead to it; None in a circle."""
    leaving: dict[int, list[Edge]] = defaultdict(list)
    waits = [0] * steps
    for edge in edges:
        leaving[edge.before].append(edge)
        waits[edge.after] += 1
    ready = [at for at, count in enumerate(waits) if count == 0]
    order: list[tuple[Edge, ...]] = []
    done = 0
    while ready:
        at = ready.pop()
        done += 1
        out = leaving.get(at, [])
        if out:
            order.append(tuple(out))
        for edge in out:
            waits[edge.after] -= 1
            if waits[edge.after] == 0:
                ready.append(edge.after)
    return tuple(order) if done == steps else None
