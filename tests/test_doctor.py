"""doctor: versions out of texts and integers, and libraries that work, lie, crash or are absent.

The libraries are small real ones, compiled here and found through LD_LIBRARY_PATH.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from collscope import doctor, gpu_vendors
from collscope.doctor import Check

NCCL_2_28_9 = "int ncclGetVersion(int *v) { *v = 22809; return 0; }"
CUDA_TWO_GPUS = """
int cudaRuntimeGetVersion(int *v) { *v = 12090; return 0; }
int cudaGetDeviceCount(int *n) { *n = 2; return 0; }
"""
# cudart without a driver: error 35, and the count is left as it was.
CUDA_NO_DRIVER = """
int cudaRuntimeGetVersion(int *v) { *v = 13050; return 0; }
int cudaGetDeviceCount(int *n) { return 35; }
"""
HIP_NO_DEVICE = """
int hipRuntimeGetVersion(int *v) { *v = 50221153; return 0; }
int hipGetDeviceCount(int *n) { *n = 0; return 100; }
"""
RCCL_CRASHES = """
#include <stdlib.h>
__attribute__((constructor)) static void start(void) { abort(); }
int ncclGetVersion(int *v) { return 0; }
"""


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that the loader of child processes searches first."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    return tmp_path


def compile_library(path: Path, source: str) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    text = path.with_suffix(".c")
    text.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(path), str(text)], check=True)


def diagnosed(tmp_path: Path) -> dict[str, Check]:
    return {check.name: check for check in doctor.diagnose(tmp_path / "t.db")}


def test_library_versions_paths_and_devices(libraries: Path) -> None:
    compile_library(libraries / "libnccl.so.2", NCCL_2_28_9)
    compile_library(libraries / "libcudart.so.12", CUDA_TWO_GPUS)
    compile_library(libraries / "libamdhip64.so.5", HIP_NO_DEVICE)
    checks = diagnosed(libraries)
    assert checks["NCCL"] == Check("NCCL", True, f"2.28.9 ({libraries}/libnccl.so.2)")
    assert checks["CUDA runtime"].detail == f"12.9 ({libraries}/libcudart.so.12)"
    assert checks["CUDA devices"] == Check("CUDA devices", True, "2")
    assert checks["HIP runtime"].detail == f"5.2.21153 ({libraries}/libamdhip64.so.5)"
    assert checks["HIP devices"].found is False
    assert "no usable GPU" in checks["HIP devices"].detail


def test_the_recorder_is_held_against_the_library(libraries: Path) -> None:
    if not doctor.installed_recorder():
        pytest.skip("the recorder was not built")
    assert (
        "unknown whether the job's library supports it" in diagnosed(libraries)["recorder"].detail
    )
    compile_library(libraries / "libnccl.so.2", NCCL_2_28_9)
    check = diagnosed(libraries)["recorder"]
    path = doctor.installed_recorder()
    assert check == Check("recorder", True, f"{path} (NCCL 2.28.9 supports it as v5)")


@pytest.mark.parametrize(
    ("library", "version", "words"),
    [
        ("NCCL", "2.26.2", "supports it as v3"),
        ("NCCL", "2.27.7", "level calls only: NCCL 2.27.7 writes out of bounds"),
        ("NCCL", "2.32.3", "as v7, by default at level calls: GPU times of NCCL 2.31 and later"),
        ("RCCL", "2.30.4", "its DDA kernels bypass it"),
        ("NCCL", "2.25.1", "does not support it: needs 2.26 or later"),
        ("NCCL", "?", "its version is unknown"),
    ],
)
def test_what_a_library_takes(library: str, version: str, words: str) -> None:
    assert words in doctor.recorder_support(library, version)


def test_runtime_without_driver_has_no_usable_gpu(libraries: Path) -> None:
    compile_library(libraries / "libcudart.so.13", CUDA_NO_DRIVER)
    checks = diagnosed(libraries)
    assert checks["CUDA runtime"].detail.startswith("13.5 ")
    assert checks["CUDA devices"].found is False
    assert "no usable GPU (cudaGetDeviceCount returns 35)" in checks["CUDA devices"].detail


def test_crashing_library_is_a_finding(libraries: Path) -> None:
    compile_library(libraries / "librccl.so.1", RCCL_CRASHES)
    check = diagnosed(libraries)["RCCL"]
    assert check.found is None
    assert "signal 6" in check.detail


def test_broken_library_gives_the_loaders_reason(libraries: Path) -> None:
    (libraries / "libnccl.so.2").write_bytes(b"not a library")
    check = diagnosed(libraries)["NCCL"]
    assert check.found is False
    assert "libnccl.so.2" in check.detail
    assert "found" not in check.detail
    assert check.fix is not None


def test_library_without_the_symbol_is_a_finding(libraries: Path) -> None:
    compile_library(libraries / "libnccl.so.2", "int other(void) { return 0; }")
    check = diagnosed(libraries)["NCCL"]
    assert check.found is None
    assert "ncclGetVersion" in check.detail


@pytest.mark.parametrize(
    ("version", "code", "text"),
    [
        # NCCL_VERSION(2,8,4) was 1000 * 2 + 100 * 8 + 4; since 2.9 it is 10000 * 2 + …
        (gpu_vendors.nccl_version, 2804, "2.8.4"),
        (gpu_vendors.nccl_version, 20903, "2.9.3"),
        (gpu_vendors.nccl_version, 23203, "2.32.3"),
        (gpu_vendors.cuda_version, 11080, "11.8"),
        (gpu_vendors.hip_version, 60342133, "6.3.42133"),
    ],
)
def test_version_numbers(version: Callable[[int], str], code: int, text: str) -> None:
    assert version(code) == text


HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n    CC: cc\n"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (HYDRA, "MPICH 5.0.2"),
        ("mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org", "Open MPI 4.1.4"),
        ("mpiexec (Open MPI) 5.0.11\n", "Open MPI 5.0.11"),
        (
            "Intel(R) MPI Library for Linux* OS, Version 2021.10 Build 20230619 (id: c2e)",
            "Intel MPI 2021.10",
        ),
        ("usage: mpiexec", None),
        ("", None),
    ],
)
def test_mpi_version_of_each_implementation(text: str, version: str | None) -> None:
    assert doctor.mpi_version(text) == version


def test_launcher_in_path_is_named_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = tmp_path / "mpiexec"
    launcher.write_text("#!/bin/sh\necho 'mpiexec (OpenRTE) 4.1.4'\n")
    launcher.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    details = [check.detail for check in doctor.diagnose(tmp_path / "t.db")]
    assert f"Open MPI 4.1.4 ({launcher})" in details


def test_store_in_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    check = {c.name: c for c in doctor.diagnose(tmp_path / "absent" / "t.db")}["store"]
    assert check.found is False
    assert check.required
    assert "No such file" in check.detail
    assert check.fix is not None


def test_store_leaves_nothing_behind(tmp_path: Path) -> None:
    check = diagnosed(tmp_path)["store"]
    assert check.found is True
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_names_what_mends_it(tmp_path: Path) -> None:
    lacking = [check for check in diagnosed(tmp_path).values() if check.found is not True]
    without = {check.name for check in lacking if check.fix is None}
    # Nothing to install: programs of a GPU driver, the devices themselves, a later version.
    assert without <= {"rocm-smi", "nvidia-smi", "replayer", "HIP devices", "CUDA devices"}


def test_render() -> None:
    checks = (
        Check("SQLite", True, "3.40.1", None, True),
        Check("NCCL", False, "none of libnccl.so.2 found", "pip install x"),
        Check("mpiexec", None, "gave no answer"),
    )
    assert doctor.render(checks) == (
        "ok       SQLite   3.40.1\n"
        "missing  NCCL     none of libnccl.so.2 found\n"
        "                  to fix: pip install x\n"
        "unknown  mpiexec  gave no answer\n"
        "ingest and report have all they need; they use neither a GPU nor MPI.\n"
        "replay, tune and bench cannot start ranks: mpiexec, replayer.\n"
    )


def test_render_goes_on_below_what_names_a_check() -> None:
    checks = (Check("NCCL", False, "none of libnccl.so.2, libnccl.so.1 found", "pip install x"),)
    assert doctor.render(checks, 40).splitlines()[:3] == [
        "missing  NCCL  none of libnccl.so.2,",
        "               libnccl.so.1 found",
        "               to fix: pip install x",
    ]


def test_render_names_what_stops_the_work() -> None:
    checks = (Check("SQLite", False, "3.7.0", None, True), Check("NCCL", False, "none"))
    assert doctor.render(checks).splitlines()[-2] == "ingest and report cannot work: SQLite."


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("mpiexec", "replay, tune and bench cannot start ranks: replayer."),
        (
            # CUDA without NCCL and RCCL without a GPU are two halves.
            "mpiexec, replayer, CUDA devices, RCCL",
            "replay, tune and bench have MPI, but no GPU with its library: use --backend host.",
        ),
        ("mpiexec, replayer, HIP devices, RCCL", "replay, tune and bench have all they need."),
    ],
)
def test_render_says_what_a_replay_has(found: str, said: str) -> None:
    checks = [Check(name, True, "") for name in found.split(", ")]
    assert doctor.render(checks).splitlines()[-1] == said
