"""Stores of older schemas, made from the old SQL, are brought to this one's and answer the same."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from command import collscope

from collscope.store.connection import SCHEMAS, schema_version


def test_the_communicator_of_a_kernel_trace_is_no_stream(db_path: Path) -> None:
    with closing(sqlite3.connect(db_path)) as db:
        for number in range(1, 7):
            (script,) = SCHEMAS.glob(f"{number:03d}_*.sql")
            db.executescript(script.read_text())
        db.executescript("""
            PRAGMA user_version = 6;
            INSERT INTO _run VALUES (1, 'main', 1);
            INSERT INTO _source (source_id, run_id, path, sha256, kind, dialect) VALUES
                (1, 1, 'a.log', 'a:log', 'log', 'nccl_log'),
                (2, 1, 'b.json', 'b:trace', 'profile', 'rpd');
            INSERT INTO _process VALUES (1, 1, 'h', 10, NULL);
            INSERT INTO _kernel_name (name_id, name) VALUES (1, 'k');
            INSERT INTO _kernel (source_id, name_id, kind, process_id, stream, rank, op_count,
                                 blocks, start_ns, end_ns, line)
                VALUES (1, 1, 'kernel', 1, '0xc0ffee', 0, 1, 1, 10, 20, 1),
                       (2, 1, 'kernel', NULL, '7', NULL, NULL, NULL, 10, 20, NULL);
        """)
    query = "SELECT comm_ptr, stream FROM kernels ORDER BY source_id"
    told = collscope("sql", "--db", db_path, "--format", "csv", query)
    brought = f"upgraded from schema version 6 to {schema_version()}"
    assert (told.code, told.err) == (0, f"collscope: {db_path}: {brought}; 1 run to match again.\n")
    assert told.out == "comm_ptr,stream\n0xc0ffee,\n,7\n"
    with closing(sqlite3.connect(db_path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (schema_version(),)
