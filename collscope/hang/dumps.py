"""Evidence from the flight recorder's dumps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from collscope.hang.records import Call, Evidence, RankEvidence
from collscope.model import Severity
from collscope.model.trace import RecordedCalls
from collscope.parsers.hints import Hints
from collscope.parsers.recorders import flight_pickle, flight_recorder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collscope.ingest.files import Input
    from collscope.model.trace import RecordedCall


_STATES = {"scheduled", "started", "completed"}  # FlightRecorder.hpp: a call has one of these


def read_dump(file: Input) -> RecordedCalls | None:
    """A file's recording; None of another file."""
    head = file.head()
    for module in (flight_pickle, flight_recorder):
        if module.sniff(head):
            records = module.READER.read(file, Hints())
            return records if isinstance(records, RecordedCalls) else None
    return None


def dump_evidence(
    dumps: Iterable[tuple[str, RecordedCalls]], others: Iterable[tuple[str, bool]]
) -> Evidence | None:
    """What dumps say of their ranks; None without one.

    dumps   path and recording
    others  path of each file that is no dump, and whether it holds anything
    """
    read: dict[int, RecordedCalls] = {}
    damaged: set[int] = set()
    kinds = set()
    sources: list[str] = []
    timed_out: list[bool] = []
    for path, calls in dumps:
        if calls.rank is None:
            continue
        sources.append(path)
        kinds.add(_kind(path))
        lost = any(d.severity in {Severity.DATA_LOSS, Severity.ERROR} for d in calls.diagnostics)
        lost |= not calls.calls and not calls.groups  # a process has a group before it dumps
        lost |= any(call.state not in _STATES for call in calls.calls) or _outside(calls)
        # Two dumps of one rank: no name says which is of this job.
        if lost or calls.rank in read:
            damaged.add(calls.rank)
        read[calls.rank] = calls
        timed_out += _timed_out(calls, path)
    if not read:
        return None
    unread = [
        (rank, holds)
        for path, holds in others
        if _kind(path) in kinds and (rank := flight_recorder.rank_of(path)) is not None
    ]
    damaged |= {rank for rank, holds in unread if holds and rank not in read}
    empty = {rank for rank, holds in unread if not holds}
    undamaged = [calls for rank, calls in read.items() if rank not in damaged]
    ranks = tuple(_rank(calls) for calls in undamaged)
    groups = _groups(undamaged, ranks)
    members = {rank for _, ranks in groups for rank in ranks}
    return Evidence(
        kind="dumps",
        ranks=ranks,
        groups=groups,
        silent=tuple(sorted((members | empty) - set(read) - damaged)),
        damaged=tuple(sorted(damaged)),
        sources=tuple(sources),
        timed_out=any(timed_out) if timed_out else None,
    )


def _outside(calls: RecordedCalls) -> bool:
    """Whether a group has a rank that the group of all ranks does not have.

    PyTorch numbers the groups from 0, and the first one is of all ranks.
    """
    world = max((ranks for _, ranks in calls.groups), key=len, default=())
    if world != tuple(range(len(world))):
        return dict(calls.groups).get("0") == world
    return any(rank >= len(world) for _, ranks in calls.groups for rank in ranks)


def _kind(path: str) -> str:
    """Name of a file without its numbers: the dumps of a job differ in the rank's alone."""
    return re.sub(r"\d+", "#", re.split(r"[/\\]", path)[-1])


def _timed_out(calls: RecordedCalls, path: str) -> list[bool]:
    """Of each open call, whether it was older than its timeout when the file was written.

    A dump that was asked of a job that runs has open calls too. A copy of a file may be younger
    than the file: then nothing speaks against a hang. Both times are of one host.
    """
    try:
        written_ns = Path(path).stat().st_mtime_ns
    except OSError:  # standard input
        return []
    return [
        written_ns - call.start_ns >= call.timeout_ns
        for call in calls.calls
        if call.state != "completed"
        and call.timeout_ns is not None
        and call.start_ns is not None
        and call.start_ns <= written_ns
    ]


def _groups(
    dumps: Iterable[RecordedCalls], made: Iterable[RankEvidence]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found: dict[str, tuple[int, ...]] = {}
    for calls in dumps:
        for name, ranks in calls.groups:
            found.setdefault(_name(name, ranks), ranks)
    for pair in {call.group for of in made for call in of.calls if call.op == "SendRecv"}:
        sender, _, receiver = pair.rpartition(": ")[2].partition(" to ")
        found.setdefault(pair, (int(sender), int(receiver)))
    return tuple(found.items())


def _name(name: str, ranks: tuple[int, ...]) -> str:
    # Ranks may number their groups each by itself: a name alone is not one group.
    return f"{name} {list(ranks)}" if len(ranks) <= 8 else f"{name} [{ranks[0]}, … {ranks[-1]}]"


def _rank(calls: RecordedCalls) -> RankEvidence:
    assert calls.rank is not None
    groups = dict(calls.groups)
    return RankEvidence(
        rank=calls.rank,
        source=calls.dialect,
        calls=tuple(_calls(calls)),
        reached=tuple(
            (_name(s.group, groups[s.group]), s.last_enqueued)
            for s in calls.status
            if s.group in groups and s.last_enqueued is not None
        ),
        host=calls.host,
        pid=calls.pid,
    )


def _calls(calls: RecordedCalls) -> list[Call]:
    groups = dict(calls.groups)
    names = {name: _name(name, ranks) for name, ranks in calls.groups}
    places: dict[str, int] = {}
    found = []
    for call in calls.calls:
        key = call.collective.group
        if key is None or key not in groups:
            continue
        group, op = names[key], str(call.collective.op.value)
        seq = call.seq
        if call.collective.op.point_to_point:
            pair = _pair(call, groups[key], calls.rank)
            # Senders and receivers count each for itself: a pair meets by its own number.
            if pair is None or calls.coverage != "whole":
                continue
            group, op, seq = f"{group}: {pair[0]} to {pair[1]}", "SendRecv", None
        places[group] = places.get(group, 0) + 1
        found.append(
            Call(
                group=group,
                seq=places[group] if seq is None else seq,
                op=op,
                count=call.collective.in_count,
                datatype=None if (d := call.collective.datatype) is None else str(d.value),
                completed=call.state == "completed",
                time_ns=call.start_ns,
                frames=call.frames,
            )
        )
    return found


def _pair(call: RecordedCall, members: tuple[int, ...], rank: int | None) -> tuple[int, int] | None:
    peer = call.collective.peer
    if rank is None or peer is None or peer >= len(members):
        return None
    other = members[peer]
    return (rank, other) if call.collective.op.value == "Send" else (other, rank)
