"""Records of the libraries' logs."""

from __future__ import annotations

import msgspec


class CommInit(msgspec.Struct, frozen=True):
    """One rank's "Init START" or "Init COMPLETE" line, or the CALL line of the same."""

    process: int  # index into the scan's processes
    line: int
    comm_ptr: int
    rank: int
    nranks: int
    complete: bool
    function: str | None = None  # ncclCommInitRank, ncclCommSplit, ncclCommShrink, …
    cuda_dev: int | None = None
    nvml_dev: int | None = None
    bus_id: int | None = None  # packed: domain<<20 | bus<<12 | device<<4 | function
    comm_hash: int | None = None  # printed commId, unsigned 64 bit
    parent_ptr: int | None = None
    split_count: int | None = None  # splitCount or childCount
    color: int | None = None
    key: int | None = None
    traced: bool = False  # from a CALL trace, next to which the other two lines may be


class CommTopology(msgspec.Struct, frozen=True):
    """One rank's "rank R nRanks N nNodes M localRanks L localRank l" line."""

    process: int
    line: int
    comm_ptr: int
    rank: int
    nranks: int
    nnodes: int
    local_ranks: int
    local_rank: int


class CommEnd(msgspec.Struct, frozen=True):
    """A communicator's Destroy, Abort or Revoke line on one rank."""

    process: int
    line: int
    comm_ptr: int
    how: str  # Destroy, Abort, Revoke


class Link(msgspec.Struct, frozen=True):
    """One channel connection of one rank ("Channel 00/0 : 1[1] -> 2[2] via …")."""

    process: int
    line: int
    channel: int
    src_rank: int
    dst_rank: int
    transport: str  # P2P/CUMEM, P2P/IPC, P2P/direct pointer, SHM/direct, NET/IB, COLLNET/…
    connection: int | None = None  # connIndex after the channel
    direction: str | None = None  # send, receive, or None for intra-node lines
    net: str | None = None  # NET plugin's name: IB, Socket, AWS Libfabric, …
    net_dev: int | None = None
    gdr: bool | None = None  # GDRDMA used; None when not a NET link
    comm_ptr: int | None = None  # RCCL only


class Setting(msgspec.Struct, frozen=True):
    """An environment or configuration value that the library reported using."""

    process: int | None
    line: int
    name: str
    value: str
    origin: str  # environment, config, invalid


class LibraryVersion(msgspec.Struct, frozen=True):
    """A version line. `component` is nccl, rccl, cuda, hip, rocm, driver, or librccl_path."""

    process: int | None
    line: int
    component: str
    version: str


class Fact(msgspec.Struct, frozen=True):
    """Another statement worth keeping: network in use, plugin, channel count, warning."""

    process: int | None
    line: int
    kind: str  # network, net_plugin, tuner_plugin, channels, nvls, warning, error, …
    value: str


LogRecord = CommInit | CommTopology | CommEnd | Link | Setting | LibraryVersion | Fact
