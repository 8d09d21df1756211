"""Waits and late ranks by RCCL's kernel trace, on made and real logs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command import collscope
from hypothesis import given, settings
from hypothesis import strategies as st
from store_builder import StoreBuilder

from collscope.match.executions import Execution, Gpu, JoinedKernels
from collscope.model import CollectiveClass, Op, bus_factor
from collscope.model.traced_kernel import TracedKernel
from collscope.timeline.kernel_waits import KernelWaits, kernel_waits

US = 1_000
_SUM = "ncclDevFunc_AllReduce_RING_LL_Sum_f32"


def waits_of(late_us: Sequence[int], clocks_ns: Sequence[int], calls: int = 20) -> KernelWaits:
    """Calls every ms that all ranks leave 60 us after the last came, rank r late by late_us[r]."""
    last = max(late_us)
    kernels = [
        TracedKernel(
            process=r,
            name=_SUM,
            rank=r,
            nranks=len(late_us),
            bus_id=r,
            comm_ptr=None,
            op_count=c,
            start_ns=10**12 + c * 1_000 * US + late * US + clock,
            end_ns=10**12 + c * 1_000 * US + (last + 60) * US + clock,
            blocks=1,
            line=1,
        )
        for c in range(calls)
        for r, (late, clock) in enumerate(zip(late_us, clocks_ns, strict=True))
    ]
    n = len(late_us)
    key = CollectiveClass(Op.ALL_REDUCE, nranks=n)
    executions = [Execution(c, 0, key, tuple(range(c * n, (c + 1) * n))) for c in range(calls)]
    return kernel_waits(
        kernels, JoinedKernels(executions, {Gpu(r, r): r for r in range(n)}, [], set())
    )


@settings(deadline=None, max_examples=30)
@given(
    st.permutations([0, 5, 10, 15, 20, 500, 30, 35]),
    st.lists(st.integers(0, 10**15), min_size=8, max_size=8),
)
def test_clocks_of_their_own_change_nothing(late_us: list[int], clocks_ns: list[int]) -> None:
    found = waits_of(late_us, clocks_ns)
    for k, late in enumerate(late_us):  # to the rounding of offsets of days
        assert found.kernels[k] == pytest.approx((60 * US, (500 - late) * US), abs=2)
    named = [(late.rank, late.last, late.typical_ns) for _, _, late in found.ranks if late.named]
    assert named == [(late_us.index(500), 20, pytest.approx(465 * US, abs=2))]


def _ingest(text: str, db_path: Path) -> str:
    log = db_path.with_name("job.log")
    log.write_text(text)
    return collscope("ingest", "log", log, "--db", db_path).out


def _waits(db_path: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(db_path) as db:
        return db.execute(
            "SELECT rank, wait_ns / 1000, call_id FROM kernels WHERE op_count = 2 ORDER BY rank"
        ).fetchall()


def test_ranks_wait_in_calls_that_no_line_tells(samples: Path, db_path: Path) -> None:
    # KE minus KL of the guide's call 2: 15, 19, 23, 28, 33, 38, 42 and 46 us.
    text = (samples / "rccl" / "guide-replayer-stdout.log").read_text()
    _ingest(text, db_path)
    assert _waits(db_path) == [
        (0, 0, None), (1, 4, None), (2, 8, None), (3, 13, None),
        (4, 18, None), (5, 23, None), (6, 27, None), (7, 31, None),
    ]  # fmt: skip


def test_a_rank_that_is_not_there_may_be_the_one_waited_for(samples: Path, db_path: Path) -> None:
    text = (samples / "rccl" / "guide-replayer-stdout.log").read_text()
    _ingest("".join(x for x in text.splitlines(keepends=True) if "[00:00]" not in x), db_path)
    assert {wait for _, wait, _ in _waits(db_path)} == {None}


_CALL = (
    "AllReduce: opCount {c:x} sendbuff 0x1000 recvbuff 0x1000 count 1048576 datatype 7 op 0 root 0 "
    "comm 0x{r}00 [nranks=4] stream 0x1 task 0 globalrank {r}"
)


def _cluster(calls: int = 5, late: Callable[[int], int] = lambda _: 3) -> str:
    """Two nodes of two GPUs, a NIC each; rank late(c) comes 500 us late to call c of 100 us."""
    lines = []
    for r in range(4):
        who = f"node{r // 2}:{10 + r}:{10 + r} [0] NCCL INFO "
        lines.append(f"{who}comm 0x{r}00 rank {r} nranks 4 cudaDev 0 busId {r + 1}000 "
                     "commId 0xabc - Init COMPLETE")  # fmt: skip
        for src, dst, way in ((r, (r + 1) % 4, "send"), ((r - 1) % 4, r, "receive")):
            if src // 2 != dst // 2:
                link = f"{src}[{src + 1}000] -> {dst}[{dst + 1}000] [{way}] via NET/IB/{r % 2}"
                lines.append(f"{who}Channel 00/0 : {link}/GDRDMA comm 0x{r}00 nRanks 4")
        for c in range(calls):
            lines.append(who + _CALL.format(c=c, r=r))
            clock = r * 777_777
            start = 1_000_000 + c * 1_000 + 500 * (r == late(c)) + clock
            end = 1_000_000 + c * 1_000 + 600 + clock
            tail = f"busId {r + 1}000 nRanks 4"
            for time, what in ((start, f"KL HWID 1 {_SUM} nw 4 bi 0 nc 0"), (end, "KE")):
                stamp = f"{time // 1_000_000:06d}.{time % 1_000_000:06d}"
                lines.append(f"{who}## [{stamp}] [{r:02d}:00] {c:06x} {what} {tail}")
    return "\n".join(lines) + "\n"


def test_lateness_and_bandwidth_by_gpu_node_and_nic(db_path: Path) -> None:
    _ingest(_cluster(), db_path)
    with sqlite3.connect(db_path) as db:
        found = db.execute(
            "SELECT kind, place, ranks, wait_ns / 1000, late_last, caused_wait_ns / 1000,"
            " ROUND(busbw_gbps, 4) FROM place_times ORDER BY kind, place"
        ).fetchall()
    # 4 MiB of 4 ranks in 100 us: 41.94304 GB/s, times 2 * 3 / 4. Three ranks wait 5 x 500 us.
    gbps = round(41.94304 * 1.5, 4)
    assert found == [
        ("GPU", "node0 0x1000", "[0]", 2500, 0, 0, gbps),
        ("GPU", "node0 0x2000", "[1]", 2500, 0, 0, gbps),
        ("GPU", "node1 0x3000", "[2]", 2500, 0, 0, gbps),
        ("GPU", "node1 0x4000", "[3]", 0, 5, 7500, gbps),
        ("NIC", "node0 NET/IB/0", "[0]", 2500, 0, 0, gbps),
        ("NIC", "node0 NET/IB/1", "[1]", 2500, 0, 0, gbps),
        ("NIC", "node1 NET/IB/0", "[2]", 2500, 0, 0, gbps),
        ("NIC", "node1 NET/IB/1", "[3]", 0, 5, 7500, gbps),
        ("node", "node0", "[0,1]", 5000, 0, 0, gbps),
        ("node", "node1", "[2,3]", 2500, 5, 7500, gbps),
    ]
    told = collscope("report", "--db", db_path, "--format", "json")
    places = json.loads(told.out)["timeline"]["places"]
    assert [(p["kind"], p["place"]) for p in places if p["caused_wait_ns"]] == [
        ("GPU", "node1 0x4000"), ("NIC", "node1 NET/IB/1"), ("node", "node1"),
    ]  # fmt: skip
    text = collscope("report", "--db", db_path).out
    assert "Each GPU has its own clock. The ends of the calls give the offsets" in text
    assert "node  node1           2-3" in text
    csv = collscope("sql", "--db", db_path, "--format", "csv", "SELECT place FROM place_times")
    assert "node1 NET/IB/1" in csv.out.splitlines()


@pytest.mark.parametrize("op", [op for op in Op if bus_factor(op, 4) is not None])
def test_the_views_factor_is_that_of_the_bus_bandwidth(op: Op) -> None:
    store = StoreBuilder()
    source, comm = store.group()
    kind = store.collective(op=op.value, nranks=4, size_bytes=1000)
    (call,) = store.calls(comm, kind, 1)
    store.kernel(call, source, transfer_ns=10, wait_ns=0)
    moved = store.connection.execute("SELECT moved_bytes FROM _rank_moved").fetchall()
    assert moved == [(pytest.approx(1000 * (bus_factor(op, 4) or 0)),)]


def test_a_node_is_late_whose_ranks_take_turns(db_path: Path) -> None:
    # Ranks 2 and 3 of node1 are late in turns: neither has most of the lateness, their node has.
    _ingest(_cluster(calls=20, late=lambda c: 2 + c % 2), db_path)
    told = json.loads(collscope("report", "--db", db_path, "--format", "json").out)
    found = {f["code"]: f for f in told["findings"]}
    assert "straggler" not in found
    assert found["late_node"]["title"] == "node node1 is late: the other nodes wait"
    assert (
        "arrives last in 20 calls; the other ranks wait 30 ms for that, 100 %"
        in (found["late_node"]["detail"])
    )
    assert "Ranks 2, 3 take turns." in found["late_node"]["detail"]
