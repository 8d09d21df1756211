"""A report as text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io

import msgspec

from collscope.errors import UsageError
from collscope.reports.layout import to_markdown, to_text
from collscope.reports.model import ClassRow, Report
from collscope.reports.sections import sections

FORMATS = ("text", "md", "csv", "json")

_CSV_COLUMNS = tuple(ClassRow.__dataclass_fields__)


def render(report: Report, fmt: str) -> str:
    """The report in one of `FORMATS`.

    text, md  every section, for people
    csv       the classes only, a NULL as an empty field
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
        return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
    raise UsageError(f"format '{fmt}': not known. Use one of {', '.join(FORMATS)}.")


def _csv(report: Report) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for row in report.classes:
        values = (getattr(row, name) for name in _CSV_COLUMNS)
        writer.writerow(int(value) if isinstance(value, bool) else value for value in values)
    return out.getvalue()
