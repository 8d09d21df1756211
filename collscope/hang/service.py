"""Ask the RAS service of a job that runs: NCCL from 2.24 on, over TCP, in lines.

Source: src/ras/client.cc and client_support.cc of NCCL: `CLIENT PROTOCOL 2` is answered with the
server's version, `SET FORMAT json` with OK (an ERROR before 2.28.7, which knows text alone), and
`VERBOSE STATUS` with the answer, after which the server ends the connection. These change nothing.

`CONTROL PROFILER_MASK 0x42` (NCCL 2.31, docs/userguide/source/troubleshooting/ras.rst) is answered
with OK, or with a line that begins with ERROR; the connection stays. OK comes before the other
processes have the mask: the service sends it on to them, and no answer of theirs comes back.
"""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from collscope.errors import InputError, RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader

PORT = 28028  # NCCL_RAS_ADDR's default
BETWEEN_S = 5.0  # two answers in which the counts of a job at work differ
# The service waits so long for the other processes, twice, before it answers without them
# (RAS_COLLECTIVE_LEG_TIMEOUT 5 s, RAS_COLLECTIVE_EXTRA_TIMEOUT 10 s).
_ANSWER_S = 30.0
_CONNECT_S = 5.0
_MOST_BYTES = 512 << 20


def ask_twice(address: str, wait: Callable[[float], None] = time.sleep) -> tuple[str, str]:
    """Two answers of the service, `BETWEEN_S` apart.

    address  HOST[:PORT], [IPV6]:PORT
    raises   UsageError for an address of another form, InputError where nothing answers
    """
    host, port = parse_address(address)
    first = _ask(host, port)
    wait(BETWEEN_S)
    return first, _ask(host, port)


def set_profiler_mask(address: str, mask: int) -> None:
    """Ask the profiler plugins of all processes for the events of a mask, as NCCL numbers them.

    address  HOST[:PORT], [IPV6]:PORT
    raises   UsageError for an address of another form, RefusedError of a library before NCCL 2.31,
             InputError where nothing answers: then nobody knows whether the mask is set
    """
    host, port = parse_address(address)
    with _connected(host, port) as (service, lines):
        service.sendall(f"CONTROL PROFILER_MASK 0x{mask:x}\n".encode())
        answer = lines.readline(4096).decode("utf-8", errors="replace").strip()
    if answer.upper() == "OK":
        return
    if answer.upper().startswith("ERROR"):
        raise RefusedError(
            f"{host}:{port}: the RAS service answers '{answer}'. CONTROL needs NCCL 2.31: "
            "start the job with COLLSCOPE_RECORDER_CONTROL=FILE, and name that file instead."
        )
    raise InputError(f"{host}:{port}: the RAS service did not answer. Check that the job runs.")


def parse_address(address: str) -> tuple[str, int]:
    """Host and port.

    >>> parse_address("node7"), parse_address("node7:3"), parse_address("[::1]:9")
    (('node7', 28028), ('node7', 3), ('::1', 9))
    """
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(PORT)
    host = host.strip("[]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 1 << 16:
        raise UsageError(f"{address}: not an address of a RAS service. Give HOST or HOST:PORT.")
    return host, int(port)


@contextmanager
def _connected(host: str, port: int) -> Iterator[tuple[socket.socket, BufferedReader]]:
    """A connection to the service, and what it sends."""
    try:
        with socket.create_connection((host, port), _CONNECT_S) as service:
            service.settimeout(_ANSWER_S)
            with service.makefile("rb") as lines:
                service.sendall(b"CLIENT PROTOCOL 2\n")
                greeting = lines.readline(4096)
                if not greeting.upper().startswith(b"SERVER PROTOCOL"):
                    raise InputError(f"{host}:{port}: no RAS service answers. Check the port.")
                yield service, lines
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(
            f"{host}:{port}: {why}. Check NCCL_RAS_ADDR of the job, and that the job runs."
        ) from error


def _ask(host: str, port: int) -> str:
    with _connected(host, port) as (service, lines):
        service.sendall(b"SET FORMAT json\n")
        lines.readline(4096)
        service.sendall(b"VERBOSE STATUS\n")
        return _rest(lines.read1)


def _rest(read: Callable[[int], bytes]) -> str:
    """What comes until the service ends the connection; some versions keep it open."""
    parts = []
    size = 0
    try:
        while size < _MOST_BYTES and (part := read(1 << 16)):
            parts.append(part)
            size += len(part)
    except TimeoutError:
        if not parts:
            raise
    return b"".join(parts).decode("utf-8", errors="replace")
