"""The search: rounds of launches; each class keeps fewer settings from round to round."""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from statistics import median

import msgspec

from collscope.model import Measurement
from collscope.tuning.decide import FEWEST_ROUNDS, Rounds, Standing, standings
from collscope.tuning.halving import ROUNDS, fitting, order, survivors
from collscope.tuning.launches import Launches, print_progress
from collscope.tuning.settings import DEFAULT, Setting, TuningTarget, channel_settings
from collscope.units import count

PRESENT = "present"
_BEST = 2  # algorithm and protocol pairs whose channels are tried
# Our choices; they move only how many settings fit into the time limit.
_LEARNT = 0.3  # of a difference between estimate and launch
_SMALL_PART = 0.3  # of a launch of all classes that one of few still takes


class Clock(msgspec.Struct):
    """How long launches take, and how much time is left."""

    limit_s: float
    begun: float = msgspec.field(default_factory=time.monotonic)
    whole_s: float = 0.0  # of a launch with all classes of the plan; 0: none seen yet
    whole_classes: int = 1
    reserved_s: float = 0.0  # for the confirmation

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begun

    @property
    def left_s(self) -> float:
        """Seconds for the search."""
        return self.limit_s - self.elapsed_s - self.reserved_s

    def learn_from(self, seconds: float, classes: int) -> None:
        """Learn from a launch; the first ones are of all classes, and check results as well."""
        if not self.whole_s:
            self.whole_s, self.whole_classes = seconds, max(classes, 1)
            return
        ratio = min(2.0, seconds / self.launch_s(classes))  # one that hung does not predict others
        self.whole_s *= 1 + _LEARNT * (ratio - 1)

    def launch_s(self, classes: int) -> float:
        """Estimate of a launch of so many classes."""
        part = classes / self.whole_classes
        return self.whole_s * min(1.0, _SMALL_PART + (1 - _SMALL_PART) * part)


