"""An application's own figures with each label: the actual gain beside the predicted one."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from collscope.model import CollectiveClass, Gap, Measurement
from collscope.reports.calls.answer import ClassRow
from collscope.reports.efficiency.jobs import job_of_figure, same_job
from collscope.reports.efficiency.judged_classes import device_calls
from collscope.reports.efficiency.serving import Matcher, MeasurementIndex
from collscope.reports.efficiency.time_breakdown import Fraction
from collscope.reports.efficiency.uplift import implied_share, predicted_gain

_METRICS = """
SELECT name, unit, higher_is_better, label, value FROM metrics WHERE run = ? ORDER BY metric_id
"""

# Words that do not distinguish settings: articles, and parts of a variable's name.
_FILLERS = {"the", "nccl", "rccl", "net", "level"}


class ApplicationMetric(msgspec.Struct, frozen=True):
    """An application's figure with one label against the first label it was recorded with."""

    name: str
    unit: str | None
    reference: str
    label: str
    reference_value: float
    value: float
    gain: float | None  # end to end; None: the unit does not show which direction is better
    collective_speed_up: float | None  # of the measured collectives, reference / label
    # which collectives these are: of so many classes of the run, by their calls, or of one class,
    # the largest that both labels measured
    speed_up_of: int | CollectiveClass | None
    implied_share: float | None  # exposed share that gain and speed-up imply
    # From the speed-up and the exposed collective share of the same job; None: no profile is known
    # to be of the same job. The second counts what an excerpt does not list as collectives too.
    predicted_gain: float | None
    predicted_high: float | None  # the same where all that an excerpt does not list is collectives


class _SpeedUp(NamedTuple):
    """How much faster the collectives are with one label than with another, and which."""

    value: float
    of: int | CollectiveClass


def application_metrics(
    connection: sqlite3.Connection,
    run: str,
    rows: Sequence[Measurement],
    classes: Sequence[ClassRow],
    fractions: Sequence[Fraction],
) -> tuple[ApplicationMetric, ...]:
    """Each figure of each label against that of its first label, in the order they were read.

    rows       measurements of the run: how much faster the collectives became
    fractions  collective shares of the time, one for each job
    """
    values: dict[tuple[str, str | None, int | None], dict[str, list[float]]] = defaultdict(dict)
    for name, unit, better, label, value in connection.execute(_METRICS, (run,)):
        values[name, unit, better].setdefault(label, []).append(value)
    by_label = _by_plain_label(rows) if values else {}
    jobs = [job_of_figure(name) for name, _, _ in values]
    found = []
    for (name, unit, better), labels in values.items():
        reference, *others = labels
        fraction = _of_job(job_of_figure(name), jobs, fractions)
        for label in others:
            faster = _speed_up(by_label, reference, label, classes)
            pair = median(labels[reference]), median(labels[label])
            found.append(_row((name, unit, better), (reference, label), pair, faster, fraction))
    return tuple(found)


def job_names(connection: sqlite3.Connection, run: str) -> tuple[str, ...]:
    """Jobs of the run's figures, as far as their names show."""
    names = connection.execute("SELECT DISTINCT name FROM metrics WHERE run = ?", (run,))
    return tuple(dict.fromkeys(filter(None, (job_of_figure(name) for (name,) in names))))


def _of_job(job: str, jobs: Sequence[str], fractions: Sequence[Fraction]) -> Fraction | None:
    """The share of a figure's job; None where no profile is known to be of it."""
    found = [f for f in fractions if same_job(job, jobs, f.job, len(fractions))]
    return found[0] if len(found) == 1 else None


def _row(
    what: tuple[str, str | None, int | None],
    labels: tuple[str, str],
    values: tuple[float, float],
    faster: _SpeedUp | None,
    fraction: Fraction | None,
) -> ApplicationMetric:
    name, unit, better = what
    old, new = values
    gain = None
    if better is not None and old > 0 and new > 0:
        gain = (new / old if better else old / new) - 1
    g = None if faster is None else faster.value
    return ApplicationMetric(
        name=name,
        unit=unit,
        reference=labels[0],
        label=labels[1],
        reference_value=old,
        value=new,
        gain=gain,
        collective_speed_up=g,
        speed_up_of=None if faster is None else faster.of,
        implied_share=None if gain is None or g is None else implied_share(gain, g),
        predicted_gain=_predicted(fraction, g, high=False),
        predicted_high=_predicted(fraction, g, high=True),
    )


def _predicted(fraction: Fraction | None, faster: float | None, *, high: bool) -> float | None:
    if fraction is None or faster is None:
        return None
    value = fraction.value + (fraction.hidden if high else 0.0)
    exposed = value * (1.0 if fraction.exposure is None else fraction.exposure)
    return predicted_gain(exposed * (1 - fraction.waiting), faster)


def plain(label: str) -> str:
    """The label in a form that can be compared: people write one setting in several ways.

    >>> plain("With the Plugin + GDR=3"), plain("with plugin, NCCL_NET_GDR_LEVEL=3")
    ('with plugin gdr 3', 'with plugin gdr 3')
    """
    words = re.findall(r"[a-z0-9.]+", label.casefold())
    return " ".join("no" if word == "without" else word for word in words if word not in _FILLERS)


def _by_plain_label(rows: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    found: dict[str, list[Measurement]] = defaultdict(list)
    for row in rows:
        if row.usable or row.wrong:
            found[plain(row.label or "")].append(row)
    return found


def _speed_up(
    by_label: Mapping[str, list[Measurement]],
    reference: str,
    label: str,
    classes: Sequence[ClassRow],
) -> _SpeedUp | None:
    """Speed-up of the run's calls where both labels measured them, else of the largest message."""
    old, new = by_label.get(plain(reference), ()), by_label.get(plain(label), ())
    if not old or not new:
        return None
    return _of_calls(old, new, classes) or _of_largest(old, new)


def _of_calls(
    old: Iterable[Measurement], new: Iterable[Measurement], classes: Sequence[ClassRow]
) -> _SpeedUp | None:
    before, after = Matcher(old), Matcher(new)
    old_ns = new_ns = 0.0
    counted = 0
    for row in classes:
        first, second = before.match(row), after.match(row)
        if first is None or second is None or not first.time_ns or not second.time_ns:
            continue
        old_ns += device_calls(row) * first.time_ns
        new_ns += device_calls(row) * second.time_ns
        counted += 1
    return _SpeedUp(old_ns / new_ns, counted) if new_ns else None


def _of_largest(old: Iterable[Measurement], new: Iterable[Measurement]) -> _SpeedUp | None:
    before = MeasurementIndex(m for m in old if m.usable)
    after: dict[CollectiveClass, list[float]] = defaultdict(list)
    for m in new:
        if m.usable and m.size_bytes:
            after[m.collective_class].append(m.time_us_median or 0.0)
    for largest in sorted(after, key=lambda c: (c.size_bytes or 0, str(c)), reverse=True):
        # Other nodes would be another machine, not another setting.
        serving = [s for s in before.serving(largest) if Gap.NODES_DIFFER not in s.gaps]
        if not serving:
            continue
        nearest = min(s.distance for s in serving)
        times = [s.measurement.time_us_median or 0.0 for s in serving if s.distance == nearest]
        return _SpeedUp(median(times) / median(after[largest]), largest)
    return None
