"""How much of the job the sources show, and the questions that they leave open, in words."""

from __future__ import annotations

from collections.abc import Iterable

from collscope.kernel_names import OTHER_LIBRARIES
from collscope.reports.coverage.answer import Gap, Header
from collscope.reports.rendering.layout import (
    MOST_ROWS,
    NUMBER,
    PATH,
    PROSE,
    TEXT,
    WORD,
    Table,
    more_not_shown,
    table,
)
from collscope.reports.rendering.origin import origin
from collscope.reports.report.answer import Report
from collscope.units import are, count

_DRIVER = "driver "


def run_section(report: Report) -> Iterable[str | Table]:
    """What the run consists of."""
    header = report.header
    largest = max((row.nranks or 0 for row in report.communicators), default=0)
    which = " in the largest communicator" if header.ranks in (None, largest) else ""
    known = header.ranks or header.processes or header.gpus or header.hosts
    yield (
        f"Run {header.run}: {count(header.ranks, 'rank')}{which}, "
        f"{count(header.processes or None, 'process', 'processes')}, {_gpus(report)}, "
        f"hosts {', '.join(header.hosts) or 'unknown'}."
        if known
        else f"Run {header.run}: its sources do not name ranks, processes, GPUs or hosts."
    )
    yield f"Libraries: {', '.join(library_words(header)) or 'no version line in the sources'}."
    columns = [("source kind", TEXT), ("dialect", TEXT), ("sources", NUMBER)]
    yield table(
        columns,
        ((s.kind, s.dialect, s.sources) for s in header.sources),
        (origin("sources", kind=s.kind, dialect=s.dialect) for s in header.sources),
    )


def library_words(header: Header) -> list[str]:
    """Libraries with their versions; that of a driver is the CUDA that it can run."""
    return [
        f"driver for CUDA {name.removeprefix(_DRIVER)}" if name.startswith(_DRIVER) else name
        for name in header.libraries
    ]


def _gpus(report: Report) -> str:
    header = report.header
    names = " and ".join(header.gpu_names)
    if header.gpus is None and names:
        return f"GPUs: {names}"
    shared = (row.count for row in report.coverage.diagnostics if row.code == "several_jobs")
    about = [*([names] if names else []), *(f"{n} used by several processes" for n in shared)]
    return count(header.gpus, "GPU") + f" ({'; '.join(about)})" * bool(about)


def coverage_section(report: Report) -> Iterable[str | Table]:
    """Sources, calls that are not complete, diagnostics, and questions that are left open."""
    coverage = report.coverage
    if report.header.calls:
        yield _recorded_calls(report)
    with_lines = [source for source in coverage.sources if source.lines is not None]
    if with_lines:
        columns = [
            ("source", PATH),
            ("lines", NUMBER),
            ("parsed", NUMBER),
            ("ignored", NUMBER),
            ("foreign", NUMBER),
            ("damaged", NUMBER),
        ]
        yield table(
            columns,
            (
                (s.source, s.lines, s.parsed, s.ignored, s.foreign_lines, s.damaged)
                for s in with_lines[:MOST_ROWS]
            ),
            (origin("sources", path=s.source) for s in with_lines[:MOST_ROWS]),
        )
        yield from more_not_shown(len(with_lines), "source")
        if any(source.ignored or source.foreign_lines for source in with_lines):
            yield (
                "ignored: lines of NCCL or RCCL that collscope does not need or does not know. "
                "foreign: lines of other programs. damaged: lines that are cut, too long or hold "
                "an unreadable number."
            )
    if coverage.diagnostics:
        names = [("diagnostic", WORD), ("code", WORD), ("count", NUMBER), ("message", PROSE)]
        rows = coverage.diagnostics[:MOST_ROWS]
        yield table(
            names,
            ((d.severity, d.code, d.count, d.message) for d in rows),
            (origin("diagnostics", severity=d.severity, code=d.code) for d in rows),
        )
        yield from more_not_shown(len(coverage.diagnostics), "diagnostic")
    if coverage.beside:
        parts = (f"{count(v.rows, 'row')} of the view {v.view}" for v in coverage.beside)
        yield f"Also in the store, not shown here (collscope sql): {', '.join(parts)}."
    for gap in coverage.gaps:
        yield f"Not known: {gap.question}. To find out: {gap.remedy}."


def _recorded_calls(report: Report) -> str:
    """How many calls were recorded by all ranks of their communicator."""
    coverage, calls = report.coverage, count(report.header.calls, "call")
    if coverage.calls_complete == report.header.calls:
        which = "the only call" if report.header.calls == 1 else f"all {calls}"
        return f"Every rank that takes part recorded {which}, in at least one source."
    parts = [
        f"Of {calls}, {coverage.calls_complete} {are(coverage.calls_complete)} recorded by all "
        "ranks that take part",
        *([f"{coverage.calls_incomplete} by some of them"] * bool(coverage.calls_incomplete)),
        *(
            [f"of {coverage.calls_unknown}, the number of ranks is not known"]
            * bool(coverage.calls_unknown)
        ),
    ]
    return f"{', '.join(parts)}."


NO_SIZES = "the sizes of the calls are not known"
_LOG = "log with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL while tracing"
_UNSEEN = (
    "NCCL's and RCCL's logs lack the sizes of other libraries' calls; CPU activities have those of"
    " PyTorch's symmetric memory alone"
)


def sizes_remedy(report: Report) -> str:
    """What makes the sizes of calls known, of those kernels that the traces hold."""
    families = {family.family for share in report.shares for family in share.families}
    codes = {row.code for row in report.coverage.diagnostics}
    if families and families <= OTHER_LIBRARIES:
        return f"get them from the job's own code ({_UNSEEN})"
    remedy = f"{_LOG}, or trace with ProfilerActivity.CPU and record_shapes=True"
    if "graph_collectives" in codes:
        remedy = (
            f"{_LOG}, or trace with ProfilerActivity.CPU, starting before the graphs are captured"
        )
    return remedy + f" ({_UNSEEN})" * bool(families & OTHER_LIBRARIES)


def calls_missing_sentence(report: Report) -> Iterable[str]:
    """What is missing by the recorders' own numbers, and what was left out."""
    for row in report.coverage.diagnostics:
        if row.code == "numbers_missing":
            yield (
                f"The files lack at least {count(row.count, 'record')} of calls, by the "
                "recorders' own numbering."
            )
        if row.code == "rank_claimed_twice":
            yield (
                f"The calls of {count(row.count, 'process', 'processes')} are left out: "
                "other processes of the communicator have the same ranks."
            )


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
            "sizes of the calls, and so efficiency and gain: no source has them",
            sizes_remedy(report),
        ),
        (
            any(row.split_ns for row in report.classes) or bool(report.timeline.withheld),
            "transfer and waiting of each class: no call has kernel times that separate them",
            "profile all ranks (torch.profiler), then collscope ingest trace PATH; or, with "
            "RCCL before 2.30 (ROCm 7.13 and older), run all ranks with "
            "RCCL_KERNEL_COLL_TRACE_ENABLE=1, then ingest their logs",
        ),
        (
            any(row.algorithm for row in report.classes),
            "algorithm, protocol and channels: no TUNING lines, and a kernel's name is only a hint",
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
    questions = always + with_calls if report.classes else always
    return tuple(Gap(question, remedy) for known, question, remedy in questions if not known)
