"""Backends of AllReduce beside the library, by size, and what a job's step would win (pure)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Annotated

import msgspec
from msgspec.structs import replace

from collscope.bench.backends_plan import LIBRARY_FAMILIES, Demand, StepCalls
from collscope.bench.backends_worker import BEHIND, LAYER, SHARED
from collscope.model import CollectiveClass, Measurement
from collscope.stats import Effect, Samples, discoveries, effects, t_quantile, weighted_total
from collscope.units import in_ns

SCHEMA = "collscope.backends/1"
_WRONG_DISCOVERIES = 0.05  # of the backends that are called faster, at most so many are not
_CONFIDENCE = 0.95


class BackendTime(msgspec.Struct, frozen=True):
    """A backend at one size."""

    backend: str  # nccl, nccl-window, torch-one-shot, torch-two-shot, torch-multimem, vllm, …
    library: str | None  # name and version
    # of a call on the slowest rank: median over the launches of their medians
    time_ns: float | None
    # its time over the baseline's, median over the launches; of fewer than 3: of the samples
    ratio: float | None
    ratio_low: (
        float | None
    )  # 95 % interval of the ratio; of fewer than 3 launches: with 2 % assumed
    ratio_high: float | None
    faster: bool  # than the baseline, beyond chance
    launches: int  # with a time
    n_wrong: int | None  # wrong elements over all ranks; None: not checked
    status: Annotated[str, ("ok", "wrong", "failed", "timeout", "skipped", "contradictory")]
    message: str | None  # why it has no time


class SizeRow(msgspec.Struct, frozen=True):
    """All backends at one size."""

    size_bytes: int  # of a call
    datatype: str
    best: str | None  # the fastest of those that are faster than the baseline, else the baseline
    # of the run: AllReduces of a rank in a step; None: not known, or no run
    calls_per_step: float | None
    saved_ns: float | None  # a step, by the best backend; None: not known
    saved_low_ns: float | None  # its range, as of StepGain
    saved_high_ns: float | None
    backends: tuple[BackendTime, ...]  # in the order in which they take turns


class LeftOut(msgspec.Struct, frozen=True):
    """AllReduces of the run without a measurement, for one reason."""

    # size_unknown: not in the source; not_measured: no row fits; other_ranks: on another number
    # of ranks; other_backend: their kernels are not the library's
    reason: Annotated[str, ("size_unknown", "not_measured", "other_ranks", "other_backend")]
    calls_per_step: float
    size_bytes: int | None  # of these calls
    family: str | None  # of their kernels


class StepGain(msgspec.Struct, frozen=True):
    """What a step of the run would win with the best backend of every size.

    Times of calls are those measured here. They are the step's as far as compute hides none.
    The range has the 95 % interval of the launches, and `other_compute` of both times.
    """

    run: str
    step_ns: float | None  # median, as recorded
    calls: float  # AllReduces a step that were measured
    baseline_ns: float  # of them, a step, with the baseline
    saved_ns: float
    saved_low_ns: float | None  # the range; None: not known
    saved_high_ns: float | None
    exposed_share: float | None  # of these calls' kernel time in the job
    left_out: tuple[LeftOut, ...]


class BackendsReport(msgspec.Struct, frozen=True):
    """The answer of `collscope bench backends`."""

    baseline: str | None  # what the others are compared with; None: nothing was measured
    nranks: int | None
    device: str | None
    shared_gpu: bool  # ranks shared a GPU: these are no times of ranks with one each
    method: str | None  # graph; batch: without a GPU
    launches: int  # of the ranks
    # A gain behind other compute differs by so large a part of both backends' times, at most in 95
    # of 100 cases, as the kinds of compute of this measurement differ. None: it had only one
    other_compute: float | None
    rows: tuple[SizeRow, ...]  # sizes rise
    step: StepGain | None  # None: no run, or no AllReduce in its steps
    schema: str = SCHEMA


_SizeAndType = tuple[int, str]  # size in bytes, datatype


def build_backends(rows: Sequence[Measurement], demand: Demand | None) -> BackendsReport:
    """Backends by size against the first one, and what the run's steps would win.

    rows    labels end with the backend's name; the first row's backend is the baseline
    """
    by_place: dict[_SizeAndType, dict[str, list[Measurement]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        if row.size_bytes and row.datatype and _compute(row) == LAYER:
            by_place[row.size_bytes, row.datatype.value][_backend(row)].append(row)
    baseline = _backend(rows[0]) if rows else None
    places = sorted(by_place)
    pairs = [
        ((place, name), (samples[baseline], samples[name]))
        for place in places
        if (samples := _samples(by_place[place]))
        for name in samples
        if baseline in samples and name != baseline
    ]
    in_graphs = all(row.method == "graph" for row in rows)
    found = effects([both for _, both in pairs], in_graphs=in_graphs)
    sure = discoveries([e.p_faster() for e in found], _WRONG_DISCOVERIES)
    compared = {
        key: (effect, faster) for (key, _), effect, faster in zip(pairs, found, sure, strict=True)
    }
    sizes = [_size_row(place, by_place[place], baseline, compared) for place in places]
    first = rows[0] if rows else None
    report = BackendsReport(
        baseline,
        None if first is None else first.nranks,
        None if first is None else first.device,
        first is not None and (first.device or "").endswith(SHARED),
        None if first is None else first.method,
        len({row.round for row in rows}),
        other_compute(rows, baseline),
        tuple(sizes),
        None,
    )
    if demand is None or not demand.in_steps or first is None:
        return report
    return _with_gain(report, rows, demand, {key: effect for key, (effect, _) in compared.items()})


def _backend(row: Measurement) -> str:
    return (row.label or "").rpartition(" ")[2]


def _compute(row: Measurement) -> str:
    """The kind of compute before the calls."""
    words = (row.label or "").split()
    behind = words[-2] if len(words) > 1 else ""
    return behind.removeprefix(BEHIND) if behind.startswith(BEHIND) else LAYER


def other_compute(rows: Sequence[Measurement], baseline: str | None) -> float | None:
    """By which part of both times a gain differs between two kinds of compute, in 95 of 100 cases.

    Gains of a call behind each kind of compute, as parts of both backends' times, have one
    deviation over all sizes and backends. A gain measured behind one kind and a job's, behind
    another, differ by the square root of 2 times as much.
    """
    times: dict[_SizeAndType, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    grouped: dict[tuple[_SizeAndType, str, str], list[Measurement]] = defaultdict(list)
    for row in rows:
        if row.size_bytes and row.datatype:
            place = row.size_bytes, row.datatype.value
            grouped[place, _backend(row), _compute(row)].append(row)
    for (place, name, kind), found in grouped.items():
        if all(row.usable for row in found):
            samples = Samples({row.round: row.times_us for row in found})
            times[place][name][kind] = samples.time_us
    squares, freedom = 0.0, 0
    for of_place in times.values():
        base = of_place.get(baseline or "", {})
        for name, other in of_place.items():
            both = [kind for kind in base if kind in other]
            if name == baseline or LAYER not in both or len(both) < 2:
                continue
            both_us = base[LAYER] + other[LAYER]
            gains = [(base[kind] - other[kind]) / both_us for kind in both]
            squares += sum((gain - fmean(gains)) ** 2 for gain in gains)
            freedom += len(both) - 1
    if not freedom:
        return None
    return t_quantile(0.5 + _CONFIDENCE / 2, freedom) * math.sqrt(2 * squares / freedom)


def _samples(of_place: dict[str, list[Measurement]]) -> dict[str, Samples]:
    """Times by round of the backends that have right ones alone."""
    return {
        name: Samples({row.round: row.times_us for row in rows})
        for name, rows in of_place.items()
        if all(row.usable for row in rows)
    }


def _size_row(
    place: _SizeAndType,
    of_place: dict[str, list[Measurement]],
    baseline: str | None,
    compared: dict[tuple[_SizeAndType, str], tuple[Effect, bool]],
) -> SizeRow:
    samples = _samples(of_place)
    times = [
        _backend_time(name, rows, samples.get(name), compared.get((place, name)))
        for name, rows in of_place.items()
    ]
    faster = [t for t in times if t.faster and t.time_ns is not None]
    best = min(faster, key=lambda t: t.time_ns or math.inf).backend if faster else baseline
    return SizeRow(
        *place, best if baseline in samples else None, None, None, None, None, tuple(times)
    )


def _backend_time(
    name: str,
    rows: Sequence[Measurement],
    samples: Samples | None,
    compared: tuple[Effect, bool] | None,
) -> BackendTime:
    effect, faster = compared or (None, False)
    half = None if effect is None else effect.half_width(_CONFIDENCE)
    low, high = (
        (math.exp(effect.log_ratio - half), math.exp(effect.log_ratio + half))
        if effect is not None and half is not None
        else (None, None)
    )
    bad = next((row for row in rows if not row.usable), None)
    wrong = [row.n_wrong for row in rows if row.n_wrong is not None]
    return BackendTime(
        name,
        next((row.library for row in rows if row.library), None),
        None if samples is None else in_ns(samples.time_us),
        None if effect is None else math.exp(effect.log_ratio),
        low,
        high,
        faster,
        0 if samples is None else len(samples.rounds),
        sum(wrong) if wrong else None,
        "ok" if bad is None else "wrong" if bad.wrong else bad.status,
        None if bad is None else bad.message,
    )


def _with_gain(
    report: BackendsReport,
    rows: Sequence[Measurement],
    demand: Demand,
    compared: dict[tuple[_SizeAndType, str], Effect],
) -> BackendsReport:
    """The answer with what a step wins."""
    measured = {
        row.collective_class: (row.size_bytes or 0, row.datatype.value)
        for row in rows
        if row.datatype
    }
    timed = {(r.size_bytes, r.datatype): r for r in report.rows if r.best is not None}
    calls: dict[_SizeAndType, list[StepCalls]] = defaultdict(list)
    left_out = []
    for one in demand.in_steps:
        place = _serving(one.collective_class, measured)
        reason = _unserved(one, report.nranks, place in timed)
        if reason is None and place is not None:
            calls[place].append(one)
        elif reason is not None:
            size = one.collective_class.size_bytes
            left_out.append(LeftOut(reason, one.calls, size, one.family))
    counted = {place: sum(one.calls for one in ones) for place, ones in calls.items()}
    sizes = [_row_with_gain(row, counted, report) for row in report.rows]
    step = _step_gain(demand, timed, calls, compared, report)
    return replace(report, rows=tuple(sizes), step=replace(step, left_out=tuple(left_out)))


def _serving(
    wanted: CollectiveClass, measured: dict[CollectiveClass, _SizeAndType]
) -> _SizeAndType | None:
    """Where the measurement stands that serves a class best."""
    fitting = [(d, key) for key in measured if (d := wanted.distance(key)) is not None]
    return measured[min(fitting)[1]] if fitting else None


def _unserved(one: StepCalls, nranks: int | None, timed: bool) -> str | None:
    """Why calls of a step have no measurement; None: they have one."""
    if one.family not in LIBRARY_FAMILIES:
        return "other_backend"
    if one.collective_class.nranks != nranks:
        return "other_ranks"
    if not one.collective_class.size_bytes:
        return "size_unknown"
    return None if timed else "not_measured"


def _time_ns(row: SizeRow, baseline: str | None) -> float:
    return next(t.time_ns or 0.0 for t in row.backends if t.backend == baseline)


def _row_with_gain(
    row: SizeRow, counted: dict[_SizeAndType, float], report: BackendsReport
) -> SizeRow:
    calls = counted.get((row.size_bytes, row.datatype))
    if calls is None:
        return row
    best = next((t for t in row.backends if t.backend == row.best and t.faster), None)
    if best is None or best.ratio is None:
        return replace(row, calls_per_step=calls, saved_ns=0.0, saved_low_ns=0.0, saved_high_ns=0.0)
    before = calls * _time_ns(row, report.baseline)
    part = report.other_compute
    other = None if part is None else part * before * (1 + best.ratio)
    low, high = best.ratio_low, best.ratio_high
    return replace(
        row,
        calls_per_step=calls,
        saved_ns=before * (1 - best.ratio),
        saved_low_ns=None if high is None or other is None else before * (1 - high) - other,
        saved_high_ns=None if low is None or other is None else before * (1 - low) + other,
    )


def _step_gain(
    demand: Demand,
    timed: dict[_SizeAndType, SizeRow],
    calls: dict[_SizeAndType, list[StepCalls]],
    compared: dict[tuple[_SizeAndType, str], Effect],
    report: BackendsReport,
) -> StepGain:
    """The sum over sizes; where a backend replaces the baseline, with its ratio."""
    baseline = report.baseline
    base_ns, parts, before, after = 0.0, [], [], []
    for place, ones in calls.items():
        row = timed[place]
        of_size = sum(one.calls for one in ones) * _time_ns(row, baseline)
        base_ns += of_size
        if row.best is not None and row.best != baseline:
            effect = compared[place, row.best]
            parts.append(effect)
            before.append(of_size)
            after.append(of_size * math.exp(effect.log_ratio))
    saved = sum(before) - sum(after)
    # d ln(sum of after) = sum of (after / sum of after) times the error of each logarithm.
    half = weighted_total(parts, after).half_width(_CONFIDENCE) if parts else 0.0
    part = report.other_compute if parts else 0.0
    known = half is not None and part is not None
    other = (part or 0.0) * (sum(before) + sum(after))
    kernels = [one for ones in calls.values() for one in ones]
    duration = sum(one.duration_ns for one in kernels)
    return StepGain(
        demand.run,
        demand.step_ns,
        sum(one.calls for one in kernels),
        base_ns,
        saved,
        sum(before) - sum(after) * math.exp(half or 0.0) - other if known else None,
        sum(before) - sum(after) * math.exp(-(half or 0.0)) + other if known else None,
        sum(one.exposed_ns for one in kernels) / duration if duration else None,
        (),
    )
