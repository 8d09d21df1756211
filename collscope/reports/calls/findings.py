"""Rules about calls and their records: what is missing, disagrees, is lost or tiny."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from collscope.model import Op
from collscope.reports.calls.answer import ClassRow, compact_ranges
from collscope.reports.coverage.answer import DiagnosticRow
from collscope.reports.coverage.deviations import Deviation, LastCall
from collscope.reports.report.answer import Evidence, Finding, Report, calls_lost
from collscope.reports.tolerances import FUSABLE_BYTES, FUSABLE_CALLS, TINY_BYTES
from collscope.units import are, count, count_of

MOST_EVIDENCE = 5

# Diagnostics that the rules on deviations put into words, rank by rank.
_REPORTED_AS_DEVIATIONS = {"ranks_disagree", "observation_missing"}


def _lines(rows: Sequence[Deviation]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(row.source, row.line, row.detail) for row in rows[:MOST_EVIDENCE] if row.source
    )


def missing_ranks(report: Report) -> Iterable[Finding]:
    """Communicators with ranks that no source has a line of."""
    rows = [row for row in report.communicators if row.missing_ranks]
    if not rows:
        return
    named = "; ".join(
        f"communicator {row.comm_id}: {row.missing_ranks}" for row in rows[:MOST_EVIDENCE]
    )
    more = f"; and {len(rows) - MOST_EVIDENCE} more" if len(rows) > MOST_EVIDENCE else ""
    logged = _logged(report)
    source = "log" if logged else "trace or recording"
    which = "the logs" if logged else "the traces or recordings"
    where = " (NCCL_DEBUG_FILE with %h and %p, on every host)" * logged
    waiting = "" if logged else "waiting, "
    right = (
        "calls that only the missing ranks make. Without them, counts and bytes are lower bounds"
    )
    if calls_lost(report):
        right = "the calls that are lost in the ingested sources"
    advice = (
        f"Ingest {which} of all ranks{where} to see {waiting}calls that differ between ranks, and "
        f"{right}."
    )
    yield Finding(
        severity="warning",
        code="missing_ranks",
        title=f"ranks without a {source} in"
        f" {count_of(len(rows), len(report.communicators), 'communicator')}",
        detail=f"Missing ranks, numbered within the communicator: {named}{more}.",
        advice=advice,
    )


def missing_calls(report: Report) -> Iterable[Finding]:
    """Calls that a rank's log, trace or recording lacks."""
    rows = [row for row in report.coverage.deviations if row.what == "missing"]
    if not rows:
        return
    lines = sum(row.calls for row in rows)
    entry = ("entry", "entries") if _logged(report) else ("call", "calls")
    named = "; ".join(
        f"communicator {comm}: "
        + ", ".join(f"rank {row.rank} lacks {count(row.calls, *entry)}" for row in of_comm)
        for comm, of_comm in groupby(rows[:MOST_EVIDENCE], key=lambda row: row.comm_id)
    )
    more = f"; and {count(len(rows) - MOST_EVIDENCE, 'more rank')}" * (len(rows) > MOST_EVIDENCE)
    title = f"logs lack {count(lines, *entry)} that the logs of other ranks have"
    damaged = "Check the damaged lines under Coverage. " * any(
        source.damaged for source in report.coverage.sources
    )
    advice = (
        "Lines were lost (shared stdout, full disk), a rank stopped, or other logs hold "
        f"lines twice. {damaged}Give each process its own NCCL_DEBUG_FILE."
    )
    if not _logged(report):
        title = f"{count(lines, 'call')} {are(lines)} missing in traces or recordings of ranks"
        advice = (
            "These ranks began or ended at different calls, or lost some. A missing call "
            "looks the same as a rank that stopped."
        )
    yield Finding(
        severity="warning",
        code="missing_calls",
        title=title,
        detail=f"{named[0].upper()}{named[1:]}{more}.",
        advice=advice,
        evidence=_lines(rows),
    )


