"""`collscope compare --explain`: why a step of one traced run takes longer than one of another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import hypot, log

from collscope.reports.explain.answer import Explained
from collscope.reports.rendering.cause_words import cause_title, evidence, kernel
from collscope.reports.rendering.class_words import inferred_groups
from collscope.reports.rendering.csv import to_csv
from collscope.reports.rendering.formats import in_format
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, Table, table
from collscope.reports.rendering.page import Extras, Fact
from collscope.reports.rendering.step_words import predict_command, without_profiler
from collscope.timeline.explanation.explain import ExplainedPart
from collscope.timeline.tolerances import HOST_STARTS, STARTS
from collscope.units import count, format_size

_PARTS = {
    "host": "pace of the hosts",
    "compute": "compute kernels",
    "collectives": "collectives",
    "arrivals": "differences between ranks",
    "profiler": "cost of the profiler",
    "remainder": "not explained",
}
_DOUBTS = {
    "hosts": "hosts without profiler",
    "order": "order of the swaps",
    "remainder": "what is not explained",
    "ranks": "which ranks changed",
    "slowdown": "compute beside collectives",
    "starts": "start to start",
    "clock": "clock of the GPUs",
    "spread": "spread of the transfers",
    "unswapped": "collectives not comparable",
}
_MEANS = (
    "Times are a call's transfer: the median, and the mean where the size is not known, since calls"
    " of several sizes are mixed there."
)
# Parts smaller than this share of the largest one, or of the step, are left to the table.
_NOTABLE, _SMALL = 0.2, 0.01
_OTHER_BLOCKS = log(1.25)  # kernels with so many more blocks were started with another setting
_MOST_KERNELS = 8  # rows of the table of kernels
_WIDE = 0.5  # of the widest range: advice is for those that are as wide


def render_explained(said: Explained, fmt: str) -> str:
    """An explanation in one of `layout.FORMATS`; csv has the parts and the remainder.

    raises  UsageError for another format
    """
    title = f"collscope compare --explain, {said.first.run} and {said.second.run}"
    return in_format(
        fmt, said, lambda: to_csv(("part", "ns", "low_ns", "high_ns", "widest"), _rows(said)),
        lambda: (title, _sections(said)), lambda: _extras(said),
    )  # fmt: skip


def _extras(said: Explained) -> Extras:
    return Extras(
        (Fact("Difference of the step", f"{_ms(said.difference_ns)} ms"),
         *(Fact(_PARTS[p.part].capitalize(), "not known" if p.ns is None else f"{_ms(p.ns)} ms",
                f"{_ms(p.low_ns)} to {_ms(p.high_ns)} ms")
           for p in said.parts),
         Fact(_PARTS["remainder"].capitalize(), f"{_ms(said.remainder_ns)} ms")), {},
    )  # fmt: skip


def _rows(said: Explained) -> Iterator[tuple[str, int | None, int | None, int | None, str | None]]:
    for p in said.parts:
        yield (p.part, p.ns, p.low_ns, p.high_ns, p.widest)
    yield ("remainder", said.remainder_ns, None, None, None)


def _sections(said: Explained) -> list[Section]:
    head: tuple[str | Table, ...] = (*_answer(said), _part_table(said), *_meanings(said))
    advice = tuple(_advice(said))
    sections = [Section("", head), *([Section("What would narrow the ranges", advice)] if advice
                                     else ())]  # fmt: skip
    if said.kernels:
        sections.insert(1, Section("Kernels that differ", (_kernel_table(said),)))
    sections.append(Section("What this rests on", tuple(_rests_on(said))))
    if said.classes:
        mixed = any(c.collective_class.size_bytes is None for c in said.classes)
        body: tuple[str | Table, ...] = (_class_table(said), *((_MEANS,) if mixed else ()))
        sections.append(Section("Collectives, as swapped", body))
    return sections


def _answer(said: Explained) -> Iterator[str]:
    one, other = said.first, said.second
    difference = said.difference_ns
    parts = _causes(said)
    than = f"{abs(difference) / 1e6:.2f} ms {'longer' if difference > 0 else 'shorter'} than"
    yield (
        f"A step of '{other.run}' is {than if difference else 'as long as'} one of '{one.run}':"
        f" {other.step_ns / 1e6:.2f} ms against {one.step_ns / 1e6:.2f} ms"
        f" ({100 * difference / one.step_ns:+.1f} %)." + (f" {parts}" if parts else "")
    )
    for found in said.causes:
        ms = found.cause.cost
        has = "Both runs have" if found.both else f"'{found.run}' alone has"
        if found.run == other.run or not found.both:
            yield (
                f"{has} this cause: {cause_title(found.cause.cause, found.cause.ranks)},"
                f" {ms.value:.3g} ms a step ({ms.low:.3g} to {ms.high:.3g}) in '{found.run}',"
                f" {'certain' if found.cause.certain else 'likely'}. {evidence(found.cause)}"
            )
    if one.blocks and other.blocks and abs(log(other.blocks / one.blocks)) > _OTHER_BLOCKS:
        yield (
            f"The kernels of the collectives have {count(round(other.blocks), 'thread block')} in"
            f" '{other.run}', {one.blocks:.0f} in '{one.run}': look for what sets the channels"
            " (NCCL_MAX_CTAS, NCCL_MAX_NCHANNELS, a tuner)."
        )
    if abs(difference) < STARTS * hypot(one.step_ns, other.step_ns):
        yield (
            f"Two starts of one setting differ by about {100 * STARTS:.0f} % of a step: this"
            " difference may be no more than that."
        )


def _kernel_table(said: Explained) -> Table:
    one, other = said.first.run, said.second.run
    return table(
        (("rank", NUMBER), ("kernel", TEXT), (f"{one} a step", NUMBER), (f"{other} a step", NUMBER),
         (f"{one} ms", NUMBER), (f"{other} ms", NUMBER)),
        ((k.rank, kernel(k.kernel), k.first, k.second, k.first_ms, k.second_ms)
         for k in said.kernels[:_MOST_KERNELS]),
    )  # fmt: skip


def _meanings(said: Explained) -> Iterator[str]:
    one, other = said.first, said.second
    yield (
        f"A part is what a step of '{one.run}' takes longer with that part of '{other.run}'. The"
        " parts and what is not explained sum to the difference. docs/compare-and-check.md says how"
        " they and their ranges are found."
    )
    yield (
        f"Both steps are as recorded, with the profiler: means of {one.steps} and"
        f" {count(other.steps, 'step')}."
    )
    ratio = said.unprofiled_ratio
    yield without_profiler(
        [(r.run, r.unprofiled_low_ns / 1e6, r.unprofiled_high_ns / 1e6) for r in (one, other)],
        [None if ratio is None else (ratio.low, ratio.high)],
    )


def _causes(said: Explained) -> str:
    """The parts that matter, the largest first; those whose sign is known before the others.

    The pace of the hosts is no cause: it differs between two starts of one setting, too.
    """
    known = [(p, p.ns) for p in said.parts if p.ns is not None]
    most = max(abs(said.remainder_ns), *(abs(ns) for _, ns in known))
    least = max(_NOTABLE * most, _SMALL * said.first.step_ns)
    large = [p for p, ns in sorted(known, key=lambda k: -abs(k[1])) if abs(ns) >= least]
    hosts, others = ([p for p in large if (p.part == "host") is host] for host in (True, False))
    firm, unsure = ([p for p in others if _firm(p) is sign] for sign in (True, False))
    if any(not c.both for c in said.causes):
        # One run has a cause of its own, which is named below: what is not sure explains less.
        word = "Cause" if len(firm) == 1 else "Causes"
        return f"{word}: {', '.join(map(_with_range, firm))}." if firm else ""
    told = [
        f"{word if len(parts) == 1 else word + 's'}: {', '.join(map(_with_range, parts))}."
        for word, parts in (("Cause", firm), ("Possible cause", unsure)) if parts
    ]  # fmt: skip
    if hosts:
        told.insert(
            0 if large[0] in hosts else len(told),
            f"In these recordings: {_with_range(*hosts)}. The hosts' pace differs from start to"
            f" start: one recording of each cannot tell whether it belongs to '{said.second.run}'.",
        )
    elif not firm and (unsure or abs(said.remainder_ns) >= least):
        told.insert(0, "No cause is certain.")
    if abs(said.remainder_ns) >= least:
        rest = f"Not explained: {_ms(said.remainder_ns)} ms"
        if abs(said.remainder_ns) == most:
            told.insert(0, f"{rest}, more than any part.")
        else:
            told.append(f"{rest}.")
    return " ".join(told) or "No part of it stands out."


def _with_range(part: ExplainedPart) -> str:
    return (
        f"{_PARTS[part.part]} {_ms(part.ns or 0)} ms ({_ms(part.low_ns)} to {_ms(part.high_ns)} ms)"
    )


def _firm(part: ExplainedPart) -> bool:
    return part.low_ns > 0 or part.high_ns < 0


def _advice(said: Explained) -> Iterator[str]:
    """What makes ranges wide, the widest first, and which recording would narrow them."""
    one, other = said.first, said.second
    if any(p.ns is None for p in said.parts):
        yield (
            "What the collectives add is not known: no class of calls whose transfers can be told"
            f" from waiting is in both runs. They are exposed for {one.unswapped_ns / 1e6:.1f} and"
            f" {other.unswapped_ns / 1e6:.1f} ms of the steps."
        )
    parts = sorted(said.parts, key=_width, reverse=True)
    small = max(_NOTABLE * abs(said.difference_ns), 2 * _SMALL * one.step_ns)
    wide: dict[str, list[str]] = {}
    for p in parts:
        if p.widest is not None and _width(p) >= max(_WIDE * _width(parts[0]), small):
            wide.setdefault(p.widest, []).append(_PARTS[p.part])
    for doubt, names in wide.items():
        yield f"{_listed(names)}: {_narrowed_by(said, doubt)}"


def _width(part: ExplainedPart) -> int:
    return part.high_ns - part.low_ns


def _listed(words: Sequence[str]) -> str:
    """Words as the beginning of a sentence."""
    text = " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return text[0].upper() + text[1:]


def _narrowed_by(said: Explained, doubt: str) -> str:
    """Why a range is wide, and what would make it narrower."""
    one, other = said.first, said.second
    silent = one if one.slowdown is None else other
    cpu = one.cpu_activities, other.cpu_activities
    light = "Record both with GPU activities alone. " if any(cpu) else ""
    sizes = "" if all(cpu) else ", with CPU activities, which tell the sizes"
    return {
        "hosts": (
            "the profiler slows the hosts, by how much is not in the recordings, and hosts differ"
            f" by about {100 * HOST_STARTS:.0f} % from start to start. {light}Measure the step"
            f" of '{one.run}' without the profiler, then run"
            f" '{predict_command(said.store, one.run, other.run)}'."
        ),
        "order": (
            "the parts act together, so that each depends on which others are swapped before it."
            " No recording narrows that."
        ),
        "remainder": (
            "what is not explained may belong to any part. Record"
            f" '{one.run}' a second time: an explanation of its two recordings says how much of"
            " that is no more than start to start."
        ),
        "ranks": (
            "some ranks changed otherwise than others: how much of compute and collectives follows"
            " from that is not in the recordings. Compare the kernels rank by rank ('collscope"
            f" compare {one.run} {other.run} --db {said.store}')."
        ),
        "slowdown": (
            f"how much collectives slow down compute is not known in '{silent.run}'. Record it"
            " over more steps, so that its kernels run both alone and beside a collective."
        ),
        "starts": (
            f"two starts of one setting differ by about {100 * STARTS:.0f} % of a step. Record"
            " several starts of both."
        ),
        "clock": (
            "a GPU at its power cap computes faster where it waits more, and no trace tells its"
            " clock. Lock the clock of the GPUs, and record both again."
        ),
        "spread": "the transfers differ from step to step. Record more steps.",
        "unswapped": (
            "collectives that could not be compared are exposed for"
            f" {one.unswapped_ns / 1e6:.1f} and {other.unswapped_ns / 1e6:.1f} ms of the steps."
            f" Record both runs alike{sizes}."
        ),
    }[doubt]


def _part_table(said: Explained) -> Table:
    columns = [("part", TEXT), ("ms a step", NUMBER), ("from ms", NUMBER), ("to ms", NUMBER),
               ("range mostly from", TEXT)]  # fmt: skip
    rows = [
        (_PARTS[name], *(None if v is None else _ms(v) for v in values),
         None if widest is None else _DOUBTS[widest])
        for name, *values, widest in _rows(said)
    ]  # fmt: skip
    return table(columns, [*rows, ("difference", _ms(said.difference_ns), None, None, None)])


def _rests_on(said: Explained) -> Iterator[str]:
    one, other = said.first, said.second
    yield (
        f"Check: the graph of '{one.run}' with everything of '{other.run}' gives"
        f" {one.reached_ns / 1e6:.2f} ms for {other.step_ns / 1e6:.2f} recorded; that of"
        f" '{other.run}' with everything of '{one.run}' {other.reached_ns / 1e6:.2f} for"
        f" {one.step_ns / 1e6:.2f}."
    )
    if said.host_pace is None:
        yield "No two launches follow each other in both runs: the pace of the hosts is not known."
    else:
        yield (
            f"Host work between launches takes {said.host_pace:.2f} x the time in '{other.run}',"
            f" the mean over the ranks{_hidden(said)}."
        )
    if one.cpu_activities != other.cpu_activities:
        yield (
            "One run has CPU activities in its traces, the other has not: that alone makes its"
            " hosts slower."
        )
    if said.slowdown_assumed:
        silent = one if one.slowdown is None else other
        yield (
            f"In '{silent.run}' no kernel ran both alone and beside a collective: its compute"
            " kernels are assumed to be as fast alone as in the other run, and extra time counts"
            " for the collectives. The ranges allow for the other run's slowdown, too."
        )
    elif one.slowdown is None:
        yield (
            "No kernel ran both alone and beside a collective: what collectives cost the compute"
            " beside them counts as compute."
        )
    groups = max(one.groups_inferred, other.groups_inferred)
    if groups:
        yield f"{inferred_groups(groups)}."
    for run in (one, other):
        if run.alone_ns > 0:
            yield (
                f"Not comparable: kernels and copies that only '{run.run}' has,"
                f" {run.alone_ns / 1e6:.2f} ms a step; they are part of what is not explained."
            )
    if said.unmatched:
        yield (
            f"Not comparable: transfers of {', '.join(said.unmatched)}, which one of the runs does"
            " not have."
        )


def _hidden(said: Explained) -> str:
    """Why hosts of another pace add nothing to the step."""
    assert said.host_pace is not None
    (host,) = (p.ns or 0 for p in said.parts if p.part == "host")
    adds = abs(host) >= _SMALL * said.first.step_ns
    return "" if adds or abs(said.host_pace - 1) <= STARTS else ", hidden behind the GPU's work"


def _class_table(said: Explained) -> Table:
    columns = [("op", TEXT), ("type", TEXT), ("size", NUMBER), ("ranks", NUMBER),
               ("calls", NUMBER), (f"{said.first.run} us", NUMBER),
               (f"{said.second.run} us", NUMBER)]  # fmt: skip
    return table(
        columns,
        [
            (key.op.value, key.datatype and key.datatype.value,
             None if key.size_bytes is None else format_size(key.size_bytes), key.nranks, c.calls,
             None if c.old_ns is None else c.old_ns / 1000, c.new_ns / 1000)
            for c in said.classes for key in [c.collective_class]
        ],
    )  # fmt: skip


def _ms(ns: float) -> str:
    return f"{round(ns / 1e6, 2) + 0.0:+.2f}"  # no -0.00
