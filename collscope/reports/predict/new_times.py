"""New times of a traced run's classes: measured, traced in another run, or a system's roof."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from collscope.errors import InputError, NoVerdictError
from collscope.model import CollectiveClass, Measurement
from collscope.reports.calls.answer import ClassRow, class_rows, read_call_totals
from collscope.reports.efficiency.judged_classes import judge_classes
from collscope.reports.efficiency.marks import Mark, gap_marks, marks_of
from collscope.reports.efficiency.serving import Matcher
from collscope.reports.waiting.answer import TimelineReport
from collscope.reports.waiting.traced_run import read_traced_run
from collscope.roofline.chosen import make_roofs
from collscope.roofline.gpu_models import OtherGpus
from collscope.store.measurements import measurement_labels, no_such_label, read_measurements
from collscope.timeline.recorded_job import link
from collscope.timeline.starts import Starts, find_starts
from collscope.timeline.steps import find_steps
from collscope.timeline.traced_transfers import Transfers, transfers_of
from collscope.timeline.transfer_factors import NewTime
from collscope.units import count


class TimesFrom(msgspec.Struct, frozen=True):
    """Where times come from.

    kind     measurements of a label, traces of a run, system: its roof, or ceiling: one by name
    name     of the label, run, system or ceiling
    against  the times of the recorded setting that these are taken with, as ratios
    """

    kind: Annotated[str, ("measurements", "traces", "system", "ceiling")]
    name: str
    against: TimesFrom | None = None


class NewTimes(msgspec.Struct, frozen=True):
    """Times by class, and where they come from."""

    origin: TimesFrom
    times: dict[CollectiveClass, NewTime]
    wrong: int = 0  # classes without a time because a result was wrong, or the call failed
    # why a time may not be of exactly a class, with the number of classes
    marks: Mapping[Mark, int] = msgspec.field(default_factory=dict)
    transfers: Transfers | None = None  # of every call of another run's traces
    starts: Starts | None = None  # where that run's collectives started
    # Its own step, as recorded; None: it has no steps. Nothing is predicted from it.
    step_ns: float | None = None
    other_gpus: OtherGpus | None = None  # that were traced, where the system's are of other models


def label_times(
    connection: sqlite3.Connection,
    db: Path,
    run: str,
    label: str,
    rows: Mapping[CollectiveClass, ClassRow],
) -> NewTimes:
    """Times of a label's measurements, of this run or any other; else of a traced run so named.

    raises  InputError when nothing has that name; NoVerdictError when it has no right result
    """
    runs = [r[0] for r in connection.execute("SELECT DISTINCT run FROM sources ORDER BY run")]
    bad = 0  # measurements of the label where all are wrong or failed
    for candidate in (run, *(r for r in runs if r != run)):
        stored = read_measurements(connection, run=candidate, label=label)
        if any(s.measurement.usable for s in stored):
            name = TimesFrom("measurements", label)
            return _measured(name, [s.measurement for s in stored], rows)
        bad = bad or len(stored)
    if label in runs and label != run:
        times = _traced(connection, db, label, rows)
        if times.times or times.transfers:
            return times
    if bad:
        raise NoVerdictError(
            f"{db}: label '{label}' has no correct result: {count(bad, 'measurement')}, all "
            "wrong or failed. Measure again, or name another label."
        )
    if label == run and label in runs:
        raise InputError(
            f"{db}: label '{label}' is the run itself, and no measurements have that label. "
            "Name another traced run, or measurements."
        )
    if label in runs:
        if not rows:
            raise InputError(
                f"{db}: the traces of run '{run}' identify no collective class, so the times "
                f"of '{label}' fit none. Ingest traces of all ranks, or their logs too."
            )
        raise InputError(
            f"{db}: run '{label}' has no time of any class of run '{run}'. Ingest traces of all "
            "its ranks, or measure with collscope replay --label."
        )
    known = {*measurement_labels(connection), *(r for r in runs if r != run)}
    raise no_such_label(label, sorted(known), "measurements or traced run")


def _measured(
    origin: TimesFrom, measured: Sequence[Measurement], rows: Mapping[CollectiveClass, ClassRow]
) -> NewTimes:
    matcher = Matcher(measured)
    found: dict[CollectiveClass, NewTime] = {}
    wrong = 0
    marks: Counter[Mark] = Counter()
    for key, row in rows.items():
        match = matcher.match(row)
        wrong += match is not None and not match.measured
        if match is None or match.time_ns is None or match.scaled:
            continue
        low, high = np.percentile(match.samples_ns, (5, 95))
        found[key] = NewTime(match.time_ns, float(low), float(high))
        marks.update(marks_of(match, row))
    return NewTimes(origin, found, wrong, dict(marks))


def _traced(
    connection: sqlite3.Connection, db: Path, run: str, rows: Mapping[CollectiveClass, ClassRow]
) -> NewTimes:
    """Transfers of another run's traces: of each call, and the median of each class."""
    (traces,) = connection.execute("SELECT COUNT(*) FROM traces WHERE run = ?", (run,)).fetchone()
    if not traces:
        return NewTimes(TimesFrom("traces", run), {})
    others = {c.class_id: c for c in class_rows(connection, run, read_call_totals(connection, run))}
    traced = read_traced_run(connection, db, run)
    timeline = traced.timeline
    timed = [
        (
            others[t.class_id].collective_class,
            NewTime(t.transfer_ns_median, t.transfer_ns_min, t.transfer_ns_max),
        )
        for t in TimelineReport.read(connection, run).classes
        if t.transfer_ns_median is not None
    ]
    found: dict[CollectiveClass, NewTime] = {}
    marks: Counter[Mark] = Counter()
    for key, row in rows.items():
        wanted = row.collective_class
        near = [(d, k) for k, (c, _) in enumerate(timed) if (d := wanted.distance(c)) is not None]
        if near:
            other, found[key] = timed[min(near)[1]]
            marks.update(gap_marks(wanted.fits(other) or (), [other]))
    rows_, calls = timeline.rows, timeline.calls
    steps = find_steps(rows_, calls, timeline.times, traced.steps)
    linked, times = link(rows_, calls, timeline.times, timeline.clocks)
    return NewTimes(
        TimesFrom("traces", run), found, marks=dict(marks),
        transfers=transfers_of(rows_, linked, times),
        starts=find_starts(rows_, linked, steps, rows_.start, rows_.end),
        step_ns=None if steps.source == "window" else steps.mean_ns(rows_.end),
    )  # fmt: skip


def roof_times(
    system: str, rows: Mapping[CollectiveClass, ClassRow], gpus: Iterable[str]
) -> NewTimes:
    """The roof of each class; one that is faster in the job keeps its time there.

    gpus    names of those that were traced
    raises  InputError when there is no such system
    """
    roofs = make_roofs(system, ())
    found = {}
    for key, row in rows.items():
        (judged,) = judge_classes([row], Matcher(()), roofs, None)
        if judged.roof is not None:
            found[key] = NewTime(judged.roof.time_ns, bound=True)
    origin = TimesFrom("system", system) if roofs is None else TimesFrom("ceiling", roofs.name)
    return NewTimes(origin, found, other_gpus=None if roofs is None else roofs.other_gpus(gpus))
