"""Ranks of a launcher: the first one writes, the others read files for it, over TCP.

MPI waits forever for a rank that was killed. So it only carries the address, and ends before the
first file is read: from then on each rank lives and dies alone.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import ExitStack, suppress
from importlib import import_module
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar

from collscope.errors import InputError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_KEY_BYTES = 32
_CONNECT_SECONDS = 20
# A node that is lost closes no connection: after a minute without an answer it counts as lost.
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class LostRankError(Exception):
    """A rank ended while it read a file."""


def join_ranks(held: ExitStack) -> Executor | None:
    """The executor of the other ranks; None in a rank that has read for the first one.

    held    ends the executor
    raises  InputError when no rank reaches the first one
    """
    mpi = import_module("mpi4py.MPI")
    world = mpi.COMM_WORLD
    if world.Get_rank():
        hosts, port, key = world.bcast(None, root=0)
        connection = _connected([(host, port) for host in hosts], key)
        world.gather(connection is not None, root=0)
        mpi.Finalize()
        if connection is not None:
            with connection:
                serve(connection)
        return None
    key = os.urandom(_KEY_BYTES)
    listener = held.enter_context(Listener(("", 0), backlog=world.Get_size(), authkey=key))
    port = listener.address[1]
    ranks = held.enter_context(Ranks())
    accepting = Thread(target=_accept, args=(listener, ranks, world.Get_size() - 1), daemon=True)
    accepting.start()
    hosts = _hosts()
    world.bcast((hosts, port, key), root=0)
    reached = sum(world.gather(True, root=0)) - 1
    mpi.Finalize()
    if not reached:
        raise InputError(
            f"ingest: no rank reaches rank 0 at {hosts[0]}, TCP port {port}. Allow it in the"
            " firewall, or give each rank files and a store of its own (--jobs 1, then merge)."
        )
    return ranks


def _hosts() -> list[str]:
    """Names and addresses of this host, for others."""
    name = socket.gethostname()
    hosts = [name]
    with suppress(OSError):
        hosts += [str(found[4][0]) for found in socket.getaddrinfo(name, None, socket.AF_INET)]
    return list(dict.fromkeys([*hosts, "127.0.0.1"]))


def _connected(addresses: Sequence[tuple[str, int]], key: bytes) -> Connection | None:
    """A connection to the first of some addresses that answers with the key; None: none does."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_CONNECT_SECONDS)
    try:
        for address in addresses:
            with suppress(OSError, EOFError, AuthenticationError):
                return _kept_alive(Client(address, authkey=key))
    finally:
        socket.setdefaulttimeout(before)
    return None


def _kept_alive(connection: Connection) -> Connection:
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setblocking(True)
        same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if option := getattr(socket, name, None):
                same.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection


def _accept(listener: Listener, ranks: Ranks, most: int) -> None:
    """Take in so many ranks; a stranger without the key is refused."""
    while most:
        try:
            ranks.add(_kept_alive(listener.accept()))
        except (AuthenticationError, EOFError):
            continue
        except OSError:  # the listener is closed
            return
        most -= 1


def serve(connection: Connection) -> None:
    """Do what the other side asks for, until it has no more or is gone."""
    with suppress(EOFError, OSError):
        while (request := connection.recv()) is not None:
            fn, args, kwargs = request
            try:
                answer: tuple[bool, object] = True, fn(*args, **kwargs)
            except Exception as error:
                answer = False, error
            connection.send(answer)


class Ranks(Executor):
    """Executor of processes at the other ends of connections, each with one task at a time."""

    def __init__(self) -> None:
        """Begin without a process."""
        self._tasks: SimpleQueue[tuple[Future[Any], Any] | None] = SimpleQueue()
        self._lock = Lock()
        self._serving: list[Thread] = []
        self._lost = 0

    def add(self, connection: Connection) -> None:
        """Have one more process."""
        with self._lock:
            thread = Thread(target=self._serve, args=(connection,), daemon=True)
            self._serving.append(thread)
        thread.start()

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Have a process call `fn`.

        raises  BrokenExecutor when all processes are lost
        """
        future: Future[_T] = Future()
        with self._lock:
            if self._all_lost():
                raise BrokenExecutor
            self._tasks.put((future, (fn, args, kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let all processes end."""
        del cancel_futures  # what is not begun stays undone
        for _ in self._serving:
            self._tasks.put(None)
        for thread in self._serving if wait else ():
            thread.join()

    def _all_lost(self) -> bool:
        return bool(self._serving) and self._lost == len(self._serving)

    def _serve(self, connection: Connection) -> None:
        """Give one process a task after the other."""
        with connection:
            while (task := self._tasks.get()) is not None:
                future, request = task
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    connection.send(request)
                    done, value = connection.recv()
                except (EOFError, OSError):
                    future.set_exception(LostRankError("a rank ended while it read a file"))
                    self._lose()
                    return
                if done:
                    future.set_result(value)
                else:
                    future.set_exception(value)
            with suppress(OSError):
                connection.send(None)

    def _lose(self) -> None:
        """One process is lost; the tasks that nobody is left for fail."""
        with self._lock:
            self._lost += 1
            while self._all_lost() and not self._tasks.empty():
                if (task := self._tasks.get()) is not None:
                    task[0].set_exception(BrokenExecutor())
