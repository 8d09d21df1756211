"""What a page adds to a report: the first screen's facts, drawings, and the timeline."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence

from collscope.reports.html.drawing import Matrix, heat_figure
from collscope.reports.html.figures import (
    bars_figure,
    classes_figure,
    curve_figures,
    lateness_figure,
    sizes_figure,
    step_figure,
)
from collscope.reports.html.page import Extras, Fact, Figure, Strip
from collscope.reports.html.timeline import timeline_strip
from collscope.reports.model import Report
from collscope.reports.share import denominator, percent_words
from collscope.units import format_size

_MOST_HEAT = (64, 24)  # ranks and classes of the waiting's matrix

_LATE = """
SELECT last_rank, lateness_ns FROM call_times
WHERE run = ? AND NOT warm_up AND last_rank IS NOT NULL AND lateness_ns > 0 ORDER BY seq
"""
_LATE_OF = "SELECT COUNT(*) FROM call_times WHERE run = ? AND NOT warm_up"
_WAITS = """
SELECT k.rank, c.class_id, AVG(k.wait_ns) FROM kernels k
JOIN calls c ON c.call_id = k.call_id AND c.run = k.run
WHERE k.run = ? AND k.wait_ns IS NOT NULL AND k.rank IS NOT NULL GROUP BY 1, 2
"""


def report_extras(report: Report, connection: sqlite3.Connection) -> Extras:
    """Facts and drawings of a report, out of its records and the store's views."""
    whole = [f for f in (classes_figure(report), step_figure(report)) if f is not None]
    timeline = [
        f
        for f in (
            timeline_strip(connection, report.header.run, report.classes),
            _lateness(report, connection), _waits(report, connection),
        )
        if f is not None
    ]  # fmt: skip
    others = [f for f in (bars_figure(report),) if f is not None]
    sizes = [f for f in (sizes_figure(report),) if f is not None]
    drawings: dict[str, Sequence[Figure | Strip]] = {
        "": whole,
        "Efficiency and gain": (*curve_figures(report), *others),
        _timeline_title(report): timeline,
        "Message sizes": sizes,
    }
    return Extras(tuple(_facts(report)), drawings)


def _timeline_title(report: Report) -> str:
    from collscope.reports.timeline_sections import timeline_section  # noqa: PLC0415

    return next((s.title for s in timeline_section(report.timeline)), "Share of GPU time")


def _facts(report: Report) -> Iterable[Fact]:
    shares = report.shares
    if len(shares) == 1:
        yield Fact("Share of GPU time in collectives", percent_words(shares[0]),
                   f"of {denominator(shares[0])}", "Share of GPU time")  # fmt: skip
    elif shares:
        known = [s.percent for s in shares if s.percent is not None]
        value = f"{min(known):.1f} to {max(known):.1f} %" if known else "not known"
        yield Fact("Share of GPU time in collectives", value, f"{len(shares)} profiles",
                   "Share of GPU time")  # fmt: skip
    else:
        yield Fact("Share of GPU time in collectives", "not known",
                   "no profile and no trace of the job in this run")  # fmt: skip
    judged = report.judgement.classes
    timed = [row for row in judged if row.time_share]
    if timed:
        top = max(timed, key=lambda row: row.time_share or 0.0)
        yield Fact(
            "Most of the collective time", f"{top.op} {format_size(top.size_bytes)} x{top.nranks}",
            f"{100 * (top.time_share or 0):.0f} %, class {top.class_id}", "Efficiency and gain",
        )  # fmt: skip
    elif report.classes:
        most = report.classes[0]
        yield Fact("Most of the bytes", f"{most.op} {format_size(most.size_bytes)} x{most.nranks}",
                   f"{most.calls} calls", "Classes")  # fmt: skip
    far = [row for row in judged if row.efficiency is not None and row.recoverable_s]
    far = far or [row for row in judged if row.efficiency is not None]
    if far:
        worst = far[0]
        yield Fact(
            "Most to win", f"{worst.op} {format_size(worst.size_bytes)} at "
            f"{100 * (worst.efficiency or 0):.0f} % of reachable",
            f"{worst.busbw_gbps:.4g} of {worst.roof_gbps:.4g} GB/s"
            if worst.busbw_gbps and worst.roof_gbps else "", "Efficiency and gain",
        )  # fmt: skip
    said = report.timeline
    late = max(said.ranks or said.logged, key=lambda row: row.caused_wait_ns, default=None)
    if late is not None and late.caused_wait_ns > 0:
        yield Fact("Late most", f"rank {late.rank}",
                   f"last in {late.late_last} of {late.late_of} calls; the others wait "
                   f"{late.caused_wait_ns / 1e6:.3g} ms for it",
                   _timeline_title(report))  # fmt: skip
    for uplift in report.judgement.uplifts:
        spread = (
            "" if uplift.low is None or uplift.high is None
            else f"range {100 * uplift.low:.1f} to {100 * uplift.high:.1f} %"
        )  # fmt: skip
        if len(report.judgement.uplifts) > 1:
            spread = ", ".join(filter(None, (*uplift.profiles, spread)))
        yield Fact("Gain of the job at the reachable ceiling", f"{100 * uplift.gain:.1f} %", spread,
                   "Efficiency and gain")  # fmt: skip
    if report.findings:
        first = report.findings[0]
        yield Fact("Do next", first.advice, first.title, "Findings")


def _lateness(report: Report, connection: sqlite3.Connection) -> Figure | None:
    run = report.header.run
    calls = [(rank, ns / 1e3) for rank, ns in connection.execute(_LATE, (run,))]
    ((total,),) = connection.execute(_LATE_OF, (run,))
    return lateness_figure(calls, [row.rank for row in report.timeline.ranks], total)


def _waits(report: Report, connection: sqlite3.Connection) -> Figure | None:
    """Mean waiting of a kernel by rank and class."""
    waits: dict[tuple[int, int], float] = {
        (rank, class_id): ns / 1e3
        for rank, class_id, ns in connection.execute(_WAITS, (report.header.run,))
    }
    weight: dict[int, float] = defaultdict(float)
    for (_, class_id), us in waits.items():
        weight[class_id] += us
    most_ranks, most_classes = _MOST_HEAT
    ranks = sorted({rank for rank, _ in waits})[:most_ranks]
    ids = sorted(weight, key=lambda i: -weight[i])[:most_classes]
    if len(ranks) < 2 or not ids:
        return None
    known = {row.class_id: row for row in report.classes}
    names = [
        f"{known[i].op} {format_size(known[i].size_bytes)} ({i})" if i in known else f"class {i}"
        for i in ids
    ]
    return heat_figure(
        "Mean waiting of a kernel by rank and class",
        "A rank that waits little is the one that others wait for.",
        Matrix(
            [f"rank {rank}" for rank in ranks],
            names,
            [[waits.get((rank, i)) for i in ids] for rank in ranks],
            "us",
        ),
    )
