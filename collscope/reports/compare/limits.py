"""Values that no schedule over a system's links can reach: a wrong label, system or measurement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from collscope.errors import UsageError
from collscope.model import CollectiveClass, Op
from collscope.reports.compare.labels import Label
from collscope.reports.compare.notes import Impossible, NotApplicable, Note, SeveralNodes
from collscope.reports.tolerances import ROUNDED_SHARE

if TYPE_CHECKING:
    from collscope.roofline.system import System


class Limits(msgspec.Struct, frozen=True):
    """What was found above the hard limit of a system, and what could not be checked."""

    system: str
    impossible: tuple[Impossible, ...]
    notes: tuple[Note, ...]


def limits(system: System, labels: Iterable[Label]) -> Limits:
    """Check every class with a bus bandwidth against the hard limit of its shape.

    The limit is that of the links at their line rate or, where the switches can reduce, of that.
    """
    limit = _Hard(system)
    found = tuple(v for label in labels for v in _above(label, limit))
    return Limits(system.name, found, tuple(dict.fromkeys((*limit.notes, *found))))


class _Hard:
    """Hard limits by operation, ranks and nodes, each computed once."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.notes: list[Note] = []
        self._known: dict[tuple[Op, int, int | None], tuple[float, str] | None] = {}

    def of(self, key: CollectiveClass) -> tuple[float, str] | None:
        """GB/s and what sets it; None where the system does not describe such a class."""
        shape = (key.op, key.nranks or 1, key.nnodes)
        if shape not in self._known:
            self._known[shape] = self._compute(*shape)
        return self._known[shape]

    def _compute(self, op: Op, nranks: int, nnodes: int | None) -> tuple[float, str] | None:
        # Most comparisons name no system.
        from collscope.roofline.bounds import Request, bounds  # noqa: PLC0415

        name = self.system.name
        nodes = nnodes or self.system.fewest_nodes(nranks)
        request = Request(op, nranks, nodes)
        try:
            plain = bounds(self.system, request)
            reduced = bounds(self.system, replace(request, in_network=True))
        except UsageError as error:
            why = str(error).partition(". ")[0]  # its advice is for the options of `roofline`
            self.notes.append(NotApplicable(name, why))
            return None
        fabric, network = self.system.fabric, self.system.network
        if fabric is not None and network is not None and nranks > fabric.gpus:
            self.notes.append(
                SeveralNodes(
                    name, nranks, fabric.gpus, nodes, network.nics, network.name, nnodes is None
                )
            )
        if plain is None or reduced is None:
            return None
        best = max(plain, reduced, key=lambda b: b.hard_gbps)
        return best.hard_gbps, "; ".join((best.limit, *(note.text for note in best.assumptions)))


def _above(label: Label, limit: _Hard) -> Iterator[Impossible]:
    for key, measured in sorted(label.classes.items(), key=lambda item: item[0]):
        if (key.nranks or 1) < 2:
            continue
        hard = limit.of(key)
        if hard is None or measured.busbw_gbps is None:
            continue
        if measured.busbw_gbps > hard[0] * (1 + ROUNDED_SHARE):
            yield Impossible(label.name, key, measured.busbw_gbps, hard[0], hard[1])
