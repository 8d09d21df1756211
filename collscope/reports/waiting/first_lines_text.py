"""The first lines on traces: the step, what collectives take of the time, waiting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collscope.model.profile import other_profilers
from collscope.reports.calls.answer import compact_ranges
from collscope.reports.rendering.share_words import waiting_words
from collscope.reports.waiting.answer import GroupRow, StepRow, TimelineReport
from collscope.reports.waiting.late_ranks_text import (
    matters,
    no_single_rank,
    short_late_sentence,
)
from collscope.reports.waiting.withheld import unknown_times
from collscope.units import are, count, figure, have, us_or_ms

_LOGGED_BY = {"kernel_log": "RCCL's kernel trace", "recording": "the recordings"}
_RECURRING = {"kernels": "kernels", "period": "collectives"}
_LITTLE = 0.0005  # of the collectives' time, less than the printed digits show
_ALIKE = 0.99  # steps of ranks that differ by less are shown once


def timeline_sentences(timeline: TimelineReport, given_ms: float | None) -> Iterable[str]:
    """The first lines of the report: exposed share, waiting, the late rank.

    given_ms  a step without the profiler, as given
    """
    if not timeline.ranks:
        yield from _logged_sentences(timeline)
        return
    if not timeline.cut and not timeline.withheld:
        yield from _step_sentence(timeline, given_ms)
    wait, transfer = (
        sum(getattr(r, n) for r in timeline.ranks) for n in ("wait_ns", "transfer_ns")
    )
    unknown = sum(r.unknown_ns for r in timeline.ranks)
    yield from _split_sentence(timeline, wait, transfer, unknown)
    yield from _warm_up_sentence(timeline)
    yield from _group_sentence(timeline.groups)
    yield from (
        short_late_sentence(rank, timeline.ranks)
        for rank in timeline.ranks
        if rank.straggler and matters(rank, timeline.ranks)
    )
    yield from no_single_rank(timeline.ranks)


def share_of_time_sentence(timeline: TimelineReport) -> Iterable[str]:
    """What part of the traced time, and so of a step, collectives take."""
    parts = traced_share(timeline)
    if parts is not None:
        exposed, hidden, idle = parts
        idles = "The GPUs idle" if len(timeline.ranks) > 1 else "The GPU idles"
        left_out = ", after the warm-up" * any(row.warm_up for row in timeline.classes)
        yield (
            f"Of the traced time ({traced_ranks(timeline, len(timeline.ranks))}{left_out}), "
            f"collectives take {exposed + hidden:.1f} %: {exposed:.1f} % exposed and "
            f"{hidden:.1f} % hidden by compute. "
            f"{idles} {idle:.1f} %."
        )
        if timeline.kernels_lost:
            yield (
                "These shares are uncertain: the traces show launches of "
                f"{count(timeline.kernels_lost, 'kernel')} that they do not hold. The GPU idles "
                "less and computes more than shown."
            )
        if timeline.queued:
            yield f"These shares are uncertain: {timeline.queued}."


def withheld_sentences(timeline: TimelineReport) -> Iterable[str]:
    """That times or steps are not known, as the traces contradict themselves."""
    reason = unknown_times(timeline.withheld)
    if reason is not None:
        yield (
            "Share, overlap, idle time, waiting and step time are not known: the traces "
            f"contradict themselves. {reason.words}"
        )
    elif timeline.withheld:
        reason = timeline.withheld[0]
        yield f"The step time is not known: the traces contradict themselves. {reason.words}"


def cut_sentence(ranks: Sequence[int]) -> Iterable[str]:
    """Whose trace lacks its end; steps are found in all traces together, so no step is shown."""
    if ranks:
        several = "s" * (len(ranks) > 1)
        yield (
            f"The trace{several} of rank{several} {compact_ranges(ranks)} {are(len(ranks))} "
            "cut. Figures cover the part before the cut; the step time is not known. Copy "
            f"the file{several} again, or trace again."
        )


def _step_sentence(timeline: TimelineReport, given_ms: float | None) -> Iterable[str]:
    """The step time, and that the profiler is in it."""
    steps: Sequence[StepRow] = timeline.steps
    if not steps:
        yield (
            "No step recurs in the traces (recurring layers are not steps), so the step time "
            "is not known. Record several steps with the profiler's step marks. If each "
            "trace holds N steps, ingest them with --steps N."
        )
        return
    longest = max(steps, key=lambda row: row.mean_ns)
    least = min(row.mean_ns for row in steps)
    which = ", the slowest" * (len(steps) > 1)
    ranks = f"; ranks from {least / 1e6:.2f}" * (least < _ALIKE * longest.mean_ns)
    with_profiler = (
        f"A step takes {longest.mean_ns / 1e6:.2f} ms with the profiler (mean of "
        f"{count(longest.steps, 'step')} on rank {longest.rank}{which}{ranks})"
    )
    from_ends = ""
    if longest.step_from in _RECURRING:
        from_ends = (
            f" Steps were found by recurring {_RECURRING[longest.step_from]}: each is measured from"
            " the end of the one before, so the first is not counted."
        )
    if given_ms is not None:
        yield f"{with_profiler}, and {figure(given_ms, 4)} ms without it, as given.{from_ends}"
    else:
        yield (
            f"{with_profiler}.{from_ends} {_cost(timeline)} Measure the step time without the "
            "profiler, and pass it as --step-ms."
        )


def _cost(timeline: TimelineReport) -> str:
    """What the profiler costs the host.

    source  of the factors: docs/validation.md, "Cost of the profiler"
    """
    names = other_profilers(timeline.profilers)
    if names:
        return f"The cost of {' and '.join(names)} on the host was not measured."
    if timeline.cpu_activities:
        return (
            "The profiler slows the host: with CPU activities, training jobs on H200 took up to "
            "1.64 times as long (docs/validation.md)."
        )
    return (
        "The profiler slows the host: even with GPU activities alone, training jobs on H200 took "
        "up to 1.42 times as long (docs/validation.md)."
    )


def _split_sentence(
    timeline: TimelineReport, wait: int, transfer: int, unknown: int
) -> Iterable[str]:
    """How the kernel time of collectives splits; what is not known does not count as transfer."""
    kernel_ns = wait + transfer + unknown
    if unknown <= _LITTLE * kernel_ns:
        if kernel_ns and timeline.world_unknown:
            yield f"{_at_least(wait / kernel_ns)}. The rest {_if_whole(timeline)}"
        elif kernel_ns:
            yield (
                f"Waiting for the last rank takes {waiting_words(wait, 0, kernel_ns)} of the "
                "kernel time of collectives; the rest is transfer."
            )
        return
    lacking = sum(row.incomplete for row in timeline.classes)
    why = ""
    if timeline.traced is not None:
        why = (
            f"only {traced_ranks(timeline, timeline.traced.ranks)} "
            f"{have(timeline.traced.ranks)} a trace, and the rest may be late"
        )
    elif lacking:
        why = f"{count(lacking, 'call')} {are(lacking)} not in every rank's trace"
    because = f", because {why}" if why else ""
    if wait + transfer and timeline.world_unknown:
        yield (
            f"{_at_least(wait / kernel_ns)}; {100 * unknown / kernel_ns:.1f} % may be transfer or "
            f"waiting{because}. The other {100 * transfer / kernel_ns:.1f} % {_if_whole(timeline)}"
        )
    elif wait + transfer:
        yield (
            f"{_at_least(wait / kernel_ns)}. Another {100 * unknown / kernel_ns:.1f} % may be "
            f"waiting or transfer{because}."
        )
    elif why:
        yield f"How much of the kernel time of collectives is waiting is not known: {why}."


def _at_least(wait: float) -> str:
    return (
        f"Waiting for the last rank takes at least {100 * wait:.1f} % of the kernel time of "
        "collectives"
    )


def _if_whole(timeline: TimelineReport) -> str:
    """On what condition the rest is transfer where no trace shows how many ranks there are."""
    return (
        "is transfer only if the job has no more than the "
        f"{count(len(timeline.ranks), 'traced rank')}: the traces do not show its number of "
        "ranks."
    )


def _warm_up_sentence(timeline: TimelineReport) -> Iterable[str]:
    """What no figure counts; a job that has long been running does not warm up."""
    if timeline.warm_up_calls:
        several = timeline.warm_up_calls > 1
        calls = f"{timeline.warm_up_calls} first calls" if several else "the first call"
        yield (
            f"Excluded as warm-up: {calls}, up to {us_or_ms(timeline.warm_up_longest_ns)} on a "
            "rank. If tracing began in mid-run, this time may be a wait for a late rank."
        )


def _group_sentence(groups: Sequence[GroupRow]) -> Iterable[str]:
    if len(groups) > 1:
        kernel_ns = sum(group.kernel_ns for group in groups)
        parts = (
            f"{group.name or 'without a name'} {100 * group.kernel_ns / max(kernel_ns, 1):.1f} %"
            for group in groups
        )
        yield f"Kernel time of collectives by process group: {', '.join(parts)}."


def _logged_sentences(timeline: TimelineReport) -> Iterable[str]:
    """Waiting by the kernel trace of the logs, or by recordings."""
    if timeline.logged_by is None:
        return
    ranks, source = timeline.logged, _LOGGED_BY[timeline.logged_by]
    kernel_ns = sum(rank.seen_ns for rank in ranks)
    wait, unknown = (sum(getattr(r, name) for r in ranks) for name in ("wait_ns", "unknown_ns"))
    if unknown < kernel_ns:
        left = f"; {100 * unknown / kernel_ns:.1f} % may be waiting or transfer"
        yield (
            f"Waiting for the last rank ({count(len(ranks), 'rank')}, by {source}) takes "
            f"{waiting_words(wait, unknown, kernel_ns)} of the kernel time of collectives"
            f"{left * (unknown > _LITTLE * kernel_ns)}."
        )
    yield from (
        short_late_sentence(rank, ranks)
        for rank in ranks
        if rank.straggler and matters(rank, ranks)
    )


def traced_ranks(timeline: TimelineReport, ranks: int) -> str:
    """The number of ranks in words, with the whole where some have no trace."""
    return f"{ranks} of {timeline.traced.world} ranks" if timeline.traced else count(ranks, "rank")


def traced_share(timeline: TimelineReport) -> tuple[float, float, float] | None:
    """Exposed, hidden and idle part of the traced time of all ranks, in percent; None without."""
    span = sum(r.span_ns for r in timeline.ranks)
    if not span:
        return None
    exposed, hidden, idle = (
        100 * sum(getattr(r, name) for r in timeline.ranks) / span
        for name in ("exposed_ns", "hidden_ns", "idle_ns")
    )
    return exposed, hidden, idle


def idle_percent(timeline: TimelineReport) -> float | None:
    """Part of the traced time of all ranks in which nothing ran; None without traces."""
    span = sum(rank.span_ns for rank in timeline.ranks)
    return 100 * sum(rank.idle_ns for rank in timeline.ranks) / span if span else None
