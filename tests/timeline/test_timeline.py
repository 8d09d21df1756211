"""Waits, stragglers, clocks and overlap: on the recordings and on jobs whose truth is known."""

from __future__ import annotations

import gzip
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ROOT
from msgspec.structs import asdict, replace
from readers import parse
from trace_builder import COMM, US, Job, Row, nested_job, steady_job

from collscope.model import Datatype, Op
from collscope.model.trace import Kind, TraceCollective, TraceColumns, TraceFile
from collscope.timeline.analyse import Timeline, analyse
from collscope.timeline.clocks import CallEnds, Clocks
from collscope.timeline.contradictions import contradictions
from collscope.timeline.overlap import covered, union
from collscope.timeline.steps import find_period

MS = 1_000_000


@pytest.fixture(scope="session")
def blocking(recordings: Path) -> dict[str, list[TraceFile]]:
    return {
        case: [
            trace
            for path in sorted((recordings / "blocking" / case).glob("rank*.json.gz"))
            for trace in parse([gzip.decompress(path.read_bytes())], path.name)
        ]
        for case in ("default", "ringll")
    }


def shifted(traces: list[TraceFile], offsets: dict[int, int]) -> list[TraceFile]:
    """The same traces with some clocks ahead."""
    result = []
    for k, trace in enumerate(traces):
        c, by = trace.columns, offsets.get(k, 0)
        moved = replace(
            c,
            start_ns=c.start_ns + by,
            end_ns=c.end_ns + by,
            launch_ns=np.where(c.launch_ns >= 0, c.launch_ns + by, -1),
        )
        result.append(replace(trace, columns=moved))
    return result


def true_waits(job: Job, timeline: Timeline) -> np.ndarray:
    """The builder's wait of each part of the timeline."""
    rows, calls = timeline.rows, timeline.calls
    truth = []
    for trace, row in zip(calls.trace.tolist(), calls.row.tolist(), strict=True):
        mine = sorted(job.rows[rows.ranks[trace]], key=lambda r: r.start)
        truth.append(mine[row - int(rows.bounds[trace])].wait)
    return np.array(truth)


def test_transfer_per_step_of_the_recordings(blocking: dict[str, list[TraceFile]]) -> None:
    """README of the recordings: 0.63 and 1.26 ms, the sum over the 6 calls of the minimum."""
    for case, expected in (("default", 0.63), ("ringll", 1.26)):
        timeline = analyse(blocking[case])
        assert timeline.times.transfer.sum() / 3 / MS == pytest.approx(expected, rel=0.02)
        assert timeline.times.shortest.sum() / 3 / MS == pytest.approx(expected, rel=0.02)
        assert len(timeline.calls) == 18
        assert not timeline.times.suspect.any()
        # One host: the four GPUs' clocks agree to a microsecond.
        assert np.abs(timeline.clocks.offset).max() < 1_000


def test_profiler_start_is_left_out_and_listed(blocking: dict[str, list[TraceFile]]) -> None:
    timeline = analyse(blocking["ringll"])
    (excluded,) = timeline.times.excluded
    assert (excluded.seq, excluded.longest_ns) == (0, 42_369_465)
    assert sum(r.wait_ns for r in timeline.ranks) < 1 * MS
    assert all(o.span_ns < 17 * MS for o in timeline.overlaps)


def test_times_of_ranks_and_classes_by_hand() -> None:
    """Rank 1 computes 100 µs longer before each AllReduce of 50 µs; rank 0 lacks the last one."""
    job = Job(2, jitter_ns=0)
    for _ in range(21):
        job.compute(0, 100 * US)
        job.compute(1, 200 * US)
        job.collective((0, 1), 50 * US)
    job.drop(0, 20)
    timeline = analyse(job.traces())
    ranks = [(r.calls, r.duration_ns, r.transfer_ns, r.wait_ns) for r in timeline.ranks]
    assert ranks == [
        (20, 20 * 150 * US, 20 * 50 * US, 20 * 100 * US),
        (21, 21 * 50 * US, 20 * 50 * US, 0),
    ]
    assert [r.unknown_ns for r in timeline.ranks] == [0, 50 * US]
    times = timeline.times
    assert times.known.tolist() == [True] * 20 + [False]
    for column, expected in ((times.transfer, 50), (times.start_skew, 100), (times.end_skew, 0)):
        assert column[times.known].tolist() == [expected * US] * 20


