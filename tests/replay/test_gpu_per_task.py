"""Eight ranks over real MPI on a host with eight GPUs, by what each rank sees of them.

The GPUs are memory of the host, behind a HIP and a CUDA runtime that honour the variables by which
launchers hand GPUs out (tests/native/tune/fake_runtime.cpp). The replayer's CSV tells which GPUs
the ranks took.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Outcome, collscope
from inputs import ROOT

from collscope.programs import installed_replayer, launchers

_SOURCES = ROOT / "tests" / "native" / "tune"
_ALL = [f"GPU {number}" for number in range(8)]

Replay = Callable[..., Outcome]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with libamdhip64.so.6, libcudart.so.12, librccl.so.1 and libnccl.so.2."""
    compiler = shutil.which("mpicxx", path=str(Path(sys.executable).parent)) or shutil.which(
        "mpicxx"
    )
    if compiler is None or installed_replayer() is None or not launchers():
        pytest.skip("no mpicxx, collscope-replayer or mpiexec")
    folder = tmp_path_factory.mktemp("libraries")
    start = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-I", ROOT / "native/replayer"]
    runtime = [_SOURCES / "fake_runtime.cpp", _SOURCES / "runtime_stubs.cpp"]
    collective = [_SOURCES / "fake_nccl.cpp", _SOURCES / "collective_stubs.cpp"]
    for file, sources in (
        ("libcudart.so.12", runtime),
        ("libamdhip64.so.6", ["-DFAKE_PREFIX=hip", *runtime]),
        ("libnccl.so.2", collective),
    ):
        subprocess.run([*start, "-o", folder / file, *sources], check=True, timeout=120)
    shutil.copy(folder / "libnccl.so.2", folder / "librccl.so.1")
    return folder


@pytest.fixture
def replay(libraries: Path, tmp_path: Path) -> Replay:
    """Replays an AllReduce on eight ranks; `each` is a shell command before every rank starts."""

    def run(backend: str, each: str, *options: str) -> Outcome:
        rank = tmp_path / "rank"
        rank.write_text(f'#!/bin/sh\n{each}\nexec {installed_replayer()} "$@"\n')
        rank.chmod(0o755)
        files = {
            "cuda": ("libnccl.so.2", "libcudart.so.12"),
            "hip": ("librccl.so.1", "libamdhip64.so.6"),
        }[backend]
        return collscope(
            "replay", "--sweep", "allreduce:4K", "-n", "8", "--backend", backend, "--replayer",
            rank, "--library", libraries / files[0], "--runtime", libraries / files[1],
            "--db", tmp_path / "t.db", "--csv", tmp_path / "out.csv", "--budget", "1e-4", *options,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(
    ("backend", "each"),
    [
        ("hip", ""),  # every rank sees all eight
        ("hip", "export ROCR_VISIBLE_DEVICES=$PMI_RANK"),
        ("hip", "export HIP_VISIBLE_DEVICES=$((7 - PMI_RANK))"),
        # srun --gpus-per-task=1 with ROCR, and a job script that sets HIP besides.
        ("hip", "export ROCR_VISIBLE_DEVICES=$PMI_RANK HIP_VISIBLE_DEVICES=0"),
        ("cuda", "export CUDA_VISIBLE_DEVICES=$PMI_RANK"),
        # Two for each rank, of which it takes its first.
        ("cuda", "export CUDA_VISIBLE_DEVICES=$PMI_RANK,$(((PMI_RANK + 1) % 8))"),
    ],
)
def test_each_rank_takes_a_gpu_of_its_own(
    replay: Replay, tmp_path: Path, backend: str, each: str
) -> None:
    done = replay(backend, each)
    assert (done.code, done.err) == (0, "")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    (devices,) = [line for line in lines if line.startswith("# devices: ")]
    assert devices.removeprefix("# devices: ").split("; ") == _ALL


def test_instances_of_a_gpu_are_left_to_the_library(replay: Replay, tmp_path: Path) -> None:
    done = replay("cuda", "export CUDA_VISIBLE_DEVICES=MIG-$((PMI_RANK / 4))")
    assert (done.code, done.err) == (0, "")
    assert "# devices: GPU 0 MIG 1g.18gb; GPU 1 MIG 1g.18gb\n" in (tmp_path / "out.csv").read_text()


@pytest.mark.parametrize(
    ("backend", "each", "says"),
    [
        ("cuda", "export CUDA_VISIBLE_DEVICES=3", "8 GPUs are needed, but there is 1, which every"),
        (
            "hip",
            "export ROCR_VISIBLE_DEVICES=0,1,2",
            "8 GPUs are needed, but there are 3, which every",
        ),
        (
            "cuda",
            "export CUDA_VISIBLE_DEVICES=$((PMI_RANK / 2))",
            "processes 0 and 1 of this host would both take the GPU 0000:10:00.0",
        ),
    ],
)
def test_ranks_that_share_gpus_are_refused(
    replay: Replay, backend: str, each: str, says: str
) -> None:
    done = replay(backend, each)
    assert done.code == 5
    assert says in done.err
    assert "--gpus-per-task=1" in done.err


def test_a_process_that_sees_fewer_gpus_than_it_shall_drive(replay: Replay) -> None:
    done = replay("hip", "export ROCR_VISIBLE_DEVICES=$PMI_RANK", "--gpus-per-process", "4")
    assert done.code == 5
    assert "a process needs 4 GPUs but sees 1" in done.err
