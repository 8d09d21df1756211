"""One result as rccl-tests writes it to JSON and CSV: the same fields, lower-case names here.

Source: Reporter::addResult of ROCm/rccl-tests src/common.cu (pull requests 93, 110 and 140).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collscope.model import Op, parse_datatype, parse_op
from collscope.parsers._names import op_of_text, redop_of_name
from collscope.parsers.tables._measure import NUMBER, Result, Setting, integer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from collscope.parsers.hints import TableHints

METHOD = "rccl-tests average over ranks"


def result_of(fields: Mapping[str, object], line: int) -> Result | None:
    """Result of fields named size, time, type, …; None when size or time cannot be read."""
    size, time = integer(_text(fields, "size", "bytes")), _text(fields, "time", "us")
    if size is None or not NUMBER.fullmatch(time):
        return None
    kind = _text(fields, "type", "datatype")
    root = _text(fields, "root")
    cycle = integer(_text(fields, "numcycle"))
    return Result(
        line,
        size,
        time,
        integer(_text(fields, "count")),
        parse_datatype(kind) if kind else None,
        redop_of_name(_text(fields, "redop")),
        int(root) if re.fullmatch(r"\d{1,9}", root) else None,
        {"0": False, "1": True}.get(_text(fields, "inplace")),
        _text(fields, "busbw") or None,
        integer(_text(fields, "#wrong")),
        round=cycle + 1 if cycle else None,
    )


def setting_of(fields: Mapping[str, object], hints: TableHints) -> Setting:
    """Operation, ranks and hosts of a result. `ranks` counts processes; without MPI see `gpus`."""
    name = _text(fields, "name", "collective", "op")
    op = parse_op(name)
    if op is Op.UNKNOWN:
        op = op_of_text(name) or Op.UNKNOWN
    processes = integer(_text(fields, "ranks", "world", "nranks"))
    each = integer(_text(fields, "gpusperrank")) or 1
    ranks = processes * each if processes else integer(_text(fields, "gpus"))
    return Setting(
        op=hints.op or op,
        nranks=hints.nranks or ranks or None,
        nnodes=hints.nnodes or integer(_text(fields, "nodes")) or None,
        method=METHOD,
        library="rccl",
        label=_text(fields, "label") or hints.label,
    )


def _text(fields: Mapping[str, object], *names: str) -> str:
    """A field by the first of its names that is there, as text; empty when none is."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            text = str(value).strip()
            return text if len(text) < 100 else ""
    return ""
