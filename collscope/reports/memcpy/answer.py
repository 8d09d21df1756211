"""What `collscope bench memcpy` measured: one row for each kind and size, over all rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Annotated

import msgspec

from collscope.model import CopyTime
from collscope.parsers.memcpy_csv import HANDLES
from collscope.units import in_ns

SCHEMA = "collscope.memcpy/2"
_WORST = ("wrong", "timeout", "failed", "contradictory", "skipped", "ok")


class CopyRow(msgspec.Struct, frozen=True):
    """One kind of copy of one size, over all rounds.

    Times are of one repetition; the bandwidth is of one direction, GB = 1e9 bytes.
    """

    kind: str  # see memcpy-csv.md
    src_device: int | None  # GPU copied from; None: memory of the host
    dst_device: int | None  # GPU copied to; None: memory of the host
    # one; both: two copies at once, in opposite directions
    direction: Annotated[str, ("one", "both")]
    access: str | None  # peer, none; None: does not apply
    size_bytes: int  # of one copy in one direction
    # of one repetition: median over the rounds of the median over the samples
    time_ns: float | None
    time_min_ns: float | None  # shortest sample
    time_mad_ns: float | None  # median absolute deviation of the samples, median over the rounds
    bandwidth_gbps: float | None  # of one direction, GB = 1e9 bytes; None where nothing is copied
    n_wrong: int | None  # wrong bytes of all rounds; None: not checked
    # the worst of the rounds
    status: Annotated[str, ("ok", "wrong", "failed", "timeout", "skipped", "contradictory")]
    message: str | None  # the runtime's message
    rounds: int  # times measured


class CopyReport(msgspec.Struct, frozen=True):
    """What the command prints."""

    label: str | None  # what was measured
    device: str | None  # GPU, or processor
    runtime: str | None  # name and version of the GPU runtime, or of MPI
    hostname: str | None  # host
    started: str | None  # when the first row was, UTC
    rows: tuple[CopyRow, ...]  # what was measured
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
        in_ns(time_us),
        in_ns(min(shortest, default=None)),
        in_ns(_median(c.time_us_mad for c in right)),
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
