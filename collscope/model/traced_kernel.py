"""A kernel that RCCL's kernel trace logged."""

from __future__ import annotations

import msgspec


class TracedKernel(msgspec.Struct, frozen=True):
    """One kernel's work on one rank. Times in ns of the GPU's clock; end None: never printed."""

    process: int
    name: str
    rank: int
    nranks: int | None
    bus_id: int | None
    comm_ptr: int | None
    op_count: int
    start_ns: int
    end_ns: int | None
    blocks: int
    line: int
    # While blocks are joined: place among the work items of a fused kernel, and which block it is.
    item: int = 0
    block: int = 0
    channel: int = 0
