"""Traces of rocprofv3 in its JSON output: dispatches and copies of every agent, with times.

Layout: source/lib/output/generateJSON.cpp of ROCm/rocprofiler-sdk. The document has one entry per
process. RCCL calls, where traced, give the operation of the kernels they launched, never a size.
"""

from __future__ import annotations

import re
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING

import msgspec

from collscope.model import Diagnostic, Severity
from collscope.parsers.reader import trace_reader
from collscope.parsers.traces._array import ArrayReader
from collscope.parsers.traces.rocprof_build import trace_files
from collscope.parsers.traces.rocprof_records import SECTIONS, Document, Node, Process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Never

    from collscope.model.trace import TraceFile

_TOOL = re.compile(rb'\A\s*\{\s*"rocprofiler-sdk-tool"\s*:')
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NODE = re.compile(rb'"node"\s{0,99}:\s{0,99}(\{[^{}]{0,4096}\})')


def sniff(head: bytes) -> bool:
    """True for the beginning of rocprofv3's JSON output."""
    return bool(_TOOL.match(head))


def parse(chunks: Iterable[bytes], name: str) -> list[TraceFile]:
    """One trace per process and agent that executed something.

    chunks   the decompressed file, in order
    name     what diagnostics call the file
    """
    held = BytesIO()  # gives out what it holds without a second copy
    held.writelines(chunks)
    text = held.getvalue()
    try:
        document = msgspec.json.decode(text, type=Document, strict=False)
    except _ERRORS:
        return _salvaged(text, name)
    del held, text  # as large as all that is made of it
    return [file for process in document.tool for file in trace_files(process, [])]


def _salvaged(text: bytes, name: str) -> list[TraceFile]:
    """What can be read of a damaged document: each of its arrays on its own, up to the damage."""
    process, cut, malformed = Process(), False, 0
    for key, kind, target in SECTIONS:
        opening = re.compile(rb'"%b"\s{0,99}:\s{0,99}\[' % key)
        reader: ArrayReader[object, Never] = ArrayReader([text], opening, partial(_same, kind))
        found = [element for part in reader for element in part]
        # An array that never opened is not cut.
        cut |= reader.cut and len(reader.head) < len(text)
        malformed += reader.malformed + reader.deep
        target(process).extend(found)
    process.metadata.node = _node(text)
    problems = []
    if malformed:
        message = "Malformed records were skipped."
        code = "malformed_record"
        problems.append(Diagnostic(Severity.DATA_LOSS, code, message, count=malformed))
    if cut or not malformed:
        message = f"{name} is damaged or ends inside its records: complete records were kept."
        problems.append(Diagnostic(Severity.DATA_LOSS, "truncated_trace", message))
    return trace_files(process, problems)


def _same(kind: type[object], _text: bytes) -> type[object]:
    return kind


def _node(text: bytes) -> Node | None:
    found = _NODE.search(text)
    try:
        return msgspec.json.decode(found[1], type=Node) if found else None
    except _ERRORS:
        return None


READER = trace_reader("rocprof_json", sniff, parse)
