"""Each class of a run with its measurement, its time in the job and its roof."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from collscope.busbw import bus_bandwidth
from collscope.reports.judgement.measured import Match, Matcher, op_of
from collscope.reports.judgement.records import JudgedClass
from collscope.reports.judgement.roofs import AnyRoofs, FitRoofs, RoofAt
from collscope.reports.judgement.uplift import Part, split
from collscope.reports.model import ClassRow
from collscope.roofline.roof import Workload

# No view knows which kernels ran beside a collective: all of its time counts as exposed.
EXPOSURE = 1.0
WAITING = "waiting"  # regime of a class that waits more than it transfers


@dataclass(frozen=True, slots=True)
class Judged:
    """One class with everything known about its time; us of one call on one rank."""

    row: ClassRow
    match: Match | None
    roof: RoofAt | None
    best: RoofAt | None  # of any label measured
    no_roof: str | None  # why there is no roof
    why: str | None  # why the roof does not apply

    @property
    def alone_us(self) -> float | None:
        """Measured alone, on as many ranks as the job has."""
        if self.match is None or self.match.scaled:
            return None
        return self.match.time_us

    @property
    def transfer_us(self) -> float | None:
        """In the job, waiting taken off."""
        return None if self.row.transfer_ns is None else self.row.transfer_ns / 1000

    @property
    def wait_us(self) -> float | None:
        """In the job, mean over the ranks."""
        return None if self.row.wait_ns is None else self.row.wait_ns / 1000

    @property
    def measured_us(self) -> float | None:
        """Time that is judged: alone, else the transfer in the job."""
        alone = None if self.match is None else self.match.time_us
        return self.transfer_us if alone is None else alone

    @property
    def efficiency(self) -> float | None:
        """Roof time over measured time."""
        if self.roof is None or not self.measured_us:
            return None
        return self.roof.time_us / self.measured_us

    @property
    def least_us(self) -> float | None:
        """The shorter of alone and in the job: more than that cannot be won back by tuning."""
        times = [time for time in (self.alone_us, self.transfer_us) if time]
        return min(times) if times else None

    @property
    def job_us(self) -> float | None:
        """Time of one call on one rank in the job, waiting included."""
        if self.transfer_us is None or self.wait_us is None:
            return None
        return self.transfer_us + self.wait_us

    @property
    def expected_us(self) -> float | None:
        """Best knowledge of a call's time: in the job, else alone, else at the roof."""
        for time in (self.job_us, self.alone_us, self.roof and self.roof.time_us):
            if time is not None:
                return time
        return None

    @property
    def device_calls(self) -> int:
        """Kernels of the class: calls times ranks."""
        return self.row.calls * (self.row.nranks or 1)

    @property
    def device_s(self) -> float | None:
        """Seconds over all devices of all calls."""
        return None if self.expected_us is None else self.device_calls * self.expected_us / 1e6

    @property
    def recoverable_s(self) -> float | None:
        """Seconds of each rank above the roof."""
        if self.roof is None or self.least_us is None:
            return None
        parts = split(self.roof.time_us, self.alone_us, self.transfer_us)
        return None if parts is None else self.row.calls * parts.tunable * EXPOSURE / 1e6

    def part(self, fraction: float) -> Part:
        """The class in the uplift formula, at `fraction` of the GPU time."""
        efficiency = None
        if self.roof is not None and self.least_us is not None:
            efficiency = self.roof.time_us / self.least_us
        transfer = contention = 1.0
        if self.job_us and self.transfer_us is not None:
            transfer = self.transfer_us / self.job_us
            contention = self.transfer_us / self.least_us if self.least_us else 1.0
        return Part(fraction, efficiency, EXPOSURE, transfer, contention)

    @property
    def in_job_or_inf(self) -> float:
        """Transfer in the job as a limit."""
        return inf if self.transfer_us is None else self.transfer_us


