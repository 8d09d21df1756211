"""Efficiency, decomposition and gain in a report; expected values derived by hand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import jsonschema
import pytest
from command import collscope
from hypothesis import given
from hypothesis import strategies as st
from inputs import ROOT
from store_builder import StoreBuilder, Value

from collscope.errors import InputError, NoVerdictError
from collscope.model import Redop
from collscope.model.note import Note
from collscope.reports.efficiency.answer import Judgement
from collscope.reports.efficiency.judged_classes import JudgedClass
from collscope.reports.efficiency.profile_kernels import _over_all
from collscope.reports.efficiency.text import speed_up_of
from collscope.reports.efficiency.time_breakdown import Basis, Breakdown, fractions_of
from collscope.reports.rendering.share_words import fraction_words
from collscope.reports.report.formats import render
from collscope.reports.share.answer import KernelShare, Share

_SCHEMA = ROOT / "schemas" / "report.schema.json"
_REPLAY = """\
callNumber, functionName, inPlace, count(numElements), datatype, op, root, time(msec), \
groupCallBusBandwidth(GB/s)
3, AllReduce, 1, 268435456, Float16, Sum, 0, 3.25299, 330.079
6, AllReduce, 1, 268435456, Float16, Sum, 0, 3.22935, 332.494
9, AllReduce, 1, 268435456, Float16, Sum, 0, 3.20286, 335.244
"""
GIB = 1024**3
# AllReduce of 1 GiB on 8 MI300X: 7 rings x 48 GB/s = 336 GB/s, factor 7/4, after 12.8 us of latency
ROOF_US = 12.8 + GIB * 1.75 / 336e3


def texts(notes: Iterable[Note]) -> tuple[str, ...]:
    """The sentences of remarks."""
    return tuple(note.text for note in notes)


def _job(calls: int = 10, **columns: Value) -> tuple[StoreBuilder, int, int]:
    """A store with one class: AllReduce of 1 GiB on 8 ranks; its log and communicator."""
    store = StoreBuilder()
    log = store.source()
    comm = store.comm([store.process(log, pid=pid) for pid in range(8)])
    shape: dict[str, Value] = {"size_bytes": GIB, "count": GIB // 4, "nranks": 8, **columns}
    store.calls(comm, store.collective(**shape), calls, ranks_seen=8)
    return store, log, comm


def _measured(store: StoreBuilder, *samples_us: float, **columns: Value) -> None:
    shape: dict[str, Value] = {"size_bytes": GIB, "count": GIB // 4, "nranks": 8, **columns}
    label = str(shape.pop("label", "replay"))
    source = store.source("r.csv", kind="csv", sha256=f"{samples_us} {columns}")
    store.measured(source, samples_us, label=label, **shape)


def _profile(store: StoreBuilder, collective_ns: int, other_ns: int) -> None:
    source = store.source("p.rpd", kind="profile", dialect="rpd")
    store.total(source, "ncclDevKernel_Generic", "rccl", collective_ns)
    store.total(source, "gemm", None, other_ns)


def _first(store: StoreBuilder, system: str = "mi300x") -> JudgedClass:
    return store.report(system=system).judgement.classes[0]


def _parts(found: Breakdown | None) -> dict[str, float | None]:
    """Seconds of each part."""
    assert found is not None
    names = ("wait", "contention", "tunable", "roof", "unjudged")
    times = {name: getattr(found, f"{name}_ns") for name in names}
    return {name: None if ns is None else ns / 1e9 for name, ns in times.items()}


def test_a_report_without_times_of_classes_shows_no_shares_and_no_parts() -> None:
    store, _, _ = _job(calls=2)
    _profile(store, collective_ns=500_000_000, other_ns=500_000_000)
    report = store.report(system="mi300x")
    text = " ".join(render(report, "text").split())
    # JSON counts the reachable time of the class, which is all of the time
    assert report.judgement.classes[0].time_share == 1.0
    assert "% time" not in text
    assert "How the collective time (0.5 s, summed over all GPUs) splits into waiting" in text
    assert "no transfer was timed" in text
    assert "unjudged" not in text


def test_why_a_class_has_no_reachable_speed_is_stated_once() -> None:
    store, log, comm = _job(calls=2)
    calls = store.calls(comm, store.collective(nranks=8, size_bytes=None), 1, ranks_seen=8)
    for _ in range(8):
        store.kernel(calls[0], log, transfer_ns=50_000, wait_ns=0)
    text = " ".join(render(store.report(system="mi300x"), "text").split())
    assert text.count("size or ranks not known") == 1


@pytest.mark.parametrize(("kernels", "warned"), [(32, False), (33, True)])
def test_a_profile_of_more_than_the_logged_calls(kernels: int, warned: bool) -> None:
    # 2 calls on 8 ranks have 16 kernels, and twice as many may come from calls of several kernels.
    store, _, _ = _job(calls=2)
    source = store.source("p.rpd", kind="profile", dialect="rpd")
    store.total(source, "ncclDevKernel_Generic", "rccl", 500, calls=kernels)
    text = " ".join(render(store.report(), "text").split())
    assert (f"The profile has {kernels} kernels of collectives, far more" in text) is warned


def test_the_guide_from_its_files(samples: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    replay = tmp_path / "replay.csv"
    replay.write_text(_REPLAY)
    for words in (
        ("log", samples / "rccl" / "guide-coll-klke.log"),
        ("profile", samples / "profiles" / "guide-top.txt"),
        ("csv", replay, "--ranks", "8"),
    ):
        assert collscope("ingest", *words, "--db", db).code == 0
    asked = ("report", "--db", db, "--system", "mi300x")
    document = json.loads(collscope(*asked, "--format", "json").out)
    jsonschema.validate(document, json.loads(_SCHEMA.read_text(encoding="utf-8")))
    judged = document["judgement"]
    large = judged["classes"][0]
    # median 3.22935 ms: 512 MiB x 1.75 / 3.22935 ms = 290.93 GB/s; 336 GB/s take 2.7962 ms, after
    # a latency of 12.8 us
    assert round(large["busbw_gbps"], 2) == 290.93
    assert round(large["roof"]["time_ns"] / 1e3, 1) == 2809.0
    # 19.2 us and the 315.91 GB/s that were reached; 0.77 of the line rate without latency
    assert [round(large["roof"][f"time_{end}_ns"] / 1e3) for end in ("low", "high")] == [2724, 2993]
    assert large["roof"]["limit_gbps"] == 448
    assert large["roof"]["name"] == "mi300x reachable"
    assert round(large["efficiency"], 3) == 0.870
    # the kernels of the two all-reduces of some bytes took 19 and 21 us, 3229.35 of 3269.35:
    # 29.272 x 0.98777 x (1 - 2809.0 / 3229.35) = 3.764 points
    (uplift,) = judged["uplifts"]
    assert round(uplift["fraction"]["value"], 4) == 0.2927
    assert round(100 * uplift["saved"], 2) == 3.76
    assert round(100 * uplift["gain"], 1) == 3.9
    assert round(100 * uplift["gain_if_alike"], 1) == 4.0
    assert round(100 * uplift["ceiling"], 1) == 41.4
    # the samples' 3.203 to 3.253 ms against a ceiling of 2.724 to 2.993 ms: from
    # 28.91 x (1 - 2.993 / 3.203) = 1.9 to 28.91 x (1 - 2.724 / 3.253) = 4.7 points
    assert (round(100 * uplift["low"], 1), round(100 * uplift["high"], 1)) == (1.9, 4.9)
    # MSCCL serves up to 16 MiB, 12.8 + 87.4 us at 336 GB/s, but its kernels take 2409 us
    msccl, generic = judged["kernels"]
    assert (msccl["served_bytes"], round(msccl["roof_ns"] / 1000, 1), msccl["skewed"]) == (
        2**24,
        100.2,
        True,
    )
    assert (generic["served_bytes"], generic["skewed"]) == (2**29, False)
    # 0.1045 + 0.1882 x (0.042 to 0.125), times 0.130
    low, high = uplift["gain_skewed_low"], uplift["gain_skewed_high"]
    assert (round(100 * low, 1), round(100 * high, 1)) == (1.5, 1.7)
    text = collscope(*asked).out
    assert "290.9" in text
    assert "87.0" in text
    # 3.9 % faster (1.9 to 4.9 %): 3.9 / 103.9, 1.9 / 101.9, 4.9 / 104.9
    assert "3.8 % shorter (1.9 to 4.7 %)" in text
    # 512 MiB x 1.75 in 2993 and 2724 us are 313.9 and 345 GB/s, of 334.5
    assert "they reach 94 to 103 % of these speeds (class 1)" in text
    assert "18.8 % of GPU time; 16.5 to 18.0 percentage points of this are waiting" in text
    assert [row["code"] for row in document["findings"]].count("skew_dominated") == 1
    # A fit of 512 MiB says nothing of 16 MiB, and MSCCL's kernels serve no more.
    fitted = json.loads(collscope(*asked[:-1], "fit", "--format", "json").out)
    assert [k["served_bytes"] for k in fitted["judgement"]["kernels"]] == [2**29]


def test_efficiency_and_recoverable_seconds() -> None:
    store, _, _ = _job()
    _measured(store, 2 * ROOF_US, 2 * ROOF_US, 3 * ROOF_US)
    row = _first(store)
    assert row.measured_ns == pytest.approx(2e3 * ROOF_US)
    assert row.busbw_gbps == pytest.approx(GIB * 1.75 / (2e3 * ROOF_US))
    assert row.efficiency == pytest.approx(0.5)
    assert row.recoverable_ns == pytest.approx(10 * 8 * 1e3 * ROOF_US)
    assert (row.samples, row.regime, texts(row.marks)) == (3, "bandwidth", ())


def test_siblings_count_by_devices_and_not_by_calls() -> None:
    store = StoreBuilder()
    log = store.source()
    pids = [store.process(log, pid=pid) for pid in range(8)]
    pairs = store.collective(size_bytes=GIB, count=GIB // 4, nranks=2)
    for first in range(0, 8, 2):
        store.calls(store.comm(pids[first : first + 2]), pairs, 10, ranks_seen=2)
    whole = store.collective(size_bytes=GIB, count=GIB // 4, nranks=8)
    store.calls(store.comm(pids), whole, 10, ranks_seen=8)
    for nranks in (2, 8):
        # 1 GiB x 2(n-1)/n over n-1 links of 48 GB/s: 2/n of the time of 48 GB/s. The latency of 8
        # ranks, 12.8 us, scales as RCCL's: 12 + 2 x 0.8 (n-1) us, 13.6 for 2 and 23.2 for 8 ranks
        floor = 12.8 * (13.6 if nranks == 2 else 23.2) / 23.2
        _measured(store, floor + 2 / nranks * GIB / 48e3 + 1000, nranks=nranks)
    judged = store.report(system="mi300x").judgement
    # each of 8 devices runs 10 calls of both classes, each 1 ms above its roof
    assert [row.calls for row in judged.classes] == [40, 10]
    assert [row.recoverable_ns for row in judged.classes] == pytest.approx([0.08e9, 0.08e9])
    assert _parts(judged.breakdown)["tunable"] == pytest.approx(0.16)


def test_a_run_without_calls_judges_what_was_measured() -> None:
    store = StoreBuilder()
    _measured(store, 2 * ROOF_US, 4 * ROOF_US, 2 * ROOF_US)
    _measured(store, 9 * ROOF_US, datatype="Float16", in_place=0, size_bytes=GIB, label="replay")
    _measured(store, 1.0, label="replay", status="failed", op="AllGather", redop=None)
    _profile(store, 30, 70)
    report = store.report(system="mi300x")
    judged = report.judgement
    rows = {(str(r.op), str(r.datatype)): r for r in judged.classes}
    first = rows["AllReduce", "Float32"]
    assert (first.calls, first.samples, first.in_place) == (0, 3, True)
    assert first.efficiency == pytest.approx(0.5)
    assert rows["AllReduce", "Float16"].efficiency == pytest.approx(1 / 9)
    assert texts(rows["AllGather", "Float32"].marks) == ("replay failed",)
    # no job, so nothing about its time
    assert (first.time_share, first.recoverable_ns) == (None, None)
    assert (judged.breakdown, judged.uplifts, judged.kernels) == (None, (), ())
    text = render(report, "text")
    assert "AllReduce x8  1 GiB  Float32 Sum  yes" in text
    assert "saves s" not in text
    document = json.loads(render(report, "json"))
    jsonschema.validate(document, json.loads(_SCHEMA.read_text(encoding="utf-8")))
    table = list(csv.DictReader(io.StringIO(render(report, "csv"))))
    assert [row["calls"] for row in table] == ["0", "0", "0"]


def test_without_a_system_there_is_no_roof() -> None:
    store, _, _ = _job()
    _measured(store, 1000.0)
    judged = store.report().judgement
    assert (judged.roof, judged.classes[0].roof, judged.uplifts) == (None, None, ())
    assert _parts(judged.breakdown)["tunable"] is None


def test_nothing_measured_is_said() -> None:
    store, _, _ = _job()
    assert "Not judged" in render(store.report(), "text")


@pytest.mark.parametrize(
    ("columns", "marks"),
    [
        ({}, ()),
        ({"in_place": None}, ("in place or out of place is not known",)),
        ({"nnodes": 2}, ("measured on 2 nodes",)),
        ({"nnodes": None}, ("the nodes are not known",)),
        ({"redop": None}, ("the reduction is not known",)),
        ({"datatype": None}, ("the datatype is not known",)),
        (
            {"nnodes": None, "redop": "Custom"},
            ("the nodes are not known", "the reduction is not known"),
        ),
    ],
)
def test_marks_of_a_measurement(columns: dict[str, Value], marks: tuple[str, ...]) -> None:
    store, _, _ = _job()
    _measured(store, 2 * ROOF_US, **columns)
    row = _first(store)
    assert (texts(row.marks), row.efficiency) == (marks, pytest.approx(0.5))


def test_of_several_measurements_the_nearest_counts() -> None:
    store, _, _ = _job(op="Broadcast", redop=None, root=3)
    for root, nodes, factor in ((0, 1, 2), (3, 2, 5), (3, 4, 7)):
        shape = {"op": "Broadcast", "redop": None, "root": root, "nnodes": nodes}
        _measured(store, factor * ROOF_US, **shape)
    row = _first(store)
    assert texts(row.marks) == ("measured with root 0",)
    assert row.measured_ns == pytest.approx(2e3 * ROOF_US)


def test_a_run_of_measurements_alone_is_of_their_own_classes() -> None:
    store = StoreBuilder()
    source = store.source("r.csv", kind="csv")
    # what a table does not tell keeps no measurement from being of its own class
    for in_place, time_us in ((None, 40.0), (1, 60.0)):
        shape = {"size_bytes": 1 << 20, "nranks": 8, "in_place": in_place, "redop": None}
        store.measured(source, (time_us,), **shape)
    rows = store.report().judgement.classes
    assert {(r.in_place, r.measured_ns, r.marks) for r in rows} == {
        (None, 40_000.0, ()), (True, 60_000.0, ()),
    }  # fmt: skip


@pytest.mark.parametrize(
    "columns",
    [
        {"op": "AllGather"},
        {"datatype": "Float16"},
        {"redop": "Max"},
        {"in_place": 0},
        {"nranks": 4},
        {"size_bytes": 4096},
        {"shape": "ring"},
    ],
)
def test_measurements_of_other_classes_are_not_taken(columns: dict[str, Value]) -> None:
    store, _, _ = _job()
    _measured(store, 2 * ROOF_US, **columns)
    assert _first(store).measured_ns is None


def test_the_same_nodes_are_preferred() -> None:
    store, _, _ = _job()
    _measured(store, 9 * ROOF_US, nnodes=2)
    _measured(store, 2 * ROOF_US)
    row = _first(store)
    assert (texts(row.marks), row.measured_ns) == ((), pytest.approx(2e3 * ROOF_US))


def test_failed_and_wrong_measurements_are_marked_and_not_used() -> None:
    for columns, mark in (
        ({"status": "failed"}, "replay failed"),
        ({"n_wrong": 3}, "replay wrong"),
    ):
        store, _, _ = _job()
        _measured(store, 2 * ROOF_US, **columns)
        row = _first(store)
        assert (row.measured_ns, row.efficiency, texts(row.marks)) == (None, None, (mark,))


def test_one_wrong_round_leaves_a_class_without_a_time() -> None:
    store, _, _ = _job()
    _measured(store, 2 * ROOF_US)
    _measured(store, 2 * ROOF_US, n_wrong=3)
    _measured(store, 2 * ROOF_US, status="failed")
    report = store.report(system="mi300x")
    row = report.judgement.classes[0]
    assert (row.measured_ns, texts(row.marks)) == (None, ("replay wrong",))
    said = "Of 3 measurements with label replay: 1 wrong result and 1 failed. They have no time."
    assert said in " ".join(render(report, "text").split())


def test_a_run_of_wrong_measurements_alone_says_so() -> None:
    store = StoreBuilder()
    _measured(store, 2 * ROOF_US, status="wrong", n_wrong=3)
    text = " ".join(render(store.report(), "text").split())
    assert "Not judged: no class has a correct result with label replay." in text
    assert "the measurements lack ranks" not in text


def test_host_memory_is_marked_and_saves_nothing_against_a_system() -> None:
    store, _, _ = _job()
    _measured(store, 1000 * ROOF_US, backend="host")
    _profile(store, 30, 70)
    report = store.report(system="mi300x")
    row = report.judgement.classes[0]
    assert texts(row.marks) == ("measured in host memory",)
    assert (row.measured_ns, row.efficiency, row.recoverable_ns) == (1e6 * ROOF_US, None, None)
    assert report.judgement.uplifts == ()
    assert _parts(report.judgement.breakdown)["tunable"] is None
    said = render(report, "text")
    assert said.count("Measurements in host memory (a replay without GPUs) do not show") == 1
    # they stand in the table as measured
    assert "1 of 1 class is measured with label replay." in said
    # against their own fit they may be held
    assert _first(store, "fit").efficiency == pytest.approx(1)


def test_host_memory_does_not_hide_the_times_in_the_job() -> None:
    store, log, comm = _job()
    call = store.calls(comm, store.collective(nranks=8, redop="Max"), 1, ranks_seen=8)[0]
    for _ in range(8):
        store.kernel(call, log, transfer_ns=50_000, wait_ns=0)
    _measured(store, 9e9, backend="host", redop="Max", size_bytes=4096, count=1024)
    row = next(r for r in store.report(system="mi300x").judgement.classes if r.redop is Redop.MAX)
    assert texts(row.marks) == ("measured in host memory", "measured in the job, not alone")
    assert row.measured_ns == 50_000
    assert row.roof is not None
    assert row.efficiency == pytest.approx(row.roof.time_ns / 50_000)


def test_a_scaled_measurement_is_judged_on_its_ranks_and_saves_nothing() -> None:
    store, _, _ = _job(nranks=64, nnodes=8)
    # on 8 ranks of one node, for a class of 64
    _measured(store, 2 * ROOF_US, scaled_from=64)
    row = _first(store, "mi300x+8xroce-400")
    assert texts(row.marks) == ("measured on 8 ranks, scaled",)
    assert row.efficiency == pytest.approx(0.5)
    assert row.recoverable_ns is None


def test_scaled_measurements_find_their_classes() -> None:
    # a job of 8 ranks on 4: the communicator of all shrinks, that of two keeps its ranks
    store, log, _ = _job(op="AllGather", redop=None, count=1024, size_bytes=1024 * 4 * 8)
    pair = store.comm([store.process(log, pid=pid) for pid in (1, 2)])
    twos = store.collective(op="AllGather", redop=None, count=1024, size_bytes=8192, nranks=2)
    store.calls(pair, twos, 10, ranks_seen=2)
    for nranks, time_us in ((4, 40.0), (2, 20.0)):
        size = 1024 * 4 * nranks
        shape: dict[str, Value] = {"nranks": nranks, "size_bytes": size, "count": 1024}
        _measured(store, time_us, op="AllGather", redop=None, scaled_from=8, **shape)
    whole, small = sorted(
        store.report(system="mi300x").judgement.classes, key=lambda row: -(row.nranks or 0)
    )
    assert texts(whole.marks) == ("measured on 4 ranks, scaled",)
    # 16 KiB, not the job's 32 KiB, x 3/4 in 40 us
    assert (whole.measured_ns, whole.busbw_gbps) == (40_000, pytest.approx(16384 * 0.75 / 40e3))
    assert texts(small.marks) == ("measured in a job of fewer than its 8 ranks, scaled",)
    assert (small.measured_ns, small.recoverable_ns) == (20_000, None)


def test_a_custom_reduction_was_replayed_as_a_sum() -> None:
    store, _, _ = _job(redop="Custom")
    _measured(store, 2 * ROOF_US)
    row = _first(store)
    assert (texts(row.marks), row.efficiency) == (
        ("the reduction is not known",),
        pytest.approx(0.5),
    )


def test_decomposition_in_the_job() -> None:
    store, log, comm = _job()
    # a second class, to time: 8 ranks, transfers of 3 roofs, rank r waits r x 100 us
    timed = store.collective(size_bytes=GIB, count=GIB // 2, datatype="Float16", nranks=8)
    calls = store.calls(comm, timed, 4, ranks_seen=8)
    for rank in range(8):
        store.kernel(calls[0], log, transfer_ns=round(3e3 * ROOF_US), wait_ns=rank * 100_000)
    _measured(store, 2 * ROOF_US, datatype="Float16")
    _profile(store, 30_000, 70_000)
    judged = store.report(system="mi300x").judgement
    parts = _parts(judged.breakdown)
    kernels = 4 * 8 / 1e6  # of the class, in millions: us become seconds
    assert parts["wait"] == pytest.approx(kernels * 350)
    assert parts["contention"] == pytest.approx(kernels * ROOF_US)
    assert parts["tunable"] == pytest.approx(kernels * ROOF_US)
    assert parts["roof"] == pytest.approx(kernels * ROOF_US)
    row = next(r for r in judged.classes if r.transfer_ns is not None)
    assert row.contention == pytest.approx(1.5)
    # f = 0.3 x the class's part of the expected time; the other class is not measured: at its roof
    job_us, other_us = 3 * ROOF_US + 350, ROOF_US
    part = 4 * job_us / (4 * job_us + 10 * other_us)
    (uplift,) = judged.uplifts
    assert uplift.saved == pytest.approx(0.3 * part * ROOF_US / job_us)
    assert uplift.gain_skewed_low is None


@given(
    st.lists(
        st.tuples(
            st.integers(1, 50),  # calls
            st.none() | st.floats(1, 1e5),  # measured alone, us
            st.none() | st.tuples(st.integers(1, 10**8), st.integers(0, 10**8)),  # in the job, ns
        ),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
def test_parts_add_up_to_the_collective_time(
    classes: list[tuple[int, float | None, tuple[int, int] | None]], profiled: bool
) -> None:
    store = StoreBuilder()
    log, comm = store.group()
    for index, (number, alone, job) in enumerate(classes):
        size = 2 ** (10 + 4 * index)
        calls = store.calls(comm, store.collective(size_bytes=size, count=size // 4), number)
        if alone is not None:
            source = store.source(f"{index}.csv", kind="csv")
            store.measured(source, [alone], size_bytes=size, count=size // 4)
        for wait in (0, job[1]) if job else ():
            store.kernel(calls[0], log, transfer_ns=job[0] if job else 0, wait_ns=wait)
    if profiled:
        _profile(store, 12_345_678, 1000)
    found = store.report(system="h100").judgement.breakdown
    assert found is None or sum(part or 0 for part in _parts(found).values()) == pytest.approx(
        found.device_ns / 1e9
    )


def test_a_profile_alone_leaves_waiting_unknown() -> None:
    store, _, _ = _job()
    _measured(store, 2 * ROOF_US)
    _profile(store, 40_000_000_000, 60_000_000_000)
    report = store.report(system="mi300x")
    judged = report.judgement
    parts = _parts(judged.breakdown)
    assert (parts["wait"], parts["contention"]) == (None, None)
    assert (parts["tunable"], parts["roof"]) == (pytest.approx(20), pytest.approx(20))
    (uplift,) = judged.uplifts
    assert uplift.gain == pytest.approx(1 / 0.8 - 1)
    assert uplift.ceiling == pytest.approx(1 / 0.6 - 1)
    assert fraction_words(uplift.fraction, report.shares).startswith("all kernels")
    assert any("waiting and contention are not known" in a for a in texts(uplift.assumptions))


def test_traces_give_wall_time_and_exposure() -> None:
    store, log, _ = _job()
    _measured(store, 2 * ROOF_US)
    _profile(store, 99, 1)
    for rank in range(2):
        exposed_ns = 200 + 200 * rank
        _trace(store, log, rank=rank, span_ns=1000, collective_ns=500, exposed_ns=exposed_ns)
    judged = store.report(system="mi300x").judgement
    (uplift,) = judged.uplifts
    # half of the wall time, 600 of 1000 exposed, half of it above the roof: 0.5 x 0.6 x 0.5
    assert uplift.fraction.value == pytest.approx(0.5)
    assert uplift.saved == pytest.approx(0.15)
    assert uplift.ceiling == pytest.approx(1 / 0.7 - 1)
    assert fraction_words(uplift.fraction, ()).startswith("wall time of 2 traced ranks")
    assert judged.classes[0].recoverable_ns == pytest.approx(0.6 * 10 * 8 * 1e3 * ROOF_US)


@pytest.mark.parametrize("unknown", [0, 100])
def test_waiting_is_no_gain_of_free_collectives(unknown: int) -> None:
    """Half of the wall time is exposed collectives: 400 of 500 ns waiting, or 300 and 100 open."""
    store = StoreBuilder()
    log, comm = store.group()
    (call,) = store.calls(comm, store.collective(size_bytes=1 << 20, count=1 << 18), 1)
    trace = store.source("t.json", kind="trace", dialect="kineto")
    waits = {"transfer_ns": 100, "wait_ns": 400 - unknown}
    store.kernel(call, log, **waits)
    if unknown:
        kernel = store.insert("_kernel", source_id=log, kind="kernel", start_ns=0, end_ns=unknown)
        store.insert("_kernel_call", kernel_id=kernel, call_id=call)
    spans = {"span_ns": 1000, "collective_ns": 500, "exposed_ns": 500, "calls": 1}
    _trace(store, trace, **waits, **spans, unknown_ns=unknown)
    report = store.report(system="mi300x")
    (uplift,) = report.judgement.uplifts
    free = 0.5 * (100 + unknown) / 500
    assert uplift.ceiling == pytest.approx(1 / (1 - free) - 1)
    assert ("may be waiting or transfer" in str(uplift.assumptions)) == bool(unknown)
    text = " ".join(render(report, "text").split())
    assert "Without any transfer, and with waiting and compute as now, it would be at most" in text
    (fraction,) = fractions_of(store.connection, "main", ())
    assert fraction.waiting == pytest.approx(waits["wait_ns"] / 500)


def test_faster_than_the_roof_gains_nothing_and_is_explained() -> None:
    store, _, _ = _job()
    # 400 GB/s: above 336, below the limit of 448
    time_us = GIB * 1.75 / 400e3
    _measured(store, time_us)
    _profile(store, 30, 70)
    report = store.report(system="mi300x")
    row = report.judgement.classes[0]
    assert row.efficiency == pytest.approx(ROOF_US / time_us)
    assert "below the limit of the links, 448" in (row.why or "")
    assert "1 class is at 119 % of the speed 'mi300x reachable', above its range (94 to 103 %)" in {
        finding.title for finding in report.findings
    }
    (uplift,) = report.judgement.uplifts
    assert (uplift.gain, row.recoverable_ns) == (0, 0)
    assert {"roof_does_not_apply", "tuning_not_worth_it"} <= {f.code for f in report.findings}


@pytest.mark.parametrize(("efficiency", "worth"), [(0.96, True), (0.98, False)])
def test_tuning_is_not_worth_less_than_one_percent(efficiency: float, worth: bool) -> None:
    store, _, _ = _job()
    _measured(store, ROOF_US / efficiency)
    # 30 % of GPU time: 1.2 or 0.6 points
    _profile(store, 30, 70)
    codes = {finding.code for finding in store.report(system="mi300x").findings}
    assert ("tuning_not_worth_it" in codes) is not worth


@pytest.mark.parametrize(("efficiency", "slow"), [(0.8, True), (0.9, False)])
def test_slow_collectives_are_told_first(efficiency: float, slow: bool) -> None:
    store, _, _ = _job()
    _measured(store, ROOF_US / efficiency)
    # 30 % of GPU time: 6 or 3 points
    _profile(store, 30, 70)
    codes = [finding.code for finding in store.report(system="mi300x").findings]
    assert ("slow_collectives" in codes) is slow
    assert not slow or codes[0] == "slow_collectives"


def test_nothing_is_said_about_worth_when_little_was_measured() -> None:
    store, _, comm = _job(calls=1)
    other = store.collective(size_bytes=GIB, count=GIB // 2, datatype="Float16", nranks=8)
    store.calls(comm, other, 9, ranks_seen=8)
    _measured(store, ROOF_US / 0.99)
    _profile(store, 30, 70)
    codes = {finding.code for finding in store.report(system="mi300x").findings}
    assert "tuning_not_worth_it" not in codes


@pytest.mark.parametrize(
    ("transfer", "wait", "speaks"),
    [(1.5, 5, True), (1.5, 1, False), (4.7, 0.3, False)],  # in roofs; slow is not waiting
)
def test_classes_that_wait_are_found(transfer: float, wait: float, speaks: bool) -> None:
    store = StoreBuilder()
    log = store.source()
    comm = store.comm([store.process(log, pid=pid) for pid in range(8)])
    kind = store.collective(size_bytes=GIB, count=GIB // 4, nranks=8)
    call = store.calls(comm, kind, 1, ranks_seen=8)[0]
    transfer_ns, wait_ns = (round(1000 * roofs * ROOF_US) for roofs in (transfer, wait))
    for _ in range(8):
        store.kernel(call, log, transfer_ns=transfer_ns, wait_ns=wait_ns)
    report = store.report(system="mi300x")
    advice = {f.code: f.advice for f in report.findings}
    assert ("skew_dominated" in advice) is speaks
    if speaks:
        assert advice["skew_dominated"].endswith("Faster collectives help class 1 little.")
    assert texts(report.judgement.classes[0].marks) == ("measured in the job, not alone",)
    assert (report.judgement.classes[0].regime == "waiting") is speaks


def test_fit_is_the_best_of_every_label() -> None:
    store, _, _ = _job()
    _measured(store, 5000.0, label="tuned")
    _measured(store, 8000.0, label="default")
    row = _first(store, "fit")
    assert row.roof is not None
    assert (row.roof.name, row.roof.time_ns) == ("fit of the run's measurements", 5e6)
    assert row.efficiency == pytest.approx(5 / 8)
    # two labels: the range is over the ceiling's own and the best that was measured
    _profile(store, 30, 70)
    (uplift,) = store.report(system="mi300x").judgement.uplifts
    assert uplift.gain == pytest.approx(1 / (1 - 0.3 * (1 - ROOF_US / 8000)) - 1)
    # at least to the 315.91 GB/s that were reached; at most to the best measured
    slow = 19.2 + GIB * 1.75 / 315.91e3
    assert uplift.low == pytest.approx(1 / (1 - 0.3 * (1 - slow / 8000)) - 1, rel=1e-3)
    assert uplift.high == pytest.approx(1 / (1 - 0.3 * 3 / 8) - 1)


def test_the_label_is_the_latest_or_the_named_one() -> None:
    store, _, _ = _job()
    _measured(store, 5000.0, label="tuned")
    _measured(store, 8000.0, label="default")
    latest = store.report().judgement
    assert (latest.label, latest.classes[0].measured_ns) == ("default", 8e6)
    assert any("most recent" in note for note in texts(latest.notes))
    named = store.report(label="tuned").judgement
    assert named.classes[0].measured_ns == 5e6
    with pytest.raises(InputError, match="'default', 'tuned'"):
        store.report(label="other")


def test_of_labels_of_one_file_that_with_the_most_classes_is_judged() -> None:
    store = StoreBuilder()
    _measured(store, 1000.0, label="earlier")
    source = store.source("sweep.csv", kind="csv")
    for label, sizes in (("Ring", 1), ("default", 2), ("Tree", 2), ("Last", 1)):
        for size in range(sizes):
            store.measured(source, [5000.0], label=label, nranks=8, size_bytes=GIB << size)
    judged = store.report(system="mi300x").judgement
    assert (judged.label, len(judged.classes)) == ("default", 2)
    note = "the first with the most classes in the most recent file, default, is judged"
    assert any(note in line for line in texts(judged.notes))


def test_a_label_that_can_be_judged_goes_before_the_latest() -> None:
    store = StoreBuilder()
    _measured(store, 5000.0, label="good")
    _measured(store, 8000.0, label="failed", status="failed")
    _measured(store, 7000.0, label="without ranks", nranks=None)
    judged = store.report(system="mi300x").judgement
    assert (judged.label, judged.classes[0].measured_ns) == ("good", 5e6)
    assert any(
        "of those that can be judged, good, is judged" in note for note in texts(judged.notes)
    )
    assert store.report(system="mi300x", label="failed").judgement.label == "failed"


def test_measurements_that_tell_no_ranks_ask_for_them() -> None:
    store = StoreBuilder()
    _measured(store, 5000.0, nranks=None)
    said = render(store.report(system="mi300x"), "text")
    assert "--ranks N" in said
    assert "measure the classes" not in said


def test_measurements_of_no_class_of_the_run_are_told() -> None:
    store, _, _ = _job()
    _measured(store, 5000.0, op="AllGather")
    notes = texts(store.report(system="mi300x").judgement.notes)
    assert any(note.startswith("No measurement fits a class of this run") for note in notes)


def test_the_range_counts_nothing_at_its_lower_end_for_what_only_the_job_tells() -> None:
    store, log, comm = _job(calls=1)
    _measured(store, 1.1 * ROOF_US, 1.1 * ROOF_US)
    timed = store.collective(size_bytes=GIB, count=GIB // 2, datatype="Float16", nranks=8)
    call = store.calls(comm, timed, 1, ranks_seen=8)[0]
    for _ in range(8):
        store.kernel(call, log, transfer_ns=round(2e3 * ROOF_US), wait_ns=0)
    _profile(store, 31, 69)
    (uplift,) = store.report(system="mi300x").judgement.uplifts
    # 31 points over 1.1 + 2 roofs: 0.1 + 1 of them above the roof, 0.1 of them measured alone
    assert uplift.gain == pytest.approx(1 / 0.89 - 1, rel=1e-3)
    # the fastest ceiling is 345 GB/s without latency: 31 points over 3.1, less two such times
    fast = GIB * 1.75 / (448e3 * 0.77) / ROOF_US
    assert uplift.high == pytest.approx(1 / (1 - 0.1 * (3.1 - 2 * fast)) - 1, rel=1e-3)
    # the slowest, 315.91 GB/s after 19.2 us, leaves little of the 0.1 that were measured alone
    slow = (19.2 + GIB * 1.75 / 315.91e3) / ROOF_US
    assert uplift.low == pytest.approx(1 / (1 - 0.1 * (1.1 - slow)) - 1, rel=1e-2)
    assert any(
        text.startswith("other work in the job does not slow the transfers of 1 of 2 classes")
        for text in texts(uplift.assumptions)
    )


def test_a_kernel_of_several_profiles_is_one_row() -> None:
    store, _, _ = _job()
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_SIMPLE(ncclDevKernelArgs)"
    names = [
        store.insert("_kernel_name", name=n, family=f) for n, f in ((name, "rccl"), ("g", None))
    ]
    for calls, total_ns in ((2, 20_000_000), (4, 40_000_000)):
        source = store.source(f"{calls}.rpd", kind="profile", dialect="rpd")
        for name_id, ns in zip(names, (total_ns, 100_000_000 - total_ns), strict=True):
            row: dict[str, Value] = {"source_id": source, "name_id": name_id, "total_ns": ns}
            store.insert("_kernel_total", **row, kind="kernel", calls=calls)
    (kernel,) = store.report(system="mi300x").judgement.kernels
    # 60 of 200 ms, 6 calls
    assert (kernel.share, kernel.mean_ns) == (pytest.approx(0.3), pytest.approx(10_000_000))


def _trace(store: StoreBuilder, source: int, **known: Value) -> None:
    """What the store keeps of one rank's trace; times that are not named are 0."""
    rank = known.get("rank", 0)
    trace = store.insert(
        "_trace", source_id=source, rank=rank, first_kernel=1, kernels=1, columns=""
    )
    table = store.connection.execute("PRAGMA table_info(_trace_rank)")
    zero = {column: 0 for _, column, *_ in table}
    store.insert("_trace_rank", **{**zero, **known, "trace_id": trace, "rank": rank})


