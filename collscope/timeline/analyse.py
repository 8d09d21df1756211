"""The whole analysis of the traces of one job, in order (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from collscope.match.rows import Rows, gather_host, gather_rows
from collscope.match.traces import Calls, match_calls
from collscope.model.trace import HostCalls, Ints, TraceFile
from collscope.timeline.clocks import Clocks, estimate_clocks
from collscope.timeline.late import late_ranks
from collscope.timeline.overlap import rank_overlaps
from collscope.timeline.records import LateRank, RankOverlap, RankTimes
from collscope.timeline.steps import Steps, find_steps
from collscope.timeline.waits import CallTimes, call_times, rank_times

if TYPE_CHECKING:
    from collscope.timeline.causes.host_record import Polls
    from collscope.timeline.recorded_job import RecordedJob


class Timeline(msgspec.Struct, frozen=True):
    """What the traces of one job show together, as the store keeps it with the run."""

    rows: Rows
    calls: Calls
    clocks: Clocks
    times: CallTimes
    steps: Steps
    exposed: Ints  # (rows,) ns of each collective that compute does not hide
    host: tuple[HostCalls | None, ...]  # calls of each trace's host, where recorded

    def recorded(
        self, steps: int | None = None, *, uneven: bool = False, polls: Polls | None = None
    ) -> RecordedJob:
        """Steps and dependencies, for predictions.

        steps   number of steps in each trace, where that is known; else they are found
        uneven  steps that do not equal each other count, too
        polls   waits of the hosts that no call shows
        """
        from collscope.timeline.recorded_job import prepare  # noqa: PLC0415 - an ingest predicts nothing

        own = self.steps
        if steps is not None or (uneven and own.source == "window"):
            own = find_steps(self.rows, self.calls, self.times, steps, uneven=uneven)
        return prepare(
            self.rows, self.calls, self.times, own, self.clocks,
            exposed=self.exposed, host=self.host, polls=polls,
        )  # fmt: skip


class RankedTimeline(Timeline, frozen=True):
    """A timeline just made, with the figures of its ranks, which views show."""

    ranks: tuple[RankTimes, ...]
    late: tuple[LateRank, ...]  # latest in total first
    overlaps: tuple[RankOverlap, ...]


def analyse(traces: Sequence[TraceFile]) -> RankedTimeline:
    """Waits, stragglers and overlap of a job from any subset of its ranks' traces."""
    rows = gather_rows(traces)
    calls = match_calls(rows)
    clocks = estimate_clocks(rows, calls)
    times = call_times(rows, calls, clocks)
    steps = find_steps(rows, calls, times)
    overlaps, exposed = rank_overlaps(rows, calls, times, steps.pauses)
    return RankedTimeline(
        rows=rows,
        calls=calls,
        clocks=clocks,
        times=times,
        steps=steps,
        exposed=exposed,
        ranks=tuple(rank_times(rows, calls, times)),
        late=tuple(late_ranks(rows, calls, times, clocks, exposed)),
        overlaps=tuple(overlaps),
        host=gather_host(traces),
    )
