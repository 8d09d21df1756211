"""Partners in two sequences of timed collectives whose clocks differ by a constant (pure)."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from collscope._align import align
from collscope.match.tolerances import (
    FOREIGN_END_SCATTER_SHARE,
    MAX_CLOCK_DRIFT,
    MAX_EARLY_LEAVE_NS,
    MAX_END_SCATTER_NS,
    MAX_SHARE_OF_TWO_STARTS,
    MIN_COMMON_CALLS,
    MIN_SHARE_OF_ONE_START,
    OFFSET_CANDIDATES,
    OFFSET_WINDOW_NS,
)
from collscope.model.trace import Ints

Sequence3 = tuple[Ints, Ints, Ints]  # signature, start, end


class Comparison(msgspec.Struct, frozen=True):
    """Whether two sequences of collectives are one, and their clocks' difference if they are."""

    # None: there are too few calls, or they end together too often for chance
    same: bool | None
    # The second clock's time of what happens at t of the first is t + offset + drift * t.
    offset: float = 0.0  # ns
    drift: float = 0.0  # ns per ns
    scatter: float = np.inf  # ns, median distance of the ends from that


class Pairing(msgspec.Struct, frozen=True):
    """Partner of each element of the second sequence, rising, -1: none; and the clocks' offset."""

    partner: Ints
    offset: int  # ns by which the second clock is ahead


def pair_by_time(reference: Sequence3, other: Sequence3, *, shared_clock: bool = False) -> Pairing:
    """Elements of `other` with those of `reference` that they took place with.

    By time first: on a shared clock they meet there, or not at all. Else, signatures alone cannot
    show which of several equal collectives is missing. They give candidates of the clocks' offset
    (where most differences of ends agree); the candidate under which most elements meet decides.
    Elements that meet in time though their signatures differ are partners: the ranks disagree
    about the call. Then by order: see `_between`.
    """
    if shared_clock:
        found = Pairing(_meet(reference, other, 0), 0)
    else:
        found = _on_any_clock(reference, other)
    return _between(reference, other, _in_order(reference, other, found))


def _in_order(reference: Sequence3, other: Sequence3, found: Pairing) -> Pairing:
    """Partners by their order from one long call to the next, where both sides have the same calls.

    Kernels that last no longer than clocks disagree would meet their neighbours' partners.
    """
    ours, theirs = (np.flatnonzero(s[2] - s[1] > OFFSET_WINDOW_NS) for s in (other, reference))
    if not len(ours) or not len(theirs):
        return found
    met = _meet(_chosen(reference, theirs), _chosen(other, ours), found.offset)
    low, low_partner = ours[met >= 0], theirs[met[met >= 0]]
    by_order = np.full(len(other[0]), -1)
    steps = zip(low.tolist(), low_partner.tolist(), strict=True)
    for (first, partner), (last, last_partner) in pairwise(steps):
        if last - first == last_partner - partner:
            here, there = slice(first, last + 1), slice(partner, last_partner + 1)
            if (other[0][here] == reference[0][there]).all():
                by_order[here] = np.arange(there.start, there.stop)
    by_time = np.where(np.isin(found.partner, by_order[by_order >= 0]), -1, found.partner)
    return Pairing(np.where(by_order >= 0, by_order, by_time), found.offset)


def _chosen(sequence: Sequence3, places: Ints) -> Sequence3:
    return sequence[0][places], sequence[1][places], sequence[2][places]


def _between(reference: Sequence3, other: Sequence3, found: Pairing) -> Pairing:
    """Partners, also of the neighbours of partners: the same order holds on every rank.

    The root of a Broadcast leaves before the others, so that its ends do not agree. Between two
    partners elements of equal signature are partners too where both sides have equally many;
    before the first and behind the last while they are not far from each other.
    """
    partner = found.partner.copy()
    anchors = np.flatnonzero(partner >= 0)
    if not len(anchors):
        return found

    def join(i: int, j: int) -> bool:
        distance = abs(other[2][i] - found.offset - reference[2][j])
        joined = bool(reference[0][j] == other[0][i] and distance <= MAX_EARLY_LEAVE_NS)
        if joined:
            partner[i] = j
        return joined

    steps = zip(anchors.tolist(), found.partner[anchors].tolist(), strict=True)
    for (low, low_partner), (high, high_partner) in pairwise(steps):
        if high - low == high_partner - low_partner > 1:
            ours, theirs = slice(low + 1, high), slice(low_partner + 1, high_partner)
            same = other[0][ours] == reference[0][theirs]
            partner[ours] = np.where(same, np.arange(theirs.start, theirs.stop), partner[ours])
    i, j = int(anchors[0]) - 1, int(found.partner[anchors[0]]) - 1
    while min(i, j) >= 0 and join(i, j):
        i, j = i - 1, j - 1
    i, j = int(anchors[-1]) + 1, int(found.partner[anchors[-1]]) + 1
    while i < len(other[0]) and j < len(reference[0]) and join(i, j):
        i, j = i + 1, j + 1
    return Pairing(partner, found.offset)


