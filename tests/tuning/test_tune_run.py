"""`collscope tune` end to end: installed replayer, mpiexec, our plugin, and two small libraries.

They stand in for CUDA and NCCL (tests/native/tune); the time they take depends on the settings.

Their AllReduce takes 15 us + S / 200 GB/s with Ring/Simple, 8 us + S / 100 GB/s with Ring/LL128,
3 us + S / 10 GB/s with Tree/LL. By itself the library takes Tree/LL to 64 KiB and Ring/Simple
beyond, so that 256 KiB take 16.3 us where Ring/LL128 would take 10.6.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import Outcome, collscope, rows
from inputs import ROOT

from collscope.programs import installed_replayer, launchers
from collscope.tuning import csv_format, optimizer_csv
from collscope.tuning.csv_format import TunerCall
from collscope.tuning.plugin import installed_plugin

_SOURCES = ROOT / "tests" / "native" / "tune"
_PLAN = """collscope-plan 1
mode unique
nranks 2
comm 0 0-1
class 0 op=AllReduce datatype=Float32 redop=Sum count=1024 in_place=1 comms=0
class 1 op=AllReduce datatype=Float32 redop=Sum count=65536 in_place=1 calls=5 comms=0
class 2 op=AllReduce datatype=Float32 redop=Sum count=1048576 in_place=1 comms=0
class 3 op=AllGather datatype=Float32 count=32768 comms=0
"""


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Options that name the built libraries."""
    compiler = shutil.which("mpicxx", path=str(Path(sys.executable).parent)) or shutil.which(
        "mpicxx"
    )
    if compiler is None or installed_replayer() is None or not launchers():
        pytest.skip("no mpicxx, collscope-replayer or mpiexec")
    if installed_plugin() is None:
        pytest.skip("no tuner plugin in this installation")
    folder = tmp_path_factory.mktemp("tune-libraries")
    for file, stem in (("libcudart.so.12", "runtime"), ("libnccl.so.2", "collective")):
        source = "fake_runtime.cpp" if stem == "runtime" else "fake_nccl.cpp"
        subprocess.run(
            [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-I", ROOT / "native" / "replayer",
             "-o", folder / file, _SOURCES / source, _SOURCES / f"{stem}_stubs.cpp"],
            check=True, timeout=120,
        )  # fmt: skip
    nccl, runtime = str(folder / "libnccl.so.2"), str(folder / "libcudart.so.12")
    return ("--library", nccl, "--runtime", runtime)


class Tune(msgspec.Struct, frozen=True):
    """Runs the command on the plan in a folder."""

    folder: Path
    libraries: tuple[str, ...]

    @property
    def db(self) -> Path:
        return self.folder / "t.db"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def arguments(self, *more: str) -> list[str]:
        plan = self.folder / "a.plan"
        plan.write_text(_PLAN)
        fixed = ("--plan", str(plan), "--budget", "1e-4", "--db", str(self.db))
        return ["tune", *fixed, "--out", str(self.out), *self.libraries, *more]

    def __call__(self, *more: str) -> Outcome:
        return collscope(*self.arguments(*more))

    def evidence(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "evidence.json").read_text())
        return found


@pytest.fixture
def tune(tmp_path: Path, libraries: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Tune:
    for name in [n for n in os.environ if n.startswith(("NCCL_", "COLLSCOPE_TUNER"))]:
        monkeypatch.delenv(name)
    return Tune(tmp_path, libraries)


def _tuned(tune: Tune, class_id: int) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in tune.evidence()["classes"] if c["class_id"] == class_id)
    return found


