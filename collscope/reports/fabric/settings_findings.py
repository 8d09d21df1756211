"""Rules about settings: what was forced, disabled, left on, or differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from collscope.reports.fabric.answer import SettingRow
from collscope.reports.report.answer import Evidence, Finding, Report

# Variables that take a choice away from the library's tuning, which knows sizes and topology.
_FORCED = {
    "NCCL_ALGO": "algorithm",
    "NCCL_PROTO": "protocol",
    "NCCL_MIN_NCHANNELS": "number of channels",
    "NCCL_MAX_NCHANNELS": "number of channels",
    "NCCL_MIN_P2P_NCHANNELS": "number of channels of Send and Recv",
    "NCCL_MAX_P2P_NCHANNELS": "number of channels of Send and Recv",
    "NCCL_MIN_CTAS": "number of channels",
    "NCCL_MAX_CTAS": "number of channels",
    "NCCL_NTHREADS": "threads per channel",
    "NCCL_BUFFSIZE": "buffer size",
}

# Variable, whether 0 or 1 switches the feature off, and what is lost.
_DISABLED = {
    "NCCL_P2P_DISABLE": (True, "direct transfers between the GPUs of a host"),
    "NCCL_SHM_DISABLE": (True, "transfers through shared memory within a host"),
    "NCCL_IB_DISABLE": (True, "InfiniBand and RoCE between hosts"),
    "NCCL_NVLS_ENABLE": (False, "NVLS (NVLink SHARP: reduction in the switches)"),
    "RCCL_MSCCL_ENABLE": (False, "MSCCL algorithms, which RCCL has before ROCm 7.13"),
}

_DEBUG = {
    "RCCL_KERNEL_COLL_TRACE_ENABLE": lambda value: value != "0",
    "NCCL_DEBUG": lambda value: value.upper() == "TRACE",
}

_OF_ONE_JOB = (
    "Give every rank the same environment (mpirun -x, srun --export): ranks that choose "
    "differently can hang or corrupt results."
)
_OF_JOBS = (
    "The run holds several jobs, which may have different settings. Give each job its own "
    "run (--run NAME) to see whether the ranks of one job differ."
)


def _evidence(row: SettingRow) -> Evidence:
    return Evidence(row.source, row.line, row.excerpt)


def _from_environment(report: Report) -> list[SettingRow]:
    return [row for row in report.settings if row.origin == "environment"]


def _seen_by(row: SettingRow) -> str:
    return (
        f"{row.name}={row.value} in {row.processes} of {row.of_processes} processes whose settings "
        "are recorded"
    )


def forced_choice(report: Report) -> Iterable[Finding]:
    """The environment decides the algorithm, protocol, channels or buffers."""
    for row in _from_environment(report):
        if row.name in _FORCED:
            yield Finding(
                severity="warning",
                code="forced_choice",
                title=f"{_FORCED[row.name]} forced by the environment: {row.name}={row.value}",
                detail=f"{_seen_by(row)}. It applies to every size and communicator.",
                advice=f"Measure without {row.name}. Keep it only if it is faster at this job's "
                "sizes.",
                evidence=(_evidence(row),),
            )


def disabled_feature(report: Report) -> Iterable[Finding]:
    """The environment switches a transport or an algorithm off."""
    for row in _from_environment(report):
        off_if_set, lost = _DISABLED.get(row.name, (None, ""))
        if off_if_set is not None and off_if_set == (row.value != "0"):
            yield Finding(
                severity="warning",
                code="disabled_feature",
                title=f"{lost} disabled by the environment: {row.name}={row.value}",
                detail=f"{_seen_by(row)}.",
                advice=f"Unset {row.name} unless the feature is known to fail here.",
                evidence=(_evidence(row),),
            )


def debug_left_on(report: Report) -> Iterable[Finding]:
    """A trace that costs time is on: right for this analysis, wrong for a timing."""
    for row in _from_environment(report):
        if row.name in _DEBUG and _DEBUG[row.name](row.value):
            yield Finding(
                severity="note",
                code="debug_left_on",
                title=f"debug output that costs time is on: {row.name}={row.value}",
                detail=f"{_seen_by(row)}. The times of this run include its cost.",
                advice=f"Unset {row.name} in production and when timing the job.",
                evidence=(_evidence(row),),
            )


def environment_differs(report: Report) -> Iterable[Finding]:
    """Processes of one job with different values, or only some of them with a decisive one."""
    by_name: dict[str, list[SettingRow]] = defaultdict(list)
    for row in _from_environment(report):
        by_name[row.name].append(row)
    jobs = any(row.code == "several_jobs" for row in report.coverage.diagnostics)
    for name, rows in by_name.items():
        decisive = name in _FORCED or name in _DISABLED
        partly = decisive and sum(row.processes for row in rows) < rows[0].of_processes
        if len(rows) > 1 or partly:
            yield Finding(
                severity="note" if jobs else "warning",
                code="environment_differs",
                title=f"{name} differs between processes",
                detail="; ".join(_seen_by(row) for row in rows) + ".",
                advice=_OF_JOBS if jobs else _OF_ONE_JOB,
                evidence=tuple(_evidence(row) for row in rows),
            )


RULES = (forced_choice, disabled_feature, debug_left_on, environment_differs)
