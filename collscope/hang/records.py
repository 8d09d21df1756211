"""What is known of each rank of a job that hangs, and the verdict."""

from __future__ import annotations

from typing import Annotated

import msgspec

SCHEMA = "collscope.hang/1"
# Of these all members hand in equally many elements; of others each its own share.
EQUAL_COUNTS = {"AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter"}
# What a rank does that holds the others up.
WHAT = (
    "host_never_called", "dead", "silent", "gpu_not_finished", "different_call", "different_order",
    "extra_call", "peer_missing", "not_initialised",
)  # fmt: skip
# What a reason has of a silent rank: both may be known of it.
NO_RECORDING, NO_ANSWER = "has no flight-recorder dump", "does not answer the RAS service"


class Call(msgspec.Struct, frozen=True, gc=False):
    """A rank's call of a collective, or one side of a transfer."""

    group: str  # its name, or of a transfer "GROUP: SENDER to RECEIVER"
    seq: int  # number in the group, as all members count it
    op: str
    count: int | None = None  # elements that go in
    datatype: str | None = None
    root: int | None = None  # world rank; not known of a flight recorder's call
    completed: bool = False
    time_ns: int | None = None  # clock of the rank's host: not compared with other hosts
    frames: tuple[str, ...] = ()  # "function file:line", the innermost first


def only_sends(rank: int, call: Call) -> bool:
    """Whether a rank's part of a call may end before the others have begun theirs."""
    if call.op == "Broadcast":
        return call.root == rank
    return call.op == "Reduce" and call.root not in {None, rank}


class RankEvidence(msgspec.Struct, frozen=True):
    """One rank whose calls are known."""

    rank: int
    source: str
    calls: tuple[Call, ...]  # of all groups, in the order in which the host made them
    reached: tuple[tuple[str, int], ...] = ()  # last number made in a group, by its counters
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None


class Claim(msgspec.Struct, frozen=True):
    """What a source states outright about one rank."""

    rank: int
    what: str  # of `WHAT`
    reason: str  # a sentence
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None


class Task(msgspec.Struct, frozen=True):
    """A task of Slurm that ended: its number is that of a rank where each rank is one task."""

    number: int
    host: str
    reason: str | None  # what ended it; null: Slurm, or another rank's end


class Counts(msgspec.Struct, frozen=True):
    """Calls launched by the ranks of a group, which all count by operation."""

    group: str
    of: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]  # (rank, (operation, calls))


class Evidence(msgspec.Struct, frozen=True):
    """What the sources of one kind say of a job."""

    kind: str  # dumps, logs, recorder, inspector, stderr, ras
    ranks: tuple[RankEvidence, ...] = ()
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()  # (group, world ranks)
    silent: tuple[int, ...] = ()  # wrote nothing, though others did
    damaged: tuple[int, ...] = ()  # what they wrote cannot be read whole: it proves nothing
    sources: tuple[str, ...] = ()
    timed_out: bool | None = None  # whether a call was older than its timeout; None: not known
    claims: tuple[Claim, ...] = ()
    counts: tuple[Counts, ...] = ()
    xids: tuple[tuple[int, int], ...] = ()  # (process, Xid) of GPUs that failed
    runs: bool = False  # it went on between two answers
    remarks: tuple[str, ...] = ()  # what NCCL's diagnostics, or Slurm, found in the machine
    tasks: tuple[Task, ...] = ()  # of Slurm
    stopped: str | None = None  # how Slurm stopped the job, where no task of it had failed
    hint: str | None = None  # what to set, where the source lacks what it could show

    @property
    def hosts_alone(self) -> bool:
        """Whether it shows what hosts called, and not what GPUs ended."""
        return self.kind in {"logs", "recorder"}


class Who(msgspec.Struct, frozen=True):
    """A rank that holds up the job."""

    rank: int  # global
    host: str | None = None  # null: not known
    pid: int | None = None  # process; null: not known
    gpu: int | None = None  # device of its host; null: not known


class Waiting(msgspec.Struct, frozen=True):
    """Ranks that only wait."""

    ranks: int  # how many
    groups: tuple[str, ...]  # through which the hang spread
    which: tuple[int, ...] = ()  # these ranks; empty: not known


class Verdict(msgspec.Struct, frozen=True):
    """The answer to: who holds up the job?"""

    decided: bool  # whether the sources name a rank
    who: tuple[Who, ...]  # empty where it is not decided
    what: tuple[str, ...]  # of `WHAT`; more than one where they look alike in the sources
    group: str | None  # of the call that hangs; null: not known
    seq: int | None  # number of the call in its group; null: not known
    op: str | None  # its operation; null: not known
    since: int | None  # ns, on the clock of the host of a rank that waits; null: not known
    waiting: Waiting  # those that wait for it
    certainty: Annotated[str | None, ("certain", "likely", None)]  # null: not decided
    candidates: tuple[int, ...]  # undecided: one of these ranks holds the others up
    reasons: tuple[str, ...]  # sentences
    frames: tuple[str, ...] = ()  # of the call, "function file:line", the innermost first
    frames_rank: int | None = None  # whose host made the call there; null: no frames
    last_completed: str | None = None  # of the first of `who`; null: not known
    sources: tuple[str, ...] = ()  # files that were read
    remarks: tuple[
        str, ...
    ] = ()  # what NCCL's diagnostics, or Slurm, found in the machine: they decide nothing
    schema: str = SCHEMA
