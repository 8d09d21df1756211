"""The efficiency of a run in words: from the records of its answer to those of the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collscope.model.note import Note
from collscope.reports.efficiency import judgement as told
from collscope.reports.efficiency.answer import Efficiency, JudgedLabel
from collscope.reports.efficiency.application_metrics import ApplicationMetric
from collscope.reports.efficiency.judged_classes import Judged
from collscope.reports.efficiency.serving import marks_of
from collscope.reports.efficiency.time_breakdown import Fraction, Uplift
from collscope.reports.rendering.mark_words import mark_words
from collscope.reports.rendering.share_words import denominator
from collscope.units import are, count, count_of, format_size

_LITTLE = 0.0005  # of the kernel time, less than the printed digits show
_NAMED = 3  # profiles that a sentence names


def judgement_of(found: Efficiency) -> told.Judgement:
    """The report's record of an efficiency, with every class."""
    return told.Judgement(
        label=found.label.name,
        labels=found.label.labels,
        roof=found.roof,
        classes=tuple(_class(j, found.whole_s) for j in found.classes),
        classes_total=len(found.classes),
        kernels=found.kernels,
        breakdown=found.breakdown,
        uplifts=tuple(map(_uplift, found.uplifts)),
        metrics=found.metrics,
        curves=found.curves,
        reached=found.reached,
        outliers=found.outliers,
        other_gpus=found.other_gpus,
        notes=(*_label_notes(found.label), *_notes(found), *_left_out(found.left_out)),
    )


def _class(j: Judged, whole_s: float) -> told.JudgedClass:
    roof = j.roof
    return told.JudgedClass(
        class_id=j.row.class_id,
        op=j.row.op,
        datatype=j.row.datatype,
        redop=j.row.redop,
        size_bytes=j.row.size_bytes,
        in_place=j.row.in_place,
        nranks=j.row.nranks,
        calls=j.row.calls,
        measured_us=j.measured_us,
        samples=j.samples,
        busbw_gbps=j.busbw_gbps,
        marks=tuple(_marks(j)),
        transfer_us=j.transfer_us,
        wait_us=j.wait_us,
        kernel_us=j.kernel_us,
        contention=j.transfer_us / j.alone_us if j.transfer_us and j.alone_us else None,
        roof=None if roof is None else roof.name,
        roof_us=None if roof is None else roof.time_us,
        roof_low_us=None if roof is None else roof.time_low_us,
        roof_high_us=None if roof is None else roof.time_high_us,
        roof_gbps=None if roof is None else roof.busbw_gbps,
        limit_gbps=None if roof is None else roof.limit_gbps,
        roof_assumed=None if roof is None else roof.assumed,
        by_rings_us=None if roof is None else roof.by_rings_us,
        roof_assumptions=() if roof is None else roof.assumptions,
        efficiency=j.efficiency,
        why=j.why or j.no_roof,
        regime=j.regime,
        time_share=j.device_s / whole_s if j.device_s is not None and whole_s else None,
        recoverable_s=j.recoverable_s,
        choice=j.choice,
    )


def _marks(j: Judged) -> Iterable[Note]:
    if j.match is not None:
        for mark in marks_of(j.match, j.row):
            values = {"values": mark.values, "status": mark.status or None}
            yield Note(mark.of.value, values, mark_words(mark))
    if j.time_in_job:
        yield Note(told.IN_JOB, {}, "time in the job")


def _uplift(found: Uplift) -> told.Uplift:
    return told.Uplift(
        profiles=tuple(share.source for share in found.fraction.profiles),
        fraction=found.fraction.value,
        denominator=fraction_of(found.fraction),
        judged=found.judged,
        saved=found.saved,
        gain=found.gain,
        low=found.low,
        median=found.median,
        high=found.high,
        gain_if_alike=found.gain_if_alike,
        gain_skewed_low=found.gain_skewed_low,
        gain_skewed_high=found.gain_skewed_high,
        ceiling=found.ceiling,
        waits_known=found.in_job,
        assumptions=tuple(_assumptions(found)),
    )


def fraction_of(fraction: Fraction) -> str:
    """What the ratio is of."""
    if fraction.ranks is not None:
        warm_up = ", warm-up left out" * fraction.warm_up
        return f"wall time of {count(fraction.ranks, 'traced rank')}{warm_up}"
    if len(fraction.profiles) > 1:
        return f"all kernels and copies of {len(fraction.profiles)} profiles together"
    return denominator(fraction.profiles[0])


