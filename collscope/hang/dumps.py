"""Evidence from the flight recorder's dumps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from collscope.hang.records import Call, Evidence, RankEvidence
from collscope.model import Op, Severity
from collscope.model.trace import RecordedCalls
from collscope.parsers.hints import Hints
from collscope.parsers.recorders import flight_pickle, flight_recorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from collscope.ingest.files import Input
    from collscope.model.trace import TraceCollective


_STATES = {"scheduled", "started", "completed"}  # FlightRecorder.hpp: a call has one of these


def read_dump(file: Input) -> RecordedCalls | None:
    """A file's recording; None of another file."""
    head = file.head()
    for module in (flight_pickle, flight_recorder):
        if module.sniff(head):
            records = module.READER.read(file, Hints())
            return records if isinstance(records, RecordedCalls) else None
    return None


class Dump(msgspec.Struct, frozen=True):
    """What one dump shows of its rank."""

    path: str
    of: RankEvidence
    groups: tuple[tuple[str, tuple[int, ...]], ...]  # (group, world ranks), then pairs of transfers
    damaged: bool
    overdue: bool | None  # whether a call was older than its timeout; None: not known


def dump_of(path: str, calls: RecordedCalls) -> Dump | None:
    """A recording as evidence; None where its rank is not known."""
    if calls.rank is None:
        return None
    lost = any(d.severity in {Severity.DATA_LOSS, Severity.ERROR} for d in calls.diagnostics)
    lost |= not calls.calls and not calls.groups  # a process has a group before it dumps
    lost |= bool({call.state for call in calls.calls} - _STATES) or _outside(calls)
    of = _rank(calls, calls.rank)
    timed_out = _timed_out(calls, path)
    return Dump(path, of, _groups(calls, of), lost, any(timed_out) if timed_out else None)


def recorded_evidence(recordings: Iterable[tuple[str, RecordedCalls]]) -> Evidence | None:
    """What recordings say of their ranks, with the path of each; None without one."""
    dumps = (dump_of(path, calls) for path, calls in recordings)
    return dump_evidence((dump for dump in dumps if dump is not None), ())


def dump_evidence(dumps: Iterable[Dump], others: Iterable[tuple[str, bool]]) -> Evidence | None:
    """What dumps say of their ranks; None without one.

    others  path of each file that is no dump, and whether it holds anything
    """
    read: dict[int, Dump] = {}
    damaged: set[int] = set()
    kinds = set()
    sources: list[str] = []
    overdue: set[bool | None] = set()
    for dump in dumps:
        rank = dump.of.rank
        if rank in read and _same(dump, read[rank]):
            continue
        sources.append(dump.path)
        kinds.add(_kind(dump.path))
        # Two dumps of one rank: no name shows which belongs to this job.
        if dump.damaged or rank in read:
            damaged.add(rank)
        read[rank] = dump
        overdue.add(dump.overdue)
    if not read:
        return None
    unread = [
        (number, holds)
        for path, holds in others
        if _kind(path) in kinds and (number := flight_recorder.rank_of(path)) is not None
    ]
    damaged |= {rank for rank, holds in unread if holds and rank not in read}
    empty = {rank for rank, holds in unread if not holds}
    undamaged = [dump for rank, dump in read.items() if rank not in damaged]
    groups: dict[str, tuple[int, ...]] = {}
    for dump in undamaged:
        for name, ranks in dump.groups:
            groups.setdefault(name, ranks)
    members = {rank for ranks in groups.values() for rank in ranks}
    return Evidence(
        kind="dumps",
        ranks=tuple(dump.of for dump in undamaged),
        groups=tuple(groups.items()),
        silent=tuple(sorted((members | empty) - set(read) - damaged)),
        damaged=tuple(sorted(damaged)),
        sources=tuple(sources),
        timed_out=True if True in overdue else False if False in overdue else None,
    )


def _same(dump: Dump, earlier: Dump) -> bool:
    """Whether one dump is a copy of the other, as beside its compressed file."""
    return (dump.of, dump.groups, dump.damaged) == (earlier.of, earlier.groups, earlier.damaged)


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


def _groups(calls: RecordedCalls, of: RankEvidence) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found = {_name(name, ranks): ranks for name, ranks in calls.groups}
    for pair in sorted({call.group for call in of.calls if call.op == "SendRecv"}):
        sender, _, receiver = pair.rpartition(": ")[2].partition(" to ")
        found.setdefault(pair, (int(sender), int(receiver)))
    return tuple(found.items())


def _name(name: str, ranks: tuple[int, ...]) -> str:
    # Ranks may number their groups each by itself: a name alone is not one group.
    return f"{name} {list(ranks)}" if len(ranks) <= 8 else f"{name} [{ranks[0]}, … {ranks[-1]}]"


def _rank(calls: RecordedCalls, rank: int) -> RankEvidence:
    groups = dict(calls.groups)
    return RankEvidence(
        rank=rank,
        source=calls.dialect,
        calls=tuple(_calls(calls, rank)),
        reached=tuple(
            (_name(s.group, groups[s.group]), s.last_enqueued)
            for s in calls.status
            if s.group in groups and s.last_enqueued is not None
        ),
        host=calls.host,
        pid=calls.pid,
    )


class _Made(msgspec.Struct, frozen=True):
    """What calls of one collective have in common."""

    group: str
    op: str
    datatype: str | None


def _calls(calls: RecordedCalls, rank: int) -> list[Call]:
    groups = dict(calls.groups)
    names = {name: _name(name, ranks) for name, ranks in calls.groups}
    made: dict[int, _Made | None] = {}
    places: dict[str, int] = {}
    found = []
    for call in calls.calls:
        what = call.collective
        if (key := id(what)) not in made:
            made[key] = _made(what, groups, names, rank)
        if (of := made[key]) is None:
            continue
        # Senders and receivers count each for itself: a pair meets by its own number.
        transfer = of.op == "SendRecv"
        if transfer and calls.coverage != "whole":
            continue
        place = places[of.group] = places.get(of.group, 0) + 1
        found.append(
            Call(
                of.group,
                place if call.seq is None or transfer else call.seq,
                of.op,
                what.in_count,
                of.datatype,
                None,
                call.state == "completed",
                call.start_ns,
                call.frames,
            )
        )
    return found


def _made(
    what: TraceCollective,
    groups: Mapping[str, tuple[int, ...]],
    names: Mapping[str, str],
    rank: int,
) -> _Made | None:
    """None of a call whose group, or whose peer, is not known."""
    if what.group is None or what.group not in groups:
        return None
    group, op = names[what.group], str(what.op.value)
    if what.op.point_to_point:
        pair = _pair(what, groups[what.group], rank)
        if pair is None:
            return None
        group, op = f"{group}: {pair[0]} to {pair[1]}", "SendRecv"
    return _Made(group, op, None if what.datatype is None else str(what.datatype.value))


def _pair(what: TraceCollective, members: tuple[int, ...], rank: int) -> tuple[int, int] | None:
    if what.peer is None or what.peer >= len(members):
        return None
    other = members[what.peer]
    return (rank, other) if what.op is Op.SEND else (other, rank)
