"""Traced runs of a comparison, out of the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from collscope.analysis.traced import TracedRun, traced_run
from collscope.analysis.traced_run import read_traced
from collscope.ingest.match import reading

_STYLES = {True: "trace of CPU and CUDA activities", False: "trace of CUDA activities"}


def load_traced(db: Path, names: Sequence[str]) -> list[TracedRun]:
    """Runs of these names, which all have traces."""
    with reading(db) as store:
        return [_read(store, db, name) for name in names]


def _read(store: sqlite3.Connection, db: Path, run: str) -> TracedRun:
    traced = read_traced(store, db, run)
    recorded = traced.recorded()
    query = "SELECT DISTINCT gpu FROM traces WHERE run = ? AND used AND gpu IS NOT NULL ORDER BY 1"
    versions = (
        "SELECT DISTINCT library || ' ' || library_version FROM sources"
        " WHERE run = ? AND library_version IS NOT NULL ORDER BY 1"
    )
    circumstances = {
        "method": (_STYLES[recorded.full],),
        "device": tuple(gpu for (gpu,) in store.execute(query, (run,))),
        "library": tuple(v for (v,) in store.execute(versions, (run,)) if v),
    }
    return traced_run(run, recorded, traced.keys, circumstances)
