"""The causes of a traced job and what they cost, the dearest first (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from math import hypot
from statistics import NormalDist

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.timeline.analyse import Timeline
from collscope.timeline.assumptions import clock_change, least_clock
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.step_causes.barriers import barriers
from collscope.timeline.step_causes.blocking_calls import blocking_calls, blocking_launches
from collscope.timeline.step_causes.collectives import Facts, pipeline_bubble, slow_settings
from collscope.timeline.step_causes.copies import slow_copies
from collscope.timeline.step_causes.extra_work import extra_work
from collscope.timeline.step_causes.hosts import common_stalls, late_hosts
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.longer_kernels import longer_kernels
from collscope.timeline.step_causes.marks import marks_of
from collscope.timeline.step_causes.objects import objects
from collscope.timeline.step_causes.periodic import long_steps, recurrence
from collscope.timeline.step_causes.polls import find_polls, polling_waits
from collscope.timeline.step_causes.records import (
    Candidate,
    Cause,
    Change,
    Cost,
    Diagnosis,
)
from collscope.timeline.step_causes.small_calls import small_calls
from collscope.timeline.step_causes.tolerances import (
    HELD,
    MIN_CAUSE_COST,
    MIN_LATENESS_EACH_STEP,
    MIN_RECURRENCES,
    MOST_CAUSES,
)
from collscope.timeline.step_causes.unused_parameters import unused_parameters
from collscope.timeline.step_causes.without import NOTHING, Player, Reading, both
from collscope.timeline.tolerances import HOST_STARTS, MIN_STEP_REST, STARTS, USUAL

_SINGLE = NormalDist().inv_cdf(0.5 + HELD / 2)  # of one standard error
# Of a step: a cost is the difference of two starts.
_BETWEEN = _SINGLE * hypot(STARTS, STARTS) / NormalDist().inv_cdf(0.5 + USUAL / 2)
Floats = npt.NDArray[np.float64]


def diagnose(
    timeline: Timeline,
    facts: Facts,
    *,
    steps: int | None = None,
    step_ns: float | None = None,
) -> tuple[Diagnosis, RecordedJob]:
    """Name what makes the steps long, and the job as its steps were found.

    steps    in each trace, as given
    step_ns  the step without the profiler, where it was measured
    """
    recorded = timeline.recorded(steps, uneven=True)
    if not recorded.step_ns or recorded.steps.source == "window" or not recorded.steps.count.max():
        return Diagnosis((), None, None, 0, step_ns is None), recorded
    job = Job(recorded, timeline.host, step_ns)
    polls = find_polls(job)
    if polls is not None:
        recorded = timeline.recorded(steps, uneven=True, polls=polls)
        job = Job(recorded, timeline.host, step_ns, polls)
    candidates = list(_candidates(job, facts))
    in_all = [c for c in candidates if not c.some]
    # A mean of many steps holds long ones, too: it is not that of the usual steps.
    player = Player(job, None if job.long.any() or len(in_all) < len(candidates) else step_ns)
    found = _search(job, player, candidates, step_ns)
    if len(in_all) < len(candidates) and not any(c.some for _, c in found):
        player = Player(job, None if job.long.any() else step_ns)
        found = _search(job, player, in_all, step_ns)
    marks = [marks_of(job, c.changes[0]) if c.changes else () for _, c in found]
    causes = [cause for cause, _ in found]
    long = long_steps(job, step_ns, player.usual_steps)
    if long is not None:
        causes, marks = [long, *causes], [(), *marks]
    lengths = [float(player.base(k).mean()) for k in range(len(player.readings))]
    ends = min(lengths), max(lengths)
    diagnosis = Diagnosis(
        tuple(causes[:MOST_CAUSES]), recorded.step_ns, ends, job.count, step_ns is None,
        tuple(marks[:MOST_CAUSES]),
    )  # fmt: skip
    return diagnosis, recorded


def _search(
    job: Job, player: Player, candidates: list[Candidate], step_ns: float | None
) -> list[tuple[Cause, Candidate]]:
    """Those that stand out, the dearest first, each beside those before it."""
    found: list[tuple[Cause, Candidate]] = []
    gone, left = NOTHING, candidates
    while left and len(found) < MOST_CAUSES:
        bases = [
            player.base(k) if gone is NOTHING else player.left(gone, k)
            for k in range(len(player.readings))
        ]
        given = step_ns if gone is NOTHING else None
        costs = [
            (c, _cost(job, player, c, gone, bases, step_ns) or _hidden(job, player, c, given))
            for c in left
        ]
        standing = [(c, cost) for c, cost in costs if cost is not None]
        if not standing:
            break
        candidate, (cost, certain, shown) = max(standing, key=lambda pair: pair[1][0].value)
        cause = Cause(
            candidate.cause, candidate.certain and certain and job.count > 1 and job.whole_job,
            candidate.ranks, candidate.where,
            cost, candidate.evidence, within_starts=shown,
        )  # fmt: skip
        found.append((cause, candidate))
        # A likely cause may cost nothing: what healthy jobs have, too, must stand out beside it.
        left = [
            c for c, shows in costs
            if c is not candidate and (cause.certain or shows is not None or not c.surely)
        ]  # fmt: skip
        if not candidate.changes:
            break
        gone = both(gone, candidate.changes[0])
    return found


def _candidates(job: Job, facts: Facts) -> Iterator[Candidate]:
    # Of those that cost the same the first is named: a host that waits is not just late.
    for find in (
        polling_waits, barriers, objects, late_hosts, common_stalls, extra_work, longer_kernels,
        blocking_calls, blocking_launches, small_calls, slow_copies, pipeline_bubble,
        unused_parameters,
    ):  # fmt: skip
        yield from find(job)
    yield from slow_settings(job, facts)


def _cost(
    job: Job,
    player: Player,
    candidate: Candidate,
    gone: Change,
    bases: list[Floats],
    step_ns: float | None,
) -> tuple[Cost, bool, bool] | None:
    """What a cause costs beside those that are gone already; None where it does not stand out.

    And whether it does by every reading of the recording, and whether it costs 1 % of a step by
    each. Where one of them hides it, it may stand out as recorded, if it is a host's, and else
    where the hosts are as fast as they may be.

    bases    steps without those that are gone, by each reading, ns
    step_ns  mean step without the profiler, where it was measured
    """
    step = float(np.median([player.base(k)[job.used].mean() for k in range(len(player.readings))]))
    # The recorded steps that lack it differ from those that have it by that.
    scatter = 0.0 if candidate.makes_steps_differ else player.scatter
    noise = hypot(_error(job, scatter), STARTS * step)
    least = max(MIN_CAUSE_COST, candidate.between_gpus) * step
    if not (candidate.recorded or candidate.counted or candidate.exact):
        least = max(least, player.scatter)
    if candidate.fixed is not None:
        ends = list(candidate.fixed)
        cost = _Saved(ends, ends, min(ends), _deviation(job.lengths[job.used]))
    else:
        known = 0.0 if candidate.exact else noise
        saved = _saved(job, player, candidate, gone, bases, known + least)
        if saved is None:
            return None
        cost = saved
    # A host that is late makes the steps differ by that, so what is left counts; and what it does
    # now and then is no cause of every step.
    in_each = candidate.recorded and not candidate.some
    recurs = not in_each or _recurs(job, player, candidate, cost)
    scatter = cost.scatter if candidate.recorded or candidate.counted else player.scatter
    # Whether it is at the cap the trace does not show: anything from nothing to `clock`.
    low, high = min(cost.all) - cost.clock / 2, max(cost.all) - cost.clock / 2
    sure = recurs and low - noise > max(least, scatter)
    if not sure and (gone is not NOTHING or not recurs or candidate.surely):
        return None
    if not sure and not _may_stand_out(job, player, candidate, cost, least, step):
        return None
    # Each unknown has its ends, so the number of readings does not matter. What slow hosts may hide
    # costs what it does where they do not.
    value = (max(0.0, low) + high) / 2
    if not sure and not candidate.recorded:
        value = float(np.median(cost.plain)) - cost.clock / 2
    faster, slower = _hosts_of_another_start(player, candidate, gone)
    noise = hypot(_SINGLE * cost.error, _BETWEEN * step, HELD * cost.clock / 2)
    # What the recording does not show and what starts differ by are independent.
    least = min(value - hypot(value - low, noise, slower), min(cost.all) - cost.clock)
    most = max(value + hypot(high - value, noise, faster), *cost.all)
    shown = min(cost.all) > MIN_CAUSE_COST * step
    if candidate.some:
        given = step_ns if gone is NOTHING else None
        part = _of_some_steps(job, candidate, cost, (value, least, most), given)
        if part is None:
            return None
        value, least, most = part
        sure &= len(candidate.some) >= MIN_RECURRENCES
    return Cost(value / 1e6, max(0.0, least) / 1e6, most / 1e6), sure, shown


def _hosts_of_another_start(
    player: Player, candidate: Candidate, gone: Change
) -> tuple[float, float]:
    """What faster hosts of another start save beside, and what slower ones take; ns.

    Slower ones count where the GPU may set the given step: that does not show how fast hosts are,
    and they may be the limit once kernels take less.
    """
    if candidate.fixed is not None:
        return 0.0, 0.0
    without = both(gone, candidate.changes[0])
    faster = player.between_starts(without, 1 / (1 + HOST_STARTS))
    if player.gpu_paces and candidate.where == "kernels":
        return faster, player.between_starts(without, 1 + HOST_STARTS)
    return faster, faster


def _hidden(
    job: Job, player: Player, candidate: Candidate, given: float | None
) -> tuple[Cost, bool, bool] | None:
    """What pauses cost that the recorded steps hide, as `_cost`; None: the given step shows none.

    A host may be far ahead of its GPU where a trace begins, and less so at other times. The given
    step then is longer than the recorded ones would be even with the slowest hosts of another
    start, and by no more than the pauses last.

    given  mean step without the profiler, where it was measured
    """
    if given is None or not (candidate.some and candidate.recorded) or job.long.any():
        return None
    change = candidate.changes[0]
    slow = player.steps(NOTHING, Reading(1 + HOST_STARTS))[job.used]
    left = [float(player.left(change, k)[job.used].mean()) for k in range(len(player.readings))]
    each = float(_lost(job, change).sum()) / len(candidate.some)
    most = each * recurrence(np.array(candidate.some), int(job.used.sum()))[2]
    noise = _BETWEEN * given
    value = given - (min(left) + max(left)) / 2
    if given - float(slow.mean()) <= (STARTS + MIN_CAUSE_COST) * given or value - noise > most:
        return None
    low, high = given - max(left) - noise, given - min(left) + noise
    value, high = min(value, most), min(high, most)
    return Cost(value / 1e6, max(0.0, low) / 1e6, high / 1e6), False, False


def _of_some_steps(
    job: Job,
    candidate: Candidate,
    cost: _Saved,
    saved: tuple[float, float, float],
    given: float | None,
) -> tuple[float, float, float] | None:
    """As `_of_all_steps`; None: what some recorded steps have does not recur, or is not known.

    A host may pause once by chance. A given step as long as one without it shows that it did; a
    longer one, by every reading, that it pauses again.
    """
    if not job.used[list(candidate.some)].any():
        return None
    value, least, most = _of_all_steps(job, candidate, cost, saved, given)
    if not candidate.recorded or len(candidate.some) >= MIN_RECURRENCES:
        return value, least, most
    if given is None:
        return value, 0.0, most
    longer = [given - left > (STARTS + MIN_CAUSE_COST) * given for _, left in cost.left]
    return (value, least if all(longer) else 0.0, most) if any(longer) else None


def _of_all_steps(
    job: Job,
    candidate: Candidate,
    cost: _Saved,
    saved: tuple[float, float, float],
    given: float | None,
) -> tuple[float, float, float]:
    """What the mean of all steps is shorter by without what some recorded ones have; ns.

    saved  of the mean recorded step: the likely value, least and most
    given  mean of all steps, where it was measured; it replaces what is assumed of their part
    """
    # The mean is of these steps. The others show how often work of the GPU recurs, and no more.
    each = float(job.used.sum() / job.used[list(candidate.some)].sum())
    steps = job.used if candidate.recorded else np.ones(job.count, dtype=bool)
    value, least, most = (each * ns for ns in saved)
    part, low, high = recurrence(np.array(candidate.some), int(steps.sum()))
    mean = value * part
    ends = (
        mean - hypot(value * (part - low), part * (value - least)),
        mean + hypot(value * (high - part), part * (most - value)),
    )
    if given is None:
        return mean, *ends
    # Readings of the hosts by which the given step has a part of them that the recorded ones allow.
    likely = [
        given - left
        for saved, left in cost.left
        if low * each * saved <= given - left <= high * each * saved
    ] or [given - left for _, left in cost.left]
    known = (min(likely) + max(likely)) / 2
    noise = _BETWEEN * given
    down = known - hypot(known - min(likely), noise)
    up = known + hypot(max(likely) - known, noise)
    # Where hosts may be fast or slow the given step shows little of it; nothing where it is shorter
    # than steps without it.
    if max(likely) <= 0 or up - down > ends[1] - ends[0]:
        return mean, *ends
    return min(max(0.0, known), most), down, min(up, most)


def _may_stand_out(
    job: Job, player: Player, candidate: Candidate, cost: _Saved, least: float, step: float
) -> bool:
    """Whether a cause stands out by the readings that show it best."""
    shown = max(cost.plain) if candidate.direct else min(cost.plain)
    if candidate.exact:
        value = float(np.median(cost.plain))
        return shown - cost.error > least and value > least
    rest = cost.scatter if candidate.recorded or candidate.counted else 0.0
    scatter = 0.0 if candidate.some else player.scatter
    if candidate.irregular and player.given:  # their mean is known, whatever interrupts them
        rest, scatter = _error(job, rest), 0.0
    noise = hypot(_error(job, scatter), STARTS * step)
    return shown - noise > max(least, rest)


def _error(job: Job, scatter: float) -> float:
    """Standard error of the mean of the steps, ns."""
    return scatter / float(np.sqrt(job.used.sum()))


def _recurs(job: Job, player: Player, candidate: Candidate, cost: _Saved) -> bool:
    """Whether hosts lose about as much in each step, or each step is about as much longer.

    Interruptions recur, too, where the given step is longer than one without them, even if hosts
    are as slow as recorded.
    """
    if job.long.any() and job.used.sum() < MIN_RECURRENCES:
        return False
    if candidate.irregular and player.given:
        slow = player.steps(candidate.changes[0], Reading(1.0))[job.used]
        if player.given * (1 - STARTS) > float(slow.max()):
            return True
    if cost.least > MIN_LATENESS_EACH_STEP * min(cost.plain):
        return True
    lost = _lost(job, candidate.changes[0]).sum(axis=0)
    return bool(lost.min() > MIN_LATENESS_EACH_STEP * lost.mean())


def _lost(job: Job, change: Change) -> Floats:
    """(traces, steps) ns that hosts lose to what is taken, in each of the counted steps."""
    taken = np.zeros(len(job.rows)) if change.host_ns is None else change.host_ns
    found = np.zeros((len(job.rows.ranks), job.counted))
    first = job.count - job.counted
    inside = job.step_of_row >= first
    np.add.at(found, (job.rows.trace[inside], job.step_of_row[inside] - first), taken[inside])
    return found


def _deviation(lengths: Floats) -> float:
    """Standard deviation of steps; 0 of a single one."""
    return float(lengths.std(ddof=1)) if len(lengths) > 1 else 0.0


class _Saved(msgspec.Struct):
    """What a step is shorter by without a cause; ns.

    all      by every reading
    plain    by those that show it best
    least    of one step, as recorded
    scatter  deviation of the steps without it, the median of the readings
    error    of the mean, from step to step
    left     what is saved and the step without it, by each reading
    clock    what is saved less where the GPU is at its power cap and computes more of the time
    """

    all: list[float]
    plain: list[float]
    least: float
    scatter: float
    error: float = 0.0
    left: tuple[tuple[float, float], ...] = ()
    clock: float = 0.0


def _saved(
    job: Job,
    player: Player,
    candidate: Candidate,
    gone: Change,
    bases: list[Floats],
    least_ns: float,
) -> _Saved | None:
    """What a step is shorter by; None where it does not stand out, which few plays show.

    least_ns  what a cause must save by every reading to be sure, and by those that show it best to
              stand out at all
    """
    paces = player.paces if candidate.recorded else player.gpu_paces or player.paces
    pace = max(paces) if candidate.recorded else min(paces)
    found, rests, scatter, errors, clocks, least = [], [], [], [], [], np.inf
    by_pace: dict[float, list[float]] = {pace: []}
    anywhere = candidate.exact and candidate.direct  # any pace of the hosts may show it best
    used = job.used
    # Those that show it best come first: mostly they show enough.
    order = sorted(range(len(player.readings)), key=lambda k: player.readings[k].pace != pace)
    best = sum(reading.pace == pace for reading in player.readings)
    for place, k in enumerate(order):
        reading, base = player.readings[k], bases[k]
        own = (
            candidate.changes[min(reading.kernels, len(candidate.changes) - 1)],
            *candidate.others,
        )
        for change in own:
            without = both(gone, change)
            left = player.left(without, k)[used]
            rest = float(left.mean())
            mean = _mean_saved(player, candidate, gone, reading, base[used], left)
            if gone is NOTHING:
                found += _others_fast(job, player, candidate, change, k, rest)
            if reading.pace in paces:
                found.append(mean)
                rests += [(mean, rest), *_steps_that_lack_it(job, candidate, base, mean)]
                found += _by_given(player, gone, reading.pace, rest)
                scatter.append(_deviation(left))
                errors.append(_scatter_of_saving(job, player, candidate, base[used] - left, left))
                if candidate.at_power_cap:
                    clocks.append(_at_power_cap(job, player, without, k, base, rest))
            if candidate.irregular and not player.given:
                found.append(mean * reading.pace)
            if candidate.irregular and player.given and gone is NOTHING:
                # Hosts may be as slow as recorded, and be interrupted less.
                slow = float(player.steps(change, replace(reading, pace=1.0))[used].mean())
                found.append(max(0.0, player.given - slow))
            if reading.pace == pace or anywhere:
                by_pace.setdefault(reading.pace, []).append(mean)
                least = min(least, float((base[used] - left).min()))
            plain = [] if anywhere else by_pace[pace]
            if _is_hidden(candidate, gone, found, plain, least_ns, shown=place >= best):
                return None
    plain = max(by_pace.values(), key=np.median)
    error = float(np.median(errors) / np.sqrt(used.sum()))
    clock = max(0.0, float(np.median(clocks))) if clocks else 0.0
    return _Saved(found, plain, least, float(np.median(scatter)), error, tuple(rests), clock)


def _steps_that_lack_it(
    job: Job, candidate: Candidate, base: Floats, saved: float
) -> list[tuple[float, float]]:
    """What is saved, and the mean of the steps without what some have; empty: all have it."""
    lacks = job.used.copy()
    lacks[list(candidate.some)] = False
    return [(saved, float(base[lacks].mean()))] if candidate.some and lacks.any() else []


def _mean_saved(
    player: Player,
    candidate: Candidate,
    gone: Change,
    reading: Reading,
    base: Floats,
    left: Floats,
) -> float:
    """What the mean step is shorter by in one reading; ns.

    If the GPU bounds the given step although it is longer, its kernels take as much longer.
    """
    saved, given = float((base - left).mean()), player.given
    if given and candidate.recorded and gone is NOTHING and _off(base, given):
        known = max(0.0, given - float(left.mean()))
        # The shorter a step, the less often something interrupts it.
        return max(known, saved * given / float(base.mean())) if candidate.irregular else known
    if given and not candidate.recorded and reading.pace not in player.paces:
        return saved * given / float(base.mean())
    return saved


def _by_given(player: Player, gone: Change, pace: float, rest: float) -> list[float]:
    """What goes of the given step, where the step as played with everything is as long as that."""
    if not player.given or gone is not NOTHING or pace not in player.paces:
        return []
    return [max(0.0, player.given - rest)]


def _scatter_of_saving(
    job: Job, player: Player, candidate: Candidate, saved: Floats, left: Floats
) -> float:
    """Deviation of what single steps save; that of the rest where the mean step is known, some
    steps alone have it, or ranks in turns. Pauses that some have: of what these save."""
    if candidate.some and candidate.recorded:
        has = np.isin(np.flatnonzero(job.used), candidate.some)
        return _deviation(saved[has]) * float(np.sqrt(has.mean()))
    every = _deviation(saved)
    known = player.given or candidate.makes_steps_differ
    return min(every, _deviation(left)) if known else every


def _is_hidden(
    candidate: Candidate,
    gone: Change,
    found: list[float],
    plain: list[float],
    least_ns: float,
    *,
    shown: bool,
) -> bool:
    """Whether a cause does not stand out, whatever the plays that are left show.

    Beside causes that are gone it must by every reading. Else it must by those that show it best,
    or by one of these if a source names it.

    shown  all that show it best are played
    """
    surely = found if gone is not NOTHING else plain
    if candidate.direct and gone is NOTHING:
        surely = [max(plain, default=np.inf)] if shown else []
    return min(surely, default=np.inf) <= least_ns


def _others_fast(
    job: Job, player: Player, candidate: Candidate, change: Change, number: int, rest: float
) -> list[float]:
    """What goes where without the profiler all else that hosts do is as fast as usual.

    What follows a wait, or stops a host, holds few of the calls that the profiler slows. It
    costs no more than a host loses, in a start where that is longer.
    """
    if player.readings[number].pace != player.usual:
        return []
    waits = change.waits is not None or candidate.cause == "blocking_sync"
    if player.given:
        return [max(0.0, player.given - rest)] if candidate.recorded or waits else []
    if not candidate.recorded or change.waits is not None:  # waits are the GPU's time
        return []
    most = (1 + HOST_STARTS) * float(_lost(job, change).mean(axis=1).max())
    return [max(0.0, min(float(job.lengths[job.used].mean()) - rest, most))]


def _off(base: Floats, given: float) -> bool:
    """Whether the steps as played are far from the given one."""
    return abs(float(base.mean()) / given - 1) > MIN_STEP_REST


def _at_power_cap(
    job: Job, player: Player, left: Change, number: int, base: Floats, rest: float
) -> float:
    """What goes less where the clock follows the step: compute takes more power than waiting.

    rest  the step at the recorded clock, ns
    """
    clock = max(clock_change(rest / float(base[job.used].mean())), least_clock(job.busy_ns / rest))
    longer = np.where(job.follows_clock, 1 / clock, 1.0)
    known = 1.0 if left.duration is None else left.duration
    capped = player.left(replace(left, duration=longer * known), number)
    return float(capped[job.used].mean()) - rest
