"""Readers of the registry over bytes at hand."""

from __future__ import annotations

from collections.abc import Sequence

from collscope.model.trace import RecordedCalls, TraceFile
from collscope.parsers import registry
from collscope.parsers.hints import Hints
from collscope.parsers.reader import Fit, InMemory, Reader


def reader_of(head: bytes) -> Reader | None:
    """The reader that takes a trace or a recording which begins so."""
    found = (
        r for r in registry.readers("trace") if r.sniff(head[: registry.HEAD_BYTES]) is Fit.WHOLE
    )
    return next(found, None)


def sniff(head: bytes) -> str | None:
    """Its name."""
    reader = reader_of(head)
    return None if reader is None else reader.name


def parse(chunks: Sequence[bytes], name: str) -> list[TraceFile]:
    """Traces of a file; none where it is no trace."""
    reader = reader_of(b"".join(chunks))
    found = None if reader is None else reader.read(InMemory(chunks, name), Hints())
    return found if isinstance(found, list) else []


def parse_recording(chunks: Sequence[bytes], name: str) -> RecordedCalls | None:
    """A recording; None where the file is none."""
    reader = reader_of(b"".join(chunks))
    found = None if reader is None else reader.read(InMemory(chunks, name), Hints())
    return found if isinstance(found, RecordedCalls) else None
