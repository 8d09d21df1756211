"""Traces through the real commands: what the store, the views and the report say of them."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import collscope, dump, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from collscope.errors import InputError
from collscope.model import Datatype, Op
from collscope.model.trace import (
    GroupStatus,
    RecordedCall,
    RecordedCalls,
    TraceCollective,
    TraceColumns,
    TraceFile,
)
from collscope.reports.rendering.share_words import range_words
from collscope.reports.report.build import build_report
from collscope.reports.share.answer import read_shares
from collscope.reports.waiting.findings import stragglers
from collscope.store.trace_columns import (
    decode_recording,
    decode_trace,
    encode_recording,
    encode_trace,
)

MS = 1_000_000
Edit = Callable[[int, dict[str, Any]], None]


def ingest(db: Path, *paths: Path, run: str = "main", steps: int | None = None) -> str:
    given = () if steps is None else ("--steps", str(steps))
    done = collscope("ingest", "trace", *paths, "--db", db, "--run", run, *given)
    assert done.code == 0, done.err
    return done.out


def report(db: Path, *arguments: str) -> str:
    done = collscope("report", "--db", db, *arguments)
    assert done.code == 0, done.err
    return done.out


def edited(source: Path, target: Path, edit: Edit) -> Path:
    """The traces of a folder with `edit(rank, document)` applied to each."""
    target.mkdir()
    for path in sorted(source.glob("rank*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        edit(document["distributedInfo"]["rank"], document)
        (target / path.stem).write_text(json.dumps(document))
    return target


def is_collective(event: dict[str, Any]) -> bool:
    return event.get("cat") == "kernel" and "nccl" in event["name"]


@pytest.mark.parametrize(("case", "expected"), [("default", 0.63), ("ringll", 1.26)])
def test_transfer_per_step(db_path: Path, samples: Path, case: str, expected: float) -> None:
    """README of the recordings: the sum over a step's 6 calls, in ms; 3 steps were traced."""
    ingest(db_path, samples / "traces" / case)
    (total,) = rows(db_path, "SELECT SUM(transfer_ns) FROM call_times")[0]
    assert total / 3 / MS == pytest.approx(expected, rel=0.02)
    assert rows(db_path, "SELECT COUNT(*), MIN(ranks_traced), SUM(warm_up) FROM call_times") == [
        (18, 4, 1)
    ]


def test_a_trace_alone_gives_calls_and_communicators(db_path: Path, samples: Path) -> None:
    ingest(db_path, samples / "traces" / "default")
    assert rows(db_path, "SELECT nranks, matched_by, ranks_seen FROM communicators") == [
        (4, "process group", 4)
    ]
    assert rows(db_path, "SELECT rank, world_rank FROM members ORDER BY rank") == [
        (r, r) for r in range(4)
    ]
    # steps.py of the recordings: 6 collectives a step, 3 steps
    step = [
        ("AllReduce", 4096), ("AllReduce", 262144), ("AllReduce", 4194304),
        ("AllReduce", 33554432), ("AllGather", 4194304), ("ReduceScatter", 4194304),
    ]  # fmt: skip
    assert rows(db_path, "SELECT op, count FROM calls ORDER BY call_id") == step * 3
    assert rows(db_path, "SELECT DISTINCT in_place, ranks_seen, matched_by FROM calls") == [
        (None, 4, "process group")
    ]
    kernels = "SELECT COUNT(*), COUNT(call_id), COUNT(launch_ns) FROM kernels WHERE family NOTNULL"
    assert rows(db_path, kernels) == [(72, 72, 72)]


def test_kernel_times_add_up(db_path: Path, samples: Path) -> None:
    """Every kernel is transfer and wait; the warm-up call has neither."""
    ingest(db_path, samples / "traces" / "default")
    query = "SELECT COUNT(*) FROM kernels WHERE call_id NOTNULL AND {}"
    assert rows(db_path, query.format("transfer_ns + wait_ns = duration_ns")) == [(68,)]
    assert rows(db_path, query.format("transfer_ns IS NULL AND wait_ns IS NULL")) == [(4,)]
    per_call = (
        "SELECT COUNT(*) FROM call_times t JOIN (SELECT call_id, MAX(transfer_ns) AS x"
        " FROM kernels GROUP BY call_id) USING (call_id) WHERE t.transfer_ns = x"
    )
    assert rows(db_path, per_call) == [(17,)]


def test_a_clock_offset_changes_nothing(db_path: Path, samples: Path, tmp_path: Path) -> None:
    def ahead(rank: int, document: dict[str, Any]) -> None:
        for event in document["traceEvents"]:
            if rank in (1, 2) and "ts" in event:
                event["ts"] += 5000

    source = samples / "traces" / "default"
    ingest(db_path, source)
    ingest(db_path, edited(source, tmp_path / "moved", ahead), run="moved")
    for query in (
        "SELECT rank, transfer_ns, wait_ns, late_typical_ns FROM rank_times WHERE run = '{}'"
        " ORDER BY rank",
        "SELECT seq, transfer_ns, start_skew_ns FROM call_times WHERE run = '{}' ORDER BY seq",
    ):
        plain, moved = (
            np.array(rows(db_path, query.format(run)), dtype=float) for run in ("main", "moved")
        )
        # Timestamps of the file have ns, its offsets are found to one.
        assert np.abs(plain - moved).max() <= 20
    verdicts = "SELECT rank, straggler, late_last FROM rank_times WHERE run = '{}' ORDER BY rank"
    assert rows(db_path, verdicts.format("main")) == rows(db_path, verdicts.format("moved"))
    offsets = [
        o
        for (o,) in rows(
            db_path, "SELECT clock_offset_ns FROM traces WHERE run = 'moved' ORDER BY rank"
        )
    ]
    assert offsets == pytest.approx([0, 5 * MS, 5 * MS, 0], abs=1000)
    assert "Clock offsets of up to 5 ms" in report(db_path, "--run", "moved")


