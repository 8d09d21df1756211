"""Traces and recordings of a run joined to its calls, and what they show together."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.ingest import stored_traces as store
from collscope.ingest.stored_analysis import StoredAnalysis, store_analysis
from collscope.kernel_names import classify, may_communicate, name_pattern
from collscope.match import graph_sizes
from collscope.match.consistency import Consistency, check
from collscope.match.extras import first_of_rank, join_extras
from collscope.match.job_starts import find_job_starts
from collscope.match.recorded_parts import join_recorded_parts
from collscope.match.recorded_ranks import agree_on_ranks
from collscope.match.recordings import RecordedGroup
from collscope.match.rows import Rows, gathered, ranked_by_name
from collscope.match.run import Matched
from collscope.match.trace_disagreements import trace_findings
from collscope.model import Diagnostic, Severity
from collscope.model.diagnostic import STEPS_UNKNOWN, TIMES_UNKNOWN
from collscope.model.trace import Ints, Kind
from collscope.store.runs import clear_timeline
from collscope.timeline.analyse import RankedTimeline, analyse
from collscope.timeline.contradictions import contradictions
from collscope.timeline.like_collectives import like_collectives
from collscope.timeline.overlap import own_warm_until, warm_until
from collscope.timeline.recorded_waits import RecordedWaits, recorded_waits
from collscope.timeline.steps import Steps, find_steps
from collscope.units import format_time

_FEW = 10  # rows whose times may agree by chance
_MOST = 3  # kernels named
_SHOWN = 60  # characters of a name


class RecordedTimes(msgspec.Struct, frozen=True):
    """Waits by the GPU times of recordings, with their calls and sources."""

    waits: RecordedWaits
    calls: Ints  # per call of the waits its index in the matched run; -1: left out
    sources: tuple[int, ...]  # per GPU of the waits the key of its source


class TraceMatch(msgspec.Struct, frozen=True):
    """What the traces of a run show, and which calls they hold."""

    given: store.StoredTraces
    timeline: RankedTimeline
    consistency: Consistency
    calls: Ints  # per call of the timeline its index in the matched run; -1: left out
    steps: Steps | None  # None: not known
    times_known: bool  # nothing in the traces contradicts their times
    recorded: RecordedTimes | None  # GPU times of recordings; None where the run has others


def match_traces(
    given: store.StoredTraces, matched: Matched, steps: int | None = None, *, doubted: bool = False
) -> TraceMatch:
    """Analyse the traces of a run and join their calls to those of its logs.

    steps    number of steps in each trace, where that is known
    doubted  what was found while reading makes the times of the traces unknown
    """
    timeline = analyse(given.traces)
    kept, twice = first_of_rank(join_recorded_parts(given.recordings))
    recordings, differ = agree_on_ranks(list(kept.values()))
    arrival = timeline.times.arrival
    sizes = graph_sizes.sizes_of_logs(timeline.rows, timeline.calls, matched)
    joined = join_extras(matched, recordings, timeline.rows, timeline.calls, arrival)
    sized = graph_sizes.give_classes(matched, joined.traced, sizes)
    matched.diagnostics += graph_sizes.diagnostics(sized, sizes.why)
    notes = _notes(given, timeline, doubted=doubted)
    matched.diagnostics += [*notes, *_doubts(timeline.rows), *twice, *differ]
    found = timeline.steps
    if steps is not None:
        found = find_steps(timeline.rows, timeline.calls, timeline.times, steps)
    against = [] if doubted else contradictions(timeline, found)
    matched.diagnostics += against
    codes = {d.code for d in against} | {d.code for t in given.traces for d in t.diagnostics}
    known = not doubted and codes.isdisjoint(TIMES_UNKNOWN)
    known_steps = found if known and codes.isdisjoint(STEPS_UNKNOWN) else None
    # A second set of times of the same calls would count them twice.
    timed = not given.traces and matched.joined is None
    return TraceMatch(
        given,
        timeline,
        check(recordings),
        joined.traced,
        known_steps,
        known,
        _recorded_times(given, list(kept), joined.recorded) if timed else None,
    )


def _recorded_times(
    given: store.StoredTraces, kept: Sequence[int], groups: Sequence[tuple[RecordedGroup, Ints]]
) -> RecordedTimes | None:
    """Waits by the GPU times of recordings; None where they have none.

    kept    places of the recordings among those given
    groups  with the call of the run that each of a group's calls is
    """
    waits = recorded_waits([group for group, _ in groups])
    if waits is None:
        return None
    calls = np.array([groups[g][1][k] for g, k in waits.places], dtype=np.int64)
    sources = [given.recording_sources[kept[number]] for number in waits.recordings]
    return RecordedTimes(waits, calls, tuple(sources))


def _notes(
    given: store.StoredTraces, timeline: RankedTimeline, *, doubted: bool
) -> list[Diagnostic]:
    found = [d for t in given.traces for d in t.diagnostics if d.severity is Severity.DATA_LOSS]
    # Rows that are kept are found again, and counted with their source, but for older stores.
    counted = ("zero_length", *(TIMES_UNKNOWN if doubted else ()))
    found = [d for d in found if d.code not in counted]
    twice = [given.traces[k].rank for k in timeline.rows.duplicates]
    if twice:
        text = (
            f"traces of ranks that already have one (first: rank {twice[0]}): they belong to "
            "another job or period and are left out of all numbers; give each a run of its own "
            "(--run NAME)"
        )
        found.append(Diagnostic(Severity.NOTICE, "rank_traced_twice", text, count=len(twice)))
    gap_ns = find_job_starts(given.traces).unsure_ns
    if gap_ns is not None:
        text = (
            f"traces {format_time(gap_ns)} or more apart in time, whose collectives cannot show "
            "whether they share one start of the job: they do if the host clocks differ this "
            "much; else give each start or period a run of its own (--run NAME)"
        )
        found.append(Diagnostic(Severity.NOTICE, "traces_apart", text))
    unranked = sum(t.rank is None for t in given.traces)
    if unranked and len(given.traces) > 1:
        how = (
            "by their files' names"
            if ranked_by_name(given.traces)
            else "in the order in which they were read"
        )
        text = f"traces without a rank: numbered {how}"
        found.append(Diagnostic(Severity.NOTICE, "trace_without_rank", text, count=unranked))
    inferred = sum(g.identity == "inferred" for g in timeline.calls.groups)
    if inferred and len(given.traces) > 1:
        text = (
            "process groups without a name in the traces: found by collectives that end together. "
            "Logs can still identify their communicators"
        )
        found.append(Diagnostic(Severity.NOTICE, "group_inferred", text, count=inferred))
    pauses = timeline.steps.pauses
    if len(pauses):
        longest = format_time(float(np.diff(pauses[:, 1:]).max()))
        text = (
            "pauses of nearly a step or longer on all ranks, as between two profiled periods in "
            f"one file (the longest lasts {longest}): only steps of the longest part without a "
            "pause count, and pauses do not count as idle time"
        )
        number = int((pauses[:, 0] == pauses[0, 0]).sum())
        found.append(Diagnostic(Severity.NOTICE, "pauses", text, count=number))
    calls = timeline.calls
    edges = len({call for call, _ in calls.outside})
    if edges:
        text = (
            "calls at the start or end of the traces that some ranks' traces do not cover: their "
            "transfer and waiting are not known, and no rank counts as late in them"
        )
        found.append(Diagnostic(Severity.NOTICE, "window_edges", text, count=edges))
    lacking = {int(calls.group[call]) for call, _ in calls.missing()}
    realigned = len(lacking | set(calls.group[calls.mismatched].tolist()))
    if realigned:
        text = "process groups whose ranks' traces differ in their collectives"
        found.append(Diagnostic(Severity.NOTICE, "traces_realigned", text, count=realigned))
    impossible = int(timeline.times.impossible.sum())
    if impossible:
        text = (
            "calls that one rank left before another arrived: rows belong to different calls, or "
            "times are wrong; they have no transfer, waiting or lateness"
        )
        found.append(Diagnostic(Severity.NOTICE, "impossible_call", text, count=impossible))
    warm_up = len(timeline.times.excluded)
    if warm_up:
        text = (
            "first calls that take far longer than the rest (warm-up): left out of sums of times, "
            "except where a table of kernels includes them"
        )
        found.append(Diagnostic(Severity.NOTICE, "warm_up_excluded", text, count=warm_up))
    return found


def _doubts(rows: Rows) -> Iterable[Diagnostic]:
    """Contradictions between the traces of a job: a copied rank, ranks that never meet."""
    seen: dict[tuple[bytes, bytes], int] = {}
    for t, rank in enumerate(rows.ranks):
        own_rows = rows.of(t)
        if own_rows.stop - own_rows.start < _FEW:
            continue
        own = rows.start[own_rows].tobytes(), rows.end[own_rows].tobytes()
        first = seen.setdefault(own, rank)
        if first != rank:
            text = (
                f"the traces of ranks {first} and {rank} have the same times in every row: one is"
                " a copy of the other under another rank, and waiting and lateness of both are"
                " wrong"
            )
            yield Diagnostic(Severity.NOTICE, "copied_trace", text)
    yield from _unrecognised(rows)
    yield from _alike(rows)
    yield from _fused(rows)


def _unrecognised(rows: Rows) -> Iterable[Diagnostic]:
    """Kernels that count as compute and may be collectives, by their names."""
    ranks = max(len(rows.ranks), rows.world_size or 0)
    if ranks < 2 or not len(rows):
        return
    names, busy = _most_time_first(rows, (rows.entry < 0) & (rows.kind == Kind.KERNEL))
    some = [k for k, name in enumerate(names) if may_communicate(name)]
    shown = ", ".join(names[k][:_SHOWN] for k in some[:_MOST])
    if (rows.entry < 0).all():
        text = (
            f"no collective is recognised in the traces of a job of {ranks} ranks, so all kernels"
            " count as compute"
        )
        if some:
            text += f"; kernels whose names suggest collectives, most time first: {shown}"
        yield Diagnostic(Severity.NOTICE, "no_collective", text)
    elif some:
        of_all = 100 * float(busy[some].sum()) / _kernel_ns(rows)
        text = (
            f"kernels whose names suggest collectives count as compute: {of_all:.1f} % of the "
            f"time of all kernels; most time first: {shown}"
        )
        yield Diagnostic(Severity.NOTICE, "may_be_collectives", text, count=len(some))


def _alike(rows: Rows) -> Iterable[Diagnostic]:
    """Kernels that count as compute and behave like collectives: proposed, not counted."""
    found = like_collectives(rows)
    if not found:
        return
    proposed = dict.fromkeys(name_pattern(rows.names[one.name]) for one in found)
    of_all = 100 * sum(one.busy_ns for one in found) / _kernel_ns(rows)
    options = " ".join(f"--collective '{pattern}=AllReduce'" for pattern in proposed)
    text = (
        "kernels of unknown names behave like collectives but count as compute: every rank runs "
        "them equally often, the ranks leave them together, and they last longer on ranks that "
        f"arrive early; {of_all:.1f} % of the time of all kernels; most time first: {options}, "
        "with the operation that each performs"
    )
    yield Diagnostic(Severity.NOTICE, "like_collectives", text, count=len(found))


def _fused(rows: Rows) -> Iterable[Diagnostic]:
    """Kernels of collectives that compute as well."""
    names, busy = _most_time_first(rows, rows.entry >= 0)
    hints = [classify(name) for name in names]
    some = [k for k, hint in enumerate(hints) if hint is not None and hint.fused]
    if some:
        of_all = 100 * float(busy[some].sum()) / float(busy.sum())
        text = (
            f"kernels that combine a collective with compute ({of_all:.1f} % of the collectives' "
            "kernel time): their whole time counts as collective, and the collective's part of "
            "it is not known; most time first: "
            f"{', '.join(names[k][:_SHOWN] for k in some[:_MOST])}"
        )
        yield Diagnostic(Severity.NOTICE, "fused_kernels", text, count=len(some))


def _most_time_first(rows: Rows, which: npt.NDArray[np.bool_]) -> tuple[list[str], Ints]:
    """Names of these rows and the time of each, ns."""
    of_name = np.where(which, rows.name, -1)
    busy = np.zeros(len(rows.names), dtype=np.int64)
    np.add.at(busy, of_name[of_name >= 0], (rows.end - rows.start)[of_name >= 0])
    present = np.unique(of_name[of_name >= 0])
    order = present[np.argsort(-busy[present], kind="stable")]
    return [rows.names[k] for k in order.tolist()], busy[order]


def _kernel_ns(rows: Rows) -> float:
    kernels = rows.kind == Kind.KERNEL
    return float((rows.end - rows.start)[kernels].sum())


def store_trace_match(
    connection: sqlite3.Connection, run: int, found: TraceMatch, first_call: int
) -> None:
    """Replace what the analysis of the run's traces found.

    first_call  key of the first call of the matched run, which is stored already
    """
    clear_timeline(connection, run)
    timeline, given = found.timeline, found.given
    kept = gathered(given.traces)
    call_ids = np.where(found.calls >= 0, found.calls + first_call, -1)
    ids = [given.trace_ids[k] for k in kept]
    class_ids = _class_ids(connection, first_call, found.calls)
    store_analysis(connection, run, StoredAnalysis(timeline, class_ids))
    store.store_ranks(connection, timeline, ids, known=found.times_known)
    if found.times_known:
        store.store_totals(connection, given.traces, _first_rows(found, kept), given.trace_ids)
        store.store_call_times(connection, timeline, call_ids)
        kernels = [given.kernel_ids[k] for k in kept]
        store.store_kernel_calls(connection, timeline, call_ids, kernels)
    else:
        store.clear_totals(connection, given.trace_ids)
    if found.recorded is not None:
        calls = found.recorded.calls
        own = np.where(calls >= 0, calls + first_call, -1)
        store.store_recorded_times(connection, found.recorded.waits, own, found.recorded.sources)
    if found.steps is not None:
        store.store_steps(connection, timeline, found.steps, ids)
    store.store_consistency(connection, run, found.consistency)
    store.store_disagreements(
        connection, run, "trace", trace_findings(timeline.rows, timeline.calls)
    )


def _class_ids(connection: sqlite3.Connection, first_call: int, calls: Ints) -> Ints:
    """Key of the class of each of the timeline's calls; -1: left out.

    calls  per call its index in the matched run, whose calls are the last that were stored
    """
    query = "SELECT class_id FROM _call WHERE call_id >= ? ORDER BY call_id"
    stored = [class_id for (class_id,) in connection.execute(query, (first_call,))]
    return np.array([*stored, -1], dtype=np.int64)[calls]


def _first_rows(found: TraceMatch, kept: list[int]) -> list[int]:
    """Per trace its first row after its own warm-up; behind its last if it is left out.

    What no call of the run is left out for stays, so that all of a report is of one window.
    """
    timeline = found.timeline
    rows = timeline.rows
    warm = np.minimum(own_warm_until(rows), warm_until(rows, timeline.calls, timeline.times))
    first = [len(trace.columns) for trace in found.given.traces]
    for t, k in enumerate(kept):
        first[k] = int(np.searchsorted(rows.start[rows.of(t)], warm[t]))
    return first
