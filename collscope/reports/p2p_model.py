"""Records of what `collscope bench p2p` tells; field names carry their unit."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = "collscope.p2p/1"


@dataclass(frozen=True, slots=True)
class PairRow:
    """One pair, size and variant, all rounds together.

    Times are of one message: of the slower rank where messages follow each other (one-way,
    two-way), half a round trip of a ping-pong. Bandwidths are those of one direction; bus and
    algorithm bandwidth of Send/Recv are the same.
    """

    variant: str
    test: str  # one-way, two-way, ping-pong
    src: int
    dst: int
    size_bytes: int
    time_us: float | None  # median over rounds of medians; None: not measured, or wrong data
    time_us_mad: float | None  # of the samples
    algbw_gbps: float | None  # None for a ping-pong
    samples: int
    n_wrong: int | None
    status: str  # ok, or the worst of the rounds
    message: str | None


@dataclass(frozen=True, slots=True)
class Spread:
    """Of all pairs measured at one size, where there are several."""

    variant: str
    test: str
    size_bytes: int
    pairs: int
    time_us_min: float
    time_us_median: float
    time_us_max: float
    algbw_gbps_min: float | None
    algbw_gbps_median: float | None  # of the median time
    algbw_gbps_max: float | None


@dataclass(frozen=True, slots=True)
class SlowPair:
    """A pair whose time is above the median of the pairs by more than the noise."""

    variant: str
    test: str
    size_bytes: int
    src: int
    dst: int
    ratio: float  # its time over the median of all pairs
    noise: float  # what a ratio must exceed to stand out, less 1


@dataclass(frozen=True, slots=True)
class CopyPoint:
    """What the copy engine reaches between two GPUs, as `bench memcpy` measured it."""

    size_bytes: int
    algbw_gbps: float


@dataclass(frozen=True, slots=True)
class P2p:
    """What the command tells."""

    nranks: int
    backend: str | None
    device: str | None  # several are parted by commas, as in `library`
    library: str | None
    variants: tuple[str, ...]
    curve_src: int  # the pair of the curve: the first one asked for
    curve_dst: int
    rows: tuple[PairRow, ...]
    spreads: tuple[Spread, ...]
    slow_pairs: tuple[SlowPair, ...]  # worst first
    copies: tuple[CopyPoint, ...]  # empty where none are in the store
    notices: tuple[str, ...]
    schema: str = SCHEMA
