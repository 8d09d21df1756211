"""Ctrl-C where a library drops it, and where it would leave half of something."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ctrl_c_kept() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at the end where Ctrl-C came and something dropped it meanwhile.

    SQLite reports an exception of a progress handler as "interrupted", and one of an authorizer as
    "not authorized": errors of the file or of the query to those who do not know.

    returns  the signals so far; the end does not wait for those who look there
    """
    seen: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield seen  # the process ends, or the exception is another thread's
        return

    def note(number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except KeyboardInterrupt:
            seen.append(number)
            raise

    signal.signal(signal.SIGINT, note)
    try:
        yield seen
    except Exception as error:
        if seen:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, handler)
    if seen:
        raise KeyboardInterrupt


@contextmanager
def ctrl_c_deferred() -> Iterator[None]:
    """Hold Ctrl-C back until the end, where it raises KeyboardInterrupt: for short work only."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield  # the process ends, or the exception is another thread's
        return
    seen: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if seen:
        handler(*seen[0])
