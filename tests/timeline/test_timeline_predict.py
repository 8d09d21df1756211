"""Step-time prediction: the recorded A/B both ways, and jobs small enough to work out by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from readers import parse
from trace_builder import COMM, US, Job, nested_job, steady_job

from collscope.model import CollectiveClass, Datatype, Op
from collscope.model.trace import TraceCollective, TraceColumns, TraceFile
from collscope.timeline.analyse import Timeline, analyse
from collscope.timeline.perfetto import longest_calls, trace_events
from collscope.timeline.play import Substitutions, play
from collscope.timeline.prediction.predict import predict
from collscope.timeline.records import Prediction
from collscope.timeline.traced_transfers import transfers_of
from collscope.timeline.transfer_factors import NewTime

MS = 1_000_000
T = TypeVar("T")


def predicted(timeline: Timeline, new: dict[CollectiveClass, NewTime]) -> Prediction:
    found = predict(timeline.recorded(), new)
    assert found is not None
    return found


@pytest.fixture(scope="session")
def blocking(recordings: Path) -> dict[str, Timeline]:
    return {
        case: analyse(
            [
                trace
                for path in sorted((recordings / "blocking" / case).glob("rank*.json.gz"))
                for trace in parse([gzip.decompress(path.read_bytes())], path.name)
            ]
        )
        for case in ("default", "ringll")
    }


@pytest.mark.parametrize(("old", "new"), [("default", "ringll"), ("ringll", "default")])
def test_recorded_change_both_ways(
    blocking: dict[str, Timeline], recordings: Path, old: str, new: str
) -> None:
    """From one setting's record and the other's class times, the other's step time."""
    lines = (recordings / "blocking" / "steps.jsonl").read_text("utf-8").splitlines()
    measured = {j["setting"]: j["median_ms"] * MS for j in map(json.loads, lines)}
    calls, found = blocking[new].calls, blocking[new].times
    counts = found.known & ~found.warm_up
    times = {}
    for number, key in enumerate(calls.classes):
        transfer = found.transfer[counts & (calls.class_ == number)]
        times[key] = NewTime(
            float(np.median(transfer)), float(transfer.min()), float(transfer.max())
        )
    recorded = blocking[old].recorded()
    other = blocking[new].recorded()
    in_trace = predict(recorded, times)
    anchored = predict(recorded, times, measured_step_ns=measured[old])
    assert in_trace is not None
    assert anchored is not None
    assert in_trace.step_from == "kernels"
    assert in_trace.simulated_ns == pytest.approx(in_trace.step_ns, rel=0.02)
    assert in_trace.new_ns == pytest.approx(other.steps.mean_ns(other.rows.end), rel=0.01)
    assert anchored.new_ns == pytest.approx(measured[new], rel=0.02)
    assert in_trace.low_ns <= in_trace.new_ns <= in_trace.high_ns
    assert len(in_trace.changed) == 6


def only_class(timeline: Timeline) -> CollectiveClass:
    (key,) = timeline.calls.classes
    return key


def test_exposed_collective_saves_all_of_it() -> None:
    """200 µs compute, 100 µs AllReduce, gaps of 2 µs: halving the AllReduce saves 50 µs."""
    job = Job(2, jitter_ns=0)
    for _ in range(20):
        for r in range(2):
            job.compute(r, 200 * US)
        job.collective((0, 1), 100 * US)
    timeline = analyse(job.traces())
    found = predicted(timeline, {only_class(timeline): NewTime(50 * US)})
    assert found.step_ns == 304 * US
    assert found.simulated_ns == 304 * US
    assert found.starts_off_ns == 0
    assert found.new_ns == pytest.approx(254 * US)
    assert found.simple_ns == pytest.approx(254 * US)


def test_range_holds_compute_that_gets_faster_where_collectives_get_slower() -> None:
    """1000 us compute and 100 us AllReduce that takes 1100: a GPU at its power cap may compute in
    1000 / 1.19 us then, the most that its clock rises."""
    job = Job(2, jitter_ns=0)
    for _ in range(20):
        for r in range(2):
            job.compute(r, 1000 * US)
        job.collective((0, 1), 100 * US)
    timeline = analyse(job.traces())
    found = predicted(timeline, {only_class(timeline): NewTime(1100 * US)})
    assert found.new_ns == pytest.approx(2104 * US)
    assert found.low_ns <= (1000 / 1.19 + 1104) * US


