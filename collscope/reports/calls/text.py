"""What the readable forms say about the calls: classes, message sizes, communicators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from collscope.reports.calls.answer import MIB, Bin, ClassRow, CommunicatorRow, Histogram, OpCalls
from collscope.reports.rendering.layout import (
    BAR,
    NUMBER,
    PROSE,
    TEXT,
    WORD,
    Table,
    legend,
    percent,
    scaled,
    table,
    without_unknown,
)
from collscope.reports.rendering.origin import Origin, origin
from collscope.reports.report.answer import Report
from collscope.units import count, format_size

_BAR = 20  # characters of the longest bar
_MOST_COMMUNICATORS = 20
_TIME_MEANINGS = {
    "calls timed": "those with a kernel of known time",
    "split": "of these, the calls whose kernel times show waiting and transfer separately",
    "mean transfer us": "over the split calls",
    "mean wait us": "over the kernels of the split calls",
    "kernels ms": "sum over all timed calls and ranks",
    "% waiting": "of the kernel time of the split calls",
}
_CLASS_MEANINGS = {
    "size B": "size of one call as nccl-tests counts it",
    "place": "in place or out of place",
    "% bytes": "share of the bytes of all calls",
    "algorithm": "with protocol and channels, the most common choice in calls with a TUNING line",
}


def classes(report: Report) -> Iterable[str | Table]:
    """Classes: time in kernels where it is known, then sizes, calls and bytes."""
    if not report.classes:
        yield "No calls."
        return
    if any(row.kernel_ns for row in report.classes):
        times = without_unknown(
            _time_table(report.classes), {"mean transfer us", "mean wait us", "% waiting"}
        )
        yield times
        yield legend(times, _TIME_MEANINGS)
    columns = [
        ("class", NUMBER),
        ("op", TEXT),
        ("type/redop", TEXT),
        ("count", NUMBER),
        ("size B", NUMBER),
        ("place", TEXT),
        ("ranks", NUMBER),
        ("nodes", NUMBER),
        ("calls", NUMBER),
        ("total MiB", NUMBER),
        ("% bytes", NUMBER),
        ("algorithm", TEXT),
    ]
    shown = without_unknown(
        table(
            columns,
            (_class_cells(row) for row in report.classes),
            (origin("calls", class_id=row.class_id) for row in report.classes),
        ),
        {"place", "nodes", "algorithm"},
    )
    yield shown
    root = "op rN: root N. " * any(row.root is not None for row in report.classes)
    yield root + legend(shown, _CLASS_MEANINGS)
    nodes = [row.nnodes for row in report.classes]
    if None in nodes and any(nodes):
        yield "Calls whose number of nodes is not known (-) have classes of their own."
    if report.header.classes > len(report.classes):
        more = report.header.classes - len(report.classes)
        yield f"{count(more, 'more class', 'more classes')} not shown."


def _class_cells(row: ClassRow) -> tuple[object, ...]:
    place = {None: None, True: "in", False: "out"}[row.in_place]
    return (
        row.class_id,
        _operation(row),
        "/".join(str(part) for part in (row.datatype, row.redop) if part) or None,
        row.count,
        row.size_bytes,
        place,
        row.nranks,
        row.nnodes,
        row.calls,
        scaled(row.total_bytes, MIB),
        percent(row.share_of_bytes),
        _tuning(row),
    )


def _operation(row: ClassRow) -> str:
    root = f" r{row.root}" if row.root is not None else ""
    backend = f" ({row.backend})" if row.backend != "native" else ""
    shape = f" {row.shape}" if row.shape and row.shape.lower() != row.op.value.lower() else ""
    return f"{row.op}{shape}{root}{backend}"


def _tuning(row: ClassRow) -> str | None:
    parts = [row.algorithm, row.protocol, None if row.channels is None else str(row.channels)]
    return "/".join(part or "-" for part in parts) if any(parts) else None


def _time_table(classes: Sequence[ClassRow]) -> Table:
    columns = [
        ("class", NUMBER),
        ("op", TEXT),
        ("type/redop", TEXT),
        ("size B", NUMBER),
        ("calls timed", NUMBER),
        ("split", NUMBER),
        ("mean transfer us", NUMBER),
        ("mean wait us", NUMBER),
        ("kernels ms", NUMBER),
        ("% waiting", NUMBER),
    ]
    timed = [row for row in classes if row.kernel_ns]
    return table(
        columns,
        (
            (
                row.class_id,
                _operation(row),
                "/".join(str(part) for part in (row.datatype, row.redop) if part) or None,
                row.size_bytes,
                row.seen_calls,
                row.kernel_calls or 0,
                scaled(row.transfer_ns, 1e3),
                scaled(row.wait_ns, 1e3),
                scaled(row.kernel_ns, 1e6),
                percent(_waiting_share(row)),
            )
            for row in timed
        ),
        (origin("classes", class_id=row.class_id) for row in timed),
    )


def _waiting_share(row: ClassRow) -> float | None:
    if row.wait_ns is None or not row.split_ns:
        return None
    return row.wait_ns * (row.kernel_observations or 0) / row.split_ns


def histograms(report: Report) -> Iterable[str | Table]:
    """Message sizes in both sets of bins, with a bar."""
    if not report.histograms:
        yield "No calls of known size."
        return
    yield (
        "Sizes are of one call, as nccl-tests counts them. A bar shows the bin's share of all "
        "calls. The first table has the bins of Cray's pat_report; the second leaves out powers "
        "of two without calls."
    )
    for histogram in report.histograms:
        yield _histogram_table(histogram)
    if report.header.calls_without_size:
        yield f"{count(report.header.calls_without_size, 'call')} of unknown size not shown."


def _histogram_table(histogram: Histogram) -> Table:
    title = "Perftools bin" if histogram.name == "perftools" else "power of two"
    columns = [
        (title, WORD),
        ("calls", NUMBER),
        ("% calls", NUMBER),
        ("total MiB", NUMBER),
        ("", BAR),
        ("calls per operation", PROSE),
    ]
    every = sum(row.calls for row in histogram.bins)
    # of the many powers of two those without calls are left out
    shown = [row for row in histogram.bins if row.calls or histogram.name == "perftools"]
    return table(
        columns,
        (_bin_cells(row, every) for row in shown),
        (_bin_origin(row) if row.calls else None for row in shown),
    )


def _bin_origin(row: Bin) -> Origin:
    """Classes with sizes of the bin."""
    below = "" if row.high_bytes is None else f" AND size_bytes < {row.high_bytes}"
    return Origin("classes", {}, f"size_bytes >= {row.low_bytes}{below}")


def _bin_cells(row: Bin, every: int) -> tuple[object, ...]:
    part = row.calls / every if every else 0.0
    # a bin with calls never looks empty
    bar = "#" * max(round(_BAR * part), 1 if row.calls else 0)
    return (bin_words(row), row.calls, percent(part), row.total_bytes / MIB, bar, _ops(row.ops))


def bin_words(row: Bin) -> str:
    """Sizes of a bin in binary units."""
    low = format_size(row.low_bytes)
    if row.high_bytes is None:
        return f">= {low}"
    if row.low_bytes == 0:
        return f"< {format_size(row.high_bytes)}"
    return f"{low} .. < {format_size(row.high_bytes)}"


def _ops(ops: Sequence[OpCalls]) -> str | None:
    return ", ".join(f"{op.op} {op.calls}" for op in ops) or None


def communicators(rows: Sequence[CommunicatorRow]) -> Iterable[str | Table]:
    """Communicators, siblings of one partition on one line."""
    if not rows:
        yield "None known."
        return
    named = any(row.name for row in rows)
    groups = _siblings(rows)
    several = len(groups) < len(rows)
    each = " each" * several
    columns = [
        ("id", TEXT),
        *([("communicators", NUMBER)] if several else []),
        ("ranks", NUMBER),
        ("nodes", NUMBER),
        ("world ranks", TEXT),
        *([("name", TEXT)] if named else []),
        ("matched by", TEXT),
        (f"calls{each}", NUMBER),
        (f"MiB{each}", NUMBER),
        ("calls per operation", PROSE),
    ]
    shown = groups[:_MOST_COMMUNICATORS]
    yield table(
        columns,
        (_sibling_cells(group, named=named, several=several) for group in shown),
        (
            origin("communicators", comm_id=group[0].comm_id) if len(group) == 1 else None
            for group in shown
        ),
    )
    if several:
        yield "Communicators of equal shape, parent and calls share a line; each: of each of them."
    firsts = [group[0] for group in shown]
    if any(row.world_ranks and row.ranks_seen < (row.nranks or 0) for row in firsts):
        yield "world ranks: only those that the sources cover."
    if any(row.matched_by == "inferred" for row in rows):
        yield (
            "inferred: no record names the ranks, so collscope grouped ranks whose calls match, "
            "apart from calls that a source lacks."
        )
    if len(groups) > _MOST_COMMUNICATORS:
        yield f"{count(len(groups) - _MOST_COMMUNICATORS, 'more line')} not shown."


def _siblings(rows: Sequence[CommunicatorRow]) -> list[list[CommunicatorRow]]:
    """Rows that differ only in their members, the busiest group first."""
    groups: dict[tuple[object, ...], list[CommunicatorRow]] = defaultdict(list)
    for row in rows:
        shape = (row.nranks, row.nnodes, row.parent_id, row.matched_by, row.name)
        groups[(*shape, row.calls, row.total_bytes, row.ops)].append(row)
    return sorted(
        groups.values(),
        key=lambda group: (-group[0].total_bytes, -group[0].calls, group[0].comm_id),
    )


def _sibling_cells(
    group: Sequence[CommunicatorRow], *, named: bool, several: bool
) -> tuple[object, ...]:
    first = group[0]
    ids = [row.comm_id for row in group]
    world = [f"{{{row.world_ranks}}}" for row in group if row.world_ranks]
    return (
        str(ids[0]) if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more",
        *((len(group),) if several else ()),
        first.nranks,
        first.nnodes,
        " ".join(world) or None,
        *((first.name,) if named else ()),
        first.matched_by,
        first.calls,
        first.total_bytes / MIB if first.total_bytes else None,
        _ops(first.ops),
    )
