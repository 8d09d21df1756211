"""Which classes of a run an MSCCL algorithm would serve.

The rule is that of the executors' own scheduler (Azure/msccl-scheduler, mscclSchedulerSelectAlgo;
ROCm/rccl src/misc/msccl/msccl_lifecycle.cc): the operation and number of ranks agree, the count of
the API is a multiple of the chunks, the size is within the range, and the algorithm may run in
place (or out of place) where the call does. The first algorithm that serves a call is taken.
"""

from __future__ import annotations

from collscope.analysis.classes import ClassRow
from collscope.parsers.msccl_xml import MscclAlgorithm
from collscope.units import format_size


def refusal(algorithm: MscclAlgorithm, found: ClassRow) -> tuple[int, str] | None:
    """Why an algorithm does not serve a class, None when it does; larger numbers are nearer misses.

    A class that does not tell whether its calls are in place is taken to be what the algorithm can.
    """
    size, count, most = found.size_bytes, found.count, algorithm.max_bytes
    checks = (
        (algorithm.op.value == found.op, "another operation"),
        (algorithm.nranks == found.nranks, f"for {algorithm.nranks} ranks"),
        (size is not None and count is not None, "the size of the class is not known"),
        (
            size is not None and algorithm.min_bytes <= size and (most is None or size <= most),
            f"for {size_range(algorithm)}",
        ),
        (
            count is not None and count > 0 and count % algorithm.chunks == 0,
            f"count {count} not a multiple of {algorithm.chunks}",
        ),
        (found.in_place is not True or algorithm.in_place, "not in place"),
        (found.in_place is not False or algorithm.out_of_place, "in place only"),
    )
    return next(((i, why) for i, (holds, why) in enumerate(checks) if not holds), None)


def size_range(algorithm: MscclAlgorithm) -> str:
    """Sizes that an algorithm is for, as text."""
    low = format_size(algorithm.min_bytes)
    if algorithm.max_bytes is None:
        return f"{low} and more"
    return f"{low} to {format_size(algorithm.max_bytes)}"
