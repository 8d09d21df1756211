"""Remarks on the efficiency of a run: what was chosen, left out or is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collscope.model.note import Note
from collscope.reports.efficiency.judged_classes import Judged
from collscope.reports.efficiency.serving import labels_of, share_source
from collscope.reports.efficiency.time_breakdown import Fraction
from collscope.store.measurements import StoredMeasurement
from collscope.units import are, count, count_of

_NAMED = 3  # profiles that a sentence names


def label_notes(
    rows: Sequence[StoredMeasurement], order: Sequence[str | None], chosen: str | None
) -> Iterable[Note]:
    """Which of several labels is judged, and how many of its measurements have no time.

    rows   measurements of the run
    order  labels as they were tried; a single one was named, or there is no other
    """
    if chosen is not None and len(order) > 1:
        labels = labels_of(rows)
        which = "the most recent"
        if share_source(rows, chosen):
            which = "the first with the most classes in the most recent file"
        if chosen != order[0]:
            which += " of those that can be judged"
        yield Note(
            "label_chosen",
            {"label": chosen, "labels": labels},
            f"Measured labels: {', '.join(labels)}; {which}, {chosen}, is judged (--label "
            "selects another).",
        )
    measured = [row.measurement for row in rows if row.label == chosen]
    wrong = sum(m.wrong for m in measured)
    failed = sum(m.failed and not m.wrong for m in measured)
    kinds = (
        count(wrong, "wrong result") if wrong else "",
        f"{failed} failed" if failed else "",
    )
    if any(kinds):
        yield Note(
            "without_time",
            {"label": chosen, "wrong": wrong, "failed": failed},
            f"Of {count(len(measured), 'measurement')} with label {chosen}: "
            f"{' and '.join(filter(None, kinds))}. They have no time.",
        )


def class_notes(
    judged: Sequence[Judged], chosen: str | None, fractions: Sequence[Fraction]
) -> Iterable[Note]:
    """What is known of the classes and of the job, and what is not; `chosen` is the label."""
    measured = sum(j.match is not None and j.match.time_ns is not None for j in judged)
    if chosen is not None and judged:
        some = count_of(measured, len(judged), "class", "classes")
        yield Note(
            "measured",
            {"label": chosen, "classes": measured, "of": len(judged)},
            f"{some} {are(measured)} measured with label {chosen}.",
        )
        if not any(j.match for j in judged):
            yield Note(
                "no_measurement_fits",
                {"label": chosen},
                "No measurement fits a class of this run: operation, type, reduction, size, "
                "ranks and place must match.",
            )
    if any(j.foreign for j in judged):
        yield Note(
            "measured_on_host",
            {},
            "Measurements in host memory (a replay without GPUs) do not show the speed of "
            "links between GPUs: they have no efficiency and no possible saving.",
        )
    if judged and not any(j.row.calls for j in judged):
        yield Note(
            "no_calls",
            {},
            "The run has no calls, so the measured classes are judged without weights.",
        )
    elif not fractions:
        yield Note(
            "gain_unknown",
            {},
            "The run has no profile and no trace, so the gain of the whole job is not known "
            "(collscope ingest profile PATH).",
        )
    if len(fractions) > 1:
        yield Note(
            "several_jobs",
            {"jobs": len(fractions)},
            "The profiles may come from several jobs, so each has its own answer. A figure "
            "is predicted from the profile named after its job.",
        )
    for why in sorted({j.no_roof for j in judged if j.no_roof})[:3]:
        yield Note("no_ceiling", {"why": why}, f"No reachable speed: {why.rstrip('.')}.")


def left_out_notes(profiles: Sequence[str]) -> Iterable[Note]:
    """Profiles that are not added to the traces."""
    if profiles:
        named = ", ".join(profiles[:_NAMED]) + ", …" * (len(profiles) > _NAMED)
        yield Note(
            "profiles_left_out",
            {"profiles": profiles},
            f"Not added to the traces, which may already hold their kernels: {named}. Put "
            "profiles of another job into their own run.",
        )
