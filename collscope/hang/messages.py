"""Evidence from what processes and their launcher print: PyTorch's watchdog, monitored barriers,
the desync report, exceptions, the exit codes of torchrun, Xid lines of the kernel.

Sources: ProcessGroupNCCL.cpp, TraceUtils.h and ProcessGroupGloo.cpp of PyTorch 2.2 to 2.11;
torch/distributed/elastic/multiprocessing/errors; the driver's Xid catalogue.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.hang.records import Call, Claim, Evidence, RankEvidence, Task
from collscope.parsers.recorders.flight_recorder import rank_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_LINE_BYTES = 1 << 16  # of a longer line the beginning is read
_WORTH = re.compile(
    rb"WorkNCCL\(|[Ll]ast enqueued|monitoredBarrier|join collective|Traceback|Error|exitcode"
    rb"|rank +: |host +: |\bXid\b|NCCL DIAG|noticed that process"
    rb"|Detected mismatch|Exception ignored|\bsrun: |\bslurmstepd: "
)
# [rank2]:[E1123 21:30:43.6 ProcessGroupNCCL.cpp:689] [Rank 1] Watchdog caught …: the first is the
# rank of the job, the second that of the group.
_PREFIX = re.compile(r"\[rank(\d{1,8})\]:")
_RANK = re.compile(r"\[rank ?(\d{1,8})\]|\bRank (\d{1,8})\]", re.IGNORECASE)
# WorkNCCL(SeqNum=7753, OpType=_REDUCE_SCATTER_BASE, NumelIn=544997376, …, Timeout(ms)=600000)
_WORK = re.compile(r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w+)(?:, NumelIn=(\d{1,18}))?")
# [PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected by watchdog at work sequence id: 35 PG
#   status: last enqueued work: 37, last completed work: 34
# The ID counts the groups of a process, the GUID those of the job.
# [PG 1 Rank 0] Exception … at work: 7753, last enqueued NCCL work: 7755, last completed NCCL …
_STATUS = re.compile(
    r"\[PG (?:ID )?(\d{1,8})(?: PG GUID (\w{1,40}))?\b.{0,200}?Rank (\d{1,8})\].{0,400}?"
    r"[Ll]ast enqueued (?:NCCL )?work: (-?\d{1,18}), last completed (?:NCCL )?work: (-?\d{1,18})"
)
# [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 10000 ms
_BARRIER = re.compile(r"Ranks? ([\d, ]{1,4000}) failed to pass monitoredBarrier")
# [1, 3] finished collective #4, but didn't join collective #5 (count from 1)
_DESYNC = re.compile(
    r"\[([\d, ]{1,4000})\] finished collective #(\d{1,18}), but didn't join collective"
)
_EXCEPTION = re.compile(
    r"(?:^|\[rank\d{1,8}\]: )([A-Za-z_][\w.]*(?:Error|Exception|Interrupt))\b:?"
)
# rank      : 1 (local_rank: 1)      exitcode  : -9 (pid: 1234)
# Schedulers and services that collect logs put the host, the task or the time before each line.
_FAILED = re.compile(
    r"\b(?:host\s+: (\S+)|rank\s+: (\d{1,8}) \(local_rank"
    r"|exitcode\s+: (-?\d{1,5}) \(pid: (\d{1,10})\))"
)
_TIME = re.compile(r"\d[\d:.,/TZ+-]{6,}|\s")
# mpirun noticed that process rank 3 with PID 1167 on node n2 exited on signal 11 (Segmentation …
_MPI_ENDED = re.compile(
    r"\b(?:mpirun|mpiexec|orterun|prterun) noticed that process rank (\d{1,8}) with PID (\d{1,10})"
    r" on node (\S{1,255}) exited on signal (\d{1,3})"
)
# srun: error: nid001: task 289: Bus error
# srun: error: nid001: tasks 0-2,5: Exited with exit code 1
_TASKS = re.compile(r"\bsrun: error: (\S{1,255}): tasks? (\d[\d,-]{0,4000}): (\S.{0,80})")
# What srun and slurmstepd do after one of these ends the other tasks.
# srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
# slurmstepd: error: *** STEP 77.0 ON nid001 CANCELLED AT 2026-11-24T10:00:00 DUE TO TIME LIMIT ***
_STEP_ENDS = re.compile(
    r"\bsrun: (?:Job step aborted|Terminating (?:job step|StepId)|forcing job termination)"
    r"|\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT (\S+)(?: DUE TO ([A-Z ]{1,40}))?"
)
# slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been …
_OOM = re.compile(r"\bslurmstepd: error: Detected \d+ oom[-_]kill event(?:\(s\)|s)? in (\S+)")
_TASK_ENDED_BY_OTHERS = ("Terminated", "Aborted")
_MOST_TASKS = 1 << 20
# NVRM: Xid (PCI:0000:c1:00): 79, pid=1234, name=python, GPU has fallen off the bus.
_XID = re.compile(r"\bXid \(PCI:[\w:.]+\): (\d{1,4}), pid='?(\d{1,10})")
# node042:12345 NCCL DIAG [INFO] ECC: uncorrected volatile errors on rank(s) {2} (worst=3) across …
# (src/ras/diagnostics_*.cc and src/diagnostics of NCCL 2.31 to 2.32; RCCL has the same)
_DIAG = re.compile(r"\bNCCL DIAG (?:\[INFO\] *(\S.{0,300}))?")
_DIAG_UNKNOWN = re.compile(r"unavailable|incomplete|no kernel-log source|truncated|skipped")
_ENDED_BY_OTHERS = {-15, -6, 0}  # by the launcher, by the watchdog's abort, and no failure
_XID_AFTER_AN_END = {43, 45}  # a process was stopped or ended: a consequence
# What a rank raises because another one holds it up, or went away.
_RAISED_BY_OTHERS = re.compile(
    r"DistBackendError|DistNetworkError|DistStoreError|ConnectionError|ConnectionResetError"
    r"|BrokenPipeError|TimeoutError|KeyboardInterrupt|ChildFailedError|SignalException"
    r"|^nccl\w+Error"
)
# Detected mismatch between collectives on ranks. Rank 1 is running collective:
#   CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, TensorShape=[1], …), but Rank 0 is
#   running collective: CollectiveFingerPrint(SequenceNumber=3OpType=REDUCE).
_MISMATCH = re.compile(
    r"Detected mismatch between collectives on ranks\. "
    r"Rank (\d{1,8}) is running collective: .{0,80}?OpType=(\w{1,40})"
    r".{0,4000}?but Rank (\d{1,8}) is running collective: (?:.{0,80}?OpType=)?(\w{1,40})"
)
_OF_THE_LAUNCHER = re.compile(r"ChildFailedError|SignalException|KeyboardInterrupt")
# RuntimeError: Timed out waiting 1800000ms for recv operation to complete
# The type alone does not show it: Gloo, the wrapper of TORCH_DISTRIBUTED_DEBUG, monitored barriers
# and PyTorch up to 2.0 raise RuntimeError.
_SAYS_OTHERS = re.compile(
    r"Detected mismatch between collectives|monitoredBarrier|Connection closed by|Connection reset"
    r"|Connection refused|Broken pipe|Timed out waiting|Socket Timeout|timed out in blocking wait"
    r"|NCCL communicator was aborted|collective operation timeout|NCCL error|unhandled system error"
    r"|ncclRemoteError|ncclSystemError|remote process exited|Horovod has been shut down"
)
# torch.AcceleratorError: CUDA error: an illegal memory access was encountered
# RuntimeError: HIP error: unspecified launch failure
_GPU_ERROR = re.compile(r"\b(?:CUDA|HIP) error:")
_TRANSFERS = {"Send", "Recv", "Coalesced"}
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
        self.gpu_errors: set[int] = set()  # ranks whose exception is an error of their GPU
        self.held_up: set[int] = set()  # ranks that timed out, or raised what others caused
        self.exit_codes: dict[int, Claim] = {}  # rank: it ended with an exit code
        self.xids: list[tuple[int, int]] = []  # (process, Xid)
        self.diagnoses: dict[str, None] = {}  # of NCCL, and of Slurm
        self.tasks: dict[int, Task] = {}  # of Slurm, by number
        self.stopped: str | None = None  # how Slurm stopped the job, where no task had failed
        self.raised_by_others = False  # by a rank that is not known

    def read(self, path: str, chunks: Iterable[bytes]) -> bool:
        """Take the lines of a file; whether one of them is evidence."""
        reader = _File(self, rank_of(path) if "." in path or "_" in path else None)
        for line in _lines(chunks):
            if _WORTH.search(line):
                reader.line(line[:_LINE_BYTES].decode("utf-8", errors="replace"))
        reader.end()
        if reader.is_evidence:
            self.sources.append(path)
        return reader.is_evidence


class _File:
    """The lines of one file; some belong together."""

    def __init__(self, found: Messages, rank: int | None) -> None:
        self.found = found
        self.rank = rank  # by the file's name
        self.is_evidence = False
        self.traces: set[int | None] = set()  # ranks, or unknown, within a traceback
        self.ignored: set[int | None] = set()  # within what Python prints of an ignored exception
        self.late: set[int] = set()  # ranks whose further exceptions are consequences
        self.causes: set[bool] = set()  # of exceptions of unknown ranks: whether others caused them
        self.exit_codes: dict[int, Claim] = {}
        # What stands before a line of the launcher: rank, host.
        self.failed: dict[str, tuple[int | None, str | None]] = {}
        self.step_ends = False  # Slurm ends all tasks

    def line(self, line: str) -> None:
        found = self.found
        rank = self._rank(line)
        if (work := _WORK.search(line)) and rank is not None and (op := _OPS.get(work[2])):
            found.work[rank, int(work[1])] = (op, int(work[3]) if work[3] else None)
            found.held_up.add(rank)
            self.late.add(rank)
            self.is_evidence = True
        if status := _STATUS.search(line):
            # The first line counts: it is of the call that hangs, later ones are of its end.
            own = found.status[int(status[3]) if rank is None else rank]
            group = f"process group {status[2] or status[1]}"
            own.setdefault(group, (int(status[4]), int(status[5])))
            self.is_evidence = True
        if barrier := _BARRIER.search(line):
            self._claim(barrier[1], "host_never_called", "did not pass a monitored barrier")
        if desync := _DESYNC.search(line):
            reason = f"completed collective {desync[2]} and did not join the next one"
            self._claim(desync[1], "host_never_called", reason)
        if differ := _MISMATCH.search(line):
            one, other = _op(differ[2]), _op(differ[4])
            than = " with other arguments than rank " if one == other else ""
            self._claim(differ[1], "different_call", f"called {one}{than and than + differ[3]}")
            self._claim(differ[3], "different_call", f"called {other}{than and than + differ[1]}")
        self._exception(line)
        if xid := _XID.search(line):
            found.xids.append((int(xid[2]), int(xid[1])))
            self.is_evidence = True
        self._diagnostics(line)
        self._launcher(line)
        if "srun" in line or "slurmstepd" in line:
            self._slurm(line)

    def _exception(self, line: str) -> None:
        """The line that ends a traceback. Lines of several ranks may alternate."""
        prefix = _PREFIX.search(line)
        of = int(prefix[1]) if prefix else self.rank
        if "Exception ignored in" in line:
            self.ignored.add(of)
            return
        if "Traceback (most recent call last)" in line and "Stack trace" not in line:
            self.traces.add(of)
            return
        raised = _EXCEPTION.search(line)
        # PyTorch writes [rank3]: before all lines of an exception that nothing catches: the last
        # one counts where an excerpt lacks the head.
        if raised is None or not (of in self.traces or prefix):
            return
        self.traces.discard(of)
        if of in self.ignored:
            self.ignored.discard(of)
            return
        by_others = bool(_RAISED_BY_OTHERS.search(raised[1]) or _SAYS_OTHERS.search(line))
        if of is None:
            if not _OF_THE_LAUNCHER.search(raised[1]):
                self.causes.add(by_others)
        elif by_others:
            self.found.held_up.add(of)
            self.late.add(of)
            self.is_evidence = True
        elif of not in self.late:
            if of not in self.found.raised and _GPU_ERROR.search(line):
                self.found.gpu_errors.add(of)
            self.found.raised.setdefault(of, raised[1])
            self.is_evidence = True

    def end(self) -> None:
        """Take what only the whole file shows."""
        self.found.raised_by_others |= True in self.causes
        if self.causes != {True}:  # a rank that raised only what others caused ends with a code
            self.found.exit_codes |= self.exit_codes

    def _rank(self, line: str) -> int | None:
        """Rank of the job that wrote a line."""
        if prefix := _PREFIX.match(line):
            return int(prefix[1])
        if self.rank is not None:
            return self.rank
        named = _RANK.search(line)
        return int(named[1] or named[2]) if named else None

    def _claim(self, ranks: str, what: str, reason: str) -> None:
        for text in ranks.replace(",", " ").split():
            rank = int(text[:9])
            claim = Claim(rank, what, f"Rank {rank} {reason}.")
            self.found.claims.setdefault(rank, claim)
            self.is_evidence = True

    def _diagnostics(self, line: str) -> None:
        """What NCCL's own diagnostics find in the machine."""
        if found := _DIAG.search(line):
            if found[1] and not _DIAG_UNKNOWN.search(found[1]):
                self.found.diagnoses.setdefault(found[1].rstrip())
            self.is_evidence = True

    def _launcher(self, line: str) -> None:
        """The table in which torchrun lists the processes that failed."""
        before = None
        for field in _FAILED.finditer(line):  # some collectors join the lines of a row
            if before is None:
                before = _TIME.sub("", line[: field.start()])
            host, rank, code, pid = field.groups()
            rank_failed, host_failed = self.failed.get(before, (None, None))
            if host:
                self.failed[before] = (None, host[:255])
            elif rank:
                self.failed[before] = (int(rank), host_failed)
            elif rank_failed is not None:
                self.is_evidence = True
                self._ended(rank_failed, int(code), host_failed, int(pid))
        if ended := _MPI_ENDED.search(line):
            self.is_evidence = True
            self._ended(int(ended[1]), -int(ended[4]), ended[3], int(ended[2]))

    def _slurm(self, line: str) -> None:
        """Tasks that ended, by themselves or because Slurm ended the step."""
        if memory := _OOM.search(line):
            step = memory[1].rstrip(".").removeprefix("StepId=")
            text = f"Slurm: memory ran out, and a process of step {step} was killed"
            self.found.diagnoses.setdefault(text)
            self.is_evidence = True
        if ends := _STEP_ENDS.search(line):
            cause = (ends[2] or "").strip().lower()
            if ends[1] and not self.found.tasks and "failure" not in cause:
                self.found.stopped = cause or "cancelled"
            self.step_ends = self.is_evidence = True
        if ended := _TASKS.search(line):
            by_others = self.step_ends or ended[3].startswith(_TASK_ENDED_BY_OTHERS)
            for number in _numbers(ended[2]):
                task = Task(number, ended[1], None if by_others else ended[3].rstrip())
                self.found.tasks.setdefault(number, task)
            self.is_evidence = True

    def _ended(self, rank: int, code: int, host: str | None, pid: int) -> None:
        if code in _ENDED_BY_OTHERS:
            return
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        claim = Claim(rank, "dead", f"Rank {rank} ended with {how}.", host, pid)
        (self.found.claims if code < 0 else self.exit_codes)[rank] = claim


