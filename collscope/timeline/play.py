"""The recorded steps played again with something substituted (pure).

A simulation by events. A node takes place when all that it waits for has; a compute kernel ends
when its work is done, and gets on slower while a collective of its rank is beside it: also while
that waits for its last rank, since its kernel holds multiprocessors. So a rank that waits is slowed
down, and the one that the others wait for is not.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.model.trace import Ints
from collscope.timeline.graph import FIRST, HOST, NEVER, Graph

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Substitutions(msgspec.Struct, frozen=True):
    """What is other than recorded; None: as recorded."""

    transfer: Floats | None = None  # (parts,) ns
    host: float | Floats = 1.0  # (nodes,) time of the host's work, in parts of the recorded
    # (rows,) ns that compute kernels need with no collective beside them, and how much longer they
    # need beside one, in parts of that. Without them kernels last as recorded, whatever is beside.
    alone: Floats | None = None
    slowdown: Floats | None = None
    # What rows wait for no known cause, in parts of the recorded (`Graph.unexplained_ns`).
    unexplained: float = 1.0
    usual: bool = False  # delays behind causes are what such causes mostly need, as `Graph.usual`


class TakenOut(msgspec.Struct, frozen=True):
    """What the played steps go without; None: nothing.

    None of it is in `Played.new`, so that ways back (`longest_path`) are not known.
    """

    work: Floats | None = None  # (nodes,) ns of the host that stay
    duration: Floats | None = None  # (rows,) ns that rows last which are no compute kernels
    at_once: Bools | None = None  # (nodes,) starts that come without a gap behind what ended
    behind_host: Bools | None = None  # (nodes,) that wait for the host alone


class Played(msgspec.Struct, frozen=True):
    """When everything takes place; ns on the common clock."""

    new: Substitutions
    time: Floats  # (nodes,) counted as in `Graph.before`
    duration: Floats  # (rows,) ns; 0 for collectives, whose ends are nodes
    end: Floats  # (rows,)


_NOTHING = TakenOut()


def play(graph: Graph, new: Substitutions, without: TakenOut = _NOTHING) -> Played:
    """When everything takes place with something substituted."""
    nodes = len(graph.time) + FIRST
    duration = graph.duration if without.duration is None else without.duration
    lasting: Floats = np.where(graph.compute, 0.0, duration)
    work = (graph.work * new.host).astype(np.float64) if without.work is None else without.work
    alone = graph.duration if new.alone is None else new.alone
    transfer = graph.transfer if new.transfer is None else new.transfer
    player = graph.usual_player if new.usual else graph.player
    time = player.play(
        work=work,
        lasting=lasting,
        transfer=transfer.astype(np.float64, copy=False),
        alone=alone.astype(np.float64, copy=False),
        pace=np.ones(len(alone)) if new.slowdown is None else 1.0 + new.slowdown,
        unexplained=new.unexplained,
        at_once=without.at_once,
        behind_host=without.behind_host,
    )
    when, done = time[:nodes], time[nodes:]
    when[NEVER] = -np.inf
    lasted = np.where(graph.compute, done - when[graph.start_node], lasting)
    return Played(new, when, lasted, when[graph.end_node] + lasted)


def _weights(graph: Graph, new: Substitutions, duration: Floats | Ints) -> Floats:
    """What each cause adds to its time, shape (slots, nodes); ns."""
    transfer = graph.transfer if new.transfer is None else new.transfer
    weight: Floats = (graph.usual if new.usual else graph.gap) + np.append(duration, 0.0)[
        graph.lasted
    ]
    if new.unexplained != 1:
        weight += graph.unexplained_ns * (new.unexplained - 1)
    weight[HOST] += graph.work * new.host + np.append(transfer, 0.0)[graph.part]
    return weight


class Path(msgspec.Struct, frozen=True):
    """What bounds a moment: the steps of the longest way to it, the last one first."""

    node: Ints  # counted as in `before`
    slot: Ints
    row: Ints  # row whose duration is on the way, or whose part's transfer is; -1: none
    work: Floats  # ns of the host
    lasted: Floats  # ns that rows lasted
    transfer: Floats  # ns of collectives, from the last arrival on
    gap: Floats  # ns between a cause and its effect


def longest_path(graph: Graph, played: Played, last: int, until: float) -> Path:
    """Way back from node `last` along what held each node up, as far as the moment `until`, ns."""
    weight, time = _weights(graph, played.new, played.duration), played.time
    nodes, slots = [], []
    node = last
    while node >= FIRST and time[node] > until:
        k = node - FIRST
        held = int((time[graph.before[:, k]] + weight[:, k]).argmax())
        nodes.append(node)
        slots.append(held)
        node = int(graph.before[held, k])
    place, slot = np.array(nodes, dtype=np.int64) - FIRST, np.array(slots, dtype=np.int64)
    path = _path(graph, played, place, slot)
    # The first cause lies before the moment: what of it had passed by then does not count.
    passed = max(0.0, until - time[node])
    for parts in (path.lasted, path.work, path.gap, path.transfer) if nodes else ():
        cut = min(passed, float(parts[-1]))
        parts[-1] -= cut
        passed -= cut
    return path


def last_causes(graph: Graph, played: Played, nodes: Ints) -> Path:
    """What held each of some nodes up: the last step of the way to it."""
    place = nodes - FIRST
    weight = _weights(graph, played.new, played.duration)[:, place]
    slot = (played.time[graph.before[:, place]] + weight).argmax(axis=0)
    return _path(graph, played, place, slot)


def _path(graph: Graph, played: Played, place: Ints, slot: Ints) -> Path:
    """The causes in slots of nodes, which count without `NEVER` and `ORIGIN`."""
    lasted, part = graph.lasted[slot, place], graph.part[place]
    on_host = slot == HOST
    transfer = graph.transfer if played.new.transfer is None else played.new.transfer
    host = graph.work * played.new.host
    return Path(
        node=place + FIRST,
        slot=slot,
        row=np.where(on_host & (part >= 0), graph.row[place], lasted),
        work=np.where(on_host, host[place], 0.0),
        lasted=np.append(played.duration, 0.0)[lasted],
        transfer=np.where(on_host, np.append(transfer, 0.0)[part], 0.0),
        gap=graph.gap[slot, place].astype(np.float64),
    )
