"""What the logs and traces of a job say of its settings, and of what the library chose."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import msgspec

_SETTINGS = """
SELECT name, value FROM settings
WHERE run = ? AND origin = 'environment' AND value IS NOT NULL GROUP BY name ORDER BY name
"""
_LIBRARY = """
SELECT DISTINCT library || IFNULL(' ' || library_version, '') FROM sources
WHERE run = ? AND library IN ('nccl', 'rccl')
"""
_SETTINGS_LOGGED = "SELECT EXISTS (SELECT 1 FROM settings WHERE run = ?)"
_BLOCKS = """
SELECT MIN(blocks), MAX(blocks) FROM kernels JOIN sources s USING (run, source_id)
WHERE run = ? AND s.kind = 'trace' AND call_id IS NOT NULL AND blocks IS NOT NULL
"""
_NODES = "SELECT MAX(nnodes) FROM communicators WHERE run = ?"
_ALGORITHMS = "SELECT DISTINCT algorithm FROM call_totals WHERE run = ? AND algorithm IS NOT NULL"


class LoggedJob(msgspec.Struct, frozen=True):
    """What a store knows of a job's settings."""

    variables: Mapping[str, str]  # of the environment
    seen: frozenset[str]  # algorithms
    library: str | None = None  # with its version, where all processes have one
    nnodes: int | None = None
    settings_logged: bool = False  # the logs name settings
    blocks: tuple[int, int] | None = None  # least and most of its kernels


def read_logged_job(connection: sqlite3.Connection, run: str) -> LoggedJob:
    """The settings of a run, by its logs and traces."""
    libraries = [row[0] for row in connection.execute(_LIBRARY, (run,))]
    ((nnodes,),) = connection.execute(_NODES, (run,)).fetchall()
    ((settings_logged,),) = connection.execute(_SETTINGS_LOGGED, (run,)).fetchall()
    (blocks,) = connection.execute(_BLOCKS, (run,)).fetchall()
    return LoggedJob(
        variables=dict(connection.execute(_SETTINGS, (run,)).fetchall()),
        seen=frozenset(row[0] for row in connection.execute(_ALGORITHMS, (run,))),
        library=libraries[0] if len(libraries) == 1 else None,
        nnodes=nnodes,
        settings_logged=bool(settings_logged),
        blocks=None if None in blocks else blocks,
    )