def test_ends_are_held_against_the_median_of_their_call() -> None:
    call, zero = np.array([0, 0, 0, 1, 1]), np.zeros(5)
    ends = CallEnds(call, np.array([0, 3]), call, call, call, zero, zero, zero)
    found = ends.against_median(np.array([30.0, 1.0, 5.0, 10.0, 20.0]))
    assert found.tolist() == [25.0, -4.0, 0.0, -5.0, 5.0]  # medians 5 and 15


@pytest.mark.parametrize("told", [True, False])
def test_the_last_rank_may_have_no_trace(told: bool) -> None:
    """Rank 3 is 400 us late to every call: without its trace no wait is a transfer."""
    job = Job(4)
    for _ in range(20):
        for rank in range(4):
            job.compute(rank, 500 * US if rank == 3 else 100 * US)
        job.collective((0, 1, 2, 3), 50 * US)
    traces = job.traces()
    if not told:  # CUDA-only: neither group nor size, but the header has the world size
        traces = [replace(t, collectives=(TraceCollective(Op.ALL_REDUCE),)) for t in traces]
    whole, part = analyse(traces), analyse(traces[:2])
    assert np.median(whole.times.transfer) == pytest.approx(50 * US, rel=0.02)
    assert set(part.calls.nranks.tolist()) == {4 if told else -1}
    assert not part.times.known.any()
    assert (part.times.transfer == -1).all()
    assert (part.times.last == -1).all()
    assert [r.unknown_ns for r in part.ranks] == [r.duration_ns for r in part.ranks]
    assert not any(late.named for late in part.late)


def test_clock_offset_is_no_straggler(blocking: dict[str, list[TraceFile]]) -> None:
    for traces, pair in ((blocking["default"], (1, 3)), (steady_job(4, 60).traces(), (0, 2))):
        plain = analyse(traces)
        moved = analyse(shifted(traces, dict.fromkeys(pair, 5 * MS)))
        difference = moved.clocks.offset - plain.clocks.offset
        expected = [5 * MS * ((r in pair) - (0 in pair)) for r in range(4)]
        assert np.abs(difference - expected).max() <= 1
        assert np.abs(moved.times.wait - plain.times.wait).max() <= 1
        for a, b in zip(plain.late, moved.late, strict=True):
            assert (a.rank, a.last, a.behind, a.named) == (b.rank, b.last, b.behind, b.named)
            assert abs(a.total_ns - b.total_ns) <= a.last


@pytest.mark.parametrize("offset", [0, 5 * MS])
def test_delayed_rank_is_named_with_its_amount(offset: int) -> None:
    job = steady_job(8, 200, late=5)
    late = analyse(job.traces({5: offset, 6: offset})).late
    assert [r.rank for r in late if r.named] == [5]
    assert late[0].behind == 20
    # Without the delay it would be up to 8 µs before or behind the others.
    assert late[0].typical_ns == pytest.approx(MS, abs=10 * US)
    assert late[0].max_ns == pytest.approx(MS, abs=10 * US)


def test_no_straggler_where_chance_decides() -> None:
    assert not any(r.named for r in analyse(steady_job(8, 200).traces()).late)


@pytest.mark.parametrize("number", [0, 1, 29, 58, 59])
@pytest.mark.parametrize("same_size", [False, True])
def test_deleted_collective_is_found_where_it_was(number: int, same_size: bool) -> None:
    """Even where all calls are alike: then only their times tell which one is missing."""
    job = steady_job(4, 60)
    if same_size:
        for rows in job.rows.values():
            for r in rows:
                if r.collective is not None:
                    r.collective = replace(r.collective, in_count=64, out_count=64)
    job.drop(2, number)
    timeline = analyse(job.traces({1: 5 * MS, 2: -3 * MS}))
    calls = timeline.calls
    assert calls.absent() == [(number, 2)]
    # Nothing of rank 2 stands behind the last: its trace may have ended before it.
    assert calls.missing() == ([(number, 2)] if number != 59 else [])
    assert calls.seen.tolist() == [3 if k == number else 4 for k in range(60)]
    assert np.array_equal(timeline.clocks.offset.round(-4), [0, 5 * MS, -3 * MS, 0])
    full = calls.seen[calls.call_of_part] == 4
    assert np.abs(timeline.times.wait - true_waits(job, timeline))[full].max() < 1_000


