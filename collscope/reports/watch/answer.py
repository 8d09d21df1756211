"""What the recordings of a job show while it runs: from calls as they come (pure).

Times in ns. The shortest GPU time of a call that all ranks recorded is its transfer: that rank
arrived last. Only operations count that no rank leaves before all have come. No clock counts.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from statistics import median
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from collscope.hang.judge import judge
from collscope.hang.records import Counts, Evidence, RankEvidence, Verdict
from collscope.hang.service import BETWEEN_S
from collscope.match.rows import class_key
from collscope.model import CollectiveClass, Op, bus_bandwidth
from collscope.model.trace import RecordedCall, TraceCollective
from collscope.parsers.recorders.own_recorder import GrowingProcess, NewRecords
from collscope.roofline.workload import Workload
from collscope.timeline.late import late_beside_stop
from collscope.timeline.tolerances import (
    END_NOISE_NS,
    MIN_EVEN_SHARES,
    MIN_LATE_CALLS,
    STRAGGLER_SHARE,
)

if TYPE_CHECKING:
    from collscope.roofline.chosen import AnyRoofs

RECENT = 100  # calls of a class that its times are of, and of a communicator that lateness is of
_OPEN = 4096  # calls of a communicator that wait for the times of other ranks
_KERNELS_FROM = 4  # version of the plugin interface that has stamps of kernels
# Levels at which the recorder asks for no kernel.
_UNTIMED_LEVELS = ("off", "calls")
WHY_UNTIMED = ("level", "interface", "foreign_stamps", "none_came")
WHY_NO_BANDWIDTH = ("ranks", "no_common_end", "size")

_Rank = tuple[str, int]  # communicator, place in it


class WatchedClass(msgspec.Struct, frozen=True):
    """Calls of one operation, size and communicator; times are of the last `RECENT` timed ones."""

    op: str
    size_bytes: int | None  # S of nccl-tests; None: not known
    group: str
    nranks: int | None
    calls: int  # of the rank that made most
    timed: int  # calls of all ranks with a GPU time
    gpu_ns: float | None  # median of a rank's call, with its waiting
    untimed: Annotated[str | None, WHY_UNTIMED]  # why there is no GPU time
    busbw_gbps: float | None  # of the median transfer
    no_bandwidth: Annotated[str | None, WHY_NO_BANDWIDTH]  # why a timed class has none
    ceiling_gbps: float | None  # reachable; None: no system is named, or it has none for the class


class WatchedRank(msgspec.Struct, frozen=True):
    """A rank that the others of its communicator wait for."""

    group: str
    rank: int  # place in the communicator
    world_rank: int | None
    last: int  # calls in which it arrived last
    of: int  # calls that all ranks recorded
    lateness_ns: float  # median, behind the one before it


class Missing(msgspec.Struct, frozen=True):
    """A call that some ranks of a communicator made and others did not."""

    group: str
    op: str
    number: int  # of the operation in its communicator, from 1
    ranks: tuple[int, ...]  # places in the communicator, of those without it
    made: int  # ranks that made it


class Watched(msgspec.Struct, frozen=True):
    """A job at one moment."""

    processes: int
    ended: int  # of these
    ranks: int  # that recorded
    calls: int
    per_s: float | None  # calls of all ranks since the moment before
    classes: tuple[WatchedClass, ...]  # those with most GPU time first
    late: tuple[WatchedRank, ...]
    still_s: float | None  # since the last call, where that is long and the job has not ended
    missing: tuple[Missing, ...]  # where it stands still
    verdict: Verdict | None  # who holds it up; None: it moves, or no counts are whole
    lost: int  # records
    newer: int  # processes whose files are of a newer format


class _Class:
    """What is seen of one class."""

    def __init__(self) -> None:
        self.calls: Counter[_Rank] = Counter()
        self.algorithm: str | None = None
        self.timed: Counter[str] = Counter()  # by process
        self.recent: deque[tuple[str, int]] = deque(maxlen=RECENT)  # process, GPU time of a rank
        self.transfers: deque[int] = deque(maxlen=RECENT)


class Watch:
    """What was seen of a job so far."""

    def __init__(self, roofs: AnyRoofs | None = None) -> None:
        """Start without a call.

        roofs  of the system whose ceilings are shown
        """
        self._roofs = roofs
        self._processes: dict[str, GrowingProcess] = {}
        self._classes: dict[tuple[str, CollectiveClass], _Class] = {}
        self._known: dict[TraceCollective, _Class] = {}
        self._process_of: dict[_Rank, str] = {}
        self._sizes: dict[str, int | None] = {}
        self._counts: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self._open: dict[str, OrderedDict[tuple[Op, int], dict[int, int]]] = defaultdict(
            OrderedDict
        )
        # Of calls that all ranks recorded: the last rank, and its lateness.
        self._lateness: dict[str, deque[tuple[int, int]]] = defaultdict(
            lambda: deque(maxlen=RECENT)
        )
        self._moved_s: float | None = None
        self._before: tuple[float, int] | None = None
        self._calls = 0

    def take(self, process: str, known: GrowingProcess, fresh: NewRecords, now_s: float) -> None:
        """Count what came of a process; `now_s` on any clock that never goes back."""
        self._processes[process] = known
        if fresh.launched or fresh.timed or self._moved_s is None:
            self._moved_s = now_s
        for call in fresh.launched:
            self._launched(process, call)
        for call in fresh.timed:
            self._timed(process, call)

    def moment(self, now_s: float) -> Watched:
        """What is known now."""
        per_s = None
        if self._before is not None and now_s > self._before[0]:
            per_s = (self._calls - self._before[1]) / (now_s - self._before[0])
        self._before = now_s, self._calls
        ended = sum(known.ended for known in self._processes.values())
        still = None
        if self._moved_s is not None and ended < len(self._processes):
            still = now_s - self._moved_s if now_s - self._moved_s >= BETWEEN_S else None
        return Watched(
            processes=len(self._processes),
            ended=ended,
            ranks=len(set(self._world_ranks().values()) or self._process_of),
            calls=self._calls,
            per_s=per_s,
            classes=self._rows(),
            late=tuple(self._late()),
            still_s=still,
            missing=() if still is None else tuple(self._missing()),
            verdict=None if still is None else self._verdict(),
            lost=sum(known.lost for known in self._processes.values()),
            newer=sum(known.newer for known in self._processes.values()),
        )

    def _launched(self, process: str, call: RecordedCall) -> None:
        group, rank, op = call.collective.group, call.group_rank, call.collective.op
        if group is None or rank is None:
            return
        self._calls += 1
        self._process_of[group, rank] = process
        self._sizes[group] = call.collective.group_size
        watched = self._class(call)
        watched.calls[group, rank] += 1
        watched.algorithm = call.collective.algorithm or watched.algorithm
        # Senders and receivers count each for itself.
        if not op.point_to_point:
            self._counts[group][rank][op.value] += 1

    def _timed(self, process: str, call: RecordedCall) -> None:
        group, rank, took = call.collective.group, call.group_rank, call.duration_ns
        if group is None or rank is None or took is None:
            return
        watched = self._class(call)
        watched.timed[process] += 1
        watched.recent.append((process, took))
        if call.seq is None:
            return
        open_ = self._open[group]
        key = call.collective.op, call.seq
        open_.setdefault(key, {})[rank] = took
        if len(open_[key]) == self._sizes.get(group):
            self._whole_call(watched, group, call.collective.op, open_.pop(key))
        if len(open_) > _OPEN:
            open_.popitem(last=False)

    def _whole_call(self, watched: _Class, group: str, op: Op, took: Mapping[int, int]) -> None:
        """A call whose GPU time all ranks recorded."""
        if not op.synchronises or self._unsound(group):
            return
        first, *rest = sorted(took, key=lambda rank: took[rank])
        watched.transfers.append(took[first])
        if rest:
            self._lateness[group].append((first, took[rest[0]] - took[first]))

    def _class(self, call: RecordedCall) -> _Class:
        what = call.collective
        if (known := self._known.get(what)) is None:
            key = what.group or "", class_key(what, what.group_size)
            known = self._known[what] = self._classes.setdefault(key, _Class())
        return known

    def _unsound(self, group: str) -> bool:
        return any(group in known.unsound for known in self._processes.values())

    def _rows(self) -> tuple[WatchedClass, ...]:
        rows = [self._row(group, key, c) for (group, key), c in self._classes.items()]
        return tuple(sorted(rows, key=lambda r: (-(r.gpu_ns or 0) * r.calls, -r.calls, r.op)))

    def _row(self, group: str, key: CollectiveClass, watched: _Class) -> WatchedClass:
        unsound = {p for p, known in self._processes.items() if group in known.unsound}
        recent = [took for process, took in watched.recent if process not in unsound]
        busbw = None
        if watched.transfers and not unsound:
            busbw = bus_bandwidth(
                key.op,
                size=key.size_bytes,
                time_s=median(watched.transfers) * 1e-9,
                nranks=key.nranks,
            )
        return WatchedClass(
            op=key.op.value,
            size_bytes=key.size_bytes,
            group=group,
            nranks=key.nranks,
            calls=max(watched.calls.values(), default=0),
            timed=sum(n for process, n in watched.timed.items() if process not in unsound),
            gpu_ns=median(recent) if recent else None,
            untimed=None if recent else self._why_untimed(watched, bool(unsound)),
            busbw_gbps=busbw,
            no_bandwidth=_why_no_bandwidth(key, watched) if recent and busbw is None else None,
            ceiling_gbps=self._ceiling(group, key, watched),
        )

    def _why_untimed(self, watched: _Class, unsound: bool) -> str:
        known = [self._processes[self._process_of[rank]] for rank in watched.calls]
        if unsound:
            return "foreign_stamps"
        if known and all((k.interface or _KERNELS_FROM) < _KERNELS_FROM for k in known):
            return "interface"
        return "level" if known and all(k.level in _UNTIMED_LEVELS for k in known) else "none_came"

    def _ceiling(self, group: str, key: CollectiveClass, watched: _Class) -> float | None:
        if self._roofs is None or key.size_bytes is None or key.nranks is None:
            return None
        there = [process for (name, _), process in self._process_of.items() if name == group]
        hosts = {self._processes[process].host for process in there}
        known = len(there) == key.nranks and None not in hosts
        work = Workload(
            key.op, key.size_bytes, key.nranks, len(hosts) if known else 1, watched.algorithm
        )
        roof = self._roofs.at(work, nodes_known=known)
        return None if isinstance(roof, str) else roof.busbw_gbps

    def _late(self) -> Iterable[WatchedRank]:
        """Ranks that have three even shares of a communicator's lateness, or 75 % of it.

        One stop of another rank hides none.
        """
        world = self._world_ranks()
        for group, calls in self._lateness.items():
            late: dict[int, list[int]] = defaultdict(list)
            for rank, lateness in calls:
                if lateness > END_NOISE_NS and not self._unsound(group):
                    late[rank].append(lateness)
            everything = sum(map(sum, late.values()))
            even = MIN_EVEN_SHARES / (self._sizes.get(group) or MIN_EVEN_SHARES)
            enough = min(STRAGGLER_SHARE, even)
            for rank, own in sorted(late.items(), key=lambda item: -sum(item[1])):
                others = [ns for other, them in late.items() if other != rank for ns in them]
                if len(own) >= MIN_LATE_CALLS and (
                    sum(own) >= enough * everything
                    or late_beside_stop(np.array(own), np.array(others, dtype=np.int64), enough)
                ):
                    yield WatchedRank(
                        group, rank, world.get((group, rank)), len(own), len(calls), median(own)
                    )

    def _world_ranks(self) -> dict[_Rank, int]:
        """World ranks, by the environment; else places in a communicator of all ranks."""
        found: dict[_Rank, int] = {}
        for (group, place), process in self._process_of.items():
            known = self._processes[process]
            if known.rank is not None:
                found[group, place] = known.rank
            elif known.world_size is not None and self._sizes[group] == known.world_size:
                found[group, place] = place
        return found

    def _missing(self) -> Iterable[Missing]:
        """Of each communicator and operation the last call, where not all ranks made it."""
        for group, by_place in self._counts.items():
            if not self._counts_of(group, by_place):
                continue
            members = range(self._sizes.get(group) or 0)
            for op in sorted({op for own in by_place.values() for op in own}):
                made = {place: own[op] for place, own in by_place.items()}
                most = max(made.values())
                behind = tuple(place for place in members if made.get(place, 0) < most)
                if behind:
                    yield Missing(group, op, most, behind, len(members) - len(behind))

    def _verdict(self) -> Verdict | None:
        """Who made fewer collectives than others, by counts alone."""
        counts = [
            Counts(group, own)
            for group, by_place in self._counts.items()
            if (own := self._counts_of(group, by_place))
        ]
        if not counts:
            return None
        known = [k for k in self._processes.values() if k.rank is not None]
        ranks = tuple(
            RankEvidence(k.rank, "own_recorder", (), host=k.host, pid=k.pid)
            for k in known
            if k.rank is not None
        )
        return judge([Evidence("recordings", ranks, counts=tuple(counts))])

    def _counts_of(
        self, group: str, by_place: Mapping[int, Counter[str]]
    ) -> tuple[tuple[int, tuple[tuple[str, int], ...]], ...]:
        """Calls of each member of a communicator; none where those of one are not all known."""
        world = self._world_ranks()
        size = self._sizes.get(group)
        found = {place: tuple(own.items()) for place, own in by_place.items()}
        by_rank = {k.rank: p for p, k in self._processes.items()}
        for place in range(size or 0):
            # In a communicator of all ranks, one that never called is known by its other files.
            other = by_rank.get(place)
            if place not in found and other and self._processes[other].world_size == size:
                found[place] = ()
                world[group, place] = place
        members = [self._process_of.get((group, place), by_rank.get(place)) for place in found]
        comparable = all(
            p is not None and self._processes[p].from_start and not self._processes[p].lost
            for p in members
        )
        if len(found) != size or not comparable or any((group, p) not in world for p in found):
            return ()
        return tuple((world[group, place], own) for place, own in sorted(found.items()))


def _why_no_bandwidth(key: CollectiveClass, watched: _Class) -> str:
    if not key.op.synchronises:
        return "no_common_end"
    return "ranks" if not watched.transfers else "size"
