"""Where the labels of a comparison come from: the store, or replay CSVs named by path."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from collscope.errors import InputError, UsageError
from collscope.ingest.commands import ingest_csvs
from collscope.ingest.match import reading, require_run
from collscope.reports.comparison.measured import Label, load_labels
from collscope.reports.comparison.weights import Weights, run_weights

_FILES = (".csv", ".csv.gz", ".csv.zst")


@dataclass(frozen=True, slots=True)
class Inputs:
    """Labels as named, and the calls of the run that weight them."""

    labels: list[Label]
    weights: Weights | None


def load(db: Path, names: Sequence[str], run: str | None) -> Inputs:
    """Labels of the store, or replay CSVs where a name ends in .csv, .csv.gz or .csv.zst.

    db      is not needed as long as every name is a file and no run is named
    run     whose calls weight the classes
    raises  InputError for unknown labels, files and runs; UsageError for a file of several labels
    """
    files = [name for name in names if name.endswith(_FILES)]
    labels = _from_files(files)
    stored = [name for name in names if name not in files]
    if not stored and run is None:
        return Inputs([labels[name] for name in names], None)
    with reading(db) as store:
        if run is not None:
            require_run(store, db, run)
        labels.update((label.name, label) for label in load_labels(store, stored))
        found = [labels[name] for name in names]
        return Inputs(found, None if run is None else run_weights(store, run, found))


def _from_files(paths: Sequence[str]) -> dict[str, Label]:
    """Labels of replay CSVs, each named by its path; all in one store that is thrown away."""
    if not paths:
        return {}
    with TemporaryDirectory(prefix="collscope-") as folder:
        db = Path(folder) / "measurements.db"
        for number, path in enumerate(paths):
            ingest_csvs([path], db, str(number))
        with reading(db) as store:
            return {path: _only(store, path, str(n)) for n, path in enumerate(paths)}


def _only(store: sqlite3.Connection, path: str, run: str) -> Label:
    """The one label of a file."""
    query = "SELECT DISTINCT label FROM measurements WHERE run = ? ORDER BY label"
    found = [row[0] for row in store.execute(query, (run,))]
    if len(found) > 1:
        raise UsageError(
            f"{path}: holds {len(found)} labels ({', '.join(found)}). Put it into a store with "
            "'collscope ingest csv' and name labels."
        )
    if not found:  # ingest_csvs stores nothing of an unusable file
        raise InputError(f"{path}: no measurements. Name a CSV of 'collscope replay'.")
    return replace(load_labels(store, found, run)[0], name=path)
