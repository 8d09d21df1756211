"""How good the collectives of a run are: each class against its roof, and what better ones give.

Ratios lie in 0..1. None means "not known". Formulas: docs/report.md.

`efficiency_of` reads the measurements and the application's figures; then everything is pure.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from collscope.model import Measurement
from collscope.model.note import Note
from collscope.reports.calls.answer import ClassRow
from collscope.reports.coverage.answer import traced_gpus
from collscope.reports.efficiency.application_metrics import (
    ApplicationMetric,
    application_metrics,
    job_names,
)
from collscope.reports.efficiency.curves import Curve, curves_of
from collscope.reports.efficiency.gain import Uplift, uplift_of
from collscope.reports.efficiency.judged_classes import (
    Judged,
    JudgedClass,
    Reached,
    Traced,
    judge_classes,
    reached_of,
)
from collscope.reports.efficiency.notes import class_notes, label_notes, left_out_notes
from collscope.reports.efficiency.outliers import Outlier, outliers_of
from collscope.reports.efficiency.profile_kernels import ProfileKernel, judge_kernels
from collscope.reports.efficiency.serving import (
    Matcher,
    as_classes,
    choose_labels,
    labels_of,
)
from collscope.reports.efficiency.time_breakdown import (
    Breakdown,
    Fraction,
    break_down,
    fractions_of,
)
from collscope.reports.fabric.answer import switches_may_reduce
from collscope.reports.share.answer import Share
from collscope.roofline.catalogue import catalogue_rows
from collscope.roofline.chosen import AnyRoofs, FitRoofs, empirical, make_roofs
from collscope.roofline.gpu_models import OtherGpus
from collscope.store.measurements import read_measurements
from collscope.store.step_stretches import STRETCHES

_STEPS = "SELECT COUNT(*), AVG(duration_ns) FROM steps WHERE run = ?"

_STEP_KERNELS = f"""
WITH {STRETCHES},
traced AS MATERIALIZED (
    SELECT t.source_id, t.device, s.begin_ns, s.end_ns
    FROM stretches s JOIN traces t ON t.run = :run AND t.rank = s.rank AND t.used)
SELECT c.class_id, COUNT(*) FROM traced t
JOIN kernels k ON k.run = :run AND k.source_id = t.source_id AND k.device IS t.device
    AND k.start_ns >= t.begin_ns AND k.start_ns < t.end_ns
