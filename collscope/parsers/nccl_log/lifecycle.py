"""Communicators coming and going: INIT lines, local topology, destruction, API call traces."""

from __future__ import annotations

import re

from collscope.model import CommEnd, CommInit, CommTopology, Fact
from collscope.parsers.nccl_log.facts import first_fact

_PTR = r"(0x[0-9a-f]{1,16})"
_INT = r"(-?\d{1,9})"

# NCCL 2.4:  comm 0x7f2 rank 0 nranks 2 cudaDev 0 nvmlDev 0 - Init COMPLETE
# NCCL 2.21: ncclCommInitRank comm 0x7f2 rank 0 … busId 60 commId 0xe1 - Init START
# NCCL 2.29: [Rank 0] ncclCommInitRankConfig comm 0x7f2 rank 0 … - Init START
# NCCL 2.25: ncclCommSplit comm 0x7f2 rank 0 … parent 0x15f splitCount 1 color 0 key 0- Init START
# RCCL 2.22: ncclCommInitRank comm 0x7f2 … localSize 384 used 66 bytes on core 2 - Init COMPLETE
# NCCL 2.12: comm 0x7f2 rank 3 nranks 16 cudaDev 3 busId 17000 - Destroy COMPLETE
# NCCL 2.28: comm 0x7f2 rank 3 nRanks 16 cudaDev 3 busId 17000 - Abort START
_STATE = re.compile(
    rf"(?:\[Rank \d+\] )?(?:(\w+) )?comm {_PTR} rank (\d{{1,9}}) n[rR]anks (\d{{1,9}}) (.*?) ?"
    r"- (Init|Destroy|Abort|Revoke) (START|COMPLETE)\b"
)
_DECIMAL = re.compile(r"\b(cudaDev|nvmlDev|splitCount|childCount|color|key) (-?\d{1,10})(?!\w)")
# 15 digits: a bus id of -1 prints 16 times f and means that there is none.
_HEX = re.compile(r"\b(busId|commId|parent) (?:0x([0-9a-f]{1,16})|([0-9a-f]{1,15}))(?!\w)")
# NCCL 2.28: CommRevokeAsync START comm 0x7f2 rank 0 …
_REVOKE = re.compile(rf"CommRevokeAsync START comm {_PTR}\b")

# NCCL 2.20: comm 0x7f2 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0
_TOPOLOGY = re.compile(
    rf"comm {_PTR} rank (\d{{1,9}}) nRanks (\d{{1,9}}) nNodes (\d{{1,9}})"
    r" localRanks (\d{1,9}) localRank (\d{1,9})(?!\d)"
)

# NCCL 2.15 CALL trace: ncclCommInitRank(0x7f2, 4, 0xe14770a474f583a5, 0, 0)
#   = communicator, ranks, commId, rank, device
_CALL_INIT = re.compile(
    rf"ncclCommInitRank\({_PTR}, ?{_INT}, ?{_PTR}, ?{_INT}, ?{_INT}\)",
)
# NCCL 2.18 CALL trace: ncclCommSplit(0x15f, 0, 1, 0x7f2, 1, 2)
#   = parent, color, key, communicator, rank, ranks
_CALL_SPLIT = re.compile(
    rf"ncclCommSplit\({_PTR}, ?(-?\d{{1,10}}), ?(-?\d{{1,10}}), ?{_PTR}, ?{_INT}, ?{_INT}\)",
)
# NCCL 2.15 CALL trace: ncclCommDestroy(0x7f2)
_CALL_END = re.compile(rf"ncclComm(Destroy|Abort)\({_PTR}\)")

