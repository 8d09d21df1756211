"""Ranks that come late, in sentences: how late, what that costs, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from collscope.reports.calls.answer import compact_ranges
from collscope.reports.rendering.cause_words import cause_title
from collscope.reports.tolerances import (
    MIN_ABOVE_EVEN,
    MIN_LATE_WAIT,
    MIN_LATENESS_NS,
    ONE_STOP_SHARE,
)
from collscope.reports.verdict.answer import VerdictEntry
from collscope.reports.waiting.answer import TimelineReport
from collscope.reports.waiting.late_causes import LateCause
from collscope.reports.waiting.ranks import RankRow, RankWaits
from collscope.timeline.tolerances import STRAGGLER_SHARE
from collscope.units import count, us_or_ms

_ALL = 0.995  # of the lateness: what is printed as 100 %
NO_CAUSE = {
    "kernel_log": "The reason is not known: a kernel trace records only collectives.",
    "recording": "The reason is not known: a recording holds only collectives.",
}  # by `TimelineReport.logged_by`


def matters(rank: RankWaits, ranks: Sequence[RankWaits]) -> bool:
    """Whether the others lose enough to look for the cause: 1 % of their time, and 20 us a call."""
    others = sum(other.seen_ns for other in ranks if other.rank != rank.rank)
    return rank.caused_wait_ns >= MIN_LATE_WAIT * others and rank.late_typical_ns >= MIN_LATENESS_NS


def late_sentence(rank: RankWaits, ranks: Sequence[RankWaits]) -> str:
    """How often and how much a straggler is late; the table calls the first `last in`.

    The others wait for other ranks too: how much less they would is what it alone costs them.
    """
    waited = sum(other.wait_ns for other in ranks if other.rank != rank.rank)
    others = _others(rank, ranks)
    others = f"{others[0].upper()}{others[1:]} {'waits' if len(ranks) == 2 else 'wait'}"
    caused = us_or_ms(rank.caused_wait_ns)
    if len(ranks) == 2:
        part = f", {'all' if caused == us_or_ms(waited) else caused} of it for rank {rank.rank}"
    else:
        part = f"; {in_time(ranks)}, they would wait {caused} less"
    return (
        f"Rank {rank.rank} arrives last in {_late_of(rank)}, typically by "
        f"{us_or_ms(rank.late_typical_ns)}{_all_lateness(rank)}. "
        f"{others} {us_or_ms(waited)} in total{part}.{_stop_of_another(rank, ranks)}"
    )


def _stop_of_another(rank: RankWaits, ranks: Sequence[RankWaits]) -> str:
    """One lateness of another rank that is so large that it could hide a late one."""
    everything = sum(one.late_total_ns for one in ranks)
    others = [one for one in ranks if one.rank != rank.rank]
    other = max(others, key=lambda one: one.late_max_ns, default=rank)
    if not others or other.late_max_ns <= (1 - STRAGGLER_SHARE) * everything:
        return ""
    return (
        f" Rank {other.rank} came {us_or_ms(other.late_max_ns)} late to one call, "
        f"{100 * other.late_max_ns / everything:.0f} % of all lateness."
    )


def short_late_sentence(rank: RankWaits, ranks: Sequence[RankWaits]) -> str:
    """The same for the first lines, where the finding has the rest."""
    caused = us_or_ms(rank.caused_wait_ns)
    waits = f"Because of it, the other ranks wait {caused} more"
    if len(ranks) == 2:
        waits = f"{_others(rank, ranks).capitalize()} waits {caused} for it"
    return (
        f"Rank {rank.rank} arrives last in {_late_of(rank)}, typically by "
        f"{us_or_ms(rank.late_typical_ns)}. {waits}{_of_traced(rank, ranks)}."
    )


def _of_traced(late: RankWaits, ranks: Sequence[RankWaits]) -> str:
    """How long the traces of the ranks are that wait."""
    spans = [rank.span_ns for rank in ranks if isinstance(rank, RankRow) and rank.rank != late.rank]
    if not spans:
        return ""
    exposed = sum(
        rank.exposed_ns for rank in ranks if isinstance(rank, RankRow) and rank.rank != late.rank
    )
    hidden = ", but compute hides most of this wait" * (2 * exposed < late.caused_wait_ns)
    return f", of {us_or_ms(sum(spans))} traced{' in all' * (len(spans) > 1)}{hidden}"


def _all_lateness(rank: RankWaits) -> str:
    """How much of all lateness is a rank's own, where others are late, too."""
    return f"; it has {100 * rank.late_share:.0f} % of all lateness" * (rank.late_share < _ALL)


