"""CSVs into the store: those of `replay`, `bench memcpy` and `bench interference`, and the old
rccl_replayer's.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from collscope.ingest.files import Input
from collscope.ingest.measurements import CSV, Found, ingest_measurements
from collscope.ingest.result import Ingested
from collscope.parsers import interference_csv, memcpy_csv, rccl_replayer_csv, replay_csv
from collscope.store.measurements import communicator_sizes

_HEAD_BYTES = 65_536


def is_csv(head: bytes) -> bool:
    """True for the first bytes of a CSV of any of these layouts."""
    text = head[:_HEAD_BYTES].decode("utf-8-sig", errors="replace")
    known = (replay_csv, memcpy_csv, interference_csv, rccl_replayer_csv)
    return any(dialect.sniff(text) for dialect in known)


def ingest_csv(
    connection: sqlite3.Connection,
    db: Path,
    run: str,
    file: Input,
    nranks: int | None,
    label: str | None,
) -> Ingested:
    """Put one CSV into the store, in one transaction.

    nranks  ranks that an rccl_replayer CSV was measured on, which the file does not tell; None:
            those of the run's communicators, where all have the same number
    label   for every row; None: each row's own
    With either, a file that is in the run already is read again.
    raises  InputError when the file cannot be read or the store refuses
    """

    def parse(text: str) -> Found | None:
        if replay_csv.sniff(text):
            return replay_csv.parse(text)
        if memcpy_csv.sniff(text):
            return memcpy_csv.parse(text)
        if interference_csv.sniff(text):
            return interference_csv.parse(text)
        if not rccl_replayer_csv.sniff(text):
            return None
        sizes = communicator_sizes(connection, run)
        known = sizes[0] if len(sizes) == 1 else None
        return rccl_replayer_csv.parse(text, nranks or known)

    again = nranks is not None or label is not None
    return ingest_measurements(connection, db, run, file, parse, label, CSV, again=again)
