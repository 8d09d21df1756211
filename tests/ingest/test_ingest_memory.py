"""What the matching of a trace takes in memory: a trace of 1 GiB has a million collectives."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
from command import rows
from msgspec.structs import asdict

from collscope.ingest import match_traces  # noqa: F401 - modules are not counted
from collscope.ingest.match import match_stored
from collscope.ingest.stored_traces import insert_trace
from collscope.model import Datatype, Op
from collscope.model.trace import Call, HostCalls, TraceCollective, TraceColumns, TraceFile
from collscope.store.connection import open_store, transaction
from collscope.store.sources import SourceRow, insert_source, run_id

_CALLS = 100_000
_BASE_NS = 1_790_000_000_000_000_000


def collectives() -> TraceFile:
    """Collectives of one rank and nothing else, each with the call that launched it."""
    number = np.arange(_CALLS)
    launch = _BASE_NS + number * 300_000
    entry = TraceCollective(Op.ALL_REDUCE, Datatype.BFLOAT16, 1024, 1024, "0", 2, (0, 1), "Sum")
    none = np.full(_CALLS, -1, dtype=np.int32)
    return TraceFile(
        dialect="kineto",
        names=("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",),
        streams=("20",),
        collectives=(entry,),
        rank=0,
        world_size=2,
        columns=TraceColumns(
            kind=np.zeros(_CALLS, dtype=np.int8),
            name=np.zeros(_CALLS, dtype=np.int32),
            stream=np.zeros(_CALLS, dtype=np.int32),
            start_ns=launch + 10_000,
            end_ns=launch + 100_000,
            launch_ns=launch,
            collective=np.zeros(_CALLS, dtype=np.int32),
            seq=number,
        ),
        calls=HostCalls(
            kind=np.full(_CALLS, Call.LAUNCH, dtype=np.int8),
            thread=np.zeros(_CALLS, dtype=np.int32),
            start_ns=launch,
            end_ns=launch + 5000,
            stream=none,
            event=none,
            of_row=number.astype(np.int32),
        ),
    )


def test_matching_takes_less_than_ten_times_the_columns_of_a_trace(db_path: Path) -> None:
    """Rows, calls and their times are columns as well, and what is stored is one part at a time."""
    trace = collectives()
    columns = sum(values.nbytes for values in asdict(trace.columns).values())
    connection = open_store(db_path)
    with transaction(connection, db_path):
        source = SourceRow("rank0.json", "0:trace", "trace", "kineto")
        key = insert_source(connection, run_id(connection, "main"), source)
        insert_trace(connection, key, trace)
        connection.execute("UPDATE _run SET matched = 0")
    tracemalloc.start()
    match_stored(connection, db_path, "main")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    connection.close()
    assert rows(db_path, "SELECT COUNT(*), SUM(ranks_traced) FROM call_times") == [(_CALLS, _CALLS)]
    assert peak < 10 * columns
