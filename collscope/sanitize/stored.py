"""A store without names: its sources with other names in a new store, matched anew."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from collscope.ingest.match import match_stored
from collscope.ingest.merge import opened_as_current
from collscope.model.trace import RecordedCalls, TraceFile
from collscope.model.trace_collective import TraceCollective
from collscope.sanitize.text import Text
from collscope.store.connection import open_store, transaction
from collscope.store.copy_sources import copy_sources
from collscope.store.trace_columns import (
    decode_recording,
    decode_trace,
    encode_recording,
    encode_trace,
)

# Columns of text that hold words of collscope or of the libraries alone.
_KEPT = {
    "_source": {"kind", "dialect", "library", "library_version"},
    "_comm_handle": {"bus_id"},
    "_kernel": {"kind", "bus_id"},
    "_kernel_total": {"kind"},
    "_kernel_name": {
        "name", "family", "op_hint", "algorithm_hint", "protocol_hint", "redop_hint",
        "datatype_hint",
    },
    "_measurement": {"op", "datatype", "redop", "shape", "status", "backend"},
    "_copy": {"kind", "direction", "status"},
    "_interference": {
        "op", "datatype", "redop", "status", "shape", "backend", "relative_compute_samples",
        "relative_busbw_samples",
    },
    "_diagnostic": {"severity", "code"},
}  # fmt: skip
_HOSTS = {"host", "hostname"}


def sanitize_store(source: Path, made: Path, scratch: Path, text: Text) -> None:
    """Make a store of the sources of another one, under other names.

    raises  InputError for what is no store, or cannot be read or written
    """
    change = _Change(text)
    with opened_as_current(source, scratch) as given, closing(open_store(made)) as target:
        with transaction(target, made):
            copied = copy_sources(given, target, text, change)
        for run in copied.runs:
            match_stored(target, made, run)
        target.execute("PRAGMA journal_mode = DELETE")  # all of it in the one file


class _Change:
    """What becomes of a value of a table."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._blobs: dict[tuple[str, str], Callable[[bytes], bytes]] = {
            ("_trace", "columns"): self._trace,
            ("_recording", "calls"): self._recording,
            ("_segment", "columns"): bytes,  # words of the library, and numbers
        }

    def __call__(self, table: str, column: str, value: object) -> object:
        if isinstance(value, bytes):
            return self._blobs[table, column](value)
        if not isinstance(value, str) or column in _KEPT.get(table, ()):
            return value
        if (table, column) == ("_source", "sha256"):
            sha256, _, kind = value.partition(":")
            return f"{self._text.names.digest(sha256)}:{kind}"
        if (table, column) == ("_source", "path"):
            return self._text.path(value)
        return self._text.host(value) if column in _HOSTS else self._text(value)

    def _trace(self, data: bytes) -> bytes:
        trace = decode_trace(data)
        new: TraceFile = replace(
            trace,
            streams=tuple(map(self._text, trace.streams)),
            collectives=tuple(map(self._collective, trace.collectives)),
            host=self._host(trace.host),
            device=self._optional(trace.device),
        )
        return encode_trace(new)

    def _recording(self, data: bytes) -> bytes:
        recorded = decode_recording(data)
        calls = tuple(
            replace(
                call,
                collective=self._collective(call.collective),
                frames=tuple(map(self._text, call.frames)),
            )
            for call in recorded.calls
        )
        new: RecordedCalls = replace(
            recorded,
            calls=calls,
            host=self._host(recorded.host),
            process=self._optional(recorded.process),
            groups=tuple((self._text(group), ranks) for group, ranks in recorded.groups),
            status=tuple(replace(one, group=self._text(one.group)) for one in recorded.status),
        )
        return encode_recording(new)

    def _collective(self, found: TraceCollective) -> TraceCollective:
        return replace(
            found,
            group=self._optional(found.group),
            description=self._optional(found.description),
        )

    def _host(self, host: str | None) -> str | None:
        return None if host is None else self._text.host(host)

    def _optional(self, text: str | None) -> str | None:
        return None if text is None else self._text(text)
