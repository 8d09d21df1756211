"""The causal graph: what waits for what, from the order of calls; and what a change does then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard
from msgspec.structs import replace
from readers import parse

from collscope.match.shared_clock import agreement, match_by_clock, split_members
from collscope.model import Op
from collscope.model.trace import Call, TraceFile
from collscope.store.trace_columns import decode_trace, encode_trace
from collscope.timeline.analyse import Timeline, analyse
from collscope.timeline.play import Substitutions, play
from collscope.timeline.prediction.predict import predict
from collscope.timeline.traced_transfers import transfers_of
from collscope.timeline.transfer_factors import NewTime

US = 1_000
MS = 1_000_000
KERNEL = "void gemm"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Recorder:
    """A PyTorch profiler trace of one rank, call by call; times in us."""

    def __init__(self, rank: int) -> None:
        self.rank, self.now, self.correlation = rank, 100.0, 0
        self.events: list[dict[str, object]] = []

    def call(self, name: str, lasts: float = 1.0) -> int:
        self.correlation += 1
        self.events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": name, "tid": 1, "ts": self.now,
             "dur": lasts, "args": {"correlation": self.correlation}}
        )  # fmt: skip
        self.now += lasts + 1
        return self.correlation

    def launch(self, stream: int, start: float, end: float, name: str = KERNEL) -> None:
        number = self.call("cudaLaunchKernel", 3.0)
        self.events.append(
            {"ph": "X", "cat": "kernel", "name": name, "tid": stream, "ts": start,
             "dur": end - start, "args": {"correlation": number, "stream": stream, "device": 0}}
        )  # fmt: skip

    def told(self, stream: int, event: int) -> None:
        """What enable_cuda_sync_events adds to the last call."""
        self.events.append(
            {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "tid": stream,
             "ts": self.now, "dur": 1, "args": {"correlation": self.correlation, "stream": stream,
             "wait_on_stream": -1, "wait_on_cuda_event_id": event, "device": 0}}
        )  # fmt: skip

    def trace(self) -> TraceFile:
        info = {"rank": self.rank, "world_size": 2}
        document = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": self.events}
        (found,) = parse([json.dumps(document).encode()], "t.json")
        return found


def overlapping_step(recorder: Recorder, transfer: float) -> None:
    """As DDP: compute, its AllReduce on another stream, compute beside it, then wait for it.

    The AllReduce waits for the first kernel, the last kernel for the AllReduce.
    """
    begin = max(recorder.now, *(end_of(e) for e in recorder.events), 0.0) + 20
    recorder.now = begin - 15
    recorder.launch(7, begin, begin + 100)
    recorder.call("cudaEventRecordWithFlags")
    recorder.call("cudaStreamWaitEvent")
    recorder.call("cudaEventRecord")
    recorder.call("cudaStreamWaitEvent")  # the library's own
    recorder.launch(19, begin + 105, begin + 105 + transfer, ALL_REDUCE)
    recorder.call("cudaEventRecord")
    recorder.call("cudaStreamWaitEvent")  # the library's own
    recorder.call("cudaEventRecordWithFlags")  # the work's end
    recorder.launch(7, begin + 102, begin + 202, "void other")
    recorder.call("cudaStreamWaitEvent")
    last = begin + max(202.0, 105 + transfer) + 5
    recorder.launch(7, last, last + 50, "void optimizer")
    recorder.call("cudaDeviceSynchronize", last + 60 - recorder.now)


def end_of(event: dict[str, object]) -> float:
    start, lasts = event["ts"], event["dur"]
    assert isinstance(start, int | float)
    assert isinstance(lasts, int | float)
    return float(start + lasts)


def overlapping_job(transfer: float, steps: int = 8) -> list[TraceFile]:
    recorders = [Recorder(0), Recorder(1)]
    for recorder in recorders:
        for _ in range(steps):
            overlapping_step(recorder, transfer)
    return [recorder.trace() for recorder in recorders]


def test_calls_that_order_work_are_kept_and_stored() -> None:
    recorder = Recorder(0)
    recorder.launch(7, 120, 130)
    recorder.call("cudaGetDevice")  # orders nothing
    recorder.call("cudaEventRecordWithFlags")
    recorder.call("cudaStreamWaitEvent")
    recorder.told(7, 6)
    recorder.call("hipStreamSynchronize")
    recorder.call("cuCtxSynchronize")
    recorder.call("cudaEventSynchronize")
    trace = recorder.trace()
    for read in (trace, decode_trace(encode_trace(trace))):
        assert read.calls is not None
        kinds = [Call(k) for k in read.calls.kind]
        assert kinds == [
            Call.LAUNCH, Call.RECORD, Call.WAIT, Call.STREAM_SYNC, Call.DEVICE_SYNC,
            Call.EVENT_SYNC,
        ]  # fmt: skip
        assert read.calls.stream.tolist() == [-1, -1, 0, -1, -1, -1]
        assert read.streams[0] == "7"
        assert read.calls.event.tolist() == [-1, -1, 6, -1, -1, -1]
        assert read.calls.of_row.tolist() == [0]
        assert int(read.calls.start_ns[0]) == int(read.columns.launch_ns[0]) == 100 * US
        assert int(read.calls.end_ns[0]) == 103 * US
    bare = decode_trace(encode_trace(replace(trace, calls=None)))
    assert bare.calls is None


@pytest.mark.parametrize(
    ("old", "new"), [(60.0, 400.0), (400.0, 60.0), (60.0, 80.0), (150.0, 100.0)]
)
def test_an_overlapped_collective(old: float, new: float) -> None:
    """By hand: 20 + max(202, 105 + transfer) + 5 + 50, and 10 until the host goes on."""

    def step(transfer: float) -> float:
        return max(202.0, 105 + transfer) + 5 + 50 + 10 + 20

    recorded = analyse(overlapping_job(old)).recorded()
    other = analyse(overlapping_job(new))
    assert recorded.graph.edges.contradicted == 0
    assert recorded.graph.idle_ns.tolist() == [0, 0]
    found = predict(recorded, {}, traced=transfers_of(other.rows, other.calls, other.times))
    assert found is not None
    assert found.step_ns == pytest.approx(step(old) * US, abs=2 * US)
    for step_ns, parts in (
        (found.step_ns, found.bound_before), (found.new_ns, found.bound_after)
    ):  # fmt: skip
        assert sum(part.ns for part in parts) == pytest.approx(step_ns, rel=1e-9)
    # The host's share of the step is not known without the profiler's cost: all but that.
    assert found.new_ns / found.step_ns == pytest.approx(step(new) / step(old), rel=0.03)
    assert found.low_ns <= found.new_ns <= found.high_ns


def named_events_job(*, records: bool) -> list[TraceFile]:
    """Two AllReduces of 60 us beside 100 of compute: the optimizer waits for the one on stream 19,
    whose event was recorded before that of the other. `records`: the trace tells those."""
    traces = []
    for rank in range(2):
        recorder, told = Recorder(rank), list[tuple[str, int]]()
        for _ in range(8):
            begin = max(recorder.now, *(end_of(e) for e in recorder.events), 0.0) + 20
            recorder.now = begin - 15
            recorder.launch(7, begin, begin + 100)
            for stream, event in ((19, 1), (20, 2)):
                recorder.launch(stream, begin + 5, begin + 65, ALL_REDUCE)
                recorder.call("cudaEventRecord")
                told.append((str(stream), event))
            recorder.call("cudaStreamWaitEvent")
            recorder.told(7, 1)
            recorder.launch(7, begin + 105, begin + 155, "void optimizer")
            recorder.call("cudaDeviceSynchronize", begin + 160 - recorder.now)
        trace = recorder.trace()
        assert trace.calls is not None
        stream_of, event_of = trace.calls.stream.copy(), trace.calls.event.copy()
        recorded = np.flatnonzero(trace.calls.kind == Call.RECORD) if records else []
        for k, (label, event) in zip(recorded, told, strict=False):
            stream_of[k], event_of[k] = trace.streams.index(label), event
        traces.append(replace(trace, calls=replace(trace.calls, stream=stream_of, event=event_of)))
    return traces


@pytest.mark.parametrize("records", [True, False])
def test_a_wait_is_for_the_event_that_is_told(records: bool) -> None:
    """An AllReduce of 400 us holds the first optimizer up by 300, less 5 for its event; where no
    record is told, the last one before the wait is taken, which is that of the other."""
    recorded = analyse(named_events_job(records=records)).recorded()
    graph, rows = recorded.graph, recorded.rows
    assert graph.edges.contradicted == 0
    first = next(k for k, n in enumerate(rows.name.tolist()) if rows.names[n] == "void optimizer")
    of_part = [rows.streams[s][1] for s in rows.stream[recorded.calls.row].tolist()]
    moved = {}
    for stream in ("19", "20"):
        longer = np.where(np.array(of_part) == stream, 400.0 * US, graph.transfer)
        before, after = play(graph, Substitutions()), play(graph, Substitutions(longer))
        moved[stream] = after.time[graph.start_node[first]] - before.time[graph.start_node[first]]
    assert moved["19" if records else "20"] == pytest.approx(303 * US, abs=4 * US)
    assert moved["20" if records else "19"] == 0


def test_no_faster_collective_makes_a_step_longer() -> None:
    """Whatever step time is given, also one far below what the GPU took in the record."""
    recorded = analyse(overlapping_job(150.0)).recorded()
    (key,) = recorded.calls.classes
    for given in (100.0, 280.0, 330.0, 400.0):
        found = predict(recorded, {key: NewTime(140_000.0)}, measured_step_ns=given * US)
        assert found is not None
        assert found.new_ns <= found.step_ns


def test_a_wait_that_the_times_contradict_is_no_edge() -> None:
    """The last kernel starts before the AllReduce ends: it cannot have waited for it."""
    traces = []
    for trace in overlapping_job(400.0):
        c = trace.columns
        starts, ends = c.start_ns.copy(), c.end_ns.copy()
        name = [trace.names[k] for k in c.name.tolist()]
        early = np.array([n == "void optimizer" for n in name])
        starts[early] -= 290 * US
        ends[early] -= 290 * US
        order = np.argsort(starts, kind="stable")
        columns = replace(
            c, **{f: getattr(c, f)[order] for f in ("kind", "name", "stream", "collective", "seq",
                                                    "launch_ns")},
            start_ns=starts[order], end_ns=ends[order],
        )  # fmt: skip
        assert trace.calls is not None
        calls = replace(trace.calls, of_row=trace.calls.of_row[order])
        traces.append(replace(trace, columns=columns, calls=calls))
    graph = analyse(traces).recorded().graph
    doubled = Substitutions(transfer=graph.transfer * 2.0)
    before, after = play(graph, Substitutions()), play(graph, doubled)
    moved = after.time[graph.start_node] - before.time[graph.start_node]
    timeline = analyse(traces)
    optimizer = np.array([timeline.rows.names[k] == "void optimizer" for k in timeline.rows.name])
    first = np.flatnonzero(optimizer)[0]
    assert moved[first] == 0


def test_the_check_fails_where_a_cause_is_not_known() -> None:
    """Without the calls for events nothing holds the AllReduce, nor the last kernel, up."""
    whole = analyse(overlapping_job(400.0))
    recorded = whole.recorded()
    assert recorded.step(recorded.simulated) == pytest.approx(592 * US, abs=US)
    assert recorded.starts_off_ns(recorded.simulated, recorded.starts) == 0
    traces = []
    for trace in overlapping_job(400.0):
        assert trace.calls is not None
        kind = np.where(trace.calls.kind == Call.WAIT, Call.RECORD, trace.calls.kind)
        traces.append(replace(trace, calls=replace(trace.calls, kind=kind)))
    blind = analyse(traces).recorded()
    assert blind.step(blind.simulated) < 580 * US
    off = blind.starts_off_ns(blind.simulated, blind.starts)
    assert off is not None
    assert off > 50 * US


def test_a_host_that_waits_is_no_work() -> None:
    """With the host's work at a tenth, waits for the GPU stay."""
    recorded = analyse(overlapping_job(60.0)).recorded()
    step = recorded.step(play(recorded.graph, Substitutions(host=0.1)))
    assert recorded.step_ns is not None
    assert 257 * US < step < recorded.step_ns


