"""Rows of any query in every output format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any

import msgspec

from collscope.errors import MissingToolError
from collscope.reports.rendering.csv import to_csv
from collscope.reports.rendering.formats import to_readable
from collscope.reports.rendering.layout import NAME, NUMBER, TEXT, Column, Section, Table, table
from collscope.reports.rendering.markdown import escaped
from collscope.reports.rendering.text import terminal_width, text_table
from collscope.writing import visible

SCHEMA = "collscope.rows/2"


def render_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    fmt: str,
    *,
    title: str = "collscope sql",
    wide: bool = False,
) -> str | bytes:
    """Rows as text, md, csv, json, jsonl, html or parquet.

    NULL is empty in csv, null in json, jsonl and parquet, else ``-``. The objects of json and jsonl
    number columns of one name: a, a:1.

    A row of md is one line, and one of text as well but on a terminal that is too narrow; line
    breaks in values are spaces there. On a terminal long values are cut in the middle.

    title  of a page
    wide   nothing is cut or folded
    """
    if fmt in _OF_VALUES:
        return _OF_VALUES[fmt](columns, rows)
    cells = [
        ["-" if v is None else visible(" ".join(str(v).splitlines())) for v in row] for row in rows
    ]
    if fmt not in ("text", "md"):
        found = table([(name, TEXT) for name in columns], rows)
        return to_readable(fmt, title, [Section("", (found,))])
    if fmt == "md":
        escaped_rows = [[escaped(cell) for cell in row] for row in (columns, *cells)]
        lines = [escaped_rows[0], ["---"] * len(columns), *escaped_rows[1:]]
        return "\n".join("| " + " | ".join(row) + " |" for row in lines)
    numeric = [all(isinstance(r[i], int | float | None) for r in rows) for i in range(len(columns))]
    kinds = [NUMBER if number else NAME for number in numeric]
    titled = tuple(Column(visible(name), kind) for name, kind in zip(columns, kinds, strict=True))
    grid = Table(titled, tuple(map(tuple, cells)))
    shown = text_table(grid, None if wide else terminal_width())
    return "\n".join(line.rstrip() for line in shown)


def _json(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    body = {"schema": SCHEMA, "columns": list(columns), "rows": list(_objects(columns, rows))}
    return msgspec.json.format(msgspec.json.encode(body)).decode()


def _json_lines(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return msgspec.json.Encoder().encode_lines(_objects(columns, rows)).decode().rstrip("\n")


def _objects(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    names = distinct(columns)
    return (dict(zip(names, row, strict=True)) for row in rows)


def distinct(columns: Sequence[str]) -> list[str]:
    """Names of columns as sqlite3's shell makes them distinct.

    >>> distinct(["a", "b", "a"])
    ['a', 'b', 'a:1']
    """
    names: list[str] = []
    for column in columns:
        name, number = column, 0
        while name in names:
            number += 1
            name = f"{column}:{number}"
        names.append(name)
    return names


def _parquet(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    try:
        import polars  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingToolError("polars: not installed. Run 'pip install polars'.") from error
    frame = polars.DataFrame(rows, distinct(columns), orient="row", infer_schema_length=None)
    written = BytesIO()
    frame.write_parquet(written)
    return written.getvalue()


# Formats that hold the values themselves.
_OF_VALUES: dict[str, Callable[[Sequence[str], Sequence[Sequence[Any]]], str | bytes]] = {
    "json": _json, "jsonl": _json_lines, "csv": to_csv, "parquet": _parquet,
}  # fmt: skip
