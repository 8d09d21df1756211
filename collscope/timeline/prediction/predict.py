"""Step time with something else than recorded, by playing the recorded steps again (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.model import CollectiveClass
from collscope.timeline.play import Played
from collscope.timeline.prediction.contention_change import contention_readings
from collscope.timeline.prediction.host_pace import host_pace
from collscope.timeline.prediction.range import (
    alternatives,
    other_clock,
    other_hosts,
    other_waits,
    prediction_range,
)
from collscope.timeline.prediction.scenarios import Player, Scenario
from collscope.timeline.recorded_job import RecordedJob, lone_exchanges, recorded_transfers
from collscope.timeline.records import Knowledge, Prediction
from collscope.timeline.starts import Starts
from collscope.timeline.step_bounds import step_bounds
from collscope.timeline.tolerances import (
    GIVEN_STEP_ERROR,
    MAX_IDLE,
    MAX_UNEXPLAINED,
    MIN_STEP_REST,
    STARTS,
)
from collscope.timeline.traced_transfers import Transfers, blocks_change
from collscope.timeline.transfer_factors import NewTime, transfer_factors

Floats = npt.NDArray[np.float64]


def predict(
    recorded: RecordedJob,
    new: Mapping[CollectiveClass, NewTime],
    *,
    traced: Transfers | None = None,
    starts: Starts | None = None,
    measured_step_ns: float | None = None,
) -> Prediction | None:
    """Step time with the classes of `new` changed; None for a record without rows.

    traced            transfers of a run with the new setting: they replace `new`
    starts            of that run: what is predicted is held against them, and uses nothing of them
    measured_step_ns  the step time without the profiler, of the recorded setting
    """
    step, simulated = recorded.step_ns, recorded.step(recorded.simulated)
    if not step or not simulated:
        return None
    factors, changed, unchanged = transfer_factors(recorded, new, traced)
    readings = contention_readings(recorded, factors.middle, traced)
    player = Player(recorded)
    host = host_pace(player, measured_step_ns, readings[0])
    base = step if measured_step_ns is None else measured_step_ns
    middle = Scenario(host.middle, factors.middle, readings[0])
    before, after = player.before(host.middle, readings[0]), player.after(middle)
    old, new_step = recorded.step(before), recorded.step(after)
    if old <= 0 or new_step <= 0:
        return None
    ratio = new_step / old
    seen_host = None
    if recorded.graph.unseen.any():
        seen_host = host_pace(player, measured_step_ns, readings[0], seen=True).middle
    others = [*alternatives(player, middle, factors, host, readings, seen_host)]
    hosts = other_hosts(player, middle, host)
    others += [hosts, (other_clock(player, middle, old, ratio),)]
    idle = float((recorded.graph.idle_ns / recorded.steps.count.max()).mean()) / step
    if idle > MAX_IDLE:
        others.append(other_waits(player, middle, old))
    longest = player.old_step(1.0, readings[0]) * (1 + MIN_STEP_REST)
    rest = max(0.0, base - old) if measured_step_ns is not None and base > longest else 0.0
    if rest:
        # The given step holds what the record does not: an input that was waited for, a slower
        # start. It may stay, grow with the step, or hide the change.
        others = [tuple((r * old + rest) / base for r in thing) for thing in others]
        others.append((ratio, 1.0))
        ratio = (new_step + rest) / base
    if old > base * (1 + GIVEN_STEP_ERROR):
        # The profiler slowed the GPU, too. What the change adds or saves may not have been.
        others.append((1 + (new_step - old) / base,))
    margin = STARTS + max(0.0, abs(simulated / step - 1) - STARTS)
    alone, waits = lone_exchanges(recorded)
    margin += waits / step
    same = factors.exact and bool((factors.middle == 1).all())
    if same:
        others, margin = [], 0.0
    explained = same or idle <= MAX_UNEXPLAINED
    low, high = prediction_range(ratio, others, margin)
    if (factors.high <= 1).all():
        # No faster collective makes a step longer; a slower host of the other start does.
        most = max(1.0, *hosts) + margin
        ratio, low, high = min(ratio, 1.0), min(low, 1.0), min(high, most)
    return Prediction(
        step_ns=base,
        simulated_ns=simulated,
        starts_off_ns=recorded.starts_off_ns(recorded.simulated, recorded.starts),
        other_starts_off_ns=_other_starts_off(player, middle, starts),
        recorded_ns=step,
        new_ns=base * ratio if explained else None,
        low_ns=base * low,
        high_ns=base * high,
        simple_ns=base * (1 - _simple_saving(recorded, factors.middle) / step),
        steps=int(recorded.steps.count.max(initial=0)),
        step_from=recorded.steps.source,
        changed=changed,
        unchanged=unchanged,
        knowledge=Knowledge(
            host_low=host.low,
            host=host.middle,
            host_high=host.high,
            host_given=measured_step_ns is not None,
            host_determined=host.determined,
            host_bound=float(recorded.graph.bound.sum() / max(1, recorded.graph.launches.sum())),
            gpu_ns=player.old_step(0.0, readings[0]),
            rest_ns=rest,
            slowdown=recorded.contention.mean,
            blocks=blocks_change(recorded, traced),
            edges_named=recorded.graph.edges.named,
            edges_inferred=recorded.graph.edges.inferred,
            edges_contradicted=recorded.graph.edges.contradicted,
            edges_unknown=recorded.graph.edges.unknown,
            idle_unexplained=idle,
            exchanges_alone=alone,
            groups_inferred=recorded.groups_inferred,
            unchanged=_share(recorded, {c.collective_class for c in changed}),
            cpu_activities=recorded.full,
            profilers=recorded.rows.dialects,
            host_calls=recorded.host_calls,
            event_records=recorded.event_records,
        ),
        bound_before=step_bounds(recorded, before, base) if explained else (),
        bound_after=step_bounds(recorded, after, base * ratio) if explained else (),
    )


def simulate(
    recorded: RecordedJob,
    new: Mapping[CollectiveClass, NewTime],
    *,
    traced: Transfers | None = None,
    measured_step_ns: float | None = None,
) -> Played | None:
    """The record played with the middle of all that `predict` takes the same for.

    None where no class has a new time.
    """
    factors, changed, _ = transfer_factors(recorded, new, traced)
    if not changed:
        return None
    readings = contention_readings(recorded, factors.middle, traced)
    player = Player(recorded)
    host = host_pace(player, measured_step_ns, readings[0])
    return player.after(Scenario(host.middle, factors.middle, readings[0]))


def _share(recorded: RecordedJob, changed: Collection[CollectiveClass]) -> float:
    """Of the collectives' kernel time, what is of other classes than those that change."""
    calls, times = recorded.linked, recorded.linked_times
    counts = ~times.warm_up[calls.call_of_part]
    spent = np.where(counts, times.end - times.start, 0)
    others = np.array([*(k not in changed for k in calls.classes), True], dtype=bool)[calls.class_]
    return float(spent[others[calls.call_of_part]].sum() / max(1, spent.sum()))


def _other_starts_off(player: Player, middle: Scenario, starts: Starts | None) -> float | None:
    """How far the new collectives start from those of the other run, whose host is profiled too."""
    if starts is None:
        return None
    return player.recorded.starts_off_ns(player.after(replace(middle, host=1.0)), starts)


def _simple_saving(recorded: RecordedJob, factor: Floats) -> float:
    """ns a step by the uplift formula: the exposed part of each transfer changes by its factor.

    source  s = sum of f * e * phi * (1 - eta) over classes; the mean over ranks
    """
    calls, times = recorded.linked, recorded.linked_times
    steps, rows = recorded.steps, recorded.rows
    begin, finish = steps.span(rows.end, len(rows.ranks))
    end = rows.end[calls.row]
    inside = (end > begin[calls.trace]) & (end <= finish[calls.trace])
    duration = np.maximum(times.end - times.start, 1)
    transfer = recorded_transfers(recorded)
    part = recorded.exposed[calls.row] * (np.minimum(transfer, duration) / duration) * (1 - factor)
    saved = np.bincount(calls.trace[inside], weights=part[inside], minlength=len(rows.ranks))
    return float(saved.mean() / max(1, int(steps.count.max(initial=1))))
