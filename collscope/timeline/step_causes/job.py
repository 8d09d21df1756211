"""A recorded job as the search for causes reads it: whole steps, places, hosts (pure)."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from collscope import _align
from collscope.match.rows import UNKNOWN_LAUNCH
from collscope.model.op import Op
from collscope.model.trace import Call, HostCalls, Ints, Kind
from collscope.timeline.causes.host_record import Polls
from collscope.timeline.graph import FIRST, HOST, NEVER
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.step_causes.tolerances import (
    LONG_STEP,
    MAX_LACKING,
    MIN_RECURRENCES,
    STRETCHED_INTERVAL,
)
from collscope.timeline.tolerances import (
    MAX_BESIDE_ALONE,
    MIN_BESIDE,
    MIN_PAIRED_TIME,
    SLOWDOWN_PRIOR,
    STARTS,
)

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


_MOVES_DATA = "at::native::"  # in the names of PyTorch's kernels
_EXCHANGES = (Op.ALL_TO_ALL, Op.ALL_TO_ALLV, Op.SEND_RECV, Op.SEND, Op.RECV)


class Pairing(msgspec.Struct, frozen=True):
    """Rows of one rank's step beside those of another rank's."""

    own: Ints  # rows in the order of launches
    partner: Ints  # the other rank's row at the same place; -1: it has none there
    other: Ints  # all rows of the other


class Job:
    """What a search for causes reads of a recorded job."""

    def __init__(
        self,
        recorded: RecordedJob,
        host: tuple[HostCalls | None, ...],
        step_ns: float | None = None,
        polls: Polls | None = None,
    ) -> None:
        """Read a recorded job.

        host     calls of each trace's host, None where the source has none
        step_ns  mean step without the profiler, where it was measured
        polls    waits of the hosts that no call shows, and that the recorded job has
        """
        self.recorded, self.host, self._given = recorded, host, step_ns
        self.polls = polls
        self.rows, self.graph, self.steps = recorded.rows, recorded.graph, recorded.steps
        self.calls, self.times = recorded.linked, recorded.linked_times
        self.traces = self.steps.traces.tolist()
        self.count = int(self.steps.count.max(initial=0))
        self._places: dict[tuple[int, int], Ints] = {}  # by `_step_kind` of two steps
        self._beside: dict[tuple[int, int, int | None], tuple[Ints, Ints]] = {}

    @property
    def whole_job(self) -> bool:
        """Every rank of the job has a trace, as far as its size is known."""
        size = self.rows.world_size or self.rows.least_size
        return len(self.rows.ranks) >= size

    @cached_property
    def ends(self) -> Floats:
        """Moments of the recorded boundaries, shape (steps + 1, traces)."""
        return self.steps.ends(self.rows.end)

    @cached_property
    def long(self) -> Bools:
        """(steps,) those more than twice as long as the shortest, where they are not the most.

        They do what a usual step does, and more: one that lacks much of that is another phase of
        the job, as of two models that train in turns.

        Where there is none, those that a pause of a host makes longer, if the job has more of them:
        its mean step without the profiler is longer than each recorded step without a pause.
        """
        found: Bools = self.lengths > LONG_STEP * self.lengths.min(initial=np.inf)
        if 2 * found.sum() <= self.count and found.any():
            like = int(np.flatnonzero(~found)[0])
            found[[s for s in np.flatnonzero(found).tolist() if self._lacks(s, like)]] = False
            if found.any():
                return found
        none = np.zeros(self.count, dtype=bool)
        if self._given is None or self.count < MIN_RECURRENCES:
            return none
        paused = self._paused
        if not paused.any() or 2 * paused.sum() > self.count:
            return none
        usual = float(self.lengths[~paused].max())
        recur = self._given * (1 - STARTS) > usual
        return paused if recur and self.lengths[paused].min() > (1 + STARTS) * usual else none

    def _lacks(self, step: int, like: int) -> bool:
        """Whether a step lacks much of what another one has, on any rank."""
        for trace in self.traces:
            pair = self.pair_steps(trace, step, like)
            if (pair.partner >= 0).sum() < (1 - MAX_LACKING) * len(pair.other):
                return True
        return False

    @property
    def _paused(self) -> Bools:
        """(steps,) those in which a host pauses for more than such a step is longer."""
        longest = np.zeros((len(self.traces), self.count))
        for column, trace in enumerate(self.traces):
            for step in range(self.count):
                longest[column, step] = self.interval[self.in_step(trace, step)].max(initial=0.0)
        more = self.lengths - self.lengths.min()
        found: Bools = ((longest > self.stall) & (longest >= more)).any(axis=0)
        return found

    @cached_property
    def used(self) -> Bools:
        """(steps,) those that a cause is held against: the usual ones that are known whole."""
        known = np.arange(self.count) >= self.count - self.counted
        usual: Bools = known & ~self.long
        return usual if usual.any() else ~self.long

    @cached_property
    def lengths(self) -> Floats:
        """ns of each whole step as recorded, of the rank whose step is the longest."""
        found: Floats = np.diff(self.ends, axis=0).max(axis=1)
        return found

    @cached_property
    def step_of_row(self) -> Ints:
        """Whole step in which each row ends; -1: none."""
        found = np.full(len(self.rows), -1)
        for column, trace in enumerate(self.traces):
            own_rows = self.rows.of(trace)
            step = np.searchsorted(self.ends[:, column], self.rows.end[own_rows], side="left") - 1
            found[own_rows] = np.where(step < self.count, step, -1)
        return found

    @cached_property
    def contention(self) -> tuple[tuple[Floats, Floats], ...]:
        """Readings: (rows,) ns of each row with nothing beside it, and its slowdown beside one.

        Where the record does not show the slowdown it may be none, or as much as is known of other
        jobs. It shows none where the same kernels last longer alone on one rank than beside a
        collective on another: then the first of these ranks is the slower one. Where ranks have
        different amounts of work it shows too little for the same reason. What two ranks run both
        alone shows how much slower one is.
        """
        known, duration = self.recorded.contention, self.graph.duration.astype(np.float64)
        alone = known.alone(duration, known.slowdown)
        own = alone, known.slowdown
        inside = self.compute & (self.step_of_row >= 0)
        work = np.bincount(self.rows.trace[inside], alone[inside], len(self.rows.ranks))
        work = work[self.traces]
        if known.mean and work.max() <= (1 + STARTS) * work.min():
            return (own,)
        between = self._slowdown_between_ranks
        if between is not None:
            slowdown = np.where(self.graph.compute, between, 0.0)
            return ((known.alone(duration, slowdown), slowdown),)
        prior = np.where(self.graph.compute, np.maximum(SLOWDOWN_PRIOR, known.slowdown), 0.0)
        return own, (known.alone(duration, prior), prior)

    @cached_property
    def _slowdown_between_ranks(self) -> float | None:
        """Slowdown of what one rank runs beside a collective, and another alone.

        Against how much longer the first rank's kernels last where both run them alone. None: too
        few are such.
        """
        share = self.recorded.contention.share
        lasted = (self.rows.end - self.rows.start).astype(np.float64)
        beside = expected = 0.0
        for trace in self.traces:
            other = self.like(trace)
            if other is None:
                continue
            own, there = self.beside(trace, other)
            paired = (there >= 0) & self.compute[own] & self.compute[there]
            paired &= share[there] < MAX_BESIDE_ALONE
            own, there = own[paired], there[paired]
            both, one = share[own] < MAX_BESIDE_ALONE, share[own] > MIN_BESIDE
            longer = lasted[own][both].sum() / max(1.0, lasted[there][both].sum())
            beside += float(lasted[own][one].sum())
            expected += float(longer * lasted[there][one].sum())
        inside = self.compute & (self.step_of_row >= 0)
        if expected <= MIN_PAIRED_TIME * float(lasted[inside].sum()):
            return None
        return max(0.0, beside / expected - 1)

    @cached_property
    def duration(self) -> Floats:
        """ns of each row with nothing beside it, as far as the record shows; 0 of collectives."""
        known = self.recorded.contention
        return known.alone(self.graph.duration.astype(np.float64), known.slowdown)

    @cached_property
    def busy_ns(self) -> float:
        """What the kernels of a step last on the rank with the most of them, beside nothing."""
        inside = self.compute & (self.step_of_row >= 0)
        spent = np.bincount(self.rows.trace[inside], self.duration[inside], len(self.rows.ranks))
        return float(spent.max()) / max(1, self.count)

    def launched(self, trace: int) -> Ints:
        """Rows of a trace in the order of their launches; of their starts where none is known."""
        return self._launched[trace]

    def in_step(self, trace: int, step: int) -> Ints:
        """Rows of a trace that end in a whole step, in the order of their launches."""
        return self._in_steps[trace][step]

    @cached_property
    def _launched(self) -> tuple[Ints, ...]:
        found = []
        for begin, end in pairwise(self.rows.bounds.tolist()):
            own_rows = np.arange(begin, end)
            # What was launched before the trace began comes first, as it ran.
            order = np.lexsort((self.rows.start[own_rows], self.rows.launch[own_rows]))
            found.append(own_rows[order])
        return tuple(found)

    @cached_property
    def _in_steps(self) -> dict[int, list[Ints]]:
        """Of each trace, the rows of each whole step in the order of their launches."""
        found = {}
        for trace in self.traces:
            order = self.launched(trace)
            step = self.step_of_row[order]
            by_step = np.argsort(step, kind="stable")
            bounds = np.searchsorted(step[by_step], np.arange(self.count + 1))
            found[trace] = [order[by_step[a:b]] for a, b in pairwise(bounds.tolist())]
        return found

    @cached_property
    def _place(self) -> Ints:
        """(rows,) place of each row among the launches of its trace."""
        found = np.empty(len(self.rows), dtype=np.int64)
        for order in self._launched:
            found[order] = np.arange(len(order))
        return found

    @cached_property
    def key(self) -> npt.NDArray[np.uint64]:
        """What must be equal of rows at the same place: kernel, or kind of collective."""
        ops = {op: k for k, op in enumerate(dict.fromkeys(e.op for e in self.rows.entries))}
        op = np.array([ops[e.op] for e in self.rows.entries] + [0], dtype=np.int64)
        name = self.rows.name.astype(np.int64) + 1
        own = np.where(self.rows.entry >= 0, op[self.rows.entry], len(ops) + name)
        return own.astype(np.uint64)

    def beside(self, trace: int, other: int) -> tuple[Ints, Ints]:
        """Rows of a rank's whole steps and what another runs at the same places; -1: nothing."""
        return self._together(trace, other, None)

    def beside_last(self, trace: int) -> tuple[Ints, Ints]:
        """Rows of a rank's whole steps and those of the last step at the same places; -1: none."""
        return self._together(trace, trace, self.count - 1)

    def _together(self, trace: int, other: int, step: int | None) -> tuple[Ints, Ints]:
        """Rows of all whole steps beside those of another rank, or of one step."""
        if (trace, other, step) not in self._beside:
            pairs = [
                self._pair((trace, s), (other, s if step is None else step))
                for s in range(self.count)
            ]
            self._beside[trace, other, step] = (
                np.concatenate([p.own for p in pairs]),
                np.concatenate([p.partner for p in pairs]),
            )
        return self._beside[trace, other, step]

    def pair_steps(self, trace: int, step: int, other: int) -> Pairing:
        """Rows of one step beside those of another step of the same rank."""
        return self._pair((trace, step), (trace, other))

    def _pair(self, one: tuple[int, int], other: tuple[int, int]) -> Pairing:
        own, there = self.in_step(*one), self.in_step(*other)
        kinds = self._step_kind[one], self._step_kind[other]
        if kinds[0] == kinds[1]:
            return Pairing(own, there, there)
        if kinds not in self._places:
            place = _align.align(self.key[there], self.key[own]).astype(np.int64)
            self._places[kinds] = place
        return Pairing(own, np.append(there, -1)[self._places[kinds]], there)

    @cached_property
    def _step_kind(self) -> dict[tuple[int, int], int]:
        """Of each trace and step a number, equal where the rows have equal keys in their order."""
        known: dict[bytes, int] = {}
        return {
            (trace, step): known.setdefault(
                self.key[self.in_step(trace, step)].tobytes(), len(known)
            )
            for trace in self.traces
            for step in range(self.count)
        }

    @cached_property
    def counted(self) -> int:
        """Steps, the last ones, that are known whole: what the host did before the first
        launch of a trace is not."""
        for trace in self.traces:
            first = self.in_step(trace, 0)[:1]
            begins = len(first) and first[0] in self.launched(trace)[:2]  # with the trace
            if len(first) and (begins or not self.interval[first[0]]) and self.count > 1:
                return self.count - 1
        return self.count

    def partners(self, trace: int, other: int) -> tuple[Ints, Ints, Ints]:
        """As `beside`, with the places of the partners' launches; -2 where there is none."""
        own, partner = self.beside(trace, other)
        return own, partner, np.where(partner >= 0, self._place[partner], -2)

    def like(self, trace: int) -> int | None:
        """The rank to compare a rank with: among all but it, the one in the middle by work."""
        others = [t for t in self._by_work if t != trace]
        return others[(len(others) - 1) // 2] if others else None

    @cached_property
    def _by_work(self) -> list[int]:
        """Traces in the order of what their kernels take in whole steps."""
        inside = self.step_of_row >= 0
        work = [
            float(self.duration[rows][inside[rows]].sum())
            for rows in map(self.rows.of, self.traces)
        ]
        return [self.traces[k] for k in np.argsort(work, kind="stable").tolist()]

    # Hosts: intervals between launches that follow the same synchronising call.

    @cached_property
    def interval(self) -> Floats:
        """ns of the host before each row's launch, from the launch before it or from the call that
        made it wait; 0 where that is not known, or within one launch."""
        found = np.zeros(len(self.rows))
        for trace in range(len(self.rows.ranks)):
            order = self.launched(trace)
            order = order[self.rows.launch[order] != UNKNOWN_LAUNCH]
            node = self.graph.start_node[order] - FIRST
            since, work = self.graph.before[HOST, node], self.graph.work[node].astype(np.float64)
            same = np.append(False, (since[1:] == since[:-1]) & (since[1:] >= FIRST))
            found[order] = np.where(
                same, work - np.append(0.0, work[:-1]), np.where(since >= FIRST, work, 0)
            )
            if len(order):
                found[order[0]] = 0.0  # the trace begins there
        return np.maximum(found, 0.0)

    @cached_property
    def usual_interval(self) -> float:
        """Median of the hosts' time between two launches, ns."""
        known = self.interval[self.interval > 0]
        return float(np.median(known)) if len(known) else 0.0

    @cached_property
    def call_ns(self) -> Floats:
        """ns that the call lasted which launched each row; 0 where that is not known."""
        found = np.zeros(len(self.rows))
        for trace, calls in enumerate(self.host):
            if calls is not None and len(calls):
                lasted = (calls.end_ns - calls.start_ns).astype(np.float64)
                found[self.rows.of(trace)] = np.where(calls.of_row >= 0, lasted[calls.of_row], 0.0)
        return found

    @cached_property
    def queued(self) -> Floats:
        """(rows,) ns before each row's launch in the launch before, where that returned before the
        GPU came to what it launched: a host far ahead of its GPU waits in it for a place in the
        queue."""
        returned = self.rows.launch + self.call_ns
        ahead = (self.rows.launch != UNKNOWN_LAUNCH) & (self.rows.start > returned)
        return self.before_next(np.where(ahead, self.call_ns, 0.0))

    @cached_property
    def idle_before(self) -> Floats:
        """(rows,) ns for which nothing ran on each row's GPU before it."""
        found = np.zeros(len(self.rows))
        for trace in range(len(self.rows.ranks)):
            own_rows = self.rows.of(trace)
            reach = np.maximum.accumulate(self.rows.end[own_rows])
            idle = self.rows.start[own_rows][1:] - reach[:-1]
            found[own_rows][1:] = np.maximum(idle, 0)
        return found

    @property
    def usual_call(self) -> float:
        """What a launch takes that waits for nothing, ns: 5 to 8 us at the median of H200 jobs."""
        return 6_000.0

    @cached_property
    def waited_for(self) -> Bools:
        """(rows,) the launch returned when the row was done, on ranks where most launches do so."""
        found = np.zeros(len(self.rows), dtype=bool)
        for trace, calls in enumerate(self.host):
            if calls is None or not len(calls):
                continue
            own_rows, known = self.rows.of(trace), calls.of_row >= 0
            end = np.where(known, calls.end_ns[calls.of_row] - self.rows.base_ns, 0)
            behind = known & (end >= self.rows.end[own_rows])
            found[own_rows] = behind & (behind.sum() > 0.5 * known.sum())
        return found

    @cached_property
    def blocked(self) -> Floats:
        """(rows,) ns before each row's launch in which the launch before waited for its row."""
        longer = np.maximum(self.call_ns - self.usual_call, 0.0)
        return self.before_next(np.where(self.waited_for, longer, 0.0))

    @cached_property
    def blocked_by_gpu(self) -> Floats:
        """(rows,) of `blocked`, the time for which the row ran.

        The rest is the driver's, before the row starts and after it ends: a profiler records the
        launch and the kernel there, and makes it longer, as it does other calls of a host.
        """
        longer = np.maximum(self.call_ns - self.usual_call, 0.0)
        ran = np.minimum(longer, self.rows.end - self.rows.start)
        return self.before_next(np.where(self.waited_for, ran, 0.0))

    def before_next(self, host_ns: Floats) -> Floats:
        """(rows,) what the host spends in launching a row, as time before the launch behind it."""
        found = np.zeros(len(self.rows))
        for trace in range(len(self.rows.ranks)):
            order = self.launched(trace)
            found[order[1:]] = np.minimum(host_ns[order[:-1]], self.interval[order[1:]])
        return found

    @property
    def stretched(self) -> float:
        """The longest interval that the profiler may make much longer, ns.

        It costs a host so much a call: an interval with few calls in it is stretched by as much as
        that many others are.
        """
        return STRETCHED_INTERVAL * self.usual_interval

    @property
    def stall(self) -> float:
        """Time in which a host usually makes a hundred launches, ns: it does something else."""
        return 100 * self.usual_interval

    @cached_property
    def segments(self) -> tuple[Ints, Ints]:
        """Nodes that follow a synchronising call by host work, segment by segment, and its bounds.

        In each the order is that of the work. Places as in `Graph.before`, less `FIRST`.
        """
        since = self.graph.before[HOST]
        chosen = np.flatnonzero((since >= FIRST) & (self.graph.part < 0))
        chosen = chosen[np.lexsort((self.graph.work[chosen], since[chosen]))]
        cuts = np.flatnonzero(np.diff(since[chosen])) + 1
        return chosen, np.concatenate([[0], cuts, [len(chosen)]]).astype(np.int64)

    @cached_property
    def sync_call(self) -> dict[int, tuple[int, int]]:
        """Trace and call of each node (less `FIRST`) at which a host went on after it waited."""
        graph = self.graph
        nodes = np.flatnonzero((graph.row < 0) & (graph.before[1:] != NEVER).any(axis=0))
        found: dict[int, tuple[int, int]] = {}
        for trace, calls in enumerate(self.host):
            if calls is None:
                continue
            # Times of the graph are on the common clock: the offset is that of the rows.
            own_rows = nodes[graph.trace[nodes] == trace]
            row = int(self.rows.bounds[trace])
            if not len(own_rows) or row >= len(self.rows):
                continue
            shift = int(graph.time[graph.start_node[row] - FIRST]) - int(self.rows.start[row])
            end = calls.end_ns - self.rows.base_ns + shift
            order = np.argsort(end, kind="stable")
            place = np.clip(np.searchsorted(end[order], graph.time[own_rows]), 0, len(order) - 1)
            for node, k in zip(own_rows.tolist(), order[place].tolist(), strict=True):
                if abs(int(end[k]) - int(graph.time[node])) <= 1_000:
                    found[node] = trace, k
        return found

    def call_kind(self, trace: int, call: int) -> Call:
        """What a host's call does."""
        calls = self.host[trace]
        return Call.LAUNCH if calls is None else Call(int(calls.kind[call]))

    @cached_property
    def exchange(self) -> Bools:
        """(rows,) collectives by which ranks send each other what they work on."""
        ops = np.array([e.op in _EXCHANGES for e in self.rows.entries] + [False])
        found: Bools = ops[self.rows.entry]
        return found

    @cached_property
    def point_to_point(self) -> Bools:
        """(rows,) exchanges between two ranks, as between stages of a pipeline."""
        ops = [e.op.point_to_point or e.op is Op.SEND_RECV for e in self.rows.entries]
        found: Bools = np.array([*ops, False])[self.rows.entry]
        return found

    @cached_property
    def compute(self) -> Bools:
        """(rows,) kernels that are no collective."""
        found: Bools = (self.rows.kind == Kind.KERNEL) & (self.rows.entry < 0)
        return found

    @cached_property
    def follows_clock(self) -> Bools:
        """(rows,) kernels that may last longer at a lower clock of the GPU.

        PyTorch's own kernels move data. The memory sets their pace, and its clock is fixed.
        Matrix products, attention and convolutions come from libraries or a compiler.
        """
        moves = np.array([_MOVES_DATA in name for name in self.rows.names] + [False])
        found: Bools = self.compute & ~moves[self.rows.name]
        return found

    def name(self, row: int) -> str:
        """Name of what a row is."""
        if row < 0:
            return ""
        if self.rows.entry[row] >= 0:
            return str(self.rows.entries[self.rows.entry[row]].op.value)
        number = int(self.rows.name[row])
        return self.rows.names[number] if number >= 0 else ""
