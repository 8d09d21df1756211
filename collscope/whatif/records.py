"""What a fusion what-if is asked for, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collscope.whatif.policies import FIRST_BUCKET_BYTES, Policy

SCHEMA = "collscope.fusion/1"
BLOCKING, QUEUED, OVERLAPPED = "blocking", "queued", "overlapped"  # how buckets are executed
LISTED, REVERSED = "listed", "reversed"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for. Either `layers` or `run` says what is reduced."""

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


@dataclass(frozen=True, slots=True)
class FusionRow:
    """One setting. Times are of a step's buckets, µs; None where a bucket could not be measured.

    setting      threshold in bytes, or number of buckets; None: what is done now
    low_us       5 % and 95 % quantiles of `time_us`; None where nothing is known to vary
    exposed_us   of an overlapped step what is left after the backward pass
    line_us      αK + βΣS by latency and bandwidth of the whole curve; None when overlapped
    extrapolated buckets outside the measured sizes
    """

    setting: int | None
    buckets: int
    smallest_bytes: int
    largest_bytes: int
    time_us: float | None
    low_us: float | None
    high_us: float | None
    exposed_us: float | None
    line_us: float | None
    extrapolated: int
    sizes_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recommended:
    """The setting to take.

    as_good   settings not slower within the uncertainty, the recommended one too
    gain      part of the present time saved; 5 % and 95 % quantiles, None where not known
    worth_it  the gain is above 1 % also at its low end
    bucket_cap_mb  for PyTorch's DistributedDataParallel, in MiB
    """

    setting: int
    bucket_cap_mb: float
    as_good: tuple[int, ...]
    gain: float
    gain_low: float | None
    gain_high: float | None
    worth_it: bool


@dataclass(frozen=True, slots=True)
class PerBucket:
    """Least squares of time on the number of buckets over the rows."""

    per_bucket_us: float
    rest_us: float
    r_squared: float


@dataclass(frozen=True, slots=True)
class Fusion:
    """Everything that `collscope whatif fusion` prints."""

    source: str  # layer list or run
    policy: str
    order: str
    layers: int
    total_bytes: int
    datatype: str
    nranks: int
    nnodes: int
    execution: str  # blocking, queued, overlapped
    times_from: str  # in words
    measured: bool  # the buckets themselves were replayed
    interpolation_error: float | None  # largest between measured sizes, a ratio
    production: str | None  # of gradients, in words
    backward_us: float | None
    present_name: str
    present: FusionRow
    rows: tuple[FusionRow, ...]
    recommended: Recommended | None
    per_bucket: PerBucket | None
    notices: tuple[str, ...]
    schema: str = SCHEMA
