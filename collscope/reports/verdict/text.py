"""The verdict in words: entries for every format, and at most ten lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.reports.rendering.cause_words import advice, cause_title, evidence, ms, where
from collscope.reports.rendering.formats import to_readable
from collscope.reports.rendering.layout import Item, Section
from collscope.reports.verdict.answer import Answer, MsPerStep, StepSummary, VerdictEntry
from collscope.units import count

if TYPE_CHECKING:
    from collscope.timeline.step_causes.records import Cause

NOTHING_TO_FIX = "Nothing to fix."
_ONE_STEP = "Trace at least three whole steps on all ranks."
_UNKNOWN = {
    "no_traces": (
        "The run has no traces, so its steps are not recorded.",
        "Trace all ranks with torch.profiler for at least three steps, then run collscope "
        "ingest trace on the traces.",
    ),
    "no_compute": (
        "The recordings time collectives, not steps: the step time, and why a rank is late, "
        "are not recorded.",
        "Trace all ranks with torch.profiler for at least three steps, then run collscope ingest "
        "trace on the traces.",
    ),
    "no_steps": ("No whole step recurs in the traces.", _ONE_STEP),
    "idle_while_queued": (
        "A GPU runs nothing for long although its next kernel has been launched: trace rows "
        "are missing or too short, or another process uses the GPU.",
        ("Check with nvidia-smi which other processes use the GPU. If there are none, trace "
        "the job again."),
    ),
    "contradiction": (
        "The traces contradict themselves or are cut; the section In short of the report has the "
        "reason.",
        "Copy the traces again. If that does not help, trace the job again.",
    ),
}  # fmt: skip
_BOUND = {
    "host": "host work", "compute": "compute", "collective": "collectives",
    "waiting": "idle time of GPUs",
}  # fmt: skip
_RANGES = (
    " The ranges allow for run-to-run variation and for what the recording does not show, such as"
    " the profiler's cost."
)
# Causes that a host has.
_OF_HOSTS = ("late_host", "blocking_sync", "small_calls", "host_bound")


def entries(answer: Answer) -> tuple[VerdictEntry, ...]:
    """What JSON has of a verdict: the causes in words, or why none is named; never empty."""
    if answer.unknown is not None:
        why, remedy = _UNKNOWN[answer.unknown]
        nothing = MsPerStep(None, None, None)
        return (VerdictEntry("unknown", "likely", (), "", nothing, why, remedy),)
    if not answer.causes:
        return (_nothing(answer.step),)
    return tuple(
        VerdictEntry(
            cause.cause, "certain" if cause.certain else "likely", tuple(sorted(cause.ranks)),
            where(cause), MsPerStep(cause.cost.value, cause.cost.low, cause.cost.high),
            evidence(cause, answer.step.ranks) + _perhaps_nothing(cause, answer.step),
            advice(cause),
        )
        for cause in answer.causes
    )  # fmt: skip


def _perhaps_nothing(cause: Cause, step: StepSummary) -> str:
    """Why the range of a cause begins at 0; empty where it does not."""
    if cause.cost.low > 0:
        return ""
    if cause.evidence.kind == "pauses" and cause.evidence.count == 1:
        return " It may cost nothing: one step does not show that it recurs. Trace more steps."
    if cause.certain:
        return " Another start may not show it: two starts of a job may differ by as much."
    if step.given_ms is not None or cause.within_starts:
        return " It may cost nothing: two starts of a job may differ by as much."
    hidden = "GPU work may hide the gap" if cause.cause in _OF_HOSTS else "slow hosts may hide it"
    return f" It may cost nothing: without the profiler, {hidden}. Pass --step-ms to find out."


def section(verdict: tuple[VerdictEntry, ...], step: StepSummary) -> Section:
    """At most ten lines: what stands out, each cause with what to do, what all that is based on."""
    first, *causes = verdict
    if step.hang is not None:
        blocks = [f"HANG  {first.evidence}", f"The verdict of the hang: {step.hang}"]
        basis = _basis(step, ranges=_RANGES * bool(causes))
        known = (basis,) if step.recorded_ms is not None else ()
        return Section("", (*blocks, *map(_item, causes), *known))
    if first.cause == "unknown":
        return Section("", (f"NOT KNOWN  {first.evidence}", f"Next: {first.advice}"))
    length = f"{ms(step.recorded_ms or 0)} ms a step as recorded; {_bound(step)}."
    if first.cause == "none":
        return Section(
            "", (f"NOTHING STANDS OUT  {length}", f"{first.evidence} {first.advice}", _basis(step))
        )
    look = f"To see it on a timeline, in ui.perfetto.dev: {step.look}"
    head = f"{title(first).upper()}  {length}"
    return Section("", (head, *map(_item, verdict), look, _basis(step, ranges=_RANGES)))


def _item(entry: VerdictEntry) -> Item:
    """A cause: what it costs, why, and what to do."""
    cost = f"without it a step would be {_cost(entry.ms_per_step)}"
    return Item(f"{title(entry)} ({entry.certainty}): {cost}. {entry.evidence}", (entry.advice,))


def brief(run: str, verdict: tuple[VerdictEntry, ...], step: StepSummary, fmt: str) -> str:
    """The verdict alone, as text or Markdown."""
    return to_readable(fmt, f"collscope verdict, run {run}", (section(verdict, step),))


def _cost(cost: MsPerStep) -> str:
    value, low, high = (ms(part or 0.0) for part in (cost.value, cost.low, cost.high))
    return f"{value} ms shorter ({low} to {high})"


def title(entry: VerdictEntry) -> str:
    """Cause and ranks: `Late host, rank 1`."""
    return cause_title(entry.cause, entry.ranks)


def _nothing(step: StepSummary) -> VerdictEntry:
    """No cause was found: of all ranks, or of those that were traced."""
    unseen = step.world is not None and step.world > step.ranks
    noise = "run-to-run variation"
    if step.steps > 1:
        noise += (
            f" (the spread of the {step.steps} whole steps, and the usual difference between two"
            " starts of a job)"
        )
    advice = f"{NOTHING_TO_FIX} The report shows what faster collectives would save."
    recorded = step.recorded_ms or 0.0
    if step.bound == "host" and step.given_ms is not None and step.given_ms < recorded:
        advice = (
            "The hosts limit the recorded step. The profiler slows them and makes up "
            f"{100 * (1 - step.given_ms / recorded):.0f} % of that step, so without it they may "
            "not limit the job. The report shows what faster collectives would save."
        )
    slow_hosts = step.bound == "host" and step.given_ms is None
    if slow_hosts:
        advice = (
            "The GPUs wait for their hosts throughout the step; the profiler alone may cause that. "
            "Time steps without it, and give that time as --step-ms. If they are as long, launch "
            "less: larger kernels, CUDA graphs, torch.compile."
        )
    if step.sizes_unknown:
        advice = advice.replace(f"{NOTHING_TO_FIX} ", "")
        advice += (
            " Slow collectives cannot be named as a cause here: that needs the sizes of calls in "
            "the traces. Trace with CPU activities to record them. With logs, the report's section "
            "Efficiency and gain has the speeds."
        )
    if unseen:
        advice = (
            "Trace all ranks: causes on untraced ranks, and which rank is late, are not "
            "known. The report shows what faster collectives would save."
        )
    if step.kernels_in_doubt:
        advice = (
            "Kernels that may be collectives count as compute, so their waiting is not seen. Name "
            "them at ingest (--collective 'REGEX=Operation')."
        )
    likely = unseen or slow_hosts or step.kernels_in_doubt or step.sizes_unknown or step.steps < 2
    return VerdictEntry(
        "none", "likely" if likely else "certain", (), "",
        MsPerStep(0.0, 0.0, 0.0),
        f"No cause exceeds both 1 % of the step and {noise}.",
        advice,
    )  # fmt: skip


def _bound(step: StepSummary) -> str:
    """What most of the step's critical path is: the chain of parts that is as long as the step."""
    if step.bound is None or step.bound_percent is None:
        return "what bounds it is not known"
    return f"{step.bound_percent:.0f} % of its critical path is {_BOUND[step.bound]}"


def _basis(step: StepSummary, *, ranges: str = "") -> str:
    """What the verdict is based on.

    ranges  what its ranges cover; empty: it has none
    """
    of = f" of {step.world}" if step.world and step.world > step.ranks else ""
    activities = "CPU and CUDA activities" if step.cpu_activities else "CUDA activities"
    without = "pass the step time without the profiler as --step-ms"
    if step.given_ms is not None:
        without = f"{ms(step.given_ms)} ms a step without the profiler, as given"
    steps = count(step.steps, "whole step")
    ranks = f"{step.ranks}{of} ranks" if of else count(step.ranks, "rank")
    return f"Basis: {steps}, {ranks}, {activities}; {without}.{ranges}"