def test_a_table_of_totals_beside_a_trace_is_not_added_to_it() -> None:
    store, _, _ = _job()
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_SIMPLE(ncclDevKernelArgs)"
    trace = store.source("t.json", kind="trace", dialect="kineto")
    table = store.source("k.txt", kind="profile", dialect="key_averages")
    for source in (trace, table):
        store.total(source, f"{name}{source}", "nccl", 40_000_000)
        store.total(source, f"gemm{source}", None, 60_000_000)
    report = store.report(system="mi300x")
    assert len(report.shares) == 2
    (kernel,) = report.judgement.kernels
    assert (kernel.name, kernel.share) == (f"{name}{trace}", pytest.approx(0.4))
    assert report.judgement.breakdown is not None
    assert report.judgement.breakdown.device_ns == pytest.approx(0.04e9)
    said = " ".join(render(report, "text").split())
    assert "Not added to the traces, which may already hold their kernels: k.txt." in said


def test_what_a_table_of_measurements_alone_leaves_out_is_told() -> None:
    store = StoreBuilder()
    for number in range(25):
        _measured(store, 5 * ROOF_US, size_bytes=GIB + number)
    report = store.report(system="mi300x", top=20)
    assert (len(report.judgement.classes), report.judgement.classes_total) == (20, 25)
    assert "5 more classes not shown (--top 0): the smallest" in render(report, "text")
    assert "more classes" not in render(store.report(system="mi300x", top=None), "text")


