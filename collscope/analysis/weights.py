"""What a measured class counts for in a job: the run's calls, laid on the measured classes."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collscope.analysis.labels import Key, Label
from collscope.analysis.notes import Coverage, Note

# Of classes that fit equally well one is taken: place known before not known, and out of place
# first, which is what a call is when nothing else is said.
_PLACE_RANK = {-1: 2, 0: 0, 1: 1}


@dataclass(frozen=True, slots=True)
class Weights:
    """Calls of a run by measured class, and how much of the run they are."""

    run: str
    calls: dict[Key, int]
    notes: tuple[Note, ...]


def run_weights(connection: sqlite3.Connection, run: str, labels: Sequence[Label]) -> Weights:
    """Calls of the run's classes on the classes that every label has.

    Operation, size and ranks must be equal; datatype, reduction, place and shape too where both
    sides know them. A class of the run counts once, for the measured class that fits best.
    """
    common = set.intersection(*(set(label.classes) for label in labels))
    places: dict[tuple[str, int, int], list[Key]] = defaultdict(list)
    for key in sorted(common):
        places[key.op, key.size_bytes, key.nranks].append(key)
    called = _called(connection, run)
    calls: dict[Key, int] = defaultdict(int)
    found = []
    for wanted, n in called:
        fitting = [
            k for k in places[wanted.op, wanted.size_bytes, wanted.nranks] if _fits(wanted, k)
        ]
        if fitting:
            calls[min(fitting, key=lambda k: _distance(wanted, k))] += n
            found.append((wanted, n))
    return Weights(run, dict(calls), (_coverage(run, called, found),))


def _called(connection: sqlite3.Connection, run: str) -> list[tuple[Key, int]]:
    """Classes of the run that have a size, with their calls."""
    query = (
        # a custom reduction is replayed as Sum: which it was does not tell classes apart
        "SELECT op, COALESCE(datatype, ''), COALESCE(NULLIF(redop, 'Custom'), ''),"
        " COALESCE(nranks, 0),"
        " COALESCE(in_place, -1), COALESCE(shape, ''), size_bytes, SUM(calls) FROM classes"
        " WHERE run = ? AND size_bytes > 0 GROUP BY 1, 2, 3, 4, 5, 6, 7"
    )
    return [(Key(*row[:-1]), row[-1]) for row in connection.execute(query, (run,))]


def _fits(wanted: Key, key: Key) -> bool:
    texts = ((wanted.datatype, key.datatype), (wanted.redop, key.redop), (wanted.shape, key.shape))
    same = all(a == b or not a or not b for a, b in texts)
    return same and (wanted.in_place == key.in_place or -1 in (wanted.in_place, key.in_place))


def _distance(wanted: Key, key: Key) -> tuple[int, int]:
    """How many parts of the key were only not contradicted, then the preferred place."""
    loose = sum(
        getattr(wanted, name) != getattr(key, name)
        for name in ("datatype", "redop", "shape", "in_place")
    )
    return loose, _PLACE_RANK[key.in_place]


def _coverage(
    run: str, called: Sequence[tuple[Key, int]], found: Sequence[tuple[Key, int]]
) -> Coverage:
    some, whole = _sums(found), _sums(called)
    calls, size = (some[i] / whole[i] if whole[i] else None for i in range(2))
    return Coverage(run, len(found), len(called), calls, size)


def _sums(classes: Iterable[tuple[Key, int]]) -> tuple[int, int]:
    """Calls and bytes."""
    listed = list(classes)
    return sum(n for _, n in listed), sum(n * key.size_bytes for key, n in listed)
