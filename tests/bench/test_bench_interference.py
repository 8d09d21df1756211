"""`bench interference`: its CSV, what is made of it, and the program on the host."""

from __future__ import annotations

import copy
import csv
import gzip
import io
import json
from pathlib import Path

import jsonschema
import pytest
from command import collscope, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ROOT

from collscope.bench.interference import channel_variants, parse_channels
from collscope.bench.start import start_microbench
from collscope.errors import UsageError
from collscope.model import Interference, MeasurementSet, Op
from collscope.parsers.interference_csv import parse, sniff
from collscope.programs import MICROBENCH, installed
from collscope.replay.launch import Ended, Job
from collscope.reports.interference.answer import InterferenceRow, build_interference, model
from collscope.reports.interference.text import failed_words, render_interference

_SCHEMA = ROOT / "schemas" / "interference.schema.json"
_COLUMNS = (
    "label", "round", "op", "datatype", "redop", "size_bytes", "count", "shape", "nranks",
    "nnodes", "in_place", "rank", "backend", "compute", "compute_description", "channels",
    "priority", "compute_alone_us", "compute_with_us", "relative_compute", "relative_compute_mad",
    "relative_compute_noise", "comm_alone_us", "comm_with_us", "relative_busbw",
    "relative_busbw_mad", "relative_busbw_noise", "busbw_alone_gbps", "busbw_with_gbps",
    "samples", "covered", "multiprocessors", "device", "library", "runtime", "hostname",
    "environment", "status", "message", "relative_compute_samples", "relative_busbw_samples",
)  # fmt: skip
_ROW: dict[str, object] = {
    "label": "two", "round": 1, "op": "AllReduce", "datatype": "Bfloat16", "redop": "Sum",
    "size_bytes": 1 << 28, "count": 1 << 27, "nranks": 4, "nnodes": 1, "in_place": 0, "rank": 0,
    "backend": "cuda", "compute": "kernel", "compute_description": "many blocks", "channels": 2,
    "priority": "high", "compute_alone_us": 8000, "compute_with_us": 8122,
    "relative_compute": 0.985, "relative_compute_mad": 0.001, "relative_compute_noise": 0.004,
    "comm_alone_us": 4000, "comm_with_us": 5000, "relative_busbw": 0.8,
    "relative_busbw_mad": 0.01, "relative_busbw_noise": 0.003, "samples": 9, "covered": 8,
    "multiprocessors": 132, "device": "NVIDIA H200", "library": "nccl 2.28.9",
    "runtime": "cuda 12.9", "hostname": "n1", "environment": "NCCL_MAX_CTAS=2", "status": "ok",
    "relative_compute_samples": "0.984;0.986", "relative_busbw_samples": "0.8;0.8",
}  # fmt: skip


def text(*changes: dict[str, object]) -> str:
    """A file with one row for each set of changes to `_ROW`; without what would contradict them."""
    out = io.StringIO()
    out.write("# collscope.interference_csv/1\n# plan: 0123456789abcdef\n")
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    follow = {"size_bytes": "count", "op": "count", "nranks": "count"}
    follow |= {"relative_compute": "relative_compute_samples"}
    follow |= {"relative_busbw": "relative_busbw_samples"}
    for change in changes:
        unknown = {column: "" for changed, column in follow.items() if changed in change}
        writer.writerow({**_ROW, **unknown, **change})
    return out.getvalue()


def test_a_row_keeps_what_it_says() -> None:
    found = parse(text({}))
    assert not found.diagnostics
    assert (found.dialect, found.library, found.library_version) == (
        "interference_csv", "nccl", "2.28.9",
    )  # fmt: skip
    (m,) = found.interference
    assert (m.op, m.channels, m.rank, m.host, m.line) == (Op.ALL_REDUCE, "2", 0, "n1", 4)
    assert (m.relative_compute, m.relative_compute_samples) == (0.985, (0.984, 0.986))
    assert m.in_place is False
    # 268.435456 MB in 4 ms, times 2 * 3 / 4: computed here, though the file is silent of it.
    assert m.busbw_alone_gbps == pytest.approx(100.663296)
    assert m.busbw_with_gbps == pytest.approx(80.5306368)


