"""Parsers of call recorders (no GPU times), and which of them reads a file.

Each offers ``sniff(head) -> bool`` and ``parse(data, name) -> RecordedCalls``. A new dialect is one
module here and one line in the registry. Modules are imported when asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from collscope import stamps

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from collscope.model.trace import RecordedCalls

# The binary recording has no magic number, so it is asked last.
RECORDER_DIALECTS = (
    "flight_pickle",
    "flight_recorder",
    "inspector",
    "profiler_plugin",
    "rccl_recorder_text",
    "rccl_recorder_binary",
)
HEAD = 65_536
"""Bytes that sniffing looks at."""


def recorder_parser(head: bytes) -> ModuleType | None:
    """Parser of a recording that begins so; None if no dialect fits."""
    modules = (import_module(f"{__name__}.{dialect}") for dialect in RECORDER_DIALECTS)
    return next((module for module in modules if module.sniff(head[:HEAD])), None)


def sniff(head: bytes) -> str | None:
    """Dialect of a recording that begins so; None if none fits.

    >>> sniff(b'{"header":{"id":"0x1","rank":0},"metadata":{},"coll_perf":{"coll":"AllReduce"}}')
    'inspector'
    """
    module = recorder_parser(head)
    return None if module is None else module.__name__.rpartition(".")[2]


def parse(chunks: Iterable[bytes], name: str) -> RecordedCalls | None:
    """Records of a recording; None when no dialect fits its beginning.

    chunks   the decompressed file, in order
    name     the file's name: some dialects tell rank, host or process nowhere else
    """
    data = b"".join(chunks)
    module = recorder_parser(data[:HEAD])
    if module is None:
        return None
    found: RecordedCalls = module.parse(data, name)
    return stamps.believed_recording(found)
