"""Which event a wait names, where the trace lacks it: a rule for all waits of a site (pure).

A site is two streams and what is launched there. Its rule is held against the recorded times of all
its occurrences: a row that started before the end of what it waited for contradicts it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.model.trace import Call, Ints
from collscope.timeline.causes.host_record import HostRecord, Launches
from collscope.timeline.causes.placed_rows import PlacedRows
from collscope.timeline.graph import EVER, NONE, Edges
from collscope.timeline.tolerances import (
    CALLS_AHEAD_TO_COLLECTIVE,
    CALLS_AROUND_WAIT,
    EVENT_WAKE_NS,
    LIBRARY_CALLS,
    MAX_COLLECTIVES_BACK,
    MAX_CONTRADICTED,
    MAX_RECORDED_ROWS_BACK,
    MAX_RECORDS_BACK,
    MIN_OTHER_STREAM,
    STAMP_OVERLAP_NS,
    STREAMS_AHEAD,
)

Bools = npt.NDArray[np.bool_]


class EdgeList(msgspec.Struct, frozen=True):
    """Event edges in the order in which they were found. Columns of equal length."""

    destination: Ints  # rows that wait
    source: Ints  # each for this one
    seen: Bools  # False: the order of calls alone names it
    counts: Edges


def edge_list(
    destination: npt.ArrayLike, source: npt.ArrayLike, counts: Edges | None = None
) -> EdgeList:
    """Edges that are all seen."""
    rows = np.asarray(destination, dtype=np.int64)
    seen = np.ones(len(rows), dtype=bool)
    return EdgeList(rows, np.asarray(source, dtype=np.int64), seen, counts or Edges())


class Wait(msgspec.Struct, frozen=True):
    """A wait of one of the job's own streams."""

    call: int
    target: int  # stream that waits; `NONE`: not known
    around: tuple[tuple[int, int], ...]  # (kind, stream launched on) of the calls around it
    ahead: tuple[int, ...]  # streams that its thread launches on next, the next one first
    first: bool  # the next launch is a collective's, for whose stream PyTorch makes it wait


class _Rule(msgspec.Struct, frozen=True):
    site: int
    plain: bool  # stands without evidence
    latest: bool  # the last event that was recorded: of no nearer one is it known that it is not
    kinds: int  # of rows that are waited for: of one name, on one stream
    tight: Ints  # rows whose start it explains
    destination: Ints  # rows that wait
    row: Ints  # each for this one
    contradicted: int


class _Order(msgspec.Struct, frozen=True):
    """What waits are for, by their order."""

    turns: dict[int, tuple[int, int]]  # as of `_turns`
    bursts: list[dict[int, int]]  # as of `_bursts`


class EventSites(msgspec.Struct, frozen=True, dict=True):
    """What the waits of one trace may be for."""

    placed: PlacedRows
    launches: Launches
    records: Ints  # calls that record an event
    behind: Ints  # (records, variants) rows behind which each may have recorded it

    @cached_property
    def recorded_on(self) -> list[tuple[Ints, Ints]]:
        """Per stream the rows behind which an event was recorded, each with the first such."""
        row, streams = self.behind[:, 0], self.placed.rows.stream
        known = np.flatnonzero(row >= 0)
        found = []
        for stream in np.unique(streams[row[known]]).tolist():
            on_stream = known[streams[row[known]] == stream]
            rows, first = np.unique(row[on_stream], return_index=True)
            order = np.argsort(first, kind="stable")
            found.append((on_stream[first[order]], rows[order]))
        return found

    @cached_property
    def collectives(self) -> list[tuple[Ints, Ints]]:
        """Per stream its collectives, and the calls that launched them."""
        entry = self.placed.rows.entry
        chosen = ((row, call, entry[row] >= 0) for row, call in self.launches.by_stream.values())
        return [(row[on], call[on]) for row, call, on in chosen if on.any()]