def test_ranks_without_a_common_collective_have_no_common_clock(
    db_path: Path, samples: Path, tmp_path: Path
) -> None:
    def without_collectives(rank: int, document: dict[str, Any]) -> None:
        if rank > 0:
            events = document["traceEvents"]
            document["traceEvents"] = [e for e in events if not is_collective(e)]

    ingest(db_path, edited(samples / "traces" / "default", tmp_path / "apart", without_collectives))
    text = report(db_path)
    assert "Clocks: the ranks share no collective" in text
    assert "offsets of up to" not in text


def test_a_deleted_collective_is_reported(db_path: Path, samples: Path, tmp_path: Path) -> None:
    def without_one(rank: int, document: dict[str, Any]) -> None:
        events = document["traceEvents"]
        kernels = sorted(filter(is_collective, events), key=lambda e: e["ts"])
        if rank == 2:
            events.remove(kernels[9])

    folder = edited(samples / "traces" / "default", tmp_path / "less", without_one)
    ingest(db_path, folder)
    seen = rows(db_path, "SELECT seq, ranks_traced FROM call_times ORDER BY seq")
    assert seen == [(k, 3 if k == 9 else 4) for k in range(18)]
    found = rows(db_path, "SELECT origin, kind, ranks, seq, count FROM disagreements")
    assert found == [("trace", "missing", "[2]", 9, 1)]
    assert rows(db_path, "SELECT seq, rank, what FROM deviations") == [(9, 2, "missing")]
    text = report(db_path)
    assert "[warning] collectives missing on a rank (by traces)" in text
    assert "the trace of rank 2 lacks it" in " ".join(text.split())


def late_job(folder: Path, ahead_us: dict[int, float]) -> Path:
    """Four ranks, 60 collectives of 100 us every 3 ms; rank 2 is 1 ms late to every tenth.

    The others are there at once, with some us of difference; `ahead_us` moves clocks.
    """
    folder.mkdir()
    for rank in range(4):
        events = []
        for call in range(60):
            late = {r: 3.0 * ((call * 7 + r * 5) % 4) for r in range(4)}
            if call % 10 == 9:
                late[2] += 1000.0
            start, end = 3000.0 * call + late[rank], 3000.0 * call + max(late.values()) + 100
            args = {
                "Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024,
                "Group size": 4, "dtype": "Float", "Process Group Name": "0", "stream": 7,
                "Process Group Ranks": "[0, 1, 2, 3]", "device": rank,
            }  # fmt: skip
            events.append(
                {
                    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL()",
                    "pid": rank, "tid": 7, "ts": 1e6 + start + ahead_us.get(rank, 0.0),
                    "dur": end - start, "args": args,
                }
            )  # fmt: skip
        document = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4},
            "traceEvents": events,
        }
        (folder / f"{rank}.any").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("ahead_us", [{}, {1: 5000.0, 2: 5000.0}])
def test_a_late_rank_is_named(db_path: Path, tmp_path: Path, ahead_us: dict[int, float]) -> None:
    ingest(db_path, late_job(tmp_path / "job", ahead_us))
    query = "SELECT rank, late_behind, late_of, late_typical_ns FROM rank_times WHERE straggler"
    ((rank, behind, of, typical),) = rows(db_path, query)
    assert (rank, behind, of) == (2, 6, 60)
    # 1 ms after its usual arrival, which is up to 9 us beside that of the second last.
    assert typical == pytest.approx(MS, abs=20_000)
    text = " ".join(report(db_path).split())
    assert "[warning] rank 2 is late: other ranks wait" in text
    # What the others wait is what the table says of them; not all of it is for this rank alone.
    ((waited,),) = rows(db_path, "SELECT SUM(wait_ns) / 1e6 FROM rank_times WHERE rank <> 2")
    ((alone,),) = rows(db_path, "SELECT caused_wait_ns / 1e6 FROM rank_times WHERE rank = 2")
    assert alone < waited
    late = "if it arrived with the second-last rank, they"
    assert f"The other ranks wait {waited:.3g} ms in total; {late}" in text
    assert f"they would wait {alone:.3g} ms less." in text
    # No call was left out as warm-up: none is spoken of.
    assert "warm-up" not in text
    assert rows(db_path, "SELECT DISTINCT transfer_ns FROM call_times") == [(100_000,)]


def test_logs_and_traces_give_one_set_of_calls(db_path: Path, recordings: Path) -> None:
    folder = recordings / "blocking" / "default"
    done = collscope("ingest", "auto", folder, "--db", db_path)
    assert done.code == 0, done.err
    logged = "SELECT COUNT(*) FROM calls"
    other = db_path.with_name("logs.db")
    collscope("ingest", "log", *sorted(folder.glob("*.log")), "--db", other)
    assert rows(db_path, logged) == rows(other, logged) == [(561,)]
    assert rows(db_path, "SELECT matched_by FROM communicators") == [("commId",)]
    classes = "SELECT op, count, redop, in_place, kernel_calls FROM classes WHERE kernel_calls"
    assert rows(db_path, classes) == [
        ("AllReduce", 4096, "Sum", 1, 2),
        ("AllReduce", 262144, "Sum", 1, 3),
        ("AllReduce", 4194304, "Sum", 1, 3),
        ("AllReduce", 33554432, "Sum", 1, 3),
        ("AllGather", 4194304, None, 0, 3),
        ("ReduceScatter", 4194304, "Sum", 0, 3),
    ]


