"""`check` of traced runs against measured steps, and how often it errs on simulated ones.

    python benchmarks/checks.py FOLDER [FOLDER ...] [--trials N]

Folders are as for `prediction.py`. First the range of every two settings' steps is compared with
the ratio of steps that were measured without the profiler. Then runs are simulated from every
recording and judged: its steps as simulated with hosts and GPUs of other starts, with the spread of
its own steps. Hosts of starts differ by a standard deviation of 12 % (nine of ten pairs by less
than 1.32 x, as measured), GPUs by 1 %. `slower`: host and GPU both take so much longer.
A recording is host-bound where a step may take 15 % more at one end of its range.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import exp, log, sqrt
from pathlib import Path

import msgspec
import numpy as np
from prediction import ingest, read_steps, recordings

from collscope.ingest.match import reading
from collscope.reports.check.traced import check_traced
from collscope.reports.check.verdict import Verdict
from collscope.reports.compare.labels import CIRCUMSTANCES, Label
from collscope.reports.compare.step_samples import STEP, SampledRun
from collscope.reports.waiting.traced_run import read_traced_run
from collscope.stats import Samples, sigma
from collscope.timeline.assumptions import host_prior
from collscope.timeline.play import Substitutions, play
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.tolerances import SURE, USUAL
from collscope.timeline.unprofiled import (
    PACES,
    UnprofiledSteps,
    step_ratio,
    unprofiled_steps,
)

HOSTS_APART, GPUS_APART = 0.12, 0.01  # standard deviations of a start's logarithm
GRID = np.geomspace(0.1, 4, 40)
CHANGES = {"equal": 1.0, "10 % slower": 1.1, "30 % slower": 1.3, "30 % faster": 1 / 1.3}
STEPS = (2, 3, 5, 10, 20)
HOST_BOUND = 1.15


class Recording(msgspec.Struct, frozen=True):
    """One recorded run; ns."""

    name: tuple[str, str, str, str]  # folder, job, style, setting
    steps: UnprofiledSteps
    prior: tuple[float, float, float]
    by_pace: tuple[float, ...]  # the step with the hosts' paces of `GRID`
    measured: tuple[float, ...]  # without the profiler

    @property
    def bound(self) -> str:
        low, high = self.steps.ends
        return "hosts" if high > HOST_BOUND * low else "GPUs"

    def at(self, pace: float) -> float:
        return float(np.interp(pace, GRID, self.by_pace))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--trials", type=int, default=8, help="of each case and recording")
    given = parser.parse_args()
    found = [recording for folder in given.folders for recording in read(folder)]
    print("\n".join(held(found)))
    print("\n".join(simulated(found, given.trials)))


def read(folder: Path) -> Iterator[Recording]:
    measured = read_steps(folder / "steps.jsonl")
    for (job, style), by_setting in recordings(folder, measured):
        with tempfile.TemporaryDirectory() as scratch:
            db = ingest(by_setting, Path(scratch))
            with reading(db) as store:
                for setting in by_setting:
                    recorded = read_traced_run(store, db, setting).recorded()
                    steps = unprofiled_steps(recorded)
                    if steps is None:
                        continue
                    yield Recording(
                        (folder.name, job, style, setting), steps, host_prior(recorded),
                        tuple(by_pace(recorded)), tuple(measured[job, setting]),
                    )  # fmt: skip


def by_pace(recorded: RecordedJob) -> Iterator[float]:
    slowdown = recorded.contention.slowdown
    alone = recorded.contention.alone(recorded.graph.duration, slowdown)
    for pace in GRID.tolist():
        new = Substitutions(None, pace, alone, slowdown)
        yield recorded.step(play(recorded.graph, new))


def held(found: Sequence[Recording]) -> Iterator[str]:
    """Ranges of the ratio of two settings, and those of each step, against what was measured."""
    alike: dict[tuple[str, ...], list[Recording]] = defaultdict(list)
    for one in found:
        alike[one.name[:3]].append(one)
    pairs = [pair for runs in alike.values() for pair in combinations(runs, 2)]
    for confidence in (USUAL, SURE):
        by_folder: Mapping[str, list[tuple[bool, float]]] = defaultdict(list)
        for a, b in pairs:
            ratio = step_ratio(a.steps, b.steps, confidence)
            if ratio is not None:
                truth = statistics.median(b.measured) / statistics.median(a.measured)
                inside = ratio.low <= truth <= ratio.high
                by_folder[a.name[0]].append((inside, ratio.high / ratio.low - 1))
        yield f"{100 * confidence:g} % ranges of the ratio of two settings' steps:"
        for folder, cases in by_folder.items():
            width = statistics.median(width for _, width in cases)
            yield (
                f"  {folder:24} {sum(inside for inside, _ in cases)} of {len(cases)} hold what was"
                f" measured, median width {100 * width:.0f} %"
            )
        inside = [inside for cases in by_folder.values() for inside, _ in cases]
        yield f"  {'all':24} {sum(inside)} of {len(inside)}"
    own = sum(
        low <= 1e6 * statistics.median(one.measured) <= high
        for one in found
        for low, high in (one.steps.ends,)
    )
    yield f"Of {len(found)} steps {own} lie in their ranges."


def simulated(found: Sequence[Recording], trials: int) -> Iterator[str]:
    """Verdicts over pairs of simulated runs."""
    rng = random.Random(5)
    noise = [r for one in found for r in _residuals(one.steps.recorded)]
    verdicts: dict[tuple[str, str, int], Counter[Verdict]] = defaultdict(Counter)
    for one in found:
        for steps in STEPS:
            for change, factor in CHANGES.items():
                for _ in range(trials):
                    runs = [_start(one, f, steps, noise, rng) for f in (1.0, factor)]
                    verdicts[one.bound, change, steps][check_traced(*runs).verdict] += 1
    yield f"\n{'bound by':10}{'second run':14}{'steps':>6}{'pairs':>7}" + "".join(
        f"{v.value:>13}" for v in Verdict
    )
    for (bound, change, steps), counts in sorted(verdicts.items()):
        total = counts.total()
        yield f"{bound:10}{change:14}{steps:6}{total:7}" + "".join(
            f"{100 * counts[v] / total:11.1f} %" for v in Verdict
        )


def _residuals(steps: Sequence[float]) -> list[float]:
    """Deviations of a recording's steps, in standard deviations; those from a mean are less."""
    logs = [log(ns) for ns in steps]
    spread = sigma(logs) * sqrt(1 - 1 / len(logs))
    return [(x - statistics.fmean(logs)) / spread for x in logs] if spread else []


