"""Traced runs side by side: their steps are the samples (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from msgspec.structs import replace

from collscope.reports.compare.answer import (
    Comparison,
    KernelComparison,
    PartCell,
    PartComparison,
    TracedParts,
    TracedSteps,
    compare,
)
from collscope.reports.compare.notes import (
    GroupsInferred,
    NoSteps,
    Note,
    NotSplit,
    OneRecording,
    OneRecordingEach,
    Unlike,
    UnlikeProfilers,
    WaitsUnknown,
    unlike,
)
from collscope.reports.compare.step_samples import COMPUTE, OF_RANKS, PARTS, UNPROFILED, SampledRun
from collscope.stats import Samples, effects
from collscope.timeline.tolerances import USUAL
from collscope.timeline.unprofiled import StepRatio, step_ratio
from collscope.units import in_ns


def compare_traced(runs: Sequence[SampledRun]) -> Comparison:
    """Compare runs with the first, on their steps and on the classes that all of them have."""
    labels = [run.label for run in runs]
    first = labels[0]
    notes = tuple(traced_notes(runs))
    if not frozenset.intersection(*(label.measured for label in labels)):
        names = tuple(label.name for label in labels)
        found = Comparison(names, None, (), (), (), tuple(unlike(labels)))
    else:
        weights = {key: m.calls or 1 for key, m in first.classes.items()}
        found = compare(labels, first.name, weights)
    return replace(found, notes=(*notes, *found.notes), traced=traced_parts(runs))


def mean(samples: Samples | None) -> float | None:
    """Mean over the steps, µs, as every report of a step has it; None where not known."""
    return None if samples is None else fmean(samples.all)


def ratio_unprofiled(
    first: SampledRun, other: SampledRun, confidence: float = USUAL
) -> StepRatio | None:
    """Step of the other run / that of the first, without the profiler; None: not known."""
    if first.unprofiled is None or other.unprofiled is None:
        return None
    return step_ratio(first.unprofiled, other.unprofiled, confidence)


def traced_parts(runs: Sequence[SampledRun]) -> TracedParts:
    """The steps of traced runs, in parts and classes."""
    ranks = sorted(set.intersection(*(set(run.ranks) for run in runs)))
    wanted: list[tuple[str, int | None]] = [(part, None) for part in PARTS]
    wanted += [(part, rank) for part in OF_RANKS for rank in ranks]
    parts = (
        PartComparison(part, rank, tuple(_cell(runs[0], run, part, rank) for run in runs))
        for part, rank in wanted
    )
    return TracedParts(
        tuple(
            TracedSteps(
                r.name,
                str(r.store),
                r.profiler,
                r.steps,
                r.step_from,
                len(r.ranks),
                r.world_size,
                r.host,
                *((None, None) if r.unprofiled is None else r.unprofiled.ends),
            )
            for r in runs
        ),
        tuple(p for p in parts if any(c.time_ns is not None for c in p.cells)),
        tuple(_kernel_times(runs)),
    )


def _kernel_times(runs: Sequence[SampledRun]) -> Iterator[KernelComparison]:
    first = runs[0].kernels
    keys = sorted({key for run in runs for key in run.kernels})
    for key in sorted(keys, key=lambda k: -(mean(first.get(k)) or 0.0)):
        times = [mean(r.kernels.get(key)) for r in runs]
        yield KernelComparison(
            key,
            tuple(
                PartCell(
                    run.name,
                    in_ns(t),
                    times[0] / t if place and t and times[0] else None,
                    None,
                    None,
                )
                for place, (run, t) in enumerate(zip(runs, times, strict=True))
            ),
        )


def _cell(first: SampledRun, run: SampledRun, part: str, rank: int | None) -> PartCell:
    if part == UNPROFILED:
        return _unprofiled_cell(first, run)
    before, after = (
        r.parts.get(part) if rank is None else r.of_rank.get((rank, part)) for r in (first, run)
    )
    old, new = mean(before), mean(after)
    if run is first or not old or not new:
        return PartCell(run.name, in_ns(new), None, None, None)
    half = None
    if part == COMPUTE and before is not None and after is not None:
        half = _noise(before, after)
    ends = (
        (None, None) if half is None else (old / new / math.exp(half), old / new * math.exp(half))
    )
    return PartCell(run.name, in_ns(new), old / new, *ends)


def _noise(before: Samples, after: Samples) -> float | None:
    """Half the 95 % interval of a logarithm: recordings differ as launches of a collective do."""
    if min(*before.all, *after.all) <= 0:
        return None
    (effect,) = effects([(before, after)])
    return effect.half_width()


def _unprofiled_cell(first: SampledRun, run: SampledRun) -> PartCell:
    time = None if run.unprofiled is None else run.unprofiled.middle
    found = None if run is first else ratio_unprofiled(first, run)
    if found is None:
        return PartCell(run.name, time, None, None, None)
    return PartCell(run.name, time, 1 / found.middle, 1 / found.high, 1 / found.low)


def traced_notes(runs: Sequence[SampledRun]) -> Iterator[Note]:
    """What keeps traced runs from being like for like."""
    for run in runs:
        if not run.steps:
            yield NoSteps(run.name)
        if run.unsplit:
            yield NotSplit(run.name, run.unsplit, run.unsplit + len(run.label.classes))
        elif run.waits_unknown[0]:
            yield WaitsUnknown(run.name, *run.waits_unknown)
    groups = max(run.groups_inferred for run in runs)
    if groups:
        yield GroupsInferred(groups)
    ranks = tuple((run.name, (f"{len(run.ranks)} of {run.world_size or len(run.ranks)}",))
                  for run in runs)  # fmt: skip
    if len({v for _, v in ranks}) > 1:
        yield Unlike("rank count", ranks)
    if len({run.profiler for run in runs}) > 1:
        yield UnlikeProfilers(tuple((run.name, run.profiler) for run in runs))
    if len({run.digest for run in runs}) == 1:
        yield OneRecording()
    elif all(run.steps for run in runs):
        yield OneRecordingEach(max(run.host for run in runs))
