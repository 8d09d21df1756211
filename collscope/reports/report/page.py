"""What a page adds to a report: the first screen's facts, drawings, and the timeline."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from collscope.reports.calls.answer import ClassRow
from collscope.reports.calls.page import sizes_figure
from collscope.reports.coverage.text import NO_SIZES, sizes_remedy
from collscope.reports.efficiency.judged_classes import JudgedClass
from collscope.reports.efficiency.page import bars_figure, classes_figure, curve_figures
from collscope.reports.efficiency.text import shorter_words
from collscope.reports.rendering.origin import origin, query
from collscope.reports.rendering.page import Extras, Fact
from collscope.reports.rendering.share_words import denominator, percent_words, range_words
from collscope.reports.report.answer import Report
from collscope.reports.report.text import measured_only, no_sizes
from collscope.reports.share.recorded_text import percent_of_wall
from collscope.reports.tolerances import WORTH
from collscope.reports.verdict.page import cards, names_causes, step_drawing
from collscope.reports.waiting.drift_page import drift_figure
from collscope.reports.waiting.first_lines_text import traced_ranks, traced_share
from collscope.reports.waiting.late_ranks_text import (
    in_time,
    late_calls,
    matters,
    most_of_lateness,
    one_stop,
)
from collscope.reports.waiting.page import lateness_figure, step_figure, wait_figures
from collscope.reports.waiting.strip import make_strip
from collscope.reports.waiting.text import timeline_section
from collscope.reports.waiting.traced_kernels import read_traced_kernels
from collscope.reports.waiting.withheld import unknown_times
from collscope.units import count, figure, format_size, have


def report_extras(report: Report, connection: sqlite3.Connection) -> Extras:
    """Facts and drawings of a report, out of its records and the store's views."""
    traced = read_traced_kernels(connection, report.header.run)
    names = {c.class_id: f"{c.op} {format_size(c.size_bytes)}" for c in report.classes}
    drawings = {
        "": (
            step_drawing(connection, report.header.run, report.verdict, report.step),
            classes_figure(report), step_figure(report, traced, names),
        ),
        _timeline_title(report): (
            make_strip(traced.kernels, names) if len(traced.kernels) else None,
            lateness_figure(traced), *wait_figures(traced, names),
            drift_figure(report, connection),
        ),
        "Efficiency and gain": (bars_figure(report), *curve_figures(report)),
        "Message sizes": (sizes_figure(report),),
    }  # fmt: skip
    there = {title: [d for d in found if d is not None] for title, found in drawings.items()}
    return Extras(tuple(_facts(report)), there, report.header.run)


def _timeline_title(report: Report) -> str:
    return next((s.title for s in timeline_section(report.timeline)), "Share of GPU time")


def _facts(report: Report) -> Iterable[Fact]:
    """Share, class, who is late, gain, what to do: in this order, whatever the run holds."""
    yield from cards(report.verdict)
    if not measured_only(report):
        yield _share(report)
    yield from _worst(report)
    named = names_causes(report.verdict)
    if (
        not measured_only(report) and report.header.calls
        and not any(entry.ranks for entry in report.verdict)
    ):  # fmt: skip
        yield _late(report)
    for uplift in report.judgement.uplifts:
        shorter, between = shorter_words(uplift)
        if (uplift.gain if uplift.high is None else uplift.high) < WORTH:
            yield Fact("Tuning NCCL", "not worth it",
                       f"the job would be {shorter} shorter{between}",
                       "Efficiency and gain")  # fmt: skip
            continue
        of = f"; {', '.join(uplift.fraction.profiles)}" if len(report.judgement.uplifts) > 1 else ""
        yield Fact("At reachable speed", f"{shorter} shorter",
                   f"the job, if every measured class ran at its reachable speed{between}{of}",
                   "Efficiency and gain")  # fmt: skip
    if no_sizes(report):
        yield Fact("At reachable speed", "not known",
                   f"{NO_SIZES}; {sizes_remedy(report)}",
                   "Findings" if report.findings else "Classes")  # fmt: skip
    if report.findings and not named:
        first = report.findings[0]
        yield Fact("Do next", first.advice, first.title, "Findings")


def _share(report: Report) -> Fact:
    parts = traced_share(report.timeline)
    if parts is not None:
        exposed, hidden, idle = parts
        return Fact("Share of the traced time in collectives", f"{exposed + hidden:.1f} %",
                    f"{exposed:.1f} % exposed, {hidden:.1f} % hidden by compute; the GPU "
                    f"idles {idle:.1f} %", _timeline_title(report),
                    query(report.header.run, origin("rank_times")))  # fmt: skip
    label, shares = "Share of GPU time in collectives", report.shares
    withheld = unknown_times(report.timeline.withheld)
    if not shares and withheld is not None:
        return Fact(label, "not known", f"the traces contradict themselves: {withheld.words}",
                    "Findings")  # fmt: skip
    recorded = report.recorded_share
    if not shares and recorded is not None:
        return Fact("Share of the wall time in collectives", percent_of_wall(recorded).rstrip(","),
                    f"by the GPU times of {recorded.timed_calls} of "
                    f"{count(recorded.calls, 'recorded call')}", "Share of GPU time",
                    query(report.header.run, origin("recorded_windows")))  # fmt: skip
    if not shares:
        return Fact(label, "not known", "no profile and no trace of the job in this run")
    of = {denominator(share) for share in shares}
    note = (
        f"of the time of {of.pop()}" if len(of) == 1 else "the denominator differs between profiles"
    )
    if len(shares) == 1:
        return Fact(label, percent_words(shares[0]), note, "Share of GPU time",
                    query(report.header.run, origin("share")))  # fmt: skip
    return Fact(label, range_words(shares), f"{note}; lowest and highest of {len(shares)} profiles",
                "Share of GPU time", query(report.header.run, origin("share")))  # fmt: skip