def overlapping_job(transfer: float) -> Job:
    """Each step 100 µs compute, then an AllReduce of `transfer` ns beside 200 µs of compute."""
    job = Job(2, jitter_ns=0)
    for _ in range(20):
        for r in range(2):
            job.compute(r, 100 * US)
        job.collective((0, 1), transfer, blocking=False)
        for r in range(2):
            job.compute(r, 200 * US)
            job.compute_free[r] = max(job.compute_free[r], job.comm_free[r])
    return job


def test_hidden_collective_saves_nothing() -> None:
    timeline = analyse(overlapping_job(60 * US).traces())
    found = predicted(timeline, {only_class(timeline): NewTime(6 * US)})
    assert found.new_ns == found.step_ns == 304 * US
    assert found.simple_ns == pytest.approx(found.step_ns, abs=3 * US)


def test_partly_exposed_collective_saves_only_the_exposed_part() -> None:
    """AllReduce 300 µs beside 200 µs: exposed 98 µs; at 100 µs only those are gained."""
    timeline = analyse(overlapping_job(300 * US).traces())
    found = predicted(timeline, {only_class(timeline): NewTime(100 * US)})
    assert found.step_ns == 404 * US
    assert found.new_ns == pytest.approx(304 * US, abs=3 * US)


def test_hidden_collective_that_grows_beyond_the_step_makes_it_longer() -> None:
    """500 µs of AllReduce a step on one stream: the step cannot be shorter."""
    timeline = analyse(overlapping_job(60 * US).traces())
    found = predicted(timeline, {only_class(timeline): NewTime(500 * US)})
    assert found.new_ns >= 500 * US


def test_marked_step_ends_when_all_streams_have() -> None:
    """The profiler's marks; the last kernel of a step is compute that waits for no collective."""
    job = overlapping_job(60 * US)
    traces = []
    for trace in job.traces():
        c = trace.columns
        bare = replace(c, launch_ns=np.full(len(c), -1))
        marks = tuple((job.base + k * 304 * US, job.base + (k + 1) * 304 * US) for k in range(20))
        traces.append(replace(trace, columns=bare, steps=marks))
    timeline = analyse(traces)
    assert timeline.recorded().steps.source == "marks"
    found = predicted(timeline, {only_class(timeline): NewTime(500 * US)})
    assert found.step_ns == 304 * US
    assert found.new_ns >= 490 * US


def test_nothing_substituted_gives_every_recorded_time() -> None:
    for seed in range(12):
        graph = analyse(nested_job(seed).traces({0: 2 * MS})).recorded().graph
        assert play(graph, Substitutions()).time[2:] == pytest.approx(graph.time, abs=1e-6)


def test_idle_time_of_no_known_cause_may_go_or_double() -> None:
    """98 us a step on the compute stream have no cause; an AllReduce of 60 us takes 6 then."""
    job = Job(2, jitter_ns=0)
    for _ in range(20):
        for r in range(2):
            job.compute(r, 100 * US)
            job.compute(r, 100 * US, gap=100 * US)
        job.collective((0, 1), 60 * US)
    timeline = analyse(job.traces())
    found = predicted(timeline, {only_class(timeline): NewTime(6 * US)})
    assert 0.2 < found.knowledge.idle_unexplained < 0.3
    assert found.step_ns - found.new_ns == pytest.approx(54 * US, abs=2 * US)
    assert found.low_ns <= found.new_ns - 98 * US
    assert found.high_ns >= found.new_ns + 98 * US


def test_what_the_given_step_holds_beyond_the_recorded_one_stays() -> None:
    """By hand: of 404 us an AllReduce of 300 us exposes 100, which are saved at 100 us.

    A step of 604 us has 200 us that are not in the traces: they stay, and may hide the gain.
    """
    timeline = analyse(overlapping_job(300 * US).traces())
    new = {only_class(timeline): NewTime(100 * US)}
    found = predict(timeline.recorded(), new, measured_step_ns=604 * US)
    assert found is not None
    assert found.knowledge.rest_ns == pytest.approx(200 * US, abs=3 * US)
    assert found.new_ns == pytest.approx(504 * US, abs=3 * US)
    assert found.low_ns <= 304 / 404 * 604 * US
    assert found.high_ns >= 604 * US


