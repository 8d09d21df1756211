"""Reports of Primus' ``benchmark rccl``: Markdown, CSV, TSV or JSON lines, a row per size.

source  AMD-AGI/Primus, primus/tools/benchmark/rccl_bench.py, 2025 and 2026
"""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING

from collscope.model import Measurement, MeasurementSet, Op, Severity, parse_datatype, parse_op
from collscope.parsers._names import op_of_text
from collscope.parsers._notes import CUT_TEXT, Notes, ended_lines
from collscope.parsers.reader import Reader, anywhere
from collscope.parsers.tables._measure import Result, Setting, measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from collscope.parsers.hints import TableHints

DIALECT = "primus_rccl"
# The host waits for each call: the launch is part of the time.
METHOD = "median of calls that the host waits for, of the slowest rank in each"
_WANTED = {"world", "op", "bytes", "dtype", "p50_ms"}
_LONGEST = 4000  # characters of a line that is looked at
_RULER = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)+\s*")
# - World Size: 8      - iters: 100
_ITERATIONS = re.compile(r"\s*-\s*iters:\s*(\d{1,9})\s*")
_BYTES = re.compile(r"\d{1,18}")
_MS = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
_OF_PARTS = (Op.ALL_GATHER, Op.REDUCE_SCATTER)  # `bytes` is one rank's part, not S of nccl-tests
_TORN_TEXT = "Rows with too few or too many fields, or without ranks, size and time, were left out."
_OP_TEXT = (
    "Rows with an unknown operation were left out. Name it with collscope ingest table --op NAME"
)


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """Measurements of every row; percentiles over iterations of the slowest rank's time."""
    notes = Notes()
    found: list[Measurement] = []
    claimed: set[int] = set()
    header: list[str] = []
    iterations: int | None = None
    last = 0
    for last, line, ended in ended_lines(text):
        if (given := _ITERATIONS.fullmatch(line[:_LONGEST])) is not None:
            iterations = int(given[1])
            continue
        cells = _cells(line) if len(line) <= _LONGEST else []
        if set(cells) >= _WANTED:
            header, cells = cells, []
            claimed.add(last)
        fields = _fields(header, line, cells)
        if fields is None:
            continue
        claimed.add(last)
        if not ended:
            notes.add(Severity.DATA_LOSS, "cut_row", CUT_TEXT, last, line)
        elif (row := _row(fields, last, iterations, hints, notes)) is not None:
            found.append(row)
    return MeasurementSet(
        DIALECT, tuple(found), "rccl", None, last, notes.diagnostics, claimed=frozenset(claimed)
    )


def _cells(line: str) -> list[str]:
    # | host | world | suite | op | bytes | dtype | repeat | p50_ms | p95_ms | min_ms | max_ms | …
    # | mi355-1 | 8 | rccl | all_reduce | 1048576 | bfloat16 | 1 | 0.043 | 0.051 | 0.041 | 5.095 | …
    text = line.strip()
    if text.startswith("|"):
        return [cell.strip() for cell in text.strip("|").split("|")]
    try:
        return next(csv.reader([line], delimiter="\t" if "\t" in line else ","), [])
    except csv.Error:
        return []


def _fields(header: list[str], line: str, cells: list[str]) -> Mapping[str, str] | None:
    """A row by column; empty for one that is torn, None for what is no row."""
    if line.lstrip().startswith("{") and '"p50_ms"' in line[:_LONGEST]:
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        return {key: str(value) for key, value in document.items()}
    if not header or not cells or _RULER.fullmatch(line) or len(cells) < 2:
        return None
    if len(cells) != len(header):
        # Another text, or a row that lost its end.
        return {} if "_" in line and len(cells) > len(header) // 2 else None
    return dict(zip(header, cells, strict=True))


def _row(
    fields: Mapping[str, str], line: int, iterations: int | None, hints: TableHints, notes: Notes
) -> Measurement | None:
    world, size, time = (fields.get(name, "") for name in ("world", "bytes", "p50_ms"))
    known = _BYTES.fullmatch(world) and _BYTES.fullmatch(size) and _MS.fullmatch(time)
    nranks = hints.nranks or (int(world) if known else 0)
    if not known or not nranks:
        notes.add(Severity.DATA_LOSS, "torn_row", _TORN_TEXT, line, str(dict(fields))[:200])
        return None
    name = fields.get("op", "")
    op = hints.op or parse_op(name)
    op = (op_of_text(name) or op) if op is Op.UNKNOWN else op
    if op is Op.UNKNOWN:
        notes.add(Severity.DATA_LOSS, "op_unknown", _OP_TEXT, line, name)
        return None
    total = int(size) * (nranks if op in _OF_PARTS else 1)
    setting = Setting(
        op=op, nranks=nranks, nnodes=hints.nnodes, iterations=iterations, method=METHOD,
        library="rccl", label=hints.label,
    )  # fmt: skip
    low, high = (_us(fields.get(name, "")) for name in ("min_ms", "max_ms"))
    result = Result(
        line, total, _us(time) or "", datatype=parse_datatype(fields.get("dtype", "")),
        redop="Sum" if op.reduces else None,
        # Of other operations eff_gbps has another factor than the bus bandwidth.
        busbw=fields.get("eff_gbps") if op is Op.ALL_REDUCE else None, shortest=low, longest=high,
    )  # fmt: skip
    return measure(result, setting, notes)


def _us(ms: str) -> str | None:
    """Microseconds as printed, by the digits of the milliseconds."""
    if not _MS.fullmatch(ms):
        return None
    head, _, part = ms.partition(".")
    digits = part.ljust(3, "0")
    text = f"{head}{digits[:3]}".lstrip("0") or "0"
    return text + (f".{digits[3:]}" if digits[3:] else "")


READER = Reader(DIALECT, "table", anywhere, lambda source, hints: parse(source.text(), hints.table))
