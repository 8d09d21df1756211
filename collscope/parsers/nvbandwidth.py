"""What NVIDIA's nvbandwidth prints, text or JSON (``-j``): bandwidths and latencies of pairs.

Lines and fields: output.cpp, json_output.cpp and testcases_*.cpp of releases 0.2 to 0.8. Neither
gives the size of the buffers, so the values are figures and no copies of a size.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from collscope.model import Metric, MetricSet, Severity
from collscope.parsers._notes import Notes, ended_lines
from collscope.parsers._rows import line_count
from collscope.parsers.reader import Fit, Reader, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collscope.parsers.hints import MetricHints

JSON_DIALECT, TEXT_DIALECT = "nvbandwidth_json", "nvbandwidth_text"
_DECODER = json.JSONDecoder()
# { "nvbandwidth" : { "CUDA Runtime Version" : 12070, …, "testcases" : [ {
_START = re.compile(r'\s*\{\s*"nvbandwidth"\s*:\s*\{')
_TESTS = re.compile(r'"testcases"\s*:\s*\[')
# memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
# memory latency SM CPU(row) <-> GPU(column) (ns)
# memcpy SM All Gpus -> GPU(column) total bandwidth (GB/s)
# memcpy local GPU(column) bandwidth (GB/s)
_PAIR = re.compile(r"(\w+)\(row\) (->|<-|<->) (\w+)\(column\)")
_COLUMN = re.compile(r"(\w+)\(column\)")
_UNIT = re.compile(r"\((GB/s|ns|us)\)\s*$")
_PARTS = ("1", "2", "total")
# memcpy CE GPU(row) <-> GPU(column) Read1 bandwidth (GB/s), … Write2 …, … Total …
_PART = re.compile(r"\) (?:(?:Read|Write)([12])|(Total)) bandwidth ")
_GAP = re.compile(r"[,\s]*")
# Running host_to_device_memcpy_ce.
_RUNNING = re.compile(r"Running (\w{3,100})\.\s*")
#            0         1
_COLUMNS = re.compile(r"\s+0(?:\s+\d{1,4})*\s*")
#  0     55.10     54.98                         0       N/A    396.50
_ROW = re.compile(r"\s*(\d{1,4})((?:\s+(?:\d{1,12}(?:\.\d{1,9})?|N/A))+)\s*")

_LONGEST = 4000  # characters of a line that are looked at

_CUT_TEXT = "The JSON ends early or is damaged: the tests before that were kept."
_CUT_ROW_TEXT = "Rows that are cut or broken were left out."
_FAILED_TEXT = "Tests that did not pass have no values."
_UNIT_TEXT = "Tests with an unknown unit were left out."


def fits(head: bytes) -> Fit:
    """The JSON fills its file; the text may be in another."""
    return Fit.WHOLE if _START.match(text_of(head)) else Fit.PART


def parse(text: str, hints: MetricHints) -> MetricSet | None:
    """A figure per pair of devices and test; values that were not measured ("N/A") are left out.

    returns  None when there are none
    """
    notes = Notes()
    is_json = _START.match(text) is not None
    found = _of_json(text, hints, notes) if is_json else _of_text(text, hints, notes)
    if not found:
        return None
    dialect = JSON_DIALECT if is_json else TEXT_DIALECT
    return MetricSet(dialect, tuple(found), line_count(text), notes.diagnostics)


def _of_text(text: str, hints: MetricHints, notes: Notes) -> list[Metric]:
    found: list[Metric] = []
    name: str | None = None
    described: str | None = None  # above the matrix that is being read
    columns = 0
    for number, line, ended in ended_lines(text):
        if running := _RUNNING.fullmatch(line[:_LONGEST]):
            name, described = running[1], None
        elif name is not None and "(column)" in line[:_LONGEST] and _UNIT.search(line):
            described, columns = line.strip(), 0
        elif described is None or name is None:
            continue
        elif not columns and _COLUMNS.fullmatch(line[:_LONGEST]):
            columns = len(line.split())
        elif row := _ROW.fullmatch(line[:_LONGEST]):
            cells = row[2].split()
            if not ended or len(cells) != columns:
                notes.add(Severity.DATA_LOSS, "cut_row", _CUT_ROW_TEXT, number, line)
                continue
            part = _PART.search(described)
            full = name if part is None else f"{name} {(part[1] or part[2]).lower()}"
            found += _row(full, described, int(row[1]), cells, number, hints)
        else:
            described = None
    return found


def _of_json(text: str, hints: MetricHints, notes: Notes) -> list[Metric]:
    found: list[Metric] = []
    start = _TESTS.search(text)
    at = len(text) if start is None else start.end()
    line, counted = 1, 0
    while at < len(text):
        gap = _GAP.match(text, at)
        at = at if gap is None else gap.end()
        if text[at : at + 1] == "]":
            break
        line, counted = line + text.count("\n", counted, at), at
        try:
            test, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            notes.add(Severity.DATA_LOSS, "cut_json", _CUT_TEXT, line)
            break
        found += _figures(test, line, hints, notes)
    return found


def _figures(test: object, line: int, hints: MetricHints, notes: Notes) -> list[Metric]:
    if not isinstance(test, dict):
        return []
    name, matrix = str(test.get("name", ""))[:100], test.get("bandwidth_matrix")
    if not isinstance(matrix, list):
        notes.add(Severity.NOTICE, "test_not_passed", _FAILED_TEXT, line, name)
        return []
    described = str(test.get("bandwidth_description", ""))[:200]
    unit = _UNIT.search(described)
    if unit is None:
        notes.add(Severity.NOTICE, "unknown_unit", _UNIT_TEXT, line, described)
        return []
    rows = [row if isinstance(row, list) else [] for row in matrix]
    # Of these tests three matrices are printed, one behind the other: both parts and their sum.
    thirds = "Total" in described and len(rows) % 3 == 0
    each = len(rows) // 3 if thirds else len(rows)
    found = []
    for place, row in enumerate(rows):
        full = f"{name} {_PARTS[place // each]}" if thirds else name
        found += _row(full, described, place % each, row, line, hints)
    return found


def _row(
    name: str,
    described: str,
    row: int,
    cells: Sequence[object],
    line: int,
    hints: MetricHints,
) -> list[Metric]:
    """Figures of one row of a matrix."""
    unit = _UNIT.search(described)
    unit_name = "" if unit is None else unit[1]
    return [
        Metric(
            f"{hints.name or name}: {_pair(described, row, column)}",
            value,
            unit_name,
            unit_name == "GB/s",
            hints.label,
            line,
        )
        for column, cell in enumerate(cells)
        if (value := _value(cell)) is not None
    ]


def _pair(described: str, row: int, column: int) -> str:
    """The devices of one value, in the words of the test's description."""
    if pair := _PAIR.search(described):
        return f"{pair[1]} {row} {pair[2]} {pair[3]} {column}"
    one = _COLUMN.search(described)
    return f"{one[1] if one else 'column'} {column}"


def _value(cell: object) -> float | None:
    if not isinstance(cell, str) or not re.fullmatch(
        r"\d{1,12}(?:\.\d{1,9})?(?:e[+-]?\d\d)?", cell
    ):
        return None
    return float(cell) or None


READER = Reader(
    "nvbandwidth", "metric", fits, lambda source, hints: parse(source.text(), hints.metric)
)
