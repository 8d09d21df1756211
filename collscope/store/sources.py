"""Rows of one source: what its parser found, before any matching."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from collscope.kernel_names import classify
from collscope.model import (
    CommEnd,
    Diagnostic,
    Fact,
    KernelSpan,
    KernelTotal,
    LibraryVersion,
    Link,
    LogRecord,
    Setting,
)
from collscope.store.connection import transaction

if TYPE_CHECKING:
    from collscope.model.comm_handle import CommHandle
    from collscope.model.scanned_log import LogProcesses
    from collscope.model.traced_kernel import TracedKernel


class SourceRow(msgspec.Struct, frozen=True):
    """A source and what became of its lines."""

    path: str
    sha256: str
    kind: str
    dialect: str
    library: str | None = None
    library_version: str | None = None
    lines: int | None = None
    parsed: int | None = None
    ignored: int | None = None
    foreign_lines: int | None = None
    damaged: int | None = None


def run_id(connection: sqlite3.Connection, label: str) -> int:
    """Key of a run, made if it is new."""
    connection.execute("INSERT OR IGNORE INTO _run (label) VALUES (?)", (label,))
    row = connection.execute("SELECT run_id FROM _run WHERE label = ?", (label,)).fetchone()
    return int(row[0])


def identity(sha256: str, kind: str) -> str:
    """What a source must not share with another of its run: bytes and kind, as a document may hold
    several kinds.
    """
    return f"{sha256}:{kind}"


def same_content(identity: str) -> tuple[str, ...]:
    """Identities that one run has once: a profile and a trace of one file have the same kernels.

    >>> same_content("5f:log"), same_content("5f:profile:2"), same_content("5f:trace")
    (('5f:log',), ('5f:profile:2', '5f:trace'), ('5f:trace', '5f:profile'))
    """
    sha256, _, kind = identity.partition(":")
    other = {"profile": "trace", "trace": "profile"}.get(kind.partition(":")[0])
    return (identity,) if other is None else (identity, f"{sha256}:{other}")


def has_source(connection: sqlite3.Connection, run: str, sha256: str) -> bool:
    """True if the run, or a period of it, already holds a source of this `identity`."""
    row = connection.execute(
        "SELECT 1 FROM _source WHERE sha256 = :sha256 AND run_id IN (SELECT run_id FROM _run"
        " WHERE label = :run OR period_of = (SELECT run_id FROM _run WHERE label = :run))",
        {"run": run, "sha256": sha256},
    ).fetchone()
    return row is not None


def has_kind(connection: sqlite3.Connection, run: str, kind: str) -> bool:
    """True if the run holds a source of this kind."""
    row = connection.execute(
        "SELECT 1 FROM _source JOIN _run USING (run_id) WHERE label = ? AND kind = ? LIMIT 1",
        (run, kind),
    ).fetchone()
    return row is not None


def set_steps(connection: sqlite3.Connection, store: Path, run: str, steps: int) -> None:
    """Say how many steps each trace of a run holds; its periods' traces, too."""
    with transaction(connection, store):
        connection.execute(
            "UPDATE _run SET steps = :steps, matched = 0 WHERE steps IS NOT :steps"
            " AND (label = :run OR period_of = (SELECT run_id FROM _run WHERE label = :run))",
            {"run": run, "steps": steps},
        )


def same_path(connection: sqlite3.Connection, run: int, source: SourceRow) -> int | None:
    """Key of the last source of this path and kind with other bytes; None when there is none."""
    row = connection.execute(
        "SELECT MAX(source_id) FROM _source"
        " WHERE run_id = ? AND path = ? AND kind = ? AND sha256 <> ?",
        (run, source.path, source.kind, source.sha256),
    ).fetchone()
    return None if row[0] is None else int(row[0])


def insert_source(connection: sqlite3.Connection, run: int, source: SourceRow) -> int:
    """Key of a new source."""
    cursor = connection.execute(
        "INSERT INTO _source (run_id, path, sha256, kind, dialect, library, library_version,"
        " lines, parsed, ignored, foreign_lines, damaged) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            run, source.path, source.sha256, source.kind, source.dialect, source.library,
            source.library_version, source.lines, source.parsed, source.ignored,
            source.foreign_lines, source.damaged,
        ),
    )  # fmt: skip
    return int(cursor.lastrowid or 0)


def remove_source(connection: sqlite3.Connection, source: int) -> None:
    """Remove a source with all that came from it; its run is then to be matched again."""
    connection.execute("DELETE FROM _source WHERE source_id = ?", (source,))


