"""The recorded steps played without something (pure)."""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.timeline.assumptions import host_prior
from collscope.timeline.graph import FIRST
from collscope.timeline.play import Substitutions, TakenOut, play
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Change
from collscope.timeline.tolerances import GIVEN_STEP_ERROR, HOST_STARTS, MIN_STEP_REST, STARTS

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
_PACES = np.array([0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
_SLOWER = np.array([1.0 + HOST_STARTS / 2, 1.0 + HOST_STARTS])  # in another start
NOTHING = Change()


class Reading(msgspec.Struct, frozen=True):
    """One reading of what the recording does not show.

    pace      of the hosts without the profiler, in parts of the recorded time
    kernels   which of `Job.contention`
    delays    what rows wait for no known cause once something is gone, in parts of the recorded
    """

    pace: float
    kernels: int = 0
    delays: float = 1.0


class Player:
    """Plays the recorded steps without a cause, by several readings of what is not known."""

    def __init__(self, job: Job, step_ns: float | None) -> None:
        """Prepare a job.

        step_ns  the step without the profiler, where it was measured
        """
        self.job = job
        recorded = job.recorded
        self.given = step_ns
        self._paced: dict[float, Floats] = {}  # work of the hosts at each pace
        self._known: dict[tuple[bytes, Reading], Floats] = {}  # steps played, by `_key`
        # What a host waits in a launch is the GPU's time, which the profiler does not make longer.
        rest = np.maximum(job.interval - job.blocked_by_gpu - job.stretched, 0.0)
        self._fixed = self._cumulated(job.blocked_by_gpu + rest)
        low, usual, high = host_prior(recorded)
        self.usual = usual
        self.paces: tuple[float, ...] = (usual, low, high)
        self.gpu_paces: tuple[float, ...] = ()  # for what GPUs have; empty: as of the hosts
        if step_ns is not None:
            self.paces = self._paces_of(step_ns, high)
            # No profiler costs more: where the given step asks for that, the pauses are shorter.
            self.usual = min(usual, max(low, min(self.paces)))
            # A GPU that is this close to the given step may bound it, whatever the hosts take.
            fast = float(self.steps(NOTHING, Reading(low)).mean())
            if abs(fast / step_ns - 1) <= MIN_STEP_REST:
                # It does where hosts would have to be faster with the profiler than without.
                self.gpu_paces = tuple(dict.fromkeys((*(p for p in self.paces if p <= high), low)))
        # As in predictions: multiprocessors that another stream's kernels hold are no known cause.
        idle = float((recorded.graph.idle_ns / max(1, job.count)).max(initial=0))
        delays = (1.0, 0.0) if idle > STARTS * (recorded.step_ns or 0.0) else (1.0,)
        self.readings = tuple(
            Reading(pace, kernels, rest)
            for pace in dict.fromkeys((*self.paces, *self.gpu_paces, self.usual))
            for kernels in range(len(job.contention))
            for rest in delays
        )
        self._base = [self.steps(NOTHING, replace(r, delays=1.0)) for r in self.readings]

    @property
    def scatter(self) -> float:
        """Standard deviation of the usual steps, ns, the median of the readings; 0 of one step."""
        usual = [base[~self.job.long] for base in self._base]
        return float(np.median([s.std(ddof=1) if len(s) > 1 else 0.0 for s in usual]))

    @property
    def usual_steps(self) -> tuple[float, ...]:
        """Mean of the usual steps by each reading, ns."""
        return tuple(float(base[~self.job.long].mean()) for base in self._base)

    def base(self, number: int) -> Floats:
        """Steps with everything by one of the readings, (steps,) ns."""
        return self._base[number]

    def left(self, change: Change, number: int) -> Floats:
        """Steps without something, (steps,) ns, by one of the readings."""
        return self.steps(change, self.readings[number])

    def between_starts(self, change: Change, pace: float) -> float:
        """By how much hosts of another start change the steps without something, ns.

        By the reading with the fastest hosts: there these bound the steps by every reading.

        pace  of that start's hosts, in parts of this one's
        """
        reading = min(self.readings, key=lambda r: r.pace)
        steps = [
            float(self.steps(change, replace(reading, pace=reading.pace * part)).mean())
            for part in (min(pace, 1.0), max(pace, 1.0))
        ]
        return max(0.0, steps[1] - steps[0])

    def steps(self, change: Change, reading: Reading) -> Floats:
        """Steps in ns, the mean of the ranks.

        A step takes as long on one rank as on another in the long run, but ranks reach the ends of
        a few recorded steps at different moments.
        """
        key = _key(change), reading
        if key not in self._known:
            self._known[key] = self._steps(change, reading)
        return self._known[key]

    def _steps(self, change: Change, reading: Reading) -> Floats:
        job, graph = self.job, self.job.graph
        alone, slowdown = job.contention[reading.kernels]
        duration, at_once = None, None
        if change.duration is not None:
            alone = alone * change.duration
            duration = np.rint(graph.duration * change.duration)
            # A row that is not there starts behind nothing.
            at_once = np.zeros(len(graph.time), dtype=bool)
            at_once[graph.start_node[change.duration == 0] - FIRST] = True
        if change.prompt is not None:
            at_once = np.zeros(len(graph.time), dtype=bool) if at_once is None else at_once
            at_once[graph.start_node[change.prompt] - FIRST] = True
        if change.slowdown is not None:
            slowdown = np.maximum(slowdown, change.slowdown)
        transfer = graph.transfer.astype(np.float64)
        if change.transfer is not None:
            transfer = transfer * change.transfer
        played = play(
            graph,
            Substitutions(transfer, 1.0, alone, slowdown, reading.delays),
            TakenOut(self._work(change, reading.pace), duration, at_once, change.waits),
        )
        found: Floats = np.diff(job.steps.ends(played.end).mean(axis=1))
        return found

    def _paces_of(self, step_ns: float, high: float) -> tuple[float, ...]:
        """Paces at which the played step is as long as measured; all that are as good as that.

        high  the most that is known of profilers: of faster hosts with one only where none else is
        """
        paces, played = _PACES, self._mean_steps(_PACES)
        if played[-1] * (1 + GIVEN_STEP_ERROR) < step_ns:
            paces = np.append(paces, _SLOWER)
            played = np.append(played, self._mean_steps(_SLOWER))
        off = np.abs(played / step_ns - 1)
        good = paces[off <= max(float(off.min()) + GIVEN_STEP_ERROR / 2, GIVEN_STEP_ERROR)]
        known = good[good <= high]
        good = known if len(known) else good
        ends = float(good.min()), float(good.max())
        middle = float(np.interp(step_ns, np.maximum.accumulate(played), paces))
        middle = min(middle, ends[1]) if len(known) else middle
        return tuple(dict.fromkeys((middle, *ends)))

    def _mean_steps(self, paces: Floats) -> Floats:
        """Mean step by each of some paces."""
        return np.array([float(self.steps(NOTHING, Reading(p)).mean()) for p in paces.tolist()])

    def _work(self, change: Change, pace: float) -> Floats:
        """(nodes,) ns of the host without something, at one of its paces."""
        if pace not in self._paced:
            self._paced[pace] = self.job.graph.work * pace + self._fixed * (1 - pace)
        work = self._paced[pace]
        if change.host_ns is not None:
            taken, limit = change.host_ns, self.job.stretched
            own = taken - np.clip(taken, 0.0, self.job.blocked_by_gpu)
            taken = taken - (1 - pace) * np.clip(own, -limit, limit)
            work = np.maximum(work - self._cumulated(taken), 0.0)
        return np.rint(work)

    def _cumulated(self, host_ns: Floats) -> Floats:
        """(nodes,) what is taken of the host's time from the call that each node follows on.

        host_ns  (rows,) before the launch of each row
        """
        job = self.job
        nodes, bounds = job.segments
        row = job.graph.row[nodes]
        start = job.graph.start_node[row] - FIRST == nodes  # a launch, and no synchronising call
        own = np.where((row >= 0) & start, np.append(host_ns, 0.0)[row], 0.0)
        total = np.cumsum(own)
        before = np.append(0.0, total)[bounds[:-1]]
        found = np.zeros(len(job.graph.work))
        found[nodes] = total - np.repeat(before, np.diff(bounds))
        return found


def _key(change: Change) -> bytes:
    """Equal of changes that are: of several candidates, or of one that is gone later."""
    found = hashlib.sha256()
    for values in msgspec.structs.astuple(change):
        found.update(b"none" if values is None else np.ascontiguousarray(values).data)
    return found.digest()


def both(first: Change, second: Change) -> Change:
    """Two changes together."""

    def add(a: Floats | None, b: Floats | None) -> Floats | None:
        return b if a is None else a if b is None else np.where(np.abs(a) > np.abs(b), a, b)

    def multiply(a: Floats | None, b: Floats | None) -> Floats | None:
        return b if a is None else a if b is None else np.minimum(a, b)

    def either(a: Bools | None, b: Bools | None) -> Bools | None:
        return b if a is None else a if b is None else a | b

    return Change(
        host_ns=add(first.host_ns, second.host_ns),
        duration=multiply(first.duration, second.duration),
        transfer=multiply(first.transfer, second.transfer),
        waits=either(first.waits, second.waits),
        slowdown=first.slowdown if second.slowdown is None else second.slowdown,
        prompt=either(first.prompt, second.prompt),
    )
