"""The matched run: observations out of the store, communicators and calls into it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import astuple, replace

from collscope.ingest.lateness import lateness
from collscope.ingest.observation_blob import decode_head, decode_rows
from collscope.match.copies import Originals, find_originals
from collscope.match.observations import Ints, TuningSetting, distinct
from collscope.match.parts import join_parts
from collscope.match.run import Matched
from collscope.match.run_rows import LoadedRows, Log, RunRows
from collscope.model.comm_handle import CommHandle, Process
from collscope.model.traced_kernel import TracedKernel
from collscope.store.runs import clear_matching
from collscope.store.sources import insert_diagnostics, next_id

if TYPE_CHECKING:
    from collscope.timeline.kernel_waits import KernelWaits


class RunInput(msgspec.Struct, frozen=True):
    """What the matching of a run needs, with the keys of the rows it came from."""

    logged: RunRows
    processes: list[Process]
    kernels: list[TracedKernel]
    handle_ids: list[int]
    kernel_ids: list[int]
    sources: list[int]  # all sources of the run when it was read
    names: dict[int, str]  # of the sources with calls, in the order of the logs


def load_run(connection: sqlite3.Connection, run: int) -> RunInput:
    """Observations of all sources of a run, processes numbered through.

    Matching reads their rows from the store when it needs them, all of one snapshot.
    """
    sources = _sources(connection, run)
    rows = connection.execute(
        "SELECT process_id, COALESCE(host, ''), pid, source_id FROM _process"
        " JOIN _source USING (source_id) WHERE run_id = ? ORDER BY process_id",
        (run,),
    ).fetchall()
    number = {row[0]: i for i, row in enumerate(rows)}
    logs, handle_ids = [], []
    names = dict(
        connection.execute(
            "SELECT source_id, path FROM _segment JOIN _source USING (source_id)"
            " WHERE run_id = ? ORDER BY source_id",
            (run,),
        )
    )
    for source in names:
        ids, handles = load_handles(connection, source, number)
        logs.append(_log(connection, source, handles))
        handle_ids += ids
    kernel_ids, kernels = _load_kernels(connection, run, number)
    processes = [Process(host, pid, source) for _, host, pid, source in rows]
    return RunInput(RunRows(logs), processes, kernels, handle_ids, kernel_ids, sources, names)


def _log(connection: sqlite3.Connection, source: int, handles: Sequence[CommHandle]) -> Log:
    """One log of a run, with what reads its rows."""
    query = "SELECT columns FROM _segment WHERE source_id = ?"

    def load(names: Collection[str]) -> LoadedRows:
        ((blob,),) = connection.execute(query, (source,)).fetchall()
        return decode_rows(blob, names)

    ((blob,),) = connection.execute(query, (source,)).fetchall()
    return Log(handles, *decode_head(blob), load)


def without_copies(given: RunInput) -> tuple[RunInput, Originals]:
    """What was given without lines that appear twice in the logs."""
    found = find_originals(given.logged, given.processes, given.kernels)
    if found.dropped or len(found.lost_rows):
        given = replace(
            given,
            logged=given.logged.without(found.dropped, found.lost_rows),
            handle_ids=[given.handle_ids[i] for i in found.handles],
        )
    return (
        replace(
            given,
            kernels=[given.kernels[k] for k in found.kernels],
            kernel_ids=[given.kernel_ids[k] for k in found.kernels],
        ),
        found,
    )


def with_parts_joined(given: RunInput) -> tuple[RunInput, set[tuple[str, int]]]:
    """What was given with the parts of rotated logs joined, and the processes of these."""
    found = join_parts(given.logged, given.processes, given.names)
    return (
        replace(given, logged=found.run, handle_ids=[given.handle_ids[i] for i in found.handles]),
        found.processes,
    )


def processes_in_two_logs(connection: sqlite3.Connection, run: int) -> set[tuple[str, int]]:
    """Host and pid with lines on one communicator in more than one source of a run."""
    query = (
        "SELECT DISTINCT COALESCE(host, ''), pid FROM _comm_handle JOIN _process"
        " USING (process_id) JOIN _source USING (source_id) WHERE run_id = ? AND pid IS NOT NULL"
        " GROUP BY host, pid, comm_ptr HAVING COUNT(DISTINCT source_id) > 1"
    )
    return set(connection.execute(query, (run,)).fetchall())


def shared_gpus(connection: sqlite3.Connection, run: int) -> int:
    """GPUs that processes without a common communicator used; several ranks of one may share it."""
    query = (
        "WITH used AS (SELECT host, bus_id, pid, COALESCE(comm_hash, pid) AS comm FROM _comm_handle"
        " JOIN _process USING (process_id) JOIN _source USING (source_id)"
        " WHERE run_id = :run AND host IS NOT NULL AND bus_id IS NOT NULL AND pid IS NOT NULL"
        " UNION SELECT host, k.bus_id, pid, COALESCE(MAX(comm_hash), pid) FROM _kernel k"
        " JOIN _process USING (process_id) JOIN _source s ON s.source_id = k.source_id"
        " LEFT JOIN _comm_handle USING (process_id)"
        " WHERE run_id = :run AND s.kind = 'log' AND host IS NOT NULL AND k.bus_id IS NOT NULL"
        " AND pid IS NOT NULL"
        " GROUP BY host, k.bus_id, pid),"
        " of_comm AS (SELECT host, bus_id, COUNT(DISTINCT pid) AS n FROM used"
        " GROUP BY host, bus_id, comm)"
        " SELECT COUNT(*) FROM (SELECT host, bus_id, COUNT(DISTINCT pid) AS n FROM used"
        " GROUP BY host, bus_id) JOIN (SELECT host, bus_id, MAX(n) AS most FROM of_comm"
        " GROUP BY host, bus_id) USING (host, bus_id) WHERE n > most"
    )
    return int(connection.execute(query, {"run": run}).fetchone()[0])


def has_traces(connection: sqlite3.Connection, run: int) -> bool:
    """True if the run holds traces or recordings."""
    query = "SELECT EXISTS (SELECT 1 FROM {} JOIN _source USING (source_id) WHERE run_id = ?)"
    tables = ("_trace", "_recording")
    return any(connection.execute(query.format(t), (run,)).fetchone()[0] for t in tables)


def has_logs(connection: sqlite3.Connection, run: int) -> bool:
    """True if the run holds logs."""
    query = "SELECT EXISTS (SELECT 1 FROM _source WHERE run_id = ? AND kind = 'log')"
    return bool(connection.execute(query, (run,)).fetchone()[0])


def _sources(connection: sqlite3.Connection, run: int) -> list[int]:
    rows = connection.execute("SELECT source_id FROM _source WHERE run_id = ? ORDER BY 1", (run,))
    return [source for (source,) in rows]


def _int(text: str | None) -> int | None:
    return None if text is None else int(text, 16)


def load_handles(
    connection: sqlite3.Connection, source: int, number: dict[int, int]
) -> tuple[list[int], list[CommHandle]]:
    """Keys and handles of a source.

    number  of each process, by its key
    """
    rows = connection.execute(
        "SELECT handle_id, process_id, comm_ptr, generation, first_line, rank, nranks, nnodes,"
        " cuda_dev, nvml_dev, bus_id, comm_hash, parent_ptr, split_count, color, key, function,"
        " global_rank FROM _comm_handle JOIN _process USING (process_id) WHERE source_id = ?"
        " ORDER BY handle_id",
        (source,),
    ).fetchall()
    handles = [
        CommHandle(
            process=number[r[1]], comm_ptr=int(r[2], 16), generation=r[3], first_line=r[4],
            rank=r[5], nranks=r[6], nnodes=r[7], cuda_dev=r[8], nvml_dev=r[9], bus_id=_int(r[10]),
            comm_hash=_int(r[11]), parent_ptr=_int(r[12]), split_count=r[13], color=r[14],
            key=r[15], function=r[16], global_rank=r[17],
        )
        for r in rows
    ]  # fmt: skip
    return [r[0] for r in rows], handles


def _load_kernels(
    connection: sqlite3.Connection, run: int, number: dict[int, int]
) -> tuple[list[int], list[TracedKernel]]:
    rows = connection.execute(
        "SELECT k.kernel_id, k.process_id, n.name, k.rank, k.nranks, k.bus_id, k.comm_ptr,"
        " k.op_count, k.start_ns, k.end_ns, k.blocks, k.line"
        " FROM _kernel k JOIN _kernel_name n USING (name_id) JOIN _source s USING (source_id)"
        " WHERE s.run_id = ? AND s.kind = 'log' AND k.process_id IS NOT NULL ORDER BY k.kernel_id",
        (run,),
    ).fetchall()
    kernels = [
        TracedKernel(number[r[1]], r[2], r[3], r[4], _int(r[5]), _int(r[6]), *r[7:]) for r in rows
    ]
    return [r[0] for r in rows], kernels


def is_superseded(connection: sqlite3.Connection, run: int, given: RunInput) -> bool:
    """True if another process has matched sources that were not there when `given` was read."""
    ((done,),) = connection.execute("SELECT matched FROM _run WHERE run_id = ?", (run,)).fetchall()
    return bool(done) and _sources(connection, run) != given.sources


def store_matching(
    connection: sqlite3.Connection,
    run: int,
    given: RunInput,
    matched: Matched,
    waits: KernelWaits | None,
) -> int:
    """Replace the run's communicators, classes, calls and transfers by those just matched.

    Members whose handle is beyond those of `given` are of traces: they have no process.

    waits    of the traced kernels of `given`, if it has any
    returns  key of the first call
    """
    clear_matching(connection, run)
    first_comm = _store_comms(connection, run, given, matched)
    first_class = next_id(connection, "_class", "class_id")
    connection.executemany(
        f"INSERT INTO _class VALUES ({','.join('?' * 13)})",
        [
            (
                first_class + i, run, c.op.value, c.datatype and c.datatype.value,
                c.redop and c.redop.value, c.count, c.root,
                c.size_bytes, c.in_place, c.nranks, c.nnodes, c.shape, c.backend,
            )
            for i, c in enumerate(matched.classes)
        ],
    )  # fmt: skip
    first_call = next_id(connection, "_call_row", "call_id")
    settings = _store_settings(connection, matched.settings)
    totals = _store_totals(connection, matched, first_comm, first_class, settings)
    columns = {
        "total_id": totals,
        "seq": matched.calls["seq"],
        "group_id": matched.calls["group"],
        "op_count": matched.calls["op_count"],
    }
    _store_calls(connection, first_call, columns)
    _store_details(connection, given, matched, first_call)
    if waits is not None:
        _store_kernels(connection, given, matched.kernel_calls, waits, first_call)
    insert_diagnostics(connection, run, None, matched.diagnostics)
    # Another process may have added a source since the run was read: it will match the run again.
    complete = _sources(connection, run) == given.sources
    connection.execute(
        "UPDATE _run SET matched = ?, match_error = NULL, due = 0 WHERE run_id = ?", (complete, run)
    )
    return first_call


def _store_comms(
    connection: sqlite3.Connection, run: int, given: RunInput, matched: Matched
) -> int:
    first = next_id(connection, "_comm", "comm_id")
    traced = len(matched.world_ranks) - len(given.handle_ids)
    handle_ids = [*given.handle_ids, *[None] * traced]
    comm_rows, member_rows = [], []
    for i, c in enumerate(matched.comms):
        parent = None if c.parent is None else first + c.parent
        comm_hash = None if c.comm_hash is None else f"0x{c.comm_hash:x}"
        comm_rows.append(
            (
                first + i, run, c.nranks, c.nnodes, parent, comm_hash, c.color, c.matched_by,
                len(c.members), c.name,
            )
        )  # fmt: skip
        for rank, handle in c.members.items():
            world = matched.world_ranks[handle]
            member_rows.append((first + i, rank, world, handle_ids[handle]))
    connection.executemany("INSERT INTO _comm VALUES (?,?,?,?,?,?,?,?,?,?)", comm_rows)
    connection.executemany("INSERT INTO _member VALUES (?,?,?,?)", member_rows)
    return first


def _store_settings(connection: sqlite3.Connection, settings: Sequence[TuningSetting]) -> list[int]:
    """Key in `_tuning` of each setting."""
    keys = []
    where = " AND ".join(f"{c} IS ?" for c in ("algorithm", "protocol", "channels", "kernel"))
    for setting in settings:
        row = connection.execute(f"SELECT tuning_id FROM _tuning WHERE {where}", setting).fetchone()
        if row is None:
            cursor = connection.execute(
                "INSERT INTO _tuning (algorithm, protocol, channels, kernel) VALUES (?,?,?,?)",
                setting,
            )
            row = (cursor.lastrowid,)
        keys.append(int(row[0]))
    return keys


_ROWS_PER_INSERT = 1 << 16
_PACKED_BITS = 63  # of SQLite's integers, which have a sign


def _store_calls(connection: sqlite3.Connection, first: int, columns: Mapping[str, Ints]) -> None:
    """Insert rows of `_call_row`, with keys from `first` on; -1 becomes NULL.

    columns  all but the key, shape (calls,)

    The values of a row are packed into one integer, each relative to the least of its column; a
    column that rises by one needs no bits. SQLite unpacks them: measured, a third of the time of
    binding every value. Rows that do not fit are halved; a single one always fits.
    """
    n = len(next(iter(columns.values())))
    for begin in range(0, n, _ROWS_PER_INSERT):
        some = {name: c[begin : begin + _ROWS_PER_INSERT] for name, c in columns.items()}
        _store_some(connection, first + begin, some)


def _store_some(connection: sqlite3.Connection, first: int, columns: Mapping[str, Ints]) -> None:
    """Insert a row or more, all at once where their values fit."""
    n = len(next(iter(columns.values())))
    least = {name: int(column.min()) for name, column in columns.items()}
    rising = {name for name, column in columns.items() if (np.diff(column) == 1).all()}
    widths = {
        name: 0 if name in rising else (int(column.max()) - least[name]).bit_length()
        for name, column in columns.items()
    }
    if sum(widths.values()) > _PACKED_BITS:
        half = n // 2
        _store_some(connection, first, {c: v[:half] for c, v in columns.items()})
        _store_some(connection, first + half, {c: v[half:] for c, v in columns.items()})
        return
    packed = np.zeros(n, dtype=np.int64)
    values, shift = [], 0
    for name, column in columns.items():
        value = f"{least[name]} + key" if name in rising else f"{least[name]}"
        if widths[name]:
            packed |= (column.astype(np.int64) - least[name]) << shift
            value += f" + (value >> {shift} & {(1 << widths[name]) - 1})"
        values.append(f"NULLIF({value}, -1)" if least[name] < 0 else value)
        shift += widths[name]
    connection.execute(
        f"INSERT INTO _call_row (call_id, {', '.join(columns)})"
        f" SELECT {first} + key, {', '.join(values)} FROM json_each(?)",
        (msgspec.json.encode(packed.tolist()).decode(),),
    )


def _store_totals(
    connection: sqlite3.Connection,
    matched: Matched,
    first_comm: int,
    first_class: int,
    settings: Sequence[int],
) -> Ints:
    """Calls counted by communicator, class, setting and ranks seen; returns each call's total."""
    columns = [matched.calls[n] for n in ("comm", "class", "setting", "ranks_seen")]
    if not len(columns[0]):
        return np.empty(0, np.int64)
    # One integer per combination: sorting rows of a matrix is many times slower.
    shape = tuple(int(c.max()) + 2 for c in columns)
    combined = np.ravel_multi_index(tuple(c + 1 for c in columns), shape)
    keys, inverse, counts = distinct(combined)
    found = np.stack(np.unravel_index(keys, shape), axis=1) - 1
    first = next_id(connection, "_call_total", "total_id")
    connection.executemany(
        "INSERT INTO _call_total VALUES (?,?,?,?,?,?)",
        [
            (
                first + i, first_comm + comm, first_class + cls,
                None if s < 0 else settings[s], seen, count,
            )
            for i, ((comm, cls, s, seen), count) in enumerate(
                zip(found.tolist(), counts.tolist(), strict=True)
            )
        ],
    )  # fmt: skip
    return first + inverse


