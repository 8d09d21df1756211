"""JSON of NCCL's RAS (``ncclras -f json``, NCCL 2.28.7 on): collectives launched by each rank.

Fields: src/ras/client_support.cc of NCCL 2.30.7, and ``ncclras -m -f json`` for its events. A
snapshot of counters is no call: figures are kept, and ranks that are apart or missing are reported.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING

from collscope.model import Metric, MetricSet, Severity
from collscope.parsers._notes import Notes
from collscope.parsers._rows import line_count
from collscope.parsers.reader import Reader, whole_if

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from collscope.parsers.hints import MetricHints

DIALECT = "ras_json"
_DECODER = json.JSONDecoder()
# {  "nccl_version": "2.29.1", …  "communicators_count": 1,  "communicators": [
# {  "timestamp": "2025-12-19 13:07:07",  "group": "LIFECYCLE",  "event": "PEER_DEAD", …
_START = re.compile(r'\s*\{\s*"(?:nccl_version|timestamp)"\s*:')
_OWN = re.compile(r'"communicators_count"\s*:|"group"\s*:\s*"[A-Z_]+"\s*,\s*"event"\s*:')
_NAMED = 8  # ranks named in a message

_CUT_TEXT = "The JSON ends early or is damaged: snapshots up to there were kept."


def sniff(text: str) -> bool:
    """True for a snapshot, or the first event of the monitor."""
    return _START.match(text) is not None and _OWN.search(text) is not None


def parse(text: str, hints: MetricHints) -> MetricSet | None:
    """Least and most calls launched, of each operation and communicator, over its ranks.

    returns  diagnostics: ranks that did not answer, that have an error, that launched fewer calls
             than others, and processes that died; None where the text holds nothing of RAS
    """
    notes = Notes()
    found: list[Metric] = []
    for line, record in _objects(text, notes):
        if "communicators" in record:
            at = str(record.get("timestamp", ""))[:40]
            for communicator in _list(record.get("communicators")):
                found += _communicator(communicator, at, line, hints, notes)
        elif "event" in record:
            peer = record.get("peer")
            where = json.dumps(peer)[:150] if isinstance(peer, dict) else ""
            message = "RAS reports an event: a process died, or came and went."
            notes.add(Severity.NOTICE, "ras_event", message, line, f"{record['event']} {where}")
    if not found and not notes.diagnostics:
        return None
    return MetricSet(DIALECT, tuple(found), line_count(text), notes.diagnostics)


def _objects(text: str, notes: Notes) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Objects behind each other, as the monitor prints them, with their lines."""
    at = text.find("{")
    while at >= 0:
        line = text.count("\n", 0, at) + 1
        try:
            record, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            notes.add(Severity.DATA_LOSS, "cut_json", _CUT_TEXT, line)
            return
        if isinstance(record, dict):
            yield line, record
        at = text.find("{", at)


def _communicator(
    communicator: Mapping[str, object], at: str, line: int, hints: MetricHints, notes: Notes
) -> list[Metric]:
    name, size = str(communicator.get("hash"))[:40], communicator.get("size")
    ranks = _list(communicator.get("ranks"))
    missing = [str(rank.get("rank")) for rank in _list(communicator.get("missing_ranks"))]
    if missing:
        message = f"Ranks of {size}-rank communicators did not answer RAS."
        notes.add(Severity.NOTICE, "ras_missing_ranks", message, line, f"{name}: {_few(missing)}")
    ailing = [
        str(rank.get("rank"))
        for rank in ranks
        if _mapping(rank.get("status")).get("async_error") not in (0, None)
        or _mapping(rank.get("status")).get("abort_flag") is True
    ]
    if ailing:
        message = "Ranks report an asynchronous error or are aborted."
        notes.add(Severity.NOTICE, "ras_errors", message, line, f"{name}: {_few(ailing)}")
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for rank in ranks:
        for op, value in _mapping(rank.get("collective_counts")).items():
            if type(value) is int and 0 <= value < 1 << 63:
                counts[str(op)[:40]][str(rank.get("rank"))] = value
    label = hints.label or f"{name} {at}".strip()
    found = [Metric("ranks that answered", len(ranks), "ranks", None, label, line)]
    for op, by_rank in counts.items():
        least, most = min(by_rank.values()), max(by_rank.values())
        if not most:
            continue
        if least != most:
            behind = [rank for rank, value in by_rank.items() if value < most]
            message = (
                "Some ranks of a communicator have launched fewer calls of an operation than"
                " others. Take another snapshot: ranks whose counts have not changed are stuck."
            )
            excerpt = f"{name}: {op} {most}, but {_few(behind)} at least {least}"
            notes.add(Severity.NOTICE, "ras_ranks_behind", message, line, excerpt)
        found += [
            Metric(
                f"{op} launched, {which} of {len(by_rank)} ranks", value, "calls", None, label, line
            )
            for which, value in (("least", least), ("most", most))
        ]
    return found


def _few(ranks: list[str]) -> str:
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(ranks[:_NAMED])}{more}"


def _list(value: object) -> list[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


READER = Reader(
    DIALECT, "metric", whole_if(sniff), lambda source, hints: parse(source.text(), hints.metric)
)
