"""From the scanner's rarer lines to records: one parser for each kind of message."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from enum import IntEnum

from collscope.model import Diagnostic, LibraryVersion, LogRecord, Severity
from collscope.model.scanned_log import LogMessages
from collscope.parsers.nccl_log.facts import (
    parse_error,
    parse_net,
    parse_structure,
    parse_warning,
)
from collscope.parsers.nccl_log.lifecycle import parse_init, parse_misc, parse_topology
from collscope.parsers.nccl_log.links import parse_link
from collscope.parsers.nccl_log.settings import parse_built_for, parse_setting, parse_version

NO_PROCESS = 0xFFFFFFFF
"""The scanner's process index of a line of an unknown process."""


class MessageKind(IntEnum):
    """Kind of a message; values are the native scanner's."""

    INIT = 1
    TOPOLOGY = 2
    LINK = 3
    NET = 4
    SETTING = 5
    VERSION = 6
    WARNING = 7
    ERROR = 8
    STRUCTURE = 9
    MISC = 10


_OfProcess = Callable[[int, int, str], LogRecord | None]
_OfAny = Callable[[int | None, int, str], LogRecord | None]

_ANY: dict[int, _OfAny] = {
    MessageKind.NET: parse_net,
    MessageKind.SETTING: parse_setting,
    MessageKind.VERSION: parse_version,
    MessageKind.WARNING: parse_warning,
    MessageKind.ERROR: parse_error,
    MessageKind.STRUCTURE: parse_structure,
}
_PROCESS: dict[int, _OfProcess] = {
    **_ANY,
    MessageKind.INIT: parse_init,
    MessageKind.TOPOLOGY: parse_topology,
    MessageKind.LINK: parse_link,
    MessageKind.MISC: parse_misc,
}

# Known lines that hold nothing to keep: tree listings, paths of the topology search, API calls
# that neither create nor end a communicator.
# NCCL 2.18: Trees [0] 1/-1/-1->0->-1 [1] …
# NCCL 2.28: NET/0-0 :GPU/0-1 (3/20.0/PHB) …      TOPO/NET : Importing network plugins to topology
# NCCL 2.15: ncclGetUniqueId(0x17)
_SILENT = re.compile(
    r"Trees |NVLS Trees |NET/\d+-\d+ |TOPO/NET |nccl(?!Comm(?:InitRank|Split|Destroy|Abort)\b)\w+\("
)


def parse_messages(messages: LogMessages) -> tuple[list[LogRecord], list[Diagnostic]]:
    """Records of the scanner's messages, in the order of the lines.

    Text of a known kind in no known form is counted, one Diagnostic for each kind.
    """
    records: list[LogRecord] = []
    unparsed: Counter[int] = Counter()
    first: dict[int, tuple[int, str]] = {}
    columns = (c.tolist() for c in (messages.process, messages.line, messages.kind))
    for process, line, kind, text in zip(*columns, messages.text, strict=True):
        record: LogRecord | None = None
        if process != NO_PROCESS:
            if parse := _PROCESS.get(kind):
                record = parse(process, line, text)
        elif parse_any := _ANY.get(kind):
            record = parse_any(None, line, text)
        if record is not None:
            records.append(record)
            # NCCL version 2.27.7+cuda12.4 holds two versions.
            if isinstance(record, LibraryVersion) and (
                built_for := parse_built_for(record.process, line, text)
            ):
                records.append(built_for)
        elif not _SILENT.match(text):
            unparsed[kind] += 1
            first.setdefault(kind, (line, text))
    return records, [_unparsed(kind, *first[kind], unparsed[kind]) for kind in sorted(unparsed)]


def _unparsed(kind: int, line: int, text: str, count: int) -> Diagnostic:
    if kind == MessageKind.LINK:
        return Diagnostic(
            severity=Severity.NOTICE,
            code="channel_line_cut",
            message=(
                "Channel lines that end before the transport, perhaps wrapped by a terminal, or "
                "name an unknown one: these transports are missing. Use the log file "
                "(NCCL_DEBUG_FILE), not terminal output."
            ),
            line=line,
            excerpt=text[:200],
            count=count,
        )
    name = next((k.name.lower() for k in MessageKind if k == kind), f"kind {kind}")
    return Diagnostic(
        severity=Severity.INFO,
        code="unparsed_message",
        message=f"Lines of kind {name} in an unknown form; they were not stored.",
        line=line,
        excerpt=text[:200],
        count=count,
    )
