"""What a step of a traced run would take with other times of its collectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.analysis.classes import ClassRow
from collscope.analysis.marks import Mark
from collscope.analysis.new_times import Times, TimesFrom, label_times, roof_times
from collscope.analysis.overview import traced_gpus
from collscope.analysis.traced_run import TracedRun, read_facts, read_traced_run
from collscope.errors import NoVerdictError, UsageError
from collscope.ingest.match import reading, require_run
from collscope.model import CollectiveClass
from collscope.roofline.gpu_models import OtherGpus
from collscope.timeline.analyse import Timeline
from collscope.timeline.step_causes.diagnose import diagnose
from collscope.timeline.step_causes.records import Cause, CauseSpan
from collscope.timeline.play import Played
from collscope.timeline.prediction.predict import predict, simulate
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.records import Prediction
from collscope.timeline.traced_transfers import known_transfers
from collscope.units import format_size

SCHEMA = "collscope.predict/1"


class PredictionRequest(msgspec.Struct, frozen=True):
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

    def __post_init__(self) -> None:
        """Raise UsageError where what is given does not fit together."""
        if (self.label is None) == (self.system is None):
            raise UsageError("predict: give either --with LABEL or --system NAME.")
        if self.before is not None and self.label is None:
            raise UsageError("predict: --from goes with --with.")


class ClassChange(msgspec.Struct, frozen=True):
    """What changes in one class. Times of one call: the median over the calls; of a class of
    unknown size, which mixes sizes, the mean. None: no new time, stays as it is.
    """

    op: str
    datatype: str | None
    count: int | None
    size_bytes: int | None
    nranks: int | None
    calls: int | None  # traced
    old_us: float | None  # None in a class that changes: its kernels may wait for unseen ranks
    new_us: float | None
    # Rooted, and the ranks' clocks cannot be compared: times are those of the shortest kernel of
    # each call, which the transfer may exceed.
    bounded: bool = False


class BoundBy(msgspec.Struct, frozen=True):
    """Part of what bounds a step: the longest path through it, by kind."""

    # host, compute, collective; waiting: from a cause to its effect
    kind: Annotated[str, ("host", "compute", "collective", "waiting")]
    of: str | None  # class of the collectives
    before_us: float  # a step
    after_us: float


class Known(msgspec.Struct, frozen=True):
    """What the prediction rests on; shares are of 1, paces of the recorded one."""

    host_bound: float  # share of the launches that the GPU had to wait for
    host_low: float  # time of the host's work without the profiler, against that with it
    host: float
    host_high: float
    host_determined: bool  # by the given step time
    cpu_activities: bool  # the profiler recorded them, too: a slower host
    profilers: tuple[str, ...]  # dialects of the traces; what others than kineto cost is not known
    gpu_us: float  # the recorded step with a host that needs no time
    rest_us: float  # of the given step, which no pace of the recorded host explains
    host_calls: bool  # the traces tell the host's calls
    event_records: bool  # and with the waits for events the records of these
    slowdown: float | None  # of compute beside collectives, as the traces tell it
    blocks: float | None  # thread blocks of the new collectives' kernels, in parts of the old
    edges_told: int  # event edges whose waiting stream the traces name
    edges_inferred: int
    edges_contradicted: int  # left out
    edges_unknown: int
    idle_unexplained: float  # of the step
    # Share of the Sends and Recvs whose partner is not known; None: the traces name every peer.
    exchanges_alone: float | None
    # Process groups of some of the ranks that no trace names: told by whose calls end together.
    groups_inferred: int
    unchanged: float  # of the collectives' kernel time, in classes without a new time


class Basis(msgspec.Struct, frozen=True):
    """Where the new times are from; with `Known` it gives the assumptions.

    wrong      classes without a new time: all measured results are wrong, or failed
    marks      what keeps new times from being of exactly their class, and of how many it does
    system     every collective takes its time at a system's roof
    by_call    each call has the time of the call at its place in another run
    in_job     some new times have no old one beside them: they count as times in a job
    step_told  the step time without the profiler was given
    """

    wrong: int
    marks: tuple[tuple[Mark, int], ...]
    system: bool
    by_call: bool
    in_job: bool
    step_told: bool


class PredictionReport(msgspec.Struct, frozen=True, kw_only=True):
    """A step's time before and after. Times in us; gains are ratios of step times, minus one."""

    schema: str = SCHEMA
    run: str  # whose traces are simulated
    times_from: TimesFrom  # in words
    ranks: int  # that are simulated
    steps: int  # that the step time is the mean of
    # marks: the profiler's; kernels, period: recurring kernels or collectives; given: --steps;
    # window: the whole trace
    step_from: Annotated[str, ("marks", "kernels", "period", "given", "window")]
    step_us: float  # recorded, or as given
    recorded_us: float  # as recorded, with the profiler
    simulated_us: float  # the recorded one, simulated without the recorded starts
    starts_off_us: float | None  # how far its collectives start from where they did, median
    other_starts_off_us: float | None  # after the change, from where they did in the other run
    # Step of the run that the times are from, as recorded with its profiler; no part of the
    # prediction. None: they are from no run, or its steps are not known.
    other_step_us: float | None
    new_us: float  # step time after the change
    low_us: float
    high_us: float
    other_gpus: OtherGpus | None  # that were traced, where the system's are of other models
    simple_us: float  # by the uplift formula: exposed time saved, nothing else moves
    gain: float | None  # step_us / new_us, minus one
    simple_gain: float | None  # the same of simple_us
    changed: tuple[ClassChange, ...]
    unchanged: tuple[ClassChange, ...]
    bounds: tuple[BoundBy, ...]  # what bounds the step, the most of the old one first
    known: Known  # what the prediction rests on; shares are of 1, paces of the recorded one
    assumptions: Basis


