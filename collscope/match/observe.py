"""One source's scan turned into the matching's input (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import asdict

from collscope.match.copies import without_repeats
from collscope.match.handles import RANKS_DIFFER, resolve_handles
from collscope.match.kernels import lines_once, pair_kernels
from collscope.match.observations import (
    COLUMNS,
    COUNT_MODULO_2_32,
    POINTERS_ONLY,
    Ints,
    Observations,
    Signature,
    constant,
)
from collscope.match.tuning import join_tuning
from collscope.model import Diagnostic, LogRecord, Severity, parse_op
from collscope.model.comm_handle import CommHandle
from collscope.model.limits import MOST_BYTES, MOST_ELEMENTS, MOST_RANKS
from collscope.model.scanned_log import LogScan
from collscope.model.traced_kernel import TracedKernel

_AGAIN_TEXT = (
    "lines that appear twice in the log (kernels with the same GPU time, calls with the same "
    "opCount): counted once"
)
_RANKS_TEXT = (
    "communicators whose INIT lines and call lines give different numbers of ranks: the number "
    "that the ranks of the one node confirm is used, else none"
)
_CALL_TRACE = 1  # value of the scanner's `source` column


class Observed(msgspec.Struct, frozen=True):
    """What one log holds for the matching."""

    observations: Observations
    kernels: list[TracedKernel]
    diagnostics: list[Diagnostic]


def observe(scan: LogScan, records: Sequence[LogRecord]) -> Observed:
    """Observations, kernels and diagnostics of one source.

    records  of the scan's messages
    """
    coll = scan.coll
    handles, of_row, differing = resolve_handles(scan.comms, coll, records)
    signatures, sig_map = _signatures(scan)
    given = asdict(coll) | {
        "handle": of_row,
        "sig": sig_map[coll.sig] if len(sig_map) else coll.sig,
        "group": _trace_groups(scan),
    }
    columns = {name: given[name].astype(dtype, copy=False) for name, dtype in COLUMNS.items()}
    columns, doubled = _drop_call_twins(columns, coll.source)
    columns, impossible = _drop_impossible(columns, signatures, handles)
    tuning, settings, alone = join_tuning(scan, columns, signatures, handles)
    trace, stamped = lines_once(scan.kernel)
    kernels, found = pair_kernels(trace, scan.kernel_names)
    found += _counted(doubled, alone, signatures, columns)
    if differing:
        note = Diagnostic(Severity.DATA_LOSS, RANKS_DIFFER, _RANKS_TEXT, count=differing)
        found.append(note)
    if impossible:
        text = "calls with a count that no memory could hold: not counted as calls"
        found.append(Diagnostic(Severity.DATA_LOSS, "impossible_count", text, count=impossible))
    every = Observations(handles, signatures, columns, tuning, settings)
    once = without_repeats(every, stamped=stamped > 0)
    if repeated := stamped + len(every) - len(once):
        found.append(Diagnostic(Severity.NOTICE, "counted_once", _AGAIN_TEXT, count=repeated))
    return Observed(once, kernels, found)


def _signatures(scan: LogScan) -> tuple[list[Signature], Ints]:
    """Distinct signatures and the map from the scanner's: spellings of one operation are joined."""
    table = scan.signatures
    columns = (table.op, table.count, table.datatype, table.redop, table.root, table.flags)
    index: dict[Signature, int] = {}
    mapped = []
    for op, count, datatype, redop, root, flags in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        name = scan.ops[op]
        backend = (
            "mscclpp"
            if name.startswith("mscclpp")
            else "msccl"
            if name.startswith("msccl")
            else "native"
        )
        signature = Signature(parse_op(name), backend, count, datatype, redop, root, flags)
        mapped.append(index.setdefault(signature, len(index)))
    return list(index), np.array(mapped, dtype=np.int32)


