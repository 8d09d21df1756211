"""Other statements worth keeping: networks, plugins, GPU Direct RDMA, channels, warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable

from collscope.model import Fact

# NCCL 2.18: NET/Plugin : No plugin found (libnccl-net.so), using internal implementation
# RCCL 2.22: TUNER/Plugin: Could not find: librccl-tuner.so librccl-net.so. Using internal …
_PLUGIN = re.compile(r"([A-Z]+)/Plugin ?: ?(.+)")
# NCCL 2.28: NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'
# RCCL 2.22: NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 0 'rocep1s0f0'
_GDR = re.compile(
    r"(?:NET/([^:]+?) ?: )?GPU Direct RDMA (?:\(\w+\) )?(enabled|disabled)\b *(.*)",
    re.IGNORECASE,
)
# NCCL 2.18: NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB [RO]; OOB eno1:10.0.0.1<0>
# NCCL 2.18: NET/IB : No device found.
_DEVICES = re.compile(r"NET/([^:]+?) ?: (?:Using (.+)|(No device found).*)")
# NCCL 2.31, also NET/IB-CAST in development commits:
# NET/IB: WQE slow: peer=10.0.0.2<4321> | local: qpn=7 dev=mlx5_0 … | thr=1000ns delta=2100ns …
# NET/IB: WQE stall (no CQE): peer=10.0.0.2<4321> | local: qpn=7 dev=mlx5_0 …
_WQE = re.compile(r"NET/IB[\w-]* ?: (WQE (slow|stall).*)")
_NET_RULES = (
    # NCCL 2.4: Using internal Network Socket     NCCL 2.12: Using network IBext
    (re.compile(r"Using (?:internal )?[Nn]etwork (.+)"), "network"),
    # aws-ofi-nccl: NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)
    (re.compile(r"NET/(OFI .+)"), "net_plugin"),
    # NCCL 2.19: Using tuner plugin libnccl-tuner.so
    (re.compile(r"(.*\btuner plugin\b.*)"), "tuner_plugin"),
    (re.compile(r"(.*\bprofiler plugin\b.*)"), "profiler_plugin"),
    # NCCL 2.12: P2P plugin IBext       NCCL 2.28: Initialized NET plugin IB
    (re.compile(r"(.*\bplugin\b.*)", re.IGNORECASE), "net_plugin"),
)

# NCCL 2.12: transport/net_ib.cc:667 NCCL WARN NET/IB : Got completion with error 12
# NCCL 2.30: transport/net_ib.cc:667 (ncclIbTest) NCCL WARN NET/IB : Got completion …
# NCCL 2.31: host:1:2 [0] src/debug.cc:12 NCCL ATTN text, beside WARN: worth a look, no fault
_WARNING = re.compile(
    r"(?:(?:\S*/)?([^\s/]+:\d+) )?(?:\(\w+\) )?(?:NCCL (WARN|ATTN|ABORT) +)?(\S.*)"
)
# RCCL: [FATAL ERROR]: text
_FATAL = re.compile(r".*?\[FATAL ERROR\]:? *(.+)")
# NCCL 2.4: transport/net_ib.cc:89 -> 2     NCCL 2.12: proxy.cc:1458 -> 3 [Proxy Thread]
_ERROR = re.compile(r"(?:\S*/)?([^\s/]+:\d+ -> \d+(?: \[[^\]]*\])?)")

_STRUCTURE_RULES = (
    # NCCL 2.18: 16 coll channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer
    (re.compile(r"(\d+ coll channels.*)"), "channels"),
    # NCCL 2.28: Connected all rings, use ring PXN 0 GDR 1
    (re.compile(r"Connected ((?:all|NVLS) .+)"), "connected"),
    # NCCL 2.17: NVLS multicast support is not available on dev 0
    #            NVLS comm 0x7f2 headRank 0 nHeads 8 buffSize 1048576 …
    (re.compile(r"NVLS ((?:multicast|comm) .+)"), "nvls"),
    # NCCL 2.13: P2P Chunksize set to 524288
    (re.compile(r"P2P Chunksize set to (\d+)"), "p2p_chunksize"),
    # RCCL 2.18: MSCCL: Initialization finished, localSize 1024    Using MSCCL files from /opt/…
    #            Connected 1 MSCCL algorithms
    (re.compile(r"(MSCCL.+|Using MSCCL.+|Connected \d+ MSCCL.+)"), "msccl"),
)


def first_fact(
    rules: Iterable[tuple[re.Pattern[str], str]], process: int | None, line: int, text: str
) -> Fact | None:
    """Fact of the first rule (pattern, kind) that fits; its value is the pattern's group 1."""
    for pattern, kind in rules:
        if match := pattern.match(text):
            return Fact(process, line, kind, match[1])
    return None


def parse_net(process: int | None, line: int, text: str) -> Fact | None:
    """Network, plugin or GPU Direct RDMA statement.

    Kinds: network, net_devices, gdr_enabled, gdr_disabled, and net_plugin, tuner_plugin,
    profiler_plugin, env_plugin, … by what the plugin is for; wqe_slow and wqe_stall, where a work
    request of InfiniBand took longer than NCCL_IB_WQE_LATENCY_THRESHOLD_NS or did not end.
    """
    if match := _WQE.match(text):
        return Fact(process, line, f"wqe_{match[2]}", match[1])
    if match := _PLUGIN.match(text):
        return Fact(process, line, f"{match[1].lower()}_plugin", match[2])
    if match := _GDR.match(text):
        net, state, rest = match.groups()
        return Fact(process, line, f"gdr_{state.lower()}", f"{net}: {rest}" if net else rest)
    if match := _DEVICES.match(text):
        return Fact(process, line, "net_devices", f"{match[1]}: {match[2] or match[3]}")
    return first_fact(_NET_RULES, process, line, text)


def parse_warning(process: int | None, line: int, text: str) -> Fact | None:
    """Warning, attention or fatal error; of the source path only the file name and line stay."""
    if match := _FATAL.match(text):
        return Fact(process, line, "fatal", match[1])
    match = _WARNING.match(text)
    if match is None:
        return None
    where, level, message = match.groups()
    if wqe := _WQE.match(message):
        return Fact(process, line, f"wqe_{wqe[2]}", wqe[1])
    kind = "attention" if level == "ATTN" else "warning"
    return Fact(process, line, kind, f"{where}: {message}" if where else message)


def parse_error(process: int | None, line: int, text: str) -> Fact | None:
    """Where an error code went up the call stack, as `net_ib.cc:89 -> 2`."""
    match = _ERROR.match(text)
    return Fact(process, line, "error", match[1]) if match else None


def parse_structure(process: int | None, line: int, text: str) -> Fact | None:
    """Numbers of channels, finished connections, NVLS and MSCCL; None for an unknown form."""
    return first_fact(_STRUCTURE_RULES, process, line, text)