def test_a_row_cut_inside_its_last_ratio_is_none() -> None:
    found = parse(text({}, {"rank": 1}).removesuffix("8\n"))  # …,0.8;0.
    assert [m.rank for m in found.interference] == [0]
    assert [(d.code, d.line) for d in found.diagnostics] == [("cut_row", 5)]


def test_what_is_not_known_is_none() -> None:
    empty = dict.fromkeys(
        ("relative_compute", "comm_alone_us", "multiprocessors", "channels", "in_place",
         "relative_compute_samples", "datatype"), "",
    )  # fmt: skip
    (m,) = parse(text({**empty, "status": "uncovered"})).interference
    assert (m.relative_compute, m.busbw_alone_gbps, m.multiprocessors) == (None, None, None)
    assert (m.channels, m.in_place, m.datatype, m.relative_compute_samples) == (
        None,
        None,
        None,
        (),
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"status": "splendid"}, "torn_row"),
        ({"relative_compute": "nan"}, "bad_number"),
        ({"relative_compute": "-1"}, "bad_number"),
        ({"rank": "first"}, "bad_number"),
        ({"relative_compute_samples": "0.9;;x"}, "bad_number"),
        ({"op": "AllMagic"}, "unknown_class"),
        ({"datatype": "Float13"}, "unknown_class"),
    ],
)
def test_a_bad_row_costs_itself(change: dict[str, object], code: str) -> None:
    found = parse(text({}, change, {"rank": 1}))
    assert [m.rank for m in found.interference] == [0, 1]
    assert [d.code for d in found.diagnostics] == [code]


def test_another_version_and_a_missing_header() -> None:
    later = text({}).replace("csv/1", "csv/2")
    assert not parse(later).interference
    assert [d.code for d in parse(later).diagnostics] == ["other_version"]
    # A launch that added to the file wrote its metadata again, which is read on.
    both = text({}) + "# collscope.interference_csv/1\n" + text({"round": 2}).split("\n")[3] + "\n"
    assert [m.round for m in parse(both).interference] == [1, 2]
    headless = "\n".join(line for line in text({}).split("\n") if not line.startswith("label,"))
    assert [d.code for d in parse(headless).diagnostics] == ["no_header"]
    assert sniff(text({}))
    assert not sniff("op,datatype,redop,root,count,\n")


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 4000), junk=st.text(max_size=40))
def test_nothing_in_a_file_raises_and_a_cut_loses_no_earlier_row(cut: int, junk: str) -> None:
    whole = text({}, {"rank": 1}, {"rank": 2})
    found = parse(whole[:cut] + junk)
    assert isinstance(found, MeasurementSet)
    lines = max(whole[:cut].count("\n") - 3, 0)
    assert [m.rank for m in found.interference][:lines] == list(range(lines))
    assert [m.rank for m in parse(whole[:cut]).interference] == list(range(lines))


def measured(**changes: object) -> Interference:
    return parse(text(changes)).interference[0]


def test_ranks_and_rounds_are_put_together() -> None:
    # Rank 0: median of 0.98, 0.97, 0.99; rank 1: 0.94 always. Mean 0.96, worst 0.94.
    given_ = [
        measured(round=number, rank=rank, relative_compute=ratio, comm_with_us=us)
        for rank, values in ((0, (0.98, 0.97, 0.99)), (1, (0.94, 0.94, 0.94)))
        for number, (ratio, us) in enumerate(zip(values, (5000, 5000, 6000), strict=True), 1)
    ]
    (row,) = build_interference(given_).rows
    assert (row.ranks, row.rounds, row.samples, row.uncovered) == (2, 3, 8, 6)
    assert row.relative_compute == pytest.approx(0.96)
    assert row.relative_compute_worst == 0.94
    assert row.relative_busbw == pytest.approx(0.8)
    assert row.lost_multiprocessors == pytest.approx(0.04 * 132)
    assert row.model == pytest.approx(1 - 2 / 132)
    assert row.comm_with_ns == 5_000_000
    assert row.busbw_with_gbps == pytest.approx(80.5306368)
    # Within launches: 1.2533 * 1.96 * 1.4826 * 0.001 / sqrt(8) / sqrt(3) = 0.00074; between them
    # the means are 0.96, 0.955, 0.965: t(0.975, 2) = 4.303 times 0.005 / sqrt(3), which is larger.
    assert row.relative_compute_ci == pytest.approx(4.303 * 0.005 / 3**0.5, rel=0.05)


