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
    """What the new times stand for, what is not known, and which recording would show it."""
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
            f"{count(basis.wrong, 'class', 'classes')} measured with wrong results, or "
            "failed: kept as recorded.",
        )
    for mark, classes in basis.marks:
        yield Note(
            "other_class",
            {"classes": classes, "mark": mark.of.value},
            f"{count(classes, 'class gets', 'classes get')} new times although {mark_words(mark)}.",
        )


def _of_calls(basis: Basis) -> Iterator[Note]:
    if basis.system:
        yield Note(
            "at_the_ceiling",
            {},
            "We assume that every collective reaches its reachable speed. A collective that was "
            "faster in the job keeps its recorded time.",
        )
    elif basis.by_call:
        yield Note(
            "by_call",
            {},
            (
                "Every call takes as long as the call at the same place of the step in the other "
                "run."
            ),
        )
    elif basis.in_job:
        yield Note("times_in_job", {}, "The new times are those of calls in a job, not alone.")


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
            "The traces name no peer of some Sends and Recvs: we assume that each exchanges "
            "with the kernel of another rank that ends at the same time.",
        )
    if known.exchanges_alone:
        yield Note(
            "peers_unknown",
            {"share": known.exchanges_alone},
            f"{100 * known.exchanges_alone:.0f} % of the Sends and Recvs end with no other: "
            "how long they wait for their peers is not known, and the range allows for it. "
            "Traces of all ranks on one clock narrow it.",
        )


def _of_host(report: PredictionReport) -> Iterator[Note]:
    known = report.knowledge
    if report.low_ns < report.high_ns:
        yield Note(
            "range",
            {"low_ns": report.low_ns, "high_ns": report.high_ns},
            "The range covers the spread of the new times, the host speed, the slowdown of "
            "compute by collectives, and 3 % run-to-run variation.",
        )
    low, high = known.host_low, known.host_high
    yield from _of_host_calls(known)
    if not report.assumptions.step_given:
        yield Note(
            "profiler_cost_unknown",
            {"low": low, "high": high},
            f"The cost of the profiler ({_profiler(known)}) on the host is not known. We "
            f"assume that without the profiler, host work needs {low:.2f} to {high:.2f} of its "
            "recorded time. --step-ms narrows the range.",
        )
    elif known.host_determined:
        yield Note(
            "profiler_cost",
            {"low": low, "high": high},
            (
                f"Without the profiler, host work needs {low:.2f} to {high:.2f} of its recorded "
                "time."
            ),
        )
    else:
        yield Note(
            "host_pace_unknown",
            {"low": low, "high": high},
            "The GPU limits the recorded step, which hides the host's own speed: we assume "
            f"that host work needs {low:.2f} to {high:.2f} of its recorded time. A recording "
            "of a faster setting, with its step time, narrows the range.",
        )


def _profiler(known: Knowledge) -> str:
    """Which profiler it was; of PyTorch's, what it recorded."""
    names = other_profilers(known.profilers)
    if names:
        return " and ".join(names)
    return "CPU and CUDA activities" if known.cpu_activities else "CUDA activities"


def _of_host_calls(known: Knowledge) -> Iterator[Note]:
    """What the traces lack of the host's side."""
    if not known.host_calls:
        yield Note(
            "host_calls_missing",
            {},
            "Some traces lack the host's calls (nsys --trace=cuda; rocprofv3 --hip-trace): "
            "what kernels wait for is inferred from their times.",
        )
    elif not known.event_records:
        yield Note(
            "event_records_missing",
            {},
            "The traces hold waits for events but no event records (RPD omits "
            "hipEventRecord): what they wait for is inferred from the order of launches.",
        )


def _of_compute(report: PredictionReport) -> Iterator[Note]:
    known = report.knowledge
    if known.slowdown is None:
        yield Note(
            "slowdown_unknown",
            {"assumed": SLOWDOWN_PRIOR},
            "The recording does not show how much collectives slow down compute: too few kernels "
            "ran alone at some times and beside a collective at others. We assume that compute "
            "during the new collectives takes its recorded time; the range allows for a "
            f"slowdown of {100 * SLOWDOWN_PRIOR:.0f} %.",
        )
        return
    slower = f"Compute during collectives takes {100 * known.slowdown:.0f} % longer than alone"
    if known.blocks is None:
        yield Note(
            "blocks_unknown",
            {"slowdown": known.slowdown},
            f"{slower}. How many multiprocessors the new collectives use is not known.",
        )
    elif abs(known.blocks - 1) < 0.01:
        yield Note(
            "slowdown_same",
            {"slowdown": known.slowdown},
            (
                f"{slower}. The new collectives use as many thread blocks, so we assume the same "
                "slowdown."
            ),
        )
    else:
        low, high = sorted((known.slowdown, known.blocks * known.slowdown))
        yield Note(
            "slowdown_changes",
            {"low": low, "high": high, "blocks": known.blocks},
            f"{slower}. The new collectives use {known.blocks:.2g} times as many thread "
            f"blocks: during them it may take {100 * low:.2g} to {100 * high:.2g} % longer.",
        )
