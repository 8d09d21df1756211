"""All observations of a run matched: communicators, classes, calls, transfers (pure)."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.match import p2p
from collscope.match.calls import (
    AlignedCalls,
    align_calls,
    equal_calls,
    in_place,
    join_disagreements,
)
from collscope.match.communicators import (
    Communicator,
    claimed_twice,
    join_communicators,
    ranks_by_calls,
    world_ranks,
)
from collscope.match.executions import JoinedKernels, join_kernels
from collscope.match.handles import RANKS_DIFFER, agree_by_comm_id, rows_by
from collscope.match.observations import (
    POINTERS_ONLY,
    Ints,
    Observations,
    Signature,
    TuningSetting,
    constant,
    distinct,
    join_columns,
)
from collscope.match.op_counts import ONE_LAUNCH, lacking_launches, launch_numbers
from collscope.match.op_counts import counts_calls as op_counts_calls
from collscope.match.order import launch_order
from collscope.match.run_rows import RunRows
from collscope.model import (
    BufferPlace,
    CollectiveClass,
    Diagnostic,
    Op,
    Severity,
    redop_of,
    size_bytes,
)
from collscope.model.comm_handle import Process
from collscope.model.traced_kernel import TracedKernel


class CallClass(CollectiveClass, frozen=True):
    """A class of a run, with what executed its calls."""

    backend: str = "native"


class Deviation(NamedTuple):
    """A rank that did not log a call (`missing`) or logged another at its place (`differs`)."""

    call: int
    rank: int
    what: str
    detail: str | None = None
    log: int | None = None  # of the run's logs
    line: int | None = None


class Matched(msgspec.Struct):
    """A matched run.

    `calls` are columns of equal length in launch order over all communicators (see
    `collscope.match.order`); -1 stands for None in them.
    """

    comms: list[Communicator]
    world_ranks: list[int | None]  # per handle
    classes: list[CallClass] = msgspec.field(default_factory=list)
    calls: dict[str, Ints] = msgspec.field(default_factory=dict)
    deviations: list[Deviation] = msgspec.field(default_factory=list)
    transfers: list[tuple[int, p2p.Transfer]] = msgspec.field(default_factory=list)
    # traced kernel, its call
    kernel_calls: list[tuple[int, int]] = msgspec.field(default_factory=list)
    joined: JoinedKernels | None = None  # None: no traced kernels
    settings: list[TuningSetting] = msgspec.field(default_factory=list)  # that calls name by index
    diagnostics: list[Diagnostic] = msgspec.field(default_factory=list)


_RANKS_TEXT = (
    "ranks that give a commId a different number of ranks than other ranks: a commId is random, "
    "so they share one communicator, with as many ranks as most of them give"
)
_LACKING_TEXT = (
    "calls, at least, that opCount (a communicator's launch counter) includes and no log holds: "
    "their lines were lost"
)
_MOST_LACKING = 2**40  # of a damaged opCount; sums of a run stay whole numbers of SQLite
CALL_COLUMNS = {
    "comm": np.int32,
    "seq": np.int32,
    "class": np.int32,
    "group": np.int64,
    "setting": np.int32,
    "op_count": np.int64,
    "ranks_seen": np.int32,
}


def match_run(
    run: RunRows, processes: Sequence[Process], kernels: Sequence[TracedKernel]
) -> Matched:
    """Match everything a run's logs hold.

    processes  that the handles name by index
    kernels    traced kernels of all sources, processes numbered as in `run`
    """
    matching = _Matching(run, processes)
    for comms in matching.batches():
        matching.take(comms)
        for c in comms:
            matching.match_communicator(c)
    return matching.finish(kernels)


_GROUP_COLUMNS = {"task": np.int32, "group": np.int64, "row": np.int64}


class _HandleRows(NamedTuple):
    """What must be known of a handle's rows before any communicator is."""

    rows: int
    last_line: int | None
    digest: int  # of the sequence of its collective calls
    halves: bool  # some are a Send or a Recv
    counts_calls: bool  # opCount rises within a group


