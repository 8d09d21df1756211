"""Parts of one process's log, as log rotation leaves them, put one behind the other (pure).

The evidence: one process (host and pid) has lines on one communicator pointer in several logs, and
only the first of them has the pointer's INIT lines. Each communicator of the later parts goes on
where the earlier part ends.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from collscope.match.copies import CALL_COLUMNS, calls_of, is_prefix_or_suffix
from collscope.match.handles import has_init_lines
from collscope.match.observations import Ints, Observations
from collscope.match.run_rows import RunRows
from collscope.match.tolerances import MIN_DATE_SUFFIX
from collscope.model.comm_handle import Process

_COMPRESSED = re.compile(r"\.(gz|xz|bz2|zst|lz4)$")
_ROTATED = re.compile(r"[.-](\d+)$")  # logrotate: job.log.1, job.log-20261123


class Joined(msgspec.Struct, frozen=True):
    """Rows whose later parts go on with the communicators of the earlier ones."""

    run: RunRows
    handles: list[int]  # of the given ones those that are left, rising
    processes: set[tuple[str, int]]  # whose parts were joined


def join_parts(run: RunRows, processes: Sequence[Process], names: Mapping[int, str]) -> Joined:
    """Join the parts of each process's log; what may be a copy does not change.

    names  of the sources that `processes` refer to, in the order of the run's logs
    """
    own: dict[tuple[str, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, member in enumerate(run.handles):
        host, pid, source = processes[member.process]
        if pid is not None:
            own[host, pid][source].append(i)
    target: dict[int, int] = {}
    joined: set[tuple[str, int]] = set()
    before: dict[int, int] = {}  # source: the number of sources that come before it
    for process, by in own.items():
        if len(by) == 1:
            continue
        handles = [i for members in by.values() for i in members]
        observed = run.rows(handles, CALL_COLUMNS)
        rows = {i: np.flatnonzero(observed.columns["handle"] == i) for i in handles}
        parts = _in_order(observed, rows, by, names)
        found = _continued(observed, rows, [by[s] for s in parts], _one_stem(parts, names))
        if found:
            target |= found
            joined.add(process)
            for k, source in enumerate(parts):
                before[source] = max(k, before.get(source, 0))
    if not target:
        return Joined(run, list(range(len(run.handles))), set())
    kept = [i for i in range(len(run.handles)) if i not in target]
    order = sorted(range(len(names)), key=lambda log: before.get(list(names)[log], 0))
    return Joined(run.joined(target, order), kept, joined)


def _stem(name: str) -> tuple[str, int]:
    """Name of a log without its rotation, and a number that rises from older to newer parts."""
    name = _COMPRESSED.sub("", name)
    found = _ROTATED.search(name)
    if found is None:
        return name, 0
    number = int(found[1])
    return name[: found.start()], number - 10**15 if number > MIN_DATE_SUFFIX else -number


def _one_stem(parts: Sequence[int], names: Mapping[int, str]) -> bool:
    stems = [_stem(names[s]) for s in parts]
    return len({stem for stem, _ in stems}) == 1 and len(set(stems)) == len(stems)


def _in_order(
    observed: Observations,
    rows: Mapping[int, Ints],
    by: Mapping[int, Sequence[int]],
    names: Mapping[int, str],
) -> list[int]:
    """Sources of one process, the oldest first; empty where their order is unknown."""
    late = {s for s, own in by.items() if not all(has_init_lines(observed.handles[i]) for i in own)}
    first = [s for s in by if s not in late]
    if not first:  # no part has every beginning: each of them may be a copy of another
        return []
    if len(by) == 2:
        return [*first, *late]
    rising = sorted(by, key=lambda s: _stem(names[s])[1])
    if _one_stem(rising, names):
        # Tools that split a log (split -d) number the parts upwards: the INIT lines show it.
        for parts in (rising, rising[::-1]):
            if parts[0] not in late:
                return parts
    counts = {
        s: [int(c) for i in by[s] for c in observed.columns["op_count"][rows[i]][:1]] for s in late
    }
    begin = {s: min(c, default=0) for s, c in counts.items()}
    if len(set(begin.values())) == len(begin):
        return [*first, *sorted(late, key=lambda s: begin[s])]
    return []


def _continued(
    observed: Observations, rows: Mapping[int, Ints], parts: Sequence[Sequence[int]], rotated: bool
) -> dict[int, int]:
    """Handles of later parts, each with the handle of an earlier one that it goes on with.

    rotated  the parts' names are those of one rotated log; without this equal calls may be a copy
    """
    last: dict[int, int] = {}  # by pointer
    found: dict[int, int] = {}
    for part in parts:
        for i in sorted(part, key=lambda i: observed.handles[i].first_line):
            handle = observed.handles[i]
            earlier = last.get(handle.comm_ptr)
            if earlier is None or has_init_lines(handle):
                last[handle.comm_ptr] = i
                continue
            one, other = (calls_of(observed, rows[k]) for k in (earlier, i))
            short, long = sorted((one, other), key=lambda calls: calls.shape[1])
            if has_init_lines(observed.handles[earlier]) and (
                rotated or not short.shape[1] or not is_prefix_or_suffix(short, long)
            ):
                found[i] = earlier
    return found