@pytest.mark.parametrize(
    ("new", "least", "most"),
    [
        # Half of what it was: of 60 us at most 30 are won, and none if they are all waiting.
        (NewTime(1.0, old_ns=2.0), -30, 0),
        # At a roof of 40 us: it cannot have been shorter than that.
        (NewTime(40.0 * US, bound=True), -20, 0),
        # A network where it takes 200 us, whatever it took before.
        (NewTime(200.0 * US), 140, 200),
        # Alone it took 50 us, and would take 100.
        (NewTime(100.0 * US, old_ns=50.0 * US), 50, 60),
    ],
)
def test_of_one_trace_the_range_goes_from_no_waiting_to_all_of_it(
    new: NewTime, least: float, most: float
) -> None:
    """One of four ranks, three calls a step: their kernels of 60 us transfer so long, or wait."""
    timeline = analyse(steady_job(4, 30).traces()[:1])
    found = predicted(timeline, dict.fromkeys(timeline.calls.classes, new))
    assert all(c.old_ns is None for c in found.changed)
    longer = (np.array([found.low_ns, found.new_ns, found.high_ns]) - found.step_ns) / US / 3
    assert longer[1] == pytest.approx((least + most) / 2, abs=2)
    assert longer[0] <= least + 2
    assert longer[2] >= most - 2
    # 3 % between starts, and a clock that follows the collectives: 200 us of compute a call.
    assert longer[2] - longer[0] <= (most - least) + 0.25 * 200


def test_wait_for_a_late_rank_is_not_won() -> None:
    """Rank 1 computes 100 µs longer: a transfer of no time leaves its compute."""
    job = Job(2, jitter_ns=0)
    for _ in range(20):
        job.compute(0, 100 * US)
        job.compute(1, 200 * US)
        job.collective((0, 1), 50 * US)
    timeline = analyse(job.traces())
    found = predicted(timeline, {only_class(timeline): NewTime(5 * US)})
    assert found.step_ns == 254 * US
    assert found.new_ns == pytest.approx(209 * US)


def test_old_time_alone_keeps_what_slows_the_calls_in_the_job() -> None:
    """In the job 60 µs, alone 40: alone 20 afterwards is 30 in the job; 3 sizes make a step."""
    timeline = analyse(steady_job(2, 30).traces())
    times = {key: NewTime(20_000.0, old_ns=40_000.0) for key in timeline.calls.classes}
    found = predicted(timeline, times)
    assert found.step_ns - found.new_ns == pytest.approx(90 * US, abs=1 * US)
    assert all(c.new_ns == pytest.approx(c.old_ns / 2) for c in found.changed)


def test_nothing_but_the_transfers_is_taken_from_the_other_run() -> None:
    """Its AllReduce takes 90 µs; whether its compute takes 100 µs or 1 ms changes nothing."""

    def job(compute: int, transfer: int) -> Timeline:
        made = Job(2, jitter_ns=0)
        for _ in range(20):
            for r in range(2):
                made.compute(r, compute)
            made.collective((0, 1), transfer)
        return analyse(made.traces())

    recorded = job(100 * US, 50 * US).recorded()
    found, steps = [], []
    for compute in (100 * US, 1000 * US):
        other = job(compute, 90 * US).recorded()
        traced = transfers_of(other.rows, other.linked, other.linked_times)
        found.append(predict(recorded, {}, traced=traced, starts=other.starts))
        steps.append(other.step_ns)
    assert steps == [194 * US, 1094 * US]
    one, two = found
    assert one is not None
    assert two is not None
    assert one.new_ns == pytest.approx(194 * US)
    assert replace(one, other_starts_off_ns=None) == replace(two, other_starts_off_ns=None)


