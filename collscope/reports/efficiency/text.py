"""What the readable forms say about efficiency, lost time and gain."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from collscope.model.note import Note
from collscope.reports.calls.answer import compact_ranges
from collscope.reports.efficiency.answer import Judgement
from collscope.reports.efficiency.application_metrics import ApplicationMetric
from collscope.reports.efficiency.breakdown_text import NAME_SYSTEM, breakdown
from collscope.reports.efficiency.gain import RANGE_NOTES, Uplift
from collscope.reports.efficiency.judged_classes import JudgedClass, Reached
from collscope.reports.efficiency.marks import IN_JOB
from collscope.reports.efficiency.profile_kernels import ProfileKernel
from collscope.reports.efficiency.time_breakdown import Basis
from collscope.reports.rendering.layout import (
    NAME,
    NUMBER,
    TEXT,
    Item,
    Table,
    cell,
    legend,
    on_ranks,
    percent,
    scaled,
    table,
    without_unknown,
)
from collscope.reports.rendering.origin import Origin, origin
from collscope.reports.rendering.share_words import fraction_words
from collscope.reports.report.answer import Report
from collscope.reports.tolerances import SKEW_FACTOR
from collscope.roofline.workload import IMPOSSIBLE
from collscope.units import count, decimals, format_size

_HOW = (
    "Not judged: measure the classes (collscope replay, or collscope ingest csv or table), "
    "and name the machine (collscope report --system NAME; collscope roofline --list)."
)
_NO_RANKS = (
    "the measurements lack ranks or sizes. Ingest them into another run with "
    "their ranks (collscope ingest table or csv PATH --ranks N --run NAME)."
)
_SAVES = {
    True: "(measured - reachable time) x exposed part, of all calls in a step; mean over the ranks",
    False: "(measured - reachable time) x exposed part where traces show it, in seconds summed "
    "over all calls and GPUs",
}  # by whether the traces have steps
_SPEED_MEANINGS = {
    "GB/s": "its bus bandwidth",
    "reachable": "bandwidth of the library's algorithms at that size, GB/s",
    "limit": "what the links allow, GB/s",
    "eff %": "reachable time / measured time",
    "regime": "'waiting' if the mean wait exceeds the mean transfer, otherwise what limits the "
    "reachable speed: 'bandwidth' or 'latency'",
}
# Notes on how a reachable speed was found.
_DERIVATION = {"usable_links", "usable_network", "published", "latency", "pipeline_filling"}
ALL_JUDGED = 0.9995  # of the collective time: less is missing than the printed digits show
_REACHABLE = " reachable"  # ends the name of a system's speeds
_MOST_REACHED = 12  # operations in the first lines


def gain_sentences(report: Report) -> Iterable[str]:
    """The expected gain for the first lines of the report."""
    for uplift in report.judgement.uplifts:
        shorter, between = shorter_words(uplift)
        what = "a recorded step" if report.step.recorded_ms else "the job"
        what += _which(uplift, report.judgement)
        yield (
            f"If every {'measured ' * (not uplift.in_job)}class ran at its reachable speed "
            f"({report.judgement.roof}), {what} would be {shorter} shorter{between}. "
            f"{_without(uplift)}, and with {_as_now(uplift)} as now, it would be "
            f"{_at_most(uplift)} shorter."
        )
        if uplift.gain_skewed_low is not None and uplift.gain_skewed_high is not None:
            low, high = map(shorter_by, (uplift.gain_skewed_low, uplift.gain_skewed_high))
            yield (
                f"Of this, only {_between(low, high)} "
                "can be expected: the rest is time in kernels that mostly wait (see the "
                "findings)."
            )
        if report.step.recorded_ms and uplift.fraction.ranks:
            yield _scope(report, shorter)


def _scope(report: Report, shorter: str) -> str:
    """How the gain `shorter`, the verdict's costs and a prediction differ."""
    estimate = f"This {shorter} adds up the classes."
    if any(entry.ms_per_step.value for entry in report.verdict):
        return (
            f"{estimate} It can differ from collscope predict, which simulates a step with all "
            "classes at reachable speed, and from the verdict, which simulates a step without the "
            "named cause."
        )
    return f"{estimate} collscope predict simulates such a step, which is more exact."


