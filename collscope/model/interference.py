"""Compute and collectives measured at the same time."""

from __future__ import annotations

import msgspec

from collscope.model.datatype import Datatype
from collscope.model.op import Op


class Interference(msgspec.Struct, frozen=True):
    """What one rank's computation and a class of collectives cost each other on one machine.

    Times are medians over rounds, in microseconds: of the computation's batch, and of one call.
    `relative_compute` is performance with calls over performance alone, `relative_busbw` the
    same of the calls; each round is held against the baselines before and after it.
    """

    op: Op
    datatype: Datatype | None = None
    redop: str | None = None
    count: int | None = None
    size_bytes: int | None = None
    in_place: bool | None = None
    shape: str | None = None
    nranks: int | None = None
    nnodes: int | None = None
    rank: int | None = None  # of the plan
    backend: str | None = None
    compute: str | None = None  # gemm, kernel, host-thread
    compute_description: str | None = None
    channels: str | None = None  # as the launch set them; None: the library's choice
    priority: str | None = None  # of the calls' stream: high, normal
    compute_alone_us: float | None = None
    compute_with_us: float | None = None
    relative_compute: float | None = None
    relative_compute_mad: float | None = None
    relative_compute_noise: float | None = None  # see schemas/interference-csv.md
    comm_alone_us: float | None = None
    comm_with_us: float | None = None
    relative_busbw: float | None = None
    relative_busbw_mad: float | None = None
    relative_busbw_noise: float | None = None
    busbw_alone_gbps: float | None = None
    busbw_with_gbps: float | None = None
    samples: int | None = None  # rounds taken
    covered: int | None = None  # of them, those that count
    multiprocessors: int | None = None
    device: str | None = None
    library: str | None = None
    runtime: str | None = None
    host: str | None = None
    environment: str | None = None
    status: str = "ok"  # ok, wrong, failed, timeout, uncovered, contradictory
    message: str | None = None
    label: str | None = None
    round: int | None = None
    relative_compute_samples: tuple[float, ...] = ()  # of the rounds that count
    relative_busbw_samples: tuple[float, ...] = ()
    line: int | None = None