def _others(rank: RankWaits, ranks: Sequence[RankWaits]) -> str:
    """Those that a rank is compared with."""
    others = [other.rank for other in ranks if other.rank != rank.rank]
    return f"rank {others[0]}" if len(others) == 1 else "the other ranks"


def late_calls(rank: RankWaits) -> str:
    """The calls that a rank could be late to: in others no rank waits, or one was not seen."""
    seen = "are in every rank's trace" if isinstance(rank, RankRow) else "every rank recorded"
    which = f" that synchronise and {seen}" * (rank.late_of < rank.calls)
    return f"{count(rank.late_of, 'call')}{which}"


def _late_of(rank: RankWaits) -> str:
    """How many of them it was late to."""
    of = "all" if rank.late_last == rank.late_of else f"{rank.late_last} of"
    return f"{of} {late_calls(rank)}"


def in_time(ranks: Sequence[RankWaits]) -> str:
    """When we assume that a late rank arrives instead."""
    return (
        "if both arrived together" if len(ranks) == 2 else "if it arrived with the second-last rank"
    )


def one_stop(ranks: Sequence[RankWaits]) -> RankWaits | None:
    """The rank whose lateness in one call is most of all lateness; None: there is no such call."""
    everything = sum(rank.late_total_ns for rank in ranks)
    stops = (rank for rank in ranks if rank.late_max_ns > ONE_STOP_SHARE * everything)
    return next((rank for rank in stops if not rank.straggler), None)


def most_of_lateness(ranks: Sequence[RankWaits]) -> RankWaits | None:
    """The rank with most of a lateness that costs time, which is no straggler."""
    everything = sum(rank.late_total_ns for rank in ranks)
    if not _costs_time(ranks) or any(rank.straggler for rank in ranks):
        return None
    most = max(ranks, key=lambda rank: rank.late_total_ns)
    return most if most.late_total_ns >= STRAGGLER_SHARE * everything else None


def _costs_time(ranks: Sequence[RankWaits]) -> bool:
    seen, caused = sum(r.seen_ns for r in ranks), sum(r.caused_wait_ns for r in ranks)
    return caused >= max(1, MIN_LATE_WAIT * seen)


def no_single_rank(ranks: Sequence[RankWaits]) -> Iterable[str]:
    """Whose lateness costs time where no rank stands out: one stop, some ranks, or all."""
    if any(rank.straggler for rank in ranks) or not _costs_time(ranks):
        return
    everything = sum(rank.late_total_ns for rank in ranks)
    stop = one_stop(ranks)
    if stop is not None:
        yield (
            f"One stop: rank {stop.rank} arrived {us_or_ms(stop.late_max_ns)} late to one "
            f"call, {100 * stop.late_max_ns / everything:.0f} % of all lateness. No rank is "
            "late to most calls."
        )
        return
    alone = most_of_lateness(ranks)
    if alone is not None:
        yield (
            f"Rank {alone.rank} has {100 * alone.late_total_ns / everything:.0f} % of all "
            f"lateness and arrives last in {alone.late_last} of {late_calls(alone)}. These "
            "calls do not show whether it is late as a rule."
        )
        return
    most = sorted(ranks, key=lambda rank: (-rank.late_total_ns, rank.rank))
    late = list(accumulate(rank.late_total_ns for rank in most))
    named = next(n for n, ns in enumerate(late, 1) if ns >= STRAGGLER_SHARE * everything)
    if late[named - 1] >= MIN_ABOVE_EVEN * everything * named / len(ranks):
        which = [str(rank) for rank in sorted(rank.rank for rank in most[:named])]
        yield (
            f"No single rank stands out: ranks {', '.join(which[:-1])} and {which[-1]} have "
            f"{100 * late[named - 1] / everything:.0f} % of all lateness."
        )
    else:
        yield "No single rank is late: the rank that arrives last changes from call to call."


