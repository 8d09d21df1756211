"""A report as text, Markdown, CSV or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from collscope.reports.calls.answer import ClassRow
from collscope.reports.efficiency.judged_classes import JudgedClass
from collscope.reports.efficiency.text import speed_up_of
from collscope.reports.rendering.csv import to_csv
from collscope.reports.rendering.formats import in_format
from collscope.reports.rendering.layout import scaled
from collscope.reports.rendering.share_words import denominator
from collscope.reports.report.answer import Report
from collscope.reports.report.text import sections
from collscope.roofline.workload import RoofAt

if TYPE_CHECKING:
    from collscope.reports.rendering.page import Extras

_CLASS_COLUMNS = ClassRow.__struct_fields__
_ROOF_COLUMNS = (
    "roof", "roof_us", "roof_low_us", "roof_high_us", "roof_gbps", "limit_gbps", "by_rings_us",
    "roof_assumed", "roof_assumptions",
)  # fmt: skip
# What the judgement adds; its times in the job stand among the columns of the class, in ns.
_JUDGED_COLUMNS = (
    "measured_us", "samples", "busbw_gbps", "marks", "kernel_us", "contention", *_ROOF_COLUMNS,
    "efficiency", "why", "regime", "time_share", "recoverable_s", "choice",
)  # fmt: skip


def render(
    report: Report,
    fmt: str,
    extras: Extras | None = None,
    *,
    shown: Report | None = None,
    wide: bool = False,
) -> str:
    """The report in one of `layout.FORMATS`.

    text, md, html  every section, for people; html with `extras`
    csv       the classes only, with their efficiency; a NULL as an empty field
    json      everything, as schemas/report.schema.json describes it
    shown     the report with the rows of its tables, `shorten` of it; None: with all rows
    wide      nothing in the tables of text is cut
    raises    UsageError for another format
    """
    rows = shown or report
    title = f"collscope report, run {report.header.run}"
    record = _record(rows) if fmt == "json" else None
    return in_format(
        fmt,
        record,
        lambda: _csv(rows),
        lambda: (title, sections(report, rows)),
        None if extras is None else lambda: extras,
        wide=wide,
    )


def _record(report: Report) -> dict[str, Any]:
    """What JSON has of it: with words where the report has codes."""
    body: dict[str, Any] = msgspec.to_builtins(report)
    body["shares"] = [
        row | {"denominator": denominator(share)}
        for share, row in zip(report.shares, body["shares"], strict=True)
    ]
    for metric, row in zip(report.judgement.metrics, body["judgement"]["metrics"], strict=True):
        row["speed_up_of"] = speed_up_of(metric)
    return body


def _csv(report: Report) -> str:
    judged = {row.class_id: row for row in report.judgement.classes}
    # a run without calls has only what was measured
    rows = report.classes or judged.values()
    return to_csv(
        (*_CLASS_COLUMNS, *_JUDGED_COLUMNS),
        (
            (
                *(getattr(row, name, None) for name in _CLASS_COLUMNS),
                *_judged_cells(judged[row.class_id]),
            )
            for row in rows
        ),
    )


def _judged_cells(row: JudgedClass) -> tuple[object, ...]:
    return (
        scaled(row.measured_ns, 1e3), row.samples, row.busbw_gbps, row.marks,
        scaled(row.kernel_ns, 1e3), row.contention, *_roof_cells(row.roof), row.efficiency, row.why,
        row.regime, row.time_share, scaled(row.recoverable_ns, 1e9), row.choice,
    )  # fmt: skip


def _roof_cells(roof: RoofAt | None) -> tuple[object, ...]:
    if roof is None:
        return (*(None,) * (len(_ROOF_COLUMNS) - 1), ())
    return (
        roof.name, roof.time_ns / 1e3, roof.time_low_ns / 1e3, roof.time_high_ns / 1e3,
        roof.busbw_gbps, roof.limit_gbps, scaled(roof.by_rings_ns, 1e3), roof.assumed,
        roof.assumptions,
    )  # fmt: skip
