"""How much kernels of PyTorch's symmetric memory reduce, by their launch shape (pure).

A thread reduces `alignment` bytes at a time. Up to one block, there are as many threads as the data
need, in whole warps; above, as many full blocks as they need, up to a limit. Two-shot kernels
divide the data among the ranks first. So the shape gives a range of sizes.

source  init_elementwise_launch_config and its callers, in pytorch/pytorch
        torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu, PyTorch 2.5 to 2.11
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_KERNEL = re.compile(
    r"(?P<shots>one|two)_shot_all_reduce_kernel(?:_inplace)?"
    r"<(?P<type>[\w:]+), (?P<alignment>\d+), (?P<ranks>-?\d+)(?:, false)*>"
)
_ITEMSIZES = {"c10::BFloat16": 2, "float": 4}  # the types that PyTorch has them for
_MOST_THREADS = {"one": 512, "two": 1024}
_MOST_BLOCKS = 24
_EARLIER_LIMIT = 8  # blocks of 1 024 threads, PyTorch 2.5
_WARPS = 64, 32  # threads of AMD's and NVIDIA's


class SizeRange(NamedTuple):
    """Bytes that a kernel reduces."""

    least: int
    most: int | None  # None: no limit, it has as many blocks as it may


@lru_cache(maxsize=4096)
def reduced_bytes(kernel: str, blocks: int, threads: int) -> SizeRange | None:
    """The range of what a kernel reduces; None where the source does not determine it.

    >>> reduced_bytes("one_shot_all_reduce_kernel<c10::BFloat16, 16, 2>", 3, 512)
    SizeRange(least=16386, most=24576)
    """
    match = _KERNEL.search(kernel)
    if match is None or match["type"] not in _ITEMSIZES or not 0 < blocks <= _MOST_BLOCKS:
        return None
    full, ranks = _MOST_THREADS[match["shots"]], int(match["ranks"])
    parts = ranks if match["shots"] == "two" else 1
    if parts < 1 or not 0 < threads <= full or (blocks > 1 and threads != full):
        return None
    warp = next((warp for warp in _WARPS if threads % warp == 0), threads)
    unit = int(match["alignment"]) * parts
    before = (blocks - 1) * full if blocks > 1 else max(threads - warp, 0)
    limited = blocks == _MOST_BLOCKS or (match["shots"] == "two" and blocks == _EARLIER_LIMIT)
    most = None if limited else ((blocks - 1) * full + threads) * unit
    return SizeRange(before * unit + _ITEMSIZES[match["type"]], most)
