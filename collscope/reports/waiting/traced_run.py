"""The traces of a stored run and their analysis, with the class of each of its collectives."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import numpy as np

from collscope.errors import InputError
from collscope.ingest.match import require_matched
from collscope.ingest.stored_analysis import load_analysis
from collscope.ingest.stored_traces import load_traced_run
from collscope.match.rows import gather_host, gather_rows
from collscope.model import CollectiveClass
from collscope.reports.calls.answer import ClassRow, class_rows, read_call_totals
from collscope.reports.waiting.withheld import read_withheld
from collscope.timeline.analyse import Timeline
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.step_causes.collectives import Facts

_SETTINGS = "SELECT DISTINCT name, value FROM settings WHERE run = ? ORDER BY name, value"
_TRACED = "SELECT DISTINCT run FROM traces ORDER BY run"
_LINKS = """
SELECT DISTINCT transport || CASE WHEN gdr THEN '/GDRDMA' ELSE '' END AS carrier FROM links
WHERE run = ? AND transport IS NOT NULL ORDER BY carrier
"""


class TracedRun(msgspec.Struct, frozen=True):
    """A run's timeline and the rows of the classes it has, as the store counts them."""

    timeline: Timeline
    steps: int | None  # in each trace, as given at ingest
    rows: dict[CollectiveClass, ClassRow]
    keys: tuple[CollectiveClass | None, ...]  # of each call of the timeline, as the store has it

    def recorded(self) -> RecordedJob:
        """Steps and dependencies."""
        return self.timeline.recorded(self.steps)


def read_facts(connection: sqlite3.Connection, run: str) -> Facts:
    """What the run's logs show of its settings and transports."""
    return Facts(
        tuple(connection.execute(_SETTINGS, (run,))),
        tuple(name for (name,) in connection.execute(_LINKS, (run,))),
    )


def _remedy(connection: sqlite3.Connection) -> str:
    """The end of a sentence, and what to do where a run has no traces: others may have some."""
    runs = ", ".join(f"'{run}'" for (run,) in connection.execute(_TRACED))
    if not runs:
        return ". Add them with collscope ingest trace."
    return f" (runs with traces: {runs}). Name one of them, or add traces: collscope ingest trace."


def read_traced_run(connection: sqlite3.Connection, db: Path, run: str) -> TracedRun:
    """The analysis of a run's traces, as it was stored with the run.

    raises  InputError when the run has no traces, or these contradict themselves
    """
    for withheld in read_withheld(connection, run):
        raise InputError(
            f"{db}: the traces of run '{run}' contradict themselves: {withheld.words} Trace "
            "the job again."
        )
    given, steps = load_traced_run(connection, run)
    if not given.traces:
        raise InputError(f"{db}: run '{run}' has no traces{_remedy(connection)}")
    require_matched(connection, db, run)
    found = load_analysis(connection, run, gather_rows(given.traces), gather_host(given.traces))
    classes = {
        c.class_id: c for c in class_rows(connection, run, read_call_totals(connection, run))
    }
    calls = found.timeline.calls
    first_calls = np.unique(calls.class_, return_index=True)[1]
    rows = {
        key: row
        for key, class_id in zip(calls.classes, found.class_ids[first_calls].tolist(), strict=True)
        if (row := classes.get(class_id)) is not None
    }
    key_of = {class_id: row.collective_class for class_id, row in classes.items()}
    keys = tuple(key_of.get(class_id) for class_id in found.class_ids.tolist())
    return TracedRun(found.timeline, steps, rows, keys)
