"""Tuning constants of NCCL and RCCL: latencies in µs, bandwidths in GB/s, by library release.

Figures of src/graph/tuning.cc. NCCL: NVIDIA/nccl 5067397 (2.30.7); the latencies and limits of
Hopper equal those that NCCL 2.28.9 prints in its own tuning table. RCCL: ROCm/rccl 0cbce2a
(2.21.5), tuning models 0 and 3. Order of protocols everywhere: LL, LL128, Simple.
"""

from __future__ import annotations

import msgspec

PROTOCOLS = ("LL", "LL128", "Simple")
_ByProtocol = tuple[float, float, float]
_ByNodes = tuple[float, float, float]  # 1, 2, and more nodes


class Latencies(msgspec.Struct, frozen=True):
    """Microseconds: once per call, per step inside a node, per step between nodes."""

    base: _ByProtocol
    link: _ByProtocol
    net: _ByProtocol


class NcclLimits(msgspec.Struct, frozen=True):
    """Bandwidth limits of one GPU generation, in GB/s; the channels are those it usually has."""

    channels: int
    ll_node: float  # LL on one node
    ring_ll128_per_channel: _ByNodes
    tree_ll128_per_channel: _ByNodes
    tree_per_channel: _ByNodes
    plateau: float  # latency factor of Ring/Simple between nodes


class RcclModel(msgspec.Struct, frozen=True):
    """A tuning model of RCCL: parts of the ring's bandwidth, and corrections by size.

    A correction is for 64 B, 128 B, … in powers of two, 27 of them to 4 GiB. LL128 is off.
    """

    tree_ratio: tuple[_ByProtocol, _ByProtocol]  # up to 2 nodes, more
    ring_ratio: tuple[_ByProtocol, _ByProtocol]
    tree_correction: tuple[tuple[float, ...], ...]
    ring_correction: tuple[tuple[float, ...], ...]
    tree_simple_on_one_node: bool
    ring_ll_rooted_factor: float  # of Broadcast and Reduce on one node


class Constants(msgspec.Struct, frozen=True):
    """All constants of a library and architecture, and what they were checked against."""

    library: str
    architecture: str
    release: str
    tree: Latencies
    ring: Latencies
    limits: NcclLimits | RcclModel


_NCCL_TREE = Latencies((6.8, 14.0, 8.4), (0.6, 1.25, 4.0), (5.0, 8.5, 14.0))
_NCCL_RING = Latencies((6.6, 14.0, 8.4), (0.6, 1.9, 3.4), (2.7, 4.0, 14.0))
_NCCL_LIMITS = {
    "volta": NcclLimits(12, 39.0, (20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (26.5, 18.5, 10.0), 1.9),
    "ampere": NcclLimits(12, 87.7, (20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (24.0, 23.6, 17.8), 1.4),
    "hopper": NcclLimits(
        12, 141.0, (36.7, 36.7, 36.7), (36.7, 36.7, 29.0), (38.7, 41.4, 36.0), 1.4
    ),
    "blackwell": NcclLimits(
        16, 282.0, (40.0, 40.0, 40.0), (55.6, 31.67, 20.0), (70.0, 42.8, 24.0), 1.4
    ),
}


def nccl_limits(architecture: str) -> NcclLimits | None:
    """NCCL's limits of a GPU generation; None of those that it does not know."""
    return _NCCL_LIMITS.get(architecture)


class Pat(msgspec.Struct, frozen=True):
    """PAT of NCCL, Simple protocol: latency in us, and the part of the graph's bandwidth it has."""

    base_us: float
    step_part: float  # a step between nodes takes that part of a tree's
    rank_us: float  # a part that is linear in the ranks
    bandwidth: float


NCCL_PAT = Pat(8.0, 3.5, 2.8, 0.75)
# LL between nodes depends on the CPU: 2 nodes, more.
NCCL_LL_NET = {"intel": (39.0, 20.4), "amd": (22.5, 19.0)}
# Posting to the network costs each ring step at least this, in µs; Simple thrice.
NCCL_NET_OVERHEAD_US = {"intel": 1.0, "amd": 2.0}


def _tenths(digits: str) -> tuple[float, ...]:
    """Corrections by size written as tenths, A for ten of them."""
    return tuple(int(digit, 11) / 10 for digit in digits)


# Beyond the last entry, 256 MiB, NCCL corrects nothing.
NCCL_TREE_CORRECTION = (
    _tenths("AAAA987777654456789AAAA"),
    _tenths("AAAAA9888766666689999AA"),
    _tenths("99999998766555567877899"),
)
_OFF = (0.0,) * 27


_RCCL_GFX94 = RcclModel(  # model 0, the default
    tree_ratio=((0.04, 0.0, 0.91), (0.04, 0.0, 0.95)),
    ring_ratio=((0.04, 0.0, 1.0), (0.04, 0.0, 1.0)),
    tree_correction=(
        _tenths("121193412421332221111111111"),
        _OFF,
        _tenths("2A117241134368AAAA988888999"),
    ),
    ring_correction=(
        _tenths("111112423531553221111111111"),
        _OFF,
        _tenths("A82AA3A112215A88A9AAAAAAAAA"),
    ),
    tree_simple_on_one_node=False,
    ring_ll_rooted_factor=1.65,
)
_RCCL_GFX90A = RcclModel(  # model 3, of the topology that Frontier's nodes match
    tree_ratio=((0.20, 0.0, 1.75), (0.20, 0.0, 0.96)),
    ring_ratio=((0.20, 0.0, 1.0), (0.20, 0.0, 1.0)),
    tree_correction=(
        _tenths("111111AA2A9A646433333222222"),
        _OFF,
        _tenths("AAAAAA1112A8AAAAAAAAA878977"),
    ),
    ring_correction=(
        _tenths("111113121442237543333222222"),
        _OFF,
        _tenths("11111115A13111222347AAAAAAA"),
    ),
    tree_simple_on_one_node=True,
    ring_ll_rooted_factor=1.0,
)
_RCCL_BASE = (12.0, 12.0, 17.0)

CONSTANTS = (
    *(
        Constants("nccl", name, "2.28.9 to 2.30.7", _NCCL_TREE, _NCCL_RING, limits)
        for name, limits in _NCCL_LIMITS.items()
    ),
    Constants(
        "rccl",
        "gfx94",
        "2.21.5",
        Latencies(_RCCL_BASE, (0.8, 1.4, 2.5), (11.8, 18.2, 20.8)),
        Latencies(_RCCL_BASE, (0.8, 2.2, 3.6), (9.5, 19.8, 15.1)),
        _RCCL_GFX94,
    ),
    Constants(  # RCCL 2.21.5 has no model for gfx950: a board that it does not know gets model 0
        "rccl",
        "gfx950",
        "2.21.5",
        Latencies(_RCCL_BASE, (0.8, 1.4, 2.5), (11.8, 18.2, 20.8)),
        Latencies(_RCCL_BASE, (0.8, 2.2, 3.6), (9.5, 19.8, 15.1)),
        _RCCL_GFX94,
    ),
    Constants(
        "rccl",
        "gfx90a",
        "2.21.5",
        Latencies(_RCCL_BASE, (0.8, 0.0, 2.5), (12.5, 0.0, 22.4)),
        Latencies(_RCCL_BASE, (0.8, 0.0, 3.6), (9.5, 0.0, 19.8)),
        _RCCL_GFX90A,
    ),
)

# NVLS: latency of a call in one node, and of a step of the tree that joins nodes (NVLSTree).
NVLS_US, NVLS_TREE_STEP_US = 25.0, 20.9