def _without(uplift: Uplift) -> str:
    return "Without any transfer" if uplift.in_job else "Without any collective time"


def _as_now(uplift: Uplift) -> str:
    return "waiting and compute" if uplift.in_job else "compute"


def _at_most(uplift: Uplift) -> str:
    if uplift.ceiling is None:
        return "any amount"
    return f"at most {100 * shorter_by(uplift.ceiling):.1f} %"


def _which(uplift: Uplift, judged_run: Judgement) -> str:
    """The job of an expected gain, where there are several."""
    return f" of {', '.join(uplift.fraction.profiles)}" if len(judged_run.uplifts) > 1 else ""


def unjudged_sentence(judged_run: Judgement) -> Iterable[str]:
    """That the measurements lack what a bandwidth needs, for the first lines of a report."""
    if judged_run.label is not None and not (judged_run.reached or judged_run.classes):
        yield f"Bandwidths not known: {_NO_RANKS}"


def measured_sentences(judged_run: Judgement) -> Iterable[str]:
    """What each operation reaches, for the first lines of a report on a run without calls."""
    for row in judged_run.reached[:_MOST_REACHED]:
        nodes = "" if row.nnodes is None else f" of {count(row.nnodes, 'node')}"
        text = (
            f"{row.op} on {count(row.nranks, 'rank')}{nodes} reaches {cell(row.busbw_gbps)} GB/s"
            " at "
            f"{format_size(row.size_bytes)}"
        )
        if row.efficiency is not None:
            text += f", {_gain(row.efficiency)} of reachable speed"
        if any(_is_best(one, row) and IMPOSSIBLE in (one.why or "") for one in judged_run.classes):
            text += f" and {IMPOSSIBLE}"
        if row.worst_efficiency is not None and row.worst_size_bytes != row.size_bytes:
            worst = format_size(row.worst_size_bytes)
            text += f"; furthest below it: {worst} at {_gain(row.worst_efficiency)}"
        yield f"{text}."
    if len(judged_run.reached) > _MOST_REACHED:
        yield f"{len(judged_run.reached) - _MOST_REACHED} more: --format json, judgement.reached."
    if judged_run.reached:
        none = f"reachable speed not known ({NAME_SYSTEM})"
        roof = none if judged_run.roof is None else f"reachable: {judged_run.roof}"
        yield f"Bus bandwidth of label {judged_run.label}; {roof}."


def _is_best(one: JudgedClass, row: Reached) -> bool:
    """The class is the one that reaches the most."""
    same = (one.op, one.nranks, one.size_bytes) == (row.op, row.nranks, row.size_bytes)
    return same and one.busbw_gbps == row.busbw_gbps