def cause_of(rank: RankRow, timeline: TimelineReport) -> LateCause:
    """Why a straggler is late."""
    return next(cause for cause in timeline.causes if cause.rank == rank.rank)


def cause_sentence(
    rank: RankRow, timeline: TimelineReport, verdict: Sequence[VerdictEntry] = ()
) -> str:
    """Why a straggler is late, with its figures; first, which ranks are late because of it.

    verdict  the causes of long steps: one of them may be why
    """
    return " ".join(
        (
            *_inheriting_words(rank, cause_of(rank, timeline).inheriting_ranks, timeline),
            _why(rank, timeline, verdict),
        )
    )


def verdict_causes(rank: int, verdict: Sequence[VerdictEntry]) -> tuple[str, ...]:
    """Titles of the causes that the verdict names for a rank."""
    return tuple(cause_title(e.cause, e.ranks) for e in verdict if rank in e.ranks)


def _inheriting_words(
    late: RankRow, inheriting_ranks: Sequence[int], timeline: TimelineReport
) -> Iterable[str]:
    if inheriting_ranks:
        share = sum(rank.late_share for rank in timeline.ranks if rank.rank in inheriting_ranks)
        several = len(inheriting_ranks) > 1
        yield (
            f"Rank{'s' * several} {compact_ranges(inheriting_ranks)} "
            f"{'wait' if several else 'waits'} for rank {late.rank} in another group, and so "
            f"{'arrive' if several else 'arrives'} late at other calls: "
            f"{100 * share:.0f} % of all lateness."
        )


def _why(rank: RankRow, timeline: TimelineReport, verdict: Sequence[VerdictEntry]) -> str:
    cause = cause_of(rank, timeline)
    others = [other for other in timeline.ranks if other.rank != rank.rank]
    other = _others(rank, timeline.ranks)
    gpus = "the GPU of" if len(others) == 1 else "the GPUs of"
    idles = (
        f"In the whole trace, the GPU of rank {rank.rank} idles for {us_or_ms(rank.idle_ns)}, "
        f"{gpus} {other} for {_between([o.idle_ns for o in others])}"
    )
    computes = (
        f"Rank {rank.rank} computes for {us_or_ms(rank.compute_ns)}, {other} for "
        f"{_between([o.compute_ns for o in others])}"
    )
    longer = rank.compute_ns > min(one.compute_ns for one in others)
    computes += "." if longer else f", so rank {rank.rank} does not compute longer."
    match cause.cause:
        case "host":
            return (
                f"{idles}. For {us_or_ms(cause.idle_host_ns or 0)} of its idle time, the next work "
                f"was not launched yet, so the host of rank {rank.rank} is late. {computes}"
            )
        case "idle":
            return (
                f"{idles}. The trace has no launches, so it does not show what the GPU waits "
                f"for. {computes}"
            )
        case "more":
            return (
                f"Rank {rank.rank} runs more compute kernels than {other}: "
                f"{us_or_ms(cause.more_compute_ns)} more."
            )
        case "slower":
            return (
                f"Rank {rank.rank} runs the same compute kernels as {other}, but they take longer: "
                f"{us_or_ms(cause.slower_compute_ns)} in total."
            )
        case "inherited":
            return (
                f"Rank {rank.rank} inherits {us_or_ms(cause.inherited_ns)} of its lateness: it "
                f"waits in another group, and rank {cause.first_rank} is the first cause."
            )
    named = verdict_causes(rank.rank, verdict)
    why = f"The verdict names the cause: {', '.join(named).lower()}."
    return why if named else f"The sums over the trace do not show why. {idles}. {computes}"


def _between(values: Sequence[int]) -> str:
    low, high = us_or_ms(min(values)), us_or_ms(max(values))
    return low if low == high else f"{low} to {high}"
