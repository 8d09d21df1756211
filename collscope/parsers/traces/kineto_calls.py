"""What record_param_comms and kernel arguments say of a collective, as `TraceCollective`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import msgspec

from collscope.model import Datatype, Op
from collscope.model.limits import LIMIT, MOST_RANKS
from collscope.model.trace import TraceCollective
from collscope.parsers.traces.kineto_names import parse_collective, parse_dtype

if TYPE_CHECKING:
    from collscope.parsers.traces.kineto_events import Arguments

Groups = Mapping[str, tuple[int, ...]]
"""World ranks of process groups by their names."""

_LARGEST_LIST = 1 << 20  # ranks or split sizes
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


def from_arguments(args: Arguments, groups: Groups) -> TraceCollective:
    """The collective that arguments describe.

    groups   ranks of the header's process groups by name; used where the printed ranks were cut
    """
    op = _operation(args)
    datatype, factor = (None, 1) if args.dtype is None else parse_dtype(args.dtype)
    group = _group_name(args)
    size = _limited(args.group_size) or None
    peer = args.destination if op is Op.SEND else args.source if op is Op.RECV else None
    return TraceCollective(
        op=op,
        datatype=datatype,
        in_count=_count(args.in_count, factor),
        out_count=_count(args.out_count, factor),
        group=group,
        group_size=size,
        group_ranks=_ranks(args, groups.get(group or ""), size),
        peer=_limited(peer),
        in_split=tuple(n * factor for n in whole_list(args.in_split) or ()),
        out_split=tuple(n * factor for n in whole_list(args.out_split) or ()),
        description=described(args.description),
    )


@lru_cache(maxsize=1024)
def blocks(grid: bytes) -> int:
    """Thread blocks of a kernel's grid as it is written; -1 where it is no such list.

    >>> blocks(b"[24, 1, 1]")
    24
    """
    found = prod(whole_list(_json(grid)) or (0,))
    return found if 0 < found < 1 << 31 else -1


def described(text: object) -> str | None:
    """Description of a group; None for that of groups which the program gave none.

    source  _new_process_group_helper of PyTorch's distributed_c10d.py
    """
    return text if isinstance(text, str) and text not in ("", "undefined") else None


def _operation(args: Arguments) -> Op:
    """Operation of the name; of an all-to-all the sizes of its parts tell whether it is even.

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


def from_annotation(name: str, args: Arguments) -> TraceCollective:
    """The collective of an ``nccl:`` annotation; its input's size where shapes were recorded."""
    # "nccl:all_reduce", "Input Dims": [[19618307]], "Input type": ["float"]
    op = parse_collective(name)
    dims, types = _json(args.dims), _json(args.types)
    if not (isinstance(dims, list) and len(dims) == 1 and isinstance(dims[0], list) and dims[0]):
        return TraceCollective(op)
    shape = whole_list(dims[0])
    known = isinstance(types, list) and len(types) == 1 and isinstance(types[0], str)
    datatype, factor = parse_dtype(types[0]) if known and isinstance(types, list) else (None, 1)
    if shape is None or datatype in (None, Datatype.UNKNOWN):
        return TraceCollective(op)
    return TraceCollective(op, datatype, in_count=_count(prod(shape), factor))


def own_rank(args: Arguments) -> int | None:
    """World rank of the process, from a collective without a root; None when it does not tell.

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


def _ranks(
    args: Arguments, known: tuple[int, ...] | None, size: int | None
) -> tuple[int, ...] | None:
    printed = whole_list(args.group_ranks)
    if printed and (size is None or len(printed) == size):
        return printed
    if known and (size is None or len(known) == size):
        return known
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
