"""Kernels that a rank has more of than the others, or that take it longer (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import hypot

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collscope.model.trace import Kind
from collscope.timeline.graph import FIRST
from collscope.timeline.overlap import covered, union
from collscope.timeline.queued_idle import queued_idle
from collscope.timeline.step_causes.job import Job
from collscope.timeline.step_causes.records import Candidate, Change, Evidence
from collscope.timeline.step_causes.tolerances import (
    MAX_OTHER_KERNELS,
    MAX_REPLACED,
    MIN_ALIKE_COPIES,
    MIN_CAUSE_COST,
    MIN_KERNELS_OF_A_KIND,
    MIN_LONGER,
    MIN_MOVING,
    MIN_RECURRENCES,
    MIN_REGULAR,
    MIN_TURNS,
    OUT_OF_CACHE_NS,
    STEADY,
)
from collscope.timeline.step_causes.waits import (
    inside_steps,
    pageable_copies,
    sync_nodes,
    usual_call,
)
from collscope.timeline.tolerances import MAX_BESIDE_ALONE, MAX_QUEUED_IDLE_NS, STARTS

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def extra_work(job: Job) -> Iterator[Candidate]:
    """Ranks that run kernels which another rank has not at that place of the step."""
    if stages(job):
        return
    turns, slow = _in_turns(job) is not None, pageable_copies(job)
    for trace in job.traces:
        other = job.like(trace)
        if other is None:
            continue
        more, less = _unpaired(job, trace, other), _unpaired(job, other, trace)
        spent = [_in_steps(job, rows, job.duration) for rows in (more, less)]
        some = () if turns else _some_steps(job, spent[0] - spent[1])
        if some:
            more, less = (rows[np.isin(job.step_of_row[rows], some)] for rows in (more, less))
        else:
            more = more[~slow[more]]  # a cause by themselves
        ours, theirs = float(job.duration[more].sum()), float(job.duration[less].sum())
        if ours <= theirs or not ours:
            continue
        # Other kernels at the same place do the same work: what they take stays.
        scale, host = np.ones(len(job.rows)), np.zeros(len(job.rows))
        scale[more] = theirs / ours
        host[more] = job.interval[more] * (1 - theirs / ours)
        behind, longer = _pauses_behind(job, trace, other, more)
        host[behind] = longer
        name = _longest(job, more)
        waits = np.zeros(len(job.graph.time), dtype=bool)
        for node in sync_nodes(job, trace).tolist():
            held = job.graph.lasted[1:, node]
            held = held[held >= 0]
            waits[node] = bool(len(held)) and bool(np.isin(held, more).all())
        steps = some or tuple(range(job.count))
        inside = (job.rows.name == name) & np.isin(job.step_of_row, steps)
        count = [float((inside & (job.rows.trace == t)).sum()) / len(steps) for t in (trace, other)]
        every = bool(some) or _every_step(job, more)
        added = len(less) < MAX_REPLACED * len(more)
        beside = more if added else more[:0]
        late = _held_up(job, trace, beside)
        evidence = Evidence("extra_kernels", job.rows.names[name] if name >= 0 else "",
                            count=count[0], usual=count[1], ms=(ours - theirs) / len(steps) / 1e6,
                            detail=_which(job, some))  # fmt: skip
        nodes = inside_steps(job, np.flatnonzero(waits))
        reads = not some and _only_reads(job, trace, more, nodes)
        if reads:
            evidence = Evidence("blocking_calls", usual_call(job, nodes),
                                count=len(nodes) / job.count)  # fmt: skip
        yield Candidate(
            "periodic" if some else "blocking_sync" if reads else "extra_work",
            (job.rows.ranks[trace],), "calls" if reads else "kernels", evidence,
            changes=tuple(
                Change(
                    duration=scale * _beside_extra(job, trace, other, beside, alone),
                    host_ns=host, waits=waits, prompt=late,
                )
                for alone, _ in job.contention
            ),
            counted=True, some=some, exact=added and every, at_power_cap=reads,
        )  # fmt: skip


def _only_reads(job: Job, trace: int, more: Ints, nodes: Ints) -> bool:
    """Whether extra rows only make values that the host waits for: each stands before such a copy,
    and what they last is no cause by itself.

    nodes  waits for extra rows
    """
    if job.duration[more].sum() > MIN_CAUSE_COST * job.lengths.sum():
        return False
    extra = set(more.tolist())
    read = {
        r for r in job.graph.lasted[1:, nodes].ravel().tolist() if job.rows.kind[r] == Kind.COPY
    }
    found, before = 0, False
    for row in reversed(job.launched(trace).tolist()):
        before = row in extra and (before or row in read)
        found += before
    return found >= MIN_ALIKE_COPIES * len(extra)


def _held_up(job: Job, trace: int, more: Ints) -> Bools:
    """(rows,) kernels that wait for no known cause while extra kernels of other streams run.

    A kernel whose blocks take all multiprocessors holds up those of other streams until it is done.
    """
    found = np.zeros(len(job.rows), dtype=bool)
    for rows, extra in _with_other_streams(job, trace, more):
        start = job.rows.start[rows]
        waited = job.graph.unexplained_ns[:, job.graph.start_node[rows] - FIRST].max(axis=0)
        held = covered(*extra, start) - covered(*extra, start - waited)
        found[rows] = held > MIN_REGULAR * waited
    return found


def _beside_extra(job: Job, trace: int, other: int, more: Ints, alone: Floats) -> Floats:
    """(rows,) what a rank's kernels would take of their time without extra kernels beside them.

    As long as on the other rank. But a kernel gets on for all the time in which nothing extra is
    beside it, and needs that time at least.

    alone  (rows,) ns of each with nothing beside it, by one reading
    """
    own, partner = _pairs(job, trace, other)
    there = np.zeros(len(job.rows))
    there[own] = alone[partner]
    scale = np.ones(len(job.rows))
    for rows, extra in _with_other_streams(job, trace, more):
        paired = rows[there[rows] > 0]
        start, end = job.rows.start[paired], job.rows.end[paired]
        least = 1 - (covered(*extra, end) - covered(*extra, start)) / np.maximum(end - start, 1)
        as_there = there[paired] / np.maximum(alone[paired], 1)
        scale[paired] = np.clip(as_there, least, 1)
    return scale


def _with_other_streams(
    job: Job, trace: int, more: Ints
) -> Iterator[tuple[Ints, tuple[Ints, Ints]]]:
    """Kernels of each stream of a rank that are not extra ones, and when extra kernels of its other
    streams run: their starts and ends."""
    extra = np.zeros(len(job.rows), dtype=bool)
    extra[more] = job.compute[more]
    own = np.arange(len(job.rows))[job.rows.of(trace)]
    for stream in np.unique(job.rows.stream[own]).tolist():
        on_stream = job.rows.stream[own] == stream
        usual = own[on_stream & ~extra[own] & (job.rows.kind[own] == Kind.KERNEL)]
        others = own[~on_stream & extra[own]]
        others = others[np.argsort(job.rows.start[others], kind="stable")]
        if len(usual) and len(others):
            yield usual, union(job.rows.start[others], job.rows.end[others])


def _every_step(job: Job, rows: Ints) -> bool:
    """Whether rows take about as much time in every step."""
    spent = _in_steps(job, rows, job.duration)
    return job.count >= MIN_RECURRENCES and bool(spent.min() > MIN_REGULAR * spent.mean())


def _pauses_behind(job: Job, trace: int, other: int, more: Ints) -> tuple[Ints, Floats]:
    """Rows right behind extra ones for whose launch the host takes far longer than another's, and
    how much longer: it writes a file, say, of what it has copied."""
    own, partner = job.beside(trace, other)
    follows = np.append(False, np.isin(own[:-1], more)) & (partner >= 0)
    behind, there = own[follows], partner[follows]
    longer = job.interval[behind] - job.interval[there]
    far = longer > job.stretched
    return behind[far], longer[far]


def _in_steps(job: Job, rows: Ints, ns: Floats) -> Floats:
    """(steps,) what rows take in each whole step."""
    found = np.zeros(job.count)
    np.add.at(found, job.step_of_row[rows], ns[rows])
    return found


def _some_steps(job: Job, spent: Floats, between_gpus: Floats | float = 0.0) -> tuple[int, ...]:
    """Whole steps that have work which the others lack; empty: all have it, or it is little.

    spent         (steps,) ns of that work
    between_gpus  (steps,) ns of it that two GPUs may differ by, since the clocks of both vary
    """
    least = np.maximum(MIN_LONGER * spent.max(), between_gpus)
    has, lacks = spent > MIN_REGULAR * spent.max(), spent < least
    matters = spent[has].sum() > MIN_CAUSE_COST * job.lengths.sum()
    known = matters and lacks.any() and bool((has | lacks).all())
    return tuple(np.flatnonzero(has).tolist()) if known else ()


def _which(job: Job, some: tuple[int, ...]) -> str:
    """How many steps have it; empty: all."""
    return f"{len(some)} of {job.count}" if some else ""


def stages(job: Job) -> bool:
    """Whether the ranks are stages of a pipeline, each with work of its own.

    They only exchange. Or most of their calls are exchanges, and one rank comes to its first
    exchange of a step without most of the kernels that another runs before its own: it waits for
    the stage before it.
    """
    calls = np.flatnonzero((job.rows.entry >= 0) & (job.step_of_row >= 0))
    exchanges = job.point_to_point[calls]
    if not len(calls) or exchanges.all():
        return bool(len(calls))
    return bool(2 * exchanges.sum() > len(calls)) and _begins_elsewhere(job)


def _begins_elsewhere(job: Job) -> bool:
    """Whether in most steps a rank runs few kinds of the kernels that another runs before its first
    exchange, until it comes to its own. The first step may lack its first rows."""
    found = 0
    for step in range(job.count):
        kinds = []
        for trace in job.traces:
            order = job.in_step(trace, step)
            first = np.flatnonzero(job.point_to_point[order])[:1]
            before = order[: int(first[0])] if len(first) else order
            kinds.append(set(job.rows.name[before[job.compute[before]]].tolist()))
        most = max(kinds, key=len)
        found += any(2 * len(most & kind) < len(most) for kind in kinds)
    return 2 * found > job.count


def _longest(job: Job, rows: Ints) -> int:
    """Name (its number) of the kernel that takes the most time of some rows."""
    spent: Counter[int] = Counter()
    for row in rows.tolist():
        spent[int(job.rows.name[row])] += int(job.duration[row])
    return spent.most_common(1)[0][0]


def _unpaired(job: Job, trace: int, other: int, some: tuple[int, ...] = ()) -> Ints:
    """Kernels and copies of a rank's whole steps, or of some, that the other has not."""
    own, partner = job.beside(trace, other)
    rows = own[(partner < 0) & _within(job, own, some)]
    return rows[job.rows.entry[rows] < 0]