def test_a_barrier_is_the_all_reduce_that_logs_show(db_path: Path, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    lines = []
    for rank in range(2):
        events = []
        for at, (name, n) in enumerate((("allreduce", 8), ("barrier", 0), ("allreduce", 8))):
            args = {"Collective name": name, "In msg nelems": n, "Out msg nelems": n,
                    "Group size": 2, "dtype": "Float" if n else "Byte", "stream": 7,
                    "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}  # fmt: skip
            events.append(
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": "ncclDevKernel_AllReduce_Sum_f32()",
                    "pid": rank,
                    "tid": 7,
                    "ts": 100.0 * at,
                    "dur": 9,
                    "args": args,
                }
            )
            lines.append(
                f"h:{rank}:{rank} [{rank}] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1"
                f" count {n or 1} datatype 7 op 0 root 0 comm 0x{rank + 1} [nranks=2] stream 0x9"
            )  # fmt: skip
        whole = {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}
        (tmp_path / "traces" / f"{rank}.json").write_text(json.dumps(whole))
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    assert collscope("ingest", "log", tmp_path / "log", "--db", db_path).code == 0
    ingest(db_path, tmp_path / "traces")
    found = (
        "SELECT c.op, c.count, t.transfer_ns FROM calls c JOIN call_times t USING (call_id)"
        " ORDER BY c.seq"
    )
    assert rows(db_path, found) == [("AllReduce", n, 9000) for n in (8, 1, 8)]
    assert rows(db_path, "SELECT COUNT(*) FROM calls") == [(3,)]
    assert rows(db_path, "SELECT code FROM diagnostics WHERE code LIKE '%join%'") == []


def test_the_order_of_sources_does_not_matter(db_path: Path, recordings: Path) -> None:
    folder = recordings / "ddp"
    logs, traces = sorted(folder.glob("*.log")), sorted(folder.glob("*.gz"))
    recorders = sorted(folder.glob("*.json"))
    for number, order in enumerate(((logs, recorders, traces), (traces, logs, recorders))):
        for paths in order:
            done = collscope("ingest", "auto", *paths, "--db", db_path, "--run", number)
            assert done.code == 0, done.err
    for query in (
        "SELECT op, count, calls, kernel_calls, transfer_ns FROM classes WHERE run = '{}'",
        "SELECT seq, op, count, ranks_seen FROM calls WHERE run = '{}' ORDER BY seq",
        "SELECT rank, wait_ns, exposed_ns FROM rank_times WHERE run = '{}' ORDER BY rank",
    ):
        assert rows(db_path, query.format(0)) == rows(db_path, query.format(1)) != []
    assert rows(db_path, "SELECT * FROM disagreements") == []


def test_a_recorder_alone_gives_calls(db_path: Path, recordings: Path) -> None:
    ingest(db_path, *sorted((recordings / "ddp").glob("*rank?.json")))
    other = db_path.with_name("logs.db")
    collscope("ingest", "log", *sorted((recordings / "ddp").glob("*.log")), "--db", other)
    query = "SELECT seq, op, count, datatype, ranks_seen FROM calls ORDER BY seq"
    assert len(rows(db_path, query)) == 116
    assert rows(db_path, query) == rows(other, query)


def test_the_same_rank_recorded_twice_counts_once(db_path: Path, recordings: Path) -> None:
    ingest(db_path, *sorted((recordings / "ddp").glob("ddp.fr.*")))
    assert rows(db_path, "SELECT * FROM disagreements") == []
    found = rows(db_path, "SELECT count FROM diagnostics WHERE code = 'rank_recorded_twice'")
    assert found == [(2,)]


def test_a_second_job_is_a_run_of_its_own(db_path: Path, samples: Path) -> None:
    """Two jobs read into one run are the same two as if each had been read by itself."""
    said = ingest(
        db_path, *(samples / "traces" / case for case in ("default", "ringll")), run="two"
    )
    # steps as `predict` and `compare` have them: 5.331 and 5.981 ms
    held = (
        f"two: {samples}/traces/default/rank0.json.gz and 3 more, 4 ranks, CPU and GPU activities,"
        " 2 steps of 5.33 ms",
        f"two.2: {samples}/traces/ringll/rank0.json.gz and 3 more, 4 ranks, CPU and GPU activities,"
        " 2 steps of 5.98 ms",
    )
    assert "notice: 1 x several_periods" in said
    assert f"became runs of their own (two.2). {'; '.join(held)}\n" in said
    for case in ("default", "ringll"):
        ingest(db_path, samples / "traces" / case, run=case)
    for run, alone in (("two", "default"), ("two.2", "ringll")):
        for view in (
            "SELECT path, collective_ns, busy_ns FROM share JOIN sources USING (run, source_id)"
            " WHERE run = '{}' ORDER BY path",
            "SELECT rank, wait_ns, exposed_ns, calls FROM rank_times WHERE run = '{}'",
            "SELECT transfer_ns, lateness_ns FROM call_times WHERE run = '{}' ORDER BY call_id",
        ):
            assert rows(db_path, view.format(run)) == rows(db_path, view.format(alone)) != []
    for run in ("two", "two.2"):
        told = " ".join(report(db_path, "--run", run).split())
        here = "; ".join(text.replace(f"{run}: ", f"{run} (this one): ") for text in held)
        title = "[note] 1 other period, start or job in addition to this one"
        assert f"{title} Each has its own run. {here}." in told
    assert "other period" not in report(db_path, "--run", "default")


def test_periods_say_which_shows_cpu_activities(recorded_jobs: Path, db_path: Path) -> None:
    """In file order: with CPU activities first; 1.64 and 1.29 times 61.7 ms (steps.jsonl)."""
    said = ingest(db_path, recorded_jobs / "scheduled" / "default" / "ddp")
    assert (
        "full.rank0.json.zst and 3 more, 4 ranks, CPU and GPU activities, 3 steps of 100.91 ms"
        in said
    )
    assert "light.rank0.json.zst and 3 more, 4 ranks, GPU activities, 3 steps of 79.69 ms" in said
    # each reason has its own count: of what came before the profiler, and of traces without CPU
    assert "18 x no_collective_arguments" in said
    assert "outside torch.distributed, or after coalesced calls." in said
    assert "565 x no_collective_arguments" in said
    assert "ingest the job's logs too (collscope record), or profile with " in said
    told = " ".join(report(db_path).split())
    assert "full.rank0.json.zst and 3 more, 4 ranks, CPU and GPU activities" in told
    assert "The logs are joined" not in told


def test_steps_are_found_or_given(db_path: Path, samples: Path) -> None:
    """Three steps a trace, of which the first holds the warm-up; equal parts are the same steps."""
    query = "SELECT rank, step, duration_ns, step_from FROM steps WHERE run = '{}' ORDER BY 1, 2"
    ingest(db_path, samples / "traces" / "default")
    found = rows(db_path, query.format("main"))
    assert [row[:2] for row in found] == [(rank, step) for rank in range(4) for step in range(2)]
    assert {row[3] for row in found} == {"kernels"}
    ingest(db_path, samples / "traces" / "default", run="given", steps=3)
    given = rows(db_path, query.format("given"))
    assert [row[:2] for row in given] == [row[:2] for row in found]
    assert [row[2] for row in given] == pytest.approx([row[2] for row in found], rel=1e-3)
    ingest(db_path, samples / "traces" / "default", steps=3)  # known already: cut again
    assert rows(db_path, query.format("main")) == rows(db_path, query.format("given"))
    told = collscope("compare", "main", "given", "--db", db_path).out
    assert "main: 2 steps as given at ingest" in " ".join(told.split())


def test_the_report_says_that_the_profiler_is_in_the_step(db_path: Path, samples: Path) -> None:
    ingest(db_path, samples / "traces" / "default")
    mean = max(ns for (ns,) in rows(db_path, "SELECT AVG(duration_ns) FROM steps GROUP BY rank"))
    assert f"A step takes {mean / 1e6:.2f} ms with the profiler" in report(db_path)
    ingest(db_path, samples / "traces" / "default" / "rank0.json.gz", run="one", steps=100_000)
    assert "No step recurs in the traces" in report(db_path, "--run", "one")


def test_periods_are_joined_whatever_the_order_of_their_files(db_path: Path, samples: Path) -> None:
    traces = {
        case: sorted((samples / "traces" / case).glob("rank*")) for case in ("default", "ringll")
    }
    for rank in range(4):
        order = ("default", "ringll") if rank % 2 == 0 else ("ringll", "default")
        for case in order:
            ingest(db_path, traces[case][rank])
    query = "SELECT path FROM sources WHERE run = '{}' ORDER BY path"
    for run, case in (("main", "default"), ("main.2", "ringll")):
        assert rows(db_path, query.format(run)) == [(str(path),) for path in traces[case]]
    assert "already in this run" in ingest(db_path, traces["ringll"][0])
    assert rows(db_path, "SELECT COUNT(*) FROM traces WHERE used") == [(8,)]


def test_again_is_a_no_op(db_path: Path, samples: Path) -> None:
    ingest(db_path, samples / "traces" / "default")
    before = dump(db_path)
    assert "already in this run" in ingest(db_path, samples / "traces" / "default")
    assert dump(db_path) == before


def test_frontier_tables(db_path: Path, samples: Path) -> None:
    """Slides: record_param_comms takes 99.97 % in GPT-J; no collective among BigBird's 80.95 %.

    The functions that perftools lists may start collectives inside: no more than a lower bound.
    """
    for name, answer in (
        ("gptj", "Communication-bound: collectives take 99.97 % of"),
        ("bigbird", "Compute-bound: collectives take 0.00 to 19.05 % of"),
        ("perftools", "Collectives take at least 17.80 % of"),
    ):
        ingest(db_path, samples / "profiles" / f"frontier-{name}.txt", run=name)
        assert report(db_path, "--run", name).splitlines()[2].startswith(answer)
    once = rows(
        db_path,
        "SELECT source_id, name, COUNT(*) FROM kernel_totals WHERE run = 'perftools' GROUP BY 1, 2",
    )
    for name in ("gptj", "bigbird", "perftools"):
        ingest(db_path, samples / "profiles" / f"frontier-{name}.txt", run="all")
    with contextlib.closing(sqlite3.connect(db_path)) as connection:
        shares = read_shares(connection, "all")
    ranges = [range_words(part) for part in (shares, shares[1:2], shares[2:])]
    assert ranges == ["0.00 to 100.00 %", "0.00 to 19.05 %", "at least 17.80 %"]
    assert {row[2] for row in once} == {1}
    assert len({row[0] for row in once}) == 2


def test_perftools_without_collectives_tells_nothing(
    db_path: Path, samples: Path, tmp_path: Path
) -> None:
    text = (samples / "profiles" / "frontier-perftools.txt").read_text()
    given = tmp_path / "perftools.txt"
    given.write_text(text.replace("all_gather_into_tensor", "forward"))
    ingest(db_path, given)
    assert report(db_path).splitlines()[2].startswith("Collectives take an unknown part of")


def test_perftools_message_sizes(db_path: Path, samples: Path) -> None:
    ingest(db_path, samples / "profiles" / "frontier-perftools.txt")
    assert rows(db_path, "SELECT COUNT(*) > 0, MIN(count > 0) FROM message_bins") == [(1, 1)]


def test_rocprof_share_without_decoys(db_path: Path, corpus: Path) -> None:
    ingest(db_path, corpus / "rocprof" / "tracelens-908_results.json.gz")
    ((share,),) = rows(db_path, "SELECT share_of_kernels FROM share")
    assert share == pytest.approx(0.936, abs=0.0005)


def test_public_kineto_traces(db_path: Path, corpus: Path) -> None:
    ingest(db_path, corpus / "kineto" / "hta-nccl_data.json.gz")
    found = rows(db_path, "SELECT op, count, datatype, nranks, calls FROM classes ORDER BY count")
    assert found[-1] == ("AllReduce", 7875584, "Float32", 2, 3)
    assert sum(row[4] for row in found) == 21
    ingest(db_path, corpus / "kineto" / "hta-sampled_rank-0.json.gz", run="sampled")
    sampled = "SELECT {} FROM {} WHERE run = 'sampled'"
    ((percent,),) = rows(db_path, sampled.format("share_of_busy", "share"))
    assert percent == pytest.approx(0.652, abs=0.001)
    ((exposed, hidden, total),) = rows(
        db_path, sampled.format("exposed_ns, hidden_ns, collective_ns", "rank_times")
    )
    assert exposed + hidden == total > 0
    assert hidden > 0
    # Without arguments the number of ranks is not known, and must not be made up; of AllGathers
    # their operator tells it: 1073741824 elements of 16777216 from each rank.
    sized = sampled.format("DISTINCT nranks", "classes")
    assert sorted(rows(db_path, sized), key=str) == [(64,), (None,)]


def test_profiles_with_times_are_traces(db_path: Path, samples: Path) -> None:
    for name in ("rpd", "rocpd.sqlite", "nsys.sqlite"):
        ingest(db_path, samples / "profiles" / f"synthetic.{name}", run=name)
        query = f"SELECT COUNT(*), MIN(exposed_ns + hidden_ns = collective_ns) FROM rank_times WHERE run = '{name}'"  # noqa: E501
        assert rows(db_path, query) == [(2, 1)]


@pytest.mark.parametrize("kind", ["trace", "auto"])
def test_a_trace_cut_before_its_gpu_work_says_so(db_path: Path, tmp_path: Path, kind: str) -> None:
    trace = tmp_path / "half.json"
    trace.write_text(
        '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm",'
        ' "pid": 1, "tid": 1, "ts": 10, "dur": 2}, {"ph": "X", "cat": "ker'
    )
    done = collscope("ingest", kind, trace, "--db", db_path)
    assert done.code == 3
    assert ": cut, or not written to its end; it holds no kernel" in done.err


def test_a_trace_cut_short_says_so(db_path: Path, samples: Path, tmp_path: Path) -> None:
    whole = gzip.decompress((samples / "traces" / "default" / "rank0.json.gz").read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    ingest(db_path, path)
    assert rows(db_path, "SELECT COUNT(*) FROM diagnostics WHERE severity = 'data_loss'") != [(0,)]


def test_the_first_lines_say_that_a_trace_is_cut(
    db_path: Path, samples: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(samples / "traces" / "default", folder)
    path = folder / "rank1.json.gz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    ingest(db_path, folder)
    first, *_ = report(db_path).splitlines()[2:]
    assert first.startswith("The trace of rank 1 is cut. Figures cover the part before the cut;")
    assert "A step takes" not in report(db_path)
    assert "No step recurs" not in report(db_path)


def test_without_sizes_the_first_lines_say_why_no_gain_is_told(
    db_path: Path, samples: Path, tmp_path: Path
) -> None:
    def light(rank: int, document: dict[str, Any]) -> None:
        events = document["traceEvents"]
        document["traceEvents"] = kept = [e for e in events if e.get("cat") == "kernel"]
        for event in kept:
            event["args"] = {k: event["args"][k] for k in ("device", "stream")}

    ingest(db_path, edited(samples / "traces" / "default", tmp_path / "light", light))
    head, _, rest = " ".join(report(db_path, "--system", "h200").split()).partition("Findings")
    why = "the sizes of the calls are not known"
    assert f"Gain not known: {why}. To get it: log with NCCL_DEBUG=INFO" in head
    assert "Not known: sizes of the calls, and so efficiency and gain" in rest
    assert "so that sizes are known and communicators are joined by their id" in rest
    assert why in report(db_path, "--system", "h200", "--format", "html")


def test_late_of_two_ranks_is_compared_with_the_other(db_path: Path, tmp_path: Path) -> None:
    job = late_job(tmp_path / "job", {})
    for rank in (0, 3):
        (job / f"{rank}.any").unlink()
    for rank in (1, 2):
        path = job / f"{rank}.any"
        document = json.loads(path.read_text())
        document["distributedInfo"] |= {"rank": rank - 1, "world_size": 2}
        for event in document["traceEvents"]:
            event["args"] |= {"Group size": 2, "Process Group Ranks": "[0, 1]"}
        path.write_text(json.dumps(document))
    ingest(db_path, job)
    text = " ".join(report(db_path).split())
    assert "of 60 calls, typically by" in text
    ((caused,),) = rows(db_path, "SELECT caused_wait_ns / 1e6 FROM rank_times WHERE rank = 1")
    waited = re.search(
        r"Rank 0 waits ([\d.]+) ms in total, (all|[\d.]+ ms) of it for rank 1\.", text
    )
    assert waited is not None
    assert waited[2] == ("all" if waited[1] == f"{caused:.3g}" else f"{caused:.3g} ms")
    assert "second-last" not in text


@pytest.mark.parametrize("cpu_activities", [True, False])
def test_a_rank_late_under_cpu_activities_may_be_so_by_the_profiler(
    db_path: Path, tmp_path: Path, cpu_activities: bool
) -> None:
    ingest(db_path, late_job(tmp_path / "job", {}))
    with contextlib.closing(sqlite3.connect(db_path)) as connection:
        found = build_report(connection, "main")
    timeline = replace(found.timeline, cpu_activities=cpu_activities)
    (finding,) = stragglers(replace(found, timeline=timeline))
    assert ("the profiler itself may be the cause" in finding.detail) is cpu_activities


def two_jobs(folder: Path, step_us: dict[int, float]) -> Path:
    """Traces of two ranks that call unlike all-reduces; a step is one call."""
    folder.mkdir()
    for rank, length in step_us.items():
        events = []
        for step in range(20):
            args = {
                "Collective name": "allreduce", "In msg nelems": 1024 << rank,
                "Out msg nelems": 1024 << rank, "Group size": 2, "dtype": "Float",
                "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "stream": 7,
                "device": rank,
            }  # fmt: skip
            for name, tid, start, duration, told in (
                ("gemm", 3, 0.0, 400.0, {"stream": 3, "device": rank}),
                (f"tail{rank}", 3, 410.0, 50.0, {"stream": 3, "device": rank}),
                ("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", 7, 470.0, 100.0, args),
            ):
                events.append(
                    {
                        "ph": "X", "cat": "kernel", "name": name, "pid": rank, "tid": tid,
                        "ts": 1e6 + step * length + start, "dur": duration, "args": told,
                    }
                )  # fmt: skip
        document = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
            "traceEvents": events,
        }
        (folder / f"{rank}.json").write_text(json.dumps(document))
    return folder


def test_traces_of_two_jobs_in_one_folder_are_asked_about(db_path: Path, tmp_path: Path) -> None:
    ingest(db_path, two_jobs(tmp_path / "jobs", {0: 1000.0, 1: 2300.0}))
    text = " ".join(report(db_path).split())
    assert "[warning] the ranks' traces share no collective: are they from two jobs?" in text
    assert "A step takes 1.00 ms in one set, 2.30 ms in another: 2.3 x." in text


def test_two_profiled_periods_in_one_file_are_told(db_path: Path, tmp_path: Path) -> None:
    """Six marked steps of 1 ms with 50 ms between the third and the fourth."""
    folder = two_jobs(tmp_path / "job", {0: 1000.0, 1: 1000.0})
    for path in folder.iterdir():
        document = json.loads(path.read_text())
        events = [e for e in document["traceEvents"] if e["ts"] < 1e6 + 6000]
        for event in events:
            event["ts"] += 50_000.0 * (event["ts"] >= 1e6 + 3000)
            event["args"] |= {k: 1024 for k in event["args"] if k.endswith("msg nelems")}
        for k in range(6):
            begin = 1e6 + k * 1000 + 50_000.0 * (k >= 3) - 10
            events.append(
                {
                    "ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{k}", "pid": 9,
                    "tid": 9, "ts": begin, "dur": 995.0,
                }
            )  # fmt: skip
        path.write_text(json.dumps(document | {"traceEvents": events}))
    ingest(db_path, folder)
    text = " ".join(report(db_path).split())
    assert "[warning] 1 pause in the traces of all ranks" in text
    assert "A step takes 1.00 ms with the profiler (mean of 2 steps on rank 0" in text
    assert "so the first is not counted" not in text
    # Each part is of 2570 us, with three times 550 us of kernels.
    assert "The GPUs idle 35.8 %" in text


def test_traces_of_one_job_are_not_asked_about(db_path: Path, samples: Path) -> None:
    ingest(db_path, samples / "traces" / "default")
    assert "are they from two jobs?" not in report(db_path)


def test_logs_beside_two_periods_say_to_which_they_are_joined(db_path: Path, samples: Path) -> None:
    said = ingest(db_path, *(samples / "traces" / case for case in ("default", "ringll")))
    assert "The logs" not in said
    log = next((samples / "nccl" / "ddp").iterdir())
    done = collscope("ingest", "log", log, "--db", db_path)
    assert "The logs are joined to the traces that were read first" in done.out
    joined = "The logs are joined to the traces of this run only."
    assert joined in " ".join(report(db_path).split())
    assert joined not in " ".join(report(db_path, "--run", "main.2").split())


def test_what_is_no_trace_is_refused(db_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": [1, 2]}')
    done = collscope("ingest", "trace", path, "--db", db_path)
    assert done.code == 3
    assert done.err.endswith("a.json: not a known trace or recording. Nothing was stored.\n")


def test_removing_nothing_of_other_runs(db_path: Path, samples: Path, tmp_path: Path) -> None:
    """Matching a run again replaces its own results alone."""
    first = tmp_path / "first"
    first.mkdir()
    for rank in (0, 1):
        shutil.copy(samples / "traces" / "default" / f"rank{rank}.json.gz", first)
    ingest(db_path, first, run="a")
    ingest(db_path, samples / "traces" / "ringll", run="b")
    before = rows(db_path, "SELECT * FROM call_times WHERE run = 'b'")
    ingest(db_path, samples / "traces" / "default", run="a")
    assert rows(db_path, "SELECT * FROM call_times WHERE run = 'b'") == before
    assert rows(db_path, "SELECT COUNT(*), MIN(ranks_traced) FROM call_times WHERE run='a'") == [
        (18, 4)
    ]


small = st.integers(-1, 3)
times = st.integers(0, 2**60)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), times, st.integers(0, 2**40), times, small)))
def test_a_trace_survives_its_bytes(drawn: list[tuple[int, int, int, int, int]]) -> None:
    drawn = sorted(drawn, key=lambda row: row[1])
    table = np.array(drawn, dtype=np.int64).reshape(-1, 5).T
    columns = TraceColumns(
        kind=table[0].astype(np.int8),
        name=(table[4] % 2).astype(np.int32),
        stream=np.minimum(table[4], 0).astype(np.int32),
        start_ns=table[1],
        end_ns=table[1] + table[2],
        launch_ns=np.where(table[4] == 0, -1, table[3]),
        collective=np.minimum(table[4], 1).astype(np.int32),
        seq=table[4],
    )
    entries = (
        TraceCollective(Op.ALL_REDUCE, Datatype.BFLOAT16, 1, 1, "0", 2, (0, 1), "Sum"),
        TraceCollective(Op.ALL_TO_ALLV, in_split=(1, 2), out_split=(2, 1)),
    )
    trace = TraceFile(
        "kineto", ("a", "b"), ("7",), entries, columns, 1, 2, "h", "0", None, ((1, 2),),
        groups=((0, 1), (1, 3)),
    )  # fmt: skip
    found = decode_trace(encode_trace(trace))
    for name in TraceColumns.__struct_fields__:
        mine, theirs = getattr(columns, name), getattr(found.columns, name)
        assert mine.dtype == theirs.dtype
        assert np.array_equal(mine, theirs)
    assert (found.collectives, found.steps, found.rank) == (entries, ((1, 2),), 1)
    assert found.groups == trace.groups


