"""The CSV of `bench interference` (schemas/interference-csv.md), also of several launches.

Bandwidths are computed again from time, size and ranks.
"""

from __future__ import annotations

from collscope.model import Interference, MeasurementSet, bus_bandwidth
from collscope.parsers._contradictions import checked_interference
from collscope.parsers._notes import Notes
from collscope.parsers._own_csv import Layout, Row, library_of, numbers_of, read_rows, what_ran
from collscope.parsers._rows import line_count
from collscope.parsers.reader import Reader, whole_if

DIALECT = "interference_csv"
_LAYOUT = Layout(
    f"# collscope.{DIALECT}/",
    "label,round,op,datatype,redop,size_bytes,count,shape,",
    frozenset(("op", "nranks", "rank", "relative_compute", "relative_busbw", "status")),
    frozenset(("ok", "wrong", "failed", "timeout", "uncovered")),
)
_TEXTS = (
    "redop", "shape", "backend", "compute", "compute_description", "channels", "priority",
    "device", "library", "runtime", "environment", "message", "label",
)  # fmt: skip
_INTEGERS = (
    "count", "size_bytes", "nranks", "nnodes", "rank", "samples", "covered", "multiprocessors",
    "round",
)  # fmt: skip
_REALS = (
    "compute_alone_us", "compute_with_us", "relative_compute", "relative_compute_mad",
    "relative_compute_noise", "comm_alone_us", "comm_with_us", "relative_busbw",
    "relative_busbw_mad", "relative_busbw_noise",
)  # fmt: skip
_LISTS = ("relative_compute_samples", "relative_busbw_samples")


def sniff(head: str) -> bool:
    """True when a text begins like an interference CSV."""
    return _LAYOUT.sniff(head)


def parse(text: str) -> MeasurementSet:
    """Measurements of an interference CSV, one per row: a class on one rank.

    returns  nothing from a part of another version (diagnostic ``other_version``), and nothing
             from a last row without a line end (``cut_row``)
    """
    notes = Notes()
    rows = read_rows(text, _LAYOUT, notes)
    found = tuple(m for row in rows if (m := _interference(row, notes)) is not None)
    library, version = library_of(found)
    return MeasurementSet(
        DIALECT, (), library, version, line_count(text), notes.diagnostics, interference=found
    )


def _interference(row: Row, notes: Notes) -> Interference | None:
    # 2 channels,1,AllReduce,Bfloat16,Sum,67108864,33554432,,4,1,0,3,cuda,kernel,…
    what = what_ran(row, notes)
    numbers = what and numbers_of(row, _INTEGERS, _REALS, _LISTS, notes)
    if what is None or numbers is None:
        return None
    op, datatype = what
    size, nranks = numbers.wholes["size_bytes"], numbers.wholes["nranks"]

    def busbw(name: str) -> float | None:
        us = numbers.reals[name]
        return bus_bandwidth(op, size=size, time_s=None if us is None else us * 1e-6, nranks=nranks)

    texts = {name: row.fields.get(name) or None for name in _TEXTS}
    found = Interference(
        op=op,
        datatype=datatype,
        in_place={"1": True, "0": False}.get(row.fields.get("in_place", "")),
        busbw_alone_gbps=busbw("comm_alone_us"),
        busbw_with_gbps=busbw("comm_with_us"),
        host=row.fields.get("hostname") or None,
        status=row.fields["status"],
        line=row.at,
        **texts,  # type: ignore[arg-type]
        **numbers.wholes,  # type: ignore[arg-type]
        **numbers.reals,  # type: ignore[arg-type]
        **numbers.lists,  # type: ignore[arg-type]
    )
    return checked_interference(found, row.nranks, row.line, notes)


READER = Reader(DIALECT, "csv", whole_if(sniff), lambda source, _hints: parse(source.text()))
