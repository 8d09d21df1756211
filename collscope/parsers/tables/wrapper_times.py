"""Times of calls by their number of elements, as tests of an all-reduce wrapper print them.

The operation is in the heading above, the ranks in the line "tested on …".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collscope.model import Datatype, Measurement, MeasurementSet, Op, Severity
from collscope.parsers._names import op_of_program, op_of_text
from collscope.parsers._notes import Notes
from collscope.parsers._rows import text_lines
from collscope.parsers.reader import Reader, anywhere
from collscope.parsers.tables._measure import Result, Setting, measure

if TYPE_CHECKING:
    from collscope.parsers.hints import TableHints

DIALECT = "wrapper_times"
# nDev per thread: 2 - number of float:     10000 - Time: 0.003880 sec (avg over repeated 10 times)
_ROW = re.compile(
    r"\s*nDev per thread:\s*(\d{1,4}) - number of (float|double|half):\s*(\d{1,15}) - "
    r"Time:\s*(\d{1,9}\.\d{1,9}) sec \(avg over repeated (\d{1,9}) times\)\s*"
)
_BEGIN = "nDev per thread:"
# tested on 2 nodes, 2gpu each
_TESTED = re.compile(r"\s*tested on (\d{1,6}) nodes?, (\d{1,4}) ?gpus? each\s*", re.IGNORECASE)
# # testing output measuring `allReduce()` and `wait()` combined
_HEADING = re.compile(r"#{1,6}\s+(.*)")
_TYPES = {"float": Datatype.FLOAT32, "double": Datatype.FLOAT64, "half": Datatype.FLOAT16}

_TORN_TEXT = "Rows that are cut or damaged were left out."
_OP_TEXT = (
    "Times of calls were left out because their heading names no operation. Name it with collscope"
    " ingest table --op NAME"
)


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """Measurements of every such line: call and wait together, averages over repeats."""
    notes = Notes()
    found: list[Measurement] = []
    heading: Op | None = None
    nodes: int | None = None
    gpus: int | None = None
    named = op_of_program(hints.name) or op_of_text(hints.name)
    last = 0
    for last, raw in enumerate(text_lines(text), start=1):
        line = raw[:400]
        if title := _HEADING.fullmatch(line):
            heading, nodes, gpus = op_of_text(title[1]), None, None
        elif tested := _TESTED.fullmatch(line):
            nodes, gpus = int(tested[1]), int(tested[2])
        elif row := _ROW.fullmatch(line):
            op = hints.op or heading or named
            if op is None or op is Op.UNKNOWN:
                notes.add(Severity.DATA_LOSS, "op_unknown", _OP_TEXT, last, line)
                continue
            datatype = _TYPES[row[2]]
            label = f"nDev per thread: {row[1]}"
            setting = Setting(
                op=op,
                nranks=hints.nranks or (nodes * gpus if nodes and gpus else None) or None,
                nnodes=hints.nnodes or nodes,
                iterations=int(row[5]),
                method="call and wait, average over repeats",
                label=f"{hints.label}: {label}" if hints.label else label,
            )
            count = int(row[3])
            time_us = f"{float(row[4]) * 1e6:.17g}"
            size = count * (datatype.itemsize or 0)
            result = Result(last, size, time_us, count=count, datatype=datatype)
            measured = measure(result, setting, notes)
            found += [] if measured is None else [measured]
        elif line.lstrip().startswith(_BEGIN):
            notes.add(Severity.DATA_LOSS, "torn_row", _TORN_TEXT, last, line)
    return MeasurementSet(DIALECT, tuple(found), lines=last, diagnostics=notes.diagnostics)


READER = Reader(DIALECT, "table", anywhere, lambda source, hints: parse(source.text(), hints.table))