def job_waits(placed: PlacedRows, host: HostRecord) -> list[Wait]:
    """Waits of the job's own streams; those that the library makes for itself are left out."""
    calls, launches = host.calls, host.launches
    n = len(calls)
    stream_of = np.full(n, NONE)
    stream_of[launches.call[::-1]] = launches.stream[::-1]
    collective = np.zeros(n, dtype=bool)
    collective[launches.call] = placed.rows.entry[launches.row] >= 0
    waits_named = bool((host.stream[calls.kind == Call.WAIT] >= 0).any())
    before, behind = CALLS_AROUND_WAIT
    found = []
    for thread in np.unique(calls.thread).tolist():
        own = np.flatnonzero(calls.thread == thread)
        kind = calls.kind[own].tolist()
        target, is_collective = stream_of[own].tolist(), collective[own].tolist()
        named = host.stream[own].tolist()
        following: list[tuple[int, ...]] = [()] * len(own)
        ahead: tuple[int, ...] = ()
        for k in range(len(own) - 1, -1, -1):
            following[k] = ahead
            if kind[k] == Call.LAUNCH and target[k] >= 0:
                others = (s for s in ahead if s != target[k])
                ahead = (target[k], *others)[:STREAMS_AHEAD]
        since = LIBRARY_CALLS  # calls since a collective's launch; more than that are not its own
        for k in range(len(own)):
            since += 1
            if kind[k] == Call.LAUNCH:
                since = 0 if is_collective[k] else LIBRARY_CALLS
            elif kind[k] == Call.WAIT:
                # The library's own, behind its launch
                inner = since <= LIBRARY_CALLS and named[k] < 0
                launch = k + 1 < len(own) and is_collective[k + 1]
                if launch and k and kind[k - 1] == Call.RECORD:
                    inner = True  # and right before it
                if not inner and (named[k] >= 0 or not waits_named):
                    near = range(max(0, k - before), min(len(own), k + behind + 1))
                    around = tuple((kind[i], target[i]) for i in near)
                    first = any(is_collective[k + 1 : k + 1 + CALLS_AHEAD_TO_COLLECTIVE])
                    found.append(Wait(int(own[k]), named[k], around, following[k], first))
    return found


def library_order(placed: PlacedRows, launches: Launches) -> tuple[EdgeList, Bools]:
    """Edges of collectives that the library runs in turn; rows whose start they explain.

    Those of one communicator do so on any streams, with any others launched in between: a pair of
    streams whose collectives never overlap, and where one shows that it waits for the other, has
    one communicator.
    """
    explained = np.zeros(len(placed.start), dtype=bool)
    collective = np.flatnonzero(placed.rows.entry[launches.row] >= 0)
    communicator = placed.communicator[launches.row[collective]]
    collective = collective[np.argsort(communicator, kind="stable")]
    row, stream = launches.row[collective], launches.stream[collective]
    communicator = placed.communicator[row]
    same = communicator[1:] == communicator[:-1]
    change = np.flatnonzero((stream[1:] != stream[:-1]) & same)
    source, destination = row[change], row[change + 1]
    gap = placed.start[destination] - placed.end[source]
    near = (gap >= -STAMP_OVERLAP_NS) & (gap <= EVENT_WAKE_NS)
    near &= _open(placed, destination, source)
    low, high = np.sort([stream[change], stream[change + 1]], axis=0)
    pair = low * (int(stream.max(initial=0)) + 1) + high
    found: list[int] = []
    for key in np.unique(pair).tolist():
        of_pair = pair == key
        wrong = of_pair & (gap < -STAMP_OVERLAP_NS)
        if wrong.sum() <= MAX_CONTRADICTED * of_pair.sum() and near[of_pair].any():
            explained[destination[near & of_pair]] = True
            found += np.flatnonzero(of_pair & ~wrong).tolist()
    return edge_list(destination[found], source[found], Edges(inferred=len(found))), explained


def rule_edges(sites: EventSites, waits: Sequence[Wait], explained: Bools) -> EdgeList:
    """Edges of all waits, by one rule for those that stand among the same calls.

    A rule gives how many event records back the event was recorded, and behind which row. An edge
    is seen where a start that nothing else explains shows its rule, or where it is for the last
    event; else the order of calls alone names it.

    Every site gets the rule that explains most starts that no other rule explains already. Of
    rules that explain as many it is the one with the fewest kinds of rows: what stands among
    the same calls waits for the same.

    explained  (rows,) starts that are explained already
    """
    by_calls: dict[tuple[tuple[int, int], ...], list[Wait]] = {}
    for wait in waits:
        key = (*wait.around, (wait.target, int(wait.first)))
        by_calls.setdefault(key, []).append(wait)
    groups = list(by_calls.values())
    order = _Order(_turns(waits), _bursts(sites, waits))
    rules = [rule for k, of_site in enumerate(groups) for rule in _rules(sites, k, of_site, order)]
    chosen = _chosen(rules, explained)
    counts, lists = Edges(), [edge_list([], [])]
    for number, of_site in enumerate(groups):
        rule, seen = chosen.get(number, (None, False))
        good = 0 if rule is None else len(rule.destination)
        wrong = 0 if rule is None else rule.contradicted
        named = of_site[0].target >= 0
        counts += Edges(
            named=good if named else 0,
            inferred=0 if named else good,
            contradicted=wrong,
            unknown=len(of_site) - good - wrong,
        )
        if rule is not None:
            lists.append(EdgeList(rule.destination, rule.row, np.full(good, seen), Edges()))
    return EdgeList(
        np.concatenate([e.destination for e in lists]),
        np.concatenate([e.source for e in lists]),
        np.concatenate([e.seen for e in lists]),
        counts,
    )


