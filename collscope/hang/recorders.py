"""Evidence from files of collscope's own recorder, and from records of NCCL's Inspector.

The recorder writes each call of the host within 10 ms, and no group of all ranks: what a GPU ended
is played, as from logs. Inspector writes a call once it has completed: none of its records is of a
call that hangs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from collscope.hang.logs import played
from collscope.hang.records import Call, Evidence, RankEvidence
from collscope.model import Op, Severity
from collscope.model.trace import RecordedCalls
from collscope.parsers.hints import Hints
from collscope.parsers.recorders import inspector, own_recorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from collscope.ingest.files import Input
    from collscope.model.trace import RecordedCall


def read_recording(file: Input) -> RecordedCalls | None:
    """A file's recording; None of another file."""
    head = file.head()
    for module in (own_recorder, inspector):
        if module.sniff(head):
            records = module.READER.read(file, Hints())
            return records if isinstance(records, RecordedCalls) else None
    return None


class _Process(msgspec.Struct, frozen=True):
    """All files of one process."""

    paths: tuple[str, ...]
    calls: tuple[RecordedCall, ...]
    places: dict[str, int]  # the process's rank in each group
    sizes: dict[str, int]
    rank: int | None  # in its environment
    host: str | None
    pid: int | None
    damaged: bool


def recorder_evidence(files: Sequence[tuple[str, RecordedCalls]]) -> Iterable[Evidence]:
    """What the files say, by recorder.

    files  path and recording; a copy of an earlier one counts once
    """
    once: dict[object, tuple[str, RecordedCalls]] = {}
    for path, calls in files:
        once.setdefault(calls if calls.distinct else path, (path, calls))
    for dialect, kind in (("own_recorder", "recorder"), ("inspector", "inspector")):
        own = [(path, calls) for path, calls in once.values() if calls.dialect == dialect]
        if own:
            yield _evidence(kind, [_process(of) for of in _by_process(own)])


def _by_process(
    files: Iterable[tuple[str, RecordedCalls]],
) -> Iterable[list[tuple[str, RecordedCalls]]]:
    found: dict[object, list[tuple[str, RecordedCalls]]] = defaultdict(list)
    for path, calls in files:
        found[calls.process or (calls.host, calls.pid, path)].append((path, calls))
    return [sorted(of, key=lambda item: item[1].part) for of in found.values()]


def _process(files: Sequence[tuple[str, RecordedCalls]]) -> _Process:
    recordings = [calls for _, calls in files]
    calls = tuple(call for recording in recordings for call in recording.calls)
    places: dict[str, set[int]] = defaultdict(set)
    sizes: dict[str, int] = {}
    for call in calls:
        what = call.collective
        if what.group is not None and call.group_rank is not None and what.group_size:
            places[what.group].add(call.group_rank)
            sizes[what.group] = what.group_size
    lost = any(
        d.severity in {Severity.DATA_LOSS, Severity.ERROR}
        # A call that the library did not launch is not among the calls.
        or d.code == "not_launched"
        for recording in recordings
        for d in recording.diagnostics
    )
    first = recordings[0]
    return _Process(
        paths=tuple(path for path, _ in files),
        calls=calls,
        places={group: min(ranks) for group, ranks in places.items()},
        sizes=sizes,
        rank=next((r.rank for r in recordings if r.rank is not None), None),
        host=first.host,
        pid=first.pid,
        damaged=lost
        or [recording.part for recording in recordings] != list(range(len(recordings)))
        or any(len(ranks) > 1 for ranks in places.values()),  # it drives several ranks
    )


def _evidence(kind: str, processes: Sequence[_Process]) -> Evidence:
    sizes = {group: size for process in processes for group, size in process.sizes.items()}
    world = max(sizes, key=lambda group: sizes[group], default=None)
    rank_of = {
        number: rank
        for number, process in enumerate(processes)
        if (rank := process.places.get(world or "", process.rank)) is not None
    }
    twice = {rank for rank, times in Counter(rank_of.values()).items() if times > 1}
    damaged = twice | {rank for n, rank in rank_of.items() if processes[n].damaged}
    members: dict[str, dict[int, int]] = defaultdict(dict)  # group: rank of it, world rank
    for number, rank in rank_of.items():
        for group, place in processes[number].places.items():
            members[group][place] = rank
    process_of = {rank: processes[n] for n, rank in rank_of.items() if rank not in damaged}
    made = {rank: list(_calls(p, rank, members)) for rank, p in process_of.items()}
    groups = {group: tuple(sorted(of.values())) for group, of in members.items()}
    for pair in {c.group for calls in made.values() for c in calls if c.op == "SendRecv"}:
        sender, _, receiver = pair.rpartition(": ")[2].partition(" to ")
        groups[pair] = int(sender), int(receiver)
    ended = (
        played(made, groups)
        if kind == "recorder"
        else {rank: [replace(c, completed=True) for c in calls] for rank, calls in made.items()}
    )
    return Evidence(
        kind=kind,
        ranks=tuple(
            RankEvidence(rank, kind, tuple(ended[rank]), host=of.host, pid=of.pid)
            for rank, of in sorted(process_of.items())
        ),
        groups=tuple(groups.items()),
        damaged=tuple(sorted(damaged)),
        sources=tuple(path for process in processes for path in process.paths),
    )


def _calls(
    process: _Process, rank: int, members: Mapping[str, Mapping[int, int]]
) -> Iterable[Call]:
    places: Counter[str] = Counter()
    for call in process.calls:
        what = call.collective
        if what.group not in process.places:
            continue
        group, op, root = what.group, str(what.op.value), None
        if what.op.point_to_point:
            peer = None if what.peer is None else members[group].get(what.peer)
            if peer is None or peer == rank:
                continue
            pair = (rank, peer) if what.op is Op.SEND else (peer, rank)
            group, op = f"{group}: {pair[0]} to {pair[1]}", "SendRecv"
        elif what.root is not None:
            root = members[group].get(what.root)
        places[group] += 1
        count = what.out_count if what.in_count is None else what.in_count
        datatype = None if what.datatype is None else str(what.datatype.value)
        yield Call(
            group, places[group], op, count, datatype, root, completed=False, time_ns=call.start_ns
        )