def test_extra_collective_and_stopped_rank() -> None:
    job = steady_job(4, 40)
    extra = TraceCollective(Op.ALL_GATHER, Datatype.INT8, 3, 12, str((0, 1, 2, 3)), 4, (0, 1, 2, 3))
    last = max(r.end for r in job.rows[1] if r.collective)
    job.rows[1].append(Row(Kind.KERNEL, 1, COMM, last + 5 * US, last + 9 * US, -(1 << 60), extra))
    for _ in range(10):
        job.drop(3, -1)
    timeline = analyse(job.traces())
    assert timeline.calls.seen.tolist() == [4] * 30 + [3] * 10 + [1]
    absent = [(k, 3) for k in range(30, 40)] + [(40, 0), (40, 2), (40, 3)]
    assert timeline.calls.absent() == absent
    # Rank 3 computes until call 39, and nobody does anything behind call 39: the traces may have
    # ended there.
    assert timeline.calls.missing() == absent[:9]


def test_different_size_at_one_place_is_a_mismatch_not_a_loss() -> None:
    job = steady_job(4, 30)
    row = [r for r in job.rows[2] if r.collective][10]
    assert row.collective is not None
    row.collective = replace(row.collective, in_count=5, out_count=5)
    calls = analyse(job.traces()).calls
    assert np.flatnonzero(calls.mismatched).tolist() == [10]
    assert calls.missing() == []


def test_source_numbers_decide() -> None:
    """Traces that begin at different calls, all alike: only the numbers can tell."""
    job = steady_job(3, 30)
    for rows in job.rows.values():
        for k, r in enumerate(r for r in rows if r.collective):
            r.seq = 100 + k
    for _ in range(4):
        job.drop(0, 0)
        job.drop(1, -1)
    calls = analyse(job.traces()).calls
    assert calls.seen.tolist() == [2] * 4 + [3] * 22 + [2] * 4


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_random_jobs(seed: int) -> None:
    job, rng = nested_job(seed), random.Random(seed)
    offsets = {r: rng.randint(-5 * MS, 5 * MS) for r in range(job.nranks)}
    timeline = analyse(job.traces(offsets))
    times, calls, clocks = timeline.times, timeline.calls, timeline.clocks
    assert (calls.seen == calls.expected).all()
    assert len(set(clocks.component.tolist())) == 1
    # Offsets, against that of the first clock, within twice the sum of both errors.
    truth = np.array([offsets[r] - offsets[0] for r in range(job.nranks)])
    assert (np.abs(clocks.offset - truth) <= 2 * (clocks.error + clocks.error[0]) + 1).all()
    duration = times.end - times.start
    assert (times.wait + times.part_transfer == duration).all()
    assert (times.wait >= 0).all()
    assert np.abs(times.wait - true_waits(job, timeline)).max() <= 4 * clocks.error.max() + 1
    for r in timeline.ranks:
        assert r.transfer_ns + r.wait_ns + r.unknown_ns == r.duration_ns
    for o in timeline.overlaps:
        assert o.exposed_ns + o.hidden_ns == o.collective_ns
        assert o.idle_ns + o.compute_ns + o.exposed_ns - o.copy_only_ns <= o.span_ns
        assert o.exposed_ns + o.hidden_ns == o.collective_ns <= o.span_ns  # overlaps count once
        for s in o.streams:
            assert s.exposed_ns + s.hidden_ns == s.total_ns
            assert 0 <= s.exposed_ns <= s.total_ns


def test_drift_is_removed_only_where_there_is_one() -> None:
    job = steady_job(4, 400)
    plain, drifting = analyse(job.traces()), analyse(job.traces({1: MS}, {1: 2e-5, 3: -1e-5}))
    assert not plain.clocks.drift.any()
    expected = np.array([0, 2e-5, 0, -1e-5])
    # 1e-6 of the 0.13 s is less than half of the clocks' error.
    assert np.abs(drifting.clocks.drift - expected).max() < 1e-6
    assert np.abs(drifting.times.wait - plain.times.wait).max() < 2_000


def late_leaver(*, left: int = 0) -> Job:
    """Rank 1 leaves each ring 0 to 20 us later. It receives a Broadcast, 2 ms before its root.

    left  ns by which it leaves every second Broadcast sooner than its root comes
    """
    job = Job(2, jitter_ns=0)
    for k in range(24):
        if k % 4 == 0:
            job.compute(0, 2 * MS)
            job.collective((0, 1), US, op=Op.BROADCAST, count=4)
            job.rows[1][-1].end -= left if k % 8 else 0
        for r in (0, 1):
            job.compute(r, 100 * US)
        job.collective((0, 1), 50 * US)
        job.rows[1][-1].end += (k % 3) * 10 * US
    return job


