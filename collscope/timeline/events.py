"""Which event a wait names, where the trace does not tell: a rule for all waits of a site (pure).

A site is two streams and what is launched there. Its rule is held against the recorded times of all
its occurrences: a row that started before what it is said to have waited for contradicts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from heapq import heapify, heappop, heappush

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH
from collscope.match.traces import Calls
from collscope.model.trace import HostCalls, Ints
from collscope.timeline.graph import EVER, NONE
from collscope.timeline.row_causes import RowCauses

Bools = npt.NDArray[np.bool_]
AFTER_EVENT_NS = 12_000  # no runtime takes longer from the end of a row to one that waited for it
TOLERANCE_NS = 2_000  # a clock's grain, and rows whose start overlaps the end of the one before
CONTRADICTED = 0.02  # of a rule's occurrences
_RECORDS = 16  # so many event records back a wait's own is looked for
_BACK = 3  # and so many rows with a record on one stream
_LAUNCHED = 24  # and so many collectives before, where works are waited for in order


class Launches(msgspec.Struct, frozen=True, dict=True):
    """Rows of one trace in the order of their launches; places count in the order of calls."""

    trace: int
    row: Ints
    call: Ints  # rising
    stream: Ints

    def last(self, stream: int, call: int) -> int:
        """Row that a stream was given last before a call; -1: none."""
        mine = self._of_streams.get(stream, np.empty(0, dtype=np.int64))
        place = int(np.searchsorted(self.call[mine], call)) - 1
        return NONE if place < 0 else int(self.row[mine[place]])

    def next(self, stream: int, call: int) -> int:
        """Row that a stream is given next after a call; -1: none."""
        mine = self._of_streams.get(stream, np.empty(0, dtype=np.int64))
        place = int(np.searchsorted(self.call[mine], call, side="right"))
        return NONE if place == len(mine) else int(self.row[mine[place]])

    def all_last(self, call: int) -> list[int]:
        """Last rows of all streams before a call."""
        return [r for r in (self.last(s, call) for s in self._of_streams) if r != NONE]

    @cached_property
    def _of_streams(self) -> dict[int, Ints]:
        return {s: np.flatnonzero(self.stream == s) for s in np.unique(self.stream).tolist()}


class Wait(msgspec.Struct, frozen=True):
    """A wait of one of the job's own streams."""

    call: int
    target: int  # stream that waits; -1: not told
    around: tuple[tuple[int, int], ...]  # (kind, stream launched on) of the calls around it
    ahead: tuple[int, ...]  # streams that its thread launches on next, the next one first
    first: bool  # the next launch is a collective's, for whose stream PyTorch makes it wait


class _Rule(msgspec.Struct, frozen=True):
    group: int  # of waits
    plain: bool  # stands without evidence
    latest: bool  # the last event that was recorded: of no nearer one is it known that it is not
    kinds: int  # of rows that are waited for: of one name, on one stream
    tight: Ints  # rows whose start it explains
    destination: Ints  # rows that wait
    row: Ints  # each for this one
    contradicted: int


