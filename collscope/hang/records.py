"""What is known of each rank of a job that hangs, and the verdict."""

from __future__ import annotations

import msgspec


class Call(msgspec.Struct, frozen=True):
    """A rank's call of a collective, or one side of a transfer."""

    group: str  # its name, or of a transfer "GROUP: SENDER to RECEIVER"
    seq: int  # number in the group, as all members count it
    op: str
    count: int | None = None  # elements that go in
    datatype: str | None = None
    completed: bool = False
    time_ns: int | None = None  # clock of the rank's host: not compared with other hosts
    frames: tuple[str, ...] = ()  # "function file:line", the innermost first


class RankEvidence(msgspec.Struct, frozen=True):
    """One rank whose calls are known."""

    rank: int
    source: str
    calls: tuple[Call, ...]  # of all groups, in the order in which the host made them
    reached: tuple[tuple[str, int], ...] = ()  # last number made in a group, by its counters
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None


class Evidence(msgspec.Struct, frozen=True):
    """What all sources say of a job."""

    ranks: tuple[RankEvidence, ...]
    groups: tuple[tuple[str, tuple[int, ...]], ...]  # (group, world ranks)
    silent: tuple[int, ...] = ()  # wrote nothing, though others did
    damaged: tuple[int, ...] = ()  # what they wrote cannot be read whole: it proves nothing
    sources: tuple[str, ...] = ()
    timed_out: bool | None = None  # whether a call was older than its timeout; None: not known


class Who(msgspec.Struct, frozen=True):
    """A rank that holds up the job."""

    rank: int
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None


class Waiting(msgspec.Struct, frozen=True):
    """Ranks that only wait."""

    ranks: int
    groups: tuple[str, ...]  # through which the hang spread


class Verdict(msgspec.Struct, frozen=True):
    """The answer to: who holds up the job?"""

    decided: bool
    who: tuple[Who, ...]
    what: tuple[str, ...]  # more than one where they look alike in the sources
    group: str | None
    seq: int | None
    op: str | None
    since: int | None  # ns, on the clock of the host of a rank that waits
    waiting: Waiting
    certainty: str | None  # certain, likely; None where it is not decided
    candidates: tuple[int, ...]
    reasons: tuple[str, ...]
    frames: tuple[str, ...] = ()
    last_completed: str | None = None
