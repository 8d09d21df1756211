"""`collscope bench p2p` in its forms: text, Markdown, CSV, JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from collscope.bench.p2p_plan import LATENCY_BYTES, ONE_WAY, PING_PONG, TWO_WAY
from collscope.model.note import Note, noted
from collscope.reports.p2p.answer import (
    NotMeasured,
    NotReached,
    P2p,
    PairRow,
    SlowPair,
)
from collscope.reports.rendering.csv import records_csv
from collscope.reports.rendering.formats import in_format, in_words
from collscope.reports.rendering.layout import (
    NUMBER,
    TEXT,
    Section,
    Table,
    or_unknown,
    percent,
    scaled,
    table,
)
from collscope.reports.rendering.page import Extras
from collscope.reports.tolerances import MIN_PAIRS
from collscope.units import count, format_size

_MOST_RANKS = 16  # of a matrix that fits a page
_MOST_SLOW = 10
_MOST_NOTICES = 10
_UNITS = {ONE_WAY: "One-way, GB/s", TWO_WAY: "Two-way, GB/s", PING_PONG: "Latency, us"}
_Points = dict[tuple[str, str, int], PairRow]  # variant, test, size


def render_p2p(found: P2p, fmt: str) -> str:
    """In one of `layout.FORMATS`; csv has a row for each pair, size and variant.

    raises  UsageError for another format
    """
    notices = tuple(notice.text for notice in notice_notes(found))
    return in_format(
        fmt,
        in_words(found, notices=notice_notes(found)),
        lambda: records_csv(PairRow.__struct_fields__, found.rows),
        lambda: ("collscope bench p2p", _sections(found, notices)),
        lambda: _extras(found),
    )


def _extras(found: P2p) -> Extras:
    """Imported here: drawing takes longer than the other forms."""
    from collscope.reports.p2p.page import p2p_extras  # noqa: PLC0415

    return p2p_extras(found)


def notice_notes(found: P2p) -> tuple[Note, ...]:
    """What is missing, and what to know of the times."""
    missing = [n for n in found.notices if isinstance(n, NotMeasured)]
    notes = [noted(n, _missing(n)) for n in missing[:_MOST_NOTICES]]
    more = len(missing) - _MOST_NOTICES
    if more > 0:
        notes.append(Note("more_not_measured", {"number": more}, f"{more} more, see --format csv."))
    for notice in found.notices:
        if isinstance(notice, NotReached):
            points = count(notice.points, "pair and size", "pairs and sizes")
            notes.append(noted(notice, f"{points} were not measured."))
        elif isinstance(notice, Note):
            notes.append(notice)
    return tuple(notes)


def _missing(notice: NotMeasured) -> str:
    why = "" if notice.message is None else f": {notice.message}"
    return (
        f"{notice.test} of {format_size(notice.size_bytes)}: {notice.status} in "
        f"{count(notice.cases, 'case')}{why}"
    )


def _sections(found: P2p, notices: tuple[str, ...]) -> Iterator[Section]:
    yield Section("", (_head(found),))
    ends = (found.curve_src, found.curve_dst)
    back = ends[::-1]
    # Of two ranks alone the way back has the same sizes; matrices of two ranks are of little use.
    only_two = all({row.src, row.dst} == set(ends) for row in found.rows)
    both_ways = only_two and any((row.test, row.src) == (ONE_WAY, back[0]) for row in found.rows)
    for src, dst in (ends, back) if both_ways else (ends,):
        curve = _curve(found, src, dst)
        if curve is not None:
            notes = _ceiling(found) if (src, dst) == ends else ()
            unit = ", GB/s" if len(found.variants) > 1 else ""
            yield Section(f"Pair {src}:{dst}{unit}", (curve, *notes))
    if not only_two:
        yield from _over_pairs(found)
    latency = _latency(found)
    if latency is not None:
        yield Section("Latency", (latency,))
    if not only_two:
        yield from _matrices(found)
    if notices:
        yield Section("Notes", notices)


def _head(found: P2p) -> str:
    return (
        f"{count(found.nranks, 'rank')}, backend {or_unknown(found.backend)}, device "
        f"{or_unknown(found.device)}, library {or_unknown(found.library)}. Send/Recv between two "
        "ranks at a time; all other ranks idle. GB/s are 1e9 bytes per second, one direction. "
        f"Latency is half a round trip of {LATENCY_BYTES} bytes."
    )


def _curve(found: P2p, src: int, dst: int) -> Table | None:
    """Bandwidth over size of a pair, variants side by side; None where nothing was measured."""
    points: _Points = {
        (row.variant, row.test, row.size_bytes): row
        for row in found.rows
        if (row.test == ONE_WAY and (row.src, row.dst) == (src, dst))
        or (row.test == TWO_WAY and {row.src, row.dst} == {src, dst})
    }
    sizes = sorted({size for _, _, size in points})
    if not sizes:
        return None
    columns = [("size", NUMBER)]
    cells: list[list[object]] = [[format_size(size)] for size in sizes]
    for test in (ONE_WAY, TWO_WAY):
        for variant in found.variants:
            rows = [points.get((variant, test, size)) for size in sizes]
            if not any(rows):
                continue
            if len(found.variants) == 1:
                columns.append((f"{test} us", NUMBER))
                for cell, row in zip(cells, rows, strict=True):
                    cell.append(row and scaled(row.time_ns, 1e3))
            unit = "GB/s" if len(found.variants) == 1 else variant
            columns.append((f"{test} {unit}", NUMBER))
            for cell, row in zip(cells, rows, strict=True):
                cell.append(row and row.algbw_gbps)
    _add_copies(found, (sizes, points), columns, cells)
    return table(columns, cells)


def _add_copies(
    found: P2p,
    measured: tuple[Sequence[int], _Points],
    columns: list[tuple[str, str]],
    cells: list[list[object]],
) -> None:
    """What the copy engine reaches, and the part of it that the fastest variant does one-way."""
    sizes, points = measured
    copies: Mapping[int, float] = {point.size_bytes: point.algbw_gbps for point in found.copies}
    if not copies:
        return
    columns += [("copy GB/s", NUMBER), ("of copy %", NUMBER)]
    for cell, size in zip(cells, sizes, strict=True):
        rows = [points.get((variant, ONE_WAY, size)) for variant in found.variants]
        best = max((row.algbw_gbps for row in rows if row and row.algbw_gbps), default=None)
        copy = copies.get(size)
        cell += [copy, percent(best / copy) if best and copy else None]


def _ceiling(found: P2p) -> tuple[str, ...]:
    if found.copies or found.backend == "host":
        return ()
    return (
        "The store has no copies between these GPUs. 'collscope bench memcpy' measures what the "
        "copy engine reaches.",
    )


def _matrices(found: P2p) -> Iterator[Section]:
    """Source by destination, for every size that several pairs have."""
    ranks = sorted({end for row in found.rows for end in (row.src, row.dst)})
    if len(ranks) > _MOST_RANKS:
        yield Section(
            "Pairs", (f"A matrix of {len(ranks)} ranks does not fit here. See --format csv.",)
        )
        return
    for test in (ONE_WAY, TWO_WAY, PING_PONG):
        for spread in (s for s in found.spreads if s.test == test):
            size = format_size(spread.size_bytes)
            what = _UNITS[test]
            name = f", {spread.variant}" if len(found.variants) > 1 else ""
            same = [
                row
                for row in found.rows
                if (row.variant, row.test, row.size_bytes)
                == (spread.variant, test, spread.size_bytes)
            ]
            yield Section(f"{what}, {size}{name}", (_matrix(ranks, same),))


def _matrix(ranks: Sequence[int], rows: Sequence[PairRow]) -> Table:
    """Rows are sources, columns destinations; where both send, both cells have their value."""
    cells: dict[tuple[int, int], float | None] = {}
    for row in rows:
        value = scaled(row.time_ns, 1e3) if row.test == PING_PONG else row.algbw_gbps
        cells[row.src, row.dst] = value
        if row.test != ONE_WAY:
            cells[row.dst, row.src] = value
    return table(
        [("from \\ to", NUMBER), *((str(rank), NUMBER) for rank in ranks)],
        [(src, *(cells.get((src, dst)) for dst in ranks)) for src in ranks],
    )


def _over_pairs(found: P2p) -> Iterator[Section]:
    if found.spreads:
        rates = [_spreads(found)] if any(s.test != PING_PONG for s in found.spreads) else []
        yield Section("Over all pairs, GB/s", (*rates, *_slow(found)))


def _spreads(found: P2p) -> Table:
    """Slowest, median and fastest pair by size; of several variants the two that matter."""
    several = len(found.variants) > 1
    columns = [("test", TEXT), ("size", NUMBER), ("pairs", NUMBER)]
    for variant in found.variants:
        names = ("slowest", "median") if several else ("slowest", "median", "fastest")
        columns += [(f"{name} {variant}" if several else name, NUMBER) for name in names]
    of = {(s.test, s.size_bytes, s.variant): s for s in found.spreads}
    body: list[list[object]] = []
    for test, size in dict.fromkeys((s.test, s.size_bytes) for s in found.spreads):
        if test == PING_PONG:
            continue
        same = [of.get((test, size, variant)) for variant in found.variants]
        row: list[object] = [test, format_size(size), max(s.pairs for s in same if s)]
        for s in same:
            row += [s and s.algbw_gbps_min, s and s.algbw_gbps_median]
            row += [] if several else [s and s.algbw_gbps_max]
        body.append(row)
    return table(columns, body)


def _latency(found: P2p) -> Table | None:
    """Half round trips: of the one pair, or of the fastest, median and slowest."""
    rows = [row for row in found.rows if row.test == PING_PONG]
    if not rows:
        return None
    several = len(found.variants) > 1
    columns = [("variant", TEXT)] if several else []
    spreads = {s.variant: s for s in found.spreads if s.test == PING_PONG}
    if spreads:
        columns += [("pairs", NUMBER), ("fastest us", NUMBER), ("median us", NUMBER),
                    ("slowest us", NUMBER)]  # fmt: skip
        body: list[tuple[object, ...]] = [
            (s.variant, s.pairs, s.time_min_ns / 1e3, s.time_median_ns / 1e3, s.time_max_ns / 1e3)
            for s in spreads.values()
        ]
    else:
        columns += [("pair", TEXT), ("latency us", NUMBER), ("MAD us", NUMBER)]
        body = [
            (r.variant, f"{r.src}:{r.dst}", scaled(r.time_ns, 1e3), scaled(r.time_mad_ns, 1e3))
            for r in rows
        ]
    return table(columns, body if several else [line[1:] for line in body])


def _slow(found: P2p) -> list[str]:
    """The pairs that stand out, the worst first, and the rank that they share."""
    if not found.slow_pairs:
        enough = any(s.pairs >= MIN_PAIRS for s in found.spreads)
        nothing = "No pair is slower than the median by more than the noise and 5 %."
        return [nothing] if enough else []
    worst: dict[tuple[str, frozenset[int]], SlowPair] = {}  # they come worst first
    for pair in found.slow_pairs:
        worst.setdefault((pair.variant, frozenset((pair.src, pair.dst))), pair)
    lines = [_slow_line(found, pair) for pair in list(worst.values())[:_MOST_SLOW]]
    if len(worst) > _MOST_SLOW:
        lines.append(f"Further slow pairs: {len(worst) - _MOST_SLOW}.")
    ends = {pair for _, pair in worst}
    shared = frozenset.intersection(*ends)
    if len(ends) > 1 and shared:
        lines.append(f"All these pairs include rank {min(shared)}.")
    return lines


def _slow_line(found: P2p, pair: SlowPair) -> str:
    name = f", {pair.variant}" if len(found.variants) > 1 else ""
    return (
        f"Pair {pair.src}:{pair.dst} stands out: {pair.ratio:.2f} times the median time of the "
        f"pairs ({pair.test}, {format_size(pair.size_bytes)}{name}; noise "
        f"{100 * pair.noise:.0f} %)."
    )
