"""Figures of an application."""

from __future__ import annotations

import msgspec

from collscope.model.diagnostic import Diagnostic


class Metric(msgspec.Struct, frozen=True):
    """One figure. `higher_is_better` is None when the unit does not show it."""

    name: str
    value: float
    unit: str | None = None
    higher_is_better: bool | None = None
    label: str | None = None
    line: int | None = None


class MetricSet(msgspec.Struct, frozen=True):
    """Figures of one text."""

    dialect: str
    metrics: tuple[Metric, ...]
    lines: int
    diagnostics: tuple[Diagnostic, ...] = ()