def test_a_recording_survives_its_bytes() -> None:
    entry = TraceCollective(Op.SEND, Datatype.INT8, 4, peer=1)
    call = RecordedCall(entry, 3, 1, 2, 1, "completed", 1.5, 0, 4, True, "kernel_gpu")
    recorded = RecordedCalls(
        "inspector", (call, call), 1, 2, "h", 7, (("0", (0, 1)),), None,
        (GroupStatus("0", 1, None, 1),), True, "whole",
    )  # fmt: skip
    assert decode_recording(encode_recording(recorded)) == recorded


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 400), st.integers(0, 255))
def test_damaged_bytes_are_one_error(place: int, value: int) -> None:
    entry = TraceCollective(Op.SEND, Datatype.INT8, 4, peer=1)
    data = bytearray(encode_recording(RecordedCalls("a", (RecordedCall(entry, 1),) * 9)))
    data[place % len(data)] = value
    with contextlib.suppress(InputError):
        decode_recording(bytes(data))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 255))
def test_a_damaged_trace_is_one_error(place: int, value: int) -> None:
    numbers = np.arange(50)
    columns = TraceColumns(
        *(np.zeros(50, dtype) for dtype in (np.int8, np.int32, np.int32)),
        *(numbers, numbers + 5, numbers),
        *(np.full(50, -1, dtype) for dtype in (np.int32, np.int64)),
    )
    data = bytearray(encode_trace(TraceFile("kineto", ("a",), ("7",), (), columns)))
    data[place % len(data)] = value
    with contextlib.suppress(InputError):
        decode_trace(bytes(data))