def insert_diagnostics(
    connection: sqlite3.Connection, run: int, source: int | None, found: Iterable[Diagnostic]
) -> None:
    """Diagnostics of a source, or of the matching when `source` is None."""
    connection.executemany(
        "INSERT INTO _diagnostic VALUES (?,?,?,?,?,?,?,?)",
        [
            (run, source, d.severity.value, d.code, d.message, d.line, d.excerpt, d.count)
            for d in found
        ],
    )


def next_id(connection: sqlite3.Connection, table: str, key: str) -> int:
    """First unused key of a table; rows are written with explicit keys, many at a time."""
    return int(connection.execute(f"SELECT COALESCE(MAX({key}), 0) + 1 FROM {table}").fetchone()[0])


def insert_processes(connection: sqlite3.Connection, source: int, processes: LogProcesses) -> int:
    """Processes of a log in the scanner's order; returns the key of the first."""
    first = next_id(connection, "_process", "process_id")
    rows = zip(processes.host, processes.pid, processes.prefix, strict=True)
    connection.executemany(
        "INSERT INTO _process VALUES (?,?,?,?,?)",
        [
            (first + i, source, host or None, _pid(host, pid), prefix or None)
            for i, (host, pid, prefix) in enumerate(rows)
        ],
    )
    return first


def _pid(host: str, pid: int) -> int | None:
    """Process id, None where the line had none or a number that is no process id."""
    return pid if (host or pid) and pid < 2**63 else None


def _hex(value: int | None) -> str | None:
    return None if value is None else f"0x{value:x}"


def insert_handles(
    connection: sqlite3.Connection, first_process: int, handles: Sequence[CommHandle]
) -> int:
    """Handles of a log; returns the key of the first."""
    first = next_id(connection, "_comm_handle", "handle_id")
    connection.executemany(
        f"INSERT INTO _comm_handle VALUES ({','.join('?' * 18)})",
        [
            (
                first + i, first_process + s.process, _hex(s.comm_ptr), s.generation, s.rank,
                s.nranks, s.nnodes, s.cuda_dev, s.nvml_dev, _hex(s.bus_id), _hex(s.comm_hash),
                _hex(s.parent_ptr), s.split_count, s.color, s.key, s.function, s.global_rank,
                s.first_line,
            )
            for i, s in enumerate(handles)
        ],
    )  # fmt: skip
    return first


def name_ids(
    connection: sqlite3.Connection, names: Iterable[str], collectives: Iterable[str] = ()
) -> dict[str, int]:
    """Keys of kernel names, each classified when it is first stored.

    collectives  names of kernels that their source shows to be collectives, whatever their names
    """
    rows = []
    for name in set(names):
        k = classify(name)
        hints = (None,) * 6 if k is None else (
            k.family, k.op_hint, k.algorithm_hint, k.protocol_hint, k.redop_hint, k.datatype_hint,
        )  # fmt: skip
        rows.append((name, *hints))
    connection.executemany(
        "INSERT OR IGNORE INTO _kernel_name (name, family, op_hint, algorithm_hint, protocol_hint,"
        " redop_hint, datatype_hint) VALUES (?,?,?,?,?,?,?)",
        rows,
    )
    connection.executemany(
        "UPDATE _kernel_name SET family = 'custom' WHERE name = ? AND family IS NULL",
        [(name,) for name in collectives],
    )
    query = "SELECT name_id FROM _kernel_name WHERE name = ?"
    return {row[0]: int(connection.execute(query, (row[0],)).fetchone()[0]) for row in rows}


def insert_traced_kernels(
    connection: sqlite3.Connection, source: int, first_process: int, kernels: Sequence[TracedKernel]
) -> None:
    """Kernels of an RCCL kernel trace, in order."""
    ids = name_ids(connection, (k.name for k in kernels))
    connection.executemany(
        "INSERT INTO _kernel (source_id, name_id, kind, process_id, rank, nranks, bus_id, comm_ptr,"
        " op_count, blocks, start_ns, end_ns, line) VALUES (?,?,'kernel',?,?,?,?,?,?,?,?,?,?)",
        [
            (
                source, ids[k.name], first_process + k.process, k.rank, k.nranks, _hex(k.bus_id),
                _hex(k.comm_ptr), k.op_count, k.blocks, k.start_ns, k.end_ns, k.line,
            )
            for k in kernels
        ],
    )  # fmt: skip


