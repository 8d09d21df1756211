"""CSVs of collscope's own benchmarks, also several joined to one file: rows by column.

Rows are read one by one, so a torn line costs only itself.
"""

from __future__ import annotations

import msgspec

from collscope.model import Severity
from collscope.parsers._notes import CUT_TEXT, Notes, cells, ended_lines
from collscope.parsers._rows import number

VERSION = "1"
_VERSION_TEXT = f"The file is of another version than {VERSION}. Read it with a newer release."
_TORN_TEXT = "Rows with too few or too many fields, or with an unknown status, were skipped."
_HEADER_TEXT = "Rows before any header line were skipped."


class TableRow(msgspec.Struct, frozen=True):
    """One row: its line, and its fields by column."""

    at: int
    line: str
    fields: dict[str, str]


class Layout(msgspec.Struct, frozen=True):
    """What tells one CSV from another.

    needed  columns without which there is nothing to read, `status` among them
    """

    name: str
    header_start: str
    needed: frozenset[str]
    statuses: frozenset[str]

    @property
    def mark(self) -> str:
        """What the first line begins with."""
        return f"# collscope.{self.name}/"

    def sniff(self, head: str) -> bool:
        """True when a text begins like this CSV."""
        return head.lstrip("\ufeff").startswith((self.mark, self.header_start))


def read_table(text: str, layout: Layout, notes: Notes) -> tuple[list[TableRow], int]:
    """Whole rows of a text, and the number of its lines.

    Of a part of another version there is nothing but a diagnostic, ``other_version``.
    """
    rows: list[TableRow] = []
    header: list[str] | None = None
    refused = False
    last = 0
    for last, line, ended in ended_lines(text):
        bare = line.lstrip("\ufeff")
        if bare.startswith(layout.mark):
            # # collscope.memcpy_csv/1
            refused = bare[len(layout.mark) :].strip() != VERSION
            if refused:
                notes.add(Severity.ERROR, "other_version", _VERSION_TEXT, last, bare)
        elif bare.startswith(layout.header_start):
            # Again where files were joined.
            header = cells(bare)
        elif bare.strip() and not bare.startswith("#") and not refused:
            if not ended:
                notes.add(Severity.DATA_LOSS, "cut_row", CUT_TEXT, last, bare)
            elif (fields := _fields(bare, header, layout, (notes, last))) is not None:
                rows.append(TableRow(last, bare, fields))
    return rows, last


def _fields(
    line: str, header: list[str] | None, layout: Layout, where: tuple[Notes, int]
) -> dict[str, str] | None:
    notes, at = where
    if header is None or not layout.needed.issubset(header):
        notes.add(Severity.DATA_LOSS, "no_header", _HEADER_TEXT, at, line)
        return None
    values = cells(line)
    fields = dict(zip(header, values, strict=False))
    if len(values) != len(header) or fields["status"] not in layout.statuses:
        notes.add(Severity.DATA_LOSS, "torn_row", _TORN_TEXT, at, line)
        return None
    return fields


def real(text: str) -> float | None:
    """A number that is not negative; None for everything else."""
    value = number(text)
    return None if value is None else float(value)
