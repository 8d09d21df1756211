"""Fields that give one quantity twice: what a call puts in and gets out, and who is in its group.

Where two of them contradict each other, the file does not decide which one is right: neither is
taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.model import Op
from collscope.model.limits import MOST_ELEMENTS
from collscope.model.op import Extent

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTRADICT_TEXT = (
    "Fields contradict each other (what a call puts in and what it gets out, its group's size and "
    "ranks, its size, time and bandwidth, a kernel and the call that launched it, the job's size "
    "and that of its default group): the conflicting values count as not known."
)
CODE = "contradicting_fields"
_COMPARED = (Extent.COUNT, Extent.PARTS)


def counts_contradict(
    op: Op, counts: tuple[int | None, int | None], ranks: int | None, name: str = ""
) -> bool:
    """Whether the elements that a rank puts in and gets out cannot be of one call.

    Only operations are judged in which every rank has both sides. c10d records even and uneven
    all-to-alls under one name, so that their sides may differ. So may those of several tensors in
    one call (``…_coalesced``): c10d does not check that the larger side has just the parts. What no
    memory holds is left to `collscope.model.limits`.

    counts  in and out; None where not known
    ranks   of the group; None where not known
    name    of the operation as the recorder writes it

    >>> counts_contradict(Op.ALL_REDUCE, (5, 10), 2), counts_contradict(Op.ALL_GATHER, (5, 10), 2)
    (True, False)
    """
    into, out = counts
    sides = op.sends, op.receives
    if into is None or out is None or max(into, out) > MOST_ELEMENTS:
        return False
    if sides[0] not in _COMPARED or sides[1] not in _COMPARED:
        return False
    if sides == (Extent.COUNT, Extent.COUNT):
        return into != out
    # The other sides of a gather and a scatter are the root's alone.
    if op.rooted or sides[0] is sides[1] or not ranks or "coalesced" in name:
        return False
    part, parts = (into, out) if sides[0] is Extent.COUNT else (out, into)
    return part * ranks != parts


def is_group(ranks: Sequence[int], size: int | None, world: int | None) -> bool:
    """Whether ranks can be those of a group of `size` in a job of `world`; None: not known."""
    named = len(set(ranks))
    return (
        named == len(ranks)
        and size in (None, named)
        and (world is None or max(ranks, default=0) < world)
    )
