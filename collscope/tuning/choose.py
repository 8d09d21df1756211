"""From what is known of every setting to what the job gets: variables, or rows (pure)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from collscope.tuning.csv_format import TunerRow
from collscope.tuning.decide import Standing
from collscope.tuning.intervals import Point, Range, Shape, best_ranges, bounds
from collscope.tuning.names import COLLECTIVE_OF
from collscope.tuning.settings import DEFAULT, P2P_KNOBS, Setting, TuningTarget, why_not

PRESENT = "present"
NOTHING, ENVIRONMENT, PLUGIN = "nothing", "environment", "plugin"
_SIMPLER = 0.005  # what a more complicated answer must save, of the collective time
_UNPROVEN = 1 + 1e-6  # between equals the library's default wins


class Candidate(msgspec.Struct, frozen=True):
    """One class with every setting that was tried on it."""

    class_id: int  # of the plan
    shape: Shape
    size_bytes: int
    calls: float  # that one rank makes
    standings: Mapping[str, Standing]
    floor: float  # noise floor of the class, part of its time: see `decide.noise_floor`

    @property
    def p2p(self) -> bool:
        """True for operations without a choice of algorithm: point-to-point calls."""
        return self.shape.op not in COLLECTIVE_OF

    def cost_s(self, name: str) -> float | None:
        """Seconds of all calls with a setting; None when it may not be taken.

        What is not sure to be better than the present setting and the default counts as no better.
        """
        standing = self.standings.get(name)
        if standing is None or not standing.allowed:
            return None
        time = standing.time_us
        for other in (PRESENT, DEFAULT.name):
            against = standing.against_present if other == PRESENT else standing.against_default
            known = self.standings.get(other)
            if name != other and known is not None and against is not None:
                proven = against.beyond(self.floor)
                time = time if proven else max(time, known.time_us)
        return self.calls * time / 1e6


class Choice(msgspec.Struct, frozen=True):
    """What to do: nothing, set and unset variables, or load the plugin with rows."""

    kind: str
    by_class: Mapping[int, str]  # setting of each class that was tuned
    environment: tuple[tuple[str, str], ...] = ()  # without what loads the plugin
    rows: tuple[TunerRow, ...] = ()
    why: str = ""


class ChoiceInput(msgspec.Struct, frozen=True):
    """What a choice is made of.

    sizes  of every class of the plan, tuned or not: a variable reaches them all
    """

    candidates: Sequence[Candidate]
    settings: Mapping[str, Setting]  # by name, the present one and the default among them
    sizes: Sequence[tuple[Shape, int]]
    place: TuningTarget


def choose(known: ChoiceInput) -> Choice:
    """The simplest answer that wins nearly as much as the best one (docs/tune.md)."""
    collectives = [c for c in known.candidates if not c.p2p]
    others = [c for c in known.candidates if c.p2p]
    stay = _total(known.candidates, PRESENT)
    options = [_environment(known, s) for s in known.settings.values() if s.name != PRESENT]
    found = [o for o in options if o is not None]
    if collectives and known.place.has_tuner:
        plugin = _plugin(known, collectives, others)
        found += [] if plugin is None else [plugin]
    best: tuple[float, Choice] | None = None if stay is None else (stay, Choice(NOTHING, {}))
    for cost, choice in found:
        worth_it = best is None or cost < best[0] * (1 - _SIMPLER)
        if worth_it and _sure(known, choice):
            best = (cost, choice)
    if best is None:
        return Choice(NOTHING, {}, why="no setting is at least as good on every class")
    return _with_p2p(known, best[1], others)


def _total(classes: Sequence[Candidate], name: str) -> float | None:
    """Seconds with one setting for all; None where a class does not run with it."""
    times = [c.standings[name].time_us * c.calls if name in c.standings else None for c in classes]
    known = [t for t in times if t is not None]
    return sum(known) / 1e6 if len(known) == len(times) else None


def _sure(known: ChoiceInput, choice: Choice) -> bool:
    """True when at least one class is surely better off."""
    return any(
        name != PRESENT and c.standings[name].accepted
        for c in known.candidates
        if (name := choice.by_class.get(c.class_id, PRESENT)) in c.standings
    )


def _environment(known: ChoiceInput, setting: Setting) -> tuple[float, Choice] | None:
    """One setting for everything; None where a class forbids it.

    A forced algorithm stops every call that it does not serve, also those that no log showed.
    Ring serves all collectives. Other algorithms go through the plugin, which leaves such calls
    alone. So do settings that were not tried on every class: forced for large sizes, they may harm
    small ones.
    """
    if setting.algorithm not in (None, "ring") or setting.family == "p2p":
        return None
    untried = len(known.candidates) < len(known.sizes)
    if setting.as_row and untried and known.place.has_tuner:
        return None
    served = [s for s, _ in known.sizes if s.op in COLLECTIVE_OF]
    if any(why_not(setting, s.op, s.nranks, s.nnodes, known.place) for s in served):
        return None
    # Point-to-point calls do not see an algorithm: they run as with the default.
    by_class = {
        c.class_id: DEFAULT.name if c.p2p and setting.family == "collective" else setting.name
        for c in known.candidates
    }
    costs = [_cost(c, by_class[c.class_id]) for c in known.candidates]
    total = [cost for cost in costs if cost is not None]
    if len(total) < len(costs):
        return None
    return sum(total), Choice(ENVIRONMENT, by_class, setting.environment)


def _cost(c: Candidate, name: str) -> float | None:
    """Cost of a class; point-to-point calls may keep their present knobs beside the default."""
    cost = c.cost_s(name)
    keeps = cost is None and c.p2p and name == DEFAULT.name
    return c.cost_s(PRESENT) if keeps else cost


def _plugin(
    known: ChoiceInput, collectives: Sequence[Candidate], others: Sequence[Candidate]
) -> tuple[float, Choice] | None:
    """Rows per shape, on top of the default; None where a class has no choice."""
    total = 0.0
    chosen: dict[int, str] = {}
    for shape in sorted({c.shape for c in collectives}, key=str):
        of_shape = [c for c in collectives if c.shape == shape]
        points = _points(of_shape, known.settings)
        ranges = best_ranges(points)
        if ranges is None:
            return None
        for found in ranges:
            for point in points[found.first : found.last + 1]:
                total += point.costs[found.setting]
                same = [c.class_id for c in of_shape if c.size_bytes == point.size_bytes]
                chosen.update(dict.fromkeys(same, found.setting))
    for c in others:
        cost = _cost(c, DEFAULT.name)
        if cost is None:
            return None
        total += cost
        chosen[c.class_id] = DEFAULT.name
    rows = rows_of(known, chosen)
    return (total, Choice(PLUGIN, chosen, (), rows)) if rows else None


def _points(classes: Sequence[Candidate], settings: Mapping[str, Setting]) -> list[Point]:
    """Sizes in order, with the settings that a row can name and every class of the size allows."""
    by_size: dict[int, list[Candidate]] = defaultdict(list)
    for c in classes:
        by_size[c.size_bytes].append(c)
    points = []
    for size, same in sorted(by_size.items()):
        costs: dict[str, float] = {}
        for name, setting in settings.items():
            each = [c.cost_s(name) for c in same]
            known = [cost for cost in each if cost is not None]
            if len(known) == len(each) and (setting.as_row or name == DEFAULT.name):
                costs[name] = sum(known) * _handicap(setting)
        points.append(Point(size, costs))
    return points


def _handicap(setting: Setting) -> float:
    """By how much the more complicated of two choices must be better."""
    if setting.name == DEFAULT.name:
        return 1.0
    return 1 + _SIMPLER if setting.channels is not None else _UNPROVEN


def rows_of(known: ChoiceInput, by_class: Mapping[int, str]) -> tuple[TunerRow, ...]:
    """Rows of the plugin's CSV: neighbouring sizes with one setting are one row.

    No row reaches over a size that was not tuned.
    """
    rows: list[TunerRow] = []
    groups: dict[Shape, dict[int, str]] = defaultdict(dict)
    for c in known.candidates:
        if not c.p2p:
            groups[c.shape][c.size_bytes] = by_class.get(c.class_id, DEFAULT.name)
    for shape, size in known.sizes:
        if shape in groups:
            groups[shape].setdefault(size, DEFAULT.name)
    for shape, by_size in sorted(groups.items(), key=lambda item: str(item[0])):
        sizes = sorted(by_size)
        starts = [i for i, s in enumerate(sizes) if not i or by_size[s] != by_size[sizes[i - 1]]]
        for first, after in zip(starts, [*starts[1:], len(sizes)], strict=True):
            found = Range(first, after - 1, by_size[sizes[first]])
            setting = known.settings[found.setting]
            if setting.algorithm is None or setting.protocol is None:
                continue
            low, high = bounds(sizes, found)
            rows.append(
                TunerRow(
                    shape.op, low, high, setting.algorithm, setting.protocol, setting.channels,
                    shape.nnodes, shape.nranks,
                )
            )  # fmt: skip
    return tuple(rows)


def _with_p2p(known: ChoiceInput, choice: Choice, others: Sequence[Candidate]) -> Choice:
    """The choice with knobs that only point-to-point calls see: a better one, or the present's."""
    if not others:
        return choice
    if choice.kind == ENVIRONMENT and any(n in dict(choice.environment) for n in P2P_KNOBS):
        return choice
    present = known.settings[PRESENT].environment
    kept = tuple((k, v) for k, v in present if k in P2P_KNOBS)
    base = PRESENT if choice.kind == NOTHING else DEFAULT.name
    name = base
    # A setting that does not run costs everything.
    total = {n: _total(others, n) for n in (PRESENT, DEFAULT.name)}
    seconds = {n: math.inf if t is None else t for n, t in total.items()}
    if choice.kind != NOTHING and kept and seconds[PRESENT] < seconds[DEFAULT.name]:
        name = PRESENT
    best = seconds[name]
    for setting in known.settings.values():
        costs = [c.cost_s(setting.name) for c in others]
        usable = [cost for cost in costs if cost is not None]
        sure = any(s.accepted for c in others if (s := c.standings.get(setting.name)))
        fits = setting.family == "p2p" and len(usable) == len(costs) and sure
        if fits and sum(usable) < best * (1 - _SIMPLER):
            best, name = sum(usable), setting.name
    if name == base:
        return choice
    added = kept if name == PRESENT else known.settings[name].environment
    before = choice.environment if choice.kind != NOTHING else present
    names = dict(added)
    environment = (*((k, v) for k, v in before if k not in names), *added)
    by_class = {**choice.by_class, **{c.class_id: name for c in others}}
    kind = ENVIRONMENT if choice.kind == NOTHING else choice.kind
    return Choice(kind, by_class, environment, choice.rows)
