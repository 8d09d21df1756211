"""What Send and Recv reach between pairs of ranks, which pairs are slow, and what copies reach."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

from collscope.bench.p2p import P2pRun, Result
from collscope.bench.p2p_plan import LATENCY_BYTES, ONE_WAY, PING_PONG, TWO_WAY, Exchange
from collscope.ingest.match import reading
from collscope.model import Measurement, Op, algorithm_bandwidth
from collscope.model.note import Note
from collscope.reports.tolerances import MIN_PAIRS, MIN_SIGMAS, MIN_SLOW_PAIR
from collscope.stats import MAD_TO_SIGMA, Samples, mad

SCHEMA = "collscope.p2p/2"
_BAD = ("wrong", "failed", "timeout", "contradictory", "skipped")
_KINDS = (ONE_WAY, TWO_WAY, PING_PONG)
_Key = tuple[str, Exchange, int]  # variant, exchange, size in bytes

# Copies that follow each other without waiting, as the messages do; through the host is no ceiling.
_QUERY = """
    SELECT size_bytes, src_device, dst_device, bandwidth_gbps FROM copies
    WHERE kind = 'peer_async' AND direction = 'one' AND access IS NOT 'none' AND status = 'ok'
        AND device = ? AND bandwidth_gbps IS NOT NULL
"""


class PairRow(msgspec.Struct, frozen=True):
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
    time_ns: float | None
    time_mad_ns: float | None  # median absolute deviation of the samples
    algbw_gbps: float | None  # of one direction, GB = 1e9 bytes; None for a ping-pong
    samples: int  # over all rounds
    n_wrong: int | None  # wrong elements; None: not checked
    status: str  # ok, wrong, failed, timeout, skipped, contradictory
    message: str | None  # why it is not ok


class Spread(msgspec.Struct, frozen=True):
    """The slowest, median and fastest of several pairs at one size."""

    variant: str  # label of the setting
    test: str  # one-way, two-way, ping-pong
    size_bytes: int  # of a message
    pairs: int  # pairs measured
    time_min_ns: float  # fastest pair
    time_median_ns: float  # median of the pairs
    time_max_ns: float  # slowest pair
    algbw_gbps_min: float | None  # slowest pair
    algbw_gbps_median: float | None  # of the median time
    algbw_gbps_max: float | None  # fastest pair


class SlowPair(msgspec.Struct, frozen=True):
    """A pair whose time is above the median of the pairs by more than the noise."""

    variant: str  # label of the setting
    test: str  # one-way, two-way, ping-pong
    size_bytes: int  # of a message
    src: int  # rank
    dst: int  # rank
    ratio: float  # time over the median time of the pairs
    noise: float  # what a ratio must exceed to stand out, less 1


class CopyPoint(msgspec.Struct, frozen=True):
    """What the copy engine reaches between two GPUs, as `bench memcpy` measured it."""

    size_bytes: int  # of a copy
    algbw_gbps: float  # GB = 1e9 bytes


class NotMeasured(msgspec.Struct, frozen=True):
    """Pairs whose times of one size are missing for one reason."""

    test: str  # one-way, two-way, ping-pong
    size_bytes: int  # of a message
    status: str  # wrong, failed, timeout, skipped, contradictory
    message: str | None  # why
    cases: int  # pairs and variants


class NotReached(msgspec.Struct, frozen=True):
    """Pairs and sizes that the measurement ended before."""

    points: int


class P2p(msgspec.Struct, frozen=True):
    """The answer of `collscope bench p2p`."""

    nranks: int  # ranks that were started
    backend: str | None  # cuda, hip, host
    device: str | None  # several are separated by commas, as in `library`
    library: str | None  # name and version; several are separated by commas
    variants: tuple[str, ...]  # labels of the settings measured in turns
    curve_src: int  # source of the pair whose bandwidth over size is shown
    curve_dst: int  # its destination
    rows: tuple[PairRow, ...]  # every pair, size and variant
    spreads: tuple[Spread, ...]  # all pairs of a size
    slow_pairs: tuple[SlowPair, ...]  # pairs that are slower than the noise allows, worst first
    # what the copy engine reaches, as bench memcpy measured it; empty: not measured
    copies: tuple[CopyPoint, ...]
    notices: tuple[
        NotMeasured | NotReached | Note, ...
    ]  # what is missing, and what to know of the times
    schema: str = SCHEMA


def build_p2p(done: P2pRun, copies: Sequence[CopyPoint] = ()) -> P2p:
    """The rows of a measurement, their spread over the pairs, and the pairs that are slow.

    copies  of the copy engine, rising in size
    """
    rows = _rows(done)
    spreads, slow = _over_pairs(rows)
    every = [result.measured for result in done.results]
    src, dst = done.pairs[0]
    return P2p(
        done.nranks,
        _listed(m.backend for m in every),
        _listed(m.device for m in every),
        _listed(m.library for m in every),
        done.variants,
        src,
        dst,
        tuple(rows),
        tuple(spreads),
        tuple(slow),
        tuple(copies),
        tuple(_notices(done, rows)),
    )


def _listed(values: Iterable[str | None]) -> str | None:
    return ", ".join(sorted({v for v in values if v})) or None


def _rows(done: P2pRun) -> list[PairRow]:
    """One row for each variant, exchange and size, in the order of pairs and sizes."""
    groups: dict[_Key, list[Measurement]] = defaultdict(list)
    for result in done.results:
        groups[result.variant, result.exchange, _size(result)].append(result.measured)
    order = {variant: place for place, variant in enumerate(done.variants)}
    keys = sorted(
        groups, key=lambda key: (_KINDS.index(key[1].kind), key[2], key[1], order[key[0]])
    )
    return [_row(key, groups[key]) for key in keys]


def _size(result: Result) -> int:
    return LATENCY_BYTES if result.exchange.kind == PING_PONG else result.measured.size_bytes or 0


def _row(key: _Key, same: Sequence[Measurement]) -> PairRow:
    variant, exchange, size = key
    status = next((s for s in _BAD if any(m.status == s for m in same)), "ok")
    latency = exchange.kind == PING_PONG
    # Of a ping-pong the row of all its steps has the time, those of its messages what was wrong.
    timed = [
        m
        for m in same
        if (m.op is Op.SEQUENCE) == latency and m.time_us_median is not None and m.right
    ]
    rounds: dict[Hashable, tuple[float, ...]] = {}
    for number, m in enumerate(timed):
        share = (m.count or 1) if latency else 1
        samples = m.samples_us or (m.time_us_median or 0.0,)
        rounds[number if m.round is None else m.round] = tuple(us / share for us in samples)
    usable = bool(rounds) and status in ("ok", "failed", "timeout")
    found = Samples(rounds)
    time = found.time_ns if usable else None
    wrong = [m.n_wrong for m in same if m.n_wrong is not None]
    return PairRow(
        variant,
        exchange.kind,
        exchange.src,
        exchange.dst,
        size,
        time,
        1000 * mad(found.all) if usable else None,
        None if latency or time is None else algorithm_bandwidth(size, time * 1e-9),
        len(found.all),
        sum(wrong) if wrong else None,
        status,
        next((m.message for m in same if m.status == status and m.message), None),
    )


def _over_pairs(rows: Sequence[PairRow]) -> tuple[list[Spread], list[SlowPair]]:
    groups: dict[tuple[str, str, int], list[PairRow]] = defaultdict(list)
    for row in rows:
        if row.time_ns is not None:
            groups[row.variant, row.test, row.size_bytes].append(row)
    several = [same for same in groups.values() if len(same) > 1]
    slow = [pair for same in several for pair in _slow(same)]
    return [_spread(same) for same in several], sorted(slow, key=lambda pair: -pair.ratio)


def _spread(same: Sequence[PairRow]) -> Spread:
    row = same[0]
    times = [r.time_ns for r in same if r.time_ns is not None]
    low, middle, high = min(times), median(times), max(times)

    def rate(ns: float) -> float | None:
        return None if row.test == PING_PONG else algorithm_bandwidth(row.size_bytes, ns * 1e-9)

    return Spread(
        row.variant, row.test, row.size_bytes, len(times), low, middle, high,
        rate(high), rate(middle), rate(low),
    )  # fmt: skip


def _slow(same: Sequence[PairRow]) -> list[SlowPair]:
    """Pairs above the median time by more than their own noise and that of the median pair.

    The noise is that of the samples, not the spread over the pairs: of four GPUs one that is slow
    makes half of the pairs slow, and a spread over the pairs would hide it.
    """
    if len(same) < MIN_PAIRS:
        return []
    middle = median(r.time_ns for r in same if r.time_ns is not None)
    typical = median(map(_noise, same))
    found = []
    for row in same:
        noise = max(MIN_SLOW_PAIR, MIN_SIGMAS * math.hypot(_noise(row), typical))
        ratio = (row.time_ns or 0.0) / middle
        if ratio > 1 + noise:
            found.append(
                SlowPair(
                    row.variant, row.test, row.size_bytes, row.src, row.dst, ratio, noise
                )
            )  # fmt: skip
    return found


def _noise(row: PairRow) -> float:
    """Standard deviation of a row's samples over its time."""
    return MAD_TO_SIGMA * (row.time_mad_ns or 0.0) / row.time_ns if row.time_ns else 0.0


