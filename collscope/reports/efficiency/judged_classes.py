"""Each class of a run with its measurement, its time in the job and its roof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from collscope.model import Datatype, Op, Redop, bus_bandwidth
from collscope.model.note import Note
from collscope.reports.calls.answer import ClassRow
from collscope.reports.efficiency.marks import class_marks
from collscope.reports.efficiency.serving import Match, Matcher
from collscope.reports.efficiency.uplift import GainPart, Split, split
from collscope.roofline.chosen import NO_SIZE, AnyRoofs, FitRoofs
from collscope.roofline.workload import RoofAt, Workload

WAITING = "waiting"  # regime of a class that waits more than it transfers


class JudgedClass(msgspec.Struct, frozen=True):
    """One class of the run: measured, in the job, and what the fabric allows.

    In a run without calls the measured classes stand here, of no calls and numbered from 1.
    """

    class_id: int
    op: Op
    datatype: Datatype | None
    redop: Redop | None
    size_bytes: int | None
    in_place: bool | None
    nranks: int | None
    calls: int
    measured_ns: float | None  # median of the replay, slowest rank; else the transfer in the job
    in_job: bool  # measured_ns is the mean transfer in the job
    samples: int | None  # behind it
    busbw_gbps: float | None  # of measured_ns
    marks: tuple[Note, ...]  # what keeps the measurement from being of exactly this class
    transfer_ns: float | None  # in the job, mean
    wait_ns: float | None  # in the job, mean
    kernel_ns: float | None  # mean of its kernels in the job, waiting included
    contention: float | None  # transfer in the job / measured
    roof: RoofAt | None  # the speed to compare with: a system's reachable one, or a fit
    efficiency: float | None  # reachable time / measured_ns
    why: str | None  # why the efficiency is above 1, or why no reachable speed is known
    regime: Annotated[str, ("latency", "bandwidth", "waiting")] | None
    time_share: float | None  # ratio to the collective time of the run
    unknown_share: float  # the part of time_share that may be waiting or transfer
    recoverable_ns: (
        float | None
    )  # over all devices: calls x ranks x (measured - reachable) x exposed
    # of one step, mean over the traced ranks: their calls in it x (measured - reachable) x exposed;
    # None: the traces have no steps
    step_saving_ns: float | None
    choice: str | None  # algorithm and protocol, as the table or the job's log has them


class InStep(msgspec.Struct, frozen=True):
    """Calls of a class in a step, mean over the traced ranks, and how long the step is."""

    calls: float
    step_ns: float


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One class with everything known about its time; ns of one call on one rank.

    alone_ns     measured alone, on as many ranks as the job has, and on its links
    foreign      measured in host memory, which a system's roof is not about
    roof, best   what was asked for, and the best of any label measured
    no_roof      why there is no roof; why: why it does not apply
    kernel_ns    mean of its kernels in the job, waiting included, even of one rank only
    executions   kernels whose time counts: those in the traces where these give the time of the
                 whole, else of all calls on all devices
    device_ns    their time, by the best that is known of them
    exposure     part of its time that compute does not hide
    counted      its kernels in the traces are its time
    in_step      in a step, mean over the traced ranks; None: the traces have no steps
    """

    row: ClassRow
    match: Match | None
    alone_ns: float | None
    foreign: bool
    roof: RoofAt | None
    best: RoofAt | None
    no_roof: str | None
    why: str | None
    kernel_ns: float | None
    executions: float
    device_ns: float | None
    exposure: float
    counted: bool
    in_step: InStep | None

    @property
    def measured_ns(self) -> float | None:
        """Time to judge: measured, else the transfer in the job."""
        measured = None if self.match is None else self.match.time_ns
        return self.row.transfer_ns if measured is None else measured

    @property
    def efficiency(self) -> float | None:
        """Roof time over measured time; None for host memory against the roof of a system."""
        if self.roof is None or not self.measured_ns or (self.foreign and not self.row.transfer_ns):
            return None
        return self.roof.time_ns / self.measured_ns

    @property
    def least_ns(self) -> float | None:
        """The shorter of the times alone and in the job: tuning cannot win back more."""
        if self.alone_ns and self.row.transfer_ns:
            return min(self.alone_ns, self.row.transfer_ns)
        return self.alone_ns or self.row.transfer_ns

    @property
    def job_ns(self) -> float | None:
        """Time of one call on one rank in the job, waiting included."""
        if self.row.transfer_ns is None or self.row.wait_ns is None:
            return None
        return self.row.transfer_ns + self.row.wait_ns

    @property
    def unsplit_ns(self) -> int:
        """Time of kernels in the job that may be waiting or transfer."""
        return max(0, (self.row.kernel_ns or 0) - (self.row.split_ns or 0))

    @property
    def split(self) -> Split | None:
        """Where the time of a call goes; None without a roof or a time."""
        if self.roof is None:
            return None
        return split(self.roof.time_ns, self.alone_ns, self.row.transfer_ns)

    @property
    def recoverable_ns(self) -> float | None:
        """Exposed time above the roof, over all devices."""
        parts = self.split
        if parts is None or not self.row.calls:
            return None
        return device_calls(self.row) * parts.tunable * self.exposure

    @property
    def step_saving_ns(self) -> float | None:
        """Exposed time above the reachable one in a step, mean over the traced ranks."""
        parts = self.split
        if parts is None or self.in_step is None:
            return None
        return self.in_step.calls * parts.tunable * self.exposure

    @property
    def step_share(self) -> float:
        """Ratio of its calls' mean time to a step; 0 where there are no steps."""
        mean_ns = self.job_ns or self.kernel_ns
        if self.in_step is None or mean_ns is None:
            return 0.0
        return self.in_step.calls * mean_ns / self.in_step.step_ns

    @property
    def samples(self) -> int | None:
        """How many samples the time rests on."""
        if self.match is not None and self.match.measured:
            return len(self.match.samples_ns)
        return self.row.kernel_calls if self.row.transfer_ns is not None else None

    @property
    def time_in_job(self) -> bool:
        """True where the judged time is that of the job."""
        return self.row.transfer_ns is not None and not (self.match and self.match.measured)

    @property
    def busbw_gbps(self) -> float | None:
        """Bus bandwidth of the judged time, with its ranks and size."""
        measured = () if self.match is None else self.match.measured
        shape = measured[0] if measured else self.row
        return bus_bandwidth(
            self.row.op,
            size=shape.size_bytes,
            time_s=None if self.measured_ns is None else self.measured_ns / 1e9,
            nranks=shape.nranks,
        )

    @property
    def choice(self) -> str | None:
        """Algorithm and protocol of the judged time, from the table or the job's log."""
        if self.match is not None and self.match.measured:
            messages = {m.message for m in self.match.measured}
            return messages.pop() if len(messages) == 1 else None
        return " ".join(filter(None, (self.row.algorithm, self.row.protocol))) or None

    @property
    def regime(self) -> str | None:
        """What the time is made of: waiting, latency or bandwidth."""
        if (
            self.row.wait_ns is not None
            and self.row.transfer_ns is not None
            and self.row.wait_ns > self.row.transfer_ns
        ):
            return WAITING
        return None if self.roof is None else self.roof.regime

    def record(self, whole_ns: float) -> JudgedClass:
        """What the report has of it; `whole_ns` is the collective time of the run."""
        row, took = self.row, self.device_ns
        transfer, alone = row.transfer_ns, self.alone_ns
        return JudgedClass(
            class_id=row.class_id,
            op=row.op,
            datatype=row.datatype,
            redop=row.redop,
            size_bytes=row.size_bytes,
            in_place=row.in_place,
            nranks=row.nranks,
            calls=row.calls,
            measured_ns=self.measured_ns,
            in_job=self.time_in_job,
            samples=self.samples,
            busbw_gbps=self.busbw_gbps,
            marks=tuple(class_marks(self.match, row, in_job=self.time_in_job)),
            transfer_ns=transfer,
            wait_ns=row.wait_ns,
            kernel_ns=self.kernel_ns,
            contention=transfer / alone if transfer and alone else None,
            roof=self.roof,
            efficiency=self.efficiency,
            why=self.why or self.no_roof,
            regime=self.regime,
            time_share=None if took is None or not whole_ns else took / whole_ns,
            unknown_share=self.unsplit_ns / whole_ns if self.counted and whole_ns else 0.0,
            recoverable_ns=self.recoverable_ns,
            step_saving_ns=self.step_saving_ns,
            choice=self.choice,
        )

    def part(self, fraction: float) -> GainPart:
        """The class in the uplift formula, at `fraction` of the GPU time."""
        efficiency = None
        if self.roof is not None and self.least_ns is not None:
            efficiency = self.roof.time_ns / self.least_ns
        transfer = contention = most = 1.0
        if self.job_ns and self.row.transfer_ns is not None:
            transfer = self.row.transfer_ns / self.job_ns
            contention = self.row.transfer_ns / self.least_ns if self.least_ns else 1.0
            unsplit = self.unsplit_ns / self.row.kernel_ns if self.row.kernel_ns else 0.0
            most = transfer * (1 - unsplit) + unsplit
        return GainPart(fraction, efficiency, self.exposure, transfer, contention, most)