def test_host_bound_step_does_not_gain() -> None:
    """The host launches once in 400 µs, 20 µs of compute and 50 µs of AllReduce follow."""
    job = Job(2, jitter_ns=0)
    for k in range(20):
        for r in range(2):
            job.compute_free[r] = job.comm_free[r] = k * 400 * US
            job.compute(r, 20 * US)
            job.rows[r][-1].launch = job.rows[r][-1].start - 5 * US
        job.collective((0, 1), 50 * US)
        for r in range(2):
            job.rows[r][-1].launch = k * 400 * US + 10 * US
    timeline = analyse(job.traces())
    found = predicted(timeline, {only_class(timeline): NewTime(5 * US)})
    assert found.step_ns == 400 * US
    assert found.new_ns == pytest.approx(400 * US, abs=3 * US)
    for step_ns, parts in (
        (found.step_ns, found.bound_before), (found.new_ns, found.bound_after)
    ):  # fmt: skip
        assert sum(part.ns for part in parts) == pytest.approx(step_ns, rel=1e-9)


def test_host_that_waits_for_the_gpu_gains() -> None:
    """After each step the host waits for the AllReduce, then takes 100 µs to launch the next."""
    job = Job(2, jitter_ns=0)
    for _ in range(20):
        for r in range(2):
            begin = max(job.compute_free[r], job.comm_free[r])
            for part in range(5):
                job.compute(r, 30 * US, gap=20 * US if part == 0 else 2 * US)
                job.rows[r][-1].launch = begin + (10 + 5 * part) * US
        job.collective((0, 1), 80 * US)
        for r in range(2):
            job.rows[r][-1].launch = begin + 40 * US
    timeline = analyse(job.traces())
    found = predicted(timeline, {only_class(timeline): NewTime(30 * US)})
    assert found.step_ns - found.new_ns == pytest.approx(50 * US, abs=1 * US)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_unchanged_random_jobs_reproduce_the_record(seed: int) -> None:
    timeline = analyse(nested_job(seed).traces({1: 3 * MS}))
    found = predicted(timeline, {})
    assert found.new_ns == found.low_ns == found.high_ns == found.step_ns
    slower = {k: NewTime(1e9) for k in timeline.calls.classes}
    assert predicted(timeline, slower).new_ns > found.step_ns


def test_no_rows_no_prediction() -> None:
    assert predict(analyse([]).recorded(), {}) is None


