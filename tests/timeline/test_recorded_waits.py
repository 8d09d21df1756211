"""Waits, late ranks and the share of the wall time by the GPU times of recordings."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from command import collscope
from hypothesis import given
from hypothesis import strategies as st

from collscope.match.recorded_parts import join_recorded_parts
from collscope.match.recordings import recorded_groups
from collscope.model import Op
from collscope.model.trace import KERNEL_GPU, RecordedCall, RecordedCalls, TraceCollective
from collscope.parsers.recorders.own_recorder import parse
from collscope.reports.share.recorded import RecordedClassShare, RecordedShare, within_wall
from collscope.reports.share.recorded_text import recorded_sentences
from collscope.reports.waiting.drift import change_points
from collscope.timeline.recorded_waits import recorded_waits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from collscope.timeline.recorded_waits import RecordedWaits

US = 1_000
TRANSFER_NS = 60 * US
CALLS = 20
CALLED = 1100


def recording(
    rank: int,
    late_us: Sequence[int],
    *,
    clock_ns: int | None = 0,
    op: Op = Op.ALL_REDUCE,
    group: str = "0x1",
    told: bool = True,
) -> RecordedCalls:
    """CALLS calls every ms that all ranks leave 60 us after the last one came.

    late_us   lateness of each rank
    clock_ns  of the rank's GPU; None: durations are all that is known
    told      the recording has its world rank
    """
    found = []
    for c in range(CALLS):
        start = 10**12 + c * 1_000 * US + late_us[rank] * US
        end = 10**12 + c * 1_000 * US + max(late_us) * US + TRANSFER_NS
        found.append(
            RecordedCall(
                TraceCollective(op, in_count=1024, group=group, group_size=len(late_us), root=0),
                seq=c,
                start_ns=10**18 + c * 1_000 * US,
                duration_ns=end - start,
                group_rank=rank,
                timing_source=KERNEL_GPU,
                kernel_end_ns=None if clock_ns is None else end + clock_ns,
            )
        )
    return RecordedCalls("own_recorder", tuple(found), rank=rank if told else None)


def waits_of(recordings: Sequence[RecordedCalls]) -> RecordedWaits:
    found = recorded_waits(recorded_groups(recordings))
    assert found is not None
    return found


LATE = [0, 3, 400, 5]


@given(
    st.permutations(LATE),
    st.one_of(st.none(), st.lists(st.integers(0, 10**15), min_size=4, max_size=4)),
    st.booleans(),
)
def test_all_wait_for_the_last(late_us: list[int], clocks: list[int] | None, told: bool) -> None:
    found = waits_of(
        [
            recording(rank, late_us, clock_ns=None if clocks is None else clocks[rank], told=told)
            for rank in range(4)
        ]
    )
    assert [times.rank for _, times, _ in found.ranks] == [0, 1, 2, 3]
    for (_, times, late), own in zip(found.ranks, late_us, strict=True):
        assert times.calls == 20
        assert times.transfer_ns == pytest.approx(20 * TRANSFER_NS, abs=40 * US)
        assert times.wait_ns == pytest.approx(20 * (400 - own) * US, abs=40 * US)
        assert times.unknown_ns == 0
        assert late.named == (own == 400)


@pytest.mark.parametrize("clock_ns", [0, None])
def test_without_a_ranks_recording_nothing_is_split(clock_ns: int | None) -> None:
    found = waits_of([recording(rank, LATE, clock_ns=clock_ns) for rank in (0, 1, 3)])
    assert [(times.transfer_ns, times.wait_ns) for _, times, _ in found.ranks] == [(0, 0)] * 3
    assert all(times.unknown_ns > 0 for _, times, _ in found.ranks)
    assert not any(late.named for _, _, late in found.ranks)


def test_durations_alone_tell_nothing_of_a_rooted_call() -> None:
    rooted = [recording(rank, LATE, clock_ns=None, op=Op.BROADCAST) for rank in range(4)]
    assert recorded_waits(recorded_groups(rooted)) is None
    stamped = [recording(rank, LATE, op=Op.BROADCAST) for rank in range(4)]
    assert len(waits_of(stamped).calls) == 20


def test_a_scatter_of_microseconds_makes_nobody_late() -> None:
    # One rank leaves each call 8 us before the others.
    found = waits_of([recording(rank, [0, 0, 8, 0], clock_ns=None) for rank in range(4)])
    assert not any(late.named for _, _, late in found.ranks)


def named(late_calls: int, stop_us: int) -> list[int]:
    """Ranks that are named: rank 1 is 30 us late to calls, rank 0 to others, and to the last."""
    late = [[0, 30]] * late_calls + [[30, 0]] * (CALLS - 1 - late_calls) + [[stop_us, 0]]
    ranks = []
    for rank in range(2):
        calls = tuple(recording(rank, one).calls[c] for c, one in enumerate(late))
        ranks.append(RecordedCalls("own_recorder", calls, rank=rank))
    return [one.rank for _, _, one in waits_of(ranks).ranks if one.named]


@pytest.mark.parametrize("stop_us", [300, 1_700])
def test_one_stop_of_another_rank_hides_no_late_rank(stop_us: int) -> None:
    # Rank 1 is late by 570 us in all. Without the stop it has all lateness, with it 66 or 25 %.
    assert named(CALLS - 1, stop_us) == [1]


def test_beside_a_stop_that_is_nearly_all_nobody_is_named() -> None:
    assert named(CALLS - 1, 2_280) == []  # 570 us are 20 % of all lateness


def test_a_stop_names_nobody_who_is_last_in_turn() -> None:
    assert named(CALLS // 2, 600) == []


def test_a_process_with_several_ranks_is_no_rank() -> None:
    pairs = []
    for own in ((0, 1), (2, 3)):
        calls = [call for rank in own for call in recording(rank, LATE).calls]
        pairs.append(RecordedCalls("own_recorder", tuple(calls)))
    found = waits_of(pairs)
    assert found.ranks == ()
    assert (found.times.transfer == pytest.approx(TRANSFER_NS, abs=US)) is True


def test_numbers_in_groups_are_no_world_ranks() -> None:
    pairs = [recording(rank, [0, 9], told=False) for rank in (0, 1)]
    # Two of four ranks of another group: their numbers are not those of the ranks above.
    others = [recording(rank, LATE, group="0x2", told=False) for rank in (2, 3)]
    found = waits_of([*pairs, *others])
    assert found.ranks == ()
    assert (found.times.wait >= 0).any()


def test_calls_without_gpu_times() -> None:
    host = RecordedCall(
        TraceCollective(Op.ALL_REDUCE, group="0x1", group_size=1),
        seq=0, duration_ns=5, timing_source="collective_cpu",
    )  # fmt: skip
    assert recorded_waits(recorded_groups([RecordedCalls("inspector", (host,))])) is None


def test_parts_of_a_process_are_one_recording() -> None:
    whole = recording(0, LATE)
    parts = [
        RecordedCalls(
            "own_recorder", whole.calls[7 * k : 7 * k + 7], rank=0, process="h.1.a", part=k
        )
        for k in range(3)
    ]
    other = recording(1, LATE)
    found = join_recorded_parts([parts[2], other, parts[0], parts[1], parts[0]])
    assert list(found) == [1, 2]
    assert found[2].calls == whole.calls
    assert found[1] == other


def record(rank: int, seq: int, exec_us: int, nranks: int = 2) -> dict[str, Any]:
    """A record of Inspector as it writes without NCCL_INSPECTOR_DUMP_VERBOSE."""
    return {
        "header": {"id": "0x7f8c496ae9f661", "rank": rank, "n_ranks": nranks, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0", "hostname": "node-1", "pid": 4711 + rank,
        },
        "coll_perf": {
            "coll": "AllReduce", "coll_sn": seq, "coll_msg_size_bytes": 1 << 20,
            "coll_exec_time_us": exec_us, "coll_timing_source": "kernel_gpu",
        },
    }  # fmt: skip


def test_a_report_of_inspectors_times(tmp_path: Path) -> None:
    for rank in (0, 1):
        lasts = (260 if rank == 0 else 60 for _ in range(30))
        lines = [json.dumps(record(rank, seq, us)) for seq, us in enumerate(lasts)]
        (tmp_path / f"node-1-pid{rank}.log").write_text("\n".join(lines))
    db = tmp_path / "a.db"
    assert collscope("ingest", "auto", *tmp_path.glob("*.log"), "--db", db).code == 0
    report = json.loads(collscope("report", "--db", db, "--format", "json").out)
    timeline = report["timeline"]
    assert timeline["logged_by"] == "recording"
    assert [(r["transfer_ns"], r["wait_ns"], r["straggler"]) for r in timeline["logged"]] == [
        (30 * 60 * US, 30 * 200 * US, False),
        (30 * 60 * US, 0, True),
    ]
    assert [row["transfer_ns_median"] for row in timeline["classes"]] == [60 * US]
    assert timeline["classes"][0]["end_skew_ns_median"] is None
    text = collscope("report", "--db", db).out
    assert "Rank 1 arrives last in all 30 calls" in text
    assert "by the recordings) takes 62.5 %" in " ".join(text.split())


def test_a_report_names_the_late_rank_and_the_other_ones_stop(tmp_path: Path) -> None:
    for rank in (0, 1):
        # Rank 1 is 200 us late to 29 calls; once rank 0 is 4 ms late: 4000 of 9800 us.
        lasts = [260 if rank == 0 else 60] * 29 + [60 if rank == 0 else 4060]
        lines = [json.dumps(record(rank, seq, us)) for seq, us in enumerate(lasts)]
        (tmp_path / f"node-1-pid{rank}.log").write_text("\n".join(lines))
    db = tmp_path / "a.db"
    assert collscope("ingest", "auto", *tmp_path.glob("*.log"), "--db", db).code == 0
    text = " ".join(collscope("report", "--db", db).out.split())
    assert "rank 1 is late: other ranks wait" in text
    assert "Rank 0 came 4 ms late to one call, 41 % of all lateness" in text


def test_the_share_of_the_sample(samples: Path, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    recordings = sorted((samples / "recorders").glob("*.collrec"))
    assert collscope("ingest", "auto", *recordings, "--db", db).code == 0
    share = json.loads(collscope("report", "--db", db, "--format", "json").out)["recorded_share"]
    with closing(sqlite3.connect(db)) as connection:
        (kernels,) = connection.execute("SELECT SUM(duration_ns) FROM kernels").fetchone()
        (wall,) = connection.execute("SELECT SUM(end_ns - begin_ns) FROM recordings").fetchone()
    assert share["percent"] == pytest.approx(100 * kernels / wall)
    assert share["least_percent"] == share["percent"]
    assert (share["ranks"], share["calls"], share["timed_calls"]) == (2, 7, 6)
    assert share["untimed_calls"] == 1  # a Send has no transfer
    ran = json.loads(collscope("report", "--db", db, "--format", "json").out)["classes"]
    assert {row["kernel_calls"] for row in ran} == {None, 1, 4}


def test_a_recording_beside_traces_adds_no_second_times(samples: Path, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    recordings = sorted((samples / "recorders").glob("*.collrec"))
    traces = samples / "traces" / "default"
    assert collscope("ingest", "auto", traces, *recordings, "--db", db).code == 0
    with closing(sqlite3.connect(db)) as connection:
        query = "SELECT DISTINCT origin FROM rank_waits"
        assert connection.execute(query).fetchall() == [("trace",)]


def sampled(tmp_path: Path, lasts: Sequence[int], seed: int) -> dict[str, Any]:
    """Share of a job of two ranks, of whose calls windows of 20 in 100 are timed."""
    first = seed % 80
    calls = []
    for k, ns in enumerate(lasts):
        timed = first <= k % 100 < first + 20
        calls.append((k, ns if timed else 0))
    folder = tmp_path / f"{seed}"
    folder.mkdir()
    for rank in (0, 1):
        lines = [json.dumps(_verbose(rank, k, ns)) for k, ns in calls]
        (folder / f"{rank}.log").write_text("\n".join(lines))
    db = folder / "a.db"
    assert collscope("ingest", "auto", *folder.glob("*.log"), "--db", db).code == 0
    share = json.loads(collscope("report", "--db", db, "--format", "json").out)["recorded_share"]
    assert isinstance(share, dict)
    return share


def test_calls_of_a_communicator_that_sum_to_more_than_the_wall_time_give_no_share(
    tmp_path: Path,
) -> None:
    # A call begins every ms, and takes 1.5 ms by its time: 150 %, but for the first ones and ends.
    share = sampled(tmp_path, [1_500_000] * 1000, seed=3)
    assert share["impossible_percent"] == pytest.approx(150, rel=0.03)
    assert (share["percent"], share["least_percent"]) == (None, 0.0)
    assert {(row["percent"], row["least_percent"]) for row in share["classes"]} == {(None, 0.0)}
    text = " ".join(collscope("report", "--db", tmp_path / "3" / "a.db").out.split())
    assert "the times are wrong, and the share of collectives is not known" in text
    assert "Collectives run for" not in text


def test_communicators_that_overlap_give_a_lower_bound() -> None:
    one = RecordedClassShare(1, 1, "AllReduce", 8, 2, 10, 10, 1.0, 70.0, 70.0)
    two = RecordedClassShare(2, 1, "AllReduce", 8, 2, 10, 10, 1.0, 60.0, 60.0)
    found = within_wall(RecordedShare(130.0, 130.0, 2, 10**9, 20, 20, 0, None, (one, two)))
    # 70 % of one communicator alone, up to 100 %.
    assert (found.least_percent, found.percent, found.overlapping_percent) == (70.0, None, 130.0)
    assert found.impossible_percent is None
    assert "sum to 130 % of the wall time" in " ".join(recorded_sentences(found))


def test_an_estimate_above_the_wall_time_is_none() -> None:
    row = RecordedClassShare(1, 1, "AllReduce", 8, 2, 100, 10, 1.0, 80.0, 120.0)
    found = within_wall(RecordedShare(80.0, 120.0, 2, 10**9, 100, 10, 0, None, (row,)))
    assert (found.least_percent, found.percent) == (80.0, None)


def _verbose(rank: int, seq: int, ns: int) -> dict[str, Any]:
    made = record(rank, seq, ns // 1000)
    at = 1_700_000_000_000_000 + seq * 1000  # us: one call a ms
    made["coll_perf"]["event_trace_ts"] = {"coll_start_ts": at, "coll_stop_ts": at + 1}
    if not ns:
        del made["coll_perf"]["coll_exec_time_us"]
        del made["coll_perf"]["coll_timing_source"]
    return made


@pytest.mark.parametrize("seed", range(6))
def test_a_share_of_sampled_calls_has_a_lower_bound(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    # Heavy tails: some calls wait for a hundred times as long as most.
    lasts = [round(1000 * (100 + min(rng.paretovariate(1), 20_000))) for _ in range(CALLED)]
    share = sampled(tmp_path, lasts, seed)
    truth = 100 * sum(lasts) / ((CALLED - 1) * 1_000_000)
    assert share["least_percent"] < min(truth, share["percent"])
    timed = [k for k in range(CALLED) if seed % 80 <= k % 100 < seed % 80 + 20]
    first, later = timed[:20], timed[20:]
    mean = sum(lasts[k] for k in later) / len(later)
    known = sum(lasts[k] for k in first + later)
    estimate = 100 * (known + mean * (800 - len(timed))) / (799 * 1_000_000)
    assert share["percent"] == pytest.approx(estimate, rel=0.01)


def test_few_windows_give_no_estimate(tmp_path: Path) -> None:
    share = sampled(tmp_path, [100_000] * 300, 0)
    assert share["percent"] is None
    assert share["least_percent"] == pytest.approx(100 * 300 * 100_000 / (299 * 1_000_000))
    text = collscope("report", "--db", tmp_path / "0" / "a.db").out
    assert "Collectives run for at least 10.0 % of the wall time" in text


def stepped(tmp_path: Path, lasts_us: Sequence[int]) -> dict[str, Any]:
    """Report of two ranks whose calls take so long."""
    for rank in (0, 1):
        lines = [json.dumps(record(rank, seq, us)) for seq, us in enumerate(lasts_us)]
        (tmp_path / f"{rank}.log").write_text("\n".join(lines))
    db = tmp_path / "a.db"
    assert collscope("ingest", "auto", *tmp_path.glob("*.log"), "--db", db).code == 0
    page = collscope("report", "--db", db, "-o", tmp_path / "a.html")
    assert page.code == 0
    assert "Bandwidth over the run" in (tmp_path / "a.html").read_text()
    report = json.loads(collscope("report", "--db", db, "--format", "json").out)
    assert isinstance(report, dict)
    return report


def test_a_class_that_becomes_slower_is_found_where_it_does(tmp_path: Path) -> None:
    rng = random.Random(1)
    lasts = [round(rng.gauss(100 if k < 130 else 140, 6)) for k in range(300)]
    report = stepped(tmp_path, lasts)
    ((row),) = report["timeline"]["drift"]
    first, second = row["segments"]
    assert (first["first_seq"], second["last_seq"]) == (0, 299)
    assert abs(second["first_seq"] - 130) <= 2
    assert first["transfer_ns"] == pytest.approx(100_000, rel=0.02)
    assert second["transfer_ns"] == pytest.approx(140_000, rel=0.02)
    size, nranks = 1 << 20, 2  # AllReduce: 2 (n - 1) / n
    assert first["busbw_gbps"] == pytest.approx(
        size * 2 * (nranks - 1) / nranks / 100_000, rel=0.02
    )
    (found,) = [f for f in report["findings"] if f["code"] == "slower_in_run"]
    assert found["title"] == "1 class became slower during the run"


def test_scatter_and_small_changes_are_no_change(tmp_path: Path) -> None:
    rng = random.Random(2)
    lasts = [round(rng.gauss(1000 if k < 130 else 1030, 60)) for k in range(300)]
    report = stepped(tmp_path, lasts)
    assert [len(row["segments"]) for row in report["timeline"]["drift"]] == [1]
    assert not [f for f in report["findings"] if f["code"] == "slower_in_run"]


@pytest.mark.parametrize("places", [(50,), (40, 120), (60, 120, 180)])
def test_changes_are_found_again_in_each_part(places: tuple[int, ...]) -> None:
    rng = random.Random(3)
    level = [100.0, 150.0, 90.0, 160.0]
    values = [rng.gauss(level[sum(k >= p for p in places)], 5) for k in range(240)]
    found = change_points(values)
    assert len(found) == len(places)
    assert all(abs(a - b) <= 3 for a, b in zip(found, places, strict=True))


def test_chance_changes_nothing() -> None:
    rng = random.Random(4)
    series = [[rng.lognormvariate(0, 0.5) for _ in range(200)] for _ in range(300)]
    assert not any(change_points(values) for values in series)


def test_algorithms_of_recorded_calls(samples: Path, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    recordings = sorted((samples / "recorders").glob("*.collrec"))
    assert collscope("ingest", "auto", *recordings, "--db", db).code == 0
    with closing(sqlite3.connect(db)) as connection:
        query = "SELECT DISTINCT algorithm, protocol, channels FROM calls WHERE op = 'AllReduce'"
        found = connection.execute(query).fetchall()
    calls = [parse(path.read_bytes(), path.name).calls[0] for path in recordings]
    first = calls[0].collective
    assert found == [(first.algorithm, first.protocol, calls[0].channels)]
    assert None not in found[0]
