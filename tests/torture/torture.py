"""Commands with faults in their I/O and killed, again and again; `make torture` runs it.

torture.py [SCENARIO [FAULT]]     one scenario, or one fault of it (shim.c), whose folder stays
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from at_once import at_once
from disturb import ERRORS, KINDS, NEVER_STAYS, Ended, build, run
from judge import (
    Baseline,
    again_problems,
    disturbed_problems,
    printed_problems,
    state_of,
    unmatched_problems,
)
from scenarios import DB, SCENARIOS, Scenario

AT_ONCE = "at-once"


class Disturbance(msgspec.Struct, frozen=True):
    """A fault as shim.c has it, or a time of a kill as a share of what the command takes."""

    fault: str = ""
    kill_at: float = 0.0

    @property
    def kills(self) -> bool:
        """True for one that ends the process."""
        return not self.fault or self.fault.endswith(("kill", "torn"))

    def __str__(self) -> str:
        return self.fault or f"kill after {self.kill_at:.0%} of its time"


class Outcome(msgspec.Struct, frozen=True):
    """One disturbance: whether it happened, what it met, and what was wrong."""

    scenario: str
    disturbance: Disturbance
    happened: bool
    met: str = ""
    problems: tuple[str, ...] = ()


class Rig:
    """Prepared folders, and what each scenario answers without a disturbance."""

    def __init__(self, shim: Path, folder: Path, scenarios: Iterable[Scenario]) -> None:
        """Prepare all, and run each twice."""
        self._shim, self._folder = shim, folder
        self.scenarios = {scenario.name: scenario for scenario in scenarios}
        for scenario in self.scenarios.values():
            template = folder / "prepared" / scenario.name
            (template / "tmp").mkdir(parents=True)
            scenario.prepare(template)
        self.baselines = {
            scenario.name: self._undisturbed(scenario) for scenario in self.scenarios.values()
        }

    def _fresh(self, scenario: Scenario, name: str) -> Path:
        folder = self._folder / name
        shutil.copytree(self._folder / "prepared" / scenario.name, folder)
        return folder

    def _run(self, folder: Path, scenario: Scenario, fault: str = "", kill: float = 0.0) -> Ended:
        return run(self._shim, folder, scenario.command, fault, kill)

    def _undisturbed(self, scenario: Scenario) -> Baseline:
        folder = self._fresh(scenario, f"undisturbed-{scenario.name}")
        before = state_of(scenario, folder)
        first = self._run(folder, scenario)
        after = state_of(scenario, folder)
        again = self._run(folder, scenario)
        found = [*printed_problems(first), *printed_problems(again)]
        if found:
            raise SystemExit(f"torture: {scenario.name}, undisturbed: {found}\n{first.err}")
        return Baseline(before, first, after, again, state_of(scenario, folder))

    def calls(self, scenario: str) -> dict[str, int]:
        """I/O calls of each kind, as a command without a disturbance makes them."""
        return self.baselines[scenario].first.calls

    def disturb(self, scenario: Scenario, how: Disturbance, name: str) -> Outcome:
        """Run a scenario with one disturbance, then undisturbed; its folder stays if it fails."""
        baseline, folder = self.baselines[scenario.name], self._fresh(scenario, name)
        ended = self._run(
            folder, scenario, how.fault, how.kill_at * max(baseline.first.seconds, 0.05)
        )
        happened = ended.met is not None if how.fault else ended.killed
        now = state_of(scenario, folder)
        problems = disturbed_problems(scenario, baseline, ended, now)
        for label in sorted(now.store.unmatched - now.store.due) if now.store else ():
            asked = run(self._shim, folder, ("report", "--db", DB, "--run", label))
            problems += unmatched_problems(label, asked, now, state_of(scenario, folder))
        again = self._run(folder, scenario)
        problems += again_problems(scenario, baseline, again, state_of(scenario, folder))
        if problems:
            said = f"exit {ended.code}: {ended.err}\nagain, exit {again.code}: {again.err}"
            folder.with_suffix(".said").write_text(said)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            for end in (".err", ".state"):
                folder.with_suffix(end).unlink(missing_ok=True)
        return Outcome(scenario.name, how, happened, ended.met or "", tuple(problems))


def drawn_fault(rng: random.Random, calls: dict[str, int]) -> Disturbance:
    """A fault of a kind of calls that the command makes; each kind is as likely."""
    kind = rng.choice([kind for kind in KINDS if calls[kind]])
    what = rng.choice(ERRORS[kind])
    stays = "+" if what not in NEVER_STAYS and rng.random() < 0.3 else ""
    return Disturbance(f"{kind}:{rng.randint(1, calls[kind])}{stays}:{what}")


def drawn_kill(rng: random.Random, calls: dict[str, int]) -> Disturbance:
    """A kill at a random time, or at a random call, of which every other write is torn."""
    if rng.random() < 0.4:
        return Disturbance(kill_at=rng.uniform(0.2, 1.0))
    what = rng.choice(("kill", "torn"))
    # Most calls only look: half of the kills are at one that changes a file.
    if rng.random() < 0.5:
        return Disturbance(f"any:{rng.randint(1, calls['any'])}:{what}")
    kind = rng.choice([k for k in ("write", "sync", "rename", "truncate", "unlink") if calls[k]])
    return Disturbance(f"{kind}:{rng.randint(1, calls[kind])}:{what}")


class _Draw:
    """Scenarios in turns by weight, each with a disturbance; the same ones for the same seed."""

    def __init__(self, rig: Rig, seed: int, *, kills: bool) -> None:
        self._rig, self._kills = rig, kills
        self._rng = random.Random(f"{seed} {kills}")
        self._turns = [s for s in rig.scenarios.values() for _ in range(s.weight)]
        self._rng.shuffle(self._turns)
        self._number = 0

    def next(self) -> tuple[Scenario, Disturbance, str]:
        scenario = self._turns[self._number % len(self._turns)]
        self._number += 1
        draw = drawn_kill if self._kills else drawn_fault
        how = draw(self._rng, self._rig.calls(scenario.name))
        return scenario, how, f"{'kill' if self._kills else 'fault'}-{self._number}"


def torture(rig: Rig, kills: int, faults: int, seed: int) -> list[Outcome]:
    """So many kills and faults that really happened; problems are printed as they are found."""
    outcomes = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for wanted, are_kills in ((kills, True), (faults, False)):
            draw, happened = _Draw(rig, seed, kills=are_kills), 0
            while happened < wanted:
                batch = [draw.next() for _ in range(min(wanted - happened, 40))]
                for name, outcome in zip(
                    (b[2] for b in batch),
                    pool.map(lambda b: rig.disturb(*b), batch),
                    strict=True,
                ):
                    outcomes.append(outcome)
                    happened += outcome.happened
                    _tell(name, outcome)
    return outcomes


def _tell(name: str, outcome: Outcome) -> None:
    if outcome.problems:
        met = f" ({outcome.met})" if outcome.met else ""
        print(f"{name}: {outcome.scenario} {outcome.disturbance}{met}", flush=True)
        print(*(f"    {problem}" for problem in outcome.problems), sep="\n", flush=True)


def _summary(outcomes: list[Outcome], seconds: float) -> str:
    happened = [o for o in outcomes if o.happened]
    kills = [o for o in happened if o.disturbance.kills]
    kinds = Counter(o.met.partition(" ")[0] for o in happened if not o.disturbance.kills)
    bad = sum(bool(o.problems) for o in outcomes)
    return (
        f"{len(kills)} kills, {len(happened) - len(kills)} faults"
        f" ({', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()))})"
        f" in {seconds:.0f} s: {bad} with problems"
    )


def main() -> int:
    """Everything; or what the arguments name."""
    chosen, fault = [*sys.argv[1:], "", ""][:2]
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    shim, begin, found = build(folder), time.monotonic(), False
    seed = _knob("TORTURE_SEED", 1)
    if chosen != AT_ONCE:
        rig = Rig(shim, folder, [s for s in SCENARIOS if chosen in ("", s.name)])
        if fault:
            outcomes = [rig.disturb(rig.scenarios[chosen], Disturbance(fault), "one")]
            _tell("one", outcomes[0])
        else:
            kills, faults = _knob("TORTURE_KILLS", 200), _knob("TORTURE_FAULTS", 1000)
            outcomes = torture(rig, kills, faults, seed)
        print(_summary(outcomes, time.monotonic() - begin), flush=True)
        found = any(o.problems for o in outcomes)
    if chosen in ("", AT_ONCE):
        begin = time.monotonic()
        found |= bool(at_once(shim, folder, _knob("TORTURE_TRIES", 5), seed))
        print(f"in {time.monotonic() - begin:.0f} s")
    if found:
        print(f"The folders of what failed are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return int(found)


def _knob(name: str, usual: int) -> int:
    return int(os.environ.get(name, str(usual)))


if __name__ == "__main__":
    sys.exit(main())
