"""Lines that appear twice in the logs of a run, found and left out (pure).

A log is written twice by ``cat a a``, by ``tee``, by a launcher that keeps the ranks' output beside
NCCL_DEBUG_FILE, or ingested under two paths. The evidence: the id of a communicator (commId) is
random, so a process that joins one communicator with one rank twice is one line read twice.
A file read again after it grew is known by its lines: all that the earlier reading gave is in
the later one, at the same lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.match.handles import rows_by
from collscope.match.observations import Ints, Observations, concatenate
from collscope.match.run_rows import RunRows
from collscope.model.comm_handle import CommHandle, Process
from collscope.model.traced_kernel import TracedKernel

CALL_COLUMNS = (
    "sig",
    "op_count",
    "slot",
    "task",
)  # columns of a row that are of the call, not the line


class LogRows(msgspec.Struct, frozen=True):
    """All that one reading of a log gave."""

    lines: int
    processes: tuple[tuple[str, int | None], ...]  # host and pid, in the order of the log
    observed: Observations  # handles' processes are places in `processes`
    records: frozenset[tuple[Hashable, ...]]  # facts, settings, links: what, line, values


def extends(later: LogRows, earlier: LogRows) -> bool:
    """Whether an earlier reading is the beginning of a later one of the same file.

    The last line of the earlier one is left out: it may have been cut.
    """
    if earlier.lines > later.lines:
        return False
    if later.processes[: len(earlier.processes)] != earlier.processes:
        return False
    records = {r for r in earlier.records if int(str(r[1])) < earlier.lines}
    before, after = _calls_above(earlier.lines, earlier.observed, later.observed)
    has_content = bool(records) or before.shape[1] > 0
    return has_content and records <= later.records and np.array_equal(before, after)


def _calls_above(line: int, *logs: Observations) -> list[Ints]:
    """Calls above a line in each log, in its order: columns of numbers that all logs share."""
    both = concatenate(logs)
    handles: dict[Hashable, int] = {}
    number = np.array(
        [handles.setdefault((h.process, h.comm_ptr), len(handles)) for h in both.handles], np.int64
    )
    columns = {name: both.columns[name].astype(np.int64) for name in ("line", "sig", "op_count")}
    calls = np.stack([*columns.values(), number[both.columns["handle"]]])
    found = []
    for own in np.split(calls, np.cumsum([len(log) for log in logs])[:-1], axis=1):
        upper = own[:, own[0] < line]
        found.append(upper[:, np.argsort(upper[0], kind="stable")])
    return found


class Originals(msgspec.Struct, frozen=True):
    """What is left of a run's logs."""

    dropped: list[int]  # handles whose lines are copies
    handles: list[int]  # the others, rising
    lost_rows: Ints  # numbers of rows that are copies
    kernels: list[int]  # rising
    copied_processes: set[tuple[str, int]]  # whose lines were equal in two logs
    doubtful: int  # communicators joined twice with other calls: nothing was left out


