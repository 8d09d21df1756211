"""Plain copies of a source: what `bench memcpy` measured."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from collscope.model import CopyTime
from collscope.store.sampled import insert_sampled

# Columns of _copy that are fields of the record by the same name.
_FIELDS = tuple(f for f in CopyTime.__struct_fields__ if f not in ("label", "samples_us"))


def insert_copies(
    connection: sqlite3.Connection, run: int, source: int, copies: Sequence[CopyTime], label: str
) -> None:
    """Copies of a source with every sample, in order.

    label  label of those that have none of their own
    """
    insert_sampled(
        connection,
        ("_copy", "_copy_sample"),
        ("copy_id", "run_id", "source_id", "label", *_FIELDS),
        [
            ((run, source, c.label or label, *(getattr(c, name) for name in _FIELDS)), c.samples_us)
            for c in copies
        ],
    )