def judgement(report: Report) -> Iterable[str | Item | Table]:
    """Efficiency by class, decomposition, uplift and the application's own figures."""
    judged_run = report.judgement
    judged = [
        row for row in judged_run.classes if row.measured_ns is not None or row.roof is not None
    ]
    if not judged and not judged_run.metrics:
        if any(row.marks for row in judged_run.classes):
            yield f"Not judged: no class has a correct result with label {judged_run.label}."
            yield from (note.text for note in judged_run.notes)
        else:
            yield _HOW if judged_run.label is None else f"Not judged: {_NO_RANKS}"
        return
    timed: Sequence[JudgedClass] = ()
    if judged:
        shown = judged[: len(report.classes)] or judged
        # Next to classes with a time, one without adds nothing.
        timed = [row for row in shown if row.measured_ns is not None] or shown
        yield from _classes(timed, judged_run)
        yield from _untimed(len(shown) - len(timed))
        if not report.classes and judged_run.classes_total > len(judged_run.classes):
            more = count(
                judged_run.classes_total - len(judged_run.classes),
                "more class",
                "more classes",
            )
            yield f"{more} not shown (--top 0): the smallest of each operation."
    if judged_run.breakdown is not None:
        yield from breakdown(judged_run.breakdown, _no_roof_why(judged_run))
    for uplift in judged_run.uplifts:
        yield from _uplift(uplift, _which(uplift, judged_run), report)
    traced = judged_run.breakdown is not None and judged_run.breakdown.basis is Basis.TRACED
    # Where traces time the classes, their kernels show nothing more, unless one takes too long.
    if any(kernel.skewed or not traced for kernel in judged_run.kernels):
        yield _kernel_table(judged_run.kernels)
        unjudged = (
            " (-: the kernel serves smaller messages, too, and its mean is short enough for the "
            "largest)"
        ) * any(kernel.several_sizes and not kernel.skewed for kernel in judged_run.kernels)
        yield (
            "mean us: over all ranks and profiles. largest message: the largest that the kernel "
            f"serves. reachable us: its time at reachable speed{unjudged}. too long: mean / "
            f"reachable is over {SKEW_FACTOR:g}, and the mean is over twice the measured time of "
            "that message, where there is one."
        )
        yield from (
            f"{kernel.name.partition('(')[0]}: {largest_message(kernel)}."
            for kernel in judged_run.kernels
        )
    if judged_run.metrics:
        yield _metric_table(judged_run.metrics)
        yield from _metric_words(judged_run.metrics)
    # A class that is shown has the reason beside it.
    stated = {row.why for row in timed}
    yield from (
        note.text
        for note in judged_run.notes
        if note.code != "no_ceiling" or note.values["why"] not in stated
    )


def _untimed(classes: int) -> Iterable[str]:
    """That some classes are not in the table, which has those with a time."""
    if classes:
        have, they, them = ("has", "it is", "it") if classes == 1 else ("have", "they are", "them")
        yield (
            f"{count(classes, 'more class', 'more classes')} {have} no time, because {they} "
            f"neither in traces nor measured. collscope replay can measure {them}."
        )


_CLASS_COLUMNS = [
    ("class", NUMBER), ("op", TEXT), ("size", NUMBER), ("calls", NUMBER), ("measured us", NUMBER),
    ("GB/s", NUMBER), ("reachable", NUMBER), ("limit", NUMBER), ("eff %", NUMBER),
    ("regime", TEXT), ("% time", NUMBER), ("saves", NUMBER), ("reachable of", TEXT),
]  # fmt: skip
_MEASURED_COLUMNS = [
    ("class", NUMBER), ("op", TEXT), ("size", NUMBER), ("type", TEXT), ("in-place", TEXT),
    ("measured us", NUMBER), ("GB/s", NUMBER), ("reachable", NUMBER), ("limit", NUMBER),
    ("eff %", NUMBER), ("regime", TEXT), ("reachable of", TEXT),
]  # fmt: skip


def class_origin(row: JudgedClass, label: str | None) -> Origin | None:
    """Where a class comes from: the job's calls, or the measurements with a label."""
    if row.calls:
        return origin("classes", class_id=row.class_id)
    if label is None:
        return None
    return origin(
        "measurements", label=label, op=row.op.value, size_bytes=row.size_bytes, nranks=row.nranks
    )


