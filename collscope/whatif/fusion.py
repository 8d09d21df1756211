"""`collscope whatif fusion`: from candidates and times to a table and a recommendation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from collscope.model.note import Note
from collscope.roofline.fit import REACH
from collscope.units import format_size, in_ns
from collscope.whatif.policies import Bucket
from collscope.whatif.predict import interval, line_us, slope, step_us
from collscope.whatif.recommend import bucket_cap_mb, choose
from collscope.whatif.records import Fusion, FusionRequest, FusionRow, PerBucket, Recommended
from collscope.whatif.setup import Job, candidates, make_job, measured_times
from collscope.whatif.times import AllReduceTimes, Floats

_LEAST_R_SQUARED = 0.5  # a line that explains less than half of the differences is of no use


def predict_fusion(request: FusionRequest) -> Fusion:
    """Predict every candidate from the times measured under a label.

    raises  UsageError, InputError, NoVerdictError
    """
    job = make_job(request)
    settings = candidates(request, job.sizes)
    times, job, where, notices = measured_times(request, job)
    reached = {s: b for s, b in settings.items() if times.reaches(_sizes(b))}
    totals = {s: step_us(buckets, times, job.production) for s, buckets in reached.items()}
    now = times.reaches(_sizes(job.present))
    present = step_us(job.present, times, job.production) if now else None
    rows = tuple(row_of(job, s, b, totals.get(s), times) for s, b in settings.items())
    first = row_of(job, None, job.present, present, times)
    if not now or len(reached) < len(settings):
        notices = (*notices, _too_far(times, (job.present, *settings.values())))
    return assemble(
        request, job, (first, rows), (present, totals), where, notices, times.interpolation_error
    )


def _sizes(buckets: Sequence[Bucket]) -> tuple[int, ...]:
    return tuple(bucket.size_bytes for bucket in buckets)


def _too_far(times: AllReduceTimes, steps: Iterable[Sequence[Bucket]]) -> Note:
    """Which sizes lie too far from the measured ones, and how to measure them."""
    sizes = [size for buckets in steps for size in _sizes(buckets)]
    low, high = min(sizes), max(sizes)
    known = " to ".join(dict.fromkeys(format_size(int(times.sizes[i])) for i in (0, -1)))
    sweep = f"{_short(1 << (low.bit_length() - 1))}..{_short(1 << (high - 1).bit_length())}*2"
    return Note(
        "sizes_too_far",
        {"smallest_bytes": low, "largest_bytes": high},
        f"times are unknown where a bucket is more than {REACH} times beyond the measured sizes "
        f"({known}); the buckets have {format_size(low)} to {format_size(high)}. Measure them with "
        f"'collscope replay --sweep allreduce:{sweep}'",
    )


def _short(size: int) -> str:
    """A size as `--sweep` takes it: 16M."""
    return format_size(size).replace(" ", "").removesuffix("B").removesuffix("i")


def row_of(
    job: Job,
    setting: int | None,
    buckets: Sequence[Bucket],
    total: Floats | None,
    times: AllReduceTimes | None,
) -> FusionRow:
    """Row of a setting.

    total  estimate and resamples in µs; None: could not be measured
    times  gives the line and which buckets lie outside; None: the buckets themselves were measured
    """
    sizes = _sizes(buckets)
    spread = None if total is None else interval(total[1:])
    time_us = None if total is None else float(total[0])
    production = job.production
    known = times is not None and production is None and time_us is not None
    line = times.line if times is not None and known else None
    return FusionRow(
        setting=setting,
        buckets=len(sizes),
        smallest_bytes=min(sizes),
        largest_bytes=max(sizes),
        time_ns=in_ns(time_us),
        low_ns=None if spread is None or time_us is None else 1000 * min(spread[0], time_us),
        high_ns=None if spread is None or time_us is None else 1000 * max(spread[1], time_us),
        exposed_ns=(
            None
            if production is None or time_us is None
            else 1000 * max(0.0, time_us - production.end_us)
        ),
        line_ns=None if line is None else 1000 * line_us(buckets, line),
        extrapolated=0 if times is None else times.outside(sizes),
        sizes_bytes=sizes,
    )


def assemble(  # noqa: PLR0913, PLR0917 - one argument per origin of the answer's parts
    request: FusionRequest,
    job: Job,
    table: tuple[FusionRow, tuple[FusionRow, ...]],
    totals: tuple[Floats | None, Mapping[int, Floats]],
    where: str,
    notices: tuple[Note, ...],
    interpolation_error: float | None,
) -> Fusion:
    """The answer, with its recommendation.

    table   row of what is done now, and of every setting
    totals  estimates and resamples of the same, as far as they could be had
    interpolation_error  None: the buckets themselves were measured
    """
    present, rows = table
    production = job.production
    return Fusion(
        source=job.source,
        policy=request.policy.value,
        order=job.order,
        layers=len(job.layers),
        total_bytes=sum(job.sizes),
        datatype=job.datatype.value,
        nranks=job.nranks or 0,
        nnodes=job.nnodes or 1,
        execution=job.execution,
        times_from=where,
        measured=interpolation_error is None,
        interpolation_error=interpolation_error,
        production=None if production is None else production.source,
        backward_ns=None if production is None else 1000 * production.end_us,
        present_name=job.present_name,
        present=present,
        rows=rows,
        recommended=_recommended(request, totals, sum(job.sizes)),
        per_bucket=_per_bucket((present, *rows)) if production is None else None,
        notices=(*job.notices, *notices, *_outside(rows)),
    )


def _per_bucket(rows: Sequence[FusionRow]) -> PerBucket | None:
    timed = [(row.buckets, row.time_ns / 1000) for row in rows if row.time_ns is not None]
    line = slope([n for n, _ in timed], [t for _, t in timed])
    if line is None or line.per_bucket_us <= 0 or line.r_squared < _LEAST_R_SQUARED:
        return None  # the sizes of the buckets decide, not how many there are
    return PerBucket(1000 * line.per_bucket_us, 1000 * line.rest_us, line.r_squared)


def _recommended(
    request: FusionRequest, totals: tuple[Floats | None, Mapping[int, Floats]], total_bytes: int
) -> Recommended | None:
    present, by_setting = totals
    if present is None or not by_setting:
        return None
    settings = tuple(by_setting)
    found = choose(tuple(by_setting.values()), present)
    best = settings[found.best]
    return Recommended(
        best,
        bucket_cap_mb(request.policy, best, total_bytes),
        tuple(settings[i] for i in found.as_good),
        found.gain,
        found.gain_low,
        found.gain_high,
        found.worth_it,
    )


def _outside(rows: Sequence[FusionRow]) -> tuple[Note, ...]:
    worst = max((row.extrapolated for row in rows if row.time_ns is not None), default=0)
    if not worst:
        return ()
    outside = Note(
        "buckets_outside",
        {"buckets": worst},
        f"up to {worst} buckets lie outside the measured sizes; smaller ones get the time of the"
        " smallest measured size, larger ones the bandwidth of the largest",
    )
    return (outside,)
