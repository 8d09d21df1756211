"""Verdicts on jobs that hang in a planted way, beside the right answers of `hangs.toml`.

    python benchmarks/hangs.py [ARCHIVE] [--half open|exam|both]
                               [--sources dumps,logs,stderr,ras,all] [--show]

For recordings/hangs, or an archive of `gpu/hangs.sh`: how many answers are right, undecided where
that is not right, and wrong, for each fault and each set of sources. A wrong one names a healthy
rank, or has nothing right in `what`.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomllib

from collscope.errors import CollscopeError
from collscope.hang.collect import evidence_of
from collscope.hang.judge import judge

HERE = Path(__file__).parent
ALLOWED: dict[str, dict[str, list[str]]] = tomllib.loads((HERE / "hangs.toml").read_text())
SOURCES = {"dumps": ("fr/",), "logs": ("nccl.",), "stderr": ("stderr.",), "ras": ("ras.",)}
SOURCES["all"] = tuple(prefix for own in SOURCES.values() for prefix in own)


def recorded(archive: Path, half: str, folder: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """What was planted in each job of a half, and the folder with its files."""
    with tarfile.open(archive) as packed:
        files = {Path(m.name).name: packed.extractfile(m).read() for m in packed if m.isfile()}  # type: ignore[union-attr]
    for line in files["truth.jsonl"].decode().splitlines():
        truth = json.loads(line)
        if half == "both" or truth["exam"] == (half == "exam"):
            place = folder / truth["name"]
            with tarfile.open(fileobj=io.BytesIO(files[f"{truth['name']}.tar"])) as job:
                job.extractall(place, filter="data")
            yield truth, place


def grade(truth: dict[str, Any], allowed: list[str], paths: list[str]) -> tuple[str, str]:
    """right, undecided or wrong; and the answer."""
    try:
        found = judge(evidence_of(paths)) if paths else None
    except CollscopeError as error:
        found, answer = None, f"none: {error}"
    else:
        answer = "none" if found is None else " ".join(found.reasons)
    if all(truth["done"]) or truth["fault"] == "none":
        allowed = ["undecided"]
    if found is None or not found.decided:
        return "right, undecided" if "undecided" in allowed else "undecided", answer
    answer = f"{[w.rank for w in found.who]} {list(found.what)} {answer}"
    named = [w.rank for w in found.who] == [truth["rank"]]
    return "right" if named and set(found.what) & set(allowed) else "wrong", answer


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    hangs = HERE / "recordings" / "hangs" / "hangs.tar.xz"
    parser.add_argument("archive", type=Path, nargs="?", default=hangs)
    parser.add_argument("--half", choices=("open", "exam", "both"), default="open")
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    kinds = given.sources.split(",")
    grades: Counter[tuple[str, str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for truth, place in recorded(given.archive, given.half, Path(folder)):
            names = sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file())
            for kind in kinds:
                paths = [str(place / n) for n in names if n.startswith(SOURCES[kind])]
                fault = truth["fault"]
                mark, answer = grade(truth, ALLOWED[fault][kind], paths)
                grades[kind, fault, mark] += 1
                if given.show and not mark.startswith("right"):
                    print(f"{truth['name']} rank {truth['rank']} {kind} {mark}: {answer}")
    marks = ("right", "right, undecided", "undecided", "wrong")
    print(f"| sources | fault | {' | '.join(marks)} |\n|---|---|---|---|---|---|")
    for kind in kinds:
        for fault in (*ALLOWED, "total"):
            cells = [
                sum(n for (k, f, m), n in grades.items()
                    if k == kind and m == mark and fault in (f, "total"))
                for mark in marks
            ]  # fmt: skip
            print(f"| {kind} | {fault} | {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
