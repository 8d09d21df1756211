"""Records and rows as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from collscope.model.note import Note
from collscope.writing import inert

_NS = re.compile(r"(_min|_mad)?_ns$")  # of a field's name


def to_csv(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """CSV with a header line; a missing value is empty, yes and no are 1 and 0, lists by `; `.

    Text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(inert, columns))
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    return out.getvalue()


def records_csv(
    names: Sequence[str],
    rows: Iterable[msgspec.Struct],
    words: Callable[[object], object] | None = None,
) -> str:
    """CSV of records: a column for each field named; times, which records have in ns, in us.

    The column of `time_ns` is `time_us`, that of `time_min_ns` is `time_us_min`.

    words  what is written for a value; None: the value
    """
    columns = [_NS.sub(r"_us\1", name) for name in names]
    cells = ([_value(row, name) for name in names] for row in rows)
    return to_csv(columns, cells if words is None else (map(words, row) for row in cells))


def _value(row: msgspec.Struct, name: str) -> object:
    value = getattr(row, name)
    return value / 1000 if name.endswith("_ns") and value is not None else value


def _csv_cell(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    text = "; ".join(map(_text, value)) if isinstance(value, tuple) else value
    return inert(text) if isinstance(text, str) else text


def _text(value: object) -> str:
    return value.text if isinstance(value, Note) else str(value)