def _trace_groups(scan: LogScan) -> Ints:
    """Number of the outermost ncclGroupStart/End interval each row is in, or -1."""
    coll, marks = scan.coll, scan.groups
    if not len(marks.line):
        return constant(np.int32(-1), len(coll.line))
    group = np.full(len(coll.line), -1, dtype=np.int32)
    number = 0
    for thread in np.unique(marks.thread).tolist():
        own = np.flatnonzero(marks.thread == thread)
        rows = np.flatnonzero(coll.thread == thread)
        depth, start = 0, 0
        for line, delta in zip(marks.line[own].tolist(), marks.delta[own].tolist(), strict=True):
            if depth == 0 and delta > 0:
                start = line
            depth = max(0, depth + delta)
            if depth == 0 and delta < 0:
                low, high = np.searchsorted(coll.line[rows], [start, line])
                group[rows[low:high]] = number
                number += 1
    return group


def _drop_call_twins(columns: dict[str, Ints], source: Ints) -> tuple[dict[str, Ints], int]:
    """Leave out CALL-trace rows of communicators that also have COLL lines: the same calls."""
    traced = source == _CALL_TRACE
    if not traced.any() or traced.all():
        return columns, 0
    twins = traced & np.isin(columns["handle"], np.unique(columns["handle"][~traced]))
    return {name: values[~twins] for name, values in columns.items()}, int(twins.sum())


def _drop_impossible(
    columns: dict[str, Ints], signatures: list[Signature], handles: Sequence[CommHandle]
) -> tuple[dict[str, Ints], int]:
    """Leave out rows whose count, or root, is damaged; and whose bytes no process can hold."""
    damaged = np.array([_is_damaged(s) for s in signatures], dtype=bool)
    part = np.array([_part_bytes(s) for s in signatures], dtype=float)
    ranks = np.array([s.nranks or 1 for s in handles], dtype=float)
    large = part.max(initial=0) * ranks.max(initial=0) > MOST_BYTES
    if not damaged.any() and not large:
        return columns, 0
    rows = damaged[columns["sig"]]
    if large:
        rows |= part[columns["sig"]] * ranks[columns["handle"]] > MOST_BYTES
    return {name: values[~rows] for name, values in columns.items()}, int(rows.sum())


def _is_damaged(s: Signature) -> bool:
    bytes_ = s.count * (s.element.itemsize or 1)
    return s.count > MOST_ELEMENTS or bytes_ > MOST_BYTES or s.root >= MOST_RANKS


def _part_bytes(s: Signature) -> int:
    """Bytes of one rank's part, where a call's size is the ranks times that."""
    return s.count * (s.element.itemsize or 1) if s.op.count_is_part else 0


def _size_unknown(s: Signature) -> bool:
    """Whether a call moves elements of a type that is not known."""
    return s.element.itemsize is None and s.count > 0 and not s.flags & POINTERS_ONLY


def _counted(
    doubled: int, alone: int, signatures: list[Signature], columns: dict[str, Ints]
) -> list[Diagnostic]:
    found = []
    if doubled:
        text = "CALL lines of calls that have COLL lines too: counted once"
        found.append(Diagnostic(Severity.INFO, "call_line_twin", text, count=doubled))
    if alone:
        # A log of TUNING lines alone lacks nothing; where others have their call, a line is lost.
        lost = len(columns["handle"]) > 0
        text = "TUNING lines that match no earlier call" + lost * ": lines of calls were lost"
        severity = Severity.DATA_LOSS if lost else Severity.INFO
        found.append(Diagnostic(severity, "tuning_without_call", text, count=alone))
    nameless = np.array([_size_unknown(s) for s in signatures], dtype=bool)
    unknown = int(nameless[columns["sig"]].sum()) if nameless.any() else 0
    if unknown:
        text = "calls of a datatype that no known release has: their sizes are not known"
        found.append(Diagnostic(Severity.NOTICE, "unknown_datatype", text, count=unknown))
    modulo = np.array([bool(s.flags & COUNT_MODULO_2_32) for s in signatures], dtype=bool)
    cut = int(modulo[columns["sig"]].sum()) if modulo.any() else 0
    if cut:
        text = (
            "calls of an RCCL release that prints counts modulo 2^32: calls of 2^32 elements (16"
            " GiB of float32) or more look smaller"
        )
        found.append(Diagnostic(Severity.INFO, "count_modulo_2_32", text, count=cut))
    return found
