"""Rules about traces and recordings: late ranks, ranks that stopped, calls that differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from collscope.reports.report.answer import Evidence, Finding, Report
from collscope.reports.tolerances import MIN_CHANGE, ONE_RANK_OF_NODE
from collscope.reports.verdict.answer import VerdictEntry
from collscope.reports.waiting.answer import DisagreementRow, TimelineReport
from collscope.reports.waiting.drift import DriftRow
from collscope.reports.waiting.late_ranks_text import (
    NO_CAUSE,
    cause_of,
    cause_sentence,
    late_sentence,
    matters,
    verdict_causes,
)
from collscope.reports.waiting.ranks import RankRow, RankWaits
from collscope.timeline.tolerances import MIN_EVEN_SHARES, MIN_LATE_COST, STRAGGLER_SHARE
from collscope.units import are, count, figure, format_size

_MOST = 5

# What to do about a late rank, by its cause.
_LATE_ADVICE = {
    "host": "Check this rank's host: its processor, what it does between launches, its input "
    "pipeline. The trace cannot separate these. Fewer launches, or CUDA graphs, help.",
    "idle": "Profile with the host's calls (torch.profiler with ProfilerActivity.CPU) to see what "
    "the GPU waits for: launches, input, or other work.",
    "more": "Give this rank less work, or the other ranks more: balance batch, sequence or layers.",
    "slower": "Check this GPU: clocks, temperature, power limit, other processes on it.",
    "inherited": "Check the rank that is the first cause.",
    "untraced": "Trace this rank and another (torch.profiler, rocprofv3), and compare what "
    "each does before it arrives.",
    "verdict": "Do first what the verdict advises.",
    "unknown": (
        "Compare this rank's timeline with another's: collscope export perfetto -o trace.json.gz."
    ),
}

# What it costs: docs/validation.md, "Cost of the profiler".
_PROFILER = (
    " The traces have CPU activities. Recording these slows the host: the profiler itself "
    "may be the cause."
)

# Per kind of disagreement: severity, title, advice.
_KINDS = {
    "stopped": (
        "problem",
        "ranks stopped: they lack collectives that other ranks called",
        "Check what these ranks did instead: their log, their stack, an exception, the GPU.",
    ),
    "open": (
        "problem",
        "collectives called but not completed",
        "Find the rank that did not make the call, or whose transfer hangs. The views "
        "progress and disagreements list every group.",
    ),
    "missing": (
        "warning",
        "collectives missing on a rank",
        "Either the recording lost them, or the rank took another branch: compare the "
        "program there. All other calls were matched.",
    ),
    "different": (
        "problem",
        "ranks call different operations or sizes at the same place",
        (
            "The ranks disagree on the program's order or shapes: results are wrong, or the job "
            "hangs."
        ),
    ),
    "unmatched": (
        "warning",
        "Sends and Recvs without a partner",
        "Check which rank should have sent or received them.",
    ),
    "different_size": (
        "problem",
        "Sends and Recvs of different sizes",
        "Sender and receiver disagree on the count or the type.",
    ),
}


_OF_A_HANG = {"stopped", "open"}


def late_node(report: Report) -> Iterable[Finding]:
    """A node whose ranks arrive last in turns; none of them is late enough to be named alone."""
    timeline = report.timeline
    nodes = [place for place in timeline.places if place.kind == "node"]
    every = sum(node.caused_wait_ns for node in nodes)
    ranks = {rank.rank: rank for rank in timeline.ranks or timeline.logged}
    for node in nodes:
        own = [ranks[rank] for rank in node.ranks if rank in ranks]
        late = [rank for rank in own if rank.late_last]
        others = sum(r.seen_ns for r in ranks.values() if r.rank not in node.ranks)
        alone = max((rank.caused_wait_ns for rank in own), default=0)
        if (
            node.caused_wait_ns >= min(STRAGGLER_SHARE, MIN_EVEN_SHARES / len(nodes)) * every
            and node.caused_wait_ns >= MIN_LATE_COST * others
            and len(late) > 1
            and alone < ONE_RANK_OF_NODE * node.caused_wait_ns
        ):
            yield Finding(
                severity="warning",
                code="late_node",
                title=f"node {node.place} is late: the other nodes wait",
                detail=f"One of its {count(len(node.ranks), 'rank')} arrives last in "
                f"{count(node.late_last, 'call')}; the other ranks wait "
                f"{node.caused_wait_ns / 1e6:.4g} ms for that, "
                f"{100 * node.caused_wait_ns / every:.0f} % of all such waiting. Ranks "
                f"{', '.join(str(rank.rank) for rank in late)} take turns.",
                advice="Check what these ranks share: the host's processors, memory and input, its "
                "clocks and power, its NICs. Tuning collectives does not shorten this wait.",
            )


def stragglers(report: Report) -> Iterable[Finding]:
    """Ranks that the others wait for, beyond chance and the clocks' error."""
    timeline = report.timeline
    ranks: Sequence[RankWaits] = timeline.ranks or timeline.logged
    named = [rank for rank in ranks if rank.straggler]
    for severity, late, what, advice in (
        (
            "warning",
            [rank for rank in named if matters(rank, ranks)],
            "late: other ranks wait",
            None,
        ),
        (
            "note",
            [rank for rank in named if not matters(rank, ranks)],
            "last most often, but at little cost",
            "Nothing to do: the other ranks lose less than 1 % of their time, or less than "
            "20 us a call.",
        ),
    ):
        if late:
            numbers = ", ".join(str(rank.rank) for rank in late)
            yield Finding(
                severity=severity,
                code="straggler",
                title=f"rank{'s' * (len(late) > 1)} {numbers} {are(len(late))} {what}",
                detail=" ".join(
                    f"{late_sentence(rank, ranks)} {_why(rank, timeline, report.verdict)}"
                    for rank in late[:_MOST]
                )
                + _PROFILER * (timeline.cpu_activities and _host_may_be_late(late, timeline)),
                advice=advice
                or _late_advice([_advised(rank, timeline, report.verdict) for rank in late]),
            )


