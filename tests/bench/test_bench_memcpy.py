"""`collscope bench memcpy`: the CSV's reader, the store, and real runs of the built program.

The GPUs of these tests are memory of the host, behind a small runtime that stands in for the
vendor's (tests/native/gpu_loader/fake_runtime.cpp): its copies, handles and refusals are real, its
times mean nothing. `COLLSCOPE_MICROBENCH` names another executable than the installed one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import jsonschema
import pytest
from command import collscope
from hypothesis import given
from hypothesis import strategies as st
from inputs import ROOT

from collscope.bench.memcpy import CopyRequest, measure_copies
from collscope.errors import InputError, MissingToolError, UsageError
from collscope.model import CopyTime, Severity
from collscope.parsers import memcpy_csv
from collscope.programs import MICROBENCH, installed, launchers
from collscope.replay.session import Target
from collscope.reports.memcpy.answer import build_copies
from collscope.reports.memcpy.text import render_copies

FAKE = ROOT / "tests" / "native" / "gpu_loader" / "fake_runtime.cpp"
HEADER = (
    "label,round,kind,src_device,dst_device,direction,access,size_bytes,time_us_median,time_us_min,"
    "time_us_max,time_us_mad,iterations,bandwidth_gbps,n_wrong,checked,status,message,device,"
    "runtime,hostname,started,samples_us"
)
PEER = (
    "memcpy,0,peer_async,0,1,one,peer,4096,2,1,4,1,60,2.048,0,all,ok,,NVIDIA H200,cuda 12.4,n1,"
    "2026-01-31T12:00:00Z,4;1;2"
)
OPEN = "memcpy,0,ipc_open,0,1,one,,4096,1000,990,1010,5,3,,,,ok,,NVIDIA H200,cuda 12.4,n1,,"
FAILED = "memcpy,0,h2d_pinned,,1,one,,8,,,,,0,,,,failed,out of memory,,cuda 12.4,n1,,"
TEXT = "\n".join(("# collscope.memcpy_csv/1", "# label: memcpy", HEADER, PEER, OPEN, FAILED, ""))


def program() -> Path:
    given = os.environ.get("COLLSCOPE_MICROBENCH")
    found = Path(given) if given else installed(MICROBENCH)
    if found is None or not launchers():
        pytest.skip(f"{MICROBENCH} or mpiexec was not built with this installation")
    return found


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runtimes: cuda (2 GPUs), one (1 GPU of 100 000 bytes), torn, hip (lacking)."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("fakes")
    variants = {
        "libcudart.so": "-DFAKE_PREFIX=cuda -DFAKE_DEVICES=2 -DFAKE_VERSION=12040",
        "libcudart-one.so": "-DFAKE_PREFIX=cuda -DFAKE_DEVICES=1 -DFAKE_VERSION=12040"
        " -DFAKE_LIMIT=100000",
        "libcudart-torn.so": "-DFAKE_PREFIX=cuda -DFAKE_DEVICES=2 -DFAKE_VERSION=12040 -DFAKE_TORN",
        "libamdhip64.so": "-DFAKE_PREFIX=hip -DFAKE_DEVICES=2 -DFAKE_VERSION=60443484 -DFAKE_LACKS",
    }
    start = [compiler, "-std=c++20", "-shared", "-fPIC", FAKE]
    started = [
        subprocess.Popen([*start, *words.split(), "-o", folder / name])
        for name, words in variants.items()
    ]
    assert [process.wait() for process in started] == [0] * len(variants)
    return folder


def run(
    folder: Path, *words: str, sizes: str = "1,4K,70001", backend: str = "auto"
) -> tuple[int, str, list[CopyTime]]:
    """Exit status, standard error, and the rows of a run of the command."""
    csv = folder / "out.csv"
    command = ("bench", "memcpy", "--microbench", str(program()), "--sizes", sizes, *words)
    options = ("--backend", backend, "--csv", str(csv), "--db", str(folder / "m.db"))
    done = collscope(*command, "--budget", "0.001", *options)
    rows = list(memcpy_csv.parse(csv.read_text()).copies) if csv.exists() else []
    return done.code, done.err, rows


# The CSV


def test_rows_are_read_with_every_column() -> None:
    found = memcpy_csv.parse(TEXT)
    assert found.diagnostics == ()
    peer, opened, failed = found.copies
    assert peer == CopyTime(
        "peer_async", 4096, "memcpy", 0, 0, 1, "one", "peer", 2.0, 1.0, 4.0, 1.0, 60, 2.048, 0,
        "all", "ok", None, "NVIDIA H200", "cuda 12.4", "n1", "2026-01-31T12:00:00Z", 4,
        (4.0, 1.0, 2.0),
    )  # fmt: skip
    assert (opened.kind, opened.time_us_median, opened.bandwidth_gbps) == ("ipc_open", 1000.0, None)
    assert (failed.status, failed.message, failed.src_device) == ("failed", "out of memory", None)
    assert (failed.time_us_median, failed.n_wrong, failed.samples_us) == (None, None, ())


def test_bandwidth_is_that_of_size_and_time() -> None:
    lied = TEXT.replace(",60,2.048,", ",60,9999,")
    assert memcpy_csv.parse(lied).copies[0].bandwidth_gbps == pytest.approx(4096 / 2e-6 / 1e9)


@pytest.mark.parametrize(
    ("old", "new", "code", "rows"),
    [
        ("# collscope.memcpy_csv/1", "# collscope.memcpy_csv/2", "other_version", 0),
        (HEADER, "# no header", "no_header", 0),
        (
            ",ok,,NVIDIA H200,cuda 12.4,n1,2026",
            ",fine,,NVIDIA H200,cuda 12.4,n1,2026",
            "torn_row",
            2,
        ),
        (OPEN, OPEN[:30], "torn_row", 2),
        (",4096,2,1,", ",4096,two,1,", "bad_number", 2),
        (",4;1;2", ",4;x;2", "bad_number", 2),
        (",peer,4096,", ",peer,,", "bad_number", 2),
    ],
)
def test_bad_content_costs_itself_alone(old: str, new: str, code: str, rows: int) -> None:
    found = memcpy_csv.parse(TEXT.replace(old, new))
    assert [d.code for d in found.diagnostics] == [code]
    assert found.diagnostics[0].severity in (Severity.DATA_LOSS, Severity.ERROR)
    assert len(found.copies) == rows


@given(st.text(max_size=60), st.integers(0, len(TEXT)), st.integers(0, 40))
def test_no_content_raises(noise: str, at: int, cut: int) -> None:
    memcpy_csv.parse(TEXT[:at] + noise + TEXT[at + cut :])


@given(st.integers(0, len(TEXT)))
def test_a_cut_keeps_the_rows_before_it(at: int) -> None:
    whole = memcpy_csv.parse(TEXT).copies
    found = memcpy_csv.parse(TEXT[:at]).copies
    assert found == whole[: max(0, TEXT[:at].count("\n") - 3)]


def test_the_store_has_every_row_and_sample(tmp_path: Path) -> None:
    (tmp_path / "h200.csv").write_text(TEXT)
    db, path = str(tmp_path / "m.db"), str(tmp_path / "h200.csv")
    for words, expected in (
        (("csv", path), "3 copies, 3 samples"),
        (("csv", path), "already in this run"),
        (("auto", path, "--run", "again"), "3 copies, 3 samples"),
    ):
        done = collscope("ingest", *words, "--db", db)
        assert expected in done.out, done.out + done.err
    connection = sqlite3.connect(db)
    query = "SELECT kind, src_device, dst_device, bandwidth_gbps, status, line FROM copies"
    assert connection.execute(query + " WHERE run = 'main' ORDER BY copy_id").fetchall() == [
        ("peer_async", 0, 1, 2.048, "ok", 4),
        ("ipc_open", 0, 1, None, "ok", 5),
        ("h2d_pinned", None, 1, None, "failed", 6),
    ]
    query = "SELECT ordinal, time_us FROM copy_samples WHERE run = 'again' ORDER BY ordinal"
    assert connection.execute(query).fetchall() == [(0, 4.0), (1, 1.0), (2, 2.0)]
    connection.close()


# The report


def copy(kind: str, size: int, us: float, src: int | None, dst: int | None, **more: object) -> str:
    """A row of the CSV."""
    row = {
        "label": "x",
        "round": 0,
        "kind": kind,
        "src_device": src,
        "dst_device": dst,
        "direction": "one",
        "size_bytes": size,
        "time_us_median": us,
        "status": "ok",
        **more,
    }
    return ",".join("" if (v := row.get(name)) is None else str(v) for name in HEADER.split(","))


def rendered(rows: list[str], fmt: str = "text") -> str:
    return render_copies(build_copies(memcpy_csv.parse("\n".join((HEADER, *rows, ""))).copies), fmt)


def test_the_table_has_the_three_ways_of_a_pair() -> None:
    rows = [
        copy("peer_async", 1 << 20, 14.3203, 0, 1, access="peer"),
        copy("peer_sync", 1 << 20, 19.0275, 0, 1, access="peer"),
        copy("peer_async", 1 << 20, 20.0, 0, 1, access="peer", direction="both"),
        copy("peer_async", 1 << 20, 10.0, 1, 0, access="peer"),
        copy("ipc_sync_open", 1 << 20, 8266.75, 0, 1),
        copy("ipc_open", 1 << 20, 1003.53, 0, 1),
        copy("ipc_close", 1 << 20, 133.93, 0, 1),
    ]
    text = rendered(rows)
    # 1 MiB of the p2p document: 0.0143203 ms, 73.22 GB/s; 0.0190275 ms, 55.11; 8.26675 ms, 0.1268.
    assert "From GPU 0 to GPU 1, peer access enabled" in text
    (line,) = [line.split() for line in text.splitlines() if " 0.01432 " in line]
    assert line == ["1", "MiB", "0.01432", "73.22", "0.01903", "55.11", "8.267", "0.1268", "52.43"]
    assert "from 0      -  73.22" in text
    assert "from 1  104.9      -" in text
    handle = [line.split() for line in text.splitlines() if "1004" in line]
    assert handle == [["1", "MiB", "1004", "133.9", "-", "-", "8267"]]


def test_rounds_are_one_row_and_the_worst_status_shows() -> None:
    rows = [copy("within_async", 1000, us, 0, 0, round=i) for i, us in enumerate((1.0, 4.0, 2.0))]
    (row,) = build_copies(memcpy_csv.parse("\n".join((HEADER, *rows, ""))).copies).rows
    assert (row.time_ns, row.bandwidth_gbps, row.rounds) == (2000.0, 0.5, 3)
    rows.append(copy("within_async", 1000, 1.0, 0, 0, round=3, status="wrong", n_wrong=7))
    (row,) = build_copies(memcpy_csv.parse("\n".join((HEADER, *rows, ""))).copies).rows
    assert (row.time_ns, row.status, row.n_wrong) == (
        2000.0,
        "wrong",
        7,
    )  # the time is of the others
    rows.append(copy("within_async", 1000, 9.0, 0, 0, round=4, status="timeout"))
    (row,) = build_copies(memcpy_csv.parse("\n".join((HEADER, *rows, ""))).copies).rows
    assert (row.time_ns, row.status, row.rounds) == (2000.0, "wrong", 5)
    text = rendered(rows)
    assert "Not measured, or wrong" in text
    assert "7 bytes wrong" in text


def test_the_order_of_rows_does_not_matter() -> None:
    rows = [copy("peer_async", 1 << k, 1.0 * k, a, 1 - a) for k in range(12, 16) for a in (0, 1)]
    mixed = rows.copy()
    random.Random(1).shuffle(mixed)
    assert rendered(rows) == rendered(mixed)


# Real runs


def by_kind(rows: list[CopyTime]) -> dict[str, int]:
    return {kind: sum(r.kind == kind for r in rows) for kind in {r.kind for r in rows}}


def test_host_copies_are_measured_and_right(tmp_path: Path) -> None:
    status, err, rows = run(tmp_path, backend="host")
    assert status == 0, err
    copied = {"memcpy", "window_sync", "window_sync_open", "send_recv_async", "send_recv_sync"}
    assert by_kind(rows) == dict.fromkeys((*copied, "window_open", "window_close"), 3)
    assert {(r.status, r.n_wrong) for r in rows if r.kind in copied} == {("ok", 0)}
    assert {(r.status, r.n_wrong) for r in rows if r.kind not in copied} == {("ok", None)}
    assert {r.size_bytes for r in rows} == {1, 4096, 70001}
    assert all(r.samples_us and r.time_us_min == min(r.samples_us) for r in rows)
    assert all((r.time_us_min or 0) <= (r.time_us_median or 0) for r in rows)


def test_gpu_copies_of_every_kind(tmp_path: Path, fakes: Path) -> None:
    status, err, rows = run(tmp_path, "--runtime", str(fakes / "libcudart.so"))
    assert status == 0, err
    # Of each of 3 sizes: 2 ordered pairs and one both ways; 2 GPUs.
    expected = {"peer_async": 9, "peer_sync": 9, "within_async": 6, "within_sync": 6}
    expected |= dict.fromkeys(("h2d_pinned", "h2d_pageable", "d2h_pinned", "d2h_pageable"), 6)
    kinds = ("ipc_open", "ipc_close", "ipc_async", "ipc_sync", "ipc_sync_open")
    assert by_kind(rows) == expected | dict.fromkeys(kinds, 3)
    assert {r.status for r in rows} == {"ok"}
    assert {r.n_wrong for r in rows if r.kind not in memcpy_csv.HANDLES} == {0}
    assert {r.access for r in rows if r.kind.startswith("peer_")} == {"peer"}
    assert {r.runtime for r in rows} == {"cuda 12.4"}
    pairs = {(r.src_device, r.dst_device, r.direction) for r in rows if r.kind == "peer_sync"}
    assert pairs == {(0, 1, "one"), (1, 0, "one"), (0, 1, "both")}


def test_a_copy_that_loses_a_byte_is_wrong(tmp_path: Path, fakes: Path) -> None:
    words = ("--runtime", str(fakes / "libcudart-torn.so"), "--only", "peer,ipc")
    status, err, rows = run(tmp_path, *words, sizes="4096")
    assert status == 6
    assert "wrong bytes arrived" in err
    found = {(r.kind, r.direction): (r.status, r.n_wrong) for r in rows}
    # Reading it back loses the last byte too: no less than one of each copy.
    assert found["peer_async", "one"] == ("wrong", 1)
    assert found["peer_sync", "both"] == ("wrong", 2)
    assert found["ipc_sync_open", "one"] == ("wrong", 1)
    assert found["ipc_open", "one"] == ("ok", None)


def test_a_size_that_does_not_fit_keeps_the_rest(tmp_path: Path, fakes: Path) -> None:
    words = ("--runtime", str(fakes / "libcudart-one.so"))
    status, err, rows = run(tmp_path, *words, sizes="99999,100001")
    assert status == 0, err
    assert {r.status for r in rows if r.size_bytes == 99_999} == {"ok"}
    refused = [r for r in rows if r.size_bytes == 100_001]
    assert {r.status for r in refused} == {"failed"}
    assert all("cudaMalloc" in (r.message or "") for r in refused)
    # One GPU: nothing between GPUs, but handles of its memory between processes.
    assert not any(r.kind.startswith("peer_") for r in rows)
    assert {(r.src_device, r.dst_device) for r in rows if r.kind == "ipc_sync"} == {(0, 0)}


def test_a_runtime_that_lacks_functions_is_no_failure(tmp_path: Path, fakes: Path) -> None:
    status, err, rows = run(tmp_path, "--runtime", str(fakes / "libamdhip64.so"), sizes="4096")
    assert status == 0, err
    skipped = {r.kind: r.message for r in rows if r.status == "skipped"}
    assert skipped["ipc_open"] == "hipIpcGetMemHandle: not available"
    assert skipped["h2d_pinned"] == "hipHostMalloc: not available"
    assert {r.status for r in rows if r.kind in ("peer_async", "d2h_pageable")} == {"ok"}
    assert {r.access for r in rows if r.kind == "peer_async"} == {"none"}


def test_pairs_and_groups_choose(tmp_path: Path, fakes: Path) -> None:
    words = ("--runtime", str(fakes / "libcudart.so"), "--pairs", "1:0", "--only", "peer,ipc")
    status, err, rows = run(tmp_path, *words, "--rounds", "2", sizes="64")
    assert status == 0, err
    assert {(r.src_device, r.dst_device) for r in rows} == {(1, 0)}
    assert {r.kind.split("_")[0] for r in rows} == {"peer", "ipc"}
    assert {r.round for r in rows} == {0, 1}


def test_json_follows_its_schema_and_csv_has_every_row(tmp_path: Path) -> None:
    program()
    (tmp_path / "a.csv").write_text(TEXT)
    report = build_copies(memcpy_csv.parse(TEXT).copies)
    schema = json.loads((ROOT / "schemas" / "memcpy.schema.json").read_text())
    jsonschema.validate(json.loads(render_copies(report, "json")), schema)
    assert len(render_copies(report, "csv").splitlines()) == 4
    assert "| 4 KiB |" in render_copies(report, "md")
    with pytest.raises(UsageError):
        render_copies(report, "pdf")


def test_a_group_that_the_host_lacks_is_named(tmp_path: Path) -> None:
    status, err, rows = run(tmp_path, "--only", "host", backend="host")
    assert (status, rows) == (2, [])
    assert "--only host: not available here" in err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"sizes": "4K..1K"}, UsageError),
        ({"sizes": "0"}, UsageError),
        ({"pairs": "0-1"}, UsageError),
        ({"pairs": "1:1"}, UsageError),
        ({"only": "gpu"}, UsageError),
        ({"program": Path("nowhere")}, MissingToolError),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: dict[str, object], error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        measure_copies(CopyRequest(**words), Target(tmp_path / "m.db", "main"))  # type: ignore[arg-type]
    assert not (tmp_path / "m.db").exists()


def test_devices_and_files_that_are_not_there(tmp_path: Path, fakes: Path) -> None:
    path = program()
    runtime = str(fakes / "libcudart.so")
    target = Target(tmp_path / "m.db", "main")
    for request in (
        CopyRequest("64", "0:7", backend="cuda", runtime=runtime, program=path),
        CopyRequest("64", backend="cuda", runtime="/nowhere/libcudart.so", program=path),
    ):
        with pytest.raises(MissingToolError, match="Nothing was measured"):
            measure_copies(request, target)
    missing = Target(tmp_path / "m.db", "main", tmp_path / "no" / "out.csv")
    with pytest.raises(InputError, match="no such folder"):
        measure_copies(CopyRequest("64", program=path), missing)
    other = tmp_path / "kept.csv"
    other.write_text(TEXT)
    with pytest.raises(MissingToolError):
        measure_copies(
            CopyRequest("64", "0:7", runtime=runtime, program=path),
            Target(target.db, "main", other),
        )
    assert other.read_text() == TEXT


def test_a_killed_benchmark_keeps_its_rows(tmp_path: Path) -> None:
    csv = tmp_path / "out.csv"
    words = ("memcpy", "--csv", str(csv), "--sizes", "64," * 200 + "64", "--backend", "host")
    process = subprocess.Popen(
        [launchers()[0], "-n", "2", program(), *words], stdout=subprocess.DEVNULL
    )
    while process.poll() is None and (not csv.exists() or csv.read_text().count("\n") < 12):
        time.sleep(0.01)
    process.kill()
    process.wait()
    found = memcpy_csv.parse(csv.read_text())
    assert len(found.copies) > 2
    assert {r.status for r in found.copies} == {"ok"}
