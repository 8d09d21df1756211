"""A run of the store as the records that a replay plan is built from."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from collscope.model import Datatype, Op, Redop
from collscope.replay.plan import PlanTransfer
from collscope.replay.records import Ints, RunClass, RunComm, RunRecords, RunSlot

# All calls of such a class on one communicator exchange the same.
_UNIFORM = ("alltoall", "gather", "scatter")


def load_run(connection: sqlite3.Connection, run: str, *, calls: bool = False) -> RunRecords:
    """Communicators, classes and what was called of a run; its calls in order where `calls`.

    run  label; one that the store does not hold gives records without content
    """
    classes = _classes(connection, run)
    totals = connection.execute(
        "SELECT total_id, class_id, comm_id, ranks_seen, calls FROM call_totals WHERE run = ?"
        " ORDER BY total_id",
        (run,),
    ).fetchall()
    if not totals:
        return RunRecords(_comms(connection, run), classes, ())
    slots = _Slots(connection, {c.id: c for c in classes}, totals)
    slots.load()
    slot, group = slots.calls() if calls else (np.empty(0, np.int64), np.empty(0, np.int64))
    return RunRecords(_comms(connection, run), classes, tuple(slots.found), slot, group)


def _comms(connection: sqlite3.Connection, run: str) -> tuple[RunComm, ...]:
    worlds: dict[int, dict[int, int]] = defaultdict(dict)
    for comm, rank, world in connection.execute(
        "SELECT comm_id, rank, world_rank FROM members WHERE run = ? AND world_rank IS NOT NULL",
        (run,),
    ):
        worlds[comm][rank] = world
    rows = connection.execute(
        "SELECT comm_id, nranks, parent_id FROM communicators WHERE run = ? ORDER BY comm_id",
        (run,),
    )
    return tuple(RunComm(c, n, parent, worlds[c]) for c, n, parent in rows)


def _classes(connection: sqlite3.Connection, run: str) -> tuple[RunClass, ...]:
    rows = connection.execute(
        "SELECT class_id, op, datatype, redop, count, size_bytes, root, in_place, nranks, nnodes,"
        " shape, 1.0 * kernel_ns / seen_kernels FROM classes WHERE run = ?"
        " ORDER BY class_id",
        (run,),
    )
    return tuple(
        RunClass(
            Op(op),
            Datatype.of_label(datatype),
            Redop.of_label(redop),
            count,
            size_bytes,
            root,
            None if in_place is None else bool(in_place),
            *shape,
            id=key,
            kernel_ns=kernel_ns,
        )
        for key, op, datatype, redop, count, size_bytes, root, in_place, *shape, kernel_ns in rows
    )


class _Slots:
    """Slots under construction, from the totals and, of uneven classes, from every transfer."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        classes: dict[int, RunClass],
        totals: list[tuple[int, int, int, int, int]],
    ) -> None:
        self.connection = connection
        self.classes = classes
        self.totals = totals
        self.first = totals[0][0]
        self.found: list[RunSlot] = []
        # A run's totals are numbered through: the matching writes them at once.
        self.slot_of_total = np.full(totals[-1][0] - self.first + 1, -1, dtype=np.int64)
        self.uneven: tuple[Ints, Ints] = (np.empty(0, np.int64), np.empty(0, np.int64))

    def load(self) -> None:
        """Fill `found` and `slot_of_total`."""
        alike: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        uneven = []
        for total, class_id, comm, seen, calls in self.totals:
            shape = self.classes[class_id].shape
            if shape is None or self._uniform(class_id):
                alike[class_id, comm].append((total, seen, calls))
            else:
                uneven.append(total)
        for (class_id, comm), rows in alike.items():
            best = max(rows, key=lambda r: r[1])[0]
            slot = RunSlot(class_id, comm, sum(r[2] for r in rows))
            if self.classes[class_id].shape is not None:
                items, complete = self._transfers_of(best)
                slot = RunSlot(class_id, comm, slot.calls, items, complete)
            self.slot_of_total[[r[0] - self.first for r in rows]] = len(self.found)
            self.found.append(slot)
        if uneven:
            self._load_uneven(uneven)

    def _uniform(self, class_id: int) -> bool:
        found = self.classes[class_id]
        return found.shape in _UNIFORM and found.count is not None

    def _transfers_of(self, total: int) -> tuple[tuple[PlanTransfer, ...], bool]:
        """Transfers of one call of a total, and whether both halves of all were logged."""
        rows = self.connection.execute(
            "SELECT src_rank, dst_rank, count, seen FROM transfers WHERE call_id ="
            " (SELECT call_id FROM call_keys WHERE total_id = ? LIMIT 1) ORDER BY 1, 2",
            (total,),
        ).fetchall()
        return tuple(PlanTransfer(*r[:3]) for r in rows), all(r[3] == "both" for r in rows)

    def _load_uneven(self, totals: list[int]) -> None:
        """Slots of calls that may differ in their transfers, distinguished by a hash of these."""
        marks = ",".join("?" * len(totals))
        table = _table(
            self.connection,
            "SELECT t.call_id AS a, k.total_id AS b, t.src_rank AS c, t.dst_rank AS d,"
            " t.count AS e, t.seen = 'both' AS f FROM transfers t JOIN call_keys k USING (call_id)"
            f" WHERE k.total_id IN ({marks})",
            "abcdef",
            totals,
        )
        starts = np.flatnonzero(np.diff(table[:, 0], prepend=-1))
        if not len(starts):
            return
        slot_keys = self._comm_and_class(table[starts, 1])
        hashes = np.add.reduceat(_mixed(table[:, 2:6]), starts) + slot_keys
        _, first, inverse, counts = np.unique(
            hashes, return_index=True, return_inverse=True, return_counts=True
        )
        ends = np.append(starts, len(table))
        of_total = {total: (class_id, comm) for total, class_id, comm, _, _ in self.totals}
        base = len(self.found)
        for k, n in zip(first.tolist(), counts.tolist(), strict=True):
            rows = table[ends[k] : ends[k + 1]].tolist()
            items = tuple(sorted(PlanTransfer(*r[2:5]) for r in rows))
            class_id, comm = of_total[rows[0][1]]
            self.found.append(RunSlot(class_id, comm, n, items, all(r[5] for r in rows)))
        self.uneven = (table[starts, 0], base + inverse)

    def _comm_and_class(self, totals: Ints) -> Ints:
        """A number per total that totals of the same class and communicator share, mixed."""
        keys = np.zeros(len(self.slot_of_total), dtype=np.uint64)
        index: dict[tuple[int, int], int] = {}
        for total, class_id, comm, _, _ in self.totals:
            keys[total - self.first] = index.setdefault((class_id, comm), len(index))
        return _mixed(keys[totals - self.first].astype(np.int64)[:, None])

    def calls(self) -> tuple[Ints, Ints]:
        """Slot and group (-1: alone) of every call of the run, in launch order."""
        of_run = "FROM call_keys WHERE total_id BETWEEN ? AND ?"
        ids = (self.first, self.totals[-1][0])
        table = _table(self.connection, f"SELECT call_id AS a, total_id AS b {of_run}", "ab", ids)
        groups = _table(
            self.connection,
            f"SELECT call_id AS a, group_id AS b {of_run} AND group_id IS NOT NULL",
            "ab",
            ids,
        )
        call = table[:, 0]
        group = np.full(len(call), -1, dtype=np.int64)
        group[np.searchsorted(call, groups[:, 0])] = groups[:, 1]
        slot = self.slot_of_total[table[:, 1] - self.first]
        slot[np.searchsorted(call, self.uneven[0])] = self.uneven[1]
        return slot, group


def _table(
    connection: sqlite3.Connection, query: str, names: str, parameters: Sequence[int]
) -> Ints:
    """Rows of a query of integers sorted by the first column, shape (rows, columns).

    names  one letter per column
    """
    # Measured: a quarter of the time of fetching the rows, since every row becomes Python objects.
    lists = ", ".join(f"group_concat({name})" for name in names)
    texts = connection.execute(f"SELECT {lists} FROM ({query})", parameters).fetchone()
    columns = [np.fromstring(text or "", dtype=np.int64, sep=",") for text in texts]
    table = np.stack(columns, axis=1)
    return table[np.argsort(table[:, 0], kind="stable")]


def _mixed(columns: Ints) -> Ints:
    """A 64-bit number per row that depends on every column, shape (rows,).

    source  splitmix64 of S. Vigna, prng.di.unimi.it; sums of it distinguish sets of rows
    """
    mixed = np.zeros(len(columns), dtype=np.uint64)
    for column in columns.T.astype(np.uint64):
        mixed += column + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed
