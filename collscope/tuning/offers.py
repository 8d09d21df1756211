"""Which settings are tried on which classes, and why others are not (pure)."""

from __future__ import annotations

from collscope.roofline.floors import model_lines
from collscope.roofline.nccl_model import best_line
from collscope.roofline.system import System
from collscope.tuning.intervals import Shape
from collscope.tuning.settings import (
    CHANNELS,
    Setting,
    other_settings,
    pair_settings,
    why_not,
)
from collscope.tuning.state import State

MODEL_FACTOR = 2.0  # a setting that the model puts so far above the measured default is not tried


def offer(state: State) -> dict[int, list[str]]:
    """Settings by class to tune, put into the search; what is left out everywhere is noted."""
    assert state.worth is not None  # asked before
    place, settings = state.place, state.search.settings
    shapes = {c: state.shape(c) for c in state.worth.kept}
    ops = {s.op for s in shapes.values()}
    nnodes = max(s.nnodes for s in shapes.values())
    legal: dict[int, list[str]] = {c: [] for c in shapes}
    ours = [*pair_settings(place), *other_settings(place, ops, nnodes)]
    named = state.wanted.named
    if named is not None:
        state.excluded |= {s.name: "not named by --try" for s in ours if s.name not in named}
        ours = [s for s in ours if s.name in named]
    for setting in (*state.wanted.candidates, *ours):
        twin = next((s for s in settings.values() if s.environment == setting.environment), None)
        if twin is not None:
            state.excluded[setting.name] = f"is '{twin.name}'"
            continue
        reasons = {c: _reason(state, setting, c, shape) for c, shape in shapes.items()}
        if all(reasons.values()):
            told = dict.fromkeys(reason for reason in reasons.values() if reason)
            state.excluded[setting.name] = "; ".join(told)
            continue
        settings[setting.name] = setting
        for class_id, reason in reasons.items():
            if reason is None:
                legal[class_id].append(setting.name)
    state.estimated_s = _estimate(state, len(settings))
    return legal


def _estimate(state: State, settings: int) -> float:
    """Seconds that the whole takes: rounds of all settings, of half of them, and of a few."""
    clock = state.search.clock
    assert state.worth is not None
    channels = 2 * len(CHANNELS.get(state.place.library or "", ()))
    launches = settings + (settings + channels) / 2 + 3 * (settings + channels) / 4 + 5
    search = launches * clock.launch_s(len(state.worth.kept))
    return clock.elapsed_s + min(search, max(0.0, clock.left_s)) + clock.reserved_s


def _reason(state: State, setting: Setting, class_id: int, shape: Shape) -> str | None:
    """Why a setting is not tried on a class; None when it is."""
    reason = why_not(setting, shape.op, shape.nranks, shape.nnodes, state.place)
    default = state.search.times[class_id].get(state.search.default)
    if reason or state.wanted.system is None or not default:
        return reason
    size = state.search.first[class_id].size_bytes or 0
    return screened(state.wanted.system, setting, shape, size, min(default.values()))


def screened(
    system: System, setting: Setting, shape: Shape, size: int, default_us: float
) -> str | None:
    """Why the library's own model rules a setting out; None where it does not, or does not apply.

    default_us  measured; a model that is far from it says nothing of this machine
    """
    lines = model_lines(system, shape.op, shape.nranks, shape.nnodes)
    wanted = (setting.algorithm, setting.protocol)
    line = next((x for x in lines if (x.algorithm.lower(), x.protocol.lower()) == wanted), None)
    if line is None:
        return None
    trust = best_line(lines, size).time_us(size) / default_us
    ratio = line.time_us(size) / default_us
    if not 1 / MODEL_FACTOR < trust < MODEL_FACTOR or ratio <= MODEL_FACTOR:
        return None
    return f"the library's model puts it at {ratio:.1f} x the default"
