"""The vocabulary: enumerations in the libraries' spelling, and the records parsers give out.

None always means "not in the source". Pointers are ints; times of records are integer ns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Op(Enum):
    """Operation of a call, in the library's spelling."""

    ALL_REDUCE = "AllReduce"
    ALL_GATHER = "AllGather"
    REDUCE_SCATTER = "ReduceScatter"
    BROADCAST = "Broadcast"
    REDUCE = "Reduce"
    ALL_TO_ALL = "AllToAll"
    ALL_TO_ALLV = "AllToAllv"
    GATHER = "Gather"
    SCATTER = "Scatter"
    SEND = "Send"
    RECV = "Recv"
    SEND_RECV = "SendRecv"
    ALL_GATHERV = "AllGatherV"
    PUT_SIGNAL = "PutSignal"
    SIGNAL = "Signal"
    WAIT_SIGNAL = "WaitSignal"
    BARRIER = "Barrier"
    SEQUENCE = "Sequence"  # all steps of a replay in order; no library's operation
    UNKNOWN = "Unknown"

    @property
    def rooted(self) -> bool:
        """True where one rank has another role than the rest."""
        return self in _ROOTED

    @property
    def reduces(self) -> bool:
        """True where the elements of several ranks become one."""
        return self in _REDUCING

    @property
    def point_to_point(self) -> bool:
        """True for one rank's half of a transfer."""
        return self in (Op.SEND, Op.RECV)


_ROOTED = {Op.BROADCAST, Op.REDUCE, Op.GATHER, Op.SCATTER}
_REDUCING = {Op.ALL_REDUCE, Op.REDUCE_SCATTER, Op.REDUCE}

# Spellings found in logs, lower case, against ours. Sources: ncclInfo.opName of NVIDIA/nccl and
# ROCm/rccl (enqueue.cc, collectives.cc), mscclFunc names of ROCm/rccl msccl_lifecycle.cc.
_OP_SPELLINGS = {
    **{op.value.lower(): op for op in Op},
    "alltoallpivot": Op.ALL_TO_ALL,
    "bcast": Op.BROADCAST,
    "allreducewithbias": Op.ALL_REDUCE,
}


def parse_op(name: str) -> Op:
    """Operation of a logged name; prefixes of MSCCL, MSCCL++ and the API are dropped.

    >>> parse_op("mscclFuncAllReduce"), parse_op("AlltoAll")
    (<Op.ALL_REDUCE: 'AllReduce'>, <Op.ALL_TO_ALL: 'AllToAll'>)
    """
    lower = name.lower()
    for prefix in ("mscclpp_", "mscclfunc", "nccl"):
        lower = lower.removeprefix(prefix)
    return _OP_SPELLINGS.get(lower, Op.UNKNOWN)


class Datatype(Enum):
    """Element type; `code` is ncclDataType_t's value (nccl.h, rccl.h; equal on both sides)."""

    label: str
    code: int
    itemsize: int | None

    INT8 = ("Int8", 0, 1)
    UINT8 = ("Uint8", 1, 1)
    INT32 = ("Int32", 2, 4)
    UINT32 = ("Uint32", 3, 4)
    INT64 = ("Int64", 4, 8)
    UINT64 = ("Uint64", 5, 8)
    FLOAT16 = ("Float16", 6, 2)
    FLOAT32 = ("Float32", 7, 4)
    FLOAT64 = ("Float64", 8, 8)
    BFLOAT16 = ("Bfloat16", 9, 2)
    FLOAT8E4M3 = ("Float8e4m3", 10, 1)
    FLOAT8E5M2 = ("Float8e5m2", 11, 1)
    UNKNOWN = ("Unknown", -1, None)

    def __init__(self, label: str, code: int, itemsize: int | None) -> None:
        """Name printed and stored, value in the library's enumeration, bytes of one element."""
        self.label = label
        self.code = code
        self.itemsize = itemsize  # None when the type is unknown


DATATYPE_BY_CODE = {d.code: d for d in Datatype if d is not Datatype.UNKNOWN}


def datatype_of(code: int) -> Datatype:
    """Datatype of a logged code; `Datatype.UNKNOWN` for a code no known release defines."""
    return DATATYPE_BY_CODE.get(code, Datatype.UNKNOWN)


class Redop(Enum):
    """Reduction; `code` is ncclRedOp_t's value (note 2 is Max and 3 is Min)."""

    label: str
    code: int

    SUM = ("Sum", 0)
    PROD = ("Prod", 1)
    MAX = ("Max", 2)
    MIN = ("Min", 3)
    AVG = ("Avg", 4)
    CUSTOM = ("Custom", 5)

    def __init__(self, label: str, code: int) -> None:
        """Name printed and stored, value in the library's enumeration."""
        self.label = label
        self.code = code  # from 5 on every value is a custom operator


def redop_of(code: int) -> Redop:
    """Reduction of a logged code; 5 and above are created at run time (PreMulSum): Custom."""
    return next((r for r in Redop if r.code == code), Redop.CUSTOM)


