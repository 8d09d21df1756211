"""What NCCL's NVTX ranges show about the kernels launched inside them.

NCCL 2.16 and later opens a range per call in the domain "NCCL", with a payload: the bytes of the
count argument (never a datatype), the reduction, root or peer; from 2.25 on also the communicator,
whose ranks are in the payload of the call that made it (src/include/nvtx_payload_schemas.h,
src/collectives.cc, src/init.cc of NVIDIA/nccl; src/collectives/*.cc before 2.21). Kernels of a call
inside of ncclGroupStart and ncclGroupEnd are launched in the range of the latter.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from collscope.kernel_names import classify
from collscope.model import Datatype, Diagnostic, Op, Severity, parse_op, parse_redop, redop_of
from collscope.model.trace import TraceCollective

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from collscope.model import KernelSpan
    from collscope.parsers.nvtx_payload import Value

COMMUNICATOR, BYTES = "NCCL communicator ID", ("Message size [bytes]", "Bytes")
RANK, RANKS, ROOT, PEER = "Rank", "No. of ranks", "Root", "Peer rank"
REDUCTION = "Reduction operation"
_START, _END = "ncclGroupStart", ("ncclGroupEnd", "ncclGroupSimulateEnd")
_LARGEST = 1 << 31

hint_of = lru_cache(maxsize=4096)(classify)  # a file has few names and many kernels


class Range(msgspec.Struct, frozen=True):
    """A range of the domain NCCL on a host thread; `values` is None where they cannot be read."""

    name: str  # of the function
    process: int
    thread: int
    start_ns: int
    end_ns: int
    values: dict[str, Value] | None = msgspec.field(default_factory=dict)


class Communicator(msgspec.Struct, frozen=True):
    """A process' part in a communicator."""

    name: str  # its hash, as NCCL's log prints it
    rank: int
    nranks: int


class Window(msgspec.Struct, frozen=True):
    """A range in which kernels are launched, and the calls that they carry out."""

    start_ns: int
    end_ns: int
    calls: tuple[Range, ...]


def communicators(ranges: Iterable[Range]) -> dict[tuple[int, str], Communicator | None]:
    """Communicators by process and name; None where the process has several ranks in one."""
    found: dict[tuple[int, str], Communicator | None] = {}
    for own in ranges:
        values = own.values or {}
        name = _name(values)
        rank, nranks = _parse_int(values.get(RANK)), _parse_int(values.get(RANKS))
        if name is None or rank is None or nranks is None or not rank < nranks:
            continue
        member = Communicator(name, rank, nranks)
        known = found.setdefault((own.process, name), member)
        if known != member:
            found[own.process, name] = None
    return found


def windows(ranges: Iterable[Range]) -> dict[int, list[Window]]:
    """Per thread the ranges in which it launches, in the order of their start."""
    found: dict[int, list[Window]] = defaultdict(list)
    threads: dict[int, list[Range]] = defaultdict(list)
    for own in sorted(ranges, key=lambda r: r.start_ns):
        threads[own.thread].append(own)
    for thread, own_ranges in threads.items():
        depth, grouped = 0, list[Range]()
        for own in own_ranges:
            if own.name == _START:
                depth += 1
            elif own.name in _END:
                depth = max(0, depth - 1)
                if not depth:
                    calls = tuple(grouped) if own.name == _END[0] else ()
                    found[thread].append(Window(own.start_ns, own.end_ns, calls))
                    grouped = []
            elif _operation(own) is not Op.UNKNOWN:
                if depth:
                    grouped.append(own)
                else:
                    found[thread].append(Window(own.start_ns, own.end_ns, (own,)))
    return found


