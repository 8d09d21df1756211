"""How much of the job the sources show, and the questions that they leave open, in words."""

from __future__ import annotations

from collections.abc import Iterable

from collscope.analysis.deviations import Deviation, LastCall
from collscope.analysis.overview import Seen
from collscope.reports.model import Coverage, DeviationRow, Gap, Report
from collscope.units import count

NO_SIZES = "the sizes of the calls are not known"
TELL_SIZES = (
    "log with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL beside the traces, or trace with "
    "ProfilerActivity.CPU"
)


# Diagnostics of sources that had more calls than could be read.
_LOST_CALLS = {
    "numbers_missing",
    "recorder_dropped",
    "second_dump",
    "torn_dump",
    "torn_last_line",
    "torn_record",
    "tuning_without_call",
}


def calls_lost(report: Report) -> bool:
    """Whether calls were made that a source should hold and does not."""
    return any(
        row.code in _LOST_CALLS and row.severity != "notice" for row in report.coverage.diagnostics
    )


def calls_missing_sentence(report: Report) -> Iterable[str]:
    """What is missing by the recorders' own numbers, and what was left out."""
    for row in report.coverage.diagnostics:
        if row.code == "numbers_missing":
            yield (
                f"The files lack at least {count(row.count, 'record')} of calls, by the recorders'"
                " own numbers."
            )
        if row.code == "rank_claimed_twice":
            yield (
                "The calls of"
                f" {count(row.count, 'process whose rank', 'processes whose ranks')} another"
                " process of the communicator has are left out."
            )


def coverage_of(seen: Seen) -> Coverage:
    """The report's record of what was seen; gaps come last."""
    return Coverage(
        sources=seen.sources,
        calls_complete=seen.complete,
        calls_incomplete=seen.incomplete,
        calls_unknown=seen.unknown,
        deviations=tuple(map(_deviation, seen.deviations)),
        diagnostics=seen.diagnostics,
        gaps=(),
    )


def _deviation(found: Deviation) -> DeviationRow:
    return DeviationRow(
        found.comm_id,
        found.rank,
        found.what,
        found.calls,
        found.detail if found.last is None else _last_call(found.last),
        found.source,
        found.line,
    )


def _last_call(last: LastCall) -> str:
    if not last.place:
        return f"it made none of {last.calls} calls"
    what = last.op
    if last.count is not None and last.datatype is not None:
        what = f"{last.op} of {last.count} {last.datatype}"
    return f"its last call is no. {last.place} ({what}), of {last.calls}"


def find_gaps(report: Report) -> tuple[Gap, ...]:
    """Questions that the run's sources leave open, and the command that answers each."""
    always = (
        (
            bool(report.shares or report.timeline.withheld),
            "share of GPU time in collectives: no profile",
            "collscope ingest profile PATH (RPD, rocpd, nsys, rocprof, or a pasted top table)",
        ),
        (
            bool(report.classes),
            "which collectives, sizes and communicators: no calls",
            "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,COLL, "
            "then collscope ingest log PATH",
        ),
    )
    header = report.header
    with_calls = (
        (
            header.calls != header.calls_without_size or not header.calls,
            "sizes of the calls, and so efficiency and gain: no source tells them",
            TELL_SIZES,
        ),
        (
            any(row.split_ns for row in report.classes) or bool(report.timeline.withheld),
            "transfer and waiting of each class: no call with kernel times that tell them",
            "profile all ranks (torch.profiler), then collscope ingest trace PATH; or, with RCCL "
            "before 2.30 (ROCm 7.13 and older), run them with RCCL_KERNEL_COLL_TRACE_ENABLE=1, "
            "then ingest their logs",
        ),
        (
            any(row.algorithm for row in report.classes),
            "algorithm, protocol and channels: no TUNING lines",
            "add TUNING to NCCL_DEBUG_SUBSYS, then collscope ingest log PATH",
        ),
        (
            bool(report.transports),
            "transports between ranks: no channel lines",
            "add INIT and P2P,NET,SHM to NCCL_DEBUG_SUBSYS, then collscope ingest log PATH",
        ),
        (
            bool(report.settings),
            "settings in the environment: no ENV lines",
            "add ENV to NCCL_DEBUG_SUBSYS, then collscope ingest log PATH",
        ),
    )
    asked = always + with_calls if report.classes else always
    return tuple(Gap(question, remedy) for known, question, remedy in asked if not known)
