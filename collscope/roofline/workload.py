"""What a ceiling is asked for and what it answers: answers without a system load no more."""

from __future__ import annotations

import msgspec

from collscope.model import Op

_IN_NETWORK_ALGORITHMS = ("NVLS", "COLLNET")
IMPOSSIBLE = "more than any schedule over these links reaches"


class Workload(msgspec.Struct, frozen=True):
    """What a roof is asked for: the size-dependent part of a class.

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

    time_low_us, time_high_us  range of time_us
    limit_gbps                 what the fabric allows, without latency; None for a fit
    regime                     latency or bandwidth
    assumed                    something behind it was never measured on such a machine
    by_rings_us                where switches that reduce (NVLS) make it: the time without them
    """

    name: str
    work: Workload  # with the nodes that were assumed, where they are not known
    time_us: float
    time_low_us: float
    time_high_us: float
    busbw_gbps: float
    limit_gbps: float | None
    regime: str
    assumed: bool
    assumptions: tuple[str, ...]
    by_rings_us: float | None = None


def not_applying(roof: str) -> str:
    """How reasons begin why a time is below the range of the roof of this name."""
    return f"The roof '{roof}' does not apply. "