_FACT_RULES = (
    # NCCL 2.22: Init timings - ncclCommSplit: rank 0 nranks 2 total 0.04 (kernels 0.00, …)
    # RCCL 2.22: Init timings: rank 0 nranks 16 total 1.95 (kernels 0.27, …)
    (re.compile(r"Init timings(?: -|:) (.+)"), "init_timings"),
    # NCCL 2.12: Bootstrap : Using eth0:10.0.0.1<0>    NCCL 2.28: Bootstrap: Using eth0:…
    (re.compile(r"Bootstrap ?: Using (.+)"), "bootstrap"),
    # NCCL 2.4: Launch mode Parallel
    (re.compile(r"Launch mode (.+)"), "launch_mode"),
    # NCCL 2.23: Bootstrap timings total 0.03 (create 0.00, send 0.00, …)
    (re.compile(r"Bootstrap timings (.+)"), "bootstrap_timings"),
    # NCCL 2.18: Rank 1 has color with NCCL_SPLIT_NOCOLOR, not creating a new communicator
    (re.compile(r"(Rank \d+ has color with NCCL_SPLIT_NOCOLOR.*)"), "split_nocolor"),
    # NCCL 2.29: ncclCommGrow: existing rank creating new communicator with 8 total ranks
    #            Rank 4: Generated commHash 0x12 from baseMagic 0x34 and newNRanks 8
    (re.compile(r"(ncclCommGrow: .+|Rank \d+: Generated commHash .+)"), "grow"),
)


def parse_init(process: int, line: int, text: str) -> CommInit | CommEnd | None:
    """State of a communicator on one rank: its Init, or its Destroy, Abort or Revoke line.

    START and COMPLETE both give a record, since an interrupted job prints only the first.
    """
    match = _STATE.match(text)
    if match is None:
        revoked = _REVOKE.match(text)
        return CommEnd(process, line, int(revoked[1], 16), "Revoke") if revoked else None
    function, ptr, rank, nranks, keys, what, state = match.groups()
    if what != "Init":
        return CommEnd(process, line, int(ptr, 16), what)
    decimal = {name: int(value) for name, value in _DECIMAL.findall(keys)}
    hexadecimal = {name: int(a or b, 16) for name, a, b in _HEX.findall(keys)}
    return CommInit(
        process=process,
        line=line,
        comm_ptr=int(ptr, 16),
        rank=int(rank),
        nranks=int(nranks),
        complete=state == "COMPLETE",
        # RCCL of ROCm 7 prints ncclCommInitRankConfig_impl.
        function=function.removesuffix("_impl") if function else None,
        cuda_dev=decimal.get("cudaDev"),
        nvml_dev=decimal.get("nvmlDev"),
        bus_id=hexadecimal.get("busId"),
        comm_hash=hexadecimal.get("commId"),
        parent_ptr=hexadecimal.get("parent"),
        split_count=decimal.get("splitCount", decimal.get("childCount")),
        color=decimal.get("color"),
        key=decimal.get("key"),
    )


def parse_topology(process: int, line: int, text: str) -> CommTopology | None:
    """How a communicator spreads over nodes, from one rank; None where the form is unknown."""
    match = _TOPOLOGY.match(text)
    if match is None:
        return None
    ptr, *numbers = match.groups()
    return CommTopology(process, line, int(ptr, 16), *map(int, numbers))


def parse_misc(process: int, line: int, text: str) -> CommInit | CommEnd | Fact | None:
    """API call trace of a communicator's life, or a Fact about its creation."""
    if match := _CALL_INIT.match(text):
        ptr, nranks, comm_hash, rank, device = match.groups()
        return CommInit(
            process=process,
            line=line,
            comm_ptr=int(ptr, 16),
            rank=int(rank),
            nranks=int(nranks),
            complete=True,
            traced=True,
            function="ncclCommInitRank",
            cuda_dev=int(device),
            comm_hash=int(comm_hash, 16),
        )
    if match := _CALL_SPLIT.match(text):
        parent, color, key, ptr, rank, nranks = match.groups()
        return CommInit(
            process=process,
            line=line,
            comm_ptr=int(ptr, 16),
            rank=int(rank),
            nranks=int(nranks),
            complete=True,
            traced=True,
            function="ncclCommSplit",
            parent_ptr=int(parent, 16),
            color=int(color),
            key=int(key),
        )
    if match := _CALL_END.match(text):
        return CommEnd(process, line, int(match[2], 16), match[1])
    return first_fact(_FACT_RULES, process, line, text)