def _handle_rows(run: RunRows) -> list[_HandleRows]:
    """Of each handle."""
    halves = _is_half(run.signatures)
    sent, received = (
        np.array([s.root if s.op is op else -1 for s in run.signatures], dtype=np.int64)
        for op in (Op.SEND, Op.RECV)
    )
    found = [_HandleRows(0, None, zlib.crc32(b""), False, False)] * len(run.handles)
    for handles in run.units():
        own = run.rows(handles, ("sig", "line", "op_count") if halves.any() else ("sig", "line"))
        columns = own.columns
        for handle, rows in _rows_of(columns["handle"], handles).items():
            if not len(rows):
                continue
            sig = columns["sig"][rows]
            half = halves[sig]
            counts_calls = False
            if half.any() and (rank := run.handles[handle].rank) is not None:
                counts = columns["op_count"][rows[half]]
                counts_calls = op_counts_calls(rank, counts, sent[sig[half]], received[sig[half]])
            found[handle] = _HandleRows(
                len(rows),
                int(columns["line"][rows[-1]]),
                zlib.crc32((sig[~half] if half.any() else sig).tobytes()),
                bool(half.any()),
                counts_calls,
            )
    return found


def _is_half(signatures: Sequence[Signature]) -> Ints:
    """Which signatures are a Send or a Recv: half of a call."""
    return np.array([s.op.point_to_point for s in signatures], dtype=bool)


def _any_of(signatures: Sequence[Signature], ops: Collection[Op]) -> Ints:
    """Which signatures are of some operations."""
    return np.array([s.op in ops for s in signatures], dtype=bool)


def _rows_of(handle: Ints, handles: Collection[int]) -> dict[int, Ints]:
    """Rows of each handle, rising."""
    if len(handles) < 2:
        return {h: np.arange(len(handle)) for h in handles}
    order, bounds = rows_by(handle, max(handles) + 1)
    return {h: order[bounds[h] : bounds[h + 1]] for h in handles}