def find_originals(
    run: RunRows, processes: Sequence[Process], kernels: Sequence[TracedKernel]
) -> Originals:
    """Handles, rows and kernels without those that are there again."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    identities = _identities(run.handles)
    for i, (handle, identity) in enumerate(zip(run.handles, identities, strict=True)):
        process = processes[handle.process]
        if process.pid is not None and identity is not None:
            key = (process.host, process.pid, handle.comm_ptr, handle.rank, handle.nranks, identity)
            alike[key].append(i)
    dropped: list[int] = []
    lost_rows = [np.empty(0, np.int64)]
    copied: set[tuple[str, int]] = set()
    kept_apart: set[tuple[str, int]] = set()
    doubtful = 0
    for group in alike.values():
        if len(group) == 1:  # as nearly all are
            continue
        observed = run.rows(group, (*CALL_COLUMNS, "row"))
        rows = [np.flatnonzero(observed.columns["handle"] == i) for i in group]
        found = _find_copy(observed, rows)
        process = processes[run.handles[group[0]].process]
        two_logs = len({processes[run.handles[i].process].source for i in group}) > 1
        if found is None:
            doubtful += not two_logs
            kept_apart.add((process.host, process.pid or 0))
            continue
        original, copy = found
        dropped += [i for m, i in enumerate(group) if m != original]
        lost_rows += [observed.columns["row"][own] for own in copy]
        if two_logs:
            copied.add((process.host, process.pid or 0))
    gone = set(dropped)
    return Originals(
        dropped,
        [i for i in range(len(run.handles)) if i not in gone],
        np.concatenate(lost_rows),
        _kernels_once(kernels, processes),
        copied - kept_apart,
        doubtful,
    )


def _identities(handles: Sequence[CommHandle]) -> list[Hashable | None]:
    """What no other communicator of a run has: a commId, or a parent with one and which split."""
    found: list[Hashable | None] = [None] * len(handles)
    latest: dict[tuple[int, int], Hashable | None] = {}
    for i in sorted(range(len(handles)), key=lambda i: (handles[i].process, handles[i].first_line)):
        handle = handles[i]
        if handle.comm_hash is not None:
            found[i] = ("commId", handle.comm_hash)
        elif handle.parent_ptr is not None and handle.split_count is not None:
            parent = latest.get((handle.process, handle.parent_ptr))
            if parent is not None:
                found[i] = ("split", parent, handle.split_count, handle.color)
        latest[handle.process, handle.comm_ptr] = found[i]
    return found


def _find_copy(observed: Observations, rows: Sequence[Ints]) -> tuple[int, list[Ints]] | None:
    """Which of some handles of one communicator is the original, and all rows that are copies.

    returns  None where the calls of one are not among those of the other
    """
    longest = max(range(len(rows)), key=lambda k: len(rows[k]))
    calls_by_log = [calls_of(observed, own) for own in rows]
    original_calls, others = (
        calls_by_log[longest],
        [k for k in range(len(rows)) if k != longest and len(rows[k])],
    )
    if not all(is_prefix_or_suffix(calls_by_log[k], original_calls) for k in others):
        return None
    if not others:
        # Each line behind its copy, as tee or a launcher writes them: so are the lines of calls.
        for times in range(len(rows), 1, -1):
            parts = [original_calls[:, k::times] for k in range(times)]
            if original_calls.shape[1] and all(
                np.array_equal(parts[0], part) for part in parts[1:]
            ):
                return longest, [rows[longest][k::times] for k in range(1, times)]
    return longest, [rows[k] for k in others]


def calls_of(observed: Observations, own: Ints) -> Ints:
    """What rows hold on their calls, shape (columns, rows)."""
    return np.stack([observed.columns[c][own].astype(np.int64) for c in CALL_COLUMNS])


def is_prefix_or_suffix(part: Ints, original_calls: Ints) -> bool:
    """Whether a sequence is the beginning or the end of another: a copy may be cut."""
    n = part.shape[1]
    return np.array_equal(part, original_calls[:, :n]) or np.array_equal(
        part, original_calls[:, original_calls.shape[1] - n :]
    )


def without_repeats(observed: Observations, *, stamped: bool) -> Observations:
    """One log's observations without rows that are in it again.

    Where opCount counts the calls of a communicator it never goes back: lines that go back and are
    all equal to earlier ones are repeated. At 0 another communicator may have begun that has
    the pointer of one before, so that this shows nothing.

    stamped  lines of the log's kernel trace are repeated, by the GPU's clock: so are calls of
             equal opCount and task
    """
    counts = observed.columns["op_count"]
    order, bounds = rows_by(observed.columns["handle"], len(observed.handles))
    own_counts = (counts[order[a:b]] for a, b in pairwise(bounds.tolist()))
    if not stamped and not any((own[1:] < own[:-1]).any() for own in own_counts):
        return observed  # as nearly all logs are
    left = np.ones(len(observed), dtype=bool)
    for a, b in pairwise(bounds.tolist()):
        own = order[a:b]
        if len(own) and (counts[own] != counts[own[0]]).any():
            left[own[_repeats(observed, own, stamped=stamped)]] = False
    return _with_rows(observed, np.flatnonzero(left))


def _repeats(observed: Observations, own: Ints, *, stamped: bool) -> list[int]:
    """Places of rows of one handle that repeat earlier ones; none where the others differ."""
    seen: set[tuple[int, ...]] = set()
    found = []
    top = 0  # opCount reached
    behind = False
    columns = (observed.columns[name][own].tolist() for name in ("op_count", "sig", "slot", "task"))
    for place, call in enumerate(zip(*columns, strict=True)):
        count, *_, task = call
        behind = count < top or (behind and count == top)
        if behind and (call not in seen or (count == 0 and not stamped)):
            return []
        if behind or (stamped and task >= 0 and call in seen):
            found.append(place)
        seen.add(call)
        top = max(top, count)
    return found


def _kernels_once(kernels: Sequence[TracedKernel], processes: Sequence[Process]) -> list[int]:
    """Kernels that were not traced before: the same GPU, call and time."""
    starts = {(k.start_ns, k.op_count, k.rank, k.bus_id) for k in kernels}
    if len(starts) == len(kernels):
        return list(range(len(kernels)))
    seen: set[Hashable] = set()
    kept = []
    for k, kernel in enumerate(kernels):
        process = processes[kernel.process]
        if kernel.start_ns is not None and process.pid is not None:
            key = (process.host, process.pid, replace(kernel, process=0, line=0))
            if key in seen:
                continue
            seen.add(key)
        kept.append(k)
    return kept


def _with_rows(observed: Observations, rows: Ints) -> Observations:
    """The observations with some of their rows, rising, and the choices of their TUNING lines."""
    if len(rows) == len(observed):
        return observed
    row_of = np.full(len(observed), -1, dtype=np.int64)
    row_of[rows] = np.arange(len(rows))
    columns = {name: values[rows] for name, values in observed.columns.items()}
    tuned = row_of[observed.tuning["row"]]
    tuning = {"row": tuned[tuned >= 0], "setting": observed.tuning["setting"][tuned >= 0]}
    return replace(observed, columns=columns, tuning=tuning)
