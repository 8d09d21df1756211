"""Files of recorders, built field by field from the layouts in the recorders' sources."""

from __future__ import annotations

import struct

TIME_MS = 1_745_623_615_676.25

# recorder.h of ROCm/rccl, places of `type`; with acc, 5 is AllReduceWithBias and the rest one more
TYPES = {
    "Broadcast": 0, "Reduce": 1, "AllGather": 2, "ReduceScatter": 3, "AllReduce": 4, "Send": 5,
    "Recv": 6, "AllToAll": 7, "AllToAllv": 8, "Gather": 9, "Scatter": 10, "GroupStart": 12,
    "GroupEnd": 13, "GetUniqueId": 15, "CommInitDev": 16, "CommInitAll": 18, "CommSplit": 20,
    "CommDestroy": 22, "AllReduceWithBias": 5,
}  # fmt: skip


def record(name: str, *, acc: bool = False, **fields: float) -> bytes:
    """One struct rcclApiCall, little endian; fields that are not given are as their initialiser."""
    kind = TYPES[name]
    if acc and name != "AllReduceWithBias" and kind >= 5:
        kind += 1
    f = {
        "pid": 4711, "tid": 4711, "dev": 0, "depth": -1, "time": TIME_MS, "graph": 0,
        "captured": -1, "op_count": 0, "send": 0, "recv": 0, "count": 0, "datatype": 0, "op": 0,
        "root": -1, "nranks": -1, "comm": 0, "rank": -1, "comm_id": 0, **fields,
    }  # fmt: skip
    head = struct.pack(
        "<4idQ2i", f["pid"], f["tid"], f["dev"], f["depth"], f["time"], f["graph"], f["captured"],
        kind,
    )  # fmt: skip
    pointers = [f["op_count"], f["send"], f["recv"]]
    if acc:
        pointers.append(0)
    pointers += [f["send"], f["recv"], 4096, 4096, f["count"]]
    body = struct.pack(f"<{len(pointers)}Q", *pointers)
    tail = struct.pack(
        "<4i2Q2iQ", f["datatype"], f["op"], f["root"], f["nranks"], f["comm"], 0x5000, 1,
        f["rank"], f["comm_id"],
    )  # fmt: skip
    return head + body + tail


def recording(*, acc: bool) -> bytes:
    """A communicator, one call of many kinds, an uneven all-to-all with its lists, a split."""
    common: dict[str, int] = {"acc": acc, "comm": 0x1000, "nranks": 4, "rank": 1}
    lists = struct.pack("<16Q", 1, 2, 3, 4, 0, 1, 3, 6, 5, 6, 7, 8, 0, 5, 11, 18)
    return b"".join(
        [
            record("CommInitAll", acc=acc, root=2, send=0x77) + struct.pack("<2i", 0, 1),
            record("CommInitDev", **common, comm_id=0xEE443ED6ADAB8120, root=1, datatype=-77),
            record("AllReduce", **common, send=0x9000, recv=0x9000, count=1024, datatype=7),
            record("GroupStart", acc=acc, depth=1),
            record("Send", **common, recv=0x9000, count=256, datatype=9, root=2),
            record("Recv", **common, recv=0xA000, count=256, datatype=9, root=0),
            record("GroupEnd", acc=acc, depth=1),
            record("AllToAllv", **common, send=0x9000, recv=0xB000, datatype=6) + lists,
            record("CommSplit", acc=acc, comm=0x2000, comm_id=0x1000, nranks=1, rank=3),
            record(
                "ReduceScatter", acc=acc, comm=0x2000, nranks=2, rank=1, send=0x9000,
                recv=0x9000 + 80, count=10, datatype=8, op=2,
            ),
        ]
    )  # fmt: skip