def test_no_receiver_leaves_before_its_root_comes() -> None:
    """The ends of the rings alone give 10 us: a receiver would leave 9 us before its root."""
    timeline = analyse(late_leaver().traces())
    calls, times = timeline.calls, timeline.times
    rooted = np.array([c.op is Op.BROADCAST for c in calls.classes])[calls.class_]
    early = times.arrival[calls.call_of_part] - times.end
    assert rooted.sum() == 6
    assert early[rooted[calls.call_of_part]].max() == 0
    assert timeline.clocks.offset.tolist() == [0, pytest.approx(US, abs=10)]


def test_ranks_that_leave_at_other_moments_too_wait_for_no_root() -> None:
    offset = analyse(late_leaver(left=MS).traces()).clocks.offset
    assert offset.tolist() == [0, pytest.approx(10 * US, abs=100)]


def _off_clock(
    ranks: int = 2, *, ring: int = 50 * US, late: int = 15 * US, left: int = 0
) -> Clocks:
    """Rank 1 leaves each ring later than the others. It receives Broadcasts, 2 ms before its root.

    ring  ns of a ring's transfer, once rank 1 has come, as the last one
    late  ns by which it leaves it later
    left  ns by which it leaves each Broadcast sooner than its root comes; -1: at any moment
    """
    job = Job(ranks, jitter_ns=0)
    for k in range(24):
        if k % 4 == 0:
            job.compute(0, 2 * MS)
            job.collective(tuple(range(ranks)), US, op=Op.BROADCAST, count=4)
            job.rows[1][-1].end -= k * US if left < 0 else left
        for r in range(ranks):
            job.compute(r, (100 + 20 * (r == 1)) * US)
        job.collective(tuple(range(ranks)), ring)
        job.rows[1][-1].end += late
    return analyse(job.traces()).clocks


def test_of_two_ranks_a_receiver_shows_its_roots_clock() -> None:
    """It leaves 14 us before its root by the ends of the rings, and these agree better."""
    found = _off_clock()
    assert 2 * found.error.max() < 14 * US
    assert found.offset.tolist() == [0, pytest.approx(US, abs=100)]


def test_of_three_ranks_a_receiver_may_wait_for_another_one() -> None:
    assert _off_clock(3).offset[1] == pytest.approx(15 * US, abs=100)


def test_a_receiver_that_leaves_at_other_moments_shows_no_clock() -> None:
    assert _off_clock(left=-1).offset.tolist() == [0, pytest.approx(15 * US, abs=100)]


def test_a_receiver_shows_no_clock_by_which_ranks_leave_rings_too_early() -> None:
    """Rank 0 would leave a ring of 5 us 10 us before rank 1 comes; one of 50 us it may leave."""
    assert _off_clock(ring=5 * US, late=0, left=16 * US).offset.tolist() == [0, 0]
    moved = _off_clock(ring=50 * US, late=0, left=16 * US).offset
    assert moved.tolist() == [0, pytest.approx(-15 * US, abs=100)]


def test_ranks_of_one_host_share_a_clock() -> None:
    job = steady_job(4, 30)
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    clocks = analyse(job.traces({2: 7 * MS, 3: 7 * MS}, hosts=hosts)).clocks
    assert clocks.offset[0] == clocks.offset[1] == 0
    assert clocks.offset[2] == clocks.offset[3] == pytest.approx(7 * MS, abs=1_000)


def test_ranks_that_share_no_group_are_incomparable() -> None:
    job = Job(4)
    for _ in range(20):
        for pair in ((0, 1), (2, 3)):
            for r in pair:
                job.compute(r, 50 * US)
            job.collective(pair, 20 * US)
    clocks = analyse(job.traces({2: MS, 3: MS})).clocks
    assert clocks.component.tolist() == [0, 0, 1, 1]


