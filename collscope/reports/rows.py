"""Rows of any query in every output format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from collscope.reports.layout import TEXT, Section, table, to_csv, to_readable
from collscope.writing import visible

SCHEMA = "collscope.rows/1"


def render_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], fmt: str) -> str:
    """Rows as text, md, csv or json; NULL is empty in csv, null in json and ``-`` elsewhere.

    A row of text and md is one line: line breaks in values are spaces there.
    """
    if fmt == "json":
        body = {"schema": SCHEMA, "columns": list(columns), "rows": [list(r) for r in rows]}
        return msgspec.json.format(msgspec.json.encode(body)).decode()
    if fmt == "csv":
        return to_csv(columns, rows)
    cells = [
        ["-" if v is None else visible(" ".join(str(v).splitlines())) for v in row] for row in rows
    ]
    if fmt == "html":
        found = table([(name, TEXT) for name in columns], rows)
        return to_readable(fmt, "collscope sql", [Section("", (found,))])
    if fmt == "md":
        lines = [list(columns), ["---"] * len(columns), *cells]
        return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in r) + " |" for r in lines)
    titles = list(map(visible, columns))
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    numeric = [all(isinstance(r[i], int | float | None) for r in rows) for i in range(len(columns))]
    grid = [titles, ["-" * w for w in widths], *cells]
    return "\n".join(
        "  ".join(
            c.rjust(w) if right else c.ljust(w)
            for c, w, right in zip(r, widths, numeric, strict=True)
        ).rstrip()
        for r in grid
    )
