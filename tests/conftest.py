"""Paths of test inputs. Data that is not part of the repository makes a test skip by name."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from inputs import RECORDINGS, ROOT, SHARED

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

# A busy machine makes an example slow; no test asserts a time.
settings.register_profile("collscope", deadline=None)
settings.load_profile("collscope")

# A shell's background job, and nohup, ignore these, and so would every process that a test starts.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

# Text is as wide as this names; a test that wants a width sets it. readline, which pytest imports,
# sets it for processes that the tests start, beside `os.environ`.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

# Ranks that wait for each other take a core each, so of these files one test runs at a time.
_MPI = {
    "test_bench_interference.py",
    "test_bench_memcpy.py",
    "test_bench_p2p.py",
    "test_gpu_per_task.py",
    "test_replay_launch.py",
    "test_replayer.py",
    "test_tune_run.py",
}


# Of xdist, where it is there; its own groups need node ids that pytest 9.2 does not let it change.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Tests that start ranks go to one worker, one after the other."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "mpi" if Path(nodeid.partition("::")[0]).name in _MPI else nodeid

    return Scheduler(config, log)


def _shared_folder(relative: str) -> Path:
    """`relative` below the shared folder; skips the test where it is absent."""
    folder = SHARED / relative
    if not folder.is_dir():
        pytest.skip(f"no {relative} folder; set COLLSCOPE_SHARED to the folder that holds it")
    return folder


@pytest.fixture(scope="session")
def samples() -> Path:
    """Inputs shipped with the project."""
    return ROOT / "samples"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Public data files of others, not shipped; the test skips where they are absent."""
    return _shared_folder("corpus")


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Untrimmed recordings behind samples/nccl."""
    return RECORDINGS / "h200x4-nccl2.28.9-torch2.11"


@pytest.fixture(scope="session")
def recorded_jobs() -> Path:
    """Training jobs with traces and measured steps."""
    return RECORDINGS / "h200x4-jobs"


@pytest.fixture
def db_path(tmp_path: Path) -> Path:
    """Path of a store that does not exist yet."""
    return tmp_path / "t.db"
