"""`collscope bench memcpy`: its rows, one for each thing measured, whatever the rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from collscope.model import CopyTime
from collscope.parsers.memcpy_csv import HANDLES

SCHEMA = "collscope.memcpy/1"
_WORST = ("wrong", "timeout", "failed", "skipped", "ok")


@dataclass(frozen=True, slots=True)
class CopyRow:
    """One kind of copy of one size, over all rounds.

    Times are of one repetition; the bandwidth is of one direction, GB = 1e9 bytes.
    """

    kind: str
    src_device: int | None  # None: memory of the host
    dst_device: int | None
    direction: str  # one, both
    access: str | None  # peer, none
    size_bytes: int
    time_us: float | None  # median over the rounds of the median over the samples; None: wrong data
    time_us_min: float | None  # shortest sample
    time_us_mad: float | None  # median over the rounds
    bandwidth_gbps: float | None
    n_wrong: int | None  # bytes, of all rounds
    status: str  # the worst of the rounds
    message: str | None
    rounds: int


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What the command prints."""

    label: str | None
    device: str | None
    runtime: str | None
    hostname: str | None
    started: str | None
    rows: tuple[CopyRow, ...]
    schema: str = SCHEMA


def build_copies(copies: Sequence[CopyTime]) -> CopyReport:
    """Rows in the order in which they were first measured."""
    groups: dict[tuple[object, ...], list[CopyTime]] = {}
    for c in copies:
        key = (c.kind, c.src_device, c.dst_device, c.direction, c.size_bytes)
        groups.setdefault(key, []).append(c)
    return CopyReport(
        _first(c.label for c in copies),
        _first(c.device for c in copies),
        _first(c.runtime for c in copies),
        _first(c.hostname for c in copies),
        _first(c.started for c in copies),
        tuple(_row(found) for found in groups.values()),
    )


def _row(found: Sequence[CopyTime]) -> CopyRow:
    first = found[0]
    worst = min(found, key=lambda c: _WORST.index(c.status))
    right = [c for c in found if c.status == "ok"]
    time_us = _median(c.time_us_median for c in right)
    rated = time_us and first.kind not in HANDLES
    shortest = [c.time_us_min for c in right if c.time_us_min is not None]
    wrong = [c.n_wrong for c in found if c.n_wrong is not None]
    return CopyRow(
        first.kind,
        first.src_device,
        first.dst_device,
        first.direction,
        first.access,
        first.size_bytes,
        time_us,
        min(shortest, default=None),
        _median(c.time_us_mad for c in right),
        first.size_bytes / time_us / 1e3 if rated and time_us else None,
        sum(wrong) if wrong else None,
        worst.status,
        worst.message,
        len(found),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value is not None), None)
