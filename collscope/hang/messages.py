"""Evidence from what processes and their launcher print: PyTorch's watchdog, monitored barriers,
the desync report, exceptions, the exit codes of torchrun, Xid lines of the kernel.

Sources: ProcessGroupNCCL.cpp, TraceUtils.h and ProcessGroupGloo.cpp of PyTorch 2.2 to 2.11;
torch/distributed/elastic/multiprocessing/errors; the driver's Xid catalogue.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from collscope.hang.records import Call, Claim, Evidence, RankEvidence
from collscope.parsers.recorders.flight_recorder import rank_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_LINE_BYTES = 1 << 16  # of a longer line the beginning is read
_WORTH = re.compile(
    rb"WorkNCCL\(|[Ll]ast enqueued|monitoredBarrier|join collective|Traceback|Error|exitcode"
    rb"|rank  |host  |\bXid\b"
)
_RANK = re.compile(r"\[rank ?(\d{1,8})\]|\bRank (\d{1,8})\]", re.IGNORECASE)
# WorkNCCL(SeqNum=7753, OpType=_REDUCE_SCATTER_BASE, NumelIn=544997376, …, Timeout(ms)=600000)
_WORK = re.compile(r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w+)(?:, NumelIn=(\d{1,18}))?")
# [PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected by watchdog at work sequence id: 35 PG
#   status: last enqueued work: 37, last completed work: 34
# [PG 1 Rank 0] Exception … at work: 7753, last enqueued NCCL work: 7755, last completed NCCL …
_STATUS = re.compile(
    r"\[PG (?:ID )?(\d{1,8})\b.{0,200}?Rank (\d{1,8})\].{0,400}?"
    r"[Ll]ast enqueued (?:NCCL )?work: (-?\d{1,18}), last completed (?:NCCL )?work: (-?\d{1,18})"
)
# [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 10000 ms
_BARRIER = re.compile(r"Ranks? ([\d, ]{1,4000}) failed to pass monitoredBarrier")
# [1, 3] finished collective #4, but didn't join collective #5 (count from 1)
_DESYNC = re.compile(
    r"\[([\d, ]{1,4000})\] finished collective #(\d{1,18}), but didn't join collective"
)
_EXCEPTION = re.compile(r"^(?:\[rank\d+\]:\s*)?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt))\b:?")
# rank      : 1 (local_rank: 1)      exitcode  : -9 (pid: 1234)
_FAILED_RANK = re.compile(r"^\s*rank\s+: (\d{1,8}) \(local_rank")
_FAILED_HOST = re.compile(r"^\s*host\s+: (\S+)")
_FAILED_CODE = re.compile(r"^\s*exitcode\s+: (-?\d{1,5}) \(pid: (\d{1,10})\)")
# NVRM: Xid (PCI:0000:c1:00): 79, pid=1234, name=python, GPU has fallen off the bus.
_XID = re.compile(r"\bXid \(PCI:[\w:.]+\): (\d{1,4}), pid='?(\d{1,10})")
_ENDED_BY_OTHERS = {-15, -6, 0}  # by the launcher, by the watchdog's abort, and no failure
_XID_AFTER_AN_END = {43, 45}  # a process was stopped or ended: a consequence
# What a rank raises because another one holds it up, or went away.
_RAISED_BY_OTHERS = re.compile(
    r"DistBackendError|DistNetworkError|DistStoreError|ConnectionError|ConnectionResetError"
    r"|BrokenPipeError|TimeoutError|KeyboardInterrupt|ChildFailedError|SignalException"
)
_OPS = {
    "ALLREDUCE": "AllReduce", "BROADCAST": "Broadcast", "REDUCE": "Reduce",
    "_ALLGATHER_BASE": "AllGather", "ALLGATHER": "AllGather",
    "_REDUCE_SCATTER_BASE": "ReduceScatter", "REDUCE_SCATTER": "ReduceScatter",
    "ALLTOALL_BASE": "AllToAll", "ALLTOALL": "AllToAll", "BARRIER": "Barrier",
    "SEND": "Send", "RECV": "Recv", "COALESCED": "Coalesced",
}  # fmt: skip


class Messages:
    """What all files' lines say."""

    def __init__(self) -> None:
        """Begin without a line."""
        self.sources: list[str] = []
        self.work: dict[tuple[int, int], tuple[str, int | None]] = {}  # (rank, number): call
        self.status: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
        self.claims: dict[int, Claim] = {}
        self.raised: dict[int, str] = {}
        self.xids: list[tuple[int, int]] = []  # (process, Xid)

    def read(self, path: str, chunks: Iterable[bytes]) -> bool:
        """Take the lines of a file; whether one of them says something."""
        reader = _File(self, rank_of(path) if "." in path or "_" in path else None)
        for line in _lines(chunks):
            if _WORTH.search(line):
                reader.line(line[:_LINE_BYTES].decode("utf-8", errors="replace"))
        if reader.said:
            self.sources.append(path)
        return reader.said


