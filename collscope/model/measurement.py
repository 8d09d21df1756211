"""Measured classes of collectives."""

from __future__ import annotations

import msgspec

from collscope.model.collective_class import CollectiveClass
from collscope.model.copy_time import CopyTime
from collscope.model.datatype import Datatype
from collscope.model.diagnostic import Diagnostic
from collscope.model.interference import Interference
from collscope.model.op import Op
from collscope.model.redop import Redop


class Measurement(msgspec.Struct, frozen=True):
    """What one class of collectives took on one machine with one setting.

    Times are of the slowest rank and one call, in microseconds; bandwidths are as nccl-tests
    defines them (GB = 1e9 bytes). The view `measurements` is made of these fields and their
    comments (docs/generate.py), and the replay CSV has them as columns of the same names.
    """

    op: Op  # operation in the library's spelling
    datatype: Datatype | None = None  # element type
    redop: str | None = None  # reduction, None where the operation has none
    root: int | None = None  # root rank, None where the operation has none
    count: int | None = None  # elements as the API takes it
    size_bytes: int | None = None  # nccl-tests size S of one call
    in_place: bool | None = None  # 1, 0; None: not known
    nranks: int | None = None  # ranks measured
    nnodes: int | None = None  # hosts of these ranks
    shape: str | None = None  # point-to-point pattern
    calls: int | None = None  # calls of the class in the replayed run
    time_us_median: float | None = None  # one call on the slowest rank, median over the samples
    time_us_min: float | None = None  # shortest sample
    time_us_max: float | None = None  # longest sample
    time_us_mad: float | None = None  # median absolute deviation of the samples
    iterations: int | None = None  # calls timed, all samples together
    algbw_gbps: float | None = None  # size / time, GB = 1e9 bytes
    # algbw times the operation's factor; None when nranks is 1 or unknown
    busbw_gbps: float | None = None
    reported_busbw_gbps: float | None = None  # as a foreign tool printed it; never used
    n_wrong: int | None = None  # wrong elements over all ranks, None when not checked
    checked: str | None = None  # all or sample: what n_wrong looked at
    method: str | None = None  # batch, graph, isolated, sequence, or what a foreign tool does
    backend: str | None = None  # cuda, hip, host
    library: str | None = None  # name and version of the library
    device: str | None = None  # device of the slowest rank
    host: str | None = None  # host of the slowest rank
    # ok, wrong, failed, timeout, skipped; contradictory: its columns contradict each other
    status: str = "ok"
    message: str | None = None  # the library's message, or why, when status is not ok
    label: str | None = None  # setting, library or machine measured
    round: int | None = None  # round, when settings were measured in turns
    scaled_from: int | None = None  # ranks of the job, where fewer were measured
    samples_us: tuple[float, ...] = ()  # one call on the slowest rank each, in the order taken
    line: int | None = None  # line in the source

    @property
    def right(self) -> bool:
        """Carried out, with no wrong result that is known: its time may count."""
        return self.status == "ok" and not self.n_wrong

    @property
    def failed(self) -> bool:
        """Without a result that can be believed: not carried out, or against its own columns."""
        return self.status in ("failed", "timeout", "contradictory")

    @property
    def wrong(self) -> bool:
        """Carried out, with a wrong result."""
        return self.status == "wrong" or bool(self.n_wrong)

    @property
    def usable(self) -> bool:
        """A time of right results."""
        return self.right and (self.time_us_median or 0) > 0

    @property
    def on_host(self) -> bool:
        """Measured in host memory."""
        return self.backend == "host"

    @property
    def times_us(self) -> tuple[float, ...]:
        """Every sample, or the median where the source gives nothing else."""
        return self.samples_us or (self.time_us_median or 0.0,)

    @property
    def collective_class(self) -> CollectiveClass:
        """What was measured; the ranks and the size are those of the measurement."""
        return CollectiveClass.of(self.op, self.datatype, Redop.of_label(self.redop), self)


class MeasurementSet(msgspec.Struct, frozen=True):
    """What the tables of one file hold.

    claimed  lines, counted from 1, that are of the dialect although they gave no row
    """

    dialect: str
    measurements: tuple[Measurement, ...] = ()
    library: str | None = None  # nccl or rccl, where known
    library_version: str | None = None
    lines: int | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    copies: tuple[CopyTime, ...] = ()
    interference: tuple[Interference, ...] = ()
    claimed: frozenset[int] = frozenset()

    @property
    def rows(self) -> tuple[Measurement | CopyTime | Interference, ...]:
        """All that was measured."""
        return (*self.measurements, *self.copies, *self.interference)
