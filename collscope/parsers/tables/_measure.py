"""One printed result into a `Measurement`: bandwidths computed again and compared as printed.

A printed number stands for an interval of half its last digit to either side. The intervals of
time and bandwidth must meet; where they do not, the printed bandwidth is of something else.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from collscope.model import (
    Datatype,
    Measurement,
    Op,
    Severity,
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
    size_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collscope.parsers._notes import Notes

# 12.90, 16059, 1.2e+06, 2e-316, 5e-07*
NUMBER = re.compile(r"\d{1,20}(?:\.\d{0,20})?(?:[eE][+-]?\d{1,3})?")
LIMIT = 2**63  # first value that the store's integers cannot hold
_SLACK = 1e-9  # relative; the programs round binary fractions
_MOST_RANKS = 16384

_IN_PLACE_TEXT = "SendRecv and AllToAll have no in-place form: the in-place column was left out."
_DIFFERS_TEXT = (
    "A printed bus bandwidth does not follow from the printed time, size and ranks: it was"
    " computed again. Check the operation and the number of ranks (collscope ingest table "
    "--op NAME --ranks N)."
)
_ZERO_TEXT = "Rows of size zero time a call without data: they were left out."
_NUMBER_TEXT = "Results without a readable time were left out."


class Setting(msgspec.Struct, frozen=True):
    """What holds for all rows of a table."""

    op: Op = Op.UNKNOWN
    nranks: int | None = None
    nnodes: int | None = None
    least: int | None = None  # ranks that there are at least, where some are not named
    iterations: int | None = None
    method: str | None = None
    library: str | None = None
    device: str | None = None
    label: str | None = None
    backend: str | None = None


class Result(msgspec.Struct, frozen=True):
    """One timed class, as printed: out of place or in place."""

    line: int
    size: int
    time: str  # microseconds
    count: int | None = None
    datatype: Datatype | None = None
    redop: str | None = None
    root: int | None = None
    in_place: bool | None = None
    busbw: str | None = None  # GB/s
    n_wrong: int | None = None
    beyond_threshold: bool = False  # marked with an asterisk by programs that print no count
    shortest: str | None = None  # microseconds
    longest: str | None = None
    samples_us: tuple[float, ...] = ()
    round: int | None = None
    algbw: str | None = None  # GB/s
    # algorithm, protocol and channels that the program printed next to it
    choice: str | None = None


def measure(result: Result, setting: Setting, notes: Notes) -> Measurement | None:
    """Measurement of one printed result; None, counted, for what measures nothing."""
    # The second block of these tables measures the same once more.
    if result.in_place and not setting.op.has_in_place:
        notes.add(Severity.NOTICE, "no_in_place", _IN_PLACE_TEXT, result.line)
        return None
    time_us = decimal(result.time)
    if not time_us:
        notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, result.line, result.time)
        return None
    if result.size == 0:
        notes.add(Severity.NOTICE, "zero_size", _ZERO_TEXT, result.line)
        return None
    factor = bus_factor(setting.op, setting.nranks)
    if factor is not None and not _agrees(result, factor):
        notes.add(Severity.NOTICE, "busbw_mismatch", _DIFFERS_TEXT, result.line, result.busbw)
    return _measurement(result, setting, time_us)


def _measurement(result: Result, setting: Setting, time_us: float) -> Measurement:
    wrong = bool(result.n_wrong) or result.beyond_threshold
    time_s = time_us * 1e-6
    busbw = bus_bandwidth(setting.op, size=result.size, time_s=time_s, nranks=setting.nranks)
    return Measurement(
        op=setting.op,
        datatype=result.datatype,
        redop=result.redop if setting.op.reduces else None,  # sendrecv_perf prints "sum"
        root=result.root,
        count=count_of(result, setting),
        size_bytes=result.size,
        in_place=result.in_place,
        nranks=setting.nranks,
        nnodes=setting.nnodes,
        time_us_median=time_us,
        time_us_min=decimal(result.shortest),
        time_us_max=decimal(result.longest),
        iterations=setting.iterations,
        algbw_gbps=algorithm_bandwidth(result.size, time_s),
        busbw_gbps=busbw,
        reported_busbw_gbps=decimal(result.busbw),
        n_wrong=result.n_wrong,
        method=setting.method,
        backend=setting.backend,
        library=setting.library,
        device=setting.device,
        status="wrong" if wrong else "ok",
        message="the program found wrong results" if wrong else result.choice,
        label=setting.label,
        round=result.round,
        samples_us=result.samples_us,
        line=result.line,
    )


def count_of(result: Result, setting: Setting) -> int | None:
    """Elements as the API takes them: printed, else from size, datatype and ranks."""
    if result.count is not None or result.datatype is None:
        return result.count
    one = size_bytes(setting.op, count=1, datatype=result.datatype, nranks=setting.nranks)
    return result.size // one if one and result.size % one == 0 else None


def factor_of(results: Iterable[Result]) -> tuple[float, float] | None:
    """What bus over algorithm bandwidth may be by all results; None where they do not show it.

    The algorithm bandwidth is the printed one, and that of size and time. The first is larger than
    the second where two results contradict each other.
    """
    lowest, highest = 0.0, math.inf
    for r in results:
        time, busbw, printed = interval(r.time), interval(r.busbw), interval(r.algbw)
        if busbw is None:
            continue
        if r.size and time and time[0] > 0:
            # busbw [GB/s] = factor * size / time [us] / 1000
            lowest = max(lowest, busbw[0] * time[0] * 1e3 / r.size)
            highest = min(highest, busbw[1] * time[1] * 1e3 / r.size)
        if printed and printed[0] > 0:
            lowest = max(lowest, busbw[0] / printed[1])
            highest = min(highest, busbw[1] / printed[0])
    return None if highest == math.inf else (lowest, highest)


def ranks_by_factor(op: Op, factor: tuple[float, float]) -> list[int]:
    """Numbers of ranks, 2 to 16383, that a factor leaves possible; none where it shows none."""
    lowest, highest = factor
    if (bus_factor(op, 2) or 0) == (bus_factor(op, 3) or 0):
        return []
    return [n for n in range(2, _MOST_RANKS) if lowest <= (bus_factor(op, n) or 0) <= highest]


def _agrees(result: Result, factor: float) -> bool:
    time, busbw = interval(result.time), interval(result.busbw)
    if time is None or busbw is None:
        return True
    most = factor * result.size / time[0] * 1e-3 if time[0] > 0 else math.inf
    least = factor * result.size / time[1] * 1e-3
    return most * (1 + _SLACK) >= busbw[0] and least * (1 - _SLACK) <= busbw[1]


def interval(text: str | None) -> tuple[float, float] | None:
    """What a printed number may have been before it was rounded; None when it is no number.

    >>> interval("34.5")
    (34.45, 34.55)
    """
    if text is None or not NUMBER.fullmatch(text):
        return None
    digits = Decimal(text)
    half = Decimal(5).scaleb(int(digits.as_tuple().exponent) - 1)
    return float(digits - half), float(digits + half)


def decimal(text: str | None) -> float | None:
    """A printed number; None when it is none, or not finite.

    >>> decimal("1.2e+06"), decimal("N/A")
    (1200000.0, None)
    """
    if text is None or not NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def integer(text: str) -> int | None:
    """A printed whole number below 2^63; None for other text."""
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII):
        return None
    value = int(text)
    return value if value < LIMIT else None
