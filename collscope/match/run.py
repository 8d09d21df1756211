"""All observations of a run matched: communicators, classes, calls, transfers (pure)."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from collscope.match import p2p
from collscope.match.calls import align_calls, in_place, join_disagreements
from collscope.match.communicators import (
    Communicator,
    claimed_twice,
    join_communicators,
    ranks_by_calls,
    world_ranks,
)
from collscope.match.executions import JoinedKernels, join_kernels
from collscope.match.handles import RANKS_DIFFER, agree_by_comm_id, rows_by
from collscope.match.observations import POINTERS_ONLY, Ints, Observations, TuningSetting
from collscope.match.op_counts import (
    ONE_LAUNCH,
    counts_calls,
    lacking_launches,
    launch_numbers,
)
from collscope.match.order import launch_order
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
from collscope.units import count


class CallClass(CollectiveClass, frozen=True):
    """A class of a run, with what executed its calls."""

    backend: str = "native"


class Deviation(NamedTuple):
    """A rank that did not log a call (`missing`) or logged another at its place (`differs`)."""

    call: int
    rank: int
    what: str
    detail: str | None
    row: int | None


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
CALL_COLUMNS = ("comm", "seq", "class", "group", "setting", "op_count", "ranks_seen")


def match_run(
    observed: Observations, processes: Sequence[Process], kernels: Sequence[TracedKernel]
) -> Matched:
    """Match everything a run's logs hold.

    processes  that the handles name by index
    kernels    traced kernels of all sources, processes numbered as in `observed`
    """
    matching = _Matching(observed, processes)
    for c in range(len(matching.matched.comms)):
        matching.match_communicator(c)
    return matching.finish(kernels)


class _Matching:
    """Calls under construction; one `match_communicator` per communicator, then `finish`."""

    def __init__(self, observed: Observations, processes: Sequence[Process]) -> None:
        sig = observed.columns["sig"]
        halves = np.array([s.op.point_to_point for s in observed.signatures], dtype=bool)
        self.is_half = halves[sig] if len(halves) else np.zeros(0, bool)
        alone = np.array([s.op in ONE_LAUNCH for s in observed.signatures], dtype=bool)
        self.one_launch = alone[sig] if len(alone) else np.zeros(0, bool)
        order, bounds = rows_by(observed.columns["handle"], len(observed.handles))
        rows = [order[a:b] for a, b in pairwise(bounds)]
        if self.is_half.any():
            self.coll_rows = [r[~self.is_half[r]] for r in rows]
            self.half_rows = [r[self.is_half[r]] for r in rows]
        else:
            self.coll_rows, self.half_rows = rows, [r[:0] for r in rows]
        self.rows = rows
        lines = observed.columns["line"]
        handles = [
            replace(s, last_line=int(lines[r[-1]])) if len(r) else s
            for s, r in zip(observed.handles, rows, strict=True)
        ]
        handles, differing = agree_by_comm_id(handles)
        self.observed = observed = replace(observed, handles=handles)
        self.processes = processes
        self.digests = [zlib.crc32(sig[r].tobytes()) for r in self.coll_rows]
        comms = join_communicators(handles, processes, self.digests)
        self.matched = Matched(
            comms, world_ranks(handles, comms), settings=list(observed.tuning_settings)
        )
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
        self.launch = self._launches()
        self.leader = _group_leaders(observed, rows, self.launch)
        self.setting_of = np.full(len(sig), -1, dtype=np.int32)
        self.setting_of[observed.tuning["row"]] = observed.tuning["setting"]
        self.call_of_row = np.full(len(sig), -1, dtype=np.int32)
        self.class_index: dict[CallClass, int] = {}
        self.parts: list[dict[str, Ints]] = []
        self.calls = 0

    def _launches(self) -> Ints:
        """Per row the number of its launch on its communicator; 0 where opCount counts calls."""
        observed = self.observed
        counts, sig = observed.columns["op_count"], observed.columns["sig"]
        broadcast = np.array([s.op is Op.BROADCAST for s in observed.signatures], dtype=bool)
        sent = np.array([s.root if s.op is Op.SEND else -1 for s in observed.signatures])
        received = np.array([s.root if s.op is Op.RECV else -1 for s in observed.signatures])
        found = np.zeros(len(counts), dtype=np.int64)
        for handle, own in zip(observed.handles, self.half_rows, strict=True):
            peers = sent[sig[own]], received[sig[own]]
            if handle.rank is not None and counts_calls(handle.rank, counts[own], *peers):
                return found
        for own in self.rows:
            found[own] = launch_numbers(counts[own], broadcast[sig[own]])
        return found

    def match_communicator(self, c: int) -> None:
        """Add the calls of communicator `c`."""
        comm = self.matched.comms[c]
        counts = self.observed.columns["op_count"]
        logged = [own for h in comm.members.values() if len(own := self.rows[h])]
        lacking = lacking_launches([(counts[own], self.one_launch[own]) for own in logged])
        if lacking:
            number = min(lacking, _MOST_LACKING)
            note = Diagnostic(Severity.DATA_LOSS, "numbers_missing", _LACKING_TEXT, count=number)
            self.matched.diagnostics.append(note)
        aligned = align_calls(comm, self.coll_rows, self.observed)
        rows, differing = join_disagreements(aligned, self.observed.columns["op_count"])
        collectives = self._collectives(comm, aligned.ranks, rows)
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
        if aligned.realigned:
            text = f"communicators whose ranks' call sequences differ (first: {_name(comm)})"
            self.matched.diagnostics.append(
                Diagnostic(Severity.NOTICE, "sequences_realigned", text)
            )

    def _emit(self, c: int, columns: dict[str, Ints]) -> None:
        n = len(columns["seq"])
        if n:
            self.parts.append(columns | {"comm": np.full(n, c, dtype=np.int64)})
            self.calls += n

    def _collectives(self, comm: Communicator, ranks: Sequence[int], rows: Ints) -> dict[str, Ints]:
        """Columns of the aligned collective calls, shape (calls,)."""
        n = len(rows)
        if not n:
            return {name: np.empty(0, np.int64) for name in CALL_COLUMNS if name != "comm"}
        present = rows >= 0
        first = rows[np.arange(n), present.argmax(axis=1)]
        settings = np.full(n, -1, dtype=np.int32)
        for member, there in zip(rows.T, present.T, strict=True):
            own = member[there]
            self.call_of_row[own] = self.calls + np.flatnonzero(there)
            settings[there] = np.maximum(settings[there], self.setting_of[own])
        columns = self.observed.columns
        sig = columns["sig"][first]
        return {
            "class": self._classify(comm, sig, self._in_place(ranks, rows, sig)),
            "group": self.leader[first],
            "setting": settings,
            "op_count": columns["op_count"][first].astype(np.int64),
            "ranks_seen": present.sum(axis=1),
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
        keys, inverse = np.unique(sig.astype(np.int64) * 4 + state + 1, return_inverse=True)
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
                self.matched.deviations.append(Deviation(base + c, ranks[m], "missing", None, None))
            else:
                self.call_of_row[row] = base + c
                s = self.observed.signatures[int(self.observed.columns["sig"][row])]
                detail = f"{s.op.value} count {s.count} {s.element.value} root {s.root}"
                self.matched.deviations.append(
                    Deviation(base + c, ranks[m], "differs", detail, row)
                )

    def finish(self, kernels: Sequence[TracedKernel]) -> Matched:
        """Everything together; group numbers only where a group has more than one call."""
        names = CALL_COLUMNS
        calls = {
            n: np.concatenate([p[n] for p in self.parts]) if self.parts else np.empty(0, np.int64)
            for n in names
        }
        _, inverse, sizes = np.unique(calls["group"], return_inverse=True, return_counts=True)
        calls["group"] = np.where((sizes > 1)[inverse] & (calls["group"] >= 0), inverse, -1)
        self.matched.classes = list(self.class_index)
        self.matched.calls = calls
        if len(self.parts) > 1:
            self._renumber(launch_order(self.observed, self.call_of_row, calls))
        if kernels:
            classes = [self.matched.classes[c] for c in calls["class"].tolist()]
            self.matched.kernel_calls, self.matched.joined = join_kernels(
                kernels, self.observed, self.processes, self.digests, self.call_of_row, classes
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
        self.call_of_row = np.where(self.call_of_row >= 0, new[self.call_of_row], np.int32(-1))
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
             "calls that a rank with a log did not log: lines were lost, the rank stopped, or "
             "lines appear twice in the other logs"),
            (differs, Severity.ERROR, "ranks_disagree",
             "calls where a rank logged another operation, count, datatype or root"),
            (halves if observed_all else 0, Severity.DATA_LOSS, "transfer_half_missing",
             "transfers with only the Send or only the Recv logged"),
            (kernels - len(self.matched.kernel_calls), Severity.NOTICE, "kernel_without_call",
             "traced kernels whose call is not in the logs, or is ambiguous: their times belong to"
             " no class"),
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


def _name(comm: Communicator) -> str:
    return f"{count(comm.nranks, 'rank')}, matched by {comm.matched_by}"


def _group_leaders(observed: Observations, rows: Sequence[Ints], launch: Ints) -> Ints:
    """First row of the group each row was launched in, -1 where groups are unknown.

    From: the interval of a CALL trace; RCCL's task above 0; the launch that neighbouring rows of
    a handle share.
    """
    leader = np.full(len(observed), -1, dtype=np.int32)
    columns = observed.columns
    for own in rows:
        if not len(own):
            continue
        task, number = columns["task"][own], launch[own]
        continues = np.zeros(len(own), dtype=bool)
        if (task >= 0).any():
            continues[1:] = task[1:] > 0
        elif number.any():
            continues[1:] = number[1:] == number[:-1]
        else:
            continue
        starts = np.maximum.accumulate(np.where(continues, 0, np.arange(len(own))))
        leader[own] = own[starts]
    traced = columns["group"] >= 0
    if traced.any():
        _, first, inverse = np.unique(
            columns["group"][traced], return_index=True, return_inverse=True
        )
        leader[traced] = np.flatnonzero(traced)[first][inverse]
    return leader
