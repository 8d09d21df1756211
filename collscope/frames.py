"""The store's views as polars data frames, for notebooks and scripts."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from collscope.errors import UsageError
from collscope.ingest.match import reading


def read_view(db: Path, view: str, run: str | None = None) -> pl.DataFrame:
    """A documented view of a store, of one run or of all, as a data frame.

    db      path of the store
    view    name as in docs/data-model.md, for instance "classes"
    returns one row per row of the view; `.to_pandas()` for those who want pandas
    raises  InputError when the store cannot be read, UsageError when it has no such view
    """
    with reading(db) as connection:
        views = [
            r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE type='view'")
        ]
        if view not in views:
            raise UsageError(f"view '{view}': not in the store. Views: {', '.join(sorted(views))}.")
        where, parameters = ("", ()) if run is None else (" WHERE run = ?", (run,))
        cursor = connection.execute(f"SELECT * FROM {view}{where}", parameters)
        names = [column[0] for column in cursor.description]
        return pl.DataFrame(cursor.fetchall(), schema=names, orient="row", infer_schema_length=None)
