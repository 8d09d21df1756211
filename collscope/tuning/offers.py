"""Which settings are tried on which classes, and why others are not (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from collscope.roofline.floors import model_lines
from collscope.roofline.nccl_model import best_line
from collscope.roofline.system import System
from collscope.tuning.intervals import Shape
from collscope.tuning.settings import (
    CHANNELS,
    Setting,
    TuningTarget,
    other_settings,
    pair_settings,
    why_not,
)
from collscope.tuning.state import State, TuningRequest

MODEL_FACTOR = 2.0  # a setting that the model puts so far above the measured default is left out


def offer_settings(state: State) -> dict[int, list[str]]:
    """Settings by class to tune, put into the search; what is left out everywhere is noted."""
    assert state.worth is not None  # asked before
    shapes = {c: state.shape(c) for c in state.worth.kept}
    found = settings_offered(
        state.request,
        state.place,
        shapes,
        state.search.settings,
        lambda setting, c: _reason(state, setting, c, shapes[c]),
    )
    state.search.settings |= found.settings
    state.excluded |= found.excluded
    state.estimated_s = _estimate(state, len(state.search.settings))
    return found.legal


class Offered(msgspec.Struct, frozen=True):
    """Settings to try in addition to the present one and the default."""

    settings: dict[str, Setting]  # by name, the likelier first
    legal: dict[int, list[str]]  # their names by class
    excluded: dict[str, str]  # settings that no class has, and why


def settings_offered(
    request: TuningRequest,
    place: TuningTarget,
    shapes: Mapping[int, Shape],
    known: Mapping[str, Setting],
    reason_of: Callable[[Setting, int], str | None],
) -> Offered:
    """Settings of the user's own and of ours that fit a library and a machine.

    shapes     of the classes to tune, by their id; not empty
    known      the present setting and the default
    reason_of  why a setting is not tried on a class; None when it is
    """
    ops = {s.op for s in shapes.values()}
    nnodes = max(s.nnodes for s in shapes.values())
    found = Offered({}, {c: [] for c in shapes}, {})
    ours = [*pair_settings(place), *other_settings(place, ops, nnodes)]
    if request.named is not None:
        unnamed = [s.name for s in ours if s.name not in request.named]
        found.excluded.update(dict.fromkeys(unnamed, "not named by --try"))
        ours = [s for s in ours if s.name in request.named]
    for setting in (*request.candidates, *ours):
        others = (*known.values(), *found.settings.values())
        twin = next((s for s in others if s.environment == setting.environment), None)
        if twin is not None:
            found.excluded[setting.name] = f"equals '{twin.name}'"
            continue
        reasons = {c: reason_of(setting, c) for c in shapes}
        if all(reasons.values()):
            found.excluded[setting.name] = _by_reason(reasons, shapes)
            continue
        found.settings[setting.name] = setting
        for class_id, reason in reasons.items():
            if reason is None:
                found.legal[class_id].append(setting.name)
    return found


def _by_reason(reasons: Mapping[int, str | None], shapes: Mapping[int, Shape]) -> str:
    """Each reason once, with the operations that it holds for."""
    ops: dict[str, dict[str, None]] = {}
    for class_id, reason in reasons.items():
        if reason:
            ops.setdefault(reason, {})[shapes[class_id].op.value] = None
    return "; ".join(f"{reason} ({', '.join(of)})" for reason, of in ops.items())


def search_launches(settings: int, library: str | None) -> float:
    """About how many launches the search makes: rounds of all settings, of half, and of a few.

    settings  with the present one and the default
    """
    channels = 2 * len(CHANNELS.get(library or "", ()))
    return settings + (settings + channels) / 2 + 3 * (settings + channels) / 4 + 5


def _estimate(state: State, settings: int) -> float:
    """Seconds that the whole takes."""
    clock = state.search.clock
    assert state.worth is not None
    launches = search_launches(settings, state.place.library)
    search = launches * clock.launch_s(len(state.worth.kept))
    return clock.elapsed_s + min(search, max(0.0, clock.left_s)) + clock.reserved_s


def _reason(state: State, setting: Setting, class_id: int, shape: Shape) -> str | None:
    """Why a setting is not tried on a class; None when it is."""
    reason = why_not(setting, shape.op, shape.nranks, shape.nnodes, state.place)
    default = state.search.times[class_id].get(state.search.default)
    if reason or state.request.system is None or not default:
        return reason
    size = state.search.first[class_id].size_bytes or 0
    return screened(state.request.system, setting, shape, size, min(default.values()))


def screened(
    system: System, setting: Setting, shape: Shape, size: int, default_us: float
) -> str | None:
    """Why the library's own model rules a setting out; None where it does not, or does not apply.

    default_us  measured; a model far from it does not apply to this machine
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
    return f"the library's model estimates {ratio:.1f} times the default's time"
