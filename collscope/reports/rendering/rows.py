"""Rows of any query in every output format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from collscope.reports.rendering.csv import to_csv
from collscope.reports.rendering.formats import to_readable
from collscope.reports.rendering.layout import NAME, NUMBER, TEXT, Column, Section, Table, table
from collscope.reports.rendering.text import terminal_width, text_table
from collscope.writing import visible

SCHEMA = "collscope.rows/1"


def render_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    fmt: str,
    *,
    title: str = "collscope sql",
    wide: bool = False,
) -> str:
    """Rows as text, md, csv, json or html; NULL is empty in csv, null in json, else ``-``.

    A row of md is one line, and one of text as well but on a terminal that is too narrow; line
    breaks in values are spaces there. On a terminal long values are cut in the middle.

    title  of a page
    wide   nothing is cut or folded
    """
    if fmt == "json":
        body = {"schema": SCHEMA, "columns": list(columns), "rows": [list(r) for r in rows]}
        return msgspec.json.format(msgspec.json.encode(body)).decode()
    if fmt == "csv":
        return to_csv(columns, rows)
    cells = [
        ["-" if v is None else visible(" ".join(str(v).splitlines())) for v in row] for row in rows
    ]
    if fmt not in ("text", "md"):
        found = table([(name, TEXT) for name in columns], rows)
        return to_readable(fmt, title, [Section("", (found,))])
    if fmt == "md":
        lines = [list(columns), ["---"] * len(columns), *cells]
        return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in r) + " |" for r in lines)
    numeric = [all(isinstance(r[i], int | float | None) for r in rows) for i in range(len(columns))]
    kinds = [NUMBER if number else NAME for number in numeric]
    titled = tuple(Column(visible(name), kind) for name, kind in zip(columns, kinds, strict=True))
    grid = Table(titled, tuple(map(tuple, cells)))
    shown = text_table(grid, None if wide else terminal_width())
    return "\n".join(line.rstrip() for line in shown)
