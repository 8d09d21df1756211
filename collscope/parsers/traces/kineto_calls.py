"""What record_param_comms and kernel arguments say of a collective, as `TraceCollective`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from collscope.model import Datatype, Op
from collscope.model.limits import LIMIT, MOST_RANKS
from collscope.model.trace import TraceCollective
from collscope.parsers._sides import counts_contradict, is_group
from collscope.parsers.traces.kineto_names import described, parse_collective, parse_dtype

if TYPE_CHECKING:
    from collscope.parsers.traces.kineto_events import Arguments

Groups = Mapping[str, tuple[int, ...]]
"""World ranks of process groups by their names."""


class Known(NamedTuple):
    """The groups of a trace, from its header."""

    groups: Groups
    world_size: int | None = None


class Described(NamedTuple):
    """A collective, and what of its fields contradicts another field."""

    collective: TraceCollective
    contradiction: str = ""  # "": nothing


_LARGEST_LIST = 1 << 20  # ranks or split sizes
_COPIED = ("datatype", "in_count", "out_count", "group", "group_size", "group_ranks")
_LIST = re.compile(r"\s*\[?([\d,\s]*)\]?\s*")


def whole_list(value: object) -> tuple[int, ...] | None:
    """Numbers of a list or of a string that holds one; None when cut or no such list.

    >>> whole_list("[0, 1]"), whole_list("[0, 1, ..., 31]"), whole_list([4, 5])
    ((0, 1), None, (4, 5))
    """
    if isinstance(value, str) and len(value) <= 8 * _LARGEST_LIST and (m := _LIST.fullmatch(value)):
        words = m[1].replace(",", " ").split()
        return tuple(map(int, words)) if all(len(word) < 20 for word in words) else None
    if isinstance(value, list | tuple) and all(type(item) is int for item in value):
        return tuple(value) if all(0 <= item < LIMIT for item in value) else None
    return None


def from_arguments(args: Arguments, known: Known) -> Described:
    """The collective that arguments describe, without what they contradict themselves in.

    known   used where the printed ranks were cut, or contradict the group's size
    """
    op = _operation(args)
    datatype, factor = (None, 1) if args.dtype is None else parse_dtype(args.dtype)
    group = _group_name(args)
    size, ranks, wrong = _group(args, known, group)
    counts = _count(args.in_count, factor), _count(args.out_count, factor)
    if counts_contradict(op, counts, size, args.collective or ""):
        wrong += f" In msg nelems {args.in_count}, Out msg nelems {args.out_count}"
        counts = None, None
    peer = args.destination if op is Op.SEND else args.source if op is Op.RECV else None
    found = TraceCollective(
        op=op,
        datatype=datatype,
        in_count=counts[0],
        out_count=counts[1],
        group=group,
        group_size=size,
        group_ranks=ranks,
        peer=_limited(peer),
        in_split=tuple(n * factor for n in whole_list(args.in_split) or ()),
        out_split=tuple(n * factor for n in whole_list(args.out_split) or ()),
        description=described(args.description),
    )
    return Described(found, wrong.strip() and f"{args.collective}: {wrong.strip()}")


def from_both(kernel: Arguments, call: Arguments, known: Known) -> Described:
    """The collective of a kernel, without the fields on which the launching call disagrees.

    PyTorch writes a kernel's arguments from those of the call, so that they are equal.
    """
    found, wrong = from_arguments(kernel, known)
    other, _ = from_arguments(call, known)
    both = ((name, getattr(found, name), getattr(other, name)) for name in _COPIED)
    # What is cut on one side is no contradiction.
    differ = [name for name, own, its in both if own != its and None not in (own, its)]
    if kernel.collective != call.collective:
        differ = list(_COPIED)
    if not differ:
        return Described(found, wrong)
    wrong = f"{kernel.collective}: its kernel and its call ({call.collective}) differ in "
    return Described(replace(found, **dict.fromkeys(differ)), wrong + ", ".join(differ))


@lru_cache(maxsize=1024)
def blocks(grid: bytes) -> int:
    """Thread blocks of a kernel's grid, or threads of a block; -1 where it is no such list.

    >>> blocks(b"[24, 1, 1]")
    24
    """
    found = prod(whole_list(_json(grid)) or (0,))
    return found if 0 < found < 1 << 31 else -1


def _operation(args: Arguments) -> Op:
    """Operation of the name; for an all-to-all the sizes of its parts show whether it is even.

    source  alltoall_base and alltoall of ProcessGroupNCCL.cpp: PyTorch 2.11 calls even ones, which
            have no sizes, all_to_allv as well; those of lists are all_to_all, even or not
    """
    op = parse_collective(args.collective or "")
    parts = [whole_list(args.in_split), whole_list(args.out_split)]
    if op is Op.ALL_TO_ALLV and parts == [(), ()] and args.in_count == args.out_count:
        return Op.ALL_TO_ALL
    if op is Op.ALL_TO_ALL and any(len(set(sizes or ())) > 1 for sizes in parts):
        return Op.ALL_TO_ALLV
    return op


def from_annotation(
    name: str, args: Arguments, operator: Arguments | None, known: Known
) -> TraceCollective:
    """The collective of an ``nccl:`` annotation; its sizes where shapes were recorded.

    operator  arguments of the ``c10d::`` operator around it, if any: its output gives the group's
              size, where each rank puts in or gets out one part of equal parts
    """
    # "nccl:all_reduce", "Input Dims": [[19618307]], "Input type": ["float"]
    op = parse_collective(name)
    dims, types = _json(args.dims), _json(args.types)
    if not (isinstance(dims, list) and len(dims) == 1 and isinstance(dims[0], list) and dims[0]):
        return TraceCollective(op)
    shape = whole_list(dims[0])
    typed = isinstance(types, list) and len(types) == 1 and isinstance(types[0], str)
    datatype, factor = parse_dtype(types[0]) if typed and isinstance(types, list) else (None, 1)
    if shape is None or datatype in (None, Datatype.UNKNOWN):
        return TraceCollective(op)
    n_in = prod(shape)
    n_out = None if operator is None else _output(op, operator, shape)
    size = None if n_out is None else _ratio(op, n_in, n_out)
    if size is None or size > (known.world_size or MOST_RANKS):
        return TraceCollective(op, datatype, in_count=_count(n_in, factor))
    counts = _count(n_in, factor), _count(n_out, factor)
    return TraceCollective(op, datatype, in_count=counts[0], out_count=counts[1], group_size=size)


def from_symmetric(op: Op, args: Arguments) -> TraceCollective:
    """The collective of an operator of symmetric memory, which reduces its first argument."""
    # "symm_mem::one_shot_all_reduce", "Input Dims": [[32, 8192], [], []],
    # "Input type": ["c10::BFloat16", "", ""]
    dims, types = _json(args.dims), _json(args.types)
    if not (isinstance(dims, list) and dims and isinstance(types, list) and types):
        return TraceCollective(op)
    shape = whole_list(dims[0])
    datatype, factor = parse_dtype(types[0]) if isinstance(types[0], str) else (None, 1)
    if not shape or datatype in (None, Datatype.UNKNOWN):
        return TraceCollective(op)
    count = _count(prod(shape), factor)
    return TraceCollective(op, datatype, in_count=count, out_count=count)


def _output(op: Op, operator: Arguments, shape: tuple[int, ...]) -> int | None:
    """Elements of the output of an operator that has the input `shape`; None where unknown."""
    # "c10d::_allgather_base_", "Input Dims": [[1073741824], [16777216], []]: output, input, group
    dims = _json(operator.dims)
    if op not in (Op.ALL_GATHER, Op.REDUCE_SCATTER) or not isinstance(dims, list) or len(dims) < 2:
        return None
    output, given = whole_list(dims[0]), whole_list(dims[1])
    return prod(output) if output and given == shape else None


def _ratio(op: Op, n_in: int, n_out: int) -> int | None:
    """Ranks of a group by what each puts in and gets out; None where it is no whole number."""
    total, part = (n_out, n_in) if op is Op.ALL_GATHER else (n_in, n_out)
    return total // part if part and total and total % part == 0 else None


def own_rank(args: Arguments) -> int | None:
    """World rank of the process, from a collective without a root; None when it does not show it.

    "Rank" is the rank in the group; of rooted operations it may be the root, of P2P the peer.
    """
    op = parse_collective(args.collective or "")
    ranks = whole_list(args.group_ranks)
    if op not in (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER) or not ranks:
        return None
    place = args.rank
    return ranks[place] if place is not None and 0 <= place < len(ranks) else None


def _group_name(args: Arguments) -> str | None:
    name = args.group_id if args.group in (None, "") else args.group
    return None if name is None else str(name)


def _count(value: int | None, factor: int) -> int | None:
    return None if value is None else _limited(value * factor)


def _limited(value: int | None) -> int | None:
    """What is not below 0; 2^63 − 1 for what is larger, which `collscope.parsers.bounds` counts."""
    return None if value is None or value < 0 else min(value, LIMIT - 1)


def _group(
    args: Arguments, known: Known, name: str | None
) -> tuple[int | None, tuple[int, ...] | None, str]:
    """Size and world ranks of the group; what of them contradicts another field, "" where nothing.

    Where the printed ranks and the size differ, the header decides if it has one of the two.
    """
    size = _limited(args.group_size) or None
    printed, listed = whole_list(args.group_ranks), known.groups.get(name or "")
    # The profiler cuts long lists, and prints none for calls that belong to no group.
    if printed and not is_group(printed, size, known.world_size):
        text = f"Group size {args.group_size}, Process Group Ranks {args.group_ranks}"
        agreed = listed is not None and is_group(listed, None, known.world_size)
        if listed and agreed and (listed == printed or len(listed) == size):
            return len(listed), listed, text
        return None, None, text
    if size is not None and size > (known.world_size or size):
        return None, None, f"Group size {size}, world_size {known.world_size}"
    if printed:
        return size, printed, ""
    if listed and (size is None or len(listed) == size):
        return size, listed, ""
    return size, _evenly_spaced(args, size), ""


def _evenly_spaced(args: Arguments, size: int | None) -> tuple[int, ...] | None:
    start, stride = args.rank_start, args.rank_stride
    if size is None or size > _LARGEST_LIST or start is None or stride is None:
        return None
    # -1: not evenly spaced.
    regular = 0 <= start < MOST_RANKS and 0 < stride < _LARGEST_LIST
    return tuple(range(start, start + size * stride, stride)) if regular else None


def _json(text: bytes | msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
