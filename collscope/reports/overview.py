"""The first and the last section: what the run consists of, and how much of it was seen."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from collscope.analysis.classes import CallTotal, ClassRow
from collscope.reports.deviations import read_deviations
from collscope.reports.model import (
    CommunicatorRow,
    Coverage,
    DiagnosticRow,
    Gap,
    Header,
    Report,
    SourceCount,
    SourceLines,
)

_SOURCE_COUNTS = """
SELECT kind, dialect, COUNT(*) FROM sources WHERE run = ? GROUP BY kind, dialect
ORDER BY kind, dialect
"""

_LIBRARIES = """
SELECT DISTINCT library || coalesce(' ' || library_version, '') FROM sources
WHERE run = :run AND library IS NOT NULL
UNION SELECT DISTINCT kind || ' ' || value FROM facts
WHERE run = :run AND kind IN ('cuda', 'hip', 'rocm', 'driver')
"""

_HOSTS = "SELECT DISTINCT host FROM members WHERE run = ? AND host <> '' ORDER BY host"

_PROCESSES = """
SELECT COUNT(*) FROM (SELECT DISTINCT source_id, host, pid FROM members
                      WHERE run = ? AND source_id IS NOT NULL)
"""

# A bus id names a device of a host; a device index only one of a process.
_GPUS = """
SELECT COUNT(*) FROM (
    SELECT DISTINCT host, bus_id, CASE WHEN bus_id IS NULL THEN source_id END,
           CASE WHEN bus_id IS NULL THEN pid END, CASE WHEN bus_id IS NULL THEN cuda_dev END
    FROM members WHERE run = ? AND (bus_id IS NOT NULL OR cuda_dev IS NOT NULL))
"""

_GPU_NAMES = "SELECT DISTINCT gpu FROM traces WHERE run = ? AND gpu IS NOT NULL ORDER BY gpu"

_WORLD = "SELECT MAX(world_size) FROM traces WHERE run = ?"

_SOURCES = """
SELECT path, kind, dialect, library, library_version, lines, parsed, ignored, foreign_lines,
       damaged
FROM sources WHERE run = ? ORDER BY source_id
"""

_DIAGNOSTICS = """
SELECT severity, code, message, SUM(count), COUNT(DISTINCT path), path, MIN(line), excerpt
FROM diagnostics WHERE run = ? GROUP BY severity, code
"""

_SEVERITIES = ("error", "data_loss", "notice", "info")


def read_header(
    connection: sqlite3.Connection,
    run: str,
    classes: Sequence[ClassRow],
    communicators: Sequence[CommunicatorRow],
) -> Header:
    """What the run consists of: sources, libraries, machines, ranks and the number of calls."""
    (processes,) = connection.execute(_PROCESSES, (run,)).fetchone()
    (gpus,) = connection.execute(_GPUS, (run,)).fetchone()
    (world,) = connection.execute(_WORLD, (run,)).fetchone()
    sizes = [world, *(row.nranks for row in communicators)]
    ranks = max((size for size in sizes if size), default=None)
    nodes = max((row.nnodes for row in communicators if row.nnodes), default=None)
    return Header(
        run=run,
        sources=tuple(SourceCount(*row) for row in connection.execute(_SOURCE_COUNTS, (run,))),
        libraries=tuple(row[0] for row in connection.execute(_LIBRARIES, {"run": run})),
        hosts=tuple(row[0] for row in connection.execute(_HOSTS, (run,))),
        processes=processes,
        gpus=gpus or None,
        gpu_names=tuple(row[0] for row in connection.execute(_GPU_NAMES, (run,))),
        ranks=ranks,
        nodes=nodes,
        communicators=len(communicators),
        classes=len(classes),
        calls=sum(row.calls for row in classes),
        total_bytes=sum(row.total_bytes or 0 for row in classes),
        calls_without_size=sum(row.calls for row in classes if row.size_bytes is None),
    )


def read_coverage(
    connection: sqlite3.Connection,
    run: str,
    totals: Iterable[CallTotal],
    communicators: Iterable[CommunicatorRow],
) -> Coverage:
    """How much of the job the sources show, and what was wrong with them; gaps come last."""
    nranks = {row.comm_id: row.nranks for row in communicators}
    complete = incomplete = unknown = 0
    for total in totals:
        expected = nranks.get(total.comm_id)
        if expected is None:
            unknown += total.calls
        elif total.ranks_seen < expected:
            incomplete += total.calls
        else:
            complete += total.calls
    diagnostics = [DiagnosticRow(*row) for row in connection.execute(_DIAGNOSTICS, (run,))]
    return Coverage(
        sources=tuple(SourceLines(*row) for row in connection.execute(_SOURCES, (run,))),
        calls_complete=complete,
        calls_incomplete=incomplete,
        calls_unknown=unknown,
        deviations=read_deviations(connection, run),
        diagnostics=tuple(sorted(diagnostics, key=_diagnostic_order)),
        gaps=(),
    )


def _diagnostic_order(row: DiagnosticRow) -> tuple[int, int, str]:
    return (_SEVERITIES.index(row.severity), -row.count, row.code)


def find_gaps(report: Report) -> tuple[Gap, ...]:
    """Questions that the run's sources leave open, and the command that answers each."""
    always = (
        (
            bool(report.shares),
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
    with_calls = (
        (
            any(row.split_ns for row in report.classes),
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
