"""Comparisons and verdicts as text, Markdown, CSV, JSON, JUnit XML and GitHub annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from collscope.analysis.check import Check, ClassVerdict
from collscope.analysis.compare import ClassComparison, Comparison, curves
from collscope.analysis.verdict import Verdict
from collscope.errors import UsageError
from collscope.model import CollectiveClass
from collscope.reports.comparison.steps import runs_words, step_sections
from collscope.reports.comparison.words import note_words, step_words, why
from collscope.reports.html.page import Extras
from collscope.reports.layout import (
    NUMBER,
    READABLE,
    TEXT,
    WORD,
    Section,
    Table,
    in_format,
    in_words,
    percent,
    table,
    to_csv,
    to_readable,
)
from collscope.units import count
from collscope.writing import to_json

CHECK_FORMATS = tuple(dict.fromkeys(("text", "md", "json", "junit", "github", *READABLE)))
_COMPARE_CSV = (
    "op", "datatype", "redop", "nranks", "in_place", "shape", "size_bytes", "weight", "label",
    "status", "time_us", "busbw_gbps", "speed_up", "low", "high", "root", "nnodes", "part", "rank",
)  # fmt: skip
_LONGEST_LABEL = 20  # of a label in a column's heading
_PAIRED = (
    "Measured in turns: ratios and speed-ups are paired by round (the median over the rounds of the"
    " ratio within one), so they can differ from the quotient of the times, which are medians over"
    " the rounds."
)
_TRANSFERS_SAID = "Transfer only, without waiting: the step may change less, or the other way."
_UNJUDGED = {  # outcomes, and what JUnit says of them
    "noisy": "too noisy to judge",
    "unknown": "noise not known: a single value; measure more often",
    "baseline wrong": "the baseline's results are wrong: no time to compare with",
    "baseline failed": "the baseline failed: no time to compare with",
}
_BROKEN = ("wrong results", "failed")  # of the current label
_PLACES = {True: "in", False: "out", None: None}


def render_compare(comparison: Comparison, fmt: str) -> str:
    """A comparison in one of `layout.FORMATS`; csv has a row for each class and label.

    raises  UsageError for another format
    """
    kind = "labels" if comparison.traced is None else "traced runs"
    title = f"collscope compare, {len(comparison.labels)} {kind}"
    return in_format(
        fmt,
        _record(comparison),
        lambda: to_csv(_COMPARE_CSV, _compare_rows(comparison)),
        lambda: (title, _compare_sections(comparison)),
        lambda: _extras(comparison),
    )


def render_check(check: Check, fmt: str) -> str:
    """A verdict in one of `CHECK_FORMATS`.

    raises  UsageError for another format
    """
    title = f"collscope check: {check.verdict.value}"
    if fmt in READABLE:
        return to_readable(fmt, title, _check_sections(check), lambda: _extras(check))
    if fmt == "json":
        return to_json(_record(check))
    if fmt == "junit":
        return _junit(check)
    if fmt == "github":
        return _github(check)
    raise UsageError(f"format '{fmt}': not known. Use one of {', '.join(CHECK_FORMATS)}.")


def _extras(value: Comparison | Check) -> Extras:
    """Imported here: drawing takes longer than the other forms."""
    from collscope.reports.html.measured import check_extras, compare_extras  # noqa: PLC0415

    return check_extras(value) if isinstance(value, Check) else compare_extras(value)


def _record(value: Comparison | Check) -> dict[str, Any]:
    """What JSON has of it."""
    plain = in_words(value, notes=[note_words(note) for note in value.notes])
    if isinstance(value, Check):
        del plain["decision"]  # in words
        plain = {"verdict": value.verdict, "why": why(value.decision), **plain}
    body: dict[str, Any] = msgspec.to_builtins(plain)
    return body


def _compare_sections(comparison: Comparison) -> list[Section]:
    short = _short_names(comparison.labels)
    crossovers = tuple(_crossovers(comparison, short)) or (
        "None: no label is faster at some sizes and slower at others, beyond the noise.",
    )
    head = Section("", (_headline(comparison), *map(note_words, comparison.notes)))
    said = () if comparison.traced is None else (_TRANSFERS_SAID,)
    classes = [
        Section("Totals", (*said, _totals(comparison, short))),
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


def _short_names(labels: Sequence[str]) -> dict[str, str]:
    """Names of the labels for headings; letters where one is too long."""
    if max(map(len, labels)) <= _LONGEST_LABEL:
        return {label: label for label in labels}
    return {label: _letter(number) for number, label in enumerate(labels)}


def _letter(number: int) -> str:
    """A to Z, then A1, B1 and so on."""
    turn, letter = divmod(number, 26)
    return chr(ord("A") + letter) + (str(turn) if turn else "")


def _headline(comparison: Comparison) -> str:
    n = count(len(comparison.classes), "common class", "common classes")
    if comparison.traced is not None:
        classes = "No class has a known transfer in every run;"
        if comparison.classes:
            classes = (
                f"A class's time is the transfer of a call; {n}, weighted by the calls of"
                f" {comparison.labels[0]};"
            )
        return (
            f"{runs_words(comparison.traced)} {classes} speed-up is time of the first run / time of"
            " the run (~: within the noise)."
        )
    weight = "every class counts the same" if comparison.run is None else (
        f"weighted by the calls of run {comparison.run}"
    )  # fmt: skip
    return (
        f"{n}; {weight}; speed-up is time of the first label / time of the label"
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
        blocks.append(_PAIRED)
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
        cells += [cell.time_us if cell.status == "ok" else cell.status, cell.busbw_gbps]
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
    return f"{kind}, {count(key.nranks, 'rank')}{_where(key)}"


def _crossovers(comparison: Comparison, short: dict[str, str]) -> list[str]:
    return [
        f"{' '.join(p for p in (c.op, c.datatype) if p)}, {count(c.nranks, 'rank')}"
        f"{_place(c.in_place)}: from {c.size_bytes} B on"
        f" {short[c.to]} is faster than {short[c.before]}."
        for c in comparison.crossovers
    ]


def _place(in_place: bool | None) -> str:
    if in_place is None:
        return ""
    return ", in place" if in_place else ", out of place"


def _where(key: CollectiveClass) -> str:
    """Nodes and root where they are not one node and rank 0, and the place."""
    nodes = f" on {count(key.nnodes, 'node')}" if (key.nnodes or 1) > 1 else ""
    root = f", root {key.root}" if key.root else ""
    return f"{nodes}{root}{_place(key.in_place)}"


def _compare_rows(comparison: Comparison) -> Iterator[Sequence[object]]:
    """In the order of `_COMPARE_CSV`."""
    for row in comparison.classes:
        k = row.key
        for c in row.cells:
            yield (
                *_csv_key(k), row.weight, c.label, c.status, c.time_us, c.busbw_gbps, c.speed_up,
                c.low, c.high, k.root, k.nnodes, None, None,
            )  # fmt: skip
    if comparison.traced is None:
        return
    for part in comparison.traced.parts:
        for p in part.cells:
            yield (
                *(None,) * 8, p.label, None, p.time_us, None, p.speed_up, p.low, p.high, None, None,
                part.part, part.rank,
            )  # fmt: skip
    for kernel in comparison.traced.kernels:
        k = kernel.key
        for p in kernel.cells:
            yield (
                *_csv_key(k), None, p.label, None, p.time_us, None, p.speed_up, None, None, k.root,
                k.nnodes, "kernels", None,
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


def _check_sections(check: Check) -> list[Section]:
    sentence = why(check.decision)
    head = [f"{sentence[0].upper()}{sentence[1:]}.", _scope(check), *map(note_words, check.notes)]
    sections = [Section("", tuple(head))]
    if check.traced is not None:
        head.insert(2, runs_words(check.traced))
        names = {name: name for name in (check.baseline, check.current)}
        sections = [Section("", tuple(head)), *step_sections(check.traced, names, ratios=True)]
    if check.classes:
        said = (_PAIRED,) if any(row.paired for row in check.classes) else ()
        sections.append(Section("Classes, worst first", (*said, _verdict_table(check.classes))))
    return sections


def _scope(check: Check) -> str:
    if check.traced is not None and not check.classes_common:
        return (
            f"'{check.baseline}' and '{check.current}' have no class in common whose transfer is"
            " known, so only the step was judged."
        )
    text = (
        f"Looked at {count(check.classes_common, 'class', 'classes')} that '{check.baseline}' and"
        f" '{check.current}' have in common; {check.classes_judged} can be judged"
    )
    missing = f"; {check.classes_missing} of the baseline are missing" * bool(check.classes_missing)
    if check.total_ratio is None:
        return text + missing + "."
    interval = ""
    if check.total_low is not None and check.total_high is not None:
        interval = f" (95 %: {check.total_low:.3f} to {check.total_high:.3f})"
    return f"{text}{missing}; weighted total: {check.total_ratio:.3f} x the time{interval}."


def _verdict_table(rows: Sequence[ClassVerdict]) -> Table:
    columns = [("outcome", WORD), ("op", TEXT), ("type", TEXT), ("size B", NUMBER),
               ("ranks", NUMBER), ("place", TEXT), ("% time", NUMBER), ("base us", NUMBER),
               ("new us", NUMBER), ("ratio", NUMBER), ("95 % from", NUMBER),
               ("to", NUMBER)]  # fmt: skip
    return table(
        columns,
        [
            (r.outcome, " ".join(filter(None, (r.key.op.value, r.key.shape))),
             "/".join(p.value for p in (r.key.datatype, r.key.redop) if p), r.key.size_bytes,
             r.key.nranks, _PLACES[r.key.in_place], percent(r.share), r.baseline_us, r.current_us,
             r.ratio, r.low, r.high)
            for r in rows
        ],
    )  # fmt: skip


def _class_name(key: CollectiveClass) -> str:
    return f"{key.kind} {key.size_bytes} B {count(key.nranks, 'rank')}{_where(key)}"


def _junit(check: Check) -> str:
    """One test case for the verdict and one per class; a noisy class is skipped, not passed.

    A slower class fails only when the verdict is a regression: alone it may be an accident. A wrong
    result is none.
    """
    from xml.etree import ElementTree  # noqa: PLC0415 - the other formats need none

    failed = check.verdict is Verdict.REGRESSION
    bad = [r for r in check.classes if r.outcome in (("slower", *_BROKEN) if failed else _BROKEN)]
    unsure = check.verdict is Verdict.NO_VERDICT
    noisy = [r for r in check.classes if r.outcome in _UNJUDGED]
    step = check.decision.step
    slow = step is not None and step.slower
    dim = step is not None and step.doubt is not None and not (step.slower or step.faster)
    suite = ElementTree.Element(
        "testsuite", name=f"collscope check {check.baseline} {check.current}",
        tests=str(len(check.classes) + 1 + (step is not None)),
        failures=str(len(bad) + failed + slow),
        errors="0", skipped=str(len(noisy) + unsure + dim),
    )  # fmt: skip
    case = ElementTree.SubElement(suite, "testcase", classname="collscope.check", name="verdict")
    if failed:
        ElementTree.SubElement(case, "failure", message=why(check.decision)).text = _scope(check)
    elif unsure:
        ElementTree.SubElement(case, "skipped", message=why(check.decision))
    told = (
        f"{check.verdict.value}: {why(check.decision)}. {_scope(check)}",
        *map(note_words, check.notes),
    )
    ElementTree.SubElement(case, "system-out").text = "\n".join(told)
    if step is not None:
        case = ElementTree.SubElement(suite, "testcase", classname="collscope.check", name="step")
        if slow:
            ElementTree.SubElement(case, "failure", message=step_words(step))
        elif dim:
            ElementTree.SubElement(case, "skipped", message=step_words(step))
    for row in check.classes:
        case = ElementTree.SubElement(
            suite, "testcase", classname="collscope.check", name=_class_name(row.key),
            time=f"{(row.current_us or 0.0) / 1e6:.9f}",
        )  # fmt: skip
        if row in bad:
            ElementTree.SubElement(case, "failure", message=_finding(row))
        elif row.outcome in _UNJUDGED:
            ElementTree.SubElement(case, "skipped", message=_UNJUDGED[row.outcome])
    ElementTree.indent(suite)
    text = ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
    # XML has no way to write most control characters, and labels may hold them.
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def _finding(row: ClassVerdict) -> str:
    if row.baseline_us is None or row.current_us is None:
        return row.outcome
    return f"{row.baseline_us:.2f} us -> {row.current_us:.2f} us, {row.ratio:.3f} x the time"


def _github(check: Check) -> str:
    """Workflow commands: one for the verdict, one per changed class."""
    level = {Verdict.REGRESSION: "error", Verdict.NO_VERDICT: "warning"}.get(
        check.verdict, "notice"
    )
    lines = [
        _command(
            level, f"collscope: {check.verdict.value}", f"{why(check.decision)}. {_scope(check)}"
        )
    ]
    for row in check.classes:
        if row.outcome in ("slower", *_BROKEN):
            sure = check.verdict is Verdict.REGRESSION or row.outcome in _BROKEN
            severity = "error" if sure else "warning"
            lines.append(_command(severity, _class_name(row.key), _finding(row)))
    for value in check.impossible:
        told = f"{value.busbw_gbps:.4g} GB/s of {value.label} is above {value.limit_gbps:.4g}"
        lines.append(_command("warning", f"impossible: {_class_name(value.key)}", told))
    return "\n".join(lines) + "\n"


def _command(level: str, title: str, text: str) -> str:
    """One workflow command, with the characters escaped that end its parts.

    source  actions/toolkit packages/core/src/command.ts
    """
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    title = title.replace("%", "%25").replace("\n", "%0A").replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{text}"
