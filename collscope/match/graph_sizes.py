"""Sizes of calls that graphs launch, from the log of their capture (pure).

A library logs a call when the host makes it: of a graph's calls once, at the capture. The kernels
of each launch of the graph follow each other as the logged calls do. So a launch is held against
every series of as many logged calls of its rank: its sizes are those of the series that have its
operations and types, where all of these series have the same sizes. The log must hold everything
from the creation of its communicators on, else the capture itself may lack.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collscope.kernel_names import OTHER_LIBRARIES, classify
from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.match.run import CallClass, Matched
from collscope.match.traces import Calls
from collscope.model import Diagnostic, Severity
from collscope.model.trace import Ints, Kind, TraceCollective

_LOGGED_FROM_START = ("commId", "parent/color")  # communicators with lines of their creation
_NONE_FITS = "no series of logged calls has the operations of a launch"
_SEVERAL = "several series of logged calls with other sizes fit a launch"
_CUT = "the logs lack the creation of a communicator, and may lack the capture"
_STREAMS = "their graphs run kernels on several streams"


class GraphSizes(NamedTuple):
    """Classes of calls without a size, by the log."""

    classes: dict[int, int]  # by call of the traces its class, into `Matched.classes`
    why: Counter[str]  # kernels that have none, by reason


class _Launch(NamedTuple):
    """Collectives of one launch of a graph, in their order."""

    rows: Ints
    kinds: tuple[int, ...]  # entry of each, into `Rows.entries`


def sizes_of_logs(rows: Rows, calls: Calls, matched: Matched) -> GraphSizes:
    """Classes of the calls of graphs; `matched` holds the logged calls alone."""
    why: Counter[str] = Counter()
    nameless = np.array([_nameless(entry) for entry in rows.entries] + [False])
    if not matched.comms or not nameless.any():
        return GraphSizes({}, why)
    of_row: dict[int, int] = {}
    for trace, rank in enumerate(rows.ranks):
        logged, cut = _logged(matched, rank)
        if not len(logged):
            continue
        alike: dict[tuple[int, ...], list[_Launch]] = defaultdict(list)
        for launch in _launches(rows, trace, nameless, why):
            alike[launch.kinds].append(launch)
        for kinds, launches in alike.items():
            entries = [rows.entries[kind] for kind in kinds]
            series, reason = (None, _CUT) if cut else _series(matched.classes, logged, entries)
            if series is None:
                why[reason] += len(kinds) * len(launches)
                continue
            for launch in launches:
                of_row.update(zip(launch.rows.tolist(), series, strict=True))
    return GraphSizes(dict(_of_calls(calls, of_row)), why)


def give_classes(matched: Matched, call: Ints, found: GraphSizes) -> int:
    """Give calls without a size the class found for them; how many get one.

    call  per call of the traces its index in the matched run; -1: left out
    """
    class_of, given = matched.calls["class"], 0
    for own, class_ in found.classes.items():
        where = int(call[own])
        if where >= 0 and matched.classes[int(class_of[where])].size_bytes is None:
            class_of[where] = class_
            given += 1
    return given


def diagnostics(sized: int, why: Counter[str]) -> Iterator[Diagnostic]:
    """How many calls have their size from the log, and why others have none."""
    if sized:
        text = (
            "calls that graphs launched have the sizes of the log's calls: all series of logged"
            " calls with the operations of a launch have the same sizes. Each call is assumed to"
            " launch one kernel, as outside of ncclGroupStart and ncclGroupEnd"
        )
        yield Diagnostic(Severity.NOTICE, "sizes_of_log", text, count=sized)
    for reason, kernels in why.most_common():
        text = f"kernels that graphs launched have no size from the logs: {reason}"
        yield Diagnostic(Severity.NOTICE, "no_sizes_of_log", text, count=kernels)


def _nameless(entry: TraceCollective) -> bool:
    """Whether only the name of its kernel is known."""
    known = (entry.in_count, entry.out_count, entry.count_bytes, entry.group)
    return all(part is None for part in known)


def _logged(matched: Matched, rank: int) -> tuple[Ints, bool]:
    """Classes of a rank's logged calls in their order, and whether a log begins later."""
    theirs = [
        c
        for c, comm in enumerate(matched.comms)
        if any(matched.world_ranks[handle] == rank for handle in comm.members.values())
    ]
    own = np.isin(matched.calls["comm"], theirs)
    used = set(np.unique(matched.calls["comm"][own]).tolist())
    cut = any(matched.comms[c].matched_by not in _LOGGED_FROM_START for c in used)
    return matched.calls["class"][own].astype(np.int64), cut


