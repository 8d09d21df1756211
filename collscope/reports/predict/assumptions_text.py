"""What a prediction assumes, in words: what its times stand for, what would narrow its range."""

from __future__ import annotations

from collections.abc import Iterator

from collscope.model.note import Note
from collscope.model.profile import other_profilers
from collscope.reports.efficiency.marks import mark_words
from collscope.reports.predict.answer import Basis, PredictionReport
from collscope.reports.rendering.class_words import inferred_groups
from collscope.timeline.records import Knowledge
from collscope.timeline.tolerances import SLOWDOWN_PRIOR
from collscope.units import count


def assumption_notes(report: PredictionReport) -> tuple[Note, ...]:
    """What the new times stand for, what is not known, and what would tell it."""
    return (
        *_of_times(report.assumptions),
        *_of_calls(report.assumptions),
        *_of_groups(report.knowledge),
        *_of_exchanges(report.knowledge),
        *_of_host(report),
        *_of_compute(report),
    )


def _of_times(basis: Basis) -> Iterator[Note]:
    if basis.wrong:
        yield Note(
            "wrong_results",
            {"classes": basis.wrong},
            f"{count(basis.wrong, 'class', 'classes')} measured with wrong results, or failed:"
            " left as recorded.",
        )
    for mark, classes in basis.marks:
        yield Note(
            "other_class",
            {"classes": classes, "mark": mark.of.value},
            f"{count(classes, 'new time', 'new times')}: {mark_words(mark)}.",
        )


def _of_calls(basis: Basis) -> Iterator[Note]:
    if basis.system:
        yield Note(
            "at_the_ceiling",
            {},
            "Every collective is assumed to reach the roof; one that was faster in the job is left"
            " as recorded.",
        )
    elif basis.by_call:
        yield Note(
            "by_call",
            {},
            "Every call takes as long as the call at its place of the step in the other run.",
        )
    elif basis.in_job:
        yield Note("times_in_job", {}, "The new times are those of a call in the job, not alone.")


def _of_groups(known: Knowledge) -> Iterator[Note]:
    if known.groups_inferred:
        yield Note(
            "groups_inferred",
            {"groups": known.groups_inferred},
            f"{inferred_groups(known.groups_inferred)}.",
        )


def _of_exchanges(known: Knowledge) -> Iterator[Note]:
    """How Sends and Recvs that name no peer are known."""
    if known.exchanges_alone is not None:
        yield Note(
            "peers_inferred",
            {},
            "The traces name no peer of some Sends and Recvs: each is taken to exchange with the "
            "kernel of another rank that ends when it does.",
        )
    if known.exchanges_alone:
        yield Note(
            "peers_unknown",
            {"share": known.exchanges_alone},
            f"{100 * known.exchanges_alone:.0f} % of the Sends and Recvs end with no other: how "
            "long they wait for their peers is not known, and the range allows for it. Traces of "
            "all ranks on one clock narrow it.",
        )


def _of_host(report: PredictionReport) -> Iterator[Note]:
    known = report.knowledge
    if report.low_ns < report.high_ns:
        yield Note(
            "range",
            {"low_ns": report.low_ns, "high_ns": report.high_ns},
            "The range holds the spread of the new times, the host's pace, the slowdown of compute "
            "beside the collectives, and 3 % from start to start.",
        )
    low, high = known.host_low, known.host_high
    yield from _of_calls_told(known)
    if not report.assumptions.step_told:
        yield Note(
            "profiler_cost_unknown",
            {"low": low, "high": high},
            f"What the profiler ({_profiler(known)}) costs the host is not known: its work is "
            f"taken to need {low:.2f} to {high:.2f} of the recorded time without it. --step-ms "
            "narrows the range.",
        )
    elif known.host_determined:
        yield Note(
            "profiler_cost",
            {"low": low, "high": high},
            f"The host needs {low:.2f} to {high:.2f} of the recorded time without the profiler.",
        )
    else:
        yield Note(
            "host_pace_unknown",
            {"low": low, "high": high},
            "The GPU bounds the recorded step, so that the host's own pace does not show: its "
            f"work is taken to need {low:.2f} to {high:.2f} of the recorded time. A recording of "
            "a faster setting, with its step time, narrows the range.",
        )


def _profiler(known: Knowledge) -> str:
    """Which profiler it was; of PyTorch's, what it recorded."""
    names = other_profilers(known.profilers)
    if names:
        return " and ".join(names)
    return "CPU and CUDA activities" if known.cpu_activities else "CUDA activities"


def _of_calls_told(known: Knowledge) -> Iterator[Note]:
    """What the traces lack of the host's side."""
    if not known.host_calls:
        yield Note(
            "host_calls_missing",
            {},
            "Not all traces tell the host's calls (nsys --trace=cuda; rocprofv3 --hip-trace): what"
            " rows wait for is inferred from their times.",
        )
    elif not known.event_records:
        yield Note(
            "event_records_missing",
            {},
            "The traces hold waits for events and no record of one (RPD leaves hipEventRecord"
            " out): what they wait for is inferred from the order of launches.",
        )


def _of_compute(report: PredictionReport) -> Iterator[Note]:
    known = report.knowledge
    if known.slowdown is None:
        yield Note(
            "slowdown_unknown",
            {"assumed": SLOWDOWN_PRIOR},
            "Too few kernels ran both alone and beside a collective: compute beside the new ones"
            " is assumed to last as long as recorded, and the range allows for a slowdown of "
            f"{100 * SLOWDOWN_PRIOR:.0f} %.",
        )
        return
    slower = f"Compute beside collectives runs {100 * known.slowdown:.0f} % longer than alone"
    if known.blocks is None:
        yield Note(
            "blocks_unknown",
            {"slowdown": known.slowdown},
            f"{slower}. How many multiprocessors the new ones hold is not known.",
        )
    elif abs(known.blocks - 1) < 0.01:
        yield Note(
            "slowdown_same",
            {"slowdown": known.slowdown},
            f"{slower}, and beside the new ones, too: they have as many thread blocks.",
        )
    else:
        low, high = sorted((known.slowdown, known.blocks * known.slowdown))
        yield Note(
            "slowdown_changes",
            {"low": low, "high": high, "blocks": known.blocks},
            f"{slower}. The new ones have {known.blocks:.2g} times as many thread blocks: beside "
            f"them it may run {100 * low:.2g} to {100 * high:.2g} % longer.",
        )
