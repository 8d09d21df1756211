"""The table a replay ends with: one line per class and setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from collscope.model import Measurement, Op
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, table
from collscope.reports.rendering.text import to_text
from collscope.stats import Samples
from collscope.units import count, format_size

_COLUMNS = (
    ("label", TEXT), ("op", TEXT), ("datatype", TEXT), ("redop", TEXT), ("shape", TEXT),
    ("in-place", TEXT), ("ranks", NUMBER), ("size", NUMBER), ("calls", NUMBER),
    ("time us", NUMBER), ("busbw GB/s", NUMBER),
    ("wrong", NUMBER), ("status", TEXT),
)  # fmt: skip
_BAD = ("wrong", "failed", "timeout", "contradictory")


def render_measured(measurements: Sequence[Measurement]) -> str:
    """Text: the classes in the order in which they were measured, then what went wrong.

    Rounds of one class and setting share a line: the median of the medians of those with right
    results, the most wrong elements and the worst status. There must be one.
    """
    groups: dict[tuple[object, ...], dict[str, list[Measurement]]] = defaultdict(dict)
    for m in measurements:
        groups[_class(m)].setdefault(m.label or "", []).append(m)
    rows = [_row(same) for labels in groups.values() for same in labels.values()]
    # A column without information, such as the label of a single setting, is left out.
    used = [i for i in range(len(_COLUMNS)) if any(row[i] is not None for row in rows)]
    if len({m.label for m in measurements}) == 1:
        used = [i for i in used if i != 0]
    body = table([_COLUMNS[i] for i in used], [[row[i] for i in used] for row in rows])
    sections = [Section("", (_where(measurements), body))]
    failures = [m for m in measurements if m.message]
    if failures:
        sections.append(Section("Messages", tuple(dict.fromkeys(_failure(m) for m in failures))))
    return to_text("Replay", sections)


def _class(m: Measurement) -> tuple[object, ...]:
    return (m.collective_class, m.method)


def _row(same: Sequence[Measurement]) -> tuple[object, ...]:
    m = same[0]
    right = [t for t in same if t.right]
    time = _time_us(right)
    # Time and bus bandwidth have the same product in every row of a class.
    products = [t.busbw_gbps * t.time_us_median for t in right if t.busbw_gbps and t.time_us_median]
    wrong = [t.n_wrong for t in same if t.n_wrong is not None]
    statuses = [t.status for t in same]
    return (
        m.label, m.op.value, m.datatype and m.datatype.value, m.redop, m.shape, m.in_place,
        m.nranks, None if m.size_bytes is None else format_size(m.size_bytes), m.calls,
        time, products[0] / time if products and time else None,
        max(wrong, default=None),
        next((s for s in _BAD if s in statuses), statuses[0]),
    )  # fmt: skip


def _time_us(same: Sequence[Measurement]) -> float | None:
    """Median over the rounds of their medians, as in `collscope compare`; None without any."""
    rounds: dict[Hashable, tuple[float, ...]] = {}
    for number, m in enumerate(same):
        if m.time_us_median is not None:
            at = -1 - number if m.round is None else m.round  # without one it is a round of its own
            rounds[at] = rounds.get(at, ()) + (m.samples_us or (m.time_us_median,))
    return Samples(rounds).time_us if rounds else None


def _where(measurements: Sequence[Measurement]) -> str:
    """What was measured with, in one sentence."""

    def listed(values: set[str | None]) -> str:
        return ", ".join(sorted(v for v in values if v)) or "unknown"

    m = measurements[0]
    classes = {_class(x) for x in measurements if x.op is not Op.SEQUENCE}
    text = (
        f"{count(len(classes), 'class', 'classes')} on "
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