def _notices(done: P2pRun, rows: Sequence[PairRow]) -> Iterator[NotMeasured | NotReached | Note]:
    """What is missing, alike things counted; and what to know of the times."""
    missing: dict[tuple[str, int, str, str | None], int] = defaultdict(int)
    for row in rows:
        if row.status != "ok":
            missing[row.test, row.size_bytes, row.status, row.message] += 1
    for what, number in missing.items():
        yield NotMeasured(*what, number)
    absent = done.points * len(done.variants) - len(rows)
    if absent > 0:
        yield NotReached(absent)
    if done.notice is not None:
        yield done.notice


def copies_beside(done: P2pRun, db: Path) -> tuple[CopyPoint, ...]:
    """Copies between GPUs of the kind that the first pair has, in any run of a store.

    The pair's own GPUs count, where they were measured, else all of that kind; of several the
    median. GPUs are numbered as ranks are, on one node.

    returns  by size, rising; nothing for ranks in host memory, or on two nodes
    raises   InputError when the store cannot be read
    """
    pair = done.pairs[0]
    measured = [
        r.measured for r in done.results if {r.exchange.src, r.exchange.dst} == set(pair)
    ]  # fmt: skip
    devices = {m.device for m in measured if m.device and m.backend != "host" and m.nnodes == 1}
    if len(devices) != 1:
        return ()
    with reading(db) as connection:
        found = connection.execute(_QUERY, tuple(devices)).fetchall()
    own = [row for row in found if (row[1], row[2]) == pair]
    by_size: dict[int, list[float]] = defaultdict(list)
    for size, _, _, gbps in own or found:
        by_size[size].append(gbps)
    return tuple(CopyPoint(size, median(by_size[size])) for size in sorted(by_size))
