"""Slices of a PyTorch profiler trace as columns, made by the native scanner or of decoded events.

What only few events hold (collectives, synchronisations, steps) stays in events, read one by one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from collscope._tracescan import scan
from collscope.model.trace import Kind
from collscope.parsers._columns import Index
from collscope.parsers.traces.kineto_events import Arguments, Event, ExactEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    Activity = tuple[int | str | None, int | str | None]  # device, stream
    Columns = dict[str, np.ndarray[Any, Any]]

LATEST_US = 4e15
"""Bound of times: below 2^63 ns even with the largest base added."""
LONGEST_US = 1e13
NO_ARGUMENTS = Arguments()
_LIMIT = 2**63
_FIRST_TIME = re.compile(rb'"ts"\s*:\s*"?(\d+)(\.\d*[1-9])?')
# "ts": 1682725898236567.123: a float of that size is exact to 250 ns only.
_EXACT_DIGITS = 14
# "args": {"External id": 1, …, "rank": 0, "pid_raw": 3194582}, of TraceLens's TraceFusion
_OF_RANK = re.compile(rb'"rank"\s*:\s*\d+\s*[,}]')
_KINDS = {
    **dict.fromkeys(("kernel", "Kernel"), Kind.KERNEL),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), Kind.COPY),
    **dict.fromkeys(("gpu_memset", "Memset"), Kind.MEMSET),
}
_CALLS = frozenset(("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "privateuse1_runtime"))
_OPERATORS = frozenset(("cpu_op", "Operator"))
_TELLING = frozenset(("cuda_sync", "cpu_op", "user_annotation", "Operator"))
_GPU = {
    "kind": np.int8, "name": np.int32, "stream": np.int32, "start_us": np.float64,
    "duration_us": np.float64, "correlation": np.int64, "seq": np.int64, "event": np.int32,
}  # fmt: skip
_CALL = {
    "name": np.int32, "thread": np.int32, "start_us": np.float64, "duration_us": np.float64,
    "correlation": np.int64,
}  # fmt: skip


class Slice(msgspec.Struct, frozen=True):
    """Events that follow each other in a trace. Times count from the trace's origin on.

    `first` of a table is the number of the event that has each of its values first.
    """

    gpu: Columns  # activities, in their order, as `_GPU`; -1 where unknown
    calls: Columns  # of the runtime and driver, and flows, which have no name: -1; as `_CALL`
    others: list[int]  # numbers of the events that are read one by one
    names: list[str]  # of activities
    streams: list[Activity]
    streams_first: list[int]
    call_names: list[str | None]
    threads: list[int | str | None]
    threads_first: list[int]
    bad: int  # activities without usable times
    cpu: bool  # CPU activity was recorded
    origin_us: int  # of the trace; 0: not known yet
    decode: Callable[[list[int]], list[Event]]
    """The events of some activities, given by their places, and then all others."""


class Slicer:
    """Makes slices of one trace, in its order."""

    def __init__(self) -> None:
        """Start without an event."""
        self._type: type[Event] = Event
        self._origin_us = 0
        self.several = False  # events name the rank that they are of

    def open(self, text: bytes) -> type[Event]:
        """Type of the events of a trace, by the beginning of their text."""
        first = _FIRST_TIME.search(text)
        large = first is not None and len(first[1]) >= _EXACT_DIGITS and first[2] is not None
        self._type = ExactEvent if large else Event
        self.several = _OF_RANK.search(text) is not None
        self._events = msgspec.json.Decoder(list[self._type], strict=False)  # type: ignore[name-defined]
        return self._type

    def scanned(self, text: bytes, end: int) -> Slice | None:
        """The events before a place of the text; None where they have to be decoded."""
        if self.several:
            return None
        found = scan(text, end, self._type is ExactEvent, self._origin_us)
        if found is None:
            return None
        gpu, others = found["gpu"], found["others"]
        places = gpu.pop("begin"), gpu.pop("end")

        def decode(rows: list[int]) -> list[Event]:
            begins = [*places[0][rows].tolist(), *others["begin"].tolist()]
            ends = [*places[1][rows].tolist(), *others["end"].tolist()]
            parts = [text[a:b] for a, b in zip(begins, ends, strict=True)]
            events: list[Event] = self._events.decode(b"[" + b",".join(parts) + b"]")
            self._make_relative(events)
            return events

        try:
            names = [_text(value) or "" for value in found["names"]]
            devices, streams = map(_numbers_or_texts, (found["devices"], found["streams"]))
            made = Slice(
                gpu=gpu,
                calls=found["calls"],
                others=others["event"].tolist(),
                names=names,
                streams=list(zip(devices, streams, strict=True)),
                streams_first=found["stream_first"].tolist(),
                call_names=[_text(value) for value in found["call_names"]],
                threads=_numbers_or_texts(found["threads"]),
                threads_first=found["thread_first"].tolist(),
                bad=found["bad"],
                cpu=found["cpu"],
                origin_us=found["origin_us"],
                decode=decode,
            )
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        self._origin_us = made.origin_us
        return made

    def of_events(self, events: list[Event]) -> Slice:
        """Decoded events."""
        self._make_relative(events)
        builder = _Builder(self._origin_us)
        for number, event in enumerate(events):
            builder.add(number, event)
        return builder.slice(events)

    def _make_relative(self, events: list[Event]) -> None:
        """Replace decimal times by floats from an origin on, which hold them to the ns."""
        if self._type is not ExactEvent:
            return
        for event in events:
            exact: Decimal | None = event.ts  # type: ignore[assignment]
            if exact is not None:
                self._origin_us = self._origin_us or min(int(LATEST_US), max(0, int(exact)))
                event.ts = float(exact - self._origin_us)


class _Builder:
    """A slice of decoded events."""

    def __init__(self, origin_us: int) -> None:
        self._origin_us = origin_us
        self._gpu: dict[str, list[Any]] = {name: [] for name in _GPU}
        self._calls: dict[str, list[Any]] = {name: [] for name in _CALL}
        self._others: list[int] = []
        self._names: Index[str] = Index()
        self._call_names: Index[str | None] = Index()
        self._streams: Index[Activity] = Index()
        self._threads: Index[int | str | None] = Index()
        self._streams_first: list[int] = []
        self._threads_first: list[int] = []
        self._bad = 0

    def add(self, number: int, event: Event) -> None:
        """Take an event."""
        args, category, ts = event.args or NO_ARGUMENTS, event.cat, event.ts
        kind = _KINDS.get(category or "")
        if kind is not None:
            self._activity(number, event, kind)
        elif category in _TELLING:
            self._others.append(number)
        elif category in _CALLS and args.correlation is not None and ts is not None:
            duration = event.dur
            valid = duration is not None and 0 <= duration < LONGEST_US
            timed = ts, duration if valid else -1.0
            self._call(number, event.tid, self._call_names[event.name], timed, args.correlation)
        elif (
            category == "ac2g" and event.ph == "s" and isinstance(event.id, int) and ts is not None
        ):
            # {"ph": "s", "id": 182, "tid": 963, "ts": 4320677114060.1, "cat": "ac2g", …}
            self._call(number, event.tid, -1, (ts, -1.0), event.id)

    def _activity(self, number: int, event: Event, kind: Kind) -> None:
        timed = usable_times(event, self._origin_us)
        if timed is None:
            self._bad += 1
            return
        args = event.args or NO_ARGUMENTS
        stream = self._streams[args.device, event.tid if args.stream is None else args.stream]
        if stream == len(self._streams_first):
            self._streams_first.append(number)
        row = (
            kind, self._names[event.name or ""], stream, *timed, small(args.correlation),
            small(args.seq), number,
        )  # fmt: skip
        for column, value in zip(self._gpu.values(), row, strict=True):
            column.append(value)

    def _call(
        self,
        number: int,
        tid: int | str | None,
        name: int,
        timed: tuple[float, float | None],
        correlation: int,
    ) -> None:
        thread = self._threads[tid]
        if thread == len(self._threads_first):
            self._threads_first.append(number)
        row = name, thread, *timed, small(correlation)
        for column, value in zip(self._calls.values(), row, strict=True):
            column.append(value)

    def slice(self, events: list[Event]) -> Slice:
        """What was taken; `events` are all of it."""
        gpu = {name: np.array(self._gpu[name], dtype=kind) for name, kind in _GPU.items()}
        return Slice(
            gpu=gpu,
            calls={name: np.array(self._calls[name], dtype=kind) for name, kind in _CALL.items()},
            others=self._others,
            names=list(self._names.values),
            streams=list(self._streams.values),
            streams_first=self._streams_first,
            call_names=list(self._call_names.values),
            threads=list(self._threads.values),
            threads_first=self._threads_first,
            bad=self._bad,
            cpu=any(event.cat in _OPERATORS for event in events),
            origin_us=self._origin_us,
            decode=lambda rows: [
                events[number] for number in (*gpu["event"][rows].tolist(), *self._others)
            ],
        )


def usable_times(event: Event, origin_us: int) -> tuple[float, float] | None:
    """Start and duration of a complete event, where they can be."""
    ts, dur = event.ts, event.dur
    if event.ph != "X" or ts is None or dur is None:
        return None
    good = 0 <= ts + origin_us < LATEST_US and 0 <= dur < LONGEST_US
    return (ts, dur) if good else None


def small(value: int | None) -> int:
    """The value where it fits a column, else -1."""
    return value if value is not None and -_LIMIT <= value < _LIMIT else -1


_TEXT: msgspec.json.Decoder[str | None] = msgspec.json.Decoder(str | None, strict=False)
_VALUES: msgspec.json.Decoder[list[int | str | None]] = msgspec.json.Decoder(
    list[int | str | None], strict=False
)


def _text(written: bytes) -> str | None:
    return _TEXT.decode(written) if written else None


def _numbers_or_texts(written: list[bytes]) -> list[int | str | None]:
    return _VALUES.decode(b"[" + b",".join(value or b"null" for value in written) + b"]")
