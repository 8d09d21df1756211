"""`collscope compare` and `collscope check`: from the names of labels or runs to the answer."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collscope.analysis.check import DEFAULT_RULES, Check, Rules, check
from collscope.analysis.limits import limited
from collscope.errors import InputError, UsageError
from collscope.reports.compare.from_names import named_system, require_distinct
from collscope.reports.compare.labels import Label
from collscope.reports.compare.limits import limits
from collscope.reports.compare.sides import Runs, load, name_traced_runs, sample_runs


class Names(msgspec.Struct, frozen=True):
    """The labels of a check, or paths of replay CSVs."""

    baseline: str
    current: str
    control: str | None = None

    @property
    def all(self) -> tuple[str, ...]:
        """Those that were named."""
        return (self.baseline, self.current, *([self.control] if self.control is not None else []))


def check_labels(
    db: Path,
    names: Names,
    runs: Runs = Runs(),  # noqa: B008 - frozen
    system: str | None = None,
    rules: Rules = DEFAULT_RULES,
) -> Check:
    """Judge a label of the store, or a replay CSV, by another.

    runs    of the measurements, and whose calls weight the classes
    system  whose limits the values are held against
    raises  UsageError, InputError: see `load` and `load_system`; for rules that are no numbers, and
            a control that shares nothing with the baseline
    """
    require_distinct("check", names.all)
    if not (math.isfinite(rules.threshold) and math.isfinite(rules.resolution)):
        raise UsageError("check: --threshold and --resolution are percentages. Give numbers.")
    on = named_system(system)
    if name_traced_runs(db, names.all, runs):
        from collscope.analysis.compare_traced import check_traced  # noqa: PLC0415

        baseline, current, *control = sample_runs(db, names.all)
        found = check_traced(
            baseline, current, control=control[0] if control else None, rules=rules
        )
        labels = [baseline.label, current.label]
    else:
        found, labels = _check(db, names, runs, rules)
    return found if on is None else limited(found, limits(on, labels[:2]))


def _check(db: Path, names: Names, runs: Runs, rules: Rules) -> tuple[Check, list[Label]]:
    """Judge a label of measurements."""
    inputs = load(db, names.all, runs, of_first=True)
    baseline, current, *control = inputs.labels
    for label in control:
        if not baseline.classes.keys() & label.classes.keys():
            raise InputError(
                f"control '{label.name}': no class in common with '{baseline.name}'. "
                "Measure the baseline's classes once more."
            )
    weights = inputs.weights
    found = check(
        baseline,
        current,
        weights=None if weights is None else weights.calls,
        control=(baseline, control[0]) if control else None,
        rules=rules,
    )
    notes = () if weights is None else weights.notes
    return replace(found, notes=(*inputs.notes, *notes, *found.notes)), inputs.labels
