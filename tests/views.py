"""All that the views of a store show, without keys that only number rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def view_rows(db: Path) -> dict[str, list[str]]:
    """Rows of every view, in an order of their own."""
    with closing(sqlite3.connect(db)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()
        return {
            name: sorted(map(repr, connection.execute(f"SELECT * FROM {name}")))
            for (name,) in names
        }
