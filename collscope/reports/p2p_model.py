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

    variant: str  # label of the setting
    test: str  # one-way: src sends; two-way: both send; ping-pong: latency
    src: int  # rank
    dst: int  # rank
    size_bytes: int  # of a message
    # of a message, of a ping-pong half a round trip; median over rounds; None: not measured, or
    # wrong data
    time_us: float | None
    time_us_mad: float | None  # median absolute deviation of the samples
    algbw_gbps: float | None  # of one direction, GB = 1e9 bytes; None for a ping-pong
    samples: int  # over all rounds
    n_wrong: int | None  # wrong elements; None: not checked
    status: str  # ok, wrong, failed, timeout, skipped
    message: str | None  # why it is not ok


@dataclass(frozen=True, slots=True)
class Spread:
    """Of all pairs measured at one size, where there are several."""

    variant: str  # label of the setting
    test: str  # one-way, two-way, ping-pong
    size_bytes: int  # of a message
    pairs: int  # pairs measured
    time_us_min: float  # fastest pair
    time_us_median: float  # median of the pairs
    time_us_max: float  # slowest pair
    algbw_gbps_min: float | None  # slowest pair
    algbw_gbps_median: float | None  # of the median time
    algbw_gbps_max: float | None  # fastest pair


@dataclass(frozen=True, slots=True)
class SlowPair:
    """A pair whose time is above the median of the pairs by more than the noise."""

    variant: str  # label of the setting
    test: str  # one-way, two-way, ping-pong
    size_bytes: int  # of a message
    src: int  # rank
    dst: int  # rank
    ratio: float  # time over the median time of the pairs
    noise: float  # what a ratio must exceed to stand out, less 1


@dataclass(frozen=True, slots=True)
class CopyPoint:
    """What the copy engine reaches between two GPUs, as `bench memcpy` measured it."""

    size_bytes: int  # of a copy
    algbw_gbps: float  # GB = 1e9 bytes


@dataclass(frozen=True, slots=True)
class P2p:
    """What the command tells."""

    nranks: int  # ranks that were started
    backend: str | None  # cuda, hip, host
    device: str | None  # several are parted by commas, as in `library`
    library: str | None  # name and version; several are parted by commas
    variants: tuple[str, ...]  # labels of the settings measured in turns
    curve_src: int  # source of the pair whose bandwidth over size is told
    curve_dst: int  # its destination
    rows: tuple[PairRow, ...]  # every pair, size and variant
    spreads: tuple[Spread, ...]  # all pairs of a size
    slow_pairs: tuple[SlowPair, ...]  # pairs that are slower than the noise allows, worst first
    # what the copy engine reaches, as bench memcpy measured it; empty: not measured
    copies: tuple[CopyPoint, ...]
    notices: tuple[str, ...]  # what is missing, and what to know of the times
    schema: str = SCHEMA
