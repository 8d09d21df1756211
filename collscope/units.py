"""Parse and print sizes (binary prefixes), times and rates (decimal prefixes)."""

from __future__ import annotations

import math
import re

from collscope.errors import UsageError

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?\s*$", re.IGNORECASE)
_TIME = re.compile(r"^(\d{1,9}(?:\.\d+)?)([smh]?)$", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_BINARY = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def parse_size(text: str) -> int:
    """Bytes of a size such as ``4096``, ``64K``, ``1.5GiB``; prefixes are powers of 1024.

    raises  UsageError when the text is not a size or not a whole number of bytes

    >>> parse_size("64K")
    65536
    """
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"size '{text}': not a size. Write bytes or use K, M, G, T, as in 64K.")
    value = float(match[1]) * 1024 ** _BINARY[match[2].upper()]
    if value != int(value):
        raise UsageError(f"size '{text}': not a whole number of bytes. Use a larger unit.")
    return int(value)


def parse_seconds(text: str) -> float:
    """Seconds of a time such as ``30``, ``30s``, ``1.5m``, ``2h``.

    raises  UsageError when the text is no time above 0

    >>> parse_seconds("30s"), parse_seconds("1.5m")
    (30.0, 90.0)
    """
    match = _TIME.match(text)
    if match is None or not float(match[1]):
        raise UsageError(
            f"time '{text}': not a time above 0. Write seconds, or use s, m, h, as in 30s."
        )
    return float(match[1]) * _SECONDS[match[2]]


def require_step_ms(value: float | None) -> float | None:
    """The same step time, ms, or None.

    raises  UsageError when it is no time: 0, below 0, infinite or NaN
    """
    if value is not None and not 0 < value < math.inf:
        raise UsageError(f"step time of {value:g} ms: not the time of a step. Give more than 0.")
    return value


# A step that is given differs from the evidence by so much where it was given in another unit:
# profilers make steps at most a few times as long (docs/validation.md, cost of the profiler).
OTHER_UNIT = 20


def require_step_like(step_ms: float | None, recorded_ns: float) -> None:
    """Refuse a step without the profiler that cannot be the recorded one's.

    step_ms      as given; None: not given
    recorded_ns  with the profiler
    raises       UsageError when one is `OTHER_UNIT` times the other
    """
    if step_ms is None:
        return
    ratio = 1e6 * step_ms / recorded_ns
    if not 1 / OTHER_UNIT <= ratio <= OTHER_UNIT:
        raise UsageError(
            f"step time of {step_ms:g} ms: {ratio:.3g} times the recorded step of "
            f"{recorded_ns / 1e6:.4g} ms, which no profiler explains. Give milliseconds, of one "
            "step of this job ('ingest trace --steps' sets how many a trace holds)."
        )


def format_size(size_bytes: int | None) -> str:
    """Human form of a byte count, binary prefixes.

    >>> format_size(536870912)
    '512 MiB'
    """
    if size_bytes is None:
        return "?"
    value = float(size_bytes)
    for prefix in ("", "Ki", "Mi", "Gi", "Ti"):
        if abs(value) < 1024:
            return f"{value:.4g} {prefix}B"
        value /= 1024
    return f"{value:.4g} PiB"


def format_time(time_ns: float | None) -> str:
    """Human form of a duration given in nanoseconds.

    >>> format_time(3_252_990)
    '3.253 ms'
    """
    if time_ns is None:
        return "?"
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(time_ns) >= scale:
            return f"{time_ns / scale:.4g} {unit}"
    return f"{time_ns:.4g} ns"


def in_ns(us: float | None) -> float | None:
    """Microseconds, as measurements have them, in nanoseconds, as answers do; None stays None."""
    return None if us is None else 1000 * us


def us_or_ms(time_ns: float) -> str:
    """A time in us, from 1 ms on in ms, from 10 s on in s, with the digits of `figure`.

    >>> us_or_ms(12_340), us_or_ms(3_252_990), us_or_ms(146e9)
    ('12.3 us', '3.25 ms', '146 s')
    """
    if abs(time_ns) >= 1e10:
        return f"{figure(time_ns / 1e9)} s"
    return f"{figure(time_ns / 1e6)} ms" if abs(time_ns) >= 1e6 else f"{figure(time_ns / 1e3)} us"


def count(number: int | None, one: str, many: str | None = None) -> str:
    """A number with its noun; None: not known.

    >>> count(1, "class", "classes"), count(2, "call"), count(None, "rank")
    ('1 class', '2 calls', 'unknown ranks')
    """
    known = "unknown" if number is None else number
    return f"{known} {one}" if number == 1 else f"{known} {many or one + 's'}"


def count_of(some: int, total: int, one: str, many: str | None = None) -> str:
    """Some of a whole, with its noun.

    >>> count_of(1, 14, "class", "classes"), count_of(1, 1, "rank")
    ('1 of 14 classes', '1 of 1 rank')
    """
    return f"{some} of {count(total, one, many)}"


def are(number: int) -> str:
    """The verb of a number of things.

    >>> are(1), are(2)
    ('is', 'are')
    """
    return "is" if number == 1 else "are"


def have(number: int) -> str:
    """The verb of a number of things that have something.

    >>> have(1), have(2)
    ('has', 'have')
    """
    return "has" if number == 1 else "have"


def figure(value: float, digits: int = 3) -> str:
    """A number of so many digits, without an exponent where it is large.

    >>> figure(0.01234), figure(12.34), figure(40912.3)
    ('0.0123', '12.3', '40912')
    """
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def decimals(low: float, high: float) -> int:
    """Decimals of an estimate and its range: the last is worth a hundredth to a tenth of the range.

    low, high  the range, in the unit that is printed; where they are equal: four digits, which is
               the most

    >>> decimals(109.166, 122.398), decimals(5.080, 5.546), decimals(0.0, 1.5), decimals(12.5, 12.5)
    (0, 2, 1, 2)
    """
    largest = max(abs(low), abs(high))
    most = 3 - math.floor(math.log10(largest)) if largest > 0 else 0
    if not low < high < math.inf:
        return max(0, most)
    return max(0, min(most, math.ceil(-math.log10((high - low) / 10))))
