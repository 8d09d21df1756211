"""Ranks of communicators on the machine, and which communicators may run at once (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from collscope.replay.records import RunComm
from collscope.units import count

# Ranks of all communicators together: those of ten communicators of 10^5 ranks, which the largest
# machines have, with room to spare.
_MOST_MEMBERS = 1 << 22


def place(comms: Sequence[RunComm]) -> tuple[dict[int, tuple[int, ...]], list[str]]:
    """Ranks of the plan for every communicator of known size, by id; notices.

    World ranks are kept where they are known. A communicator as large as the job has ranks
    0 … n−1; other ranks not known take the first ones that no sibling has. A plan lists each rank
    of each communicator: those that have too many for that are left out.
    """
    comms, notices = _listable(comms)
    job = max((c.nranks or 0 for c in comms), default=0)
    known_ranks = (w + 1 for c in comms for w in c.world_ranks.values())
    job = max([job, *(n for n in known_ranks if n <= _MOST_MEMBERS)])
    taken: dict[tuple[int | None, int], set[int]] = defaultdict(set)
    known = {c.id: _known(c) for c in comms}
    for c in comms:
        if c.nranks is not None:
            taken[c.parent, c.nranks] |= set(known[c.id].values())
    placed: dict[int, tuple[int, ...]] = {}
    guessed = 0
    for c in comms:
        if c.nranks is None:
            continue
        ranks = known[c.id]
        if c.nranks == job:
            ranks = {r: r for r in range(job)} if len(ranks) < job else ranks
        elif len(ranks) < c.nranks:
            guessed += 1
            ranks = _fill(ranks, c.nranks, job, taken[c.parent, c.nranks])
            taken[c.parent, c.nranks] |= set(ranks.values())
        placed[c.id] = tuple(ranks[r] for r in range(c.nranks))
    if guessed:
        notices.append(
            f"{guessed} communicators of ranks without a log: placed on the first free ranks"
        )
    return placed, notices


def _listable(comms: Sequence[RunComm]) -> tuple[list[RunComm], list[str]]:
    """The first communicators whose ranks fit in one list, and a notice of the remaining ones."""
    room, kept = _MOST_MEMBERS, []
    for c in comms:
        if (c.nranks or 0) <= room:
            room -= c.nranks or 0
            kept.append(c)
    left = len(comms) - len(kept)
    text = f"{count(left, 'communicator')} with too many ranks to list them: left out"
    return kept, [text] if left else []


def _known(comm: RunComm) -> dict[int, int]:
    """World ranks by rank; nothing where two ranks would have the same one."""
    most = comm.nranks or 0
    found = {r: w for r, w in comm.world_ranks.items() if r < most and w < _MOST_MEMBERS}
    return found if len(set(found.values())) == len(found) else {}


def _fill(known: Mapping[int, int], nranks: int, job: int, siblings: set[int]) -> dict[int, int]:
    """Every rank placed: those known where they are, others first where no sibling is."""
    own = set(known.values())
    free = [w for w in range(job) if w not in own and w not in siblings]
    free += [w for w in range(job) if w not in own and w in siblings]
    places = iter(free)
    return {r: known[r] if r in known else next(places) for r in range(nranks)}


def partitions(
    comms: Iterable[int], ranks: Mapping[int, Sequence[int]], parents: Mapping[int, int | None]
) -> list[list[int]]:
    """Communicators in sets that can run at once: disjoint, those of one parent together first.

    comms  ids; each goes to the first set with a sibling that has room, else the first with room
    """
    sets: list[list[int]] = []
    busy: list[set[int]] = []
    for comm in sorted(comms):
        own = set(ranks[comm])
        fits = [i for i, b in enumerate(busy) if not own & b]
        kin = [i for i in fits if any(parents.get(c) == parents.get(comm) for c in sets[i])]
        if kin or fits:
            chosen = (kin or fits)[0]
            sets[chosen].append(comm)
            busy[chosen] |= own
        else:
            sets.append([comm])
            busy.append(own)
    return sets