def _chosen(rules: Sequence[_Rule], explained: Bools) -> dict[int, tuple[_Rule, bool]]:
    """The rule of each site that has one, and whether its edges are seen."""
    explained = explained.copy()
    chosen: dict[int, tuple[_Rule, bool]] = {}
    heap = [(-len(rule.tight), rule.kinds, k) for k, rule in enumerate(rules)]
    heapify(heap)
    while heap:
        value, kinds, k = heappop(heap)
        rule = rules[k]
        if rule.site in chosen:
            continue
        now = -int((~explained[rule.tight]).sum())
        if now == 0 and not rule.plain:
            continue
        if now > value and heap and (now, kinds, k) > heap[0]:
            heappush(heap, (now, kinds, k))
            continue
        chosen[rule.site] = rule, now < 0 or rule.latest
        explained[rule.tight] = True
    return chosen


def _rules(sites: EventSites, site: int, waits: Sequence[Wait], order: _Order) -> Iterator[_Rule]:
    """Rules that the recorded times do not contradict."""
    placed = sites.placed
    call = np.array([w.call for w in waits])
    targets = (waits[0].target,) if waits[0].target >= 0 else waits[0].ahead
    latest = np.searchsorted(sites.records, call) - 1
    plain = True  # where nothing shows which: the last event recorded, for the next launch
    in_bursts = [[rows.get(c, NONE) for c in call.tolist()] for rows in order.bursts]
    in_turn = _in_turn(sites, call, order.turns)
    candidates = np.vstack([*_candidates(sites, latest), *in_turn, *in_bursts])
    for target in targets:
        destination = _next(sites.launches, target, call)
        rows = np.where(destination >= 0, candidates, NONE)
        there = rows >= 0
        goods = there & (placed.rows.stream[rows] != target)
        gaps = placed.start[destination] - placed.end[rows]
        wrongs = goods & (gaps < -STAMP_OVERLAP_NS)
        count = goods.sum(axis=1)
        possible = (count > 0) & (count >= MIN_OTHER_STREAM * there.sum(axis=1))
        possible &= wrongs.sum(axis=1) <= MAX_CONTRADICTED * count
        for number in np.flatnonzero(possible).tolist():
            row, wrong = rows[number], wrongs[number]
            good = goods[number] & ~wrong
            near = good & (gaps[number] <= EVENT_WAKE_NS) & _open(placed, destination, row)
            if near.any() or plain:
                kinds = np.unique(placed.rows.name[row[good]] + 1j * placed.rows.stream[row[good]])
                yield _Rule(
                    site, plain, number == 0, len(kinds), destination[near],
                    destination[good], row[good], int(wrong.sum()),
                )  # fmt: skip
            if plain and waits[0].first:
                return  # PyTorch records on the current stream, then waits
            plain = False
        plain = False


def _candidates(sites: EventSites, latest: Ints) -> Iterator[Ints]:
    """Rows that waits may be for, shape (candidates, waits); -1: none.

    The one behind which an event was recorded so many records ago, or the last of a stream, or
    the one before it there: steps of unlike layers record unlike numbers of events.

    latest  the record before each wait
    """
    record = latest - np.arange(MAX_RECORDS_BACK)[:, None]
    behind = np.where(record[..., None] >= 0, sites.behind[np.maximum(record, 0)], NONE)
    yield np.moveaxis(behind, 2, 1).reshape(-1, len(latest))
    for known, row in sites.recorded_on:
        place = (
            np.searchsorted(known, latest, side="right")
            - 1
            - np.arange(MAX_RECORDED_ROWS_BACK)[:, None]
        )
        yield np.where(place >= 0, row[np.maximum(place, 0)], NONE)


