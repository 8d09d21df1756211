"""What rocm-bandwidth-test prints: peak bandwidth of copies between all pairs of devices.

Lines: those of release 2.6.0 (ROCm/rocm_bandwidth_test), and older ones' spelling ("Bdirectional").
The peak is that of the best size, which is not printed: the values are figures, not copies.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collscope.model import Metric, MetricSet, Severity
from collscope.parsers._notes import Notes, ended_lines
from collscope.parsers._rows import line_count
from collscope.parsers.reader import Fit, Reader, text_of

if TYPE_CHECKING:
    from collscope.parsers.hints import MetricHints

DIALECT = "rocm_bandwidth_test"
# Unidirectional copy peak bandwidth GB/s
_TITLE = re.compile(r"\s*(Uni|Bi|B)directional copy peak bandwidth GB/s\s*")
_ANY_TITLE = re.compile(rf"^{_TITLE.pattern}^\s*D/D\s", re.MULTILINE)
# D/D       0           1
_COLUMNS = re.compile(r"\s*D/D((?:\s+\d{1,4})+)\s*")
# 0         N/A         84.364
_ROW = re.compile(r"\s*(\d{1,4})((?:\s+(?:\d{1,9}(?:\.\d{1,9})?|N/A))+)\s*")
_LONGEST = 20_000  # characters of a line: a thousand devices

_CUT_TEXT = "Rows that are cut or broken were left out."


def fits(head: bytes) -> Fit:
    """The tables may be in another text."""
    return Fit.PART if _ANY_TITLE.search(text_of(head)) else Fit.NONE


def parse(text: str, hints: MetricHints) -> MetricSet | None:
    """A figure per pair of devices and direction; pairs that were not measured are left out.

    returns  None when there are none
    """
    notes = Notes()
    found: list[Metric] = []
    sides: str | None = None  # of the table that is being read
    columns: list[str] = []
    for number, line, ended in ended_lines(text):
        if len(line) > _LONGEST:
            sides = None
        elif title := _TITLE.fullmatch(line):
            sides, columns = "->" if title[1] == "Uni" else "<->", []
        elif sides is None or not line.strip():
            continue
        elif not columns and (header := _COLUMNS.fullmatch(line)):
            columns = header[1].split()
        elif row := _ROW.fullmatch(line):
            cells = row[2].split()
            if not ended or len(cells) != len(columns):
                notes.add(Severity.DATA_LOSS, "cut_row", _CUT_TEXT, number, line)
                continue
            found += _row(f"device {row[1]} {sides}", columns, cells, number, hints)
        else:
            sides = None
    if not found:
        return None
    return MetricSet(DIALECT, tuple(found), line_count(text), notes.diagnostics)


def _row(
    what: str, columns: list[str], cells: list[str], line: int, hints: MetricHints
) -> list[Metric]:
    name = hints.name or "copy peak bandwidth"
    return [
        Metric(f"{name}: {what} device {column}", float(cell), "GB/s", True, hints.label, line)
        for column, cell in zip(columns, cells, strict=True)
        if cell != "N/A" and float(cell)
    ]


READER = Reader(DIALECT, "metric", fits, lambda source, hints: parse(source.text(), hints.metric))
