"""What the recorders of many ranks disagree on: ranks that stopped, calls that differ or lack.

Pure: from `RecordedCalls` to findings. A rank that nobody recorded is no finding, and what a ring
buffer has forgotten is not missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from collscope.match.members import (
    CallPlace,
    Member,
    agree,
    amount,
    any_open,
    byte_count,
    is_open,
    rank_list,
    signature,
    words,
)
from collscope.model import Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from collscope.model.trace import RecordedCall, RecordedCalls

_NOT_RUN = "captured"  # recorded into a graph; its launches are recorded again


class RankProgress(msgspec.Struct, frozen=True):
    """How far one rank got in one group, in the group's own sequence numbers of collectives."""

    group: str
    rank: int  # numbered as in `Consistency.world_ranks`
    last_called: int | None
    last_completed: int | None  # None: unknown, or none was
    first_missing: int | None  # that another rank called and this one did not
    first_open: int | None  # called and not completed


class CallFinding(msgspec.Struct, frozen=True):
    """One disagreement; of those that repeat, the first."""

    kind: str  # stopped, missing, different, open, unmatched, different_size
    group: str
    ranks: tuple[int, ...]  # that stopped, miss it, differ, wait; of a transfer: source and target
    seq: int | None  # first place; None for transfers
    message: str  # one sentence for people
    count: int = 1  # places
    world_ranks: bool = True  # `ranks` are world ranks; else numbers in the group


class Consistency(msgspec.Struct, frozen=True):
    """Everything that was compared, and what came out."""

    progress: tuple[RankProgress, ...]
    findings: tuple[CallFinding, ...]
    unplaced: int  # calls left out because their group or their rank in it is not known
    not_recorded: tuple[tuple[str, tuple[int, ...]], ...]  # (group, ranks that no file is of)


class _GroupKey(NamedTuple):
    name: str
    ranks: tuple[int, ...] | None


def check(recorded: Iterable[RecordedCalls]) -> Consistency:
    """Compare the calls of many ranks, group by group.

    recorded  one per rank, in any order; ranks may lack
    returns   progress per rank and group, and findings, ordered by group and place
    """
    groups, unplaced = _members(recorded)
    progress: list[RankProgress] = []
    findings: list[CallFinding] = []
    absent: list[tuple[str, tuple[int, ...]]] = []
    for key in sorted(groups, key=lambda key: (key.name, key.ranks or ())):
        group = _Group(key, groups[key])
        progress += group.progress()
        findings += group.findings()
        missing = group.not_recorded()
        if missing:
            absent.append((key.name, missing))
    return Consistency(tuple(progress), tuple(findings), unplaced, tuple(absent))


def _members(
    recorded: Iterable[RecordedCalls],
) -> tuple[dict[_GroupKey, dict[int, Member]], int]:
    """Calls by group and number in the group; how many could not be placed."""
    groups: dict[_GroupKey, dict[int, Member]] = defaultdict(dict)
    unplaced = 0
    for recording in recorded:
        status = {s.group: s for s in recording.status}
        for call in recording.calls:
            name, place = call.collective.group, call.group_rank
            if call.state == _NOT_RUN:
                continue
            if name is None or place is None:
                unplaced += 1
                continue
            members = groups[_GroupKey(name, call.collective.group_ranks)]
            if place not in members:
                members[place] = Member(recording.coverage, status.get(name))
            members[place].add(call, recording.seq_per_op)
    return groups, unplaced


