"""One verdict from all evidence: a pure function.

Each kind of source is judged for itself, since the sources name groups and calls in their own ways;
where two of them name different ranks, nobody is named.

Each rank waits in the first call, in its own order over all groups, that did not complete. A
member of that call that did not make it, and waits in none itself, holds the others up. One that
waits in another call is held up itself, and is followed there. No clock is compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from collscope.hang.counts import by_counts, nobody
from collscope.hang.pattern import TURNS_AHEAD, pattern_of
from collscope.hang.records import (
    EQUAL_COUNTS,
    NO_RECORDING,
    Claim,
    Verdict,
    Waiting,
    Who,
    only_sends,
)
from collscope.hang.tasks import failed_tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from collscope.hang.records import Call, Evidence, RankEvidence

# No rank has ended one of these before all members have begun it.
_TOGETHER = {"AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Barrier"}
# Kernels that wait on a stream before a launch blocks the host: CUDA's queue holds so many.
_LAUNCHES = 1024
_VALUES = 4  # that are printed where ranks differ
_ROOTED = {"Broadcast", "Reduce", "Gather", "Scatter"}


class _Findings:
    """What the walk over the calls in which ranks wait finds."""

    def __init__(self, *, shows_ends: bool) -> None:
        self.shows_ends = shows_ends  # of calls on the GPU
        self.never_called: dict[int, Call] = {}  # (rank, the call that it owes)
        self.on_gpu: dict[int, Call] = {}
        self.ended_elsewhere: set[int] = set()  # ranks in a call that a peer ended
        self.silent: dict[int, Call] = {}
        self.unknown: set[int] = set()
        self.different: dict[tuple[str, int], Call] = {}
        self.held_up: dict[int, set[int]] = defaultdict(set)  # rank: those that it waits for
        self.owed_later: set[int] = set()  # ranks that owe a call only after other ranks' calls

    def owes(self, into: dict[int, Call], rank: int, call: Call, *, later: bool) -> None:
        """Note a call that a rank owes; of several the first, which waits for no other rank."""
        if rank not in into or (rank in self.owed_later and not later):
            into[rank] = call
            (self.owed_later.add if later else self.owed_later.discard)(rank)


def judge(evidence: Sequence[Evidence]) -> Verdict:
    """Who holds up the job, by all kinds of sources.

    evidence  of each kind, what shows most of a call first
    """
    found = [_of_kind(one) for one in evidence]
    # What a process or its launcher prints shows more than that it does not answer.
    tasks, tasks_unused = failed_tasks(evidence)
    claims = tasks | {claim.rank: claim for one in evidence for claim in one.claims}
    claims |= _failed_gpus(evidence)
    runs = any(one.runs for one in evidence)
    verdict = _together(found, claims) if not runs else None
    if verdict is None:
        shows = (by for one, by in zip(evidence, found, strict=True) if one.ranks or one.counts)
        verdict = next(shows, found[0])
        if runs:
            verdict = nobody("Ranks made calls between two answers: the job is running.")
    if verdict.decided and not claims:
        verdict = _unless_stopped(verdict, evidence, found)
    if not verdict.decided:
        hints = (*tasks_unused, *(one.hint for one in evidence if one.hint is not None))
        verdict = replace(verdict, reasons=(*verdict.reasons, *hints))
    remarks = dict.fromkeys(remark for one in evidence for remark in one.remarks)
    return replace(
        verdict,
        sources=tuple(s for one in evidence for s in one.sources),
        remarks=tuple(remarks),
    )


def _failed_gpus(evidence: Sequence[Evidence]) -> dict[int, Claim]:
    """Ranks whose process stands in an Xid line of the kernel."""
    ranks = {rank.pid: rank for one in evidence for rank in one.ranks if rank.pid is not None}
    return {
        rank.rank: Claim(
            rank.rank, "gpu_not_finished", f"The GPU of rank {rank.rank} failed: Xid {xid}.",
            rank.host, pid, rank.gpu,
        )
        for one in evidence
        for pid, xid in one.xids
        if (rank := ranks.get(pid)) is not None
    }  # fmt: skip


def _of_kind(evidence: Evidence) -> Verdict:
    """By the calls, or the counters, of one kind of source; claims are added later."""
    if evidence.counts:
        return by_counts(evidence)
    calls = evidence.kind == "dumps" or any(r.calls or r.reached for r in evidence.ranks)
    if calls and evidence.ranks:
        verdict = _by_calls(evidence)
        # What hosts called does not show what GPUs ended.
        return replace(verdict, last_completed=None) if evidence.hosts_alone else verdict
    lost = f" Damaged and not used: {_ranks(evidence.damaged)}." if evidence.damaged else ""
    return nobody(f"The files show no calls of any rank.{lost}")


def _unless_stopped(
    verdict: Verdict, evidence: Sequence[Evidence], found: Sequence[Verdict]
) -> Verdict:
    """Undecided, where only the last calls of hosts name the rank, and Slurm stopped the job.

    Hosts of a healthy job are at different calls when it is stopped.
    """
    how = next((one.stopped for one in evidence if one.stopped is not None), None)
    hangs = any(
        one.timed_out
        or (one.kind == "stderr" and one.ranks)
        or (by.decided and not one.hosts_alone)
        for one, by in zip(evidence, found, strict=True)
    )
    if how is None or hangs:
        return verdict
    named = tuple(w.rank for w in verdict.who)
    return replace(
        verdict, decided=False, who=(), what=(), certainty=None, candidates=named,
        reasons=(
            f"Slurm stopped the job ({how}): its logs do not show whether it hung before.",
            f"{_ranks(named).capitalize()} made fewer calls than other ranks, or different ones.",
        ),
    )  # fmt: skip


def _together(found: Sequence[Verdict], claims: Mapping[int, Claim]) -> Verdict | None:
    """The verdict in which the sources agree; None where none of them names a rank."""
    decided = [verdict for verdict in found if verdict.decided]
    named = {tuple(w.rank for w in verdict.who) for verdict in decided}
    if len(named) > 1:
        ranks = sorted({rank for one in named for rank in one})
        return replace(
            decided[0], decided=False, who=(), what=(), certainty=None, candidates=tuple(ranks),
            reasons=("The sources name different ranks.", *(v.reasons[0] for v in decided)),
        )  # fmt: skip
    if decided:
        return _with_claims(decided[0], claims)
    if len(claims) != 1:
        return _several(found, claims) if claims else _first_known(found)
    (claim,) = claims.values()
    best = _first_known(found)
    return replace(
        best, decided=True, what=(claim.what,), certainty="likely", candidates=(),
        who=(Who(claim.rank, claim.host, claim.pid, claim.gpu),), reasons=(claim.reason,),
        waiting=_without(best.waiting, claim.rank),
    )  # fmt: skip


def _without(waiting: Waiting, rank: int) -> Waiting:
    which = tuple(one for one in waiting.which if one != rank)
    return replace(waiting, ranks=waiting.ranks - len(waiting.which) + len(which), which=which)


def _with_claims(verdict: Verdict, claims: Mapping[int, Claim]) -> Verdict:
    """A rank without the call is dead, where a source reports it."""
    own = [claims[w.rank] for w in verdict.who if w.rank in claims]
    if len(own) != len(verdict.who) or not set(verdict.what) & {"silent", "host_never_called"}:
        return verdict
    who = tuple(
        Who(w.rank, w.host or c.host, w.pid if w.pid is not None else c.pid, c.gpu)
        for w, c in zip(verdict.who, own, strict=True)
    )
    # One that does not answer may have ended, or only sleep.
    seen = verdict.what if {claim.what for claim in own} == {"silent"} else ()
    what = tuple(dict.fromkeys([*(claim.what for claim in own), *seen]))
    reasons = (*(claim.reason for claim in own), *verdict.reasons)
    return replace(verdict, who=who, what=what, reasons=reasons)


def _several(found: Sequence[Verdict], claims: Mapping[int, Claim]) -> Verdict:
    """Several ranks ended or answer nothing: which one came first is not known."""
    reasons = tuple(claim.reason for _, claim in sorted(claims.items()))
    return replace(_first_known(found), candidates=tuple(sorted(claims)), reasons=reasons)


def _first_known(found: Sequence[Verdict]) -> Verdict:
    return next((verdict for verdict in found if verdict.op is not None), found[0])


def _by_calls(evidence: Evidence) -> Verdict:
    known = {rank.rank: rank for rank in evidence.ranks}
    open_calls = {
        rank: call
        for rank, of in known.items()
        if (call := _first_open(rank, of.calls)) is not None
    }
    if evidence.hosts_alone and (far := _went_on(known, open_calls)):
        reason = (
            f"The logs of {_ranks(far)} differ from other logs and continue for more than "
            f"{TURNS_AHEAD} turns of the loop: lines may be lost."
        )
        return _undecided(evidence, open_calls, (), reason)
    if not open_calls:
        # Which calls the GPUs ended is not in a log: all calls found their like.
        verdict = None
        if evidence.hosts_alone:
            verdict = _judged_by_pattern(known, open_calls, set(known), _LAUNCHES)
        reason = "No rank has an incomplete call."
        return verdict or _undecided(evidence, open_calls, (), reason)
    if evidence.timed_out is False:
        reason = (
            "No call was older than its timeout when the dumps were written: the job may be "
            "running."
        )
        return _undecided(evidence, open_calls, (), reason)
    found = _walk(evidence, known, open_calls)
    involved = set(found.never_called) | set(open_calls)
    if found.different or found.never_called or found.silent or _circle(found.held_up):
        ahead = _LAUNCHES if evidence.hosts_alone else 0
        verdict = _judged_by_pattern(known, open_calls, _near(evidence, found, involved), ahead)
        if verdict is not None:
            return verdict
    if found.different:
        return _judged_by_majority(evidence, known, open_calls, found)
    return _standing_out(evidence, known, open_calls, found)


def _went_on(known: Mapping[int, RankEvidence], open_calls: Mapping[int, Call]) -> list[int]:
    """Ranks that made more calls behind a difference than a host makes that waits.

    Logs of NCCL that write opCount 0 in all lines do not show that one of them is lost, doubled or
    at another place.
    """
    found = []
    for rank, of in known.items():
        pattern = pattern_of(of.calls, len(of.calls))
        if pattern is None:
            continue
        left = None if pattern.leaving is None else pattern.leaving.call
        marks = [call for call in (open_calls.get(rank), left) if call is not None]
        first = min((of.calls.index(call) for call in marks), default=len(of.calls))
        if len(of.calls) - first > TURNS_AHEAD * pattern.period:
            found.append(rank)
    return found


def _standing_out(
    evidence: Evidence,
    known: dict[int, RankEvidence],
    open_calls: dict[int, Call],
    found: _Findings,
) -> Verdict:
    """The ranks that owe a call."""
    # A rank whose recording is damaged may be the one that the silent ones wait for; of several
    # ranks without a recording some may have lost it, and only wait. Where a rank has a call open
    # that a peer ended, what is lost may be a recording alone.
    doubtful = found.unknown or found.ended_elsewhere or len(found.silent) > 1
    silent = {} if doubtful else found.silent
    # Where logs end, their job may have been stopped: its hosts are not all at the same call.
    by_log = evidence.hosts_alone
    sure = "likely" if by_log else "certain"
    for ranks, what, certainty, reason in (
        (
            found.never_called,
            "host_never_called",
            sure,
            "made every earlier call, but not this one",
        ),
        (
            found.on_gpu,
            "gpu_not_finished",
            sure,
            "has the call open, although its peers completed it",
        ),
        (silent, "silent", "likely", f"{NO_RECORDING}, and other ranks wait for it"),
    ):
        if not ranks:
            continue
        if by_log and (2 * len(ranks) > len(known) or not _of_their_own(ranks, known)):
            break
        call = min(ranks.values(), key=lambda c: (c.group, c.seq))
        reasons = tuple(f"Rank {rank} {reason}." for rank in sorted(ranks)[:3])
        # Its host may sleep before the transfer, or have passed it over and sleep now.
        missing = what == "host_never_called" and call.op == "SendRecv"
        named = ("peer_missing", what) if missing else (what,)
        return _decided(known, open_calls, ranks, named, call, (certainty, reasons))
    return _undecided_among(evidence, open_calls, found)


def _of_their_own(ranks: Iterable[int], known: Mapping[int, RankEvidence]) -> bool:
    """Whether it is one rank, or every rank of their hosts.

    Several hosts' processes that stop at one call may all wait for a GPU of theirs.
    """
    named = set(ranks)
    hosts = {known[rank].host for rank in named if rank in known}
    others = {of.host for rank, of in known.items() if rank not in named}
    return len(named) == 1 or (None not in hosts and not hosts & others)


def _undecided_among(evidence: Evidence, open_calls: dict[int, Call], found: _Findings) -> Verdict:
    """No rank stands out: those that may be the one."""
    if found.unknown:
        reason = (
            f"The recordings of {_ranks(found.unknown)} may show what the other ranks wait for."
        )
    elif found.silent:
        reason = (
            "Several ranks have no flight-recorder dump, and other ranks wait for them: "
            f"{_ranks(found.silent)}."
        )
        return _undecided(evidence, open_calls, sorted(found.silent), reason)
    elif len(found.never_called) > 1:
        behind = sorted(found.never_called)
        reason = (
            f"{_ranks(behind).capitalize()} made fewer calls: one of their GPUs may not finish a "
            "call."
        )
        return _undecided(evidence, open_calls, behind, reason)
    else:
        reason = "All ranks whose calls are known made the same calls."
    groups = dict(evidence.groups)
    members = {rank for call in open_calls.values() for rank in groups.get(call.group, ())}
    candidates = members | {rank.rank for rank in evidence.ranks} | set(open_calls)
    if evidence.kind == "stderr" and candidates <= set(open_calls):
        # What a watchdog prints names no other member of its group.
        return _undecided(evidence, open_calls, (), f"{reason} The other ranks are not known.")
    return _undecided(evidence, open_calls, sorted(candidates), reason)


def _first_open(rank: int, calls: Iterable[Call]) -> Call | None:
    """The call in which a rank waits."""
    return next((c for c in calls if not c.completed and not only_sends(rank, c)), None)


def _walk(
    evidence: Evidence, known: dict[int, RankEvidence], open_calls: dict[int, Call]
) -> _Findings:
    groups = dict(evidence.groups)
    made = {r: {(c.group, c.seq): c for c in of.calls} for r, of in known.items()}
    reached = {r: dict(of.reached) for r, of in known.items()}
    for rank, calls in made.items():
        for group, seq in calls:
            reached[rank][group] = max(reached[rank].get(group, 0), seq)
    found = _Findings(shows_ends=evidence.kind == "dumps")
    # Ranks that wait in equal calls wait for the same members: of thousands they are asked once.
    ranks = _Ranks(set(evidence.damaged), made, reached, open_calls)
    answers: dict[tuple[object, ...], tuple[set[int], bool]] = {}
    for rank, call in open_calls.items():
        key = (call.group, call.seq, call.op, call.count, call.datatype, call.root)
        if key not in answers:
            answers[key] = _ask(found, call, groups.get(call.group, ()), ranks)
        held, ended = answers[key]
        if held:
            found.held_up[rank] = held
        if ended:
            _finished(found, rank, call)
    return found


class _Ranks(NamedTuple):
    """What is known of all ranks."""

    damaged: set[int]
    made: dict[int, dict[tuple[str, int], Call]]
    reached: dict[int, dict[str, int]]
    open_calls: dict[int, Call]


def _ask(
    found: _Findings, call: Call, members: Iterable[int], ranks: _Ranks
) -> tuple[set[int], bool]:
    """Members that are held up elsewhere, and whether one of them ended the call."""
    held: set[int] = set()
    ended = False
    silent, never_called = [], []
    for member in members:
        if member in ranks.damaged:
            found.unknown.add(member)
        elif member not in ranks.made:
            silent.append(member)
        elif (other := ranks.made[member].get((call.group, call.seq))) is not None:
            ended |= _compare(found, call, (member, other), ranks.open_calls, held)
        elif ranks.reached[member].get(call.group, 0) >= call.seq:
            ended = True  # the ring buffer holds it no more
        elif member in ranks.open_calls:
            held.add(member)
        else:
            never_called.append(member)
    for into, owing in ((found.silent, silent), (found.never_called, never_called)):
        for member in owing:
            found.owes(into, member, call, later=bool(held))
    return held, ended


def _compare(
    found: _Findings,
    call: Call,
    member: tuple[int, Call],
    open_calls: dict[int, Call],
    held: set[int],
) -> bool:
    """Whether a member ended the call; adds it to those held up elsewhere."""
    peer, other = member
    if _differs(call, other):
        found.different[call.group, call.seq] = call
    elif other.completed:
        return True
    elif peer in open_calls and open_calls[peer] is not other:
        held.add(peer)
    return False


def _finished(found: _Findings, rank: int, call: Call) -> None:
    found.ended_elsewhere.add(rank)
    if call.op in _TOGETHER and found.shows_ends:
        found.on_gpu.setdefault(rank, call)


def _differs(one: Call, other: Call) -> bool:
    return (
        one.op != other.op
        or (one.op in EQUAL_COUNTS and (one.count, one.datatype) != (other.count, other.datatype))
        or (one.op in _ROOTED and one.root != other.root)
    )


def _circle(held_up: dict[int, set[int]]) -> bool:
    """Whether ranks wait for each other in different calls."""
    done: set[int] = set()
    for start in list(held_up):
        path = [(start, iter(held_up.get(start, ())))]
        on_path = {start}
        while path:
            rank, rest = path[-1]
            following = next((r for r in rest if r not in done), None)
            if following is None:
                done.add(rank)
                on_path.discard(rank)
                path.pop()
            elif following in on_path:
                return True
            else:
                on_path.add(following)
                path.append((following, iter(held_up.get(following, ()))))
    return False


def _near(evidence: Evidence, found: _Findings, involved: set[int]) -> set[int]:
    """Ranks that can be at the root: members of the calls that differ or are owed, and circles."""
    groups = dict(evidence.groups)
    calls = [*found.different.values(), *found.never_called.values()]
    members = {rank for call in calls for rank in groups.get(call.group, ())}
    if found.silent and not members:  # one that calls more than it should may wait in any group
        return involved
    return (members or set(found.held_up)) & involved


def _judged_by_pattern(
    known: dict[int, RankEvidence],
    open_calls: dict[int, Call],
    involved: set[int],
    ahead: int,
) -> Verdict | None:
    """The one rank that leaves the pattern which all of those involved repeated before."""
    patterns = {rank: pattern_of(known[rank].calls, ahead) for rank in involved}
    leaving = {
        rank: pattern.leaving
        for rank, pattern in patterns.items()
        if pattern is not None and pattern.leaving is not None
    }
    if len(leaving) != 1 or None in patterns.values():
        return None
    ((rank, left),) = leaving.items()
    reason = f"Rank {rank} had repeated one sequence of calls, and departed from it at this call."
    if others := involved - {rank}:
        theirs = "its sequence" if len(others) == 1 else "their sequences"
        reason += f" {_ranks(others).capitalize()} kept to {theirs}."
    differ = _values(known, left.call) if "different_call" in left.what else ()
    return _decided(known, open_calls, [rank], left.what, left.call, ("likely", (reason, *differ)))


def _judged_by_majority(
    evidence: Evidence,
    known: dict[int, RankEvidence],
    open_calls: dict[int, Call],
    found: _Findings,
) -> Verdict:
    (group, seq), call = min(found.different.items())
    calls = {
        rank: c for rank, of in known.items() for c in of.calls if (c.group, c.seq) == (group, seq)
    }
    marks = {
        rank: (c.op, c.root, *((c.count, c.datatype) if c.op in EQUAL_COUNTS else ()))
        for rank, c in calls.items()
    }
    ((common, times),) = Counter(marks.values()).most_common(1)
    # A printed line is no record: what contradicts others may be a damaged copy.
    if 2 * times > len(marks) and times > 1 and evidence.kind != "stderr":
        minority = [rank for rank, mark in marks.items() if mark != common]
        differ = "differs" if len(minority) == 1 else "differ"
        reason = f"{times} of {len(marks)} members make the same call; {_ranks(minority)} {differ}."
        values = _values(known, call)
        return _decided(
            known,
            open_calls,
            minority,
            ("different_call",),
            calls[minority[0]],
            ("certain", (reason, *values)),
        )
    reason = f"The members of the group differ in call {call.seq}, and there is no majority."
    return _undecided(
        evidence, open_calls, sorted(marks), " ".join((reason, *_values(known, call)))
    )


def _values(known: Mapping[int, RankEvidence], call: Call) -> tuple[str, ...]:
    """What the ranks of a group hand in at a call, where they differ: a sentence."""
    made: dict[str, list[int]] = defaultdict(list)
    for rank, of in sorted(known.items()):
        for own in of.calls:
            if (own.group, own.seq) == (call.group, call.seq):
                made[_value(own)].append(rank)
    if len(made) < 2:
        return ()
    shown = "; ".join(
        f"{_ranks(ranks)} called {value}" for value, ranks in list(made.items())[:_VALUES]
    )
    return (f"As call {call.seq} of the group, {shown}.",)


def _value(call: Call) -> str:
    parts = [call.op]
    if call.op in EQUAL_COUNTS:
        parts += [] if call.count is None else [f"{call.count:,} elements"]
        parts += [] if call.datatype is None else [call.datatype]
    if call.op in _ROOTED and call.root is not None:
        parts.append(f"root {call.root}")
    return " ".join(parts[:1]) + "".join(f", {part}" for part in parts[1:])


def _waiting(open_calls: dict[int, Call], who: Iterable[int]) -> Waiting:
    guilty = set(who)
    groups = dict.fromkeys(call.group for r, call in open_calls.items() if r not in guilty)
    waiting = tuple(sorted(set(open_calls) - guilty))
    return Waiting(len(waiting), tuple(groups), waiting)


def _caller(
    call: Call, open_calls: Mapping[int, Call], ranks: Iterable[RankEvidence | None]
) -> int | None:
    """The rank whose host made a call; equal calls of other ranks have other frames."""
    if not call.frames:
        return None
    waits = next((rank for rank, own in open_calls.items() if own is call), None)
    if waits is not None:
        return waits
    return next((of.rank for of in ranks if of and any(own is call for own in of.calls)), None)


def _decided(
    known: dict[int, RankEvidence],
    open_calls: dict[int, Call],
    ranks: Iterable[int],
    what: tuple[str, ...],
    call: Call,
    reason: tuple[str, tuple[str, ...]],
) -> Verdict:
    who = tuple(
        Who(rank, of.host, of.pid, of.gpu) if (of := known.get(rank)) else Who(rank)
        for rank in sorted(ranks)
    )
    first = known.get(who[0].rank)
    done = [c for c in first.calls if c.completed] if first is not None else []
    return Verdict(
        decided=True,
        who=who,
        what=what,
        group=call.group,
        seq=call.seq,
        op=call.op,
        since=call.time_ns,
        waiting=_waiting(open_calls, (w.rank for w in who)),
        certainty=reason[0],
        candidates=(),
        reasons=reason[1],
        frames=call.frames,
        frames_rank=_caller(call, open_calls, (known.get(w.rank) for w in who)),
        last_completed=f"{done[-1].op} {done[-1].seq} of group {done[-1].group}" if done else None,
    )


def _undecided(
    evidence: Evidence, open_calls: dict[int, Call], candidates: Iterable[int], reason: str
) -> Verdict:
    call = min(open_calls.values(), key=lambda c: (c.group, c.seq), default=None)
    return Verdict(
        decided=False,
        who=(),
        what=(),
        group=call.group if call else None,
        seq=call.seq if call else None,
        op=call.op if call else None,
        since=call.time_ns if call else None,
        waiting=_waiting(open_calls, ()),
        certainty=None,
        candidates=tuple(candidates),
        reasons=(
            reason,
            *((f"No flight-recorder dump: {_ranks(evidence.silent)}.",) if evidence.silent else ()),
            *((f"Damaged and not used: {_ranks(evidence.damaged)}.",) if evidence.damaged else ()),
        ),
        frames=call.frames if call else (),
        frames_rank=_caller(call, open_calls, ()) if call else None,
    )


def _ranks(ranks: Iterable[int]) -> str:
    listed = sorted(ranks)
    more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
    return f"{'rank' if len(listed) == 1 else 'ranks'} {', '.join(map(str, listed[:8]))}{more}"