class Reached(msgspec.Struct, frozen=True):
    """An operation of a run without calls: its best bandwidth, and its lowest efficiency."""

    op: Op
    nranks: int  # of the communicator
    nnodes: int | None  # of the communicator
    size_bytes: int  # of the highest bus bandwidth
    busbw_gbps: float  # highest
    efficiency: float | None  # there
    worst_size_bytes: int | None  # of the least efficiency
    worst_efficiency: float | None  # at worst_size_bytes


class Traced(msgspec.Struct, frozen=True):
    """What the traces of a run show of its classes.

    exposure    part of the collective time that compute does not hide; 1: not known
    gives_time  the traces give the collective time: classes count with their kernels in them
    step_ns     a step, mean over the ranks; None: there are no steps
    calls       of each class in a step, mean over the ranks
    """

    exposure: float = 1.0
    gives_time: bool = False
    step_ns: float | None = None
    calls: Mapping[int, float] = {}

    def in_step(self, class_id: int) -> InStep | None:
        """Of a class; None where there are no steps."""
        if self.step_ns is None:
            return None
        return InStep(self.calls.get(class_id, 0.0), self.step_ns)


def judge_classes(
    classes: Iterable[ClassRow],
    matcher: Matcher,
    roofs: AnyRoofs | None,
    best: FitRoofs | None,
    traced: Traced | None = None,
) -> tuple[Judged, ...]:
    """Every class with its measurement and its roof.

    traced  what the traces show; None: nothing
    """
    traced = traced or Traced()
    rows = tuple(classes)
    every = all(row.kernel_ns for row in rows) and not any(row.split_ns for row in rows)
    counted = traced.gives_time or every
    return tuple(_judge(row, matcher.match(row), (roofs, best), traced, counted) for row in rows)