def message_evidence(found: Messages) -> Evidence | None:
    """What the lines say; None without any."""
    if not found.sources:
        return None
    # A rank that timed out, or whose peer went away, ends with an exit code, too.
    codes = {rank: c for rank, c in found.exit_codes.items() if rank not in found.held_up}
    claims = found.claims | codes
    # Memory of a rank that ends is gone for its peers as well: they get errors of the GPU.
    raised = [rank for rank in found.raised if rank not in found.gpu_errors]
    if len(first := raised or list(found.raised)) == 1:  # of several the first one is not known
        (rank,) = first
        claims.setdefault(rank, Claim(rank, "dead", f"Rank {rank} raised {found.raised[rank]}."))
    # A rank that waits ends with an exit code, too.
    waits = found.held_up or found.raised_by_others
    tasks = [
        replace(task, reason=None) if waits and "exit code" in (task.reason or "") else task
        for task in found.tasks.values()
    ]
    open_calls = {rank: tuple(_open(found, rank)) for rank in found.status}
    # Sends and Recvs count in the numbers of the two ranks that take part.
    uneven = {
        call.group for calls in open_calls.values() for call in calls if call.op in _TRANSFERS
    }
    members: dict[str, list[int]] = defaultdict(list)
    for rank, own in sorted(found.status.items()):
        for group in own:
            if group not in uneven:
                members[group].append(rank)
    return Evidence(
        kind="stderr",
        ranks=tuple(
            RankEvidence(
                rank,
                "watchdog",
                open_calls[rank],
                tuple((group, last) for group, (last, _) in own.items() if group not in uneven),
            )
            for rank, own in sorted(found.status.items())
        ),
        groups=tuple((group, tuple(ranks)) for group, ranks in members.items()),
        sources=tuple(found.sources),
        claims=tuple(claims.values()),
        xids=tuple(x for x in found.xids if x[1] not in _XID_AFTER_AN_END),
        # A difference of settings, or an error long ago, is among them: they prove nothing.
        remarks=tuple(found.diagnoses),
        tasks=tuple(tasks),
        stopped=found.stopped,
    )


def _numbers(listed: str) -> Iterable[int]:
    """Tasks of a list as srun writes it.

    >>> list(_numbers("0-2,5"))
    [0, 1, 2, 5]
    """
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            yield from range(int(first[:9]), min(int((last or first)[:9]), _MOST_TASKS) + 1)


def _open(found: Messages, rank: int) -> Iterable[Call]:
    """The call after the last completed one of each group; of several, which came first is not
    known.
    """
    for group, (enqueued, completed) in found.status[rank].items():
        if enqueued > completed:
            number = completed + 1
            # Other ranks of the group that wait at the same number may have printed the call.
            peers = {
                work
                for peer, own in found.status.items()
                if own.get(group, (0, 0))[1] == completed
                and (work := found.work.get((peer, number))) is not None
            }
            work = found.work.get((rank, number)) or (peers.pop() if len(peers) == 1 else None)
            if work is not None:
                yield Call(group, number, *work)


def _op(name: str) -> str:
    return _OPS.get(name, name)


def _lines(chunks: Iterable[bytes]) -> Iterable[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > 4 * _LINE_BYTES:  # no line of ours
            rest = rest[:_LINE_BYTES]
    if rest:
        yield rest
