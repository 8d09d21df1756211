"""From a choice to files: write it, confirm it as it will be applied, take back what fails."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from collscope.model.note import Note
from collscope.outputs import write_file
from collscope.replay.results import store_results
from collscope.tuning import confirm as confirmation
from collscope.tuning import csv_format, judging
from collscope.tuning.choose import ENVIRONMENT, NOTHING, PLUGIN, PRESENT, Choice, rows_of
from collscope.tuning.confirm import TUNED, Confirmed
from collscope.tuning.launches import Launches
from collscope.tuning.output import (
    optimizer_text,
    row_comments,
    shell_lines,
    to_unset,
    tuned_setting,
)
from collscope.tuning.plugin import plugin_environment
from collscope.tuning.records import TUNED as OUTCOME_TUNED
from collscope.tuning.records import UNCONFIRMED
from collscope.tuning.settings import DEFAULT
from collscope.tuning.state import CONFIRM_CSV, ENV, OPTIMIZER_CSV, TUNER_CSV, State

MOST_CONFIRMED = 40  # classes of most time; the confirmation of more would take minutes


def apply(state: State) -> None:
    """Write the CSV where there are rows, and make the setting that the ranks get."""
    csv, rows = state.request.out / TUNER_CSV, state.choice.rows
    plugin: dict[str, str] = {}
    if state.choice.kind == PLUGIN:
        first = next(iter(state.search.first.values()))
        write_file(csv, csv_format.render(rows, row_comments(rows, first)))
        plugin = plugin_environment(csv)
    else:
        csv.unlink(missing_ok=True)
    state.tuned = tuned_setting(state.choice, plugin)
    # The job still sets what is left out: its ranks must not get it in addition to the choice.
    present = [*(v.name for v in state.request.present), *state.request.left_out]
    state.unset = to_unset(state.tuned, present, state.choice)


def confirm(state: State) -> None:
    """Measure the choice against what it replaces; remove rows that are not confirmed."""
    apply(state)
    assert state.tuned is not None  # `apply` made it
    request, search, clock = state.request, state.search, state.search.clock
    launches = Launches(request.plan, request.session, request.out / CONFIRM_CSV, request.kept)
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
            request.prefix,
            {name: [c for who, c in search.failed if who == name] for name in labels},
            lambda: clock.left_s > need,
        )
    finally:
        search.launches.count += launches.count
        if launches.csv.exists():
            store_results(launches.csv, request.db, request.run, None)
    state.notices += {note.text: note for note in state.confirmed.problems}.values()
    _settle(state, state.confirmed, classes)


def _classes(state: State) -> list[int]:
    """All classes of the plan, since variables reach them all; of many, those with most time."""
    weighed = sorted(state.weighed(), key=lambda w: -w.time_s)
    kept = [w.class_id for w in weighed[:MOST_CONFIRMED]]
    if len(weighed) > MOST_CONFIRMED:
        state.notices.append(
            Note(
                "confirmed_on",
                {"classes": MOST_CONFIRMED, "of": len(weighed)},
                f"confirmed on the {MOST_CONFIRMED} classes with most time, of {len(weighed)}",
            )
        )
    return [*kept, *(c for c in state.search.classes if c not in kept)]


def _settle(state: State, found: Confirmed, classes: Collection[int]) -> None:
    """Settle the outcome. A row goes at the first doubt, the whole when it is surely worse."""
    if state.choice.kind == PLUGIN:
        _leave_to_library(
            state, judging.doubtful(state, found, classes), "slower in the confirmation"
        )
        _leave_to_library(state, judging.unproven(state, found, classes), "gain not confirmed")
    state.gain = judging.gain(state, found)
    state.outcome = OUTCOME_TUNED
    state.why = "confirmed against the present setting and the default"
    why = judging.why_withdrawn(state, found, classes)
    worse = judging.slower_than_present(state, found, classes)
    if why is not None:
        _withdraw(state, why)
    elif worse:
        names = judging.class_names(state, worse)
        state.notices.append(
            Note(
                "slower_classes",
                {"classes": names},
                f"slower than with the present setting, although the total is faster: {names}",
            )
        )


def _leave_to_library(state: State, doubtful: set[int], why: str) -> None:
    """Leave classes to the library, with all others of their size, and write the CSV again."""
    if not doubtful:
        return
    same = {state.size(c) for c in doubtful}
    gone = [c for c in state.calls if c in state.search.first and state.size(c) in same]
    by_class = {**state.choice.by_class, **dict.fromkeys(gone, DEFAULT.name)}
    rows = rows_of(state.choice_input(), by_class)
    kind = PLUGIN if rows else ENVIRONMENT
    if not rows and not state.choice.environment and state.search.default == PRESENT:
        kind = NOTHING
    state.choice = replace(state.choice, kind=kind, by_class=by_class, rows=rows)
    names = judging.class_names(state, doubtful)
    state.notices.append(
        Note(
            "left_to_library",
            {"classes": names, "why": why},
            f"{why}, so left to the library: {names}",
        )
    )
    state.taken_back.update(gone)
    apply(state)


def _withdraw(state: State, why: str) -> None:
    state.outcome, state.why = UNCONFIRMED, why
    state.choice, state.tuned, state.unset = Choice(NOTHING, {}), None, ()
    (state.request.out / TUNER_CSV).unlink(missing_ok=True)


def write(state: State) -> None:
    """Files that others read; the evidence is written by whoever renders the report."""
    out = state.request.out
    write_file(out / OPTIMIZER_CSV, optimizer_text(state.candidates, state.search.settings))
    if state.tuned is not None and state.choice.kind != NOTHING:
        comments = ["collscope tune: read this file with '.' before the job starts"]
        write_file(out / ENV, shell_lines(state.tuned, state.unset, comments))
