"""A plan without a log: operations over a range of sizes, as nccl-tests runs them (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from collscope.errors import UsageError
from collscope.model import Datatype, Op, Redop, size_bytes
from collscope.replay.build import Planned
from collscope.replay.names import datatype_named, op_named, redop_named
from collscope.replay.patterns import pattern
from collscope.replay.plan import (
    UNIQUE,
    Plan,
    PlanClass,
    PlanComm,
    PlanTransfers,
    itemsize,
)
from collscope.units import parse_size

_RANGE = re.compile(r"([^.*+]+(?:\.\d+[^.*+]*)?)\.\.([^*+]+)(?:([*+])(.+))?")
_MOST_SIZES = 10_000  # more is a mistake
_Key = tuple[Op, Datatype, bool, int]  # operation, datatype, in-place, count
IN_PLACE = {"no": (False,), "yes": (True,), "both": (False, True)}


def sweep_plan(
    text: str, *, datatypes: str = "float32", nranks: int, redop: str = "sum", in_place: str = "no"
) -> Planned:
    """A plan of every operation, datatype and size on one communicator of all ranks.

    text       `OPS:SIZES`, both separated by commas: `allreduce,allgather:1K..4G*2,6G`; a size is
               `N`, `FIRST..LAST` (doubling), `FIRST..LAST*FACTOR` or `FIRST..LAST+STEP`
    datatypes  separated by commas
    in_place   no, yes or both; operations that the libraries do not do in place run out of place
    raises     UsageError for what cannot be understood

    Sizes are nccl-tests' S, the total bytes. Counts are S over the element size, for AllGather,
    ReduceScatter, AllToAll, Gather and Scatter also over the ranks, rounded down, at least 1: the
    plan holds the resulting size. SendRecv is a shift by one. Equal classes are planned once.
    """
    ops, colon, sizes = text.partition(":")
    if not colon:
        raise UsageError(f"--sweep {text}: no sizes. Write it as in allreduce:1K..1G*2.")
    if nranks < 1 or in_place not in IN_PLACE:
        raise UsageError("--sweep: --ranks must be 1 or more, --in-place no, yes or both.")
    wanted = [size for part in sizes.split(",") for size in sizes_of(part.strip())]
    reduction = redop_named(redop)
    keys = dict.fromkeys(
        (op, datatype, place, _count(op, size, datatype, nranks))
        for op in [_swept(name) for name in ops.split(",")]
        for datatype in [datatype_named(name) for name in datatypes.split(",")]
        for place in _places(op, in_place)
        for size in wanted
    )
    classes = tuple(_class(i, key, reduction, nranks) for i, key in enumerate(keys))
    return Planned(Plan(UNIQUE, nranks, (PlanComm(0, tuple(range(nranks))),), classes))


def _swept(name: str) -> Op:
    op = op_named(name)
    if op is Op.ALL_TO_ALLV:
        raise UsageError("--sweep: alltoallv has no single size. Sweep alltoall instead.")
    return op


def _places(op: Op, in_place: str) -> tuple[bool, ...]:
    return IN_PLACE[in_place] if op.has_in_place else (False,)


def sizes_of(text: str, option: str = "--sweep") -> Iterator[int]:
    """Sizes in bytes, rising, of `64K`, `1K..4G*2` or `1M..64M+1M`; `*2` may be left out.

    option  what errors call the text
    raises  UsageError when the text is none of these, or more than 10 000 sizes
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        yield _positive(text, option)
        return
    size, last = _positive(match[1], option), _positive(match[2], option)
    factor, step = 2.0, 0
    if match[3] == "*":
        factor = _factor(match[4], option)
    elif match[3] == "+":
        factor, step = 1.0, _positive(match[4], option)
    made = 0
    while size <= last:
        yield size
        made += 1
        if made > _MOST_SIZES:
            raise UsageError(f"{option} {text}: more than {_MOST_SIZES} sizes. Take larger steps.")
        size = max(int(size * factor), size + 1) if not step else size + step
    if not made:
        raise UsageError(f"{option} {text}: the first size is above the last. Swap them.")


def _positive(text: str, option: str) -> int:
    size = parse_size(text)
    if size < 1:
        raise UsageError(f"{option}: size '{text}' has nothing to send. Use 1 or more.")
    return size


def _factor(text: str, option: str) -> float:
    value = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else 0.0
    if value <= 1:
        raise UsageError(f"{option}: factor '{text}' is not above 1. Write it as in 1K..1G*2.")
    return value


def _count(op: Op, size: int, datatype: Datatype, nranks: int) -> int:
    """Elements as the API takes them, of a call of at most `size` bytes; at least 1."""
    of_one = size_bytes(op, count=1, datatype=datatype, nranks=nranks)
    assert of_one is not None  # every operation of a sweep has a size
    return max(1, size // of_one)


def _class(key: int, what: _Key, redop: Redop, nranks: int) -> PlanClass:
    op, datatype, place, count = what
    shift = op is Op.SEND_RECV
    transfers = (PlanTransfers(0, pattern("shift", nranks, count)),) if shift else ()
    return PlanClass(
        key,
        op,
        datatype,
        (0,),
        redop if op.reduces else None,
        count,
        0 if op.rooted else None,
        place,
        shape="shift" if shift else None,
        size_bytes=count * itemsize(datatype) if shift else None,
        transfers=transfers,
    )
