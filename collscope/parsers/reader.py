"""What every reader of a dialect is: how it recognises its files, and how it reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collscope.model import MeasurementSet, MetricSet, Profile, ProfileSet
    from collscope.model.scanned_log import LogScan
    from collscope.model.trace import RecordedCalls, TraceFile
    from collscope.parsers.hints import Hints

Records: TypeAlias = (
    "MeasurementSet | MetricSet | ProfileSet | LogScan | list[TraceFile] | RecordedCalls"
)


_BEGINNING_CHARACTERS = 4096  # in which a text begins with a table
_DOCUMENT_CHARACTERS = 1 << 20  # in which one is looked for further down


_EXCERPT = 200
_UNENDED_TEXT = (
    "The last row has no line end. If the text is cut there, its last value is incomplete, and "
    "later rows are missing."
)


class Fit(IntEnum):
    """How sure a reader is, by a file's beginning, that it can read the file."""

    NONE = 0
    PART = 1  # a text may hold something of this dialect, among others
    BEGINNING = 2  # it begins with this dialect, and others may follow
    WHOLE = 3  # the file is of this dialect alone


class Database(Protocol):
    """An SQLite file that somebody opened for reading: what readers use of `sqlite3.Connection`."""

    text_factory: Any

    @property
    def DatabaseError(self) -> type[Exception]:  # noqa: N802 - its name there
        """What a damaged file raises."""

    def execute(self, sql: str, /) -> Iterator[tuple[Any, ...]]:
        """Rows of a query."""


class Source(Protocol):
    """A file as a reader gets it: decompressed, within the limits, read as often as needed."""

    @property
    def name(self) -> str:
        """Of the file, without its folder."""

    def chunks(self) -> Iterator[bytes]:
        """All of it, in order, in parts of at least one byte."""

    def read_all(self) -> bytes:
        """All of it; files above a limit are refused."""

    def text(self) -> str:
        """As `read_all`; bytes that are no UTF-8 are replacement characters."""

    def database(self) -> AbstractContextManager[Database | None]:
        """It as an SQLite file, open for reading base tables; None where it cannot be opened."""


class InMemory(msgspec.Struct, frozen=True):
    """Bytes at hand, as a source."""

    parts: Sequence[bytes]
    name: str = ""

    def chunks(self) -> Iterator[bytes]:
        """The parts."""
        return (part for part in self.parts if part)

    def read_all(self) -> bytes:
        """The parts as one."""
        return b"".join(self.parts)

    def text(self) -> str:
        """The parts as text."""
        return text_of(self.read_all())

    def database(self) -> AbstractContextManager[Database | None]:
        """None: SQLite opens files."""
        return nullcontext(None)


class Reader(msgspec.Struct, frozen=True):
    """A dialect. What is wrong inside of a file are diagnostics of its records, never exceptions.

    name   of the dialect
    kind   of the source that it becomes, and the ingest command that asks for it
    sniff  how the first 64 KiB fit
    read   the records with their diagnostics; None where the file is not of this dialect after all
    """

    name: str
    kind: str
    sniff: Callable[[bytes], Fit]
    read: Callable[[Source, Hints], Records | None]


# "\udfff", as Python's json writes a byte of a name that is no UTF-8; no database takes it.
# It begins with what both halves have, which the search looks for alone.
_HALF = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)


def whole_characters(data: bytes) -> bytes:
    r"""Data in which no JSON string escapes half of a character; U+FFFD replaces it.

    >>> whole_characters(rb'"\udfff \ud83d\ude00"')
    b'"\\ufffd \\ud83d\\ude00"'
    """
    # One character is found many times as fast as two.
    escaped = b"\\" in data and b"\\u" in data
    return _HALF.sub(rb"\\ufffd", data) if escaped else data


def text_of(head: bytes) -> str:
    """The first bytes as text; what is no UTF-8, and a character cut in two, are replaced."""
    return whole_characters(head).decode("utf-8-sig", errors="replace")