@pytest.mark.parametrize(
    ("job", "style", "calls"),
    [("fsdp", "scheduled/default/fsdp/light", 312), ("ddp", "scheduled/default/ddp/full", 243)],
)
def test_windows_of_a_job_stand_at_the_calls_of_its_log(
    db_path: Path, recorded_jobs: Path, job: str, style: str, calls: int
) -> None:
    """Log and traces of two starts of one program: no call twice, no second communicator."""
    traces = sorted(recorded_jobs.glob(style + "*"))
    assert len(traces) == 4
    assert collscope("ingest", "log", recorded_jobs / "logs" / job, "--db", db_path).code == 0
    assert collscope("ingest", "trace", *traces, "--db", db_path).code == 0
    with contextlib.closing(sqlite3.connect(db_path)) as db:
        assert db.execute("SELECT COUNT(*) FROM calls").fetchone() == (calls,)
        assert db.execute("SELECT COUNT(*) FROM communicators").fetchone() == (1,)
        # The sizes were given to the right calls: an H200's NVLink carries 450 GB/s each way.
        fastest = db.execute(
            "SELECT MAX(c.size_bytes * CASE c.op WHEN 'AllReduce' THEN 1.5 ELSE 0.75 END"
            " / t.transfer_ns) FROM call_times t JOIN classes c"
            " USING (class_id) WHERE NOT t.warm_up AND c.op <> 'Broadcast'"
        ).fetchone()[0]
        assert fastest < 450


