"""Starting the replayer: launchers, ranks, variants, signals, results.

Where the launching alone is looked at, the program started is a small script; the replayer itself
runs on the host backend where it was built.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import collscope, rows
from msgspec.structs import replace
from replay_files import Sweep, write_replay

from collscope.doctor import diagnose
from collscope.errors import InputError, MissingToolError, UsageError
from collscope.model import Measurement, Op
from collscope.model.note import Note
from collscope.programs import installed_replayer, launchers
from collscope.replay import launch
from collscope.replay.host_limit import check_host_ranks, hosts_of
from collscope.replay.launch import Job, run_job
from collscope.replay.mpi import (
    LaunchedRank,
    Launcher,
    find_launcher,
    launch_command,
    launched,
    launcher_words,
)
from collscope.replay.plan import UNIQUE, Plan
from collscope.replay.results import oversubscription_note
from collscope.replay.scratch import write_plan
from collscope.replay.variants import Variant, parse_variant, parse_variants, schedule
from collscope.store.connection import open_store

PLAN = """\
collscope-plan 1
mode unique
nranks 4
comm 0 0-3
comm 1 0,2
comm 2 1,3
class 0 op=AllReduce datatype=Bfloat16 redop=Sum count=4096 in_place=1 calls=26 comms=1,2
class 1 op=Broadcast datatype=Float32 count=1024 root=0 in_place=1 calls=13 comms=0
class 2 op=AllGather datatype=Int32 count=512 calls=2 comms=0
"""
FAST = ("--backend", "host", "--budget", "0.02")
# A replayer that writes its rank and what it was given, and ends as the environment says.
SCRIPT = """\
#!/bin/sh
test -n "$HELD" && exec 3>"$HELD"
test -n "$ROWS" && test "$PMI_RANK" = 0 && cp "$ROWS" "$3"
echo "rank $PMI_RANK of $PMI_SIZE algo=$NCCL_ALGO $*" >&2
test "${DIE:-none}" = "$PMI_RANK" && kill -SEGV $$
test -n "$HANG" && exec sleep 600
exit ${STATUS:-0}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "hand.plan"
    path.write_text(PLAN)
    return path


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path


@pytest.fixture
def mpi() -> None:
    if not launchers():
        pytest.skip("no mpiexec")


@pytest.fixture
def replayer(mpi: None) -> None:
    if installed_replayer() is None:
        pytest.skip("collscope-replayer was not built with this installation")


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, None),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, LaunchedRank(2, 4)),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "1"},
            LaunchedRank(1, 2),
        ),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}, LaunchedRank(3, 8)),
        ({"PMIX_RANK": "3", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8"}, LaunchedRank(3, 8)),
        # A shell that salloc or sbatch started: one task, or none.
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "8"}, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),
    ],
)
def test_place_among_launched_ranks(
    environment: dict[str, str], place: LaunchedRank | None
) -> None:
    assert launched(environment) == place


def test_each_launcher_gets_its_own_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    mpiexec, settings = Path("mpiexec"), [("NCCL_ALGO", "Ring"), ("A", "b c")]
    hydra = launch_command(Launcher(mpiexec, "MPICH"), 4096, settings, root=True)
    assert hydra == ["mpiexec", "-n", "4096", "-genv", "NCCL_ALGO", "Ring", "-genv", "A", "b c"]
    many = launch_command(Launcher(mpiexec, "Open MPI"), 4096, settings, root=True)
    assert many == [
        "mpiexec", "-n", "4096", "--bind-to", "none", "--allow-run-as-root", "--oversubscribe",
        "-x", "NCCL_ALGO=Ring", "-x", "A=b c",
    ]  # fmt: skip
    few = launch_command(Launcher(mpiexec, "Open MPI"), 1, [], root=False)
    assert few == ["mpiexec", "-n", "1", "--bind-to", "none"]
    srun = launch_command(Launcher(Path("srun"), "Slurm"), 8, settings, root=True)
    assert srun == ["srun", "-n", "8", "--export=ALL"]
    asked = Launcher(Path("srun"), "Slurm", ("--gpus-per-node=8",))
    assert launch_command(asked, 8, [], root=False) == [
        "srun", "--gpus-per-node=8", "-n", "8", "--export=ALL",
    ]  # fmt: skip
    bound = Launcher(mpiexec, "Open MPI", ("--bind-to", "core"))
    assert launch_command(bound, 1, [], root=False) == ["mpiexec", "--bind-to", "core", "-n", "1"]