def test_settings_computations_and_failures_stay_apart() -> None:
    report = build_interference(
        [
            measured(channels="", label="base"),
            measured(channels=16, label="16"),
            measured(channels=2),
            measured(channels=2, compute="gemm"),
            measured(status="failed", relative_compute="", message="out of memory"),
        ]
    )
    assert [(r.channels, r.compute) for r in report.rows] == [
        (2, "kernel"), (2, "gemm"), (16, "kernel"), (None, "kernel"),
    ]  # fmt: skip
    assert report.rows[-1].model is None
    assert tuple(map(failed_words, report.failed)) == (
        "two: AllReduce of 268435456 bytes: failed: out of memory",
    )


def test_the_model_and_its_caveat() -> None:
    assert model(2, 132) == pytest.approx(0.98485, abs=1e-5)
    assert model(None, 132) is None
    assert model(2, None) is None
    report = build_interference([measured(), measured(rank=1, relative_compute=0.99)])
    said = render_interference(report, "text")
    assert "R = 1 - channels / multiprocessors" in said
    assert "Use it as a bound" in " ".join(said.split())
    line = next(line for line in said.splitlines() if line.startswith("AllReduce"))
    # class, size, compute, channels, R, +-, worst, noise, model, SMs lost, samples
    assert line.split()[-8:] == [
        "2", "0.9875", "0.0013", "0.9850", "0.0040", "0.9848", "1.6", "8",
    ]  # fmt: skip
    assert "0 of 1 R differ" in " ".join(said.split())


def test_rows_of_different_classes_look_different() -> None:
    changes = [
        {"op": op, "datatype": datatype, "nranks": nranks, "in_place": in_place}
        for op in ("AllReduce", "AllGather", "ReduceScatter")
        for datatype in ("Float32", "Bfloat16")
        for nranks, in_place in ((2, 0), (2, 1), (4, 0))
    ]
    said = render_interference(build_interference([measured(**c) for c in changes]), "text")
    lines = [line for line in said.splitlines() if line.startswith(("AllR", "AllG", "Reduc"))]
    assert len(lines) == 36  # two tables
    assert len(set(lines)) == 36
    alike = render_interference(
        build_interference([measured(op=op) for op in ("AllReduce", "ReduceScatter")]), "text"
    )
    assert "All calls: Bfloat16, 4 ranks, out of place, during kernel." in alike
    assert alike.count("ReduceScatter ") == 2


def test_other_forms() -> None:
    report = build_interference([measured()])
    document = json.loads(render_interference(report, "json"))
    jsonschema.validate(document, json.loads(_SCHEMA.read_text()))
    (line,) = csv.DictReader(io.StringIO(render_interference(report, "csv")))
    names = InterferenceRow.__struct_fields__
    assert set(line) == {name.replace("_ns", "_us") for name in names}
    assert float(line["comm_with_us"]) == 5000
    assert float(line["relative_compute"]) == 0.985
    assert "| operation" in render_interference(report, "md")
    with pytest.raises(UsageError):
        render_interference(report, "png")


def test_channels_are_environments() -> None:
    assert parse_channels(None) == ()
    assert parse_channels("4,1,4") == (4, 1)
    for bad in ("0", "two", "1,,2", "129", "-1"):
        with pytest.raises(UsageError, match="--channels"):
            parse_channels(bad)
    (one, two, default) = channel_variants((1, 2), "x", ctas=True)
    assert (one[0], one[1].label) == (1, "x: 1 channel")
    assert two[1].environment == (
        ("NCCL_MIN_CTAS", "2"), ("NCCL_MAX_CTAS", "2"),
        ("NCCL_MIN_P2P_NCHANNELS", "2"), ("NCCL_MAX_P2P_NCHANNELS", "2"),
    )  # fmt: skip
    assert (default[0], default[1].label, default[1].environment) == (None, "x: default", ())
    old = channel_variants((2,), "x", ctas=False)[0][1]
    assert old.environment[:2] == (("NCCL_MIN_NCHANNELS", "2"), ("NCCL_MAX_NCHANNELS", "2"))
    assert [v.label for _, v in channel_variants((), "x", ctas=False)] == ["x"]


