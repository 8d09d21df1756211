"""The recorder's declarations of the profiler interfaces against the headers of NCCL and RCCL.

They are no part of the repository: COLLSCOPE_NCCL_SOURCE names a clone of NVIDIA/nccl, and
COLLSCOPE_RCCL_SOURCE one of ROCm/rocm-systems, or the tests skip.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FOLDER = "src/include/plugin/"
OF_RCCL = "projects/rccl/src/include/plugin/"
# What the headers take from the rest of the library.
BEFORE = """#include <cstddef>
#include <cstdint>
#include <sys/types.h>
typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef pid_t ncclPid_t;
typedef void (*ncclDebugLogger_t)(int, unsigned long, const char*, int, const char*, ...);
"""


def git(variable: str, *words: str) -> str:
    source = os.environ.get(variable)
    if source is None or shutil.which("git") is None or shutil.which("c++") is None:
        pytest.skip(f"needs {variable}, git and c++")
    command = ["git", "-C", source, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def compile_against(variable: str, tag: str, folder: str, newest: int | None, tmp: Path) -> None:
    """Compile the comparison with the headers of a clone; None: up to the newest that it has."""
    headers = git(variable, "ls-tree", "-r", "--name-only", tag, folder).split()
    for path in headers:
        if "profiler" in path:
            copy = tmp / path.removeprefix(folder)
            copy.parent.mkdir(exist_ok=True)
            copy.write_text(git(variable, "show", f"{tag}:{path}"))
    if newest is None:
        newest = max(int(found[1]) for p in headers if (found := re.search(r"profiler_v(\d+)", p)))
    (tmp / "before.h").write_text(BEFORE)
    for name in ("os.h", "nccl.h", "nccl_common.h", "common.h", "err.h"):
        (tmp / name).touch()
    words = ["c++", "-std=c++20", "-fsyntax-only", f"-DNEWEST={newest}", "-include"]
    folders = [f"-I{tmp}", f"-I{HERE.parents[2] / 'native/recorder'}"]
    done = subprocess.run(
        [*words, str(tmp / "before.h"), *folders, str(HERE / "layout.cpp")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("tag", "newest"),
    [("v2.26.6-1", 3), ("v2.27.7-1", 4), ("v2.28.9-1", 5), ("v2.30.3-1", 6), ("v2.31.2-1", 7)],
)
def test_the_declarations_are_those_of_nccl(tag: str, newest: int, tmp_path: Path) -> None:
    if tag not in git("COLLSCOPE_NCCL_SOURCE", "tag").split():
        pytest.skip(f"the clone has no {tag}")
    compile_against("COLLSCOPE_NCCL_SOURCE", tag, FOLDER, newest, tmp_path)


def test_the_declarations_are_those_of_rccl(tmp_path: Path) -> None:
    compile_against("COLLSCOPE_RCCL_SOURCE", "HEAD", OF_RCCL, None, tmp_path)
