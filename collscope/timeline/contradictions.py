"""What traces of one job cannot be at once, so that figures of them are not known (pure)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.model import Diagnostic, Severity
from collscope.model.trace import Ints
from collscope.stats import MAD_TO_SIGMA
from collscope.timeline.analyse import Timeline
from collscope.timeline.clocks import Floats, call_ends
from collscope.timeline.queued_idle import queued_idle
from collscope.timeline.steps import Steps
from collscope.timeline.tolerances import (
    CALLS_PER_HELD_UP,
    JUMP_CANDIDATES,
    JUMP_PLACES,
    MAX_HELD_UP_CALLS,
    MAX_PLAUSIBLE_DRIFT,
    MAX_QUEUED_IDLE_NS,
    MAX_QUEUED_IDLE_SHARE,
    MAX_STEP_RATIO,
    MIN_CLOCK_JUMP_NS,
    MIN_ENDS_BESIDE_JUMP,
    MIN_JUMP_TO_SCATTER,
    ROWS_PER_EXCEPTION,
)
from collscope.units import count, format_time


def contradictions(timeline: Timeline, steps: Steps) -> list[Diagnostic]:
    """Contradictions between the ranks' traces, and what makes steps unknown."""
    jumps = list(_jumps(timeline))
    return [
        *_ends(timeline),
        *(jumps or _drifts(timeline)),  # a line through a jump rises, too
        *_launches(timeline.rows, steps),
        *_queued(timeline.rows),
        *_steps(timeline, steps),
    ]


def _ends(timeline: Timeline) -> Iterable[Diagnostic]:
    """Calls that a rank left before another came, or could leave; more than wrong rows make.

    One offset and drift of each clock cannot explain them, so waits of other ranks are no better.
    """
    impossible = int(timeline.times.impossible.sum())
    if impossible > 1 and impossible * ROWS_PER_EXCEPTION > len(timeline.calls):
        text = (
            f"of {count(len(timeline.calls), 'call')} many have ranks that leave before "
            "another arrives. No clock offset explains that: a clock jumped, or times are "
            "wrong"
        )
        yield Diagnostic(Severity.DATA_LOSS, "ends_apart", text, count=impossible)
        return
    early = int(_left_early(timeline).sum())
    if early > MAX_HELD_UP_CALLS and early * CALLS_PER_HELD_UP > len(timeline.calls):
        text = (
            f"of {count(len(timeline.calls), 'call')} many have ranks that leave long before "
            "the other ranks, by more than half of the transfer: starts or lengths of rows "
            "are wrong"
        )
        yield Diagnostic(Severity.DATA_LOSS, "ends_apart", text, count=early)


def _left_early(timeline: Timeline) -> npt.NDArray[np.bool_]:
    """Calls whose ends lie further apart than a transfer allows, by call.

    Ranks leave an operation that waits for all once they have their last part. In a ring of two
    that is half of the transfer after the first's at most, with more ranks and parts less; the
    shortest kernel of a call lasts as long as the transfer at least.
    """
    times, calls = timeline.times, timeline.calls
    if not len(calls):
        return np.empty(0, dtype=bool)
    error = 2 * np.maximum.reduceat(timeline.clocks.error[calls.trace], calls.offsets[:-1])
    synchronising = np.array([c.op.synchronises for c in calls.classes])[calls.class_]
    known = synchronising & (times.end_skew >= 0) & (times.shortest > 0)
    if not known.any():
        return known
    # The clocks are as most calls leave: a rank that is late in them leaves them later, always.
    usual = float(np.median(times.shortest[known]))
    early: npt.NDArray[np.bool_] = known & (
        times.end_skew - error > np.maximum(times.shortest, usual) / 2
    )
    return early


