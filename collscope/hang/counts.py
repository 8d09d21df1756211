"""A verdict from counters: how many calls of each operation the ranks of a group launched."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from collscope.hang.records import Verdict, Waiting, Who

if TYPE_CHECKING:
    from collscope.hang.records import Counts, Evidence


def nobody(reason: str, candidates: tuple[int, ...] = ()) -> Verdict:
    """A verdict that names nobody and no call."""
    return Verdict(
        decided=False, who=(), what=(), group=None, seq=None, op=None, since=None,
        waiting=Waiting(len(candidates), (), candidates), certainty=None, candidates=candidates,
        reasons=(reason,),
    )  # fmt: skip


def by_counts(evidence: Evidence) -> Verdict:
    """The ranks that are behind in some group and ahead in none, where most others are ahead.

    A rank that is ahead somewhere waits there for others. Without a majority a rank that is behind
    looks like one whose peer made calls too many.
    """
    behind: Counter[int] = Counter()
    ahead: set[int] = set()
    members: set[int] = set()
    where: dict[int, tuple[Counts, str, int]] = {}
    for counts in evidence.counts:
        for op in {op for _, own in counts.of for op, _ in own}:
            made = {rank: dict(own).get(op, 0) for rank, own in counts.of}
            most, least = max(made.values()), min(made.values())
            if most == least:
                continue
            members |= set(made)
            ahead |= {rank for rank, number in made.items() if number > least}
            for rank, number in made.items():
                if number < most:
                    behind[rank] += most - number
                    where.setdefault(rank, (counts, op, number + 1))
    if not behind:
        return nobody("All ranks launched the same number of calls.")
    guilty = sorted(set(behind) - ahead)
    if not guilty or 2 * len(guilty) >= len(members):
        reason = (
            "Some ranks launched fewer calls than other ranks; the counts do not show which rank "
            "waits."
        )
        return nobody(reason, tuple(sorted(members)))
    counts, op, seq = where[guilty[0]]
    known = {rank.rank: rank for rank in evidence.ranks}
    who = tuple(
        Who(rank, of.host, of.pid, of.gpu) if (of := known.get(rank)) else Who(rank)
        for rank in guilty
    )
    behind_words = ", ".join(map(str, guilty[:8])) + f" and {len(guilty) - 8} more" * (
        len(guilty) > 8
    )
    several = "s" * (len(guilty) > 1)
    waiting = tuple(sorted(members - set(guilty)))
    return Verdict(
        decided=True, who=who, what=("host_never_called",), group=counts.group, seq=seq, op=op,
        since=None, waiting=Waiting(len(waiting), (counts.group,), waiting),
        certainty="likely", candidates=(),
        reasons=(
            f"Rank{several} {behind_words} launched fewer calls than other ranks, and in no group"
            " more.",
        ),
    )  # fmt: skip
