"""The command line run in this process, and a look at everything a store holds."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import sqlite3
import struct
import subprocess
import sys
import termios
from contextlib import closing
from functools import cache
from pathlib import Path

import msgspec
import typer.main

from collscope import cli

# Typer builds every command anew for each run, which takes longer than most commands do.
typer.main.get_command = cache(typer.main.get_command)


class Outcome(msgspec.Struct, frozen=True):
    """What a command left behind."""

    code: int
    out: str
    err: str


def collscope(*arguments: str | Path) -> Outcome:
    """Run `collscope ARGUMENTS` through its entry point."""
    out, err = io.StringIO(), io.StringIO()
    code, before = 0, sys.argv
    sys.argv = ["collscope", *map(str, arguments)]
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.argv = before
    return Outcome(code, out.getvalue(), err.getvalue())


def on_terminal(columns: int, *arguments: str | Path) -> Outcome:
    """Run `collscope ARGUMENTS` as a process whose output and errors are a terminal's.

    columns  of the terminal
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "collscope", *map(str, arguments)]
    child = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:  # the child has closed its end
        pass
    os.close(ours)
    return Outcome(child.wait(), said.decode().replace("\r\n", "\n"), "")


def dump(db: Path) -> list[str]:
    """Every row of a store as SQL; empty where there is no store."""
    if not db.exists():
        return []
    with closing(sqlite3.connect(db)) as connection:
        return list(connection.iterdump())


def rows(db: Path, query: str) -> list[tuple[object, ...]]:
    """Answer of a query."""
    with closing(sqlite3.connect(db)) as connection:
        return connection.execute(query).fetchall()


# What the answer to "which calls" is, whichever files they came from.
CALLS = (
    "SELECT c.nranks, (SELECT group_concat(world_rank) FROM (SELECT world_rank FROM members m"
    " WHERE m.comm_id = k.comm_id ORDER BY rank)) AS world, seq, op, datatype, redop, root,"
    " count, size_bytes, in_place, shape, algorithm, protocol, channels, k.ranks_seen"
    " FROM calls k JOIN communicators c USING (comm_id) WHERE k.run = 'main'"
    " ORDER BY 1, 2, 3"
)
CLASSES = (
    "SELECT op, datatype, redop, root, count, size_bytes, in_place, nranks, nnodes, shape, calls"
    " FROM classes WHERE run = 'main' ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
)
