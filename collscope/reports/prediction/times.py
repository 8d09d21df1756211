"""New times of a traced run's classes: measured, traced in another run, or a system's roof."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collscope.errors import InputError, NoVerdictError
from collscope.reports.classes import class_rows, read_call_totals
from collscope.reports.judgement.judged import judge_classes
from collscope.reports.judgement.measured import Matcher, Row, read_measurements
from collscope.reports.judgement.roofs import make_roofs
from collscope.reports.model import ClassRow
from collscope.reports.timeline_read import read_timeline
from collscope.timeline.predict import NewTime
from collscope.timeline.rows import ClassKey
from collscope.units import count

_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """Times by class, and where they come from in words."""

    name: str
    times: dict[ClassKey, NewTime]
    wrong: int = 0  # classes without a time because a result was wrong, or the call failed


def label_times(
    connection: sqlite3.Connection,
    db: Path,
    run: str,
    label: str,
    rows: Mapping[ClassKey, ClassRow],
) -> Times:
    """Times of a label's measurements, of this run or any other; else of a traced run so named.

    raises  InputError when nothing has that name; NoVerdictError when it has no right result
    """
    runs = [r[0] for r in connection.execute("SELECT DISTINCT run FROM sources ORDER BY run")]
    bad = 0  # measurements of the label where all are wrong or failed
    for candidate in (run, *(r for r in runs if r != run)):
        measured = [r for r in read_measurements(connection, candidate) if r.label == label]
        if any(row.usable for row in measured):
            return Times(f"measurements with label {label}", *_measured(measured, rows))
        bad = bad or len(measured)
    if label in runs and label != run:
        times = _traced(connection, label, rows)
        if times:
            return Times(f"the traces of run {label}", times)
    if bad:
        raise NoVerdictError(
            f"{db}: label '{label}' has no right result: {count(bad, 'measurement')}, all wrong or "
            "failed. Measure again, or name another label."
        )
    labels = {r.label for name in runs for r in read_measurements(connection, name)}
    known = ", ".join(f"'{n}'" for n in sorted({*labels, *(r for r in runs if r != run)}))
    raise InputError(
        f"{db}: no measurements with label '{label}', and no traced run of that name (there are: "
        f"{known or 'none'}). Measure with collscope replay --label, or ingest its traces."
    )


def _measured(
    measured: Sequence[Row], rows: Mapping[ClassKey, ClassRow]
) -> tuple[dict[ClassKey, NewTime], int]:
    """Times by class, and how many classes have none because a result was wrong, or failed."""
    matcher = Matcher(measured)
    found = {}
    wrong = 0
    for key, row in rows.items():
        match = matcher.match(row)
        wrong += match is not None and not match.rows
        if match is None or match.time_us is None or match.scaled:
            continue
        low, high = np.percentile(match.samples_us, (5, 95)) * 1000
        found[key] = NewTime(match.time_us * 1000, float(low), float(high))
    return found, wrong


def _traced(
    connection: sqlite3.Connection, run: str, rows: Mapping[ClassKey, ClassRow]
) -> dict[ClassKey, NewTime]:
    """Median transfers of another run's traces, with the least and the largest."""
    others = {c.class_id: c for c in class_rows(connection, run, read_call_totals(connection, run))}
    times: dict[_Key, NewTime] = {}
    for timed in read_timeline(connection, run).classes:
        if timed.transfer_ns_median is not None:
            times.setdefault(
                _key(others[timed.class_id]),
                NewTime(timed.transfer_ns_median, timed.transfer_ns_min, timed.transfer_ns_max),
            )
    return {key: times[_key(row)] for key, row in rows.items() if _key(row) in times}


def _key(row: ClassRow) -> _Key:
    """What classes of two runs have in common, be they of logs or of traces."""
    return (row.op, row.datatype, row.count, row.size_bytes, row.nranks)


def roof_times(system: str, rows: Mapping[ClassKey, ClassRow]) -> Times:
    """The roof of each class; one that is faster in the job keeps its time there.

    raises  InputError when there is no such system
    """
    roofs = make_roofs(system, ())
    found = {}
    for key, row in rows.items():
        (judged,) = judge_classes([row], Matcher(()), roofs, None)
        if judged.roof is not None:
            found[key] = NewTime(judged.roof.time_us * 1000, bound=True)
    return Times(f"the roof of {system}" if roofs is None else roofs.name, found)