def _classes(rows: Sequence[JudgedClass], judged_run: Judgement) -> Iterable[str | Table]:
    origins = [class_origin(row, judged_run.label) for row in rows]
    label = f" with label {judged_run.label}" if judged_run.label else ""
    roofs = {row.roof.name for row in rows if row.roof}
    if any(row.calls for row in rows):
        per_step = any(row.step_saving_ns is not None for row in rows)
        saves = "saves ms/step" if per_step else "saves GPU s"
        columns = [
            (saves, kind) if title == "saves" else (title, kind) for title, kind in _CLASS_COLUMNS
        ]
        # A class without a time has a share by its reachable time alone: then no share is known.
        shares_known = all(row.measured_ns is not None or row.kernel_ns for row in rows)
        cells = [_class_cells(row, per_step=per_step, shares_known=shares_known) for row in rows]
        shown = _without_the_only_roof(table(columns, cells, origins), roofs)
        shown = without_unknown(shown, {"measured us", *_SPEED_MEANINGS, "% time", saves})
        yield shown
        time = "mean transfer in the job"
        if any(row.measured_ns is not None and not row.in_job for row in rows):
            time = f"median{label}"
            time += ", or the mean transfer in the job" * any(row.in_job for row in rows)
        yield on_ranks(shown) + legend(
            shown,
            {
                "calls": "of all sources, timed or not",
                "measured us": time,
                **_SPEED_MEANINGS,
                "% time": "share of the collective time",
            }
            | {saves: _SAVES[per_step]},
        )
        if not roofs and not _no_roof_why(judged_run):
            yield f"Reachable speeds are not known. To get them: collscope {NAME_SYSTEM}."
    else:
        cells = [_measured_cells(row) for row in rows]
        shown = _without_the_only_roof(table(_MEASURED_COLUMNS, cells, origins), roofs)
        yield shown
        yield on_ranks(shown) + legend(shown, {"measured us": f"median{label}", **_SPEED_MEANINGS})
    if len(roofs) == 1:
        yield f"Reachable speeds: {_source_words(roofs.pop(), named=judged_run.named)}."
    yield from _ranges(rows)
    if any(row.contention is not None for row in rows):
        names = [("class", NUMBER), ("in the job us", NUMBER), ("waiting us", NUMBER)]
        compared = [row for row in rows if row.contention is not None]
        yield table(
            [*names, ("in the job / alone", NUMBER)],
            (
                (r.class_id, scaled(r.transfer_ns, 1e3), scaled(r.wait_ns, 1e3), r.contention)
                for r in compared
            ),
            (class_origin(row, judged_run.label) for row in compared),
        )
    yield from _remarks(rows)


def _source_words(name: str, *, named: bool) -> str:
    """Where reachable speeds are from."""
    if not name.endswith(_REACHABLE):
        return name
    system = name.removesuffix(_REACHABLE)
    given = "given by --system" if named else "the model of the traced GPUs; --system names another"
    return (
        f"those of system {system} ({given}). collscope roofline --system {shlex.quote(system)} "
        "shows how they are derived"
    )


def _ranges(rows: Sequence[JudgedClass]) -> Iterable[str]:
    """How uncertain the reachable speeds are, by class, in percent of the table's."""
    about: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row.roof is not None and row.roof.range_gbps is not None and row.roof.busbw_gbps:
            slow, fast = (100 * end / row.roof.busbw_gbps for end in row.roof.range_gbps)
            about[f"{slow:.0f} to {fast:.0f} %"].append(row.class_id)
    parts = [
        f"{between}{'' if n else ' of these speeds'} ({_which_classes(ids, rows)})"
        for n, (between, ids) in enumerate(about.items())
    ]
    if parts:
        yield f"Machines of one kind differ: they reach {', '.join(parts)}."


def _which_classes(ids: Sequence[int], rows: Sequence[JudgedClass]) -> str:
    """Classes by their numbers, or all of them."""
    if len(ids) == len(rows) > 1:
        return "all classes"
    return f"class{'es' * (len(ids) > 1)} {compact_ranges(ids)}"


def _without_the_only_roof(found: Table, roofs: Collection[str]) -> Table:
    """The table without its last column, `ceiling`, unless the rows have several."""
    if len(roofs) > 1:
        return found
    return replace(found, columns=found.columns[:-1], rows=tuple(row[:-1] for row in found.rows))


def _class_cells(row: JudgedClass, *, per_step: bool, shares_known: bool) -> tuple[object, ...]:
    saves = scaled(row.step_saving_ns, 1e6) if per_step else scaled(row.recoverable_ns, 1e9)
    return (
        *_name_cells(row), row.calls, *_speed_cells(row),
        percent(row.time_share) if shares_known else None, saves, row.roof and row.roof.name,
    )  # fmt: skip


def _measured_cells(row: JudgedClass) -> tuple[object, ...]:
    kind = " ".join(str(part) for part in (row.datatype, row.redop) if part)
    return (
        *_name_cells(row), kind or None, row.in_place, *_speed_cells(row),
        row.roof and row.roof.name,
    )  # fmt: skip