def described(
    window: Window,
    kernels: Sequence[KernelSpan],
    members: dict[tuple[int, str], Communicator | None],
) -> list[TraceCollective | None]:
    """What a window's calls show about the kernels launched in it; None where that is not certain.

    NCCL may carry out several calls of a group with one kernel, and in another order.
    """
    entries = [_collective(call, members) for call in window.calls]
    if not entries:
        return [None] * len(kernels)
    if len(set(entries)) == 1 and len({k.device for k in kernels}) == len(kernels) == len(entries):
        return [_typed(entries[0], kernel) for kernel in kernels]
    if len(entries) > 1 and all(entry.op.point_to_point for entry in entries):
        # One kernel does them all: of its communicator, if there is only one.
        groups = {(entry.group, entry.group_size) for entry in entries}
        (group, size), *others = groups
        batch = TraceCollective(Op.SEND_RECV, group=group, group_size=size)
        return [None if others else batch] * len(kernels)
    found: list[TraceCollective | None] = []
    for kernel in kernels:
        op = _hinted(kernel)
        of_op = [entry for entry in entries if entry.op is op]
        alike = [other for other in kernels if _hinted(other) is op]
        found.append(_typed(of_op[0], kernel) if len(of_op) == len(alike) == 1 else None)
    return found


def diagnostics(calls: Sequence[Range], alone: int, kernels: int) -> list[Diagnostic]:
    """What could not be determined.

    calls  of collectives
    alone  collective kernels known by name only, of `kernels`
    """
    found = []

    def note(code: str, message: str, count: int) -> None:
        if count:
            found.append(Diagnostic(Severity.NOTICE, code, message, count=count))

    note(
        "no_nccl_payload",
        "NVTX ranges of NCCL without a payload: their sizes and communicators are not known. NCCL"
        " 2.16 and later writes payloads; export them with --include-blobs=true.",
        sum(call.values == {} for call in calls),
    )
    note(
        "unknown_nccl_payload",
        "NVTX ranges of NCCL whose payload is damaged, or of a schema that the file does not hold:"
        " their sizes and communicators are not known.",
        sum(call.values is None for call in calls),
    )
    if calls:
        note(
            "no_collective_arguments",
            "Collective kernels that no single NCCL call explains (graphs, several calls in one"
            " group, launched before the capture): the operation is a hint, sizes and groups are"
            " not known.",
            alone,
        )
    else:
        note(
            "no_collective_arguments",
            "Collective kernels are known by name only: sizes and groups are not known. Profile "
            "with nsys --trace=cuda,nvtx; NCCL 2.16 and later records them.",
            kernels,
        )
    return found


def _operation(own: Range) -> Op:
    return parse_op(own.name)


def _collective(
    call: Range, members: dict[tuple[int, str], Communicator | None]
) -> TraceCollective:
    values, op = call.values or {}, _operation(call)
    name = _name(values)
    member = None if name is None else members.get((call.process, name))
    size = next(
        (n for key in BYTES if (n := _parse_int(values.get(key), 1 << 63)) is not None), None
    )
    redop = values.get(REDUCTION)
    reduction = parse_redop(redop) if isinstance(redop, str) else None
    if isinstance(redop, int):
        reduction = redop_of(redop)
    return TraceCollective(
        op,
        group=name,
        group_size=None if member is None else member.nranks,
        redop=None if reduction is None else reduction.value,
        root=_parse_int(values.get(ROOT)),
        peer=_parse_int(values.get(PEER)),
        count_bytes=size,
    )


def _typed(entry: TraceCollective, kernel: KernelSpan) -> TraceCollective:
    """With the datatype that the kernel's name has, where that is of this operation."""
    hint = hint_of(kernel.name)
    if hint is None or not entry.op.reduces or hint.op_hint != entry.op.value:
        return entry
    return replace(entry, datatype=Datatype.of_label(hint.datatype_hint))


def _hinted(kernel: KernelSpan) -> Op | None:
    hint = hint_of(kernel.name)
    return None if hint is None or hint.op_hint is None else Op(hint.op_hint)


def _name(values: dict[str, Value]) -> str | None:
    """The communicator's hash; 0 stands for a call with a wrong communicator."""
    value = values.get(COMMUNICATOR)
    return f"0x{value:x}" if isinstance(value, int) and value > 0 else None


def _parse_int(value: object, limit: int = _LARGEST) -> int | None:
    return value if isinstance(value, int) and 0 <= value < limit else None
