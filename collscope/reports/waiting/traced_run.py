"""The traces of a stored run, analysed, with the class of each of its collectives."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import numpy as np

from collscope.errors import InputError
from collscope.ingest.stored_traces import load_traced_run
from collscope.model import CollectiveClass
from collscope.reports.calls.answer import ClassRow, class_rows, read_call_totals
from collscope.reports.waiting.withheld import read_withheld
from collscope.timeline.analyse import Timeline, analyse
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.step_causes.collectives import Facts

_SETTINGS = "SELECT DISTINCT name, value FROM settings WHERE run = ? ORDER BY name, value"
_LINKS = """
SELECT DISTINCT transport FROM links WHERE run = ? AND transport IS NOT NULL ORDER BY transport
"""
_CLASS_OF = """
SELECT k.kernel_id, c.class_id FROM kernels k JOIN calls c USING (call_id)
WHERE k.run = :run AND c.run = :run
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


def read_traced_run(connection: sqlite3.Connection, db: Path, run: str) -> TracedRun:
    """Analyse the traces of a run again, from what was stored of them.

    raises  InputError when the run has no traces, or these contradict themselves
    """
    for withheld in read_withheld(connection, run):
        raise InputError(
            f"{db}: the traces of run '{run}' contradict themselves: {withheld.words} Trace the job"
            " again."
        )
    given, steps = load_traced_run(connection, run)
    if not given.traces:
        raise InputError(f"{db}: run '{run}' has no traces. Add them with collscope ingest trace.")
    timeline = analyse(given.traces)
    classes = {
        c.class_id: c for c in class_rows(connection, run, read_call_totals(connection, run))
    }
    calls, rows = timeline.calls, timeline.rows
    ids = dict(zip(given.trace_ids, given.kernel_ids, strict=True))
    trace_of = dict(
        connection.execute(
            "SELECT rank, trace_id FROM traces WHERE run = ? AND used", (run,)
        ).fetchall()
    )
    class_of = dict(connection.execute(_CLASS_OF, {"run": run}).fetchall())
    stored: list[ClassRow | None] = []
    for part in calls.offsets[:-1].tolist():
        trace = int(calls.trace[part])
        kernel = ids[trace_of[rows.ranks[trace]]][int(calls.row[part] - rows.bounds[trace])]
        stored.append(classes.get(class_of.get(int(kernel), -1)))
    found: dict[CollectiveClass, ClassRow] = {}
    for number, key in enumerate(calls.classes):
        row = stored[int(np.flatnonzero(calls.class_ == number)[0])]
        if row is not None:
            found[key] = row
    keys = (None if row is None else row.collective_class for row in stored)
    return TracedRun(timeline, steps, found, tuple(keys))
