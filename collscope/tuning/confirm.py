"""The confirmation: present, default and tuned in turns, as the job would have them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from collscope.model import Measurement
from collscope.model.note import Note
from collscope.tuning.decide import Improvement, Rounds, improvement
from collscope.tuning.launches import Launches, print_progress
from collscope.tuning.settings import Setting

ROUNDS = 3
TUNED = "tuned"


class Confirmed(msgspec.Struct):
    """Times by class, label (`present`, `default`, `tuned`) and round; what went wrong."""

    times: dict[int, dict[str, dict[int, float]]] = msgspec.field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    problems: list[Note] = msgspec.field(default_factory=list)
    broken: set[int] = msgspec.field(default_factory=set)  # classes that the tuned setting fails on
    rows: dict[int, Measurement] = msgspec.field(default_factory=dict)

    def against(self, label: str, class_id: int) -> Improvement | None:
        """What the tuned setting saves against another on a class."""
        times = self.times[class_id]
        return improvement(times[label], times[TUNED]) if times[label] else None


def confirm(
    launches: Launches,
    settings: Mapping[str, Setting],
    classes: Sequence[int],
    prefix: str,
    refused: Mapping[str, Collection[int]],
    in_time: Callable[[], bool],
) -> Confirmed:
    """Measure every label on every class, round by round; results are checked in the first.

    settings  by label
    prefix    of the labels in the CSV
    refused   classes by label that the library is known not to run
    in_time   asked before each round after the first
    """
    found = Confirmed()
    for number in range(1, ROUNDS + 1):
        if number > 1 and not in_time():
            found.problems.append(
                Note(
                    "rounds_left_out",
                    {"rounds": number - 1, "of": ROUNDS},
                    f"the time limit allowed only {number - 1} of {ROUNDS} rounds",
                )
            )
            break
        # Each label begins a round once: none always follows the same one.
        labels = list(settings)
        turn = number % len(labels)
        for label in (*labels[turn:], *labels[:turn]):
            chosen = [c for c in classes if c not in refused.get(label, ())]
            if not chosen:
                continue
            print_progress(f"confirmation, round {number}: {label}")
            done = launches.start(
                settings[label], chosen, number, verify=number == 1, label=prefix + label
            )
            _take(found, label, number, done.rows)
            if done.problem is not None:
                found.problems.append(
                    Note(
                        "launch_failed",
                        {"label": label, "problem": done.problem},
                        f"{label}: {done.problem}",
                    )
                )
                if label == TUNED:
                    found.broken.update(set(chosen) - done.rows.keys())
    return found


def _take(found: Confirmed, label: str, number: int, rows: Mapping[int, Measurement]) -> None:
    for class_id, m in rows.items():
        found.rows.setdefault(class_id, m)
        if m.right and m.time_us_median:
            found.times[class_id][label][number] = m.time_us_median
        elif label == TUNED:
            found.broken.add(class_id)
            found.problems.append(
                Note(
                    "without_time",
                    {"op": m.op.value, "size_bytes": m.size_bytes, "status": m.status},
                    f"tuned, {m.op.value} of {m.size_bytes} bytes: {m.status}",
                )
            )


def total(
    found: Confirmed,
    label: str,
    calls: Mapping[int, float],
    instead: Mapping[int, str],
    against: str = "present",
) -> Rounds:
    """Seconds of all calls by round, over classes that both `tuned` and `against` have.

    calls    exposed calls of one rank, by class
    instead  label of classes that are to count with another one
    """
    rounds: dict[int, float] = {}
    usable = [c for c in calls if found.times[c][against] and found.times[c][TUNED]]
    for number in range(1, ROUNDS + 1):
        times = [found.times[c][instead.get(c, label)].get(number) for c in usable]
        known = [t for t in times if t is not None]
        if known and len(known) == len(times):
            rounds[number] = sum(calls[c] * t for c, t in zip(usable, known, strict=True)) / 1e6
    return rounds
