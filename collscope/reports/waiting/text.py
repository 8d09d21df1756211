"""Traces and recordings in tables: overlap, waiting, classes, clocks, progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from collscope.model import parse_op
from collscope.reports.calls.answer import compact_ranges
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, Table, scaled, table
from collscope.reports.rendering.origin import origin
from collscope.reports.tolerances import MIN_CHANGE
from collscope.reports.waiting.answer import (
    ClassTimeRow,
    ClockRow,
    GroupRow,
    PlaceRow,
    ProgressRow,
    TimelineReport,
)
from collscope.reports.waiting.drift import DriftRow
from collscope.reports.waiting.hidden_cost import BesideRow
from collscope.reports.waiting.late_ranks_text import in_time
from collscope.reports.waiting.ranks import RankRow, RankWaits
from collscope.units import are, count, figure, format_size, us_or_ms

_MOST_RANKS = 16  # rows of a table; then the ranks with most exposed time
_MOST_CLASSES = 20
_MOST_PROGRESS = 32
_LOGGED_BY = {
    "kernel_log": (
        "By RCCL's kernel trace. Each GPU has its own clock. The ends of the calls give the "
        "offsets, because all ranks leave a call together."
    ),
    "recording": (
        "By the GPU times of the recorded calls that have one. The clocks of the GPUs "
        "differ: we assume that all ranks leave a synchronising call together."
    ),
}


def timeline_section(
    timeline: TimelineReport, extra_work: Collection[int] = ()
) -> Iterable[Section]:
    """Overlap and waiting by rank, times by class, clocks, progress; none without traces.

    extra_work  ranks that run more kernels than the others, by the verdict
    """
    blocks = (*_withheld(timeline), *_blocks(timeline, extra_work))
    if blocks:
        yield Section("Overlap and waiting", blocks)


def _withheld(timeline: TimelineReport) -> Iterable[str]:
    if timeline.withheld:
        yield " ".join(["Not known:", *(one.words for one in timeline.withheld)])


def _blocks(timeline: TimelineReport, extra_work: Collection[int]) -> Iterable[str | Table]:
    if timeline.ranks:
        yield _overlap(timeline.ranks)
        yield from _beside_waits(timeline.ranks, extra_work)
        if len(timeline.ranks) < 2:
            yield (
                "One rank's trace: waiting and transfer cannot be separated (ingest the "
                "traces of all ranks)."
            )
        else:
            yield from _waiting(timeline.ranks, _largest(timeline.ranks))
    if any(rank.transfer_ns for rank in timeline.logged):
        yield from _logged(timeline)
    if timeline.places:
        yield from _places(timeline.places)
    if len(timeline.groups) > 1:
        yield _groups(timeline.groups)
    if timeline.classes:
        yield _classes(timeline.classes)
        yield from _class_notes(timeline.classes)
        yield from _drift(timeline.drift)
    if timeline.beside:
        yield from _beside(timeline.beside)
    if timeline.clocks:
        yield from _clocks(timeline.clocks)
    if timeline.progress:
        yield from _progress(timeline.progress)


def _largest(ranks: Sequence[RankRow]) -> Sequence[RankRow]:
    chosen = sorted(ranks, key=lambda r: -r.exposed_ns)[:_MOST_RANKS]
    return sorted(chosen, key=lambda r: r.rank)


def _overlap(ranks: Sequence[RankRow]) -> Table:
    columns = [
        ("rank", NUMBER),
        ("traced ms", NUMBER),
        ("compute ms", NUMBER),
        ("copies ms", NUMBER),
        ("collectives ms", NUMBER),
        ("exposed ms", NUMBER),
        ("hidden ms", NUMBER),
        ("idle ms", NUMBER),
        ("exposed % of traced", NUMBER),
    ]
    return table(
        columns,
        (
            (
                r.rank,
                *(
                    ns / 1e6
                    for ns in (
                        r.span_ns, r.compute_ns, r.copy_ns, r.collective_ns, r.exposed_ns,
                        r.hidden_ns, r.idle_ns,
                    )
                ),
                f"{100 * r.exposed_ns / r.span_ns:.1f}" if r.span_ns else None,
            )
            for r in _largest(ranks)
        ),
        (origin("rank_times", rank=r.rank) for r in _largest(ranks)),
    )  # fmt: skip


def _beside_waits(ranks: Sequence[RankRow], extra_work: Collection[int]) -> Iterable[str]:
    """Why the table can show less extra work than the verdict."""
    busier = [rank for rank in ranks if rank.rank in extra_work]
    others = [rank for rank in ranks if rank.rank not in extra_work]
    if not busier or not others:
        return
    if min(rank.hidden_ns for rank in others) > max(rank.hidden_ns for rank in busier):
        whose = f"rank {others[0].rank}" if len(others) == 1 else "the other ranks"
        yield (
            "compute ms may not show all of the extra work that the verdict names. Kernels can run "
            f"slower while a collective runs, and {whose} {'has' if len(others) == 1 else 'have'} "
            "more of this overlap (hidden ms)."
        )


def _waiting(ranks: Sequence[RankWaits], shown: Sequence[RankWaits]) -> Iterable[str | Table]:
    """Waiting by rank, of those `shown`."""
    columns = [
        ("rank", NUMBER),
        ("calls", NUMBER),
        ("transfer ms", NUMBER),
        ("wait ms", NUMBER),
        ("unknown ms", NUMBER),
        ("last in", NUMBER),
        ("typically late us", NUMBER),
        ("late % of all", NUMBER),
        ("costs others ms", NUMBER),
    ]
    yield table(
        columns,
        (
            (
                r.rank, r.calls, r.transfer_ns / 1e6, r.wait_ns / 1e6, r.unknown_ns / 1e6,
                *(
                    (
                        r.late_last, r.late_typical_ns / 1e3, f"{100 * r.late_share:.0f}",
                        r.caused_wait_ns / 1e6,
                    )
                    if r.late_of
                    else (None,) * 4
                ),
            )
            for r in shown
        ),
        (origin("rank_waits", rank=r.rank) for r in shown),
    )  # fmt: skip
    behind = "the other rank" if len(ranks) == 2 else "the second-last rank"
    yield (
        "unknown: waiting or transfer. last in: calls in which the rank arrived last, by more than "
        f"the clocks' error. typically late: how far behind {behind} it arrived (median, each call "
        "weighted by its lateness). late % of all: its part of the lateness of all "
        f"ranks. costs others: how much less other ranks would wait {in_time(ranks)}."
    )
    if len(ranks) > len(shown):
        yield f"{count(len(ranks) - len(shown), 'more rank')} not shown (view rank_waits)."


def _logged(timeline: TimelineReport) -> Iterable[str | Table]:
    """Waiting by the kernel trace of logs, or by recordings."""
    shown = sorted(timeline.logged, key=lambda r: -r.caused_wait_ns)[:_MOST_RANKS]
    yield from _waiting(timeline.logged, sorted(shown, key=lambda r: r.rank))
    yield _LOGGED_BY[timeline.logged_by or "kernel_log"]


def _drift(rows: Sequence[DriftRow]) -> Iterable[str | Table]:
    """Bandwidth of recorded classes, before and after each change."""
    if not rows:
        return
    changed = [row for row in rows if len(row.segments) > 1][:_MOST_CLASSES]
    if not changed:
        yield (
            f"The transfer of {count(len(rows), 'class', 'classes')} with enough timed calls does "
            f"not change over the run by {100 * MIN_CHANGE:.0f} % or more."
        )
        return
    columns = [
        ("communicator", NUMBER),
        ("class", NUMBER),
        ("op", TEXT),
        ("size", NUMBER),
        ("from call", NUMBER),
        ("to call", NUMBER),
        ("timed", NUMBER),
        ("transfer us", NUMBER),
        ("bus GB/s", NUMBER),
    ]
    yield table(
        columns,
        (
            (
                row.comm_id,
                row.class_id,
                row.op if row.nranks is None else f"{row.op} x{row.nranks}",
                format_size(row.size_bytes),
                segment.first_seq,
                segment.last_seq,
                segment.calls,
                segment.transfer_ns / 1e3,
                segment.busbw_gbps,
            )
            for row in changed
            for segment in row.segments
        ),
        (
            origin("call_times", comm_id=row.comm_id, class_id=row.class_id)
            for row in changed
            for _ in row.segments
        ),
    )  # fmt: skip
    yield (
        "Classes whose transfer changes over the run: medians of the calls between two "
        "changes. Calls are numbered on their communicator, from 0."
    )


def _places(places: Sequence[PlaceRow]) -> Iterable[str | Table]:
    columns = [
        ("by", TEXT),
        ("place", TEXT),
        ("ranks", TEXT),
        ("transfer ms", NUMBER),
        ("wait ms", NUMBER),
        ("last in", NUMBER),
        ("costs others ms", NUMBER),
        ("bus GB/s", NUMBER),
    ]
    shown = [
        row
        for kind in ("node", "NIC", "GPU")
        for row in [p for p in places if p.kind == kind][:_MOST_RANKS]
    ]
    yield table(
        columns,
        (
            (
                row.kind, row.place, compact_ranges(row.ranks), row.transfer_ns / 1e6,
                row.wait_ns / 1e6, row.late_last, row.caused_wait_ns / 1e6, row.busbw_gbps,
            )
            for row in shown
        ),
        (origin("place_times", kind=row.kind, place=row.place) for row in shown),
    )  # fmt: skip
    more = len(places) - len(shown)
    yield (
        "Sums over the ranks of each place; bus GB/s is the mean of their calls, weighted by "
        "time. A slow place slows the calls of all ranks that communicate with it."
        + (f" {count(more, 'more place')} not shown (view place_times)." if more else "")
    )


def _groups(groups: Sequence[GroupRow]) -> Table:
    columns = [
        ("process group", TEXT),
        ("number", NUMBER),
        ("ranks", NUMBER),
        ("calls", NUMBER),
        ("kernels ms", NUMBER),
        ("exposed ms", NUMBER),
        ("wait ms", NUMBER),
    ]
    return table(
        columns,
        (
            (
                g.name,
                g.communicators,
                g.nranks,
                g.calls,
                g.kernel_ns / 1e6,
                g.exposed_ns / 1e6,
                scaled(g.wait_ns, 1e6),
            )
            for g in groups
        ),
        (origin("communicators", name=g.name) for g in groups),
    )


def _classes(classes: Sequence[ClassTimeRow]) -> Table:
    columns = [
        ("class", NUMBER),
        ("op", TEXT),
        ("size", NUMBER),
        ("calls", NUMBER),
        ("median transfer us", NUMBER),
        ("min", NUMBER),
        ("max", NUMBER),
        ("start skew us", NUMBER),
        ("end skew us", NUMBER),
        ("transfer ms", NUMBER),
        ("wait ms", NUMBER),
    ]
    return table(
        columns,
        (
            (
                c.class_id,
                c.op if c.nranks is None else f"{c.op} x{c.nranks}",
                None if c.size_bytes is None else format_size(c.size_bytes),
                c.calls,
                scaled(c.transfer_ns_median, 1e3),
                scaled(c.transfer_ns_min, 1e3),
                scaled(c.transfer_ns_max, 1e3),
                scaled(c.start_skew_ns_median, 1e3),
                scaled(c.end_skew_ns_median, 1e3),
                *(
                    (None, None)
                    if c.transfer_ns_median is None
                    else (c.transfer_ns / 1e6, c.wait_ns / 1e6)
                ),
            )
            for c in classes[:_MOST_CLASSES]
        ),
        (origin("call_times", class_id=c.class_id) for c in classes[:_MOST_CLASSES]),
    )


def _class_notes(classes: Sequence[ClassTimeRow]) -> Iterable[str]:
    roots = any(not parse_op(c.op).synchronises for c in classes)
    no_waits = (
        " In Broadcast and similar operations, a rank need not wait for the last one. There, wait "
        "ms is the kernel time before the last rank arrived, whether or not the rank waited."
    ) * roots
    yield (
        f"{'op xN: on N ranks. ' * any(c.nranks for c in classes)}"
        "calls: those in traces. median, min and max: transfers of single calls (the table Classes "
        "has means). Skew: from "
        "the first rank to the last, median. transfer and wait ms: sums over calls and ranks."
        f"{no_waits}"
    )
    if len(classes) > _MOST_CLASSES:
        more = count(len(classes) - _MOST_CLASSES, "more class", "more classes")
        yield f"{more} not shown (view call_times)."
    warm_up = sum(c.warm_up for c in classes)
    if warm_up:
        they = "It is" if warm_up == 1 else "They are"
        yield (
            f"Excluded as warm-up: {count(warm_up, 'call')}. {they} left out of this section's "
            "tables, and of all times and 'calls timed' in later sections. "
            f"{they} included in other counts of calls, and in bytes."
        )
    incomplete = sum(c.incomplete for c in classes)
    if incomplete:
        yield (
            f"{count(incomplete, 'call')} {are(incomplete)} not in every rank's trace: how these "
            "split into waiting and transfer is not known, so transfer and wait leave "
            f"{'it' if incomplete == 1 else 'them'} out."
        )
    suspect = sum(c.suspect for c in classes)
    if suspect:
        yield (
            "Transfer time is estimated twice: from the shortest kernel of any rank, and from the "
            "times of all ranks on aligned clocks. The two estimates differ by more than 10 % in "
            f"{count(suspect, 'call')}, so the split of {'it' if suspect == 1 else 'them'} "
            "into waiting and transfer is uncertain."
        )


def _beside(rows: Sequence[BesideRow]) -> Iterable[str | Table]:
    columns = [
        ("class", NUMBER),
        ("op", TEXT),
        ("size", NUMBER),
        ("hidden ms", NUMBER),
        ("R", NUMBER),
        ("costs ms", NUMBER),
        ("measured", TEXT),
    ]
    yield table(
        columns,
        (
            (
                b.class_id,
                b.op if b.nranks is None else f"{b.op} x{b.nranks}",
                format_size(b.size_bytes),
                b.hidden_ns / 1e6,
                f"{b.relative_compute:.4f}",
                f"{figure((1 - b.relative_compute) * b.hidden_ns / 1e6, 4)}",
                f"{b.label}: {format_size(b.measured_size_bytes)}, {b.compute}, {b.device}",
            )
            for b in rows[:_MOST_CLASSES]
        ),
        (origin("classes", class_id=b.class_id) for b in rows[:_MOST_CLASSES]),
    )
    yield (
        "Estimated slowdown of the compute that hides these classes, per rank, to first "
        "order: (1 - R) of the hidden time, because undisturbed compute would have taken R "
        "of it. R was measured with other compute than the job's (bench interference), with "
        "the library's own choice of channels."
    )


def _clocks(clocks: Sequence[ClockRow]) -> Iterable[str]:
    if len(clocks) < 2:
        return
    members = Counter(c.component for c in clocks)
    aligned = [c for c in clocks if members[c.component] > 1]
    if not aligned:
        yield "Clocks: the ranks share no collective, so their times are not compared."
        return
    largest = max(aligned, key=lambda c: abs(c.offset_ns))
    yield (
        f"Clock offsets of up to {us_or_ms(abs(largest.offset_ns))} (rank {largest.rank}) "
        "were removed. They are estimated from the ends of synchronising collectives, with an "
        f"error of up to {us_or_ms(max(c.error_ns for c in aligned))} (one standard deviation)."
    )
    if len(members) > 1:
        yield (
            f"The ranks form {len(members)} sets that share no collective: times of "
            "different sets cannot be compared."
        )


def _progress(progress: Sequence[ProgressRow]) -> Iterable[str | Table]:
    stopped = [p for p in progress if p.first_missing is not None or p.first_open is not None]
    if not stopped:
        yield "Recordings: every rank completed the calls of the other ranks."
        return
    columns = [
        ("group", TEXT),
        ("rank", NUMBER),
        ("last called", NUMBER),
        ("last completed", NUMBER),
        ("first missing", NUMBER),
        ("first open", NUMBER),
    ]
    yield table(
        columns,
        (
            (p.group_name, p.rank, p.last_called, p.last_completed, p.first_missing, p.first_open)
            for p in stopped[:_MOST_PROGRESS]
        ),
        (
            origin("progress", group_name=p.group_name, rank=p.rank)
            for p in stopped[:_MOST_PROGRESS]
        ),
    )
    if len(stopped) > _MOST_PROGRESS:
        yield f"{len(stopped) - _MOST_PROGRESS} more not shown (view progress)."
