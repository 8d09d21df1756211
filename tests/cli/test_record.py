"""`collscope record` runs a small program that logs as the library does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import collscope, rows
from inputs import ROOT

from collscope import doctor
from collscope.cli.record import _options
from collscope.ingest.record import RecordOptions, environment
from collscope.programs import installed_recorder

# Writes a log of two calls where NCCL_DEBUG_FILE says, then ends as its argument says.
JOB = """
import os, signal, sys, time
pid = os.getpid()
if "quiet" not in sys.argv:
    name = os.environ["NCCL_DEBUG_FILE"].replace("%h", "node").replace("%p", str(pid))
    with open(name, "w") as log:
        for call in range(2):
            log.write(
                f"node:{pid}:{pid} [0] NCCL INFO AllReduce: opCount {call:x} sendbuff 0x7f0 "
                "recvbuff 0x7f0 count 1024 datatype 7 op 0 root 0 comm 0x55 [nranks=1] "
                "stream 0x1\\n"
            )
print("job:", os.environ["NCCL_DEBUG"], os.environ.get("RCCL_KERNEL_COLL_TRACE_ENABLE"), flush=True)
if sys.argv[1] == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
    print("ready", flush=True)
    time.sleep(60)
if sys.argv[1] == "killed":
    os.kill(pid, signal.SIGKILL)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def command(tmp_path: Path, job: Path, *arguments: str) -> list[str]:
    """A run of record in a process of its own: the job shares its output."""
    start = [sys.executable, "-m", "collscope", "record", "--out", str(tmp_path / "files")]
    return [*start, "--db", str(tmp_path / "a.db"), *arguments, "--", sys.executable, str(job)]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_job_is_logged_ingested_and_reported(tmp_path: Path, job: Path) -> None:
    done = run(*command(tmp_path, job), "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("job: INFO None\n")
    assert "collscope report, run main" in done.stdout
    assert "1 file, 0.0 MB" in done.stderr
    assert "The job ended" not in done.stderr
    assert rows(tmp_path / "a.db", "SELECT op, count FROM calls") == [("AllReduce", 1024)] * 2


@pytest.mark.parametrize(("how", "code"), [("7", 7), ("killed", 128 + signal.SIGKILL)])
def test_the_exit_code_is_the_jobs(tmp_path: Path, job: Path, how: str, code: int) -> None:
    done = run(*command(tmp_path, job, "--kernel-trace"), how)
    assert done.returncode == code
    assert "job: INFO 1\n" in done.stdout
    assert "2 calls in 1 class" in done.stdout
    assert done.stderr.endswith(f"collscope: The job ended with exit code {code}.\n")


def test_signals_reach_the_job(tmp_path: Path, job: Path) -> None:
    words = [*command(tmp_path, job), "wait"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            pass
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
    assert process.returncode == 42
    assert "2 calls in 1 class" in rest


def test_a_job_without_collectives_keeps_its_exit_code(tmp_path: Path, job: Path) -> None:
    done = run(*command(tmp_path, job), "5", "quiet")
    assert done.returncode == 5
    assert "Does it use NCCL or RCCL" in done.stderr
    assert "MB a minute" not in done.stderr
    assert not (tmp_path / "files").exists()
    assert not (tmp_path / "a.db").exists()


def test_a_run_that_holds_another_job_is_pointed_out(tmp_path: Path, job: Path) -> None:
    def said(folder: str, *words: str, run: str = "main") -> str:
        start = (
            "record",
            "--out",
            tmp_path / folder,
            "--db",
            tmp_path / "a.db",
            "--run",
            run,
            "--",
        )
        return collscope(*start, sys.executable, job, *words).err

    assert "--run NAME" not in said("files", "0")
    # A job that logs nothing is added to no run.
    assert "--run NAME" not in said("more", "0", "quiet")
    assert "run 'main' of" in said("more", "0")
    assert "--run NAME" not in said("apart", "0", run="b")


def test_what_cannot_be_run(tmp_path: Path) -> None:
    start = ("record", "--out", tmp_path / "files", "--db", tmp_path / "a.db", "--")
    done = collscope(*start, tmp_path / "nothing")
    assert done.code == 5
    assert "Check the command after --" in done.err
    assert not (tmp_path / "files").exists()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "old").write_text("x")
    done = collscope(*start, sys.executable, "-c", "")
    assert done.code == 3
    assert "not empty. Name a new folder with --out." in done.err


def test_environment() -> None:
    folder = Path("logs")
    plain = environment({"NCCL_DEBUG": "WARN", "A": "1"}, folder, RecordOptions())
    assert plain["NCCL_DEBUG"] == "INFO"
    assert plain["A"] == "1"
    assert plain["NCCL_DEBUG_FILE"] == str(folder / "log.%h.%p")
    assert "COLL" in plain["NCCL_DEBUG_SUBSYS"].split(",")
    assert not [name for name in plain if name.startswith(("RCCL", "NCCL_INSPECTOR"))]
    more = environment({"NCCL_DEBUG": "trace"}, folder, RecordOptions(True, True))
    assert more["NCCL_DEBUG"] == "TRACE"
    assert more["RCCL_KERNEL_COLL_TRACE_ENABLE"] == "1"
    assert more["NCCL_INSPECTOR_ENABLE"] == "1"


RECORDED = """
import os, shutil, sys
if "quiet" not in sys.argv:
    shutil.copytree(sys.argv[1], os.environ["COLLSCOPE_RECORDER_DIR"])
if "NCCL_DEBUG_FILE" in os.environ:
    name = os.environ["NCCL_DEBUG_FILE"].replace("%h", "node").replace("%p", "1")
    with open(name, "w") as log:
        log.write(
            "node:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f0 recvbuff 0x7f0 count 1024 "
            "datatype 7 op 0 root 0 comm 0x55 [nranks=1] stream 0x1\\n"
        )
print(os.environ["NCCL_PROFILER_PLUGIN"], os.environ["COLLSCOPE_RECORDER_LEVEL"], flush=True)
"""


@pytest.fixture
def recorded_job(tmp_path: Path) -> tuple[Path, Path]:
    """A job that leaves the sample behind, as a library with the plugin does; its two arguments."""
    if installed_recorder() is None:
        pytest.skip("the recorder was not built")
    source = tmp_path / "sample"
    source.mkdir()
    for path in (ROOT / "samples/recorders").glob("*.collrec"):
        (source / path.name).write_bytes(path.read_bytes())
    job = tmp_path / "recorded.py"
    job.write_text(RECORDED)
    return job, source


def test_recordings_are_read_and_their_cost_is_shown(
    tmp_path: Path, recorded_job: tuple[Path, Path]
) -> None:
    job, source = recorded_job
    done = run(*command(tmp_path, job, "--level", "all", "--log"), str(source))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{installed_recorder()} all\n")
    # 2 × 680 000 ns of 68 callbacks: the totals of the two samples.
    assert "The recorder used 20000 ns of the job's threads per event" in done.stderr
    assert "The log was not read" in done.stderr
    assert rows(tmp_path / "a.db", "SELECT COUNT(*) FROM calls") == [(7,)]


def test_without_a_recording_the_log_is_read(
    tmp_path: Path, recorded_job: tuple[Path, Path]
) -> None:
    job, source = recorded_job
    done = run(*command(tmp_path, job, "--level", "all", "--log"), str(source), "quiet")
    assert "the log was read instead" in done.stderr
    assert rows(tmp_path / "a.db", "SELECT op, count FROM calls") == [("AllReduce", 1024)]


def test_without_a_recording_and_a_log_the_way_out_is_named(
    tmp_path: Path, recorded_job: tuple[Path, Path]
) -> None:
    job, source = recorded_job
    done = run(*command(tmp_path, job, "--level", "calls"), str(source), "quiet")
    assert "Run it with --log as well" in done.stderr
    assert not (tmp_path / "files").exists()


@pytest.mark.parametrize("words", [["--level", "off"], ["--level", "all", "--inspector"]])
def test_levels_that_record_nothing_are_refused(
    tmp_path: Path, job: Path, words: list[str]
) -> None:
    assert run(*command(tmp_path, job, *words), "0").returncode == 2


def test_another_plugin_of_the_job_is_kept_and_the_log_is_read(
    tmp_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed_recorder() is None:
        pytest.skip("the recorder was not built")
    monkeypatch.setenv("NCCL_PROFILER_PLUGIN", "inspector")
    done = run(*command(tmp_path, job, "--level", "all"), "0")
    assert "NCCL_PROFILER_PLUGIN is inspector. A process loads one profiler plugin" in done.stderr
    assert "run the job twice" in done.stderr
    assert rows(tmp_path / "a.db", "SELECT op, count FROM calls") == [("AllReduce", 1024)] * 2


@pytest.mark.parametrize(
    ("library", "words", "logged"),
    [
        (("NCCL", "2.28.9"), [], False),
        (("NCCL", "2.30.3"), ["NCCL 2.30.3 may crash", "--level calls"], False),
        (("NCCL", "2.19.3"), ["NCCL 2.19.3 has no profiler interface"], True),
        (("RCCL", "2.30.4"), ["RCCL_DDA_ENABLE=0", "lower bounds"], True),
    ],
)
def test_what_the_library_at_hand_does_with_the_recorder(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    library: tuple[str, str],
    words: list[str],
    logged: bool,
) -> None:
    if installed_recorder() is None:
        pytest.skip("the recorder was not built")
    monkeypatch.setattr(doctor, "collective_libraries", lambda: (library,))
    monkeypatch.delenv("NCCL_PROFILER_PLUGIN", raising=False)
    options = _options("sampled", None, kernel_trace=False, inspector=False)
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == []
    assert bool(said) is bool(words)
    assert (options.log, options.recorder) == (logged, installed_recorder())
    assert _options("calls", False, kernel_trace=False, inspector=False).log is False
