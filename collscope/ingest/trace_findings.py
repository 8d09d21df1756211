"""What traces of the ranks of one job disagree on (pure): the same findings as of recordings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from collscope.timeline.analyse import Timeline
from collscope.timeline.consistency import CallFinding
from collscope.timeline.members import rank_list
from collscope.timeline.perfetto import title


def trace_findings(timeline: Timeline) -> list[CallFinding]:
    """Missing and different collectives, and transfers without a partner; the first of each."""
    return [*_missing(timeline), *_different(timeline), *_unpaired(timeline)]


def _missing(timeline: Timeline) -> Iterator[CallFinding]:
    by_rank: dict[tuple[int, int], list[int]] = defaultdict(list)
    for call, trace in timeline.calls.missing():
        by_rank[int(timeline.calls.group[call]), trace].append(call)
    for (group, trace), calls in sorted(by_rank.items()):
        rank, first = timeline.rows.ranks[trace], calls[0]
        seq = int(timeline.calls.seq[first])
        yield CallFinding(
            "missing", _name(timeline, group), (rank,), seq,
            f"Group {_name(timeline, group)}, collective {seq} ({_title(timeline, first)}): "
            f"the trace of rank {rank} lacks it.",
            len(calls),
        )  # fmt: skip


def _different(timeline: Timeline) -> Iterator[CallFinding]:
    calls, rows = timeline.calls, timeline.rows
    wrong = np.flatnonzero(calls.mismatched)
    for group in np.unique(calls.group[wrong]).tolist():
        mine = wrong[calls.group[wrong] == group]
        first = int(mine[0])
        traces = calls.trace[calls.offsets[first] : calls.offsets[first + 1]].tolist()
        ranks = tuple(rows.ranks[t] for t in traces)
        seq = int(calls.seq[first])
        yield CallFinding(
            "different", _name(timeline, group), ranks, seq,
            f"Group {_name(timeline, group)}, collective {seq}: ranks {rank_list(ranks)} do not "
            "agree on its operation, type or size.",
            len(mine),
        )  # fmt: skip


def _unpaired(timeline: Timeline) -> Iterator[CallFinding]:
    rows = timeline.rows
    # A SendRecv kernel of a larger group does not say with whom: that is no disagreement.
    alone = [r for r in timeline.calls.unpaired.tolist() if _told(timeline, r)]
    for trace in sorted({int(rows.trace[r]) for r in alone}):
        mine = [r for r in alone if rows.trace[r] == trace]
        entry = rows.entries[int(rows.entry[mine[0]])]
        name, rank = entry.group or "of unknown name", rows.ranks[trace]
        yield CallFinding(
            "unmatched", name, (rank,), None,
            f"Group {name}: {entry.op.value} of rank {rank} with rank {entry.peer} of the group "
            "has no partner.",
            len(mine),
        )  # fmt: skip


def _told(timeline: Timeline, row: int) -> bool:
    """True for a Send or Recv whose peer has a trace."""
    rows = timeline.rows
    entry = rows.entries[int(rows.entry[row])]
    if not entry.op.point_to_point or entry.peer is None:
        return False
    ranks = entry.group_ranks
    known = ranks is not None and entry.peer < len(ranks)
    return (ranks[entry.peer] if known and ranks else entry.peer) in rows.ranks


def _name(timeline: Timeline, group: int) -> str:
    return timeline.calls.groups[group].name or "of unknown name"


def _title(timeline: Timeline, call: int) -> str:
    return title(timeline.calls.classes[int(timeline.calls.class_[call])])