@pytest.mark.parametrize(("idle", "words"), [(500, True), (499, False)])
def test_a_gpu_that_idles_is_bound_by_neither(idle: int, words: bool) -> None:
    store = StoreBuilder()
    source = store.source("t.json", kind="trace", dialect="kineto")
    store.total(source, "ncclDevKernel_Generic", "nccl", 90)
    store.total(source, "gemm", None, 10)
    _trace(store, source, span_ns=1000, idle_ns=idle)
    said = " ".join(render(store.report(), "text").partition("Findings")[0].split())
    assert "Of the traced time (1 rank), collectives take" in said
    first = "The GPU idles 50.0 % of the traced time. Neither communication nor computation"
    assert (first in said) is words
    assert ("Communication-bound: collectives take 90.00 % of GPU time" in said) is not words
    assert ("Collectives take 90.00 % of busy GPU time" in said) is words


def test_one_rank_s_trace_tells_the_time_of_its_classes(samples: Path, tmp_path: Path) -> None:
    db, trace = tmp_path / "t.db", samples / "traces" / "default" / "rank0.json.gz"
    assert collscope("ingest", "trace", trace, "--db", db).code == 0
    # Summed by hand from the trace, warm-up left out: 953.0, 347.8, 307.6, 200.2, 74.3 and 64.3 of
    # 1947.2 us. With a ceiling or without one, the kernels tell it.
    for more in ((), ("--system", "h200")):
        said = collscope("report", "--db", db, "--format", "json", *more)
        found = {
            (row["op"], row["size_bytes"]): row["time_share"]
            for row in json.loads(said.out)["judgement"]["classes"]
        }
        assert found["AllReduce", 64 << 20] == pytest.approx(0.4895, abs=2e-4)
        assert found["AllGather", 32 << 20] == pytest.approx(0.1786, abs=2e-4)
        assert found["AllReduce", 8192] == pytest.approx(0.0330, abs=3e-4)
        assert sum(found.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("copies", "word"), [(20, "Compute-bound: c"), (40, "C"), (75, "Copy-bound: c")]
)
def test_copies_are_no_computation(copies: int, word: str) -> None:
    store = StoreBuilder()
    source = store.source("p.rpd", kind="profile", dialect="rpd")
    store.total(source, "ncclDevKernel_Generic", "rccl", 15)
    store.total(source, "CopyHostToDevice", None, copies, kind="copy")
    store.total(source, "gemm", None, 85 - copies)
    said = " ".join(render(store.report(), "text").partition("Findings")[0].split())
    assert f"= {word}ollectives take 15.00 % of GPU time" in said


