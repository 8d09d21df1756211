"""Figures of an application."""

from __future__ import annotations

from dataclasses import dataclass

from collscope.model.diagnostic import Diagnostic


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure. `higher_is_better` is None when the unit does not tell."""

    name: str
    value: float
    unit: str | None = None
    higher_is_better: bool | None = None
    label: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class MetricSet:
    """Figures of one text."""

    dialect: str
    metrics: tuple[Metric, ...]
    lines: int
    diagnostics: tuple[Diagnostic, ...] = ()
