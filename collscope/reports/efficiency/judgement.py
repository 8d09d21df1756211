"""How good the collectives of a run are: records of the report and of its JSON.

Ratios lie in 0..1; `_s` are seconds. None means "not known". Formulas: docs/report.md.
"""

from __future__ import annotations

import msgspec

from collscope.model.note import Note
from collscope.reports.efficiency.application_metrics import ApplicationMetric
from collscope.reports.efficiency.curves import Curve
from collscope.reports.efficiency.judged_classes import Reached
from collscope.reports.efficiency.outliers import Outlier
from collscope.reports.efficiency.profile_kernels import ProfileKernel
from collscope.reports.efficiency.time_breakdown import Breakdown
from collscope.roofline.gpu_models import OtherGpus

IN_JOB = "time_in_job"  # the mark of a class whose time is that of the job


class JudgedClass(msgspec.Struct, frozen=True):
    """One class of the run: measured, in the job, and what the fabric allows.

    In a run without calls the measured classes stand here, of no calls and numbered from 1.
    """

    class_id: int
    op: str
    datatype: str | None
    redop: str | None
    size_bytes: int | None
    in_place: bool | None
    nranks: int | None
    calls: int
    measured_us: float | None  # median of the replay, slowest rank
    samples: int | None  # behind it
    busbw_gbps: float | None  # of measured_us
    marks: tuple[Note, ...]  # what keeps the measurement from being of exactly this class
    transfer_us: float | None  # in the job, mean
    wait_us: float | None  # in the job, mean
    kernel_us: float | None  # mean of its kernels in the job, waiting included
    contention: float | None  # transfer in the job / measured
    roof: str | None  # which ceiling: a system's reachable one, or a fit
    roof_us: float | None
    roof_low_us: float | None  # range of roof_us: its lower end
    roof_high_us: float | None  # range of roof_us: its upper end
    roof_gbps: float | None  # what roof_us is as bus bandwidth
    limit_gbps: float | None  # what the fabric allows, without latency; None for a fit
    by_rings_us: float | None  # roof_us without the switches' reduction that makes it; else null
    roof_assumed: bool | None  # something behind the ceiling was never measured on such a machine
    roof_assumptions: tuple[str, ...]
    efficiency: float | None  # roof_us / measured_us
    why: str | None  # why the efficiency is above 1, or why there is no roof
    regime: str | None  # latency, bandwidth, waiting
    time_share: float | None  # ratio to the collective time of the run
    recoverable_s: float | None  # over all devices: calls x ranks x (measured - roof) x exposed
    choice: str | None  # algorithm and protocol, as the table or the job's log tells them

    @property
    def roof_range_gbps(self) -> tuple[float, float] | None:
        """Bus bandwidths of the slow and the fast end of the ceiling; None where they are one."""
        us, gbps = self.roof_us, self.roof_gbps
        if not us or not gbps or not self.roof_low_us or not self.roof_high_us:
            return None
        if self.roof_low_us == self.roof_high_us:
            return None
        return gbps * us / self.roof_high_us, gbps * us / self.roof_low_us


class Uplift(msgspec.Struct, frozen=True):
    """End-to-end speed-up expected if every judged class ran at its roof; gains are ratios."""

    profiles: tuple[str, ...]  # of the job; empty where traces tell the time
    fraction: float  # collective share of the time that the denominator names
    denominator: str
    judged: float  # part of the collective time whose classes have an efficiency
    saved: float  # part of that time that tuning could save
    gain: float  # 1 / (1 - saved) - 1
    low: float | None  # 5 % of the bootstrap over classes measured alone; None: nothing varies
    median: float | None
    high: float | None  # 95 %
    gain_if_alike: float  # with classes that were not measured as efficient as those that were
    gain_skewed_low: float | None  # without the waiting of skewed kernels, transfers at the roof
    gain_skewed_high: float | None  # the same, transfers three times slower
    # at most, if transfers took no time; what is known to be waiting stays. None: the time is
    # nothing else
    ceiling: float | None
    waits_known: bool  # waiting is told apart from transfer
    assumptions: tuple[Note, ...]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """How good the collectives of a run are, and what better ones would give."""

    label: str | None  # of the measurements; None: the run has none
    labels: tuple[str, ...]  # that the run has
    roof: str | None  # which roof the efficiencies are of
    classes: tuple[JudgedClass, ...]  # those to look at first, first
    classes_total: int  # before the cut to the first ones
    kernels: tuple[ProfileKernel, ...]
    breakdown: Breakdown | None
    uplifts: tuple[Uplift, ...]  # one for each job that the profiles are of
    metrics: tuple[ApplicationMetric, ...]
    curves: tuple[Curve, ...]
    reached: tuple[Reached, ...]  # by operation and ranks; empty where the run has calls
    outliers: tuple[Outlier, ...]  # of the label, the slowest first
    other_gpus: OtherGpus | None  # that ran, where the system's are of another model
    notes: tuple[Note, ...]  # what was assumed, left out or is not known