def _assumptions(found: Uplift) -> Iterable[Note]:
    known = found.fraction
    if known.exposure is None:
        yield Note(
            "all_exposed",
            {},
            "all collective time is exposed (overlap with compute is not known): an upper bound",
        )
    else:
        yield Note(
            "exposed",
            {"share": known.exposure},
            f"{100 * known.exposure:.1f} % of every class is exposed, as of all collectives",
        )
    if known.hidden:
        yield Note(
            "not_listed",
            {"share": known.hidden},
            f"the {100 * known.hidden:.2f} % of the time that the profile does not list has no"
            " collectives; if it has, more can be gained",
        )
    yield from _waiting_assumptions(found)
    if found.judged < 0.9995:
        yield Note(
            "not_measured",
            {"share": 1 - found.judged},
            "no gain is counted for classes without a measurement",
        )
    if found.few_samples:
        yield Note("few_samples", {}, "some classes have fewer than 10 samples: the range is rough")
    if found.best_measured:
        yield Note(
            "range_with_best",
            {},
            "the range is over the samples, the ceiling's own range and the best measured",
        )
    elif found.ceiling_range:
        yield Note(
            "range_with_ceiling", {}, "the range is over the samples and the ceiling's own range"
        )


def _waiting_assumptions(found: Uplift) -> Iterable[Note]:
    """What stands for waiting and transfer where they are not measured."""
    if not found.in_job:
        yield Note(
            "waits_unknown",
            {},
            "waiting and contention are not known, so all collective time counts as transfer",
        )
        by = "calls x measured time (roof time where nothing was measured)"
        if found.seen:
            by = "the kernels that were seen in the job"
        yield Note("shared_by", {"seen": found.seen}, f"classes share the collective time by {by}")
    elif found.unmeasured:
        yield Note(
            "judged_in_job",
            {"classes": found.unmeasured, "of": found.counted},
            "judged by the transfers in the job, without a replay: "
            f"{count_of(found.unmeasured, found.counted, 'class', 'classes')}; the lower"
            " end of a range counts no gain for them",
        )
    if found.in_job and found.unsplit >= _LITTLE:
        yield Note(
            "unsplit",
            {"share": found.unsplit},
            f"{100 * found.unsplit:.1f} % of the kernel time may be waiting or transfer: where "
            "transfers take no time, all of it counts as transfer",
        )


def speed_up_of(metric: ApplicationMetric) -> str | None:
    """Which collectives the speed-up beside a figure is of."""
    of = metric.speed_up_of
    if of is None:
        return None
    if isinstance(of, int):
        return f"the run's calls, {count(of, 'class', 'classes')}"
    size, ranks = format_size(of.size_bytes or 0), count(of.nranks, "rank")
    return f"{of.op.value} of {size} on {ranks}, the largest measured"


def _label_notes(label: JudgedLabel) -> Iterable[Note]:
    """Which of several labels is judged, and how many of its measurements have no time."""
    if label.name is not None and not label.asked:
        which = "the most recent"
        if label.one_of_a_file:
            which = "the first with the most classes in the most recent file"
        if not label.first:
            which += " of those that can be judged"
        yield Note(
            "label_chosen",
            {"label": label.name, "labels": label.labels},
            f"Measured labels: {', '.join(label.labels)}; {which}, {label.name}, is judged "
            "(--label names another).",
        )
    kinds = (
        count(label.wrong, "wrong result") if label.wrong else "",
        f"{label.failed} failed" if label.failed else "",
    )
    if any(kinds):
        yield Note(
            "without_time",
            {"label": label.name, "wrong": label.wrong, "failed": label.failed},
            f"Of {count(label.rows, 'measurement')} with label {label.name}:"
            f" {' and '.join(filter(None, kinds))}. They have no time.",
        )


def _notes(found: Efficiency) -> Iterable[Note]:
    judged, chosen = found.classes, found.label.name
    measured = sum(j.match is not None and j.match.time_us is not None for j in judged)
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
                "No measurement fits a class of this run: operation, type, reduction, size, ranks"
                " and place must be equal.",
            )
    if any(j.foreign for j in judged):
        yield Note(
            "measured_on_host",
            {},
            "Measurements in host memory (a replay without GPUs) say nothing about the links"
            " between GPUs: they have no efficiency and nothing to win.",
        )
    if judged and not any(j.row.calls for j in judged):
        yield Note(
            "no_calls",
            {},
            "The run has no calls, so the measured classes are judged by themselves.",
        )
    elif not found.fractions:
        yield Note(
            "gain_unknown",
            {},
            "There is no profile and no trace, so the gain of the whole job is not known"
            " (collscope ingest profile PATH).",
        )
    if len(found.fractions) > 1:
        yield Note(
            "several_jobs",
            {"jobs": len(found.fractions)},
            "The profiles may be of several jobs: each has its own answer, and a figure is"
            " predicted from the profile that is named after its job.",
        )
    for why in sorted({j.no_roof for j in judged if j.no_roof})[:3]:
        yield Note("no_ceiling", {"why": why}, f"Without a roof: {why}")


def _left_out(profiles: Sequence[str]) -> Iterable[Note]:
    if profiles:
        named = ", ".join(profiles[:_NAMED]) + ", …" * (len(profiles) > _NAMED)
        yield Note(
            "profiles_left_out",
            {"profiles": profiles},
            "Not added to the traces, whose kernels they may hold again: "
            f"{named}. Give the profiles of another job a run of their own.",
        )
