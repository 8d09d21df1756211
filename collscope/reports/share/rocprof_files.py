"""The files that rocprofv3 writes of one process, recognised by their names.

Kernels and copies are files of their own; with --stats, totals are in files next to the traces.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

# node1/1234_kernel_trace.csv, 1234_kernel_stats.csv.gz, 1234_memory_copy_trace.csv
_NAME = re.compile(r"(.*?)_?(kernel|memory_copy)_(trace|stats)\.csv(?:\.\w+)?", re.DOTALL)


def totals_shadowed_by_traces(paths: Iterable[str]) -> Mapping[str, str]:
    """Files of totals, each with the trace of the same process that holds the same executions.

    >>> totals_shadowed_by_traces(["7_kernel_stats.csv", "7_kernel_trace.csv", "8_k_stats.csv"])
    {'7_kernel_stats.csv': '7_kernel_trace.csv'}
    """
    return {
        files[what, "stats"]: files[what, "trace"]
        for files in _processes(paths)
        for what in ("kernel", "memory_copy")
        if (what, "stats") in files and (what, "trace") in files
    }


def kernels_of(paths: Iterable[str]) -> Mapping[str, str]:
    """Files of copies, each with the file of kernels of the same process; none is counted twice.

    >>> kernels_of(["7_kernel_trace.csv", "7_memory_copy_stats.csv", "8_memory_copy_trace.csv"])
    {'7_memory_copy_stats.csv': '7_kernel_trace.csv'}
    """
    known = list(paths)
    left_out = totals_shadowed_by_traces(known)
    found = {}
    for files in _processes(path for path in known if path not in left_out):
        by_what = {what: path for (what, _), path in files.items()}
        if len(by_what) > 1:
            found[by_what["memory_copy"]] = by_what["kernel"]
    return found


def _processes(paths: Iterable[str]) -> Iterable[Mapping[tuple[str, str], str]]:
    """Files of each process by what they list, and how."""
    found: dict[str, dict[tuple[str, str], str]] = defaultdict(dict)
    for path in paths:
        match = _NAME.fullmatch(path)
        if match is not None:
            prefix, what, how = match.groups()
            found[prefix][what, how] = path
    return found.values()