def contended_job() -> list[TraceFile]:
    """In every second step "void other" runs beside the AllReduce, and half as long again."""
    recorders = [Recorder(0), Recorder(1)]
    for recorder in recorders:
        begin = 1000.0
        for step in range(8):
            recorder.now = begin - 15
            recorder.launch(7, begin, begin + 100)
            recorder.call("cudaEventRecordWithFlags")
            recorder.call("cudaStreamWaitEvent")
            late, lasts = (105, 150) if step % 2 else (240, 100)
            recorder.launch(19, begin + late, begin + late + 400, ALL_REDUCE)
            recorder.call("cudaEventRecordWithFlags")
            recorder.launch(7, begin + 102, begin + 102 + lasts, "void other")
            recorder.call("cudaStreamWaitEvent")
            recorder.launch(7, begin + 645, begin + 700, "void optimizer")
            begin += 720
    return [recorder.trace() for recorder in recorders]


def test_compute_is_slower_while_a_collective_is_beside_it() -> None:
    """By hand: of 100 us of work 3 are done before the AllReduce comes, at full pace.

    An AllReduce of 40 us leaves at 145; beside it 40 / 1.5 us of work are done, and then the rest.
    """
    timeline = analyse(contended_job())
    recorded, rows = timeline.recorded(), timeline.rows
    found = recorded.contention
    assert found.mean == pytest.approx(0.5)
    duration = recorded.graph.duration.astype(float)
    names = [rows.names[k] for k in rows.name.tolist()]
    other = np.flatnonzero([n == "void other" for n in names])
    assert set((rows.end - rows.start)[other].tolist()) == {100 * US, 150 * US}
    alone = found.alone(duration, found.slowdown)
    # Beside it for 147 of 150 us: 3 + 147 / 1.5.
    assert set(alone[other].round().tolist()) == {100 * US, 101 * US}
    slow = duration[other] == 150 * US
    same = play(recorded.graph, Substitutions(alone=alone, slowdown=found.slowdown))
    assert same.end == pytest.approx(timeline.clocks.align(rows.end, rows.trace), abs=1)
    short = Substitutions(recorded.graph.transfer * 0.1, 1.0, alone, found.slowdown)
    lasted = play(recorded.graph, short).duration[other]
    by_hand = 3 + 40 + (101 - 3 - 40 / 1.5)
    assert lasted[slow] == pytest.approx(np.full(slow.sum(), by_hand * US), rel=0.001)
    assert lasted[~slow] == pytest.approx(np.full((~slow).sum(), 100.0 * US))


