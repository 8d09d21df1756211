"""What ``nsys stats`` prints: sums of kernels and copies by name, as CSV or as a table.

source  NVIDIA Nsight Systems user guide, "CLI stats command": reports cuda_gpu_kern_sum,
        cuda_gpu_kern_gb_sum, cuda_gpu_mem_time_sum and cuda_gpu_sum, of 2020 and later
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

DIALECT = "nsys_stats"
_HEAD_LINES = 200
#  ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):
_SECTION = re.compile(r"\s*\*\*\s.*\(\w+\):\s*|(?:Processing|Generating|SKIPPED)\b.*")
# Time (%)  Total Time (ns)  Instances  Avg (ns)  …  GridXYZ  BlockXYZ  Name
_TITLE = re.compile(r"\S+(?: \(?\S+\)?)*")
_RULER = re.compile(r"\s*-+(?:\s+-+)+\s*")
_NUMBER = re.compile(r"\s*([\d.,]+)")
_TRIPLES = {"gridxyz": 3, "blockxyz": 3}  # columns of so many numbers
_NAMES = ("name", "operation")
# Titles of sums over the host: calls of CUDA and of the system, ranges of NVTX.
_OF_HOST = {"numcalls", "range", "style", "syscall"}
_HOST_TEXT = "Sums of the host's calls and of NVTX ranges are not GPU time: they were not read."
_AGAIN_TEXT = "A second table of the same executions was not read: it would count them twice."


class _Table(msgspec.Struct, frozen=True):
    """A header, and what its rows are."""

    top: TopColumns
    keys: tuple[str, ...]  # of its columns
    kinds: frozenset[str]  # kernel, copy, host
    comma: bool  # CSV


def sniff_text(head: str) -> bool:
    """True when one of the first lines is the header of a sum of GPU times."""
    found = (_table(line) for line in head.split("\n")[:_HEAD_LINES])
    return any(table is not None and "host" not in table.kinds for table in found)


def parse(text: str | Iterable[str]) -> Profile:
    """Totals by name, times in ns.

    text  whole text, or its lines
    """
    rows = Rows()
    table: _Table | None = None
    read: set[str] = set()  # kinds of executions that an earlier table has
    tables = 0
    for number, line in enumerate(text_lines(text), start=1):
        found = _table(line)
        if found is not None:
            table = found
            if "host" in table.kinds:
                continue
            if read & table.kinds:
                message = Diagnostic(Severity.NOTICE, "repeated_table", _AGAIN_TEXT, number, line)
                rows.note(message)
                table = None
                continue
            read |= table.kinds
            tables += 1
        elif not line.strip() or _SECTION.fullmatch(line):
            table = None if _SECTION.fullmatch(line) else table
        elif table is not None and not _RULER.fullmatch(line):
            _add_row(rows, table, line, number)
    if tables == 1:
        rows.check_percentages()
    return rows.profile(DIALECT)


def _add_row(rows: Rows, table: _Table, line: str, number: int) -> None:
    if "host" in table.kinds:
        rows.note(Diagnostic(Severity.NOTICE, "host_api_stats", _HOST_TEXT, number, line))
        return
    cells = _csv(line) if table.comma else _cut(line, table.keys)
    if len(cells) != table.top.width:
        rows.skip("torn_row", line, number)
    else:
        rows.add_top(table.top, cells, number)


def _table(line: str) -> _Table | None:
    """The table that a line heads; None where it heads none."""
    if "Time" not in line:
        return None
    comma = "," in line
    titles = _csv(line) if comma else _TITLE.findall(line)
    keys = tuple(column_key(title) for title in titles)
    count = next((k for k in ("instances", "count") if k in keys), None)
    if "totaltimens" not in keys:
        return None
    if _OF_HOST & set(keys):
        return _Table(TopColumns(len(keys), 1, 0, 0, 0, None, None, None), keys,
                      frozenset({"host"}), comma)  # fmt: skip
    name = next((k for k in _NAMES if k in keys), None)
    if count is None or name is None or name != keys[-1]:
        return None
    kinds = {"kernel", "copy"} if "category" in keys else {"copy" if count == "count" else "kernel"}

    def place(*names: str) -> int | None:
        return next((keys.index(n) for n in names if n in keys), None)

    top = TopColumns(
        len(keys), 1, keys.index(name), keys.index(count), keys.index("totaltimens"),
        place("minns", "minimum"), place("maxns", "maximum"), place("time"),
    )  # fmt: skip
    return _Table(top, keys, frozenset(kinds), comma)


def _csv(line: str) -> list[str]:
    try:
        return next(csv.reader([line.strip("\ufeff\r\n")]), [])
    except csv.Error:
        return []


def _cut(line: str, keys: Sequence[str]) -> list[str]:
    """Cells of a line whose columns are as wide as they need: numbers, and the name at its end."""
    cells: list[str] = []
    at = 0
    for key in keys[:-1]:
        numbers = []
        if key in ("category", "operation"):
            word = re.compile(r"\s*(\S+)").match(line, at)
            at = at if word is None else word.end()
            cells.append("" if word is None else word[1])
            continue
        for _ in range(_TRIPLES.get(key, 1)):
            found = _NUMBER.match(line, at)
            if found is None:
                return []
            numbers.append(found[1].replace(",", ""))
            at = found.end()
        cells.append(" ".join(numbers))
    return [*cells, line[at:].strip()]


READER = text_profile_reader(DIALECT, sniff_text, lambda text: one_profile(parse(text)), alone=True)
