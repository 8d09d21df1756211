"""The record of a tune out of its state, however far it came (pure)."""

from __future__ import annotations

from statistics import median

from collscope.model import Datatype, Measurement
from collscope.tuning.choose import PRESENT
from collscope.tuning.confirm import TUNED
from collscope.tuning.decide import improvement
from collscope.tuning.records import SettingRow, Tried, TunedClass, Tuning
from collscope.tuning.settings import DEFAULT
from collscope.tuning.state import FILES, State
from collscope.units import in_ns


def summary(state: State) -> Tuning:
    """Everything that the report and the evidence show."""
    request, search = state.request, state.search
    first = next(iter(search.first.values()), None)
    return Tuning(
        outcome=state.outcome,
        why=state.why,
        kind=state.choice.kind,
        library=None if first is None else first.library,
        device=None if first is None else first.device,
        nranks=request.plan.nranks,
        seed=request.seed,
        present=request.present,
        present_known=request.settings_logged,
        traced_blocks=request.blocks,
        kept=request.kept,
        job=request.job,
        classes=tuple(_class(state, c.id) for c in request.plan.classes if c.id in search.first),
        settings=tuple(_settings(state)),
        environment=() if state.tuned is None else state.tuned.environment,
        unset=state.unset,
        rows=tuple(state.choice.rows),
        gain=state.gain,
        tried=tuple(_tried(state)),
        launches=search.launches.count,
        took_ns=1e9 * search.clock.elapsed_s,
        estimated_ns=None if state.estimated_s is None else 1e9 * state.estimated_s,
        time_limit_ns=1e9 * search.clock.limit_s,
        files=tuple(name for name in sorted(FILES) if (request.out / name).exists()),
        notices=tuple(state.notices),
    )  # fmt: skip


def _class(state: State, class_id: int) -> TunedClass:
    search = state.search
    m: Measurement = search.first[class_id]
    planned = next(c for c in state.request.plan.classes if c.id == class_id)
    weight = 0.0
    roof = state.request.roofs_us.get(class_id)
    calls = planned.calls / len(planned.comms)
    present = _time(state, class_id, PRESENT)
    default = _time(state, class_id, search.default)
    now = present if present is not None else default
    if now is not None:
        weight = calls * max(0.0, now - (roof or 0.0)) * state.request.job.exposed * 1000
    known = next((c for c in state.candidates if c.class_id == class_id), None)
    return TunedClass(
        state.request.report_id(class_id),
        class_id,
        m.op.value,
        (m.datatype or Datatype.UNKNOWN).value,
        m.size_bytes or 0,
        m.nranks or 1,
        m.nnodes or 1,
        calls,
        in_ns(roof),
        weight,
        state.worth is not None and class_id in state.worth.kept,
        state.choice.by_class.get(class_id),
        in_ns(present),
        in_ns(default),
        in_ns(_confirmed(state, class_id, TUNED)),
        None if known is None else known.floor,
    )


def _confirmed(state: State, class_id: int, label: str) -> float | None:
    if state.confirmed is None:
        return None
    times = state.confirmed.times[class_id][label]
    return median(times.values()) if times else None


def _time(state: State, class_id: int, name: str) -> float | None:
    """Confirmed, else as the search had it."""
    found = _confirmed(state, class_id, name)
    times = state.search.times[class_id].get(name)
    return found if found is not None or not times else median(times.values())


def _settings(state: State) -> list[SettingRow]:
    """Every setting, tried or not."""
    search = state.search
    chosen = set(state.choice.by_class.values()) if state.tuned is not None else set()
    rows = []
    for name, setting in search.settings.items():
        classes = sum(bool(search.times[c].get(name)) for c in search.first)
        refused = [why for (who, _), why in search.failed.items() if who == name]
        if name in search.dropped:
            outcome = f"dropped: {search.dropped[name]}"
        elif not search.counts[name]:
            outcome = state.excluded.get(name, "not tried")
        elif name in chosen:
            outcome = "chosen"
        elif refused:
            outcome = f"refused for some classes: {refused[0]}"
        else:
            outcome = "reference" if name in (PRESENT, DEFAULT.name) else "not chosen"
        rows.append(SettingRow(name, setting.variables_text, search.counts[name], classes, outcome))
    listed = {row.name for row in rows}
    return rows + [
        SettingRow(name, "", 0, 0, f"left out: {why}")
        for name, why in state.excluded.items()
        if name not in listed
    ]


def _tried(state: State) -> list[Tried]:
    """Times of the search, also where it was cut short."""
    search = state.search
    found = []
    for class_id in search.first:
        known = next((c for c in state.candidates if c.class_id == class_id), None)
        reference = search.times[class_id].get(PRESENT) or {}
        for name, times in search.times[class_id].items():
            if not times:
                continue
            standing = None if known is None else known.standings.get(name)
            # The interval that decided; there is none where the search was cut short.
            decided = None if standing is None else standing.against_present
            against = improvement(reference, times) if decided is None else decided
            known_interval = against is not None and against.rounds > 1
            found.append(
                Tried(
                    state.request.report_id(class_id),
                    name,
                    len(times),
                    1000 * median(times.values()),
                    None if against is None else against.saved,
                    max(-1e3, against.low) if against is not None and known_interval else None,
                    against.high if against is not None and known_interval else None,
                    standing is not None and standing.accepted,
                )
            )
    return found