def test_a_kernel_starts_some_time_behind_its_launch_whatever_stands_before_it() -> None:
    """Kernels of 20 us, launched every 30 us, start 12 us behind: that no kernel waits 10 us.

    The one before ends 2 us behind the launch. With a host ten times as fast they follow each
    other within 2 us, not after the 10 us that they seem to wait for the stream.
    """
    recorder = Recorder(0)
    for k in range(60):
        recorder.now = 30.0 * k
        recorder.launch(7, 30.0 * k + 12, 30.0 * k + 32)
    graph = analyse([recorder.trace()]).recorded().graph
    fast = play(graph, Substitutions(host=0.1))
    assert fast.end[-1] - fast.end[0] == pytest.approx(59 * 22 * US, rel=0.01)


def sharded_step(recorder: Recorder, transfer: float) -> None:
    """As FSDP2 where the host is slow: a step of 1 ms, gathers one layer ahead.

    Compute waits for the last gather but one. That is what no start shows: it was over long before.
    The last event before that wait is of a gather that is still running, the one before it is of
    the ReduceScatter of the layer before.
    """
    for layer in range(4):
        begin = recorder.now
        for stream, name, start in ((24, "ReduceScatter", 20.0), (20, "AllGather", 60.0)):
            recorder.now = begin + start - 20
            if stream == 24:
                recorder.call("cudaEventRecordWithFlags")
                recorder.call("cudaStreamWaitEvent")  # for the layer's gradients
                recorder.told(24, 6)
                recorder.call("cudaEventRecord")
                recorder.call("cudaStreamWaitEvent")  # the library's own
            recorder.launch(stream, begin + start, begin + start + transfer, nccl(name))
            recorder.call("cudaEventRecordWithFlags")
        recorder.now = begin + 70
        recorder.call("cudaStreamWaitEvent")
        recorder.told(7, 6)
        for k in range(6):
            recorder.launch(7, begin + 84 + 25 * k, begin + 108 + 25 * k, f"void layer{layer}")
            recorder.now = begin + 95 + 25 * k
        recorder.now = begin + 250