@pytest.mark.parametrize(("second", "word"), [(20, "Compute-bound: c"), (30, "C")])
def test_the_traces_of_a_job_get_one_line(second: int, word: str) -> None:
    store = StoreBuilder()
    for rank, percent in enumerate((10, second, 90)):
        kind = ("trace", "kineto") if rank < 2 else ("profile", "key_averages")
        source = store.source(f"{rank}.json", kind=kind[0], dialect=kind[1])
        store.total(source, f"ncclDevKernel_{rank}", "nccl", percent)
        store.total(source, f"gemm{rank}", None, 100 - percent)
        if rank < 2:
            _trace(store, source, rank=rank)
    said = " ".join(render(store.report(), "text").partition("Findings")[0].split())
    assert (
        f"= {word}ollectives take 10.00 to {second}.00 % of GPU time on 2 ranks (denominator: all "
        "kernels; the profile has no times of copies)."
    ) in said
    assert said.count("GPU time") == 1


def test_the_roof_of_all_rows_stands_below_the_table() -> None:
    store, _, _ = _job(op="ReduceScatter", redop="Sum")
    _measured(store, 2 * ROOF_US, op="ReduceScatter")
    said = render(store.report(system="mi300x"), "text")
    assert "ReduceScatter x8" in said
    assert "~" not in said.partition("Efficiency and gain")[2].partition("Message sizes")[0]
    assert said.count("Reachable speeds: those of system mi300x (given by --system).") == 1