def _within(job: Job, rows: Ints, some: tuple[int, ...]) -> Bools:
    """Whether rows are in some of the steps; empty: in any."""
    return np.isin(job.step_of_row[rows], some) if some else np.ones(len(rows), dtype=bool)


def longer_kernels(job: Job) -> Iterator[Candidate]:
    """Ranks on which the same kernels take longer than on another, and what replaces some of them.

    More work makes a kernel longer by as much in every step, and those that only move data, too.
    What shares its GPU, or slows that down, makes it longer now and then, or those alone that need
    the arithmetic units.
    """
    if stages(job) or any(job.like(t) is None for t in job.traces):
        return
    turns = _in_turns(job)
    if turns is not None:
        yield turns
        return
    for trace in job.traces:
        other = job.like(trace)
        assert other is not None
        own, partner = _pairs(job, trace, other)
        longer, theirs = job.duration[own], job.duration[partner]
        taken = taken_by_others(job, trace, other)
        if taken.sum() > MIN_CAUSE_COST * job.lengths.sum():
            yield _shared_gpu(job, trace, other, taken)
            continue
        in_some = _longer_in_some(job, trace, other)
        if in_some is not None:
            yield in_some
            continue
        if not len(own) or longer.sum() <= theirs.sum():
            continue
        kinds, number = np.unique(job.rows.name[own], return_inverse=True)
        a, b = (np.bincount(number, v, minlength=len(kinds)) for v in (longer, theirs))
        most = int((a - b).argmax())
        recurs = all(_recurs(job, own, partner, alone) for alone, _ in job.contention)
        replaced = all(_replaced(job, trace, other, alone) for alone, _ in job.contention)
        uneven = replaced or (
            recurs and all(_uneven(job, own, partner, alone) for alone, _ in job.contention)
        )
        if not uneven and not _only_longer(longer - theirs):
            continue
        uneven |= recurs and all(
            _at_some_places(job, own, partner, alone) for alone, _ in job.contention
        )
        if uneven:
            slower_clock = not replaced and any(
                _moves_as_much(job, own, partner, alone) for alone, _ in job.contention
            )
            certain = recurs and not slower_clock
        else:
            certain = not recurs or _by_clock(job, own, longer - theirs)
        others = () if uneven else _calls_too(job, trace, other)
        # Ranks exchange what they work on: of what one has more, another may have less.
        if uneven and job.exchange[job.step_of_row >= 0].any():
            others = tuple(_shared_out(job, trace, other, alone) for alone, _ in job.contention)
        yield Candidate(
            "uneven_work" if uneven else "slow_gpu", (job.rows.ranks[trace],), "kernels",
            Evidence("longer_kernels", job.rows.names[int(kinds[most])],
                     count=float((number == most).sum()) / job.count,
                     ms=float((longer - theirs).sum()) / job.count / 1e6,
                     usual=float(a[most] / max(b[most], 1))),
            changes=tuple(
                Change(duration=_as_there(job, trace, other, alone, unpaired=uneven))
                for alone, _ in job.contention
            ),
            others=others, between_gpus=STARTS,
            certain=certain, counted=not uneven,
        )  # fmt: skip


