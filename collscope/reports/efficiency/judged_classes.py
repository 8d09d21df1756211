"""Each class of a run with its measurement, its time in the job and its roof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from collscope.model import bus_bandwidth, parse_op
from collscope.reports.calls.answer import ClassRow
from collscope.reports.efficiency.serving import Match, Matcher
from collscope.reports.efficiency.uplift import Part, Split, split
from collscope.roofline.chosen import NO_SIZE, AnyRoofs, FitRoofs
from collscope.roofline.workload import RoofAt, Workload

WAITING = "waiting"  # regime of a class that waits more than it transfers


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One class with everything known about its time; us of one call on one rank.

    alone_us     measured alone, on as many ranks as the job has, and on its links
    foreign      measured in host memory, which a system's roof is not about
    transfer_us  in the job, waiting taken off; wait_us: mean over the ranks
    roof, best   what was asked for, and the best of any label measured
    no_roof      why there is no roof; why: why it does not apply
    kernel_us    mean of its kernels in the job, waiting included, be they of one rank only
    executions   kernels of all calls: over all devices, or over the traced ones where
                 these show every class, and none tells transfer from waiting
    device_s     their seconds, by the best that is known of them
    exposure     part of its time with no compute kernel beside it
    """

    row: ClassRow
    match: Match | None
    alone_us: float | None
    foreign: bool
    transfer_us: float | None
    wait_us: float | None
    roof: RoofAt | None
    best: RoofAt | None
    no_roof: str | None
    why: str | None
    kernel_us: float | None
    executions: float
    device_s: float | None
    exposure: float

    @property
    def measured_us(self) -> float | None:
        """Time that is told: measured, else the transfer in the job."""
        measured = None if self.match is None else self.match.time_us
        return self.transfer_us if measured is None else measured

    @property
    def efficiency(self) -> float | None:
        """Roof time over measured time; None for host memory against the roof of a system."""
        if self.roof is None or not self.measured_us or (self.foreign and not self.transfer_us):
            return None
        return self.roof.time_us / self.measured_us

    @property
    def least_us(self) -> float | None:
        """The shorter of the times alone and in the job: tuning cannot win back more."""
        if self.alone_us and self.transfer_us:
            return min(self.alone_us, self.transfer_us)
        return self.alone_us or self.transfer_us

    @property
    def job_us(self) -> float | None:
        """Time of one call on one rank in the job, waiting included."""
        if self.transfer_us is None or self.wait_us is None:
            return None
        return self.transfer_us + self.wait_us

    @property
    def unsplit_ns(self) -> int:
        """Time of kernels in the job that may be waiting or transfer."""
        return max(0, (self.row.kernel_ns or 0) - (self.row.split_ns or 0))

    @property
    def split(self) -> Split | None:
        """Where the time of a call goes; None without a roof or a time."""
        if self.roof is None:
            return None
        return split(self.roof.time_us, self.alone_us, self.transfer_us)

    @property
    def recoverable_s(self) -> float | None:
        """Exposed seconds above the roof, over all devices."""
        parts = self.split
        if parts is None or not self.row.calls:
            return None
        return device_calls(self.row) * parts.tunable * self.exposure / 1e6

    @property
    def samples(self) -> int | None:
        """How many samples the time rests on."""
        if self.match is not None and self.match.measured:
            return len(self.match.samples_us)
        return self.row.kernel_calls if self.transfer_us is not None else None

    @property
    def time_in_job(self) -> bool:
        """True where the time that is told is that of the job."""
        return self.transfer_us is not None and not (self.match and self.match.measured)

    @property
    def busbw_gbps(self) -> float | None:
        """Bus bandwidth of the time that is told, with the ranks and the size it is of."""
        measured = () if self.match is None else self.match.measured
        shape = measured[0] if measured else self.row
        return bus_bandwidth(
            parse_op(self.row.op),
            size=shape.size_bytes,
            time_s=None if self.measured_us is None else self.measured_us / 1e6,
            nranks=shape.nranks,
        )

    @property
    def choice(self) -> str | None:
        """Algorithm and protocol that the table, or the job's log, tells of the time."""
        if self.match is not None and self.match.measured:
            told = {m.message for m in self.match.measured}
            return told.pop() if len(told) == 1 else None
        return " ".join(filter(None, (self.row.algorithm, self.row.protocol))) or None

    @property
    def regime(self) -> str | None:
        """What the time is made of: waiting, latency or bandwidth."""
        if (
            self.wait_us is not None
            and self.transfer_us is not None
            and self.wait_us > self.transfer_us
        ):
            return WAITING
        return None if self.roof is None else self.roof.regime

    def part(self, fraction: float) -> Part:
        """The class in the uplift formula, at `fraction` of the GPU time."""
        efficiency = None
        if self.roof is not None and self.least_us is not None:
            efficiency = self.roof.time_us / self.least_us
        transfer = contention = most = 1.0
        if self.job_us and self.transfer_us is not None:
            transfer = self.transfer_us / self.job_us
            contention = self.transfer_us / self.least_us if self.least_us else 1.0
            unsplit = self.unsplit_ns / self.row.kernel_ns if self.row.kernel_ns else 0.0
            most = transfer * (1 - unsplit) + unsplit
        return Part(fraction, efficiency, self.exposure, transfer, contention, most)