def whole_if(sniff: Callable[[str], bool]) -> Callable[[bytes], Fit]:
    """A `Reader.sniff` of a dialect that fills its files, recognised by their text."""
    return lambda head: Fit.WHOLE if sniff(text_of(head)) else Fit.NONE


def is_sqlite(head: bytes) -> bool:
    """True for the first bytes of an SQLite file."""
    return head.startswith(b"SQLite format 3\0")


def one_profile(profile: Profile) -> ProfileSet:
    """The profile of a file that holds no other."""
    from collscope.model import ProfileSet, ProfileTable  # noqa: PLC0415 - the scan of a log waits

    return ProfileSet((ProfileTable(1, profile),))


def text_profile_reader(
    name: str,
    sniff: Callable[[str], bool],
    parse: Callable[[str], ProfileSet],
    *,
    alone: bool = False,
) -> Reader:
    """Reader of a profiler's table, with which a text begins, or which is further down in one.

    sniff  true where the table's header, or an equally clear row, is in the text
    alone  a text that begins with it holds nothing else
    """

    def fits(head: bytes) -> Fit:
        if is_sqlite(head):
            return Fit.NONE
        begins = sniff(text_of(head[: 4 * _BEGINNING_CHARACTERS])[:_BEGINNING_CHARACTERS])
        return (Fit.WHOLE if alone else Fit.BEGINNING) if begins else Fit.PART

    def read(source: Source, _hints: Hints) -> ProfileSet | None:
        text = source.text()
        looked_at = (_BEGINNING_CHARACTERS, _DOCUMENT_CHARACTERS)
        if not any(sniff(text[:most]) for most in looked_at):
            return None
        return _with_unended(parse(text), text)

    return Reader(name, "profile", fits, read)


def _with_unended(found: ProfileSet, text: str) -> ProfileSet:
    """The profiles, with a notice where the text ends in a row without a line end.

    A table that was pasted may end so, and one that was cut: then its last value may be a piece.
    """
    from collscope.model import Diagnostic, Severity  # noqa: PLC0415 - the scan of a log waits

    last = text.rpartition("\n")[2].strip()
    # Rules between rows, and lines below a table as "Self CPU time total: 14.2s", are no rows.
    if not any(map(str.isalnum, last)) or ": " in last or not found.tables:
        return found
    *before, table = found.tables
    where = text.count("\n") + 1
    note = Diagnostic(Severity.NOTICE, "torn_last_line", _UNENDED_TEXT, where, last[:_EXCERPT])
    profile = msgspec.structs.replace(table.profile, diagnostics=(*table.profile.diagnostics, note))
    return msgspec.structs.replace(
        found, tables=(*before, msgspec.structs.replace(table, profile=profile))
    )


def trace_reader(
    name: str,
    sniff: Callable[[bytes], bool],
    parse: Callable[[Iterator[bytes], str], list[TraceFile]],
) -> Reader:
    """Reader of a trace, which is read as a stream; times that cannot be true are left out."""

    def read(source: Source, _hints: Hints) -> Records:
        from collscope import stamps  # noqa: PLC0415 - it needs numpy

        found = parse(source.chunks(), source.name)
        return [stamps.believed_trace(trace)[0] for trace in found]

    return Reader(name, "trace", _whole_file(sniff), read)


def recorder_reader(
    name: str, sniff: Callable[[bytes], bool], parse: Callable[[bytes, str], RecordedCalls]
) -> Reader:
    """Reader of a recording, whose file's name may hold rank, host or process.

    Times that cannot be true are left out.
    """

    def read(source: Source, _hints: Hints) -> Records:
        from collscope import stamps  # noqa: PLC0415 - it needs numpy

        return stamps.believed_recording(parse(whole_characters(source.read_all()), source.name))

    return Reader(name, "trace", _whole_file(sniff), read)


def _whole_file(sniff: Callable[[bytes], bool]) -> Callable[[bytes], Fit]:
    return lambda head: Fit.WHOLE if sniff(head) else Fit.NONE


def anywhere(_head: bytes) -> Fit:
    """The `Reader.sniff` of a dialect that may stand anywhere in any text."""
    return Fit.PART