def _worst(report: Report) -> Iterable[Fact]:
    """The class with most of the time, and the one with the largest saving where it is another."""
    judged, run = report.judgement.classes, report.header.run
    top = max((r for r in judged if r.time_share), key=lambda r: r.time_share or 0.0, default=None)
    won = [r for r in judged if r.efficiency is not None and r.recoverable_ns]
    far = [r for r in judged if r.efficiency is not None and r.efficiency < 1]
    worst = next(iter(won or sorted(far, key=lambda r: r.efficiency or 0.0)), None)
    if top is not None:
        yield Fact(
            "Most of the collective time", _class_words(top),
            f"{100 * (top.time_share or 0):.0f} % of it{_waits(top)}{_reached(top)}",
            "Efficiency and gain",
            query(run, origin("classes", class_id=top.class_id)) if report.header.calls else "",
        )  # fmt: skip
    elif report.classes:
        most = report.classes[0]
        yield Fact("Most of the bytes", _class_words(most),
                   count(most.calls, "call"), "Classes",
                   query(run, origin("classes", class_id=most.class_id)))  # fmt: skip
    if worst is not None and (top is None or worst.class_id != top.class_id):
        yield Fact(
            "Largest possible saving" if won else "Furthest below reachable speed",
            _class_words(worst), _reached(worst).removeprefix(", "), "Efficiency and gain",
            query(run, origin("classes", class_id=worst.class_id)) if report.header.calls else "",
        )  # fmt: skip


def _class_words(row: JudgedClass | ClassRow) -> str:
    size = "of unknown size" if row.size_bytes is None else format_size(row.size_bytes)
    return f"{row.op} {size}" + ("" if row.nranks is None else f" x{row.nranks}")


def _waits(row: JudgedClass) -> str:
    """How much of a class's time is waiting, in brackets; empty where it is not known."""
    if row.wait_ns is None or not row.transfer_ns:
        return ""
    return f" ({100 * row.wait_ns / (row.wait_ns + row.transfer_ns):.0f} % of that is waiting)"


def _reached(row: JudgedClass) -> str:
    """How far a class is from its reachable speed, after a comma; empty where none is known."""
    if row.efficiency is None:
        return ""
    if row.efficiency >= 1:
        return ", transfers at reachable speed"
    rates = (
        f" ({figure(row.busbw_gbps, 4)} of {figure(row.roof.busbw_gbps, 4)} GB/s)"
        if row.busbw_gbps and row.roof else ""
    )  # fmt: skip
    return f", transfers at {100 * row.efficiency:.0f} % of reachable speed{rates}"


def _late(report: Report) -> Fact:
    """The rank that other ranks wait for, or that no single one stands out."""
    label, ranks = "Who is late", report.timeline.ranks or report.timeline.logged
    known = [rank for rank in ranks if rank.late_of]
    if not known:
        return Fact(
            label, "not known", "needs traces of all ranks, or RCCL's kernel trace of all ranks"
        )
    late = [rank for rank in known if rank.straggler]
    most = max(late or known, key=lambda rank: rank.caused_wait_ns)
    value = f"rank {most.rank}" if late else "no single rank" if most.late_last else "no rank"
    others = "the other rank" if len(ranks) == 2 else "the other ranks"
    words = (
        f"last in {most.late_last} of {late_calls(most)}; {in_time(ranks)}, {others} would "
        f"wait {figure(most.caused_wait_ns / 1e6)} ms less"
    )
    if not most.late_last:
        words = "no rank arrives last by more than the clock error"
    elif not late and (stop := one_stop(ranks)) is not None:
        value = f"rank {stop.rank}, once"
        words = (
            f"{figure(stop.late_max_ns / 1e6)} ms late to one call, which is most of all lateness"
        )
    elif not late and (alone := most_of_lateness(ranks)) is not None:
        value = f"rank {alone.rank}, perhaps"
    elif not late:
        words = f"most often rank {most.rank}: {words}"
    elif not matters(most, ranks):
        words += ", a small cost"
    if report.timeline.traced is not None:
        words += f"; {traced_ranks(report.timeline, len(ranks))} {have(len(ranks))} a trace"
    view = "rank_times" if report.timeline.ranks else "rank_waits"
    where = query(report.header.run, origin(view))
    return Fact(label, value, words, _timeline_title(report), where)