def nccl(operation: str) -> str:
    return f"ncclDevKernel_{operation}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_the_range_holds_that_rows_do_not_wait_for_what_no_start_shows() -> None:
    """Transfers of 115 us for 38: two a layer still take less than the host's 250 us.

    Were a layer to wait for the ReduceScatter before it, the step would be longer: the next one
    follows the layer's work of 150 us.
    """
    found = []
    for transfer in (38.0, 115.0):
        recorders = [Recorder(0), Recorder(1)]
        for recorder in recorders:
            for _ in range(8):
                sharded_step(recorder, transfer)
        found.append(analyse([recorder.trace() for recorder in recorders]).recorded())
    recorded, other = found
    assert recorded.graph.unseen.any()
    new = transfers_of(other.rows, other.linked, other.linked_times)
    changed = predict(recorded, {}, traced=new, measured_step_ns=1.0 * MS)
    assert changed is not None
    assert changed.new_ns > 1.05 * MS
    assert changed.low_ns <= 1.0 * MS


@pytest.mark.parametrize("behind", [5, 90])
def test_a_launch_into_a_full_queue_is_no_work(behind: int) -> None:
    """1100 kernels launched before the trace began: a launch lasts until one of them is done.

    At a tenth of the host's time the launches still come one after each kernel. On H200 they
    return up to 350 us behind its end.
    """
    recorder = Recorder(0)
    for k in range(1100):
        recorder.launch(7, 100.0 * k + 10, 100.0 * k + 110)
    recorder.events = [e for e in recorder.events if e["cat"] == "kernel"]
    recorder.now = 200.0
    for k in range(1100, 1120):
        start = 100.0 * k + 10
        done = 100.0 * (k - 1098) + 110
        number = recorder.call("cudaLaunchKernel", done + behind - recorder.now)
        recorder.events.append(
            {"ph": "X", "cat": "kernel", "name": KERNEL, "tid": 7, "ts": start, "dur": 100.0,
             "args": {"correlation": number, "stream": 7, "device": 0}}
        )  # fmt: skip
    graph = analyse([recorder.trace()]).recorded().graph
    fast = play(graph, Substitutions(host=0.1))
    syncs = np.flatnonzero(graph.row < 0)
    assert len(syncs) == 21
    assert fast.time[2:][syncs[1:]] == pytest.approx(graph.time[syncs[1:]], abs=10 * US)


