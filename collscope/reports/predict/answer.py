"""What a step of a traced run would take with other times of its collectives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np
from msgspec.structs import asdict, replace

from collscope.errors import NoVerdictError, UsageError
from collscope.ingest.match import reading, require_run
from collscope.model import CollectiveClass
from collscope.reports.calls.answer import ClassRow
from collscope.reports.coverage.answer import traced_gpus
from collscope.reports.efficiency.marks import Mark
from collscope.reports.predict.new_times import NewTimes, TimesFrom, label_times, roof_times
from collscope.reports.waiting.traced_run import TracedRun, read_facts, read_traced_run
from collscope.roofline.gpu_models import OtherGpus
from collscope.timeline.analyse import Timeline
from collscope.timeline.play import Played
from collscope.timeline.prediction.predict import predict, simulate
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.records import Prediction
from collscope.timeline.step_causes.diagnose import diagnose
from collscope.timeline.step_causes.records import Cause, CauseSpan
from collscope.timeline.traced_transfers import known_transfers
from collscope.units import require_step_like

SCHEMA = "collscope.predict/2"


class PredictionRequest(msgspec.Struct, frozen=True):
    """What to predict: exactly one of `label` and `system` is given.

    label    measurements, or a traced run, that the classes take their times from
    before   measurements of the recorded setting, taken as those of `label` were
    system   whose roof the classes reach
    step_ms  step time without the profiler
    """

    run: str
    label: str | None = None
    before: str | None = None
    system: str | None = None
    step_ms: float | None = None

    def __post_init__(self) -> None:
        """Raise UsageError where what is given does not fit together."""
        if (self.label is None) == (self.system is None):
            raise UsageError("predict: give either --with LABEL or --system NAME.")
        if self.before is not None and self.label is None:
            raise UsageError("predict: --from goes with --with.")


class Basis(msgspec.Struct, frozen=True):
    """Where the new times are from; with `Knowledge` it gives the assumptions.

    wrong      classes without a new time: all measured results are wrong, or failed
    marks      what keeps new times from being of exactly their class, and of how many it does
    system     every collective takes its time at a system's roof
    by_call    each call has the time of the call at its place in another run
    in_job     some new times have no old one beside them: they count as times in a job
    step_given the step time without the profiler was given
    """

    wrong: int
    marks: tuple[tuple[Mark, int], ...]
    system: bool
    by_call: bool
    in_job: bool
    step_given: bool


class PredictionReport(Prediction, frozen=True, kw_only=True):
    """A step's time before and after. Gains are ratios of step times, minus one."""

    schema: str = SCHEMA
    run: str  # whose traces are simulated
    times_from: TimesFrom  # in words
    ranks: int  # that are simulated
    # Step of the run that the times are from, as recorded with its profiler; no part of the
    # prediction. None: they are from no run, or its steps are not known.
    other_step_ns: float | None
    other_gpus: OtherGpus | None  # that were traced, where the system's are of other models
    gain: float | None  # step_ns / new_ns, minus one
    simple_gain: float | None  # the same of simple_ns
    assumptions: Basis


def predict_run(db: Path, request: PredictionRequest) -> PredictionReport:
    """Simulate a traced run with other times of its collectives.

    raises  InputError for an unknown run, label or system, or a run without traces;
            NoVerdictError when no class has a new time, or there is no step;
            UsageError for a step time that cannot be the recorded step's
    """
    traced, times, measured = _read_request(db, request)
    recorded = traced.recorded()
    found = predict(
        recorded, times.times, traced=times.transfers, starts=times.starts,
        measured_step_ns=measured,
    )  # fmt: skip
    if found is None:
        raise NoVerdictError(
            f"{db}: the traces of run '{request.run}' hold no step. Record several steps."
        )
    require_step_like(request.step_ms, found.recorded_ns)
    if not found.changed:
        _refuse_unknown_transfers(db, request, recorded, times)
        _refuse_unchanged(db, request)
    return _report(request, times, found, traced.rows, len(traced.timeline.rows.ranks))


class RunTimelines(msgspec.Struct, frozen=True):
    """A traced run: the recording and its prediction."""

    timeline: Timeline
    recorded: RecordedJob
    predicted: Played | None = None  # None: nothing is predicted
    times_from: TimesFrom | None = None  # where the times of what is predicted come from
    causes: tuple[
        tuple[Cause, tuple[CauseSpan, ...]], ...
    ] = ()  # of long steps, and where they are