def test_launcher_is_told_by_what_it_prints(tmp_path: Path) -> None:
    path = tmp_path / "mpiexec"
    for text, name in (
        ("mpiexec (Open MPI) 5.0.11", "Open MPI"),
        ("slurm 23.11.4", "Slurm"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 20230619", "Intel MPI"),
    ):
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)
        assert find_launcher(str(path)) == Launcher(path, name)
        given = f"{path} --gpus-per-node=8 --comment 'two words'"
        arguments = ("--gpus-per-node=8", "--comment", "two words")
        assert find_launcher(given) == Launcher(path, name, arguments)
    path.write_text("#!/bin/sh\necho other 1.0\n")
    with pytest.raises(MissingToolError, match="--mpiexec"):
        find_launcher(str(path))
    blank = path.rename(tmp_path / "my mpiexec")
    blank.write_text("#!/bin/sh\necho slurm 23.11.4\n")
    assert find_launcher(str(blank)) == Launcher(blank, "Slurm")


def test_variants_take_commas_in_values_and_files_apart() -> None:
    text = "new:NCCL_IB_HCA=mlx5_0,mlx5_1,library=/opt/new/librccl.so,NCCL_ALGO=Ring"
    assert parse_variant(text) == Variant(
        "new", (("NCCL_IB_HCA", "mlx5_0,mlx5_1"), ("NCCL_ALGO", "Ring")), "/opt/new/librccl.so"
    )
    assert parse_variant("base:") == parse_variant("base") == Variant("base")
    for bad in ("", ":A=b", "A=b", "x:=b", "x:a b"):
        with pytest.raises(UsageError):
            parse_variant(bad)
    with pytest.raises(UsageError, match="twice"):
        parse_variants(["a:", "b:", "a:"])


@pytest.mark.parametrize(("name", "says"), [("t.db", "a store"), (".", "not a regular file")])
def test_a_csv_replaces_no_store(tmp_path: Path, name: str, says: str) -> None:
    db = tmp_path / "t.db"
    for _ in ("new", "there"):
        done = collscope(
            "replay", "-n", "1", "--sweep", "allreduce:4", *FAST, "--db", db, "--csv",
            tmp_path / name,
        )  # fmt: skip
        assert done.code == 3
        assert says in done.err
        assert "--csv" in done.err
        open_store(db).close()
    assert rows(db, "SELECT COUNT(*) FROM measurements") == [(0,)]


def test_variants_take_turns() -> None:
    a, b = Variant("a"), Variant("b")
    assert list(schedule([a, b], 2)) == [(1, a), (1, b), (2, a), (2, b)]


