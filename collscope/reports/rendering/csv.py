"""Records and rows as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import astuple

from collscope.model.note import Note
from collscope.writing import inert


def to_csv(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """CSV with a header line; a missing value is empty, yes and no are 1 and 0, lists by `; `.

    Text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(inert, columns))
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    return out.getvalue()


def records_csv(kind: type[msgspec.Struct], rows: Iterable[msgspec.Struct]) -> str:
    """CSV of records of one kind: a column for each field."""
    return to_csv(kind.__struct_fields__, map(astuple, rows))


def _csv_cell(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    text = "; ".join(map(_text, value)) if isinstance(value, tuple) else value
    return inert(text) if isinstance(text, str) else text


def _text(value: object) -> str:
    return value.text if isinstance(value, Note) else str(value)
