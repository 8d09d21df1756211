"""Evidence of a job from the files that its owner has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from collscope.errors import InputError, UnreadableError
from collscope.hang.records import Call, Evidence, RankEvidence
from collscope.ingest.files import open_input
from collscope.ingest.paths import expand_files
from collscope.model import Severity
from collscope.model.trace import RecordedCalls
from collscope.parsers.hints import Hints
from collscope.parsers.recorders import flight_pickle, flight_recorder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collscope.model.trace import RecordedCall


def evidence_of(paths: list[str]) -> Evidence:
    """What the flight recorder dumps among the paths say of each rank.

    raises  InputError when a path names nothing, or nothing below the paths can be read
    """
    read: dict[int, RecordedCalls] = {}
    damaged: set[int] = set()
    kinds = set()
    unread: list[tuple[int, str, bool]] = []  # (rank, path, whether it holds anything)
    sources: list[str] = []
    timed_out: list[bool] = []
    for path in expand_files(paths):
        calls, holds = _dump(path)
        if calls is None:
            if (rank := flight_recorder.rank_of(path)) is not None:
                unread.append((rank, path, holds))
            continue
        if calls.rank is None:
            continue
        sources.append(path)
        kinds.add(_kind(path))
        lost = any(d.severity in {Severity.DATA_LOSS, Severity.ERROR} for d in calls.diagnostics)
        # Two dumps of one rank: no name says which is of this job.
        if lost or calls.rank in read:
            damaged.add(calls.rank)
        read[calls.rank] = calls
        timed_out += _timed_out(calls, path)
    dumps_unread = [
        (r, holds) for r, path, holds in unread if r not in read and _kind(path) in kinds
    ]
    damaged |= {rank for rank, holds in dumps_unread if holds}
    empty = {rank for rank, holds in dumps_unread if not holds}
    if not read:
        raise InputError(f"{paths[0]}: no flight recorder dump. Name the folder of the dumps.")
    undamaged = [calls for rank, calls in read.items() if rank not in damaged]
    groups = _groups(undamaged)
    members = {rank for _, ranks in groups for rank in ranks}
    return Evidence(
        ranks=tuple(_rank(calls) for calls in undamaged),
        groups=groups,
        silent=tuple(sorted((members | empty) - set(read) - damaged)),
        damaged=tuple(sorted(damaged)),
        sources=tuple(sources),
        timed_out=any(timed_out) if timed_out else None,
    )


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


def _dump(path: str) -> tuple[RecordedCalls | None, bool]:
    """A file's recording, None of another file, and whether it holds anything."""
    try:
        with open_input(path) as file:
            head = file.head()
            for module in (flight_pickle, flight_recorder):
                if module.sniff(head):
                    records = module.READER.read(file, Hints())
                    return (records if isinstance(records, RecordedCalls) else None), True
            return None, bool(head)
    except UnreadableError:
        return None, True


def _groups(dumps: Iterable[RecordedCalls]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found: dict[str, tuple[int, ...]] = {}
    for calls in dumps:
        for name, ranks in calls.groups:
            found.setdefault(_name(name, ranks), ranks)
        for call in _calls(calls):
            if ": " in call.group and " to " in call.group:
                sender, _, receiver = call.group.rpartition(": ")[2].partition(" to ")
                found.setdefault(call.group, (int(sender), int(receiver)))
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
    places: dict[str, int] = {}
    found = []
    for call in calls.calls:
        key = call.collective.group
        if key is None or key not in groups:
            continue
        group, op = _name(key, groups[key]), str(call.collective.op.value)
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