class Reached(msgspec.Struct, frozen=True):
    """An operation of a run without calls: its best bandwidth, and its lowest efficiency."""

    op: str
    nranks: int  # of the communicator
    nnodes: int | None  # of the communicator
    size_bytes: int  # of the highest bus bandwidth
    busbw_gbps: float  # highest
    efficiency: float | None  # there
    worst_size_bytes: int | None  # of the least efficiency
    worst_efficiency: float | None  # at worst_size_bytes


def judge_classes(
    classes: Iterable[ClassRow],
    matcher: Matcher,
    roofs: AnyRoofs | None,
    best: FitRoofs | None,
    exposure: float = 1.0,
) -> tuple[Judged, ...]:
    """Every class with its measurement and its roof."""
    rows = tuple(classes)
    traced_only = all(row.kernel_ns for row in rows) and not any(row.split_ns for row in rows)
    return tuple(
        _judge(row, matcher.match(row), (roofs, best), exposure, traced_only) for row in rows
    )


def _judge(
    row: ClassRow,
    match: Match | None,
    ceilings: tuple[AnyRoofs | None, FitRoofs | None],
    exposure: float,
    traced_only: bool,
) -> Judged:
    roofs, best = ceilings
    transfer = None if row.transfer_ns is None else row.transfer_ns / 1000
    foreign = match is not None and match.on_host and not isinstance(roofs, FitRoofs)
    if match is not None and foreign and transfer is not None:
        match = match.aside()  # the job's own GPUs tell more
    alone = None if match is None or match.scaled or foreign else match.time_us
    wait = None if row.wait_ns is None else row.wait_ns / 1000
    found = None if roofs is None else _roof(row, match, roofs)
    roof = found if isinstance(found, RoofAt) else None
    other = None if best is None or roof is None else best.at(roof.work)
    measured = transfer if match is None or match.time_us is None or foreign else match.time_us
    why = None
    if roofs is not None and roof is not None and measured and roof.time_us > measured:
        why = roofs.why_above(roof, measured)
    seen = row.kernel_ns / row.seen_kernels / 1000 if row.kernel_ns and row.seen_kernels else None
    # the best that is known of a call: in the job, else alone, else that it is at the roof
    expected = None if roof is None else roof.time_us
    executions: float = device_calls(row)
    if traced_only:
        # one rank's trace shows that rank's communicators only
        executions = (row.seen_kernels or 0) * row.calls / (row.seen_calls or 1)
        expected = seen
    elif transfer is not None and wait is not None:
        expected = transfer + wait
    elif seen is not None:
        expected = seen
    elif alone is not None:
        expected = alone
    return Judged(
        row=row,
        match=match,
        alone_us=alone,
        foreign=foreign,
        transfer_us=transfer,
        wait_us=wait,
        roof=roof,
        best=other if isinstance(other, RoofAt) else None,
        no_roof=found if isinstance(found, str) else None,
        why=why,
        kernel_us=seen,
        executions=executions,
        device_s=None if expected is None else executions * expected / 1e6,
        exposure=exposure,
    )


def device_calls(row: ClassRow) -> int:
    """Kernels of a class: calls times ranks.

    Calls are summed over sibling communicators, so that they alone would count a class of many
    small groups several times over.
    """
    return row.calls * (row.nranks or 1)


def _roof(row: ClassRow, match: Match | None, roofs: AnyRoofs) -> RoofAt | str:
    """The roof of a class, or why it has none."""
    # a scaled measurement is judged by the roof of the ranks and the size it was measured with
    shape = match.measured[0] if match is not None and match.scaled else row
    if not shape.size_bytes or shape.nranks is None:
        return NO_SIZE
    # of MSCCL the log tells the executor, not an algorithm
    algorithm = row.algorithm if row.backend == "native" else row.backend
    work = Workload(parse_op(row.op), shape.size_bytes, shape.nranks, shape.nnodes or 1, algorithm)
    return roofs.at(work, nodes_known=shape.nnodes is not None)


def reached_of(judged: Iterable[Judged]) -> tuple[Reached, ...]:
    """The highest bus bandwidth and the lowest efficiency of each operation, ranks and nodes."""
    groups: dict[tuple[str, int, int | None], list[tuple[float, Judged]]] = defaultdict(list)
    for j in judged:
        busbw = j.busbw_gbps
        if busbw is not None and j.row.nranks is not None and j.row.size_bytes:
            groups[j.row.op, j.row.nranks, j.row.nnodes].append((busbw, j))
    return tuple(_reached(shape, same) for shape, same in groups.items())


def _reached(shape: tuple[str, int, int | None], same: Sequence[tuple[float, Judged]]) -> Reached:
    busbw, best = max(same, key=lambda pair: pair[0])
    known = [(j.efficiency, j) for _, j in same if j.efficiency is not None]
    low, worst = min(known, key=lambda pair: pair[0], default=(None, None))
    return Reached(
        *shape,
        best.row.size_bytes or 0,
        busbw,
        best.efficiency,
        None if worst is None else worst.row.size_bytes,
        low,
    )
