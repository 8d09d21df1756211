"""Who holds up recorded jobs, by `collscope hang` and two other tools, from the dumps alone.

    python benchmarks/hang_peers.py [ARCHIVE] --python PYTHON [--half both]

PYTHON is an interpreter that imports PyTorch and `nvidia_resiliency_ext.attribution`. An answer is
right if it names the guilty rank alone; for a healthy job, or one that ended, if it names nobody.
"Nobody" counts hangs without a named rank, "wrong" answers with a healthy rank in them.
torchfrtrace names a rank by its first mismatch, or by the missing dump that it ends with.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from hangs import HERE, recorded

from collscope.errors import CollscopeError
from collscope.hang.collect import evidence_of
from collscope.hang.judge import judge

# missing ranks: {0}
# error msg: Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH, ...
# AssertionError: Missing dump files from ranks {1}
_MISSING = re.compile(
    r"(?:missing ranks: \{|Culprit rank |Missing dump files from ranks \{)(\d+(?:, \d+)*)"
)
# 2      | data_parallel,0           | nccl:_all_gather_base | 131072       | Float    | 1
_NVRX_ROW = re.compile(r"^\d+ +\|.*\| ([\d,]+)$", re.MULTILINE)

# Runs in PYTHON: each program on each folder, in one process; one text per folder.
_RUNNER = """
import json, os, runpy, sys, tempfile
folders, texts, answer = json.load(sys.stdin), {}, os.dup(1)
for folder in folders:
    sys.argv = [argument.replace("FOLDER", folder) for argument in json.loads(ARGUMENTS)]
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        except (Exception, SystemExit) as error:
            print(error)
        sys.stdout.flush()
        sys.stderr.flush()
        file.seek(0)
        texts[folder] = file.read()
os.write(answer, json.dumps(texts).encode())
"""
_FRTRACE = ["torch.distributed.flight_recorder.fr_trace", "FOLDER", "-p", "dump_"]
_NVRX = [
    "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution",
    "--fr-path", "FOLDER", "-p", "dump_*", "--emit-stdout",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    archive = HERE / "recordings/hangs/hangs.tar.xz"
    parser.add_argument("archive", nargs="?", type=Path, default=archive)
    parser.add_argument("--python", required=True)
    parser.add_argument("--half", choices=["open", "exam", "both"], default="both")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jobs = [
            (truth, place / "fr")
            for truth, place in recorded(given.archive, given.half, Path(folder))
            if any((place / "fr").glob("*"))
        ]
        folders = [dumps for _, dumps in jobs]
        tools = {
            "collscope hang": {dumps: by_collscope(dumps) for dumps in folders},
            "torchfrtrace": by_program(given.python, _FRTRACE, folders, _MISSING, first=True),
            "nvidia-resiliency-ext": by_program(given.python, _NVRX, folders, _NVRX_ROW),
        }
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for truth, dumps in jobs:
        hangs = not all(truth["done"]) and truth["fault"] != "none"
        guilty = {truth["rank"]} if hangs else set()
        for tool, named in tools.items():
            for fault in (truth["fault"], "all"):
                counts[fault, tool][graded(named[dumps], guilty)] += 1
    print(f"| fault ({len(jobs)} jobs) | {' | '.join(tools)} |")
    print("|---|" + "---|" * len(tools))
    for fault in [*sorted({fault for fault, _ in counts} - {"all"}), "all"]:
        cells = (counts[fault, tool] for tool in tools)
        texts = (f"{c['right']}, {c['nobody']}, {c['wrong']}" for c in cells)
        print(f"| {fault} | {' | '.join(texts)} |")


def graded(named: set[int], guilty: set[int]) -> str:
    """right, nobody or wrong."""
    if named == guilty:
        return "right"
    return "wrong" if named - guilty else "nobody"


def by_collscope(dumps: Path) -> set[int]:
    """Ranks that the verdict names."""
    try:
        found = judge(evidence_of([str(dumps)]))
    except CollscopeError:
        return set()
    return {who.rank for who in found.who if who.rank is not None} if found.decided else set()


def by_program(
    python: str, arguments: list[str], folders: list[Path], named: re.Pattern[str], *,
    first: bool = False,
) -> dict[Path, set[int]]:  # fmt: skip
    """Ranks that another tool's text names, all of them or those of its first match."""
    code = _RUNNER.replace("ARGUMENTS", repr(json.dumps(arguments)))
    done = subprocess.run(
        [python, "-W", "ignore", "-c", code], check=True, stdout=subprocess.PIPE, text=True,
        input=json.dumps([str(folder) for folder in folders]), cwd="/",
    )  # fmt: skip
    found = {}
    for folder, text in json.loads(done.stdout).items():
        matches = named.findall(text)[: 1 if first else None]
        found[Path(folder)] = {int(rank) for ranks in matches for rank in ranks.split(",")}
    return found


if __name__ == "__main__":
    main()
