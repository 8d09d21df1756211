"""From a choice to files: write it, confirm it as it will be applied, take back what fails."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from collscope.replay.results import store_results
from collscope.tuning import confirm as confirmation
from collscope.tuning import csv_format
from collscope.tuning.choose import ENVIRONMENT, NOTHING, PLUGIN, PRESENT, Choice, rows_of
from collscope.tuning.confirm import TUNED, Confirmed
from collscope.tuning.csv_format import TunerCall, TunerRow
from collscope.tuning.decide import FEWEST_ROUNDS, improvement, noise_floor
from collscope.tuning.launches import Launches
from collscope.tuning.names import COLLECTIVE_OF
from collscope.tuning.output import (
    optimizer_text,
    row_comments,
    shell_lines,
    to_unset,
    tuned_setting,
)
from collscope.tuning.plugin import plugin_environment
from collscope.tuning.records import TUNED as OUTCOME_TUNED
from collscope.tuning.records import UNCONFIRMED, Gain
from collscope.tuning.settings import DEFAULT, KNOBS
from collscope.tuning.state import CONFIRM_CSV, ENV, OPTIMIZER_CSV, TUNER_CSV, State

MOST_CONFIRMED = 40  # classes


def apply(state: State) -> None:
    """Write the CSV where there are rows, and make the setting that the ranks get."""
    csv, rows = state.wanted.out / TUNER_CSV, state.choice.rows
    plugin: dict[str, str] = {}
    if state.choice.kind == PLUGIN:
        first = next(iter(state.search.first.values()))
        csv.write_text(csv_format.render(rows, row_comments(rows, first)))
        plugin = plugin_environment(csv)
    else:
        csv.unlink(missing_ok=True)
    state.tuned = tuned_setting(state.choice, plugin)
    present = [v.name for v in state.wanted.present if v.name in KNOBS]
    state.unset = to_unset(state.tuned, present, state.choice)


def confirm(state: State) -> None:
    """Measure the choice against what it replaces; rows that do not keep their promise go."""
    apply(state)
    assert state.tuned is not None  # `apply` made it
    wanted, search, clock = state.wanted, state.search, state.search.clock
    launches = Launches(wanted.plan, wanted.session, wanted.out / CONFIRM_CSV, wanted.kept)
    labels = {PRESENT: search.settings[PRESENT]}
    if search.default != PRESENT:
        labels[DEFAULT.name] = DEFAULT
    labels[TUNED] = state.tuned
    classes = _classes(state)
    need = len(labels) * clock.launch_s(len(classes))
    clock.reserved_s = 0.0
    try:
        state.confirmed = confirmation.confirm(
            launches,
            labels,
            classes,
            wanted.prefix,
            {name: [c for who, c in search.failed if who == name] for name in labels},
            lambda: clock.left_s > need,
        )
    finally:
        search.launches.count += launches.count
        if launches.csv.exists():
            store_results(launches.csv, wanted.db, wanted.run, None)
    state.notices += dict.fromkeys(state.confirmed.problems)
    _judge(state, state.confirmed, classes)


def _classes(state: State) -> list[int]:
    """All classes of the plan, as variables reach them all; of many those of most time."""
    weighed = sorted(state.weighed(), key=lambda w: -w.time_s)
    kept = [w.class_id for w in weighed[:MOST_CONFIRMED]]
    if len(weighed) > MOST_CONFIRMED:
        state.notices.append(
            f"confirmed on the {MOST_CONFIRMED} classes of most time, not on {len(weighed)}"
        )
    return [*kept, *(c for c in state.search.classes if c not in kept)]


def _judge(state: State, found: Confirmed, classes: Sequence[int]) -> None:
    """The outcome; a row goes at the first doubt, all of a result only when it is surely worse."""
    if state.choice.kind == PLUGIN:
        # All classes of a size share a row, tuned or not.
        chosen = {
            state.size(c)
            for c, setting in state.choice.by_class.items()
            if setting != DEFAULT.name and state.shape(c).op in COLLECTIVE_OF
        }
        doubtful = {c for c in classes if state.size(c) in chosen and _doubtful(state, found, c)}
        if doubtful:
            _take_back(state, doubtful, "worse when confirmed")
        unproven = {c for row in state.choice.rows for c in _of_no_use(state, found, row, classes)}
        if unproven:
            _take_back(state, unproven, "no sure gain when confirmed")
    state.gain = gain(state, found)
    state.outcome = OUTCOME_TUNED
    state.why = "confirmed against the present setting and the default"
    broken = found.broken - state.taken_back
    kept = [c for c in classes if c not in state.taken_back]
    below_default = {c for c in kept if _surely_worse(state, found, c, state.search.default)}
    worse = {c for c in kept if _surely_worse(state, found, c, PRESENT)}
    if state.choice.kind == NOTHING:
        _withdraw(state, "what the search found did not come again")
    elif broken:
        _withdraw(state, f"it failed on {_names(state, broken)}")
    elif below_default and state.choice.environment:
        _withdraw(state, f"worse than the library default on {_names(state, below_default)}")
    elif state.gain is not None and _lost(state.gain):
        _withdraw(state, "the gain of the search did not come again")
    elif worse:
        state.notices.append(
            f"slower than with the present setting, while the whole is faster: "
            f"{_names(state, worse)}"
        )


def _lost(found: Gain) -> bool:
    """No sure gain; of fewer rounds than an interval needs, none at all."""
    return not _gained(found.collective, found.collective_low, found.rounds)


def _gained(saved: float, low: float, rounds: int) -> bool:
    return low > 0 if rounds >= FEWEST_ROUNDS else saved > 0


def _of_no_use(
    state: State, found: Confirmed, row: TunerRow, classes: Collection[int]
) -> list[int]:
    """Classes of a row that, all together, are not surely faster than with the default."""
    mine = _classes_of(state, row, classes)
    calls = {w.class_id: w.calls for w in state.weighed() if w.class_id in mine}
    default = state.search.default
    before = confirmation.total(found, default, calls, {}, default)
    after = confirmation.total(found, TUNED, calls, {}, default)
    saved = improvement(before, after)
    proven = saved is not None and _gained(saved.saved, saved.low, saved.rounds)
    return [] if proven else mine


def _classes_of(state: State, row: TunerRow, classes: Iterable[int]) -> list[int]:
    """Those of some classes that a row is for."""
    found = []
    for c in classes:
        shape, size = state.size(c)
        if row.matches(TunerCall(shape.op, size, shape.nranks, shape.nnodes)):
            found.append(c)
    return found


def _doubtful(state: State, found: Confirmed, class_id: int) -> bool:
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


def _take_back(state: State, doubtful: set[int], why: str) -> None:
    """Leave classes to the library, with all others of their size, and write the CSV again."""
    same = {state.size(c) for c in doubtful}
    gone = [c for c in state.calls if c in state.search.first and state.size(c) in same]
    by_class = {**state.choice.by_class, **dict.fromkeys(gone, DEFAULT.name)}
    rows = rows_of(state.everything(), by_class)
    kind = PLUGIN if rows else ENVIRONMENT
    if not rows and not state.choice.environment and state.search.default == PRESENT:
        kind = NOTHING
    state.choice = replace(state.choice, kind=kind, by_class=by_class, rows=rows)
    state.notices.append(f"{why}, left to the library: {_names(state, doubtful)}")
    state.taken_back.update(gone)
    apply(state)


def _withdraw(state: State, why: str) -> None:
    state.outcome, state.why = UNCONFIRMED, why
    state.choice, state.tuned, state.unset = Choice(NOTHING, {}), None, ()
    (state.wanted.out / TUNER_CSV).unlink(missing_ok=True)


def _names(state: State, classes: set[int]) -> str:
    first = state.search.first
    return ", ".join(f"{first[c].op.value} of {first[c].size_bytes} bytes" for c in sorted(classes))


def gain(state: State, found: Confirmed) -> Gain | None:
    """What the confirmation says is saved, of the collectives and of the job.

    Classes that were taken back, or that no row is for, count as they are with the default: what
    they differ by is noise.
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
        1e6 * saved.saved * now,
        saved.rounds,
    )


def write(state: State) -> None:
    """Files that others read; the evidence is written by whoever renders the report."""
    out = state.wanted.out
    (out / OPTIMIZER_CSV).write_text(optimizer_text(state.candidates, state.search.settings))
    if state.tuned is not None and state.choice.kind != NOTHING:
        comments = ["collscope tune: read this file with '.' before the job starts"]
        (out / ENV).write_text(shell_lines(state.tuned, state.unset, comments))
