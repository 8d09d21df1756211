"""One line of each dialect of the rarer NCCL and RCCL messages, with what it says.

Lines of real logs where one was at hand, otherwise built from the library's format string; the
version is above them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collscope.model import CommEnd, CommInit, Fact, LogRecord
from collscope.model.scanned_log import LogMessages
from collscope.parsers.nccl_log import MessageKind

LINK_FIELDS = (
    *("channel", "src_rank", "dst_rank", "transport", "connection"),
    *("direction", "net", "net_dev", "gdr", "comm_ptr"),
)
LINKS: dict[str, tuple[object, ...]] = {
    # NCCL 2.4
    "Ring 01 : 0[0] -> 1[1] via P2P/IPC": (1, 0, 1, "P2P/IPC"),
    "Ring 00 : 3[3] -> 4[4] via direct shared memory": (0, 3, 4, "SHM/direct"),
    "Ring 00 : 1 -> 2 [send] via NET/Socket/0": (
        *(0, 1, 2, "NET/Socket", None, "send"),
        *("Socket", 0, False),
    ),
    # NCCL 2.12
    "Channel 00 : 6[d00000] -> 7[e00000] via P2P/direct pointer/read": (
        *(0, 6, 7, "P2P/direct pointer"),
    ),
    "Channel 01 : 7[d0000] -> 2[4a000] [send] via NET/IB/3/GDRDMA": (
        *(1, 7, 2, "NET/IB", None, "send"),
        *("IB", 3, True),
    ),
    "Channel 01 : 0[1000] -> 3[4000] via P2P/indirect/2[3000]/read": (1, 0, 3, "P2P/indirect"),
    "Coll 00 : 3 [send] via COLLNET/SHARP/0/GDRDMA": (
        *(0, 3, 3, "COLLNET/SHARP", None, "send"),
        *("SHARP", 0, True),
    ),
    # NCCL 2.13 to 2.16
    "Channel 02/0 : 1[1a000] -> 0[17000] via SHM/CE/direct": (2, 1, 0, "SHM/CE/direct", 0),
    "Channel 02/1 : 1[1a000] -> 0[17000] via SHM/direct/direct": (2, 1, 0, "SHM/direct", 1),
    # NCCL 2.18 and later
    "Channel 23/1 : 3[3] -> 1[1] via P2P/CUMEM/read": (23, 3, 1, "P2P/CUMEM", 1),
    "Channel 00/0 : 3[3] -> 1[1] via P2P/IPC/CE": (0, 3, 1, "P2P/IPC/CE", 0),
    "Channel 00/0 : 35[3] -> 71[1] via P2P/MNNVL": (0, 35, 71, "P2P/MNNVL", 0),
    "Channel 00/0 : 7[3] -> 0[0] [send] via NET/IBext/0(4)/GDRDMA": (
        *(0, 7, 0, "NET/IBext", 0, "send"),
        *("IBext", 0, True),
    ),
    "Channel 03/0 : 8[0] -> 7[7] [receive] via NET/AWS Libfabric/2/GDRDMA": (
        *(3, 8, 7, "NET/AWS Libfabric", 0, "receive"),
        *("AWS Libfabric", 2, True),
    ),
    "Channel 01/1 : 2[0] -> 0[0] [receive] via NET/NCCL RDMA Plugin v10/11/Shared": (
        *(1, 2, 0, "NET/NCCL RDMA Plugin v10", 1, "receive"),
        *("NCCL RDMA Plugin v10", 11, False),
    ),
    # NCCL 2.27
    "Channel 01/0 : 2[0] -> 0[0] [send] via NET/IB/1(5)/GDRDMA(PCI)/Shared": (
        *(1, 2, 0, "NET/IB", 0, "send"),
        *("IB", 1, True),
    ),
    "CollNet 00/0 : 3 [receive] via COLLNET/SHARP/1/GDRDMA(PCI)": (
        *(0, 3, 3, "COLLNET/SHARP", 0, "receive"),
        *("SHARP", 1, True),
    ),
    # RCCL 2.22
    "Channel 07/0 : 12[f7000] -> 4[f7000] [receive] via NET/IB/4/GDRDMA comm 0x3d1e26e0"
    " nRanks 16": (
        *(7, 12, 4, "NET/IB", 0, "receive"),
        *("IB", 4, True, 0x3D1E26E0),
    ),
    "Channel 00/0 : 1[e7000] -> 0[77000] via P2P/IPC comm 0x6ce40830 nRanks 08": (
        *(0, 1, 0, "P2P/IPC", 0, None),
        *(None, None, None, 0x6CE40830),
    ),
}


def init(ptr: int, rank: int, nranks: int, complete: bool, **more: object) -> CommInit:
    return CommInit(3, 8, ptr, rank, nranks, complete, **more)  # type: ignore[arg-type]


INITS = {
    # NCCL 2.4
    "comm 0x7f28a4000c90 rank 0 nranks 2 cudaDev 0 nvmlDev 1 - Init COMPLETE": init(
        0x7F28A4000C90, 0, 2, True, cuda_dev=0, nvml_dev=1
    ),
    # NCCL 2.12
    "comm 0x7fc2f8008fb0 rank 5 nranks 8 cudaDev 5 busId b00000 - Init COMPLETE": init(
        0x7FC2F8008FB0, 5, 8, True, cuda_dev=5, bus_id=0xB00000
    ),
    # NCCL 2.18
    "comm 0x55d rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId db000 commId 0xb9f7c04785db89e1"
    " - Init START": init(
        *(0x55D, 3, 8, False),
        **{"cuda_dev": 3, "nvml_dev": 3, "bus_id": 0xDB000, "comm_hash": 0xB9F7C04785DB89E1},
    ),
    # NCCL 2.21, split with commId
    "ncclCommSplit comm 0x55d rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 4f000 parent 0x44c"
    " color 1 key 3 commId 0x12 - Init COMPLETE": init(
        *(0x55D, 1, 2, True),
        function="ncclCommSplit",
        **{"cuda_dev": 1, "nvml_dev": 1, "bus_id": 0x4F000, "comm_hash": 0x12},
        **{"parent_ptr": 0x44C, "color": 1, "key": 3},
    ),
    # NCCL 2.28, split: no commId and no blank before the dash
    "ncclCommSplit comm 0x1d977590 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 parent 0x15fc9550"
    " splitCount 1 color 0 key -4- Init START": init(
        *(0x1D977590, 0, 2, False),
        function="ncclCommSplit",
        **{"cuda_dev": 0, "nvml_dev": 0, "bus_id": 0x60},
        **{"parent_ptr": 0x15FC9550, "split_count": 1, "color": 0, "key": -4},
    ),
    # NCCL 2.29
    "[Rank 0] ncclCommInitRankConfig comm 0x15 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 60"
    " commId 0xe1 - Init START": init(
        *(0x15, 0, 4, False),
        function="ncclCommInitRankConfig",
        **{"cuda_dev": 0, "nvml_dev": 0, "bus_id": 0x60, "comm_hash": 0xE1},
    ),
    "ncclCommShrink comm 0x15 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 60 parent 0x16"
    " childCount 2 color 7 key 0 - Init COMPLETE": init(
        *(0x15, 0, 4, True),
        function="ncclCommShrink",
        **{"cuda_dev": 0, "nvml_dev": 0, "bus_id": 0x60},
        **{"parent_ptr": 0x16, "split_count": 2, "color": 7, "key": 0},
    ),
    # RCCL
    "ncclCommInitRank comm 0xfe08fa0 rank 170 nranks 256 cudaDev 2 nvmlDev 4 busId c9000 commId"
    " 0xc2f42310f0fc7fea localSize 296 used 368870624 bytes on core 19 - Init COMPLETE": init(
        *(0xFE08FA0, 170, 256, True),
        function="ncclCommInitRank",
        **{"cuda_dev": 2, "nvml_dev": 4, "bus_id": 0xC9000, "comm_hash": 0xC2F42310F0FC7FEA},
    ),
    "ncclCommInitRankConfig_impl comm 0xf rank 0 nranks 2 cudaDev 0 nvmlDev 0"
    " busId ffffffffffffffff commId 0x9 - Init START": init(
        *(0xF, 0, 2, False),
        function="ncclCommInitRankConfig",
        **{"cuda_dev": 0, "nvml_dev": 0, "comm_hash": 9},
    ),
}
ENDS = {
    # RCCL 2.22, NCCL 2.12
    "comm 0x6cee3330 rank 3 nranks 16 cudaDev 3 busId 17000 - Destroy COMPLETE": "Destroy",
    "comm 0x6cee3330 rank 3 nranks 16 cudaDev 3 busId 17000 - Abort COMPLETE": "Abort",
    # NCCL 2.28
    "comm 0x6cee3330 rank 3 nRanks 16 cudaDev 3 busId 17000 - Abort START": "Abort",
    "comm 0x6cee3330 rank 3 nRanks 16 cudaDev 3 busId 17000 - Revoke COMPLETE, result 0": "Revoke",
    "CommRevokeAsync START comm 0x6cee3330 rank 3 nRanks 16": "Revoke",
}

TOPOLOGY = "comm 0x3d1e26e0 rank 4 nRanks 16 nNodes 2 localRanks 8 localRank 4 MNNVL 0"

MISC: dict[str, LogRecord] = {
    # CALL trace, NCCL 2.15 and 2.18
    "ncclCommInitRank(0x7f2, 4, 0xe14770a474f583a5, 1, 3)": CommInit(
        *(0, 1, 0x7F2, 1, 4, True, "ncclCommInitRank", 3), comm_hash=0xE14770A474F583A5, traced=True
    ),
    "ncclCommInitRank(0x7f2,4,0xe1,1,3)": CommInit(
        *(0, 1, 0x7F2, 1, 4, True, "ncclCommInitRank", 3), comm_hash=0xE1, traced=True
    ),
    "ncclCommSplit(0x15f, 1, -2, 0x7f2, 1, 2)": CommInit(
        *(0, 1, 0x7F2, 1, 2, True, "ncclCommSplit"), parent_ptr=0x15F, color=1, key=-2, traced=True
    ),
    "ncclCommDestroy(0x7f2)": CommEnd(0, 1, 0x7F2, "Destroy"),
    # NCCL 2.28 and RCCL 2.22
    "Init timings - ncclCommSplit: rank 0 nranks 2 total 0.04 (kernels 0.00)": Fact(
        0, 1, "init_timings", "ncclCommSplit: rank 0 nranks 2 total 0.04 (kernels 0.00)"
    ),
    "Init timings: rank 0 nranks 2 total 0.04 (kernels 0.00)": Fact(
        0, 1, "init_timings", "rank 0 nranks 2 total 0.04 (kernels 0.00)"
    ),
    "Bootstrap : Using eno1:10.0.0.1<0>": Fact(0, 1, "bootstrap", "eno1:10.0.0.1<0>"),
    "Bootstrap: Using eth0:10.0.0.1<0>": Fact(0, 1, "bootstrap", "eth0:10.0.0.1<0>"),
}

SETTINGS = {
    "NCCL_MIN_CTAS set by environment to 32.": ("NCCL_MIN_CTAS", "32", "environment"),
    "NCCL_IB_SPLIT set by environment to -1.": ("NCCL_IB_SPLIT", "-1", "environment"),
    "NCCL_ALGO set by environment to Ring": ("NCCL_ALGO", "Ring", "environment"),
    "NCCL_TOPO_FILE set by environment to /etc/a b.xml.": (
        *("NCCL_TOPO_FILE", "/etc/a b.xml.", "environment"),
    ),
    "RCCL_KERNEL_COLL_TRACE_ENABLE set by environment to 1.": (
        *("RCCL_KERNEL_COLL_TRACE_ENABLE", "1", "environment"),
    ),
    "NCCL_SOCKET_IFNAME set to eno1": ("NCCL_SOCKET_IFNAME", "eno1", "environment"),
    "Comm config Blocking set to 1": ("Blocking", "1", "config"),
    "Comm config Net name set to AWS Libfabric": ("Net name", "AWS Libfabric", "config"),
    "Comm config cgaClusterSize reset to NCCL_MAX_CGA_CLUSTER_SIZE=4": (
        *("NCCL_MAX_CGA_CLUSTER_SIZE", "4", "environment"),
    ),
    "Invalid value 99999999999999999999 for NCCL_BUFFSIZE, using default -2.": (
        *("NCCL_BUFFSIZE", "-2", "invalid"),
    ),
}

VERSIONS = {
    "NCCL version 2.27.7+cuda12.4": [("nccl", "2.27.7"), ("cuda", "12.4")],
    "[2025-06-01 10:11:12] NCCL version 2.28.9+cuda13.0": [("nccl", "2.28.9"), ("cuda", "13.0")],
    "NCCL version 2.10.3+cudaCUDA_MAJOR.CUDA_MINOR": [("nccl", "2.10.3")],
    "NCCL git version stable dcf2a2fbe": [("nccl_git", "stable dcf2a2fbe")],
    "RCCL version : 2.22.3-HEAD:271856d": [("rccl", "2.22.3-HEAD:271856d")],
    "RCCL version 2.18.3+hip6.0 HEAD:2f6d59e+": [("rccl", "2.18.3-HEAD:2f6d59e+"), ("hip", "6.0")],
    "HIP version  : 6.4.43482-0f2d60242": [("hip", "6.4.43482-0f2d60242")],
    "ROCm version : 6.4.0.0-47-73dae9c": [("rocm", "6.4.0.0-47-73dae9c")],
    "Librccl path : /opt/rocm/lib/librccl.so.1": [("librccl_path", "/opt/rocm/lib/librccl.so.1")],
    "cudaDriverVersion 12020": [("driver", "12.2")],
    "cudaDriverVersion 60443482": [("driver", "6.4.43482")],
}

FACTS = {
    (MessageKind.NET, "Using network IBext"): ("network", "IBext"),
    (MessageKind.NET, "Using internal Network Socket"): ("network", "Socket"),
    (MessageKind.NET, "NET/IB : Using [0]mlx5_0:1/IB/SHARP [RO]; OOB eno1:10.0.0.1<0>"): (
        *("net_devices", "IB: [0]mlx5_0:1/IB/SHARP [RO]; OOB eno1:10.0.0.1<0>"),
    ),
    (MessageKind.NET, "NET/IB : No device found."): ("net_devices", "IB: No device found"),
    (MessageKind.NET, "NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'"): (
        *("gdr_disabled", "Socket: for HCA 0 'eth0'"),
    ),
    (MessageKind.NET, "NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 0 'rocep1s0f0'"): (
        *("gdr_enabled", "IB: for HCA 0 'rocep1s0f0'"),
    ),
    (MessageKind.NET, "NET/Plugin: Loaded net plugin Libfabric (v10)"): (
        *("net_plugin", "Loaded net plugin Libfabric (v10)"),
    ),
    (MessageKind.NET, "NET/OFI Selected provider is efa, fabric is efa (found 3 nics)"): (
        *("net_plugin", "OFI Selected provider is efa, fabric is efa (found 3 nics)"),
    ),
    (MessageKind.NET, "Assigned NET plugin Socket to comm"): (
        *("net_plugin", "Assigned NET plugin Socket to comm"),
    ),
    (MessageKind.NET, "TUNER/Plugin: Using tuner plugin libx.so"): (
        *("tuner_plugin", "Using tuner plugin libx.so"),
    ),
    (MessageKind.NET, "Using tuner plugin libx.so"): (
        *("tuner_plugin", "Using tuner plugin libx.so"),
    ),
    (MessageKind.NET, "PROFILER/Plugin: loaded libp.so"): ("profiler_plugin", "loaded libp.so"),
    (MessageKind.WARNING, "transport/net_ib.cc:667 NCCL WARN NET/IB : Got completion 12"): (
        *("warning", "net_ib.cc:667: NET/IB : Got completion 12"),
    ),
    # A path with a blank cannot be told from the text; the message stays whole.
    (MessageKind.WARNING, "/a/b c:9 (ncclIbTest) NCCL WARN x"): (
        *("warning", "/a/b c:9 (ncclIbTest) NCCL WARN x"),
    ),
    (MessageKind.WARNING, "src/init.cc:9 (ncclIbTest) NCCL WARN Cuda failure 'x'"): (
        *("warning", "init.cc:9: Cuda failure 'x'"),
    ),
    # NCCL 2.31; the level of the third is told by development commits in two ways
    (MessageKind.WARNING, "src/graph/topo.cc:12 NCCL ATTN NIC mlx5_0 runs at half its width"): (
        *("attention", "topo.cc:12: NIC mlx5_0 runs at half its width"),
    ),
    (MessageKind.NET, "NET/IB: WQE slow: peer=10.0.0.2<4321> | local: qpn=7 dev=mlx5_0"): (
        *("wqe_slow", "WQE slow: peer=10.0.0.2<4321> | local: qpn=7 dev=mlx5_0"),
    ),
    (MessageKind.WARNING, "src/net_ib/lat.cc:9 NCCL WARN NET/IB: WQE stall (no CQE): peer=1"): (
        *("wqe_stall", "WQE stall (no CQE): peer=1"),
    ),
    (MessageKind.WARNING, "Missing file:line"): ("warning", "Missing file:line"),
    (MessageKind.WARNING, "[FATAL ERROR]: no device"): ("fatal", "no device"),
    (MessageKind.ERROR, "/b/src/transport/net_ib.cc:89 -> 2"): ("error", "net_ib.cc:89 -> 2"),
    (MessageKind.ERROR, "proxy.cc:1458 -> 3 [Proxy Thread]"): (
        *("error", "proxy.cc:1458 -> 3 [Proxy Thread]"),
    ),
    (MessageKind.STRUCTURE, "16 coll channels, 0 nvls channels, 16 p2p channels"): (
        *("channels", "16 coll channels, 0 nvls channels, 16 p2p channels"),
    ),
    (MessageKind.STRUCTURE, "Connected all rings, use ring PXN 0 GDR 1"): (
        *("connected", "all rings, use ring PXN 0 GDR 1"),
    ),
    (MessageKind.STRUCTURE, "NVLS multicast support is not available on dev 0"): (
        *("nvls", "multicast support is not available on dev 0"),
    ),
    (MessageKind.STRUCTURE, "P2P Chunksize set to 131072"): ("p2p_chunksize", "131072"),
    (MessageKind.STRUCTURE, "MSCCL: Initialization finished, localSize 1024"): (
        *("msccl", "MSCCL: Initialization finished, localSize 1024"),
    ),
}

SAMPLES = {
    MessageKind.INIT: [*INITS, *ENDS],
    MessageKind.TOPOLOGY: [TOPOLOGY],
    MessageKind.LINK: list(LINKS),
    MessageKind.SETTING: list(SETTINGS),
    MessageKind.VERSION: list(VERSIONS),
    MessageKind.MISC: list(MISC),
    **{kind: [text for k, text in FACTS if k is kind] for kind, _ in FACTS},
}
PAIRS = [(kind, text) for kind, texts in SAMPLES.items() for text in texts]


def log_messages(
    process: Sequence[int], line: Sequence[int], kind: Sequence[int], text: Sequence[str]
) -> LogMessages:
    """The scanner's table of some messages."""
    number, place, of_kind = (np.array(column, dtype=np.uint32) for column in (process, line, kind))
    return LogMessages(process=number, thread=number, line=place, kind=of_kind, text=list(text))
