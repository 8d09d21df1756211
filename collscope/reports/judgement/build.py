"""The judgement of a run: reads the measurements and figures, then everything is pure."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from collscope.reports.judgement.accounts import decompose, fraction_of, uplift_of
from collscope.reports.judgement.curves import curves_of
from collscope.reports.judgement.figures import metric_rows
from collscope.reports.judgement.judged import Judged, judge_classes, records
from collscope.reports.judgement.kernels import judge_kernels
from collscope.reports.judgement.measured import (
    Matcher,
    choose_label,
    as_classes,
    labels_of,
    read_measurements,
)
from collscope.reports.judgement.records import Judgement
from collscope.reports.judgement.roofs import empirical, make_roofs
from collscope.reports.model import ClassRow, Share


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
                     the most recent label
    raises           InputError for an unknown system or label, NoVerdictError when `fit` has
                     nothing to fit
    """
    system, wanted = asked
    rows = read_measurements(connection, run)
    labels = labels_of(rows)
    label = choose_label(labels, wanted)
    roofs, best = make_roofs(system, rows), None if system is None else empirical(rows)
    known = fraction_of(connection, run, shares)
    exposure = 1.0 if known is None or known.exposure is None else known.exposure
    chosen = [r for r in rows if r.label == label]
    judged = judge_classes(classes or as_classes(chosen), Matcher(chosen), roofs, best, exposure)
    # a benchmark's sizes say nothing about the largest message of the job
    kernels = judge_kernels(shares, judged if classes else (), roofs)
    whole = sum(j.device_s or 0.0 for j in judged)
    return Judgement(
        label=label,
        labels=labels,
        roof=None if roofs is None else roofs.name,
        classes=records(judged, whole),
        kernels=kernels,
        decomposition=decompose(judged, shares),
        uplift=uplift_of(judged, known, kernels if len(shares) == 1 else ()),
        metrics=metric_rows(
            connection, run, rows, classes, None if known is None else known.value * exposure
        ),
        curves=curves_of(rows, roofs),
        notes=tuple(_notes(judged, (label, labels), known is not None, wanted)),
    )


def _notes(
    judged: Sequence[Judged],
    label: tuple[str | None, tuple[str, ...]],
    known: bool,
    wanted: str | None,
) -> list[str]:
    chosen, labels = label
    notes = []
    if len(labels) > 1 and wanted is None:
        notes.append(
            f"Measured labels: {', '.join(labels)}; the most recent, {chosen}, is judged "
            "(--label names another)."
        )
    measured = sum(j.alone_us is not None for j in judged)
    if chosen is not None and judged:
        notes.append(f"{measured} of {len(judged)} classes are measured with label {chosen}.")
    if judged and not any(j.row.calls for j in judged):
        notes.append("The run has no calls: the measured classes are judged by themselves.")
    elif not known:
        notes.append(
            "No profile and no trace, hence no gain of the whole job (collscope ingest profile "
            "PATH)."
        )
    roofless = sorted({j.no_roof for j in judged if j.no_roof})
    notes += [f"Without a roof: {why}" for why in roofless[:3]]
    return notes
