"""From an open store to a `Report`: one read per section, then the findings over all of them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from collscope.model import Op
from collscope.reports.calls.answer import (
    class_rows,
    communicator_rows,
    histograms,
    read_call_totals,
)
from collscope.reports.coverage.answer import read_coverage, read_header
from collscope.reports.coverage.text import find_gaps
from collscope.reports.efficiency.answer import efficiency_of, traced_system
from collscope.reports.efficiency.judged_classes import JudgedClass
from collscope.reports.fabric.answer import read_facts, read_settings, read_transports
from collscope.reports.hang.answer import read_hang
from collscope.reports.report.answer import Report
from collscope.reports.report.findings import find
from collscope.reports.share.answer import read_shares
from collscope.reports.share.recorded import read_recorded_share
from collscope.reports.verdict.answer import find_answer
from collscope.reports.verdict.text import entries
from collscope.reports.waiting.answer import TimelineReport


def build_report(
    connection: sqlite3.Connection,
    run: str,
    *,
    top: int | None = 20,
    system: str | None = None,
    label: str | None = None,
    step_ms: float | None = None,
) -> Report:
    """Everything the store holds about one run; sections without data are empty.

    connection  open store, read only; only the views in schemas/views are read
    run         label of the run
    top         how many classes and kernel names to keep, None for all; totals, histograms and
                findings always cover all of them
    system      whose reachable speed the classes are judged by: a name or file as `collscope
                roofline` takes it, or `fit` for the best measurements of the run; None: the system
                of the traced GPUs
    label       of the measurements to judge; None: those of the most recent source
    step_ms     a step without the profiler, ms, where it was measured
    raises      InputError for an unknown system or label, NoVerdictError when there is nothing
                to fit
    """
    totals = read_call_totals(connection, run)
    classes = class_rows(connection, run, totals)
    shares = read_shares(connection, run)
    communicators = communicator_rows(connection, run, totals, classes)
    transports = read_transports(connection, run, communicators)
    judged_by = system or traced_system(connection, run)
    answer = find_answer(connection, run, step_ms=step_ms, system=judged_by)
    report = Report(
        verdict=entries(answer),
        step=answer.step,
        header=read_header(connection, run, classes, communicators),
        shares=shares,
        recorded_share=read_recorded_share(connection, run),
        classes=classes,
        communicators=communicators,
        histograms=histograms(classes),
        transports=transports,
        settings=read_settings(connection, run),
        facts=read_facts(connection, run),
        judgement=efficiency_of(
            connection, run, classes, shares, (judged_by, label), named=system is not None
        ),
        timeline=TimelineReport.read(connection, run),
        hang=read_hang(connection, run),
        findings=(),
        coverage=read_coverage(connection, run, totals, communicators),
    )
    found = replace(
        report,
        findings=find(report),
        coverage=replace(report.coverage, gaps=find_gaps(report)),
    )
    return found if top is None else shorten(found, top)


def _most_telling(rows: Sequence[JudgedClass]) -> Sequence[JudgedClass]:
    """Rows in the order in which a cut keeps them.

    The largest of each operation, then the next largest of each: a cut leaves all operations, and
    the sizes that show their bandwidth.
    """
    if any(row.calls for row in rows):
        return rows
    turns: dict[int, int] = {}
    seen: Counter[tuple[Op, int | None]] = Counter()
    for row in sorted(rows, key=lambda row: -(row.size_bytes or 0)):
        turns[row.class_id] = seen[row.op, row.nranks]
        seen[row.op, row.nranks] += 1
    return sorted(rows, key=lambda row: turns[row.class_id])


def shorten(report: Report, top: int) -> Report:
    """The report with `top` classes and kernel names; every total stays what it was."""
    judgement, shown = report.judgement, {row.class_id for row in report.classes[:top]}
    # the first to look at, and those of the classes table
    shown |= {row.class_id for row in _most_telling(judgement.classes)[:top]}
    judged = (row for row in judgement.classes if row.class_id in shown)
    return replace(
        report,
        shares=tuple(replace(share, kernels=share.kernels[:top]) for share in report.shares),
        classes=report.classes[:top],
        judgement=replace(judgement, classes=tuple(judged)),
    )
