"""Rules about time: waiting instead of transfer, roofs that do not apply, nothing to save."""

from __future__ import annotations

from collections.abc import Iterable

from collscope.reports.calls.answer import compact_ranges
from collscope.reports.efficiency.judged_classes import JudgedClass
from collscope.reports.efficiency.profile_kernels import ProfileKernel
from collscope.reports.efficiency.text import largest_message, shorter_words
from collscope.reports.rendering.class_words import class_words, other_gpus_words
from collscope.reports.rendering.share_words import fraction_words, waiting_words
from collscope.reports.report.answer import Finding, Report
from collscope.reports.tolerances import (
    MIN_JOB_TO_ALONE,
    MIN_JUDGED_SHARE,
    PAYS,
    SKEW_FACTOR,
    WORTH,
)
from collscope.units import are, count, count_of, figure, format_size, format_time

_MOST = 5
_BALANCE = (
    "Look for ranks that arrive late (uneven work, input pipeline, host jitter) and for "
    "compute kernels that run during the collective."
)
_VERDICT_FIRST = "Do first what the verdict advises."


def slow_collectives(report: Report) -> Iterable[Finding]:
    """Classes far below their ceiling, which cost the job more than its late ranks do."""
    uplift = max(report.judgement.uplifts, key=lambda found: found.saved, default=None)
    rows = [row for row in report.judgement.classes if row.efficiency and row.recoverable_ns]
    if uplift is None or not rows or uplift.judged < MIN_JUDGED_SHARE or uplift.saved < PAYS:
        return
    to_win = sum(row.recoverable_ns or 0.0 for row in rows)
    if to_win <= sum(rank.caused_wait_ns for rank in report.timeline.ranks):
        return
    shorter, between = shorter_words(uplift)
    worst = sorted(rows, key=lambda row: -(row.recoverable_ns or 0.0))[:_MOST]
    per_step = any(row.step_saving_ns is not None for row in worst)
    listed = "; ".join(
        f"class {row.class_id} ({row.op} of {format_size(row.size_bytes)}): "
        f"{100 * (row.efficiency or 0):.1f} %, saves {_saving(row, per_step=per_step)}"
        for row in worst
    )
    yield Finding(
        severity="warning",
        code="slow_collectives",
        title=f"collectives run below their reachable speed '{report.judgement.roof}': at that "
        f"speed {'a recorded step' if uplift.fraction.of_steps else 'the job'} would be "
        f"{shorter} shorter{between}",
        detail=f"Share of the reachable speed: {listed}."
        + " Savings are seconds, summed over all calls and GPUs." * (not per_step),
        advice="Check the library's settings first: channels (NCCL_MAX_CTAS, NCCL_MAX_NCHANNELS), "
        "NCCL_PROTO, NCCL_ALGO. collscope tune tries settings on this machine. collscope "
        "replay shows whether these classes are as slow alone.",
    )


def _saving(row: JudgedClass, *, per_step: bool) -> str:
    if per_step:
        return f"{figure((row.step_saving_ns or 0.0) / 1e6)} ms a step"
    return f"{(row.recoverable_ns or 0.0) / 1e9:.3g} s"


def system_of_other_gpus(report: Report) -> Iterable[Finding]:
    """The system that the classes are judged by has other GPUs than those that ran."""
    others = report.judgement.other_gpus
    if others is None:
        return
    yield Finding(
        severity="warning",
        code="system_of_other_gpus",
        title=other_gpus_words(others),
        detail="Every reachable speed, efficiency and gain in this report assumes the links of "
        f"'{others.system}'.",
        advice="Name the system of these GPUs (collscope roofline --list), unless you mean the "
        "other one.",
    )


def waiting_dominates(report: Report) -> Iterable[Finding]:
    """Kernels spend more time waiting for a late rank than transferring."""
    timed = [row for row in report.classes if row.split_ns and row.wait_ns is not None]
    every = sum(row.split_ns or 0 for row in timed)
    waited = sum((row.wait_ns or 0) * (row.kernel_observations or 0) for row in timed)
    if 2 * waited <= every:
        return
    worst = max(timed, key=lambda row: (row.wait_ns or 0) * (row.kernel_observations or 0))
    largest = (worst.wait_ns or 0) * (worst.kernel_observations or 0)
    ranks = report.timeline.ranks or report.timeline.logged
    unknown = sum(rank.unknown_ns for rank in ranks)
    kernels_ns = every + unknown
    left = f"; {format_time(unknown)} may be waiting or transfer" if unknown else ""
    yield Finding(
        severity="warning",
        code="waiting_dominates",
        title=f"waiting takes {waiting_words(waited, unknown, kernels_ns)} of the time in "
        "collective kernels",
        detail=f"Of {format_time(kernels_ns)} over all ranks, {format_time(waited)} is waiting "
        f"for the last rank, the largest part ({format_time(largest)}) in "
        f"{class_words(worst)}{left}.",
        advice=f"Faster collectives do not shorten waiting: {_late(report)}.",
    )


