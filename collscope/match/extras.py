"""The traces and recordings of a run joined to the calls of its logs (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collscope.match.joining import Joined, join_extra, put_in_order
from collscope.match.recordings import recorded_groups
from collscope.match.rows import Rows
from collscope.match.run import Matched
from collscope.match.trace_calls import GroupCalls, traced_groups
from collscope.match.traces import Calls
from collscope.model import Diagnostic, Severity
from collscope.model.trace import Ints, RecordedCalls


def join_extras(
    matched: Matched,
    recordings: Sequence[RecordedCalls],
    rows: Rows,
    calls: Calls,
    arrival: Ints,
) -> Ints:
    """Join recordings, then traces, to `matched`, which gets what it lacks.

    arrival  per call of the traces ns on a clock that all have in common
    returns  per call of the traces its index in the matched run; -1: left out
    """
    alone = not matched.comms
    recorded = recorded_groups(recordings)
    traced = traced_groups(rows, calls, arrival)
    first = join_extra(matched, [g.group for g in recorded], "recordings")
    second = join_extra(matched, [g.group for g in traced], "traces")
    if alone:
        _order(matched, recorded, traced, (first, second))
    index = np.full(len(calls), -1, dtype=np.int64)
    for group, found in zip(traced, second.call, strict=True):
        index[group.index] = found
    return index


def first_of_rank(
    recordings: Sequence[RecordedCalls],
) -> tuple[list[RecordedCalls], list[Diagnostic]]:
    """Recordings without a second one of a rank by the same recorder, whatever its form."""
    first: dict[tuple[str, object], RecordedCalls] = {}
    for k, recorded in enumerate(recordings):
        # flight_pickle and flight_recorder, rccl_recorder_text and rccl_recorder_binary
        recorder = recorded.dialect.split("_")[0]
        rank = ("unknown", k) if recorded.rank is None else recorded.rank
        first.setdefault((recorder, rank), recorded)
    twice = len(recordings) - len(first)
    text = "recordings of ranks that already have one: left out"
    note = Diagnostic(Severity.NOTICE, "rank_recorded_twice", text, count=twice)
    return list(first.values()), [note] if twice else []


def _order(
    matched: Matched,
    recorded: list[GroupCalls],
    traced: list[GroupCalls],
    joined: tuple[Joined, Joined],
) -> None:
    """Calls in the order of the traces' time; of recordings' where there are no traces.

    The clocks of traces and of recordings differ, so that one of them must count for all.
    """
    both = Joined([*joined[0].call, *joined[1].call])
    when = [np.zeros_like(g.when) if traced else g.when for g in recorded]
    when += [g.when for g in traced]
    put_in_order(matched, both, when)
    joined[0].call[:] = both.call[: len(recorded)]
    joined[1].call[:] = both.call[len(recorded) :]
