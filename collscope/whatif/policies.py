"""How layers are put into buckets that are reduced as one (pure)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

FIRST_BUCKET_BYTES = 1 << 20  # dist._DEFAULT_FIRST_BUCKET_BYTES of PyTorch
DEFAULT_CAP_BYTES = 25 << 20  # PyTorch's bucket_cap_mb=25, in MiB


class Policy(str, Enum):
    """Rule by which a bucket ends.

    POST_GT      after the layer with which it exceeds the threshold (the all-reduce wrapper)
    POST_GE      after the layer with which it reaches the threshold
    PRE          before the layer with which it would exceed the threshold, which is a cap then
    TORCH_DDP    PyTorch's DistributedDataParallel: as POST_GE, the first bucket at a size of its
                 own (compute_bucket_assignment_by_size in c10d/reducer.cpp)
    FIXED_COUNT  a given number of buckets, as equal in bytes as the layers allow
    """

    POST_GT = "post_gt"
    POST_GE = "post_ge"
    PRE = "pre"
    TORCH_DDP = "torch_ddp"
    FIXED_COUNT = "fixed_count"


class Bucket(msgspec.Struct, frozen=True):
    """Layers `begin` up to but not including `end`, reduced as one."""

    begin: int
    end: int
    size_bytes: int


def make_buckets(
    sizes: Sequence[int], policy: Policy, setting: int, first_bytes: int = FIRST_BUCKET_BYTES
) -> tuple[Bucket, ...]:
    """Buckets of layers in their order; every layer is in exactly one.

    sizes        bytes of each layer, above 0
    setting      threshold in bytes; with FIXED_COUNT the number of buckets, never more than
                 layers; 1 or more
    first_bytes  threshold of TORCH_DDP's first bucket
    """
    if policy is Policy.FIXED_COUNT:
        return _cut(sizes, _equal_ends(sizes, setting))
    if policy is Policy.PRE:
        return _cut(sizes, _ends_before(sizes, setting))
    if policy is Policy.TORCH_DDP:
        return _cut(
            sizes, _ends_after(sizes, lambda size, made: size >= (setting if made else first_bytes))
        )
    if policy is Policy.POST_GE:
        return _cut(sizes, _ends_after(sizes, lambda size, _: size >= setting))
    return _cut(sizes, _ends_after(sizes, lambda size, _: size > setting))


def _ends_after(sizes: Sequence[int], full: Callable[[int, int], bool]) -> list[int]:
    """Ends of buckets that are looked at after each layer; `full` gets size and buckets made."""
    ends: list[int] = []
    gathered = 0
    for index, size in enumerate(sizes):
        gathered += size
        if full(gathered, len(ends)):
            ends.append(index + 1)
            gathered = 0
    return ends


def _ends_before(sizes: Sequence[int], cap: int) -> list[int]:
    ends: list[int] = []
    gathered = 0
    for index, size in enumerate(sizes):
        if gathered and gathered + size > cap:
            ends.append(index)
            gathered = 0
        gathered += size
    return ends


def _equal_ends(sizes: Sequence[int], wanted: int) -> list[int]:
    """Ends nearest to equal shares of the bytes, each bucket with a layer at least."""
    wanted = min(wanted, len(sizes))
    total = sum(sizes)
    sums = [0]
    for size in sizes:
        sums.append(sums[-1] + size)
    ends: list[int] = []
    for number in range(1, wanted):
        share = total * number / wanted
        first, last = (ends[-1] if ends else 0) + 1, len(sizes) - (wanted - number)
        ends.append(min(range(first, last + 1), key=lambda end: abs(sums[end] - share)))
    return ends


def _cut(sizes: Sequence[int], ends: Sequence[int]) -> tuple[Bucket, ...]:
    """Buckets from where they end; what is left over is the last."""
    bounds = [0, *ends]
    if bounds[-1] < len(sizes):
        bounds.append(len(sizes))
    return tuple(
        Bucket(begin, end, sum(sizes[begin:end])) for begin, end in itertools.pairwise(bounds)
    )