def _drifts(timeline: Timeline) -> Iterable[Diagnostic]:
    """Clocks that run faster or slower than any clock of a computer does."""
    rows, clocks = timeline.rows, timeline.clocks
    ends = call_ends(rows, timeline.calls, np.arange(len(rows.ranks)))
    residual = ends.residual(clocks.offset.astype(np.float64), clocks.drift)
    kinds = _kinds(ends.group, ends.class_)
    ranks, largest = [], 0.0
    for t, rank in enumerate(rows.ranks):
        own = np.flatnonzero(ends.clock == t)
        if len(own) < MIN_ENDS_BESIDE_JUMP:
            continue
        time = ends.time[own]
        slope = _slope(residual[own], time, kinds[own])
        scatter = MAD_TO_SIGMA * _spread(residual[own] - slope * time, kinds[own])
        moved = abs(slope) * float(np.ptp(time))
        drift = float(clocks.drift[t]) + slope * (moved > MIN_JUMP_TO_SCATTER * scatter)
        if abs(drift) > MAX_PLAUSIBLE_DRIFT:
            ranks.append(rank)
            largest = max(largest, abs(drift))
    if ranks:
        text = (
            f"clocks of ranks drift by up to {largest:.2%} against the clocks of the other "
            f"ranks, which no computer clock does (first: rank {ranks[0]}): times of the "
            "ranks cannot be compared"
        )
        yield Diagnostic(Severity.DATA_LOSS, "clock_drift", text, count=len(ranks))


def _jumps(timeline: Timeline) -> Iterable[Diagnostic]:
    """Clocks that jump in the middle of a trace, by less than the transfers last."""
    rows = timeline.rows
    ends = call_ends(rows, timeline.calls, np.arange(len(rows.ranks)))
    # Not of all ends as recorded: where a call lacks ranks, its median is of other clocks.
    residual = ends.residual(timeline.clocks.offset.astype(np.float64), timeline.clocks.drift)
    ranks = []
    longest = 0.0
    for t, rank in enumerate(rows.ranks):
        own = np.flatnonzero(ends.clock == t)
        if len(own) < 2 * MIN_ENDS_BESIDE_JUMP:
            continue
        own = own[np.argsort(ends.time[own], kind="stable")]
        kind = _kinds(ends.group[own], ends.class_[own])
        jump = _jump(residual[own], ends.time[own], kind)
        if jump:
            ranks.append(rank)
            longest = max(longest, jump)
    if ranks:
        text = (
            f"clocks of ranks jump within the trace, by up to {format_time(longest)} against "
            f"the clocks of the other ranks (first: rank {ranks[0]}): times before and after "
            "the jump cannot be compared"
        )
        yield Diagnostic(Severity.DATA_LOSS, "clock_jump", text, count=len(ranks))


def _kinds(group: Ints, class_: Ints) -> Ints:
    """A number for each group and class: in calls of one kind, ranks leave a ring in one order."""
    both = np.stack([group, class_])
    return np.asarray(np.unique(both, axis=1, return_inverse=True)[1]).reshape(-1)