def test_traces_that_name_no_groups() -> None:
    """Two pairs and the world on streams of their own: told apart by sequence and end times."""
    job = Job(4, jitter_ns=100)
    for k in range(40):
        for r in range(4):
            job.compute(r, (50 + 13 * (k * r % 5)) * US)
        for pair in ((0, 2), (1, 3)):
            job.collective(pair, 20 * US, count=7, comm=5)
        job.collective((0, 1, 2, 3), 30 * US, count=9, comm=6)
    for rows in job.rows.values():
        for r in rows:
            if r.collective is not None:
                size = r.collective.group_size
                r.collective = replace(r.collective, group=f"pg{size}", group_ranks=None)
    timeline = analyse(job.traces())
    assert [g.members for g in timeline.calls.groups] == [(0, 1, 2, 3), (0, 2), (1, 3)]
    job.forget_groups()
    groups = analyse(job.traces()).calls.groups
    assert sorted(g.members for g in groups) == [(0, 1, 2, 3), (0, 2), (1, 3)]
    assert {g.identity for g in groups} == {"inferred"}


def test_rooted_operation_by_the_aligned_form() -> None:
    """The root of a Broadcast leaves before the last leaf has come: its duration proves nothing."""
    job = Job(2)
    ranks = (0, 1)
    entry = TraceCollective(Op.BROADCAST, Datatype.INT8, 10, 10, "g", 2, ranks, root=0)
    for k in range(20):
        at = k * 1000 * US
        job.compute_free.update({0: at, 1: at})
        job.collective(ranks, 20 * US)
        begin = at + 300 * US
        job.rows[0].append(Row(Kind.KERNEL, 1, COMM, begin, begin + 10 * US, -(1 << 60), entry))
        leaf = begin + 40 * US
        job.rows[1].append(Row(Kind.KERNEL, 1, COMM, leaf, leaf + 15 * US, -(1 << 60), entry))
    timeline = analyse(job.traces({1: 2 * MS}))
    number = next(k for k, c in enumerate(timeline.calls.classes) if c.op is Op.BROADCAST)
    broadcasts = timeline.calls.class_ == number
    transfer = timeline.times.transfer[broadcasts & timeline.times.known]
    assert float(np.median(transfer)) == pytest.approx(15 * US, abs=1_000)
    assert not timeline.times.suspect[broadcasts].any()


def test_point_to_point_pairs_and_what_is_left_over() -> None:
    job = steady_job(2, 10)
    for k in range(5):
        at = job.compute_free[0] + (1 + k) * 100 * US
        for rank, op, late in ((0, Op.SEND, 0), (1, Op.RECV, 30 * US)):
            entry = TraceCollective(
                op, Datatype.INT8, 10, 10, str((0, 1)), 2, (0, 1), peer=1 - rank
            )
            start = at + late
            if rank == 0 or k != 4:
                job.rows[rank].append(
                    Row(Kind.KERNEL, 1, COMM, start, at + 50 * US, -(1 << 60), entry)
                )
    timeline = analyse(job.traces())
    calls, times = timeline.calls, timeline.times
    assert int(calls.p2p.sum()) == 4
    assert len(calls.unpaired) == 1
    assert times.transfer[calls.p2p].tolist() == pytest.approx([20 * US] * 4, abs=1_000)


def test_overlap_by_hand() -> None:
    """Compute 0-10 and 30-40 ms; collectives 5-20 and 15-35 on two streams; a copy 18-22."""
    job = Job(1)
    world = TraceCollective(Op.ALL_REDUCE, Datatype.INT8, 1, 1, "g", 1, (0,))
    job.rows[0] = [
        Row(Kind.KERNEL, 0, 0, 0, 10 * MS),
        Row(Kind.KERNEL, 0, 0, 30 * MS, 40 * MS),
        Row(Kind.KERNEL, 1, 1, 5 * MS, 20 * MS, collective=world),
        Row(Kind.KERNEL, 1, 2, 15 * MS, 35 * MS, collective=world),
        Row(Kind.COPY, 2, 3, 18 * MS, 22 * MS),
        Row(Kind.COPY, 2, 3, 45 * MS, 46 * MS),
    ]
    (o,) = analyse(job.traces()).overlaps
    assert (o.span_ns, o.compute_ns, o.copy_ns, o.collective_ns) == (
        46 * MS, 20 * MS, 5 * MS, 30 * MS,
    )  # fmt: skip
    assert (o.exposed_ns, o.hidden_ns, o.copy_only_ns) == (20 * MS, 10 * MS, 4 * MS)
    assert o.idle_ns == 5 * MS
    assert [(s.total_ns, s.exposed_ns) for s in o.streams] == [
        (15 * MS, 10 * MS), (20 * MS, 15 * MS),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=12))
