"""The CSV of ROCm/rccl's old rccl_replayer (tools/rccl_replayer, ``replayer_data.csv``).

Its bandwidth column puts the number of elements where the number of ranks belongs (dataToCsv in
rcclReplayer.cpp, ROCm/rccl 0cbce2a), so that an AllReduce reads 2·S/t; it is kept as reported and
computed again here. The file lacks the number of ranks.
"""

from __future__ import annotations

from collscope.model import (
    Datatype,
    Measurement,
    MeasurementSet,
    Op,
    Severity,
    algorithm_bandwidth,
    bus_bandwidth,
    parse_datatype,
    parse_op,
    parse_redop,
    size_bytes,
)
from collscope.parsers._notes import CUT_TEXT, Notes, cells, ended_lines
from collscope.parsers._rows import number, parse_int
from collscope.parsers.reader import Reader, whole_if

DIALECT = "rccl_replayer_csv"
HEADER = (
    "callNumber, functionName, inPlace, count(numElements), datatype, op, root, time(msec), "
    "groupCallBusBandwidth(GB/s)"
)
_COLUMNS = cells(HEADER)
# rcclReplayer times one group from host clock to host clock, without warming up.
METHOD = "one call on the host's clock"
_HEAD_CHARACTERS = 4096
_PRINTED = 1e-4  # relative; the tool prints six digits

_TORN_TEXT = "Rows with too few or too many fields were skipped."
_NUMBER_TEXT = "Rows with an unreadable number were skipped."
_CLASS_TEXT = "Rows with an unknown function or datatype were skipped."
_NRANKS_TEXT = (
    "The file does not give the number of ranks, so there is no bus bandwidth. Give it with"
    " collscope ingest csv --ranks N"
)
_TWICE_TEXT = (
    "rccl_replayer prints 2*S/t as the bus bandwidth of an AllReduce, whatever the number of "
    "ranks: it was computed again from the time."
)
_DIFFERS_TEXT = (
    "rccl_replayer's bus bandwidth does not follow from its time, size and ranks: it was computed"
    " again."
)


def sniff(head: str) -> bool:
    """True when one of the first lines is the tool's header."""
    return any(cells(line) == _COLUMNS for line in head[:_HEAD_CHARACTERS].splitlines())


def parse(text: str, nranks: int | None = None) -> MeasurementSet:
    """Measurements of an rccl_replayer CSV, one per row, which is one call.

    nranks   ranks of the communicator; None: not known, so no bus bandwidth
    returns  `line` is the row's line; the tool's call numbers are not unique and not kept; nothing
             from a last row without a line end (``cut_row``)
    """
    notes = Notes()
    found: list[Measurement] = []
    begun, last = False, 0
    for last, line, ended in ended_lines(text):
        values = cells(line)
        if values == _COLUMNS:
            begun = True
        elif begun and line.strip() and not ended:
            notes.add(Severity.DATA_LOSS, "cut_row", CUT_TEXT, last, line)
        elif begun and line.strip():
            measurement = _row(values, line, nranks, notes, last)
            if measurement is not None:
                found.append(measurement)
    return MeasurementSet(DIALECT, tuple(found), "rccl", None, last, notes.diagnostics)


def _row(
    values: list[str], line: str, nranks: int | None, notes: Notes, at: int
) -> Measurement | None:
    # 3, AllReduce, 1, 268435456, Float16, Sum, 0, 3.25299, 330.079
    if len(values) != len(_COLUMNS):
        notes.add(Severity.DATA_LOSS, "torn_row", _TORN_TEXT, at, line)
        return None
    _, function, in_place, elements, type_name, redop, root, milliseconds, reported = values
    op = Op.SEND_RECV if function == "Send/Recv" else parse_op(function)
    datatype, reduction = parse_datatype(type_name), parse_redop(redop)
    if op is Op.UNKNOWN or datatype is Datatype.UNKNOWN:
        notes.add(Severity.DATA_LOSS, "unknown_class", _CLASS_TEXT, at, line)
        return None
    count, time_ms = parse_int(elements), number(milliseconds)
    if count is None or not time_ms:
        notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, at, line)
        return None
    size = size_bytes(op, count=count, datatype=datatype, nranks=nranks)
    busbw = bus_bandwidth(op, size=size, time_s=time_ms / 1e3, nranks=nranks)
    printed = number(reported)
    _judge(op, size, time_ms, printed, busbw, (notes, at, line))
    if nranks is None:
        notes.add(Severity.NOTICE, "nranks_unknown", _NRANKS_TEXT, at)
    time_us = time_ms * 1e3
    return Measurement(
        op=op,
        datatype=datatype,
        redop=reduction.value if op.reduces and reduction else None,
        root=parse_int(root) if op.rooted else None,
        count=count,
        size_bytes=size,
        in_place={"1": True, "0": False}.get(in_place),
        nranks=nranks,
        time_us_median=time_us,
        time_us_min=time_us,
        time_us_max=time_us,
        iterations=1,
        algbw_gbps=algorithm_bandwidth(size, time_ms / 1e3),
        busbw_gbps=busbw,
        reported_busbw_gbps=None if printed is None else float(printed),
        method=METHOD,
        backend="hip",
        samples_us=(time_us,),
        line=at,
    )


def _judge(
    op: Op,
    size: int | None,
    time_ms: float,
    printed: float | None,
    busbw: float | None,
    where: tuple[Notes, int, str],
) -> None:
    """Warn of a printed bandwidth that is not the bus bandwidth."""
    notes, at, line = where
    if printed is None or (busbw is not None and abs(printed - busbw) <= _PRINTED * busbw):
        return
    if op is Op.ALL_REDUCE and size is not None:
        twice = 2 * size / time_ms / 1e6
        if abs(printed - twice) <= _PRINTED * twice:
            notes.add(Severity.NOTICE, "reported_busbw_is_2S_over_t", _TWICE_TEXT, at, line)
            return
    if busbw is not None:
        notes.add(Severity.NOTICE, "reported_busbw_differs", _DIFFERS_TEXT, at, line)


READER = Reader(
    DIALECT, "csv", whole_if(sniff), lambda source, hints: parse(source.text(), hints.nranks)
)