def test_from_the_default_with_settings_that_fail(tune: Tune) -> None:
    done = tune(
        "--candidate", "hangs:NCCL_NTHREADS=1", "--timeout", "1", "--step-ms", "0.5",
        "--label", "x ", "--try", "ring/ll128,tree/ll128,nvls/simple",
    )  # fmt: skip
    assert done.code == 0
    assert "Tuned: confirmed" in done.out
    found = tune.evidence()
    outcomes = {s["name"]: s["outcome"] for s in found["settings"]}
    assert outcomes["tree/ll128"].startswith("dropped: WRONG RESULTS")
    assert "invalid usage" in outcomes["nvls/simple"]
    assert "within 1 s" in outcomes["hangs"]
    assert outcomes["tree/ll"] == "left out: not named by --try"
    assert "setting 'tree/ll128' is given up: WRONG RESULTS" in done.err
    _check_rows(tune)
    _check_schema(found)
    # 256 KiB: from 15 + 0.26 / 0.2 us to 8 + 0.26 / 0.1 us, five calls
    middle = _tuned(tune, 1)
    assert middle["present_ns"] == pytest.approx(16.31e3, rel=0.01)
    assert middle["tuned_ns"] == pytest.approx(10.62e3, rel=0.01)
    saved = found["gain"]["saved_ns"]
    gathered = _tuned(tune, 3)
    also = gathered["present_ns"] - gathered["tuned_ns"]
    assert saved == pytest.approx(5e3 * (16.31 - 10.62) + also, rel=0.03)
    assert found["gain"]["step"] == pytest.approx(saved / 500e3, rel=1e-6)
    labels = rows(tune.db, "SELECT DISTINCT label FROM measurements ORDER BY label")
    assert labels == [("x present",), ("x tuned",)]
    compared = collscope("compare", "x present", "x tuned", "--db", tune.db)
    assert compared.code == 0


def _check_schema(found: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "schemas" / "tune.schema.json").read_text())
    jsonschema.validate(found, schema)


