"""A report as text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io

from collscope.errors import UsageError
from collscope.reports.judgement.records import JudgedClass
from collscope.reports.layout import to_json, to_markdown, to_text
from collscope.reports.model import ClassRow, Report
from collscope.reports.sections import sections

FORMATS = ("text", "md", "csv", "json")

_CLASS_COLUMNS = tuple(ClassRow.__dataclass_fields__)
# What the judgement adds; its times in the job stand among the columns of the class, in ns.
_JUDGED_COLUMNS = tuple(
    name
    for name in JudgedClass.__dataclass_fields__
    if name not in (*_CLASS_COLUMNS, "transfer_us", "wait_us")
)


def render(report: Report, fmt: str) -> str:
    """The report in one of `FORMATS`.

    text, md  every section, for people
    csv       the classes only, with their efficiency; a NULL as an empty field
    json      everything, as schemas/report.schema.json describes it
    raises    UsageError for another format
    """
    title = f"collscope report, run {report.header.run}"
    if fmt == "text":
        return to_text(title, sections(report))
    if fmt == "md":
        return to_markdown(title, sections(report))
    if fmt == "csv":
        return _csv(report)
    if fmt == "json":
        return to_json(report)
    raise UsageError(f"format '{fmt}': not known. Use one of {', '.join(FORMATS)}.")


def _csv(report: Report) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*_CLASS_COLUMNS, *_JUDGED_COLUMNS))
    judged = {row.class_id: row for row in report.judgement.classes}
    # a run without calls has only what was measured
    for row in report.classes or judged.values():
        values = [getattr(row, name, None) for name in _CLASS_COLUMNS]
        values += [getattr(judged[row.class_id], name) for name in _JUDGED_COLUMNS]
        writer.writerow(_csv_cell(value) for value in values)
    return out.getvalue()


def _csv_cell(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    return "; ".join(value) if isinstance(value, tuple) else value
