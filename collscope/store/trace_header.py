"""The header of a trace's bytes in the store: the part that is read without numpy."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

import msgspec

from collscope.errors import InputError
from collscope.model.trace_collective import TraceCollective, shows_cpu_activities

VERSION = 1
_T = TypeVar("_T")


class TraceHeader(msgspec.Struct, array_like=True):
    """Header of a trace."""

    version: int
    dialect: str
    names: tuple[str, ...]
    streams: tuple[str, ...]
    collectives: tuple[TraceCollective, ...]
    rank: int | None
    world_size: int | None
    host: str | None
    device: str | None
    steps: tuple[tuple[int, int], ...]
    rows: int
    no_launch: int  # what is in the column of launches where none is known
    columns: list[tuple[str, int]]  # width, bytes after compression; as `trace_columns` has them
    # Calls of the host, and their columns; none in stores of before.
    calls: int = 0
    call_columns: list[tuple[str, int]] = []
    gpu: str | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    named_rank: int | None = None
    # False and None in stores of before, too.
    operators: bool = False
    steps_before: int | None = None


def header_of(data: bytes) -> tuple[TraceHeader, int]:
    """Header of a trace, and where its columns begin.

    raises  InputError when the bytes are damaged or not of this version
    """
    end = 8 + checked_bytes(lambda: int.from_bytes(data[:8], "little"), TypeError)  # text: damaged
    head = checked_bytes(lambda: msgspec.msgpack.decode(data[8:end], type=TraceHeader))
    same_version(head.version)
    return head, end


def read_cpu_activities(connection: sqlite3.Connection, run: str) -> bool:
    """Whether a trace of a run, named by its label, shows CPU activities."""
    rows = connection.execute(
        "SELECT columns FROM _trace JOIN _source USING (source_id) JOIN _run USING (run_id)"
        " WHERE label = ?",
        (run,),
    )
    heads = (header_of(columns)[0] for (columns,) in rows)
    return any(head.operators or shows_cpu_activities(head.collectives) for head in heads)


def checked_bytes(read: Callable[[], _T], *errors: type[Exception]) -> _T:
    """What `read` gives; anything that damaged bytes make it raise, or `errors`, as one line."""
    damage: tuple[type[Exception], ...] = (
        msgspec.MsgspecError, ValueError, KeyError, IndexError, TypeError, *errors,
    )  # fmt: skip
    try:
        return read()
    except damage as error:
        raise InputError(f"store: a trace is damaged ({error}). Ingest into a new file.") from error


def same_version(version: int) -> None:
    """Raise InputError for a version of the bytes that is not this one."""
    if version != VERSION:
        raise InputError(f"store: a trace of format version {version}. Ingest again.")
