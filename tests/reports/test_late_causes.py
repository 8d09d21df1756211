"""Why a rank is late, on jobs whose cause is known."""

from __future__ import annotations

import sqlite3

import pytest
from trace_builder import US, Job

from collscope.reports.verdict.answer import MsPerStep, VerdictEntry
from collscope.reports.waiting.answer import TimelineReport
from collscope.reports.waiting.late_causes import LateCause, read_late_causes
from collscope.reports.waiting.late_ranks_text import cause_sentence
from collscope.reports.waiting.ranks import RankRow
from collscope.timeline.analyse import Timeline, analyse

_STEPS = 30
_TABLES = """
CREATE TABLE traces (run, source_id);
CREATE TABLE kernels (run, rank, source_id, name, family, kind, call_id, start_ns, end_ns,
                      duration_ns, launch_ns);
"""


def job_of(cause: str) -> Job:
    """Rank 1 comes 150 us late (100 by one kernel more) to each of 30 calls of four ranks.

    inherited: rank 2 is slow, its neighbour 3 waits for it and keeps 1 waiting.
    """
    job = Job(4)
    for _ in range(_STEPS):
        for rank in range(4):
            slow = rank == (2 if cause == "inherited" else 1)
            late = 150 * US if slow else 0
            job.compute(rank, 100 * US, gap=(late if cause in ("host", "idle") else 0) + 2 * US)
            if cause == "host":
                job.rows[rank][-1].launch = job.rows[rank][-1].start - 6 * US
            elif cause == "idle":
                job.rows[rank][-1].launch = -(1 << 60)
            elif cause == "more" and slow:
                job.compute(rank, 100 * US, gap=0)
            elif cause in ("slower", "inherited") and slow:
                row = job.rows[rank][-1]
                row.end += late
                job.compute_free[rank] = row.end
        if cause == "inherited":
            job.collective((0, 1), 20 * US)
            job.collective((2, 3), 20 * US)
            job.collective((0, 2), 20 * US)
            job.collective((1, 3), 20 * US)
        else:
            job.collective((0, 1, 2, 3), 20 * US)
    return job


def causes(found: Timeline, late: int) -> tuple[LateCause, ...]:
    """Causes out of the views' columns; `late` is the rank to be looked at."""
    db = sqlite3.connect(":memory:")
    db.executescript(_TABLES)
    rows, calls = found.rows, found.calls
    of_row = dict(zip(calls.row.tolist(), range(len(calls.row)), strict=True))
    call_of = calls.call_of_part
    for trace, rank in enumerate(rows.ranks):
        db.execute("INSERT INTO traces VALUES ('r', ?)", (trace,))
        for k in range(*rows.of(trace).indices(len(rows))):
            part = of_row.get(k)
            start, end, launch = int(rows.start[k]), int(rows.end[k]), int(rows.launch[k])
            db.execute(
                "INSERT INTO kernels VALUES ('r',?,?,?,NULL,'kernel',?,?,?,?,?)",
                (
                    rank, trace, rows.names[rows.name[k]],
                    None if part is None else int(call_of[part]), start, end, end - start,
                    None if launch < -(1 << 50) else launch + 10**9,
                ),
            )  # fmt: skip
    db.execute("UPDATE kernels SET start_ns = start_ns + 1e9, end_ns = end_ns + 1e9")
    lateness = {row.rank: row for row in found.late}
    ranks = []
    for rank, overlap, times in zip(rows.ranks, found.overlaps, found.ranks, strict=True):
        own = lateness[rank]
        ranks.append(
            RankRow(
                rank, times.calls, 0, 0, 0, 0, 0, 0, 0.0, 0, own.total_ns, 0, own.share,
                rank == late,
                overlap.span_ns, overlap.compute_ns, 0, 0, 0, 0, overlap.idle_ns,
                own.inherited_ns, own.first_rank,
            )
        )  # fmt: skip
    return read_late_causes(db, "r", ranks)


@pytest.mark.parametrize("cause", ["host", "idle", "more", "slower"])
def test_cause_of_a_late_rank(cause: str) -> None:
    (found,) = causes(analyse(job_of(cause).traces()), late=1)
    assert found.cause == cause
    expected = (100 if cause == "more" else 150) * US * _STEPS
    told = {
        "host": found.idle_host_ns,
        "more": found.more_compute_ns,
        "slower": found.slower_compute_ns,
    }
    if cause in told:
        assert told[cause] == pytest.approx(expected, rel=0.1)
    else:
        assert found.idle_host_ns is None


def test_the_first_cause_is_named_not_its_heirs() -> None:
    """Rank 2 has two thirds of the lateness and rank 3 a third, all of which it inherits."""
    late = {row.rank: row for row in analyse(job_of("inherited").traces()).late}
    assert [round(late[r].share, 2) for r in (2, 3)] == [0.67, 0.33]
    assert [rank for rank, row in late.items() if row.named] == [2]


def test_a_rank_inherits_nothing_within_one_group() -> None:
    """Rank 1 is late to a call after each of rank 3's that it waited for."""
    job = Job(4)
    for _ in range(_STEPS):
        for late, ns in ((3, 400), (1, 100)):
            for rank in range(4):
                job.compute(rank, (100 + (ns if rank == late else 0)) * US)
            job.collective((0, 1, 2, 3), 20 * US)
    (found,) = causes(analyse(job.traces()), late=3)
    assert found.inheriting_ranks == ()
    (found,) = causes(analyse(job_of("inherited").traces()), late=2)
    assert found.inheriting_ranks == (3,)


def test_first_cause_of_an_inherited_lateness() -> None:
    """Rank 3 waits for 2 in one group, and comes late to its other one."""
    (found,) = causes(analyse(job_of("inherited").traces()), late=3)
    assert (found.cause, found.first_rank) == ("inherited", 2)
    assert found.inherited_ns == pytest.approx(150 * US * _STEPS, rel=0.1)


def test_a_cause_in_the_verdict_stands_without_sums_that_do_not_show_it() -> None:
    # rank 0 runs fewer kernels, but slower ones, beside its waiting collectives: the sums mislead
    late, other = (
        RankRow(n, 9, 0, 0, 0, 9, 0, 0, 0.0, 0, 0, 0, 1.0, n == 1, 300, ns, 0, 0, 0, 0, 9, 0, None)
        for n, ns in ((1, 272), (0, 266))
    )
    timeline = TimelineReport(
        (other, late), (), (), (), (), causes=(LateCause(1, "unknown", None, 0, 0, 0, None),)
    )
    cost = MsPerStep(10.5, 8.0, 13.1)
    entry = VerdictEntry("extra_work", "certain", (1,), "", cost, "", "")
    assert cause_sentence(late, timeline, (entry,)) == (
        "The verdict names the cause: extra work, rank 1."
    )
    assert "Rank 1 computes for" in cause_sentence(late, timeline)