def _check_rows(tune: Tune) -> None:
    """What a job gets: rows that parse everywhere, and say Ring/LL128 where that is faster."""
    read = csv_format.parse((tune.out / "tuner.csv").read_text())
    assert read.diagnostics == ()
    by_size = {
        size: next((r for r in read.rows if r.matches(TunerCall(read.rows[-1].op, size, 2))), None)
        for size in (4096, 262144, 4194304)
    }
    assert by_size[4096] is None
    assert by_size[4194304] is None
    row = by_size[262144]
    assert row is not None
    assert (row.algorithm, row.protocol) == ("ring", "ll128")
    measured = optimizer_csv.parse((tune.out / "measurements.csv").read_text())
    assert measured.rows
    assert measured.diagnostics == ()
    assert not any((r.algorithm, r.protocol) == ("tree", "ll128") for r in measured.rows)
    sourced = subprocess.run(
        ["sh", "-c", f". '{tune.out}/tuned.env'; env"],
        env={"NCCL_ALGO": "Tree", "PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "NCCL_ALGO" not in sourced.stdout
    assert f"COLLSCOPE_TUNER_CSV={tune.out}/tuner.csv" in sourced.stdout


@pytest.mark.parametrize("bad", ["NCCL_ALGO=Tree", "NCCL_MAX_CTAS=2"])
def test_out_of_a_bad_setting(tune: Tune, bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Told by an option, or found in the shell, from which ranks would inherit it.
    name, value = bad.split("=")
    given = ["--env", bad] if name == "NCCL_ALGO" else []
    if not given:
        monkeypatch.setenv(name, value)
    done = tune(*given, "--try", "ring/ll128")
    assert done.code == 0, done.err
    found = tune.evidence()
    origin = "--env" if given else "shell"
    assert found["present"] == [{"name": name, "value": value, "origin": origin}]
    assert found["outcome"] == "tuned"
    assert name in found["unset"]
    for c in found["classes"]:
        assert c["tuned_ns"] <= 1.02 * c["default_ns"]
    large = _tuned(tune, 2)
    assert large["default_ns"] < 0.5 * large["present_ns"]
    # what is measured as the default has no knob at all
    text = (tune.out / "confirm.csv").read_text()
    assert f"{name}={value}" in text
    parts = text.split("# collscope-replay: 1\n")
    default = [part for part in parts if "\n# label: default\n" in f"\n{part}"]
    assert default
    assert not any("NCCL_" in line for part in default for line in part.splitlines()
                   if line.startswith("# environment"))  # fmt: skip


def test_a_row_that_does_not_hold_is_taken_back(tune: Tune) -> None:
    done = tune("--env", "FAKE_ROWS_SLOW=gather", "--try", "ring/ll128")
    assert done.code == 0
    found = tune.evidence()
    assert found["outcome"] == "tuned"
    assert found["kept"] == [["FAKE_ROWS_SLOW", "gather"]]
    assert (
        "Slower in the confirmation, so left to the library: AllGather of 262144 bytes" in done.out
    )
    assert {r["op"] for r in found["rows"]} == {"AllReduce"}
    assert "allgather" not in (tune.out / "tuner.csv").read_text()
    # five calls of 256 KiB; the AllGather counts as it is with the default
    assert found["gain"]["saved_ns"] == pytest.approx(5e3 * (16.31 - 10.62), rel=0.03)


def test_a_row_that_gains_nothing_is_taken_back(tune: Tune) -> None:
    done = tune("--env", "FAKE_ROWS_IDLE=gather", "--try", "ring/ll128")
    assert done.code == 0
    found = tune.evidence()
    assert found["outcome"] == "tuned"
    said = "Gain not confirmed, so left to the library: AllGather of 262144 bytes"
    assert said in done.out
    assert {r["op"] for r in found["rows"]} == {"AllReduce"}


def test_a_result_that_does_not_hold_is_withdrawn(tune: Tune) -> None:
    done = tune("--env", "FAKE_ROWS_SLOW=all", "--try", "ring/ll128")
    assert done.code == 0
    found = tune.evidence()
    assert found["outcome"] == "not confirmed"
    assert (found["rows"], found["environment"], found["unset"]) == ([], [], [])
    assert not (tune.out / "tuner.csv").exists()
    assert not (tune.out / "tuned.env").exists()


def test_not_worth_it(tune: Tune) -> None:
    done = tune("--step-ms", "500")
    assert done.code == 0
    assert "Not worth it: at most 0.0" in done.out
    assert tune.evidence()["launches"] == 1
    assert not (tune.out / "tuner.csv").exists()


def test_ctrl_c_keeps_what_was_measured(tune: Tune) -> None:
    program = "from collscope.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program,
         *tune.arguments("--candidate", "hangs:NCCL_NTHREADS=1", "--timeout", "300")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # The first rows of the first setting are in the file: then comes the one that hangs, or others.
    csv = tune.out / "replay.csv"
    limit = threading.Event()
    for _ in range(600):
        if csv.exists() and csv.read_text().count("AllGather") >= 2:
            break
        limit.wait(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "tune: interrupted" in err
    found = tune.evidence()
    assert found["outcome"] == "interrupted"
    assert found["tried"]
    assert not (tune.out / "tuned.env").exists()


def test_a_variable_that_the_job_does_not_set_reaches_no_rank(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    assert tune("--step-ms", "500").code == 0
    assert "NCCL_NVLS_ENABLE=0" in (tune.out / "replay.csv").read_text()
    assert tune("--step-ms", "500", "--env", "NCCL_NVLS_ENABLE=").code == 0
    # An empty value is a setting too.
    assert "NCCL_NVLS_ENABLE" not in (tune.out / "replay.csv").read_text()


def test_an_error_on_the_way_keeps_the_evidence_and_no_unconfirmed_rows(tune: Tune) -> None:
    tune.out.mkdir()
    earlier = {name: f"earlier {name}" for name in ("evidence.json", "tuned.env", "tuner.csv")}
    for name, text in earlier.items():
        (tune.out / name).write_text(text)
    replayer = tune.folder / "replayer"
    replayer.write_text(
        f'#!/bin/sh\n[ -z "$NCCL_TUNER_PLUGIN" ] || exit 5\nexec {installed_replayer()} "$@"\n'
    )
    replayer.chmod(0o755)
    done = tune("--try", "ring/ll128", "--replayer", str(replayer))
    assert done.code == 5, done.err
    assert "ended with status 5 for setting 'tuned'" in done.err
    found = tune.evidence()
    assert (found["outcome"], found["rows"], found["unset"]) == ("interrupted", [], [])
    assert found["tried"]
    assert not (tune.out / "tuner.csv").exists()
    _check_schema(found)
    aside = tune.out / "earlier"
    assert {path.name: path.read_text() for path in aside.iterdir()} == earlier
    assert f"Results of the earlier tune are in {aside}." in " ".join(done.out.split())
    # One that ends at once puts them back, and keeps no later tune from this folder.
    replayer.write_text("#!/bin/sh\nexit 5\n")
    assert tune("--replayer", str(replayer)).code == 5
    assert {path.name: path.read_text() for path in tune.out.iterdir()} == earlier
    assert tune("--step-ms", "500").code == 0
    assert {path.name for path in tune.out.iterdir()} == {"evidence.json", "replay.csv"}
    assert tune.evidence()["outcome"] == "not worth it"


def test_a_result_that_the_job_applies_is_not_replaced(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune.out.mkdir()
    for name in ("evidence.json", "tuner.csv"):
        (tune.out / name).write_text(name)
    monkeypatch.setenv("COLLSCOPE_TUNER_CSV", str(tune.out / "tuner.csv"))
    done = tune()
    assert (done.code, done.out) == (2, "")
    assert "the job's COLLSCOPE_TUNER_CSV (shell) names" in done.err
    assert (tune.out / "tuner.csv").read_text() == "tuner.csv"
    assert not (tune.out / "earlier").exists()


def test_files_of_others_are_left_alone(tune: Tune) -> None:
    tune.out.mkdir()
    (tune.out / "replay.csv").write_text("of a replay")
    done = tune()
    assert (done.code, "Name another folder with --out" in done.err) == (3, True)
    assert (tune.out / "replay.csv").read_text() == "of a replay"
    (tune.out / "replay.csv").unlink()
    tune.db.write_text("no store")
    done = tune()
    assert (done.code, str(tune.db) in done.err) == (3, True)
    assert not list(tune.out.iterdir())


def test_only_files_of_tune_are_named(tune: Tune) -> None:
    tune.out.mkdir()
    (tune.out / "notes.txt").write_text("mine")
    done = tune("--step-ms", "500")
    assert "Files: evidence.json, replay.csv." in done.out


def test_without_a_gpu_there_is_nothing_to_tune(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [a for a in tune.arguments() if a not in tune.libraries]
    done = collscope(*arguments, "--backend", "host")
    assert (done.code, done.out) == (5, "")
    assert "--backend host has no settings to tune" in done.err
    # A replayer that finds no library, and one that finds no device
    for said in (
        "cuda: unusable: NCCL: libnccl.so.2 not found.",
        "cuda GPUs: no usable GPU: no CUDA-capable device is detected",
    ):
        replayer = tmp_path / "replayer"
        replayer.write_text(f"#!/bin/sh\necho '{said}'\nexit 5\n")
        replayer.chmod(0o755)
        done = collscope(*arguments, "--replayer", str(replayer))
        assert (done.code, done.out) == (5, "")
        assert "tune: NCCL and RCCL find no usable GPU here" in done.err
        assert done.err.count("\n") == 1
    assert not tune.out.exists()


@pytest.mark.parametrize("step_ms", ["0", "-1", "nan", "inf"])
def test_a_step_takes_time(tmp_path: Path, step_ms: str) -> None:
    done = collscope("tune", "--db", tmp_path / "t.db", "--dry-run", "--step-ms", step_ms)
    assert (done.code, done.out) == (2, "")
    assert f"step time of {step_ms} ms: not the time of a step. Give more than 0." in done.err


def test_a_dry_run_tells_the_settings_and_starts_nothing(samples: Path, tmp_path: Path) -> None:
    """The mixed sample: nccl 2.28.9 on one node of 4 ranks, with NCCL_NVLS_ENABLE=0."""
    db, out = tmp_path / "t.db", tmp_path / "out"
    assert collscope("ingest", "log", samples / "nccl" / "mixed", "--db", db).code == 0
    words = ("tune", "--db", db, "--out", out, "--dry-run", "--replayer", tmp_path / "none")
    done = collscope(*words, "--time-limit", "60", "--format", "json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    _check_schema(found)
    assert (found["outcome"], found["library"], found["launches"]) == ("dry run", "nccl 2.28.9", 0)
    outcomes = {
        s["name"]: (s["outcome"].partition(":")[0], s["classes"]) for s in found["settings"]
    }
    # 14 classes: 4 AllReduce; 2 AllGather, ReduceScatter, Broadcast, Reduce, which Tree does not
    # serve; 5 of Send and Recv, which have no algorithms.
    assert outcomes["present"] == ("reference", 14)
    assert outcomes["ring/ll"] == ("to be tried", 9)
    assert outcomes["tree/ll128"] == ("to be tried", 4)
    assert outcomes["p2p channels 8"] == ("to be tried", 5)
    assert outcomes["nvls/simple"] == ("left out", 0)
    (nvls,) = (s["outcome"] for s in found["settings"] if s["name"] == "nvls/simple")
    assert nvls == (
        "left out: NVLS is switched off (AllReduce, ReduceScatter, AllGather); unsupported by"
        " nvls (Broadcast, Reduce); not for point-to-point calls (SendRecv, AllToAll, Gather,"
        " AllToAllv, Scatter)"
    )
    # One of the survey; 9 settings and 2 x 3 of channels, 9 + 15/2 + 3 x 15/4 + 5 = 33 of the
    # search; present and tuned three times each. 40 launches of 14 x 0.05 s.
    assert "about 40 launches: 1 for the survey, at most 33 for the search, 6 for" in found["why"]
    assert "up to 28 s of timed calls" in found["why"]
    assert "ends after 60 s" in found["why"]
    assert not out.exists()
    assert collscope(*words, "--backend", "host").code == 5


def test_a_dry_run_tells_what_traces_show_of_the_setting(samples: Path, tmp_path: Path) -> None:
    """They tell no variables: nobody knows whether the job sets any. Grids of the samples: 1 and 24
    blocks."""
    db = tmp_path / "t.db"
    assert collscope("ingest", "trace", samples / "traces" / "default", "--db", db).code == 0
    assert (
        collscope("ingest", "log", samples / "nccl" / "mixed", "--db", db, "--run", "log").code == 0
    )
    traced = " ".join(collscope("tune", "--db", db, "--dry-run").out.split())
    assert "Present setting: unknown, since no log holds the job's variables." in traced
    assert "In the traces, a collective's kernel has 1 to 24 thread blocks." in traced
    given = collscope("tune", "--db", db, "--dry-run", "--env", "NCCL_MAX_CTAS=2").out
    assert "Present setting: NCCL_MAX_CTAS=2 (--env)." in given
    logged = collscope("tune", "--db", db, "--dry-run", "--run", "log").out
    assert "Present setting: the library default, no knob is set." in logged
    assert "thread block" not in logged


def test_a_dry_run_names_classes_as_the_report_does(samples: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    assert collscope("ingest", "log", samples / "nccl" / "mixed", "--db", db).code == 0
    with sqlite3.connect(db) as connection:
        rows = connection.execute("SELECT class_id, op, size_bytes FROM classes").fetchall()
    words = ("tune", "--db", db, "--dry-run", "--format", "json")
    classes = json.loads(collscope(*words).out)["classes"]
    assert sorted((c["class_id"], c["op"], c["size_bytes"]) for c in classes) == sorted(rows)
    # The plan numbers from 0 on, as replay.csv does.
    assert [c["plan_id"] for c in classes] == list(range(14))
    (only,) = json.loads(collscope(*words, "--only", "13").out)["classes"]
    assert only["class_id"] == 13


def test_bad_words(tune: Tune, tmp_path: Path) -> None:
    for words, code, text in (
        (["--candidate", "a"], 2, "sets nothing"),
        (["--candidate", "=1"], 2, "no label before the colon"),
        (["--candidate", "a:X=1", "--candidate", "a:X=2"], 2, "named twice"),
        (["--candidate", "tuned:X=1"], 2, "the name is taken"),
        (["--candidate", "a:library=/x"], 2, "replay --variant"),
        (["--system", "nonsense"], 3, "nonsense"),
        (["--try", "ring/ll256"], 2, "--try ring/ll256: unknown"),
        (["--out", str(tmp_path / "a.plan" / "x")], 3, "Name a folder with --out"),
    ):
        done = tune(*words)
        assert (done.code, text in done.err) == (code, True), done.err


def test_json_is_the_evidence(tune: Tune) -> None:
    done = tune("--step-ms", "500", "--format", "json")
    document = json.loads(done.out)
    assert document["schema"] == "collscope.tune/2"
    _check_schema(document)
    evidence = tune.evidence()
    for name in ("took_ns", "files"):
        document.pop(name)
        evidence.pop(name)
    assert document == evidence
