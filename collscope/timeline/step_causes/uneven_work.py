"""Whether kernels are longer since they do more, or since their GPU is slow (pure)."""

from __future__ import annotations

import numpy as np

from collscope.model.trace import Ints
from collscope.timeline.step_causes.beside import pairs, unpaired_rows
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Bools, Floats
from collscope.timeline.step_causes.tolerances import (
    MAX_OTHER_KERNELS,
    MIN_KERNELS_OF_A_KIND,
    MIN_LONGER,
    MIN_RECURRENCES,
    MIN_REGULAR,
    OUT_OF_CACHE_NS,
    STEADY,
)
from collscope.timeline.tolerances import MAX_BESIDE_ALONE, STARTS


def only_longer(difference: Floats) -> bool:
    """Whether few kernels are shorter than on another rank: a slow GPU makes none of them so.

    Where data decide what each rank does in a step, many are.
    """
    shorter = -float(np.minimum(difference, 0.0).sum())
    return shorter <= MIN_REGULAR * float(np.maximum(difference, 0.0).sum())


def recurs_at_places(job: Job, own: Ints, partner: Ints, alone: Floats) -> bool:
    """Whether kernels are longer at the same places of every step; of one step it is not known.

    More work makes them so; a process that takes turns on their GPU comes at any place.

    alone  (rows,) ns of each with nothing beside it, by one reading
    """
    if job.count < MIN_RECURRENCES:
        return True
    place = np.full(len(job.rows), -1)
    rows, there = job.beside_last(int(job.rows.trace[own[0]]))
    place[rows] = there
    longer = np.full((job.count, len(job.rows)), np.nan)
    known = place[own] >= 0
    longer[job.step_of_row[own[known]], place[own[known]]] = (alone[own] - alone[partner])[known]
    in_all = longer[:, ~np.isnan(longer).any(axis=0)]
    mean = np.maximum(in_all.mean(axis=0), 0.0)
    least = np.clip(in_all.min(axis=0), 0.0, mean)
    return bool(least.sum() >= MIN_REGULAR * mean.sum())


def runs_other_kernels(
    job: Job, trace: int, other: int, alone: Floats, some: tuple[int, ...] = ()
) -> bool:
    """Whether ranks run other kernels at the same places: libraries do for other sizes.

    Larger sizes make the kernels longer that stay, too. A rank with more kernels than the other
    one, and no longer ones, has extra work, whatever they run in the place of each other.
    """
    more, less = unpaired_rows(job, trace, other, some), unpaired_rows(job, other, trace, some)
    own, partner = pairs(job, trace, other, some)
    ours, theirs = float(alone[own].sum()), float(alone[partner].sum())
    if len(more) > len(less) and ours <= (1 + STARTS) * theirs:
        return False
    unlike = min(float(alone[rows].sum()) for rows in (more, less))
    return unlike > MAX_OTHER_KERNELS * ours


def longer_alike(job: Job, own: Ints, partner: Ints, alone: Floats) -> bool:
    """Whether kernels are longer since they do more: all kinds of them, and each kind alike.

    alone  (rows,) ns of each with nothing beside it, by one reading
    """
    longer, theirs = alone[own], np.maximum(alone[partner], 1)
    matter = longer > np.quantile(longer, 0.5)
    ratio = (longer / theirs)[matter]
    kinds, number = np.unique(job.rows.name[own[matter]], return_inverse=True)
    weight = longer[matter]
    lengthened = ratio > 1 + MIN_LONGER
    if weight[lengthened].sum() < 0.5 * weight.sum():
        return False
    # Most kinds of kernel are longer, and one kind scatters by less than it is longer.
    inside = [ratio[(number == k) & lengthened] for k in range(len(kinds))]
    known = [r for r in inside if len(r) >= MIN_KERNELS_OF_A_KIND]
    if not known:
        return False
    steady = sum(_steady(r) for r in known)
    return len(known) >= len(kinds) / 2 and steady >= 0.75 * len(known)


def longer_at_some_places(job: Job, own: Ints, partner: Ints, alone: Floats) -> bool:
    """Whether a kernel is longer at some places, and at others as long as on the other rank.

    Of a kernel that moves data, and more than a cache holds. A lower clock does not make it longer,
    and slower memory makes it longer everywhere: at some places it has more data. Such kernels,
    and others that move data, have most of what the rank takes longer.

    alone  (rows,) ns of each with nothing beside it, by one reading
    """
    known = _known_to_move(job, own, partner, alone)
    longer = alone[own] - alone[partner]
    kind, ratio = job.rows.name[own], alone[own] / np.maximum(alone[partner], 1)
    more, equal = known & (ratio > 1 + MIN_LONGER), known & (np.abs(ratio - 1) < STARTS)
    if longer[more].sum() < MIN_REGULAR * longer.sum():
        return False
    return any(
        (more & (kind == k)).sum() >= MIN_KERNELS_OF_A_KIND
        and (equal & (kind == k)).sum() >= MIN_KERNELS_OF_A_KIND
        and _steady(ratio[more & (kind == k)])
        for k in np.unique(kind[more])
    )


def _known_to_move(job: Job, own: Ints, partner: Ints, alone: Floats) -> Bools:
    """Which pairs of kernels move data, and more than a cache holds, with no collective beside."""
    share = job.recorded.contention.share
    found: Bools = ~job.follows_clock[own]
    found &= np.minimum(alone[own], alone[partner]) > OUT_OF_CACHE_NS
    return found & (np.maximum(share[own], share[partner]) < MAX_BESIDE_ALONE)


def moves_as_much(job: Job, own: Ints, partner: Ints, alone: Floats) -> bool:
    """Whether what moves data lasts as long as on the other rank: a lower clock leaves it so.

    More data does, too, where kernels are compiled, and PyTorch's own move parameters alone.
    """
    known = _known_to_move(job, own, partner, alone)
    ours, theirs = float(alone[own[known]].sum()), float(alone[partner[known]].sum())
    return known.sum() >= MIN_KERNELS_OF_A_KIND and ours <= (1 + STARTS) * theirs


def _steady(ratio: Floats) -> bool:
    """Whether kernels of one kind are longer by more than they scatter."""
    middle = float(np.median(ratio))
    return float(np.median(np.abs(ratio - middle))) < (middle - 1) / STEADY


def longer_by_clock(job: Job, own: Ints, difference: Floats) -> bool:
    """Whether those are longer that a lower clock makes so, rather than those that move data."""
    follows = job.follows_clock[own]
    return float(difference[follows].sum()) > MIN_REGULAR * float(difference.sum())
