"""Two or more labels side by side: speed-up per class, crossover sizes, what a job would gain.

The first label is the reference; every other one is compared with it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated

import msgspec
from msgspec.structs import replace

from collscope.errors import InputError, NoVerdictError
from collscope.model import CollectiveClass
from collscope.reports.compare.labels import Label, total_us
from collscope.reports.compare.notes import (
    Note,
    NotEverywhere,
    PlacesDiffer,
    held_against,
    unlike,
    without_times,
)
from collscope.reports.tolerances import PLACES_NOTE
from collscope.stats import LAUNCH_NOISE, Effect, effects, weighted_total

SCHEMA = "collscope.compare/2"


class Cell(msgspec.Struct, frozen=True):
    """One class with one label."""

    label: str
    # wrong, failed: at least one result was wrong, or no call was carried out; no time
    status: Annotated[str, ("ok", "wrong", "failed")]
    time_ns: float | None  # median over the rounds of their medians
    busbw_gbps: float | None
    # time of the first label / time of this one; None: a label has no time of the class
    speed_up: float | None
    # 95 % confidence interval of speed_up; None: the noise is not known, or this is the first label
    low: float | None
    high: float | None  # or this is the first label
    # speed_up is the median over rounds, measured in turns, of the ratio within one; else of the
    # medians
    paired: bool


class ClassComparison(msgspec.Struct, frozen=True):
    """One class with every label."""

    key: CollectiveClass
    # share of the job's measured collective time; None: no run was named, or a label has no time of
    # the class
    weight: float | None
    cells: tuple[Cell, ...]  # one per label, in their order


class Crossover(msgspec.Struct, frozen=True):
    """Where, along the sizes of one curve, another label begins to be the fastest."""

    op: str
    datatype: str | None
    nranks: int | None
    in_place: bool | None  # in place, out of place, or not known
    size_bytes: int  # first measured size at which `to` is the fastest by more than the noise
    before: str  # label that was the fastest
    to: str  # label that is the fastest from here on


class LabelTotal(msgspec.Struct, frozen=True):
    """All common classes of one label against the first label."""

    label: str
    classes: int
    speed_up: float  # geometric mean, by weight where a run was named
    low: float | None  # start of the 95 % confidence interval; None: not known
    high: float | None  # end of the interval
    time_ratio: float | None  # the job's collective time with this label / with the first


class TracedSteps(msgspec.Struct, frozen=True):
    """What the steps of one run are."""

    label: str  # run
    store: str  # path of the store that it is in
    # what was recorded: light, GPU activities alone; full, CPU activities too; other, by another
    # profiler than PyTorch's. All of them slow the host.
    profiler: Annotated[str, ("light", "full", "other")]
    steps: int  # steps that are samples; 0: none were found
    # marks: the profiler's; graphs: launches of graphs; kernels, period: what recurs;
    # given: --steps; window: no step was found
    step_from: Annotated[str, ("marks", "graphs", "kernels", "period", "given", "window")]
    ranks: int  # traced
    world_size: int | None  # ranks of the job, where the traces show it
    host_bound: float  # part of what bounds a step that is the host's work, up to 1
    # Least and most time of a step without the profiler, with run-to-run variation; None: no steps
    unprofiled_low_ns: float | None
    unprofiled_high_ns: float | None


class PartCell(msgspec.Struct, frozen=True):
    """A part of the step of one run; an interval that cannot be stated is None, as in a class."""

    label: str  # run
    time_ns: float | None  # mean over its steps; None: not known
    speed_up: float | None  # time of the first run / time of this one; None for the first
    low: float | None  # 95 % confidence interval of speed_up; None: the noise is not known
    high: float | None  # its other end


class PartComparison(msgspec.Struct, frozen=True):
    """A part of the step in every run."""

    # step: as recorded; unprofiled: without the usual profiler overhead, and the interval over its
    # possible overheads and run-to-run variation. Of the recorded step: collectives: one runs,
    # waiting or not; exposed: of that, not hidden by compute; waiting: summed over the
    # collectives, before the last rank arrived; idle: nothing runs
    part: Annotated[
        str, ("step", "unprofiled", "compute", "collectives", "exposed", "waiting", "idle")
    ]
    # None: of the job, the mean over the ranks; of the step that of the rank whose steps take
    # longest
    rank: int | None
    cells: tuple[PartCell, ...]  # one per run, in their order


class KernelComparison(msgspec.Struct, frozen=True):
    """Kernel time of a class in a step, waiting in it: the mean over the traced ranks."""

    key: CollectiveClass
    cells: tuple[PartCell, ...]  # one per run, in their order; without intervals


class TracedParts(msgspec.Struct, frozen=True):
    """What traces show in addition to their classes."""

    runs: tuple[TracedSteps, ...]  # one per run, in their order
    parts: tuple[PartComparison, ...]  # of the job, then of each rank
    kernels: tuple[
        KernelComparison, ...
    ]  # classes of any run, the most time of the first one first


class Comparison(msgspec.Struct, frozen=True):
    """Answer of `collscope compare`."""

    labels: tuple[str, ...]  # in the order named, the first is the reference
    run: str | None  # whose calls weight the classes
    classes: tuple[ClassComparison, ...]
    totals: tuple[LabelTotal, ...]  # one per label, in their order
    crossovers: tuple[Crossover, ...]  # where the fastest label changes
    notes: tuple[Note, ...]  # what keeps the labels from being like for like, and outliers
    # of traced runs: their steps, and the parts of a step; None: measurements
    traced: TracedParts | None = None
    schema: str = SCHEMA


def compare(
    labels: Sequence[Label],
    run: str | None = None,
    weights: Mapping[CollectiveClass, int] | None = None,
) -> Comparison:
    """Compare labels on the classes that all of them have.

    Classes that are wrong or failed in a label are reported, but do not count.

    weights  calls of the run by class; without it every class counts the same
    raises   InputError when no class is common to all labels, or the run has none of those;
             NoVerdictError when none has right results with every label
    """
    measured = sorted(frozenset.intersection(*(label.measured for label in labels)))
    common = [key for key in measured if all(key in label.classes for label in labels)]
    if not measured:
        differing = _differing(labels)
        raise InputError(
            f"compare {' and '.join(repr(label.name) for label in labels)}: no common classes ("
            + (
                "; ".join(f"{field} {' against '.join(values)}" for field, values in differing)
                or "no class has the same operation, type, size, ranks and place"
            )
            + "). Measure the same classes with each label."
        )
    if not common:
        names = " and ".join(f"'{label.name}'" for label in labels)
        raise NoVerdictError(
            f"compare {names}: no class has right results with every label. Measure again."
        )
    first = labels[0]
    itself = [Effect(0.0, None, 0, paired=False)] * len(common)
    by_label = [
        itself,
        *(
            effects([(first.classes[k].samples, label.classes[k].samples) for k in common])
            for label in labels[1:]
        ),
    ]
    time = [_weight(first, key, weights) for key in common]
    total_time = sum(time)
    if not total_time:
        raise InputError(
            f"run '{run}': no class of it was measured with every label. Measure them with "
            "'collscope replay', or compare without --weights."
        )
    place = {key: c for c, key in enumerate(common)}
    classes = tuple(
        ClassComparison(
            key,
            time[place[key]] / total_time if weights is not None and key in place else None,
            tuple(
                _cell(label, key, by_label[i][place[key]] if key in place else None)
                for i, label in enumerate(labels)
            ),
        )
        for key in measured
    )
    totals = tuple(
        _total(label.name, by_label[i], time, weights is not None) for i, label in enumerate(labels)
    )
    return Comparison(
        tuple(label.name for label in labels),
        run,
        classes,
        totals,
        tuple(
            _crossovers(
                [row for row in classes if row.key in place],
                _Leads(labels, common, by_label[1:]),
            )
        ),
        (*unlike(labels), *held_against(labels), *_left_out(labels, measured), *_outliers(labels)),
    )


def _weight(
    label: Label, key: CollectiveClass, weights: Mapping[CollectiveClass, int] | None
) -> float:
    """Weight of a class: its time in the job, or 1 when no job was named."""
    if weights is None:
        return 1.0
    return total_us(label, key, weights.get(key, 0))


def _cell(label: Label, key: CollectiveClass, effect: Effect | None) -> Cell:
    """One class with one label; `effect` is None where some label has no right result of it."""
    found = label.classes.get(key)
    if found is None or effect is None:
        time = None if found is None else found.samples.time_ns
        busbw = None if found is None else found.busbw_gbps
        return Cell(label.name, label.status(key), time, busbw, None, None, None, paired=False)
    half = effect.half_width()
    return Cell(
        label.name,
        "ok",
        found.samples.time_ns,
        found.busbw_gbps,
        effect.speed_up,
        None if half is None else math.exp(-effect.log_ratio - half),
        None if half is None else math.exp(-effect.log_ratio + half),
        effect.paired,
    )


def _total(name: str, parts: list[Effect], weights: list[float], of_job: bool) -> LabelTotal:
    total = weighted_total(parts, weights)
    half = total.half_width()
    ratio = sum(w * math.exp(e.log_ratio) for w, e in zip(weights, parts, strict=True))
    return LabelTotal(
        name,
        len(parts),
        total.speed_up,
        None if half is None else math.exp(-total.log_ratio - half),
        None if half is None else math.exp(-total.log_ratio + half),
        ratio / sum(weights) if of_job else None,
    )


def curves(classes: Sequence[ClassComparison]) -> list[list[ClassComparison]]:
    """Classes that differ in size only, sizes rising."""
    found: dict[CollectiveClass, list[ClassComparison]] = defaultdict(list)
    for row in classes:
        found[row.key.family].append(row)
    return [sorted(curve, key=lambda row: row.key.size_bytes or 0) for curve in found.values()]


class _Leads:
    """Which of two labels is surely faster, class by class."""

    def __init__(
        self,
        labels: Sequence[Label],
        keys: Sequence[CollectiveClass],
        of_first: Sequence[Sequence[Effect]],
    ) -> None:
        """`of_first`: effects of every other label against the first, as the tables have them."""
        self._labels = {label.name: label for label in labels}
        self._keys = keys
        self._effects: dict[tuple[str, str], dict[CollectiveClass, Effect]] = {}
        for label, found in zip(labels[1:], of_first, strict=True):
            self._keep(labels[0].name, label.name, found)

    def _keep(self, first: str, second: str, found: Sequence[Effect]) -> None:
        self._effects[first, second] = dict(zip(self._keys, found, strict=True))
        turned = [replace(e, log_ratio=-e.log_ratio) for e in found]
        self._effects[second, first] = dict(zip(self._keys, turned, strict=True))

    def sure(self, ahead: str, behind: str, key: CollectiveClass) -> bool:
        """True when `ahead` is faster by more than launches differ, and by more than the noise."""
        if (behind, ahead) not in self._effects:
            one, other = self._labels[behind].classes, self._labels[ahead].classes
            found = effects([(one[k].samples, other[k].samples) for k in self._keys])
            self._keep(behind, ahead, found)
        effect = self._effects[behind, ahead][key]
        return -effect.log_ratio > max(math.log1p(LAUNCH_NOISE), effect.half_width() or 0.0)


def _crossovers(classes: Sequence[ClassComparison], leads: _Leads) -> list[Crossover]:
    """Sizes at which another label becomes the fastest; both leads must be sure."""
    found = []
    for curve in curves(classes):
        leader: str | None = None
        for place, row in enumerate(curve):
            times = {cell.label: cell.time_ns or math.inf for cell in row.cells}
            best = min(times, key=times.__getitem__)
            if leader is None:
                leader = best
            elif best != leader and leads.sure(best, leader, row.key):
                if any(leads.sure(leader, best, earlier.key) for earlier in curve[:place]):
                    k = row.key
                    found.append(
                        Crossover(
                            k.op.value,
                            None if k.datatype is None else k.datatype.value,
                            k.nranks,
                            k.in_place,
                            k.size_bytes or 0,
                            leader,
                            best,
                        )
                    )
                leader = best
    return found


def _left_out(labels: Sequence[Label], measured: Sequence[CollectiveClass]) -> Iterator[Note]:
    for label in labels:
        alone = len(label.measured.difference(measured))
        if alone:
            yield NotEverywhere(label.name, alone, len(label.measured))
        yield from without_times(label)


def _outliers(labels: Sequence[Label]) -> Iterator[Note]:
    """Classes whose out-of-place time is far from the in-place one of the same label."""
    for label in labels:
        for key in sorted(label.classes):
            twin = replace(key, in_place=True)
            if key.in_place is not False or twin not in label.classes:
                continue
            out, in_ = (label.classes[k].samples.time_ns for k in (key, twin))
            if max(out, in_) / min(out, in_) > PLACES_NOTE:
                yield PlacesDiffer(label.name, key, out, in_)


def _differing(labels: Sequence[Label]) -> Iterator[tuple[str, list[str]]]:
    """Parts of the key without a value that all labels share, and each label's first value."""
    for field in ("op", "datatype", "nranks", "in_place", "size_bytes"):
        sets = [{_shown(getattr(key, field)) for key in label.classes} for label in labels]
        if not set.intersection(*sets):
            yield field, ["/".join(sorted(s)[:4]) for s in sets]


def _shown(value: object) -> str:
    """A part of a class."""
    if isinstance(value, Enum):
        return str(value.value)
    return "not known" if value is None else str(int(value) if isinstance(value, bool) else value)
