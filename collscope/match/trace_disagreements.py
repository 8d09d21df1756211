"""What traces of the ranks of one job disagree on (pure): the same findings as of recordings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from collscope.match.consistency import CallFinding
from collscope.match.members import rank_list
from collscope.match.rows import Rows, title
from collscope.match.traces import Calls


def trace_findings(rows: Rows, calls: Calls) -> list[CallFinding]:
    """Missing and different collectives, and transfers without a partner; the first of each."""
    return [*_missing(rows, calls), *_different(rows, calls), *_unpaired(rows, calls)]


def _missing(rows: Rows, calls: Calls) -> Iterator[CallFinding]:
    by_rank: dict[tuple[int, int], list[int]] = defaultdict(list)
    for call, trace in calls.missing():
        by_rank[int(calls.group[call]), trace].append(call)
    for (group, trace), lacked in sorted(by_rank.items()):
        rank, first = rows.ranks[trace], lacked[0]
        seq = int(calls.seq[first])
        yield CallFinding(
            "missing", _name(calls, group), (rank,), seq,
            f"Group {_name(calls, group)}, collective {seq} ({_title(calls, first)}): "
            f"the trace of rank {rank} lacks it.",
            len(lacked),
        )  # fmt: skip


def _different(rows: Rows, calls: Calls) -> Iterator[CallFinding]:
    wrong = np.flatnonzero(calls.mismatched)
    for group in np.unique(calls.group[wrong]).tolist():
        own = wrong[calls.group[wrong] == group]
        first = int(own[0])
        traces = calls.trace[calls.offsets[first] : calls.offsets[first + 1]].tolist()
        ranks = tuple(rows.ranks[t] for t in traces)
        seq = int(calls.seq[first])
        yield CallFinding(
            "different", _name(calls, group), ranks, seq,
            f"Group {_name(calls, group)}, collective {seq}: ranks {rank_list(ranks)} do not "
            "agree on its operation, type or size.",
            len(own),
        )  # fmt: skip


def _unpaired(rows: Rows, calls: Calls) -> Iterator[CallFinding]:
    # A SendRecv kernel of a larger group does not say with whom: that is no disagreement.
    alone = [r for r in calls.unpaired.tolist() if _has_traced_peer(rows, r)]
    for trace in sorted({int(rows.trace[r]) for r in alone}):
        own = [r for r in alone if rows.trace[r] == trace]
        entry = rows.entries[int(rows.entry[own[0]])]
        name, rank = entry.group or "of unknown name", rows.ranks[trace]
        yield CallFinding(
            "unmatched", name, (rank,), None,
            f"Group {name}: {entry.op.value} of rank {rank} with rank {entry.peer} of the group "
            "has no partner.",
            len(own),
        )  # fmt: skip


def _has_traced_peer(rows: Rows, row: int) -> bool:
    """True for a Send or Recv whose peer has a trace."""
    entry = rows.entries[int(rows.entry[row])]
    if not entry.op.point_to_point or entry.peer is None:
        return False
    ranks = entry.group_ranks
    known = ranks is not None and entry.peer < len(ranks)
    return (ranks[entry.peer] if known and ranks else entry.peer) in rows.ranks


def _name(calls: Calls, group: int) -> str:
    return calls.groups[group].name or "of unknown name"


def _title(calls: Calls, call: int) -> str:
    return title(calls.classes[int(calls.class_[call])])
