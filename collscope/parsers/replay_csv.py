"""The CSV of `collscope replay` (schemas/replay-csv.md), also several appended to one file.

Rows are read one by one, so a torn line costs only itself. Bandwidths are computed again from
time, size and ranks, so that every figure of the store comes from one place.
"""

from __future__ import annotations

from typing import Any

from collscope.model import (
    Measurement,
    MeasurementSet,
    Severity,
    algorithm_bandwidth,
    bus_bandwidth,
)
from collscope.parsers._contradictions import checked_measurement
from collscope.parsers._notes import Notes
from collscope.parsers._own_csv import Layout, Row, library_of, numbers_of, read_rows, what_ran
from collscope.parsers._rows import line_count, number
from collscope.parsers.reader import Reader, whole_if

DIALECT = "replay_csv"
_LAYOUT = Layout(
    "# collscope-replay:",
    "op,datatype,redop,root,count,",
    frozenset(("op", "nranks", "time_us_median", "status")),
    frozenset(("ok", "wrong", "failed", "timeout", "skipped")),
)
_TOLERANCE = 0.005  # of a bandwidth computed again, for the digits that the file rounds away
# Columns of the file are fields of the record by the same name, but for what is computed here.
_COMPUTED = {"algbw_gbps", "busbw_gbps", "reported_busbw_gbps", "line"}
_READ = {name: of for name, of in Measurement.__annotations__.items() if name not in _COMPUTED}
_INTEGERS = tuple(name for name, of in _READ.items() if of == "int | None")
_REALS = tuple(name for name, of in _READ.items() if of == "float | None")
_TEXTS = tuple(name for name, of in _READ.items() if of == "str | None")

_TEXTS_OF = {
    "algbw": "The bandwidth in the file does not follow from its time and size: it was computed"
    " again.",
    "busbw": "The bus bandwidth in the file does not follow from its time, size and ranks: it was"
    " computed again.",
}


def sniff(head: str) -> bool:
    """True when a text begins like a replay CSV."""
    return _LAYOUT.sniff(head)


def parse(text: str) -> MeasurementSet:
    """Measurements of a replay CSV, one per row.

    returns  nothing from a part of another version (diagnostic ``other_version``), and nothing
             from a last row without a line end (``cut_row``)
    """
    notes = Notes()
    rows = read_rows(text, _LAYOUT, notes)
    found = tuple(m for row in rows if (m := _measurement(row, notes)) is not None)
    library, version = library_of(found)
    return MeasurementSet(DIALECT, found, library, version, line_count(text), notes.diagnostics)


def _measurement(row: Row, notes: Notes) -> Measurement | None:
    # AllReduce,Bfloat16,Sum,,4194304,8388608,1,4,1,26,61.2,60.9,63.0,0.1,420,137.0,205.6,0,batch,…
    what = what_ran(row, notes)
    numbers = what and numbers_of(row, _INTEGERS, _REALS, ("samples_us",), notes)
    if what is None or numbers is None:
        return None
    op, datatype = what
    read: dict[str, Any] = {**numbers.wholes, **numbers.reals}
    read |= {name: row.fields.get(name) or None for name in _TEXTS}
    size, median = read["size_bytes"], read["time_us_median"]
    seconds = None if median is None else median * 1e-6
    busbw = bus_bandwidth(op, size=size, time_s=seconds, nranks=read["nranks"])
    read["label"] = read["label"] or row.label
    found = Measurement(
        op=op,
        datatype=datatype,
        in_place={"1": True, "0": False}.get(row.fields.get("in_place", "")),
        algbw_gbps=algorithm_bandwidth(size, seconds),
        busbw_gbps=busbw,
        status=row.fields["status"],
        samples_us=numbers.lists["samples_us"],
        line=row.at,
        **read,
    )
    checked = checked_measurement(found, row.nranks, row.line, notes)
    if checked is found:
        _compare(row, found, notes)
    return checked


def _compare(row: Row, found: Measurement, notes: Notes) -> None:
    """Note a bandwidth in the file that is not the one computed here."""
    for of, computed in (("algbw", found.algbw_gbps), ("busbw", found.busbw_gbps)):
        reported = row.fields.get(f"{of}_gbps", "")
        value = number(reported)
        if reported and (
            value is None
            or computed is None
            or abs(value - computed) > _TOLERANCE * computed + 1e-4
        ):
            notes.add(Severity.NOTICE, f"{of}_differs", _TEXTS_OF[of], row.at, row.line)


READER = Reader(DIALECT, "csv", whole_if(sniff), lambda source, _hints: parse(source.text()))