def _judge(
    row: ClassRow,
    match: Match | None,
    ceilings: tuple[AnyRoofs | None, FitRoofs | None],
    traced: Traced,
    counted: bool,
) -> Judged:
    roofs, best = ceilings
    foreign = match is not None and match.on_host and not isinstance(roofs, FitRoofs)
    if match is not None and foreign and row.transfer_ns is not None:
        match = match.aside()  # the job's own GPUs show more
    alone = None if match is None or match.scaled or foreign else match.time_ns
    found = None if roofs is None else _roof(row, match, roofs)
    roof = found if isinstance(found, RoofAt) else None
    other = None if best is None or roof is None else best.at(roof.work)
    measured = match.time_ns if match is not None and not foreign else None
    measured = row.transfer_ns if measured is None else measured
    why = None
    if roofs is not None and roof is not None and measured and roof.time_ns > measured:
        why = roofs.why_above(roof, measured)
    seen = row.kernel_ns / row.seen_kernels if row.kernel_ns and row.seen_kernels else None
    # the best that is known of a call: in the job, else alone, else that it is at the roof
    expected = None if roof is None else roof.time_ns
    executions = device_calls(row)
    if counted:
        # Calls that only a log has are in no traced time, and of no traced rank.
        executions, expected = row.seen_kernels or 0, seen
    elif row.transfer_ns is not None and row.wait_ns is not None:
        expected = row.transfer_ns + row.wait_ns
    elif seen is not None:
        expected = seen
    elif alone is not None:
        expected = alone
    return Judged(
        row=row,
        match=match,
        alone_ns=alone,
        foreign=foreign,
        roof=roof,
        best=other if isinstance(other, RoofAt) else None,
        no_roof=found if isinstance(found, str) else None,
        why=why,
        kernel_ns=seen,
        executions=executions,
        device_ns=None if expected is None else executions * expected,
        exposure=traced.exposure,
        counted=counted,
        in_step=traced.in_step(row.class_id),
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
    # for MSCCL the log names the executor, not an algorithm
    algorithm = row.algorithm if row.backend == "native" else row.backend
    work = Workload(row.op, shape.size_bytes, shape.nranks, shape.nnodes or 1, algorithm)
    return roofs.at(work, nodes_known=shape.nnodes is not None)


def reached_of(judged: Iterable[Judged]) -> tuple[Reached, ...]:
    """The highest bus bandwidth and the lowest efficiency of each operation, ranks and nodes."""
    groups: dict[tuple[Op, int, int | None], list[tuple[float, Judged]]] = defaultdict(list)
    for j in judged:
        busbw = j.busbw_gbps
        if busbw is not None and j.row.nranks is not None and j.row.size_bytes:
            groups[j.row.op, j.row.nranks, j.row.nnodes].append((busbw, j))
    return tuple(_reached(shape, same) for shape, same in groups.items())


def _reached(shape: tuple[Op, int, int | None], same: Sequence[tuple[float, Judged]]) -> Reached:
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
