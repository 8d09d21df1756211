"""JSON of NVIDIA's nvbandwidth (``-j``, releases 0.2 to 0.8): bandwidths and latencies of pairs.

Fields: json_output.cpp and testcases_*.cpp. The file does not tell the size of the buffers, so its
values are figures and no copies of a size. Rows of a test with three parts follow each other.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from collscope.model import Metric, MetricSet, Severity
from collscope.parsers._notes import Notes
from collscope.parsers._rows import line_count
from collscope.parsers.reader import Reader, whole_if

if TYPE_CHECKING:
    from collscope.parsers.hints import MetricHints

DIALECT = "nvbandwidth_json"
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

_CUT_TEXT = "The JSON ends early or is damaged: the tests before that were kept."
_FAILED_TEXT = "Tests that did not pass have no values."
_UNIT_TEXT = "Tests with an unknown unit were left out."


def sniff(text: str) -> bool:
    """True for such a file, also when it is cut."""
    return _START.match(text) is not None


def parse(text: str, hints: MetricHints) -> MetricSet | None:
    """A figure per pair of devices and test; values that were not measured ("N/A") are left out.

    returns  None when there are none
    """
    notes = Notes()
    found: list[Metric] = []
    start = _TESTS.search(text)
    at = len(text) if start is None else start.end()
    while at < len(text):
        at += len(text[at:]) - len(text[at:].lstrip(", \t\r\n"))
        if text[at : at + 1] == "]":
            break
        line = text.count("\n", 0, at) + 1
        try:
            test, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            notes.add(Severity.DATA_LOSS, "cut_json", _CUT_TEXT, line)
            break
        found += _figures(test, line, hints, notes)
    if not found:
        return None
    return MetricSet(DIALECT, tuple(found), line_count(text), notes.diagnostics)


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
        part = f" {_PARTS[place // each]}" if thirds else ""
        for column, cell in enumerate(row):
            value = _value(cell)
            if value is not None:
                pair = _pair(described, place % each, column)
                full = f"{hints.name or name}{part}: {pair}"
                higher = unit[1] == "GB/s"
                found.append(Metric(full, value, unit[1], higher, hints.label, line))
    return found


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
    DIALECT, "metric", whole_if(sniff), lambda source, hints: parse(source.text(), hints.metric)
)
