"""Stores as earlier releases wrote them, made from those of today."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from collscope.store.connection import SCHEMAS

if TYPE_CHECKING:
    from pathlib import Path


def age(store: Path, version: int) -> None:
    """Bring a store to an older version of the schema; what that has no place for is lost."""
    young = store.with_suffix(".young")
    store.rename(young)
    migrations = sorted(SCHEMAS.glob("[0-9][0-9][0-9]_*.sql"))[:version]
    with closing(sqlite3.connect(store)) as db:
        for migration in migrations:
            db.executescript(migration.read_text())
        db.execute("ATTACH ? AS young", (str(young),))
        tables = "SELECT name FROM main.sqlite_master WHERE type = 'table'"
        for (table,) in db.execute(tables).fetchall():
            columns = [row[1] for row in db.execute(f"PRAGMA main.table_info({table})")]
            there = {row[1] for row in db.execute(f"PRAGMA young.table_info({table})")}
            kept = ", ".join(column for column in columns if column in there)
            db.execute(f"DELETE FROM main.{table}")
            db.execute(f"INSERT INTO main.{table} ({kept}) SELECT {kept} FROM young.{table}")
        (application,) = db.execute("PRAGMA young.application_id").fetchone()
        db.commit()
        db.execute("DETACH young")
        db.execute(f"PRAGMA application_id = {application}")
        db.execute(f"PRAGMA user_version = {version}")
        db.commit()
    young.unlink()