def _on_any_clock(reference: Sequence3, other: Sequence3) -> Pairing:
    """Partners under the offset of the clocks under which most elements meet."""
    common = _common(reference[0], other[0])
    if not (common >= 0).any():
        return Pairing(common, 0)
    ours = np.flatnonzero(common >= 0)
    difference = other[2][ours] - reference[2][common[ours]]
    backwards = _common(reference[0][::-1], other[0][::-1])
    back = np.flatnonzero(backwards >= 0)
    reverse = other[2][::-1][back] - reference[2][::-1][backwards[back]]
    best = Pairing(common, int(np.median(difference)))
    # By order alone most pairs may be wrong: only those count that took place together.
    score = _score(reference, other, best)
    # Traces of one host share a clock even where they do not name the host.
    for offset in [0, *_modes(difference), *_modes(reverse)]:
        candidate = Pairing(_meet(reference, other, offset), offset)
        found = _score(reference, other, candidate)
        if found > score:
            best, score = candidate, found
    return best


def _common(reference: Ints, other: Ints) -> Ints:
    return align(reference.astype(np.uint64), other.astype(np.uint64)).astype(np.int64)


def _modes(difference: Ints) -> list[int]:
    """Where differences crowd: medians of the fullest windows, fullest first."""
    ordered = np.sort(difference)
    found: list[int] = []
    while len(ordered) and len(found) < OFFSET_CANDIDATES:
        last = np.searchsorted(ordered, ordered + OFFSET_WINDOW_NS, side="right")
        first = int(np.argmax(last - np.arange(len(ordered))))
        window = ordered[first : last[first]]
        found.append(int(np.median(window)))
        ordered = np.concatenate([ordered[:first], ordered[last[first] :]])
    return found


def _meet(reference: Sequence3, other: Sequence3, offset: int) -> Ints:
    """Partners that are nearest to each other in time and overlap."""
    start, end = other[1] - offset, other[2] - offset
    theirs = _nearest(reference[2], end)
    ours = _nearest(end, reference[2])
    mutual = ours[theirs] == np.arange(len(end))
    overlap = (start < reference[2][theirs]) & (end > reference[1][theirs])
    return np.where(mutual & overlap, theirs, -1)


def _nearest(times: Ints, wanted: Ints) -> Ints:
    """Index in `times` (rising) of the one nearest to each of `wanted`."""
    right = np.clip(np.searchsorted(times, wanted), 1, max(len(times) - 1, 1))
    if len(times) == 1:
        return np.zeros(len(wanted), dtype=np.int64)
    nearer = wanted - times[right - 1] <= times[right] - wanted
    return np.where(nearer, right - 1, right)


def _score(reference: Sequence3, other: Sequence3, found: Pairing) -> tuple[int, int, float]:
    """Pairs of equal signature that took place together, all pairs that did, their agreement."""
    ours = np.flatnonzero(found.partner >= 0)
    partner = found.partner[ours]
    distance = np.abs(other[2][ours] - found.offset - reference[2][partner])
    together = distance < np.maximum(
        reference[2][partner] - reference[1][partner], OFFSET_WINDOW_NS
    )
    good = together & (reference[0][partner] == other[0][ours])
    return int(good.sum()), int(together.sum()), -float(distance[good].sum())


def compare_calls(reference: Sequence3, other: Sequence3) -> Comparison:
    """Whether two sequences of collectives are one, on clocks that differ and drift."""
    pairing = pair_by_time(reference, other)
    ours = np.flatnonzero(pairing.partner >= 0)
    if not len(ours):
        return Comparison(False)
    start, end = other[1] - pairing.offset, other[2] - pairing.offset
    theirs = pairing.partner[ours]
    when = reference[2][theirs]
    distance = (end[ours] - when).astype(np.float64)
    drift = _drift(when, distance)
    distance -= drift * (when - when[0])
    middle = float(np.median(distance))
    distance = np.abs(distance - middle)
    lasts = np.minimum(when - reference[1][theirs], end[ours] - start[ours])
    scatter = np.maximum(MAX_END_SCATTER_NS, FOREIGN_END_SCATTER_SHARE * lasts)
    together = np.count_nonzero(distance <= scatter)
    begin, finish = max(reference[1][0], start[0]), min(reference[2].max(), end.max())
    common = min(
        np.count_nonzero((e >= begin) & (s <= finish))
        for s, e in ((reference[1], reference[2]), (start, end))
    )
    same = None
    one_start = together >= MIN_SHARE_OF_ONE_START * common
    if common >= MIN_COMMON_CALLS and (one_start or together <= MAX_SHARE_OF_TWO_STARTS * common):
        same = bool(one_start)
    offset = pairing.offset + middle - drift * float(when[0])
    return Comparison(same, offset, drift, float(np.median(distance)))


def _drift(when: Ints, distance: npt.NDArray[np.float64]) -> float:
    """Drift of one clock by the ends: the median slope of calls half the trace apart."""
    half = len(when) // 2
    between = when[half : 2 * half] - when[:half]
    known = between > 0
    if not known.any():
        return 0.0
    slopes = (distance[half : 2 * half] - distance[:half])[known] / between[known]
    return float(np.clip(np.median(slopes), -MAX_CLOCK_DRIFT, MAX_CLOCK_DRIFT))
