"""What a prediction takes from the traces of another run: its calls' transfers (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import Rows
from collscope.match.traces import Calls
from collscope.model import CollectiveClass
from collscope.model.trace import Ints
from collscope.timeline.recorded_job import RecordedJob, thread_blocks
from collscope.timeline.waits import CallTimes, clocks_apart

Floats = npt.NDArray[np.float64]


class CallSequence(msgspec.Struct, frozen=True):
    """What collectives of one class and group have in common; ranks identify a group."""

    key: CollectiveClass
    ranks: tuple[int, ...]
    group: str | None


class TracedCalls(msgspec.Struct, frozen=True):
    """Calls of a sequence in their order, NaN where not known."""

    transfer: Floats  # ns
    most: Floats  # ns; what it is at most, known for all: a kernel may wait
    blocks: Floats  # thread blocks of the kernels: multiprocessors that they hold


Transfers = Mapping[CallSequence, TracedCalls]
"""What is taken from another run."""


def transfers_of(rows: Rows, calls: Calls, times: CallTimes) -> Transfers:
    """All that a prediction takes from another run: its calls' transfers, and thread blocks."""
    blocks, transfer = thread_blocks(rows, calls), known_transfers(calls, times)
    most = most_transfers(calls, times, transfer)
    return {
        sequence: TracedCalls(transfer[call_numbers], most[call_numbers], blocks[call_numbers])
        for sequence, call_numbers in call_sequences(rows, calls)
    }


def known_transfers(calls: Calls, times: CallTimes) -> Floats:
    """Transfer of each call, ns; NaN where not known.

    Of Sends and Recvs without a partner the shortest kernel is the one that waited least,
    and so is that of a rooted call whose ranks' clocks cannot be compared.
    """
    found = np.where(times.known, times.transfer, np.nan)
    duration = times.end - times.start
    unaligned = clocks_apart(calls, times)
    if unaligned.any():
        found[unaligned] = np.minimum.reduceat(duration, calls.offsets[:-1])[unaligned]
    for k in np.unique(calls.class_[calls.p2p]).tolist():
        in_class = calls.class_ == k
        if not np.isfinite(found[in_class]).any():
            found[in_class & calls.p2p] = duration[in_class[calls.call_of_part]].min()
    return found


def most_transfers(calls: Calls, times: CallTimes, transfer: Floats) -> Floats:
    """What the transfer of each call is at most, ns: where it is not known its kernels may wait.

    transfer  `known_transfers`
    """
    duration, first = times.end - times.start, calls.offsets[:-1]
    if not len(first):
        return np.empty(0)
    together = np.array([c.op.synchronises for c in calls.classes])[calls.class_]
    shortest, longest = np.minimum.reduceat(duration, first), np.maximum.reduceat(duration, first)
    found: Floats = np.where(together, shortest, longest).astype(np.float64)
    known = np.isfinite(transfer) & ~clocks_apart(calls, times)
    return np.where(known, transfer, found)


def call_sequences(rows: Rows, calls: Calls) -> Iterator[tuple[CallSequence, Ints]]:
    """Each class of each group, and its calls in their order."""
    pairs = calls.group.astype(np.int64) * len(calls.classes) + calls.class_
    for pair in np.unique(pairs).tolist():
        group = calls.groups[pair // len(calls.classes)]
        ranks = tuple(rows.ranks[t] for t in group.members)
        pair_calls = np.flatnonzero(pairs == pair)
        yield (
            CallSequence(calls.classes[pair % len(calls.classes)], ranks, group.name),
            pair_calls[np.argsort(calls.seq[pair_calls], kind="stable")],
        )


def blocks_change(recorded: RecordedJob, traced: Transfers | None) -> float | None:
    """Thread blocks of the other run's kernels against ours, by time; None where not known."""
    calls = recorded.linked
    blocks = thread_blocks(recorded.rows, calls)
    spent = np.zeros(len(calls))
    np.add.at(spent, calls.call_of_part, recorded.linked_times.end - recorded.linked_times.start)
    old = new = 0.0
    for sequence, call_numbers in call_sequences(recorded.rows, calls):
        theirs = None if traced is None else traced.get(sequence)
        if theirs is not None and np.isfinite(theirs.blocks).any():
            known = call_numbers[np.isfinite(blocks[call_numbers])]
            old += float((spent[known] * blocks[known]).sum())
            new += float(spent[known].sum() * np.nanmean(theirs.blocks))
    return new / old if old > 0 else None
