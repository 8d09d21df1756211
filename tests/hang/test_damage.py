"""Damaged files of a job that hangs: no traceback, and what is seen to be damaged names nobody."""

from __future__ import annotations

import contextlib
import os
import random
import re
from typing import TYPE_CHECKING

import pytest
from test_hang import loop, write
from test_sources import TEXT, TORCHRUN, TURN, answer, status, write_log

from collscope.errors import CollscopeError
from collscope.hang.collect import evidence_of
from collscope.hang.judge import judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def changed(data: bytes, draw: random.Random) -> bytes:
    """Data in which one part is lost, doubled or replaced."""
    at = draw.randrange(len(data))
    end = at + draw.choice((1, 3, 40, 400))
    return draw.choice((
        data[:at], data[:at] + data[end:], data[:end] + data[at:],
        data[:at] + draw.choice((b"\0", b"9", b"-", b"\n", b"\xff", b"9" * 30)) + data[at + 1 :],
    ))  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_no_damage_ends_the_command(tmp_path: Path, seed: int) -> None:
    for rank in range(4):
        write_log(tmp_path, rank, TURN * (7 if rank == 1 else 8))
    (tmp_path / "ras.0.json").write_text(answer([9, 7, 9, 9]))
    (tmp_path / "ras.1.txt").write_text(TEXT)
    lines = "".join(status(rank, 25, 22) for rank in range(3))
    (tmp_path / "stderr.txt").write_text(lines + TORCHRUN.format(code=-9))
    draw = random.Random(seed)
    whole = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for _ in range(30):
        path, data = draw.choice(sorted(whole.items()))
        path.write_bytes(changed(data, draw))
        with contextlib.suppress(CollscopeError):
            judge(evidence_of([str(tmp_path)]))
        path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-30],  # the end of the last line
        lambda text: text.replace("Broadcast", "Br\0adcast", 1),
        lambda text: text.replace("AllReduce: opCount 6 ", "AllRedxce: opCount 6 "),
        lambda text: "\n".join(line for line in text.split("\n") if "opCount 9" not in line),
    ],
)
def test_a_damaged_log_names_no_rank(tmp_path: Path, damage: object) -> None:
    for rank in range(4):
        write_log(tmp_path, rank, TURN * 8)
    path = tmp_path / "nccl.2.log"
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    assert judge(evidence_of([str(tmp_path)])).who == ()


def test_a_service_that_listed_memory_it_had_not_filled(tmp_path: Path) -> None:
    text = answer([9, 9, 9, 9], missing=[2]).replace('"rank": 0', '"rank": 33685696')
    (tmp_path / "ras.json").write_text(text)
    assert judge(evidence_of([str(tmp_path)])).who == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace("node:102:102", "node:\xd902:102"),  # another process
        lambda line: "node:1" + line[line.index("buff 0x1") :],  # half of it is gone
        lambda line: line[: line.index("opCount") + 1] + line[-12:],
        lambda line: line.replace("] NCCL INFO", "] NC"),
    ],
)
def test_a_damaged_line_of_a_log_without_numbers_names_no_rank(
    tmp_path: Path, damage: Callable[[str], str]
) -> None:
    """Calls of NCCL 2.28 all have opCount 0: no number tells that one is lost."""
    for rank in range(4):
        write_log(tmp_path, rank, TURN * 8)
        path = tmp_path / f"nccl.{rank}.log"
        path.write_text(re.sub("opCount [0-9a-f]+", "opCount 0", path.read_text()))
    path = tmp_path / "nccl.2.log"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:12], damage(lines[12]), *lines[13:]]))
    assert judge(evidence_of([str(tmp_path)])).who == ()


def test_a_line_that_swallowed_the_next_names_no_rank(tmp_path: Path) -> None:
    for rank in range(4):
        write_log(tmp_path, rank, TURN * 8)
        path = tmp_path / f"nccl.{rank}.log"
        path.write_text(re.sub("opCount [0-9a-f]+", "opCount 0", path.read_text()))
    path = tmp_path / "nccl.2.log"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:12], lines[12].rstrip("\n"), *lines[13:]]))
    assert judge(evidence_of([str(tmp_path)])).who == ()


@pytest.mark.parametrize(
    ("old", "new"), [('"completed"', '"compxeted"'), ("[2, 3]", "[2, 83]")], ids=["state", "rank"]
)
def test_a_damaged_dump_without_gaps_names_no_rank(tmp_path: Path, old: str, new: str) -> None:
    for rank in range(4):
        write(tmp_path, rank, loop(rank), len(loop(rank)))
    path = tmp_path / "dump_2"
    text = path.read_text()
    at = text.rindex(old)
    path.write_text(text[:at] + new + text[at + len(old) :])
    assert judge(evidence_of([str(tmp_path)])).who == ()


@pytest.mark.parametrize("lost", [60, 65])
def test_a_line_lost_long_before_the_end_is_no_skipped_call(tmp_path: Path, lost: int) -> None:
    """NCCL 2.28 writes opCount 0 in every line: no number shows that one is lost."""
    for rank in range(2):
        write_log(tmp_path, rank, TURN * 30, 2)
        path = tmp_path / f"nccl.{rank}.log"
        lines = re.sub(r"opCount [0-9a-f]+", "opCount 0", path.read_text()).splitlines()
        if rank == 1:
            del lines[lost]
        path.write_text("\n".join(lines) + "\n")
    assert judge(evidence_of([str(tmp_path)])).who == ()


def test_a_skipped_call_shortly_before_the_end_is_one(tmp_path: Path) -> None:
    for rank in range(2):
        steps = [*TURN * 30, *(TURN[1:] if rank == 1 else TURN), *TURN]
        write_log(tmp_path, rank, steps, 2)
    found = judge(evidence_of([str(tmp_path)]))
    assert [who.rank for who in found.who] == [1]


def test_a_rank_that_the_job_cannot_have_is_not_named(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, loop(rank), 22)
        path = tmp_path / f"dump_{rank}"
        written = path.stat()
        text = path.read_text().replace('"world"', '"0"')
        if rank == 2:
            text = text.replace("[0, 1, 2, 3]", "[0, 1, 2, 67]")
        path.write_text(text)
        os.utime(path, (written.st_atime, written.st_mtime))
    assert judge(evidence_of([str(tmp_path)])).who == ()
