"""`collscope compare`: labels and traced runs side by side, in every format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from collscope.model import CollectiveClass
from collscope.model.note import noted
from collscope.reports.compare.answer import ClassComparison, Comparison, curves
from collscope.reports.rendering.class_words import place_words, where_words
from collscope.reports.rendering.csv import to_csv
from collscope.reports.rendering.formats import in_format, in_words
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, Table, percent, scaled, table
from collscope.reports.rendering.note_words import note_sentence, note_words
from collscope.reports.rendering.page import Extras
from collscope.reports.rendering.step_words import PAIRED, heading_names, runs_words, step_sections
from collscope.units import count

if TYPE_CHECKING:
    from collscope.roofline.roof import Roofs

_COMPARE_CSV = (
    "op", "datatype", "redop", "nranks", "in_place", "shape", "size_bytes", "weight", "label",
    "status", "time_us", "busbw_gbps", "speed_up", "low", "high", "root", "nnodes", "part", "rank",
)  # fmt: skip
_TRANSFERS_ONLY = (
    "Transfer times only, without waiting. The step may change less, or in the other direction."
)


def render_compare(comparison: Comparison, fmt: str, roofs: Roofs | None = None) -> str:
    """A comparison in one of `layout.FORMATS`; csv has a row for each class and label.

    roofs   of the system whose ceilings a page draws
    raises  UsageError for another format
    """
    kind = "labels" if comparison.traced is None else "traced runs"
    title = f"collscope compare, {len(comparison.labels)} {kind}"
    return in_format(
        fmt,
        msgspec.to_builtins(
            in_words(comparison, notes=[noted(note, note_words(note)) for note in comparison.notes])
        ),
        lambda: to_csv(_COMPARE_CSV, _compare_rows(comparison)),
        lambda: (title, _compare_sections(comparison)),
        lambda: _extras(comparison, roofs),
    )


def _compare_sections(comparison: Comparison) -> list[Section]:
    letters = [_letter(number) for number in range(len(comparison.labels))]
    short = heading_names(comparison.labels, letters)
    crossovers = tuple(_crossovers(comparison, short)) or (
        "None: no label is faster at some sizes and slower at other sizes, beyond the noise.",
    )
    head = Section("", (_headline(comparison), *map(note_sentence, comparison.notes)))
    caveat = () if comparison.traced is None else (_TRANSFERS_ONLY,)
    classes = [
        Section("Totals", (*caveat, _totals(comparison, short))),
        Section("Classes", tuple(_class_tables(comparison, short))),
        Section("Crossovers", crossovers),
    ]
    if comparison.traced is None:
        return [head, *classes]
    return [
        head,
        *step_sections(comparison.traced, short),
        *(classes if comparison.classes else ()),
    ]


def _letter(number: int) -> str:
    """A to Z, then A1, B1 and so on."""
    turn, letter = divmod(number, 26)
    return chr(ord("A") + letter) + (str(turn) if turn else "")


def _headline(comparison: Comparison) -> str:
    n = count(len(comparison.classes), "common class", "common classes")
    if comparison.traced is not None:
        classes = "No class has a known transfer time in every run."
        if comparison.classes:
            classes = (
                "The time of a class is the transfer of a call: the mean in each step, then the"
                f" median over the steps. {n}, weighted by the calls of {comparison.labels[0]}."
            )
        return (
            f"{runs_words(comparison.traced)} {classes} Speed-up: time of the first run / time of"
            " this run (~: within the noise)."
        )
    weight = "each with equal weight" if comparison.run is None else (
        f"weighted by the calls of run {comparison.run}"
    )  # fmt: skip
    return (
        f"{n}, {weight}. Speed-up: time of the first label / time of this label"
        " (~: within the noise)."
    )


def _totals(comparison: Comparison, short: dict[str, str]) -> Table:
    lettered = any(label != name for label, name in short.items())
    columns = [*([("", TEXT)] if lettered else []), ("label", TEXT), ("speed-up", NUMBER),
               ("95 % from", NUMBER), ("to", NUMBER)]  # fmt: skip
    weighted = comparison.run is not None
    what = "collective" if comparison.traced is None else "transfer"
    columns += [(f"job's {what} time %", NUMBER)] if weighted else []
    rows = []
    for t in comparison.totals:
        row: list[object] = [*([short[t.label]] if lettered else []), t.label, t.speed_up]
        row += [t.low, t.high, *([percent(t.time_ratio)] if weighted else [])]
        rows.append(row)
    return table(columns, rows)


def _class_tables(comparison: Comparison, short: dict[str, str]) -> list[str | Table]:
    """One table per curve: sizes down, labels across."""
    blocks: list[str | Table] = []
    if any(cell.paired for row in comparison.classes for cell in row.cells):
        blocks.append(PAIRED)
    weighted = comparison.run is not None
    for rows in curves(comparison.classes):
        blocks.append(_curve_name(rows[0].key))
        columns = [("size B", NUMBER), *([("% of time", NUMBER)] if weighted else [])]
        for label in comparison.labels:
            columns += [(f"{short[label]} us", NUMBER), ("busbw GB/s", NUMBER)]
            columns += [] if label == comparison.labels[0] else [("speed-up", NUMBER)]
        blocks.append(table(columns, [_class_cells(r, comparison, weighted) for r in rows]))
    return blocks


def _class_cells(row: ClassComparison, comparison: Comparison, weighted: bool) -> list[object]:
    cells: list[object] = [row.key.size_bytes, *([percent(row.weight)] if weighted else [])]
    for cell in row.cells:
        cells += [
            scaled(cell.time_ns, 1e3) if cell.status == "ok" else cell.status,
            cell.busbw_gbps,
        ]
        if cell.label == comparison.labels[0]:
            continue
        if cell.speed_up is None:
            cells.append(None)
        else:
            sure = cell.low is None or cell.high is None or not cell.low <= 1 <= cell.high
            cells.append(f"{cell.speed_up:.2f}" + ("" if sure else "~"))
    return cells


def _curve_name(key: CollectiveClass) -> str:
    kind = key.kind
    return f"{kind}, {count(key.nranks, 'rank')}{where_words(key)}"


def _crossovers(comparison: Comparison, short: dict[str, str]) -> list[str]:
    return [
        f"{' '.join(p for p in (c.op, c.datatype) if p)}, {count(c.nranks, 'rank')}"
        f"{place_words(c.in_place)}: from {c.size_bytes} B on,"
        f" {short[c.to]} is faster than {short[c.before]}."
        for c in comparison.crossovers
    ]


def _compare_rows(comparison: Comparison) -> Iterator[Sequence[object]]:
    """In the order of `_COMPARE_CSV`."""
    for row in comparison.classes:
        k = row.key
        for c in row.cells:
            yield (
                *_csv_key(k), row.weight, c.label, c.status, scaled(c.time_ns, 1e3), c.busbw_gbps,
                c.speed_up, c.low, c.high, k.root, k.nnodes, None, None,
            )  # fmt: skip
    if comparison.traced is None:
        return
    for part in comparison.traced.parts:
        for p in part.cells:
            yield (
                *(None,) * 8, p.label, None, scaled(p.time_ns, 1e3), None, p.speed_up, p.low,
                p.high, None, None, part.part, part.rank,
            )  # fmt: skip
    for kernel in comparison.traced.kernels:
        k = kernel.key
        for p in kernel.cells:
            yield (
                *_csv_key(k), None, p.label, None, scaled(p.time_ns, 1e3), None, p.speed_up, None,
                None, k.root, k.nnodes, "kernels", None,
            )  # fmt: skip


def _csv_key(k: CollectiveClass) -> tuple[object, ...]:
    """The first columns of `_COMPARE_CSV`."""
    return (
        k.op.value,
        None if k.datatype is None else k.datatype.value,
        None if k.redop is None else k.redop.value,
        k.nranks,
        None if k.in_place is None else int(k.in_place),
        k.shape,
        k.size_bytes,
    )


def _extras(comparison: Comparison, roofs: Roofs | None) -> Extras:
    """Imported here: drawing takes longer than the other forms."""
    from collscope.reports.compare.page import compare_extras  # noqa: PLC0415

    return compare_extras(comparison, roofs)
