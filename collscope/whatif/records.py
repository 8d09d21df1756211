"""Request and answer of a fusion what-if."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from collscope.model.note import Note
from collscope.whatif.policies import FIRST_BUCKET_BYTES, Policy

SCHEMA = "collscope.fusion/2"
BLOCKING, QUEUED, OVERLAPPED = "blocking", "queued", "overlapped"  # how buckets are executed
LISTED, REVERSED = "listed", "reversed"


class FusionRequest(msgspec.Struct, frozen=True):
    """What the command line asks for. Either `layers` or `run` defines what is reduced."""

    db: Path
    policy: Policy
    thresholds: str | None = None  # None: a range that suits the policy
    layers: Path | None = None
    run: str | None = None
    datatype: str | None = None  # of the layers; a run has its own
    nranks: int | None = None
    nnodes: int | None = None
    label: str | None = None  # of the measurements; with `measure` the name of what is measured
    overlap: str | None = None  # uniform:MS or recorded
    queued: bool = False
    order: str | None = None  # None: reversed for layers under TORCH_DDP, else listed
    first_bytes: int = FIRST_BUCKET_BYTES


class FusionRow(msgspec.Struct, frozen=True):
    """One setting. Times are of a step's buckets, ns; None where a bucket could not be measured.

    setting      threshold in bytes, or number of buckets; None: what is done now
    low_ns       5 % and 95 % quantiles of `time_ns`; None where nothing is known to vary
    exposed_ns   of an overlapped step what is left after the backward pass
    line_ns      αK + βΣS by latency and bandwidth of the whole curve; None when overlapped
    extrapolated buckets outside the measured sizes
    """

    setting: int | None
    buckets: int  # number of buckets
    smallest_bytes: int  # smallest bucket
    largest_bytes: int  # largest bucket
    time_ns: float | None  # a step's buckets; None: a bucket could not be measured
    low_ns: float | None
    high_ns: float | None  # 95 % quantile of time_ns
    exposed_ns: float | None
    line_ns: float | None
    extrapolated: int  # buckets outside the measured sizes
    sizes_bytes: tuple[int, ...]  # buckets in their order


class Recommended(msgspec.Struct, frozen=True):
    """The setting to take.

    as_good   settings not slower within the uncertainty, the recommended one too
    gain      part of the present time saved; 5 % and 95 % quantiles, None where not known
    worth_it  the gain is above 1 % also at its low end
    bucket_cap_mb  for PyTorch's DistributedDataParallel, in MiB
    """

    setting: int  # fastest setting
    bucket_cap_mb: float
    as_good: tuple[int, ...]
    gain: float
    gain_low: float | None  # 5 % quantile; None: nothing is known to vary
    gain_high: float | None  # 95 % quantile
    worth_it: bool


class PerBucket(msgspec.Struct, frozen=True):
    """Least squares of time on the number of buckets over the rows."""

    per_bucket_ns: float  # what one more bucket costs
    rest_ns: float  # what no number of buckets changes
    r_squared: float  # 1: the rows lie on a line, 0: on none


class Fusion(msgspec.Struct, frozen=True):
    """Everything that `collscope whatif fusion` prints."""

    source: str  # layer list or run
    # when a bucket ends
    policy: Annotated[str, tuple(policy.value for policy in Policy)]
    order: Annotated[str, ("listed", "reversed")]  # of the pieces
    layers: int  # pieces that are merged
    total_bytes: int  # sum of the pieces
    datatype: str
    nranks: int  # ranks that reduce
    nnodes: int  # their nodes
    execution: Annotated[str, ("blocking", "queued", "overlapped")]  # how buckets are executed
    times_from: str  # where times come from, in words
    measured: bool  # the buckets themselves were replayed
    interpolation_error: float | None  # largest between measured sizes, a ratio; None: measured
    production: str | None  # when gradients are there, in words; None unless overlapped
    backward_ns: float | None  # length of the backward pass; None unless overlapped
    present_name: str  # what is done now
    present: FusionRow  # row of what is done now
    rows: tuple[FusionRow, ...]  # settings, rising; of settings with equal buckets the first
    # None: what is done now, or every setting, could not be measured
    recommended: Recommended | None
    # least squares over the rows; None: overlapped, below three numbers of buckets, or no line (a
    # bucket costs nothing, or r_squared below 0.5)
    per_bucket: PerBucket | None
    notices: tuple[Note, ...]  # assumptions and gaps
    schema: str = SCHEMA
