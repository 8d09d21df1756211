"""The report of `collscope msccl` as text, Markdown, CSV and JSON."""

from __future__ import annotations

from pathlib import PurePath

from collscope.reports.layout import (
    NUMBER,
    PATH,
    TEXT,
    Item,
    Section,
    Table,
    in_format,
    table,
    to_csv,
)
from collscope.reports.msccl.build import AlgorithmRow, MscclReport, ServedRow
from collscope.units import count, format_size

_HEAD = (
    "blocks x steps: thread blocks of a GPU and steps of a block, the most of each. dependent: "
    "messages of the longest chain. pair, GPU, node: what the busiest link from GPU to GPU, GPU, "
    "and node carry one way, in parts of the call's bytes."
)


def render_msccl(report: MscclReport, fmt: str) -> str:
    """In one of `layout.FORMATS`; csv has the run's classes, else the costs, else the algorithms.

    raises  UsageError for another format
    """
    return in_format(
        fmt, report, lambda: _csv(report), lambda: ("collscope msccl", _sections(report))
    )


def _csv(report: MscclReport) -> str:
    rows = report.classes if report.run is not None else report.costs or report.algorithms
    columns = tuple(rows[0].__dataclass_fields__) if rows else ()
    return to_csv(columns, ([getattr(row, name) for name in columns] for row in rows))


def _sections(report: MscclReport) -> list[Section]:
    usable = [row for row in report.algorithms if row.name is not None]
    sections = [Section("Algorithms", (_HEAD, _algorithms(usable)))] if usable else []
    problems = [
        f"{_short(row.file)}: {row.problem.removesuffix('.')}."
        for row in report.algorithms
        if row.problem is not None
    ]
    problems += [
        f"{_short(note.file)}: {note.message}" for note in report.notes if note.severity != "error"
    ]
    if problems:
        sections.append(Section("Problems", (Item("by file", tuple(problems)),)))
    if report.costs:
        sections.append(Section(f"Cost on {report.system}", (_costs(report),)))
    if report.run is not None:
        sections.append(
            Section(f"Classes of run '{report.run}'", (_sentence(report), _classes(report)))
        )
    if report.assumptions:
        sections.append(Section("Assumptions", (Item("of the cost", report.assumptions),)))
    return sections


def _algorithms(rows: list[AlgorithmRow]) -> Table:
    columns = [("file", PATH), ("op", TEXT), ("ranks", NUMBER), ("protocol", TEXT),
               ("channels", NUMBER), ("chunks", NUMBER), ("blocks x steps", NUMBER), ("for", TEXT),
               ("dependent", NUMBER), ("pair", NUMBER), ("GPU", NUMBER),
               ("node", NUMBER)]  # fmt: skip
    return table(
        columns,
        [
            (_short(r.file), r.op, r.nranks, r.protocol, r.channels, r.chunks,
             f"{r.blocks} x {r.steps}", _scope(r), r.dependent, r.pair_load, r.gpu_load,
             r.node_load)
            for r in rows
        ],
    )  # fmt: skip


def _scope(row: AlgorithmRow) -> str:
    most = "" if row.max_bytes is None else format_size(row.max_bytes)
    places = [text for text, can in (("in", row.in_place), ("out", row.out_of_place)) if can]
    return f"{format_size(row.min_bytes)}…{most} {'/'.join(places) or 'nothing'}"


def _costs(report: MscclReport) -> Table:
    columns = [("file", PATH), ("size", NUMBER), ("MSCCL us", NUMBER), ("of it hops", NUMBER),
               ("transfer", NUMBER), ("library us", NUMBER), ("library", TEXT)]  # fmt: skip
    return table(
        columns,
        [
            (_short(r.file), format_size(r.size_bytes), r.msccl_us, r.hops_us, r.transfer_us,
             r.library_us, r.library)
            for r in report.costs
        ],
    )  # fmt: skip


def _sentence(report: MscclReport) -> str:
    served = [row for row in report.classes if row.file is not None]
    text = (
        f"{len(served)} of {count(len(report.classes), 'class', 'classes')} would be served, "
        f"{sum(row.calls for row in served)} of {sum(row.calls for row in report.classes)} calls."
    )
    if report.other_classes:
        other = count(report.other_classes, "class", "classes")
        text += f" {other} of operations without an algorithm."
    if any(row.msccl_us is not None for row in served):
        text += (
            " MSCCL us and library us come from models; run us was measured in the run. replay"
            " --library measures both libraries."
        )
    return text


def _classes(report: MscclReport) -> Table:
    columns = [("op", TEXT), ("size", NUMBER), ("count", NUMBER), ("in-place", TEXT),
               ("ranks", NUMBER), ("calls", NUMBER), ("algorithm", TEXT), ("MSCCL us", NUMBER),
               ("library us", NUMBER), ("run us", NUMBER)]  # fmt: skip
    return table(
        columns,
        [
            (r.op, format_size(r.size_bytes), r.count, r.in_place, r.nranks, r.calls, _choice(r),
             r.msccl_us, r.library_us, r.run_us)
            for r in report.classes
        ],
    )  # fmt: skip


def _choice(row: ServedRow) -> str:
    if row.file is None:
        return f"none: {row.why}"
    more = f" (+{len(row.others)})" if row.others else ""
    return _short(row.file) + more


def _short(path: str) -> str:
    return PurePath(path).name or path
