"""Evidence from answers of the RAS service: one, or a series."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.hang.records import NO_ANSWER, Claim, Counts, Evidence, RankEvidence
from collscope.parsers._ras import RasAnswer, RasCommunicator, RasRank, answers, is_json, is_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_Process = tuple[str | None, int | None]


def is_answer(text: str) -> bool:
    """True for the beginning of an answer, as text or as JSON."""
    return is_json(text) or is_text(text)


def ras_evidence(files: Sequence[tuple[str, str]]) -> Evidence | None:
    """What the answers say; None without one.

    The last complete answer counts. Ranks whose counts rise from one to the next make calls.
    files  path and text, in the order in which they were asked
    """
    if not files:
        return None
    found = [answer for _, text in files for answer in answers(text)]
    complete = [answer for answer in found if answer.complete]
    sources = tuple(path for path, _ in files)
    if not complete:
        return Evidence(kind="ras", sources=sources)
    last = max(
        (answer for answer in complete if _detail(answer)), key=lambda a: a.at, default=complete[-1]
    )
    world = max(last.communicators, key=lambda c: c.size or len(c.ranks), default=None)
    world_rank: dict[_Process, int] = {
        (rank.host, rank.pid): rank.rank
        for rank in (world.ranks if world is not None else ())
        if rank.pid is not None
    }
    claims: dict[int, Claim] = {}
    known: dict[int, RankEvidence] = {}
    counts = []
    for comm in last.communicators:
        own = []
        for rank in comm.ranks:
            number = _world_rank(comm, rank, world, world_rank)
            if number is None:
                continue
            if rank.missing:
                claims.setdefault(number, _missing(number, rank))
                continue
            known.setdefault(
                number,
                RankEvidence(number, "ras", (), host=rank.host, pid=rank.pid, gpu=rank.gpu),
            )
            if rank.counts:
                own.append((number, rank.counts))
        if own:
            counts.append(Counts(comm.name, tuple(own)))
    return Evidence(
        kind="ras",
        ranks=tuple(known.values()),
        sources=sources,
        claims=tuple(claims.values()),
        counts=tuple(counts),
        runs=_rises(complete),
    )


def _detail(answer: RasAnswer) -> bool:
    """JSON lists every rank; text only those that stand out."""
    return any(rank.counts for comm in answer.communicators for rank in comm.ranks) or any(
        rank.missing for comm in answer.communicators for rank in comm.ranks
    )


def _world_rank(
    comm: RasCommunicator,
    rank: RasRank,
    world: RasCommunicator | None,
    world_rank: Mapping[_Process, int],
) -> int | None:
    if comm is world:
        return rank.rank
    return world_rank.get((rank.host, rank.pid)) if rank.pid is not None else None


def _missing(number: int, rank: RasRank) -> Claim:
    reason = "is dead according to the RAS service" if rank.dead else NO_ANSWER
    what = "dead" if rank.dead else "silent"
    return Claim(number, what, f"Rank {number} {reason}.", rank.host, rank.pid, rank.gpu)


def _rises(found: Sequence[RasAnswer]) -> bool:
    """Whether a count of some rank is larger in a later answer."""
    before: dict[tuple[str, int, str], int] = {}
    for answer in sorted(found, key=lambda a: a.at):
        for comm in answer.communicators:
            for rank in comm.ranks:
                for op, number in rank.counts:
                    key = (comm.name, rank.rank, op)
                    if number > before.setdefault(key, number):
                        return True
    return False
