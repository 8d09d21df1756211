"""RCCL's recorder, text form (``RCCL_REPLAY_FILE=NAME.json``): looks like JSON and is none.

Lines: the *_fmt strings of src/misc/recorder.cc, ROCm/rccl pull request 1603 and later (ROCm 7.0),
with and without ``acc``. A file is not closed when its process is killed.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from collscope.model import Op, Severity
from collscope.model.trace import RecordedCall, RecordedCalls
from collscope.parsers._notes import Notes
from collscope.parsers._sides import CODE, CONTRADICT_TEXT
from collscope.parsers.reader import recorder_reader
from collscope.parsers.recorders._numbering import note_again
from collscope.parsers.recorders._rccl_calls import OPS, Communicators, RawCall, process_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# {
#   version : 1,              older: hostname : node-3, version : 0,
#   AllReduce : [opCount : 1f, sendbuff : [addr : 0x7f, base : 0x7f, size : 2097152], recvbuff : […
_SIGNS = re.compile(
    rb"^\s*(?:hostname : \S+, )?version : \d+,|^\s*\w+ : \[(?:opCount|comm|size|uniqueID) : ",
    re.MULTILINE,
)
_ENTRY = re.compile(r"(\w+) : \[(.*)")
_HOST = re.compile(r"hostname : ([^,\s]{1,255}),")
# "key : value", "key : [", "]" or a number of a list
_TOKEN = re.compile(r"([A-Za-z#][\w #]{0,40}) : (\[)?|(\])|([^\s,\[\]:]+)")
_BRACES = re.compile(r"[\s{},]*")
_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
_DECIMAL = re.compile(r"-?[0-9]{1,20}")
_TIME = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,9})?")
_SINGLE = (
    "opCount", "sendbuff.addr", "recvbuff.addr", "count", "datatype", "op", "root", "comm",
    "nranks", "stream", "globalrank", "context.time", "context.graphID",
)  # fmt: skip
_LONGEST = 1 << 22  # characters of a line; 4 × 65536 counts of an uneven all-to-all fit
_LIMIT = 2**63

_Fields = dict[str, list[str]]


def sniff(head: bytes) -> bool:
    """True for the beginning of a recording in text form."""
    return head.lstrip()[:1] == b"{" and b"\x00" not in head and _SIGNS.search(head) is not None


def parse(data: bytes, name: str) -> RecordedCalls:
    """Calls of one process, in the order of the file.

    name   the file's name, which holds process id and host: ``NAME.PID.HOST.json``
    """
    pid, host = process_of(name)
    reader = _Reader(f"{host}.{pid}")
    for line_number, line in enumerate(data.decode("utf-8", errors="replace").split("\n"), start=1):
        reader.read(line_number, line[:_LONGEST])
    reader.note_contradictions()
    if not reader.calls:
        message = "The recording holds no collectives."
        reader.notes.add(Severity.NOTICE, "no_calls", message, 1)
    return RecordedCalls(
        dialect="rccl_recorder_text",
        calls=tuple(reader.calls),
        host=host or reader.host,
        pid=pid,
        coverage="whole",
        diagnostics=reader.notes.diagnostics,
    )


class _Reader:
    """Calls and communicators read so far."""

    def __init__(self, process: str) -> None:
        self.notes = Notes()
        self.calls: list[RecordedCall] = []
        self.host: str | None = None
        self._communicators = Communicators(process)
        self._seen: set[str] = set()

    def note_contradictions(self) -> None:
        """Count calls whose number of ranks is not that of their communicator."""
        count = self._communicators.contradicting
        self.notes.add(Severity.DATA_LOSS, CODE, CONTRADICT_TEXT, 1, count=count)

    def read(self, line_number: int, line: str) -> None:
        """Take one line."""
        match = _ENTRY.search(line)
        if match is None:
            host = _HOST.search(line)
            self.host = self.host or (host[1] if host else None)
            if line_number > 1:  # the first brace is the file's
                self._group(line.strip(", \r"))
            if not (_BRACES.fullmatch(line) or "version :" in line):
                self._lost(line_number, line)
            return
        name, fields = match[1], _fields(match[2])
        if _time(fields) is not None:
            # Stamped to the microsecond: an equal line is this one again.
            if line in self._seen:
                note_again(self.notes, line=line_number)
                return
            self._seen.add(line)
        if name in OPS:
            self._call(line_number, line, OPS[name], fields)
        elif line.count("[") > line.count("]"):
            self._lost(line_number, line)
        else:
            self._lifecycle(name, fields)

    def _group(self, line: str) -> None:
        #     {                   ncclGroupStart
        #     }                   ncclGroupEnd
        if line == "{":
            self._communicators.group_start()
        elif line == "}":
            self._communicators.group_end()

    def _lost(self, line_number: int, line: str) -> None:
        message = "Lines that are cut or damaged were skipped."
        self.notes.add(Severity.DATA_LOSS, "torn_line", message, line_number, line)

    def _call(self, line_number: int, line: str, op: Op, fields: _Fields) -> None:
        count, comm = _int_field(fields, "count"), _pointer(fields, "comm")
        datatype = _int_field(fields, "datatype")
        # Of a cut line the last number would be a piece of one, and of two lines that run into
        # each other some field appears twice.
        complete = "context.graphID" in fields and all(len(fields.get(f, [])) < 2 for f in _SINGLE)
        if (
            not complete
            or count is None
            or comm is None
            or datatype is None
            or not 0 <= count < _LIMIT
        ):
            self._lost(line_number, line)
            return
        self.calls.append(
            self._communicators.call(
                RawCall(
                    op=op,
                    sendbuff=_pointer(fields, "sendbuff.addr") or 0,
                    recvbuff=_pointer(fields, "recvbuff.addr") or 0,
                    count=count,
                    datatype=datatype,
                    redop=_known(fields, "op"),
                    root=_known(fields, "root"),
                    comm=comm,
                    nranks=_known(fields, "nranks"),
                    rank=_known(fields, "globalrank"),
                    time_ms=_time(fields),
                    sendcounts=_counts(fields, "sendcounts"),
                    recvcounts=_counts(fields, "recvcounts"),
                    captured=_known(fields, "context.captured"),
                )
            )
        )

    def _lifecycle(self, name: str, fields: _Fields) -> None:
        comm = _pointer(fields, "comm")
        if comm is None:
            return
        if name == "CommInitDev" and (unique := _int_field(fields, "uniqueID")) is not None:
            self._communicators.start(comm, unique % 2**64, _int_field(fields, "size"))
        elif name == "CommSplit":
            # The arguments are shifted in recorder.cc: "comm" is the parent, "color" the lower
            # half of the new communicator's address, "key" the colour, "newcomm" the key.
            low, color = _int_field(fields, "color"), _int_field(fields, "key")
            if low is not None and color is not None:
                self._communicators.split(comm, color, 0, low & 0xFFFFFFFF)
        elif name in ("CommDestroy", "CommAbort"):
            self._communicators.end(comm)


def _fields(source: str) -> _Fields:
    """Values by their dotted path: ``sendbuff.addr``; the first of a path counts.

    A line ends with the lists of an uneven all-to-all, behind the bracket that closes the call.
    """
    found: _Fields = {}
    path: list[str] = []
    key = ""
    for name, opening, closing, value in _TOKEN.findall(source):
        if name:
            key = ".".join([*path, name])
            if opening:
                path = [*path[:7], name]
                key = ".".join(path)
        elif closing:
            path = path[:-1]
        elif key:
            found.setdefault(key, []).append(value)
    return found


def _first(fields: Mapping[str, list[str]], key: str) -> str:
    return fields.get(key, [""])[0]


def _int_field(fields: Mapping[str, list[str]], key: str) -> int | None:
    value = _first(fields, key)
    return int(value) if _DECIMAL.fullmatch(value) else None


def _known(fields: Mapping[str, list[str]], key: str) -> int:
    value = _int_field(fields, key)
    return value if value is not None and abs(value) < 2**31 else -1


def _pointer(fields: Mapping[str, list[str]], key: str) -> int | None:
    value = _first(fields, key)
    if value == "(nil)":
        return 0
    match = _HEX.fullmatch(value)
    return int(match[1], 16) if match else None


def _time(fields: Mapping[str, list[str]]) -> float | None:
    value = _first(fields, "context.time")
    found = float(value) if _TIME.fullmatch(value) else math.nan
    return found if math.isfinite(found) else None


def _counts(fields: Mapping[str, list[str]], key: str) -> tuple[int, ...]:
    values = fields.get(key, [])
    plain = all(_DECIMAL.fullmatch(value) and not value.startswith("-") for value in values)
    counts = tuple(map(int, values)) if plain else ()
    return counts if all(count < _LIMIT for count in counts) else ()


READER = recorder_reader("rccl_recorder_text", sniff, parse)
