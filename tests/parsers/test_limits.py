"""Numbers that nothing has: not known, counted, and no harm to what stands beside them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from command import collscope, rows
from large_integers import all_fields, healthy, problems

from collscope.model import CommInit, Datatype, Measurement, Op, size_bytes
from collscope.model.limits import MOST_RANKS, Limits
from collscope.model.trace_collective import TraceCollective
from collscope.reports.calls.answer import _compact_missing, compact_ranges

# A field of each dialect whose large numbers once ended in an error, or in all memory.
_FIELDS = {
    "ddp.fr.rank0.json": "entries.[].input_sizes.[].[]",
    "synthetic.torchcomms_trace_rank_2.json": "input_sizes.[].[]",
    "synthetic.profiler-plugin.txt": '"Count"',
    "synthetic.clog.txt": "in_count",
    "replay.4711.node-1.json": "count",
    "synthetic.rccl-tests.jsonl": "size",
    "synthetic.rccl-tests.csv": "commas",
    "guide-coll-klke.log": "KL HWI #7",
}


@pytest.mark.parametrize("sample", _FIELDS)
def test_no_number_of_a_field_does_harm(sample: str, samples: Path, tmp_path: Path) -> None:
    (path,) = samples.rglob(sample)
    field = next(f for f in all_fields([path]) if _FIELDS[sample] in f.name)
    assert problems(field, *healthy(tmp_path), values=(2**53, 2**62, 2**64, 1e308)) == []


@pytest.mark.parametrize("elements", [2**62, 2**63 - 1, 2**63, 10**30])
def test_a_count_that_no_memory_holds_is_told(
    samples: Path, tmp_path: Path, db_path: Path, elements: int
) -> None:
    text = (samples / "recorders" / "ddp.fr.rank0.json").read_text()
    document = json.loads(text)
    document["entries"][0]["input_sizes"] = [[elements]]
    (tmp_path / "fr.rank0.json").write_text(json.dumps(document))
    done = collscope("ingest", "trace", tmp_path / "fr.rank0.json", "--db", db_path)
    assert done.code == 0
    assert "data_loss: 1 x impossible_count" in done.out
    assert collscope("report", "--db", db_path).code == 0
    assert rows(db_path, "SELECT COUNT(*) FROM calls") == [(len(document["entries"]),)]


@pytest.mark.parametrize(("ranks", "kept"), [(MOST_RANKS, [(MOST_RANKS,)]), (MOST_RANKS + 1, [])])
def test_ranks_of_a_log(
    samples: Path, tmp_path: Path, db_path: Path, ranks: int, kept: list[tuple[int]]
) -> None:
    """Ten million ranks are believed, and none of them is allocated."""
    log = (samples / "nccl" / "ddp" / "rank0.log").read_text()
    (tmp_path / "x.log").write_text(re.sub(r"n[rR]anks([ =])\d+", rf"nranks\g<1>{ranks}", log))
    done = collscope("ingest", "log", tmp_path / "x.log", "--db", db_path)
    assert (done.code, "impossible_number" in done.out) == (0, not kept)
    query = "SELECT DISTINCT nranks FROM communicators WHERE nranks >= 10000000"
    assert rows(db_path, query) == kept
    report = collscope("report", "--db", db_path, "--format", "json")
    assert report.code == 0
    missing = [c["missing_ranks"] for c in json.loads(report.out)["communicators"]]
    if kept:
        assert missing == [f"1-{ranks - 1}"]
        plan = collscope("replay", "--dry-run", "--db", db_path)
        assert "too many ranks to list" in plan.out + plan.err


def test_missing_ranks_are_told_alike_whatever_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = {0, 3, 4, 9}
    short = _compact_missing(12, seen)
    monkeypatch.setattr("collscope.reports.calls.answer._FEW_RANKS", 0)
    assert short == compact_ranges({1, 2, 5, 6, 7, 8, 10, 11}) == _compact_missing(12, seen)


def test_a_size_that_64_bits_do_not_hold_is_not_known() -> None:
    parts = {"count": 2**44, "datatype": Datatype.FLOAT64}
    assert size_bytes(Op.ALL_GATHER, nranks=2**10, **parts) == 2**57
    assert size_bytes(Op.ALL_GATHER, nranks=2**17, **parts) is None


def _held(record: Measurement) -> tuple[Measurement | None, list[tuple[str, int]]]:
    limits = Limits()
    held = limits.hold(record)
    return held, [(d.code, d.count) for d in limits.diagnostics]


@pytest.mark.parametrize("time_us", [1e-320, 1e13, -5.0, math.inf, math.nan])
def test_a_time_that_no_clock_measures(time_us: float) -> None:
    told = Measurement(Op.ALL_REDUCE, time_us_median=time_us, busbw_gbps=3.0, samples_us=(4.0,))
    held, found = _held(told)
    assert held == Measurement(Op.ALL_REDUCE)
    assert found == [("impossible_number", 1)]


def test_what_is_within_the_limits_is_the_same_record() -> None:
    told = Measurement(
        Op.ALL_GATHER, Datatype.FLOAT32, root=0, count=2**31, size_bytes=2**43, nranks=1024,
        time_us_median=3.5, samples_us=(0.0, 3.5, 7.0), busbw_gbps=400.0,
    )  # fmt: skip
    held, found = _held(told)
    assert held is told
    assert found == []


def test_minus_one_is_what_libraries_print_for_none() -> None:
    assert _held(Measurement(Op.ALL_REDUCE, root=-1)) == (Measurement(Op.ALL_REDUCE), [])


def test_the_bytes_of_all_ranks_must_fit() -> None:
    limits = Limits()
    entry = TraceCollective(Op.ALL_GATHER, Datatype.FLOAT64, in_count=2**44, group_size=2**20)
    assert limits.hold_entry(entry) == TraceCollective(
        Op.ALL_GATHER, Datatype.FLOAT64, group_size=2**20
    )
    limits.hold_entry(entry)
    assert [(d.code, d.count) for d in limits.diagnostics] == [("impossible_count", 1)]


def test_a_rank_is_below_the_ranks() -> None:
    limits = Limits()
    assert limits.hold(CommInit(0, 7, 1, rank=4, nranks=4, complete=True)) is None
    ((found),) = limits.diagnostics
    assert (found.code, found.line, found.excerpt) == ("impossible_number", 7, "rank 4")


def test_groups_that_name_more_ranks_than_are_kept(tmp_path: Path, db_path: Path) -> None:
    """Eight groups of 2^20 ranks: four lists are kept, the other groups' ranks are not known."""
    arguments = {
        "stream": 7, "device": 0, "Collective name": "allreduce", "dtype": "Float",
        "In msg nelems": 1, "Out msg nelems": 1, "Group size": 1 << 20, "Global rank stride": 1,
    }  # fmt: skip
    events = [
        {
            "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
            "ts": 10 * k, "dur": 5, "pid": 0, "tid": 7,
            "args": {**arguments, "Global rank start": k, "Process Group Name": str(k)},
        }
        for k in range(1, 9)
    ]  # fmt: skip
    trace = {"distributedInfo": {"rank": 0, "world_size": 1 << 21}, "traceEvents": events}
    (tmp_path / "rank0.json").write_text(json.dumps(trace))
    done = collscope("ingest", "trace", tmp_path / "rank0.json", "--db", db_path)
    assert done.code == 0
    assert "data_loss: 4 x impossible_number" in done.out
    assert rows(db_path, "SELECT COUNT(*), MIN(nranks) FROM calls") == [(8, 1 << 20)]
