"""What a page adds to a tune: every setting on every class, what was chosen, and the step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from collscope.reports.rendering.drawing import (
    COLOURS,
    INK,
    Sheet,
    log_axis,
)
from collscope.reports.rendering.layout import NUMBER, TEXT, scaled, table
from collscope.reports.rendering.page import Extras, Fact, Figure
from collscope.tuning.choose import PRESENT
from collscope.tuning.records import TUNED, Tried, TunedClass, Tuning
from collscope.tuning.settings import DEFAULT
from collscope.units import count, figure, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from collscope.reports.rendering.drawing import Drawing

_MOST_CLASSES = 12
_MOST_SETTINGS = 14  # of a class, the fastest
_LINE = 0.2  # inches of a setting within its class


def tuning_extras(found: Tuning) -> Extras:
    """Facts and drawings of a tune."""
    shown = sorted(found.classes, key=lambda c: -c.weight_ns)[:_MOST_CLASSES]
    left = len(found.classes) - len(shown)
    rest = f" {left} classes with smaller savings are not drawn." if left else ""
    return Extras(
        tuple(_facts(found)),
        {"": tuple(_step(found)), "Classes": (*_times(shown, rest), *_tried(found, shown, rest))},
    )


def _facts(found: Tuning) -> Iterable[Fact]:
    yield Fact("Outcome", found.outcome, found.why)
    if found.gain is not None and found.outcome == TUNED:
        g = found.gain
        yield Fact(
            "Collective time, tuned", _less(g.collective),
            _between(g.collective_low, g.collective_high), "Classes",
        )  # fmt: skip
        if g.step is None:
            yield Fact("The job's time, tuned", "not known", "give --step-ms, or ingest a profile")
        else:
            yield Fact("The job's time, tuned", _less(g.step), _between(g.step_low, g.step_high))
    won = [c for c in found.classes if c.setting and c.present_ns and c.tuned_ns]
    if won and found.outcome == TUNED:
        best = max(won, key=lambda c: ((c.present_ns or 0) - (c.tuned_ns or 0)) * c.calls)
        yield Fact("Largest saving", _name(best),
                   f"{figure((best.present_ns or 0) / 1e3, 4)} to "
                   f"{figure((best.tuned_ns or 0) / 1e3, 4)} us with "
                   f"{best.setting}", "Classes")  # fmt: skip


def _less(saved: float) -> str:
    return f"{-100 * saved:+.1f} %"


def _between(low: float | None, high: float | None) -> str:
    """The interval of a saved part, as the change of the time."""
    return "" if low is None or high is None else f"{-100 * high:+.1f} to {-100 * low:+.1f} %"


def _name(c: TunedClass) -> str:
    return f"{c.op} {format_size(c.size_bytes)} x{c.nranks}"


def _step(found: Tuning) -> Iterable[Figure]:
    """The present step and the step with the tuned setting; none where its time is unknown."""
    gain, job = found.gain, found.job
    if gain is None or gain.step is None or not job.time_ns or found.outcome != TUNED:
        return
    before = job.time_ns / 1e6
    low, after, high = (
        before * (1 - (gain.step if part is None else part))
        for part in (gain.step_high, gain.step, gain.step_low)
    )

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.rows(("present", "tuned"))
        bars = axis.barh((0, 1), (before, after), color=(COLOURS[0], COLOURS[2]), height=sheet.bar)
        for side, bar in enumerate(bars):
            bar.set_gid(f"step-{side}")
        axis.errorbar(after, 1, xerr=[[after - low], [high - after]], fmt="|", color=INK,
                      capsize=4, lw=1.4)  # fmt: skip
        axis.set_xlabel("ms")
        return drawing

    yield Figure(
        "The job's time, present and tuned",
        f"{job.basis[:1].upper()}{job.basis[1:]}. The line is the 95 % interval of the saved time."
        " We assume that nothing else changes.",
        make,
        table([("setting", TEXT), ("ms", NUMBER), ("from", NUMBER), ("to", NUMBER)],
              [("present", before, None, None), ("tuned", after, low, high)]),
        {"step-0": f"present: {before:.4g} ms",
         "step-1": f"tuned: {after:.4g} ms ({low:.4g} to {high:.4g})"},
    )  # fmt: skip


_KINDS = (("present", "o", "none", INK), ("default", "s", "none", COLOURS[0]),
          ("tuned", "o", COLOURS[2], COLOURS[2]), ("reachable", "|", INK, INK))  # fmt: skip


def _times(shown: Sequence[TunedClass], rest: str) -> Iterable[Figure]:
    """Each class with the present setting, the default, the tuned one, and the reachable time."""
    rows = [
        (c, {"present": scaled(c.present_ns, 1e3), "default": scaled(c.default_ns, 1e3),
             "tuned": scaled(c.tuned_ns, 1e3), "reachable": scaled(c.roof_ns, 1e3)})
        for c in shown if c.present_ns or c.default_ns
    ]  # fmt: skip
    if not rows:
        return

    def make(sheet: Sheet) -> Drawing:
        drawing, axis = sheet.rows([_name(c) for c, _ in rows])
        for i, (c, times) in enumerate(rows):
            known = [us for us in times.values() if us]
            axis.plot([min(known), max(known)], [i, i], color="#999999", lw=1, zorder=1,
                      gid=f"times-{c.class_id}")  # fmt: skip
            for name, mark, face, edge in _KINDS:
                us = times[name]
                if us:
                    axis.plot(us, i, mark, ms=12 if mark == "|" else 7, mfc=face, mec=edge)
        for name, mark, face, edge in _KINDS:
            axis.plot([], [], mark, ms=9, mfc=face, mec=edge, label=name)
        log_axis(axis, "x")
        axis.set_xlabel("us of one call")
        return drawing

    found = table(
        [("class", TEXT), *((f"{name} us", NUMBER) for name, *_ in _KINDS), ("setting", TEXT)],
        ((_name(c), *times.values(), c.setting) for c, times in rows),
    )
    marks = {
        f"times-{c.class_id}": "\n".join(
            [_name(c), *(f"{n} {figure(us, 4)} us" for n, us in times.items() if us)]
        )
        for c, times in rows
    }
    yield Figure(
        "Time of one call of each class",
        "Times with the present setting, the library's default and the tuned setting. The stroke "
        "marks the reachable time, if a system is named." + rest,
        make, found, marks,
    )  # fmt: skip


def _tried(found: Tuning, shown: Sequence[TunedClass], rest: str) -> Iterable[Figure]:
    """Every setting tried on a class as a mark with its interval, the chosen one filled."""
    known = [
        (c, sorted((t for t in found.tried if _of(c, t)), key=_ratio))
        for c in shown if any(_of(c, t) and t.setting != PRESENT for t in found.tried)
    ]  # fmt: skip
    rows = [
        (c, t, _chosen(c, tried) == t.setting)
        for c, tried in known
        for t in _shown_settings(c, tried)
    ]
    if not rows:
        return
    left = sum(len(tried) for _, tried in known) - len(rows)

    def make(sheet: Sheet) -> Drawing:
        lines: list[tuple[str, Tried | None, bool]] = []
        for c, of_class in groupby(rows, key=lambda row: row[0]):
            lines.append((_name(c), None, False))
            lines += [(t.setting, t, chosen) for _, t, chosen in of_class]
        drawing, axis = sheet.rows([name for name, _, _ in lines], _LINE)
        names = axis.texts if sheet.narrow else axis.get_yticklabels()
        for y, (name, (_, t, chosen)) in enumerate(zip(names, lines, strict=True)):
            if t is None:
                name.set_fontweight("bold")
                axis.axhline(y - 0.5, color="#999999", lw=0.5)
            else:
                _draw_setting(axis, t, y, chosen=chosen)
        for label, style in _STYLES.items():
            axis.plot([], [], **style, ls="", label=label)
        axis.axvline(1, color=INK, lw=1)
        axis.tick_params(axis="y", length=0)
        ratios = [_ratio(t) for _, t, _ in rows]
        axis.set_xlim(min(ratios) / 1.3, max(ratios) * 1.3)
        log_axis(axis, "x")
        axis.set_xlabel("time / time with the present setting")
        return drawing

    cells = table(
        [("class", TEXT), ("setting", TEXT), ("rounds", NUMBER), ("us", NUMBER),
         ("ratio", NUMBER), ("from", NUMBER), ("to", NUMBER), ("outcome", TEXT)],
        (
            (_name(c), t.setting, t.rounds, t.time_ns / 1e3, f"{_ratio(t):.3f}",
             *(None if part is None else f"{1 - part:.3f}" for part in (t.high, t.low)),
             "chosen" if chosen else "surely better" if t.accepted else None)
            for c, t, chosen in rows
        ),
    )  # fmt: skip
    more = f" The {left} slowest settings are not drawn." if left else ""
    yield Figure(
        "Settings tried on each class",
        "Left of 1, a setting is faster than the present one. Lines are the intervals that decided;"
        " they need enough rounds." + rest + more,
        make, cells,
        {f"tried-{c.class_id}-{t.setting}": _tooltip(c, t) for c, t, _ in rows},
    )  # fmt: skip


def _of(c: TunedClass, t: Tried) -> bool:
    return t.class_id == c.class_id and t.saved is not None


def _chosen(c: TunedClass, tried: Sequence[Tried]) -> str | None:
    """The chosen setting by the search's name: the default is `present` where nothing is set."""
    if c.setting == DEFAULT.name and all(t.setting != c.setting for t in tried):
        return PRESENT
    return c.setting


