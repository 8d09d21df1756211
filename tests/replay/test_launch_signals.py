"""A signal that comes at a bad moment still ends a job."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The signal comes while the job is forked: what Python raises there is printed and dropped.
_PROGRAM = """
import os, shutil, signal, sys
from pathlib import Path
from collscope.replay.launch import Job, run_job
number = signal.Signals[sys.argv[1]]
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), number))
try:
    run_job(Job(("50",), 1, program=Path(shutil.which("sleep"))), None)
except KeyboardInterrupt:
    print("interrupted")
print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_between_fork_and_forwarding_is_not_lost(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, name],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n[]\n", "")


_IGNORED = """
import shutil, signal, sys
from pathlib import Path
signal.signal(signal.Signals[sys.argv[1]], signal.SIG_IGN)
from collscope.replay.launch import Job, run_job
command = f"kill -s {sys.argv[1][3:]} $PPID; exit 7"
print(run_job(Job(("-c", command), 1, program=Path(shutil.which("sh"))), None).status)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_what_the_shell_has_ignored_does_not_end_a_job(name: str) -> None:
    """As `nohup collscope replay &` does."""
    done = subprocess.run(
        [sys.executable, "-c", _IGNORED, name],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
