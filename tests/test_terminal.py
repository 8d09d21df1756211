"""What a terminal gets: its own width, whole names when asked for, completion."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from command import collscope

COMMAND = Path(sys.executable).with_name("collscope")
NAME = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def on_terminal(columns: int, *arguments: str | Path) -> list[str]:
    """Lines of a command whose standard output is a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    child = subprocess.Popen([COMMAND, *arguments], stdout=theirs, env=environment)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:  # the child has closed its end
        pass
    os.close(ours)
    assert child.wait() == 0
    return said.decode().splitlines()


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    db = tmp_path_factory.mktemp("terminal") / "t.db"
    assert collscope("ingest", "trace", samples / "traces" / "default", "--db", db).code == 0
    return db


def test_tables_and_sentences_fit_the_terminal(db: Path) -> None:
    lines = on_terminal(80, "report", "--db", db)
    assert max(map(len, lines[: lines.index("Findings")])) <= 80
    kernel = next(line for line in lines if "ncclDevKernel_AllR" in line)
    assert len(kernel) <= 80
    begin, cut, end = kernel.split("  ")[0].partition("~")
    assert cut
    assert NAME.startswith(begin)
    assert NAME.endswith(end)
    assert abs(len(begin) - len(end)) <= 1


def test_sentences_of_a_wide_terminal_stay_readable(db: Path) -> None:
    lines = on_terminal(200, "report", "--db", db)
    assert 100 < max(map(len, lines[: lines.index("Findings")])) <= 120


def test_wide_shows_whole_names(db: Path) -> None:
    assert any(NAME in line for line in on_terminal(80, "report", "--db", db, "--wide"))


def test_a_pipe_has_120_columns_whatever_the_environment_says(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert NAME in collscope("report", "--db", db).out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("collscope re", {"report", "replay", "record"}),
        ("collscope report --sy", {"--system"}),
        ("collscope ingest t", {"trace", "table"}),
    ],
)
def test_bash_completes_commands_and_options(words: str, expected: set[str]) -> None:
    place = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    environment = {**os.environ, **place, "_COLLSCOPE_COMPLETE": "complete_bash"}
    done = subprocess.run([COMMAND], env=environment, capture_output=True, text=True, check=False)
    assert set(done.stdout.split()) == expected
