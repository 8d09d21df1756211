"""Ranks of a launcher that read for the first one, and end at any moment."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Listener
from pathlib import Path

import pytest
from views import view_rows

from collscope.errors import UnreadableError
from collscope.ingest import commands
from collscope.ingest.parts import Job, read_part
from collscope.ingest.progress import Reading
from collscope.ingest.ranks import LostRankError, Ranks
from collscope.ingest.workers import Workers

_KEY = b"key"
_RANK = (
    "import sys; from multiprocessing.connection import Client;"
    " from collscope.ingest.ranks import serve;"
    " serve(Client(('127.0.0.1', int(sys.argv[1])), authkey=b'key'))"
)


@contextmanager
def ranks(count: int) -> Iterator[tuple[Ranks, list[subprocess.Popen[bytes]]]]:
    """An executor of processes, and these; all have ended at the end."""
    with Listener(("127.0.0.1", 0), authkey=_KEY) as listener:
        command = [sys.executable, "-c", _RANK, str(listener.address[1])]
        processes = [subprocess.Popen(command) for _ in range(count)]
        with Ranks() as executor:
            for _ in processes:
                executor.add(listener.accept())
            yield executor, processes
        for process in processes:
            process.wait()


_DIE = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def test_a_rank_that_is_killed_fails_its_task_alone() -> None:
    with ranks(2) as (executor, processes):
        with pytest.raises(LostRankError):
            executor.submit(exec, _DIE).result()
        found = [executor.submit(pow, 2, k) for k in range(20)]
        assert [future.result() for future in found] == [2**k for k in range(20)]
    assert sorted(process.returncode for process in processes) == [-signal.SIGKILL, 0]


def test_tasks_that_nobody_is_left_for_fail() -> None:
    with ranks(1) as (executor, _):
        futures = [executor.submit(exec, _DIE), executor.submit(pow, 2, 2)]
        with pytest.raises(LostRankError):
            futures[0].result()
        with pytest.raises(BrokenExecutor):
            futures[1].result()
        with pytest.raises(BrokenExecutor):
            executor.submit(pow, 2, 3)


def test_an_error_of_a_task_is_that_of_its_caller(tmp_path: Path) -> None:
    job = Job("log", "main", None, (), str(tmp_path))
    with ranks(1) as (executor, _):
        with pytest.raises(UnreadableError, match=r"none\.log"):
            executor.submit(read_part, job, str(tmp_path / "none.log")).result()
        assert executor.submit(pow, 2, 2).result() == 4


@pytest.mark.parametrize("left", [0, 1])
def test_ranks_that_are_killed_cost_a_notice(samples: Path, tmp_path: Path, left: int) -> None:
    """With `left` of two ranks the store is that of one process."""
    logs = [str(log) for log in sorted((samples / "nccl" / "mixed").glob("*.log"))]
    commands.ingest_logs(logs, tmp_path / "one.db", "main")
    with ranks(2) as (executor, processes):

        class Dying(Workers):
            def submit(self, *given: object) -> object:  # type: ignore[override]
                future = super().submit(*given)  # type: ignore[arg-type]
                for process in processes[left:]:
                    with suppress(ProcessLookupError):
                        process.kill()
                return future

        dying = Dying(lambda: executor, 2, lasting=True)
        results = commands.ingest_logs(logs, tmp_path / "ranks.db", "main", Reading(workers=dying))
    assert [r.status for r in results if r.status != "matched"] == ["added"] * 4
    assert view_rows(tmp_path / "ranks.db") == view_rows(tmp_path / "one.db")
    (notice,) = (d for r in results for d in r.diagnostics if d.code == "worker_lost")
    assert 1 <= notice.count <= 2 - left