def test_intervals_against_counting(spans: list[tuple[int, int]]) -> None:
    spans.sort()
    start = np.array([a for a, _ in spans], dtype=np.int64)
    end = np.array([a + d for a, d in spans], dtype=np.int64)
    inside = [any(a <= t < b for a, b in zip(start, end, strict=True)) for t in range(80)]
    measured = covered(*union(start, end), np.arange(81))
    assert measured.tolist() == [sum(inside[:t]) for t in range(81)]


def test_period_of_collectives() -> None:
    assert find_period(np.array([5] + [1, 1, 2] * 9)) == 3
    assert find_period(np.arange(30)) is None
    assert find_period(np.array([], dtype=np.int64)) is None


def test_nothing_and_almost_nothing() -> None:
    assert len(analyse([]).calls) == 0
    job = Job(2)
    job.compute(0, 5 * US)
    timeline = analyse(job.traces())
    assert len(timeline.calls) == 0
    assert timeline.overlaps[0].compute_ns == 5 * US
    assert timeline.recorded().steps.source == "window"
    alone = analyse(steady_job(4, 20).traces()[:1])
    assert alone.calls.seen.tolist() == [1] * 20
    assert not alone.times.known.any()
    twice = steady_job(2, 5).traces()
    assert analyse([*twice, twice[1]]).rows.duplicates == (2,)


def _windows(job: Job, first: dict[int, int], offsets: dict[int, int]) -> list[TraceFile]:
    """CUDA-only traces of a job that begin at different calls: no groups, no sizes, no numbers."""
    traces = job.traces(offsets)
    found = []
    for t in traces:
        c = t.columns
        calls = np.flatnonzero(c.collective >= 0)
        begin = int(calls[first[t.rank or 0]]) if first[t.rank or 0] else 0
        kept = slice(begin, None)
        columns = TraceColumns(**{name: column[kept] for name, column in asdict(c).items()})
        bare = tuple(TraceCollective(e.op) for e in t.collectives)
        found.append(replace(t, columns=columns, collectives=bare))
    return found


@pytest.mark.parametrize("offsets", [{}, {1: 5 * MS, 2: -3 * MS}], ids=["shared", "apart"])
def test_windows_that_begin_at_different_calls_are_matched_by_time(offsets: dict[int, int]) -> None:
    job = steady_job(4, 60, late=2)
    first = {0: 0, 1: 13, 2: 4, 3: 0}
    timeline = analyse(_windows(job, first, offsets))
    calls = timeline.calls
    (group,) = calls.groups
    assert group.members == (0, 1, 2, 3)
    assert calls.seen.tolist() == [2] * 4 + [3] * 9 + [4] * 47
    assert calls.absent() == [(k, t) for k in range(13) for t in (1, 2) if k < first[t]]
    assert calls.missing() == []
    assert not timeline.times.impossible.any()
    assert [r.rank for r in timeline.late if r.named] == [2]
    full = calls.seen[calls.call_of_part] == 4
    whole = analyse(job.traces(offsets))
    of_all = np.arange(len(whole.calls.row)) >= 13 * 4
    assert np.abs(timeline.times.wait[full] - whole.times.wait[of_all]).max() < 1_000


def test_streams_of_one_communicator_are_one_group_and_of_two_are_two() -> None:
    serial = Job(2)
    for _ in range(20):
        for stream, op in ((1, Op.ALL_GATHER), (2, Op.REDUCE_SCATTER)):
            serial.compute(0, 100 * US)
            serial.compute(1, 150 * US)
            serial.collective((0, 1), 40 * US, op=op, comm=stream)
    (group,) = analyse(_windows(serial, {0: 0, 1: 0}, {})).calls.groups
    assert [len(r) for r in group.rows] == [40, 40]
    beside = Job(2)
    for _ in range(20):
        beside.compute(0, 100 * US)
        beside.compute(1, 150 * US)
        beside.comm_free = defaultdict(int)  # both at once: two communicators
        beside.collective((0, 1), 40 * US, op=Op.ALL_GATHER, comm=1, blocking=False)
        beside.comm_free = defaultdict(int)
        beside.collective((0, 1), 60 * US, op=Op.ALL_REDUCE, comm=2)
    groups = analyse(_windows(beside, {0: 0, 1: 0}, {})).calls.groups
    assert [[len(r) for r in g.rows] for g in groups] == [[20, 20], [20, 20]]


