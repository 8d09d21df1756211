"""A recorded job as other profilers would have written it: its prediction is that of the record.

What a format lacks is lacking in `trace_converter`, which writes what each tells and no more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace
from test_causal import ALL_REDUCE, KERNEL, US, Recorder, overlapping_job
from trace_converter import FORMATS, converted

from collscope.model.trace import Call, TraceFile
from collscope.timeline.analyse import analyse
from collscope.timeline.prediction.predict import predict
from collscope.timeline.records import Prediction
from collscope.timeline.traced_transfers import transfers_of

# RoctracerDataSource leaves hipEventRecord out: which event a wait is for follows from times.
WITHOUT_RECORDS = "rpd_roctracer"


def predicted(old: list[TraceFile], new: list[TraceFile]) -> Prediction:
    other = analyse(new)
    traced = transfers_of(other.rows, other.calls, other.times)
    found = predict(analyse(old).recorded(), {}, traced=traced)
    assert found is not None
    return found


def graph_job(transfer: float, steps: int = 8) -> list[TraceFile]:
    """Each step one graph: compute and the AllReduce behind it; then the host waits for both."""
    traces = []
    for rank in range(2):
        recorder = Recorder(rank)
        for _ in range(steps):
            begin = recorder.now + 15
            recorder.launch(7, begin, begin + 100)
            number = recorder.call("cudaGraphLaunch", 4.0)
            at = begin + 105
            for name, stream, lasts in (
                (KERNEL, 7, 50.0), (ALL_REDUCE, 19, transfer), ("void tail", 7, 40.0)
            ):  # fmt: skip
                recorder.events.append(
                    {"ph": "X", "cat": "kernel", "name": name, "tid": stream, "ts": at,
                     "dur": lasts, "args": {"correlation": number, "stream": stream, "device": 0}}
                )  # fmt: skip
                at += lasts + 2
            recorder.call("cudaDeviceSynchronize", at + 10 - recorder.now)
        traces.append(recorder.trace())
    return traces


@pytest.mark.parametrize("form", FORMATS)
def test_the_calls_come_through(form: str) -> None:
    """Kinds, threads, times and launches; a format may lack records and the untold."""
    for own, other in zip(
        overlapping_job(60.0), converted(overlapping_job(60.0), form), strict=True
    ):
        assert own.calls is not None
        assert other.calls is not None
        kept = np.ones(len(own.calls), dtype=bool)
        if form == WITHOUT_RECORDS:
            kept = own.calls.kind != Call.RECORD
        assert other.calls.kind.tolist() == own.calls.kind[kept].tolist()
        for times in ("start_ns", "end_ns"):
            mine, theirs = getattr(own.calls, times)[kept], getattr(other.calls, times)
            assert np.ptp(mine - theirs) == 0
        number = np.cumsum(kept) - 1
        assert other.calls.of_row.tolist() == number[own.calls.of_row].tolist()
        names = [trace.names for trace in (own, other)]
        assert [names[0][k] for k in own.columns.name] == [names[1][k] for k in other.columns.name]


@pytest.mark.parametrize("job", [overlapping_job, graph_job])
@pytest.mark.parametrize("form", FORMATS)
def test_the_prediction_is_that_of_the_record(
    form: str, job: Callable[[float], list[TraceFile]]
) -> None:
    """From an AllReduce of 60 us, hidden in the one job, to one of 400, and back."""
    for old, new in ((60.0, 400.0), (400.0, 60.0)):
        own = predicted(job(old), job(new))
        # What another profiler costs the host is not known, so that its ranges are wider.
        other = predicted(*([as_kineto(t) for t in converted(job(v), form)] for v in (old, new)))
        assert other.step_ns == own.step_ns
        # RPD tells one stream for all of a graph: what a wait between streams takes is lost.
        assert other.simulated_ns == pytest.approx(own.simulated_ns, rel=0.015)
        assert other.new_ns == pytest.approx(own.new_ns, rel=1e-3)
        if form == WITHOUT_RECORDS:  # more of what rows wait for is no more than possible
            assert 0.9 * own.low_ns <= other.low_ns <= 1.01 * own.low_ns
            assert 0.99 * own.high_ns <= other.high_ns <= 1.1 * own.high_ns
        else:
            assert other.low_ns == pytest.approx(own.low_ns, rel=0.01)
            assert other.high_ns == pytest.approx(own.high_ns, rel=0.01)
        if not form.startswith("rpd"):
            assert other.knowledge == replace(own.knowledge, blocks=other.knowledge.blocks)


def test_what_another_profiler_costs_is_not_known() -> None:
    """The host's range is that of both ways of PyTorch's; what is missing is told."""
    kineto = predicted(overlapping_job(60.0), overlapping_job(400.0))
    for form in FORMATS:
        found = predicted(*(converted(overlapping_job(v), form) for v in (60.0, 400.0)))
        known = found.knowledge
        assert (known.host_low, known.host_high) == (0.4, 1.0)
        assert known.host_calls
        assert known.event_records == (form != WITHOUT_RECORDS)
        assert found.new_ns == pytest.approx(kineto.new_ns, rel=1e-3)
        assert found.low_ns <= kineto.new_ns <= found.high_ns
        assert found.high_ns / found.low_ns > 0.99 * kineto.high_ns / kineto.low_ns
    bare = [replace(trace, calls=None) for trace in overlapping_job(60.0)]
    assert not predicted(bare, overlapping_job(400.0)).knowledge.host_calls


def as_kineto(trace: TraceFile) -> TraceFile:
    return replace(trace, dialect="kineto")


def test_a_graphs_own_order_is_seen_in_its_times() -> None:
    """No call tells what waits for what inside of a graph: by hand 15 + 100 + 5, the graph's
    50 + 2 + transfer + 2 + 40 + 2, 10 until the host goes on, and 1 + 1 us of calls."""
    for transfer in (60.0, 400.0):
        recorded = analyse(graph_job(transfer)).recorded()
        assert recorded.step_ns == (227 + transfer) * US
        assert recorded.step(recorded.simulated) == pytest.approx(recorded.step_ns, rel=0.001)
        assert recorded.graph.idle_ns.tolist() == [0, 0]
