"""Waits and late ranks by RCCL's kernel trace, on made and real logs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from command import collscope
from hypothesis import given, settings
from hypothesis import strategies as st

from collscope.match.executions import Execution, Gpu, JoinedKernels
from collscope.match.kernels import TracedKernel
from collscope.model import CollectiveClass, Op
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
    return kernel_waits(kernels, JoinedKernels(executions, {Gpu(r, r): r for r in range(n)}, set()))


@settings(deadline=None, max_examples=30)
@given(
    st.permutations([0, 5, 10, 15, 20, 500, 30, 35]),
    st.lists(st.integers(0, 10**15), min_size=8, max_size=8),
)
def test_clocks_of_their_own_change_nothing(late_us: list[int], clocks_ns: list[int]) -> None:
    found = waits_of(late_us, clocks_ns)
    assert [found.kernels[k] for k in range(8)] == [
        (60 * US, (500 - late) * US) for late in late_us
    ]
    named = [(late.rank, late.last, late.typical_ns) for _, _, late in found.ranks if late.named]
    assert named == [(late_us.index(500), 20, 465 * US)]


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
