"""`collscope roofline` in its forms: text, Markdown, CSV, JSON."""

from __future__ import annotations

from collections.abc import Sequence

from collscope.model.note import Note
from collscope.reports.rendering.csv import records_csv
from collscope.reports.rendering.formats import in_format
from collscope.reports.rendering.layout import (
    NUMBER,
    TEXT,
    WORD,
    Item,
    Section,
    Table,
    scaled,
    table,
)
from collscope.reports.roofline.answer import Roofline
from collscope.roofline.catalogue import SystemRow
from collscope.roofline.tables import BoundRow, RoofRow
from collscope.units import count

_LEGEND = (
    "The value after a slash is that of the network. GPU, node GB/s: one direction. usable: part "
    "of the line rate. source: src was read in the source, std comes from a data sheet or standard "
    "that was not checked again, calc is computed, inf is inferred; high, medium, low: confidence."
)
_CHOICES = 2  # of the library's ranking, in a table


def render_roofline(found: Roofline, fmt: str) -> str:
    """In one of `layout.FORMATS`; csv has the systems, or the roofs by size.

    raises  UsageError for another format
    """
    return in_format(
        fmt, found, lambda: _csv(found.systems or found.roofs), lambda: _readable(found)
    )


def _readable(found: Roofline) -> tuple[str, list[Section]]:
    if found.system is None:
        return "collscope roofline: systems", [Section("", (_systems(found.systems), _LEGEND))]
    return f"collscope roofline: {found.system}", _sections(found)


def _csv(rows: Sequence[SystemRow | RoofRow]) -> str:
    return records_csv(rows[0].__struct_fields__ if rows else (), rows)


def _systems(rows: Sequence[SystemRow]) -> Table:
    columns = [("name", TEXT), ("wiring", TEXT), ("GPUs", NUMBER), ("GPU GB/s", NUMBER),
               ("NICs", NUMBER), ("node GB/s", NUMBER), ("usable / net", TEXT),
               ("in network", TEXT), ("source / net", TEXT), ("what it is", WORD)]  # fmt: skip
    return table(
        columns,
        [
            (r.name, r.wiring, r.gpus, r.gpu_uni_gbps, r.nics, r.node_uni_gbps,
             _usable(r), r.in_network, _sure(r), r.title)
            for r in rows
        ],
    )  # fmt: skip


def _sections(found: Roofline) -> list[Section]:
    assumptions: dict[str, int] = {}  # by number, which rows name
    bounds, roofs = _bounds(found.bounds, assumptions), _roofs(found.roofs, assumptions)
    head = (
        f"{found.title}; {count(found.nranks or 0, 'rank')} on {count(found.nnodes or 0, 'node')}."
        " Bandwidths are bus bandwidths in GB/s, one direction; times are microseconds."
    )
    what = (
        "limit: the most that the fabric allows. reachable: what the library's algorithms reach on "
        "this wiring, with the range over machines of this kind; by: the algorithm that reaches "
        "it (ring, tree, direct, or switches that reduce). factor: bus bandwidth / algorithm "
        "bandwidth. hard limit: no schedule over the links exceeds it. in network: limit where "
        "switches reduce. floor: shortest time of any size. fit: best measured (--fit LABEL). "
        "library's choice: the algorithms that the library's own cost model estimates as fastest, "
        "with time / time of the fastest; Ring, Tree and PAT only, not NVLS or CollNet. "
        "assumptions: numbers of the list below."
    )
    sections = [Section("", (head, what)), Section("Ceilings by operation", (bounds,))]
    if found.roofs:
        sections.append(Section(f"Ceilings of {found.roofs[0].op} by size", (roofs,)))
    listed = tuple(f"{number}  {text}" for text, number in assumptions.items())
    return [
        *sections,
        Section("Assumptions", (Item("Numbers in the column 'assumptions'", listed),)),
    ]


def _bounds(rows: Sequence[BoundRow], assumptions: dict[str, int]) -> Table:
    columns = [("op", TEXT), ("factor", NUMBER), ("limit", NUMBER), ("reachable", NUMBER),
               ("range", TEXT), ("by", TEXT), ("hard limit", NUMBER), ("in network", NUMBER),
               ("floor us", NUMBER), ("range us", TEXT), ("bound by", TEXT),
               ("assumptions", TEXT)]  # fmt: skip
    return table(
        columns,
        [
            (r.op, r.factor, r.limit_gbps, r.reachable_gbps,
             _between(r.reachable_low_gbps, r.reachable_high_gbps), r.algorithm, r.hard_gbps,
             r.in_network_gbps, scaled(r.floor_ns, 1e3),
             _between_us(r.floor_low_ns, r.floor_high_ns), r.limit,
             _numbers(r.assumptions, assumptions))
            for r in rows
        ],
    )  # fmt: skip


def _between(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"{low:.4g}-{high:.4g}"


def _between_us(low_ns: float | None, high_ns: float | None) -> str | None:
    return _between(scaled(low_ns, 1e3), scaled(high_ns, 1e3))


def _sure(row: SystemRow) -> str:
    text = f"{row.source_kind} {row.confidence}"
    return text if row.network_confidence is None else f"{text} / {row.network_confidence}"


def _usable(row: SystemRow) -> str:
    text = f"{row.usable_fraction:g}" + " assumed" * row.usable_assumed
    if row.network_usable_fraction is None:
        return text
    return f"{text} / {row.network_usable_fraction:g}" + " assumed" * row.network_usable_assumed


def _roofs(rows: Sequence[RoofRow], assumptions: dict[str, int]) -> Table:
    columns = [("size B", NUMBER), ("limit", NUMBER), ("reachable", NUMBER), ("fit", NUMBER),
               ("time us", NUMBER), ("range us", TEXT), ("regime", TEXT),
               ("library's choice", TEXT), ("assumptions", TEXT)]  # fmt: skip
    return table(
        columns,
        [
            (r.size_bytes, r.limit_gbps, r.reachable_gbps, r.fit_gbps, scaled(r.time_ns, 1e3),
             _between_us(r.time_low_ns, r.time_high_ns), r.regime,
             ", ".join(r.ranking[:_CHOICES]) or None, _numbers(r.assumptions, assumptions))
            for r in rows
        ],
    )  # fmt: skip


def _numbers(notes: Sequence[Note], known: dict[str, int]) -> str:
    """Numbers of assumptions, given in the order in which they appear."""
    return " ".join(str(known.setdefault(note.text, len(known) + 1)) for note in notes)
