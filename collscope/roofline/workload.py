"""Request and answer of a ceiling; answers without a system load no more."""

from __future__ import annotations

from typing import Annotated

import msgspec

from collscope.model import Op
from collscope.model.note import Note

_IN_NETWORK_ALGORITHMS = ("NVLS", "COLLNET")
IMPOSSIBLE = "more than any schedule over these links reaches"


class Workload(msgspec.Struct, frozen=True):
    """Request of a ceiling: the size-dependent part of a class.

    size_bytes  nccl-tests size S
    algorithm   the library's name where it is known: NVLS, CollNet and MSCCL have other ceilings
    multicast   False where the switches do not reduce: NVLS is off by the log
    """

    op: Op
    size_bytes: int
    nranks: int
    nnodes: int = 1
    algorithm: str | None = None
    multicast: bool = True

    @property
    def in_network(self) -> bool:
        """True when the algorithm lets switches reduce."""
        return (self.algorithm or "").upper().startswith(_IN_NETWORK_ALGORITHMS)

    @property
    def scheduled(self) -> bool:
        """True of MSCCL and MSCCL++, which run schedules of their own."""
        return (self.algorithm or "").upper().startswith("MSCCL")

    @property
    def tree(self) -> bool:
        """True of NVLSTree: switches reduce inside nodes only."""
        return self.in_network and (self.algorithm or "").upper().endswith("TREE")


class RoofAt(msgspec.Struct, frozen=True):
    """The ceiling of one workload.

    time_low_ns, time_high_ns  range of time_ns
    """

    name: str
    work: Workload  # with the nodes that were assumed, where they are not known
    time_ns: float
    time_low_ns: float
    time_high_ns: float
    busbw_gbps: float  # of time_ns
    limit_gbps: float | None  # what the fabric allows, without latency; None for a fit
    regime: Annotated[str, ("latency", "bandwidth")]
    assumed: bool  # something behind it was never measured on such a machine
    assumptions: tuple[Note, ...]
    by_rings_ns: float | None = None  # where switches that reduce (NVLS) make it: without them

    @property
    def range_gbps(self) -> tuple[float, float] | None:
        """Bus bandwidths of the slow and the fast end; None where they are one."""
        if not self.time_ns or not self.time_low_ns or self.time_low_ns == self.time_high_ns:
            return None
        moved = self.busbw_gbps * self.time_ns
        return moved / self.time_high_ns, moved / self.time_low_ns


def not_applying(roof: str) -> str:
    """How reasons begin why a time is below the range of the ceiling of this name."""
    return f"'{roof}' does not apply. "