def test_ranks_are_started_with_their_environment(
    mpi: None, script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = Job(("plan", "--csv", "x"), 3, (("NCCL_ALGO", "Ring"),), script)
    assert run_job(job, None).status == 0
    lines = sorted(capfd.readouterr().err.splitlines())
    assert lines == [f"rank {rank} of 3 algo=Ring plan --csv x" for rank in range(3)]


def test_a_rank_that_dies_ends_the_others_and_is_named(
    mpi: None, script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = Job((), 3, (("DIE", "1"), ("HANG", "1")), script)
    ended = run_job(job, None)
    # Hydra may name the end of a rank that it killed in turn, or stumble over it (status 255).
    assert ended.signal in (signal.SIGSEGV, signal.SIGKILL) or ended.status == 255
    assert "BAD TERMINATION" not in capfd.readouterr().err


def test_a_terminal_is_told_how_far_a_job_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo, waiting = tmp_path / "fifo", tmp_path / "waiting"
    os.mkfifo(fifo)
    waiting.write_text(f"#!/bin/sh\nread word < {fifo}\necho $word\n")
    waiting.chmod(0o755)
    asked = 0

    def progress() -> str:
        nonlocal asked
        asked += 1
        if asked == 2:
            fifo.write_text("done\n")
        return f"{asked} rows"

    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(launch, "_PROGRESS_EVERY_S", 0.01)
    assert run_job(Job((), 1, program=waiting), None, progress).status == 0
    assert shown.getvalue().startswith("1 rows\r\x1b[K")
    assert "\r\x1b[Kdone\n" in shown.getvalue()
    quiet = io.StringIO()
    monkeypatch.setattr(sys, "stderr", quiet)
    assert run_job(Job((), 1, program=Path("/bin/true")), None, progress).status == 0
    assert quiet.getvalue() == ""


def test_statuses_of_ranks_are_kept(mpi: None, script: Path) -> None:
    assert run_job(Job((), 2, (("STATUS", "5"),), script), None).status == 5
    assert run_job(Job((), 1, (("STATUS", "5"),), script), None).status == 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_the_command(
    mpi: None, script: Path, plan: Path, tmp_path: Path, number: signal.Signals
) -> None:
    command = [
        sys.executable, "-m", "collscope", "replay", "--plan", plan, "--replayer", script,
        "--db", tmp_path / "t.db", "--csv", tmp_path / "t.csv",
    ]  # fmt: skip
    held = tmp_path / "held"  # every rank has it open for writing as long as it lives
    os.mkfifo(held)
    environment = {**os.environ, "HANG": "1", "HELD": str(held)}
    with (
        os.fdopen(os.open(held, os.O_RDONLY | os.O_NONBLOCK)) as alive,
        subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, text=True
        ) as process,
    ):
        assert process.stderr is not None
        for _ in range(4):  # every rank has said that it runs
            process.stderr.readline()
        os.set_blocking(alive.fileno(), True)
        process.send_signal(number)
        assert alive.read() == ""  # ends when no rank is left
        assert process.wait() != 0
    if number != signal.SIGKILL:
        assert {path.name for path in tmp_path.iterdir()} == {"hand.plan", "script", "held"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_replay_says_what_is_kept(
    mpi: None, script: Path, plan: Path, tmp_path: Path, number: signal.Signals
) -> None:
    finished = write_replay(
        tmp_path / "rows.csv", Sweep("replay", {1024: 9.0, 2048: 9.5}, rounds=1)
    )
    command = [
        sys.executable, "-m", "collscope", "replay", "--plan", plan, "--replayer", script,
        "--db", "t.db", "--csv", "t.csv",
    ]  # fmt: skip
    environment = {**os.environ, "HANG": "1", "ROWS": str(finished)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, env=environment, text=True, cwd=tmp_path
    ) as process:
        assert process.stderr is not None
        for _ in range(4):
            process.stderr.readline()
        process.send_signal(number)
        said = process.stderr.read()
    assert process.returncode == 130
    assert "2 finished measurements are kept in t.csv; go on with --resume." in said
    assert rows(tmp_path / "t.db", "SELECT COUNT(*) FROM measurements") == [(2,)]


def test_what_is_no_replayer_is_an_error(mpi: None, plan: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    outcome = collscope("replay", "--plan", plan, "--db", db, "--replayer", "/bin/true")
    assert (outcome.code, outcome.out) == (6, "")
    assert outcome.err.startswith("collscope: /bin/true: ended without a result.")
    assert not db.exists()


def test_ranks_that_share_cores_are_pointed_out() -> None:
    two = Measurement(Op.ALL_REDUCE, backend="host", nnodes=2)
    said = "4 ranks on 3 cores: the times show scheduling, not communication"
    expected = Note("ranks_share_cores", {"ranks": 4, "cores": 3}, said)
    assert oversubscription_note([two], 8, 3) == expected
    assert oversubscription_note([replace(two, nnodes=None)], 4, 3) == expected
    assert oversubscription_note([two], 8, 4) is None
    assert oversubscription_note([replace(two, backend="cuda")], 8, 1) is None
    assert oversubscription_note([], 8, 1) is None


def test_a_replay_on_too_few_cores_says_so(replayer: None, tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    command = ("replay", "--sweep", "broadcast:64", "--db", tmp_path / "t.db", *FAST)
    assert f"{cores + 1} ranks on {cores} core" in collscope(*command, "-n", str(cores + 1)).out
    assert "show scheduling" not in collscope(*command, "-n", "1").out


def test_more_ranks_than_a_host_serves_are_refused() -> None:
    check_host_ranks(64, 1, 2, 64 << 26)
    check_host_ranks(128, 2, 2, None)
    with pytest.raises(UsageError, match=r"65 ranks without.* serves 64 \(32 on each of 2 cores\)"):
        check_host_ranks(65, 1, 2, None)
    with pytest.raises(UsageError, match=r"65 ranks on each of 2 hosts .* at most 128 "):
        check_host_ranks(129, 2, 2, None)
    # 16 ranks of 64 MiB are 2^30 bytes.
    with pytest.raises(UsageError, match=r"serves 16 \(1.1 GB of free memory, 64 MiB a rank\)"):
        check_host_ranks(17, 1, 2, 1 << 30)
    assert hosts_of({}, ()) == 1
    assert hosts_of({"SLURM_JOB_NUM_NODES": "4"}, ("--gpus-per-node=8",)) == 4
    assert hosts_of({}, ("-hosts", "a,b")) is None
    assert hosts_of({"HYDRA_HOST_FILE": "hosts"}, ()) is None


@pytest.mark.parametrize("backend", ["host", "auto"])
def test_no_ranks_are_started_beyond_the_bound(mpi: None, tmp_path: Path, backend: str) -> None:
    started = tmp_path / "started"
    script = tmp_path / "script"  # knows of no GPU
    script.write_text(
        f"#!/bin/sh\ntest $1 = --probe && exec echo 'hip: unusable: none.'\necho >>{started}\n"
    )
    script.chmod(0o755)
    command = (
        "replay", "--sweep", "allreduce:4", "-n", "100000", "--replayer", script,
        "--db", tmp_path / "t.db", "--backend", backend,
    )  # fmt: skip
    outcome = collscope(*command)
    assert outcome.code == 2
    assert "100000 ranks without a GPU, but a host like this one serves" in outcome.err
    assert "--oversubscribe" in outcome.err
    assert not started.exists()
    # With it the ranks are started: here one, as the launcher says.
    one = tmp_path / "mpiexec"
    one.write_text('#!/bin/sh\ntest $1 = --version && exec echo slurm 1\nshift 3\nexec "$@"\n')
    one.chmod(0o755)
    collscope(*command, "--oversubscribe", "--mpiexec", one)
    assert started.read_text() == "\n"


def test_a_plan_that_finds_no_room_is_told_in_words() -> None:
    with pytest.raises(InputError, match=r"^/dev/full: No space left on device\. .*--csv"):
        write_plan(Plan(UNIQUE, 1, (), ()), Path("/dev/full"))


def test_a_scratch_folder_needs_no_room(tmp_path: Path) -> None:
    script = (
        "import pathlib, resource, signal, tempfile\n"
        "from collscope.replay.scratch import scratch_folder\n"
        "tempfile.gettempdir()\n"  # Python tries by writing whether it can write there
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "with scratch_folder(pathlib.Path('x.csv')): pass"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_plans_lie_in_the_working_folder(
    mpi: None, script: Path, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text('#!/bin/sh\nls -a "$(dirname "$1")" >&2\necho "$1" >&2\n')
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "collscope", "replay", "--plan", plan, "--replayer", script]
    done = subprocess.run(
        [*command, "--db", "t.db", "--only", "broadcast", "--scale-ranks", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert f"{tmp_path}/.collscope-replay-" in done.stderr
    assert "plan0" in done.stderr.splitlines()


def test_plan_by_hand_is_measured_and_verified(replayer: None, plan: Path, tmp_path: Path) -> None:
    db, csv = tmp_path / "t.db", tmp_path / "out.csv"
    outcome = collscope("replay", "--plan", plan, "--db", db, "--csv", csv, *FAST)
    assert (outcome.code, outcome.err) == (0, "")
    found = rows(
        db,
        "SELECT op, datatype, redop, root, count, size_bytes, in_place, nranks, nnodes, calls,"
        " n_wrong, checked, method, backend, label, status FROM measurements ORDER BY line",
    )
    end = (0, "all", "batch", "host", "replay", "ok")
    assert found == [
        ("AllReduce", "Bfloat16", "Sum", None, 4096, 8192, 1, 2, 1, 26, *end),
        ("Broadcast", "Float32", None, 0, 1024, 4096, 1, 4, 1, 13, *end),
        # 512 elements of 4 bytes from each of 4 ranks.
        ("AllGather", "Int32", None, None, 512, 8192, 0, 4, 1, 2, *end),
    ]
    assert rows(db, "SELECT * FROM diagnostics") == []
    figures = rows(
        db,
        "SELECT time_us_median, size_bytes, algbw_gbps, busbw_gbps, nranks, (SELECT COUNT(*) FROM"
        " measurement_samples s WHERE s.measurement_id = m.measurement_id) FROM measurements m",
    )
    for (time_us, size, algbw, busbw, _, samples), factor in zip(
        figures, (2 * 1 / 2, 1, 3 / 4), strict=True
    ):
        assert algbw == pytest.approx(size / time_us / 1e3)
        assert busbw == pytest.approx(algbw * factor)
        assert samples >= 1
    assert "AllGather" in outcome.out


def test_variants_are_measured_in_turns(replayer: None, plan: Path, tmp_path: Path) -> None:
    db, csv = tmp_path / "t.db", tmp_path / "out.csv"
    outcome = collscope(
        "replay", "--plan", plan, "--db", db, "--csv", csv, *FAST, "--variant", "a:NCCL_ALGO=Ring",
        "--variant", "b:", "--rounds", "2", "--only", "broadcast",
    )  # fmt: skip
    assert outcome.code == 0
    order = rows(db, "SELECT label, round FROM measurements ORDER BY line")
    assert order == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    environments = [line for line in csv.read_text().splitlines() if "environment:" in line]
    assert ["NCCL_ALGO=Ring" in line for line in environments] == [True, False, True, False]


def test_ranks_that_a_launcher_started_are_used(replayer: None, plan: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    command = [launchers()[0], "-n", "4", sys.executable, "-m", "collscope", "replay"]
    options = ["--plan", plan, "--db", db, "--csv", tmp_path / "out.csv", *FAST]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Replay\n") == 1
    assert rows(db, "SELECT COUNT(*), SUM(n_wrong), MAX(nranks) FROM measurements") == [(3, 0, 4)]


def test_a_launcher_that_fails_is_named(
    mpi: None, script: Path, plan: Path, tmp_path: Path
) -> None:
    srun = tmp_path / "srun"
    srun.write_text(
        "#!/bin/sh\ntest $1 = --version && exec echo slurm 1\n"
        "echo 'srun: error: none' >&2\nexit 1\n"
    )
    srun.chmod(0o755)
    done = collscope(
        "replay", "--plan", plan, "--replayer", script, "--mpiexec", f"{srun} -p none",
        "--db", tmp_path / "t.db",
    )  # fmt: skip
    assert done.code == 6
    assert "srun: error: none\n" in done.err
    assert "replay: srun ended with status 1, see above. Nothing was measured." in done.err
    assert "MPICH needs 'srun --mpi=pmi2', Open MPI 'srun --mpi=pmix'." in done.err


def test_a_rank_whose_mpi_cannot_start_is_told_the_pmi(
    script: Path, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # MPICH 5.0.2 under srun --mpi=pmix: "Runtime environment uses unsupported PMI version PMIx."
    script.write_text("#!/bin/sh\nexit 16\n")
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    done = collscope("replay", "--plan", plan, "--replayer", script, "--db", tmp_path / "t.db")
    assert done.code == 6
    assert "the replayer ended with status 16, see above. Nothing was measured. If MPI" in done.err
    assert "MPICH needs 'srun --mpi=pmi2'" in done.err


@pytest.mark.parametrize("rank", [0, 1])
def test_commands_that_start_ranks_say_so_once(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", str(rank))
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    for command in (("bench", "p2p", "-n", "2"), ("bench", "memcpy")):
        done = collscope(*command, "--db", tmp_path / "t.db")
        assert done.code == 2
        assert ("--mpiexec 'srun --mpi=pmi2'" in done.err) == (rank == 0)


def test_launched_ranks_speak_of_a_mistake_once(mpi: None, plan: Path, tmp_path: Path) -> None:
    command = [launchers()[0], "-n", "2", sys.executable, "-m", "collscope", "replay"]
    options = ["--plan", plan, "--db", tmp_path / "t.db"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("--scale-ranks 2") == 1


def test_nothing_to_resume_is_a_fresh_start(replayer: None, plan: Path, tmp_path: Path) -> None:
    db, csv = tmp_path / "t.db", tmp_path / "out.csv"
    command = ("replay", "--plan", plan, "--db", db, "--only", "broadcast", *FAST, "--resume")
    assert collscope(*command, "--csv", csv).code == 0
    assert "Broadcast" in csv.read_text()
    without = collscope(*command)
    assert without.code == 0
    assert "--resume without --csv: there are no earlier results" in without.out
    assert rows(db, "SELECT COUNT(*) FROM measurements") == [(2,)]


def test_resume_measures_what_is_missing(replayer: None, plan: Path, tmp_path: Path) -> None:
    db, csv = tmp_path / "t.db", tmp_path / "out.csv"
    command = ("replay", "--plan", plan, "--db", db, "--csv", csv, *FAST)
    assert collscope(*command).code == 0
    before = rows(db, "SELECT op, time_us_median FROM measurements ORDER BY line")
    # As a replay leaves it that died in its third class, with what reached the store then.
    csv.write_text("".join(csv.read_text().splitlines(keepends=True)[:-1]))
    db.unlink()
    assert collscope("ingest", "csv", csv, "--db", db).code == 0
    assert collscope(*command, "--resume").code == 0
    after = rows(db, "SELECT op, time_us_median FROM measurements ORDER BY line")
    assert [op for op, _ in after] == [op for op, _ in before]
    assert after[:2] == before[:2]
    assert rows(db, "SELECT COUNT(*) FROM sources") == [(1,)]


def test_results_of_another_plan_are_left_alone(replayer: None, plan: Path, tmp_path: Path) -> None:
    db, csv = tmp_path / "t.db", tmp_path / "out.csv"
    sweep = ("replay", "--sweep", "broadcast:64", "-n", "1", "--csv", csv, *FAST)
    assert collscope(*sweep, "--db", db).code == 0
    other = tmp_path / "other.db"
    outcome = collscope("replay", "--plan", plan, "--db", other, "--csv", csv, *FAST, "--resume")
    assert (outcome.code, outcome.out) == (3, "")
    assert "another plan" in outcome.err
    assert "--resume" not in outcome.err
    assert not other.exists()


def test_only_finished_classes_count_as_kept(replayer: None, tmp_path: Path) -> None:
    path = tmp_path / "large.plan"
    large = "class 1 op=Broadcast datatype=Int8 count=1000000000000000 root=0 comms=0\n"
    head = "collscope-plan 1\nmode unique\nnranks 1\ncomm 0 0\n"
    path.write_text(
        head + large.replace("1000000000000000", "8").replace("class 1", "class 0") + large
    )
    csv = tmp_path / "out.csv"
    outcome = collscope("replay", "--plan", path, "--db", tmp_path / "t.db", "--csv", csv, *FAST)
    assert outcome.code == 6
    assert "1 of 2 measurements failed" in outcome.err
    assert "1 finished measurement is kept in " in outcome.err


@pytest.mark.parametrize("mode", ["unique", "sequence"])
def test_sample_is_replayed_straight_from_its_logs(
    replayer: None, samples: Path, tmp_path: Path, mode: str
) -> None:
    db = tmp_path / "t.db"
    outcome = collscope(
        "replay", samples / "nccl" / "mixed", "--mode", mode, "--repeat", "1", "--db", db, *FAST,
        "--only", "allgather,alltoall,alltoallv,gather,scatter,reducescatter",
    )  # fmt: skip
    assert (outcome.code, outcome.err) == (0, "")
    assert "7 classes on host" in outcome.out
    ((count, wrong),) = rows(db, "SELECT COUNT(*), SUM(n_wrong) FROM measurements")
    assert wrong == 0
    assert isinstance(count, int)
    assert count == (8 if mode == "sequence" else 7)  # two classes of AllGather, and the Sequence
    sequences = rows(db, "SELECT COUNT(*) FROM measurements WHERE op = 'Sequence'")
    assert sequences == [(1 if mode == "sequence" else 0,)]
    assert rows(db, "SELECT COUNT(*) FROM calls") == [(0,)]  # the logs were read for the plan only


def test_fewer_ranks_are_refused_unless_scaled(replayer: None, plan: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    command = ("replay", "--plan", plan, "--db", db, *FAST)
    outcome = collscope(*command, "-n", "2")
    assert outcome.code == 2
    assert "--scale-ranks 2" in outcome.err
    assert collscope(*command, "-n", "2", "--scale-ranks", "2").code == 0
    assert rows(db, "SELECT DISTINCT scaled_from FROM measurements") == [(4,)]


def test_nine_columns_of_rccl_replayer(replayer: None, tmp_path: Path) -> None:
    db, csv = tmp_path / "t.db", tmp_path / "out.csv"
    outcome = collscope(
        "replay", "--sweep", "allgather:64K", "-n", "4", "--db", db, "--csv", csv, *FAST,
        "--csv-layout", "rccl_replayer",
    )  # fmt: skip
    assert outcome.code == 0
    ((time_us,),) = rows(db, "SELECT time_us_median FROM measurements")
    assert isinstance(time_us, float)
    header, line = csv.read_text().splitlines()
    assert header.startswith("callNumber, functionName, ")
    fields = line.split(", ")
    # 64 KiB over 4 ranks are 4096 floats each; bus bandwidth 3/4 of S/t.
    assert fields[:7] == ["1", "AllGather", "0", "4096", "Float32", "Sum", "0"]
    assert float(fields[8]) == pytest.approx(65536 / time_us / 1e3 * 0.75, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--backend", "cuda", "--library", "no-such-file.so"), 5, "--library"),
        (("--csv", "no-such-folder/out.csv"), 3, "no-such-folder"),
        (("--resume", "--csv", "x.csv", "--csv-layout", "rccl_replayer"), 2, "--csv"),
        (("--mpiexec", "'srun"), 2, "No closing quotation"),
        (("--mpiexec", "no-such-mpiexec"), 5, "no-such-mpiexec"),
        (("--replayer", "no-such-replayer"), 5, "no-such-replayer"),
        (("--env", "X"), 2, "NAME=VALUE"),
        (("--sweep", "allreduce:1K"), 2, "exclude each other"),
        (("--gpus-per-process", "3"), 2, "--gpus-per-process"),
        (("--graph", "--isolated"), 2, "exclude each other"),
        (("--mode", "sequence"), 2, "'mode sequence'"),
        (("--min-share", "2"), 2, "0 and 1"),
    ],
)
def test_failures_say_what_is_wrong_and_store_nothing(
    replayer: None, plan: Path, tmp_path: Path, options: tuple[str, ...], code: int, text: str
) -> None:
    db = tmp_path / "t.db"
    outcome = collscope("replay", "--plan", plan, "--db", db, *FAST, *options)
    assert outcome.code == code
    assert text in outcome.err
    assert "Traceback" not in outcome.err
    assert not db.exists()


def test_a_replayer_without_its_mpi_says_what_to_install(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library, program = tmp_path / "libmpi.so.12", tmp_path / "collscope-replayer"
    build = [compiler, "-x", "c", "-", "-o"]
    own = ["-shared", "-fPIC", "-Wl,-soname,libmpi.so.12"]
    subprocess.run([*build, library, *own], input=b"int MPI_Init(void) { return 0; }", check=True)
    called = b"int MPI_Init(void); int main(void) { return MPI_Init(); }"
    subprocess.run([*build, program, "-x", "none", library], input=called, check=True)
    library.unlink()
    monkeypatch.setattr("collscope.replay.launch.installed", lambda _name: program)
    outcome = collscope("replay", "--plan", plan, "--db", tmp_path / "t.db", *FAST)
    assert outcome.code == 5
    assert "libmpi.so.12" in outcome.err
    assert "pip install 'collscope[replay]'" in outcome.err


def test_doctor_names_the_replayer_and_its_version(replayer: None, tmp_path: Path) -> None:
    checks = {check.name: check for check in diagnose(tmp_path / "t.db")}
    assert checks["replayer"].found
    assert str(installed_replayer()) in checks["replayer"].detail


def test_dry_run_of_a_run_shows_the_ids_of_its_report(samples: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    assert collscope("ingest", "log", samples / "nccl" / "mixed", "--db", db).code == 0
    query = "SELECT class_id FROM classes WHERE datatype = 'Bfloat16' AND redop = 'Avg'"
    ((number,),) = rows(db, query)
    outcome = collscope("replay", "--db", db, "--dry-run", "--only", str(number))
    assert outcome.code == 0
    shown = [line.split()[1:4] for line in outcome.out.splitlines() if "AllReduce  -" in line]
    (planned,) = [line for line in outcome.out.splitlines() if line.startswith("class")]
    assert shown == [[str(number), planned.split()[1], "AllReduce"]]
    assert "redop=Avg" in planned


def test_dry_run_prints_a_plan_file(plan: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    outcome = collscope("replay", "--plan", plan, "--db", db, "--dry-run", "--only", "allreduce")
    assert outcome.code == 0
    assert "Expected time: 1 s" in outcome.out
    lines = [line for line in outcome.out.splitlines() if not line.startswith("#")]
    assert lines[:2] == ["collscope-plan 1", "mode unique"]
    assert [line for line in lines if line.startswith("class")] == [
        line for line in PLAN.splitlines() if "AllReduce" in line
    ]
    again = tmp_path / "again.plan"
    again.write_text(outcome.out)
    second = collscope("replay", "--plan", again, "--db", db, "--dry-run")
    assert second.out == outcome.out
    assert not db.exists()


def test_results_that_cannot_be_read_back_are_not_called_missing(
    plan: Path, tmp_path: Path, mpi: None
) -> None:
    """The disk fails between the replayer's last row and the reading of its CSV."""
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\ntest "${PMI_RANK:-0}" = 0 && ln -s "$3" "$3"\nexit 0\n')
    script.chmod(0o755)
    done = collscope(
        "replay", "--plan", plan, "--replayer", script, "--db", tmp_path / "t.db",
        "--csv", tmp_path / "t.csv", "--oversubscribe",
    )  # fmt: skip
    assert done.code == 3
    assert f"{tmp_path / 't.csv'}: Too many levels of symbolic links." in done.err
    assert "collscope-replayer" not in done.err


def _programs(folder: Path) -> tuple[Path, Path]:
    """Folders of two programs of one name, which write where they are; the second is in PATH."""
    here, in_path = folder / "here", folder / "bin"
    for place in (here, in_path):
        place.mkdir()
        program = place / "x"
        program.write_text(f"#!/bin/sh\necho started from {place} >&2\nexit 6\n")
        program.chmod(0o755)
    return here, in_path


@pytest.mark.parametrize("named", ["./x", "../here/x", "x"])
def test_a_program_is_the_file_that_is_named(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, in_path = _programs(tmp_path)
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", f"{in_path}:{os.environ['PATH']}")
    options = ("--sweep", "allreduce:4", "-n", "1", "--backend", "host", "--db", tmp_path / "t.db")
    done = collscope("replay", *options, "--replayer", named)
    started = in_path if named == "x" else here
    assert f"started from {started}" in done.err
    done = collscope("bench", "memcpy", "--db", tmp_path / "t.db", "--microbench", named)
    assert f"started from {started}" in done.err


def test_a_launcher_and_a_library_are_the_files_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, in_path = _programs(tmp_path)
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", f"{in_path}:{os.environ['PATH']}")
    assert launcher_words("./x -a ./b") == (here / "x", ("-a", "./b"))
    assert launcher_words("./x") == (here / "x", ())
    assert launcher_words("x") == (Path("x"), ())
    assert parse_variant("a:library=./lib.so,runtime=lib.so").library == str(here / "lib.so")
    assert parse_variant("a:library=./lib.so,runtime=lib.so").runtime == "lib.so"


def test_a_program_that_is_not_in_path_is_not_one_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = _programs(tmp_path)
    monkeypatch.chdir(here)
    options = ("--sweep", "allreduce:4", "-n", "1", "--backend", "host", "--db", tmp_path / "t.db")
    done = collscope("replay", *options, "--replayer", "x")
    assert (done.code, "x: not in PATH. Name a file, as in --replayer ./x." in done.err) == (
        5,
        True,
    )
