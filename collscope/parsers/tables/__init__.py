"""Tables of benchmark results, in every dialect, as one set of measurements.

A dialect is one module here and one line below. JSON and CSV files are of one dialect; any other
text may hold tables of several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from collscope.errors import UsageError
from collscope.model import (
    Datatype,
    Diagnostic,
    MeasurementSet,
    Op,
    Severity,
    parse_datatype,
    parse_op,
)
from collscope.parsers.tables import (
    latency_table,
    perf_csv,
    perf_json,
    perf_text,
    summary_table,
)
from collscope.parsers.tables._measure import TableHints
from collscope.parsers.tables._names import op_of_text

__all__ = ["TableHints", "hints", "parse"]

Parse = Callable[[str, TableHints], MeasurementSet]
# Files of one dialect: whether a text is one, and its parser.
_FILES: tuple[tuple[Callable[[str], bool], Parse], ...] = (
    (perf_json.sniff, perf_json.parse),
    (perf_csv.sniff, perf_csv.parse),
)
# Parsers of tables inside any text; empty when the text holds none of their kind.
_TEXTS: tuple[Parse, ...] = (perf_text.parse, latency_table.parse, summary_table.parse)


def hints(
    op: str | None,
    nranks: int | None,
    nnodes: int | None,
    datatype: str | None,
    label: str | None,
) -> TableHints:
    """Hints from a user's words.

    raises  UsageError for an operation or a datatype that is not known
    """
    known_op = None if op is None else op_of_text(op) or parse_op(op)
    if known_op is Op.UNKNOWN:
        names = ", ".join(o.value for o in Op if o is not Op.UNKNOWN)
        raise UsageError(f"--op {op}: not an operation. Choose one of {names}.")
    known_type = None if datatype is None else parse_datatype(datatype)
    if known_type is Datatype.UNKNOWN:
        names = ", ".join(d.value for d in Datatype if d is not Datatype.UNKNOWN)
        raise UsageError(f"--datatype {datatype}: not an element type. Choose one of {names}.")
    return TableHints(known_op, nranks, nnodes, known_type, label)


def parse(text: str, hints: TableHints) -> MeasurementSet | None:
    """Measurements of all tables in a text; None when it holds none and nothing like one.

    hints    what the user says of the tables; it counts more than what they say
    returns  `dialect` joins the names of the dialects found with "+"
    """
    for sniff, parse_file in _FILES:
        if sniff(text):
            return parse_file(text, hints)
    found = [parse_text(text, hints) for parse_text in _TEXTS]
    sets = [s for s in found if s.measurements]
    if not sets:  # a table that could not be used says why, the loss of data first
        why = sorted((d for s in found for d in s.diagnostics), key=_by_severity)
        return replace(found[0], diagnostics=tuple(why)) if why else None
    return replace(
        sets[0],
        dialect="+".join(s.dialect for s in sets),
        measurements=tuple(m for s in sets for m in s.measurements),
        diagnostics=tuple(d for s in found for d in s.diagnostics),
    )


def _by_severity(found: Diagnostic) -> bool:
    return found.severity is not Severity.DATA_LOSS
