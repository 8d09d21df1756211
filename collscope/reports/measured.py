"""The table a replay ends with: one line per class and setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from collscope.model import Measurement
from collscope.reports.layout import NUMBER, TEXT, Section, count, table, to_text
from collscope.units import format_size

_COLUMNS = (
    ("label", TEXT), ("op", TEXT), ("datatype", TEXT), ("redop", TEXT), ("shape", TEXT),
    ("in-place", TEXT), ("ranks", NUMBER), ("size", NUMBER), ("calls", NUMBER),
    ("time us", NUMBER), ("busbw GB/s", NUMBER),
    ("wrong", NUMBER), ("status", TEXT),
)  # fmt: skip
_BAD = ("wrong", "failed", "timeout")


def render_measured(measurements: Sequence[Measurement]) -> str:
    """Text: the classes in the order in which they were measured, then what went wrong.

    Rounds of one class and setting share a line: the median of their medians, the most wrong
    elements and the worst status.
    """
    if not measurements:
        return "Nothing was measured.\n"
    groups: dict[tuple[object, ...], dict[str, list[Measurement]]] = defaultdict(dict)
    for m in measurements:
        groups[_class(m)].setdefault(m.label or "", []).append(m)
    rows = [_row(same) for labels in groups.values() for same in labels.values()]
    # A column that says nothing, such as the label of a single setting, gives its room away.
    told = [i for i in range(len(_COLUMNS)) if any(row[i] is not None for row in rows)]
    if len({m.label for m in measurements}) == 1:
        told = [i for i in told if i != 0]
    body = table([_COLUMNS[i] for i in told], [[row[i] for i in told] for row in rows])
    sections = [Section("", (_where(measurements), body))]
    failures = [m for m in measurements if m.message]
    if failures:
        sections.append(Section("Messages", tuple(dict.fromkeys(_failure(m) for m in failures))))
    return to_text("Replay", sections)


def _class(m: Measurement) -> tuple[object, ...]:
    return (
        m.op, m.datatype, m.redop, m.root, m.count, m.size_bytes, m.in_place, m.nranks, m.nnodes,
        m.shape, m.method,
    )  # fmt: skip


def _row(same: Sequence[Measurement]) -> tuple[object, ...]:
    m = same[0]
    times = [t.time_us_median for t in same if t.time_us_median is not None]
    rates = [t.busbw_gbps for t in same if t.busbw_gbps is not None]
    wrong = [t.n_wrong for t in same if t.n_wrong is not None]
    statuses = [t.status for t in same]
    return (
        m.label, m.op.value, m.datatype and m.datatype.label, m.redop, m.shape, m.in_place,
        m.nranks, None if m.size_bytes is None else format_size(m.size_bytes), m.calls,
        median(times) if times else None, median(rates) if rates else None,
        max(wrong, default=None),
        next((s for s in _BAD if s in statuses), statuses[0]),
    )  # fmt: skip


def _where(measurements: Sequence[Measurement]) -> str:
    """What was measured with, in one sentence."""

    def listed(values: set[str | None]) -> str:
        return ", ".join(sorted(v for v in values if v)) or "unknown"

    m = measurements[0]
    text = (
        f"{count(len({_class(x) for x in measurements}), 'class', 'classes')} on "
        f"{listed({x.backend for x in measurements})}, "
        f"device {listed({x.device for x in measurements})}, "
        f"library {listed({x.library for x in measurements})}, "
        f"method {listed({x.method for x in measurements})}."
    )
    if m.scaled_from is not None:
        text += f" Scaled: the job had {m.scaled_from} ranks, so its times differ."
    return text


def _failure(m: Measurement) -> str:
    size = "" if m.size_bytes is None else f" of {format_size(m.size_bytes)}"
    label = "" if m.label is None else f" ({m.label})"
    return f"{m.op.value}{size}{label}: {m.status}: {m.message}"
