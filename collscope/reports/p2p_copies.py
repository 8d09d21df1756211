"""What the copy engine reaches between two GPUs, from a store: the ceiling of Send and Recv."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median

from collscope.bench.p2p import P2pRun
from collscope.ingest.match import reading
from collscope.reports.p2p_model import CopyPoint

# Copies that follow each other without waiting, as the messages do; through the host is no ceiling.
_QUERY = """
    SELECT size_bytes, src_device, dst_device, bandwidth_gbps FROM copies
    WHERE kind = 'peer_async' AND direction = 'one' AND access IS NOT 'none' AND status = 'ok'
        AND device = ? AND bandwidth_gbps IS NOT NULL
"""


def copies_beside(done: P2pRun, db: Path) -> tuple[CopyPoint, ...]:
    """Copies between GPUs of the kind that the first pair has, in any run of a store.

    The pair's own GPUs count, where they were measured, else all of that kind; of several the
    median. GPUs are numbered as ranks are, on one node.

    returns  by size, rising; nothing for ranks in host memory, or on two nodes
    raises   InputError when the store cannot be read
    """
    pair = done.pairs[0]
    measured = [
        r.measured for r in done.results if {r.exchange.src, r.exchange.dst} == set(pair)
    ]  # fmt: skip
    devices = {m.device for m in measured if m.device and m.backend != "host" and m.nnodes == 1}
    if len(devices) != 1:
        return ()
    with reading(db) as connection:
        found = connection.execute(_QUERY, tuple(devices)).fetchall()
    own = [row for row in found if (row[1], row[2]) == pair]
    by_size: dict[int, list[float]] = defaultdict(list)
    for size, _, _, gbps in own or found:
        by_size[size].append(gbps)
    return tuple(CopyPoint(size, median(by_size[size])) for size in sorted(by_size))
