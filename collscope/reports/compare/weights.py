"""How much each measured class counts in a job: the run's calls, by measured class."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence

import msgspec

from collscope.model import CollectiveClass, Datatype, Gap, Redop, parse_op
from collscope.reports.compare.labels import Label
from collscope.reports.compare.notes import Note, Weighed, WeightsCoverage

# Of classes that fit equally well one is taken: place known before not known, and out of place
# first, the usual case.
_PLACE_RANK = {None: 2, False: 0, True: 1}


class Weights(msgspec.Struct, frozen=True):
    """Calls of a run by measured class, and how much of the run they are."""

    run: str
    calls: dict[CollectiveClass, int]
    notes: tuple[Note, ...]


def run_weights(connection: sqlite3.Connection, run: str, labels: Sequence[Label]) -> Weights:
    """The run's calls, given to the classes that every label has.

    A class of the run counts once, for the nearest of the measured classes that serve it.
    """
    common = set.intersection(*(set(label.classes) for label in labels))
    places: dict[Hashable, list[CollectiveClass]] = defaultdict(list)
    for key in sorted(common):
        places[key.op, key.size_bytes, key.nranks].append(key)
    called = _called(connection, run)
    calls: dict[CollectiveClass, int] = defaultdict(int)
    loose: Counter[Gap] = Counter()
    found = []
    for wanted, n in called:
        fitting = [
            (distance, _PLACE_RANK[key.in_place], key)
            for key in places[wanted.op, wanted.size_bytes, wanted.nranks]
            if (distance := wanted.distance(key)) is not None
        ]
        if fitting:
            *_, key = min(fitting)
            calls[key] += n
            loose.update(dict.fromkeys(wanted.fits(key) or (), n))
            found.append((wanted, n))
    gaps = (Weighed(run, n, gap) for gap, n in loose.items())
    return Weights(run, dict(calls), (_coverage(run, called, found), *gaps))


def _called(connection: sqlite3.Connection, run: str) -> list[tuple[CollectiveClass, int]]:
    """Classes of the run that have a size, with their calls."""
    query = (
        "SELECT op, datatype, redop, size_bytes, root, in_place, nranks, nnodes, shape, SUM(calls)"
        " FROM classes WHERE run = ? AND size_bytes > 0 GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9"
    )
    return [
        (
            CollectiveClass(
                parse_op(op),
                Datatype.of_label(datatype),
                Redop.of_label(redop),
                None,
                size,
                root,
                None if in_place is None else bool(in_place),
                *shape,
            ),
            calls,
        )
        for op, datatype, redop, size, root, in_place, *shape, calls in connection.execute(
            query, (run,)
        )
    ]


def _coverage(
    run: str,
    called: Sequence[tuple[CollectiveClass, int]],
    found: Sequence[tuple[CollectiveClass, int]],
) -> WeightsCoverage:
    measured, all_calls = _sums(found), _sums(called)
    calls, size = (measured[i] / all_calls[i] if all_calls[i] else None for i in range(2))
    return WeightsCoverage(run, len(found), len(called), calls, size)


def _sums(classes: Iterable[tuple[CollectiveClass, int]]) -> tuple[int, int]:
    """Calls and bytes."""
    listed = list(classes)
    return sum(n for _, n in listed), sum(n * (key.size_bytes or 0) for key, n in listed)
