"""Pieces of the matching on small hand-made inputs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from collscope.ingest.commands import ingest_logs
from collscope.ingest.match import reading
from collscope.ingest.observation_blob import decode, encode
from collscope.match.calls import in_place
from collscope.match.communicators import join_communicators
from collscope.match.observations import COLUMNS, Observations
from collscope.match.p2p import Transfer, recognise
from collscope.model import Datatype, Op, bus_bandwidth, bus_factor, parse_op, redop_of, size_bytes
from collscope.model.comm_handle import CommHandle, Process
from collscope.reports.report.build import build_report


def _ingest(text: str, folder: Path) -> sqlite3.Connection:
    (folder / "log").write_text(text)
    ingest_logs([str(folder / "log")], folder / "t.db", "main")
    return sqlite3.connect(folder / "t.db")


def _line(rank: int, op: str, *, comm: int = 1, tail: str = "", **keys: object) -> str:
    v = {"opCount": 0, "sendbuff": "0x10", "recvbuff": "0x20", "count": 8, "datatype": 7, "op": 0}
    v |= {"root": 0, **keys}
    pairs = " ".join(f"{k} {x}" for k, x in v.items())
    return (
        f"h:{rank + 10}:{rank + 10} [{rank}] NCCL INFO {op}: {pairs} comm 0x{rank + 1}{comm}0"
        f" [nranks=4] stream 0x1{tail}\n"
    )


def _rccl(rank: int, op: str, task: int = 0, **keys: object) -> str:
    return _line(rank, op, tail=f" task {task} globalrank {rank}", **keys)


# PERFORMANCE.md of nccl-tests, worked out by hand for 8 ranks, 1024 floats: S and busbw/algbw.
@pytest.mark.parametrize(
    ("op", "size", "factor"),
    [
        (Op.ALL_REDUCE, 4096, 14 / 8),
        (Op.ALL_GATHER, 32768, 7 / 8),
        (Op.REDUCE_SCATTER, 32768, 7 / 8),
        (Op.ALL_TO_ALL, 32768, 7 / 8),
        (Op.GATHER, 32768, 7 / 8),
        (Op.SCATTER, 32768, 7 / 8),
        (Op.BROADCAST, 4096, 1.0),
        (Op.REDUCE, 4096, 1.0),
        (Op.SEND_RECV, 4096, 1.0),
    ],
)
def test_size_and_factor(op: Op, size: int, factor: float) -> None:
    assert size_bytes(op, count=1024, datatype=Datatype.FLOAT32, nranks=8) == size
    assert bus_factor(op, 8) == pytest.approx(factor)
    assert bus_factor(op, 1) is None
    assert bus_factor(op, None) is None


@pytest.mark.parametrize(
    ("time_ms", "expected"), [(3.25299, 288.82), (3.22935, 290.93), (3.20286, 293.34)]
)
def test_the_guides_rows_have_their_true_bus_bandwidth(time_ms: float, expected: float) -> None:
    size = size_bytes(Op.ALL_REDUCE, count=268435456, datatype=Datatype.FLOAT16, nranks=8)
    busbw = bus_bandwidth(Op.ALL_REDUCE, size=size, time_s=time_ms / 1e3, nranks=8)
    assert busbw == pytest.approx(expected, abs=0.005)


def test_names_and_codes() -> None:
    assert parse_op("mscclpp_ncclAllGather") is Op.ALL_GATHER
    assert parse_op("AllToAllPivot") is Op.ALL_TO_ALL
    assert parse_op("NoSuchThing") is Op.UNKNOWN
    assert (redop_of(2).value, redop_of(3).value, redop_of(77).value) == ("Max", "Min", "Custom")


def test_in_place_needs_every_member_or_the_root() -> None:
    all_members, unknown = np.array([-1, -1, -1]), -2
    slots = np.array([[0, 0], [0, -1], [unknown, unknown]])
    assert in_place(all_members, [0, 1], slots, np.array([False])).tolist() == [1, 0, -1]
    gathered = np.array([[0, 1], [0, 0], [unknown, 1]])
    assert in_place(all_members, [0, 1], gathered, np.array([True])).tolist() == [1, 0, 1]
    root_decides = np.array([0, 0, 0])
    rooted = np.array([[0, -1], [-1, 0], [unknown, 0]])
    assert in_place(root_decides, [0, 1], rooted, np.array([False])).tolist() == [1, 0, -1]


def test_in_place_all_gather_is_an_offset_not_equal_pointers(tmp_path: Path) -> None:
    # 8 floats a rank: rank r is in place where sendbuff = recvbuff + 32 r.
    text = "".join(
        _rccl(r, "AllGather", sendbuff=hex(0x1000 + 32 * r), recvbuff="0x1000") for r in range(4)
    )
    with _ingest(text, tmp_path) as db:
        assert db.execute("SELECT op, in_place, size_bytes FROM calls").fetchall() == [
            ("AllGather", 1, 128)
        ]


def test_a_rank_that_logs_another_count_is_a_disagreement(tmp_path: Path) -> None:
    text = ""
    for r in range(4):
        text += _rccl(r, "AllReduce", opCount=0) + _rccl(
            r, "AllReduce", opCount=1, count=9 + (r == 2)
        )
        text += _rccl(r, "Broadcast", opCount=2)
    with _ingest(text, tmp_path) as db:
        calls = db.execute("SELECT seq, op, count, ranks_seen FROM calls ORDER BY seq").fetchall()
        deviations = db.execute("SELECT seq, rank, what, detail, line FROM deviations").fetchall()
        found = db.execute("SELECT severity, code, count FROM diagnostics WHERE path IS NULL")
        codes = {(severity, code): count for severity, code, count in found}
    assert calls == [(0, "AllReduce", 8, 4), (1, "AllReduce", 9, 3), (2, "Broadcast", 8, 4)]
    assert deviations == [(1, 2, "differs", "AllReduce count 10 Float32 root 0", 8)]
    assert codes["error", "ranks_disagree"] == 1


def test_rccl_task_numbers_make_groups(tmp_path: Path) -> None:
    text = ""
    for r in range(4):
        text += _rccl(r, "AllReduce", opCount=0)
        text += _rccl(r, "AllReduce", opCount=1) + _rccl(r, "Broadcast", task=1, opCount=1)
        text += _rccl(r, "AllReduce", opCount=2)
    with _ingest(text, tmp_path) as db:
        groups = [g for (g,) in db.execute("SELECT group_id FROM calls ORDER BY seq")]
    assert groups[0] is None
    assert groups[3] is None
    assert groups[1] is not None
    assert groups[1] == groups[2]


def test_pipeline_sends_stay_single_transfers(tmp_path: Path) -> None:
    # 0 -> 1 -> 2 -> 3 in one direction is no shift around the ring.
    p2p = {"sendbuff": "(nil)"}
    text = ""
    for r in range(4):
        text += _line(r, "Recv", root=r - 1, **p2p) if r else ""
        text += _line(r, "Send", root=r + 1, **p2p) if r < 3 else ""
    with _ingest(text, tmp_path) as db:
        calls = db.execute("SELECT op, shape, count, ranks_seen FROM calls").fetchall()
        seen = db.execute("SELECT src_rank, dst_rank, seen FROM transfers ORDER BY 1").fetchall()
    assert calls == [("SendRecv", "sendrecv", 8, 2)] * 3
    assert seen == [(0, 1, "both"), (1, 2, "both"), (2, 3, "both")]


def test_a_reused_pointer_is_a_new_communicator(tmp_path: Path) -> None:
    init = (
        "h:{0}:{0} [{1}] NCCL INFO ncclCommInitRank comm 0x{2}0 rank {1} nranks 2 cudaDev {1}"
        " nvmlDev {1} busId {1}000 commId 0x{3} - Init {4}\n"
    )
    line = (
        "h:{0}:{0} [{1}] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count {2}"
        " datatype 7 op 0 root 0 comm 0x{3}0 [nranks=2] stream (nil)\n"
    )
    text = ""
    for r in range(2):
        for life, count in (("aa", 1), ("bb", 2)):
            text += init.format(10 + r, r, r + 1, life, "START")
            text += init.format(10 + r, r, r + 1, life, "COMPLETE")
            text += line.format(10 + r, r, count, r + 1)
    with _ingest(text, tmp_path) as db:
        found = db.execute(
            "SELECT comm_hash, count FROM calls JOIN communicators USING (comm_id) ORDER BY 1"
        ).fetchall()
        generations = {g for (g,) in db.execute("SELECT generation FROM members")}
    comms = db.execute("SELECT comm_hash, ranks_seen FROM communicators ORDER BY 1").fetchall()
    assert comms == [("0xaa", 2), ("0xbb", 2)]
    assert generations == {0, 1}
    assert found == [("0xaa", 1), ("0xbb", 2)]


def test_the_guides_log_lines(samples: Path, db_path: Path) -> None:
    log = samples / "rccl" / "guide-coll-klke.log"
    ingest_logs([str(log)], db_path, "main")
    with sqlite3.connect(db_path) as db:
        big = db.execute(
            "SELECT op, datatype, redop, nranks, in_place, size_bytes FROM calls"
            " WHERE count = 268435456"
        ).fetchall()
        kernels = db.execute(
            "SELECT rank, op_count, duration_ns FROM kernels WHERE name ="
            " 'ncclDevFunc_AllReduce_RING_LL_Sum_double' AND duration_ns IS NOT NULL ORDER BY 1, 2"
        ).fetchall()
        joined = db.execute(
            "SELECT k.rank, k.op_count, c.op, c.count FROM kernels k JOIN calls c USING (call_id)"
            " ORDER BY 1, 2"
        ).fetchall()
        query = "SELECT count FROM diagnostics WHERE code = 'kernel_without_call'"
        lost = db.execute(query).fetchall()
    assert big == [("AllReduce", "Float16", "Sum", 8, 1, 536870912)]
    # KE minus KL of the text, in ns: for instance rank 2, 170260.348966 - 170260.348133 s.
    assert kernels == [
        (0, 2, 22_000),
        (2, 1, 833_000),
        (3, 2, 113_000),
        (4, 2, 119_000),
        (5, 1, 21_000),
        (5, 2, 19_000),
    ]
    # The other six kernels are of ranks and calls without a line.
    assert lost == [(6,)]
    # Ranks 2 and 5 also logged the calls of those kernels: opCount 1 is the count of 9.
    assert joined == [(2, 2, "AllReduce", 1), (5, 1, "AllReduce", 9), (5, 2, "AllReduce", 1)]


def test_kernel_times_of_all_ranks_split_into_transfer_and_wait(tmp_path: Path) -> None:
    text = "".join(_rccl(r, "AllReduce", opCount="a") for r in range(4))
    name = "ncclDevFunc_AllReduce_RING_LL_Sum_f32"
    for r, (start, end) in enumerate([(100, 900), (300, 900), (800, 900), (500, 900)]):
        head = f"h:{10 + r}:99 [0] NCCL INFO ## [{7:06d}.{{:06d}}] [{r:02d}:{{:02d}}] 00000a"
        tail = f"busId {r}000 nRanks 4"
        for block in range(2):
            text += head.format(start + block, block)
            text += f" KL HWID 42300700 {name} nw 4 bi 0 nc 0 {tail}\n"
        for block in range(2):
            text += head.format(end - block, block) + f" KE {tail}\n"
    with _ingest(text, tmp_path) as db:
        rows = db.execute(
            "SELECT rank, blocks, duration_ns, transfer_ns, wait_ns FROM kernels ORDER BY rank"
        ).fetchall()
        classes = db.execute("SELECT kernel_calls, transfer_ns, wait_ns FROM classes").fetchall()
    # Rank 2 came last: its 100 us are the transfer, the rest of the others' time is waiting.
    assert rows == [
        (0, 2, 800_000, 100_000, 700_000),
        (1, 2, 600_000, 100_000, 500_000),
        (2, 2, 100_000, 100_000, 0),
        (3, 2, 400_000, 100_000, 300_000),
    ]
    assert classes == [(1, 100_000, 1_500_000)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["AllReduce", "Broadcast", "AllGather"]), max_size=12))
def test_segments_survive_the_store(
    tmp_path_factory: pytest.TempPathFactory, ops: list[str]
) -> None:
    from collscope._logscan import Scanner
    from collscope.match.observe import observe
    from collscope.model.scanned_log import LogScan

    scanner = Scanner()
    scanner.feed("".join(_rccl(r, op) for op in ops for r in range(2)).encode())
    observed = observe(LogScan.of(scanner.finish()), []).observations
    again = decode(encode(observed), observed.handles)
    assert again.signatures == observed.signatures
    for name, column in observed.columns.items():
        np.testing.assert_array_equal(again.columns[name], column)


_EDGES = st.sampled_from([0, 1, 127, 128, 2**15, 2**31, 2**32 - 1, 2**63, 2**64 - 1])


@settings(deadline=None)
@given(st.lists(_EDGES | st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_segments_keep_every_integer(values: list[int]) -> None:
    wide = np.array(values, dtype=np.uint64)
    columns = {name: wide.astype(dtype) for name, dtype in COLUMNS.items()}
    observed = Observations([], [], columns, {"row": wide.astype(np.int64)}, [])
    again = decode(encode(observed), [])
    for name, column in columns.items():
        np.testing.assert_array_equal(again.columns[name], column)
        assert again.columns[name].dtype == column.dtype
    np.testing.assert_array_equal(again.tuning["row"], observed.tuning["row"])


def test_a_column_younger_than_the_store_is_absent() -> None:
    columns = {name: np.arange(3).astype(dtype) for name, dtype in COLUMNS.items()}
    stored = {name: column for name, column in columns.items() if name != "task"}
    again = decode(encode(Observations([], [], stored, {}, [])), [])
    assert again.columns["task"].tolist() == [-1, -1, -1]
    assert again.columns["task"].dtype == COLUMNS["task"]
    assert again.columns["line"].tolist() == [0, 1, 2]


def _traced(time_us: int, what: str, *, count: int, block: int = 0, nranks: int = 4) -> str:
    """A kernel-trace line of rank 0; `what` is KE, or KL or CL with a name."""
    bus = f" busId c000 nRanks {nranks}" if what[:2] != "CL" else ""
    head = f"h:10:99 [0] NCCL INFO ## [000007.{time_us:06d}] [00:{block:02d}] {count:06x} {what}"
    return head + (" nw 4 bi 0 nc 1" if what != "KE" else "") + bus + "\n"


_CODES = "SELECT code FROM diagnostics"
_SPANS = "SELECT name, op_count, blocks, duration_ns FROM kernels ORDER BY start_ns, name"
_SUM, _GATHER = "ncclDevFunc_AllReduce_RING_LL_Sum_f32", "ncclDevFunc_AllGather_RING_LL_Sum_i8"
_P2P = "ncclDevFunc_SendRecv_RING_SIMPLE_Sum_i8"


def test_kernels_of_two_communicators_may_run_at_once(tmp_path: Path) -> None:
    # Rank 0 of 4 ranks and rank 0 of 2 ranks are one GPU: only nRanks tells whose KE it is.
    text = _traced(100, f"KL HWID 1 {_SUM}", count=3)
    text += _traced(110, f"KL HWID 1 {_GATHER}", count=3, nranks=2)
    text += _traced(200, "KE", count=3) + _traced(310, "KE", count=3, nranks=2)
    with _ingest(text, tmp_path) as db:
        assert db.execute(_SPANS).fetchall() == [(_SUM, 3, 1, 100_000), (_GATHER, 3, 1, 200_000)]
        assert db.execute("SELECT code FROM diagnostics").fetchall() == [("kernel_without_call",)]


def test_an_end_of_another_counter_ends_no_kernel(tmp_path: Path) -> None:
    # The device's buffer was overrun: KE of 4 to KL of 9 are lost.
    text = "".join(
        _traced(100 * n, f"KL HWID 1 {_SUM}", count=n) * (n != 9)
        + _traced(100 * n + 50, "KE", count=n) * (n != 4)
        for n in (3, 4, 9, 10)
    )
    with _ingest(text, tmp_path) as db:
        rows = db.execute("SELECT op_count, duration_ns FROM kernels ORDER BY 1").fetchall()
        found = db.execute("SELECT code, count FROM diagnostics ORDER BY 1").fetchall()
    assert rows == [(3, 50_000), (4, None), (10, 50_000)]
    assert found == [
        ("kernel_end_without_start", 1),
        ("kernel_without_call", 3),
        ("kernel_without_end", 1),
    ]


def test_work_items_of_a_fused_kernel_are_calls_of_their_own(tmp_path: Path) -> None:
    # Two all-reduces of one group in two blocks; the second block is 5 us late.
    text = _rccl(0, "AllReduce", opCount=7) + _rccl(0, "AllReduce", task=1, opCount=7, count=9)
    for block, late in ((0, 0), (1, 5)):
        text += _traced(100 + late, f"KL HWID 1 {_SUM}", count=7, block=block)
        text += _traced(120 + late, f"CL {_SUM}", count=7, block=block)
        text += _traced(160 + late, "KE", count=7, block=block)
    with _ingest(text, tmp_path) as db:
        rows = db.execute(
            "SELECT c.count, blocks, duration_ns FROM kernels JOIN calls c USING (call_id)"
        ).fetchall()
    assert rows == [(8, 2, 25_000), (9, 2, 45_000)]


@pytest.mark.parametrize(("calls", "joined"), [(range(3), [3, 4, 5]), ((1, 4097, 4098), [])])
def test_wrapped_counters_of_transfers_join_no_call(
    tmp_path: Path, calls: tuple[int, ...], joined: list[int]
) -> None:
    # Counters of Send and Recv kernels have 12 bits: 001 is call 1, or 4097 of a longer job.
    text = "".join(
        _rccl(0, "Send", opCount=f"{c:x}", root=1, count=3 + k) for k, c in enumerate(calls)
    )
    for c in calls:
        text += _traced(100 + c, f"KL HWID 1 {_P2P}", count=c % 4096)
        text += _traced(105 + c, "KE", count=c % 4096)
    with _ingest(text, tmp_path) as db:
        found = db.execute("SELECT count FROM calls JOIN kernels USING (call_id) ORDER BY 1")
        assert [count for (count,) in found] == joined


def test_a_counter_that_stands_joins_only_complete_traces(tmp_path: Path) -> None:
    # opCount stays 0 within one node: with a kernel missing, the others may be of any call.
    calls = "".join(_rccl(0, "AllReduce", count=c) for c in (1, 2, 3))
    pairs = [
        _traced(100 * n, f"KL HWID 1 {_SUM}", count=0) + _traced(100 * n + n, "KE", count=0)
        for n in (1, 2, 3)
    ]
    query = "SELECT c.count, duration_ns FROM kernels JOIN calls c USING (call_id) ORDER BY 1"
    for kernels, joined in ((pairs, [(1, 1000), (2, 2000), (3, 3000)]), (pairs[1:], [])):
        folder = tmp_path / str(len(kernels))
        folder.mkdir()
        with _ingest(calls + "".join(kernels), folder) as db:
            assert db.execute(query).fetchall() == joined


def _calls(db: sqlite3.Connection) -> list[tuple[object, ...]]:
    return db.execute("SELECT seq, op, count, ranks_seen FROM calls ORDER BY seq").fetchall()


def test_one_of_many_equal_calls_differs(tmp_path: Path) -> None:
    # Not a lost line at the place of the difference and another at the end.
    text = "".join(
        _line(r, "AllReduce", count=9 if (r, k) == (2, 3) else 8)
        for k in range(9)
        for r in range(4)
    )
    with _ingest(text, tmp_path) as db:
        assert _calls(db) == [(k, "AllReduce", 8, 4 - (k == 3)) for k in range(9)]
        assert db.execute("SELECT seq, rank, what FROM deviations").fetchall() == [
            (3, 2, "differs")
        ]


@pytest.mark.parametrize("counter", [0, 1])
def test_ranks_that_lost_neighbouring_lines(tmp_path: Path, counter: int) -> None:
    # All lost a line. Ranks 0 and 1 do not tell in which order calls 1 and 2 were; others do.
    lost = {(0, 2), (1, 1), (2, 5), (3, 7)}
    text = "".join(
        _line(r, "AllReduce", count=k + 1, opCount=k * counter)
        for r in range(4)
        for k in range(9)
        if (r, k) not in lost
    )
    with _ingest(text, tmp_path) as db:
        assert _calls(db) == [(k, "AllReduce", k + 1, 4 - (k in (1, 2, 5, 7))) for k in range(9)]
        found = db.execute("SELECT rank, seq, what FROM deviations ORDER BY 1").fetchall()
    assert found == [(r, k, "missing") for r, k in sorted(lost)]


@pytest.mark.parametrize("lost", [(10, 11), (11, 10)])
def test_equal_calls_are_told_apart_by_their_counter(tmp_path: Path, lost: tuple[int, int]) -> None:
    # Half of the ranks lost one call, half its neighbour: no rank tells which of them came first.
    gone = {(0, lost[0]), (1, lost[0]), (2, lost[1]), (3, lost[1]), (3, 5)}
    text = "".join(
        _line(r, "AllReduce", opCount=f"{k:x}") for r in range(4) for k in range(24)
        if (r, k) not in gone
    )  # fmt: skip
    with _ingest(text, tmp_path) as db:
        seen = [4 - sum((r, k) in gone for r in range(4)) for k in range(24)]
        assert _calls(db) == [(k, "AllReduce", 8, n) for k, n in enumerate(seen)]
        found = db.execute("SELECT rank, seq, what FROM deviations").fetchall()
    assert sorted(found) == [(r, k, "missing") for r, k in sorted(gone)]


@pytest.mark.parametrize(("step", "ahead"), [(0, 0), (1, 100)])
def test_a_rank_whose_counter_runs_otherwise_made_the_same_calls(
    tmp_path: Path, step: int, ahead: int
) -> None:
    text = "".join(
        _line(
            r, "AllReduce", opCount=k * step + ahead if r == 3 else k,
            count=99 if (r, k) == (2, 5) else k + 1,
        )
        for r in range(4) for k in range(9) if (r, k) != (0, 2)
    )  # fmt: skip
    with _ingest(text, tmp_path) as db:
        assert [seen for *_, seen in _calls(db)] == [4, 4, 3, 4, 4, 3, 4, 4, 4]
        found = db.execute("SELECT rank, seq, what FROM deviations").fetchall()
    assert sorted(found) == [(0, 2, "missing"), (2, 5, "differs")]


def test_size_of_an_uneven_exchange_is_the_most_that_any_rank_moves() -> None:
    # Rank 0 sends 1 + 10, rank 1 2 + 20, rank 2 3 + 4; rank 2 receives 10 + 20.
    sent = {(0, 1): 1, (0, 2): 10, (1, 0): 2, (1, 2): 20, (2, 0): 3, (2, 1): 4}
    for turned in (False, True):
        group = [
            Transfer(d if turned else s, s if turned else d, n, Datatype.INT8, row, None)
            for row, ((s, d), n) in enumerate(sent.items())
        ]
        (call,) = recognise(group, 3, 0)
        assert (call.op, call.size_bytes, call.count) == (Op.ALL_TO_ALLV, 30, None)
    group[2] = replace(group[2], datatype=Datatype.UNKNOWN)
    assert recognise(group, 3, 0)[0].size_bytes is None


def test_a_lone_send_is_no_gather(tmp_path: Path) -> None:
    # Of four ranks one was logged: a pipeline's Send shows as much as a gather's.
    with _ingest(_line(1, "Send", root=2, sendbuff="(nil)"), tmp_path) as db:
        found = db.execute("SELECT op, shape, size_bytes, ranks_seen FROM calls").fetchall()
    assert found == [("SendRecv", "sendrecv", 32, 1)]


def _members(db: sqlite3.Connection) -> list[tuple[int, int, int]]:
    return db.execute("SELECT comm_id, rank, pid FROM members ORDER BY 1, 2").fetchall()


def test_jobs_without_ids_are_told_apart_by_their_calls(tmp_path: Path) -> None:
    # NCCL before 2.16 prints no commId; the files of two jobs stand mixed in their folder.
    init = "comm 0x{0}0 rank {1} nranks 2 cudaDev {1} busId {1}000 - Init COMPLETE\n"
    text = ""
    for pid, rank, op in (
        (3, 0, "Reduce"),
        (4, 1, "Broadcast"),
        (5, 0, "Broadcast"),
        (6, 1, "Reduce"),
    ):
        text += f"h:{pid}:{pid} [{rank}] NCCL INFO " + init.format(pid, rank)
        text += (
            _line(rank, op)
            .replace(f"h:{rank + 10}:{rank + 10}", f"h:{pid}:{pid}")
            .replace(f"comm 0x{rank + 1}10 [nranks=4]", f"comm 0x{pid}0 [nranks=2]")
        )
    with _ingest(text, tmp_path) as db:
        assert sorted(_members(db)) == [(1, 0, 3), (1, 1, 6), (2, 0, 5), (2, 1, 4)]
        assert db.execute("SELECT op, ranks_seen FROM calls ORDER BY 1").fetchall() == [
            ("Broadcast", 2),
            ("Reduce", 2),
        ]


def test_a_split_s_parent_is_the_last_communicator_at_its_pointer() -> None:
    # The first communicator at 0x10 was destroyed, and another one got its memory.
    seen = ((0x10, 0, 7, None), (0x10, 5, 8, None), (0x20, 9, 9, 0x10), (0x10, 12, 10, None))
    handles = [
        CommHandle(0, ptr, 0, line, 0, 1, comm_hash=hash_, parent_ptr=parent)
        for ptr, line, hash_, parent in seen
    ]
    comms = join_communicators(handles, [Process("n")], [0] * 4)
    hashes = [c.comm_hash for c in comms]
    (child,) = (c for c in comms if c.comm_hash == 9)
    assert child.parent == hashes.index(8)


def test_a_process_with_many_gpus_takes_no_rank_of_another_job(
    samples: Path, db_path: Path
) -> None:
    # The guide's document: eight processes of which three have lines, and one with eight GPUs.
    texts = [(samples / "rccl" / f"guide-{n}.log") for n in ("coll-klke", "replayer-stdout")]
    log = db_path.with_name("both.log")
    log.write_text("".join(text.read_text() for text in texts))
    ingest_logs([str(log)], db_path, "main")
    with sqlite3.connect(db_path) as db:
        members = db.execute(
            "SELECT GROUP_CONCAT(rank), COUNT(DISTINCT pid) FROM members GROUP BY comm_id"
        ).fetchall()
        codes = {code for (code,) in db.execute(_CODES)}
    assert members == [("0,1,2,3,4,5,6,7", 1), ("0,2,5", 3)]
    # Both use the same GPUs: RCCL's kernel trace tells their bus ids.
    assert "several_jobs" in codes
    with reading(db_path) as connection:
        found = {finding.code: finding for finding in build_report(connection, "main").findings}
    # 15 uses of 8 GPUs (7 of them have two processes) by 8 processes.
    assert "At least one process used several GPUs." in found["several_jobs"].detail
    # Rank 0's only line is of call 3, those of ranks 2 and 5 are of calls 1 and 2.
    assert "ranks_stopped" not in found
    assert (
        "Communicator 2: rank 0 lacks 2 entries, rank 2 lacks 2 entries,"
        in found["missing_calls"].detail
    )


@pytest.mark.parametrize("missing", [None, 0, 3])
def test_jobs_one_after_the_other_in_one_log(tmp_path: Path, missing: int | None) -> None:
    # The same program twice, the first time without one of the four ranks: equal calls.
    def job(pid: int, ranks: list[int]) -> str:
        lines = (_rccl(r, "AllReduce", opCount=c) for c in range(3) for r in ranks)
        return "".join(
            line.replace(f"h:{r + 10}:{r + 10}", f"h:{pid + r}:{pid + r}")
            for line, r in zip(lines, ranks * 3, strict=True)
        )

    first = [r for r in range(4) if r != missing]
    with _ingest(job(100, first) + job(200, [0, 1, 2, 3]), tmp_path) as db:
        found = db.execute(
            "SELECT GROUP_CONCAT(pid) FROM members GROUP BY comm_id ORDER BY MIN(pid)"
        ).fetchall()
    assert found == [(",".join(str(100 + r) for r in first),), ("200,201,202,203",)]


def test_one_process_with_all_devices(tmp_path: Path) -> None:
    # nccl-tests -g 4 without INIT: four pointers of one process are one communicator's ranks.
    text = "".join(
        _line(r, "AllReduce", count=k).replace(f"h:{r + 10}:{r + 10}", "h:10:10")
        for k in (8, 9)
        for r in range(4)
    )
    with _ingest(text, tmp_path) as db:
        assert _calls(db) == [(0, "AllReduce", 8, 4), (1, "AllReduce", 9, 4)]
        assert _members(db) == [(1, r, 10) for r in range(4)]


def test_processes_with_several_devices_each(tmp_path: Path) -> None:
    # nccl-tests -t 2 on two nodes without INIT, twice with equal calls, one after the other: each
    # run is one communicator of four ranks. NCCL 2.12 glues the first line to half a row.
    def run(pid: int) -> str:
        lines = [
            _line(device, "AllReduce", count=8)
            .replace(f"h:{device + 10}:{device + 10}", f"node-{host}:{pid}:{pid + device}")
            .replace(f"comm 0x{device + 1}10", f"comm 0x{pid}{host}{device}0")
            for _ in range(2)
            for host in (1, 2)
            for device in (0, 1)
        ]
        return "          32             8     float     sum" + "".join(lines)

    with _ingest(run(500) + run(600), tmp_path) as db:
        assert [calls[1:] for calls in _calls(db)] == [("AllReduce", 8, 4)] * 4
        assert _members(db) == [(c, r, 500 if c == 1 else 600) for c in (1, 2) for r in range(4)]
        hosts = db.execute("SELECT DISTINCT host FROM members ORDER BY 1").fetchall()
        assert hosts == [("node-1",), ("node-2",)]
        assert db.execute("SELECT COUNT(*), MAX(ranks_seen) FROM calls").fetchone() == (4, 4)
        assert db.execute("SELECT DISTINCT nnodes FROM communicators").fetchall() == [(2,)]


def test_tuning_without_a_name_goes_by_all_ranks_bytes(tmp_path: Path) -> None:
    # NCCL 2.20 to 2.22: an AllGather's bytes are those of all ranks, 4 * 8 * 4, not 64 of another.
    text = "h:10:10 [0] NCCL INFO comm 0x110 rank 0 nranks 4 cudaDev 0 busId 1 commId 0x5 - Init "
    text += "COMPLETE\n" + _line(0, "AllGather") + _line(0, "AllReduce", count=16)
    for size, algorithm in ((64, 0), (128, 1)):
        text += f"h:10:10 [0] NCCL INFO {size} Bytes -> Algo {algorithm} proto 2 time 5.5\n"
    with _ingest(text, tmp_path) as db:
        found = db.execute("SELECT op, algorithm FROM calls ORDER BY seq").fetchall()
    assert found == [("AllGather", "RING"), ("AllReduce", "TREE")]


def test_a_process_in_two_logs_is_pointed_out(tmp_path: Path) -> None:
    # A shared stdout beside a file per process: the bytes differ, the calls are the same.
    with _ingest("step 1\n" + _line(0, "AllReduce"), tmp_path) as db:
        assert "process_in_two_logs" not in {c for (c,) in db.execute(_CODES)}
    with _ingest(_line(0, "AllReduce") + "step 2\n" + _line(1, "AllReduce"), tmp_path) as db:
        assert ("process_in_two_logs", 1) in db.execute("SELECT code, count FROM diagnostics")
    with reading(tmp_path / "t.db") as connection:
        (first, *_) = build_report(connection, "main").findings
    assert (first.code, first.severity) == ("logged_twice", "warning")


@pytest.mark.parametrize(("pid", "comm", "jobs"), [(10, 6, 0), (90, 5, 0), (90, 6, 1)])
def test_processes_on_one_gpu_without_a_common_communicator_are_of_two_jobs(
    tmp_path: Path, pid: int, comm: int, jobs: int
) -> None:
    # Neither a second communicator of a process nor two ranks of one on a GPU are another job.
    init = " [0] NCCL INFO comm 0x{0}0 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0x{0} - Init "
    for number, at in ((5, 10), (comm, pid)):
        text = f"h:{at}:{at}{init.format(number)}COMPLETE\n"
        with _ingest(text, tmp_path) as db:
            found = db.execute("SELECT count FROM diagnostics WHERE code = 'several_jobs'")
            counted = [n for (n,) in found]
    assert counted == [1] * jobs


@pytest.mark.parametrize("start", ["START", ""])
def test_links_of_a_reused_pointer_are_of_their_own_communicator(
    tmp_path: Path, start: str
) -> None:
    # RCCL names the pointer; before 2.18 there is no Init START line before the channels.
    head, comm = "h:10:10 [0] NCCL INFO ", "comm 0x70 rank 0 nranks 2 cudaDev 0 busId 1000"
    text = ""
    for number, carrier in ((0xA, "P2P/IPC"), (0xB, "SHM/direct/direct")):
        text += f"{head}{comm} commId {number:#x} - Init START\n" if start else ""
        text += f"{head}Channel 00/0 : 0[1000] -> 1[2000] via {carrier} comm 0x70 nRanks 02\n"
        text += f"{head}{comm} commId {number:#x} - Init COMPLETE\n"
        text += f"{head}{comm} - Destroy COMPLETE\n"
    with _ingest(text, tmp_path) as db:
        found = db.execute(
            "SELECT comm_hash, transport FROM links JOIN communicators USING (comm_id) ORDER BY 1"
        ).fetchall()
    assert found == [("0xa", "P2P/IPC"), ("0xb", "SHM/direct")]


def test_a_call_trace_beside_init_lines_is_the_same_communicator(tmp_path: Path) -> None:
    # NCCL_DEBUG=TRACE prints all three; a second life of the pointer follows.
    text = ""
    for life in ("0xaa", "0xbb"):
        init = "comm 0x70 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 1000 commId " + life
        text += f"h:1:1 [0] NCCL INFO {init} - Init START\n"
        text += f"h:1:1 NCCL CALL ncclCommInitRank(0x70, 1, {life}, 0, 0)\n"
        text += f"h:1:1 [0] NCCL INFO {init} - Init COMPLETE\n"
    with _ingest(text, tmp_path) as db:
        found = db.execute("SELECT comm_hash FROM communicators ORDER BY 1").fetchall()
    assert found == [("0xaa",), ("0xbb",)]
