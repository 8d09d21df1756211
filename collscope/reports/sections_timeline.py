"""What the readable forms say of traces and recordings: overlap, waiting, late ranks, progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from collscope.analysis.communicators import compact_ranges
from collscope.analysis.hidden_cost import BesideRow
from collscope.analysis.late_causes import LateCause
from collscope.analysis.ranks import RankRow, RankWaits
from collscope.analysis.timeline import (
    ClassTimeRow,
    ClockRow,
    GroupRow,
    PlaceRow,
    ProgressRow,
    StepRow,
    Timeline,
)
from collscope.model.profile import other_profilers
from collscope.reports.layout import NUMBER, TEXT, Section, Table, scaled, table
from collscope.reports.part import Part
from collscope.units import are, count, figure, format_size, have

_MOST_RANKS = 16  # rows of a table; then the ranks with most exposed time
_MOST_CLASSES = 20
_MOST_PROGRESS = 32
_MOSTLY_LAST = 0.75  # of the calls that a rank came last to: by those that are named
_LEAST_WAIT = 0.01  # part of the other ranks' traced time that they wait for a late one
_LITTLE = 0.0005  # of the collectives' time, less than the printed digits show
_LEAST_LATENESS_NS = 20_000  # what a launch is late by chance
_ALIKE = 0.99  # steps of ranks that differ by less are told once
NO_CAUSE = "Why is not known: a kernel trace shows collectives only."


def timeline_sentences(said: Timeline) -> Iterable[str]:
    """The first lines of the report: exposed share, waiting, the late rank."""
    if not said.ranks:
        yield from _logged_sentences(said.logged)
        return
    if not said.cut:
        yield from _step_sentence(said.steps, _cost(said))
    wait, transfer = (sum(getattr(r, n) for r in said.ranks) for n in ("wait_ns", "transfer_ns"))
    unknown = sum(r.unknown_ns for r in said.ranks)
    yield from _split_sentence(said, wait, transfer, unknown)
    yield from _group_sentence(said.groups)
    yield from (
        f"{late_sentence(rank, said.ranks)} {cause_sentence(rank, said)}"
        for rank in said.ranks
        if rank.straggler and matters(rank, said.ranks)
    )
    yield from _no_single_rank(said.ranks)


def traced_share(said: Timeline) -> tuple[float, float, float] | None:
    """Exposed, hidden and idle part of the traced time of all ranks, in percent; None without."""
    span = sum(r.span_ns for r in said.ranks)
    if not span:
        return None
    exposed, hidden, idle = (
        100 * sum(getattr(r, name) for r in said.ranks) / span
        for name in ("exposed_ns", "hidden_ns", "idle_ns")
    )
    return exposed, hidden, idle


def share_of_time_sentence(said: Timeline) -> Iterable[str]:
    """What part of the traced time, and so of a step, collectives take."""
    parts = traced_share(said)
    if parts is not None:
        exposed, hidden, idle = parts
        left_out = ", after the warm-up" * any(row.warm_up for row in said.classes)
        yield (
            f"Of the traced time ({traced_ranks(said, len(said.ranks))}{left_out}) collectives "
            f"take {exposed + hidden:.1f} %: {exposed:.1f} % exposed and {hidden:.1f} % beside "
            f"compute kernels; the GPU idles {idle:.1f} %."
        )


def cut_sentence(ranks: Sequence[int]) -> Iterable[str]:
    """Whose trace lacks its end; steps are found in all traces together, so none is told."""
    if ranks:
        several = "s" * (len(ranks) > 1)
        yield (
            f"The trace{several} of rank{several} {compact_ranges(ranks)} {are(len(ranks))} cut: "
            "figures are of the part before the cut, and the step time is not told. Copy the "
            f"file{several} again, or trace again."
        )


def _no_single_rank(ranks: Sequence[RankWaits]) -> Iterable[str]:
    """Which ranks come last where the lateness costs time and none of them stands out."""
    seen, caused = sum(r.seen_ns for r in ranks), sum(r.caused_wait_ns for r in ranks)
    if any(rank.straggler for rank in ranks) or caused < max(1, _LEAST_WAIT * seen):
        return
    often = sorted(ranks, key=lambda rank: (-rank.late_last, rank.rank))
    last = [rank.late_last for rank in often]
    named = next(n for n in range(1, len(last) + 1) if sum(last[:n]) >= _MOSTLY_LAST * sum(last))
    if 1 < named < len(ranks):
        which = [str(rank) for rank in sorted(rank.rank for rank in often[:named])]
        yield (
            f"No single rank: ranks {', '.join(which[:-1])} and {which[-1]} come last in "
            f"{sum(last[:named])} of {count(max(rank.late_of for rank in ranks), 'call')}."
        )
    elif named > 1:
        yield "No single rank is late: which one comes last changes from call to call."


def _cost(said: Timeline) -> str:
    """What the profiler costs the host.

    source  of the factors: docs/validation.md, "Cost of the profiler"
    """
    names = other_profilers(said.profilers)
    if names:
        return f"What {' and '.join(names)} costs the host was not measured."
    if said.cpu_activities:
        return (
            "The traces show CPU activities: with them loops of launches on H200 took 1.16 to "
            "1.52 x as long as without the profiler, training jobs up to 1.64 x."
        )
    return (
        "The traces show no CPU activities: with those of the GPU alone, loops of "
        "launches on H200 took 1.06 to 1.26 x as long as without the profiler, training jobs "
        "up to 1.42 x."
    )


def _step_sentence(steps: Sequence[StepRow], cost: str) -> Iterable[str]:
    """The step time, and that the profiler is in it."""
    if not steps:
        yield (
            "No step recurs in the traces, so the step time is not known. If each trace holds N"
            " steps, ingest them with --steps N."
        )
        return
    longest = max(steps, key=lambda row: row.mean_ns)
    least = min(row.mean_ns for row in steps)
    ranks = f"; ranks from {least / 1e6:.2f}" * (least < _ALIKE * longest.mean_ns)
    yield (
        f"A step takes {longest.mean_ns / 1e6:.2f} ms with the profiler (mean of "
        f"{count(longest.steps, 'step')} of rank {longest.rank}{ranks}), which slows the host. "
        f"{cost} Time steps without the profiler, and give predict that time as --step-ms."
    )


def _logged_sentences(ranks: Sequence[RankWaits]) -> Iterable[str]:
    """What the kernel trace of the logs tells of waiting."""
    whole = sum(rank.seen_ns for rank in ranks)
    wait, unknown = (sum(getattr(r, name) for r in ranks) for name in ("wait_ns", "unknown_ns"))
    if unknown < whole:
        left = f"; {100 * unknown / whole:.1f} % may be either"
        yield (
            f"Of the kernel time of collectives ({count(len(ranks), 'rank')}, by RCCL's kernel "
            f"trace) {100 * wait / whole:.1f} % is waiting for the last rank"
            f"{left * (unknown > _LITTLE * whole)}."
        )
    yield from (
        f"{late_sentence(rank, ranks)} {NO_CAUSE}"
        for rank in ranks
        if rank.straggler and matters(rank, ranks)
    )


def traced_ranks(said: Timeline, ranks: int) -> str:
    """The number of ranks in words, with the whole where some have no trace."""
    return f"{ranks} of {said.traced.world} ranks" if said.traced else count(ranks, "rank")


def _split_sentence(said: Timeline, wait: int, transfer: int, unknown: int) -> Iterable[str]:
    """How the kernel time of collectives splits; what is not known does not count as transfer."""
    whole = wait + transfer + unknown
    if unknown <= _LITTLE * whole:
        if whole:
            yield (
                f"Of the collectives' kernel time {100 * wait / whole:.1f} % is waiting for the "
                "last rank, the rest transfer."
            )
        return
    lacking = sum(row.incomplete for row in said.classes)
    why = ""
    if said.traced is not None:
        why = (
            f": only {traced_ranks(said, said.traced.ranks)} {have(said.traced.ranks)} a trace, "
            "and the rest may be late"
        )
    elif lacking:
        why = f": in {count(lacking, 'call')} the last rank may be missing from the traces"
    if wait + transfer:
        yield (
            f"Of the collectives' kernel time {100 * wait / whole:.1f} % is waiting for the last "
            f"rank, {100 * transfer / whole:.1f} % transfer; {100 * unknown / whole:.1f} % may "
            f"be either{why}."
        )
    elif why:
        yield f"How much of the collectives' kernel time is waiting is not known{why}."


def idle_percent(said: Timeline) -> float | None:
    """Part of the traced time of all ranks in which nothing ran; None without traces."""
    span = sum(rank.span_ns for rank in said.ranks)
    return 100 * sum(rank.idle_ns for rank in said.ranks) / span if span else None


def late_sentence(rank: RankWaits, ranks: Sequence[RankWaits]) -> str:
    """How often and how much a straggler is late; the table calls the first `last in`.

    The others wait for other ranks too: how much less they would is what it alone costs them.
    """
    waited = sum(other.wait_ns for other in ranks if other.rank != rank.rank)
    others = "The other waits" if len(ranks) == 2 else "The others wait"
    return (
        f"Rank {rank.rank} comes last in {rank.late_last} of {late_calls(rank)}, "
        f"in {rank.late_behind} of them by {_us(rank.late_typical_ns / 2)} or more, and has "
        f"{100 * rank.late_share:.0f} % of all lateness. {others} "
        f"{_us(waited)} in total; {in_time(ranks)}, "
        f"{'it' if len(ranks) == 2 else 'they'} would wait {_us(rank.caused_wait_ns)} less."
    )


def late_calls(rank: RankWaits) -> str:
    """The calls that a rank could be late to: in others no rank waits, or one was not seen."""
    which = " that synchronise and were seen on every rank" * (rank.late_of < rank.calls)
    return f"{count(rank.late_of, 'call')}{which}"


def in_time(ranks: Sequence[RankWaits]) -> str:
    """When a late rank is taken to come instead."""
    return "if both came together" if len(ranks) == 2 else "if it came with the second last"


def cause_of(rank: RankRow, said: Timeline) -> LateCause:
    """Why a straggler is late."""
    return next(cause for cause in said.causes if cause.rank == rank.rank)


def cause_sentence(rank: RankRow, said: Timeline) -> str:
    """Why a straggler is late, with the figures that tell it."""
    cause = cause_of(rank, said)
    others = [other for other in said.ranks if other.rank != rank.rank]
    idles = (
        f"Its GPU idles {_us(rank.idle_ns)}, the others' {_between([o.idle_ns for o in others])}"
    )
    computes = (
        f"It computes {_us(rank.compute_ns)}, the others "
        f"{_between([o.compute_ns for o in others])}."
    )
    match cause.cause:
        case "host":
            return (
                f"{idles}: for {_us(cause.idle_host_ns or 0)} the next work was not launched "
                f"yet, so its host is late. {computes}"
            )
        case "idle":
            return (
                f"{idles}; the trace has no launches, so it does not show what the GPU waits for. "
                f"{computes}"
            )
        case "more":
            return (
                f"It runs more compute kernels than the others: {_us(cause.more_compute_ns)} more."
            )
        case "slower":
            return (
                "It runs the same compute kernels as the others, but they last longer: "
                f"{_us(cause.slower_compute_ns)} in total."
            )
        case "inherited":
            return (
                f"It waits {_us(cause.inherited_ns)} itself, in another group: rank "
                f"{cause.first_rank} is the first cause."
            )
    return f"Why is not known: {idles[0].lower()}{idles[1:]}. {computes}"


def _between(values: Sequence[int]) -> str:
    low, high = _us(min(values)), _us(max(values))
    return low if low == high else f"{low} to {high}"


def matters(rank: RankWaits, ranks: Sequence[RankWaits]) -> bool:
    """Whether the others lose enough to look for the cause: 1 % of their time, and 20 us a call."""
    others = sum(other.seen_ns for other in ranks if other.rank != rank.rank)
    return (
        rank.caused_wait_ns >= _LEAST_WAIT * others and rank.late_typical_ns >= _LEAST_LATENESS_NS
    )


def timeline_section(said: Timeline) -> Iterable[Section]:
    """Overlap and waiting by rank, times by class, clocks, progress; none without traces."""
    blocks = tuple(_blocks(said))
    if blocks:
        yield Section("Overlap and waiting", blocks)


def _blocks(said: Timeline) -> Iterable[str | Table]:
    if said.ranks:
        yield _overlap(said.ranks)
        if len(said.ranks) < 2:
            yield (
                "One rank's trace: waiting cannot be told from transfer (ingest those of all "
                "ranks)."
            )
        else:
            yield from _waiting(said.ranks, _largest(said.ranks))
    if any(rank.transfer_ns for rank in said.logged):
        shown = sorted(said.logged, key=lambda r: -r.caused_wait_ns)[:_MOST_RANKS]
        yield from _waiting(said.logged, sorted(shown, key=lambda r: r.rank))
        yield (
            "By RCCL's kernel trace. Each GPU has its own clock; the ends of the calls tell the "
            "offsets, as all ranks leave a call together."
        )
    if said.places:
        yield from _places(said.places)
    if len(said.groups) > 1:
        yield _groups(said.groups)
    if said.classes:
        yield _classes(said.classes)
        yield from _class_notes(said.classes)
    if said.beside:
        yield from _beside(said.beside)
    if said.clocks:
        yield from _clocks(said.clocks)
    if said.progress:
        yield from _progress(said.progress)


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
        ("exposed %", NUMBER),
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
    )  # fmt: skip


def _waiting(ranks: Sequence[RankWaits], shown: Sequence[RankWaits]) -> Iterable[str | Table]:
    """Waiting by rank, of those `shown`."""
    columns = [
        ("rank", NUMBER),
        ("calls", NUMBER),
        ("transfer ms", NUMBER),
        ("wait ms", NUMBER),
        ("unknown ms", NUMBER),
        ("last in", NUMBER),
        ("late us", NUMBER),
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
    )  # fmt: skip
    if len(ranks) > len(shown):
        yield f"{count(len(ranks) - len(shown), 'more rank')} not shown (view rank_waits)."


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
    )  # fmt: skip
    more = len(places) - len(shown)
    yield (
        "Sums over the ranks of each place; bus GB/s is the mean of their calls, weighted by time."
        " A slow place slows the calls of all ranks that it works with."
        + (f" {count(more, 'more place')} not shown (view place_times)." if more else "")
    )


def _group_sentence(groups: Sequence[GroupRow]) -> Iterable[str]:
    if len(groups) > 1:
        whole = sum(group.kernel_ns for group in groups)
        parts = (
            f"{group.name or 'without a name'} {100 * group.kernel_ns / max(whole, 1):.1f} %"
            for group in groups
        )
        yield f"Of the collectives' kernel time by process group: {', '.join(parts)}."


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
    )


def _classes(classes: Sequence[ClassTimeRow]) -> Table:
    columns = [
        ("class", NUMBER),
        ("op", TEXT),
        ("size", NUMBER),
        ("calls", NUMBER),
        ("transfer us", NUMBER),
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
    )


def _class_notes(classes: Sequence[ClassTimeRow]) -> Iterable[str]:
    yield "Medians over calls; transfer and wait ms are sums over calls and ranks."
    if len(classes) > _MOST_CLASSES:
        more = count(len(classes) - _MOST_CLASSES, "more class", "more classes")
        yield f"{more} not shown (view call_times)."
    warm_up = sum(c.warm_up for c in classes)
    if warm_up:
        yield f"Left out of every sum as warm-up: {count(warm_up, 'call')} (call_times.warm_up)."
    incomplete = sum(c.incomplete for c in classes)
    if incomplete:
        yield (
            f"{count(incomplete, 'call')} without the times of a rank (it has no trace, or its "
            "trace does not reach the call): the transfer is not known."
        )
    suspect = sum(c.suspect for c in classes)
    if suspect:
        yield (
            f"{count(suspect, 'call')} whose shortest kernel contradicts the transfer on aligned "
            "clocks by more than 10 %."
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
    )
    yield (
        "What hiding these classes costs the computation beside them, per rank, to first order: "
        "(1 - R) of the hidden time, as it would have taken R of it undisturbed. R is of another "
        "computation than the job's (bench interference), with the library's choice of channels."
    )


def _clocks(clocks: Sequence[ClockRow]) -> Iterable[str]:
    if len(clocks) < 2:
        return
    members = Counter(c.component for c in clocks)
    aligned = [c for c in clocks if members[c.component] > 1]
    if not aligned:
        yield "Clocks: the ranks have no common collective, so their times are not compared."
        return
    largest = max(aligned, key=lambda c: abs(c.offset_ns))
    yield (
        f"Clocks: offsets of up to {_us(abs(largest.offset_ns))} (rank {largest.rank}) removed, "
        f"each known to {_us(max(c.error_ns for c in aligned))} (one standard deviation, from the "
        "ends of synchronising collectives)."
    )
    if len(members) > 1:
        yield (
            f"The ranks fall into {len(members)} sets without a common collective: times of"
            " different sets cannot be compared."
        )


def _progress(progress: Sequence[ProgressRow]) -> Iterable[str | Table]:
    stopped = [p for p in progress if p.first_missing is not None or p.first_open is not None]
    if not stopped:
        yield "Recordings: every rank completed what the others called."
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
    )
    if len(stopped) > _MOST_PROGRESS:
        yield f"{len(stopped) - _MOST_PROGRESS} more not shown (view progress)."


def _us(ns: float) -> str:
    return f"{figure(ns / 1e6)} ms" if abs(ns) >= 1e6 else f"{figure(ns / 1e3)} us"


class TimelineReport(Timeline, Part, frozen=True):
    """Everything traces and recordings tell; empty where the run has none."""

    def sections(self) -> Iterable[Section]:
        """Timeline and ranks, where there is something of them."""
        return timeline_section(self)