def insert_profile(
    connection: sqlite3.Connection,
    source: int,
    totals: Sequence[KernelTotal],
    spans: Sequence[KernelSpan],
) -> None:
    """Totals and single executions of a profile."""
    ids = name_ids(connection, [t.name for t in totals] + [s.name for s in spans])
    connection.executemany(
        "INSERT INTO _kernel_total VALUES (?,?,?,?,?,?,?,?,?)",
        [
            (
                source, ids[t.name], t.kind, t.device, t.calls, t.total_ns, t.min_ns, t.max_ns,
                t.reported_percentage,
            )
            for t in totals
        ],
    )  # fmt: skip
    connection.executemany(
        "INSERT INTO _kernel (source_id, name_id, kind, device, stream, start_ns, end_ns)"
        " VALUES (?,?,?,?,?,?,?)",
        [(source, ids[s.name], s.kind, s.device, s.stream, s.start_ns, s.end_ns) for s in spans],
    )


class HandlesByPointer:
    """Handles of a log by process and communicator pointer, which is used again and again."""

    def __init__(
        self, first: int, handles: Sequence[CommHandle], records: Sequence[LogRecord]
    ) -> None:
        """Handles with the keys from `first` on, in any order; `records` show where they end."""
        self._begins: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self._ends: dict[tuple[int, int], list[int]] = defaultdict(list)
        for i, s in sorted(enumerate(handles), key=lambda pair: pair[1].first_line):
            self._begins[s.process, s.comm_ptr].append((s.first_line, first + i))
        for r in records:
            if isinstance(r, CommEnd):
                self._ends[r.process, r.comm_ptr].append(r.line)

    def find(self, process: int, comm_ptr: int, line: int) -> int | None:
        """Key of the handle that a line speaks of, None for a pointer without one.

        Before RCCL 2.18 a communicator's first line comes when it is connected: what stands before
        it, behind the end of the one before, is of it.
        """
        lives = self._begins.get((process, comm_ptr))
        if not lives:
            return None
        n = max(sum(1 for begin, _ in lives if begin <= line), 1)
        begin = lives[n - 1][0]
        ended = any(begin < end < line for end in self._ends.get((process, comm_ptr), ()))
        return lives[n if ended and n < len(lives) else n - 1][1]


class LogKeys(msgspec.Struct, frozen=True):
    """What the rows of one log refer to."""

    source: int
    first_process: int  # key of the scanner's process 0
    lives: HandlesByPointer
    texts: dict[int, str]  # message by line number, kept as evidence

    def process(self, process: int | None) -> int | None:
        """Key of a process."""
        return None if process is None else self.first_process + process


def insert_records(
    connection: sqlite3.Connection, keys: LogKeys, records: Sequence[LogRecord]
) -> None:
    """Links, settings and facts of a log; equal links of several channels become one row."""
    settings = [r for r in records if isinstance(r, Setting)]
    connection.executemany(
        "INSERT INTO _setting VALUES (?,?,?,?,?,?,?)",
        [
            (
                keys.source, keys.process(r.process), r.name, r.value, r.origin, r.line,
                keys.texts.get(r.line),
            )
            for r in settings
        ],
    )  # fmt: skip
    facts: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for r in records:
        if isinstance(r, LibraryVersion):
            facts[r.process, r.component, r.version].append(r.line)
        if isinstance(r, Fact):
            facts[r.process, r.kind, r.value].append(r.line)
    connection.executemany(
        "INSERT INTO _fact VALUES (?,?,?,?,?,?,?)",
        [
            (
                keys.source,
                keys.process(process),
                kind,
                value,
                lines[0],
                len(lines),
                keys.texts.get(lines[0]),
            )
            for (process, kind, value), lines in facts.items()
        ],
    )
    _insert_links(connection, keys, records)


def _insert_links(
    connection: sqlite3.Connection, keys: LogKeys, records: Sequence[LogRecord]
) -> None:
    links: dict[tuple[Any, ...], list[Link]] = defaultdict(list)
    for r in records:
        if isinstance(r, Link):
            handle = keys.lives.find(r.process, r.comm_ptr or 0, r.line)
            links[
                r.process, handle, r.src_rank, r.dst_rank, r.direction, r.transport, r.net,
                r.net_dev, r.gdr,
            ].append(r)  # fmt: skip
    connection.executemany(
        f"INSERT INTO _link VALUES ({','.join('?' * 13)})",
        [
            (
                keys.source, keys.process(process), *rest,
                len({link.channel for link in same}), same[0].line, keys.texts.get(same[0].line),
            )
            for (process, *rest), same in links.items()
        ],
    )  # fmt: skip