def ranks_stopped(report: Report) -> Iterable[Finding]:
    """Ranks whose logs lack the last calls of a communicator, all from one place on."""
    rows = [row for row in report.coverage.deviations if row.what == "stopped"]
    if not rows:
        return
    title = "ranks stopped: their logs end before calls that other ranks made"
    last = [_last_call(row.last) for row in rows[:MOST_EVIDENCE] if row.last is not None]
    if len(rows) == len(report.communicators) == 1:  # its rank is the job's
        title = f"rank {rows[0].rank} stopped: {last[0]}"
    named = "; ".join(
        f"communicator {row.comm_id} rank {row.rank}: {words}"
        for row, words in zip(rows, last, strict=False)
    )
    more = f"; and {len(rows) - MOST_EVIDENCE} more" if len(rows) > MOST_EVIDENCE else ""
    yield Finding(
        severity="warning",
        code="ranks_stopped",
        title=title,
        detail=f"{named}{more}.",
        advice="Check what these ranks did instead: their stack, an exception, the GPU. Other "
        "ranks wait for them in the next call. A truncated log looks the same.",
        evidence=tuple(
            Evidence(row.source, None, None) for row in rows[:MOST_EVIDENCE] if row.source
        ),
    )


def _last_call(last: LastCall) -> str:
    if not last.place:
        return f"it made none of {last.calls} calls"
    what = last.op
    if last.count is not None and last.datatype is not None:
        what = f"{last.op} of {last.count} {last.datatype}"
    return f"its last call is number {last.place} ({what}) of {last.calls}"


def ranks_disagree(report: Report) -> Iterable[Finding]:
    """Ranks that issued another operation or count at the same place of a communicator."""
    rows = [row for row in report.coverage.deviations if row.what == "differs"]
    if not rows:
        return
    calls = sum(row.calls for row in rows)
    ranks = sorted({(row.comm_id, row.rank) for row in rows})
    named = "; ".join(f"communicator {comm} rank {rank}" for comm, rank in ranks[:MOST_EVIDENCE])
    yield Finding(
        severity="problem",
        code="ranks_disagree",
        title="ranks of one communicator issued different calls at the same place",
        detail=f"Calls: {calls}, on {named}.",
        advice="Operation, count, datatype and order must be equal on all ranks. Look for "
        "rank-dependent branches around the calls: they hang the job or corrupt data.",
        evidence=_lines(rows),
    )


def communicators_inferred(report: Report) -> Iterable[Finding]:
    """Communicators whose ranks were joined only because their sequences of calls are equal."""
    rows = [row for row in report.communicators if row.matched_by == "inferred"]
    if not rows:
        return
    ids = compact_ranges(row.comm_id for row in rows)
    header = report.header
    known = "sizes are known and " * (0 < header.calls == header.calls_without_size)
    yield Finding(
        severity="note",
        code="communicators_inferred",
        title=f"{count_of(len(rows), len(report.communicators), 'communicator')} {are(len(rows))}"
        " inferred",
        detail=f"Communicator{'s' * (len(rows) > 1)} {ids}: no INIT line names their ranks, so "
        "collscope grouped ranks whose calls match, apart from calls that a log lacks.",
        advice=f"Log with NCCL_DEBUG_SUBSYS=INIT,COLL, so that {known}communicators are joined by"
        " their id.",
    )


def counts_modulo(report: Report) -> Iterable[Finding]:
    """Counts that the library printed modulo 2^32."""
    for row in _diagnostics(report):
        if "modulo" in row.code:
            yield Finding(
                severity="note",
                code="counts_modulo",
                title="Calls of 2^32 elements and more would look smaller",
                detail="This RCCL prints the count modulo 2^32. Smaller counts are printed in "
                "full. 2^32 elements are 4 GiB of int8 and 16 GiB of float32.",
                advice="If the job has such calls, log with NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING: "
                "TUNING lines print the bytes in full.",
                evidence=_excerpt(row),
            )


