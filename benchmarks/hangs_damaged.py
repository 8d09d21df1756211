"""Verdicts on damaged files of jobs that hang: none may name a rank that is not guilty.

    python benchmarks/hangs_damaged.py [--cases 2000] [--sources dumps,logs,stderr,ras] [--seed 1]

Each case is a job of the open half of recordings/hangs, with one file damaged in one place: a byte
changed, bytes lost, a line lost, doubled or moved, the end cut off, a number changed, two files
exchanged. Printed are, by source and damage, the answers that name a healthy rank or nothing right,
and the tracebacks.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hangs import ALLOWED, HERE, SOURCES, grade, recorded

ARCHIVE = HERE / "recordings" / "hangs" / "hangs.tar.xz"

_NUMBER = re.compile(rb"(?<![\w.])\d{1,9}(?![\w.])")
_Damage = Callable[[random.Random, bytes], bytes]


def _byte(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]


def _lost(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + data[at + draw.randint(1, 400) :]


def _cut(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data))]


def _of_lines(change: Callable[[random.Random, list[bytes], int], None]) -> _Damage:
    def damage(draw: random.Random, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        change(draw, lines, draw.randrange(len(lines)))
        return b"".join(lines)

    return damage


def _drop(_: random.Random, lines: list[bytes], at: int) -> None:
    del lines[at]


def _double(_: random.Random, lines: list[bytes], at: int) -> None:
    lines.insert(at, lines[at])


def _move(draw: random.Random, lines: list[bytes], at: int) -> None:
    line = lines.pop(at)
    lines.insert(draw.randrange(len(lines) + 1), line)


def _number(draw: random.Random, data: bytes) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return _byte(draw, data)
    place = draw.choice(found)
    return data[: place.start()] + b"%d" % draw.randrange(2000) + data[place.end() :]


DAMAGES: dict[str, _Damage] = {
    "byte": _byte, "bytes lost": _lost, "cut": _cut, "line lost": _of_lines(_drop),
    "line doubled": _of_lines(_double), "line moved": _of_lines(_move), "number": _number,
}  # fmt: skip
_EXCHANGED = "files exchanged"


def damage(draw: random.Random, paths: list[str], what: str) -> None:
    """Damage one of the files, or exchange two."""
    chosen = Path(draw.choice(paths))
    if what == _EXCHANGED:
        other = Path(draw.choice(paths))
        one, two = chosen.read_bytes(), other.read_bytes()
        chosen.write_bytes(two)
        other.write_bytes(one)
    elif content := chosen.read_bytes():
        chosen.write_bytes(DAMAGES[what](draw, content))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--sources", default="dumps,logs,stderr,ras")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    draw, kinds = random.Random(given.seed), given.sources.split(",")
    marks: Counter[tuple[str, str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        jobs = list(recorded(ARCHIVE, "open", Path(folder) / "jobs"))
        for case in range(given.cases):
            truth, place = jobs[draw.randrange(len(jobs))]
            kind, what = draw.choice(kinds), draw.choice([*DAMAGES, _EXCHANGED])
            copy = Path(folder) / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(place, copy)
            names = sorted(str(p.relative_to(copy)) for p in copy.rglob("*") if p.is_file())
            paths = [str(copy / n) for n in names if n.startswith(SOURCES[kind])]
            if not paths:
                continue
            damage(draw, paths, what)
            try:
                mark, answer = grade(truth, ALLOWED[truth["fault"]][kind], paths)
            except Exception as error:  # whatever it is: it is counted
                mark, answer = "traceback", repr(error)
            marks[kind, what, mark if mark in ("wrong", "traceback") else "held"] += 1
            if given.show and mark in ("wrong", "traceback"):
                print(f"{case} {truth['name']} rank {truth['rank']} {kind} {what}: {answer}")
    print("| source | damage | held | wrong | traceback |\n|---|---|---|---|---|")
    for kind in kinds:
        for what in (*DAMAGES, _EXCHANGED):
            cells = [marks[kind, what, mark] for mark in ("held", "wrong", "traceback")]
            print(f"| {kind} | {what} | {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