def run_timelines(db: Path, run: str, request: PredictionRequest | None) -> RunTimelines:
    """What happened in a traced run, and what a prediction of it plays.

    raises  InputError for an unknown run, label or system, or a run without traces;
            NoVerdictError when no class has a new time
    """
    if request is None:
        with reading(db) as connection:
            require_run(connection, db, run)
            traced = read_traced_run(connection, db, run)
            facts = read_facts(connection, run)
        found, _ = diagnose(traced.timeline, facts, steps=traced.steps)
        causes = tuple(zip(found.causes, found.marks, strict=True))
        return RunTimelines(traced.timeline, traced.recorded(), causes=causes)
    traced, times, measured = _read_request(db, request)
    recorded = traced.recorded()
    played = simulate(recorded, times.times, traced=times.transfers, measured_step_ns=measured)
    if played is None:
        _refuse_unknown_transfers(db, request, recorded, times)
        _refuse_unchanged(db, request)
    return RunTimelines(traced.timeline, recorded, played, times.origin)


def _read_request(db: Path, request: PredictionRequest) -> tuple[TracedRun, NewTimes, float | None]:
    """The traces, the new times of their classes, and the step time that is given, ns.

    raises  InputError for an unknown run, label or system, or a run without traces;
            NoVerdictError when no class has a new time
    """
    with reading(db) as connection:
        require_run(connection, db, request.run)
        traced = read_traced_run(connection, db, request.run)
        if request.system is not None:
            times = roof_times(request.system, traced.rows, traced_gpus(connection, request.run))
        else:
            times = label_times(connection, db, request.run, request.label or "", traced.rows)
        if request.before is not None:
            before = label_times(connection, db, request.run, request.before, traced.rows)
            times = _relative(times, before)
    if not times.times and not times.transfers:
        sizes = [row.size_bytes for row in traced.rows.values()]
        if None in sizes and not any(sizes):
            raise NoVerdictError(
                f"{db}: '{request.system or request.label}' gives no class of run '{request.run}' "
                "a time: sizes are not known. Ingest the job's logs, or trace with "
                "ProfilerActivity.CPU and record_shapes=True."
            )
        _refuse_unchanged(db, request)
    return traced, times, None if request.step_ms is None else request.step_ms * 1e6


def _refuse_unknown_transfers(
    db: Path, request: PredictionRequest, recorded: RecordedJob, times: NewTimes
) -> None:
    """Raise the error for two traced runs where one shows no transfer."""
    if times.transfers is None:
        return
    own = known_transfers(recorded.linked, recorded.linked_times)
    transfers_by_run = {
        request.run: np.isfinite(own).any(),
        times.origin.name: any(np.isfinite(t.transfer).any() for t in times.transfers.values()),
    }
    run = next((name for name, known in transfers_by_run.items() if not known), None)
    if run is None:
        return
    raise NoVerdictError(
        f"{db}: the collective times of run '{run}' are not known: no call was recorded on "
        "all its ranks, so the kernels may include waiting. Ingest the traces of all ranks."
    )


def _refuse_unchanged(db: Path, request: PredictionRequest) -> NoReturn:
    """Raise the error for new times that fit no class of the run."""
    if request.system is not None:
        raise NoVerdictError(
            f"{db}: '{request.system}' gives no class of run '{request.run}' a time. Measure the "
            "classes with collscope replay."
        )
    raise NoVerdictError(
        f"{db}: '{request.label}' gives no class of run '{request.run}' a time: the two "
        "share no collective class. Name a run of the same job, traced in the same way, or "
        "measure its classes with collscope replay."
    )


def _relative(times: NewTimes, before: NewTimes) -> NewTimes:
    """Ratios of two labels; classes that only one of them has do not change."""
    return NewTimes(
        replace(times.origin, against=before.origin),
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
    request: PredictionRequest,
    times: NewTimes,
    found: Prediction,
    rows: Mapping[CollectiveClass, ClassRow],
    ranks: int,
) -> PredictionReport:
    changed = (
        replace(c, collective_class=_stored(c.collective_class, rows)) for c in found.changed
    )
    basis = Basis(
        wrong=times.wrong,
        marks=tuple(times.marks.items()),
        system=request.system is not None,
        by_call=times.transfers is not None,
        in_job=times.transfers is None
        and any(times.times[c.collective_class].old_ns is None for c in found.changed),
        step_given=request.step_ms is not None,
    )
    return PredictionReport(
        **{
            **asdict(found),
            "changed": tuple(changed),
            "unchanged": tuple(_stored(key, rows) for key in found.unchanged),
        },
        run=request.run,
        times_from=times.origin,
        ranks=ranks,
        other_step_ns=times.step_ns,
        other_gpus=times.other_gpus,
        gain=_gain(found.step_ns, found.new_ns),
        simple_gain=_gain(found.step_ns, found.simple_ns),
        assumptions=basis,
    )


def _gain(old: float, new: float | None) -> float | None:
    return old / new - 1 if new else None


def _stored(key: CollectiveClass, rows: Mapping[CollectiveClass, ClassRow]) -> CollectiveClass:
    """A class of the timeline as the store has it: logs may know more of it than traces."""
    return rows[key].collective_class if key in rows else key
