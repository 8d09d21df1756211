"""Where the sides of a comparison come from: labels and traced runs of the store, replay CSVs."""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from collscope.errors import InputError, UsageError
from collscope.ingest.match import reading, require_known, require_matched, require_run
from collscope.ingest.paths import expand_files
from collscope.model import Severity
from collscope.reports.compare.labels import Label, aligned, load_labels
from collscope.reports.compare.notes import Damaged, Note
from collscope.reports.compare.weights import Weights, run_weights
from collscope.stats import Samples
from collscope.store.connection import is_store, open_store
from collscope.store.measurements import measurement_labels, no_such_label

if TYPE_CHECKING:
    from collscope.reports.compare.step_samples import SampledRun

_METHODS = {"full": "trace of CPU and CUDA activities", "light": "trace of CUDA activities"}
_FILES = (".csv", ".csv.gz", ".csv.zst")


class Inputs(msgspec.Struct, frozen=True):
    """Labels as named, and the calls of the run that weight them."""

    labels: list[Label]
    weights: Weights | None
    notes: tuple[Note, ...]  # what was damaged in the files


class Runs(msgspec.Struct, frozen=True):
    """Runs of a comparison.

    of       whose measurements are compared; None: those of every run
    weights  whose calls weight the classes; None: every class counts the same
    """

    of: str | None = None
    weights: str | None = None


def comparable(db: Path) -> list[str]:
    """Labels and traced runs of a store, by name; none where there is no store."""
    if not db.exists():
        return []
    with reading(db) as store:
        return sorted({*measurement_labels(store), *_traced_runs(store)})


def _traced_runs(store: sqlite3.Connection) -> set[str]:
    return {run for (run,) in store.execute("SELECT DISTINCT run FROM traces WHERE used")}


def name_traced_runs(db: Path, names: Sequence[str], runs: Runs) -> bool:
    """Whether the names are those of traced runs; a name that is a label, too, is a label.

    raises  InputError for an unknown name; UsageError for a file or folder in place of one, for
            traced runs mixed with labels or files, and for options of measurements
    """
    if not db.exists():
        return False
    with reading(db) as store:
        labels = measurement_labels(store)
        traced = _traced_runs(store)
        rest = [name for name in names if name not in labels and not name.endswith(_FILES)]
        for name in rest:
            require_matched(store, db, name)
    if not traced.intersection(rest):
        return False
    unknown = [name for name in rest if name not in traced]
    _refuse_files(unknown, known=())
    if unknown:
        raise no_such_label(unknown[0], sorted({*labels, *traced}), "measurements or traced run")
    for name in names:
        if name not in traced:
            raise UsageError(
                f"'{rest[0]}' is a traced run, but '{name}' was measured outside a job: they"
                " cannot be compared. Name two traced runs, or two labels."
            )
    for option, given in (("--run", runs.of), ("--weights", runs.weights)):
        if given is not None:
            raise UsageError(
                f"{option} {given}: '{rest[0]}' is a traced run and has its own calls. "
                f"Leave out {option}."
            )
    return True


def load(db: Path, names: Sequence[str], runs: Runs, *, of_first: bool = False) -> Inputs:
    """Labels of the store, or replay CSVs where a name ends in .csv, .csv.gz or .csv.zst.

    db        is not needed as long as every name is a file and no run is named
    runs      of the labels in the store, and of the weights
    of_first  weight all classes of the first label, not only the common ones
    raises    InputError for unknown labels, files and runs; UsageError for a file of several labels
    """
    files = [name for name in names if name.endswith(_FILES)]
    stored = [name for name in names if name not in files]
    if runs.of is not None and not stored:
        raise UsageError(
            f"--run {runs.of}: only files are named, no label of the store. To weight the classes"
            f" by the calls of that run, use --weights {runs.of}."
        )
    labels, notes = _from_files(files)
    if not db.exists():
        _refuse_files(stored, known=())
    if not stored and runs.weights is None:
        return Inputs(_aligned([labels[name] for name in names]), None, notes)
    with reading(db) as store:
        if runs.of is not None:
            require_known(store, db, runs.of)
        if runs.weights is not None:
            require_run(store, db, runs.weights)
        _refuse_files(stored, measurement_labels(store))
        _refuse_other_runs(stored, measurement_labels(store), runs.of, store)
        labels.update((label.name, label) for label in load_labels(store, stored, runs.of))
        found = _aligned([labels[name] for name in names])
        weighted = found[:1] if of_first else found
        weights = None if runs.weights is None else run_weights(store, runs.weights, weighted)
        return Inputs(found, weights, notes)


def sample_runs(db: Path, names: Sequence[str]) -> list[SampledRun]:
    """Runs of these names, which all have traces."""
    with reading(db) as store:
        return [_sample_stored(store, db, name) for name in names]