def _longer_in_some(job: Job, trace: int, other: int) -> Candidate | None:
    """A rank with more of the same work in some steps; None: it has none, or in all."""
    known = set()
    for alone, _ in job.contention:
        own, partner = _pairs(job, trace, other)
        more, less = _unpaired(job, trace, other), _unpaired(job, other, trace)
        theirs = _in_steps(job, partner, alone) + _in_steps(job, less, alone)
        spent = _in_steps(job, own, alone) + _in_steps(job, more, alone) - theirs
        some = _some_steps(job, spent, hypot(STARTS, STARTS) * theirs)
        part = list(some)
        known.add(some if spent[part].sum() > MIN_LONGER * theirs[part].sum() else ())
    some = known.pop()
    if known or not some:
        return None
    own, partner = _pairs(job, trace, other, some)
    if not len(own):
        return None
    uneven = all(_replaced(job, trace, other, alone, some) for alone, _ in job.contention) or all(
        _uneven(job, own, partner, alone) for alone, _ in job.contention
    )
    if not uneven:
        return None
    others: tuple[Change, ...] = ()
    if job.exchange[job.step_of_row >= 0].any():
        others = tuple(_shared_out(job, trace, other, alone, some) for alone, _ in job.contention)
    longer, theirs = job.duration[own], job.duration[partner]
    kinds, number = np.unique(job.rows.name[own], return_inverse=True)
    a, b = (np.bincount(number, v, minlength=len(kinds)) for v in (longer, theirs))
    most = int((a - b).argmax())
    return Candidate(
        "uneven_work", (job.rows.ranks[trace],), "kernels",
        Evidence("longer_kernels", job.rows.names[int(kinds[most])],
                 count=float((number == most).sum()) / len(some),
                 ms=float((longer - theirs).sum()) / len(some) / 1e6,
                 usual=float(a[most] / max(b[most], 1)), detail=_which(job, some)),
        changes=tuple(
            Change(duration=_as_there(job, trace, other, alone, unpaired=True, some=some))
            for alone, _ in job.contention
        ),
        others=others, counted=True, some=some,
    )  # fmt: skip


