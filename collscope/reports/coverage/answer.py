"""What a run consists of, and how much of it its sources show."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from collscope.reports.calls.answer import CallTotal, ClassRow, CommunicatorRow
from collscope.reports.coverage.deviations import Deviation, read_deviations
from collscope.store.processes import Place, Processes, of_kernel_lines
from collscope.store.runs import sizes_by_logs

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
SELECT DISTINCT path, m.host, pid FROM members m JOIN sources USING (run, source_id) WHERE run = ?
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
# Of dumps of groups alone: no communicator may be of all ranks.
_RECORDED = "SELECT MAX(rank) + 1 FROM recordings WHERE run = ?"

_SOURCES = """
SELECT path, kind, dialect, library, library_version, lines, parsed, ignored, foreign_lines,
       damaged
FROM sources WHERE run = ? ORDER BY source_id
"""

_DIAGNOSTICS = """
SELECT severity, code, message, SUM(count), COUNT(DISTINCT path), path, MIN(line), excerpt
FROM diagnostics WHERE run = ? GROUP BY severity, code
"""

# Views whose rows no section of the report shows.
_BESIDE = ("copies", "interference", "message_bins")

_SEVERITIES = ("error", "data_loss", "notice", "info")


class SourceCount(msgspec.Struct, frozen=True):
    """How many sources of one kind and dialect the run has."""

    kind: str
    dialect: str
    sources: int


class Header(msgspec.Struct, frozen=True):
    """What the run consists of."""

    run: str
    sources: tuple[SourceCount, ...]
    libraries: tuple[str, ...]  # "rccl 2.21.5", also cuda, hip, rocm, driver
    hosts: tuple[str, ...]
    # behind the communicators' ranks and the kernels of logs; see `store.processes`
    processes: int
    gpus: int | None  # distinct devices of those processes, None when no line names one
    ranks: int | None  # of the job: from a trace, else the recordings or the largest communicator
    gpu_names: tuple[str, ...]  # from the traces
    nodes: int | None  # hosts of the communicator with the most
    communicators: int
    classes: int
    calls: int
    total_bytes: int  # over the calls whose size is known
    calls_without_size: int


class SourceLines(msgspec.Struct, frozen=True):
    """What became of the lines of one source."""

    source: str
    kind: str
    dialect: str
    library: str | None
    library_version: str | None
    lines: int | None
    parsed: int | None
    ignored: int | None
    foreign_lines: int | None
    damaged: int | None


class DiagnosticRow(msgspec.Struct, frozen=True):
    """One kind of content problem, counted over the sources."""

    # info, notice, data_loss, error
    severity: Annotated[str, ("error", "data_loss", "notice", "info")]
    code: str
    message: str
    count: int
    sources: int  # sources it was seen in
    source: str | None  # the first of them; None: found while matching
    line: int | None
    excerpt: str | None


class Gap(msgspec.Struct, frozen=True):
    """A question the run's sources do not answer, and what would answer it."""

    question: str
    remedy: str


class ViewRows(msgspec.Struct, frozen=True):
    """Rows of a run in a view."""

    view: str
    rows: int


class Coverage(msgspec.Struct, frozen=True):
    """How much of the job the sources show, and what was wrong with them."""

    sources: tuple[SourceLines, ...]
    calls_complete: int  # logged by every rank of their communicator
    calls_incomplete: int
    calls_unknown: int  # the number of ranks is not known
    deviations: tuple[Deviation, ...]
    diagnostics: tuple[DiagnosticRow, ...]
    gaps: tuple[Gap, ...] = ()  # found when the whole report is known
    beside: tuple[ViewRows, ...] = ()  # in the store, and in no section of the report


def read_header(
    connection: sqlite3.Connection,
    run: str,
    classes: Sequence[ClassRow],
    communicators: Sequence[CommunicatorRow],
) -> Header:
    """What the run consists of: sources, libraries, machines, ranks and the number of calls."""
    places = {Place(*row) for row in connection.execute(_PROCESSES, (run,))}
    traced, traced_gpu_count = of_kernel_lines(connection, run)
    places |= traced
    processes = Processes(connection, run).count(places)
    gpus = max(connection.execute(_GPUS, (run,)).fetchone()[0], traced_gpu_count)
    (world,) = connection.execute(_WORLD, (run,)).fetchone()
    (recorded,) = connection.execute(_RECORDED, (run,)).fetchone()
    sizes = [world, recorded, *(row.nranks for row in communicators)]
    ranks = max((size for size in sizes if size), default=None)
    nodes = max((row.nnodes for row in communicators if row.nnodes), default=None)
    return Header(
        run=run,
        sources=tuple(SourceCount(*row) for row in connection.execute(_SOURCE_COUNTS, (run,))),
        libraries=tuple(row[0] for row in connection.execute(_LIBRARIES, {"run": run})),
        hosts=tuple(row[0] for row in connection.execute(_HOSTS, (run,))),
        processes=processes,
        gpus=gpus or None,
        gpu_names=traced_gpus(connection, run),
        ranks=ranks,
        nodes=nodes,
        communicators=len(communicators),
        classes=len(classes),
        calls=sum(row.calls for row in classes),
        total_bytes=sum(row.total_bytes or 0 for row in classes),
        calls_without_size=sum(row.calls for row in classes if row.size_bytes is None),
    )


def traced_gpus(connection: sqlite3.Connection, run: str) -> tuple[str, ...]:
    """Names of the GPUs, from the traces."""
    return tuple(row[0] for row in connection.execute(_GPU_NAMES, (run,)))


def read_coverage(
    connection: sqlite3.Connection,
    run: str,
    totals: Iterable[CallTotal],
    communicators: Iterable[CommunicatorRow],
) -> Coverage:
    """How much of the job the sources show, and what was wrong with them."""
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
    answered = {"no_collective_arguments"} if sizes_by_logs(connection, run) else set()
    rows = (DiagnosticRow(*row) for row in connection.execute(_DIAGNOSTICS, (run,)))
    diagnostics = [row for row in rows if row.code not in answered]
    return Coverage(
        tuple(SourceLines(*row) for row in connection.execute(_SOURCES, (run,))),
        complete,
        incomplete,
        unknown,
        read_deviations(connection, run),
        tuple(sorted(diagnostics, key=_diagnostic_order)),
        beside=tuple(_beside(connection, run)),
    )


def _beside(connection: sqlite3.Connection, run: str) -> Iterable[ViewRows]:
    for view in _BESIDE:
        (rows,) = connection.execute(
            f"SELECT COUNT(*) FROM {view} WHERE run = ?", (run,)
        ).fetchone()
        if rows:
            yield ViewRows(view, rows)


def _diagnostic_order(row: DiagnosticRow) -> tuple[int, int, str]:
    return (_SEVERITIES.index(row.severity), -row.count, row.code)
