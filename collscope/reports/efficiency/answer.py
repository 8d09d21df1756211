"""How good the collectives of a run are: each class against its roof, and what better ones give.

`efficiency_of` reads the measurements and the application's figures; then everything is pure.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from collscope.model import Measurement
from collscope.reports.calls.answer import ClassRow
from collscope.reports.coverage.answer import traced_gpus
from collscope.reports.efficiency.application_metrics import (
    ApplicationMetric,
    application_metrics,
    job_names,
)
from collscope.reports.efficiency.curves import Curve, curves_of
from collscope.reports.efficiency.judged_classes import Judged, Reached, judge_classes, reached_of
from collscope.reports.efficiency.outliers import Outlier, outliers_of
from collscope.reports.efficiency.profile_kernels import ProfileKernel, judge_kernels
from collscope.reports.efficiency.serving import (
    Matcher,
    as_classes,
    choose_labels,
    labels_of,
    share_source,
)
from collscope.reports.efficiency.time_breakdown import (
    Breakdown,
    Fraction,
    Uplift,
    break_down,
    fractions_of,
    uplift_of,
)
from collscope.reports.fabric.answer import switches_may_reduce
from collscope.reports.share.answer import Share
from collscope.roofline.chosen import AnyRoofs, FitRoofs, empirical, make_roofs
from collscope.roofline.gpu_models import OtherGpus
from collscope.store.measurements import StoredMeasurement, read_measurements


class JudgedLabel(msgspec.Struct, frozen=True):
    """The label whose measurements are judged; None: the run has none.

    labels         of the run, the most recent last
    asked          it was named, or there is no other
    first          it is the first that is tried; False: that one cannot be judged
    one_of_a_file  its latest source has other labels too
    rows           its measurements; wrong, failed: those of them without a number
    """

    name: str | None
    labels: tuple[str, ...]
    asked: bool
    first: bool
    one_of_a_file: bool
    rows: int
    wrong: int
    failed: int


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """How good the collectives of a run are, and what better ones would give.

    roof        which roof the classes are judged by
    classes     those to look at first, first
    whole_s     time of all classes over all devices
    kernels     of profiles, against the roof of the largest message they can serve
    fractions   collective share of the time, one for each job that the profiles are of
    other_gpus  that ran, where the system's are of another model
    left_out    profiles that are not added to the traces, whose kernels they may hold again
    reached     by operation and ranks; empty where the run has calls
    outliers    rounds and nodes of the label that are slower than the others
    """

    label: JudgedLabel
    roof: str | None
    classes: tuple[Judged, ...]
    whole_s: float
    kernels: tuple[ProfileKernel, ...]
    breakdown: Breakdown | None
    fractions: tuple[Fraction, ...]
    uplifts: tuple[Uplift, ...]
    metrics: tuple[ApplicationMetric, ...]
    curves: tuple[Curve, ...]
    reached: tuple[Reached, ...]
    outliers: tuple[Outlier, ...]
    left_out: tuple[str, ...]
    other_gpus: OtherGpus | None


def efficiency_of(
    connection: sqlite3.Connection,
    run: str,
    classes: Sequence[ClassRow],
    shares: Sequence[Share],
    asked: tuple[str | None, str | None],
) -> Efficiency:
    """How good the collectives of a run are.

    classes, shares  of the run, all of them
    asked            system (a name, a file, `fit`) and label of the measurements; None: no roof,
                     the first of `choose_labels` that says something of the classes
    raises           InputError for an unknown system or label, NoVerdictError when `fit` has
                     nothing to fit
    """
    system, wanted = asked
    rows = read_measurements(connection, run=run)
    measured = [row.measurement for row in rows]
    shares, left_out = _counted_once(connection, run, shares)
    roofs = make_roofs(system, measured, multicast=switches_may_reduce(connection, run))
    best = None if system is None else empirical(measured)
    known = fractions_of(connection, run, shares, job_names(connection, run))
    exposure = next((f.exposure for f in known if f.exposure is not None), 1.0)
    judge = partial(_judge_by, measured, classes, (roofs, best), exposure)
    order = choose_labels(rows, wanted)
    label, judged = _first_judged(judge, order)
    # a benchmark's sizes say nothing about the largest message of the job
    told_by = [f.profiles or shares for f in known]
    largest = judged if classes else ()
    kernels = [judge_kernels(told, largest, roofs) for told in told_by or [shares]]
    uplifts = (
        uplift_of(judged, f, rows if len(told) == 1 else ())
        for f, told, rows in zip(known, told_by, kernels, strict=False)
    )
    ran = (
        *traced_gpus(connection, run),
        *(m.device for m in measured if m.device and m.label == label and not m.on_host),
    )
    return Efficiency(
        label=_label(rows, order, label),
        roof=None if roofs is None else roofs.name,
        classes=tuple(sorted(judged, key=_first_to_look_at)),
        whole_s=sum(j.device_s or 0.0 for j in judged),
        kernels=tuple(row for rows_of_job in kernels for row in rows_of_job),
        # the profiles of several jobs are no collective time of the run's calls
        breakdown=break_down(judged, shares if len(known) == 1 else ()),
        fractions=known,
        uplifts=tuple(uplift for uplift in uplifts if uplift is not None),
        metrics=application_metrics(connection, run, measured, classes, known),
        curves=curves_of((m for m in measured if wanted in (None, m.label)), roofs),
        reached=() if classes else reached_of(judged),
        outliers=tuple(outliers_of(measured, label)),
        left_out=left_out,
        other_gpus=None if roofs is None else roofs.other_gpus(ran),
    )


def _first_to_look_at(j: Judged) -> tuple[float, float, int]:
    """The most to win first, then the most time."""
    return -(j.recoverable_s or 0.0), -(j.device_s or 0.0), j.row.class_id


def _counted_once(
    connection: sqlite3.Connection, run: str, shares: Sequence[Share]
) -> tuple[Sequence[Share], tuple[str, ...]]:
    """The profiles to add up, and those that are left out.

    A profile without times of its kernels beside traces of the job holds what they hold.
    """
    query = "SELECT path FROM sources WHERE run = ? AND kind = 'trace'"
    traces = {path for (path,) in connection.execute(query, (run,))}
    traced = [share for share in shares if share.source in traces]
    left = tuple(share.source for share in shares if share.source not in traces)
    return (traced, left) if traced and left else (shares, ())


def _judge_by(
    measured: Sequence[Measurement],
    classes: Sequence[ClassRow],
    ceilings: tuple[AnyRoofs | None, FitRoofs | None],
    exposure: float,
    label: str | None,
) -> tuple[Judged, ...]:
    """The run's classes by the measurements of one label; these alone in a run without calls."""
    chosen = [m for m in measured if m.label == label]
    matcher = Matcher(chosen, own=not classes)
    return judge_classes(classes or as_classes(chosen), matcher, *ceilings, exposure)


def _first_judged(
    judge: Callable[[str | None], tuple[Judged, ...]], labels: Sequence[str | None]
) -> tuple[str | None, tuple[Judged, ...]]:
    """The first label with a measurement to hold against a roof, else the first."""
    first = None
    for label in labels:
        judged = judge(label)
        first = first or (label, judged)
        if any(j.match is not None and j.match.measured and not j.no_roof for j in judged):
            return label, judged
    assert first is not None
    return first


def _label(
    rows: Sequence[StoredMeasurement], order: Sequence[str | None], chosen: str | None
) -> JudgedLabel:
    mine = [row.measurement for row in rows if row.label == chosen]
    return JudgedLabel(
        name=chosen,
        labels=labels_of(rows),
        asked=len(order) < 2,
        first=chosen == order[0],
        one_of_a_file=chosen is not None and share_source(rows, chosen),
        rows=len(mine),
        wrong=sum(m.wrong for m in mine),
        failed=sum(m.failed and not m.wrong for m in mine),
    )
