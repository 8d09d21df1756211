"""`collscope compare --explain`: why a step of one traced run takes longer than one of another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import hypot, log

from collscope.reports.explain.answer import Explained, ExplainedRun
from collscope.reports.rendering.cause_words import cause_title, evidence, kernel, remedy
from collscope.reports.rendering.class_words import inferred_groups
from collscope.reports.rendering.csv import to_csv
from collscope.reports.rendering.formats import in_format
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, Table, table
from collscope.reports.rendering.page import Extras, Fact
from collscope.reports.rendering.step_words import (
    UNPROFILED_UNKNOWN,
    WITHOUT_PROFILER,
    measure_steps,
)
from collscope.timeline.explanation.explain import ExplainedPart
from collscope.timeline.tolerances import HOST_STARTS, STARTS
from collscope.units import count, format_size

_PARTS = {
    "host": "host speed",
    "compute": "compute kernels",
    "collectives": "collectives",
    "arrivals": "differences between ranks",
    "profiler": "profiler overhead",
    "remainder": "unexplained",
}
_ROWS = _PARTS | {"host": "host speed, all ranks", "compute": "compute kernels, all ranks"}
_DOUBTS = {
    "hosts": "host speed without the profiler",
    "order": "order of the swaps",
    "remainder": "unexplained time may belong here",
    "ranks": "which ranks changed",
    "slowdown": "slowdown of overlapped compute",
    "starts": "run-to-run variation",
    "clock": "GPU clock",
    "spread": "variation of the transfers",
    "unswapped": "collectives not comparable",
}
_TRANSFER = (
    "us: transfer of a call, as in collscope check. It is the mean in each step, then the median "
    "over the steps."
)
_MIXED = "A row of unknown size mixes calls of several sizes."
_OF_A_STEP = "launches, ms: of one step; ms is the summed time of these launches, as recorded."
# Parts smaller than this share of the largest one, or of the step, are left to the table.
_NOTABLE, _SMALL = 0.2, 0.01
_OTHER_BLOCKS = log(1.25)  # kernels with so many more blocks come from another setting
_MOST_KERNELS = 8  # rows of the table of kernels
_WIDE = 0.5  # of the widest range: advice is for those that are as wide


def render_explained(explanation: Explained, fmt: str) -> str:
    """An explanation in one of `layout.FORMATS`; csv has the parts and the remainder.

    raises  UsageError for another format
    """
    title = f"collscope compare --explain, {explanation.first.run} and {explanation.second.run}"
    return in_format(
        fmt,
        explanation,
        lambda: to_csv(("part", "ns", "low_ns", "high_ns", "widest"), _rows(explanation)),
        lambda: (title, _sections(explanation)),
        lambda: _extras(explanation),
    )


def _extras(explanation: Explained) -> Extras:
    return Extras(
        (Fact("Step time difference", f"{_ms(explanation.difference_ns)} ms"),
         *(Fact(_PARTS[p.part].capitalize(), "not known" if p.ns is None else f"{_ms(p.ns)} ms",
                f"{_ms(p.low_ns)} to {_ms(p.high_ns)} ms")
           for p in explanation.parts),
         Fact(_PARTS["remainder"].capitalize(), f"{_ms(explanation.remainder_ns)} ms")), {},
    )  # fmt: skip


def _rows(
    explanation: Explained,
) -> Iterator[tuple[str, int | None, int | None, int | None, str | None]]:
    for p in explanation.parts:
        yield (p.part, p.ns, p.low_ns, p.high_ns, p.widest)
    yield ("remainder", explanation.remainder_ns, None, None, None)


def _sections(explanation: Explained) -> list[Section]:
    head: tuple[str | Table, ...] = (
        *_answer(explanation),
        _part_table(explanation),
        *_meanings(explanation),
    )
    sections = [Section("", head)]
    advice = tuple(_advice(explanation))
    if advice:
        sections.append(Section("What would narrow the ranges", advice))
    if explanation.kernels:
        sections.append(
            Section("Kernels that differ", (_kernel_table(explanation), _kernels_note(explanation)))
        )
    sections.append(Section("Basis", tuple(_basis(explanation))))
    if explanation.classes:
        mixed = any(c.collective_class.size_bytes is None for c in explanation.classes)
        words = " ".join((_TRANSFER, *((_MIXED,) if mixed else ())))
        body = (_class_table(explanation), words)
        sections.append(Section("Transfers of collectives in both runs", body))
    return sections


def _answer(explanation: Explained) -> Iterator[str]:
    one, other = explanation.first, explanation.second
    difference = explanation.difference_ns
    parts = _causes(explanation)
    than = f"{abs(difference) / 1e6:.2f} ms {'longer' if difference > 0 else 'shorter'} than"
    yield (
        f"A step of '{other.run}' is {than if difference else 'as long as'} a step of"
        f" '{one.run}': {other.step_ns / 1e6:.2f} ms against {one.step_ns / 1e6:.2f} ms"
        f" ({100 * difference / one.step_ns:+.1f} %), as recorded with the profiler."
        + (f" {parts}" if parts else "")
    )
    yield from _estimated(explanation)
    for found in explanation.causes:
        ms = found.cause.cost
        sure = "Certain cause" if found.cause.certain else "Likely cause"
        where = "both runs" if found.both else f"'{found.run}' only"
        of_run = f" in '{found.run}'" if found.both else ""
        if found.run == other.run or not found.both:
            yield (
                f"{sure}, in {where}: {cause_title(found.cause.cause, found.cause.ranks)},"
                f" {ms.value:.3g} ms a step ({ms.low:.3g} to {ms.high:.3g}){of_run}."
                f" {evidence(found.cause)} {remedy(found.cause)}"
            )
    if one.blocks and other.blocks and abs(log(other.blocks / one.blocks)) > _OTHER_BLOCKS:
        yield (
            f"The collectives' kernels have {count(round(other.blocks), 'thread block')} in"
            f" '{other.run}' and {one.blocks:.0f} in '{one.run}'. Look for what sets the number of"
            " channels (NCCL_MAX_CTAS, NCCL_MAX_NCHANNELS, a tuner)."
        )
    if abs(difference) < STARTS * hypot(one.step_ns, other.step_ns):
        yield (
            f"We assume that two runs with equal settings differ by {100 * STARTS:.0f} % of a step."
            " This difference may be no more than run-to-run variation."
        )


def _estimated(explanation: Explained) -> Iterator[str]:
    """How long the second step takes without the profiler."""
    ratio = explanation.unprofiled_ratio
    if ratio is None:
        yield UNPROFILED_UNKNOWN
        return
    one, other = explanation.first.run, explanation.second.run
    open_ended = ratio.low <= 1 <= ratio.high
    unsure = ", so it may be longer or shorter" if open_ended else ""
    yield (
        f"Estimated without the profiler, a step of '{other}' takes {ratio.low:.2f} to"
        f" {ratio.high:.2f} times as long as a step of '{one}' (95 %){unsure}."
    )


def _kernel_table(explanation: Explained) -> Table:
    one, other = explanation.first.run, explanation.second.run
    return table(
        (("rank", NUMBER), ("kernel", TEXT), (f"{one} launches", NUMBER),
         (f"{other} launches", NUMBER),
         (f"{one} ms", NUMBER), (f"{other} ms", NUMBER)),
        ((k.rank, kernel(k.kernel), k.first, k.second, k.first_ms, k.second_ms)
         for k in explanation.kernels[:_MOST_KERNELS]),
    )  # fmt: skip


def _meanings(explanation: Explained) -> Iterator[str]:
    one, other = explanation.first, explanation.second
    yield from _profiler_or_host(explanation)
    yield (
        f"ms a step: how much longer (+) or shorter (-) a step of '{one.run}' becomes with that"
        f" part of '{other.run}'. The rows above 'difference' add up to it. low to high:"
        " estimated range (docs/compare-and-check.md)."
    )
    unknown = _slowdown_unknown(explanation)
    yield "host speed, all ranks: changes of host work between launches that all ranks share."
    yield (
        "compute kernels, all ranks: changes of kernel times that all ranks share,"
        f" {'with' if unknown else 'without'} slowdown by collectives."
    )
    slowdown = "" if unknown else ", and how much they slow down compute"
    yield f"collectives: transfers without waiting{slowdown}."
    yield (
        "differences between ranks: host work and kernels that changed on some ranks more than on"
        " others, with the waiting for these ranks."
    )
    (profiler,) = (p for p in explanation.parts if p.part == "profiler")
    zero = profiler.ns == profiler.low_ns == profiler.high_ns == 0
    yield (
        f"profiler overhead: how much more the profiler lengthens a step of '{other.run}' than a"
        f" step of '{one.run}'."
        + " It is 0 here, because faster hosts would shorten neither step."
        * zero
    )
    cause = " A named cause has no row of its own: it can be spread over several rows."
    yield (
        "unexplained: what the other rows leave over. Work that only one run does (calls, kernels,"
        " host waits) counts here; its effect on other work counts in the other rows."
        + cause
        * bool(explanation.causes)
    )


def _kernels_note(explanation: Explained) -> str:
    if _slowdown_unknown(explanation):
        return _OF_A_STEP
    return (
        f"{_OF_A_STEP} This includes slowdown by collectives; the row 'compute kernels' does not."
    )


def _slowdown_unknown(explanation: Explained) -> bool:
    """Whether neither run shows how much collectives slow down compute."""
    return explanation.first.slowdown is None and not explanation.slowdown_assumed


def _profiler_or_host(explanation: Explained) -> Iterator[str]:
    """That the row of the profiler may hold what a late host costs."""
    (profiler,) = (p for p in explanation.parts if p.part == "profiler")
    late = any(found.cause.cause == "late_host" for found in explanation.causes)
    if late and profiler.ns is not None and profiler.low_ns <= 0 < profiler.ns:
        yield (
            "The recordings cannot separate profiler overhead from a late host. If the overhead is"
            f" less than {profiler.ns / 1e6:.2f} ms, other parts or the unexplained time grow."
        )


def _causes(explanation: Explained) -> str:
    """The parts that matter, the largest first; those whose sign is known before the others.

    Host speed is no cause: it also varies between runs with equal settings.
    """
    known = [(p, p.ns) for p in explanation.parts if p.ns is not None]
    most = max(abs(explanation.remainder_ns), *(abs(ns) for _, ns in known))
    least = max(_NOTABLE * most, _SMALL * explanation.first.step_ns)
    large = [p for p, ns in sorted(known, key=lambda k: -abs(k[1])) if abs(ns) >= least]
    hosts, others = ([p for p in large if (p.part == "host") is host] for host in (True, False))
    firm, unsure = ([p for p in others if _firm(p) is sign] for sign in (True, False))
    if any(not c.both for c in explanation.causes):
        # One run has a cause of its own, named below: uncertain parts explain less.
        word = "Cause" if len(firm) == 1 else "Causes"
        return f"{word}: {', '.join(map(_with_range, firm))}." if firm else ""
    sentences = [
        f"{word if len(parts) == 1 else word + 's'}: {', '.join(map(_with_range, parts))}."
        for word, parts in (("Cause", firm), ("Possible cause", unsure)) if parts
    ]  # fmt: skip
    if hosts:
        sentences.insert(
            0 if large[0] in hosts else len(sentences),
            f"In these recordings: {_with_range(*hosts)}. Host speed varies from run to run: one"
            f" recording of each run cannot show whether it belongs to '{explanation.second.run}'.",
        )
    elif not firm and (unsure or abs(explanation.remainder_ns) >= least):
        sentences.insert(0, "No cause is certain.")
    if abs(explanation.remainder_ns) >= least:
        rest = f"Unexplained: {_ms(explanation.remainder_ns)} ms"
        if abs(explanation.remainder_ns) == most:
            sentences.insert(0, f"{rest}, more than any part.")
        else:
            sentences.append(f"{rest}.")
    return " ".join(sentences) or "No part of it stands out."


def _with_range(part: ExplainedPart) -> str:
    return f"{_PARTS[part.part]} {_ms(part.ns or 0)} ms ({_ms(part.low_ns)} to {_ms(part.high_ns)})"


def _firm(part: ExplainedPart) -> bool:
    return part.low_ns > 0 or part.high_ns < 0


def _advice(explanation: Explained) -> Iterator[str]:
    """What makes ranges wide, the widest first, and which recording would narrow them."""
    one, other = explanation.first, explanation.second
    if any(p.ns is None for p in explanation.parts):
        yield (
            "The share of the collectives is unknown: no class with a known transfer time is in"
            f" both runs. Exposed collectives take {one.unswapped_ns / 1e6:.1f} and"
            f" {other.unswapped_ns / 1e6:.1f} ms of the steps."
        )
    parts = sorted(explanation.parts, key=_width, reverse=True)
    small = max(_NOTABLE * abs(explanation.difference_ns), 2 * _SMALL * one.step_ns)
    wide: dict[str, list[str]] = {}
    for p in parts:
        if p.widest is not None and _width(p) >= max(_WIDE * _width(parts[0]), small):
            wide.setdefault(p.widest, []).append(_PARTS[p.part])
    for doubt, names in wide.items():
        yield f"{_listed(names)}: {_narrowed_by(explanation, doubt)}"


def _width(part: ExplainedPart) -> int:
    return part.high_ns - part.low_ns


def _listed(words: Sequence[str]) -> str:
    """Words as the beginning of a sentence."""
    text = " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return text[0].upper() + text[1:]


def _narrowed_by(explanation: Explained, doubt: str) -> str:
    """Why a range is wide, and what would make it narrower."""
    one, other = explanation.first, explanation.second
    silent = one if one.slowdown is None else other
    cpu = one.cpu_activities, other.cpu_activities
    light = "Record both with GPU activities alone. " if any(cpu) else ""
    sizes = "" if all(cpu) else ", with CPU activities, which hold the sizes"
    return {
        "hosts": (
            "the profiler slows the hosts. The recordings do not show by how much. Host work also"
            f" varies by about {100 * HOST_STARTS:.0f} % from run to run. {light}"
            f"{measure_steps(explanation.store, one.run, other.run)}"
        ),
        "order": (
            "the parts interact: the size of each depends on the order of the swaps. No recording"
            " narrows that."
        ),
        "remainder": (
            "the unexplained time may belong to any part. Record"
            f" '{one.run}' a second time and explain its two recordings: that shows how much is"
            " run-to-run variation."
        ),
        "ranks": (
            "some ranks changed more than other ranks. The recordings do not show how much of"
            " compute and collectives follows from that. Compare the kernels rank by rank"
            f" ('collscope compare {one.run} {other.run} --db {explanation.store}')."
        ),
        "slowdown": (
            f"in '{silent.run}' it is unknown how much collectives slow down compute. Record it"
            " over more steps, so that each kernel runs alone at some times and beside a collective"
            " at others."
        ),
        "starts": (
            f"we assume that two runs with equal settings differ by {100 * STARTS:.0f} % of a step."
            " Start and record both jobs several times."
        ),
        "clock": (
            "a GPU at its power cap computes faster when it waits more. Traces do not hold its"
            " clock. Lock the GPU clocks and record both runs again."
        ),
        "spread": "the transfers vary from step to step. Record more steps.",
        "unswapped": (
            "some collectives could not be compared. They are exposed for"
            f" {one.unswapped_ns / 1e6:.1f} and {other.unswapped_ns / 1e6:.1f} ms of the steps."
            f" Record both runs in the same way{sizes}."
        ),
    }[doubt]


def _part_table(explanation: Explained) -> Table:
    columns = [("part", TEXT), ("ms a step", NUMBER), ("low ms", NUMBER), ("high ms", NUMBER),
               ("main source of the range", TEXT)]  # fmt: skip
    rows = [
        (_ROWS[name], *(None if v is None else _ms(v) for v in values),
         None if widest is None else _DOUBTS[widest])
        for name, *values, widest in _rows(explanation)
    ]  # fmt: skip
    return table(columns, [*rows, ("difference", _ms(explanation.difference_ns), None, None, None)])


def _basis(explanation: Explained) -> Iterator[str]:
    one, other = explanation.first, explanation.second
    yield (
        f"Steps: the mean of {count(one.steps, 'step')} of '{one.run}' and of"
        f" {count(other.steps, 'step')} of '{other.run}'."
    )
    yield (
        f"Self-check: simulated with all parts of the other run, '{one.run}' and '{other.run}' come"
        f" within {_largest_miss(one, other):.2f} ms of the other run's recorded step."
    )
    if explanation.unprofiled_ratio is not None:
        yield WITHOUT_PROFILER
    if explanation.host_pace is None:
        yield "Host speed is unknown: no two launches follow each other in both runs."
    else:
        yield (
            f"Host work between launches takes {explanation.host_pace:.2f} times as long in"
            f" '{other.run}' (mean over the ranks).{_hidden(explanation)}"
        )
    if one.cpu_activities != other.cpu_activities:
        yield (
            "Only one run has CPU activities in its traces. Recording them makes its hosts slower."
        )
    if explanation.slowdown_assumed:
        silent, heard = (one, other) if one.slowdown is None else (other, one)
        yield (
            f"The traces of '{silent.run}' do not show how much a collective slows down compute"
            " beside it. We assume that without collectives the same compute would take equally"
            f" long in both runs. Any extra compute time in '{silent.run}' counts as slowdown by"
            f" collectives. The ranges also allow for the slowdown measured in '{heard.run}'."
        )
    elif _slowdown_unknown(explanation):
        yield (
            "Neither run shows how much a collective slows down compute that runs beside it. This"
            " slowdown is part of 'compute kernels'."
        )
    groups = max(one.groups_inferred, other.groups_inferred)
    if groups:
        yield f"{inferred_groups(groups)}."
    for run in (one, other):
        if run.alone_ns > 0:
            yield (
                f"Not comparable: kernels and copies that only '{run.run}' has,"
                f" {run.alone_ns / 1e6:.2f} ms a step. They are part of the unexplained time."
            )
    if explanation.unmatched:
        yield (
            f"Not comparable: transfers of {', '.join(explanation.unmatched)}. One run lacks them,"
            " so what they change counts as 'unexplained'."
        )


def _largest_miss(one: ExplainedRun, other: ExplainedRun) -> float:
    """By how many ms the simulations miss the recorded steps, as printed, at most."""
    return max(
        abs(round(run.reached_ns / 1e6, 2) - round(recorded.step_ns / 1e6, 2))
        for run, recorded in ((one, other), (other, one))
    )


def _hidden(explanation: Explained) -> str:
    """Why hosts of a different speed add nothing to the step."""
    assert explanation.host_pace is not None
    (host,) = (p.ns or 0 for p in explanation.parts if p.part == "host")
    adds = abs(host) >= _SMALL * explanation.first.step_ns
    alike = abs(explanation.host_pace - 1) <= STARTS
    return "" if adds or alike else " GPU work hides the difference."


def _class_table(explanation: Explained) -> Table:
    columns = [("op", TEXT), ("type", TEXT), ("size", NUMBER), ("ranks", NUMBER),
               (f"{explanation.first.run} us", NUMBER),
               (f"{explanation.second.run} us", NUMBER)]  # fmt: skip
    return table(
        columns,
        [
            (key.op.value, key.datatype and key.datatype.value,
             None if key.size_bytes is None else format_size(key.size_bytes), key.nranks,
             None if c.old_ns is None else c.old_ns / 1000, c.new_ns / 1000)
            for c in explanation.classes for key in [c.collective_class]
        ],
    )  # fmt: skip


def _ms(ns: float) -> str:
    return f"{round(ns / 1e6, 2) + 0.0:+.2f}"  # no -0.00