def _speed_cells(row: JudgedClass) -> tuple[object, ...]:
    """Time, rate, what is reachable, limit, efficiency and regime."""
    return (
        scaled(row.measured_ns, 1e3), row.busbw_gbps, *ceilings(row), _one(row.efficiency),
        row.regime,
    )  # fmt: skip


def ceilings(row: JudgedClass) -> tuple[float | None, float | None]:
    """What is reachable and the limit, GB/s."""
    return (None, None) if row.roof is None else (row.roof.busbw_gbps, row.roof.limit_gbps)


def _name_cells(row: JudgedClass) -> tuple[object, ...]:
    ranks = "" if row.nranks is None else f" x{row.nranks}"
    size = None if row.size_bytes is None else format_size(row.size_bytes)
    return row.class_id, f"{row.op}{ranks}", size


def _remarks(rows: Sequence[JudgedClass]) -> Iterable[str]:
    """Assumptions and marks, each once, with the classes it is about."""
    about: dict[str, list[int]] = defaultdict(list)
    # Then the line on the columns has it.
    all_in_job = all(row.in_job or row.measured_ns is None for row in rows)
    for row in rows:
        marks = (mark.text for mark in row.marks if mark.code != IN_JOB or not all_in_job)
        assumed = () if row.roof is None else _assumed(row.roof.assumptions)
        for text in (*marks, *assumed, *((row.why,) if row.why else ())):
            about[text].append(row.class_id)
    for text, ids in about.items():
        yield f"{_which_classes(ids, rows)}: {text.rstrip('.')}."


def _assumed(notes: Sequence[Note]) -> Iterable[str]:
    """What a reachable speed assumes of this job; `collscope roofline` has its derivation."""
    return (
        note.text for note in notes if note.code not in _DERIVATION or note.values.get("assumed")
    )


def _no_roof_why(judged_run: Judgement) -> str:
    """Why no class has a reachable speed though a system is known; empty: it is not known."""
    notes = [note for note in judged_run.notes if note.code == "no_ceiling"]
    return "not known: no class has a reachable speed" if notes else ""


def _uplift(found: Uplift, which: str, report: Report) -> Iterable[str | Item]:
    lines = []
    if found.judged < ALL_JUDGED:
        alike = 100 * shorter_by(found.gain_if_alike)
        lines.append(
            f"{100 * found.judged:.1f} % of the collective time is judged; {alike:.1f} % shorter "
            "if the rest is as far from its reachable speed"
        )
    if found.gain_skewed_low is not None and found.gain_skewed_high is not None:
        low, high = map(shorter_by, (found.gain_skewed_low, found.gain_skewed_high))
        lines.append(
            f"{_between(low, high)} shorter if kernels that take too long only transfer: at the "
            "reachable speed, or three times slower"
        )
    lines.append(f"denominator: {fraction_words(found.fraction, report.shares)}")
    lines += [
        note.text if note.code in RANGE_NOTES else f"assumed: {note.text}"
        for note in found.assumptions
    ]
    shorter, between = shorter_words(found)
    what = "a recorded step" if found.fraction.of_steps else "the whole job"
    head = f"At the reachable speed {what}{which} would be {shorter} shorter{between}."
    yield Item(head, tuple(f"{line}." for line in lines))


def largest_message(kernel: ProfileKernel) -> str:
    """Where the largest message comes from that a kernel can serve."""
    size = format_size(kernel.served_bytes)
    if kernel.served_class is None:
        return (
            f"RCCL's stock MSCCL algorithms use it for at most {size} (if no other algorithm files "
            "are used)"
        )
    return f"its largest message is of {size}, as in class {kernel.served_class}"


