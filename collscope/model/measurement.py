"""Measured classes of collectives."""

from __future__ import annotations

from dataclasses import dataclass

from collscope.model.collective_class import CollectiveClass
from collscope.model.copy_time import CopyTime
from collscope.model.datatype import Datatype
from collscope.model.diagnostic import Diagnostic
from collscope.model.interference import Interference
from collscope.model.op import Op
from collscope.model.redop import Redop


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one class of collectives took on one machine with one setting.

    Times are of the slowest rank and one call, in microseconds; bandwidths are as nccl-tests
    defines them (GB = 1e9 bytes).
    """

    op: Op
    datatype: Datatype | None = None
    redop: str | None = None  # Redop's label
    root: int | None = None
    count: int | None = None  # elements as the API takes it
    size_bytes: int | None = None  # nccl-tests size S
    in_place: bool | None = None
    nranks: int | None = None
    nnodes: int | None = None
    shape: str | None = None  # point-to-point shape: alltoall, alltoallv, gather, scatter, shift, …
    calls: int | None = None  # of the class in the run it was planned from
    time_us_median: float | None = None
    time_us_min: float | None = None
    time_us_max: float | None = None
    time_us_mad: float | None = None
    iterations: int | None = None
    algbw_gbps: float | None = None
    busbw_gbps: float | None = None
    reported_busbw_gbps: float | None = None  # as a foreign tool printed it; never used
    n_wrong: int | None = None  # None: not checked
    checked: str | None = None  # all, sample
    method: str | None = None  # batch, graph, isolated, sequence, or what a foreign tool does
    backend: str | None = None  # cuda, hip, host
    library: str | None = None  # name and version
    device: str | None = None
    host: str | None = None
    status: str = "ok"  # ok, wrong, failed, timeout, skipped
    message: str | None = None
    label: str | None = None  # setting, library or machine; None: that of the ingest
    round: int | None = None  # of settings measured in turns
    scaled_from: int | None = None  # ranks of the job, where fewer were measured
    samples_us: tuple[float, ...] = ()
    line: int | None = None

    @property
    def right(self) -> bool:
        """Carried out, with no wrong result that is known: its time may count."""
        return self.status == "ok" and not self.n_wrong

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


@dataclass(frozen=True, slots=True)
class MeasurementSet:
    """What the tables of one file hold.

    claimed  lines, counted from 1, that are of the dialect although they gave no row
    """

    dialect: str
    measurements: tuple[Measurement, ...] = ()
    library: str | None = None  # nccl or rccl, where the source tells
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
