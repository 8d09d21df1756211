"""Predictions of recorded jobs against step times that were measured without the profiler.

    python benchmarks/prediction.py FOLDER [FOLDER ...] [--only TEXT] [--json OUT]

A folder holds `steps.jsonl` and traces `.../STYLE.../SETTING/.../JOB/[STYLE.]rankN.json[.xz|…]`
in any order of these parts: a part that `steps.jsonl` names as a setting or a case is that, and all
others are the style of the trace. Every setting is predicted from every other of its job and style,
once with the step time of the recorded setting (`--step-ms`) and once without.

The truth is the ratio of like measures: start by start, block by block; its interval is their least
and largest. The error is that of the predicted ratio against their median, the distance that
against the interval. Score: the mean interval score at 90 % (Gneiting and Raftery, JASA 102, 2007,
eq. 43), width + 20 x what the truth lies outside by, beside that of the best constant band around
the same predictions and around "no change".
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

LEVEL = 0.9
BANDS = np.linspace(0, 1, 401)


class RefusedError(Exception):
    """A command that gave no answer."""


class Case(msgspec.Struct, frozen=True):
    """One prediction; ratios are new step / recorded step."""

    job: str
    style: str
    change: str
    given: bool  # the unprofiled step of the recorded setting
    truth: tuple[float, float, float]  # least, median, largest
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        return self.predicted / self.truth[1] - 1

    @property
    def distance(self) -> float:
        low, _, high = self.truth
        return max(0.0, low / self.predicted - 1, self.predicted / high - 1)

    @property
    def holds(self) -> bool:
        return self.low <= self.truth[1] <= self.high

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.predicted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--only", default="", help="part of 'job style'")
    parser.add_argument("--json", type=Path, help="all cases, for a later look")
    given = parser.parse_args()
    cases = [case for folder in given.folders for case in predict_folder(folder, given.only)]
    if given.json:
        given.json.write_text(json.dumps(msgspec.to_builtins(cases), indent=1))
    print("\n".join(table(cases)))
    for with_step in (True, False):
        print("\n".join(summary([case for case in cases if case.given is with_step], with_step)))


def predict_folder(folder: Path, only: str) -> Iterator[Case]:
    steps = read_steps(folder / "steps.jsonl")
    for (job, style), by_setting in recordings(folder, steps):
        if only not in f"{job} {style}":
            continue
        with tempfile.TemporaryDirectory() as scratch:
            db = ingest(by_setting, Path(scratch))
            for old in by_setting:
                for new in by_setting:
                    if old != new:
                        truth = ratios(steps[job, old], steps[job, new])
                        yield from predict_change(db, (job, style), (old, new), truth, steps)


def recordings(
    folder: Path, known: Collection[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], Mapping[str, list[Path]]]]:
    """Traces by setting, of each job and style; jobs and settings are those of `known`."""
    known_cases = {case for case, _ in known}
    known_settings = {setting for _, setting in known}
    found: dict[tuple[str, str], dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.rglob("*rank*.json*")):
        parts = [*path.relative_to(folder).parts[:-1], path.name.split("rank")[0].strip("._")]
        job = next((p for p in parts if p in known_cases), None)
        setting = next((p for p in parts if p in known_settings), None)
        if len(known_cases) == 1:
            (job,) = known_cases
        if job is None or setting is None:
            continue
        style = " ".join(p.replace("_", " ") for p in parts if p and p not in {job, setting})
        found[job, style or "full"][setting].append(path)
    yield from sorted(found.items())


def ingest(by_setting: Mapping[str, list[Path]], scratch: Path) -> Path:
    """Store with a run of each setting."""
    db = scratch / "store.db"
    for setting, paths in by_setting.items():
        collscope("ingest", "trace", *map(str, paths), "--db", str(db), "--run", setting)
    return db


def predict_change(
    db: Path,
    what: tuple[str, str],
    change: tuple[str, str],
    truth: tuple[float, float, float],
    steps: Mapping[tuple[str, str], list[float]],
) -> Iterator[Case]:
    old, new = change
    for with_step in (True, False):
        step = statistics.median(steps[what[0], old])
        extra = ["--step-ms", f"{step:.4f}"] if with_step else []
        words = ["predict", "--db", str(db), "--run", old, "--with", new, "--format", "json"]
        try:
            prediction = msgspec.json.decode(collscope(*words, *extra))
        except RefusedError as error:
            print(f"no answer: {' '.join(what)}, {old} -> {new}: {error}", file=sys.stderr)
            continue
        if prediction["new_ns"] is None:
            print(f"a range alone: {' '.join(what)}, {old} -> {new}", file=sys.stderr)
            continue
        base = prediction["step_ns"]
        yield Case(
            *what, f"{old} -> {new}", with_step, truth,
            *(prediction[k] / base for k in ("new_ns", "low_ns", "high_ns")),
        )  # fmt: skip


def collscope(*words: str) -> bytes:
    command = [sys.executable, "-m", "collscope", *words]
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode:
        raise RefusedError(done.stderr.decode())
    return done.stdout


def read_steps(path: Path) -> dict[tuple[str, str], list[float]]:
    """Step times by case and setting, ms, in the order in which they were measured."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    if any(line.get("set") == "steps" for line in lines):
        lines = [line for line in lines if line.get("set") == "steps"]
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in lines:
        times = line["pipelined_ms"]
        setting = line["setting"].removesuffix("2") if line["setting"] == "default2" else None
        found[line["case"], setting or line["setting"]] += (
            times if isinstance(times, list) else [times]
        )
    return found


