"""From measurements of pairs to what is told of them (pure)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from statistics import median

from collscope.bench.p2p import P2pRun, Result
from collscope.bench.p2p_plan import LATENCY_BYTES, ONE_WAY, PING_PONG, TWO_WAY, Exchange
from collscope.model import Measurement, Op, algorithm_bandwidth
from collscope.reports.p2p_model import CopyPoint, P2p, PairRow, SlowPair, Spread
from collscope.stats import MAD_TO_SIGMA, Samples, mad
from collscope.units import count, format_size

_SIGMAS = 3.0  # of noise that a slow pair must exceed,
_LEAST = 0.05  # and of the median at least: less is no reason to look at a link
LEAST_PAIRS = 4  # fewer have no median to be held against
_MOST_NOTICES = 10
_BAD = ("wrong", "failed", "timeout", "skipped")
_KINDS = (ONE_WAY, TWO_WAY, PING_PONG)
_Key = tuple[str, Exchange, int]  # variant, exchange, size in bytes


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
    time = found.time_us if usable else None
    wrong = [m.n_wrong for m in same if m.n_wrong is not None]
    return PairRow(
        variant,
        exchange.kind,
        exchange.src,
        exchange.dst,
        size,
        time,
        mad(found.all) if usable else None,
        None if latency or time is None else algorithm_bandwidth(size, time * 1e-6),
        len(found.all),
        sum(wrong) if wrong else None,
        status,
        next((m.message for m in same if m.status == status and m.message), None),
    )


def _over_pairs(rows: Sequence[PairRow]) -> tuple[list[Spread], list[SlowPair]]:
    groups: dict[tuple[str, str, int], list[PairRow]] = defaultdict(list)
    for row in rows:
        if row.time_us is not None:
            groups[row.variant, row.test, row.size_bytes].append(row)
    several = [same for same in groups.values() if len(same) > 1]
    slow = [pair for same in several for pair in _slow(same)]
    return [_spread(same) for same in several], sorted(slow, key=lambda pair: -pair.ratio)


def _spread(same: Sequence[PairRow]) -> Spread:
    row = same[0]
    times = [r.time_us for r in same if r.time_us is not None]
    low, middle, high = min(times), median(times), max(times)

    def rate(us: float) -> float | None:
        return None if row.test == PING_PONG else algorithm_bandwidth(row.size_bytes, us * 1e-6)

    return Spread(
        row.variant, row.test, row.size_bytes, len(times), low, middle, high,
        rate(high), rate(middle), rate(low),
    )  # fmt: skip


def _slow(same: Sequence[PairRow]) -> list[SlowPair]:
    """Pairs above the median of all by more than their own noise and that of the median pair.

    The noise is that of the samples, not the spread over the pairs: of four GPUs one that is slow
    makes half of the pairs slow, and a spread over the pairs would hide it.
    """
    if len(same) < LEAST_PAIRS:
        return []
    middle = median(r.time_us for r in same if r.time_us is not None)
    typical = median(map(_noise, same))
    found = []
    for row in same:
        noise = max(_LEAST, _SIGMAS * math.hypot(_noise(row), typical))
        ratio = (row.time_us or 0.0) / middle
        if ratio > 1 + noise:
            found.append(
                SlowPair(
                    row.variant, row.test, row.size_bytes, row.src, row.dst, ratio, noise
                )
            )  # fmt: skip
    return found


def _noise(row: PairRow) -> float:
    """Standard deviation of a row's samples over its time."""
    return MAD_TO_SIGMA * (row.time_us_mad or 0.0) / row.time_us if row.time_us else 0.0


def _notices(done: P2pRun, rows: Sequence[PairRow]) -> list[str]:
    """What is missing, alike things counted; and what to know of the times."""
    missing: dict[tuple[str, int, str, str | None], int] = defaultdict(int)
    for row in rows:
        if row.status != "ok":
            missing[row.test, row.size_bytes, row.status, row.message] += 1
    notices = [
        f"{test} of {format_size(size)}: {status} in {count(number, 'case')}"
        f"{'' if message is None else ': ' + message}"
        for (test, size, status, message), number in list(missing.items())[:_MOST_NOTICES]
    ]
    if len(missing) > _MOST_NOTICES:
        notices.append(f"{len(missing) - _MOST_NOTICES} more, see --format csv.")
    absent = done.points * len(done.variants) - len(rows)
    if absent > 0:
        notices.append(f"{count(absent, 'pair and size', 'pairs and sizes')} were not reached.")
    return notices if done.notice is None else [*notices, done.notice]