class Rules:
    """What the waits of one trace wait for: one rule for all that stand among the same calls.

    A rule says how many event records back the event was recorded, and behind which row.
    """

    def __init__(self, build: RowCauses, launches: Launches, records: Ints, behind: Ints) -> None:
        """Take the rows behind which events were recorded, shape (records, variants)."""
        self.start, self.end = build.start, build.end
        self.stream = build.rows.stream
        self.rows = build.rows
        self.counts, self.before = build.counts, build.before
        self.explained = np.zeros(len(self.start), dtype=bool)
        self.group = np.full(len(self.start), NONE)  # of each collective that is in a call
        group = _communicators(build.calls)[build.calls.group]
        self.group[build.calls.row] = group[build.calls.call_of_part]
        self.records, self.behind = records, behind
        self.turn: dict[int, tuple[int, int]] = {}  # of the waits whose stream is told
        self.recorded_on = [*self._recorded_on()]
        self.by_stream = {
            int(s): (launches.row[launches.stream == s], launches.call[launches.stream == s])
            for s in np.unique(launches.stream)
        }
        collective = self.rows.entry[launches.row] >= 0
        self.collectives = [
            (launches.row[mine], launches.call[mine])
            for s in self.by_stream
            if (mine := collective & (launches.stream == s)).any()
        ]
        self.launch = np.where(
            build.rows.launch != UNKNOWN_LAUNCH,
            build.clocks.align(build.rows.launch, build.rows.trace),
            EVER,
        )

    def _recorded_on(self) -> Iterator[tuple[Ints, Ints]]:
        """Per stream the rows behind which an event was recorded, each with the first such."""
        row = self.behind[:, 0]
        known = np.flatnonzero(row >= 0)
        for stream in np.unique(self.stream[row[known]]).tolist():
            mine = known[self.stream[row[known]] == stream]
            rows, first = np.unique(row[mine], return_index=True)
            order = np.argsort(first, kind="stable")
            yield mine[first[order]], rows[order]

    def library_order(self, launches: Launches) -> list[tuple[int, int]]:
        """(row, row before) of collectives that the library runs one after the other.

        Those of one communicator do, on whatever streams, whatever those of others are launched in
        between: a pair of streams whose collectives never overlap, and of which one is seen to wait
        for the other, has one.
        """
        collective = np.flatnonzero(self.rows.entry[launches.row] >= 0)
        collective = collective[np.argsort(self.group[launches.row[collective]], kind="stable")]
        row, stream = launches.row[collective], launches.stream[collective]
        group = self.group[row]
        change = np.flatnonzero((stream[1:] != stream[:-1]) & (group[1:] == group[:-1]))
        source, destination = row[change], row[change + 1]
        gap = self.start[destination] - self.end[source]
        near = (gap >= -TOLERANCE_NS) & (gap <= AFTER_EVENT_NS)
        near &= self._open(destination, source)
        low, high = np.sort([stream[change], stream[change + 1]], axis=0)
        pair = low * (int(stream.max(initial=0)) + 1) + high
        edges: list[tuple[int, int]] = []
        for key in np.unique(pair).tolist():
            mine = pair == key
            wrong = mine & (gap < -TOLERANCE_NS)
            if wrong.sum() <= CONTRADICTED * mine.sum() and near[mine].any():
                good = np.flatnonzero(mine & ~wrong)
                self.explained[destination[near & mine]] = True
                self.counts["inferred"] += len(good)
                edges += zip(destination[good].tolist(), source[good].tolist(), strict=True)
        return edges

    def edges(self, groups: list[list[Wait]]) -> list[tuple[int, int, bool]]:
        """(row, row that it waits for, seen) of all waits; those of a group stand among like calls.

        An edge is seen where a start that nothing else explains shows its rule, or where it is for
        the last event; else the order of calls alone names it.

        Every group gets the rule that explains most starts that no other rule explains already. Of
        rules that explain as many it is the one with the fewest kinds of rows: what stands among
        the same calls waits for the same.
        """
        self.turn = _turns(groups)
        rules = [rule for number, waits in enumerate(groups) for rule in self._rules(number, waits)]
        explained = self.explained
        chosen: dict[int, tuple[_Rule, bool]] = {}
        heap = [(-len(rule.tight), rule.kinds, k) for k, rule in enumerate(rules)]
        heapify(heap)
        while heap:
            value, kinds, k = heappop(heap)
            rule = rules[k]
            if rule.group in chosen:
                continue
            now = -int((~explained[rule.tight]).sum())
            if now == 0 and not rule.plain:
                continue
            if now > value and heap and (now, kinds, k) > heap[0]:
                heappush(heap, (now, kinds, k))
                continue
            chosen[rule.group] = rule, now < 0 or rule.latest
            explained[rule.tight] = True
        edges: list[tuple[int, int, bool]] = []
        for number, waits in enumerate(groups):
            found, seen = chosen.get(number, (None, False))
            good = 0 if found is None else len(found.destination)
            wrong = 0 if found is None else found.contradicted
            self.counts["told" if waits[0].target >= 0 else "inferred"] += good
            self.counts["contradicted"] += wrong
            self.counts["unknown"] += len(waits) - good - wrong
            if found is not None:
                pairs = zip(found.destination.tolist(), found.row.tolist(), strict=True)
                edges += ((*pair, seen) for pair in pairs)
        return edges

    def _rules(self, group: int, waits: list[Wait]) -> Iterator[_Rule]:
        """Rules that the recorded times do not contradict."""
        call = np.array([w.call for w in waits])
        targets = (waits[0].target,) if waits[0].target >= 0 else waits[0].ahead
        latest = np.searchsorted(self.records, call) - 1
        plain = True  # where nothing shows which: the last event recorded, for the next launch
        candidates = np.vstack([*self._candidates(latest), *self._in_turn(call)])
        for target in targets:
            destination = self._next(target, call)
            rows = np.where(destination >= 0, candidates, NONE)
            there = rows >= 0
            goods = there & (self.stream[rows] != target)
            gaps = self.start[destination] - self.end[rows]
            wrongs = goods & (gaps < -TOLERANCE_NS)
            count = goods.sum(axis=1)
            possible = (count > 0) & (count >= 0.5 * there.sum(axis=1))
            possible &= wrongs.sum(axis=1) <= CONTRADICTED * count
            for number in np.flatnonzero(possible).tolist():
                row, wrong = rows[number], wrongs[number]
                good = goods[number] & ~wrong
                near = good & (gaps[number] <= AFTER_EVENT_NS) & self._open(destination, row)
                if near.any() or plain:
                    kinds = np.unique(self.rows.name[row[good]] + 1j * self.stream[row[good]])
                    yield _Rule(
                        group, plain, number == 0, len(kinds), destination[near],
                        destination[good], row[good], int(wrong.sum()),
                    )  # fmt: skip
                if plain and waits[0].first:
                    return  # PyTorch records on the current stream, then waits
                plain = False
            plain = False

    def _candidates(self, latest: Ints) -> Iterator[Ints]:
        """Rows that waits may be for, shape (candidates, waits); -1: none.

        The one behind which an event was recorded so many records ago, or the last of a stream, or
        the one before it there: steps of unlike layers record unlike numbers of events.

        latest  the record before each wait
        """
        record = latest - np.arange(_RECORDS)[:, None]
        behind = np.where(record[..., None] >= 0, self.behind[np.maximum(record, 0)], NONE)
        yield np.moveaxis(behind, 2, 1).reshape(-1, len(latest))
        for known, row in self.recorded_on:
            place = np.searchsorted(known, latest, side="right") - 1 - np.arange(_BACK)[:, None]
            yield np.where(place >= 0, row[np.maximum(place, 0)], NONE)

    def _in_turn(self, call: Ints) -> Iterator[Ints]:
        """Rows that waits may be for where works are waited for in the order of their launches.

        The k-th wait of a stream is for the k-th collective of another one, counted from one of
        those that were launched before the first: a job that launches several at once waits for the
        first of them when the last event was recorded for the last. Shape (candidates, waits).
        """
        if int(call[0]) not in self.turn:
            return  # the waiting stream is not told
        place, first = np.array([self.turn[c] for c in call.tolist()]).T
        for rows, launched in self.collectives:
            begin = int(np.searchsorted(launched, first[0]))
            at = place + begin - np.arange(1, min(_LAUNCHED, len(rows)) + 1)[:, None]
            there = (at >= 0) & (at < len(rows))
            at = np.where(there, at, 0)
            before = ((launched[at] < call) | ~there).all(axis=1) & there.any(axis=1)
            yield np.where(there, rows[at], NONE)[before]

    def _open(self, destination: Ints, row: Ints) -> Bools:
        """Neither the launch nor the row before on the stream explains the start better."""
        before = self.before[destination]
        latest = np.where(before >= 0, self.end[before], EVER)
        result: Bools = self.end[row] > np.maximum(latest, self.launch[destination])
        return result

    def _next(self, stream: int, call: Ints) -> Ints:
        """First row launched on a stream after each of some calls; -1: none."""
        if stream not in self.by_stream:
            return np.full(len(call), NONE)
        rows, calls = self.by_stream[stream]
        return np.append(rows, NONE)[np.searchsorted(calls, call, side="right")]


