"""Paths of test inputs. Data that is not part of the repository makes a test skip by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent
_SHARED = Path(os.environ.get("COLLSCOPE_SHARED", _ROOT.parent / "shared"))
_RECORDINGS = "recordings/h200x4-nccl2.28.9-torch2.11"
# Ranks that wait for each other take a core each, so of these files one test runs at a time.
_MPI = {
    "test_bench_interference.py",
    "test_bench_memcpy.py",
    "test_bench_p2p.py",
    "test_replay_launch.py",
    "test_replayer.py",
    "test_tune_run.py",
}


# First: xdist reads the marks in a hook of the same name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start ranks go to one worker, one after the other (`--dist loadgroup`)."""
    for item in items:
        if item.path.name in _MPI:
            item.add_marker(pytest.mark.xdist_group("mpi"))


def _shared_folder(relative: str) -> Path:
    """`relative` below the shared folder; skips the test where it is absent."""
    folder = _SHARED / relative
    if not folder.is_dir():
        pytest.skip(f"no {relative} folder; set COLLSCOPE_SHARED to the folder that holds it")
    return folder


@pytest.fixture(scope="session")
def samples() -> Path:
    """Inputs shipped with the project."""
    return _ROOT / "samples"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Public data files of others, not shipped; the test skips where they are absent."""
    return _shared_folder("corpus")


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Untrimmed recordings behind samples/nccl; the test skips where they are absent."""
    return _shared_folder(_RECORDINGS)


@pytest.fixture
def db_path(tmp_path: Path) -> Path:
    """Path of a store that does not exist yet."""
    return tmp_path / "t.db"