def _late(report: Report) -> str:
    late = [str(rank) for rank in _late_ranks(report)]
    if not late:
        return "look for ranks that arrive late (uneven work, input pipeline, host jitter)"
    if _late_by_verdict(report):
        return "do first what the verdict advises"
    return f"find out why rank{'s' * (len(late) > 1)} {', '.join(late)} {are(len(late))} late"


def _late_ranks(report: Report) -> list[int]:
    timeline = report.timeline
    return [rank.rank for rank in timeline.ranks or timeline.logged if rank.straggler]


def _late_by_verdict(report: Report) -> bool:
    """Whether the verdict has a cause of a late rank."""
    late = _late_ranks(report)
    return any(rank in late for entry in report.verdict for rank in entry.ranks)


def skew_dominated(report: Report) -> Iterable[Finding]:
    """Kernels of a profile that last over three times what their largest message needs."""
    kernels = [kernel for kernel in report.judgement.kernels if kernel.skewed]
    if not kernels:
        return
    share = sum(kernel.share for kernel in kernels)
    one = len(kernels) == 1
    # what is left when transfers run at the roof, and when they are three times slower
    most, least = (
        sum(k.share * max(0.0, 1 - factor * k.roof_ns / k.mean_ns) for k in kernels)
        for factor in (1.0, SKEW_FACTOR)
    )
    parts = [f"{100 * part:.1f}" for part in (least, most)]
    ends = (
        f" The range: {parts[1]} points if transfers take the reachable time, {parts[0]} if they "
        f"take {SKEW_FACTOR:g} times that."
    ) * (parts[0] != parts[1])
    listed = "; ".join(
        f"{k.name.partition('(')[0]}: mean {k.mean_ns / 1000:.0f} us, "
        f"{k.mean_ns / k.roof_ns:.0f} times the {k.roof_ns / 1000:.1f} us that {_message(k)}"
        for k in kernels[:_MOST]
    )
    yield Finding(
        severity="warning",
        code="skew_dominated",
        title=f"{count(len(kernels), 'collective kernel')} take{'s' * (len(kernels) == 1)} "
        f"{100 * share:.1f} % of GPU time; {' to '.join(dict.fromkeys(parts))} percentage points "
        "of this are waiting, contention or slow transfer",
        detail=f"{listed}. For slower links, collscope allows {SKEW_FACTOR:g} times the reachable "
        f"time. {'This kernel takes' if one else 'These kernels take'} longer, so "
        f"{'it waits, shares' if one else 'they wait, share'} the GPU, or use{'s' * one} a slow "
        f"setting (few channels, an unsuitable protocol).{ends}",
        advice="Trace all ranks, or measure the classes alone with collscope replay, to find out "
        "which of these it is.",
    )


def _message(kernel: ProfileKernel) -> str:
    """The largest message of a kernel in a sentence on its reachable time."""
    size = format_size(kernel.served_bytes)
    if kernel.served_class is None:
        return f"{size} needs at reachable speed; {largest_message(kernel)}"
    return f"its largest message ({size}, class {kernel.served_class}) needs at reachable speed"


def skew_dominated_classes(report: Report) -> Iterable[Finding]:
    """Classes whose kernels take over three times the roof, and over twice the time alone.

    Where the time alone is not known it is at most the transfer in the job: the rest is waiting.
    """
    rows = [row for row in report.judgement.classes if _skewed(row)]
    if not rows:
        return
    timed = sum(row.transfer_ns is not None for row in report.judgement.classes)
    listed = "; ".join(
        f"class {row.class_id} ({row.op} of {format_size(row.size_bytes)}): "
        f"{((row.transfer_ns or 0) + (row.wait_ns or 0)) / 1000:.0f} us with waiting, "
        f"{(row.transfer_ns or 0) / 1000:.0f} without, reachable {row.roof.time_ns / 1000:.0f}"
        for row in rows[:_MOST]
        if row.roof is not None
    )
    which = f"class{'es' * (len(rows) > 1)} {compact_ranges(row.class_id for row in rows)}"
    yield Finding(
        severity="warning",
        code="skew_dominated",
        title=f"in the job, {count_of(len(rows), timed, 'timed class', 'timed classes')}"
        f" take{'s' * (len(rows) == 1)} over {SKEW_FACTOR:g} times "
        f"{'its' if len(rows) == 1 else 'their'} reachable time: waiting or contention",
        detail=f"{listed}.",
        advice=f"{_VERDICT_FIRST if _late_by_verdict(report) else _BALANCE} Faster collectives "
        f"help {which} little.",
    )