class Severity(Enum):
    """How bad a diagnostic is."""

    INFO = "info"
    NOTICE = "notice"
    DATA_LOSS = "data_loss"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One kind of content problem in one source, counted."""

    severity: Severity
    code: str  # stable snake_case name, for instance "torn_line"
    message: str  # one sentence for people
    line: int | None = None  # first line it was seen at, 1-based
    excerpt: str | None = None  # that line, at most 200 characters
    count: int = 1


@dataclass(frozen=True, slots=True)
class CommInit:
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
    traced: bool = False  # from a CALL trace, beside which the other two lines may stand


@dataclass(frozen=True, slots=True)
class CommTopology:
    """One rank's "rank R nRanks N nNodes M localRanks L localRank l" line."""

    process: int
    line: int
    comm_ptr: int
    rank: int
    nranks: int
    nnodes: int
    local_ranks: int
    local_rank: int


@dataclass(frozen=True, slots=True)
class CommEnd:
    """A communicator's Destroy, Abort or Revoke line on one rank."""

    process: int
    line: int
    comm_ptr: int
    how: str  # Destroy, Abort, Revoke


@dataclass(frozen=True, slots=True)
class Link:
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


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment or configuration value that the library reported using."""

    process: int | None
    line: int
    name: str
    value: str
    origin: str  # environment, config, invalid


@dataclass(frozen=True, slots=True)
class LibraryVersion:
    """A version line. `component` is nccl, rccl, cuda, hip, rocm, driver, or librccl_path."""

    process: int | None
    line: int
    component: str
    version: str


@dataclass(frozen=True, slots=True)
class Fact:
    """Another statement worth keeping: network in use, plugin, channel count, warning."""

    process: int | None
    line: int
    kind: str  # network, net_plugin, tuner_plugin, channels, nvls, warning, error, …
    value: str


LogRecord = CommInit | CommTopology | CommEnd | Link | Setting | LibraryVersion | Fact


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """One row of a profile's "top" table: all executions of one kernel or copy."""

    name: str
    calls: int
    total_ns: int
    min_ns: int | None = None
    max_ns: int | None = None
    device: str | None = None
    kind: str = "kernel"  # kernel or copy
    reported_percentage: float | None = None  # as the source printed it


@dataclass(frozen=True, slots=True)
class KernelSpan:
    """One execution of a kernel on one device."""

    name: str
    start_ns: int
    end_ns: int
    device: str | None = None
    stream: str | None = None
    kind: str = "kernel"  # kernel or copy


@dataclass(frozen=True, slots=True)
class Profile:
    """What one profile holds: totals always, spans where the source has them."""

    dialect: str  # rpd, rocpd, nsys, rocprof_v1_stats, rocprofv3_stats, rocprofv3_trace, top_text
    totals: tuple[KernelTotal, ...]
    spans: tuple[KernelSpan, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one class of collectives took on one machine with one setting.

    Times are of the slowest rank and one call, in microseconds; bandwidths are as nccl-tests
    defines them (GB = 1e9 bytes).
    """

    op: Op
    datatype: Datatype | None = None
    redop: str | None = None  # Redop's label
    root: int | None = None
    count: int | None = None  # elements as the API takes it
    size_bytes: int | None = None  # nccl-tests size S
    in_place: bool | None = None
    nranks: int | None = None
    nnodes: int | None = None
    shape: str | None = None  # point-to-point shape: alltoall, alltoallv, gather, scatter, shift, …
    calls: int | None = None  # of the class in the run it was planned from
    time_us_median: float | None = None
    time_us_min: float | None = None
    time_us_max: float | None = None
    time_us_mad: float | None = None
    iterations: int | None = None
    algbw_gbps: float | None = None
    busbw_gbps: float | None = None
    reported_busbw_gbps: float | None = None  # as a foreign tool printed it; never used
    n_wrong: int | None = None  # None: not checked
    checked: str | None = None  # all, sample
    method: str | None = None  # batch, graph, isolated, sequence, or what a foreign tool does
    backend: str | None = None  # cuda, hip, host
    library: str | None = None  # name and version
    device: str | None = None
    host: str | None = None
    status: str = "ok"  # ok, wrong, failed, timeout, skipped
    message: str | None = None
    label: str | None = None  # setting, library or machine; None: that of the ingest
    round: int | None = None  # of settings measured in turns
    scaled_from: int | None = None  # ranks of the job, where fewer were measured
    samples_us: tuple[float, ...] = ()
    line: int | None = None


@dataclass(frozen=True, slots=True)
class MeasurementSet:
    """What one table or CSV of measurements holds."""

    dialect: str
    measurements: tuple[Measurement, ...]
    library: str | None = None  # nccl or rccl, where the source tells
    library_version: str | None = None
    lines: int | None = None
    diagnostics: tuple[Diagnostic, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Interference:
    """What one rank's computation and a class of collectives cost each other on one machine.

    Times are medians over rounds, in microseconds: of the computation's batch, and of one call.
    `relative_compute` is performance beside calls over performance alone, `relative_busbw` the
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
    status: str = "ok"  # ok, wrong, failed, timeout, uncovered
    message: str | None = None
    label: str | None = None
    round: int | None = None
    relative_compute_samples: tuple[float, ...] = ()  # of the rounds that count
    relative_busbw_samples: tuple[float, ...] = ()
    line: int | None = None


@dataclass(frozen=True, slots=True)
class InterferenceSet:
    """What an interference CSV holds."""

    dialect: str
    measurements: tuple[Interference, ...]
    library: str | None = None  # nccl or rccl, where the source tells
    library_version: str | None = None
    lines: int | None = None
    diagnostics: tuple[Diagnostic, ...] = field(default=())