def test_ingest_knows_it(tmp_path: Path, db_path: Path) -> None:
    path = tmp_path / "beside.csv"
    path.write_text(text({}, {"rank": 1, "label": ""}))
    for command in ("csv", "auto"):
        done = collscope("ingest", command, path, "--db", db_path, "--run", command)
        assert done.code == 0, done.err
    assert rows(
        db_path,
        "SELECT rank, label, relative_compute, relative_compute_samples, multiprocessors, host"
        " FROM interference WHERE run = 'auto' ORDER BY rank",
    ) == [
        (0, "two", 0.985, "[0.984, 0.986]", 132, "n1"),
        (1, "beside", 0.985, "[0.984, 0.986]", 132, "n1"),
    ]
    assert rows(db_path, "SELECT dialect, library_version FROM sources WHERE run = 'csv'") == [
        ("interference_csv", "2.28.9")
    ]


def overlapped(source: Path, target: Path) -> Path:
    """The traces with a kernel on a stream of its own beside the first half of each collective."""
    target.mkdir()
    for path in sorted(source.glob("rank*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        kernels = [e for e in document["traceEvents"] if e.get("cat") == "kernel"]
        other = next(e for e in kernels if "nccl" not in e["name"])
        for event in kernels:
            if "nccl" in event["name"]:
                beside = copy.deepcopy(other)
                beside.update(ts=event["ts"], dur=event["dur"] / 2, tid=99)
                beside["args"]["stream"] = 99
                document["traceEvents"].append(beside)
        (target / path.stem).write_text(json.dumps(document))
    return target


def test_a_report_says_what_hiding_costs(tmp_path: Path, db_path: Path, samples: Path) -> None:
    traces = overlapped(samples / "traces" / "default", tmp_path / "traces")
    assert collscope("ingest", "trace", traces, "--db", db_path).code == 0
    assert "costs ms" not in collscope("report", "--db", db_path).out
    ((class_id, op, datatype, size, nranks, hidden),) = rows(
        db_path,
        "SELECT c.class_id, c.op, c.datatype, c.size_bytes, c.nranks,"
        " SUM(k.duration_ns - k.exposed_ns) FROM kernels k JOIN call_times t USING (call_id)"
        " JOIN classes c USING (class_id) WHERE NOT t.warm_up AND k.exposed_ns IS NOT NULL"
        " GROUP BY c.class_id ORDER BY 6 DESC LIMIT 1",
    )
    near = {"op": op, "datatype": datatype or "", "nranks": nranks, "channels": ""}
    path = tmp_path / "beside.csv"
    path.write_text(
        text(
            {**near, "size_bytes": int(size * 1.9), "relative_compute": 0.9},
            {**near, "size_bytes": int(size * 1.9), "relative_compute": 0.7, "rank": 1},
            {**near, "size_bytes": size * 3, "relative_compute": 0.5},  # too far
            {**near, "size_bytes": size, "relative_compute": 0.4, "channels": 2},  # another setting
            {**near, "size_bytes": size, "relative_compute": 0.3, "nranks": nranks + 1},
        )
    )
    assert collscope("ingest", "csv", path, "--db", db_path).code == 0
    document = json.loads(collscope("report", "--db", db_path, "--format", "json").out)
    said = {row["class_id"]: row for row in document["timeline"]["beside"]}[class_id]
    assert said["relative_compute"] == pytest.approx(0.8)
    assert (said["label"], said["compute"]) == ("two", "kernel")
    assert said["hidden_ns"] == pytest.approx(hidden / 4)
    line = next(
        line for line in collscope("report", "--db", db_path).out.splitlines() if "two: " in line
    )
    assert f"{0.2 * hidden / 4 / 1e6:.4g}" in line.split()


@pytest.fixture
def program() -> Path:
    found = installed(MICROBENCH)
    if found is None:
        pytest.skip("collscope-microbench is not built")
    return found


def test_the_program_on_the_host(program: Path, tmp_path: Path, db_path: Path) -> None:
    target, drawing = tmp_path / "beside.csv", tmp_path / "beside.svg"
    done = collscope(
        "bench", "interference", "-n", "2", "--sweep", "allreduce,sendrecv:64K", "--backend",
        "host", "--budget", "0.01", "--rounds", "2", "--db", db_path, "--csv", target,
        "--plot", drawing, "--format", "json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert drawing.stat().st_size > 0
    document = json.loads(done.out)
    assert [(r["op"], r["ranks"], r["rounds"]) for r in document["rows"]] == [
        ("AllReduce", 2, 2), ("SendRecv", 2, 2),
    ]  # fmt: skip
    found = parse(target.read_text())
    assert not found.diagnostics
    assert len(found.interference) == 8
    for m in found.interference:
        assert (m.status, m.compute, m.backend, m.size_bytes) == (
            "ok",
            "host-thread",
            "host",
            65536,
        )
        assert m.samples is not None
        assert m.covered is not None
        assert m.samples >= 5
        assert len(m.relative_compute_samples) == len(m.relative_busbw_samples) == m.covered
        assert m.relative_compute_noise is not None
        assert m.multiprocessors is None
    assert rows(db_path, "SELECT COUNT(*), COUNT(DISTINCT rank) FROM interference") == [(8, 2)]


def test_a_class_too_large_for_its_ranks_keeps_no_other_rank_waiting(
    program: Path, tmp_path: Path
) -> None:
    plan, target = tmp_path / "a.plan", tmp_path / "a.csv"
    plan.write_text(
        "collscope-plan 1\nmode unique\nnranks 3\ncomm 0 0-1\ncomm 1 0-2\n"
        "class 0 op=AllReduce datatype=Float32 redop=Sum count=1000000000000 comms=0\n"
        "class 1 op=AllReduce datatype=Float32 redop=Sum count=1024 comms=1\n"
    )
    arguments = (
        "interference", str(plan), "--csv", str(target), "--budget", "1e-3", "--timeout", "30",
    )  # fmt: skip
    assert start_microbench(Job(arguments, 3), target, "test") == Ended(6)
    found = [(m.rank, m.status) for m in parse(target.read_text()).interference]
    assert found[:2] == [(0, "failed"), (1, "failed")]
    assert [rank for rank, _ in found[2:]] == [0, 1, 2]
    assert {status for _, status in found[2:]} <= {"ok", "uncovered"}


def test_a_failure_counts_more_than_a_plot_of_nothing(
    program: Path, tmp_path: Path, db_path: Path
) -> None:
    done = collscope(
        "bench", "interference", "-n", "2", "--sweep", "allreduce:4T", "--backend", "host", "--db",
        db_path, "--plot", tmp_path / "x.svg",
    )  # fmt: skip
    assert done.code == 6, done.err
    assert "out of memory" in done.out
    assert not (tmp_path / "x.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--sweep", "allreduce:1K"), 2, "Give -n RANKS"),
        (("-n", "2", "--sweep", "allreduce"), 2, "no sizes"),
        (("-n", "2", "--channels", "2"), 2, "neither NCCL nor RCCL"),
        (("-n", "2", "--overlapped", "--sweep", "allreduce:1K"), 2, "Leave --sweep out"),
        (("--overlapped",), 3, "no such store"),
        (("-n", "2", "--plot", "x.bmp"), 2, "not .png"),
        (("-n", "2", "--csv", "/nowhere/x.csv"), 3, "no such folder"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = collscope(
        "bench", "interference", *arguments, "--backend", "host", "--db", tmp_path / "x.db"
    )
    assert done.code == code, done.err
    assert says in done.err
