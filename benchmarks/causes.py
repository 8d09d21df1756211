"""Verdicts on recorded jobs with one planted cause each, held against what was planted.

    python benchmarks/causes.py [FOLDER] [--half open|exam|all] [--only TEXT] [--scratch DIR]

FOLDER (default: benchmarks/recordings/causes) holds `truth.jsonl` and the archives that
`benchmarks/gpu/job_causes.py` made. Each start is read as it stands, light and full traces by
themselves, and once more with the step time that was measured without the profiler (`--step-ms`).

What a cause costs is the median step of its start less that of the job without a cause. It lies
between the ends of both: where that reaches down to 1 % of the step, nothing slow was planted as
far as the steps show, and "none" is right, too.

named    the verdict has one of the codes, and the ranks where these are particular
partly   such a code, with other ranks; or the right ranks and another code
missed   nothing of it
false    causes that were not planted; `certain` ones are counted apart
holds    the cost lies within the range of the first entry that names the cause
narrow   that range is no wider than 60 % of the cost, or 3 ms
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

_FOLDER = Path(__file__).parent / "recordings" / "causes"
_MATTERS, _NARROW, _NARROW_MS = 0.01, 0.6, 3.0
_COLLSCOPE = (sys.executable, "-m", "collscope")


class Truth(msgspec.Struct, frozen=True):
    """What was planted in one start of a job."""

    case: str
    start: int
    job: str
    codes: tuple[str, ...]
    ranks: tuple[int, ...]
    exam: bool
    step_ms: tuple[float, ...]
    costs: tuple[float, float, float]  # least, median, most; ms a step

    @property
    def may_be_none(self) -> bool:
        """Nothing slow was planted, as far as the steps show."""
        return not self.codes or self.costs[0] <= _MATTERS * statistics.median(self.step_ms)


class Line(msgspec.Struct, frozen=True):
    """One verdict, judged."""

    truth: Truth
    style: str  # light or full
    given: bool  # with the step without the profiler
    verdict: tuple[dict[str, object], ...]
    judged: str  # named, none, partly, missed
    false: int
    false_certain: int
    holds: bool | None  # None: not named, or without a cost
    narrow: bool | None


def read_truth(path: Path) -> list[Truth]:
    """Lines of truth.jsonl, with what each cause cost."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    healthy: dict[str, list[float]] = {}
    for row in rows:
        if row["planted"] == "none":
            healthy.setdefault(row["job"], []).extend(row["step_ms"])
    found = []
    for row in rows:
        usual, steps = healthy[row["job"]], row["step_ms"]
        costs = (
            min(steps) - max(usual),
            statistics.median(steps) - statistics.median(usual),
            max(steps) - min(usual),
        )
        known = {name: row[name] for name in ("case", "start", "job", "codes", "ranks", "exam")}
        found.append(msgspec.convert({**known, "step_ms": steps, "costs": costs}, Truth))
    return found


def verdicts(folder: Path, truth: Truth, scratch: Path) -> Iterator[tuple[str, bool, object]]:
    """Style, whether the step was given, and the verdict, of each reading of one start."""
    name = f"{truth.case}.{truth.start}"
    out = scratch / name
    if not out.exists():
        with tarfile.open(folder / f"{name}.tar.xz") as archive:
            archive.extractall(out, filter="data")
    logs = sorted(map(str, out.glob("nccl.*")))
    for style in ("light", "full"):
        traces = sorted(map(str, out.glob(f"{style}.rank*")))
        if not traces:
            continue
        db = scratch / f"{name}.{style}.db"
        if not db.exists():
            _run("ingest", "auto", "--db", str(db), *traces, *logs)
        for given in (False, True):
            more = ("--step-ms", str(statistics.median(truth.step_ms))) if given else ()
            text = _run("report", "--db", str(db), "--format", "json", *more)
            yield style, given, json.loads(text)["verdict"]


def _run(*words: str) -> str:
    return subprocess.run([*_COLLSCOPE, *words], check=True, capture_output=True, text=True).stdout