def _in_turn(sites: EventSites, call: Ints, turns: dict[int, tuple[int, int]]) -> Iterator[Ints]:
    """Rows that waits may be for where works are waited for in the order of their launches.

    The k-th wait of a stream is for the k-th collective of another one, counted from one of
    those that were launched before the first: a job that launches several at once waits for the
    first of them when the last event was recorded for the last. Shape (candidates, waits).
    """
    if int(call[0]) not in turns:
        return  # the waiting stream is not known
    place, first = np.array([turns[c] for c in call.tolist()]).T
    for rows, launched in sites.collectives:
        begin = int(np.searchsorted(launched, first[0]))
        at = place + begin - np.arange(1, min(MAX_COLLECTIVES_BACK, len(rows)) + 1)[:, None]
        there = (at >= 0) & (at < len(rows))
        at = np.where(there, at, 0)
        before = ((launched[at] < call) | ~there).all(axis=1) & there.any(axis=1)
        yield np.where(there, rows[at], NONE)[before]


def _open(placed: PlacedRows, destination: Ints, row: Ints) -> Bools:
    """Neither the launch nor the row before on the stream explains the start better."""
    previous = placed.previous[destination]
    latest = np.where(previous >= 0, placed.end[previous], EVER)
    result: Bools = placed.end[row] > np.maximum(latest, placed.launch[destination])
    return result


def _next(launches: Launches, stream: int, call: Ints) -> Ints:
    """First row launched on a stream after each of some calls; `NONE`: none."""
    rows, calls = launches.on(stream)
    return np.append(rows, NONE)[np.searchsorted(calls, call, side="right")]


def _turns(waits: Sequence[Wait]) -> dict[int, tuple[int, int]]:
    """Of each wait by its call: which of its stream's it is, and the call of the first of these."""
    of_stream: dict[int, list[int]] = {}
    for call, target in sorted((w.call, w.target) for w in waits):
        if target >= 0:
            of_stream.setdefault(target, []).append(call)
    return {c: (k, calls[0]) for calls in of_stream.values() for k, c in enumerate(calls)}


def _bursts(sites: EventSites, waits: Sequence[Wait]) -> list[dict[int, int]]:
    """Per stream of collectives the row that each wait, by its call, is for in its burst.

    What launched a step's collectives waits for all of them afterwards, in the order of their
    launches, as DDP does for its buckets: the last of the waits that no launch of a collective
    parts is for the last collective before them, the one before it for the one before.
    """
    own = [w for w in waits if not w.first]
    target = np.array([w.target if w.target >= 0 else next(iter(w.ahead), NONE) for w in own])
    call = np.array([w.call for w in own])
    order = np.lexsort((call, target))
    found = []
    for rows, launched in sites.collectives:
        before = np.searchsorted(launched, call[order])
        key = np.stack([target[order], before])
        starts = np.concatenate([[True], (key[:, 1:] != key[:, :-1]).any(axis=0)])[: len(order)]
        begin = np.flatnonzero(starts)
        size = np.diff(np.append(begin, len(order)))
        place = np.arange(len(order)) - np.repeat(begin, size)
        at = before - np.repeat(size, size) + place
        good = (at >= 0) & (at < len(rows))
        calls = call[order][good].tolist()
        found.append(dict(zip(calls, rows[at[good]].tolist(), strict=True)))
    return found


def recorded_behind(host: HostRecord, records: Ints) -> Ints:
    """Rows behind which events may have been recorded, shape (records, 2).

    The last row of the stream that the thread launched on last, and of the one before that:
    streams are a thread's own choice, but other threads launch on them, too.
    """
    launches, threads = host.launches, host.calls.thread
    found = np.full((len(records), 2), NONE)
    for thread in np.unique(threads[records]).tolist():
        launched = np.flatnonzero(threads[launches.call] == thread)
        own = np.flatnonzero(threads[records] == thread)
        if not len(launched):
            continue
        last = np.searchsorted(launches.call[launched], records[own]) - 1
        stream = launches.stream[launched]
        change = np.flatnonzero(stream[1:] != stream[:-1])
        place = np.searchsorted(change, last) - 1  # the last change of stream before
        current = np.where(last >= 0, stream[last], NONE)
        other = np.where(place >= 0, np.append(stream[change], NONE)[place], NONE)
        for variant, chosen in enumerate((current, other)):
            for number in np.unique(chosen[chosen >= 0]).tolist():
                rows, calls = launches.on(number)
                at = np.searchsorted(calls, records[own]) - 1
                on = (chosen == number) & (at >= 0)
                found[own[on], variant] = rows[at[on]]
    return found