def _start(
    one: Recording, factor: float, steps: int, noise: Sequence[float], rng: random.Random
) -> SampledRun:
    """Another start of a recorded run, recorded for so many steps."""
    host = factor * exp(rng.gauss(0, HOSTS_APART))
    gpu = factor * exp(rng.gauss(0, GPUS_APART))
    spread = sigma([log(ns) for ns in one.steps.recorded])
    each = [exp(spread * rng.choice(noise)) for _ in range(steps)]

    def step(pace: float) -> float:
        """A host of that pace, and a GPU of its own."""
        return gpu * one.at(pace * host / gpu)

    recorded = tuple(step(1.0) * r for r in each)
    mean = statistics.fmean(each)
    played = tuple(tuple(mean * step(cost * pace) for pace in PACES) for cost in one.prior)
    name = str(rng.random())
    label = Label(name, {}, 0, dict.fromkeys(CIRCUMSTANCES, ()))
    return SampledRun(
        label, Path("simulated"), one.steps.profiler, steps, "marks", (0,), 1, 0.0,
        UnprofiledSteps(one.steps.profiler, recorded, played),
        {STEP: Samples({name: tuple(ns / 1000 for ns in recorded)})}, {}, {}, 0, (0, 0), 0,
        name,
    )  # fmt: skip


if __name__ == "__main__":
    main()
