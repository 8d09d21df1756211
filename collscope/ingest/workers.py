"""Who reads the files of an ingest: this process, processes of this host, ranks of MPI, or Dask.

All are executors of `concurrent.futures`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

from collscope.errors import InputError, MissingToolError
from collscope.ingest.paths import STDIN

_P = ParamSpec("_P")
_T = TypeVar("_T")
_PR_SET_PDEATHSIG = 1  # prctl(2)


class Workers:
    """Executors of one kind, made when there is something to read."""

    def __init__(
        self,
        make: Callable[[], Executor],
        width: int,
        *,
        lasting: bool = False,
    ) -> None:
        """`make` gives an executor when there is something to read.

        width    files that it reads at once
        lasting  it is the same executor each time, and whoever made it ends it
        """
        self.width = width
        self._make = make
        self.lasting = lasting
        self._executor: Executor | None = None

    def worth(self, paths: Sequence[str]) -> bool:
        """Whether these files are to be read by them."""
        return self.width > 1 and sum(path != STDIN for path in paths) > 1

    def submit(self, read: Callable[..., _T], *given: object) -> Future[_T]:
        """Have something read; `read` and what it is given can be pickled."""
        if self._executor is None:
            self._executor = self._make()
        return self._executor.submit(read, *given)

    def close(self) -> None:
        """Give up what is not read yet."""
        if self._executor is not None and not self.lasting:
            self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = None


@contextmanager
def workers(jobs: int | None, dask: str | None, *, launched: bool) -> Iterator[Workers | None]:
    """The workers that the command line asks for; None in a rank that has served as one.

    jobs      processes of this host; None: this one alone
    dask      address of a scheduler
    launched  a launcher has started several of this process
    raises    MissingToolError without the package that is needed, InputError for a wrong address
    """
    with ExitStack() as held:
        if dask is not None:
            found: Workers | None = _of_dask(dask, held)
        elif launched and jobs is None and find_spec("mpi4py") is not None:
            found = _of_mpi(held)
        else:
            found = _of_host(jobs)
        if found is not None:
            held.callback(found.close)
        yield found


class _Processes(Executor):
    """Processes of this host: each is an executor of its own.

    An executor of several starts the next process when something is submitted; if another one dies
    at that moment, CPython 3.11 may wait for the new one forever.
    """

    def __init__(self, width: int) -> None:
        # Late: one process alone needs none of it.
        import multiprocessing  # noqa: PLC0415
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

        # Not by fork: this process has threads, and a fork would copy locks that they hold.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["collscope.ingest.parts", "collscope.ingest.logs"])
        self._begun: dict[Executor, list[Future[Any]]] = {
            ProcessPoolExecutor(1, context, _end_with_parent): [] for _ in range(width)
        }

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Have the process with the least to do call `fn`."""
        for process, begun in self._begun.items():
            self._begun[process] = [future for future in begun if not future.done()]
        idlest = min(self._begun, key=lambda process: len(self._begun[process]))
        future = idlest.submit(fn, *args, **kwargs)
        self._begun[idlest].append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes."""
        for process in self._begun:
            process.shutdown(wait=wait, cancel_futures=cancel_futures)


def _of_host(jobs: int | None) -> Workers:
    width = jobs or 1
    return Workers(lambda: _Processes(width), width)


def _end_with_parent() -> None:
    """End with Ctrl-C in silence, and with the process that asked for this one."""
    import ctypes  # noqa: PLC0415 - only in the processes that are started

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _of_mpi(held: ExitStack) -> Workers | None:
    """Ranks of MPI: the first one writes, the others read until it is done."""
    world = import_module("mpi4py.MPI").COMM_WORLD
    size = world.Get_size()
    if size == 1:  # the launcher is not of this MPI: each process is alone
        return _of_host(None)
    executor = import_module("collscope.ingest.ranks").join_ranks(held)
    return None if executor is None else Workers(lambda: executor, size - 1, lasting=True)


def _of_dask(address: str, held: ExitStack) -> Workers:
    try:
        distributed = import_module("distributed")
    except ImportError as error:
        raise MissingToolError(
            "--dask: distributed is not installed. Run 'pip install collscope[dask]'."
        ) from error
    try:
        client = held.enter_context(distributed.Client(address, set_as_default=False))
    except (OSError, ValueError) as error:
        raise InputError(
            f"--dask {address}: no scheduler answers ({error}). Start one with 'dask scheduler'."
        ) from error
    width = sum(client.ncores().values())
    if not width:
        raise InputError(f"--dask {address}: no worker. Start one with 'dask worker {address}'.")
    return Workers(lambda: client.get_executor(pure=False), width, lasting=True)