def _store_details(
    connection: sqlite3.Connection, given: RunInput, matched: Matched, first_call: int
) -> None:
    sources = list(given.names)
    deviations = [
        (
            first_call + d.call, d.rank, d.what, d.detail,
            None if d.log is None else sources[d.log], d.line,
        )
        for d in matched.deviations
    ]  # fmt: skip
    connection.executemany("INSERT INTO _deviation VALUES (?,?,?,?,?,?)", deviations)
    connection.executemany(
        "INSERT INTO _transfer VALUES (?,?,?,?,?,?,?)",
        [
            (
                first_call + call, t.src_rank, t.dst_rank, t.count, t.datatype.value, t.size_bytes,
                "recv" if t.send_row is None else "send" if t.recv_row is None else "both",
            )
            for call, t in matched.transfers
        ],
    )  # fmt: skip


def _store_kernels(
    connection: sqlite3.Connection,
    given: RunInput,
    calls: Iterable[tuple[int, int]],
    waits: KernelWaits,
    first_call: int,
) -> None:
    """The call of each traced kernel, its waiting, and that of each rank."""
    call_of = dict(calls)
    connection.executemany(
        "INSERT INTO _kernel_call VALUES (?,?,?,?,NULL)",
        [
            (
                given.kernel_ids[k],
                first_call + call_of[k] if k in call_of else None,
                *waits.kernels.get(k, (None, None)),
            )
            for k in sorted({*call_of, *waits.kernels})
        ],
    )
    connection.executemany(
        f"INSERT INTO _rank_wait VALUES ({','.join('?' * 16)})",
        [
            (given.kernel_ids[kernel], *astuple(times), *lateness(late))
            for kernel, times, late in waits.ranks
        ],
    )
