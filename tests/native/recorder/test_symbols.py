"""What the built recorder exports and needs, by binutils: jobs of NCCL and RCCL load it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from collscope.programs import installed_recorder


def output(*words: str) -> str:
    path = installed_recorder()
    if path is None or shutil.which(words[0]) is None:
        pytest.skip(f"needs {words[0]} and the built recorder")
    command = [*words, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_only_the_interfaces_are_exported() -> None:
    # Both libraries look for ncclProfiler_vN: RCCL's plugin loader is NCCL's source, translated.
    names = set(output("nm", "-D", "--defined-only", "--format=posix").split("\n"))
    assert {line.split(" ")[0] for line in names if line} == {
        *(f"ncclProfiler_v{version}" for version in range(3, 8)),
        "collscope_recorder_level",
    }


def test_no_gpu_library_is_needed_nor_a_newer_c_library_than_the_wheels() -> None:
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", "-W"))
    allowed = r"(libc|libm|libdl|libpthread|libgcc_s|ld-linux-.*)\.so\.\d+"
    assert [name for name in needed if not re.fullmatch(allowed, name)] == []


def test_it_stays_in_memory_when_the_library_closes_it() -> None:
    assert "NODELETE" in output("readelf", "-d", "-W")
