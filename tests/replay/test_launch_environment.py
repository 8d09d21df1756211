"""What a job's ranks inherit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collscope.replay.launch import Job, run_job


@pytest.mark.parametrize("processes", [1, 2])  # without a launcher, and with one
def test_own_variables_win_over_unset_ones_and_those_over_the_shell(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CS_GONE", "CS_OWN", "CS_KEPT"):
        monkeypatch.setenv(name, "shell")
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\nenv | grep "^CS_" | sort > {tmp_path}/seen.$$\n')
    program.chmod(0o755)
    job = Job((), processes, (("CS_OWN", "job"),), program, unset=("CS_GONE", "CS_OWN"))
    assert run_job(job, None).status == 0
    seen = [path.read_text().split() for path in tmp_path.glob("seen.*")]
    assert seen == [["CS_KEPT=shell", "CS_OWN=job"]] * processes
    assert os.environ["CS_GONE"] == "shell"
