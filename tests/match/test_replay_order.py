"""Calls are numbered in the order in which every process launched them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collscope._align import ChainMerger
from collscope.ingest.commands import ingest_logs
from collscope.match.observations import COLUMNS, Observations, Signature
from collscope.match.run import Matched, match_run
from collscope.match.run_rows import Log, RunRows
from collscope.model import Op
from collscope.model.comm_handle import CommHandle, Process

_SIGNATURES = [Signature(Op.ALL_REDUCE, "native", n, 7, 0, 0, 0) for n in (1, 2, 3)]
_SENDS = [Signature(op, "native", 8, 7, 0, peer, 0) for op in (Op.SEND, Op.RECV) for peer in (0, 1)]


def _merged(chains: Sequence[Sequence[int]], nodes: int) -> tuple[list[int], int]:
    merger = ChainMerger(nodes)
    for own in chains:
        merger.add(np.array(own, np.int32))
    order, contradictions = merger.merge()
    return order.tolist(), contradictions


def test_merge_by_hand() -> None:
    assert _merged([[2, 0], [0, 1]], 4) == ([2, 0, 1, 3], 0)
    assert _merged([[0, 1], [1, 0]], 2)[1] == 1
    assert _merged([[1, 0, 1]], 2) == ([1, 0], 0)  # the first occurrence counts
    assert _merged([], 3) == ([0, 1, 2], 0)
    assert _merged([[7, 0]], 1) == ([0], 0)  # 7 is no node
    assert _merged([[-1, 1, -(2**31)], [0]], 2) == ([0, 1], 0)
    with pytest.raises(ValueError, match="negative"):
        ChainMerger(-1)


@given(st.permutations(range(12)), st.lists(st.sets(st.integers(0, 11)), max_size=5))
def test_merge_extends_every_chain_of_one_order(truth: list[int], parts: list[set[int]]) -> None:
    chains = [[n for n in truth if n in part] for part in parts]
    order, contradictions = _merged(chains, 12)
    assert sorted(order) == list(range(12))
    assert contradictions == 0
    for chain in chains:
        assert [n for n in order if n in chain] == chain


@given(st.lists(st.lists(st.integers(0, 5), max_size=8), max_size=5))
def test_merge_of_contradictions_places_every_node_once(chains: list[list[int]]) -> None:
    order, _ = _merged(chains, 6)
    assert sorted(order) == list(range(6))


def _match(
    members: list[list[int]], logs: list[list[tuple[int, int]]], tasks: list[int] | None = None
) -> Matched:
    """Match rows (communicator, signature) per process; members are processes by rank.

    tasks  of each row its place in the group that it was launched in; None: not known
    """
    handle_of: dict[tuple[int, int], int] = {}
    handles = []
    for comm, processes in enumerate(members):
        for rank, process in enumerate(processes):
            handle_of[comm, process] = len(handles)
            handles.append(
                CommHandle(process, 0x10 + comm, 0, 1, rank, len(processes), comm_hash=100 + comm)
            )
    rows = [(handle_of[c, p], s) for p, log in enumerate(logs) for c, s in log]
    columns = {n: np.full(len(rows), -1).astype(t) for n, t in COLUMNS.items()}
    columns["handle"] = np.array([r[0] for r in rows], np.int32)
    columns["sig"] = np.array([r[1] for r in rows], np.int32)
    columns["op_count"] = np.zeros(len(rows), np.uint64)
    if tasks is not None:
        columns["task"] = np.array(tasks, columns["task"].dtype)
    tuning = {"row": np.empty(0, np.int64), "setting": np.empty(0, np.int32)}
    observed = Observations(handles, _SIGNATURES + _SENDS, columns, tuning, [])
    run = RunRows([Log(handles, _SIGNATURES + _SENDS, [], len(rows), lambda _: observed)])
    return match_run(run, [Process(f"n{p}") for p in range(len(logs))], [])


@st.composite
def _jobs(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Communicators of up to five processes, and calls (communicator, signature) on them."""
    members = draw(
        st.lists(
            st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True),
            min_size=1,
            max_size=5,
        )
    )
    call = st.tuples(st.integers(0, len(members) - 1), st.integers(0, 2))
    return members, draw(st.lists(call, max_size=40))