def _sample_stored(store: sqlite3.Connection, db: Path, run: str) -> SampledRun:
    # They load numpy, which measurements do not need.
    from collscope.reports.compare.step_samples import sample_run  # noqa: PLC0415
    from collscope.reports.waiting.traced_run import read_traced_run  # noqa: PLC0415

    traced = read_traced_run(store, db, run)
    recorded = traced.recorded()
    query = "SELECT DISTINCT gpu FROM traces WHERE run = ? AND used AND gpu IS NOT NULL ORDER BY 1"
    versions = (
        "SELECT DISTINCT library || ' ' || library_version FROM sources"
        " WHERE run = ? AND library_version IS NOT NULL ORDER BY 1"
    )
    circumstances = {
        "method": (_METHODS.get(recorded.profiler, f"trace of {recorded.rows.dialects[0]}"),),
        "device": tuple(gpu for (gpu,) in store.execute(query, (run,))),
        "library": tuple(v for (v,) in store.execute(versions, (run,)) if v),
    }
    return sample_run(run, db, recorded, traced.keys, circumstances)


def _aligned(labels: list[Label]) -> list[Label]:
    return [labels[0], *(aligned(labels[0], label) for label in labels[1:])]


def _refuse_files(names: Sequence[str], known: Collection[str]) -> None:
    """Raise UsageError where a name is no label but a file, which must be read first."""
    for name in names:
        # os.path does not raise where a label is no possible path.
        if name in known or not os.path.exists(name):  # noqa: PTH110
            continue
        label = Path(name).name.partition(".")[0]
        if os.path.isdir(name):  # noqa: PTH112
            raise UsageError(
                f"'{name}': a folder, not a label. Ingest it first with 'collscope ingest"
                f" {shlex.quote(name)} --run {shlex.quote(label or 'NAME')}', then name the run."
            )
        if is_store(Path(name)):
            raise UsageError(
                f"'{name}': a store, not a label. Join the stores with 'collscope merge --rename"
                " --db NEW STORE...', then compare the runs of NEW."
            )
        raise UsageError(
            f"'{name}': a file, not a label. Ingest it first with 'collscope ingest table"
            f" {shlex.quote(name)} --label {shlex.quote(label)}', then name the label."
        )


def _refuse_other_runs(
    names: Sequence[str], known: Collection[str], run: str | None, store: sqlite3.Connection
) -> None:
    """Raise InputError where a label was measured, but not in the run that was named."""
    if run is None:
        return
    own = measurement_labels(store, run)
    for name in names:
        if name in known and name not in own:
            labels = ", ".join(map(repr, own)) or "none"
            raise InputError(
                f"run '{run}': no measurements with label '{name}' (its labels: {labels}). "
                "--run names the run of the measurements. To weight the classes by the calls of"
                f" that run, use --weights {run}."
            )


def _from_files(paths: Sequence[str]) -> tuple[dict[str, Label], tuple[Note, ...]]:
    """Labels of replay CSVs, each named by its path, and what was damaged in the files.

    All of them lie in one store that is thrown away.
    """
    if not paths:
        return {}, ()
    with TemporaryDirectory(prefix="collscope-") as folder:
        db = Path(folder) / "measurements.db"
        notes: list[Note] = []
        with closing(open_store(db)) as store:
            for number, path in enumerate(paths):
                for file in expand_files([path]):
                    notes += _read(store, db, file, str(number))
        with reading(db) as store:
            labels = {path: _only(store, path, str(n)) for n, path in enumerate(paths)}
        return labels, tuple(notes)


def _read(store: sqlite3.Connection, db: Path, file: str, run: str) -> Iterator[Note]:
    """Put one CSV into the store; returns notes on what could not be read."""
    # Loading these takes longer than comparing the labels of a store.
    from collscope.ingest.files import open_input  # noqa: PLC0415
    from collscope.ingest.measurements import ingest_csv  # noqa: PLC0415

    with open_input(file) as opened:
        found = ingest_csv(store, db, run, opened, None, None)
    if found.status == "unusable":
        raise InputError(
            f"{file}: {found.reason}. Name a CSV of 'collscope replay'. Read other tables with"
            " 'collscope ingest table' and name their label."
        )
    for d in found.diagnostics:
        if d.severity is not Severity.INFO:
            yield Damaged(file, d.severity.value, d.count, d.code, d.message, d.line)


def _only(store: sqlite3.Connection, path: str, run: str) -> Label:
    """The one label of a file."""
    found = measurement_labels(store, run)
    if len(found) > 1:
        raise UsageError(
            f"{path}: holds {len(found)} labels ({', '.join(found)}). Read it with "
            "'collscope ingest csv', then name its labels."
        )
    if not found:
        raise InputError(f"{path}: no measurements. Name a CSV of 'collscope replay'.")
    return _named_by_file(load_labels(store, found, run)[0], path)


def _named_by_file(label: Label, path: str) -> Label:
    """The label named by its file, its rounds too: keys of one store mean nothing in another."""
    classes = {
        key: replace(
            m, samples=Samples({(path, at): times for at, times in m.samples.rounds.items()})
        )
        for key, m in label.classes.items()
    }
    return replace(label, name=path, classes=classes)