def _skewed(row: JudgedClass) -> bool:
    if row.transfer_ns is None or row.wait_ns is None or row.roof is None:
        return False
    alone_ns = row.transfer_ns / (row.contention or 1.0)
    least_ns = max(SKEW_FACTOR * row.roof.time_ns, MIN_JOB_TO_ALONE * alone_ns)
    return row.transfer_ns + row.wait_ns > least_ns


_CHECK_SYSTEM = (
    " Check that --system and the numbers of ranks and nodes are right, or judge by the job's own "
    "best times (--system fit)."
)


def roof_does_not_apply(report: Report) -> Iterable[Finding]:
    """Classes that are faster than the whole range of their roof."""
    rows = [
        row
        for row in report.judgement.classes
        if row.roof is not None
        and (row.efficiency or 0) > 1 + 1e-9
        and (row.measured_ns or 0) < row.roof.time_low_ns
    ]
    if not rows:
        return
    worst = max(rows, key=lambda row: row.efficiency or 0)
    listed = "; ".join(
        f"class {row.class_id} ({row.op} of {format_size(row.size_bytes)})" for row in rows[:_MOST]
    )
    roof, span = "", ""
    large = any(row.roof is not None and row.roof.regime == "bandwidth" for row in rows)
    if worst.roof is not None:
        roof = worst.roof.name
        low, high = (
            worst.roof.time_ns / t for t in (worst.roof.time_high_ns, worst.roof.time_low_ns)
        )
        span = f" ({100 * low:.0f} to {100 * high:.0f} %{' for the fastest' * (len(rows) > 1)})"
    yield Finding(
        severity="note",
        code="roof_does_not_apply",
        title=f"{count(len(rows), 'class is', 'classes are')} at {'up to ' * (len(rows) > 1)}"
        f"{100 * (worst.efficiency or 0):.0f} % of the speed '{roof}', above "
        f"{'its' if len(rows) == 1 else 'their'} range{span}",
        detail=f"{listed}. The section Efficiency and gain has the reason.",
        advice="No gain is counted here." + _CHECK_SYSTEM * large,
    )


def tuning_not_worth_it(report: Report) -> Iterable[Finding]:
    """Less than 1 % of the GPU time can be saved, even if unmeasured classes are alike."""
    uplifts, parts = report.judgement.uplifts, report.judgement.breakdown
    uplift = max(uplifts, key=lambda found: found.saved, default=None)
    if uplift is not None and uplift.judged >= MIN_JUDGED_SHARE:
        saved = uplift.saved / uplift.judged
        of = f"the time ({fraction_words(uplift.fraction, report.shares)})"
        of = "a recorded step" if uplift.fraction.of_steps else of
    elif uplift is None and parts is not None:
        judged_ns = parts.device_ns - parts.unjudged_ns
        if parts.tunable_ns is None or not judged_ns >= MIN_JUDGED_SHARE * parts.device_ns > 0:
            return
        saved, of = parts.tunable_ns / judged_ns, "the collective time"
    else:
        return
    if saved < WORTH:
        yield Finding(
            severity="note",
            code="tuning_not_worth_it",
            title=f"tuning is not worth it: it would save about {100 * saved:.2f} % of {of}",
            detail=f"This compares the measured classes with '{report.judgement.roof}'. Below "
            f"{100 * WORTH:g} % the work costs more than it saves."
            f"{_NO_SWITCHES * _switches_disabled(report)}",
            advice="To gain more, wait less (balance the ranks), send less (fusion, compression, "
            "another parallelism), or overlap with compute.",
        )


_NO_SWITCHES = " What NVLS (NVLink SHARP) would save is not included: the environment disables it."


def _switches_disabled(report: Report) -> bool:
    return any(row.name == "NCCL_NVLS_ENABLE" and row.value == "0" for row in report.settings)


RULES = (
    system_of_other_gpus,
    waiting_dominates,
    skew_dominated,
    skew_dominated_classes,
    roof_does_not_apply,
    tuning_not_worth_it,
)
