"""The report of `collscope msccl` as text, Markdown, CSV and JSON."""

from __future__ import annotations

from pathlib import PurePath

from collscope.model.note import Note
from collscope.reports.msccl.answer import AlgorithmRow, Flaw, MscclReport, Problem, ServedRow
from collscope.reports.msccl.cost import Assumption, Lack
from collscope.reports.msccl.serve import Refusal, Why
from collscope.reports.rendering.csv import records_csv
from collscope.reports.rendering.formats import in_format, in_words
from collscope.reports.rendering.layout import (
    NUMBER,
    PATH,
    TEXT,
    Item,
    Section,
    Table,
    scaled,
    table,
)
from collscope.units import count, format_size

_HEAD = (
    "blocks x steps: thread blocks of a GPU and steps of a block, the maximum of each. dependent: "
    "messages in the longest chain. pair, GPU, node: traffic of the busiest link between two GPUs, "
    "of the busiest GPU and of the busiest node, one way, in parts of the call's bytes."
)


_ASSUMPTIONS = {
    Assumption.LIBRARY_LATENCY: "latency per message and per call: the library's constants for a"
    " ring of the same protocol",
    Assumption.LINE_RATE: "bandwidth: the usable part of the line rate, every link full duplex",
    Assumption.PROTOCOL: "LL carries 1 byte of data in 2, LL128 120 in 128",
    Assumption.NOTHING_HIDDEN: "the times of the message chain and of the busiest link add up:"
    " neither hides the other",
    Assumption.FREE_LOCALLY: "local copies and reductions, and the number of channels, cost"
    " nothing",
    Assumption.NODES_FILLED: "ranks fill node after node; a node's NICs share its traffic evenly",
    Assumption.SLOWEST_LINK: "GPUs without a direct link reach each other at the rate of the"
    " slowest direct one",
}
_LACKS = {
    Lack.LATENCIES: "the system has no latencies",
    Lack.LINKS: "the system does not describe the links inside a node",
    Lack.NICS: "the algorithm crosses nodes, but the system has no NICs",
    Lack.LINK_BETWEEN: "GPUs that exchange messages have no link",
}


def render_msccl(report: MscclReport, fmt: str) -> str:
    """In one of `layout.FORMATS`; csv has the run's classes, else the costs, else the algorithms.

    raises  UsageError for another format
    """
    return in_format(
        fmt,
        in_words(
            report,
            algorithms=[in_words(a, problem=problem_words(a.problem)) for a in report.algorithms],
            classes=[in_words(c, why=refusal_words(c.why)) for c in report.classes],
            assumptions=[Note(code.value, {}, _ASSUMPTIONS[code]) for code in report.assumptions],
        ),
        lambda: _csv(report),
        lambda: ("collscope msccl", _sections(report)),
    )


def problem_words(problem: Problem | None) -> str | None:
    """Why an algorithm cannot be used, or not be judged."""
    if problem is None:
        return None
    if problem.lack is not None:
        return _LACKS[problem.lack]
    pair = problem.unpaired
    if pair is not None:
        return (
            f"GPU {pair.sender} sends {pair.sent} messages to GPU {pair.receiver} on channel"
            f" {pair.channel}, but it receives {pair.taken}"
        )
    if problem.flaw is Flaw.CIRCULAR:
        return "steps wait for each other in a cycle: the algorithm would hang"
    return " ".join(problem.messages)


def refusal_words(refused: Refusal | None) -> str | None:
    """Why an algorithm does not serve a class."""
    if refused is None:
        return None
    sizes = f"{format_size(refused.min_bytes)} and more"
    if refused.max_bytes is not None:
        sizes = f"{format_size(refused.min_bytes)} to {format_size(refused.max_bytes)}"
    return {
        Why.OTHER_OPERATION: "another operation",
        Why.OTHER_RANKS: f"for {refused.nranks} ranks",
        Why.SIZE_UNKNOWN: "the size of the class is unknown",
        Why.OTHER_SIZES: f"for {sizes}",
        Why.COUNT_NOT_MULTIPLE: f"count {refused.count} not a multiple of {refused.chunks}",
        Why.NOT_IN_PLACE: "not in place",
        Why.IN_PLACE_ONLY: "in place only",
    }[refused.why]


def _assumptions(report: MscclReport) -> tuple[str, ...]:
    return tuple(_ASSUMPTIONS[assumption] for assumption in report.assumptions)


def _csv(report: MscclReport) -> str:
    rows = report.classes if report.run is not None else report.costs or report.algorithms
    return records_csv(rows[0].__struct_fields__ if rows else (), rows, _cell)


def _cell(value: object) -> object:
    if isinstance(value, Problem):
        return problem_words(value)
    return refusal_words(value) if isinstance(value, Refusal) else value


def _sections(report: MscclReport) -> list[Section]:
    usable = [row for row in report.algorithms if row.name is not None]
    sections = [Section("Algorithms", (_HEAD, _algorithms(usable)))] if usable else []
    problems = [
        f"{_short(row.file)}: {problem.removesuffix('.')}."
        for row in report.algorithms
        if (problem := problem_words(row.problem)) is not None
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
        sections.append(Section("Assumptions", (Item("of the cost", _assumptions(report)),)))
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
            (_short(r.file), format_size(r.size_bytes), r.msccl_ns / 1e3, r.hops_ns / 1e3,
             r.transfer_ns / 1e3, scaled(r.library_ns, 1e3), r.library)
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
        text += f" {other} have operations without an algorithm."
    if any(row.msccl_ns is not None for row in served):
        text += (
            " MSCCL us and library us come from models; run us was measured in the run. 'collscope"
            " replay --library' measures both libraries."
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
             scaled(r.msccl_ns, 1e3), scaled(r.library_ns, 1e3), scaled(r.run_ns, 1e3))
            for r in report.classes
        ],
    )  # fmt: skip


def _choice(row: ServedRow) -> str:
    if row.file is None:
        return f"none: {refusal_words(row.why)}"
    more = f" (+{len(row.others)})" if row.others else ""
    return _short(row.file) + more


def _short(path: str) -> str:
    return PurePath(path).name or path