def test_kernels_launched_before_the_profiler_are_of_their_streams_group() -> None:
    """Their names alone are told; the numbers behind them tell which calls they are."""
    job = steady_job(3, 30)
    traces = []
    for t, lead in zip(job.traces(), (0, 2, 5), strict=True):
        c = t.columns
        calls = np.flatnonzero(c.collective >= 0)
        begin = int(calls[5 - lead])
        named = c.collective.copy()
        named[calls[:5]] = len(t.collectives)
        seq = c.seq.copy()
        seq[calls] = np.arange(100, 130)
        seq[calls[:5]] = -1
        full = replace(c, collective=named, seq=seq)
        columns = TraceColumns(**{name: column[begin:] for name, column in asdict(full).items()})
        entries = (*t.collectives, TraceCollective(Op.ALL_REDUCE))
        traces.append(replace(t, columns=columns, collectives=entries))
    timeline = analyse(traces)
    (group,) = timeline.calls.groups
    assert (group.identity, group.size) == ("ranks", 3)
    assert timeline.calls.seen.tolist() == [1] * 3 + [2] * 2 + [3] * 25
    assert not timeline.calls.mismatched.any()
    assert timeline.calls.missing() == []


@pytest.mark.parametrize(
    ("job", "rows"),
    [("scheduled/default/fsdp", [156, 163, 158, 162]), ("scheduled/ll/ddp", [142, 132, 132, 132])],
)
def test_scheduled_windows_of_real_jobs_are_one_group(
    recorded_jobs: Path, job: str, rows: list[int]
) -> None:
    """Four CUDA-only traces of one communicator: the longest window holds all calls."""
    traces = []
    for path in sorted((recorded_jobs / job).glob("light.rank*")):
        data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
        traces += parse([data], path.name)
    timeline = analyse(traces)
    (group,) = timeline.calls.groups
    assert [len(r) for r in group.rows] == rows
    assert len(timeline.calls) == max(rows)
    assert int((timeline.calls.seen == 4).sum()) == min(rows)
    assert timeline.calls.missing() == []
    assert not timeline.times.impossible.any()


def test_ranks_that_always_leave_apart_contradict_nothing() -> None:
    """FSDP on two H100: of the large calls the late rank leaves 14 us later, of the eight small
    ones both leave together. Only the collectives' kernels are kept of these traces."""
    traces = []
    for path in sorted((ROOT / "tests/recordings/h100x2-fsdp").glob("light.rank*")):
        data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
        traces += parse([data], path.name)
    timeline = analyse(traces)
    assert len(timeline.calls) == 152
    assert contradictions(timeline, timeline.steps) == []


def _profiled(job: Job, begins: dict[int, int], ahead: dict[int, int]) -> list[TraceFile]:
    """Traces of profilers that begin at `begins`, of hosts that launch `ahead` of the GPU, ns."""
    for rank, rows in job.rows.items():
        rows[:] = [r for r in rows if r.start >= begins[rank]]
        for r in rows:
            r.launch = r.start - ahead[rank]
            if r.launch < begins[rank]:
                r.launch = -(1 << 60)  # launched before the profiler began: not told
    return job.traces()


def test_calls_before_a_ranks_profiler_began_are_not_missing_there() -> None:
    """The others' launches of these calls are not told, and rank 3's host is hardly ahead."""
    job = steady_job(4, 200)
    truth = [r.start for r in job.rows[0] if r.collective is not None]
    begin = truth[40] - 100 * US
    begins = {0: 0, 1: 0, 2: 0, 3: begin}
    ahead = {0: 8 * MS, 1: 8 * MS, 2: 8 * MS, 3: 20 * US}
    timeline = analyse(_profiled(job, begins, ahead))
    assert len(timeline.calls) == 200
    assert timeline.calls.missing() == []
    assert {call for call, _ in timeline.calls.outside} == set(range(40))


def test_calls_within_a_ranks_window_are_missing_there() -> None:
    """Rank 3 computes from the beginning, but the records of its first calls are lost."""
    job = steady_job(4, 200)
    for _ in range(3):
        job.drop(3, 10)
        job.drop(3, 0)
    ahead = dict.fromkeys(range(4), 100 * US)
    timeline = analyse(_profiled(job, dict.fromkeys(range(4), -MS), ahead))
    assert [call for call, _ in timeline.calls.missing()] == [0, 1, 2, 10, 12, 14]
