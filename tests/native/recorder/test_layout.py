"""The recorder's declarations of the profiler interfaces against the headers of NVIDIA/nccl.

They are no part of the repository: COLLSCOPE_NCCL_SOURCE names a clone of it, or the tests skip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FOLDER = "src/include/plugin/"
# What the headers take from the rest of the library.
BEFORE = """#include <cstddef>
#include <cstdint>
#include <sys/types.h>
typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef pid_t ncclPid_t;
typedef void (*ncclDebugLogger_t)(int, unsigned long, const char*, int, const char*, ...);
"""


def git(*words: str) -> str:
    source = os.environ.get("COLLSCOPE_NCCL_SOURCE")
    if source is None or shutil.which("git") is None or shutil.which("c++") is None:
        pytest.skip("needs COLLSCOPE_NCCL_SOURCE, git and c++")
    command = ["git", "-C", source, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("tag", "newest"),
    [("v2.26.6-1", 3), ("v2.27.7-1", 4), ("v2.28.9-1", 5), ("v2.30.3-1", 6), ("v2.31.2-1", 7)],
)
def test_the_declarations_are_those_of_the_library(tag: str, newest: int, tmp_path: Path) -> None:
    if tag not in git("tag").split():
        pytest.skip(f"the clone has no {tag}")
    for path in git("ls-tree", "-r", "--name-only", tag, FOLDER).split():
        if "profiler" in path:
            copy = tmp_path / path.removeprefix(FOLDER)
            copy.parent.mkdir(exist_ok=True)
            copy.write_text(git("show", f"{tag}:{path}"))
    (tmp_path / "before.h").write_text(BEFORE)
    for name in ("os.h", "nccl.h", "nccl_common.h", "common.h", "err.h"):
        (tmp_path / name).touch()
    words = ["c++", "-std=c++20", "-fsyntax-only", f"-DNEWEST={newest}", "-include"]
    folders = [f"-I{tmp_path}", f"-I{HERE.parents[2] / 'native/recorder'}"]
    done = subprocess.run(
        [*words, str(tmp_path / "before.h"), *folders, str(HERE / "layout.cpp")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
