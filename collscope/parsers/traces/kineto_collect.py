"""Takes the events of a PyTorch profiler trace and keeps what the records need, as columns."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from collscope.kernel_names import (
    MARKERS,
    OTHER_LIBRARIES,
    KernelName,
    classify,
    looks_related,
)
from collscope.model import Op
from collscope.model.trace import Kind
from collscope.parsers._columns import Index
from collscope.parsers.traces import kineto_calls
from collscope.parsers.traces._table import Rows
from collscope.parsers.traces.engine_steps import EngineStep, is_decode
from collscope.parsers.traces.kineto_host import Host, Spans
from collscope.parsers.traces.kineto_names import parse_collective, symmetric_operation
from collscope.parsers.traces.kineto_slices import NO_ARGUMENTS, small, usable_times

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from collscope.parsers.traces.kineto_events import Arguments, Event
    from collscope.parsers.traces.kineto_slices import Activity, Slice

    Describe = Callable[[kineto_calls.Known], kineto_calls.Described]


_DIGITS = 10  # of the number of a step


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
        self.engine_steps: list[EngineStep] = []  # that an inference engine marked
        self.steps_before: int | None = None  # the lowest number of a marked step
        self.annotated: list[tuple[str, Arguments]] = []  # by the place that annotations hold
        self.shaped: list[Arguments] = []  # by the place that operators hold
        self.describe: list[Describe] = []  # by the place that rows.collective holds
        self.described: dict[int, Arguments] = {}  # by place, of each kind that names a collective
        self.named: list[tuple[int, int]] = []  # row and External id of kernels that name one
        self.unnamed: list[tuple[int, int]] = []  # row and External id of kernels to look up
        self.threads: dict[int, int] = {}  # of a block, by row of another library's collective
        self.launched_by: set[int] = set()  # External ids of the collectives' kernels
        self.unknown: dict[str, int] = {}  # names with "ccl" that no rule knows
        self.origin_us: int = 0  # to be added to all times
        self.cpu = False  # CPU activity was recorded
        self.bad = 0  # activities without usable times
        self._hints: dict[int, KernelName | bool] = {}  # by name; True: not known, looks like one
        self._calls: Index[Hashable] = Index()

    def add(self, part: Slice) -> None:
        """Take the next events."""
        rows, gpu = self.rows, part.gpu
        first = len(rows)
        self.bad += part.bad
        self.cpu |= part.cpu
        self.origin_us = part.origin_us
        names = [self.names[name] for name in part.names]
        hints = [self._hint(place, text) for place, text in zip(names, part.names, strict=True)]
        # A kernel of a collective is one whatever category a converter gave it.
        named = np.array([isinstance(hint, KernelName) for hint in hints], dtype=bool)
        gpu["kind"][named[gpu["name"]]] = Kind.KERNEL
        related = np.array([hint is not False for hint in hints], dtype=bool)
        chosen = np.flatnonzero((gpu["kind"] == Kind.KERNEL) & related[gpu["name"]]).tolist()
        # Packets that execute nothing are no rows.
        executes = np.array([text not in MARKERS for text in part.names], dtype=bool)
        kept = np.flatnonzero(executes[gpu["name"]])
        place = np.cumsum(executes[gpu["name"]]) - 1 + first
        rows.extend(
            kind=gpu["kind"][kept],
            name=np.array(names, dtype=np.int32)[gpu["name"][kept]],
            collective=np.full(len(kept), -1, dtype=np.int32),
            blocks=np.full(len(kept), -1, dtype=np.int32),
            seq=gpu["seq"][kept],
            correlation=gpu["correlation"][kept],
            start=gpu["start_us"][kept],
            duration=gpu["duration_us"][kept],
        )
        events = part.decode(chosen)
        kernels = [
            (int(place[row]), hints[name], event)
            for row, name, event in zip(chosen, gpu["name"][chosen].tolist(), events, strict=False)
        ]
        # Tables are numbered in the order in which the events name their values.
        seen: list[tuple[Callable[[Any], object], Sequence[int], Sequence[object]]] = [
            (self.streams.__getitem__, part.streams_first, part.streams),
            (self.host.threads.__getitem__, part.threads_first, part.threads),
            (self._kernel, gpu["event"][chosen].tolist(), kernels),
            (self._other, part.others, events[len(chosen) :]),
        ]
        in_order = [(n, take, v) for take, at, vs in seen for n, v in zip(at, vs, strict=True)]
        for _, take, value in sorted(in_order, key=itemgetter(0)):
            take(value)
        streams = np.array([self.streams[pair] for pair in part.streams], dtype=np.int32)
        devices = np.array([self.devices[pair[0]] for pair in part.streams], dtype=np.int32)
        of_stream = gpu["stream"][kept]
        rows.extend(stream=streams[of_stream], device=devices[of_stream])
        self.host.add(part)

    def place_of(self, key: Hashable, describe: Describe) -> int:
        """Number of a collective that `rows.collective` may hold; equal keys have one."""
        place = self._calls[key]
        if place == len(self.describe):
            self.describe.append(describe)
        return place

    def hint(self, name: int) -> KernelName | None:
        """Hints in the name of a row."""
        known = self._hints.get(name)
        return known if isinstance(known, KernelName) else None

    def _hint(self, name: int, text: str) -> KernelName | bool:
        """Hints in a kernel's name; False: it is no collective."""
        hint = self._hints.get(name)
        if hint is None:
            hint = self._hints[name] = classify(text) or looks_related(text)
        return hint

    def _kernel(self, found: tuple[int, KernelName | bool, Event]) -> None:
        """Set what a kernel executed, which has a name like a collective's.

        Arguments also come to the checking kernels that a collective's call launches.
        """
        row, hint, event = found
        args = event.args or NO_ARGUMENTS
        self.rows.blocks[row] = kineto_calls.blocks(bytes(args.grid))
        if isinstance(hint, KernelName) and hint.family in OTHER_LIBRARIES:
            self.threads[row] = kineto_calls.blocks(bytes(args.block))
        # The two are equal where kineto knew no operator: then it refers to none.
        external = -1 if args.external == args.correlation else small(args.external)
        self.launched_by.add(external)
        if args.collective is not None:
            self.rows.collective[row] = self._described(args)
            # The two are equal where kineto knew no operator: then it refers to none.
            if args.external != args.correlation:
                self.named.append((row, small(args.external)))
        elif hint is True:
            text = event.name or ""
            self.unknown[text] = self.unknown.get(text, 0) + 1
        else:
            self.unnamed.append((row, external))

    def _other(self, event: Event) -> None:
        if event.cat == "cuda_sync":
            self._sync(event)
        else:
            self._host(event)

    def _described(self, args: Arguments) -> int:
        key = (
            *(args.collective, args.in_count, args.out_count, args.dtype, args.group_size),
            *(args.in_split, args.out_split, args.group, args.group_id, args.group_ranks),
            *(args.rank_start, args.rank_stride, args.source, args.destination, args.rank),
        )
        place = self.place_of(key, partial(kineto_calls.from_arguments, args))
        if place not in self.described:
            self.described[place] = args
        return place

    def _sync(self, event: Event) -> None:
        # {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 19, …,
        #  "args": {"wait_on_stream": -1, "wait_on_cuda_event_id": 6, "stream": 19, "device": 0,
        #           "correlation": 82785, …}}; a Context Sync has stream -1
        args = event.args
        if args is not None and args.correlation is not None:
            known = args.stream is not None and args.stream not in (-1, "-1")
            stream = self.streams[args.device, args.stream] if known else -1
            self.host.waits[small(args.correlation)] = stream, _narrow(args.event)

    def _host(self, event: Event) -> None:
        name = event.name
        if name == "record_param_comms":
            self._record(event)
        elif name is not None and name.startswith(("nccl:", "c10d::", "ProfilerStep")):
            timed = usable_times(event, self.origin_us)
            if timed is not None and name.startswith("ProfilerStep"):
                self.steps.append(timed)
                self._number(name)
            elif timed is not None and name.startswith("c10d::"):
                self.shaped.append(event.args or NO_ARGUMENTS)
                self._span(self.host.operators, event, timed, len(self.shaped) - 1)
            elif timed is not None and parse_collective(name) is not Op.UNKNOWN:
                self.annotated.append((name, event.args or NO_ARGUMENTS))
                self._span(self.host.annotations, event, timed, len(self.annotated) - 1)
        elif name is not None and (op := symmetric_operation(name)) is not None:
            timed, args = usable_times(event, self.origin_us), event.args or NO_ARGUMENTS
            if timed is not None:
                key = (name, bytes(args.dims), bytes(args.types))
                place = self.place_of(key, partial(_symmetric, op, args))
                self._span(self.host.symmetric, event, timed, place)
        elif name is not None and (decode := is_decode(name)) is not None:
            timed = usable_times(event, self.origin_us)
            if timed is not None:
                self.engine_steps.append(EngineStep(*timed, decode))

    def _number(self, name: str) -> None:
        """Take the number of a marked step: so many came before it."""
        # ProfilerStep#10, of torch.profiler since 1.8.1
        number = name.partition("#")[2]
        if number.isascii() and number.isdigit() and len(number) < _DIGITS:
            known = self.steps_before
            self.steps_before = int(number) if known is None else min(int(number), known)

    def annotation(self, number: int) -> int:
        """Place of the collective that an annotation of the host describes."""
        host = self.host
        name, args = self.annotated[host.annotations.place[number]]
        around = host.operators.around(
            host.annotations.thread[number], host.annotations.start[number]
        )
        operator = None if around < 0 else self.shaped[host.operators.place[around]]
        dims = b"" if operator is None else bytes(operator.dims)
        key = (name, bytes(args.dims), bytes(args.types), dims)
        return self.place_of(key, partial(_annotated, name, args, operator))

    def _record(self, event: Event) -> None:
        args, timed = event.args, usable_times(event, self.origin_us)
        if args is not None and args.collective is not None and timed is not None:
            number = self._span(self.host.records, event, timed, self._described(args))
            self.host.records.refer(number, small(args.external), small(args.seq))

    def _span(self, spans: Spans, event: Event, timed: tuple[float, float], place: int) -> int:
        start, duration = timed
        return spans.add(self.host.threads[event.tid], start, start + duration, place)


def _annotated(
    name: str, args: Arguments, operator: Arguments | None, known: kineto_calls.Known
) -> kineto_calls.Described:
    return kineto_calls.Described(kineto_calls.from_annotation(name, args, operator, known))


def _symmetric(op: Op, args: Arguments, _known: kineto_calls.Known) -> kineto_calls.Described:
    return kineto_calls.Described(kineto_calls.from_symmetric(op, args))


def _narrow(value: int | None) -> int:
    """The value where it fits 31 bits, else -1."""
    return value if value is not None and 0 <= value < 1 << 31 else -1