def test_a_host_may_be_as_much_slower_as_faster_in_another_start() -> None:
    """Nothing but the host's 1 ms bounds a step: 30 % either way, whatever the AllReduce does."""
    recorders = [Recorder(0), Recorder(1)]
    for recorder in recorders:
        for step in range(8):
            for name in ("void a", "void b", ALL_REDUCE, "void c"):
                recorder.now += 240
                recorder.launch(7, recorder.now + 5, recorder.now + 20 + step % 2, name)
    recorded = analyse([recorder.trace() for recorder in recorders]).recorded()
    (key,) = recorded.calls.classes
    found = predict(recorded, {key: NewTime(10_000.0)}, measured_step_ns=0.9 * MS)
    assert found is not None
    assert found.new_ns == pytest.approx(0.9 * MS, rel=0.02)
    assert found.low_ns == pytest.approx(0.63 * MS, rel=0.03)
    assert found.high_ns == pytest.approx(1.17 * MS, rel=0.03)


def graph_step(recorder: Recorder, begin: float, transfer: float) -> float:
    """A step that is one CUDA graph, all on one stream; when it ends.

    Under the profiler the call returns 20 us after the first AllReduce. The kernel behind the
    second one is stamped as if it had begun 1 us before that was done.
    """
    first, second = begin + 102 + transfer, begin + 104 + 2 * transfer
    number = recorder.call("cudaGraphLaunch", first + 20 - recorder.now)
    for name, start, end in (
        (KERNEL, begin, begin + 100), (ALL_REDUCE, begin + 102, first),
        (ALL_REDUCE, first + 2, second), ("void optimizer", second - 1, second + 300),
    ):  # fmt: skip
        recorder.events.append(
            {"ph": "X", "cat": "kernel", "name": name, "tid": 7, "ts": start, "dur": end - start,
             "args": {"correlation": number, "stream": 7, "device": 0}}
        )  # fmt: skip
    return second + 300


def test_a_step_that_is_one_graph() -> None:
    """By hand: 100 + 2 + 2 + 300 + 2 until the next graph, and two transfers.

    Neither does a kernel run before the AllReduce that it follows, nor does a graph whose launch
    lasted as long as a slow AllReduce come later when that is fast.
    """
    timelines = {}
    for transfer in (200.0, 600.0):
        recorders = [Recorder(0), Recorder(1)]
        for recorder in recorders:
            begin = 200.0
            for _ in range(8):
                begin = graph_step(recorder, begin, transfer) + 2
        timelines[transfer] = analyse([recorder.trace() for recorder in recorders])
    for old, new in ((200.0, 600.0), (600.0, 200.0)):
        recorded, other = timelines[old].recorded(), timelines[new]
        assert recorded.graph.edges.contradicted == 0
        assert recorded.step(recorded.simulated) == pytest.approx(recorded.step_ns, rel=0.01)
        found = predict(recorded, {}, traced=transfers_of(other.rows, other.calls, other.times))
        assert found is not None
        assert found.step_ns == pytest.approx((406 + 2 * old) * US)
        assert found.new_ns == pytest.approx((406 + 2 * new) * US, rel=0.01)


def test_thread_blocks_of_collectives_are_read_and_stored() -> None:
    """The grid of NCCL's kernels: a block for each channel."""
    recorder = Recorder(0)
    recorder.launch(7, 120, 130)
    recorder.launch(19, 130, 140, ALL_REDUCE)
    recorder.launch(19, 140, 150, ALL_REDUCE)
    for event, grid in zip(recorder.events[1::2], ([8, 4, 1], [24, 1, 1], "?"), strict=True):
        args = event["args"]
        assert isinstance(args, dict)
        args["grid"] = grid
    trace = recorder.trace()
    for read in (trace, decode_trace(encode_trace(trace))):
        told = [-1 if k < 0 else read.collectives[k].blocks for k in read.columns.collective]
        assert told == [-1, 24, None]


def stripped(trace: TraceFile) -> TraceFile:
    """Collectives alone: no compute, no host calls, no marks, no launches."""
    c = trace.columns
    kept = np.flatnonzero(c.collective >= 0)
    columns = replace(
        c, **{f: getattr(c, f)[kept] for f in c.__slots__}
    )  # fmt: skip
    bare = replace(columns, launch_ns=np.full(len(kept), -1))
    return replace(trace, columns=bare, calls=None, steps=())


@pytest.fixture(scope="session")
def ddp(recordings: Path) -> dict[str, list[TraceFile]]:
    """Plain traces of CUDA activities, of the real data-parallel job, under two settings."""
    folder = recordings.parent / "h200x4-jobs" / "plain"
    return {
        setting: [
            trace
            for path in sorted((folder / setting / "ddp").glob("light.rank*.json.zst"))
            for trace in parse(
                [zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())],
                path.name,
            )
        ]
        for setting in ("default", "ch2")
    }


# steps.jsonl of the recordings, set `steps`: medians without the profiler, ms; their ratios
STEPS = {"default": 61.7, "ch2": 84.4}