def _turns(groups: list[list[Wait]]) -> dict[int, tuple[int, int]]:
    """Of each wait by its call: which of its stream's it is, and the call of the first of these."""
    of_stream: dict[int, list[int]] = {}
    for call, target in sorted((w.call, w.target) for waits in groups for w in waits):
        if target >= 0:
            of_stream.setdefault(target, []).append(call)
    return {c: (k, calls[0]) for calls in of_stream.values() for k, c in enumerate(calls)}


def _communicators(calls: Calls) -> Ints:
    """Group whose communicator each group uses: its own, or one that may be the same.

    Sends and Recvs that were paired by the clock name no group: theirs may be the communicator
    of the collectives of the same ranks, as in an all-to-all.
    """
    found = np.arange(len(calls.groups))
    exchanging = set(np.unique(calls.group[calls.p2p]).tolist())
    of_members: dict[tuple[int, ...], int] = {}
    for k, group in enumerate(calls.groups):
        if k not in exchanging:
            of_members.setdefault(group.members, k)
        elif group.identity == "inferred":
            found[k] = of_members.get(group.members, k)
    return found


def recorded_behind(host: HostCalls, records: Ints, launches: Launches) -> Ints:
    """Rows behind which events may have been recorded, shape (records, 2).

    The last row of the stream that the thread launched on last, and of the one before that:
    streams are a thread's own choice, but other threads launch on them, too.
    """
    found = np.full((len(records), 2), NONE)
    for thread in np.unique(host.thread[records]).tolist():
        mine = np.flatnonzero(host.thread[launches.call] == thread)
        own = np.flatnonzero(host.thread[records] == thread)
        if not len(mine):
            continue
        last = np.searchsorted(launches.call[mine], records[own]) - 1
        stream = launches.stream[mine]
        change = np.flatnonzero(stream[1:] != stream[:-1])
        place = np.searchsorted(change, last) - 1  # the last change of stream before
        current = np.where(last >= 0, stream[last], NONE)
        other = np.where(place >= 0, np.append(stream[change], NONE)[place], NONE)
        for variant, chosen in enumerate((current, other)):
            for number in np.unique(chosen[chosen >= 0]).tolist():
                rows = launches.stream == number
                at = np.searchsorted(launches.call[rows], records[own]) - 1
                on = (chosen == number) & (at >= 0)
                found[own[on], variant] = launches.row[rows][at[on]]
    return found