def test_unknown_systems_and_nothing_to_fit_are_errors() -> None:
    store, _, _ = _job()
    with pytest.raises(InputError, match="mi300x"):
        store.report(system="mi300")
    with pytest.raises(NoVerdictError, match="no measurement"):
        store.report(system="fit")


def test_a_communicator_too_large_for_the_system_has_no_roof() -> None:
    store, _, _ = _job(nranks=64)
    _measured(store, 1000.0, nranks=64)
    row = _first(store)
    assert (row.roof, row.efficiency) == (None, None)
    assert row.why
    assert any(
        "No reachable speed" in note
        for note in texts(store.report(system="mi300x").judgement.notes)
    )


def test_nodes_that_are_not_known_are_the_fewest_that_hold_the_ranks() -> None:
    # Hosts of a rack have 4 GPUs each: 144 ranks are 36 hosts, two domains.
    store, _, _ = _job(nranks=144, nnodes=None)
    _measured(store, 10_000.0, nranks=144, nnodes=None)
    row = _first(store, "gb200-nvl72")
    # 721.8 GB/s of NVLink; the 72 NICs of a domain carry more
    assert row.roof is not None
    assert row.roof.busbw_gbps == pytest.approx(721.8, rel=0.03)
    assert "assumed 36 nodes: no source shows the number" in texts(row.roof.assumptions)


