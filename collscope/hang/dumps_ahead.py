"""Dumps of a large job, read by processes of this host ahead of who takes them."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from collscope.errors import UnreadableError
from collscope.hang.answers import is_answer
from collscope.hang.dumps import Dump, dump_of, read_dump
from collscope.hang.records import Call, RankEvidence
from collscope.ingest.files import open_input
from collscope.ingest.paths import STDIN
from collscope.ingest.workers import workers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from types import TracebackType

# Two processes begin in 0.6 s, in which one reads so many bytes of pickles.
_WORTH_BYTES = 16 << 20
_AHEAD = 8  # files for each process that are read and not taken yet


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """A `Dump` whose calls are columns: to decode them takes a fifth of the time."""

    dump: Dump  # without calls
    kinds: tuple[tuple[str, str, int | None, str | None], ...]  # group, operation, count, datatype
    kind: list[int]
    seq: list[int]
    completed: list[bool]
    time_ns: list[int | None]
    frames: dict[int, tuple[str, ...]]  # of a place


class DumpsAhead:
    """What processes of this host make of files that are dumps."""

    def __init__(self, paths: Sequence[str], processes: int) -> None:
        """Nothing is begun before the context is entered."""
        self._processes = processes
        self._waiting = list(reversed(paths)) if processes > 1 and _worth(paths) else []
        self._begun: dict[str, Future[bytes | None]] = {}
        self._held = ExitStack()

    def __enter__(self) -> DumpsAhead:
        """Begin with the first files."""
        found = workers(self._processes, None, launched=False)
        self._workers = self._held.enter_context(found)
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End the processes."""
        self._held.close()

    def take(self, path: str) -> Dump | None:
        """The dump in a file; None where the caller is to read it."""
        future = self._begun.pop(path, None)
        if future is None:
            return None
        try:
            packed = future.result()
        except Exception:  # a worker that died, say: the caller finds what is wrong with the file
            return None
        finally:
            self._begin()
        return None if packed is None else unpack(packed, path)

    def _begin(self) -> None:
        most = _AHEAD * self._processes
        while self._waiting and len(self._begun) < most and self._workers is not None:
            path = self._waiting.pop()
            if path == STDIN:
                continue
            try:
                self._begun[path] = self._workers.submit(packed_dump, str(Path(path).absolute()))
            except BrokenExecutor:  # the caller reads the rest
                self._waiting = []


def _worth(paths: Sequence[str]) -> bool:
    size = 0
    for path in paths:
        if path != STDIN and Path(path).is_file():
            size += Path(path).stat().st_size
    return len(paths) > 1 and size >= _WORTH_BYTES


def packed_dump(path: str) -> bytes | None:
    """Read a file; None of one that is no dump; runs in a worker."""
    try:
        with open_input(path) as file:
            file.leave_unhashed()
            head = file.head()
            is_text = b"\0" not in head and is_answer(head.decode("utf-8", errors="replace"))
            calls = None if is_text else read_dump(file)
    except UnreadableError:
        return None
    dump = None if calls is None else dump_of(path, calls)
    return None if dump is None else pack(dump)


def pack(dump: Dump) -> bytes:
    """A dump for another process."""
    numbers: dict[tuple[str, str, int | None, str | None], int] = {}
    calls = dump.of.calls
    kind = [
        numbers.setdefault((call.group, call.op, call.count, call.datatype), len(numbers))
        for call in calls
    ]
    bare = msgspec.structs.replace(dump, of=msgspec.structs.replace(dump.of, calls=()))
    return msgspec.msgpack.encode(
        _Packed(
            bare,
            tuple(numbers),
            kind,
            [call.seq for call in calls],
            [call.completed for call in calls],
            [call.time_ns for call in calls],
            {place: call.frames for place, call in enumerate(calls) if call.frames},
        )
    )


def unpack(packed: bytes, path: str) -> Dump:
    """The dump of `pack`, of a file that the caller names so."""
    found = msgspec.msgpack.decode(packed, type=_Packed)
    columns = zip(*(found.kinds[kind] for kind in found.kind), strict=True)
    group, op, count, datatype = columns if found.kind else ((), (), (), ())
    frames = (found.frames.get(place, ()) for place in range(len(found.kind)))
    calls = tuple(
        map(
            Call, group, found.seq, op, count, datatype, repeat(None), found.completed,
            found.time_ns, frames,
        )
    )  # fmt: skip
    of: RankEvidence = msgspec.structs.replace(found.dump.of, calls=calls)
    return msgspec.structs.replace(found.dump, path=path, of=of)
