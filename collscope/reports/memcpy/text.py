"""`collscope bench memcpy` in its forms: text, Markdown, CSV, JSON."""

from __future__ import annotations

from collections.abc import Sequence

from collscope.reports.memcpy.answer import CopyReport, CopyRow
from collscope.reports.rendering.csv import records_csv
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

_Key = tuple[str, int | None, int | None, str, int]  # kind, source, destination, direction, size
_HOST_COLUMNS = (
    ("memcpy", "memcpy"),
    ("window", "window_sync"),
    ("window with open and close", "window_sync_open"),
    ("send/recv async", "send_recv_async"),
    ("send/recv sync", "send_recv_sync"),
)


def render_copies(found: CopyReport, fmt: str) -> str:
    """In one of `layout.FORMATS`; csv and json have every row.

    raises  UsageError for another format
    """
    return in_format(
        fmt,
        found,
        lambda: records_csv(CopyRow.__struct_fields__, found.rows),
        lambda: ("collscope bench memcpy", sections(found)),
    )


def sections(found: CopyReport) -> tuple[Section, ...]:
    """What a person reads; sections without a row are left out."""
    rows = _Rows(found.rows)
    head = (
        f"Device {or_unknown(found.device)}, runtime {or_unknown(found.runtime)}, host "
        f"{or_unknown(found.hostname)}. Times are medians. GB/s are 1e9 bytes per second, one "
        "direction. async: copies run back to back; sync: the host waits for each copy."
    )
    made = [Section("", (head,))]
    made += [_pair(rows, pair) for pair in rows.pairs()[:1]]
    made += _matrices(rows)
    made += [_within(rows), _host_device(rows), _ipc(rows), _host(rows), _windows(rows)]
    made.append(_not_measured(found.rows))
    return tuple(s for s in made if s.blocks)


class _Rows:
    """Rows by what was measured."""

    def __init__(self, rows: Sequence[CopyRow]) -> None:
        self._by_key: dict[_Key, CopyRow] = {
            (r.kind, r.src_device, r.dst_device, r.direction, r.size_bytes): r
            for r in rows
            if r.time_ns is not None
        }

    def pairs(self) -> list[tuple[int, int]]:
        """Source and destination of copies between GPUs, in order."""
        return sorted(
            {
                (src, dst)
                for kind, src, dst, direction, _ in self._by_key
                if kind.startswith("peer_")
                and direction == "one"
                and src is not None
                and dst is not None
            }
        )

    def places(self, kind: str) -> list[tuple[int | None, int | None]]:
        """Source and destination of a kind, in order."""
        found = {(src, dst) for k, src, dst, _, _ in self._by_key if k == kind}
        return sorted(found, key=lambda p: (p[0] is None, p[0] or 0, p[1] is None, p[1] or 0))

    def sizes(self, *kinds: str) -> list[int]:
        return sorted({size for kind, _, _, _, size in self._by_key if kind in kinds})

    def time_us(
        self, kind: str, size: int, place: tuple[int | None, int | None], direction: str = "one"
    ) -> float | None:
        row = self._by_key.get((kind, *place, direction, size))
        return None if row is None else scaled(row.time_ns, 1e3)

    def gbps(
        self, kind: str, size: int, place: tuple[int | None, int | None], direction: str = "one"
    ) -> float | None:
        row = self._by_key.get((kind, *place, direction, size))
        return None if row is None else row.bandwidth_gbps

    def access(self, pair: tuple[int, int]) -> str:
        peer = any(
            r.access == "peer"
            for (k, src, dst, _, _), r in self._by_key.items()
            if k.startswith("peer_") and (src, dst) == pair
        )
        return "peer access enabled" if peer else "without peer access"


def _pair(rows: _Rows, pair: tuple[int, int]) -> Section:
    """The curve of one pair; with the handle's cost where it was measured between the same GPUs."""
    body = []
    for size in rows.sizes("peer_async", "peer_sync"):
        cells: list[object] = [format_size(size)]
        for kind in ("peer_async", "peer_sync", "ipc_sync_open"):
            cells.append(scaled(rows.time_us(kind, size, pair), 1e3))
            cells.append(rows.gbps(kind, size, pair))
        both = pair if rows.gbps("peer_async", size, pair, "both") else (pair[1], pair[0])
        cells.append(rows.gbps("peer_async", size, both, "both"))
        body.append(cells)
    columns = [("size", NUMBER), ("async ms", NUMBER), ("GB/s", NUMBER), ("sync ms", NUMBER),
               ("GB/s", NUMBER), ("with open and close ms", NUMBER), ("GB/s", NUMBER),
               ("both ways GB/s", NUMBER)]  # fmt: skip
    title = f"From GPU {pair[0]} to GPU {pair[1]}, {rows.access(pair)}"
    return Section(title, (table(columns, body),))


