"""How much of a job's time collectives take, and where the collective time of a run goes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec

from collscope.reports.efficiency.jobs import job_of_profile
from collscope.reports.efficiency.judged_classes import Judged
from collscope.reports.share.answer import Share, alike, hidden_percent

_WALL = """
SELECT TOTAL(span_ns), TOTAL(collective_ns), TOTAL(exposed_ns), COUNT(*),
    TOTAL(wait_ns) / TOTAL(wait_ns + transfer_ns + unknown_ns),
    MIN(1, TOTAL(collective_ns) / NULLIF(TOTAL(duration_ns), 0)),
    EXISTS (SELECT 1 FROM call_times WHERE run = :run AND warm_up)
FROM rank_times WHERE run = :run
"""


class Fraction(msgspec.Struct, frozen=True):
    """How much of one job's time collectives take."""

    # ratio: to the steps or the wall time of the traced ranks, to all kernels and copies of several
    # profiles, or to what one profile's share is of
    value: float
    ranks: int | None = None  # that were traced; None where profiles give it
    warm_up: bool = False  # left out of the ranks' wall time
    # time in which collectives ran on the traced ranks / their summed time
    at_once: float = 1.0
    of_steps: bool = False  # the ratio is to the whole steps of the traced ranks
    hidden: float = 0.0  # ratio that an excerpt does not list, and that may be collectives too
    exposure: float | None = None  # part of it that compute does not hide; None: not known
    waiting: float = 0.0  # part of it that is known to be waiting
    profiles: tuple[str, ...] = ()  # it comes from, see `shares`; none where it comes from traces
    job: str | None = None  # that the profiles are named after; None: their names show none


def fractions_of(
    connection: sqlite3.Connection, run: str, shares: Sequence[Share], jobs: Sequence[str] = ()
) -> tuple[Fraction, ...]:
    """Collective shares of the time: from traces, which show overlap, else from profiles.

    One for each job: profiles of one dialect with times are of the ranks of one job, unless they
    are named after different `jobs`; pasted tables and excerpts stand for themselves.
    """
    found = connection.execute(_WALL, {"run": run}).fetchone()
    span, collective, exposed, ranks, waiting, at_once, warm_up = found
    if span and collective:
        exposure = exposed / collective
        return (
            Fraction(
                collective / span,
                ranks,
                bool(warm_up),
                exposure=exposure,
                waiting=waiting or 0.0,
                at_once=1.0 if at_once is None else at_once,
            ),
        )
    groups: dict[str | None, list[Share]] = {}
    for share in shares:
        if share.percent is not None:
            groups.setdefault(job_of_profile(share.source, jobs), []).append(share)
    return tuple(
        fraction for job, same in groups.items() for fraction in _fractions_of_job(job, same)
    )


def _fractions_of_job(job: str | None, shares: Sequence[Share]) -> Iterable[Fraction]:
    busy = sum(share.busy_ns or 0 for share in shares)
    if alike(shares) and all(share.busy_ns for share in shares):
        ratio = sum(share.collective_ns for share in shares) / busy
        yield Fraction(ratio, profiles=tuple(share.source for share in shares), job=job)
        return
    for share in shares:
        ratio, hidden = (share.percent or 0.0) / 100, hidden_percent(share) / 100
        yield Fraction(ratio, hidden=hidden, profiles=(share.source,), job=job)


class Basis(Enum):
    """What the collective time comes from."""

    TRACED = "traced"  # kernels of collectives in the traces
    IN_JOB = "in_job"  # transfer and waiting in the job, of all calls of their classes
    SEEN = "seen"  # the profiles', spread over the classes by the kernels that were seen
    EXPECTED = "expected"  # the profiles', spread over the classes by calls and expected time
    ALONE = "alone"  # times measured alone


class Breakdown(msgspec.Struct, frozen=True):
    """The collective time of the run over all devices: the sum of its parts; None: not known."""

    device_ns: float
    basis: Basis
    left_out: int  # classes without a time of this basis
    unknown_ns: float  # in the traces: waiting or transfer, not known which
    wait_ns: float | None
    contention_ns: float | None
    tunable_ns: float | None
    roof_ns: float | None  # at the reachable speed
    unjudged_ns: float
    compared: bool  # classes have both a time in the job and one alone
    roofs: bool  # some class has a reachable speed


def break_down(
    judged: Sequence[Judged], shares: Sequence[Share], *, traced: bool = False
) -> Breakdown | None:
    """Parts of the collective time over all devices; None when no class has any time.

    traced  the kernels in the traces are the whole

    In the job where kernel times are known; else the profiles' collective time, spread over the
    classes by their expected times; else the time the classes took alone.
    """
    timed = [j for j in judged if j.job_ns is not None]
    if timed and traced:
        shown = [j for j in judged if j.device_ns]
        total_ns = sum(j.device_ns or 0.0 for j in shown)
        return _parts(shown, total_ns, 1.0, Basis.TRACED, len(judged) - len(shown))
    if timed:
        total_ns = sum(j.device_ns or 0.0 for j in timed)
        return _parts(timed, total_ns, 1.0, Basis.IN_JOB, len(judged) - len(timed))
    expected = [j for j in judged if j.device_ns]
    total_ns = sum(j.device_ns or 0.0 for j in expected)
    profile = sum(share.collective_ns for share in shares)
    if not total_ns or not any(j.least_ns is not None or j.roof is not None for j in expected):
        return None
    if profile:
        seen = any(j.kernel_ns is not None for j in expected)
        basis = Basis.SEEN if seen else Basis.EXPECTED
        return _parts(expected, profile, profile / total_ns, basis)
    measured = [j for j in expected if j.alone_ns is not None]
    total_ns = sum(j.device_ns or 0.0 for j in measured)
    return _parts(measured, total_ns, 1.0, Basis.ALONE) if total_ns else None


def _parts(
    judged: Sequence[Judged], total_ns: float, scale: float, basis: Basis, left_out: int = 0
) -> Breakdown:
    """Sums over classes; `scale` turns their expected times into those of `whole`."""
    in_job = any(j.job_ns is not None for j in judged)
    compared = any(j.job_ns is not None and j.alone_ns is not None for j in judged)
    traced = basis is Basis.TRACED
    unknown = float(sum(j.unsplit_ns for j in judged)) if traced else 0.0
    wait = contention = tunable = roof = 0.0
    for j in judged:
        calls = j.executions * scale
        waited = calls * (j.row.wait_ns or 0.0)
        if traced:
            waited = (j.row.kernel_observations or 0) * (j.row.wait_ns or 0.0)
            # Kernels of unknown waiting stand apart; some end a little before their call does.
            transferred = (j.row.split_ns or 0) - waited
            calls = transferred / j.row.transfer_ns if j.row.transfer_ns else 0.0
        wait += waited
        parts = j.split
        if parts is not None:
            contention += parts.contention * calls
            tunable += parts.tunable * calls
            roof += parts.roof * calls
    rest = total_ns - (wait if in_job else 0.0) - contention - tunable - roof - unknown
    unjudged = rest if rest > 1e-9 * total_ns else 0.0  # below that it is rounding
    known = any(j.roof is not None and j.least_ns is not None for j in judged)
    return Breakdown(
        device_ns=total_ns,
        basis=basis,
        left_out=left_out,
        unknown_ns=unknown,
        wait_ns=wait if in_job else None,
        contention_ns=contention if compared and known else None,
        tunable_ns=tunable if known else None,
        roof_ns=roof if known else None,
        unjudged_ns=unjudged,
        compared=compared,
        roofs=any(j.roof is not None for j in judged),
    )