def _shown_settings(c: TunedClass, tried: Sequence[Tried]) -> list[Tried]:
    """The fastest settings of a class, and always the present and the chosen one."""
    always = {PRESENT, _chosen(c, tried)}
    return [t for i, t in enumerate(tried) if i < _MOST_SETTINGS or t.setting in always]


_STYLES: dict[str, dict[str, Any]] = {
    "present setting": {"marker": "o", "mfc": "none", "color": INK, "ms": 7},
    "tried": {"marker": "o", "mfc": "none", "color": COLOURS[0], "ms": 7},
    "chosen for the class": {"marker": "o", "color": COLOURS[2], "ms": 8},
}


def _draw_setting(axis: Axes, t: Tried, y: float, *, chosen: bool) -> None:
    kind = "chosen for the class" if chosen else "tried"
    style = _STYLES["present setting" if t.setting == PRESENT and not chosen else kind]
    if t.low is not None and t.high is not None:
        axis.plot([1 - t.high, 1 - t.low], [y, y], lw=1.6, color=style["color"], zorder=2)
    axis.plot(_ratio(t), y, **style, zorder=3, gid=f"tried-{t.class_id}-{t.setting}")


def _ratio(t: Tried) -> float:
    """Time with the setting over that with the present one."""
    return 1 - (t.saved or 0.0)


def _tooltip(c: TunedClass, t: Tried) -> str:
    interval = "" if t.low is None or t.high is None else f" ({1 - t.high:.3f} to {1 - t.low:.3f})"
    return (
        f"{_name(c)}\n{t.setting}: {figure(t.time_ns / 1e3, 4)} us, {_ratio(t):.3f} of the present"
        " time"
        f"{interval}, {count(t.rounds, 'round')}"
    )
