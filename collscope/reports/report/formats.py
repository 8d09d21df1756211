"""A report as text, Markdown, CSV or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from collscope.reports.calls.answer import ClassRow
from collscope.reports.efficiency.judgement import JudgedClass
from collscope.reports.efficiency.judgement_text import speed_up_of
from collscope.reports.rendering.csv import to_csv
from collscope.reports.rendering.formats import in_format
from collscope.reports.rendering.share_words import denominator
from collscope.reports.report.answer import Report
from collscope.reports.report.text import sections

if TYPE_CHECKING:
    from collscope.reports.rendering.page import Extras

_CLASS_COLUMNS = ClassRow.__struct_fields__
# What the judgement adds; its times in the job stand among the columns of the class, in ns.
_JUDGED_COLUMNS = tuple(
    name
    for name in JudgedClass.__struct_fields__
    if name not in (*_CLASS_COLUMNS, "transfer_us", "wait_us")
)


def render(report: Report, fmt: str, extras: Extras | None = None, *, wide: bool = False) -> str:
    """The report in one of `layout.FORMATS`.

    text, md, html  every section, for people; html with `extras`
    csv       the classes only, with their efficiency; a NULL as an empty field
    json      everything, as schemas/report.schema.json describes it
    wide      nothing in the tables of text is cut
    raises    UsageError for another format
    """
    title = f"collscope report, run {report.header.run}"
    record = _record(report) if fmt == "json" else None
    return in_format(
        fmt,
        record,
        lambda: _csv(report),
        lambda: (title, sections(report)),
        None if extras is None else lambda: extras,
        wide=wide,
    )


class _Shown(Report, frozen=True, kw_only=True):
    """A report that a notebook shows as its page."""

    def _repr_html_(self) -> str:
        from collscope.reports.rendering.page import framed  # noqa: PLC0415 - for notebooks alone

        return framed(render(self, "html"))


def shown(report: Report) -> Report:
    """The report, as a page in notebooks; without the drawings that need the store."""
    return _Shown(**{name: getattr(report, name) for name in report.__struct_fields__})


def _record(report: Report) -> dict[str, Any]:
    """What JSON has of it: with words where the report has codes."""
    body: dict[str, Any] = msgspec.to_builtins(report)
    body["shares"] = [
        {
            ("denominator" if name == "whole" else name): (
                denominator(share) if name == "whole" else value
            )
            for name, value in row.items()
        }
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
                *(getattr(judged[row.class_id], name) for name in _JUDGED_COLUMNS),
            )
            for row in rows
        ),
    )