def test_a_trace_without_sizes_that_fits_at_several_places_is_kept_apart(db_path: Path) -> None:
    """AllReduces of rising size: which ones a CUDA-only trace of ten holds is not known."""
    sizes = [1 << (10 + k) for k in range(20)]
    log = db_path.with_suffix(".log")
    log.write_text(
        "".join(
            f"h:{10 + r}:{10 + r} [{r}] NCCL INFO AllReduce: opCount {k:x} sendbuff 0x1 recvbuff "
            f"0x1 count {size} datatype 7 op 0 root 0 comm 0x{r + 1}0 [nranks=2] stream 0x5\n"
            for k, size in enumerate(sizes)
            for r in range(2)
        )
    )
    assert collscope("ingest", "log", log, "--db", db_path).code == 0
    folder = db_path.parent / "traces"
    folder.mkdir()
    for rank in range(2):
        events = [
            {
                "ph": "X",
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                "pid": rank,
                "tid": 7,
                "ts": 100.0 * k + rank,
                "dur": 50.0 - rank,
                "args": {"device": rank, "stream": 7, "correlation": k + 1},
            }
            for k in range(10)
        ]
        trace = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events}
        (folder / f"{rank}.json").write_text(json.dumps(trace))
    told = collscope("ingest", "trace", folder, "--db", db_path)
    assert "1 x trace_not_placed" in told.out
    with contextlib.closing(sqlite3.connect(db_path)) as db:
        found = db.execute(
            "SELECT m.matched_by, COUNT(*), COUNT(size_bytes) FROM calls JOIN communicators m"
            " USING (comm_id) GROUP BY comm_id ORDER BY comm_id"
        ).fetchall()
    assert found == [("inferred", 20, 20), ("inferred", 10, 0)]


