"""A collective in a trace; numpy is not loaded for it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from collscope.model.datatype import Datatype
from collscope.model.op import Op


class TraceCollective(msgspec.Struct, frozen=True, array_like=True):
    """The collective of a kernel in a trace; equal ones are one entry of the table.

    Stores hold it as an array: further fields go to the end, with a default.
    """

    op: Op
    datatype: Datatype | None = None
    in_count: int | None = None  # elements this rank puts in
    out_count: int | None = None  # elements this rank gets out
    group: str | None = None  # process group or communicator, as the source names it
    group_size: int | None = None
    group_ranks: tuple[int, ...] | None = None  # world ranks
    redop: str | None = None
    root: int | None = None
    peer: int | None = None  # of a Send or Recv
    in_split: tuple[int, ...] = ()  # elements per peer of an uneven all-to-all
    out_split: tuple[int, ...] = ()
    algorithm: str | None = None
    protocol: str | None = None
    description: str | None = None  # of the group: what the program calls it, as mesh_tp
    blocks: int | None = None  # thread blocks of its kernel: so many multiprocessors it holds
    count_bytes: int | None = None  # of the API's count argument, where no elements are known


def shows_cpu_activities(collectives: Iterable[TraceCollective]) -> bool:
    """Whether collectives show that PyTorch's profiler recorded the host's side.

    Only that has elements and groups. Not all of its versions do: a trace with operators of the
    host has it as well.
    """
    return any(
        c.in_count is not None or c.out_count is not None or c.group is not None
        for c in collectives
    )