def _only_longer(difference: Floats) -> bool:
    """Whether few kernels are shorter than on another rank: a slow GPU makes none of them so.

    Where data decide what each rank does in a step, many are.
    """
    shorter = -float(np.minimum(difference, 0.0).sum())
    return shorter <= MIN_REGULAR * float(np.maximum(difference, 0.0).sum())


def taken_by_others(job: Job, trace: int, other: int) -> Floats:
    """(rows,) ns before rows of a rank in which its GPU runs nothing that was launched, but what
    another process launched.

    Such a process takes its turns at any place. Where rows of the trace are missing or too short,
    the GPU seems idle at the same place of most steps, or of every rank, or beside rows that
    another rank has.
    """
    idle = np.zeros(len(job.rows))
    for of in (trace, other):
        rows = job.rows.of(of)
        idle[rows] = queued_idle(job.rows.start[rows], job.rows.end[rows], job.rows.launch[rows])
    idle[(idle <= MAX_QUEUED_IDLE_NS) | (job.step_of_row < 0)] = 0.0
    own, place = job.beside_last(trace)
    known = place >= 0
    at_place = np.bincount(place[known & (idle[own] > 0)], minlength=len(job.rows))
    moves = np.zeros(len(job.rows), dtype=bool)
    moves[own[known]] = 2 * at_place[place[known]] <= job.count
    own, partner = job.beside(trace, other)
    complete = np.append(False, (partner[1:] >= 0) & (partner[:-1] >= 0))
    alone = np.zeros(len(job.rows), dtype=bool)
    alone[own[complete]] = idle[partner[complete]] == 0
    found = np.where(moves & alone, idle, 0.0)
    all_idle = float(idle[job.rows.of(trace)].sum())
    count = np.bincount(job.step_of_row[found > 0], minlength=job.count)
    often = count.min() >= 1 and count.mean() >= MIN_TURNS
    return found if often and found.sum() > MIN_MOVING * all_idle else np.zeros(len(job.rows))


