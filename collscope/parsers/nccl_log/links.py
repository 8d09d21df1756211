"""Channel connections: the "Channel … via …" lines of NCCL 2.4 to 2.31 and of RCCL.

The number in brackets after a rank is a bus id (hexadecimal; before NCCL 2.18, and RCCL) or an
NVML device index; the digits do not show which, so it is not kept.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from collscope.model import Link

_ID = r"(?:\[[0-9a-f]+\])?"

# NCCL 2.4:  Ring 01 : 0 -> 1 [send] via NET/Socket/0
# NCCL 2.12: Channel 00 : 6[d00000] -> 7[e00000] via P2P/direct pointer/read
# NCCL 2.18: Channel 00/0 : 7[3] -> 0[0] [send] via NET/IBext/0(4)/GDRDMA
# RCCL 2.22: Channel 07/0 : 12[f7000] -> 4[f7000] [receive] via NET/IB/4 comm 0x3d1e26e0 nRanks 16
_PEERS = re.compile(
    rf"(?:Channel|Ring) (\d{{1,9}})(?:/(\d{{1,9}}))? : (\d{{1,9}}){_ID} -> (\d{{1,9}}){_ID}"
    r"(?: \[(send|receive)\])? via (.+)"
)

# NCCL 2.6:  Coll 00 : 3 [send] via COLLNET/SHARP/0/GDRDMA
# NCCL 2.19: CollNet 00/0 : 3 [receive] via COLLNET/SHARP/1/GDRDMA(PCI)
_SWITCH = re.compile(
    r"Coll(?:Net)? (\d{1,9})(?:/(\d{1,9}))? : (\d{1,9}) \[(send|receive)\] via (COLLNET/.+)"
)

# Only known spellings: a cut line must not become a transport that does not exist.
_GDR = r"(/GDRDMA(?:\([A-Z]+\))?)?"
_NET = re.compile(rf"(NET|COLLNET)/(.+?)/(\d{{1,9}})(?:\(\d+\))?{_GDR}(?:/GDCopy)?(?:/Shared)?")
_P2P = re.compile(
    r"(P2P/(?:IPC|CUMEM|MNNVL|direct pointer|indirect))(?:(?<=indirect)/\d+(?:\[[0-9a-f]+\])?)?"
    r"(?:/read)?(/CE)?"
)
_SHM = re.compile(r"SHM/(CE|direct)/(CE|direct)")
_COMM = re.compile(r"(0x[0-9a-f]{1,16}) nRanks \d")


class _Via(msgspec.Struct, frozen=True):
    """What follows "via ": the carrier and, from RCCL, the communicator."""

    transport: str
    net: str | None = None
    net_dev: int | None = None
    gdr: bool | None = None
    comm_ptr: int | None = None


def parse_link(process: int, line: int, text: str) -> Link | None:
    """Connection of one channel, or None where the text has no known form.

    A COLLNET line has a switch instead of a peer: both ends are then the printing rank.
    """
    if match := _PEERS.match(text):
        channel, connection, src, dst, direction, tail = match.groups()
    elif match := _SWITCH.match(text):
        channel, connection, src, direction, tail = match.groups()
        dst = src
    else:
        return None
    via = _parse_via(tail)
    if via is None:
        return None
    return Link(
        process,
        line,
        int(channel),
        int(src),
        int(dst),
        via.transport,
        None if connection is None else int(connection),
        direction,
        via.net,
        via.net_dev,
        via.gdr,
        via.comm_ptr,
    )


# A log repeats few carriers on many lines.
@lru_cache(maxsize=4096)
def _parse_via(tail: str) -> _Via | None:
    carrier, _, rest = tail.partition(" comm ")
    comm = _COMM.match(rest)
    # A pointer is whole only when another key follows it.
    comm_ptr = int(comm[1], 16) if comm else None
    if match := _NET.fullmatch(carrier):
        family, net, device, gdr = match.groups()
        return _Via(f"{family}/{net}", net, int(device), gdr is not None, comm_ptr)
    transport = _intra_node(carrier)
    return _Via(transport, comm_ptr=comm_ptr) if transport else None


def _intra_node(carrier: str) -> str | None:
    """Transport inside a node; the copy engine stays in the name, who reads or writes does not."""
    if match := _P2P.fullmatch(carrier):
        return match[1] + (match[2] or "")
    # NCCL 2.4 to 2.12; 2.13 and later say SHM/direct/direct for the same.
    if carrier == "direct shared memory":
        return "SHM/direct"
    if match := _SHM.fullmatch(carrier):
        return "SHM/direct" if match[1] == match[2] == "direct" else carrier
    return None
