"""What every reader of a dialect is: how it tells its own files, and how it reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collscope.model import InterferenceSet, MeasurementSet
    from collscope.parsers.hints import Hints
    from collscope.parsers.memcpy_csv import CopySet
    from collscope.parsers.metrics import MetricSet

Records: TypeAlias = "MeasurementSet | CopySet | InterferenceSet | MetricSet"


class Fit(IntEnum):
    """How sure a reader is, by a file's beginning, that it can read the file."""

    NONE = 0
    PART = 1  # a text may hold something of this dialect, among others
    WHOLE = 2  # the file is of this dialect alone


class Source(Protocol):
    """A file as a reader gets it: decompressed, within the limits, read as often as needed."""

    def text(self) -> str:
        """All of it; bytes that are no UTF-8 are replacement characters."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text at hand, as a source."""

    content: str

    def text(self) -> str:
        """The text."""
        return self.content


@dataclass(frozen=True, slots=True)
class Reader:
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


def text_of(head: bytes) -> str:
    """The first bytes as text; what is no UTF-8, and a character cut in two, are replaced."""
    return head.decode("utf-8-sig", errors="replace")


def whole_if(sniff: Callable[[str], bool]) -> Callable[[bytes], Fit]:
    """A `Reader.sniff` of a dialect that fills its files, told by their text."""
    return lambda head: Fit.WHOLE if sniff(text_of(head)) else Fit.NONE


def anywhere(_head: bytes) -> Fit:
    """The `Reader.sniff` of a dialect that may stand anywhere in any text."""
    return Fit.PART
