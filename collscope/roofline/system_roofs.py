"""The reachable ceiling of a system, as answers judge by it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from collscope.errors import CollscopeError
from collscope.model.note import Note
from collscope.roofline.catalogue import load_system
from collscope.roofline.gpu_models import OtherGpus
from collscope.roofline.roof import REACHABLE, Roofs
from collscope.roofline.workload import RoofAt, Workload
from collscope.units import count, format_size


class SystemRoofs:
    """The reachable ceiling of a system."""

    def __init__(self, name: str, *, multicast: bool = True) -> None:
        """Roofs of a shipped system, a file, or NODE+NETWORK.

        multicast  False: the job's switches do not reduce, by its log
        raises     InputError when there is no such system
        """
        self._roofs = Roofs(load_system(name))
        self._multicast = multicast
        self.name = f"{self._roofs.system.name} {REACHABLE}"

    def other_gpus(self, names: Iterable[str]) -> OtherGpus | None:
        """GPUs that ran and that the system does not have."""
        return self._roofs.system.other_gpus(names)

    def at(self, work: Workload, *, nodes_known: bool = True) -> RoofAt | str:
        """Roof of a workload, or why there is none.

        nodes_known  False: the fewest nodes of the system that hold the ranks are taken
        """
        notes: tuple[Note, ...] = ()
        work = replace(work, multicast=work.multicast and self._multicast)
        if not nodes_known and work.nranks > 0:
            nodes = self._roofs.system.fewest_nodes(work.nranks)
            work = replace(work, nnodes=nodes)
            notes = (
                Note(
                    "nodes_assumed",
                    {"nodes": nodes},
                    f"assumed {count(nodes, 'node')}: no source shows the number",
                ),
            )
        try:
            ceilings = self._roofs.ceilings(work)
        except CollscopeError as error:
            return str(error)
        if ceilings is None:
            ranks = count(work.nranks, "rank")
            return f"nothing is known about {work.op.value} of {work.size_bytes} B on {ranks}"
        roof = ceilings.reachable
        if roof.floor_ns is None and roof.regime == "latency":
            system, size = self._roofs.system.name, format_size(work.size_bytes)
            return f"the latency of {system} is unknown, and {size} may take no longer than that"
        return RoofAt(
            roof.name,
            work,
            roof.time_ns,
            roof.time_low_ns,
            roof.time_high_ns,
            roof.busbw_gbps,
            ceilings.limit.peak_gbps,
            roof.regime,
            roof.assumed,
            (*roof.assumptions, *notes),
            roof.by_rings_ns,
        )

    def why_above(self, roof: RoofAt, measured_ns: float) -> str | None:
        """Why a time can be below the roof's; None when it is not."""
        return self._roofs.judge(roof.work, measured_ns, REACHABLE).why
