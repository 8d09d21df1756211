"""`collscope bench allreduce-wrapper` in its forms: text, Markdown, CSV, JSON."""

from __future__ import annotations

from collscope.reports.rendering.csv import to_csv
from collscope.reports.rendering.formats import in_format
from collscope.reports.rendering.layout import (
    NUMBER,
    TEXT,
    Section,
    Table,
    or_unknown,
    scaled,
    table,
)
from collscope.units import count, format_size
from collscope.whatif.wrapper import ElementRow, WrapperTables


def render_wrapper(found: WrapperTables, fmt: str) -> str:
    """In one of `layout.FORMATS`; csv has the rows of all three tests.

    raises  UsageError for another format
    """
    title = "collscope bench allreduce-wrapper"
    return in_format(fmt, found, lambda: _csv(found), lambda: (title, _sections(found)))


def _sections(found: WrapperTables) -> tuple[Section, ...]:
    head = (
        f"{count(found.nranks, 'rank')}, backend {or_unknown(found.backend)}, device "
        f"{or_unknown(found.device)}, library {or_unknown(found.library)}. Blocking all-reduces of "
        "Float32, in place. Times are medians, from the call to the end of its work."
    )
    fusion = table(
        [("mode", TEXT), ("threshold", NUMBER), ("batches", NUMBER), ("smallest", NUMBER),
         ("largest", NUMBER), ("time ms", NUMBER)],
        [
            (r.mode, f"{r.threshold_kib} KiB", r.batches, format_size(min(r.sizes_bytes)),
             format_size(max(r.sizes_bytes)), scaled(r.time_ns, 1e6))
            for r in found.fusion
        ],
    )  # fmt: skip
    return (
        Section("", (head,)),
        Section("Value test", (_elements(found.values, checked=True),)),
        Section("Time test", (_elements(found.times, checked=False),)),
        Section("ResNet50 fusion test", (fusion,)),
    )


def _elements(rows: tuple[ElementRow, ...], *, checked: bool) -> Table:
    columns = [("mode", TEXT), ("floats", NUMBER), ("time us", NUMBER), ("calls", NUMBER)]
    columns += [("wrong elements", NUMBER)] if checked else []
    columns += [("status", TEXT)]
    return table(
        columns,
        [
            (
                r.mode,
                r.elements,
                scaled(r.time_ns, 1e3),
                r.iterations,
                *([r.n_wrong] if checked else ()),
                r.status,
            )
            for r in rows
        ],
    )


def _csv(found: WrapperTables) -> str:
    single = [
        (name, r.mode, r.elements, None, 1, scaled(r.time_ns, 1e3), r.n_wrong)
        for name, rows in (("value", found.values), ("time", found.times))
        for r in rows
    ]
    fused = [
        ("fusion", r.mode, sum(r.sizes_bytes) // 4, r.threshold_kib * 1024, r.batches,
         scaled(r.time_ns, 1e3), None)
        for r in found.fusion
    ]  # fmt: skip
    columns = ("test", "mode", "floats", "threshold_bytes", "batches", "time_us", "n_wrong")
    return to_csv(columns, (*single, *fused))
