"""Recordings that give one process group different ranks (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from collscope.model import Diagnostic, Severity
from collscope.model.trace import RecordedCall, RecordedCalls, TraceCollective

_Ranks = tuple[int, ...]
_TEXT = (
    "recordings that disagree with a member's recording on the ranks of a process group: counted "
    "as one group with the ranks that most of them give, or that all of them have in common"
)


def agree_on_ranks(
    recordings: Sequence[RecordedCalls],
) -> tuple[list[RecordedCalls], list[Diagnostic]]:
    """Recordings in which a name stands for one list of ranks on all of these ranks.

    Groups of one name are several where no rank is in two of them, as those of a device mesh.
    """
    recordings = _completed(recordings)
    listed = [_ranks_of(recording) for recording in recordings]
    names: dict[str, dict[int, _Ranks]] = defaultdict(dict)
    for recording, own in zip(recordings, listed, strict=True):
        for name, ranks in own.items():
            names[name][recording.rank or 0] = ranks
    agreed = {name: found for name, by_rank in names.items() if (found := _agreed(by_rank))}
    if not agreed:
        return list(recordings), []
    kept, changed = [], 0
    for recording, own in zip(recordings, listed, strict=True):
        new = {
            name: ranks
            for name, old in own.items()
            if (ranks := agreed.get(name, {}).get(old, old)) != old
        }
        changed += bool(new)
        kept.append(_with(recording, new) if new else recording)
    return kept, [Diagnostic(Severity.DATA_LOSS, "group_ranks_differ", _TEXT, count=changed)]


def _completed(recordings: Sequence[RecordedCalls]) -> list[RecordedCalls]:
    """Recordings without a group's ranks get those of the other recordings.

    Of several groups of the name that is the one that the recording's rank is in.
    """
    known_ranks: dict[str, set[_Ranks]] = defaultdict(set)
    for recording in recordings:
        for name, ranks in _ranks_of(recording).items():
            known_ranks[name].add(ranks)
    found = []
    for recording in recordings:
        what = {id(c.collective): c.collective for c in recording.calls}.values()
        unknown = {c.group for c in what if c.group_ranks is None and c.group_size is None}
        own = {
            name: [ranks for ranks in known_ranks[name] if recording.rank in ranks]
            for name in unknown
            if name in known_ranks
        }
        new = {name: ranks[0] for name, ranks in own.items() if len(ranks) == 1}
        found.append(_with(recording, new) if new else recording)
    return found


def _ranks_of(recording: RecordedCalls) -> dict[str, _Ranks]:
    """Ranks by the name of a group, of the groups that this rank is in."""
    found = {c.collective.group: c.collective.group_ranks for c in recording.calls}
    return {
        name: ranks
        for name, ranks in found.items()
        if name is not None and ranks and recording.rank in ranks
    }


def _agreed(by_rank: dict[int, _Ranks]) -> dict[_Ranks, _Ranks]:
    """What to take for each list that a member's own list contradicts.

    by_rank  the list of each rank that recorded
    """
    joined: dict[_Ranks, set[_Ranks]] = {}
    for ranks in set(by_rank.values()):
        joined.setdefault(ranks, {ranks})
        for rank in ranks:
            other = by_rank.get(rank, ranks)
            if other not in joined[ranks]:
                both = joined[ranks] | joined.get(other, {other})
                joined.update(dict.fromkeys(both, both))
    number = Counter(by_rank.values())
    return {
        ranks: _most(together, number) for ranks, together in joined.items() if len(together) > 1
    }


def _most(together: Iterable[_Ranks], number: Counter[_Ranks]) -> _Ranks:
    order = sorted(together, key=lambda ranks: (-number[ranks], ranks))
    if number[order[0]] > number[order[1]]:
        return order[0]
    common = set(order[0]).intersection(*order[1:])
    # Of several lists in a chain none may have all in common.
    return tuple(rank for rank in order[0] if rank in common) or order[0]


def _with(recording: RecordedCalls, ranks_of: dict[str, _Ranks]) -> RecordedCalls:
    """The recording with other ranks of some groups."""
    known: dict[int, TraceCollective] = {}
    calls: list[RecordedCall] = []
    for call in recording.calls:
        what = call.collective
        ranks = ranks_of.get(what.group or "")
        if ranks is None:
            calls.append(call)
            continue
        if id(what) not in known:
            known[id(what)] = replace(what, group_ranks=ranks, group_size=len(ranks))
        place = ranks.index(recording.rank) if recording.rank in ranks else None
        calls.append(replace(call, collective=known[id(what)], group_rank=place))
    groups = tuple((name, ranks_of.get(name, ranks)) for name, ranks in recording.groups)
    return replace(recording, calls=tuple(calls), groups=groups)
