"""Collective calls: the rows of a communicator's ranks aligned with each other (pure).

Rows are matched by order. Where the ranks' sequences differ (a lost or torn line, a rank that
stopped) they are re-aligned by longest common subsequence, with opCount as a witness when it
moves; it does not on NCCL >= 2.27 within one node. Neighbouring calls of complementary ranks are
one that the ranks log differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from collscope._align import align
from collscope.match.align import interleave
from collscope.match.communicators import Communicator
from collscope.match.observations import Ints, Observations
from collscope.match.tolerances import MIN_COUNTER_AGREEMENT


class AlignedCalls(msgspec.Struct, frozen=True):
    """Calls of one communicator in order: `rows[c, m]` is the row of member m, -1 if absent."""

    ranks: tuple[int, ...]  # of the members, in the order of the columns
    rows: Ints  # (calls, members), int64
    realigned: bool  # the ranks' sequences were not equal
    witnessed: bool = False  # opCount took part in the re-alignment


def equal_calls(
    comm: Communicator, rows_of: Mapping[int, Ints], observed: Observations
) -> AlignedCalls | None:
    """Calls of `comm` from the rows of its members; None where their sequences differ.

    rows_of  per handle, the rows of collective operations in order
    """
    ranks = tuple(sorted(comm.members))
    rows = [rows_of[comm.members[rank]] for rank in ranks]
    sig = observed.columns["sig"]
    first = sig[rows[0]]
    if not all(np.array_equal(first, sig[r]) for r in rows[1:]):
        return None
    # Columns one after the other in memory: what follows goes through them, not along rows.
    matrix = np.stack(rows).T.astype(np.int64, copy=False)
    return AlignedCalls(ranks, matrix, realigned=False)


def align_calls(
    comm: Communicator, rows_of: Mapping[int, Ints], observed: Observations
) -> AlignedCalls:
    """The same of members whose sequences differ."""
    ranks = tuple(sorted(comm.members))
    rows = [rows_of[comm.members[rank]] for rank in ranks]
    keys, witnessed = _keys(rows, observed)
    matrix = _merge(rows, keys)
    if witnessed:
        matrix = _order_by_op_count(matrix, observed.columns["op_count"])
    return AlignedCalls(ranks, matrix, realigned=True, witnessed=witnessed)


def _keys(rows: list[Ints], observed: Observations) -> tuple[list[Ints], bool]:
    """What must be equal for two rows to be the same call: signature, and opCount if it helps."""
    sig, op_count = observed.columns["sig"], observed.columns["op_count"]
    plain = [sig[r].astype(np.uint64) for r in rows]
    present = [r for r in rows if len(r)]
    if not all(_moves(op_count[r]) for r in present):
        return plain, False
    # 2^20 signatures are far more than a job has; opCount's low 44 bits cannot wrap in one.
    witnessed = [sig[r].astype(np.uint64) | (op_count[r] << np.uint64(20)) for r in rows]
    longest = max(range(len(rows)), key=lambda m: len(rows[m]))
    for m in range(len(rows)):
        together = int((align(witnessed[longest], witnessed[m]) >= 0).sum())
        if together < MIN_COUNTER_AGREEMENT * int((align(plain[longest], plain[m]) >= 0).sum()):
            return plain, False  # the ranks' counters do not run alike: they prove nothing
    return witnessed, True


def _order_by_op_count(matrix: Ints, op_count: Ints) -> Ints:
    """Calls that no rank logged both of, in the order of their opCount; others do not change."""
    first = matrix[np.arange(len(matrix)), (matrix >= 0).argmax(axis=1)]
    ordered = matrix[np.argsort(op_count[first], kind="stable")]
    for member in ordered.T:
        rows = member[member >= 0]
        if (rows[1:] < rows[:-1]).any():
            return matrix
    return ordered


def _moves(op_counts: Ints) -> bool:
    return len(op_counts) < 2 or bool((op_counts != op_counts[0]).any())


def _merge(rows: list[Ints], keys: list[Ints]) -> Ints:
    """Common supersequence of all members' keys, as a (calls, members) matrix.

    The members are laid on the longest one; where elements then stand that most of them lack, two
    may have lost neighbours and be out of step, so all are laid again on the others.
    """
    order = sorted(range(len(rows)), key=lambda m: -len(rows[m]))
    placed, support = _lay(keys[order[0]], keys, order)
    common = 2 * support >= len(rows)
    if common.any() and not common.all():
        reference = np.empty(len(support), dtype=np.uint64)
        for m, place in placed.items():
            reference[place] = keys[m]
        placed, support = _lay(reference[common], keys, order)
    matrix = np.full((len(rows), len(support)), -1, dtype=np.int64).T
    for m, place in placed.items():
        matrix[place, m] = rows[m]
    return matrix if support.all() else matrix[support > 0]


def _lay(reference: Ints, keys: list[Ints], order: list[int]) -> tuple[dict[int, Ints], Ints]:
    """Members laid one after the other on a reference, which takes in what it lacks.

    returns the place of each member's elements in the whole, and how many members each place has
    """
    placed: dict[int, Ints] = {}
    for m in order:
        reference, moved, place = _insert(reference, keys[m], _partners(reference, keys[m]))
        placed = {k: moved[p] for k, p in placed.items()}
        placed[m] = place
    return placed, np.bincount(np.concatenate(list(placed.values())), minlength=len(reference))


def _partners(reference: Ints, key: Ints) -> Ints:
    """Index in the reference of each element of `key`, -1: none; a longest common subsequence.

    Of equally long ones the one without a shift, as where one of many equal calls differs.
    """
    matched = align(reference, key).astype(np.int64)
    if len(reference) == len(key):
        same = reference == key
        if same.sum() == (matched >= 0).sum():
            return np.where(same, np.arange(len(key)), -1)
    return matched


def _insert(reference: Ints, key: Ints, matched: Ints) -> tuple[Ints, Ints, Ints]:
    """Put the unmatched elements of `key` into `reference` behind their last matched neighbour.

    returns the new reference, the new place of each old reference element, and of each of `key`
    """
    moved, place = interleave(len(reference), matched)
    merged = np.empty(len(reference) + int((matched < 0).sum()), dtype=np.uint64)
    merged[moved] = reference
    merged[place] = key
    return merged, moved, place


def in_place(op_root_rows: Ints, ranks: Sequence[int], slots: Ints, offset: Ints) -> Ints:
    """In-place state per call: 1, 0, or -1 when not known; shape (calls,).

    op_root_rows  (calls,) member index whose buffers decide, or -1: all members must agree
    ranks         (members,) rank of each member
    slots         (calls, members) the rows' slot, -2 where absent or not known
    offset        (calls,) where the in-place buffer depends on the rank (AllGather, ReduceScatter)
    """
    wanted = np.where(offset, np.asarray(ranks, dtype=slots.dtype)[:, None], 0).T
    known = slots != -2
    decides = op_root_rows >= 0
    columns = np.arange(slots.shape[1])[None, :]
    known &= ~decides[:, None] | (columns == op_root_rows[:, None])
    yes = ((slots == wanted) | ~known).all(axis=1) & known.any(axis=1)
    return np.where(yes, 1, np.where(known.any(axis=1), 0, -1)).astype(np.int8)


def join_disagreements(
    aligned: AlignedCalls, op_count: Ints
) -> tuple[Ints, dict[tuple[int, int], int]]:
    """Neighbouring calls with complementary ranks are one call that the ranks log differently.

    Where opCount took part in the alignment, it must be the same too.

    returns rows (calls, members) with the minority's rows taken out, and those rows by
            (call, member)
    """
    rows = aligned.rows
    present = rows >= 0
    partial = np.flatnonzero(~present.all(axis=1)).tolist() if aligned.realigned else []
    drop: set[int] = set()
    differing: dict[int, dict[int, int]] = {}
    runs = _runs(partial, present)
    k = 0
    while k + 1 < len(runs):
        a, b = runs[k], runs[k + 1]
        adjacent = a[-1] + 1 == b[0] and len(a) == len(b)
        if adjacent and aligned.witnessed:
            adjacent = bool((op_count[rows[a].max(axis=1)] == op_count[rows[b].max(axis=1)]).all())
        if not adjacent or (present[a[0]] == present[b[0]]).any():
            k += 1
            continue
        keep, other = (a, b) if present[a[0]].sum() >= present[b[0]].sum() else (b, a)
        for kept, dropped in zip(keep, other, strict=True):
            members = np.flatnonzero(present[dropped]).tolist()
            differing[kept] = {m: int(rows[dropped, m]) for m in members}
            drop.add(dropped)
        k += 2
    kept_rows = [c for c in range(len(rows)) if c not in drop] if drop else None
    if kept_rows is None:
        return rows, {}
    new = {old: i for i, old in enumerate(kept_rows)}
    moved = {(new[c], m): row for c, by in differing.items() for m, row in by.items()}
    return rows[kept_rows], moved


def _runs(partial: list[int], present: Ints) -> list[list[int]]:
    """Neighbouring incomplete calls that the same ranks logged."""
    runs: list[list[int]] = []
    for c in partial:
        last = runs[-1][-1] if runs else -2
        if last + 1 == c and (present[last] == present[c]).all():
            runs[-1].append(c)
        else:
            runs.append([c])
    return runs
