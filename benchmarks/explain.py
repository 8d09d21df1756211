"""`compare --explain` of recorded jobs against step times that were measured without the profiler.

    python benchmarks/explain.py FOLDER [FOLDER ...] [--only TEXT]

Folders are as for `prediction.py`. Every pair of settings of a job and style is explained. Where
the settings differ in the collectives alone, the difference of the measured steps is their part.
With `slowcompute` it is the part of the compute kernels, and the collectives have none.

The truth is the difference of the medians; its interval holds that of every two measurements.
Sign: the sign of the part, where the interval decides it. `known`: the part's range excludes 0.
`from`: the largest uncertainty of the range. A step that the hosts bound varies from start to start
like its hosts, so the difference of two settings includes a difference of hosts. Where a folder has
a calibration (a loop of launches alone, by setting), the hosts' paces are printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from prediction import RefusedError, collscope, ingest, read_steps, recordings

SLOW_COMPUTE, SLOW_HOST = "slowcompute", "slowhost"


class Case(msgspec.Struct, frozen=True):
    """One part of one difference; ms a step."""

    job: str
    style: str
    settings: tuple[str, str]
    part: str
    truth: tuple[float, float, float]  # least, middle, largest
    explained: float | None  # None: not known
    low: float
    high: float
    widest: str
    step: float  # measured, of the first setting
    within: int  # how many of the two measured steps lie in their ranges

    @property
    def decided(self) -> bool:
        """The measurements decide the sign."""
        return self.truth[0] > 0 or self.truth[2] < 0

    @property
    def sign(self) -> str:
        if not self.decided:
            return "-"
        if self.explained is None:
            return "unknown"
        return "yes" if (self.explained > 0) == (self.truth[1] > 0) else "NO"

    @property
    def known(self) -> bool:
        return self.low > 0 or self.high < 0

    @property
    def misled(self) -> bool:
        """A range without 0 on the wrong side."""
        return self.known and self.decided and (self.low > 0) != (self.truth[1] > 0)

    @property
    def holds(self) -> bool:
        return self.low <= self.truth[1] <= self.high

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--only", default="", help="part of 'job style'")
    given = parser.parse_args()
    cases: list[Case] = []
    for folder in given.folders:
        found = list(explain_folder(folder, given.only))
        if found:
            print(
                "\n".join((f"\n{folder.name}{host_paces(folder)}", *table(found), summary(found)))
            )
        cases += found
    print(f"\nAll: {summary(cases)}")


def host_paces(folder: Path) -> str:
    """How long the hosts need for the same launches, by setting; nothing where not measured."""
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    free = {k["setting"]: k["free_us"] for k in lines if k.get("set") == "calibration"}
    if not free:
        return ""
    paces = ", ".join(f"{name} {us / free['default']:.2f}" for name, us in free.items())
    return f" (hosts' time for the same launches, in parts of the default's: {paces})"


def explain_folder(folder: Path, only: str) -> Iterator[Case]:
    steps = read_steps(folder / "steps.jsonl")
    for (job, style), by_setting in recordings(folder, steps):
        if only not in f"{job} {style}":
            continue
        with tempfile.TemporaryDirectory() as scratch:
            db = ingest(by_setting, Path(scratch))
            for pair in combinations(sorted(by_setting), 2):
                try:
                    answer = msgspec.json.decode(
                        collscope(
                            "compare", "--explain", *pair, "--db", str(db), "--format", "json"
                        )
                    )
                except RefusedError as error:
                    print(f"no answer: {job} {style}, {pair}: {error}", file=sys.stderr)
                    continue
                first, second = (steps[job, setting] for setting in pair)
                yield judge((job, style), pair, (first, second), answer)


def judge(
    what: tuple[str, str],
    pair: tuple[str, str],
    steps: tuple[list[float], list[float]],
    answer: dict[str, Any],
) -> Case:
    first, second = steps
    middle = statistics.median(second) - statistics.median(first)
    truth = min(second) - max(first), middle, max(second) - min(first)
    part = "collectives"
    if SLOW_COMPUTE in pair:
        part = "compute"
    elif SLOW_HOST in pair:
        truth = 0.0, 0.0, 0.0
    (found,) = (p for p in answer["parts"] if p["part"] == part)
    explained = None if found["ns"] is None else found["ns"] / 1e6
    return Case(
        *what, pair, part, truth, explained, found["low_ns"] / 1e6, found["high_ns"] / 1e6,
        found["widest"] or "-", statistics.median(first),
        sum(answer[run]["unprofiled_low_ns"] <= statistics.median(times) * 1e6
            <= answer[run]["unprofiled_high_ns"]
            for run, times in (("first", first), ("second", second))),
    )  # fmt: skip


def table(cases: Iterable[Case]) -> Iterator[str]:
    yield (
        f"{'job':11}{'style':16}{'settings':24}{'part':12}{'truth, ms a step':24}{'part ms':>8}"
        f"  {'range':17}{'from':11}{'sign':9}{'known':7}holds"
    )
    for c in cases:
        low, middle, high = c.truth
        explained = "-" if c.explained is None else f"{c.explained:+.1f}"
        truth, span = f"{middle:+.1f} ({low:+.1f} to {high:+.1f})", f"{c.low:+.1f} to {c.high:+.1f}"
        yield (
            f"{c.job:11}{c.style:16}{' -> '.join(c.settings):24}{c.part:12}{truth:24}{explained:>8}"
            f"  {span:17}{c.widest:11}{c.sign:9}{'yes' if c.known else '-':7}"
            f"{'yes' if c.holds else 'NO'}"
        )


def summary(cases: list[Case]) -> str:
    if not cases:
        return "no differences."
    decided = [c for c in cases if c.decided]
    known = [c for c in decided if c.explained is not None]
    errors = [abs(c.explained - c.truth[1]) / c.step for c in known if c.explained is not None]
    error = (
        f"the median error of the known ones is {100 * statistics.median(errors):.1f} % of it"
        if errors
        else "the measurements decide none of the known ones"
    )
    return (
        f"{len(cases)} differences: sign right in {sum(c.sign == 'yes' for c in known)} of"
        f" {len(known)} that have one and are known ({sum(c.misled for c in decided)} wrong with a"
        f" range that excludes 0, {len(decided) - len(known)} not known); the range holds"
        f" the truth in {sum(c.holds for c in cases)}, its median width is"
        f" {100 * statistics.median(c.width for c in cases):.0f} % of the step; {error}. Of"
        f" {2 * len(cases)} measured steps {sum(c.within for c in cases)} lie in their ranges."
    )


if __name__ == "__main__":
    main()