def _shared_gpu(job: Job, trace: int, other: int, taken: Floats) -> Candidate:
    """A rank whose GPU another process uses, too: it waits for its turn, and lasts longer."""
    inside = (taken > 0) & (job.step_of_row >= 0)
    own = [_as_there(job, trace, other, alone, unpaired=False) for alone, _ in job.contention]
    calls = [replace(change, prompt=taken > 0) for change in _calls_too(job, trace, other)]
    return Candidate(
        "slow_gpu", (job.rows.ranks[trace],), "kernels",
        Evidence("taken", count=float(inside.sum()) / job.count, usual=float(taken.max()) / 1e6,
                 ms=float(taken.sum()) / job.count / 1e6),
        changes=tuple(Change(duration=scale, prompt=taken > 0) for scale in own),
        others=tuple(calls), counted=True, exact=True, direct=True,
    )  # fmt: skip


def _calls_too(job: Job, trace: int, other: int) -> tuple[Change, ...]:
    """The same with transfers, which a slow GPU makes longer, as the shortest of their class."""
    calls, transfer = job.calls, job.graph.transfer.astype(np.float64)
    if not len(calls):
        return ()
    class_ = calls.class_[calls.call_of_part]
    least = np.full(len(calls.classes), np.inf)
    np.minimum.at(least, class_, transfer)
    kept = np.where(transfer > 0, least[class_] / np.maximum(transfer, 1), 1.0)
    alone = job.contention[0][0]
    scale = _as_there(job, trace, other, alone, unpaired=False)
    return (Change(duration=scale, transfer=np.clip(kept, 0, 1)),)


def _as_there(
    job: Job,
    trace: int,
    other: int,
    alone: Floats,
    *,
    unpaired: bool,
    some: tuple[int, ...] = (),
) -> Floats:
    """(rows,) what a rank's kernels would take of their time if they lasted as another's.

    unpaired  other kernels at the same place do the same work, on more of it
    some      in these steps; empty: in all
    """
    own, partner = _pairs(job, trace, other, some)
    scale = np.ones(len(job.rows))
    scale[own] = np.where(alone[own] > 0, alone[partner] / np.maximum(alone[own], 1), 1)
    if unpaired:
        more, less = _unpaired(job, trace, other, some), _unpaired(job, other, trace, some)
        ours, theirs = float(alone[more].sum()), float(alone[less].sum())
        if ours > theirs:
            scale[more] = theirs / ours
    return scale