@settings(deadline=None)
@given(_jobs())
def test_ids_extend_the_order_of_every_process(
    job: tuple[list[list[int]], list[tuple[int, int]]],
) -> None:
    members, calls = job
    logs = [[call for call in calls if p in members[call[0]]] for p in range(5)]
    matched = _match(members, logs)
    assert len(matched.calls["seq"]) == len(calls)
    # Nothing was lost, so the k-th call of a communicator is the k-th row of each of its ranks.
    number = {
        key: i
        for i, key in enumerate(
            zip(matched.calls["comm"].tolist(), matched.calls["seq"].tolist(), strict=True)
        )
    }
    first_handle = [sum(map(len, members[:c])) for c in range(len(members))]
    matched_as = {
        c: next(i for i, m in enumerate(matched.comms) if first_handle[c] in m.members.values())
        for c in range(len(members))
    }
    for log in logs:
        seen: dict[int, int] = {}
        ids = []
        for comm, _ in log:
            ids.append(number[matched_as[comm], seen.get(comm, 0)])
            seen[comm] = seen.get(comm, 0) + 1
        assert ids == sorted(ids)


def test_unconstrained_calls_stay_by_communicator() -> None:
    matched = _match([[0, 1], [2, 3]], [[(0, 0)] * 2] * 2 + [[(1, 0)] * 2] * 2)
    assert matched.calls["comm"].tolist() == [0, 0, 1, 1]
    assert matched.calls["seq"].tolist() == [0, 1, 0, 1]


def test_deviations_follow_their_calls() -> None:
    # Process 1 lost its second call on communicator 0, between two on communicator 1.
    whole = [(1, 0), (0, 0), (1, 1), (0, 1), (1, 2), (0, 2)]
    matched = _match([[0, 1], [0, 1]], [whole, [whole[k] for k in (0, 1, 2, 4, 5)]])
    assert matched.calls["comm"].tolist() == [1, 0, 1, 0, 1, 0]
    assert matched.calls["seq"].tolist() == [0, 0, 1, 1, 2, 2]
    assert [(d.call, d.rank, d.what) for d in matched.deviations] == [(3, 1, "missing")]
    # Of three processes one has another size in its second call on communicator 1.
    matched = _match([[0, 1, 2]] * 2, [whole, [*whole[:2], (1, 0), *whole[3:]], whole])
    assert matched.calls["comm"].tolist() == [1, 0, 1, 0, 1, 0]
    assert matched.calls["seq"].tolist() == [0, 0, 1, 1, 2, 2]
    assert [(d.call, d.rank, d.what) for d in matched.deviations] == [(2, 1, "differs")]


def test_transfers_stand_where_they_were_launched() -> None:
    # Signatures 3, 4: Send to 0, to 1; 5, 6: Recv from 0, from 1.
    logs = [[(0, 0), (0, 4), (1, 1)], [(0, 0), (0, 5), (1, 1)]]
    matched = _match([[0, 1], [0, 1]], logs)
    ops = [matched.classes[k].op for k in matched.calls["class"].tolist()]
    assert ops == [Op.ALL_REDUCE, Op.SEND_RECV, Op.ALL_REDUCE]
    assert [call for call, _ in matched.transfers] == [1]


def test_calls_of_a_group_stand_together_where_it_was_launched() -> None:
    # Communicator 0 makes two calls in a group, between whose lines one of communicator 1 stands.
    matched = _match([[0, 1]] * 2, [[(1, 0), (0, 0), (1, 1), (0, 1)]] * 2, tasks=[0, 0, 0, 1] * 2)
    assert matched.calls["comm"].tolist() == [1, 0, 0, 1]
    assert matched.calls["seq"].tolist() == [0, 0, 1, 1]


def test_contradicting_processes_do_not_fail() -> None:
    matched = _match([[0, 1], [0, 1]], [[(0, 0), (1, 0)], [(1, 0), (0, 0)]])
    assert sorted(matched.calls["comm"].tolist()) == [0, 1]


_COLL = re.compile(r"NCCL INFO (\w+): opCount \w+ .* comm (0x\w+) \[nranks=\d+\]")


@pytest.mark.parametrize("rank", range(4))
def test_sample_is_in_the_order_of_each_log(rank: int, samples: Path, db_path: Path) -> None:
    folder = samples / "nccl/mixed"
    ingest_logs([str(folder)], db_path, "main")
    found = (_COLL.search(line) for line in (folder / f"rank{rank}.log").read_text().splitlines())
    logged = [
        (m[1].replace("AlltoAll", "AllToAll"), m[2])
        for m in found
        if m and m[1] not in ("Send", "Recv")
    ]
    with sqlite3.connect(db_path) as db:
        stored = db.execute(
            "SELECT op, comm_ptr FROM calls JOIN members USING (comm_id)"
            " JOIN sources USING (source_id)"
            " WHERE path LIKE ? AND shape IS NULL ORDER BY call_id",
            (f"%rank{rank}.log",),
        ).fetchall()
        late = db.execute(
            "SELECT COUNT(*) FROM transfers t JOIN calls c USING (call_id) WHERE c.shape IS NULL"
        ).fetchone()
    assert len(logged) > 100
    assert stored == logged
    assert late == (0,)
