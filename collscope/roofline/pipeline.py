"""Between latency and bandwidth: the library's pipeline, as time by size.

An algorithm cuts a buffer into chunks that follow each other over the links. Smaller chunks fill
the pipeline sooner, larger ones pay the cost of a step less often; with the best chunk a transfer
of x microseconds takes x + 2 sqrt(x fill), where `fill` is what one chunk's way through all steps
costs beside its own transfer (Hockney's pipeline). So a way to carry S bytes takes

    latency + x / part + 2 sqrt(x fill / part),    x = S f / B

f the bus bandwidth factor, B what the algorithm reaches of endless messages. Protocols differ in
all three: LL has the least latency and half of the rate at most, Simple the whole rate. The library
takes the fastest. Constants with their sources: pipelines.toml, and the library's latencies in
`nccl_constants`.
"""

from __future__ import annotations

import sys
from functools import cache
from math import inf, sqrt
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collscope.model import Op

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TABLE = Path(__file__).parent / "pipelines.toml"
NODE, NETWORK = "node", "network"
RINGS, DIRECT, SWITCHED = "ring", "direct", "switches"


class Channels(msgspec.Struct, frozen=True):
    """Channels of one pair: a message begins with few, and gets twice as many while each carries
    more than `part_bytes`."""

    first: int
    most: int
    gbps: float  # of one channel
    part_bytes: int

    def at_most(self, gbps: float, data_bytes: float) -> float:
        """What is left of a rate."""
        channels = self.first
        while channels < self.most and data_bytes / channels > self.part_bytes:
            channels *= 2
        return min(gbps, channels * self.gbps)


class Branch(msgspec.Struct, frozen=True):
    """One algorithm and protocol: what its time is made of.

    latency_us  of the least message
    gbps        bus bandwidth of endless messages
    fill_us     cost of a chunk's way through the pipeline
    channels    bound the rate by the size; None: they do not
    above, most  bytes of data from which and up to which the library takes it
    together    latency and transfer at the same time: the fastest that can be
    """

    name: str
    latency_us: float
    gbps: float
    fill_us: float = 0.0
    channels: Channels | None = None
    above: float = 0.0
    most: float = inf
    together: bool = False

    def time_us(self, data_bytes: float) -> float:
        """Time of a message; `data_bytes` is size times bus bandwidth factor."""
        gbps = self.gbps if self.channels is None else self.channels.at_most(self.gbps, data_bytes)
        if gbps <= 0 or not self.above < data_bytes <= self.most:
            return inf
        transfer = data_bytes / (1000 * gbps)
        filled = transfer + 2 * sqrt(transfer * self.fill_us)
        return max(self.latency_us, filled) if self.together else self.latency_us + filled


class Pipeline(msgspec.Struct, frozen=True):
    """The branches that a library chooses from."""

    branches: tuple[Branch, ...]

    def without(self, name: str) -> Pipeline | None:
        """Without the branches of a name; None where that changes nothing."""
        left = tuple(branch for branch in self.branches if branch.name != name)
        return Pipeline(left) if left and len(left) < len(self.branches) else None

    def fastest(self, data_bytes: float) -> Branch:
        """The branch of the least time."""
        return min(self.branches, key=lambda branch: branch.time_us(data_bytes))

    def time_us(self, data_bytes: float) -> float:
        """The least time of a message."""
        return self.fastest(data_bytes).time_us(data_bytes)


class Fill(msgspec.Struct, frozen=True):
    """Constants of one architecture's algorithm, inside a node or over a network.

    value, low, high  cost of a chunk's way in us, and its range
    late_us           latency of the bandwidth protocol beyond the least; None: the library's own
    borrowed          from another architecture
    """

    value: float
    low: float
    high: float
    late_us: float | None
    source: str
    place: str  # NODE or NETWORK
    borrowed: bool = False

    def over(self, more_us: float) -> Fill:
        """Over a network that costs `more_us` beyond InfiniBand, from 0 to twice."""
        return replace(self, value=self.value + more_us, high=self.high + 2 * more_us)


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    architecture: str
    way: str
    place: str
    fill_us: float
    low_us: float
    high_us: float
    source: str
    late_us: float | None = None
    nearest: tuple[str, ...] = ()


@cache
def _rows() -> dict[tuple[str, str, str], _Row]:
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    rows = msgspec.convert(table["pipeline"], tuple[_Row, ...])
    return {(row.architecture, row.way, row.place): row for row in rows}


@cache
def _order() -> dict[str, tuple[str, ...]]:
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return {name: tuple(others) for name, others in table["nearest"].items()}


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that takes the place of ring and tree up to a size.

    part, low, high  of the rate of ring and tree: value and range
    """

    architecture: str
    op: str
    nranks: int
    most_bytes: int
    part: float
    low: float
    high: float
    source: str


def schedule_of(architecture: str | None, op: Op, nranks: int) -> Schedule | None:
    """The schedule of an operation on one node; None where ring and tree serve every size."""
    wanted = (architecture, op.value, nranks)
    return next((s for s in _schedules() if (s.architecture, s.op, s.nranks) == wanted), None)


@cache
def _schedules() -> tuple[Schedule, ...]:
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return msgspec.convert(table["schedule"], tuple[Schedule, ...])


# A constant of another architecture may be off by this factor: those of Hopper and Blackwell,
# which were measured both, differ by three.
BORROWED = 3.0


def fill_of(architecture: str | None, way: str, place: str) -> Fill:
    """Constants of a way, those of the nearest architecture where it has none of its own."""
    own = architecture or ""
    rows = _rows()
    for name in (own, *_order().get(own, _order()["other"])):
        row = rows.get((name, way, place))
        if row is None:
            continue
        if name == own:
            return Fill(row.fill_us, row.low_us, row.high_us, row.late_us, row.source, place)
        return Fill(
            row.fill_us,
            row.low_us / BORROWED,
            row.high_us * BORROWED,
            row.late_us,
            f"borrowed from {name}: {row.source}",
            place,
            borrowed=True,
        )
    raise KeyError((architecture, way, place))  # the table has a row of every way and place