def judge(truth: Truth, style: str, given: bool, verdict: Sequence[Mapping[str, object]]) -> Line:
    """Hold a verdict against what was planted."""
    entries = [e for e in verdict if e["cause"] not in ("none", "unknown")]

    def whose(entry: Mapping[str, object]) -> bool:
        return not truth.ranks or not entry["ranks"] or tuple(entry["ranks"]) == truth.ranks  # type: ignore[arg-type]

    right = [e for e in entries if e["cause"] in truth.codes and whose(e)]
    partly = [
        e for e in entries
        if e not in right and truth.codes
        and (e["cause"] in truth.codes or (truth.ranks and tuple(e["ranks"]) == truth.ranks))  # type: ignore[arg-type]
    ]  # fmt: skip
    wrong = [e for e in entries if e not in right and e not in partly]
    judged = "missed"
    if right:
        judged = "named"
    elif partly:
        judged = "partly"
    elif truth.may_be_none and not entries:
        judged = "none"
    holds = narrow = None
    if right and not (truth.may_be_none and truth.costs[1] <= 0):
        ms: Mapping[str, float] = right[0]["ms_per_step"]  # type: ignore[assignment]
        cost = truth.costs[1]
        holds = ms["low"] <= cost <= ms["high"]
        narrow = ms["high"] - ms["low"] <= max(_NARROW * cost, _NARROW_MS)
    certain = sum(e["certainty"] == "certain" for e in wrong)
    shown = tuple(dict(e) for e in verdict)
    return Line(truth, style, given, shown, judged, len(wrong), certain, holds, narrow)


def table(lines: Sequence[Line]) -> Iterator[str]:
    """A line a verdict: case, what was planted and cost, the answer, how it is judged."""
    yield "| case | traces | planted | cost ms | answer | judged |"
    yield "|---|---|---|--:|---|---|"
    for line in lines:
        t = line.truth
        answer = "; ".join(_words(e) for e in line.verdict)
        ranks = f" {list(t.ranks)}" if t.ranks else ""
        marks = [line.judged]
        marks += ["range misses"] if line.holds is False else []
        marks += ["wide"] if line.narrow is False else []
        marks += [f"false: {line.false} ({line.false_certain} certain)"] if line.false else []
        style = line.style + (", --step-ms" if line.given else "")
        planted = (", ".join(t.codes) or "nothing") + ranks
        yield (
            f"| {t.case}.{t.start} | {style} | {planted} | {t.costs[1]:.1f} | {answer} |"
            f" {'; '.join(marks)} |"
        )


def _words(entry: Mapping[str, object]) -> str:
    ms: Mapping[str, float] = entry["ms_per_step"]  # type: ignore[assignment]
    ranks = f" {entry['ranks']}" if entry["ranks"] else ""
    if entry["cause"] in ("none", "unknown"):
        return str(entry["cause"])
    return (
        f"{entry['cause']}{ranks} {ms['value']:.1f} ({ms['low']:.1f} to {ms['high']:.1f}),"
        f" {entry['certainty']}"
    )


def summary(lines: Sequence[Line], title: str) -> Iterator[str]:
    """How many were named, what was false, how many ranges hold."""
    if not lines:
        return
    judged = Counter(line.judged for line in lines)
    ranges = [line for line in lines if line.holds is not None]
    controls = [line for line in lines if not line.truth.codes]
    yield (
        f"{title}: {judged['named'] + judged['none']} of {len(lines)} right ({judged['named']}"
        f" named,"
        f" {judged['none']} rightly none), {judged['partly']} partly, {judged['missed']} missed;"
        f" {sum(line.false for line in lines)} false causes, of these"
        f" {sum(line.false_certain for line in lines)} certain;"
        f" {sum(line.judged == 'none' for line in controls)} of {len(controls)} controls silent;"
        f" {sum(bool(line.holds) for line in ranges)} of {len(ranges)} ranges hold,"
        f" {sum(bool(line.narrow) for line in ranges)} are narrow"
    )


def main() -> None:
    """Print the table and its summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path, nargs="?", default=_FOLDER)
    parser.add_argument("--half", choices=("open", "exam", "all"), default="open")
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--scratch", type=Path, help="keeps what is unpacked and ingested")
    given = parser.parse_args()
    chosen = [
        t for t in read_truth(given.folder / "truth.jsonl")
        if given.only in t.case and given.half in ("all", "exam" if t.exam else "open")
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        scratch = given.scratch or Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        lines = [
            judge(truth, style, with_step, verdict)  # type: ignore[arg-type]
            for truth in chosen
            for style, with_step, verdict in verdicts(given.folder, truth, scratch)
        ]
    print("\n".join(table(lines)))
    for style in ("light", "full"):
        for with_step in (False, True):
            part = [line for line in lines if line.style == style and line.given is with_step]
            name = f"{style}, {'with' if with_step else 'without'} --step-ms"
            print("\n".join(summary(part, name)))
    print("\n".join(summary(lines, "all")))


if __name__ == "__main__":
    main()
