"""Where a row of a report's tables comes from: the query that gives it by `collscope sql`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from collscope.reports.calls.answer import Bin
from collscope.reports.calls.text import bin_words
from collscope.reports.efficiency.judgement import JudgedClass
from collscope.reports.rendering.layout import Table
from collscope.reports.report.answer import Report


class _Origin(msgspec.Struct, frozen=True):
    """A table whose rows are of one view.

    keys    titles of the columns that find a row, with the view's names for them
    beside  title of another column, which tells this table from others with the same keys
    also    what else holds of the rows
    """

    view: str
    keys: Mapping[str, str]
    beside: str = ""
    also: Mapping[str, str | int] = msgspec.field(default_factory=dict)


# The first that fits a table's columns is its origin.
_ORIGINS = (
    _Origin("rank_times", {"rank": "rank"}, "traced ms"),
    _Origin("rank_waits", {"rank": "rank"}, "costs others ms"),
    _Origin("call_times", {"rank": "last_rank"}, "last in calls", {"warm_up": 0}),
    _Origin("place_times", {"by": "kind", "place": "place"}),
    _Origin("progress", {"group": "group_name", "rank": "rank"}, "last called"),
    _Origin("communicators", {"process group": "name"}),
    _Origin("call_times", {"class": "class_id"}, "start skew us"),
    _Origin("calls", {"class": "class_id"}, "% bytes"),
    _Origin("classes", {"class": "class_id"}),
    _Origin("communicators", {"id": "comm_id"}, "matched by"),
    _Origin("kernel_totals", {"collective kernel": "name"}),
    _Origin("kernel_totals", {"kernel of the profile": "name"}),
    _Origin("kernel_totals", {"family": "family"}),
    _Origin("share JOIN sources USING (run, source_id)", {"profile": "path"}),
    _Origin("sources", {"source": "path"}, "parsed"),
    _Origin("sources", {"source kind": "kind", "dialect": "dialect"}),
    _Origin("links", {"transport": "transport", "net": "net", "GDR": "gdr"}),
    _Origin("facts", {"library says": "kind", "value": "value"}),
    _Origin("settings", {"setting": "name", "value": "value", "from": "origin"}),
    _Origin("diagnostics", {"diagnostic": "severity", "code": "code"}),
)
_NUMBERS = {"rank", "last_rank", "class_id", "comm_id"}


def rows_of(view: str, run: str, **values: str | int | None) -> str:
    """Query for the rows of a view in which columns have these values.

    >>> rows_of("calls", "it's", class_id=3, redop=None)
    "SELECT * FROM calls WHERE run = 'it''s' AND class_id = 3 AND redop IS NULL"
    """
    found = [f"SELECT * FROM {view} WHERE run = {_literal(run)}"]
    for column, value in values.items():
        found.append(f"{column} IS NULL" if value is None else f"{column} = {_literal(value)}")
    return " AND ".join(found)


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def row_queries(report: Report) -> Callable[[Table], tuple[str, ...]]:
    """What gives the queries of a table's rows; none where no view holds them."""
    run = report.header.run
    judged = {str(row.class_id): row for row in report.judgement.classes}
    bins = {bin_words(row): row for found in report.histograms for row in found.bins if row.calls}

    def queries(found: Table) -> tuple[str, ...]:
        titles = [column.title for column in found.columns]
        if titles[0] in {"power of two", "Perftools bin"}:
            return tuple(_of_bin(run, bins.get(row[0])) for row in found.rows)
        if titles[0] == "class" and not report.header.calls:  # numbers of the report, not the store
            label = report.judgement.label
            return tuple(_measured(run, label, judged.get(row[0])) for row in found.rows)
        for origin in _ORIGINS:
            if {*origin.keys, origin.beside or titles[0]} <= set(titles):
                return tuple(
                    _row_query(run, origin, dict(zip(titles, row, strict=True)))
                    for row in found.rows
                )
        return ()

    return queries


def _row_query(run: str, origin: _Origin, cells: Mapping[str, str]) -> str:
    """Query of one row; empty where a cell is no single value of the view."""
    keys: dict[str, str | int | None] = dict(origin.also)
    for title, column in origin.keys.items():
        text = cells[title]
        if column in _NUMBERS and not text.isdecimal():
            return ""
        keys[column] = None if text == "-" else int(text) if column in _NUMBERS else text
    return rows_of(origin.view, run, **keys)


def _of_bin(run: str, row: Bin | None) -> str:
    """Query of the classes with sizes of a bin."""
    if row is None:
        return ""
    below = "" if row.high_bytes is None else f" AND size_bytes < {row.high_bytes}"
    return f"{rows_of('classes', run)} AND size_bytes >= {row.low_bytes}{below}"


def _measured(run: str, label: str | None, row: JudgedClass | None) -> str:
    """Query of the measurements of a class that no call of the run has."""
    if row is None or label is None:
        return ""
    return rows_of(
        "measurements", run, label=label, op=row.op, size_bytes=row.size_bytes, nranks=row.nranks
    )
