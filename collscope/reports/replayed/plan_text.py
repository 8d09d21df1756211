"""A plan before it runs: its classes, memory and time as comments above its text."""

from __future__ import annotations

from collections.abc import Sequence

from collscope.replay.estimate import Estimate, PlannedClass
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, percent, table
from collscope.reports.rendering.text import to_text
from collscope.units import format_size, format_time

_COLUMNS = (
    ("class", NUMBER), ("in plan", NUMBER), ("op", TEXT), ("shape", TEXT), ("datatype", TEXT),
    ("redop", TEXT),
    ("in-place", TEXT), ("ranks", NUMBER), ("comms", NUMBER), ("size", NUMBER),
    ("calls", NUMBER), ("weight %", NUMBER), ("memory", NUMBER),
)  # fmt: skip


def render_planned(
    rows: Sequence[PlannedClass], needs: Estimate, notices: Sequence[str], text: str
) -> str:
    """A plan file: comments for people, then the plan.

    rows     its classes
    needs    memory and time
    notices  what was left out or assumed when it was made
    text     the plan in its file format
    """
    memory = format_size(needs.send_bytes + needs.recv_bytes)
    time = format_time(needs.seconds * 1e9)
    sentences: tuple[str, ...] = (
        *(f"Note: {notice}." for notice in notices),
        f"Buffers: {memory} on a rank. Expected time: {time} ({needs.assumption}), plus start-up "
        "and verification.",
    )
    cells = [_row(row) for row in rows]
    columns = list(_COLUMNS)
    if any(row.plan_id is not None for row in rows):
        sentences += (
            "class: number in the report, for --only; in plan: number in the plan below.",
        )
    else:
        del columns[1]
        cells = [(row[0], *row[2:]) for row in cells]
    body = table(columns, cells)
    return to_text("Replay plan", [Section("", (*sentences, body))], before="# ") + text


def _row(row: PlannedClass) -> tuple[object, ...]:
    c = row.planned
    return (
        row.id, row.plan_id, c.op.value, c.shape, c.datatype.value, c.redop and c.redop.value,
        c.in_place, row.nranks, len(c.comms), format_size(row.size_bytes), c.calls,
        percent(row.share), format_size(row.send_bytes + row.recv_bytes),
    )  # fmt: skip