class Search(msgspec.Struct):
    """Times of every setting on every class, and what was given up."""

    launches: Launches
    clock: Clock
    settings: dict[str, Setting]  # by name; present first
    classes: tuple[int, ...] = ()  # that are tuned
    alive: dict[int, set[str]] = msgspec.field(default_factory=dict)
    times: dict[int, dict[str, dict[int, float]]] = msgspec.field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    repeats: dict[int, list[float]] = msgspec.field(default_factory=lambda: defaultdict(list))
    dropped: dict[str, str] = msgspec.field(default_factory=dict)  # settings given up, and why
    failed: dict[tuple[str, int], str] = msgspec.field(default_factory=dict)  # on one class
    verified: set[tuple[str, int]] = msgspec.field(default_factory=set)
    first: dict[int, Measurement] = msgspec.field(default_factory=dict)  # any row of a class
    counts: dict[str, int] = msgspec.field(default_factory=lambda: defaultdict(int))
    done: int = 0

    @property
    def default(self) -> str:
        """Name of the library's default: the present setting where the job sets nothing."""
        return DEFAULT.name if DEFAULT.name in self.settings else PRESENT

    def run(self, name: str, classes: Collection[int], number: int) -> None:
        """One launch; its times, refusals and wrong results are kept."""
        setting = self.settings[name]
        chosen = [c for c in classes if (name, c) not in self.failed]
        if not chosen or name in self.dropped:
            return
        verify = any((name, c) not in self.verified for c in chosen)
        print_progress(f"round {number}, {name}: {count(len(chosen), 'class', 'classes')}")
        # A launch of the present setting may come twice in a round: its rows need another number.
        row_number = self.launches.count + 1
        found = self.launches.start(setting, chosen, row_number, verify=verify)
        self.counts[name] += 1
        self.clock.learn_from(found.seconds, len(chosen))
        for class_id, m in found.rows.items():
            self._take(name, class_id, number, m)
        if found.problem is not None and name not in (PRESENT, DEFAULT.name):
            self._drop(name, found.problem)
        elif found.problem is not None:
            for class_id in set(chosen) - found.rows.keys():
                self.failed[name, class_id] = found.problem
        if all((name, c) in self.failed for c in chosen) and name not in self.dropped:
            self._drop(name, self.failed[name, chosen[0]])

    def _drop(self, name: str, why: str) -> None:
        self.dropped[name] = why
        print_progress(f"setting '{name}' is given up: {why}", always=True)

    def _take(self, name: str, class_id: int, number: int, m: Measurement) -> None:
        if m.n_wrong or m.status == "wrong":
            if name not in self.dropped:
                self._drop(name, f"WRONG RESULTS: {count(m.n_wrong, 'element')} of {m.op.value}")
            return
        if m.status != "ok" or not m.time_us_median:
            self.failed[name, class_id] = m.message or m.status
            return
        self.verified.add((name, class_id))
        self.first.setdefault(class_id, m)
        rounds = self.times[class_id][name]
        if name == PRESENT:
            self.repeats[class_id].append(m.time_us_median)
            earlier = rounds.get(number)
            rounds[number] = median([m.time_us_median, earlier]) if earlier else m.time_us_median
        else:
            rounds[number] = m.time_us_median

    def survey(self, every: Collection[int]) -> None:
        """The present setting and the default on every class of the plan: round 0."""
        for name in dict.fromkeys((PRESENT, self.default)):
            self.run(name, every, 0)

    def begin(self, classes: Iterable[int], legal: Mapping[int, Collection[str]]) -> list[str]:
        """Take up the classes to tune.

        legal    settings by class, in addition to the present one and the default
        returns  settings that there is no time for
        """
        self.classes = tuple(classes)
        wanted = [s for s in self.settings if any(s in legal[c] for c in self.classes)]
        launch_s = self.clock.launch_s(len(self.classes))
        room = fitting(wanted, launch_s, self.clock.left_s)
        kept = set(wanted[:room])
        for class_id in self.classes:
            self.alive[class_id] = {s for s in legal[class_id] if s in kept} | self._references()
        return wanted[room:]

    def _references(self) -> set[str]:
        return {PRESENT, self.default}

    def rounds(
        self,
        place: TuningTarget,
        legal: Mapping[int, Collection[str]],
        rng: random.Random,
        *,
        channels: bool,
    ) -> None:
        """All rounds, as long as there is time.

        legal     settings by class
        channels  after the first round also try the best pairs of algorithm and protocol with
                  other numbers of channels, on the classes where the pair is legal
        """
        while self.done < ROUNDS:
            names = {name for c in self.classes for name in self.alive[c]} - self.dropped.keys()
            planned = order(names, PRESENT, rng)
            need = sum(self.clock.launch_s(len(self._of(name))) for name in planned)
            others = names - self._references()
            if others and not self.enough and need + self._least_s() > self.clock.left_s:
                self._narrow(others)
                continue
            # Without a decision there is nothing to confirm: a round of that may go first.
            lent = 0.0 if self.enough else self.clock.reserved_s / 3
            if need > self.clock.left_s + lent or names == {PRESENT} or self._clear():
                return
            number = self.done + 1
            for name in planned:
                self.run(name, self._of(name), number)
            self.done += 1
            self._halve()
            if self.done == 1 and channels:
                self._add_channels(place, legal)

    def _least_s(self) -> float:
        """Seconds of the rounds behind the next one that a decision needs, with few settings."""
        rounds = max(0, FEWEST_ROUNDS - self.done - 1)
        return rounds * len(self._references()) * self.clock.launch_s(len(self.classes))

    def _narrow(self, others: Collection[str]) -> None:
        """Drop the slower half of the settings, or the only one: there is no time for all."""
        ranked = sorted(others, key=lambda name: (self._mean_ratio(name), name))
        kept = {*ranked[: len(ranked) // 2], *self._references()}
        for class_id in self.classes:
            self.alive[class_id] &= kept

    def _mean_ratio(self, name: str) -> float:
        """Time of a setting over the default's, summed over the classes that have both."""
        own = reference = 0.0
        for class_id in self.classes:
            both = [self.times[class_id].get(n) for n in (name, self.default)]
            if both[0] and both[1]:
                own += median(both[0].values())
                reference += median(both[1].values())
        return own / reference if reference else math.inf

    def _of(self, name: str) -> list[int]:
        return [c for c in self.classes if name in self.alive[c]]

    def _clear(self) -> bool:
        """True when more rounds would decide nothing: no faster setting of a class is in doubt."""
        if not self.enough:
            return False
        for class_id, (found, floor) in self.decided().items():
            usable = {name: s for name, s in found.items() if name in self.alive[class_id]}
            sure = [s.time_us for name, s in found.items() if s.accepted or name == PRESENT]
            least = min(sure, default=math.inf)
            if any(s.time_us < least * (1 - floor) for s in usable.values() if not s.accepted):
                return False
            gains = [s.against_default for s in usable.values() if s.against_default is not None]
            if any(gain.saved > floor and not gain.beyond(floor) for gain in gains):
                return False
        return True

    def _halve(self) -> None:
        for class_id in self.classes:
            usable = {
                name: rounds
                for name, rounds in self.times[class_id].items()
                if name in self.alive[class_id] and name not in self.dropped
            }
            self.alive[class_id] = survivors(usable, self._references(), self.done)

    def _add_channels(self, place: TuningTarget, legal: Mapping[int, Collection[str]]) -> None:
        """Add numbers of channels to the pairs that would carry most time.

        We assume that each class uses its fastest pair of algorithm and protocol.
        """
        votes: dict[str, float] = defaultdict(float)
        for class_id in self.classes:
            times = self.times[class_id]
            pairs = [s for s in self.alive[class_id] if self.settings[s].as_row and s in times]
            fastest = min(pairs, key=lambda s: median(times[s].values()), default=None)
            if fastest is not None:
                votes[fastest] += median(times[fastest].values())
        best = sorted(votes, key=lambda s: -votes[s])[:_BEST]
        added = channel_settings([self.settings[s] for s in best], place)
        fits = fitting(
            [s.name for s in added], self.clock.launch_s(len(self.classes)), self.clock.left_s
        )
        for setting in added[:fits]:
            if any(setting.environment == s.environment for s in self.settings.values()):
                continue
            pair = f"{setting.algorithm}/{setting.protocol}"
            self.settings[setting.name] = setting
            for class_id in self.classes:
                if pair in legal[class_id]:
                    self.alive[class_id].add(setting.name)

    def decided(self) -> dict[int, tuple[dict[str, Standing], float]]:
        """Standings of every setting by class, and the class's noise floor."""
        return {
            class_id: standings(
                self._usable(class_id), PRESENT, DEFAULT.name, self.repeats[class_id]
            )
            for class_id in self.classes
        }

    def _usable(self, class_id: int) -> dict[str, Rounds]:
        """Times of a class by setting; of a reference also those before it failed once.

        Without them nothing would be compared with it, and a worse setting might be chosen.
        """
        times: dict[str, Rounds] = {
            name: rounds
            for name, rounds in self.times[class_id].items()
            if name not in self.dropped
            and ((name, class_id) not in self.failed or name in self._references())
        }
        # The job sets nothing: then its setting is the default, under both names.
        if self.default == PRESENT and PRESENT in times:
            times[DEFAULT.name] = times[PRESENT]
        return times

    @property
    def enough(self) -> bool:
        """True when there are rounds enough to decide."""
        return self.done >= FEWEST_ROUNDS