def test_cuda_only_traces_of_nested_groups_join_their_own_communicators(
    db_path: Path, tmp_path: Path
) -> None:
    """Two tensor-parallel pairs and two data-parallel ones; the traces tell neither."""
    pairs = {"a": (0, 1), "b": (2, 3), "c": (0, 2), "d": (1, 3)}
    world = {"e": (0, 1, 2, 3)}
    calls = [("tp", 1000)] * 4 + [("dp", 500_000), ("dp", 700_000)]
    text, events = "", {rank: [] for rank in range(4)}
    for name, ranks in (world | pairs).items():
        for place, rank in enumerate(ranks):
            text += (
                f"h:{rank}:{rank} [0] NCCL INFO ncclCommInitRank comm 0x{rank}{name} rank {place} "
                f"nranks {len(ranks)} cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 "
                f"commId 0x{name} - Init COMPLETE\n"
            )
    chance = np.random.default_rng(1)
    now = 1000.0
    for step in range(6):
        for kind, count in calls:
            now += 1000.0
            for name, ranks in pairs.items():
                if (kind == "tp") != (name in "ab"):
                    continue
                late = float(chance.uniform(0, 400))
                length = 20.0 if kind == "tp" else count / 1000
                for rank in ranks:
                    text += (
                        f"h:{rank}:{rank} [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff "
                        f"0x1 count {count} datatype 7 op 0 root 0 comm 0x{rank}{name} [nranks=2] "
                        "stream 0x5\n"
                    )
                    start = now + late - (50.0 if rank == ranks[step % 2] else 0.0)
                    events[rank].append((start, now + late + length - start, 7 + (kind == "dp")))
    (tmp_path / "log").write_text(text)
    assert collscope("ingest", "log", tmp_path / "log", "--db", db_path).code == 0
    folder = tmp_path / "traces"
    folder.mkdir()
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    for rank, own in events.items():
        # Windows begin at other calls.
        listed = [
            {"ph": "X", "cat": "kernel", "name": kernel, "pid": rank, "tid": stream, "ts": start,
             "dur": length, "args": {"device": rank, "stream": stream, "correlation": k + 1}}
            for k, (start, length, stream) in enumerate(own[rank:])
        ]  # fmt: skip
        trace = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": listed}
        (folder / f"{rank}.json").write_text(json.dumps(trace))
    assert collscope("ingest", "trace", folder, "--db", db_path).code == 0
    query = (
        "SELECT comm_hash, COUNT(*) FROM calls JOIN communicators USING (comm_id) GROUP BY 1"
        " ORDER BY 1"
    )
    assert rows(db_path, query) == [("0xa", 24), ("0xb", 24), ("0xc", 12), ("0xd", 12)]
    query = (
        "SELECT c.count, MIN(t.transfer_ns), MAX(t.transfer_ns) FROM call_times t JOIN classes c"
        " USING (class_id) WHERE t.ranks_traced = 2 GROUP BY 1 ORDER BY 1"
    )
    assert rows(db_path, query) == [
        (1000, 20_000, 20_000),
        (500_000, 500_000, 500_000),
        (700_000, 700_000, 700_000),
    ]


