"""Verdicts on recorded jobs with one planted cause each, held against what was planted.

    python benchmarks/causes.py [FOLDER] [--half open|exam|all] [--only TEXT] [--scratch DIR]
                                [--no-logs]

FOLDER (default: benchmarks/recordings/causes) holds `truth.jsonl` and the archives that
`benchmarks/gpu/job_causes.py` or job_causes_paired.py made. Each start is read as it stands, light
and full traces by themselves, and once more with the step time that was measured without the
profiler (`--step-ms`).

What a cause costs is the median step of its start less that of the job without a cause; where both
were timed in turns, the median of the differences. It lies between the ends: where that reaches
down to 1 % of the step, nothing slow was planted as far as the steps show, and "none" is right,
too. The ends of seven or more differences are the second from either side: of seven, they hold the
true median with a probability of 87 %.

named    the verdict has one of the codes, and the ranks where these are particular
partly   such a code, with other ranks; or the right ranks and another code
missed   nothing of it
false    causes that were not planted; `certain` ones are counted apart
holds    the cost lies within the range of the first entry that names the cause; "truth scatters":
         only some of the measured costs do
narrow   that range is no wider than 60 % of the cost, or 3 ms
"""

from __future__ import annotations

import argparse
import json
import statistics
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

import collscope
from collscope.ingest.match import reading
from collscope.reports.verdict.answer import find_answer
from collscope.reports.verdict.text import entries

_FOLDER = Path(__file__).parent / "recordings" / "causes"
_MATTERS, _NARROW, _NARROW_MS = 0.01, 0.6, 3.0
_MANY = 7  # differences


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
    partly_holds: bool  # some of the measured costs lie in the range
    narrow: bool | None


def read_truth(path: Path) -> list[Truth]:
    """Lines of truth.jsonl, with what each cause cost."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = {file.name.removesuffix(".tar.xz") for file in path.parent.glob("*.tar.xz")}
    names = sorted({row["case"] for row in rows if f"{row['case']}.{row['start']}" in kept})
    healthy: dict[str, list[float]] = {}
    for row in rows:
        if row["planted"] == "none":
            healthy.setdefault(row["job"], []).extend(row["step_ms"])
    found = []
    for row in rows:
        if row["case"] not in names:
            continue
        steps = row["step_ms"]
        if "usual_ms" in row:
            each = sorted(s - u for s, u in zip(steps, row["usual_ms"], strict=True))
            inner = each[1:-1] if len(each) >= _MANY else each
            costs = inner[0], statistics.median(each), inner[-1]
        else:
            usual = healthy[row["job"]]
            middle = statistics.median(steps) - statistics.median(usual)
            costs = min(steps) - max(usual), middle, max(steps) - min(usual)
        known = {name: row[name] for name in ("case", "start", "job", "codes", "ranks")}
        # Every second case by name where the recording has no halves of its own.
        known["exam"] = row.get("exam", names.index(row["case"]) % 2 == 1)
        found.append(msgspec.convert({**known, "step_ms": steps, "costs": costs}, Truth))
    return found


def verdicts(
    folder: Path, truth: Truth, scratch: Path, *, logs: bool
) -> Iterator[tuple[str, bool, list[dict[str, object]]]]:
    """Style, whether the step was given, and the verdict, of each reading of one start."""
    name = f"{truth.case}.{truth.start}"
    out = scratch / name
    if not out.exists():
        with tarfile.open(folder / f"{name}.tar.xz") as archive:
            archive.extractall(out, filter="data")
    read_logs = sorted(map(str, out.glob("nccl.*"))) if logs else []
    for style in ("light", "full"):
        traces = sorted(map(str, out.glob(f"{style}.rank*")))
        if not traces:
            continue
        db = scratch / f"{name}.{style}{'' if logs else '.no-logs'}.db"
        if not db.exists():
            collscope.open(db).ingest(*traces, *read_logs)
        for given in (False, True):
            step = statistics.median(truth.step_ms) if given else None
            with reading(db) as connection:
                found = entries(find_answer(connection, "main", step_ms=step))
            yield style, given, [msgspec.to_builtins(entry) for entry in found]


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
    some = False
    if right and not (truth.may_be_none and truth.costs[1] <= 0):
        ms: Mapping[str, float] = right[0]["ms_per_step"]  # type: ignore[assignment]
        cost = truth.costs[1]
        holds = ms["low"] <= cost <= ms["high"]
        some = ms["low"] <= truth.costs[2] and truth.costs[0] <= ms["high"]
        narrow = ms["high"] - ms["low"] <= max(_NARROW * cost, _NARROW_MS)
    certain = sum(e["certainty"] == "certain" for e in wrong)
    shown = tuple(dict(e) for e in verdict)
    return Line(truth, style, given, shown, judged, len(wrong), certain, holds, some, narrow)


def table(lines: Sequence[Line]) -> Iterator[str]:
    """A line a verdict: case, what was planted and cost, the answer, how it is judged."""
    yield "| case | traces | planted | cost ms | answer | judged |"
    yield "|---|---|---|--:|---|---|"
    for line in lines:
        t = line.truth
        answer = "; ".join(_words(e) for e in line.verdict)
        ranks = f" {list(t.ranks)}" if t.ranks else ""
        marks = [line.judged]
        if line.holds is False:
            low, _, high = t.costs
            marks.append("truth scatters" if line.partly_holds else "range misses")
            marks[-1] += f" ({low:.1f} to {high:.1f})"
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
    ranks = f" {list(entry['ranks'])}" if entry["ranks"] else ""
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
        f" {sum(bool(line.holds) for line in ranges)} of {len(ranges)} ranges hold"
        f" ({sum(line.partly_holds for line in ranges)} one of the measured costs),"
        f" {sum(bool(line.narrow) for line in ranges)} are narrow"
    )


def main() -> None:
    """Print the table and its summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path, nargs="?", default=_FOLDER)
    parser.add_argument("--half", choices=("open", "exam", "all"), default="open")
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--no-logs", action="store_true", help="reads the traces alone")
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
            judge(truth, style, with_step, verdict)
            for truth in chosen
            for style, with_step, verdict in verdicts(
                given.folder, truth, scratch, logs=not given.no_logs
            )
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
