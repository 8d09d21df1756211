"""Pairs, sizes and plans of `collscope bench p2p` (pure).

Bandwidth: one plan of mode unique, each pair and size a class on the pair's own communicator, so
that pairs run one after the other and all other ranks are idle. Latency: a plan of mode sequence
for each pair, in which the two ranks send to each other in turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from collscope.errors import UsageError
from collscope.model import Datatype, Op
from collscope.replay.measure import PlanPart
from collscope.replay.plan import (
    SEQUENCE,
    UNIQUE,
    Plan,
    PlanClass,
    PlanComm,
    PlanStep,
    PlanTransfer,
    PlanTransfers,
    itemsize,
)
from collscope.replay.sweep import sizes_of
from collscope.units import format_size

ONE_WAY, TWO_WAY, PING_PONG = "one-way", "two-way", "ping-pong"
CURVE_SIZES = "4K..1G*4"  # of the first pair, unless sizes are given
MATRIX_SIZES = "64K,1M,16M,256M"  # of the remaining pairs
LATENCY_BYTES = 8
ROUND_TRIPS = 100  # of a pass
PASSES = 21  # of a ping-pong; each is a sample
_MOST_BYTES = 1 << 40  # the replayer takes 2**38 elements of a transfer
_FEW_PAIRS = 2  # up to here every pair gets the sizes of the curve
_DATATYPE = Datatype.FLOAT32
_PAIR = re.compile(r"\s*(\d{1,6}):(\d{1,6})\s*")

Pair = tuple[int, int]  # ranks: source, destination


class Exchange(msgspec.Struct, frozen=True, order=True):
    """What is measured between two ranks; `src` is below `dst` where both send."""

    kind: str  # one-way, two-way, ping-pong
    src: int
    dst: int

    @property
    def suffix(self) -> str:
        """What stands behind the label of its measurements."""
        return f" {self.src}:{self.dst} {self.kind}"


def parse_pairs(text: str, nranks: int) -> tuple[Pair, ...]:
    """Ordered pairs of ranks of `all` or `0:1,1:0`, each once.

    raises  UsageError for what is no pair of two ranks below `nranks`
    """
    if text.strip() == "all":
        return tuple((src, dst) for src in range(nranks) for dst in range(nranks) if src != dst)
    return tuple(dict.fromkeys(_pair(word, nranks) for word in text.split(",")))


def _pair(word: str, nranks: int) -> Pair:
    match = _PAIR.fullmatch(word)
    if match is None:
        raise UsageError(f"--pairs: '{word}' is not a pair. Write SRC:DST, as in 0:1,1:0, or all.")
    src, dst = int(match[1]), int(match[2])
    if max(src, dst) >= nranks:
        raise UsageError(
            f"--pairs: {word.strip()} has no such rank. With -n {nranks} the ranks are 0 to "
            f"{nranks - 1}."
        )
    if src == dst:
        raise UsageError(
            f"--pairs: {word.strip()} is one rank. Name two; copies within a GPU are measured by "
            "'bench memcpy'."
        )
    return src, dst


def parse_sizes(text: str) -> tuple[int, ...]:
    """Sizes in bytes, rising, of the grammar of `replay --sweep`.

    raises  UsageError for what is no size, or not a multiple of the element's size
    """
    sizes = sorted({size for part in text.split(",") for size in sizes_of(part.strip(), "--sizes")})
    item = itemsize(_DATATYPE)
    if sizes[-1] > _MOST_BYTES:
        raise UsageError(
            f"--sizes: {format_size(sizes[-1])} is more than a plan can hold. Use "
            f"{format_size(_MOST_BYTES)} at most."
        )
    for size in sizes:
        if size % item:
            raise UsageError(
                f"--sizes: {size} bytes are not a multiple of {item}, the size of a "
                f"{_DATATYPE.value}. Use {max(item, size // item * item)}."
            )
    return tuple(sizes)


def sizes_by_pair(pairs: Sequence[Pair], requested: str | None) -> dict[Pair, tuple[int, ...]]:
    """Sizes of every pair: the requested ones, else many of the first pair, few of the rest."""
    if requested is not None:
        return dict.fromkeys(pairs, parse_sizes(requested))
    few = len(pairs) <= _FEW_PAIRS
    sizes = dict.fromkeys(pairs, parse_sizes(CURVE_SIZES if few else MATRIX_SIZES))
    sizes[pairs[0]] = parse_sizes(CURVE_SIZES)
    return sizes


class Prepared(msgspec.Struct, frozen=True):
    """The parts of a measurement, and the exchanges that they hold."""

    parts: tuple[PlanPart, ...]
    exchanges: tuple[Exchange, ...]
    points: int  # exchanges and sizes, which are to be measured


def prepare(
    sizes: Mapping[Pair, tuple[int, ...]], kinds: Sequence[str], *, nranks: int, latency: bool
) -> Prepared:
    """Plans of the pairs' bandwidth in one part, and of each pair's latency in one of its own.

    kinds    one-way, two-way or both
    latency  whether that is measured too: of two ranks once, whichever is named first
    """
    wanted = _exchanges(sizes, kinds)
    both = list(dict.fromkeys((min(pair), max(pair)) for pair in sizes))
    comms = tuple(PlanComm(number, pair) for number, pair in enumerate(both))
    # All pairs are measured close in time at each size: a drift must not look like a slow pair.
    runs = sorted({(size, exchange) for exchange, some in wanted.items() for size in some})
    classes = tuple(
        _class(
            number,
            exchange,
            size,
            both.index((min(exchange.src, exchange.dst), max(exchange.src, exchange.dst))),
        )
        for number, (size, exchange) in enumerate(runs)
    )
    suffixes = {number: exchange.suffix for number, (_, exchange) in enumerate(runs)}
    parts = [PlanPart(Plan(UNIQUE, nranks, comms, classes), suffix_of=suffixes)]
    exchanges = list(wanted)
    for pair in both if latency else ():
        exchange = Exchange(PING_PONG, *pair)
        exchanges.append(exchange)
        parts.append(PlanPart(_ping_pong(pair, nranks, len(classes)), exchange.suffix))
    points = len(classes) + len(parts) - 1
    return Prepared(tuple(parts), tuple(exchanges), points)


def _exchanges(
    sizes: Mapping[Pair, tuple[int, ...]], kinds: Sequence[str]
) -> dict[Exchange, dict[int, None]]:
    """Prepared with their sizes, in the order of the pairs."""
    found: dict[Exchange, dict[int, None]] = {}
    for kind in kinds:
        for pair, some in sizes.items():
            ends = (min(pair), max(pair)) if kind == TWO_WAY else pair
            found.setdefault(Exchange(kind, *ends), {}).update(dict.fromkeys(some))
    return found


def _class(key: int, exchange: Exchange, size: int, comm: int) -> PlanClass:
    count = size // itemsize(_DATATYPE)
    return _send_recv(key, comm, list(_transfers(exchange, count)), count)


def _transfers(exchange: Exchange, count: int) -> Iterator[PlanTransfer]:
    # The communicator has the two in rising order.
    src = int(exchange.src > exchange.dst)
    yield PlanTransfer(src, 1 - src, count)
    if exchange.kind == TWO_WAY:
        yield PlanTransfer(1 - src, src, count)


def _send_recv(key: int, comm: int, items: Sequence[PlanTransfer], count: int) -> PlanClass:
    return PlanClass(
        key,
        Op.SEND_RECV,
        _DATATYPE,
        (comm,),
        count=count,
        shape="sendrecv",
        size_bytes=count * itemsize(_DATATYPE),
        transfers=(PlanTransfers(comm, tuple(items)),),
    )


def _ping_pong(pair: Pair, nranks: int, key: int) -> Plan:
    """Messages there and back in turns; classes are numbered from `key` on."""
    count = LATENCY_BYTES // itemsize(_DATATYPE)
    there = _send_recv(key, 0, [PlanTransfer(0, 1, count)], count)
    back = _send_recv(key + 1, 0, [PlanTransfer(1, 0, count)], count)
    steps = (PlanStep(((key, 0),)), PlanStep(((key + 1, 0),))) * ROUND_TRIPS
    return Plan(SEQUENCE, nranks, (PlanComm(0, pair),), (there, back), steps)
