"""Many processes ingest into one new store at once: nothing may fail, and nothing may be missing.

`make torture` tries it many times; `test_store_at_once.py` a few.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from multiprocessing.synchronize import Barrier
from pathlib import Path

from command import CALLS, collscope, rows

from collscope.store.connection import schema_version

_ROOT = Path(__file__).resolve().parent.parent
_QUERIES = ("SELECT path FROM sources ORDER BY path", CALLS)
_FORK = multiprocessing.get_context("fork") if sys.platform != "win32" else multiprocessing


def sources(count: int) -> list[Path]:
    """Inputs of `count` processes: logs of one job, then other files that are small."""
    samples = _ROOT / "samples"
    logs = sorted((samples / "nccl" / "mixed").glob("*.log"))
    others = [samples / "replay" / "h200x4-mixed.csv", samples / "profiles" / "guide-top.txt"]
    return (logs[:4] + others + logs[:4])[:count]


def _ingest(start: Barrier, arguments: Sequence[str | Path]) -> None:
    start.wait()
    done = collscope("ingest", "auto", *arguments)
    if done.code:
        sys.stderr.write(done.err)
    sys.exit(done.code)


def ingest_at_once(folder: Path, inputs: Sequence[Path]) -> int:
    """Ingest each input by a process of its own, all released together.

    returns  number of processes that failed
    """
    start = _FORK.Barrier(len(inputs))
    commands = [(path, "--db", folder / "t.db") for path in inputs]
    processes = [_FORK.Process(target=_ingest, args=(start, c)) for c in commands]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return sum(process.exitcode != 0 for process in processes)


@cache
def one_after_the_other(count: int) -> dict[str, list[tuple[object, ...]]]:
    """Answers of a store into which the same inputs went one by one."""
    with tempfile.TemporaryDirectory() as name:
        db = Path(name) / "t.db"
        for path in sources(count):
            collscope("ingest", "auto", path, "--db", db)
        return {query: rows(db, query) for query in _QUERIES}


def problems(count: int) -> list[str]:
    """What went wrong in one try of `count` processes; none if nothing did."""
    inputs = sources(count)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        failed = ingest_at_once(folder, inputs)
        found = [f"{failed} of {count} processes failed"] if failed else []
        # A plain connection: collscope itself would finish what is left to do.
        with closing(sqlite3.connect(folder / "t.db")) as plain:
            ((version,),) = plain.execute("PRAGMA user_version").fetchall()
            ((waiting,),) = plain.execute("SELECT COUNT(*) FROM _run WHERE matched = 0").fetchall()
            ((whole,),) = plain.execute("PRAGMA integrity_check").fetchall()
        if (version, waiting, whole) != (schema_version(), 0, "ok"):
            found.append(f"version {version}, {waiting} runs to match, integrity {whole}")
        for query, answer in one_after_the_other(count).items():
            if rows(folder / "t.db", query) != answer:
                found.append(f"another answer than one after the other gives: {query}")
    return found
