"""The recorded steps played again with something substituted (pure)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collscope.model.trace import Ints
from collscope.timeline.causal import FIRST, HOST, Graph

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Substitutions:
    """What is other than recorded; None: as recorded."""

    transfer: Floats | None = None  # (parts,) ns
    duration: Floats | None = None  # (rows,) ns; 0 for collectives
    host: float | Floats = 1.0  # (nodes,) time of the host's work, in parts of the recorded


def play(graph: Graph, new: Substitutions) -> Floats:
    """Times of all nodes, counted as in `Graph.before`; ns on the common clock."""
    duration = graph.duration if new.duration is None else new.duration
    transfer = graph.transfer if new.transfer is None else new.transfer
    weight = graph.gap + np.append(duration, 0.0)[graph.lasted]
    weight[HOST] += graph.work * new.host + np.append(transfer, 0.0)[graph.part]
    time = [-np.inf, 0.0]
    append = time.append
    # Every node needs those before it, so this is no matter for numpy. Three comparisons take half
    # the time of max() on four values.
    for a, b, c, d, w, x, y, z in zip(*graph.before.tolist(), *weight.tolist(), strict=True):
        best = time[a] + w
        value = time[b] + x
        best = value if value > best else best
        value = time[c] + y
        best = value if value > best else best
        value = time[d] + z
        append(value if value > best else best)
    return np.array(time)


@dataclass(frozen=True, slots=True)
class Path:
    """What bounds a moment: the steps of the longest way to it, the last one first."""

    node: Ints  # counted as in `Graph.before`
    slot: Ints
    row: Ints  # row whose duration is on the way, or whose part's transfer is; -1: none
    work: Floats  # ns of the host
    lasted: Floats  # ns that rows lasted
    transfer: Floats  # ns of collectives, from the last arrival on
    gap: Floats  # ns between a cause and its effect


def longest_path(graph: Graph, new: Substitutions, time: Floats, last: int, until: float) -> Path:
    """Way back from node `last` along what held each node up, as far as the moment `until`, ns."""
    duration = graph.duration if new.duration is None else new.duration
    transfer = graph.transfer if new.transfer is None else new.transfer
    host = np.broadcast_to(np.asarray(new.host, dtype=np.float64), graph.work.shape)
    nodes, slots = [], []
    node = last
    while node >= FIRST and time[node] > until:
        k = node - FIRST
        weight = graph.gap[:, k] + np.append(duration, 0.0)[graph.lasted[:, k]]
        weight[HOST] += graph.work[k] * host[k] + np.append(transfer, 0.0)[graph.part[k]]
        slot = int((time[graph.before[:, k]] + weight).argmax())
        nodes.append(node)
        slots.append(slot)
        node = int(graph.before[slot, k])
    place, slot_ = np.array(nodes, dtype=np.int64) - FIRST, np.array(slots, dtype=np.int64)
    lasted, part = graph.lasted[slot_, place], graph.part[place]
    on_host = slot_ == HOST
    return Path(
        node=place + FIRST,
        slot=slot_,
        row=np.where(on_host & (part >= 0), graph.row[place], lasted),
        work=np.where(on_host, graph.work[place] * host[place], 0.0),
        lasted=np.append(duration, 0.0)[lasted],
        transfer=np.where(on_host, np.append(transfer, 0.0)[part], 0.0),
        gap=graph.gap[slot_, place].astype(np.float64),
    )