def test_a_real_job_both_ways(ddp: dict[str, list[TraceFile]]) -> None:
    """Ratio of the steps within 5 %, the range holds it, and most of the idle time has a cause."""
    timelines: dict[str, Timeline] = {k: analyse(traces) for k, traces in ddp.items()}
    for old, new in (("default", "ch2"), ("ch2", "default")):
        recorded = timelines[old].recorded()
        other = timelines[new]
        transfers = transfers_of(other.rows, other.calls, other.times)
        starts = other.recorded().starts
        measured = STEPS[old] * MS
        found = predict(recorded, {}, traced=transfers, starts=starts, measured_step_ns=measured)
        assert found is not None
        assert found.simulated_ns == pytest.approx(recorded.step_ns, rel=0.01)
        assert found.starts_off_ns is not None
        assert found.starts_off_ns < 0.01 * found.recorded_ns
        assert found.other_starts_off_ns is not None
        assert found.other_starts_off_ns < 0.1 * found.recorded_ns
        bound_by = [sum(part.ns for part in b) for b in (found.bound_before, found.bound_after)]
        assert bound_by == pytest.approx([found.step_ns, found.new_ns], rel=1e-9)
        assert found.new_ns == pytest.approx(STEPS[new] * MS, rel=0.06)
        assert found.low_ns <= STEPS[new] * MS <= found.high_ns
        assert found.knowledge.idle_unexplained < 0.02


def test_nothing_but_transfers_is_taken_from_the_other_run(
    ddp: dict[str, list[TraceFile]],
) -> None:
    whole = analyse(ddp["ch2"])
    bare = analyse([stripped(trace) for trace in ddp["ch2"]])
    full = transfers_of(whole.rows, whole.calls, whole.times)
    alone = transfers_of(bare.rows, bare.calls, bare.times)
    assert list(full) == list(alone)
    for k in full:
        assert np.array_equal(full[k].transfer, alone[k].transfer, equal_nan=True)
        assert np.array_equal(full[k].blocks, alone[k].blocks)


def ends(*times: int) -> tuple[np.ndarray, np.ndarray]:
    end = np.array(times) * US
    return end - 100 * US, end


def test_streams_of_one_group_are_found_by_the_clock() -> None:
    """Ranks whose traces begin at different calls; two pairs that do the same at once."""
    base = [1000 * k + (37 * k * k) % 700 for k in range(1, 20)]
    other = [t + 300 for t in base]
    members = [
        (0, ends(*base)), (1, ends(*(t + 3 for t in base[2:]))),
        (2, ends(*other[1:])), (3, ends(*(t - 2 for t in other))),
    ]  # fmt: skip
    assert match_by_clock(members) == [[0, 1], [2, 3]]
    assert agreement(members[0][1], members[1][1]) == 1.0
    assert agreement(members[0][1], members[2][1]) < 0.5


def test_pairs_in_step_are_two_groups() -> None:
    """Two pairs whose calls end 13 us apart at most: now one is first, and now the other."""
    first, second = (np.arange(1, 41) * MS + apart for apart in (0, 0))
    second = second + np.where(np.arange(40) % 3 == 0, -13, 13) * US
    jitter = np.arange(40) % 3 * 500
    ends_of = np.stack([first, second + jitter, first + jitter, second], axis=1)
    assert split_members(ends_of) == [[0, 2], [1, 3]]
    members = [(t, (ends_of[:, t] - 400 * US, ends_of[:, t])) for t in range(4)]
    assert match_by_clock(members) == [[0, 2], [1, 3]]
    # The ranks of one call may end in two bunches, too: but always the same ones first.
    always = np.stack([first, first + 13 * US, first + jitter, first + 13 * US + jitter], axis=1)
    assert split_members(always) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("seed", range(20))
def test_ranks_of_one_group_are_no_bunches(seed: int) -> None:
    """Ends of 4 or 8 ranks that scatter by chance, in few calls and in many."""
    generator = np.random.default_rng(seed)
    for ranks, calls in ((4, 8), (4, 200), (8, 8), (8, 200)):
        ends_of = np.arange(calls)[:, None] * MS + generator.exponential(9000, (calls, ranks))
        assert split_members(ends_of.astype(np.int64)) == [list(range(ranks))]