def _kernel_table(rows: Sequence[ProfileKernel]) -> Table:
    columns = [
        ("kernel of the profile", NAME), ("% GPU time", NUMBER), ("mean us", NUMBER),
        ("largest message", NUMBER), ("reachable us", NUMBER), ("mean / reachable", NUMBER),
        ("remark", TEXT),
    ]  # fmt: skip
    return table(
        columns,
        (
            (
                k.name, percent(k.share), k.mean_ns / 1000, format_size(k.served_bytes),
                # The mean over several sizes does not compare with the time of the largest.
                k.roof_ns / 1000 if k.skewed or not k.several_sizes else None,
                k.mean_ns / k.roof_ns if k.skewed else None,
                "too long" if k.skewed else "",
            )
            for k in rows
        ),
        (origin("kernel_totals", name=k.name) for k in rows),
    )  # fmt: skip


def _metric_table(rows: Sequence[ApplicationMetric]) -> Table:
    columns = [
        ("figure", TEXT), ("label", TEXT), ("value", NUMBER), ("against", NUMBER),
        ("gain %", NUMBER), ("pred. %", NUMBER), ("coll. x", NUMBER),
        ("implied %", NUMBER),
    ]  # fmt: skip
    return table(
        columns,
        (
            (
                r.name, r.label, r.value, r.reference_value, _one(r.gain), _predicted(r),
                r.collective_speed_up, _one(r.implied_share),
            )
            for r in rows
        ),
    )  # fmt: skip


def _metric_words(rows: Sequence[ApplicationMetric]) -> Iterable[str]:
    references = ", ".join(dict.fromkeys(row.reference for row in rows))
    yield (
        f"against: the figure with the first label ({references}). coll. x: speed-up of the "
        "measured collectives. pred.: gain predicted from the job's exposed collective "
        "share, all of it exposed where no trace shows it; - where no profile belongs to "
        "that job. implied: exposed collective share that explains the gain."
    )
    for text in dict.fromkeys(filter(None, map(speed_up_of, rows))):
        yield f"Speed-up of collectives: {text}."


def speed_up_of(metric: ApplicationMetric) -> str | None:
    """Which collectives the speed-up beside a figure is of."""
    of = metric.speed_up_of
    if of is None:
        return None
    if isinstance(of, int):
        return f"the run's calls, {count(of, 'class', 'classes')}"
    size, ranks = format_size(of.size_bytes or 0), count(of.nranks, "rank")
    return f"{of.op.value} of {size} on {ranks}, the largest measured"


def _predicted(row: ApplicationMetric) -> str | None:
    """The predicted gain in percent; its range where the profile is an excerpt."""
    if row.predicted_gain is None or row.predicted_gain == row.predicted_high:
        return _one(row.predicted_gain)
    high = "any" if row.predicted_high is None else _one(row.predicted_high)
    return f"{_one(row.predicted_gain)} to {high}"


def _one(ratio: float | None) -> str | None:
    return None if ratio is None else f"{100 * ratio:.1f}"


def _gain(ratio: float | None) -> str:
    return "any amount" if ratio is None else f"{100 * ratio:.1f} %"


def _between(low: float, high: float) -> str:
    digits = decimals(100 * low, 100 * high)
    return f"{100 * low:.{digits}f} to {100 * high:.{digits}f} %"


def shorter_by(gain: float) -> float:
    """Part of the time that goes away where the job becomes faster by `gain`.

    >>> round(shorter_by(0.25), 12)
    0.2
    """
    return gain / (1 + gain)


def shorter_words(found: Uplift) -> tuple[str, str]:
    """By how much the job would be shorter, and behind it its range."""
    gain = shorter_by(found.gain)
    if found.low is None or found.high is None:
        return f"{100 * gain:.1f} %", ""
    low, high = shorter_by(found.low), shorter_by(found.high)
    digits = decimals(100 * low, 100 * high)
    between = _between(low, high)
    if _has_no_lower_end(found):
        between = f"at most {100 * high:.{digits}f} %"
    return f"{100 * gain:.{digits}f} %", f" ({between})"


def _has_no_lower_end(found: Uplift) -> bool:
    """Whether no class was measured alone: other work may slow all of them in the job."""
    return any(
        note.code == "judged_in_job" and note.values["classes"] == note.values["of"]
        for note in found.assumptions
    )