class _Group:
    """The members of one group, compared."""

    def __init__(self, key: _GroupKey, members: Mapping[int, Member]) -> None:
        self.key = key
        self._members = members
        # A sample cannot show that a call was not made.
        self._complete = {rank: m for rank, m in members.items() if m.coverage != "sample"}
        self._places = {p for m in self._complete.values() for p in m.places}
        last = [m.last_called for m in self._complete.values()]
        self._last = max((seq for seq in last if seq is not None), default=None)

    def progress(self) -> list[RankProgress]:
        """Progress of every recorded member."""
        return [
            RankProgress(
                self.key.name,
                self._label(rank),
                member.last_called,
                member.last_completed,
                min((p.seq for p in self._missing(member)), default=self._behind(member)),
                member.first_open,
            )
            for rank, member in sorted(self._members.items())
        ]

    def findings(self) -> list[CallFinding]:
        """All disagreements, by place."""
        found = [*self._stopped(), *self._lacking(), *self._different(), *self._open()]
        found.sort(key=lambda finding: finding.seq or 0)
        return [*found, *self._transfers()]

    def not_recorded(self) -> tuple[int, ...]:
        """Members without a recording, as far as the group's ranks are known."""
        ranks = self.key.ranks or ()
        return tuple(rank for place, rank in enumerate(ranks) if place not in self._members)

    def _label(self, place: int) -> int:
        ranks = self.key.ranks
        return ranks[place] if ranks is not None and place < len(ranks) else place

    def _finding(
        self, kind: str, places: Iterable[int], seq: int | None, message: str, count: int = 1
    ) -> CallFinding:
        return CallFinding(
            kind,
            self.key.name,
            tuple(self._label(place) for place in places),
            seq,
            message,
            count,
            self.key.ranks is not None,
        )

    def _behind(self, member: Member) -> int | None:
        """First number after a member's last that others called."""
        own = member.last_called
        if member.coverage == "sample" or self._last is None or own is None or own >= self._last:
            return None
        return own + 1

    def _stopped(self) -> list[CallFinding]:
        found = []
        for place, member in sorted(self._complete.items()):
            first = self._behind(member)
            if first is None or self._last is None:
                continue
            ahead = sorted(p for p, m in self._complete.items() if (m.last_called or 0) >= first)
            message = (
                f"Group {self.key.name}: {self._who([place])} stopped after collective "
                f"{member.last_called} ({self._what(member, first - 1)}); {self._who(ahead)} went "
                f"on to {self._last}: first missing is {first} ({self._what_of_any(first)})."
            )
            found.append(self._finding("stopped", [place], first, message, self._last - first + 1))
        return found

    def _missing(self, member: Member) -> list[CallPlace]:
        """Places within a member's calls at which others called and it did not."""
        if member.coverage == "sample" or not member.places:
            return []
        # Counted per operation, a member's first and last are those of that operation.
        spans: dict[Op | None, tuple[int, int]] = {}
        for place in member.places:
            low, high = spans.get(place.op, (place.seq, place.seq))
            spans[place.op] = (min(low, place.seq), max(high, place.seq))
        complete = member.coverage == "whole"
        return [
            place
            for place in self._places
            if place not in member.places
            and place.op in spans
            and (complete or place.seq >= spans[place.op][0])
            and place.seq <= spans[place.op][1]
        ]

    def _lacking(self) -> list[CallFinding]:
        found = []
        for rank, member in sorted(self._complete.items()):
            lacking = self._missing(member)
            if lacking:
                first = min(place.seq for place in lacking)
                message = (
                    f"Group {self.key.name}: {self._who([rank])} did not call collective {first} "
                    f"({self._what_of_any(first)}), which other ranks called, and went on."
                )
                found.append(self._finding("missing", [rank], first, message, len(lacking)))
        return found

    def _different(self) -> list[CallFinding]:
        """Places where ranks called something else; one finding per set of ranks that differ."""
        found: dict[tuple[int, ...], CallFinding] = {}
        for place in sorted({p for m in self._members.values() for p in m.places}, key=_order):
            finding = self._difference(place)
            if finding is None:
                continue
            known = found.get(finding.ranks)
            found[finding.ranks] = (
                finding if known is None else replace(known, count=known.count + 1)
            )
        return list(found.values())

    def _difference(self, place: CallPlace) -> CallFinding | None:
        seen = {
            rank: tuple(sorted(map(signature, member.places[place]), key=str))
            for rank, member in sorted(self._members.items())
            if place in member.places
        }
        # The most common counts as right; of equally common ones, that of the lowest rank.
        (expected, _), *others = Counter(seen.values()).most_common() or [((), 0)]
        wrong = [rank for rank, calls in seen.items() if not agree(calls, expected)]
        if not others or not wrong:
            return None
        right = [rank for rank in seen if rank not in wrong]
        message = (
            f"Group {self.key.name}, collective {place.seq}: {self._who(wrong)} called "
            f"{words(seen[wrong[0]])} where {self._who(right)} called {words(expected)}."
        )
        return self._finding("different", wrong, place.seq, message)

    def _open(self) -> list[CallFinding]:
        """The first collective that was called and not completed."""
        waiting = {r: m.first_open for r, m in self._members.items() if m.first_open is not None}
        if not waiting:
            return []
        first = min(seq for seq in waiting.values() if seq is not None)
        ranks = sorted(rank for rank, seq in waiting.items() if seq == first)
        unknown = self.not_recorded()
        tail = f"; no recording of {self._ranks(unknown)}" if unknown else ""
        message = (
            f"Group {self.key.name}: collective {first} ({self._what_of_any(first)}) was called "
            f"by {self._who(ranks)} and not completed{tail}."
        )
        later = {
            place
            for member in self._members.values()
            for place, calls in member.places.items()
            if any_open(calls)
        }
        return [self._finding("open", ranks, first, message, len(later))]

    def _transfers(self) -> list[CallFinding]:
        pairs = {
            (rank, peer) if op is Op.SEND else (peer, rank)
            for rank, member in self._complete.items()
            for op, peer in member.transfers
        }
        found = []
        for source, target in sorted(pairs):
            sender, receiver = self._complete.get(source), self._complete.get(target)
            if sender is not None and receiver is not None:
                sends = sender.transfers.get((Op.SEND, target), [])
                receives = receiver.transfers.get((Op.RECV, source), [])
                complete = sender.coverage == receiver.coverage == "whole"
                found += self._transfer(source, target, sends, receives, complete)
        return found

    def _transfer(
        self,
        source: int,
        target: int,
        sends: Sequence[RecordedCall],
        receives: Sequence[RecordedCall],
        complete: bool,
    ) -> list[CallFinding]:
        """Compare one rank's sends to another with the receives there, in their order."""
        if not complete:
            # A ring buffer forgets what is done; what is not done is all there.
            sends = [call for call in sends if is_open(call)]
            receives = [call for call in receives if is_open(call)]
        way = f"Group {self.key.name}, {self._who([source])} to {self._who([target])}"
        if len(sends) != len(receives):
            more = "Send" if len(sends) > len(receives) else "Recv"
            message = (
                f"{way}: {len(sends)} Send and {len(receives)} Recv: "
                f"{abs(len(sends) - len(receives))} {more} without a partner."
            )
            count = abs(len(sends) - len(receives))
            return [self._finding("unmatched", [source, target], None, message, count)]
        wrong = [
            (number, sent, got)
            for number, (sent, got) in enumerate(zip(sends, receives, strict=True), start=1)
            if byte_count(sent, sent.collective.in_count)
            != byte_count(got, got.collective.out_count)
        ]
        if not wrong:
            return []
        number, sent, got = wrong[0]
        message = (
            f"{way}: transfer {number} sends {amount(sent, sent.collective.in_count)} and "
            f"receives {amount(got, got.collective.out_count)}."
        )
        return [self._finding("different_size", [source, target], None, message, len(wrong))]

    def _who(self, places: Sequence[int]) -> str:
        return self._ranks([self._label(place) for place in places])

    def _ranks(self, labels: Sequence[int]) -> str:
        kind = "rank" if self.key.ranks is not None else "group rank"
        return f"{kind}{'s' if len(labels) != 1 else ''} {rank_list(labels)}"

    def _what(self, member: Member, seq: int) -> str:
        calls = member.called(seq)
        return words(tuple(signature(call) for call in calls)) if calls else "not recorded"

    def _what_of_any(self, seq: int) -> str:
        words = (self._what(member, seq) for member in self._members.values())
        return next((word for word in words if word != "not recorded"), "not recorded")


def _order(place: CallPlace) -> tuple[int, str]:
    return place.seq, "" if place.op is None else place.op.value
