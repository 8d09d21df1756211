"""Sends and Recvs of recorders as calls, transfers and findings; expectations by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command import collscope, rows
from hypothesis import given
from hypothesis import strategies as st
from recorder_builder import record

from collscope.match import p2p
from collscope.model import Datatype

HASH = 0xEE443ED6ADAB8120
CALLS = (
    "SELECT op, shape, count, datatype, size_bytes, root, ranks_seen FROM calls ORDER BY call_id"
)
TRANSFERS = (
    "SELECT call_id, src_rank, dst_rank, count, datatype, size_bytes, seen FROM transfers"
    " ORDER BY call_id, src_rank, dst_rank"
)


class Flight:
    """One rank's flight recorder, entry by entry as ProcessGroupNCCL writes them."""

    def __init__(self, rank: int, ranks: Sequence[int], first: int = 0) -> None:
        self.rank, self.ranks, self.record = rank, ranks, first
        self.me = list(ranks).index(rank)
        self.collectives = self.transfers = 0
        self.entries: list[dict[str, Any]] = []

    def entry(self, name: str, shape: list[list[int]], p2p: bool, state: str = "completed") -> None:
        self.entries.append(
            {
                "record_id": self.record, "pg_id": 0, "thread_id": str(self.rank),
                "process_group": ["7", "pp"],
                "collective_seq_id": self.collectives, "p2p_seq_id": self.transfers,
                "profiling_name": name, "time_created_ns": 1_000_000 + 1000 * self.record,
                "input_sizes": shape, "input_dtypes": ["Float"] * len(shape),
                "output_sizes": shape, "output_dtypes": ["Float"] * len(shape),
                "state": state, "is_p2p": p2p,
            }
        )  # fmt: skip
        self.record += 1

    def all_reduce(self, n: int) -> None:
        self.collectives += 1
        self.entry("nccl:all_reduce", [[n]], False)

    def half(self, op: str, peer: int, n: int, state: str = "completed") -> None:
        arrow = "->" if op == "send" else "<-"
        self.entry(f"nccl:{op} {self.me}{arrow}{peer}", [[n]], True, state)

    def alone(self, op: str, peer: int, n: int) -> None:
        self.transfers += 1
        self.half(op, peer, n)

    def batch(self, *halves: tuple[str, int, int], said: bool = True) -> None:
        """batch_isend_irecv; `said`: its last entry is marked as one of transfers."""
        self.transfers += 1
        for op, peer, n in halves:
            self.half(op, peer, n, "scheduled")
        self.entry("nccl:coalesced", [], said)

    def write(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        group = {"name": "7", "desc": "pp", "ranks": str(list(self.ranks))}
        document = {"version": "2.10", "nccl_version": "2.28.9", "pg_config": {"7": group}}
        path = folder / f"fr.rank{self.rank}.json"
        path.write_text(json.dumps({**document, "entries": self.entries}))


def ingest(db: Path, folder: Path) -> None:
    done = collscope("ingest", "trace", folder, "--db", db)
    assert done.code == 0, done.err


def numbered(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows with their call's key counted from 0."""
    first = min((row[0] for row in found), default=0)
    return [(row[0] - first, *row[1:]) for row in found]


@pytest.mark.parametrize("said", [True, False])
def test_a_ring_of_batches_is_a_shift(db_path: Path, tmp_path: Path, said: bool) -> None:
    """Ranks 4..7 of the world; all send 100 floats to the next: S = 400 bytes."""
    for me in range(4):
        dump = Flight(4 + me, range(4, 8))
        dump.all_reduce(8)
        for _ in range(2):
            dump.batch(("send", (me + 1) % 4, 100), ("recv", (me - 1) % 4, 100), said=said)
        dump.all_reduce(16)
        dump.write(tmp_path / "fr")
    ingest(db_path, tmp_path / "fr")
    shift = ("SendRecv", "shift", 100, "Float32", 400, None, 4)
    assert rows(db_path, CALLS) == [
        ("AllReduce", None, 8, "Float32", 32, None, 4),
        shift,
        shift,
        ("AllReduce", None, 16, "Float32", 64, None, 4),
    ]
    one = [(src, (src + 1) % 4, 100, "Float32", 400, "both") for src in range(4)]
    assert numbered(rows(db_path, TRANSFERS)) == [
        (call, *transfer) for call in (0, 1) for transfer in one
    ]
    # Single calls of a batch stay "scheduled" for ever: that is no call left open.
    assert rows(db_path, "SELECT kind FROM disagreements") == []


def test_a_pipeline_without_batches_is_one_call_per_transfer(db_path: Path, tmp_path: Path) -> None:
    """0 → 1 → 2 → 3, the last without its Recv, as a rank that never got there."""
    for me in range(4):
        dump = Flight(me, range(4))
        if 0 < me < 3:
            dump.alone("recv", me - 1, 50)
        if me < 3:
            dump.alone("send", me + 1, 50)
        dump.all_reduce(8)
        dump.write(tmp_path / "fr")
    ingest(db_path, tmp_path / "fr")
    assert sorted(rows(db_path, CALLS)[:3]) == [
        ("SendRecv", "sendrecv", 50, "Float32", 200, None, 1),
        ("SendRecv", "sendrecv", 50, "Float32", 200, None, 2),
        ("SendRecv", "sendrecv", 50, "Float32", 200, None, 2),
    ]
    seen = {(src, dst): how for _, src, dst, _, _, _, how in rows(db_path, TRANSFERS)}
    assert seen == {(0, 1): "both", (1, 2): "both", (2, 3): "send"}
    (found,) = rows(db_path, "SELECT kind, message FROM disagreements")
    assert found == (
        "unmatched", "Group 7, rank 2 to rank 3: 1 Send and 0 Recv: 1 Send without a partner.",
    )  # fmt: skip
    done = collscope("report", "--db", db_path)
    assert "1 Send without a partner" in " ".join(done.out.split())


def test_ring_buffers_meet_at_their_ends(db_path: Path, tmp_path: Path) -> None:
    """Rank 0 remembers three sends, rank 1 the last two receives: the first send is alone."""
    sender, receiver = Flight(0, range(2), first=10), Flight(1, range(2), first=20)
    for n in range(3):
        sender.alone("send", 1, 50)
        if n:
            receiver.alone("recv", 0, 50)
        sender.all_reduce(8 + n)
        receiver.all_reduce(8 + n)
    sender.write(tmp_path / "fr")
    receiver.write(tmp_path / "fr")
    ingest(db_path, tmp_path / "fr")
    assert [(op, count, seen) for op, _, count, _, _, _, seen in rows(db_path, CALLS)] == [
        ("SendRecv", 50, 1), ("AllReduce", 8, 2), ("SendRecv", 50, 2), ("AllReduce", 9, 2),
        ("SendRecv", 50, 2), ("AllReduce", 10, 2),
    ]  # fmt: skip


def test_coalesced_collectives_are_calls_each(db_path: Path, tmp_path: Path) -> None:
    """_coalescing_manager around two collectives: one number, then an entry without tensors."""
    for me in range(2):
        dump = Flight(me, range(2))
        dump.collectives += 1
        dump.entry("nccl:all_reduce", [[8]], False, "scheduled")
        dump.entry("nccl:all_reduce", [[16]], False, "scheduled")
        dump.entry("nccl:coalesced", [], False)
        dump.all_reduce(32)
        dump.write(tmp_path / "fr")
    ingest(db_path, tmp_path / "fr")
    found = [(op, count, seen) for op, _, count, _, _, _, seen in rows(db_path, CALLS)]
    assert found == [("AllReduce", 8, 2), ("AllReduce", 16, 2), ("AllReduce", 32, 2)]
    assert rows(db_path, "SELECT kind FROM disagreements") == []


def test_scatters_and_uneven_all_to_alls_of_pytorch(db_path: Path, tmp_path: Path) -> None:
    """Entries as PyTorch 2.11 wrote them on two ranks; the scatter's root is rank 0."""
    for me in range(2):
        dump = Flight(me, range(2))
        for name, sizes, out in (
            ("nccl:scatter", [[100]], [[0]] if me else [[100], [100]]),
            ("nccl:gather", [[333]], [[0]] if me else [[333], [333]]),
            ("nccl:all_to_all", [[48 + 48 * me]], [[48 + 48 * me]]),
            ("nccl:all_to_all", [[20]], [[20]]),
        ):
            dump.collectives += 1
            dump.entry(name, sizes, False)
            dump.entries[-1]["output_sizes"] = out
        dump.write(tmp_path / "fr")
    ingest(db_path, tmp_path / "fr")
    assert rows(db_path, "SELECT op, count, ranks_seen FROM calls ORDER BY call_id") == [
        ("Scatter", 100, 2), ("Gather", 333, 2), ("AllToAllv", None, 2), ("AllToAll", 10, 2),
    ]  # fmt: skip
    assert rows(db_path, "SELECT * FROM disagreements") == []


def text_call(op: str, me: int, peer: int, count: int) -> str:
    buffer = "[addr : 0x7f00, base : 0x7f00, size : 4096]"
    return (
        f"{op} : [opCount : 0, sendbuff : [addr : (nil), base : (nil), size : 0], recvbuff : "
        f"{buffer}, count : {count}, datatype : 7, op : 0, root : {peer}, comm : 0x10, nranks : 3, "
        f"stream : 0x50, task : 0, globalrank : {me}, context : [time : 1745623615680.25, "
        "thread : 1, device : 0, captured : 0, graphID : 0 ]],\n"
    )


def text_recording(me: int) -> str:
    """An all-to-all of 3 ranks in a group, then a Send and a Recv without one."""
    begin = (
        f"{{\n  version : 1,\n  CommInitDev : [comm : 0x10, size : 3, uniqueID : {HASH}, rank : "
        f"{me}, dev : {me}, context : [time : 1745623615677.25, thread : 1, device : 0, captured : "
        "-1, graphID : 0 ]],\n"
    )
    calls = "".join(
        "    " + text_call("Send", me, p, 5) + "    " + text_call("Recv", me, p, 5)
        for p in range(3)
    )
    ring = text_call("Send", me, (me + 1) % 3, 9) + text_call("Recv", me, (me - 1) % 3, 9)
    return f"{begin}  {{\n{calls}  }},\n{ring}}}\n"


def test_groups_of_the_rccl_recorder_as_text(db_path: Path, tmp_path: Path) -> None:
    """All-to-all of 5 floats per peer: S = 3·20 bytes, 9 transfers with the ranks' own parts."""
    folder = tmp_path / "rccl"
    folder.mkdir()
    for me in range(3):
        (folder / f"replay.{100 + me}.node.json").write_text(text_recording(me))
    ingest(db_path, folder)
    alone = ("SendRecv", "sendrecv", 9, "Float32", 36, None, 2)
    assert rows(db_path, CALLS) == [
        ("AllToAll", "alltoall", 5, "Float32", 60, None, 3), alone, alone, alone,
    ]  # fmt: skip
    found = numbered(rows(db_path, TRANSFERS))
    assert found[:9] == [
        (0, src, dst, 5, "Float32", 20, "both") for src in range(3) for dst in range(3)
    ]
    assert sorted(row[1:3] for row in found[9:]) == [(0, 1), (1, 2), (2, 0)]
    assert rows(db_path, "SELECT rank, world_rank FROM members ORDER BY rank") == [
        (0, None), (1, None), (2, None),
    ]  # fmt: skip


@pytest.mark.parametrize("acc", [False, True])
def test_groups_of_the_rccl_recorder_as_records(db_path: Path, tmp_path: Path, acc: bool) -> None:
    """Three Sends of 2 doubles to rank 2 of 4, nested in two groups: a gather of S = 4·16 bytes."""
    folder = tmp_path / "rccl"
    folder.mkdir()
    for me in range(4):
        common: dict[str, Any] = {"acc": acc, "comm": 0x1000, "nranks": 4, "rank": me, "pid": 50}
        op, peers = ("Send", [2]) if me != 2 else ("Recv", [0, 1, 3])
        halves = [
            record(op, **common, recv=0x9000, count=2, datatype=8, root=peer) for peer in peers
        ]
        start, end = (record(f"Group{at}", acc=acc, pid=50, depth=1) for at in ("Start", "End"))
        data = [record("CommInitDev", **common, comm_id=HASH, root=1), start, start, *halves]
        (folder / f"replay.50.node{me}").write_bytes(b"".join([*data, end, end]))
    ingest(db_path, folder)
    assert rows(db_path, CALLS) == [("Gather", "gather", 2, "Float64", 64, 2, 4)]
    assert [row[1:3] for row in rows(db_path, TRANSFERS)] == [(0, 2), (1, 2), (3, 2)]


def test_inspector_tells_bytes_alone(db_path: Path, tmp_path: Path) -> None:
    """Two ranks exchange 4096 bytes: with no type the class has bytes only; bytes are Uint8."""
    folder = tmp_path / "inspector"
    folder.mkdir()
    for me in range(2):
        head = {"id": f"0x{HASH:x}", "rank": me, "n_ranks": 2, "nnodes": 1}
        lines = [
            {
                "header": head,
                "metadata": {"inspector_output_format_version": "v4.0", "pid": 9 + me},
                "p2p_perf": {
                    "p2p": op, "p2p_sn": 1, "p2p_peer": 1 - me, "p2p_msg_size_bytes": 4096,
                    "p2p_exec_time_us": 12,
                },
            }
            for op in ("Send", "Recv")
        ]  # fmt: skip
        (folder / f"node-pid{me}.log").write_text("\n".join(map(json.dumps, lines)) + "\n")
    ingest(db_path, folder)
    assert rows(db_path, CALLS) == [("SendRecv", "shift", None, None, 4096, None, 2)]
    assert [row[1:] for row in rows(db_path, TRANSFERS)] == [
        (0, 1, 4096, "Uint8", 4096, "both"), (1, 0, 4096, "Uint8", 4096, "both"),
    ]  # fmt: skip


def plugin_event(name: str, category: str, phase: str, number: int, **more: object) -> str:
    event = {"name": name, "cat": category, "ph": phase, "id": number, "pid": 7, "tid": 1}
    return json.dumps({**event, "ts": 1000.5 + number, **({"args": more} if more else {})}) + ",\n"


def test_groups_of_the_profiler_plugin(db_path: Path, tmp_path: Path) -> None:
    """A scatter of rank 0 to 1 and 2 in one group; the same Sends one by one are three calls."""
    folder = tmp_path / "plugin"
    folder.mkdir()
    for me in range(3):
        op, peers = ("Send", [1, 2]) if me == 0 else ("Recv", [0])
        number, text = 0, "[\n"
        groups = [peers, *[[p] for p in peers]]
        for g, group in enumerate(groups):
            text += plugin_event("Group API", "GROUP_API", "b", g, groupApiId=g)
            for peer in group:
                text += plugin_event(
                    op, "P2P", "b", number, CommHash=HASH, Rank=me, Peer=peer, Count=6,
                    Datatype="ncclInt32", nChannels=1,
                )  # fmt: skip
                text += plugin_event(op, "P2P", "e", number)
                number += 1
            text += plugin_event("Group API", "GROUP_API", "e", g)
        (folder / f"ncclprof-node-{me}.txt").write_text(text)
    ingest(db_path, folder)
    alone = ("SendRecv", "sendrecv", 6, "Int32", 24, None, 2)
    assert rows(db_path, CALLS) == [
        ("Scatter", "scatter", 6, "Int32", 72, 0, 3), alone, alone,
    ]  # fmt: skip


def test_dumps_of_others_hold_transfers(db_path: Path, corpus: Path) -> None:
    """Pipeline groups 43 and 46, one rank of each: the halves it shows, and a finding in neither
    (no recording of the other side)."""
    ingest(db_path, corpus / "flight-recorder")
    found = rows(db_path, "SELECT op, shape, count, datatype, ranks_seen FROM calls"
                          " WHERE op = 'SendRecv'")  # fmt: skip
    assert found == [("SendRecv", "sendrecv", 4096 * 5120, "Bfloat16", 1)] * 8
    seen = rows(
        db_path, "SELECT src_rank, dst_rank, seen, COUNT(*) FROM transfers GROUP BY 1, 2, 3"
    )
    assert seen == [(0, 3, "send", 4), (1, 0, "recv", 2), (3, 0, "recv", 2)]
    assert rows(db_path, "SELECT * FROM disagreements WHERE kind = 'unmatched'") == []


def log_line(me: int, op: str, count: int, *, root: int = 0, comm: int = 1, nranks: int = 3) -> str:
    return (
        f"h:{me + 10}:{me + 10} [{me}] NCCL INFO {op}: opCount 0 sendbuff 0x10 recvbuff 0x20 count "
        f"{count} datatype 7 op 0 root {root} comm 0x{me + 1}{comm}0 [nranks={nranks}] stream 0x1"
    )


def test_transfers_of_a_log_and_of_a_recorder_are_one_set(db_path: Path, tmp_path: Path) -> None:
    """RCCL's log of the all-to-all that its recorder shows; the ring is in no log: left out."""
    folder = tmp_path / "rccl"
    folder.mkdir()
    lines = []
    for me in range(3):
        (folder / f"replay.{100 + me}.node.json").write_text(text_recording(me))
        for task, (op, peer) in enumerate((op, p) for p in range(3) for op in ("Send", "Recv")):
            tail = f" task {task} globalrank {me}\n"
            lines.append(log_line(me, op, 5, root=peer) + tail)
    log = tmp_path / "all.log"
    log.write_text("".join(lines))
    assert collscope("ingest", "log", log, "--db", db_path).code == 0
    query = "SELECT op, shape, count, nranks FROM calls"
    before = rows(db_path, query), rows(db_path, TRANSFERS)
    assert before[0] == [("AllToAll", "alltoall", 5, 3)]
    assert len(before[1]) == 9
    ingest(db_path, folder)
    after = rows(db_path, query), numbered(rows(db_path, TRANSFERS))
    assert after == (before[0], numbered(before[1]))


def test_a_recorder_that_names_the_hash_finds_its_communicator(
    db_path: Path, tmp_path: Path
) -> None:
    """The calls of 0xa fit the log of 0xb better, and are of 0xa all the same: one is added."""
    text, inspector = "", tmp_path / "inspector"
    inspector.mkdir()
    for me in range(2):
        for comm, name in ((1, "a"), (2, "b")):
            text += (
                f"h:{me + 10}:{me + 10} [{me}] NCCL INFO ncclCommInitRank comm 0x{me + 1}{comm}0 "
                f"rank {me} nranks 2 cudaDev {me} nvmlDev {me} busId {me}000 commId 0x{name} - "
                "Init COMPLETE\n"
            )
            text += (log_line(me, "AllReduce", 8, comm=comm, nranks=2) + "\n") * comm
        head = {"id": "0xa", "rank": me, "n_ranks": 2, "nnodes": 1}
        lines = [
            {
                "header": head,
                "coll_perf": {"coll": "AllReduce", "coll_sn": n, "coll_exec_time_us": 9},
            }
            for n in range(2)
        ]
        (inspector / f"node-pid{me}.log").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (tmp_path / "log").write_text(text)
    assert collscope("ingest", "log", tmp_path / "log", "--db", db_path).code == 0
    ingest(db_path, inspector)
    query = (
        "SELECT comm_hash, COUNT(*) FROM calls JOIN communicators USING (comm_id) GROUP BY 1"
        " ORDER BY 1"
    )
    assert rows(db_path, query) == [("0xa", 2), ("0xb", 2)]


@st.composite
def groups(draw: st.DrawFn) -> tuple[int, list[p2p.Transfer]]:
    """Distinct transfers of up to five ranks; halves of ranks that nobody saw are not there."""
    nranks = draw(st.integers(1, 5))
    every = [(s, d) for s in range(nranks) for d in range(nranks)]
    chosen = draw(st.sets(st.sampled_from(every), min_size=1))
    seen = draw(st.sets(st.integers(0, nranks - 1), min_size=1))
    pairs = sorted(p for p in chosen if set(p) & seen)
    return nranks, [
        p2p.Transfer(s, d, 4, Datatype.INT8, k if s in seen else None, k if d in seen else None)
        for k, (s, d) in enumerate(pairs)
    ]


@given(groups())
def test_patterns_are_those_of_their_definition(drawn: tuple[int, list[p2p.Transfer]]) -> None:
    """All pairs that the ranks seen could show: to one it is a gather, from one a scatter."""
    nranks, group = drawn
    seen = {t.src_rank for t in group if t.send_row is not None}
    seen |= {t.dst_rank for t in group if t.recv_row is not None}
    wanted = {(s, d) for s in range(nranks) for d in range(nranks) if s != d and {s, d} & seen}
    others = {(t.src_rank, t.dst_rank) for t in group if t.src_rank != t.dst_rank}
    found = {call.shape for call in p2p.recognise(group, nranks, 0)}
    roots = range(nranks) if nranks > 2 and len(others) > 1 else ()
    gather = any(others == {p for p in wanted if p[1] == r} != set() for r in roots)
    scatter = any(others == {p for p in wanted if p[0] == r} != set() for r in roots)
    assert ("gather" in found) == gather
    assert ("scatter" in found) == (scatter and not gather)
    if "alltoall" in found:
        assert others == wanted
    if others == wanted != set() and not found & {"gather", "scatter", "shift"}:
        assert found == {"alltoall"}


def test_a_pattern_of_very_many_ranks_is_no_work() -> None:
    """Two of 2^40 ranks send to a third: what they show of a gather."""
    group = [p2p.Transfer(s, 9, 4, Datatype.INT8, s, None) for s in (3, 5)]
    (call,) = p2p.recognise(group, 1 << 40, 0)
    assert (call.shape, call.root, call.ranks_seen) == ("gather", 9, 2)