def test_figures_of_frontier_beside_its_tables(samples: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    tables = samples / "tables"
    assert collscope("ingest", "table", tables / "frontier-allreduce.txt", "--db", db).code == 0
    assert collscope("ingest", "metric", tables / "frontier-applications.txt", "--db", db).code == 0
    document = json.loads(collscope("report", "--db", db, "--format", "json").out)
    rows = {(r["name"], r["label"]): r for r in document["judgement"]["metrics"]}
    images = rows["images_per_second (64 nodes, 512 ranks)", "With the Plugin + GDR=3"]
    # 508689.71 / 388282.87, and 109.01 / 8.03 at 4 GiB: (1 - 1/1.3101) / (1 - 1/13.575)
    assert round(images["gain"], 4) == 0.3101
    assert round(images["collective_speed_up"], 2) == 13.58
    assert round(images["implied_share"], 3) == 0.256
    assert images["predicted_gain"] is None
    words = rows["GPT-J: train_samples_per_second", "With the plugin"]
    assert (words["reference_value"], words["value"]) == (36.372, 60.975)
    # a run time that falls is a gain
    assert round(rows["GPT-J: train_runtime", "With the plugin"]["gain"], 3) == 0.676


def test_a_profile_predicts_the_figures() -> None:
    store, log, _ = _job()
    _measured(store, 8000.0, label="tcp")
    _measured(store, 2000.0, label="plugin")
    _profile(store, 40, 60)
    for label, value in (("TCP", 100.0), ("with the plugin", 130.0), ("plugin", 140.0)):
        store.metric(log, label, value)
    _, row = store.report().judgement.metrics
    assert (row.reference, row.label, row.gain) == ("TCP", "plugin", pytest.approx(0.4))
    assert (row.collective_speed_up, row.speed_up_of) == (4.0, 1)
    assert speed_up_of(row) == "the run's calls, 1 class"
    assert row.predicted_gain == pytest.approx(1 / (1 - 0.4 * 0.75) - 1)
    assert row.implied_share == pytest.approx((1 - 1 / 1.4) / 0.75)


def test_profiles_of_different_jobs_have_answers_of_their_own() -> None:
    store, log, _ = _job()
    _measured(store, 2 * ROOF_US, label="tcp")
    _measured(store, ROOF_US, label="plugin")
    for path, ours, rest in (("bigbird.txt", 20, 80), ("gpt-j.txt", 80, 20)):
        source = store.source(path=path, kind="profile", dialect="key_averages")
        store.total(source, f"ncclDevKernel_Generic_{path}", "rccl", ours)
        store.total(source, f"gemm of {path}", None, rest)
    for job in ("GPT-J", "BigBird Oscar", "TensorFlow"):
        store.metric(log, "tcp", 1.0, name=f"{job}: steps_per_second")
        store.metric(log, "plugin", 2.0, name=f"{job}: steps_per_second")
    judged = store.report(system="mi300x", label="tcp").judgement
    assert [(u.fraction.profiles, u.fraction.value) for u in judged.uplifts] == [
        (("bigbird.txt",), pytest.approx(0.2)),
        (("gpt-j.txt",), pytest.approx(0.8)),
    ]
    # 1 / (1 - share (1 - 1/2)) - 1 of each job's own share; no profile is named after the third
    assert [row.predicted_gain for row in judged.metrics] == [
        pytest.approx(1 / 0.6 - 1), pytest.approx(1 / 0.9 - 1), None,
    ]  # fmt: skip
    assert judged.breakdown is not None
    assert judged.breakdown.basis is Basis.ALONE
    said = render(store.report(system="mi300x", label="tcp"), "text")
    assert "the job of gpt-j.txt" in " ".join(said.split())


def test_csv_has_the_efficiency_of_every_class_shown() -> None:
    store, _, _ = _job()
    for index in range(30):
        store.collective(size_bytes=1 + index)
    _measured(store, 2 * ROOF_US, in_place=None)
    for top in (1, None):
        report = store.report(system="mi300x", top=top)
        rows = list(csv.DictReader(io.StringIO(render(report, "csv"))))
        assert float(rows[0]["efficiency"]) == pytest.approx(0.5)
        assert rows[0]["marks"] == "in place or out of place is not known"


def test_every_form_says_which_roof() -> None:
    store, _, _ = _job()
    _measured(store, 2 * ROOF_US, 2.1 * ROOF_US)
    _profile(store, 40, 60)
    report = store.report(system="mi300x")
    for form in ("text", "md", "csv", "json"):
        assert "mi300x reachable" in render(report, form)


def test_measurements_alone_answer_in_the_first_lines() -> None:
    store = StoreBuilder()
    for op in ("AllReduce", "AllGather"):
        for size, efficiency in ((GIB // 4, 0.25), (GIB // 2, 0.4), (GIB, 0.5)):
            # an AllGather has half the factor; its latency, 12 us + 3 x 0.8 us, is RCCL's estimate
            floor, half = (12.8, 1) if op == "AllReduce" else (14.4, 2)
            time_us = (floor + size * 1.75 / 336e3 / half) / efficiency
            _measured(store, time_us, op=op, redop=None, size_bytes=size, count=size // 4)
    text = render(store.report(system="mi300x", top=3), "text")
    said = text.splitlines()[2:8]
    best = "50.0 % of reachable speed; furthest below it: 256 MiB"
    where = "on 8 ranks of 1 node reaches"
    assert " ".join(said[:4]) == (
        f"AllReduce {where} 167.6 GB/s at 1 GiB, {best} at 25.0 %. "
        f"AllGather {where} 167.1 GB/s at 1 GiB, {best} at 25.0 %."
    )
    assert said[4:] == [
        "Bus bandwidth of label replay; reachable: mi300x reachable.",
        (
            "This run has no calls and no profile, so neither the share of GPU time nor the gain "
            "of a job is known."
        ),
    ]
    for title in ("Findings", "Share of GPU time", "Classes", "Message sizes", "Communicators"):
        assert f"\n{title}\n---" not in text
    # the largest of each operation, then the next
    rows = store.report(system="mi300x", top=3).judgement.classes
    assert [(r.op.value, r.size_bytes) for r in rows] == [
        ("AllReduce", GIB // 2), ("AllReduce", GIB), ("AllGather", GIB),
    ]  # fmt: skip
    without = render(store.report(), "text")
    assert "AllReduce on 8 ranks of 1 node reaches 167.6 GB/s at 1 GiB.\n" in without
    assert "reachable speed not known (report --system NAME" in without
    # what cannot be is no achievement, and why is said once
    _measured(store, 0.6 * ROOF_US)
    _measured(store, 0.61 * ROOF_US, in_place=None)
    fast = store.report(system="mi300x")
    first = " ".join(render(fast, "text").splitlines()[2:4])
    assert (
        "166.7 % of reachable speed and more than any schedule over these links reaches;" in first
    )
    (told,) = (f.detail for f in fast.findings if f.code == "roof_does_not_apply")
    assert told.startswith("class 7 (AllReduce of 1 GiB)")
    assert " ".join(render(fast, "text").split()).count("558.7 GB/s is more than") == 1
    # a run with calls begins with its job
    log = store.source()
    store.calls(store.comm([store.process(log)]), store.collective(), 1)
    assert store.report(system="mi300x").judgement.reached == ()


def test_a_class_that_msccl_runs_has_its_schedule_s_ceiling() -> None:
    store = StoreBuilder()
    log = store.source()
    comm = store.comm([store.process(log, pid=p) for p in range(8)])
    for backend in ("native", "mscclpp"):
        kind = store.collective(nranks=8, size_bytes=1 << 20, count=1 << 18, backend=backend)
        store.calls(comm, kind, 1)
    told = {
        row.class_id: any(
            "MSCCL runs its own schedule" in text for text in texts(row.roof.assumptions)
        )
        for row in store.report(system="mi300x").judgement.classes
    }
    assert told == {1: False, 2: True}


def test_empty_judgement_of_an_empty_run() -> None:
    judged = StoreBuilder().report(system="mi300x").judgement
    assert judged == Judgement(
        label=None,
        labels=(),
        roof="mi300x reachable",
        named=True,
        classes=(),
        classes_total=0,
        kernels=(),
        breakdown=None,
        uplifts=(),
        metrics=(),
        curves=(),
        reached=(),
        outliers=(),
        other_gpus=None,
        notes=judged.notes,
    )


def test_a_kernel_s_share_is_that_of_all_profiles() -> None:
    def profiles(busy_ns: int | None) -> list[Share]:
        shown = [
            (KernelShare("k", "RCCL", 10, 1000, 100.0, 10.0),),
            (KernelShare("k", "RCCL", 30, 5000, 166.7, 20.0),),
            (),
        ]
        return [cast(Share, SimpleNamespace(busy_ns=busy_ns, kernels=k)) for k in shown]

    # 6000 of 3 * 10000 ns; where no time is told the mean of 10, 20 and 0 %
    for busy_ns, percent in ((10_000, 20.0), (None, 10.0)):
        (found,) = _over_all(profiles(busy_ns))
        assert (found.calls, found.total_ns, found.mean_ns) == (40, 6000, 150.0)
        assert found.percent == percent


def test_a_system_of_other_gpus_is_told(samples: Path, tmp_path: Path) -> None:
    """The traces of the samples say NVIDIA H200, and so do the measurements."""
    db = ("--db", tmp_path / "t.db")
    collscope("ingest", "trace", samples / "traces" / "ringll", *db)
    replayed = ("--run", "replayed", *db)
    collscope("ingest", "csv", samples / "replay" / "h200x4-sweep.csv", *replayed)
    for command in (db, replayed):
        told = collscope("report", "--system", "mi300x", *command)
        said = " ".join(told.out.split())
        assert told.code == 0
        assert (
            "[warning] 'mi300x' is a system of MI300X GPUs, but the job ran on NVIDIA H200 "
        ) in said
        assert "is a system of" not in collscope("report", "--system", "h200", *command).out
    predicted = " ".join(collscope("predict", "--system", "mi300x", *db).out.split())
    assert (
        "a system of MI300X GPUs, but the job ran on NVIDIA H200: the prediction mixes" in predicted
    )


@pytest.mark.parametrize(
    ("busbw_gbps", "line", "speaks"),
    [
        (365.0, None, True),  # rings
        (475.0, None, False),  # the switches reduce
        (200.0, None, False),  # slower than rings: another cause
        (365.0, "NVLS multicast support is not available on dev 0", False),  # known to be off
    ],
)
def test_the_ring_s_speed_is_found_where_switches_could_reduce(
    busbw_gbps: float, line: str | None, speaks: bool
) -> None:
    store = StoreBuilder()
    if line is not None:
        store.fact(store.source(), "nvls", line.removeprefix("NVLS "))
    size = 8 * GIB
    _measured(store, size * 1.75 / busbw_gbps / 1e3, size_bytes=size, count=size // 4)
    report = store.report(system="h100")
    found = [f for f in report.findings if f.code == "nvls_not_in_use"]
    assert bool(found) is speaks
    if speaks:
        # 41.2 ms by rings, 31.5 by the switches: 480 GB/s (NVIDIA staff, nccl-tests issue 212)
        assert found[0].title.startswith("at the ring's speed: NVLS is not in use, which costs 97")
        assert report.judgement.classes[0].efficiency == pytest.approx(365 / 478, rel=0.01)
    if line is not None:
        assert report.judgement.classes[0].efficiency == pytest.approx(1.0, rel=0.01)
