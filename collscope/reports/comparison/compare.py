"""Two or more labels side by side: speed-up per class, crossover sizes, what a job would gain.

The first label is the reference; every other one is compared with it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from collscope.errors import InputError
from collscope.reports.comparison.measured import Key, Label
from collscope.reports.comparison.noise import Effect, effects, weighted_total

SCHEMA = "collscope.compare/1"
# An out-of-place call slower than the in-place one by more than this is first touch or an accident:
# the published Frontier tables have 1.18 and 2.04 once each, and below 1.1 everywhere else.
_PLACES_DIFFER = 1.15


@dataclass(frozen=True, slots=True)
class Cell:
    """One class with one label."""

    label: str
    time_us: float  # median
    busbw_gbps: float | None
    speed_up: float  # time of the first label / time of this one
    low: float | None  # 95 % confidence interval of speed_up; None: the noise is not known
    high: float | None


@dataclass(frozen=True, slots=True)
class ClassComparison:
    """One class with every label."""

    key: Key
    weight: float | None  # share of the job's measured collective time; None: no run was named
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where, along the sizes of one curve, another label begins to be the fastest."""

    op: str
    datatype: str
    nranks: int
    in_place: int
    size_bytes: int  # first measured size at which `to` is the fastest
    before: str
    to: str


@dataclass(frozen=True, slots=True)
class LabelTotal:
    """All common classes of one label against the first label."""

    label: str
    classes: int
    speed_up: float  # geometric mean, by weight where a run was named
    low: float | None
    high: float | None
    time_ratio: float | None  # the job's collective time with this label / with the first


@dataclass(frozen=True, slots=True)
class Comparison:
    """Answer of `collscope compare`."""

    labels: tuple[str, ...]
    run: str | None  # whose calls weight the classes
    classes: tuple[ClassComparison, ...]
    totals: tuple[LabelTotal, ...]
    crossovers: tuple[Crossover, ...]
    notes: tuple[str, ...]  # what keeps the labels from being like for like, and outliers
    schema: str = SCHEMA


def compare(
    labels: Sequence[Label], run: str | None = None, weights: Mapping[Key, int] | None = None
) -> Comparison:
    """Compare labels on the classes that all of them have.

    weights  calls of the run by class; without it every class counts the same
    raises   InputError when no class is common to all labels
    """
    common = sorted(set.intersection(*(set(label.classes) for label in labels)))
    if not common:
        raise InputError(_why_nothing_common(labels))
    first = labels[0]
    by_label = [
        effects([(first.classes[k].samples, label.classes[k].samples) for k in common])
        for label in labels
    ]
    time = [_seconds(first, key, weights) for key in common]
    whole = sum(time)
    classes = tuple(
        ClassComparison(
            key,
            time[c] / whole if weights is not None and whole else None,
            tuple(_cell(label, key, by_label[i][c]) for i, label in enumerate(labels)),
        )
        for c, key in enumerate(common)
    )
    totals = tuple(
        _total(label.name, by_label[i], time if whole else [1.0] * len(common), weights is not None)
        for i, label in enumerate(labels)
    )
    return Comparison(
        tuple(label.name for label in labels),
        run,
        classes,
        totals,
        tuple(_crossovers(classes)),
        (*_unlike(labels), *_left_out(labels, len(common)), *_outliers(labels)),
    )


def _seconds(label: Label, key: Key, weights: Mapping[Key, int] | None) -> float:
    """Weight of a class: its time in the job, or 1 when no job was named."""
    if weights is None:
        return 1.0
    return weights.get(key, 0) * median(label.classes[key].samples.all)


def _cell(label: Label, key: Key, effect: Effect) -> Cell:
    half = effect.half_width()
    return Cell(
        label.name,
        median(label.classes[key].samples.all),
        label.classes[key].busbw_gbps,
        effect.speed_up,
        None if half is None else math.exp(-effect.log_ratio - half),
        None if half is None else math.exp(-effect.log_ratio + half),
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


def _crossovers(classes: Sequence[ClassComparison]) -> list[Crossover]:
    curves: dict[tuple[str | int, ...], list[ClassComparison]] = defaultdict(list)
    for row in classes:
        curves[row.key.family].append(row)
    found = []
    for curve in curves.values():
        curve.sort(key=lambda row: row.key.size_bytes)
        fastest = [min(row.cells, key=lambda cell: cell.time_us).label for row in curve]
        for before, to, row in zip(fastest, fastest[1:], curve[1:], strict=False):
            if before != to:
                k = row.key
                found.append(
                    Crossover(k.op, k.datatype, k.nranks, k.in_place, k.size_bytes, before, to)
                )
    return found


def _unlike(labels: Sequence[Label]) -> list[str]:
    """Circumstances in which the labels differ: perhaps meant, perhaps not."""
    notes = []
    for name in labels[0].circumstances:
        values = {label.name: label.circumstances[name] for label in labels}
        if len(set(values.values())) > 1:
            told = ", ".join(f"{k}: {'/'.join(v) or 'not known'}" for k, v in values.items())
            notes.append(f"{name} differs ({told})")
    return notes


def _left_out(labels: Sequence[Label], common: int) -> list[str]:
    notes = []
    for label in labels:
        if len(label.classes) > common:
            n = len(label.classes) - common
            notes.append(f"{label.name}: {n} of {len(label.classes)} classes have no counterpart")
        if label.left_out:
            notes.append(f"{label.name}: {label.left_out} rows failed or have no time")
    return notes


def _outliers(labels: Sequence[Label]) -> list[str]:
    """Classes whose out-of-place time is far from the in-place one of the same label."""
    notes = []
    for label in labels:
        for key in sorted(label.classes):
            twin = replace(key, in_place=1)
            if key.in_place != 0 or twin not in label.classes:
                continue
            out, in_ = (median(label.classes[k].samples.all) for k in (key, twin))
            if max(out, in_) / min(out, in_) > _PLACES_DIFFER:
                notes.append(
                    f"{label.name}: {key.op} of {key.size_bytes} B takes {out:.1f} us out of place"
                    f" and {in_:.1f} us in place ({out / in_:.2f} x): first touch, or an outlier"
                )
    return notes


def _why_nothing_common(labels: Sequence[Label]) -> str:
    names = " and ".join(f"'{label.name}'" for label in labels)
    reasons = []
    for field in ("op", "datatype", "nranks", "in_place", "size_bytes"):
        sets = [{getattr(key, field) for key in label.classes} for label in labels]
        if not set.intersection(*sets):
            told = " against ".join("/".join(map(str, sorted(s)[:4])) for s in sets)
            reasons.append(f"{field} {told}")
    why = "; ".join(reasons) or "no class has the same operation, type, size, ranks and place"
    return f"compare {names}: no common classes ({why}). Measure the same classes with each."