JOIN call_times c ON c.run = :run AND c.call_id = k.call_id
WHERE NOT c.warm_up GROUP BY c.class_id
"""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """How good the collectives of a run are, and what better ones would give."""

    label: str | None  # of the measurements; None: the run has none
    labels: tuple[str, ...]  # that the run has
    roof: str | None  # which ceiling the efficiencies are of
    named: bool  # the user named it; else it is that of the traced GPUs
    classes: tuple[JudgedClass, ...]  # those to look at first, first
    classes_total: int  # before the cut to the first ones
    kernels: tuple[ProfileKernel, ...]
    breakdown: Breakdown | None
    uplifts: tuple[Uplift, ...]  # one for each job that the profiles are of
    metrics: tuple[ApplicationMetric, ...]
    curves: tuple[Curve, ...]
    reached: tuple[Reached, ...]  # by operation and ranks; empty where the run has calls
    outliers: tuple[Outlier, ...]  # of the label, the slowest first
    other_gpus: OtherGpus | None  # that ran, where the system's are of another model
    notes: tuple[Note, ...]  # what was assumed, left out or is not known


def efficiency_of(
    connection: sqlite3.Connection,
    run: str,
    classes: Sequence[ClassRow],
    shares: Sequence[Share],
    system_and_label: tuple[str | None, str | None],
    *,
    named: bool,
) -> Judgement:
    """How good the collectives of a run are.

    classes, shares   of the run, all of them
    system_and_label  system (a name, a file, `fit`) and label of the measurements; None: no roof,
                      the first of `choose_labels` that fits the classes
    named             the user named the system
    raises            InputError for an unknown system or label, NoVerdictError when `fit` has
                      nothing to fit
    """
    system, wanted = system_and_label
    rows = read_measurements(connection, run=run)
    measured = [row.measurement for row in rows]
    shares, left_out = _counted_once(connection, run, shares)
    roofs = make_roofs(system, measured, multicast=switches_may_reduce(connection, run))
    best = None if system is None else empirical(measured)
    known = fractions_of(connection, run, shares, job_names(connection, run))
    traced = _traced(connection, run, classes, known)
    judge = partial(_judge_by, measured, classes, (roofs, best), traced)
    order = choose_labels(rows, wanted)
    label, judged = _first_judged(judge, order)
    # a benchmark's sizes say nothing about the largest message of the job
    shares_of = [[s for s in shares if s.source in f.profiles] or shares for f in known]
    largest = judged if classes else ()
    kernels = [judge_kernels(covered, largest, roofs) for covered in shares_of or [shares]]
    uplifts = (
        uplift_of(judged, f, rows if len(covered) == 1 else ())
        for f, covered, rows in zip(known, shares_of, kernels, strict=False)
    )
    ran = (
        *traced_gpus(connection, run),
        *(m.device for m in measured if m.device and m.label == label and not m.on_host),
    )
    total_ns = sum(j.device_ns or 0.0 for j in judged)
    return Judgement(
        label=label,
        labels=labels_of(rows),
        roof=None if roofs is None else roofs.name,
        named=named,
        classes=tuple(j.record(total_ns) for j in sorted(judged, key=_first_to_look_at)),
        classes_total=len(judged),
        kernels=tuple(row for rows_of_job in kernels for row in rows_of_job),
        # the profiles of several jobs are no collective time of the run's calls
        breakdown=break_down(judged, shares if len(known) == 1 else (), traced=traced.gives_time),
        uplifts=tuple(uplift for uplift in uplifts if uplift is not None),
        metrics=application_metrics(connection, run, measured, classes, known),
        curves=curves_of((m for m in measured if wanted in (None, m.label)), roofs),
        reached=() if classes else reached_of(judged),
        outliers=tuple(outliers_of(measured, label)),
        other_gpus=None if roofs is None else roofs.other_gpus(ran),
        notes=(
            *label_notes(rows, order, label),
            *class_notes(judged, label, known),
            *left_out_notes(left_out),
        ),
    )


def traced_system(connection: sqlite3.Connection, run: str) -> str | None:
    """The system of the traced GPUs, on one host; None where it is not known."""
    gpus = traced_gpus(connection, run)
    names = {name.lower().replace("nvidia ", "").replace("amd instinct ", "") for name in gpus}
    if len(names) != 1:
        return None
    return next((row.name for row in catalogue_rows() if row.name in names), None)


def links_of(system: str | None) -> tuple[bool, bool]:
    """Whether GPUs of a known system have links of their own, as NVLink; whether these reduce."""
    row = next((row for row in catalogue_rows() if row.name == system), None)
    own = row is not None and row.wiring in ("mesh", "switch", "matrix")
    return own, own and row is not None and row.in_network == "NVLS"


def _first_to_look_at(j: Judged) -> tuple[float, float, int]:
    """The largest saving first, then the most time."""
    return -(j.recoverable_ns or 0.0), -(j.device_ns or 0.0), j.row.class_id


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
    traced: Traced,
    label: str | None,
) -> tuple[Judged, ...]:
    """The run's classes by the measurements of one label; these alone in a run without calls."""
    chosen = [m for m in measured if m.label == label]
    matcher = Matcher(chosen, own=not classes)
    return judge_classes(classes or as_classes(chosen), matcher, *ceilings, traced)


def _traced(
    connection: sqlite3.Connection,
    run: str,
    classes: Sequence[ClassRow],
    known: Sequence[Fraction],
) -> Traced:
    """What the traces show of the classes."""
    exposure = next((f.exposure for f in known if f.exposure is not None), 1.0)
    # Kernels that were joined with no logged call have no size.
    gives_time = any(f.ranks for f in known) and any(r.kernel_ns and r.size_bytes for r in classes)
    steps, step_ns = connection.execute(_STEPS, (run,)).fetchone()
    if not step_ns:
        return Traced(exposure, gives_time)
    kernels = connection.execute(_STEP_KERNELS, {"run": run})
    return Traced(exposure, gives_time, step_ns, {key: number / steps for key, number in kernels})


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