def wild_trace(rng: np.random.Generator, rank: int | None) -> TraceFile:
    """Any rows, any collectives: what no job does but a broken trace may say."""
    n = int(rng.integers(0, 40))

    def maybe(*values: T) -> T:
        return values[rng.integers(0, len(values))]

    table = tuple(
        TraceCollective(
            maybe(*Op),
            maybe(None, Datatype.INT8, Datatype.UNKNOWN),
            maybe(None, 0, 7, 1 << 40),
            maybe(None, 0, 7, -3),
            maybe(None, "a", "b"),
            maybe(None, 0, 1, 2, 5),
            maybe(None, (), (0, 1), (1, 0), (0, 1, 2), (9,)),
            root=maybe(None, 0, 77),
            peer=maybe(None, -1, 0, 1, 9),
        )
        for _ in range(rng.integers(0, 6))
    )
    span = int(maybe(5, 1000, 10**9))
    start = rng.integers(0, span, n)
    columns = TraceColumns(
        kind=rng.integers(0, 3, n).astype(np.int8),
        name=np.zeros(n, dtype=np.int32),
        stream=rng.integers(0, 3, n).astype(np.int32),
        start_ns=start,
        end_ns=start + rng.integers(-5, span, n),
        launch_ns=np.where(rng.random(n) < 0.5, start - rng.integers(-9, span, n), -1),
        collective=rng.integers(-1, len(table), n).astype(np.int32),
        seq=rng.integers(-1, 9, n),
    )
    steps = ((0, span // 3), (span // 3, span)) if rng.random() < 0.3 else ()
    return TraceFile("wild", ("k",), ("0", "1", "2"), table, columns, rank, steps=steps)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_no_trace_stops_the_analysis(seed: int) -> None:
    rng = np.random.default_rng(seed)
    files = [wild_trace(rng, r if rng.random() < 0.8 else None) for r in range(rng.integers(0, 5))]
    timeline = analyse(files)
    recorded = timeline.recorded()
    found = predict(recorded, {k: NewTime(1.0) for k in timeline.calls.classes})
    assert found is None or found.new_ns is None or np.isfinite(found.new_ns)
    parts = np.sort(np.concatenate([timeline.calls.row, timeline.calls.unpaired]))
    assert parts.tolist() == np.flatnonzero(timeline.rows.entry >= 0).tolist()
    json.dumps(list(trace_events(timeline)), allow_nan=False)


def test_perfetto_events() -> None:
    job = steady_job(3, 10, late=1)
    timeline = analyse(job.traces({2: 5 * MS}))
    events = list(trace_events(timeline))
    json.dumps(events, allow_nan=False)
    slices = [e for e in events if e["ph"] == "X"]
    for rank in range(3):
        mine = [e for e in slices if e["pid"] == rank]
        transfer = [e for e in mine if e["cat"] == "transfer"]
        assert len(transfer) == 10
        assert sum(float(str(e["dur"])) for e in mine) == pytest.approx(
            timeline.ranks[rank].duration_ns / 1000, abs=1
        )
    # All ranks' transfers of a call begin together, 5 ms of clock notwithstanding.
    begins = np.array(
        [[e["ts"] for e in slices if e["pid"] == r and e["cat"] == "transfer"] for r in range(3)]
    )
    assert np.ptp(begins, axis=0).max() < 2
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) >= 2
    assert all(e["bp"] == "e" for e in ends.values())


def test_perfetto_is_bounded() -> None:
    timeline = analyse(steady_job(3, 40, late=1).traces())
    assert len(longest_calls(timeline, 30)) == 10
    events = list(trace_events(timeline, 30))
    assert sum(e["ph"] == "X" and e["cat"] == "transfer" for e in events) == 30
    (left,) = [e for e in events if e["name"] == "calls_left_out"]
    assert left["args"] == {"calls": 30}


def with_traces(old: Job, new: Job, ranks: int) -> Prediction:
    """The prediction of the first ranks' traces, whose clocks differ, with those of another run."""
    one, two = (analyse(job.traces(offsets={1: 3 * MS})[:ranks]).recorded() for job in (old, new))
    found = predict(one, {}, traced=transfers_of(two.rows, two.linked, two.linked_times))
    assert found is not None
    return found


def test_shortest_kernel_tells_a_rooted_transfer_where_clocks_are_not_shared() -> None:
    """Rank 1 computes 200 us, rank 0 half of it: its kernels wait 100 us for a Broadcast of 50."""

    def job(transfer: int) -> Job:
        made = Job(2, jitter_ns=0)
        for _ in range(20):
            made.compute(0, 100 * US)
            made.compute(1, 200 * US)
            made.collective((0, 1), transfer, op=Op.BROADCAST)
        return made

    found = with_traces(job(50 * US), job(90 * US), ranks=2)
    (change,) = found.changed
    assert (change.old_ns, change.new_ns, change.bounded) == (50 * US, 90 * US, True)
    assert found.step_ns == 254 * US
    assert found.new_ns == pytest.approx(294 * US)
    # Of the kernels nothing else tells that the longest, of 150 and 190 us, are not the transfer.
    assert found.low_ns <= 204 * US
    assert found.high_ns >= 394 * US


def test_range_goes_as_far_as_the_kernels_of_a_class_that_is_not_known() -> None:
    """A small call of two ranks is known; the large one of all three lacks the trace of rank 2."""

    def job(transfer: int) -> Job:
        made = Job(3, jitter_ns=0)
        for _ in range(20):
            for r in range(3):
                made.compute(r, 100 * US)
            made.collective((0, 1), 10 * US, count=64)
            made.collective((0, 1, 2), transfer)
        return made

    found = with_traces(job(100 * US), job(400 * US), ranks=2)
    assert [c.collective_class.nranks for c in found.changed] == [2]
    assert [key.nranks for key in found.unchanged] == [3]
    assert found.knowledge.unchanged == pytest.approx(100 / 110, abs=0.01)
    assert found.low_ns <= found.step_ns - 100 * US
    assert found.high_ns >= found.step_ns + 300 * US


def test_broadcast_root_does_not_wait() -> None:
    """Names of operations reach the slices."""
    job = steady_job(2, 5)
    job.collective((0, 1), 10 * US, op=Op.ALL_GATHER, count=4, comm=COMM)
    names = {e["name"] for e in trace_events(analyse(job.traces()))}
    assert "AllGather 16 B" in names