def layered_step(recorder: Recorder, transfer: float) -> None:
    """Two layers, each with an AllReduce that its last kernel waits for.

    The second one records events behind a copy on a stream of its own, too.
    """
    for layer in range(2):
        begin = max(recorder.now, *(end_of(e) for e in recorder.events), 0.0) + 20
        recorder.now = begin - 15
        recorder.launch(7, begin, begin + 100)
        recorder.call("cudaEventRecordWithFlags")
        recorder.call("cudaStreamWaitEvent")
        recorder.told(19, 0)
        recorder.call("cudaEventRecord")
        recorder.call("cudaStreamWaitEvent")  # the library's own
        recorder.launch(19, begin + 105, begin + 105 + transfer, ALL_REDUCE)
        recorder.call("cudaEventRecordWithFlags")
        if layer:
            recorder.launch(23, begin + 50, begin + 60, "void copy")
            recorder.call("cudaEventRecordWithFlags")
            recorder.call("cudaEventRecordWithFlags")
        for k in range(7):
            recorder.launch(7, begin + 102 + 10 * k, begin + 110 + 10 * k, f"void {layer} {k}")
        recorder.call("cudaStreamWaitEvent")
        recorder.told(7, 0)
        last = begin + max(172.0, 105 + transfer) + 5
        recorder.launch(7, last, last + 50, "void last")


def test_layers_that_record_unlike_numbers_of_events() -> None:
    """The event of each wait is found by its stream: both layers' ends move with the AllReduce.

    By hand: the host launches a layer's first kernel 18 us after the GPU has ended the one before.
    """
    traces = []
    for rank in range(2):
        recorder = Recorder(rank)
        for _ in range(8):
            layered_step(recorder, 300.0)
        traces.append(recorder.trace())
    recorded = analyse(traces).recorded()
    longer = play(recorded.graph, Substitutions(recorded.graph.transfer + 100.0 * US))
    assert recorded.step_ns is not None
    assert recorded.step(longer) == pytest.approx(recorded.step_ns + 2 * (100 - 18) * US)


def burst_step(recorder: Recorder, transfer: float) -> None:
    """As a parameter server's worker: six works in one burst, each waited for by its own layer."""
    begin = max(recorder.now, *(end_of(e) for e in recorder.events), 0.0) + 20
    recorder.now = begin - 15
    recorder.launch(7, begin, begin + 100)
    first = begin + 105
    for k in range(6):
        recorder.call("cudaEventRecordWithFlags")
        recorder.call("cudaStreamWaitEvent")
        recorder.told(19, 0)
        start = first + k * (transfer + 5)
        recorder.launch(19, start, start + transfer, ALL_REDUCE)
        recorder.call("cudaEventRecordWithFlags")  # the work's end
    for k in range(6):
        recorder.call("cudaStreamWaitEvent")
        recorder.told(7, 0)
        start = first + k * (transfer + 5) + transfer + 5
        recorder.launch(7, start, start + 50, f"void layer {k}")
    recorder.call("cudaDeviceSynchronize", start + 60 - recorder.now)


def test_works_launched_in_a_burst_are_waited_for_in_turn() -> None:
    """All records lie before all waits: the k-th wait is for the k-th work, not for the last.

    Each layer's kernel of 50 us starts 5 us behind its work of 100 us. Works of 20 us less are
    waited for, too: the step loses six times that.
    """
    traces = []
    for rank in range(2):
        recorder = Recorder(rank)
        for _ in range(8):
            burst_step(recorder, 100.0)
        traces.append(recorder.trace())
    recorded = analyse(traces).recorded()
    assert recorded.graph.edges.unknown == 0
    for change in (100.0, -20.0):
        changed = play(recorded.graph, Substitutions(recorded.graph.transfer + change * US))
        assert recorded.step_ns is not None
        assert recorded.step(changed) == pytest.approx(recorded.step_ns + 6 * change * US)
    # Works of no time leave the kernels, each 2 us behind the one before or its launch.
    none = play(recorded.graph, Substitutions(recorded.graph.transfer * 0.0))
    assert recorded.step(none) < recorded.step_ns - 300 * US


def test_each_kernel_needs_what_it_mostly_does_to_begin() -> None:
    """Kernels a and b begin 1 us behind the one before, c begins 11 us behind it.

    From their causes alone the steps last as long as recorded.
    """
    traces = []
    for rank in range(2):
        recorder = Recorder(rank)
        for step in range(8):
            begin = 500.0 + 453 * step
            recorder.launch(7, begin, begin + 100, "void a")
            recorder.launch(7, begin + 101, begin + 200, "void b")
            recorder.launch(7, begin + 211, begin + 300, "void c")
            recorder.launch(7, begin + 301, begin + 452, ALL_REDUCE)
        traces.append(recorder.trace())
    recorded = analyse(traces).recorded()
    assert recorded.step_ns == pytest.approx(453 * US)
    assert recorded.step(recorded.simulated) == pytest.approx(453 * US)


