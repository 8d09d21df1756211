"""`collscope predict`: from the store to a prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from collscope.errors import NoVerdictError
from collscope.ingest.match import reading, require_run
from collscope.model import CollectiveClass
from collscope.reports.model import ClassRow
from collscope.reports.prediction.times import Times, label_times, roof_times
from collscope.reports.prediction.traced import read_traced
from collscope.timeline.predict import NewTime, predict
from collscope.timeline.records import Prediction
from collscope.units import count

SCHEMA = "collscope.predict/1"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to predict: exactly one of `label` and `system` is given.

    label    measurements, or a traced run, that the classes take their times from
    before   measurements of the recorded setting, taken as those of `label` were
    system   whose roof the classes reach
    step_us  step time without the profiler
    """

    run: str
    label: str | None = None
    before: str | None = None
    system: str | None = None
    step_us: float | None = None


@dataclass(frozen=True, slots=True)
class ClassChange:
    """What changes in one class. Times of one call; None: no new time, stays as it is."""

    op: str
    datatype: str | None
    count: int | None
    size_bytes: int | None
    nranks: int | None
    calls: int | None  # traced
    old_us: float | None
    new_us: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionReport:
    """A step's time before and after. Times in us; gains are ratios of step times, minus one."""

    schema: str = SCHEMA
    run: str
    times_from: str  # in words
    ranks: int
    steps: int  # that the step time is the mean of
    step_from: str  # marks: the profiler's; period: of the collectives; window: the whole trace
    step_us: float  # recorded, or as given
    simulated_us: float  # the same by the simulation with nothing changed
    new_us: float
    low_us: float
    high_us: float
    simple_us: float  # by the uplift formula: exposed time saved, nothing else moves
    gain: float | None
    simple_gain: float | None
    changed: tuple[ClassChange, ...]
    unchanged: tuple[ClassChange, ...]
    assumptions: tuple[str, ...]


def predict_run(db: Path, wanted: Wanted) -> PredictionReport:
    """Simulate a traced run with other times of its collectives.

    raises  InputError for an unknown run, label or system, or a run without traces;
            NoVerdictError when no class has a new time, or there is no step
    """
    with reading(db) as connection:
        require_run(connection, db, wanted.run)
        traced = read_traced(connection, db, wanted.run)
        if wanted.system is not None:
            times = roof_times(wanted.system, traced.rows)
        else:
            times = label_times(connection, db, wanted.run, wanted.label or "", traced.rows)
        if wanted.before is not None:
            before = label_times(connection, db, wanted.run, wanted.before, traced.rows)
            times = _relative(times, before)
    if not times.times:
        raise NoVerdictError(
            f"{db}: {times.name} have no time for any class of run '{wanted.run}'. Measure them "
            "with collscope replay."
        )
    measured = None if wanted.step_us is None else wanted.step_us * 1000
    recorded = traced.timeline.recorded()
    found = predict(recorded, times.times, measured_step_ns=measured)
    if found is None:
        raise NoVerdictError(
            f"{db}: the traces of run '{wanted.run}' hold no step. Record several steps."
        )
    return _report(wanted, times, found, traced.rows, len(traced.timeline.rows.ranks))


def _relative(times: Times, before: Times) -> Times:
    """Ratios of two labels; classes that only one of them has stay as they are."""
    return Times(
        f"{times.name} against {before.name}",
        {
            key: replace(time, old_ns=before.times[key].time_ns)
            for key, time in times.times.items()
            if key in before.times
        },
        max(times.wrong, before.wrong),
        {
            m: max(times.marks.get(m, 0), before.marks.get(m, 0))
            for m in {**before.marks, **times.marks}
        },
    )


def _report(
    wanted: Wanted,
    times: Times,
    found: Prediction,
    rows: Mapping[CollectiveClass, ClassRow],
    ranks: int,
) -> PredictionReport:
    changed = sorted(found.changed, key=lambda c: -c.calls * abs(c.new_ns - c.old_ns))
    return PredictionReport(
        run=wanted.run,
        times_from=times.name,
        ranks=ranks,
        steps=found.steps,
        step_from=found.step_from,
        step_us=found.step_ns / 1000,
        simulated_us=found.simulated_ns / 1000,
        new_us=found.new_ns / 1000,
        low_us=found.low_ns / 1000,
        high_us=found.high_ns / 1000,
        simple_us=found.simple_ns / 1000,
        gain=_gain(found.step_ns, found.new_ns),
        simple_gain=_gain(found.step_ns, found.simple_ns),
        changed=tuple(
            _change(c.key, rows, (c.calls, c.old_ns / 1000, c.new_ns / 1000)) for c in changed
        ),
        unchanged=tuple(_change(key, rows, (None, None, None)) for key in found.unchanged),
        assumptions=(*found.assumptions, *_told(times), *_assumed(wanted, times.times, found)),
    )


def _gain(old: float, new: float) -> float | None:
    return old / new - 1 if new > 0 else None


def _change(
    key: CollectiveClass,
    rows: Mapping[CollectiveClass, ClassRow],
    times: tuple[int | None, float | None, float | None],
) -> ClassChange:
    row = rows.get(key)
    datatype = key.datatype.value if key.datatype else None
    if row is None:
        return ClassChange(key.op.value, datatype, key.count, key.size_bytes, key.nranks, *times)
    return ClassChange(row.op, row.datatype, row.count, row.size_bytes, row.nranks, *times)


def _told(times: Times) -> Iterator[str]:
    if times.wrong:
        yield (
            f"{count(times.wrong, 'class', 'classes')} measured with wrong results, or failed: "
            "unchanged here."
        )
    for mark, classes in times.marks.items():
        yield f"{count(classes, 'new time', 'new times')}: {mark}."


def _assumed(
    wanted: Wanted, times: Mapping[CollectiveClass, NewTime], found: Prediction
) -> Iterator[str]:
    """What the new times stand for, and where the range comes from."""
    if wanted.system is not None:
        yield (
            "Every collective is assumed to reach the roof; one that was faster in the job stays "
            "as it was."
        )
    elif any(times[c.key].old_ns is None for c in found.changed):
        yield "The new times are those of a call in the job, not alone."
    spread = any(
        time.low_ns is not None and time.high_ns is not None and time.low_ns < time.high_ns
        for time in times.values()
    )
    if not spread:
        yield "The new times are single figures: no range."
    elif found.low_ns < found.high_ns:
        yield "The range is that of the new times' spread, all classes at once."
    else:
        yield "The spread of the new times does not change the step: no range."
