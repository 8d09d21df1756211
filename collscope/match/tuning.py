"""TUNING lines joined to the calls they speak of (pure).

Rank 0 of a communicator prints, at launch, what the library chose for each call; the COLL line
was printed before, at the API call. Within one thread the lines alternate call, choice; in a
group all calls come first. So each choice belongs to one of the calls printed since the last
run of choices, of the same operation and size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collscope.match.observations import Ints, Signature, TuningSetting
from collscope.model import parse_op
from collscope.model.comm_handle import CommHandle
from collscope.model.scanned_log import LogScan, LogTunings

NONE = 0xFFFFFFFF
_NUMERIC = 0  # kind of a line "Algo 0 proto 1 time 54.7" (2.20-2.23)


def join_tuning(
    scan: LogScan,
    columns: dict[str, Ints],
    signatures: Sequence[Signature],
    handles: Sequence[CommHandle],
) -> tuple[dict[str, Ints], list[TuningSetting], int]:
    """Rows that a TUNING line speaks of.

    returns {"row": row of `columns`, "setting": index}, the settings, lines that fit no call
    """
    tuning = scan.tuning
    candidates = _candidate_rows(columns, handles)
    settings: dict[TuningSetting, int] = {}
    rows: list[int] = []
    chosen: list[int] = []
    alone = 0
    for thread in sorted(set(tuning.thread.tolist())):  # np.unique would import numpy.ma
        lines = np.flatnonzero(tuning.thread == thread)
        own = candidates[columns["thread"][candidates] == thread]
        calls = [
            (signatures[sig], handles[handle])
            for sig, handle in zip(
                columns["sig"][own].tolist(), columns["handle"][own].tolist(), strict=True
            )
        ]
        for line, row in _pair(tuning, lines, scan.ops, own, columns["line"][own], calls):
            if row is None:
                alone += 1
                continue
            setting = _setting(tuning, line, scan.tuning_names)
            rows.append(row)
            chosen.append(settings.setdefault(setting, len(settings)))
    joined = {"row": np.array(rows, np.int64), "setting": np.array(chosen, np.int64)}
    return joined, list(settings), alone


def _candidate_rows(columns: dict[str, Ints], handles: Sequence[CommHandle]) -> Ints:
    """Rows of ranks that print choices: rank 0, or a rank that is not known."""
    prints = np.array([s.rank in (0, None) for s in handles], dtype=bool)
    return np.flatnonzero(prints[columns["handle"]]) if len(prints) else np.empty(0, np.int64)


def _pair(
    tuning: LogTunings,
    lines: Ints,
    ops: list[str],
    rows: Ints,
    row_lines: Ints,
    calls: list[tuple[Signature, CommHandle]],
) -> list[tuple[int, int | None]]:
    """Each TUNING line of one thread with its row, or with None."""
    behind = np.searchsorted(row_lines, tuning.line[lines]) - 1
    pairs: list[tuple[int, int | None]] = []
    start = 0  # first row of the current burst of calls
    last = -1
    pending: list[int] = []
    row_list = rows.tolist()
    for line, b in zip(lines.tolist(), behind.tolist(), strict=True):
        if b != last:
            start, last = last + 1, b
            pending = list(range(start, b + 1))
        found = next((k for k in pending if _fits(tuning, line, ops, *calls[k])), None)
        if found is not None:
            pending.remove(found)
        pairs.append((line, None if found is None else row_list[found]))
    return pairs


def _fits(
    tuning: LogTunings, line: int, ops: list[str], signature: Signature, handle: CommHandle
) -> bool:
    """True if a choice's operation, bytes and, where printed, communicator are those of a call."""
    name = int(tuning.op[line])
    if name != NONE and parse_op(ops[name]) is not signature.op:
        return False
    if int(tuning.comm_ptr[line]) not in (0, handle.comm_ptr):
        return False
    item = signature.element.itemsize
    if item is None:  # operation and communicator fit, and nothing else can be held against it
        return True
    per_rank = signature.count * item
    size = int(tuning.bytes[line])
    if not signature.op.count_is_part or int(tuning.kind[line]) != _NUMERIC:
        return size == per_rank
    # To 2.23 the larger of what is sent and received is printed: the whole of the ranks' parts.
    return size == per_rank * (handle.nranks or 1)


def _setting(tuning: LogTunings, line: int, names: list[str]) -> TuningSetting:
    def name(column: Ints) -> str | None:
        index = int(column[line])
        return None if index == NONE else names[index]

    channels = int(tuning.channels[line])
    return TuningSetting(
        name(tuning.algorithm),
        name(tuning.protocol),
        channels if channels >= 0 else None,
        name(tuning.kernel),
    )
