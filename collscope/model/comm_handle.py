"""What one rank of a process saw of one communicator, and that process."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class CommHandle(msgspec.Struct, frozen=True):
    """One communicator as one rank of one process saw it. None: not in the source."""

    process: int  # index of the process; unique within what is matched together
    comm_ptr: int
    generation: int
    first_line: int
    rank: int | None = None
    nranks: int | None = None
    nnodes: int | None = None
    cuda_dev: int | None = None
    nvml_dev: int | None = None
    bus_id: int | None = None
    comm_hash: int | None = None
    parent_ptr: int | None = None
    split_count: int | None = None
    color: int | None = None
    key: int | None = None
    function: str | None = None
    global_rank: int | None = None
    last_line: int | None = None  # of its calls


class Process(NamedTuple):
    """A process of a run's logs."""

    host: str
    pid: int | None = None
    source: int = 0  # the log that it is in
