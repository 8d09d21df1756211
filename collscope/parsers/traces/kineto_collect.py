"""Takes the events of a PyTorch profiler trace and keeps what the records need, as columns."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from collscope.kernel_names import KernelName, classify, looks_related
from collscope.model import Op
from collscope.model.trace import Kind
from collscope.parsers._columns import Index
from collscope.parsers.traces import kineto_calls
from collscope.parsers.traces._table import Rows
from collscope.parsers.traces.kineto_events import Arguments, Event, ExactEvent
from collscope.parsers.traces.kineto_host import Host, Spans
from collscope.parsers.traces.kineto_names import parse_collective

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from decimal import Decimal

    from collscope.model.trace import TraceCollective

    Describe = Callable[[kineto_calls.Groups], TraceCollective]
    Activity = tuple[int | str | None, int | str | None]  # device, stream

LATEST_US = 4e15
"""Bound of times: below 2^63 ns even with the largest base added."""
_LONGEST_US = 1e13
_LIMIT = 2**63
_NO_ARGUMENTS = Arguments()


class Collector:
    """What was seen so far; events may come in any order.

    Public attributes are for `kineto_build`, which makes the records of them.
    """

    def __init__(self) -> None:
        """Start without an event."""
        self.rows = Rows()
        self.names: Index[str] = Index()
        self.streams: Index[Activity] = Index()
        self.devices: Index[int | str | None] = Index()
        self.host = Host()
        self.steps: list[tuple[float, float]] = []
        self.describe: list[Describe] = []  # by the place that rows.collective holds
        self.described: list[Arguments] = []  # one of each kind that names a collective
        self.unnamed: list[tuple[int, int]] = []  # row and External id of kernels to look up
        self.unknown: dict[str, int] = {}  # names with "ccl" that no rule knows
        self.origin_us: int = 0  # to be added to all times
        self.cpu = False  # CPU activity was recorded
        self.bad = 0  # activities without usable times
        self._hints: dict[int, KernelName | bool] = {}  # by name; True: not known, looks like one
        self._calls: Index[Hashable] = Index()
        gpu = self._gpu
        self._handlers: dict[str | None, Callable[[Event], None]] = {
            **dict.fromkeys(("kernel", "Kernel"), partial(gpu, Kind.KERNEL)),
            **dict.fromkeys(("gpu_memcpy", "Memcpy"), partial(gpu, Kind.COPY)),
            **dict.fromkeys(("gpu_memset", "Memset"), partial(gpu, Kind.MEMSET)),
            **dict.fromkeys(("cuda_runtime", "cuda_driver", "Runtime"), self._launch),
            **dict.fromkeys(("hip_runtime", "privateuse1_runtime"), self._launch),
            "ac2g": self._flow,
            "cuda_sync": self._sync,
            **dict.fromkeys(("cpu_op", "user_annotation", "Operator"), self._host),
        }

    def add(self, events: list[Event]) -> None:
        """Take events."""
        if events and isinstance(events[0], ExactEvent):
            self._make_relative(events)
        handlers = self._handlers
        for event in events:
            handler = handlers.get(event.cat)
            if handler is not None:
                handler(event)

    def place_of(self, key: Hashable, describe: Describe) -> int:
        """Number of a collective that `rows.collective` may hold; equal keys have one."""
        place = self._calls[key]
        if place == len(self.describe):
            self.describe.append(describe)
        return place

    def hint(self, name: int) -> KernelName | None:
        """What the name of a row says."""
        known = self._hints.get(name)
        return known if isinstance(known, KernelName) else None

    def _make_relative(self, events: list[Event]) -> None:
        """Replace decimal times by floats from an origin on, which hold them to the ns."""
        for event in events:
            exact: Decimal | None = event.ts  # type: ignore[assignment]
            if exact is not None:
                self.origin_us = self.origin_us or min(int(LATEST_US), max(0, int(exact)))
                event.ts = float(exact - self.origin_us)

    def _timed(self, event: Event) -> tuple[float, float] | None:
        ts, dur = event.ts, event.dur
        if event.ph != "X" or ts is None or dur is None:
            return None
        good = 0 <= ts + self.origin_us < LATEST_US and 0 <= dur < _LONGEST_US
        return (ts, dur) if good else None

    def _gpu(self, kind: Kind, event: Event) -> None:
        timed = self._timed(event)
        if timed is None:
            self.bad += 1
            return
        args = event.args or _NO_ARGUMENTS
        rows, text = self.rows, event.name or ""
        name = self.names[text]
        stream = event.tid if args.stream is None else args.stream
        rows.kind.append(kind)
        rows.name.append(name)
        rows.stream.append(self.streams[args.device, stream])
        rows.device.append(self.devices[args.device])
        rows.start.append(timed[0])
        rows.duration.append(timed[1])
        rows.correlation.append(_small(args.correlation))
        rows.seq.append(_small(args.seq))
        collective = self._hint(name, text) if kind is Kind.KERNEL else False
        rows.collective.append(self._collective(collective, text, args))
        rows.blocks.append(kineto_calls.blocks(args.grid) if collective else -1)

    def _hint(self, name: int, text: str) -> KernelName | bool:
        """What a kernel's name says; False: it is no collective."""
        hint = self._hints.get(name)
        if hint is None:
            hint = self._hints[name] = classify(text) or looks_related(text)
        return hint

    def _collective(self, hint: KernelName | bool, text: str, args: Arguments) -> int:
        """Place of a kernel's collective; -1 when it is none, or is looked up at the end."""
        if hint is False:
            # Arguments also come to the checking kernels that a collective's call launches.
            return -1
        if args.collective is not None:
            return self._described(args)
        if hint is True:
            self.unknown[text] = self.unknown.get(text, 0) + 1
        else:
            # The two are equal where kineto knew no operator: then it refers to none.
            external = -1 if args.external == args.correlation else _small(args.external)
            self.unnamed.append((len(self.rows) - 1, external))
        return -1

    def _described(self, args: Arguments) -> int:
        key = (
            *(args.collective, args.in_count, args.out_count, args.dtype, args.group_size),
            *(args.in_split, args.out_split, args.group, args.group_id, args.group_ranks),
            *(args.rank_start, args.rank_stride, args.source, args.destination, args.rank),
        )
        known = len(self.describe)
        place = self.place_of(key, partial(kineto_calls.from_arguments, args))
        if place == known:
            self.described.append(args)
        return place

    def _launch(self, event: Event) -> None:
        args, ts = event.args, event.ts
        if args is not None and args.correlation is not None and ts is not None:
            duration = event.dur
            timed = ts, -1.0 if duration is None or not 0 <= duration < _LONGEST_US else duration
            self.host.call(event.name, _small(args.correlation), event.tid, timed)

    def _flow(self, event: Event) -> None:
        # {"ph": "s", "id": 182, "tid": 963, "ts": 4320677114060.1, "cat": "ac2g", "name": "ac2g"}
        if event.ph == "s" and isinstance(event.id, int) and event.ts is not None:
            self.host.call(None, _small(event.id), event.tid, (event.ts, -1.0))

    def _sync(self, event: Event) -> None:
        # {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 19, …,
        #  "args": {"wait_on_stream": -1, "wait_on_cuda_event_id": 6, "stream": 19, "device": 0,
        #           "correlation": 82785, …}}; a Context Sync has stream -1
        args = event.args
        if args is not None and args.correlation is not None:
            told = args.stream is not None and args.stream not in (-1, "-1")
            stream = self.streams[args.device, args.stream] if told else -1
            self.host.waits[_small(args.correlation)] = stream, _narrow(args.event)

    def _host(self, event: Event) -> None:
        name = event.name
        self.cpu |= event.cat in ("cpu_op", "Operator")
        if name == "record_param_comms":
            self._record(event)
        elif name is not None and name.startswith(("nccl:", "ProfilerStep")):
            timed = self._timed(event)
            if timed is not None and name.startswith("ProfilerStep"):
                self.steps.append(timed)
            elif timed is not None and parse_collective(name) is not Op.UNKNOWN:
                args = event.args or _NO_ARGUMENTS
                key = (name, bytes(args.dims), bytes(args.types))
                place = self.place_of(key, lambda _: kineto_calls.from_annotation(name, args))
                self._span(self.host.annotations, event, timed, place)

    def _record(self, event: Event) -> None:
        args, timed = event.args, self._timed(event)
        if args is not None and args.collective is not None and timed is not None:
            number = self._span(self.host.records, event, timed, self._described(args))
            self.host.records.refer(number, _small(args.external), _small(args.seq))

    def _span(self, spans: Spans, event: Event, timed: tuple[float, float], place: int) -> int:
        start, duration = timed
        return spans.add(self.host.threads[event.tid], start, start + duration, place)


def _narrow(value: int | None) -> int:
    """The value where it fits 31 bits, else -1."""
    return value if value is not None and 0 <= value < 1 << 31 else -1


def _small(value: int | None) -> int:
    """The value where it fits a column, else -1."""
    return value if value is not None and -_LIMIT <= value < _LIMIT else -1
