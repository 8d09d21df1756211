"""Why figures of a run's traces are not known, though it has traces."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from collscope.model.diagnostic import STEPS_UNKNOWN, TIMES_UNKNOWN
from collscope.units import count

# What was found while reading a profile does not apply to the traces beside it.
_FOUND = f"""
SELECT d.code, d.message, SUM(d.count), COUNT(DISTINCT d.path), MIN(d.path), MIN(d.excerpt)
FROM diagnostics d
WHERE d.run = ? AND d.code IN ({",".join("?" * len(TIMES_UNKNOWN + STEPS_UNKNOWN))})
AND (d.path IS NULL OR EXISTS (
    SELECT 1 FROM sources s WHERE s.run = d.run AND s.path = d.path AND s.kind = 'trace'))
AND EXISTS (SELECT 1 FROM traces t WHERE t.run = d.run)
GROUP BY d.code ORDER BY SUM(d.count) DESC, d.code
"""


class Withheld(msgspec.Struct, frozen=True):
    """One kind of contradiction in the traces of a run."""

    code: str
    message: str  # one sentence
    count: int  # rows, launches or calls
    sources: int  # that it was found in; 0: between them
    source: str | None  # the first of these
    first: str | None  # the first row in it, as a person finds it
    steps_only: bool  # only the step time is not known; else no time of the run's traces is

    @property
    def words(self) -> str:
        """The contradiction with its number, as a sentence."""
        sentence = self.message.rstrip(".")
        return f"{sentence[:1].upper()}{sentence[1:]} ({count(self.count, 'time')})."


def read_withheld(connection: sqlite3.Connection, run: str) -> tuple[Withheld, ...]:
    """Contradictions for which figures of a run's traces are not known, the most frequent first."""
    rows = connection.execute(_FOUND, (run, *TIMES_UNKNOWN, *STEPS_UNKNOWN))
    return tuple(
        Withheld(code, message, number, sources, source, first, code in STEPS_UNKNOWN)
        for code, message, number, sources, source, first in rows
    )


def unknown_times(found: Sequence[Withheld]) -> Withheld | None:
    """The first that makes all times unknown."""
    return next((one for one in found if not one.steps_only), None)
