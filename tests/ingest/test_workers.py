"""Files read by workers give the store that one process makes, whoever the workers are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from shutil import which

import pytest
from command import collscope
from views import view_rows

from collscope.ingest import commands, parts
from collscope.ingest.progress import Reading
from collscope.ingest.workers import Workers, workers


@pytest.fixture
def mixed(samples: Path, tmp_path: Path) -> list[Path]:
    """Files of many kinds, an archive, a damaged file and two of nothing."""
    folder = tmp_path / "in"
    folder.mkdir()
    logs = sorted((samples / "nccl" / "mixed").glob("*.log"))
    (folder / "cut.log").write_bytes(logs[3].read_bytes()[:-1000])
    (folder / "nothing.txt").write_text("nothing\n")
    (folder / "empty.log").write_text("")
    subprocess.run(
        ["tar", "cf", folder / "two.tar", "-C", logs[0].parent, *(p.name for p in logs[1:3])],
        check=True,
    )
    return [
        logs[0], folder, *sorted((samples / "traces" / "default").iterdir()),
        samples / "recorders" / "ddp.fr.rank0.json", samples / "profiles" / "synthetic.rpd",
        samples / "tables" / "synthetic.osu-gpu.txt", samples / "replay" / "h200x4-mixed.csv",
    ]  # fmt: skip


def alone(tmp_path: Path, kind: str, paths: list[Path]) -> tuple[str, dict[str, list[str]]]:
    """What one process prints, and its views."""
    done = collscope("ingest", kind, *paths, "--db", tmp_path / "one.db", "--jobs", "1")
    assert done.code == 0
    return done.out, view_rows(tmp_path / "one.db")


@pytest.mark.parametrize("kind", ["auto", "log", "trace"])
def test_processes(tmp_path: Path, mixed: list[Path], kind: str) -> None:
    out, views = alone(tmp_path, kind, mixed)
    db = tmp_path / "jobs.db"
    done = collscope("ingest", kind, *mixed, "--db", db, "--jobs", "2")
    assert (done.code, done.err, done.out) == (0, "", out)
    assert view_rows(db) == views
    again = collscope("ingest", kind, *mixed, "--db", db, "--jobs", "2")
    assert again.out == collscope("ingest", kind, *mixed, "--db", tmp_path / "one.db").out
    assert view_rows(db) == views


def test_steps_and_collectives_reach_the_workers(samples: Path, tmp_path: Path) -> None:
    traces = sorted((samples / "traces" / "default").iterdir())
    options = ("--steps", "2", "--collective", "elementwise=AllReduce")
    for name, jobs in (("one.db", "1"), ("two.db", "2")):
        words = ("--db", tmp_path / name, "--jobs", jobs)
        assert collscope("ingest", "trace", *traces, *words, *options).code == 0
    assert view_rows(tmp_path / "two.db") == view_rows(tmp_path / "one.db")


class Dying(Workers):
    """Workers of which one is killed, by -9, as soon as it reads."""

    def submit(self, *given: object) -> Future[parts.LogPart]:
        future = super().submit(*given)
        if not self.killed:
            self.killed = True
            for one in self._executor._begun:  # type: ignore[union-attr]
                for process in one._processes or ():
                    with suppress(ProcessLookupError):  # it has ended
                        os.kill(process, signal.SIGKILL)
        return future

    killed = False


def test_a_worker_that_is_killed_costs_a_notice(samples: Path, tmp_path: Path) -> None:
    logs = sorted((samples / "nccl" / "mixed").glob("*.log"))
    _, views = alone(tmp_path, "log", logs)
    with workers(2, None, launched=False) as found:
        assert found is not None
        dying = Dying(found._make, 2)
        results = commands.ingest_logs(
            [str(log) for log in logs], tmp_path / "two.db", "main", Reading(workers=dying)
        )
        dying.close()
    assert [r.status for r in results] == ["added"] * 4 + ["matched"]
    assert "worker_lost" in [d.code for d in results[-1].diagnostics]
    assert view_rows(tmp_path / "two.db") == views


def test_workers_that_always_die_leave_the_files_to_the_writer(
    samples: Path, tmp_path: Path
) -> None:
    class AllDying(Dying):
        @property  # type: ignore[override]
        def killed(self) -> bool:
            return False

        @killed.setter
        def killed(self, _: bool) -> None:
            pass

    logs = sorted((samples / "nccl" / "mixed").glob("*.log"))
    _, views = alone(tmp_path, "log", logs)
    with workers(2, None, launched=False) as found:
        assert found is not None
        dying = AllDying(found._make, 2)
        commands.ingest_logs(
            [str(log) for log in logs], tmp_path / "two.db", "main", Reading(workers=dying)
        )
        dying.close()
    assert view_rows(tmp_path / "two.db") == views


def test_ranks_of_mpi(tmp_path: Path, mixed: list[Path]) -> None:
    pytest.importorskip("mpi4py")
    launcher = Path(sys.executable).with_name("mpiexec")
    if not launcher.exists() and not which("mpiexec"):
        pytest.skip("no mpiexec")
    out, views = alone(tmp_path, "auto", mixed)
    command = [sys.executable, "-m", "collscope", "ingest", "auto", *mixed]
    done = subprocess.run(
        [launcher, "-n", "3", *command, "--db", tmp_path / "mpi.db"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, out)
    assert view_rows(tmp_path / "mpi.db") == views


@pytest.fixture
def cluster() -> Iterator[str]:
    """Address of a Dask scheduler with two workers, each a process."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", protocol="tcp"
    ) as local:
        yield local.scheduler_address


def test_workers_of_dask(tmp_path: Path, mixed: list[Path], cluster: str) -> None:
    out, views = alone(tmp_path, "auto", mixed)
    done = collscope("ingest", "auto", *mixed, "--db", tmp_path / "dask.db", "--dask", cluster)
    assert (done.code, done.out) == (0, out)
    assert view_rows(tmp_path / "dask.db") == views


def test_a_worker_of_dask_that_is_killed_costs_nothing(
    samples: Path, tmp_path: Path, cluster: str
) -> None:
    logs = sorted((samples / "nccl" / "mixed").glob("*.log"))
    traces = sorted((samples / "traces" / "default").iterdir())
    files = [str(path) for path in (*logs, *traces)]
    one = collscope("ingest", "auto", *files, "--db", tmp_path / "one.db", "--jobs", "1")
    assert one.code == 0
    distributed = pytest.importorskip("distributed")
    with distributed.Client(cluster) as client, workers(None, cluster, launched=False) as found:
        assert found is not None
        processes = list(client.run(os.getpid).values())

        class Killing(Workers):
            """One of the workers is killed, by -9, once all of them have files to read."""

            submitted = 0

            def submit(self, *given: object) -> Future[parts.LogPart]:
                future = super().submit(*given)
                self.submitted += 1
                if self.submitted == len(processes):
                    os.kill(processes[0], signal.SIGKILL)
                return future

        killing = Killing(found._make, found.width, lasting=True)
        results = commands.ingest_auto(
            files, tmp_path / "dask.db", "main", Reading(workers=killing)
        )
        killing.close()
        assert killing.submitted >= len(files)
    assert [r.status for r in results if r.status != "matched"] == ["added"] * len(files)
    assert view_rows(tmp_path / "dask.db") == view_rows(tmp_path / "one.db")


def test_jobs_and_dask_exclude_each_other(tmp_path: Path) -> None:
    done = collscope("ingest", "log", ".", "--jobs", "2", "--dask", "tcp://nowhere:1")
    assert (done.code, "Choose one" in done.err) == (2, True)