def tiny_messages(report: Report) -> Iterable[Finding]:
    """More than half of the calls of known size are below 4 KiB."""
    sized = [row for row in report.classes if row.size_bytes is not None]
    tiny = _calls(row for row in sized if (row.size_bytes or 0) < TINY_BYTES)
    every = _calls(sized)
    if 2 * tiny <= every:
        return
    yield Finding(
        severity="note",
        code="tiny_messages",
        title=f"{100 * tiny / every:.1f} % of the calls are below 4 KiB",
        detail=f"{count_of(tiny, every, 'call')} of known size: latency, not bandwidth, sets their "
        "cost.",
        advice="Combine scalars and small tensors into one call, or call less often.",
    )


def fusable_all_reduces(report: Report) -> Iterable[Finding]:
    """Many all-reduces too small to use the links; one fused call would do."""
    reduces = [row for row in report.classes if row.op is Op.ALL_REDUCE and row.size_bytes]
    small = [row for row in reduces if (row.size_bytes or 0) < FUSABLE_BYTES]
    calls, every = _calls(small), _calls(reduces)
    if calls < FUSABLE_CALLS or 2 * calls <= every:
        return
    total = sum(row.total_bytes or 0 for row in small)
    yield Finding(
        severity="note",
        code="fusable_all_reduces",
        title=f"{count_of(calls, every, 'all-reduce')} are below 64 KiB and could be fused",
        detail=f"Together they move {total} bytes, {total // calls} per call.",
        advice="Use larger gradient buckets (bucket_cap_mb of DDP, HOROVOD_FUSION_THRESHOLD).",
    )


def data_loss(report: Report) -> Iterable[Finding]:
    """Content problems of a source that lost records."""
    reported_elsewhere = {one.code for one in report.timeline.withheld}
    for row in _diagnostics(report):
        lost = row.severity in ("data_loss", "error")
        if lost and row.code not in _REPORTED_AS_DEVIATIONS | reported_elsewhere:
            yield Finding(
                severity="problem" if row.severity == "error" else "warning",
                code="data_loss",
                title=f"records were lost: {row.code} ({count(row.count, 'time')})",
                detail=row.message,
                advice="The counts and bytes below are lower bounds; shares may be too high or too "
                "low. The diagnostics view names the sources.",
                evidence=_excerpt(row),
            )


def library_warnings(report: Report) -> Iterable[Finding]:
    """Warnings and errors that the library printed, and slow work requests of InfiniBand."""
    # an "error" is only the line number that an error code passed on its way up: it is sorted last
    kinds = ("fatal", "wqe_stall", "warning", "wqe_slow", "error")
    rows = [fact for kind in kinds for fact in report.facts if fact.kind == kind]
    if not rows:
        return
    printed = sum(row.count for row in rows)
    yield Finding(
        severity="warning",
        code="library_warnings",
        title=f"the library printed {count(printed, 'warning or error', 'warnings or errors')}",
        detail=f"{count(len(rows), 'different text')}; the first"
        f" {min(len(rows), MOST_EVIDENCE)} follow."
        if len(rows) > 1
        else "The text follows.",
        advice="Read them: they often name the reason for a slow path.",
        evidence=tuple(Evidence(row.source, row.line, row.value) for row in rows[:MOST_EVIDENCE]),
    )


def _logged(report: Report) -> bool:
    """Whether the run has a log; else its calls are those of traces and recordings."""
    return any(source.kind == "log" for source in report.header.sources)


def _diagnostics(report: Report) -> tuple[DiagnosticRow, ...]:
    return report.coverage.diagnostics


def _excerpt(row: DiagnosticRow) -> tuple[Evidence, ...]:
    return (Evidence(row.source, row.line, row.excerpt),) if row.source else ()


def _calls(rows: Iterable[ClassRow]) -> int:
    return sum(row.calls for row in rows)


RULES = (
    ranks_disagree,
    ranks_stopped,
    missing_ranks,
    missing_calls,
    data_loss,
    counts_modulo,
    library_warnings,
    tiny_messages,
    fusable_all_reduces,
    communicators_inferred,
)
