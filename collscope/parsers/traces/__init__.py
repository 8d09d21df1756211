"""Parsers of traces with GPU times, and which of them reads a file.

Each offers ``sniff(head) -> bool`` and ``parse(chunks, name) -> list[TraceFile]``. A new dialect
is one module here and one line in the registry. Modules are imported when asked for.
"""

from __future__ import annotations

from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING

from collscope import stamps

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from collscope.model.trace import TraceFile

TRACE_DIALECTS = ("rocprof_json", "kineto")
_HEAD = 65_536  # bytes that sniffing looks at


def trace_parser(head: bytes) -> ModuleType | None:
    """Parser of a trace whose text begins so; None if no dialect fits."""
    modules = (import_module(f"{__name__}.{dialect}") for dialect in TRACE_DIALECTS)
    return next((module for module in modules if module.sniff(head)), None)


def sniff(head: bytes) -> str | None:
    """Dialect of a trace whose text begins so: ``kineto``, ``rocprof_json``; None if none fits.

    >>> sniff(b'{"schemaVersion": 1, "traceEvents": [')
    'kineto'
    """
    module = trace_parser(head)
    return None if module is None else module.__name__.rpartition(".")[2]


def parse(chunks: Iterable[bytes], name: str) -> list[TraceFile]:
    """Records of a trace: one per rank or device; none when no dialect fits its beginning.

    chunks   the decompressed file, in order
    name     what diagnostics call the file
    """
    parts, head = iter(chunks), b""
    for part in parts:
        head += part
        if len(head) >= _HEAD:
            break
    module = trace_parser(head[:_HEAD])
    if module is None:
        return []
    found: list[TraceFile] = module.parse(chain([head], parts), name)
    return [stamps.believed_trace(trace)[0] for trace in found]