def test_thread_blocks_of_collectives_are_told(db_path: Path, samples: Path) -> None:
    """As counted in the file: the grid of 15 collective kernels is [24, 1, 1], of 3 [1, 1, 1]."""
    ingest(db_path, samples / "traces" / "default" / "rank0.json.gz")
    found = rows(db_path, "SELECT family, blocks, COUNT(*) FROM kernels GROUP BY 1, 2 ORDER BY 1")
    assert found == [(None, None, 231), ("nccl", 1, 3), ("nccl", 24, 15)]


_UNRANKED = "SELECT message, count FROM diagnostics WHERE code = 'trace_without_rank'"


def _of_older_pytorch(samples: Path, folder: Path) -> Path:
    """Traces of CUDA activities alone that tell neither rank nor number of ranks."""

    def edit(_: int, document: dict[str, Any]) -> None:
        del document["distributedInfo"]
        document["traceEvents"] = [
            event
            for event in document["traceEvents"]
            if event.get("cat") not in ("cpu_op", "user_annotation")
        ]
        for event in filter(is_collective, document["traceEvents"]):
            event["args"] = {k: event["args"][k] for k in ("device", "stream", "correlation")}

    return edited(samples / "traces" / "default", folder, edit)


def test_names_of_files_tell_the_ranks(db_path: Path, samples: Path, tmp_path: Path) -> None:
    """Of rank 1 there is no trace: it, or one behind the others, may be the last to come."""
    folder = _of_older_pytorch(samples, tmp_path / "older")
    (folder / "rank1.json").unlink()
    collscope("ingest", "trace", folder, "--db", db_path)
    assert rows(db_path, _UNRANKED) == [
        ("traces without a rank: numbered by their files' names", 3)
    ]
    assert rows(db_path, "SELECT rank FROM traces ORDER BY rank") == [(0,), (2,), (3,)]
    by_path = "SELECT DISTINCT k.rank, s.path LIKE '%rank' || k.rank || '.json' FROM kernels k"
    assert rows(db_path, f"{by_path} JOIN sources s USING (source_id) ORDER BY 1") == [
        (0, 1), (2, 1), (3, 1)
    ]  # fmt: skip
    assert rows(db_path, "SELECT COUNT(transfer_ns) FROM call_times") == [(0,)]
    report = " ".join(collscope("report", "--db", db_path).out.split())
    assert "How much of the kernel time of collectives is waiting is not known" in report


def test_names_that_tell_no_ranks(db_path: Path, samples: Path, tmp_path: Path) -> None:
    folder = _of_older_pytorch(samples, tmp_path / "older")
    (folder / "rank3.json").rename(folder / "other.json")
    collscope("ingest", "trace", folder, "--db", db_path)
    ((message, count),) = rows(db_path, _UNRANKED)
    assert message.endswith("numbered in the order in which they were read")
    assert count == 4
    assert rows(db_path, "SELECT rank FROM traces ORDER BY rank") == [(0,), (1,), (2,), (3,)]


def test_transfer_is_not_sure_where_nothing_tells_the_number_of_ranks(
    db_path: Path, samples: Path, tmp_path: Path
) -> None:
    collscope("ingest", "trace", _of_older_pytorch(samples, tmp_path / "older"), "--db", db_path)
    report = " ".join(collscope("report", "--db", db_path).out.split())
    assert re.search(
        ("Waiting for the last rank takes at least [\\d.]+ % of the kernel time of "
        "collectives\\. The rest is transfer only if the job has no more than the 4 traced "
        "ranks: the traces do not show its number of ranks\\."), report,
    )  # fmt: skip
    assert "the rest is transfer" not in report