@pytest.mark.parametrize("op", [Op.ALL_GATHER, Op.SEND_RECV])
def test_one_communicator_runs_one_collective_after_the_other(op: Op) -> None:
    """An AllGather that takes 500 us for 100 holds up the ReduceScatter behind it, too.

    In the record only AllGathers wait, for the ReduceScatter before them. An all-to-all, whose
    kernels name no peer and are paired by the clock, is as good.
    """
    gather, scatter = (ALL_REDUCE.replace("AllReduce_Sum_bf16", name)
                       for name in (op.value, "ReduceScatter_Sum_bf16"))  # fmt: skip
    traces = []
    for rank in range(2):
        recorder = Recorder(rank)
        begin = 500.0
        for _ in range(8):
            recorder.launch(19, begin, begin + 100, gather)
            recorder.launch(7, begin + 2, begin + 150, "void a")
            recorder.launch(7, begin + 152, begin + 295, "void b")
            recorder.call("cudaEventRecordWithFlags")
            recorder.call("cudaStreamWaitEvent")
            recorder.told(23, 0)
            recorder.call("cudaEventRecord")
            recorder.call("cudaStreamWaitEvent")  # the library's own
            recorder.launch(23, begin + 300, begin + 400, scatter)
            begin += 402
        traces.append(recorder.trace())
    recorded = analyse(traces).recorded()
    assert [g.members for g in recorded.calls.groups] == [(0, 1)]
    calls = recorded.linked
    names = [key.op for key in calls.classes]
    gathers = calls.class_[calls.call_of_part] == names.index(op)
    longer = recorded.graph.transfer + np.where(gathers, 400.0 * US, 0.0)
    played = play(recorded.graph, Substitutions(longer))
    begun = played.time[recorded.graph.start_node[calls.row[gathers]]]
    # By hand: 500 us, 3 until the ReduceScatter begins, 100, and 2 until the next AllGather.
    assert np.diff(np.unique(begun)) == pytest.approx(np.full(7, 605.0 * US), abs=4 * US)


def test_the_clock_follows_the_step_that_it_makes() -> None:
    """Compute and AllReduce take turns, 400 us each; the AllReduce will take 200.

    By hand: at the power cap compute takes 400 x ratio**-0.67 us, of the ratio that this gives.
    """
    recorders = [Recorder(0), Recorder(1)]
    for recorder in recorders:
        for step in range(8):
            begin = 115.0 + 804 * step
            recorder.launch(7, begin, begin + 200, "void a")
            recorder.launch(7, begin + 200, begin + 400, "void b")
            recorder.launch(7, begin + 402, begin + 802, ALL_REDUCE)
    recorded = analyse([recorder.trace() for recorder in recorders]).recorded()
    (key,) = recorded.calls.classes
    found = predict(recorded, {key: NewTime(200_000.0)}, measured_step_ns=804.0 * US)
    assert found is not None
    ratio = clocked = 604 / 804
    for _ in range(50):
        clocked = (204 + 400 * clocked**-0.67) / 804
    assert found.new_ns / found.step_ns == pytest.approx(ratio)
    margin = np.hypot(0.03, clocked / ratio - 1)
    assert found.high_ns / found.step_ns == pytest.approx(ratio * (1 + margin), rel=0.003)


def test_rows_launched_before_the_trace_wait_for_what_a_later_step_waits_for() -> None:
    """The launches of the first four of eight steps are not in the trace: the same follows."""
    ended = []
    for cut in (0, 4):
        traces = []
        for rank in range(2):
            recorder = Recorder(rank)
            for step in range(8):
                overlapping_step(recorder, 60.0)
                if step < cut:
                    recorder.events = [e for e in recorder.events if e["cat"] == "kernel"]
            traces.append(recorder.trace())
        graph = analyse(traces).recorded().graph
        # Between two steps stands the host, of which nothing is known there: 11 us more than 20.
        assert graph.idle_ns.tolist() == [0 if cut == 0 else 33 * US] * 2
        slower = play(graph, Substitutions(transfer=graph.transfer + 340.0 * US))
        ended.append(slower.end[-1] - slower.end[0])
    # All but the pauses of the host, 38 us a step, of which nothing is known before.
    assert ended[1] == pytest.approx(ended[0], abs=5 * 38 * US)


def test_streams_of_one_trace_are_no_group() -> None:
    base = [1000 * k for k in range(1, 9)]
    assert match_by_clock([(0, ends(*base)), (0, ends(*base))]) == []


def test_an_exchange_of_all_ranks_is_a_call(make_exchange: Callable[[], list[TraceFile]]) -> None:
    """CUDA-only traces call an all-to-all SendRecv; it ends on all ranks at once."""
    timeline = analyse(make_exchange())
    assert len(timeline.calls) == 6
    assert timeline.calls.seen.tolist() == [4] * 6
    assert {key.op for key in timeline.calls.classes} == {Op.SEND_RECV}


@pytest.fixture
def make_exchange() -> Callable[[], list[TraceFile]]:
    def traces() -> list[TraceFile]:
        recorders = [Recorder(rank) for rank in range(4)]
        for rank, recorder in enumerate(recorders):
            for k in range(6):
                recorder.now = 1000.0 * k + 100 + 10 * rank
                name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
                recorder.launch(7, recorder.now + 6, 1000.0 * k + 400 + rank, name)
        return [recorder.trace() for recorder in recorders]

    return traces