def judge_classes(
    classes: Iterable[ClassRow],
    matcher: Matcher,
    roofs: AnyRoofs | None,
    best: FitRoofs | None,
) -> tuple[Judged, ...]:
    """Every class with its measurement and its roof."""
    return tuple(_judge(row, matcher, roofs, best) for row in classes)


def _judge(
    row: ClassRow, matcher: Matcher, roofs: AnyRoofs | None, best: FitRoofs | None
) -> Judged:
    match = matcher.match(row)
    measured = None if match is None or not match.rows else match.rows[0]
    scaled = match is not None and match.scaled and measured is not None
    # a scaled measurement is judged by the roof of the ranks it was measured on
    nranks = measured.nranks if scaled and measured else row.nranks
    nnodes = measured.nnodes if scaled and measured else row.nnodes
    if roofs is None:
        return Judged(row, match, None, None, None, None)
    if not row.size_bytes or nranks is None:
        return Judged(row, match, None, None, "size or ranks not known", None)
    work = Workload(op_of(row.op), row.size_bytes, nranks, nnodes or 1, row.algorithm)
    found = roofs.at(work, nodes_known=nnodes is not None)
    if isinstance(found, str):
        return Judged(row, match, None, None, found, None)
    other = None if best is None else best.at(found.work)
    judged = Judged(
        row, match, found, other if isinstance(other, RoofAt) else None, None, None
    )
    if judged.efficiency is None or judged.efficiency <= 1 + 1e-9 or not judged.measured_us:
        return judged
    why = roofs.why_above(found, judged.measured_us)
    return Judged(row, match, found, judged.best, None, why)


def records(judged: Sequence[Judged], whole_s: float | None) -> tuple[JudgedClass, ...]:
    """Rows of the report: the most to win first, then the most time.

    whole_s  collective time that `time_share` is of
    """
    ordered = sorted(
        judged,
        key=lambda j: (-(j.recoverable_s or 0.0), -(j.device_s or 0.0), j.row.class_id),
    )
    return tuple(_record(j, whole_s) for j in ordered)


def _record(j: Judged, whole_s: float | None) -> JudgedClass:
    roof = j.roof
    return JudgedClass(
        class_id=j.row.class_id,
        op=j.row.op,
        size_bytes=j.row.size_bytes,
        nranks=j.row.nranks,
        calls=j.row.calls,
        measured_us=j.measured_us,
        samples=_samples(j),
        busbw_gbps=_busbw(j),
        marks=_marks(j),
        transfer_us=j.transfer_us,
        wait_us=j.wait_us,
        contention=j.transfer_us / j.alone_us if j.transfer_us and j.alone_us else None,
        roof=None if roof is None else roof.name,
        roof_us=None if roof is None else roof.time_us,
        roof_gbps=None if roof is None else roof.busbw_gbps,
        roof_assumptions=() if roof is None else roof.assumptions,
        efficiency=j.efficiency,
        why=j.why or j.no_roof,
        regime=_regime(j),
        time_share=j.device_s / whole_s if j.device_s is not None and whole_s else None,
        recoverable_s=j.recoverable_s,
    )


def _samples(j: Judged) -> int | None:
    if j.match is not None and j.match.rows:
        return len(j.match.samples_us)
    return j.row.kernel_calls if j.transfer_us is not None else None


def _busbw(j: Judged) -> float | None:
    rows = () if j.match is None else j.match.rows
    return bus_bandwidth(
        op_of(j.row.op),
        size=j.row.size_bytes,
        time_s=None if j.measured_us is None else j.measured_us / 1e6,
        nranks=rows[0].nranks if rows else j.row.nranks,
    )


def _marks(j: Judged) -> tuple[str, ...]:
    marks = () if j.match is None else j.match.marks
    if (j.match is None or not j.match.rows) and j.transfer_us is not None:
        return (*marks, "time in the job")
    return marks


def _regime(j: Judged) -> str | None:
    if j.wait_us is not None and j.transfer_us is not None and j.wait_us > j.transfer_us:
        return WAITING
    return None if j.roof is None else j.roof.regime