def _jump(level: Floats, time: Floats, kind: Ints) -> float:
    """The size, ns, of a lasting step in a series of ends; 0 where it has none.

    Ends of one kind are held against each other: the step is the median of their steps, and has to
    exceed by far how these, and the ends on either side, scatter.
    """
    last = len(level) - MIN_ENDS_BESIDE_JUMP
    tried = np.linspace(MIN_ENDS_BESIDE_JUMP, last, JUMP_PLACES)
    places = np.unique(tried.astype(np.int64)).tolist()
    if len(level) > JUMP_PLACES:
        # So many ends of a kind have a median on the longer side of a jump.
        centred, few = _centred(level, kind), max(MIN_ENDS_BESIDE_JUMP, len(level) // JUMP_PLACES)
        steps = {
            k: abs(np.median(centred[k : k + few]) - np.median(centred[max(0, k - few) : k]))
            for k in places
        }
        places = sorted(places, key=steps.__getitem__, reverse=True)[:JUMP_CANDIDATES]
    return max(_lasting_step(level, time, kind, place) for place in places)


def _centred(level: Floats, kind: Ints) -> Floats:
    """Ends without the median of their kind."""
    result = np.empty_like(level)
    for k in np.unique(kind).tolist():
        result[kind == k] = level[kind == k] - np.median(level[kind == k])
    return result


def _lasting_step(level: Floats, time: Floats, kind: Ints, place: int) -> float:
    """The step at one place, where it is a jump; else 0."""
    behind = np.arange(len(level)) >= place
    # A clock that drifts is on a line, and one that jumps on two that are parallel.
    level = level - _slope(level, time, 2 * kind + behind) * (time - time[place])
    steps, rest = [], []
    for k in np.unique(kind[behind]).tolist():
        before, after = level[(kind == k) & ~behind], level[(kind == k) & behind]
        if len(before):
            steps.append(float(np.median(after) - np.median(before)))
            rest += [after - np.median(after), before - np.median(before)]
    if sum(map(len, rest)) < 2 * MIN_ENDS_BESIDE_JUMP:
        return 0.0
    step = float(np.median(steps))
    scatter = MAD_TO_SIGMA * float(
        max(np.median(np.abs(np.concatenate(rest))), np.median(np.abs(np.array(steps) - step)))
    )
    return abs(step) if abs(step) > max(MIN_CLOCK_JUMP_NS, MIN_JUMP_TO_SCATTER * scatter) else 0.0


def _slope(level: Floats, time: Floats, part: Ints) -> float:
    """How fast the ends of each part rise, ns per ns: the median over pairs half a part apart."""
    rises = []
    for k in np.unique(part).tolist():
        own = np.flatnonzero(part == k)
        half = len(own) // 2
        first, second = own[:half], own[len(own) - half :]
        skew = time[second] - time[first]
        rises.append((level[second] - level[first])[skew > 0] / skew[skew > 0])
    every = np.concatenate(rises)
    return float(np.median(every)) if len(every) else 0.0


def _spread(level: Floats, kind: Ints) -> float:
    """How far ends lie from the median of their kind: the median."""
    return float(np.median(np.abs(_centred(level, kind))))


def _launches(rows: Rows, steps: Steps) -> Iterable[Diagnostic]:
    """Steps found by launches, where many launches are missing."""
    if steps.source not in ("kernels", "period"):
        return
    lacking = few = 0
    for t in range(len(rows.ranks)):
        launch = rows.launch[rows.of(t)]
        known = np.flatnonzero(launch != UNKNOWN_LAUNCH)
        # Rows before the first known one may have been launched before the profiler began.
        unknown = int((launch[known[0] :] == UNKNOWN_LAUNCH).sum()) if len(known) else 0
        many = unknown * ROWS_PER_EXCEPTION > len(launch)
        lacking, few = lacking + unknown * many, few + unknown * (not many)
    if few and not lacking:
        text = (
            "kernels and copies without the call that launched them, though other kernels "
            "have theirs: calls were lost, or the file is damaged, and the steps that these "
            "begin are off"
        )
        yield Diagnostic(Severity.NOTICE, "launch_unknown", text, count=few)
    if lacking:
        text = (
            "kernels and copies without the call that launched them, where other kernels have "
            "theirs: calls were removed or lost, so steps are not known"
        )
        yield Diagnostic(Severity.DATA_LOSS, "launches_unknown", text, count=lacking)


def _queued(rows: Rows) -> Iterable[Diagnostic]:
    """GPUs that run nothing for long though the next work was launched."""
    ranks, most, number = [], 0.0, 0
    for t, rank in enumerate(rows.ranks):
        own = rows.of(t)
        idle = queued_idle(rows.start[own], rows.end[own], rows.launch[own])
        idle = idle[idle > MAX_QUEUED_IDLE_NS]
        span = int(rows.end[own].max() - rows.start[own].min()) if own.start < own.stop else 0
        if idle.sum() > MAX_QUEUED_IDLE_SHARE * span:
            ranks.append(rank)
            most, number = max(most, float(idle.sum() / span)), number + len(idle)
    if ranks:
        text = (
            f"the GPU of rank {ranks[0]}{' and others' * (len(ranks) > 1)} runs nothing for "
            f"up to {100 * most:.0f} % of the time although the next kernel has been "
            "launched: rows are missing or too short, or another process uses the GPU"
        )
        yield Diagnostic(Severity.NOTICE, "idle_while_queued", text, count=number)


def _steps(timeline: Timeline, steps: Steps) -> Iterable[Diagnostic]:
    """Steps of ranks that meet in collectives, and so last equally long, that do not."""
    # A trace of one step, as given at ingest, begins where its profiler did: that is a window, too.
    alone = steps.source == "given" and steps.count.max(initial=0) == 1
    if steps.source == "window" or alone or not len(steps.traces):
        return
    ends = steps.ends(timeline.rows.end)
    mean = (ends[-1] - ends[0]) / steps.count
    component = timeline.clocks.component[steps.traces]
    for number in np.unique(component).tolist():
        own = mean[component == number]
        if own.max() > MAX_STEP_RATIO * own.min():
            least, most = format_time(float(own.min())), format_time(float(own.max()))
            text = (
                f"steps of ranks that wait for each other take {least} to {most}: they are "
                "not the same steps, or rows are lost, and the step time is not known"
            )
            yield Diagnostic(Severity.DATA_LOSS, "steps_differ", text, count=len(own))
