"""CSV of rccl-tests (-x FILE -Z csv), and plain CSVs with the same columns.

Builds with MPI wrote, until May 2026, a header without the column "nodes" above rows that have it
(ROCm/rocm-systems pull request 6004): by name every later column would be read wrongly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.model import Measurement, MeasurementSet, Op, Severity
from collscope.parsers._notes import CUT_TEXT, Notes, cells, ended_lines
from collscope.parsers._rows import text_lines
from collscope.parsers.reader import Reader, whole_if
from collscope.parsers.tables._measure import measure
from collscope.parsers.tables._rccl import result_of, setting_of

if TYPE_CHECKING:
    from collscope.parsers.hints import TableHints

RCCL_DIALECT, PLAIN_DIALECT = "rccl_tests_csv", "sweep_csv"
_HEAD_LINES = 50

_COLUMNS_TEXT = (
    'The header lacks the column "nodes" that the rows have (rccl-tests before May 2026): it '
    "was added."
)
_TORN_TEXT = "Rows with too few or too many fields, or without size and time, were left out."
_OP_TEXT = (
    "Rows with an unknown operation were left out. Name it with collscope ingest table --op NAME"
)


def sniff(text: str) -> bool:
    """True when one of the first lines names a size, a time, and the operation."""
    lines = (line for _, line in zip(range(_HEAD_LINES), text_lines(text), strict=False))
    return any(_header(line) is not None for line in lines)


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """Measurements of such a CSV, one per row; a last row without a line end is none."""
    notes = Notes()
    found: list[Measurement] = []
    header: list[str] = []
    last = 0
    for last, line, ended in ended_lines(text):
        if (names := _header(line)) is not None:
            header = names
        elif header and line.strip() and not line.startswith("#") and not ended:
            notes.add(Severity.DATA_LOSS, "cut_row", CUT_TEXT, last, line)
        elif header and line.strip() and not line.startswith("#"):
            m = _row(header, line, last, hints, notes)
            if m is not None:
                found.append(m)
    dialect, library = (RCCL_DIALECT, "rccl") if "inplace" in header else (PLAIN_DIALECT, None)
    return MeasurementSet(dialect, tuple(found), library, None, last, notes.diagnostics)


def _header(line: str) -> list[str] | None:
    # numCycle,collective,ranks,rankspernode,gpusperrank,size,type,redop,inplace,time,algbw,busbw,…
    # numCycle, name, nodes, ranks, ranksPerNode, gpusPerRank, size, type, redop, inPlace, time, …
    # label,op,world,bytes,us,algbw,busbw
    if "," not in line or len(line) > 2000:
        return None
    names = [name.lower() for name in cells(line)]
    known = set(names)
    wanted = ({"size", "bytes"}, {"time", "us"}, {"name", "collective", "op"})
    return names if all(known & choice for choice in wanted) else None


def _row(
    header: list[str], line: str, number: int, hints: TableHints, notes: Notes
) -> Measurement | None:
    values = cells(line)
    names = header
    if len(values) == len(names) + 1 and "ranks" in names and "nodes" not in names:
        names = [*names]
        names.insert(names.index("ranks"), "nodes")
        notes.add(Severity.NOTICE, "misaligned_header", _COLUMNS_TEXT, number)
    fields = dict(zip(names, values, strict=False))
    result = result_of(fields, number) if len(values) == len(names) else None
    if result is None:
        notes.add(Severity.DATA_LOSS, "torn_row", _TORN_TEXT, number, line)
        return None
    setting = setting_of(fields, hints)
    if setting.op is Op.UNKNOWN:
        notes.add(Severity.DATA_LOSS, "op_unknown", _OP_TEXT, number, line)
        return None
    if result.datatype is None:  # no column for it
        result = replace(result, datatype=hints.datatype)
    if "inplace" not in names:
        setting = replace(setting, method="a sweep of another program", library=None)
    return measure(result, setting, notes)


READER = Reader(
    "perf_csv", "table", whole_if(sniff), lambda source, hints: parse(source.text(), hints.table)
)
