"""The fields of PyTorch profiler events that are read; msgspec skips all others.

Names of the arguments: kineto's output_json.cpp and torch/csrc/profiler/util.h.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec
from msgspec import field

_NOTHING = msgspec.Raw()


class Arguments(msgspec.Struct, gc=False):
    """What the ``args`` of GPU activities, host calls and record_param_comms hold."""

    correlation: int | None = None
    stream: int | str | None = None
    device: int | str | None = None
    external: int | None = field(name="External id", default=None)
    collective: str | None = field(name="Collective name", default=None)
    in_count: int | None = field(name="In msg nelems", default=None)
    out_count: int | None = field(name="Out msg nelems", default=None)
    group_size: int | None = field(name="Group size", default=None)
    dtype: str | None = None
    in_split: str | tuple[int, ...] | None = field(name="In split size", default=None)
    out_split: str | tuple[int, ...] | None = field(name="Out split size", default=None)
    group: int | str | None = field(name="Process Group Name", default=None)
    group_id: int | str | None = field(name="Process Group ID", default=None)  # early 2024
    description: str | None = field(name="Process Group Description", default=None)
    group_ranks: str | tuple[int, ...] | None = field(name="Process Group Ranks", default=None)
    rank_start: int | None = field(name="Global rank start", default=None)
    rank_stride: int | None = field(name="Global rank stride", default=None)
    rank: int | None = field(name="Rank", default=None)
    of_rank: int | None = field(name="rank", default=None)  # of traces that TraceLens joined
    source: int | None = field(name="Src Rank", default=None)
    destination: int | None = field(name="Dst Rank", default=None)
    seq: int | None = field(name="Seq", default=None)
    dims: msgspec.Raw = field(name="Input Dims", default=_NOTHING)
    types: msgspec.Raw = field(name="Input type", default=_NOTHING)
    event: int | None = field(name="wait_on_cuda_event_id", default=None)
    grid: msgspec.Raw = field(default=_NOTHING)
    block: msgspec.Raw = field(default=_NOTHING)


class Event(msgspec.Struct, gc=False):
    """One trace event; times are microseconds."""

    ph: str
    cat: str | None = None
    name: str | None = None
    tid: int | str | None = None
    id: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Arguments | None = None


class ExactEvent(Event, gc=False):
    """The same where a float could not hold the time to the nanosecond."""

    ts: Decimal | None = None  # type: ignore[assignment]
