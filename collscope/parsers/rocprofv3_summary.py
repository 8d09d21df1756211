"""Summaries of rocprofiler-sdk: what ``rocprofv3 -S`` and ``rocpd summary`` print, and its CSVs.

source  ROCm/rocprofiler-sdk: the tool's generateStats.cpp (tables with bars, one of each domain and
        one of all) and rocpd's summary.py (tables with blanks, CSVs), ROCm 6.2 to 7.2
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING

import msgspec

from collscope.model import Diagnostic, Profile, Severity
from collscope.parsers._rows import Rows, TopColumns, column_key, text_lines
from collscope.parsers.reader import one_profile, text_profile_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DIALECT = "rocprofv3_summary"
_HEAD_LINES = 400
# ROCPROFV3 KERNEL_DISPATCH SUMMARY:    ROCPROFV3 SUMMARY:    KERNELS_SUMMARY:
_TITLE = re.compile(r"\s*(?:ROCPROFV3 (?:.{1,80} )?|(\w{1,40})_)SUMMARY:\s*")
_RULER = re.compile(r"\s*\|[-|\s]+\|\s*")
_BLANKS = re.compile(r"\s{2,}")
# DURATION (nsec); --summary-units: nsec, usec, msec, sec
_DURATION = re.compile(r"duration(nsec|usec|msec|sec)")
_UNITS_NS = {"nsec": 1, "usec": 1_000, "msec": 1_000_000, "sec": 1_000_000_000}
_KINDS = {
    "KERNEL_DISPATCH": "kernel", "MEMORY_COPY": "copy",  # domains
    "KERNELS": "kernel", "MEMORY_COPIES": "copy",  # titles of rocpd summary
}  # fmt: skip
_HOST_TEXT = "Rows of host calls are not GPU time: they were not read."
_AGAIN_TEXT = "A second table of the same executions was not read: it would count them twice."


class _Table(msgspec.Struct, frozen=True):
    """A header."""

    top: TopColumns
    domain: int | None  # place of the column; None: it has none
    form: str  # bars, csv, blanks


def sniff_text(head: str) -> bool:
    """True when one of the first lines is the header of a summary."""
    return any(_table(line) is not None for line in head.split("\n")[:_HEAD_LINES])


def parse(text: str | Iterable[str]) -> Profile:
    """Totals by name, times in ns.

    text  whole text, or its lines
    """
    rows = Rows()
    table: _Table | None = None
    kind: str | None = None  # of all rows of a table, by its title; None: unknown
    before: set[str] = set()  # kinds that an earlier table has
    here: set[str] = set()  # kinds of this one
    tables = 0
    for number, line in enumerate(text_lines(text), start=1):
        if (title := _TITLE.fullmatch(line)) is not None:
            table = None
            kind = _KINDS.get(title[1], "host") if title[1] else None
        elif (found := _table(line)) is not None:
            table, before, here = found, before | here, set()
        elif table is not None and line.strip() and not _RULER.fullmatch(line):
            cells = _cells(line, table.form, table.top.width)
            if len(cells) != table.top.width:
                rows.skip("torn_row", line, number)
                continue
            of = _KINDS.get(cells[table.domain], "host") if table.domain is not None else kind
            if of in before:
                rows.note(Diagnostic(Severity.NOTICE, "repeated_table", _AGAIN_TEXT, number, line))
            elif of == "host":
                rows.note(Diagnostic(Severity.NOTICE, "host_api_stats", _HOST_TEXT, number, line))
            else:
                tables += not here
                here.add(of or "kernel")
                rows.add_top(table.top, cells, number)
    if tables == 1 and len(here) == 1:
        rows.check_percentages()
    return rows.profile(DIALECT)


def _table(line: str) -> _Table | None:
    """The table that a line heads; None where it heads none."""
    if "PERCENT (INC)" not in line:
        return None
    # |  NAME  |  DOMAIN  |  CALLS  | DURATION (nsec) | AVERAGE (nsec)  | PERCENT (INC) | …
    # Name,Calls,"DURATION (nsec)","AVERAGE (nsec)","PERCENT (INC)","MIN (nsec)","MAX (nsec)",…
    #              Name  Calls  DURATION (nsec)  AVERAGE (nsec)  PERCENT (INC)  MIN (nsec)  …
    form = "bars" if "|" in line else "csv" if "," in line else "blanks"
    titles = _BLANKS.split(line.strip()) if form == "blanks" else _cells(line, form, None)
    keys = [column_key(title) for title in titles]
    unit = next((match[1] for key in keys if (match := _DURATION.fullmatch(key))), None)
    if unit is None or keys[0] != "name" or "calls" not in keys:
        return None

    def place(key: str) -> int | None:
        return keys.index(key) if key in keys else None

    domain = place("domain")
    top = TopColumns(
        len(keys), _UNITS_NS[unit], 0, keys.index("calls"), keys.index(f"duration{unit}"),
        place(f"min{unit}"), place(f"max{unit}"),
        # Of a table with domains, percentages are of host calls as well: no shares of GPU time.
        place("percentinc") if domain is None else None,
    )  # fmt: skip
    return _Table(top, domain, form)


def _cells(line: str, form: str, width: int | None) -> list[str]:
    """Cells of a line; the name, which stands first, may hold what parts the others.

    width  columns of the table; None: the line is its header
    """
    if form == "csv":
        try:
            return next(csv.reader([line.strip("\ufeff")]), [])
        except csv.Error:
            return []
    if form == "blanks":
        found: Sequence[str] = line.rsplit(None, (width or 1) - 1)
    else:
        text = line.strip()
        if len(text) < 2 or text[0] != "|" or text[-1] != "|":
            return []
        found = text[1:-1].rsplit("|", -1 if width is None else width - 1)
    # 193,410,768 in tables of some releases
    name, *numbers = found
    return [name.strip(), *(cell.strip().replace(",", "") for cell in numbers)]


READER = text_profile_reader(DIALECT, sniff_text, lambda text: one_profile(parse(text)), alone=True)
