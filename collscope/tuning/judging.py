"""What a confirmation shows: which rows hold, whether the whole choice does, and what it saves.

A row is dropped at the first doubt. The whole choice is dropped only when it is surely worse. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from collscope.tuning import confirm as confirmation
from collscope.tuning.choose import NOTHING, PLUGIN, PRESENT
from collscope.tuning.confirm import TUNED, Confirmed
from collscope.tuning.csv_format import TunerCall, TunerRow
from collscope.tuning.decide import FEWEST_ROUNDS, improvement, noise_floor
from collscope.tuning.names import COLLECTIVE_OF
from collscope.tuning.records import Gain
from collscope.tuning.settings import DEFAULT
from collscope.tuning.state import State


def doubtful(state: State, found: Confirmed, classes: Collection[int]) -> set[int]:
    """Classes of rows that come out slower than by default beyond the noise, or do not run."""
    # All classes of a size share a row, tuned or not.
    chosen = {
        state.size(c)
        for c, setting in state.choice.by_class.items()
        if setting != DEFAULT.name and state.shape(c).op in COLLECTIVE_OF
    }
    return {c for c in classes if state.size(c) in chosen and _slower(state, found, c)}


def unproven(state: State, found: Confirmed, classes: Collection[int]) -> set[int]:
    """Classes of the rows that do not surely win against the default over all their classes."""
    return {c for row in state.choice.rows for c in _unproven_classes(state, found, row, classes)}


def why_withdrawn(state: State, found: Confirmed, classes: Collection[int]) -> str | None:
    """Why nothing of the choice may stay; None when it holds.

    Uses `state.gain`, the gain of the present choice.
    """
    broken = found.broken - state.taken_back
    kept = [c for c in classes if c not in state.taken_back]
    below_default = {c for c in kept if _surely_worse(state, found, c, state.search.default)}
    if state.choice.kind == NOTHING:
        return "the choice of the search was not confirmed"
    if broken:
        return f"the choice failed on {class_names(state, broken)}"
    if below_default and state.choice.environment:
        return f"slower than the library default on {class_names(state, below_default)}"
    if state.gain is not None and _no_sure_gain(state.gain):
        return "the gain of the search was not confirmed"
    return None


def slower_than_present(state: State, found: Confirmed, classes: Collection[int]) -> set[int]:
    """Classes that surely lose although the whole wins."""
    kept = [c for c in classes if c not in state.taken_back]
    return {c for c in kept if _surely_worse(state, found, c, PRESENT)}


def class_names(state: State, classes: Collection[int]) -> str:
    """Classes for people: `AllReduce of 1024 bytes, ...`."""
    first = state.search.first
    return ", ".join(f"{first[c].op.value} of {first[c].size_bytes} bytes" for c in sorted(classes))


def gain(state: State, found: Confirmed) -> Gain | None:
    """The confirmed saving, of the collectives and of the job.

    Classes that were taken back, or that no row is for, count with the default's times: any
    difference between the two is noise.
    """
    calls = {w.class_id: w.calls * w.exposed for w in state.weighed()}
    left = set(state.taken_back)
    if state.choice.kind == PLUGIN and not state.choice.environment:
        touched = {c for row in state.choice.rows for c in _classes_of(state, row, calls)}
        left |= calls.keys() - touched
    labels = dict.fromkeys(left, state.search.default)
    before = confirmation.total(found, PRESENT, calls, {})
    after = confirmation.total(found, TUNED, calls, labels)
    saved = improvement(before, after)
    if saved is None:
        return None
    now = sum(before.values()) / len(before)
    seconds = state.job_seconds()
    low, high = max(-1.0, saved.low), min(1.0, saved.high)
    part = None if not seconds else now / seconds
    return Gain(
        saved.saved,
        low,
        high,
        None if part is None else part * saved.saved,
        None if part is None else part * low,
        None if part is None else part * high,
        1e9 * saved.saved * now,
        saved.rounds,
    )


def _no_sure_gain(found: Gain) -> bool:
    """No sure gain; of fewer rounds than an interval needs, none at all."""
    return not _surely_gained(found.collective, found.collective_low, found.rounds)


def _surely_gained(saved: float, low: float, rounds: int) -> bool:
    return low > 0 if rounds >= FEWEST_ROUNDS else saved > 0


def _unproven_classes(
    state: State, found: Confirmed, row: TunerRow, classes: Collection[int]
) -> list[int]:
    """Classes of a row that, all together, are not surely faster than with the default."""
    row_classes = _classes_of(state, row, classes)
    calls = {w.class_id: w.calls for w in state.weighed() if w.class_id in row_classes}
    default = state.search.default
    before = confirmation.total(found, default, calls, {}, default)
    after = confirmation.total(found, TUNED, calls, {}, default)
    saved = improvement(before, after)
    proven = saved is not None and _surely_gained(saved.saved, saved.low, saved.rounds)
    return [] if proven else row_classes


def _classes_of(state: State, row: TunerRow, classes: Iterable[int]) -> list[int]:
    """Those of some classes that a row is for."""
    found = []
    for c in classes:
        shape, size = state.size(c)
        if row.matches(TunerCall(shape.op, size, shape.nranks, shape.nnodes)):
            found.append(c)
    return found


def _slower(state: State, found: Confirmed, class_id: int) -> bool:
    """A row that is slower than the library's choice by more than the noise, or does not run."""
    times = found.times[class_id]
    if class_id in found.broken or not times[TUNED]:
        return True
    default = state.search.default
    against = found.against(default, class_id)
    return against is not None and against.saved < -noise_floor(list(times[default].values()))


def _surely_worse(state: State, found: Confirmed, class_id: int, label: str) -> bool:
    """Worse than another label beyond the noise, where the class has another setting there."""
    chosen = state.choice.by_class.get(class_id, DEFAULT.name)
    same = label == state.search.default and chosen == DEFAULT.name
    if same and not state.choice.environment:
        return False
    against = found.against(label, class_id)
    floor = noise_floor(list(found.times[class_id][label].values()))
    return against is not None and against.worse(floor)
