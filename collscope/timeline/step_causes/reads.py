"""What hosts read from their GPUs (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from collscope.model.trace import Ints, Kind
from collscope.timeline.step_causes.copies import NOT_TO_HOST
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.tolerances import (
    MAX_ROWS_BETWEEN,
    MIN_ALIKE_COPIES,
    MIN_SMALL_CALLS,
)
from collscope.timeline.step_causes.waits import graph_shift, sync_nodes
from collscope.timeline.steps import layered
from collscope.timeline.tolerances import MIN_LAYER_KERNELS

# reduce_kernel<512, 1, ReduceOp<float, MeanOps<...>, unsigned int, float, 4, 4>>, for c10::BFloat16
# ..., 4, 8>>: how many values a thread reads at a time follows from their type.
_TYPES = re.compile(r"c10::\w+|float|double|<\d+|, \d+")
# at_cuda_detail::cub::...::DeviceReduceSingleTileKernel, DeviceSelect, unique_by_key: what PyTorch
# counts elements with before it allocates memory for them. Sums of values are reduce_kernel<...>
_COUNTS = re.compile(r"\b(hip)?cub::|\brocprim::")


def avoidable_waits(job: Job, trace: int) -> Ints:
    """Waits of a host but for those in which it reads how much there is of something.

    Right before an exchange it reads how much it has to send; behind a kernel that counts elements,
    how much memory they need.
    """
    nodes = sync_nodes(job, trace)
    order = job.launched(trace)
    if not len(nodes) or not len(order):
        return nodes
    nodes = nodes[np.argsort(job.graph.time[nodes], kind="stable")]
    exchange = np.append(0, np.cumsum(job.exchange[order]))
    first = np.searchsorted(job.rows.launch[order], job.graph.time[nodes] - graph_shift(job, order))
    last = np.minimum(first + MAX_ROWS_BETWEEN, len(order))
    counted = np.array([bool(_COUNTS.search(name)) for name in job.rows.names] + [False])
    behind = np.zeros(len(job.rows) + 1, dtype=bool)  # the last one: no row
    behind[order[1:]] = counted[job.rows.name[order[:-1]]] & (job.rows.kind[order[1:]] == Kind.COPY)
    awaited = job.graph.lasted[1:, nodes]
    counts = behind[awaited].any(axis=0)
    # Who has copied nothing to the host since the wait before reads nothing.
    to_host = np.array([not NOT_TO_HOST.search(name) for name in job.rows.names] + [False])
    copied = (job.rows.kind[order] == Kind.COPY) & to_host[job.rows.name[order]]
    copied_before = np.append(0, np.cumsum(copied))
    since = np.maximum.accumulate(np.append(0, first[:-1]))
    reads = (copied_before[first] > copied_before[since]) | (awaited < 0).all(axis=0)
    found: Ints = nodes[((exchange[last] == exchange[first]) | ~reads) & ~counts]
    return found


def reads_of_passes(job: Job, trace: int, nodes: Ints) -> bool:
    """Whether most waits are reads with many launches between them: a value of each pass of a
    model, which may decide what comes next, as the end of a text."""
    place = np.flatnonzero(np.isin(job.launched(trace), _copies(job, nodes)))
    far = np.count_nonzero(np.diff(place) > MIN_SMALL_CALLS)
    return bool(2 * far > len(nodes))


def _copies(job: Job, nodes: Ints) -> list[int]:
    """Rows of the copies that waits are for."""
    return [
        r for n in nodes.tolist() for r in job.graph.lasted[1:, n].tolist()
        if r >= 0 and job.rows.kind[r] == Kind.COPY
    ]  # fmt: skip


def reads_of_layers(job: Job, trace: int, nodes: Ints) -> Ints:
    """Waits for a value of each layer; none, if these are few.

    Kernels of one kind make these values. Between two of them stands one layer, in which nothing
    recurs; between values of two passes of a model stand its layers.
    """
    order = job.launched(trace)
    place = np.flatnonzero(np.isin(order, _copies(job, nodes)))
    place = place[place > 0]
    if not len(place):
        return nodes[:0]
    names = job.rows.name[order].astype(np.int64)
    kind = families((*job.rows.names, ""))[names[place - 1]]
    place = place[kind == np.bincount(kind).argmax()]
    one = [
        b - a > MIN_SMALL_CALLS and layered(names[a + 1 : b]) < MIN_LAYER_KERNELS
        for a, b in pairwise(place.tolist())
    ]
    inside = np.count_nonzero(job.step_of_row[order[place]] >= 0)
    if inside < MIN_SMALL_CALLS * job.count or sum(one) < MIN_ALIKE_COPIES * len(one):
        return nodes[:0]
    found: Ints = nodes[np.isin(job.graph.lasted[1:, nodes], order[place]).any(axis=0)]
    return found


def checks_for_nan(job: Job, read: Ints) -> bool:
    """Whether what is read are the checks of `torch.autograd.set_detect_anomaly`.

    An element that is not equal to itself, then "is any": at::native::...CompareEqFunctor, and
    reduce_kernel<... or_kernel_cuda ...>, PyTorch 2.11.
    """
    names = {job.rows.names[n] for n in np.unique(job.rows.name[read]).tolist() if n >= 0}
    return any("CompareEqFunctor" in n for n in names) and any("or_kernel" in n for n in names)


def families(names: Sequence[str]) -> Ints:
    """A number for each kernel, equal for those that do the same with values of other types.

    A model of several types runs each of its kernels for all of them.
    """
    _, found = np.unique([_TYPES.sub("", name) for name in names], return_inverse=True)
    return found


def what_is_read(job: Job, trace: int, nodes: Ints) -> Ints:
    """Rows that make the values which a host waits for: what stands before most of such copies."""
    order = job.launched(trace)
    place = np.flatnonzero(np.isin(order, _copies(job, nodes)))
    found = [order[place]]
    if len(place) < MIN_SMALL_CALLS * job.count:
        return np.empty(0, dtype=np.int64)
    cleared = job.rows.kind[order] == Kind.MEMSET
    alike = families((*job.rows.names, ""))
    for _ in range(MIN_SMALL_CALLS):
        place = place[place > 0] - 1
        # What a kernel adds up is cleared before it, where it has several blocks.
        clear = cleared[place] & (place > 0)
        kernels = place - clear
        if not len(place):
            break
        _, number = np.unique(alike[job.rows.name[order[kernels]]], return_inverse=True)
        often = np.bincount(number)
        same = number == int(often.argmax())
        if (
            often.max() < MIN_ALIKE_COPIES * len(place)
            or job.rows.entry[order[kernels[same][0]]] >= 0
        ):
            break
        found += [order[kernels[same]], order[place[same & clear]]]
        place = kernels[same]
    return np.unique(np.concatenate(found))
