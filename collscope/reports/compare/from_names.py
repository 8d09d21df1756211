"""`collscope compare`: from the names of labels or runs to the answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from collscope.errors import NoVerdictError, UsageError
from collscope.reports.compare.answer import Comparison, compare
from collscope.reports.compare.labels import Label
from collscope.reports.compare.limits import limits
from collscope.reports.compare.notes import no_results
from collscope.reports.compare.sides import (
    Runs,
    comparable,
    load,
    name_traced_runs,
    sample_runs,
)
from collscope.units import count

if TYPE_CHECKING:
    from collscope.roofline.system import System


def compare_labels(
    db: Path,
    names: Sequence[str],
    runs: Runs = Runs(),  # noqa: B008 - frozen
    system: str | None = None,
) -> Comparison:
    """Compare labels of the store, or replay CSVs, with the first of them.

    runs    of the measurements, and whose calls weight the classes
    system  whose limits the values are compared with
    raises  UsageError, InputError: see `compare`, `load` and `load_system`; NoVerdictError when a
            label has no right result
    """
    require_distinct(db, "compare", names)
    on = named_system(system)
    if name_traced_runs(db, names, runs):
        # Imported here: measurements need no numpy.
        from collscope.reports.compare.traced import compare_traced  # noqa: PLC0415

        traced = sample_runs(db, names)
        found, labels = compare_traced(traced), [run.label for run in traced]
    else:
        found, labels = _compare(db, names, runs)
    limit_notes = () if on is None else limits(on, labels).notes
    return replace(found, notes=(*found.notes, *limit_notes))


def named_system(name: str | None) -> System | None:
    """The system of a name or file; None where none is named."""
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


def require_distinct(db: Path, command: str, names: Sequence[str]) -> None:
    """Raise UsageError where there are not two labels, or one is named twice."""
    if len(set(names)) < max(2, len(names)):
        named = " and ".join(f"'{name}'" for name in names) or "no label"
        sides = comparable(db)
        known = f" (here: {', '.join(map(repr, sides))})" if sides else ""
        raise UsageError(
            f"{command} {named}: nothing to compare. Name two different labels{known}."
        )
