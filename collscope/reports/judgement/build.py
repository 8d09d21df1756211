"""The judgement of a run: reads the measurements and figures, then everything is pure."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from collscope.analysis.classes import ClassRow
from collscope.analysis.share import Share
from collscope.model import Measurement
from collscope.reports.judgement.accounts import Fraction, decompose, fractions_of, uplift_of
from collscope.reports.judgement.curves import curves_of
from collscope.reports.judgement.figures import job_names, metric_rows
from collscope.reports.judgement.judged import Judged, judge_classes, reached_of, records
from collscope.reports.judgement.kernels import judge_kernels
from collscope.reports.judgement.measured import (
    Matcher,
    as_classes,
    choose_labels,
    labels_of,
    share_source,
)
from collscope.reports.judgement.records import Judgement
from collscope.roofline.chosen import AnyRoofs, FitRoofs, empirical, make_roofs
from collscope.store.measurements import StoredMeasurement, read_measurements
from collscope.units import are, count, count_of

_FAILED = ("failed", "timeout")  # statuses of measurements that were not carried out
_NAMED = 3  # profiles that a sentence names


def build_judgement(
    connection: sqlite3.Connection,
    run: str,
    classes: Sequence[ClassRow],
    shares: Sequence[Share],
    asked: tuple[str | None, str | None],
) -> Judgement:
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
    labels = labels_of(rows)
    shares, beside = _counted_once(connection, run, shares)
    roofs, best = make_roofs(system, measured), None if system is None else empirical(measured)
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
    whole = sum(j.device_s or 0.0 for j in judged)
    notes = (
        *_label_notes(rows, order, label),
        *_unusable(rows, label),
        *_notes(judged, label, known),
    )
    return Judgement(
        label=label,
        labels=labels,
        roof=None if roofs is None else roofs.name,
        classes=records(judged, whole),
        classes_total=len(judged),
        kernels=tuple(row for rows_of_job in kernels for row in rows_of_job),
        # the profiles of several jobs are no collective time of the run's calls
        decomposition=decompose(judged, shares if len(known) == 1 else ()),
        uplifts=tuple(uplift for uplift in uplifts if uplift is not None),
        metrics=metric_rows(connection, run, measured, classes, known),
        curves=curves_of((m for m in measured if wanted in (None, m.label)), roofs),
        reached=() if classes else reached_of(judged),
        notes=(*notes, *beside),
    )


def _counted_once(
    connection: sqlite3.Connection, run: str, shares: Sequence[Share]
) -> tuple[Sequence[Share], tuple[str, ...]]:
    """The profiles to add up, and a sentence on those that are left out.

    A profile without times of its kernels beside traces of the job holds what they hold.
    """
    query = "SELECT path FROM sources WHERE run = ? AND kind = 'trace'"
    traces = {path for (path,) in connection.execute(query, (run,))}
    traced = [share for share in shares if share.source in traces]
    left = [share.source for share in shares if share.source not in traces]
    if not traced or not left:
        return shares, ()
    told = ", ".join(left[:_NAMED]) + ", …" * (len(left) > _NAMED)
    return traced, (
        f"Not added to the traces, whose kernels they may hold again: {told}. Give the profiles of "
        "another job a run of their own.",
    )


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


def _label_notes(
    rows: Sequence[StoredMeasurement], order: Sequence[str | None], chosen: str | None
) -> Iterable[str]:
    """Which of several labels is judged, where none was asked for."""
    if chosen is None or len(order) < 2:
        return
    which = "the most recent"
    if share_source(rows, chosen):
        which = "the first with the most classes in the most recent file"
    if chosen != order[0]:
        which += " of those that can be judged"
    yield (
        f"Measured labels: {', '.join(labels_of(rows))}; {which}, {chosen}, is judged (--label "
        "names another)."
    )


def _unusable(rows: Sequence[StoredMeasurement], label: str | None) -> Iterable[str]:
    """How many measurements of the judged label have no number, and why."""
    mine = [row.measurement for row in rows if row.label == label]
    wrong = sum(row.wrong for row in mine)
    failed = sum(row.status in _FAILED and not row.wrong for row in mine)
    kinds = (count(wrong, "wrong result") if wrong else "", f"{failed} failed" if failed else "")
    if wrong or failed:
        yield (
            f"Of {count(len(mine), 'measurement')} with label {label}:"
            f" {' and '.join(filter(None, kinds))}. They have no times here."
        )


def _notes(judged: Sequence[Judged], chosen: str | None, known: Sequence[Fraction]) -> list[str]:
    notes = []
    measured = sum(j.match is not None and j.match.time_us is not None for j in judged)
    if chosen is not None and judged:
        some = count_of(measured, len(judged), "class", "classes")
        notes.append(f"{some} {are(measured)} measured with label {chosen}.")
        if not any(j.match for j in judged):
            notes.append(
                "No measurement is of a class of this run: operation, type, reduction, size, ranks "
                "and place must be equal."
            )
    if any(j.foreign for j in judged):
        notes.append(
            "Measurements in host memory (a replay without GPUs) say nothing about the links "
            "between GPUs: they have no efficiency against a system, and nothing to win."
        )
    if judged and not any(j.row.calls for j in judged):
        notes.append("The run has no calls: the measured classes are judged by themselves.")
    elif not known:
        notes.append(
            "No profile and no trace, hence no gain of the whole job (collscope ingest profile "
            "PATH)."
        )
    if len(known) > 1:
        notes.append(
            "The profiles are not known to be of one job: each has an answer of its own, and a "
            "figure is predicted from the profile that is named after its job."
        )
    roofless = sorted({j.no_roof for j in judged if j.no_roof})
    notes += [f"Without a roof: {why}" for why in roofless[:3]]
    return notes