def _matrices(rows: _Rows) -> list[Section]:
    """GB/s of all pairs at the largest size that all of them have."""
    pairs = rows.pairs()
    devices = sorted({device for pair in pairs for device in pair})
    sizes = [
        size
        for size in rows.sizes("peer_async")
        if all(rows.gbps("peer_async", size, pair) for pair in pairs)
    ]
    if not sizes:
        return []
    body = [
        [f"from {src}", *(rows.gbps("peer_async", sizes[-1], (src, dst)) for dst in devices)]
        for src in devices
    ]
    columns = [("GB/s", TEXT), *((f"to {dst}", NUMBER) for dst in devices)]
    title = f"Between GPUs, {format_size(sizes[-1])}, async, one direction"
    return [Section(title, (table(columns, body),))]


def _within(rows: _Rows) -> Section:
    places = rows.places("within_async")
    columns = [("size", NUMBER), *((f"GPU {src} GB/s", NUMBER) for src, _ in places)]
    body = [
        [format_size(size), *(rows.gbps("within_async", size, place) for place in places)]
        for size in rows.sizes("within_async")
    ]
    return Section("Within a GPU, async", (table(columns, body),) if body else ())


def _host_device(rows: _Rows) -> Section:
    """All sizes of the first GPU; the largest size of the remaining GPUs."""
    kinds = ("h2d_pinned", "h2d_pageable", "d2h_pinned", "d2h_pageable")
    gpus = sorted(
        {gpu for kind in kinds for p in rows.places(kind) for gpu in p if gpu is not None}
    )
    sizes = rows.sizes(*kinds)
    titles = ("to GPU, pinned", "to GPU, pageable", "from GPU, pinned", "from GPU, pageable")
    columns = [("GPU", NUMBER), ("size", NUMBER), *((f"{t} GB/s", NUMBER) for t in titles)]
    body = []
    for gpu in gpus:
        for size in sizes if gpu == gpus[0] else sizes[-1:]:
            cells = [
                rows.gbps(kind, size, (None, gpu) if kind.startswith("h2d") else (gpu, None))
                for kind in kinds
            ]
            body.append([gpu, format_size(size), *cells])
    return Section("Host and GPU", (table(columns, body),) if body else ())


def _ipc(rows: _Rows) -> Section:
    places = rows.places("ipc_open")
    if not places:
        return Section("", ())
    src, dst = place = places[0]
    columns = [("size", NUMBER), ("open us", NUMBER), ("close us", NUMBER), ("async us", NUMBER),
               ("sync us", NUMBER), ("open, copy, close us", NUMBER)]  # fmt: skip
    kinds = ("ipc_open", "ipc_close", "ipc_async", "ipc_sync", "ipc_sync_open")
    body = [
        [format_size(size), *(rows.time_us(kind, size, place) for kind in kinds)]
        for size in rows.sizes("ipc_open")
    ]
    title = f"IPC handles: a process with GPU {src} copies to GPU {dst} of another"
    return Section(title, (table(columns, body),))


def _host(rows: _Rows) -> Section:
    place = (None, None)
    sizes = rows.sizes(*(kind for _, kind in _HOST_COLUMNS))
    shown = [(title, kind) for title, kind in _HOST_COLUMNS if rows.sizes(kind)]
    columns = [("size", NUMBER), *((f"{title} GB/s", NUMBER) for title, _ in shown)]
    body = [
        [format_size(size), *(rows.gbps(kind, size, place) for _, kind in shown)] for size in sizes
    ]
    return Section("On the host", (table(columns, body),) if body else ())


def _windows(rows: _Rows) -> Section:
    place = (None, None)
    columns = [("size", NUMBER), ("open us", NUMBER), ("close us", NUMBER),
               ("open, copy, close us", NUMBER)]  # fmt: skip
    body = [
        [
            format_size(size),
            *(
                rows.time_us(kind, size, place)
                for kind in ("window_open", "window_close", "window_sync_open")
            ),
        ]
        for size in rows.sizes("window_open")
    ]
    return Section("Shared windows", (table(columns, body),) if body else ())


def _not_measured(rows: Sequence[CopyRow]) -> Section:
    """Rows that are not fine, one line for each reason."""
    groups: dict[tuple[str, str], list[CopyRow]] = {}
    for row in rows:
        if row.status != "ok":
            groups.setdefault((row.status, row.message or ""), []).append(row)
    body: list[tuple[object, ...]] = [
        (
            status,
            ", ".join(dict.fromkeys(row.kind for row in found)),
            ", ".join(dict.fromkeys(format_size(row.size_bytes) for row in found)),
            message or f"{count(sum(row.n_wrong or 0 for row in found), 'byte')} wrong",
        )
        for (status, message), found in groups.items()
    ]
    columns = [("status", TEXT), ("kinds", TEXT), ("sizes", TEXT), ("why", TEXT)]
    made: tuple[Table, ...] = (table(columns, body),) if body else ()
    return Section("Not measured, or wrong", made)
