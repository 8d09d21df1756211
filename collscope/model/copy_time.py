"""Plain copies, timed."""

from __future__ import annotations

import msgspec


class CopyTime(msgspec.Struct, frozen=True):
    """What one copy of one size took; kinds as in schemas/memcpy-csv.md.

    Times are of one repetition in microseconds, bandwidths of one direction (GB = 1e9 bytes).
    """

    kind: str
    size_bytes: int  # of one copy in one direction
    label: str | None = None
    round: int | None = None
    src_device: int | None = None  # None: memory of the host
    dst_device: int | None = None
    direction: str = "one"  # one, both
    access: str | None = None  # peer, none; None: does not apply
    time_us_median: float | None = None
    time_us_min: float | None = None
    time_us_max: float | None = None
    time_us_mad: float | None = None
    iterations: int | None = None
    bandwidth_gbps: float | None = None  # None: nothing is copied, or not measured
    n_wrong: int | None = None  # bytes; None: not checked
    checked: str | None = None  # all, sample
    status: str = "ok"  # ok, wrong, failed, timeout, skipped, contradictory
    message: str | None = None
    device: str | None = None
    runtime: str | None = None  # of the GPU, else the MPI; name and version
    hostname: str | None = None
    started: str | None = None  # UTC, ISO 8601
    line: int | None = None
    samples_us: tuple[float, ...] = ()