def _launches(
    rows: Rows, trace: int, nameless: npt.NDArray[np.bool_], why: Counter[str]
) -> Iterator[_Launch]:
    """Launches of several kernels at once with collectives of NCCL or RCCL without arguments."""
    span = rows.of(trace)
    kernels = span.start + np.flatnonzero(
        (rows.kind[span] == Kind.KERNEL) & (rows.launch[span] != UNKNOWN_LAUNCH)
    )
    kernels = kernels[np.lexsort((rows.start[kernels], rows.launch[kernels]))]
    library = np.array([_of_library(name) for name in rows.names] + [False])
    _, place, held = np.unique(rows.launch[kernels], return_inverse=True, return_counts=True)
    kernels = kernels[held[place] > 1]
    cuts = np.flatnonzero(np.diff(rows.launch[kernels])) + 1
    for own in np.split(kernels, cuts) if len(kernels) else ():
        chosen = own[(rows.entry[own] >= 0) & library[rows.name[own]]]
        if not len(chosen) or not nameless[rows.entry[chosen]].all():
            continue
        if len(np.unique(rows.stream[own])) > 1:
            why[_STREAMS] += len(chosen)
            continue
        yield _Launch(chosen, tuple(rows.entry[chosen].tolist()))


def _of_library(name: str) -> bool:
    hint = classify(name)
    return hint is not None and hint.family not in OTHER_LIBRARIES


def _series(
    classes: list[CallClass], logged: Ints, entries: list[TraceCollective]
) -> tuple[list[int] | None, str]:
    """Classes of the logged series that a launch's collectives are; None, with the reason."""
    number = len(logged) - len(entries) + 1
    if number < 1:
        return None, _NONE_FITS
    fits = np.ones(number, dtype=bool)
    known: dict[TraceCollective, npt.NDArray[np.bool_]] = {}
    for place, entry in enumerate(entries):
        if entry not in known:
            known[entry] = np.array([_may_be(entry, one) for one in classes])[logged]
        fits &= known[entry][place : place + number]
    at = np.flatnonzero(fits)
    if not len(at):
        return None, _NONE_FITS
    series = logged[at[0] : at[0] + len(entries)]
    sizes = np.array([one.size_bytes or 0 for one in classes], dtype=np.int64)
    for place, own in enumerate(series.tolist()):
        others = logged[at + place]
        if (sizes[others] != sizes[own]).any() or not sizes[own]:
            return None, _SEVERAL
    return series.tolist(), ""


def _may_be(entry: TraceCollective, logged: CallClass) -> bool:
    """Whether a kernel of this name may be of a logged call."""
    if entry.op is not logged.op:
        return False
    # Names of kernels that reduce nothing have one type for all.
    typed = entry.op.reduces and entry.datatype is not None
    return not typed or entry.datatype is logged.datatype


def _of_calls(calls: Calls, of_row: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Calls all of whose rows have one class."""
    rows, call = calls.row.tolist(), calls.call_of_part.tolist()
    found: dict[int, set[int | None]] = defaultdict(set)
    for row, own in zip(rows, call, strict=True):
        if row in of_row or own in found:
            found[own].add(of_row.get(row))
    for own, kinds in found.items():
        (first, *others) = kinds
        if first is not None and not others:
            yield own, first
