"""Several commands on one store at once, of which some are killed.

Nothing may fail, and in the end the store holds what it holds after one command after the other.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from disturb import Ended, run
from ingests_at_once import problems as first_ingests
from judge import State, different, printed_problems, state_of
from scenarios import BEFORE, DB, Scenario, log_and_traces, older

_STORE = ("--db", DB)
_KILLED_OF = 3  # where some are killed, each third one


def _ingest(what: str, folder: str, into: str) -> tuple[str, ...]:
    return ("ingest", what, folder, *_STORE, "--run", into, "--strict")


class Mix(msgspec.Struct, frozen=True):
    """Commands that begin together.

    last    which of them run once more, alone, before the store is looked at
    killed  whether some are killed at a random time; these run again
    """

    name: str
    prepare: Callable[[Path], None]
    commands: tuple[tuple[str, ...], ...]
    last: tuple[int, ...] = ()
    killed: bool = False


_LOGS = tuple(_ingest("log", f"inputs/mixed/rank{rank}.log", "logs") for rank in range(4))
_TRACES = _ingest("trace", "inputs/default", "traces")
_READ = (("report", *_STORE, "--run", BEFORE), ("runs", *_STORE))
_UPGRADE = (*_READ, _ingest("log", "inputs", "more"))
_REMOVE = ("runs", "rm", "main", *_STORE)
MIXES = (
    Mix("ingests, removal and reports", log_and_traces, (*_LOGS, _TRACES, _REMOVE, *_READ)),
    Mix(
        "removal of the run that others ingest into",
        log_and_traces,
        (_REMOVE, *(_ingest("log", f"inputs/mixed/rank{rank}.log", "main") for rank in range(4))),
        last=(1, 2, 3, 4),
    ),
    Mix("the same files by eight", log_and_traces, (_ingest("auto", "inputs", "all"),) * 8),
    Mix("upgrades by eight", older(6), (*_UPGRADE, _READ[1]) * 2),
    Mix("ingests, some killed", log_and_traces, (*_LOGS, _TRACES, *_READ), killed=True),
    Mix("upgrades, some killed", older(12), _UPGRADE, killed=True),
)


class Mixes:
    """Prepared folders, and what each mix leaves when its commands run one after the other."""

    def __init__(self, shim: Path, folder: Path, mixes: tuple[Mix, ...] = MIXES) -> None:
        """Prepare all of them."""
        self._shim, self._folder, self._number = shim, folder, 0
        for mix in mixes:
            (folder / mix.name / "tmp").mkdir(parents=True)
            mix.prepare(folder / mix.name)
        self._ends = {mix.name: self._alone(mix) for mix in mixes}

    def _fresh(self, mix: Mix) -> Path:
        self._number += 1
        folder = self._folder / f"mix-{self._number}"
        shutil.copytree(self._folder / mix.name, folder)
        return folder

    def _state(self, mix: Mix, folder: Path) -> State:
        return state_of(Scenario(mix.name, (), mix.prepare), folder)

    def _alone(self, mix: Mix) -> State:
        folder = self._fresh(mix)
        for command in (*mix.commands, *(mix.commands[i] for i in mix.last)):
            run(self._shim, folder, command)
        return self._state(mix, folder)

    def problems(self, mix: Mix, rng: random.Random) -> tuple[int, list[str]]:
        """Number of commands killed, and what went wrong; the folder stays where something did."""
        folder = self._fresh(mix)

        def one(number: int) -> Ended:
            kill = rng.uniform(0.05, 1.0) if mix.killed and number % _KILLED_OF == 0 else 0.0
            return run(self._shim, folder, mix.commands[number], "", kill, name=f"{number}-")

        with ThreadPoolExecutor(len(mix.commands)) as pool:
            ended = list(pool.map(one, range(len(mix.commands))))
        killed = [number for number, end in enumerate(ended) if mix.killed and end.killed]
        for number in (*killed, *mix.last):
            ended[number] = run(self._shim, folder, mix.commands[number])
        found = [problem for end in ended for problem in printed_problems(end)]
        found += [f"exit {end.code}: {end.err.strip()}" for end in ended if end.code]
        found += different("in the end", self._ends[mix.name], self._state(mix, folder))
        if not found:
            shutil.rmtree(folder)
        return len(killed), found


def at_once(shim: Path, folder: Path, tries: int, seed: int) -> list[str]:
    """Each mix, and first ingests by 2, 4 and 8 processes, so many times; what went wrong."""
    found, kills, rng = [], 0, random.Random(f"{seed} at once")
    mixes = Mixes(shim, folder)
    for mix in MIXES:
        for _ in range(tries):
            killed, wrong = mixes.problems(mix, rng)
            kills += killed
            found += [f"{mix.name}: {problem}" for problem in wrong]
    for count in (2, 4, 8):
        for _ in range(tries):
            found += [f"{count} first ingests: {problem}" for problem in first_ingests(count)]
    print(*found, sep="\n", end="\n" if found else "")
    print(
        f"{len(MIXES) * tries} mixes of commands at once with {kills} kills,"
        f" {3 * tries} times first ingests at once: {len(found)} problems"
    )
    return found
