"""What a report says of traces and recordings; part of `collscope.reports.model`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from collscope.reports.part import Part

if TYPE_CHECKING:
    from collscope.reports.layout import Section


@dataclass(frozen=True, slots=True)
class RankWaits:
    """How long one rank waits in collectives after the warm-up, and how late it comes."""

    rank: int
    calls: int
    transfer_ns: int
    wait_ns: int
    unknown_ns: int  # collective time that cannot be split
    late_of: int  # calls it could be late to
    late_last: int  # that it came last to, by more than the clocks' error
    late_behind: int  # of them, those with at least half the typical lateness
    late_typical_ns: float
    late_total_ns: int
    caused_wait_ns: int  # of the other ranks
    late_share: float  # ratio to the lateness of all ranks
    straggler: bool

    @property
    def seen_ns(self) -> int:
        """Time that the rank was seen: in collectives."""
        return self.transfer_ns + self.wait_ns + self.unknown_ns


@dataclass(frozen=True, slots=True)
class RankRow(RankWaits):
    """One rank's GPU time after the warm-up, its waiting, and how late it comes."""

    span_ns: int  # from the end of the warm-up to the last kernel's end
    compute_ns: int
    copy_ns: int
    collective_ns: int
    exposed_ns: int  # of collective_ns, with no compute kernel beside it
    hidden_ns: int  # of collective_ns, beside one
    idle_ns: int

    @property
    def seen_ns(self) -> int:
        """Time that the rank was seen: that of its trace."""
        return self.span_ns


@dataclass(frozen=True, slots=True)
class ClockRow:
    """The clock of one rank's trace against the first comparable one; removed from all times."""

    rank: int
    host: str | None
    offset_ns: int
    error_ns: float
    component: int  # clocks of different ones cannot be compared
    calls: int  # behind the estimate


@dataclass(frozen=True, slots=True)
class ClassTimeRow:
    """Calls of one class in the job, warm-up left out. Medians are over calls."""

    class_id: int
    op: str
    size_bytes: int | None
    nranks: int | None
    calls: int
    incomplete: int  # calls that lack a rank, traced or not: their transfer is not known
    warm_up: int  # calls left out
    suspect: int  # calls whose two estimates of the transfer disagree
    transfer_ns_median: float | None
    transfer_ns_min: int | None
    transfer_ns_max: int | None
    start_skew_ns_median: float | None
    end_skew_ns_median: float | None
    transfer_ns: int  # sums over calls and ranks
    wait_ns: int


@dataclass(frozen=True, slots=True)
class DisagreementRow:
    """What ranks disagree on, by their recordings or traces."""

    origin: Annotated[str, ("recording", "trace")]  # what tells it: recordings of calls, or traces
    # stopped, missing, different, open, unmatched, different_size
    kind: Annotated[str, ("stopped", "missing", "different", "open", "unmatched", "different_size")]
    message: str  # one sentence
    count: int  # places


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """How far one rank got in one group."""

    group_name: str  # process group or communicator as recorded
    rank: int  # world rank where the group's ranks are told, else rank in the group
    last_called: int | None  # last collective called
    last_completed: int | None  # last known to be completed
    first_missing: int | None  # first that another rank called and this one did not
    first_open: int | None  # first called and not completed


@dataclass(frozen=True, slots=True)
class BesideRow:
    """A class that computation runs beside, with what such calls cost computation when measured."""

    class_id: int
    op: str
    size_bytes: int
    nranks: int | None
    hidden_ns: float  # of its kernels beside compute kernels, mean over the ranks that have some
    relative_compute: float  # measured: performance beside such calls over that alone
    measured_size_bytes: int
    compute: str  # what was measured beside the calls: gemm, kernel
    label: str  # of the measurement
    device: str | None  # of the measurement


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Process groups of one name, warm-up left out. Times are sums over calls and ranks."""

    name: str | None  # what the program calls it; None: groups without a name
    communicators: int
    nranks: int | None  # of the largest
    calls: int
    kernel_ns: int
    exposed_ns: int
    wait_ns: int | None  # None where some of it is not known


@dataclass(frozen=True, slots=True)
class LateCause:
    """Why a straggler is late: what it has more of than the others. Times are sums, in ns."""

    rank: int
    cause: str  # host, idle, more, slower, inherited, unknown
    idle_host_ns: int | None  # its GPU idles, and the next work is not launched; None: not told
    more_compute_ns: int  # of compute kernels that the others lack; below 0: it has fewer
    slower_compute_ns: int  # of the same kernels that last longer; below 0: shorter
    inherited_ns: int  # it waits itself, in groups where it is not the late one
    first_rank: int | None  # for this one


@dataclass(frozen=True, slots=True)
class TracedRanks:
    """Ranks with a trace, and how many the job has."""

    ranks: int
    world: int


@dataclass(frozen=True, slots=True)
class PlaceRow:
    """Ranks of one GPU, node or NIC together. Times are sums over their calls."""

    kind: Annotated[str, ("GPU", "node", "NIC")]
    place: str
    ranks: tuple[int, ...]  # a rank may use several NICs
    calls: int
    transfer_ns: int
    wait_ns: int
    late_last: int  # calls that one of them came last to
    caused_wait_ns: int  # of other ranks
    busbw_gbps: float | None  # mean of their calls, weighted by time; None: sizes not known


@dataclass(frozen=True, slots=True)
class StepRow:
    """Steps of one rank, with the profiler."""

    rank: int
    steps: int
    mean_ns: float
    min_ns: int
    max_ns: int
    step_from: Annotated[str, ("marks", "kernels", "period", "given")]  # as in the view `steps`


@dataclass(frozen=True, slots=True)
class TimelineReport(Part):
    """Everything traces and recordings tell; empty where the run has none."""

    ranks: tuple[RankRow, ...]
    clocks: tuple[ClockRow, ...]
    classes: tuple[ClassTimeRow, ...]  # most time first
    disagreements: tuple[DisagreementRow, ...]
    progress: tuple[ProgressRow, ...]
    groups: tuple[GroupRow, ...] = ()  # most kernel time first; empty where no group has a name
    causes: tuple[LateCause, ...] = ()  # one for each straggler
    traced: TracedRanks | None = None  # None: all ranks, or nothing tells how many there are
    logged: tuple[RankWaits, ...] = ()  # by the kernel trace of logs, where there is no trace
    places: tuple[PlaceRow, ...] = ()  # kinds with several places, most costing first
    beside: tuple[BesideRow, ...] = ()  # most hidden time first; needs interference measurements
    steps: tuple[StepRow, ...] = ()  # one per rank; empty where no step recurs
    cpu_activities: bool = False  # the traces of the steps show them: a slower host

    @classmethod
    def read(cls, connection: sqlite3.Connection, run: str) -> TimelineReport:
        """What the traces and recordings of a run tell."""
        from collscope.reports.timeline_read import read_timeline  # noqa: PLC0415 - of this

        return read_timeline(connection, run)

    def sections(self) -> Iterable[Section]:
        """Timeline and ranks, where there is something of them."""
        from collscope.reports.timeline_sections import timeline_section  # noqa: PLC0415

        return timeline_section(self)