def _shared_out(
    job: Job, trace: int, other: int, alone: Floats, some: tuple[int, ...] = ()
) -> Change:
    """What a rank has more to do than another, shared out to all of them."""
    scale = _as_there(job, trace, other, alone, unpaired=True, some=some)
    part = 1 / len(job.traces)
    more = np.where(job.rows.trace == trace, alone * (1 - scale), 0.0) * part  # for each rank
    scale = 1 - (1 - scale) * (1 - part)
    for to in job.traces:
        if to == trace:
            continue
        own, partner = _pairs(job, trace, to, some)
        scale[partner] += more[own] / np.maximum(alone[partner], 1)
        left, takes = _unpaired(job, trace, to, some), _unpaired(job, to, trace, some)
        scale[takes] += float(more[left].sum()) / max(1.0, float(alone[takes].sum()))
    return Change(duration=scale)


def _pairs(job: Job, trace: int, other: int, some: tuple[int, ...] = ()) -> tuple[Ints, Ints]:
    """Kernels of a rank's whole steps, or of some, and what another runs at the same places."""
    own, partner = job.beside(trace, other)
    good = (partner >= 0) & job.compute[own] & _within(job, own, some)
    return own[good], partner[good]


def _recurs(job: Job, own: Ints, partner: Ints, alone: Floats) -> bool:
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


def _replaced(job: Job, trace: int, other: int, alone: Floats, some: tuple[int, ...] = ()) -> bool:
    """Whether ranks run other kernels at the same places: libraries do for other sizes.

    Larger sizes make the kernels longer that stay, too. A rank with more kernels than the other
    one, and no longer ones, has extra work, whatever they run in the place of each other.
    """
    more, less = _unpaired(job, trace, other, some), _unpaired(job, other, trace, some)
    own, partner = _pairs(job, trace, other, some)
    ours, theirs = float(alone[own].sum()), float(alone[partner].sum())
    if len(more) > len(less) and ours <= (1 + STARTS) * theirs:
        return False
    unlike = min(float(alone[rows].sum()) for rows in (more, less))
    return unlike > MAX_OTHER_KERNELS * ours


def _uneven(job: Job, own: Ints, partner: Ints, alone: Floats) -> bool:
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


def _at_some_places(job: Job, own: Ints, partner: Ints, alone: Floats) -> bool:
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


def _moves_as_much(job: Job, own: Ints, partner: Ints, alone: Floats) -> bool:
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


def _by_clock(job: Job, own: Ints, difference: Floats) -> bool:
    """Whether those are longer that a lower clock makes so, rather than those that move data."""
    follows = job.follows_clock[own]
    return float(difference[follows].sum()) > MIN_REGULAR * float(difference.sum())


def _in_turns(job: Job) -> Candidate | None:
    """Ranks that have more to do in turns; None: one rank has, or mostly has."""
    if job.count < 2:
        return None
    work = np.array([
        [float(job.duration[job.in_step(t, s)].sum()) for t in job.traces] for s in range(job.count)
    ])  # fmt: skip
    longest = work.argmax(axis=1)
    excess = work.max(axis=1) / np.maximum(work.min(axis=1), 1) - 1
    most = np.zeros(len(job.traces))
    np.maximum.at(most, longest, excess)
    first, second = np.sort(most)[[-1, -2]] if len(most) > 1 else (0.0, 0.0)
    in_each = len(set(longest.tolist())) > 1 and bool((excess >= MIN_LONGER).all())
    if not in_each and second < max(MIN_LONGER, MIN_REGULAR * first):
        return None
    mean = work.mean(axis=1, keepdims=True)
    scale = np.ones(len(job.rows))
    for column, trace in enumerate(job.traces):
        for step in range(job.count):
            rows = job.in_step(trace, step)
            scale[rows] = mean[step] / work[step, column]
    return Candidate(
        "uneven_work", (), "kernels",
        Evidence("turns", ms=float((work.max(axis=1) - mean[:, 0]).mean()) / 1e6,
                 count=float(excess.mean())),
        changes=(Change(duration=scale),), counted=True,
    )  # fmt: skip
