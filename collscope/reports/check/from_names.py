"""`collscope check`: from the names of labels or runs to the answer."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collscope.errors import InputError, UsageError
from collscope.reports.check.answer import DEFAULT_RULES, Check, Rules, check
from collscope.reports.check.verdict import Decision, Reason, Verdict
from collscope.reports.compare.from_names import named_system, require_distinct
from collscope.reports.compare.labels import Label
from collscope.reports.compare.limits import Limits, limits
from collscope.reports.compare.sides import Runs, load, name_traced_runs, sample_runs


def with_limits(check: Check, limits: Limits) -> Check:
    """The verdict with impossible values named; none when every class has one."""
    common = {row.key for row in check.classes if row.ratio is not None}
    found = tuple(v for v in limits.impossible if v.key in common)
    check = replace(check, impossible=found, notes=(*check.notes, *limits.notes))
    if not common or {v.key for v in found} != common:
        return check
    return replace(check, decision=Decision(Verdict.NO_VERDICT, Reason.IMPOSSIBLE, limits.system))


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
    system  whose limits the values are compared with
    raises  UsageError, InputError: see `load` and `load_system`; for rules that are no numbers, and
            a control that shares nothing with the baseline
    """
    require_distinct(db, "check", names.all)
    if not all(map(math.isfinite, (rules.threshold, rules.resolution, rules.total))):
        raise UsageError(
            "check: --threshold, --total-threshold and --resolution take percentages. Give numbers."
        )
    on = named_system(system)
    if name_traced_runs(db, names.all, runs):
        from collscope.reports.check.traced import check_traced  # noqa: PLC0415

        baseline, current, *control = sample_runs(db, names.all)
        found = check_traced(
            baseline, current, control=control[0] if control else None, rules=rules
        )
        labels = [baseline.label, current.label]
    else:
        found, labels = _check(db, names, runs, rules)
    return found if on is None else with_limits(found, limits(on, labels[:2]))


def _check(db: Path, names: Names, runs: Runs, rules: Rules) -> tuple[Check, list[Label]]:
    """Judge a label of measurements."""
    inputs = load(db, names.all, runs, of_first=True)
    baseline, current, *control = inputs.labels
    for label in control:
        if not baseline.classes.keys() & label.classes.keys():
            raise InputError(
                f"control '{label.name}': no class in common with '{baseline.name}'. "
                "Measure the baseline's classes again."
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
