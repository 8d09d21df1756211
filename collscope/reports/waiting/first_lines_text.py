"""The first lines on traces: the step, what collectives take of the time, waiting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collscope.model.profile import other_profilers
from collscope.reports.calls.answer import compact_ranges
from collscope.reports.waiting.answer import GroupRow, StepRow, TimelineReport
from collscope.reports.waiting.late_ranks_text import (
    NO_CAUSE,
    cause_sentence,
    late_sentence,
    matters,
    no_single_rank,
)
from collscope.reports.waiting.withheld import unknown_times
from collscope.units import are, count, have, us_or_ms

_LOGGED_BY = {"kernel_log": "RCCL's kernel trace", "recording": "the recordings"}
_LITTLE = 0.0005  # of the collectives' time, less than the printed digits show
_ALIKE = 0.99  # steps of ranks that differ by less are shown once


def timeline_sentences(said: TimelineReport) -> Iterable[str]:
    """The first lines of the report: exposed share, waiting, the late rank."""
    if not said.ranks:
        yield from _logged_sentences(said)
        return
    if not said.cut and not said.withheld:
        yield from _step_sentence(said.steps, _cost(said))
    wait, transfer = (sum(getattr(r, n) for r in said.ranks) for n in ("wait_ns", "transfer_ns"))
    unknown = sum(r.unknown_ns for r in said.ranks)
    yield from _split_sentence(said, wait, transfer, unknown)
    yield from _warm_up_sentence(said)
    yield from _group_sentence(said.groups)
    yield from (
        f"{late_sentence(rank, said.ranks)} {cause_sentence(rank, said)}"
        for rank in said.ranks
        if rank.straggler and matters(rank, said.ranks)
    )
    yield from no_single_rank(said.ranks)


def share_of_time_sentence(said: TimelineReport) -> Iterable[str]:
    """What part of the traced time, and so of a step, collectives take."""
    parts = traced_share(said)
    if parts is not None:
        exposed, hidden, idle = parts
        left_out = ", after the warm-up" * any(row.warm_up for row in said.classes)
        yield (
            f"Of the traced time ({traced_ranks(said, len(said.ranks))}{left_out}), "
            f"collectives take {exposed + hidden:.1f} %: {exposed:.1f} % exposed and "
            f"{hidden:.1f} % hidden by compute. The GPU idles {idle:.1f} %."
        )
        if said.kernels_lost:
            yield (
                "These shares are uncertain: the traces show launches of "
                f"{count(said.kernels_lost, 'kernel')} that they do not hold. The GPU idles "
                "less and computes more than shown."
            )
        if said.queued:
            yield f"These shares are uncertain: {said.queued}."


def withheld_sentences(said: TimelineReport) -> Iterable[str]:
    """That times or steps are not known, as the traces contradict themselves."""
    reason = unknown_times(said.withheld)
    if reason is not None:
        yield (
            "Share, overlap, idle time, waiting and step time are not known: the traces "
            f"contradict themselves. {reason.words}"
        )
    elif said.withheld:
        reason = said.withheld[0]
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


def _step_sentence(steps: Sequence[StepRow], cost: str) -> Iterable[str]:
    """The step time, and that the profiler is in it."""
    if not steps:
        yield (
            "No step recurs in the traces (recurring layers are not steps), so the step time "
            "is not known. Record several steps with the profiler's step marks. If each "
            "trace holds N steps, ingest them with --steps N."
        )
        return
    longest = max(steps, key=lambda row: row.mean_ns)
    least = min(row.mean_ns for row in steps)
    ranks = f"; ranks from {least / 1e6:.2f}" * (least < _ALIKE * longest.mean_ns)
    yield (
        f"A step takes {longest.mean_ns / 1e6:.2f} ms with the profiler (mean of "
        f"{count(longest.steps, 'step')} of rank {longest.rank}{ranks}). The profiler slows "
        f"the host. {cost} Time steps without the profiler, and pass that time to predict as "
        "--step-ms."
    )


def _cost(said: TimelineReport) -> str:
    """What the profiler costs the host.

    source  of the factors: docs/validation.md, "Cost of the profiler"
    """
    names = other_profilers(said.profilers)
    if names:
        return f"The cost of {' and '.join(names)} on the host was not measured."
    if said.cpu_activities:
        return (
            "The traces have CPU activities: recording them on H200, launch loops took 1.16 "
            "to 1.52 x as long as without the profiler, training jobs up to 1.64 x."
        )
    return (
        "The traces have no CPU activities: recording GPU activities alone on H200, launch "
        "loops took 1.06 to 1.26 x as long as without the profiler, training jobs up to 1.42 "
        "x."
    )


def _split_sentence(said: TimelineReport, wait: int, transfer: int, unknown: int) -> Iterable[str]:
    """How the kernel time of collectives splits; what is not known does not count as transfer."""
    whole = wait + transfer + unknown
    if unknown <= _LITTLE * whole:
        if whole and said.untold_world:
            yield f"{_at_least(wait / whole)}. The rest {_if_whole(said)}"
        elif whole:
            yield (
                f"Waiting for the last rank is {100 * wait / whole:.1f} % of the kernel time "
                "of collectives; the rest is transfer."
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
    if wait + transfer and said.untold_world:
        yield (
            f"{_at_least(wait / whole)}; {100 * unknown / whole:.1f} % may be transfer or "
            f"waiting{why}. The other {100 * transfer / whole:.1f} % {_if_whole(said)}"
        )
    elif wait + transfer:
        yield (
            f"Waiting for the last rank is {100 * wait / whole:.1f} % of the kernel time of "
            f"collectives, transfer {100 * transfer / whole:.1f} %; "
            f"{100 * unknown / whole:.1f} % may be either{why}."
        )
    elif why:
        yield f"How much of the kernel time of collectives is waiting is not known{why}."


def _at_least(wait: float) -> str:
    return (
        f"Waiting for the last rank is at least {100 * wait:.1f} % of the kernel time of "
        "collectives"
    )


def _if_whole(said: TimelineReport) -> str:
    """On what condition the rest is transfer where no trace shows how many ranks there are."""
    return (
        "is transfer only if the job has no more than the "
        f"{count(len(said.ranks), 'traced rank')}: the traces do not show its number of "
        "ranks."
    )


def _warm_up_sentence(said: TimelineReport) -> Iterable[str]:
    """What no figure counts; a job that has long been running does not warm up."""
    if said.warm_up_calls:
        several = said.warm_up_calls > 1
        calls = f"{said.warm_up_calls} first calls, up to" if several else "the first call,"
        yield (
            f"Excluded as warm-up: {calls} {us_or_ms(said.warm_up_longest_ns)}. If the job "
            "was already running, this time may be waiting for a late rank."
        )


def _group_sentence(groups: Sequence[GroupRow]) -> Iterable[str]:
    if len(groups) > 1:
        whole = sum(group.kernel_ns for group in groups)
        parts = (
            f"{group.name or 'without a name'} {100 * group.kernel_ns / max(whole, 1):.1f} %"
            for group in groups
        )
        yield f"Kernel time of collectives by process group: {', '.join(parts)}."


def _logged_sentences(said: TimelineReport) -> Iterable[str]:
    """Waiting by the kernel trace of the logs, or by recordings."""
    if said.logged_by is None:
        return
    ranks, source = said.logged, _LOGGED_BY[said.logged_by]
    whole = sum(rank.seen_ns for rank in ranks)
    wait, unknown = (sum(getattr(r, name) for r in ranks) for name in ("wait_ns", "unknown_ns"))
    if unknown < whole:
        left = f"; {100 * unknown / whole:.1f} % may be either"
        yield (
            f"Waiting for the last rank ({count(len(ranks), 'rank')}, by {source}) is "
            f"{100 * wait / whole:.1f} % of the kernel time of collectives"
            f"{left * (unknown > _LITTLE * whole)}."
        )
    yield from (
        f"{late_sentence(rank, ranks)} {NO_CAUSE[said.logged_by]}"
        for rank in ranks
        if rank.straggler and matters(rank, ranks)
    )


def traced_ranks(said: TimelineReport, ranks: int) -> str:
    """The number of ranks in words, with the whole where some have no trace."""
    return f"{ranks} of {said.traced.world} ranks" if said.traced else count(ranks, "rank")


def traced_share(said: TimelineReport) -> tuple[float, float, float] | None:
    """Exposed, hidden and idle part of the traced time of all ranks, in percent; None without."""
    span = sum(r.span_ns for r in said.ranks)
    if not span:
        return None
    exposed, hidden, idle = (
        100 * sum(getattr(r, name) for r in said.ranks) / span
        for name in ("exposed_ns", "hidden_ns", "idle_ns")
    )
    return exposed, hidden, idle


def idle_percent(said: TimelineReport) -> float | None:
    """Part of the traced time of all ranks in which nothing ran; None without traces."""
    span = sum(rank.span_ns for rank in said.ranks)
    return 100 * sum(rank.idle_ns for rank in said.ranks) / span if span else None
