"""Which classes of a run an MSCCL algorithm would serve.

The rule is that of the executors' own scheduler (Azure/msccl-scheduler, mscclSchedulerSelectAlgo;
ROCm/rccl src/misc/msccl/msccl_lifecycle.cc): the operation and number of ranks agree, the count of
the API is a multiple of the chunks, the size is within the range, and the algorithm may run in
place (or out of place) where the call does. The first algorithm that serves a call is taken.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from collscope.parsers.msccl_xml import MscclAlgorithm
from collscope.reports.calls.answer import ClassRow


class Why(IntEnum):
    """Why an algorithm does not serve a class; a larger number is a nearer miss."""

    OTHER_OPERATION = 0
    OTHER_RANKS = 1
    SIZE_UNKNOWN = 2
    OTHER_SIZES = 3
    COUNT_NOT_MULTIPLE = 4
    NOT_IN_PLACE = 5
    IN_PLACE_ONLY = 6


class Refusal(msgspec.Struct, frozen=True):
    """An algorithm does not serve a class.

    count  elements of the class; the others are what the algorithm is for
    """

    why: Why
    count: int | None
    nranks: int
    min_bytes: int
    max_bytes: int | None
    chunks: int


def refusal(algorithm: MscclAlgorithm, found: ClassRow) -> Refusal | None:
    """Why an algorithm does not serve a class, None when it does.

    A class whose place is unknown counts as whatever the algorithm serves.
    """
    size, count, most = found.size_bytes, found.count, algorithm.max_bytes
    holds = {
        Why.OTHER_OPERATION: algorithm.op is found.op,
        Why.OTHER_RANKS: algorithm.nranks == found.nranks,
        Why.SIZE_UNKNOWN: size is not None and count is not None,
        Why.OTHER_SIZES: (
            size is not None and algorithm.min_bytes <= size and (most is None or size <= most)
        ),
        Why.COUNT_NOT_MULTIPLE: (count is not None and count > 0 and count % algorithm.chunks == 0),
        Why.NOT_IN_PLACE: found.in_place is not True or algorithm.in_place,
        Why.IN_PLACE_ONLY: found.in_place is not False or algorithm.out_of_place,
    }
    why = next((why for why in Why if not holds[why]), None)
    if why is None:
        return None
    return Refusal(why, count, algorithm.nranks, algorithm.min_bytes, most, algorithm.chunks)
