"""`collscope compare` and `collscope check`: from the names of labels or runs to the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from collscope.analysis.check import DEFAULT_RULES, Check, Rules, check
from collscope.analysis.compare import Comparison, compare
from collscope.analysis.labels import Label
from collscope.analysis.limits import limited, limits
from collscope.analysis.notes import no_results
from collscope.analysis.sides import Runs, load, name_traced_runs, sample_runs
from collscope.errors import InputError, NoVerdictError, UsageError
from collscope.units import count

if TYPE_CHECKING:
    from collscope.roofline.system import System


class Names(msgspec.Struct, frozen=True):
    """The labels of a check, or paths of replay CSVs."""

    baseline: str
    current: str
    control: str | None = None

    @property
    def all(self) -> tuple[str, ...]:
        """Those that were named."""
        return (self.baseline, self.current, *([self.control] if self.control is not None else []))


def compare_labels(
    db: Path,
    names: Sequence[str],
    runs: Runs = Runs(),  # noqa: B008 - frozen
    system: str | None = None,
) -> Comparison:
    """Compare labels of the store, or replay CSVs, with the first of them.

    runs    of the measurements, and whose calls weight the classes
    system  whose limits the values are held against
    raises  UsageError, InputError: see `compare`, `load` and `load_system`; NoVerdictError when a
            label has no right result
    """
    _distinct("compare", names)
    on = _system(system)
    if name_traced_runs(db, names, runs):
        # Imported here: measurements need no numpy.
        from collscope.analysis.compare_traced import compare_traced  # noqa: PLC0415

        traced = sample_runs(db, names)
        found, labels = compare_traced(traced), [run.label for run in traced]
    else:
        found, labels = _compare(db, names, runs)
    limit_notes = () if on is None else limits(on, labels).notes
    return replace(found, notes=(*found.notes, *limit_notes))


def _system(name: str | None) -> System | None:
    if name is None:
        return None
    # Most comparisons name no system, and loading one takes long.
    from collscope.roofline.catalogue import load_system  # noqa: PLC0415

    return load_system(name)


def _compare(db: Path, names: Sequence[str], runs: Runs) -> tuple[Comparison, list[Label]]:
    """Compare labels of measurements."""
    inputs = load(db, names, runs)
    weights = inputs.weights
    without = no_results(inputs.labels)
    if without:
        first = without[0]
        classes = count(first.wrong + first.failed, "class", "classes")
        raise NoVerdictError(
            f"compare: label '{first.label}' has no right result: {classes}, all wrong or failed."
            " Measure again, or name another label."
        )
    found = compare(inputs.labels, runs.weights, None if weights is None else weights.calls)
    notes = () if weights is None else weights.notes
    return replace(found, notes=(*inputs.notes, *notes, *found.notes)), inputs.labels


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
    _distinct("check", names.all)
    if not (math.isfinite(rules.threshold) and math.isfinite(rules.resolution)):
        raise UsageError("check: --threshold and --resolution are percentages. Give numbers.")
    on = _system(system)
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


def _distinct(command: str, names: Sequence[str]) -> None:
    """Raise UsageError where there are not two labels, or one is named twice."""
    if len(set(names)) < max(2, len(names)):
        told = " and ".join(f"'{name}'" for name in names) or "no label"
        raise UsageError(f"{command} {told}: nothing to compare. Name two different labels.")