class _File:
    """The lines of one file; some belong together."""

    def __init__(self, found: Messages, rank: int | None) -> None:
        self.found = found
        self.rank = rank  # by the file's name
        self.said = False
        self.trace: int | None = None  # rank whose traceback is being read
        self.failed: tuple[int | None, str | None] = (None, None)  # rank, host

    def line(self, line: str) -> None:
        found = self.found
        prefix = _RANK.search(line)
        rank = int(prefix[1] or prefix[2]) if prefix else self.rank
        if (work := _WORK.search(line)) and rank is not None and (op := _OPS.get(work[2])):
            found.work[rank, int(work[1])] = (op, int(work[3]) if work[3] else None)
            self.said = True
        if status := _STATUS.search(line):
            # The first line counts: it is of the call that hangs, later ones are of its end.
            own = found.status[int(status[2])]
            own.setdefault(f"process group {status[1]}", (int(status[3]), int(status[4])))
            self.said = True
        if barrier := _BARRIER.search(line):
            self._claim(barrier[1], "host_never_called", "did not pass a monitored barrier")
        if desync := _DESYNC.search(line):
            reason = f"ended collective {desync[2]} and did not join the next one"
            self._claim(desync[1], "host_never_called", reason)
        if "Traceback (most recent call last)" in line and "Stack trace" not in line:
            self.trace = rank
        elif self.trace is not None and (raised := _EXCEPTION.match(line)):
            if not _RAISED_BY_OTHERS.search(raised[1]):
                found.raised.setdefault(self.trace, raised[1])
                self.said = True
            self.trace = None
        if xid := _XID.search(line):
            found.xids.append((int(xid[2]), int(xid[1])))
            self.said = True
        self._launcher(line)

    def _claim(self, ranks: str, what: str, reason: str) -> None:
        for text in ranks.replace(",", " ").split():
            rank = int(text[:9])
            claim = Claim(rank, what, f"Rank {rank} {reason}.")
            self.found.claims.setdefault(rank, claim)
            self.said = True

    def _launcher(self, line: str) -> None:
        """The table in which torchrun lists the processes that failed."""
        if host := _FAILED_HOST.match(line):
            self.failed = (None, host[1][:255])
        elif rank := _FAILED_RANK.match(line):
            self.failed = (int(rank[1]), self.failed[1])
        elif code := _FAILED_CODE.match(line):
            rank_failed, host_failed = self.failed
            if rank_failed is None:
                return
            value = int(code[1])
            self.said = True
            if value not in _ENDED_BY_OTHERS:
                how = f"signal {-value}" if value < 0 else f"exit code {value}"
                self.found.claims[rank_failed] = Claim(
                    rank_failed, "dead", f"Rank {rank_failed} ended with {how}.",
                    host_failed, int(code[2]),
                )  # fmt: skip


def message_evidence(found: Messages) -> Evidence | None:
    """What the lines say; None without any."""
    if not found.sources:
        return None
    claims = dict(found.claims)
    if len(found.raised) == 1:  # where several raised, the first one is not known
        ((rank, name),) = found.raised.items()
        claims.setdefault(rank, Claim(rank, "dead", f"Rank {rank} raised {name}."))
    members: dict[str, list[int]] = defaultdict(list)
    for rank, own in sorted(found.status.items()):
        for group in own:
            members[group].append(rank)
    return Evidence(
        kind="stderr",
        ranks=tuple(
            RankEvidence(
                rank,
                "watchdog",
                tuple(_open(found, rank)),
                tuple((group, enqueued) for group, (enqueued, _) in own.items()),
            )
            for rank, own in sorted(found.status.items())
        ),
        groups=tuple((group, tuple(ranks)) for group, ranks in members.items()),
        sources=tuple(found.sources),
        claims=tuple(claims.values()),
        xids=tuple(x for x in found.xids if x[1] not in _XID_AFTER_AN_END),
    )


def _open(found: Messages, rank: int) -> Iterable[Call]:
    """The call after the last completed one of each group; of several, which came first is not
    known.
    """
    for group, (enqueued, completed) in found.status[rank].items():
        if enqueued > completed:
            work = found.work.get((rank, completed + 1))
            if work is not None:
                yield Call(group, completed + 1, *work)


def _lines(chunks: Iterable[bytes]) -> Iterable[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > 4 * _LINE_BYTES:  # no line of ours
            rest = rest[:_LINE_BYTES]
    if rest:
        yield rest
