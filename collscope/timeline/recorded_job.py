"""A recorded job, as predictions and explanations start from it (pure)."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model.profile import other_profilers
from collscope.model.trace import Call, HostCalls, Ints
from collscope.model.trace_collective import shows_cpu_activities
from collscope.timeline.causes.build import build_graph
from collscope.timeline.causes.host_record import Polls
from collscope.timeline.clocks import Clocks
from collscope.timeline.contention import Contention, measure_contention
from collscope.timeline.exchanges import with_exchanges
from collscope.timeline.graph import Graph
from collscope.timeline.play import Played, Substitutions, play
from collscope.timeline.starts import Starts, find_starts
from collscope.timeline.steps import Steps
from collscope.timeline.waits import CallTimes, call_times, clocks_apart

Floats = npt.NDArray[np.float64]


class RecordedJob(msgspec.Struct, frozen=True, dict=True):
    """What predictions and explanations start from."""

    rows: Rows
    calls: Calls
    times: CallTimes
    exposed: Ints  # (rows,)
    steps: Steps
    graph: Graph
    contention: Contention
    # The calls of the graph: with Sends and Recvs whose peer no trace names, by the clock.
    linked: Calls
    linked_times: CallTimes
    full: bool  # the profiler recorded CPU activities, too
    host_calls: bool  # all traces have the calls of their hosts
    event_records: bool  # and those that wait for events have their records too

    @property
    def blocks(self) -> float | None:
        """Thread blocks of the collectives' kernels, the median by time; None where not known."""
        blocks = thread_blocks(self.rows, self.linked)[self.linked.call_of_part]
        order = np.argsort(blocks)[: np.isfinite(blocks).sum()]  # NaN is last
        spent = np.cumsum((self.linked_times.end - self.linked_times.start)[order])
        return float(blocks[order][np.searchsorted(spent, spent[-1] / 2)]) if len(order) else None

    @property
    def profiler(self) -> str:
        """What was recorded, and how: a key of `HOST_PRIOR`."""
        if other_profilers(self.rows.dialects):
            return "other"
        return "full" if self.full else "light"

    @property
    def groups_inferred(self) -> int:
        """Process groups of some of the ranks that no trace names: whose calls end together."""
        groups, ranks = self.calls.groups, len(self.rows.ranks)
        return sum(g.identity == "inferred" and 1 < len(g.members) < ranks for g in groups)

    @cached_property
    def step_ns(self) -> float | None:
        """Step time as recorded; None without steps."""
        return self.steps.mean_ns(self.rows.end)

    @cached_property
    def simulated(self) -> Played:
        """The record played from its causes alone, without the recorded starts."""
        return play(self.graph, Substitutions(usual=True))

    @cached_property
    def starts(self) -> Starts | None:
        """Where the collectives of a step started."""
        return find_starts(self.rows, self.linked, self.steps, self.rows.start, self.rows.end)

    def starts_off_ns(self, played: Played, starts: Starts | None) -> float | None:
        """How far played collectives start from `starts`, at the median."""
        begin = played.time[self.graph.start_node]
        found = find_starts(self.rows, self.linked, self.steps, begin, played.end)
        return None if found is None or starts is None else found.apart_ns(starts)

    def step(self, played: Played) -> float:
        """Step time as played, ns; 0 without steps."""
        return self.steps.mean_ns(played.end) or 0.0


def prepare(  # noqa: PLR0913 - what an analysis found
    rows: Rows,
    calls: Calls,
    times: CallTimes,
    steps: Steps,
    clocks: Clocks,
    *,
    exposed: Ints,
    host: tuple[HostCalls | None, ...],
    polls: Polls | None = None,
) -> RecordedJob:
    """Causes of a record beside its steps; several predictions may share them."""
    linked, linked_times = link(rows, calls, times, clocks)
    graph = build_graph(rows, host, linked, linked_times, clocks, polls)
    contention = measure_contention(rows, linked)
    known_hosts = [h for h in host if h is not None]
    return RecordedJob(
        rows, calls, times, exposed, steps, graph, contention, linked, linked_times,
        full=rows.operators or shows_cpu_activities(rows.entries),
        host_calls=len(known_hosts) == len(host),
        event_records=all(
            (h.kind == Call.RECORD).any() or not (h.kind == Call.WAIT).any() for h in known_hosts
        ),
    )  # fmt: skip


def link(rows: Rows, calls: Calls, times: CallTimes, clocks: Clocks) -> tuple[Calls, CallTimes]:
    """The calls that a graph is made of: with Sends and Recvs paired by the clock."""
    linked, same = with_exchanges(rows, calls, clocks)
    alike = linked is calls and np.array_equal(same.component, clocks.component)
    return linked, times if alike else call_times(rows, linked, same)


def lone_exchanges(recorded: RecordedJob) -> tuple[float | None, float]:
    """Share of a step's Sends and Recvs that have no partner; what they may wait for it, ns a step.

    No share where the traces name all peers, or there is no Send and no Recv.
    """
    calls, rows, steps = recorded.linked, recorded.rows, recorded.steps
    begin, finish = steps.span(rows.end, len(rows.ranks))
    end = rows.end[calls.row]
    inside = (end > begin[calls.trace]) & (end <= finish[calls.trace])
    point = inside & calls.p2p[calls.call_of_part]
    alone = point & (calls.seen < calls.expected)[calls.call_of_part]
    if calls is recorded.calls or not point.any():
        return None, 0.0
    longer = recorded.graph.transfer - recorded_transfers(recorded)
    of_rank = np.bincount(calls.trace[alone], weights=longer[alone], minlength=1)
    return float(alone.sum() / point.sum()), float(of_rank.max() / steps.count.max())


def recorded_transfers(recorded: RecordedJob) -> Floats:
    """Transfer of each part; where waiting cannot be separated from it, the shortest of its class.

    The shortest of its call, where all ranks were seen.
    """
    graph, calls = recorded.graph, recorded.linked
    class_ = calls.class_[calls.call_of_part]
    least = np.full(len(calls.classes), np.inf)
    np.minimum.at(least, class_, graph.transfer)
    found: Floats = np.where(graph.alone, np.minimum(least[class_], graph.transfer), graph.transfer)
    bounded = clocks_apart(calls, recorded.linked_times)
    if bounded.any():
        shortest = np.minimum.reduceat(graph.transfer, calls.offsets[:-1])
        found = np.where(bounded[calls.call_of_part], shortest[calls.call_of_part], found)
    return found


def thread_blocks(rows: Rows, calls: Calls) -> Floats:
    """Thread blocks of each call's kernels; NaN where not known."""
    entry_blocks = np.array([e.blocks or np.nan for e in rows.entries] + [np.nan])
    return entry_blocks[rows.entry[calls.row[calls.offsets[:-1]]]]