def _host_may_be_late(late: Iterable[RankWaits], timeline: TimelineReport) -> bool:
    """Whether what the profiler costs the host can be why a rank is late."""
    return any(_cause(rank, timeline) not in ("more", "slower") for rank in late)


def _why(late: RankWaits, timeline: TimelineReport, verdict: Sequence[VerdictEntry]) -> str:
    return (
        cause_sentence(late, timeline, verdict)
        if isinstance(late, RankRow)
        else NO_CAUSE[timeline.logged_by or "kernel_log"]
    )


def _cause(late: RankWaits, timeline: TimelineReport) -> str:
    return cause_of(late, timeline).cause if isinstance(late, RankRow) else "untraced"


def _advised(late: RankWaits, timeline: TimelineReport, verdict: Sequence[VerdictEntry]) -> str:
    """The cause that the advice is for: the verdict's where the sums show none."""
    cause = _cause(late, timeline)
    return "verdict" if cause == "unknown" and verdict_causes(late.rank, verdict) else cause


def _late_advice(causes: Iterable[str]) -> str:
    advice = [_LATE_ADVICE[cause] for cause in dict.fromkeys(causes)]
    return " ".join([*advice, "Tuning collectives does not shorten this wait."])


def disagreements(report: Report) -> Iterable[Finding]:
    """What ranks disagree on, one finding per kind and origin."""
    # Of a hang, those that lack a call or wait in one are mostly victims: the verdict names who is
    # not.
    rows = sorted(
        (
            row
            for row in report.timeline.disagreements
            if report.hang is None or row.origin != "recording" or row.kind not in _OF_A_HANG
        ),
        key=_by,
    )
    for (kind, origin), same in groupby(rows, key=_by):
        found = list(same)
        severity, title, advice = _KINDS[kind]
        more = f" And {len(found) - _MOST} more." if len(found) > _MOST else ""
        places = sum(row.count for row in found)
        yield Finding(
            severity=severity,
            code=f"ranks_{kind}",
            title=f"{title} (by {origin}s)",
            detail=" ".join(row.message for row in found[:_MOST]) + more,
            advice=advice,
            evidence=(Evidence(f"view disagreements, {origin}", None, count(places, "place")),)
            if places > len(found)
            else (),
        )


def _by(row: DisagreementRow) -> tuple[str, str]:
    return row.kind, row.origin


def slower_in_run(report: Report) -> Iterable[Finding]:
    """Recorded classes whose transfer becomes longer during the run."""
    slower = [row for row in report.timeline.drift if row.slowdown > 1 + MIN_CHANGE]
    if not slower:
        return
    rows = [_drift_words(row) for row in slower]
    more = len(rows) - _MOST
    yield Finding(
        severity="warning",
        code="slower_in_run",
        title=f"{count(len(slower), 'class', 'classes')} became slower during the run",
        detail="; ".join([*rows[:_MOST], *([f"{more} more"] if more > 0 else [])]) + ".",
        advice="Compare GPU clocks, temperatures and link errors, and other traffic on the "
        "network, before and after that call.",
    )


def _drift_words(row: DriftRow) -> str:
    worst = max(row.segments, key=lambda segment: segment.transfer_ns)
    best = min(row.segments, key=lambda segment: segment.transfer_ns)
    return (
        f"{row.op} of {format_size(row.size_bytes)} on communicator {row.comm_id}: "
        f"{figure(best.transfer_ns / 1e3)} us from call {best.first_seq} to {best.last_seq}, "
        f"{figure(worst.transfer_ns / 1e3)} us from call {worst.first_seq} to {worst.last_seq}"
    )


RULES = (late_node, stragglers, slower_in_run, disagreements)
