"""Temporary folders, also of processes that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from collscope.temporary import temporary_folder


def test_folders_of_killed_processes_are_removed(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from collscope.temporary import temporary_folder\n"
        "with temporary_folder('replay', pathlib.Path.cwd()) as folder:\n"
        "    print(folder.name, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program]
    with (
        subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True) as killed,
        subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True) as running,
    ):  # fmt: skip
        assert killed.stdout is not None
        assert running.stdout is not None
        names = [process.stdout.readline().strip() for process in (killed, running)]
        killed.kill()
        killed.wait()
        other = tmp_path / ".collscope-replay-of_another_boot-1"
        other.mkdir()
        # Killed before it held the new folder locked, or while it removed it.
        tmp_path.joinpath(f"{names[0]}0").mkdir()
        with temporary_folder("replay", tmp_path) as mine:
            left = {path.name for path in tmp_path.iterdir()}
            assert left == {names[1], other.name, mine.name}
        running.communicate("")
    assert [path.name for path in tmp_path.iterdir()] == [other.name]


def test_a_copy_of_a_killed_ingest_is_removed(samples: Path, tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from collscope.ingest.files import open_input\n"
        "with open_input(sys.argv[1]) as file, file.database():\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    profile, temporary = samples / "profiles" / "synthetic.rpd", tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    subprocess.run([sys.executable, "-c", program, profile], check=False, env=environment)
    assert len(list(temporary.iterdir())) == 1
    command = [sys.executable, "-m", "collscope", "ingest", "profile", profile, "--db", "t.db"]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True)
    assert list(temporary.iterdir()) == []