def ratios(old: list[float], new: list[float]) -> tuple[float, float, float]:
    """Least, median and largest ratio of like measures; a single one is compared with all."""
    if min(len(old), len(new)) == 1:
        found = [b / a for a in old for b in new]
    else:
        found = [b / a for a, b in zip(old, new, strict=False)]
    return min(found), statistics.median(found), max(found)


def score(low: float, high: float, truth: float) -> float:
    outside = max(0.0, low - truth, truth - high)
    return high - low + 2 / (1 - LEVEL) * outside


def table(cases: Iterable[Case]) -> Iterator[str]:
    yield (
        f"{'job':9}{'trace':17}{'change':18}{'step':7}{'predicted':>9}  {'truth':19}"
        f"{'error':>7}{'distance':>9}  {'range':13} holds"
    )
    for c in cases:
        low, middle, high = c.truth
        yield (
            f"{c.job:9}{c.style:17}{c.change:18}{'given' if c.given else '-':7}"
            f"{c.predicted:9.3f}  {middle:.3f} ({low:.3f}-{high:.3f})"
            f"{100 * c.error:6.1f}%{100 * c.distance:8.1f}%  {c.low:.3f}-{c.high:.3f}   "
            f"{'yes' if c.holds else 'NO'}"
        )


def nine_of_ten(rising: list[float]) -> float:
    """The least value that nine of ten do not exceed."""
    return rising[math.ceil(0.9 * len(rising)) - 1]


def summary(cases: list[Case], with_step: bool) -> Iterator[str]:
    if not cases:
        return
    errors = sorted(abs(c.error) for c in cases)
    distances = sorted(c.distance for c in cases)
    own = statistics.mean(score(c.low, c.high, c.truth[1]) for c in cases)
    bands = {
        name: min(
            (statistics.mean(score(m * (1 - w), m * (1 + w), c.truth[1])
                             for m, c in zip(middle, cases, strict=True)), w)
            for w in BANDS
        )
        for name, middle in (("the prediction", [c.predicted for c in cases]),
                             ("no change", [1.0] * len(cases)))
    }  # fmt: skip
    yield (
        f"\n{len(cases)} cases, unprofiled step {'given' if with_step else 'not given'}: "
        f"error median {100 * statistics.median(errors):.1f} %, nine of ten within "
        f"{100 * nine_of_ten(errors):.1f} %, worst {100 * errors[-1]:.0f} %; "
        f"distance median {100 * statistics.median(distances):.1f} %, nine of ten within "
        f"{100 * nine_of_ten(distances):.1f} %, "
        f"worst {100 * distances[-1]:.0f} %; range holds in {sum(c.holds for c in cases)}, "
        f"median width {100 * statistics.median(c.width for c in cases):.0f} %"
    )
    yield f"Interval score {own:.3f}; best constant bands: " + ", ".join(
        f"{s:.3f} (+-{100 * w:.0f} % around {name})" for name, (s, w) in bands.items()
    )


if __name__ == "__main__":
    main()
