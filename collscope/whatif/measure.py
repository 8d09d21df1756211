"""`collscope whatif fusion --measure`: the fused plans replayed instead of modelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from collscope.errors import CollscopeError, UsageError
from collscope.model import Measurement, Op
from collscope.model.note import Note
from collscope.replay.measure import measure
from collscope.replay.mpi import RUN_ALONE
from collscope.replay.session import Session, Target
from collscope.whatif.fusion import assemble, row_of
from collscope.whatif.plans import fused_plan, unique_plan
from collscope.whatif.policies import Bucket
from collscope.whatif.predict import step_us
from collscope.whatif.records import BLOCKING, QUEUED, Fusion, FusionRequest
from collscope.whatif.setup import Job, candidates, make_job
from collscope.whatif.times import Floats, make_times, resampled_times

DEFAULT_LABEL = "fusion"
_Totals = dict[int | None, Floats]  # by setting; None: what is done now


class MeasuredFusion(msgspec.Struct, frozen=True):
    """The answer, and why it is not whole where something failed."""

    fusion: Fusion
    error: CollscopeError | None


def measure_fusion(request: FusionRequest, session: Session) -> MeasuredFusion:
    """Measure the buckets of every setting, and of what is done now.

    Blocking and overlapped: each distinct bucket size once, in one start of the replayer, alone
    from call to end or back to back. Queued: every setting's buckets in their order, a start each.

    raises  CollscopeError when nothing could be measured
    """
    job = make_job(request)
    if job.nranks is None:
        raise UsageError(
            "whatif fusion --measure: the number of ranks is not given. Give --ranks N."
        )
    if session.place is not None:
        raise UsageError(f"whatif fusion --measure: started by srun or mpirun. {RUN_ALONE}")
    every: dict[int | None, tuple[Bucket, ...]] = {None: job.present}
    every.update(candidates(request, job.sizes).items())
    target = Target(request.db, request.run or "main", label=request.label or DEFAULT_LABEL)
    if job.execution == QUEUED:
        totals, measured, error = _queued(job, every, session, target)
    else:
        totals, measured, error = _one_by_one(job, every, session, target)
    if not totals:
        raise error or UsageError(
            "whatif fusion --measure: nothing was measured. Try replay --sweep."
        )
    return MeasuredFusion(_answer(request, job, every, totals, measured), error)


def _one_by_one(
    job: Job, every: Mapping[int | None, Sequence[Bucket]], session: Session, target: Target
) -> tuple[_Totals, Sequence[Measurement], CollscopeError | None]:
    sizes = [bucket.size_bytes for buckets in every.values() for bucket in buckets]
    assert job.nranks is not None
    plan = unique_plan(sizes, job.datatype, job.nranks)
    timing = "isolated" if job.execution == BLOCKING else session.method.timing
    outcome = measure(plan, replace(session, method=replace(session.method, timing=timing)), target)
    usable = [m for m in outcome.measurements if _right(m)]
    if not usable:
        return {}, (), outcome.error
    times = make_times(usable, target.label or DEFAULT_LABEL, exact=True)
    known = set(times.sizes.tolist())
    totals = {
        setting: step_us(buckets, times, job.production)
        for setting, buckets in every.items()
        if all(bucket.size_bytes in known for bucket in buckets)
    }
    return totals, outcome.measurements, outcome.error


def _queued(
    job: Job, every: Mapping[int | None, Sequence[Bucket]], session: Session, target: Target
) -> tuple[_Totals, Sequence[Measurement], CollscopeError | None]:
    assert job.nranks is not None
    totals: _Totals = {}
    measured: list[Measurement] = []
    error: CollscopeError | None = None
    for setting, buckets in every.items():
        # A label of its own: the classes of two settings must not be taken for rounds of one.
        name = f"{target.label} {'present' if setting is None else setting}"
        plan = fused_plan(buckets, job.datatype, job.nranks)
        outcome = measure(plan, session, replace(target, label=name))
        error = error or outcome.error
        measured += outcome.measurements
        sequence = next((m for m in outcome.measurements if m.op is Op.SEQUENCE), None)
        if sequence is not None and all(map(_right, outcome.measurements)):
            totals[setting] = resampled_times(sequence)
    return totals, measured, error


def _right(m: Measurement) -> bool:
    return m.right and bool(m.time_us_median)


def _answer(
    request: FusionRequest,
    job: Job,
    every: Mapping[int | None, Sequence[Bucket]],
    totals: _Totals,
    measured: Sequence[Measurement],
) -> Fusion:
    table = {s: row_of(job, s, buckets, totals.get(s), None) for s, buckets in every.items()}
    nodes = next((m.nnodes for m in measured if m.nnodes), job.nnodes)
    backends = ", ".join(sorted({m.backend or "unknown" for m in measured}))
    libraries = ", ".join(sorted({m.library or "unknown" for m in measured}))
    methods = ", ".join(sorted({m.method or "unknown" for m in measured}))
    missing = len(every) - len(totals)
    return assemble(
        request,
        replace(job, nnodes=nodes),
        (table[None], tuple(row for s, row in table.items() if s is not None)),
        (totals.get(None), {s: t for s, t in totals.items() if s is not None}),
        f"replayed on {backends}, {libraries}, method {methods}",
        (_missing_note(missing),) if missing else (),
        None,
    )


def _missing_note(settings: int) -> Note:
    text = f"{settings} settings could not be measured"
    return Note("not_measured", {"settings": settings}, text)
