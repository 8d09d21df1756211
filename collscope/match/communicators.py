"""Handles of all processes joined into communicators (pure).

In order of trust: the commId that INIT lines print, the split lineage (parent, splitCount,
colour), the rank that RCCL's COLL lines or older INIT lines give, and, last, equal sequences of
calls ("inferred").
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from collscope.match.handles import has_init_lines
from collscope.model.comm_handle import CommHandle, Process

_NO_CALLS = 0  # digest of an empty sequence


class Communicator(msgspec.Struct, frozen=True):
    """A set of ranks; `members` maps a rank to the index of its handle."""

    nranks: int | None
    members: dict[int, int]
    matched_by: str  # commId, parent/color, globalrank, inferred
    nnodes: int | None = None
    parent: int | None = None  # index of the communicator it was split from
    comm_hash: int | None = None
    color: int | None = None
    name: str | None = None  # what the program calls it


def join_communicators(
    handles: Sequence[CommHandle], processes: Sequence[Process], digests: Sequence[int]
) -> list[Communicator]:
    """Communicators of one run.

    handles  of all sources; `CommHandle.process` indexes `processes`
    digests  per handle a hash of its sequence of collective calls (0: none), to separate
             communicators that only inference can join
    """
    order = sorted(range(len(handles)), key=lambda i: (handles[i].process, handles[i].first_line))
    joiner = _Joiner(handles, processes, digests)
    excess = set(claimed_twice(handles, processes))
    for i in order:
        if handles[i].comm_hash is not None and i not in excess:
            joiner.by_key(i, ("commId", handles[i].comm_hash, handles[i].nranks), "commId")
    order = [i for i in order if i not in excess]
    joiner.by_lineage([i for i in order if handles[i].parent_ptr is not None])
    joiner.into_gaps([i for i in order if i not in joiner.comm_of])
    rest = [i for i in order if i not in joiner.comm_of]
    joiner.by_rank([i for i in rest if handles[i].rank is not None])
    joiner.by_sequence(joiner.within_process([i for i in rest if handles[i].rank is None]))
    return [_finish(c, handles, processes, joiner) for c in joiner.comms]


def ranks_by_calls(handles: Sequence[CommHandle], comms: Sequence[Communicator]) -> list[int]:
    """Handles without INIT lines that took the place which a communicator of such lines lacked."""
    return [
        i
        for comm in comms
        if comm.matched_by in ("commId", "parent/color")
        for i in comm.members.values()
        if not has_init_lines(handles[i])
    ]


def claimed_twice(handles: Sequence[CommHandle], processes: Sequence[Process]) -> list[int]:
    """Handles whose rank of a communicator an earlier process has: of no communicator.

    A commId is random, so that no two communicators of a run have one; a process that joins again
    under its own host and pid is another matter (see `collscope.match.copies`).
    """
    first: dict[tuple[int | None, int | None, int | None], tuple[str, int | None]] = {}
    found = []
    for i in sorted(range(len(handles)), key=lambda i: (handles[i].process, handles[i].first_line)):
        handle = handles[i]
        if handle.comm_hash is None or handle.rank is None:
            continue
        host, pid, _ = processes[handle.process]
        known = first.setdefault((handle.comm_hash, handle.nranks, handle.rank), (host, pid))
        if None not in (pid, known[1]) and known != (host, pid):
            found.append(i)
    return found


def _only_gap(comm: Communicator) -> int | None:
    """The one rank of a communicator that no log has; None: none, or several."""
    if comm.nranks is None or len(comm.members) != comm.nranks - 1:
        return None
    return next((rank for rank in range(comm.nranks) if rank not in comm.members), None)


class _Joiner:
    """Communicators under construction."""

    def __init__(
        self,
        handles: Sequence[CommHandle],
        processes: Sequence[Process],
        digests: Sequence[int],
    ) -> None:
        self.handles = handles
        self.processes = processes
        self.digests = digests
        self.comms: list[Communicator] = []
        self.comm_of: dict[int, int] = {}
        self.instances: dict[Hashable, list[int]] = defaultdict(list)
        self.pointers: dict[tuple[int, int], list[int]] = defaultdict(list)
        for i, s in enumerate(handles):
            self.pointers[s.process, s.comm_ptr].append(i)

    def add(self, comm: int, rank: int, handle: int) -> None:
        self.comms[comm].members[rank] = handle
        self.comm_of[handle] = comm

    def open(self, handle: int, matched_by: str) -> int:
        s = self.handles[handle]
        self.comms.append(Communicator(s.nranks, {}, matched_by, color=s.color))
        return len(self.comms) - 1

    def by_key(self, i: int, key: Hashable, matched_by: str) -> None:
        """Join handle `i` to those of equal key; a rank seen again is of the next communicator."""
        rank = self.handles[i].rank or 0
        comms = self.instances[key]
        free = next((c for c in comms if rank not in self.comms[c].members), None)
        if free is None:
            free = self.open(i, matched_by)
            comms.append(free)
        self.add(free, rank, i)

    def by_lineage(self, indices: list[int]) -> None:
        """Join splits whose lines carry no commId by parent communicator, count and colour."""
        ordinals: dict[tuple[int, int | None], int] = defaultdict(int)
        waiting = [i for i in indices if i not in self.comm_of]
        numbered: dict[int, int] = {}
        for i in waiting:
            s = self.handles[i]
            parent = self.parent_handle(i)
            ordinals[parent if parent is not None else -1, s.process] += 1
            numbered[i] = ordinals[parent if parent is not None else -1, s.process]
        progress = True
        while waiting and progress:
            ready = [i for i in waiting if self.parent_handle(i) in self.comm_of]
            for i in ready:
                self.by_key(i, self._lineage_key(i, numbered[i]), "parent/color")
            progress = bool(ready)
            waiting = [i for i in waiting if i not in self.comm_of]

    def _lineage_key(self, i: int, ordinal: int) -> Hashable:
        s = self.handles[i]
        parent = self.parent_handle(i)
        count = s.split_count if s.split_count is not None else ordinal
        return (self.comm_of[parent] if parent is not None else None, count, s.color, s.nranks)

    def parent_handle(self, i: int) -> int | None:
        """CommHandle of the communicator that handle `i` was split from, in the same process."""
        s = self.handles[i]
        if s.parent_ptr is None:
            return None
        candidates = [
            j
            for j in self.pointers.get((s.process, s.parent_ptr), ())
            if self.handles[j].first_line < s.first_line
        ]
        return max(candidates, key=lambda j: self.handles[j].first_line, default=None)

    def into_gaps(self, indices: list[int]) -> None:
        """Join handles whose INIT lines were lost to the communicators that lack one rank.

        That is sure enough where one handle and one communicator fit each other alone: as many
        ranks, the same calls, and no member of that process.
        """
        lost = [
            i
            for i in indices
            if not has_init_lines(self.handles[i]) and self.digests[i] != _NO_CALLS
        ]
        gaps = {c: gap for c, comm in enumerate(self.comms) if (gap := _only_gap(comm)) is not None}
        fitting = {i: [c for c, gap in gaps.items() if self._fits_gap(i, c, gap)] for i in lost}
        wanted = Counter(c for found in fitting.values() for c in found)
        for i, found in fitting.items():
            if len(found) == 1 and wanted[found[0]] == 1:
                self.add(found[0], gaps[found[0]], i)

    def _fits_gap(self, i: int, comm: int, gap: int) -> bool:
        handle, members = self.handles[i], self.comms[comm].members.values()
        return (
            handle.nranks == self.comms[comm].nranks
            and handle.rank in (None, gap)
            and {self.digests[i]} == {self.digests[m] for m in members}
            and all(self.handles[m].process != handle.process for m in members)
        )

    def by_rank(self, indices: list[int]) -> None:
        """Join handles whose rank is known but not their communicator.

        Processes come by the rank they had first, which is their rank in the job: neighbours are
        taken together, however the logs in one file are interleaved.
        """
        first: dict[int, int] = {}
        for i in indices:
            first.setdefault(self.handles[i].process, self.handles[i].rank or 0)
        indices = sorted(indices, key=lambda i: first[self.handles[i].process])
        for nranks, ordinal, group in self._by_shape(indices):
            clash = len({self.handles[i].rank for i in group}) < len(group)
            how = "inferred" if clash or ordinal else "globalrank"
            if nranks == 1:
                how = "globalrank"
            for job in self._one_after_the_other(group) if clash else [group]:
                self._fill(job, how)

    def _one_after_the_other(self, group: list[int]) -> list[list[int]]:
        """Handles of jobs whose lines follow each other in one log; all where that is not so.

        The lines of a job's processes overlap. Those of two jobs form blocks, each with every rank
        at most once, and their process ids are apart, too: the blocks of one job's small groups,
        which may look alike, mostly have theirs in between.
        """
        if len({self.processes[self.handles[i].process].source for i in group}) > 1:
            return [group]
        blocks: list[list[int]] = []
        end = -1
        for i in sorted(group, key=lambda i: self.handles[i].first_line):
            s = self.handles[i]
            if s.first_line > end:
                blocks.append([])
            blocks[-1].append(i)
            end = max(end, s.first_line if s.last_line is None else s.last_line)
        complete = all(
            len({self.handles[i].process for i in block}) > 1
            and len({self.handles[i].rank for i in block}) == len(block)
            for block in blocks
        )
        return blocks if complete and self._pids_apart(blocks) else [group]

    def _pids_apart(self, blocks: Sequence[Sequence[int]]) -> bool:
        """Whether on every host the process ids of each block lie in a range of their own."""
        ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for block in blocks:
            pids: dict[str, list[int]] = defaultdict(list)
            for process in (self.processes[self.handles[i].process] for i in block):
                if process.pid is None:
                    return False
                pids[process.host].append(process.pid)
            for host, own in pids.items():
                ranges[host].append((min(own), max(own)))
        return all(
            before[1] < after[0]
            for own in ranges.values()
            for before, after in pairwise(sorted(own))
        )

    def within_process(self, indices: list[int]) -> list[int]:
        """Join the handles of processes that drive several devices of one communicator each.

        They are as many as its ranks and made the same calls. Where several communicators made
        them, the lines of each follow those of another, from other processes.
        returns  the other handles
        """
        alike: dict[tuple[int | None, int], list[int]] = defaultdict(list)
        for i in indices:
            alike[self.handles[i].nranks, self.digests[i]].append(i)
        joined: set[int] = set()
        for (nranks, digest), group in alike.items():
            if nranks is None or nranks < 2 or len(group) % nranks or digest == _NO_CALLS:
                continue
            rows = sorted(group, key=lambda i: self.handles[i].first_line)
            jobs = [rows[at : at + nranks] for at in range(0, len(rows), nranks)]
            processes = [Counter(self.handles[i].process for i in job) for job in jobs]
            disjoint = len(set().union(*processes)) == sum(len(of_job) for of_job in processes)
            if disjoint and all(max(of_job.values()) > 1 for of_job in processes):
                for job in jobs:
                    self._fill(job, "inferred")
                joined.update(group)
        return [i for i in indices if i not in joined]

    def by_sequence(self, indices: list[int]) -> None:
        """Join handles by nranks and calls, where nothing else is known."""
        for _nranks, _ordinal, group in self._by_shape(indices):
            self._fill(group, "inferred")

    def _by_shape(self, indices: list[int]) -> list[tuple[int | None, int, list[int]]]:
        """Handles grouped by nranks and order of creation within (process, rank)."""
        ordinal: dict[tuple[int, int | None, int | None], int] = defaultdict(int)
        shapes: dict[tuple[int | None, int], list[int]] = defaultdict(list)
        for i in indices:
            s = self.handles[i]
            slot = (s.process, s.nranks, s.rank if s.nranks and s.nranks > 1 else None)
            shapes[s.nranks, ordinal[slot]].append(i)
            ordinal[slot] += 1
        return [(nranks, o, group) for (nranks, o), group in shapes.items()]

    def _fill(self, group: list[int], how: str) -> None:
        """Give handles to the first open communicator that lacks their ranks, same calls first.

        Handles of one process with the same calls stay together: a job that drives several GPUs
        with a process takes no rank of a job with a process per GPU. The largest such sets come
        first, then the calls that most made, so that a handle with calls of its own (lines lost, or
        another job) takes no place from them.
        """
        opened = _Opened(self._has_room)
        alike: dict[int, _Opened] = defaultdict(lambda: _Opened(self._has_room))  # by digest
        place = {i: n for n, i in enumerate(group)}
        made = Counter(self.digests[i] for i in group)
        rank_of = {digest: n for n, (digest, _) in enumerate(made.most_common())}
        units = sorted(
            self._units(group), key=lambda unit: (-len(unit), rank_of[self.digests[unit[0]]])
        )
        for unit in units:
            digest = self.digests[unit[0]]
            ranks = [self.handles[i].rank for i in unit]
            comm = alike[digest].first_free(ranks)
            if comm is None:
                comm = opened.first_free(ranks)
            if comm is None:
                comm = self.open(unit[0], how)
                opened.comms.append(comm)
                alike[digest].comms.append(comm)
            for i, rank in zip(unit, ranks, strict=True):
                self.add(comm, len(self.comms[comm].members) if rank is None else rank, i)
        for comm in opened.comms:
            members = self.comms[comm].members
            if any(self.handles[i].rank is None for i in members.values()):
                members.update(enumerate(sorted(members.values(), key=place.__getitem__)))

    def _units(self, group: list[int]) -> list[list[int]]:
        """Handles that are of one communicator: of one process, with the same calls and a rank."""
        units: dict[Hashable, list[int]] = defaultdict(list)
        for i in group:
            s = self.handles[i]
            alone = s.rank is None or self.digests[i] == _NO_CALLS
            units[i if alone else (s.process, self.digests[i])].append(i)
        return list(units.values())

    def _has_room(self, comm: int, rank: int | None) -> bool:
        members, nranks = self.comms[comm].members, self.comms[comm].nranks
        if rank is not None:
            return rank not in members
        return nranks is None or len(members) < nranks


class _Opened:
    """Communicators in the order in which they were opened; a full one stays full."""

    def __init__(self, has_room: Callable[[int, int | None], bool]) -> None:
        self.comms: list[int] = []
        self._has_room = has_room
        self._full: dict[int | None, int] = defaultdict(int)  # by rank: so many of the first are

    def first_free(self, ranks: Sequence[int | None]) -> int | None:
        """The first one with room for all of some ranks."""
        comms = self.comms
        for rank in ranks:
            while self._full[rank] < len(comms) and not self._has_room(
                comms[self._full[rank]], rank
            ):
                self._full[rank] += 1
        begin = max(self._full[rank] for rank in ranks)
        return next(
            (
                comms[k]
                for k in range(begin, len(comms))
                if all(self._has_room(comms[k], rank) for rank in ranks)
            ),
            None,
        )


def _finish(
    comm: Communicator,
    handles: Sequence[CommHandle],
    processes: Sequence[Process],
    joiner: _Joiner,
) -> Communicator:
    """Add the facts of the members: nodes, parent, hash."""
    members = [handles[i] for i in comm.members.values()]
    nnodes = next((m.nnodes for m in members if m.nnodes is not None), None)
    if nnodes is None and comm.nranks in (1, len(members)):
        nnodes = len({processes[m.process].host for m in members})
    parents = (joiner.parent_handle(i) for i in comm.members.values())
    parent = next(
        (joiner.comm_of[p] for p in parents if p is not None and p in joiner.comm_of), None
    )
    comm_hash = next((m.comm_hash for m in members if m.comm_hash is not None), None)
    return replace(comm, nnodes=nnodes, parent=parent, comm_hash=comm_hash)


def world_ranks(handles: Sequence[CommHandle], comms: Sequence[Communicator]) -> list[int | None]:
    """World rank per handle: its rank in the largest, then first, communicator of its device.

    Several devices of a process are distinguished by bus id or device index where INIT lines give
    them, and by nothing else: then the process's first rank stands for all.
    """
    best: dict[tuple[int, int | None], tuple[int, int]] = {}
    ranked = sorted(range(len(comms)), key=lambda c: (-(comms[c].nranks or 0), c))
    for c in ranked:
        for rank, i in comms[c].members.items():
            best.setdefault(_device(handles[i]), (rank, c))
    return [best[_device(s)][0] if _device(s) in best else None for s in handles]


def _device(handle: CommHandle) -> tuple[int, int | None]:
    return (handle.process, handle.bus_id if handle.bus_id is not None else handle.cuda_dev)