class _Matching:
    """Calls under construction: `take` the rows of some communicators, match each, and `finish`."""

    observed: Observations  # rows of the communicators that are being matched

    def __init__(self, run: RunRows, processes: Sequence[Process]) -> None:
        known = _handle_rows(run)
        handles = [
            replace(s, last_line=own.last_line) if own.rows else s
            for s, own in zip(run.handles, known, strict=True)
        ]
        handles, differing = agree_by_comm_id(handles)
        self.run = run.with_handles(handles)
        self.processes = processes
        self.known = known
        self.digests = [own.digest for own in known]
        self.counts_calls = any(own.counts_calls for own in known)
        comms = join_communicators(handles, processes, self.digests)
        self.matched = Matched(comms, world_ranks(handles, comms), settings=list(run.settings))
        if differing:
            note = Diagnostic(Severity.DATA_LOSS, RANKS_DIFFER, _RANKS_TEXT, count=differing)
            self.matched.diagnostics.append(note)
        excess = claimed_twice(handles, processes)
        if excess:
            own = handles[excess[0]]
            text = (
                "processes with a rank of a communicator that another process has: their calls are"
                f" left out (first: rank {own.rank} of commId {own.comm_hash:#x}, process"
                f" {processes[own.process].pid} on {processes[own.process].host})"
            )
            note = Diagnostic(Severity.DATA_LOSS, "rank_claimed_twice", text, count=len(excess))
            self.matched.diagnostics.append(note)
        if by_calls := ranks_by_calls(handles, comms):
            own = handles[by_calls[0]]
            text = (
                "logs without their INIT lines: each gets the missing rank of a communicator "
                f"with the same calls (first: process {processes[own.process].pid} on "
                f"{processes[own.process].host})"
            )
            note = Diagnostic(Severity.NOTICE, "rank_by_calls", text, count=len(by_calls))
            self.matched.diagnostics.append(note)
        self.is_half = _is_half(run.signatures)
        self.one_launch = _any_of(run.signatures, ONE_LAUNCH)
        self.is_broadcast = _any_of(run.signatures, {Op.BROADCAST})
        self.calls_of: dict[int, Ints] = {}  # call of each row of a handle
        self.class_index: dict[CallClass, int] = {}
        self.parts: list[dict[str, Ints]] = []
        self.calls = 0

    def batches(self) -> Iterator[Sequence[int]]:
        """Communicators whose rows are in memory together."""
        first = rows = 0
        for c, comm in enumerate(self.matched.comms):
            own = sum(self.known[h].rows for h in comm.members.values())
            if c > first and rows + own > self.run.at_once:
                yield range(first, c)
                first, rows = c, 0
            rows += own
        if first < len(self.matched.comms):
            yield range(first, len(self.matched.comms))

    def take(self, comms: Sequence[int]) -> None:
        """Hold the rows of some communicators instead of those held so far."""
        self.observed = Observations([], [], {}, {}, [])  # lets go of the rows before
        handles = [h for c in comms for h in self.matched.comms[c].members.values()]
        self.observed = self.run.rows(handles, ("sig", "slot"))
        sig = self.observed.columns["sig"]
        half = self.is_half[sig]
        self.rows = _rows_of(self.observed.columns["handle"], handles)
        if half.any():
            self.coll_rows = {h: r[~half[r]] for h, r in self.rows.items()}
            self.half_rows = {h: r[half[r]] for h, r in self.rows.items()}
        else:
            self.coll_rows, self.half_rows = self.rows, {h: r[:0] for h, r in self.rows.items()}
        tuning = self.observed.tuning
        self.setting_of = constant(np.int32(-1), len(sig))
        if len(tuning["row"]):
            self.setting_of = np.full(len(sig), -1, dtype=np.int32)
            self.setting_of[tuning["row"]] = tuning["setting"]
        self.call_of_row = np.full(len(sig), -1, dtype=np.int32)
        # Filled in by `_learn`: mostly of one member of each communicator.
        self.learned: set[int] = set()
        self.observed.columns["op_count"] = np.empty(len(sig), dtype=np.uint64)
        self.leader = np.empty(len(sig), dtype=np.int64)
        # Filled in by `_learn_groups`.
        for name, dtype in _GROUP_COLUMNS.items():
            self.observed.columns[name] = np.empty(len(sig), dtype=dtype)
        self.launch = np.empty(len(sig), dtype=np.int64)
        self._learn([h for c in comms for h in self._telling(self.matched.comms[c])])

    def _telling(self, comm: Communicator) -> list[int]:
        """Members whose opCounts and groups matter: the first of those that made the same calls."""
        members = [comm.members[rank] for rank in sorted(comm.members)]
        same = len({self.digests[h] for h in members}) == 1
        return members[:1] if same and not any(self.known[h].halves for h in members) else members

    def _learn(self, handles: Iterable[int]) -> None:
        """Fill in opCount and groups of some handles' rows."""
        lacking = [h for h in handles if h not in self.learned]
        self.learned.update(lacking)
        for own, columns, launch in self._details(lacking):
            self.observed.columns["op_count"][own] = columns["op_count"]
            self.leader[own] = _group_leaders(columns, launch)

    def _learn_groups(self, handles: Iterable[int]) -> None:
        """Fill in all other columns of some handles' rows, and their launches."""
        handles = list(handles)
        self._learn(handles)
        for own, columns, launch in self._details(handles):
            for name in _GROUP_COLUMNS:
                self.observed.columns[name][own] = columns[name]
            self.launch[own] = launch

    def _details(self, handles: Sequence[int]) -> Iterator[tuple[Ints, Mapping[str, Ints], Ints]]:
        """Of each handle its rows, what they have, and the number of each row's launch.

        These are 0 where opCount counts calls.
        """
        if not handles:
            return
        found = self.run.rows(handles, ("op_count", *_GROUP_COLUMNS, "sig"))
        for handle, rows in _rows_of(found.columns["handle"], handles).items():
            columns = {name: values[rows] for name, values in found.columns.items()}
            launch = constant(np.int64(0), len(rows))
            if not self.counts_calls:
                launch = launch_numbers(columns["op_count"], self.is_broadcast[columns["sig"]])
            yield self.rows[handle], columns, launch

    def match_communicator(self, c: int) -> None:
        """Add the calls of communicator `c`."""
        comm = self.matched.comms[c]
        lacking = lacking_launches(self._op_counts(comm))
        if lacking:
            number = min(lacking, _MOST_LACKING)
            note = Diagnostic(Severity.DATA_LOSS, "numbers_missing", _LACKING_TEXT, count=number)
            self.matched.diagnostics.append(note)
        aligned = equal_calls(comm, self.coll_rows, self.observed)
        if aligned is None or any(len(self.half_rows[h]) for h in comm.members.values()):
            self._learn_groups(comm.members.values())
        if aligned is None:
            aligned = align_calls(comm, self.coll_rows, self.observed)
        rows, differing = join_disagreements(aligned, self.observed.columns["op_count"])
        collectives = self._collectives(comm, aligned, rows)
        patterns = self._patterns(comm)
        seq_c, seq_p = self._sequence(comm, aligned.ranks, rows, patterns)
        self._emit(c, collectives | {"seq": seq_c})
        self._note_deviations(aligned.ranks, rows, differing, self.calls - len(rows))
        base = self.calls
        self._emit(c, self._pattern_columns(comm, patterns) | {"seq": seq_p})
        for k, pattern in enumerate(patterns):
            for t in pattern.transfers:
                self.matched.transfers.append((base + k, t))
                for row in (t.send_row, t.recv_row):
                    if row is not None:
                        self.call_of_row[row] = base + k
        self._keep_calls(comm)
        if aligned.realigned:
            text = (
                "communicators whose ranks logged different sequences of calls: the calls were "
                "matched by comparing the sequences"
            )
            self.matched.diagnostics.append(
                Diagnostic(Severity.NOTICE, "sequences_realigned", text)
            )

    def _op_counts(self, comm: Communicator) -> Iterator[tuple[Ints, Ints]]:
        """Of each member with calls, opCount of its rows and which are launches of one call."""
        columns = self.observed.columns
        for _, handle in sorted(comm.members.items()):
            if len(own := self.rows[handle]):
                self._learn([handle])
                yield columns["op_count"][own], self.one_launch[columns["sig"][own]]

    def _keep_calls(self, comm: Communicator) -> None:
        """The calls of each member's rows; of members with the same calls they are held once."""
        latest = np.empty(0, dtype=np.int32)
        for handle in comm.members.values():
            own = self.call_of_row[self.rows[handle]]
            if not np.array_equal(own, latest):
                latest = own
            self.calls_of[handle] = latest

    def _emit(self, c: int, columns: dict[str, Ints]) -> None:
        n = len(columns["seq"])
        if n:
            columns["comm"] = np.full(n, c, dtype=np.int32)
            narrow = {name: columns[name].astype(t, copy=False) for name, t in CALL_COLUMNS.items()}
            self.parts.append(narrow)
            self.calls += n

    def _collectives(
        self, comm: Communicator, aligned: AlignedCalls, rows: Ints
    ) -> dict[str, Ints]:
        """Columns of the aligned collective calls, shape (calls,).

        rows  of the members, -1 where one lacks a call
        """
        n, ranks = len(rows), aligned.ranks
        if not n:
            return {name: np.empty(0, np.int64) for name in CALL_COLUMNS if name != "comm"}
        if aligned.realigned:
            present = rows >= 0
            first_member = present.argmax(axis=1)
            first, ranks_seen = rows[np.arange(n), first_member], present.sum(axis=1)
            firsts = np.unique(first_member).tolist()
        else:
            present = constant(np.True_, rows.size).reshape(rows.shape)
            first, ranks_seen, firsts = rows[:, 0], np.full(n, len(ranks)), [0]
        self._learn(comm.members[ranks[member]] for member in firsts)
        settings = np.full(n, -1, dtype=np.int32)
        for member, there in zip(rows.T, present.T, strict=True):
            own = member[there] if aligned.realigned else member
            call = np.flatnonzero(there) if aligned.realigned else np.arange(n)
            self.call_of_row[own] = self.calls + call
            if self.setting_of.strides[0]:
                settings[call] = np.maximum(settings[call], self.setting_of[own])
        columns = self.observed.columns
        sig = columns["sig"][first]
        return {
            "class": self._classify(comm, sig, self._in_place(ranks, rows, sig)),
            "group": self.leader[first],
            "setting": settings,
            "op_count": columns["op_count"][first].astype(np.int64),
            "ranks_seen": ranks_seen,
        }

    def _in_place(self, ranks: Sequence[int], rows: Ints, sig: Ints) -> Ints:
        slots = np.where(rows >= 0, self.observed.columns["slot"][rows], -2)
        member = {rank: m for m, rank in enumerate(ranks)}
        # Only the root's buffers count where the others may pass anything.
        signatures = self.observed.signatures
        roots = np.array([member.get(s.root, -1) if s.op.rooted else -1 for s in signatures])[sig]
        offset = np.array([s.op.place is not BufferPlace.SAME for s in signatures])[sig]
        return in_place(roots, ranks, slots, offset)

    def _classify(self, comm: Communicator, sig: Ints, state: Ints) -> Ints:
        """Class of each call, from its signature and in-place state."""
        keys, inverse, _ = distinct(sig.astype(np.int64) * 4 + state + 1)
        classes = []
        for key in keys.tolist():
            signature, place = self.observed.signatures[key // 4], key % 4 - 1
            op, datatype = signature.op, signature.element
            classes.append(
                self._class(
                    CallClass(
                        op,
                        datatype,
                        redop_of(signature.redop) if op.reduces else None,
                        None if signature.flags & POINTERS_ONLY else signature.count,
                        size_bytes(
                            op, count=signature.count, datatype=datatype, nranks=comm.nranks
                        ),
                        signature.root if op.rooted else None,
                        bool(place) if place >= 0 else None,
                        comm.nranks,
                        comm.nnodes,
                        None,
                        signature.backend,
                    )
                )
            )
        return np.array(classes, dtype=np.int64)[inverse]

    def _class(self, key: CallClass) -> int:
        return self.class_index.setdefault(key, len(self.class_index))

    def _patterns(self, comm: Communicator) -> list[p2p.PatternCall]:
        """Point-to-point calls of a communicator, in the order of their first rows."""
        rows_of = {r: self.half_rows[s].tolist() for r, s in comm.members.items()}
        if not any(rows_of.values()):
            return []
        group_of: dict[int, int] = {}
        offset = 0
        for rank, rows in rows_of.items():
            between = np.searchsorted(self.coll_rows[comm.members[rank]], rows).tolist()
            numbers = p2p.split_groups(rows, between, self.observed, self.launch)
            group_of.update((row, offset + g) for row, g in zip(rows, numbers, strict=True))
            offset += max(numbers, default=-1) + 1
        transfers = p2p.pair_transfers(comm, rows_of, self.observed)
        groups = p2p.join_groups(transfers, group_of)
        return [
            call for g, group in enumerate(groups) for call in p2p.recognise(group, comm.nranks, g)
        ]

    def _pattern_columns(
        self, comm: Communicator, patterns: Sequence[p2p.PatternCall]
    ) -> dict[str, Ints]:
        classes, leaders = [], []
        heads: dict[int, int] = {}
        for p in patterns:
            key = CallClass(
                p.op, p.datatype, None, p.count, p.size_bytes, p.root, None,
                comm.nranks, comm.nnodes, p.shape, "native",
            )  # fmt: skip
            classes.append(self._class(key))
            leaders.append(heads.setdefault(p.together, int(self.leader[p.first_row])))
        first = np.array([p.first_row for p in patterns], dtype=np.int64)
        return {
            "class": np.array(classes, dtype=np.int64),
            "group": np.array(leaders, dtype=np.int64),
            "setting": np.full(len(patterns), -1, dtype=np.int64),
            "op_count": self.observed.columns["op_count"][first].astype(np.int64),
            "ranks_seen": np.array([p.ranks_seen for p in patterns], dtype=np.int64),
        }

    def _sequence(
        self,
        comm: Communicator,
        ranks: Sequence[int],
        rows: Ints,
        patterns: Sequence[p2p.PatternCall],
    ) -> tuple[Ints, Ints]:
        """Order of the collective and of the point-to-point calls on their communicator."""
        if not patterns:
            return np.arange(len(rows)), np.empty(0, np.int64)
        place = np.full(len(self.observed), -1, dtype=np.int64)
        for m in range(len(ranks)):
            present = rows[:, m] >= 0
            place[rows[present, m]] = np.flatnonzero(present)
        behind: list[tuple[int, int]] = []
        handle = self.observed.columns["handle"]
        for p in patterns:
            own = self.coll_rows[handle[p.first_row]]
            before = int(np.searchsorted(own, p.first_row)) - 1
            behind.append((int(place[own[before]]) if before >= 0 else -1, p.first_row))
        order = sorted(range(len(patterns)), key=lambda k: behind[k])
        after = np.sort(np.array([b for b, _ in behind]))
        seq_c = np.arange(len(rows)) + np.searchsorted(after, np.arange(len(rows)), side="left")
        seq_p = np.empty(len(patterns), dtype=np.int64)
        for position, k in enumerate(order):
            seq_p[k] = behind[k][0] + 1 + position
        return seq_c, seq_p

    def _note_deviations(
        self, ranks: Sequence[int], rows: Ints, differing: dict[tuple[int, int], int], base: int
    ) -> None:
        for c, m in np.argwhere(rows < 0).tolist():
            row = differing.get((c, m))
            if row is None:
                self.matched.deviations.append(Deviation(base + c, ranks[m], "missing"))
            else:
                self.call_of_row[row] = base + c
                s = self.observed.signatures[int(self.observed.columns["sig"][row])]
                detail = f"{s.op.value} count {s.count} {s.element.value} root {s.root}"
                place = self.run.place_of(int(self.observed.columns["row"][row]))
                self.matched.deviations.append(
                    Deviation(base + c, ranks[m], "differs", detail, *place)
                )

    def finish(self, kernels: Sequence[TracedKernel]) -> Matched:
        """Everything together; group numbers only where a group has more than one call."""
        self.take(())  # lets go of the rows of the last ones
        several = len(self.parts) > 1
        calls = {  # parts of a column are let go of when they have been joined
            name: join_columns([part.pop(name) for part in self.parts], dtype)
            for name, dtype in CALL_COLUMNS.items()
        }
        if (calls["group"] >= 0).any():
            _, inverse, sizes = np.unique(calls["group"], return_inverse=True, return_counts=True)
            calls["group"] = np.where((sizes > 1)[inverse] & (calls["group"] >= 0), inverse, -1)
        self.matched.classes = list(self.class_index)
        self.matched.calls = calls
        if several:
            self._renumber(launch_order(self.run, self.calls_of, calls))
        if kernels:
            classes = [self.matched.classes[c] for c in calls["class"].tolist()]
            self.matched.kernel_calls, self.matched.joined = join_kernels(
                kernels, self.run, self.processes, self.digests, self.calls_of, classes
            )
            self.matched.world_ranks = self.matched.joined.world_ranks
            wrong_ends = len(self.matched.joined.wrong_ends)
            if wrong_ends:
                text = (
                    "kernels whose end contradicts that of the other ranks: their waiting is"
                    " not known"
                )
                note = Diagnostic(Severity.NOTICE, "kernel_end_apart", text, count=wrong_ends)
                self.matched.diagnostics.append(note)
        self._count_losses(len(kernels))
        return self.matched

    def _renumber(self, order: Ints) -> None:
        """Put the calls in `order`, with everything that refers to them."""
        matched = self.matched
        matched.calls = {name: values[order] for name, values in matched.calls.items()}
        new = np.empty(len(order), dtype=np.int32)
        new[order] = np.arange(len(order), dtype=np.int32)
        renumbered = np.append(new, np.int32(-1))  # the last for rows of no call
        done: dict[int, Ints] = {}  # by what several handles share
        for handle, own in self.calls_of.items():
            if id(own) not in done:
                done[id(own)] = renumbered[own]
            self.calls_of[handle] = done[id(own)]
        number = new.tolist()
        matched.deviations = [d._replace(call=number[d.call]) for d in matched.deviations]
        matched.transfers = sorted(
            ((number[call], t) for call, t in matched.transfers), key=lambda pair: pair[0]
        )

    def _count_losses(self, kernels: int) -> None:
        missing = sum(1 for d in self.matched.deviations if d.what == "missing")
        differs = len(self.matched.deviations) - missing
        halves = sum(1 for _, t in self.matched.transfers if None in (t.send_row, t.recv_row))
        observed_all = [c for c in self.matched.comms if c.nranks == len(c.members)]
        found = [
            (missing, Severity.DATA_LOSS, "observation_missing",
             "log entries that a rank lacks and other ranks have: lines were lost, the rank "
             "stopped, or lines appear twice in the other logs"),
            (differs, Severity.ERROR, "ranks_disagree",
             "calls where a rank logged another operation, count, datatype or root"),
            (halves if observed_all else 0, Severity.DATA_LOSS, "transfer_half_missing",
             "transfers with only the Send or only the Recv logged"),
            (kernels - len(self.matched.kernel_calls), Severity.NOTICE, "kernel_without_call",
             "kernels of traces, or of kernel lines in logs, whose call is not in the logs, or is "
             "ambiguous: their times belong to no class"),
        ]  # fmt: skip
        self.matched.diagnostics = _summed(self.matched.diagnostics) + [
            Diagnostic(severity, code, text, count=n) for n, severity, code, text in found if n
        ]


def _summed(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """Equal codes joined, the first one's text kept."""
    by_code: dict[str, list[Diagnostic]] = defaultdict(list)
    for d in diagnostics:
        by_code[d.code].append(d)
    return [replace(ds[0], count=sum(d.count for d in ds)) for code, ds in by_code.items()]


def _group_leaders(columns: Mapping[str, Ints], launch: Ints) -> Ints:
    """First row of the group each row of a handle was launched in, -1 where nothing shows groups.

    What shows them: the interval of a CALL trace; RCCL's task above 0; the launch that neighbouring
    rows share. Rows are numbered over the run.
    """
    task, number = columns["task"], columns["row"]
    leader = np.full(len(number), -1, dtype=np.int64)
    continues = np.zeros(len(number), dtype=bool)
    tasks = (task >= 0).any()
    if tasks or launch.any():
        continues[1:] = task[1:] > 0 if tasks else launch[1:] == launch[:-1]
        leader = number[np.maximum.accumulate(np.where(continues, 0, np.arange(len(number))))]
    return np.where(columns["group"] >= 0, columns["group"], leader)