def predict_run(db: Path, request: PredictionRequest) -> PredictionReport:
    """Simulate a traced run with other times of its collectives.

    raises  InputError for an unknown run, label or system, or a run without traces;
            NoVerdictError when no class has a new time, or there is no step
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
    if not found.changed:
        _refuse_untold(db, request, recorded, times)
        _refuse_unchanged(db, request)
    return _report(request, times, found, traced.rows, len(traced.timeline.rows.ranks))


class RunTimelines(msgspec.Struct, frozen=True):
    """A traced run as it was recorded, and as it is predicted."""

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
        _refuse_untold(db, request, recorded, times)
        _refuse_unchanged(db, request)
    return RunTimelines(traced.timeline, recorded, played, times.origin)


def _read_request(db: Path, request: PredictionRequest) -> tuple[TracedRun, Times, float | None]:
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
                "ProfilerActivity.CPU."
            )
        _refuse_unchanged(db, request)
    return traced, times, None if request.step_us is None else request.step_us * 1000


def _refuse_untold(
    db: Path, request: PredictionRequest, recorded: RecordedJob, times: Times
) -> None:
    """Raise the error for two traced runs one of which tells no transfer."""
    if times.transfers is None:
        return
    own = known_transfers(recorded.linked, recorded.linked_times)
    told = {
        request.run: np.isfinite(own).any(),
        times.origin.name: any(np.isfinite(t.transfer).any() for t in times.transfers.values()),
    }
    run = next((name for name, known in told.items() if not known), None)
    if run is None:
        return
    raise NoVerdictError(
        f"{db}: how long the collectives of run '{run}' take is not known: none was seen on all "
        "its ranks, so their kernels may wait. Ingest the traces of all ranks."
    )


def _refuse_unchanged(db: Path, request: PredictionRequest) -> NoReturn:
    """Raise the error for new times of which no class of the run takes one."""
    if request.system is not None:
        raise NoVerdictError(
            f"{db}: '{request.system}' gives no class of run '{request.run}' a time. Measure the "
            "classes with collscope replay."
        )
    raise NoVerdictError(
        f"{db}: '{request.label}' gives no class of run '{request.run}' a time: the two have no "
        "class of collectives in common. Name a run of the same job, traced alike, or measure its "
        "classes with collscope replay."
    )


def _relative(times: Times, before: Times) -> Times:
    """Ratios of two labels; classes that only one of them has stay as they are."""
    return Times(
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
    times: Times,
    found: Prediction,
    rows: Mapping[CollectiveClass, ClassRow],
    ranks: int,
) -> PredictionReport:
    known = found.knowledge
    changed = sorted(found.changed, key=lambda c: -c.calls * abs(c.new_ns - c.old_ns))
    return PredictionReport(
        run=request.run,
        times_from=times.origin,
        ranks=ranks,
        steps=found.steps,
        step_from=found.step_from,
        step_us=found.step_ns / 1000,
        recorded_us=found.recorded_ns / 1000,
        simulated_us=found.simulated_ns / 1000,
        starts_off_us=_us(found.starts_off_ns),
        other_starts_off_us=_us(found.other_starts_off_ns),
        other_step_us=_us(times.step_ns),
        new_us=found.new_ns / 1000,
        low_us=found.low_ns / 1000,
        high_us=found.high_ns / 1000,
        other_gpus=times.other_gpus,
        simple_us=found.simple_ns / 1000,
        gain=_gain(found.step_ns, found.new_ns),
        simple_gain=_gain(found.step_ns, found.simple_ns),
        changed=tuple(
            _change(
                c.key,
                rows,
                (c.calls, c.old_ns / 1000 if c.told else None, c.new_ns / 1000),
                bounded=c.bounded,
            )
            for c in changed
        ),
        unchanged=tuple(_change(key, rows, (None, None, None)) for key in found.unchanged),
        bounds=tuple(_bounds(found)),
        known=Known(
            host_bound=known.host_bound,
            host_low=known.host_low,
            host=known.host,
            host_high=known.host_high,
            host_determined=known.host_determined,
            cpu_activities=known.full,
            profilers=known.dialects,
            gpu_us=known.gpu_ns / 1000,
            rest_us=known.rest_ns / 1000,
            host_calls=known.host_calls,
            event_records=known.event_records,
            slowdown=known.slowdown,
            blocks=known.blocks,
            edges_told=known.edges_told,
            edges_inferred=known.edges_inferred,
            edges_contradicted=known.edges_contradicted,
            edges_unknown=known.edges_unknown,
            idle_unexplained=known.idle_unexplained,
            exchanges_alone=known.exchanges_alone,
            groups_inferred=known.groups_inferred,
            unchanged=known.unchanged,
        ),
        assumptions=Basis(
            wrong=times.wrong,
            marks=tuple(times.marks.items()),
            system=request.system is not None,
            by_call=times.transfers is not None,
            in_job=times.transfers is None
            and any(times.times[c.key].old_ns is None for c in found.changed),
            step_told=request.step_us is not None,
        ),
    )


def _us(ns: float | None) -> float | None:
    return None if ns is None else ns / 1000


def _bounds(found: Prediction) -> Iterator[BoundBy]:
    after = {(b.kind, b.key): b.ns for b in found.bound_after}
    before = {(b.kind, b.key): b.ns for b in found.bound_before}
    for kind, key in dict.fromkeys((*before, *after)):
        of = None
        if key is not None:
            size = "" if key.size_bytes is None else f" {format_size(key.size_bytes)}"
            of = f"{key.op.value} x{key.nranks}{size}"
        old, new = before.get((kind, key), 0.0), after.get((kind, key), 0.0)
        yield BoundBy(kind, of, old / 1000, new / 1000)


def _gain(old: float, new: float) -> float | None:
    return old / new - 1 if new > 0 else None


def _change(
    key: CollectiveClass,
    rows: Mapping[CollectiveClass, ClassRow],
    times: tuple[int | None, float | None, float | None],
    bounded: bool = False,
) -> ClassChange:
    row = rows.get(key)
    datatype = key.datatype.value if key.datatype else None
    if row is None:
        of = key.op.value, datatype, key.count, key.size_bytes, key.nranks
    else:
        of = row.op, row.datatype, row.count, row.size_bytes, row.nranks
    return ClassChange(*of, *times, bounded)
