"""Results of the analysis of traces; times in ns, None where not known."""

from __future__ import annotations

from typing import Annotated

import msgspec

from collscope.model import CollectiveClass


class RankTimes(msgspec.Struct, frozen=True):
    """All collectives of one rank that count; wait + transfer + unknown = duration."""

    rank: int
    calls: int
    duration_ns: int
    transfer_ns: int
    wait_ns: int
    unknown_ns: int  # durations that cannot be split


class LateRank(msgspec.Struct, frozen=True):
    """How often one rank arrived last, and how long after the second last."""

    rank: int
    calls: int  # it took part in, all ranks seen
    last: int  # it arrived last by more than the clock error
    behind: int  # it arrived last by at least half of `typical_ns`
    typical_ns: float  # half of its lateness stems from calls where it was this late, or later
    mean_ns: float  # over the calls it arrived last in
    median_ns: float
    max_ns: int
    total_ns: int
    caused_wait_ns: int  # what the others would wait less, had it come with the second last
    share: float  # of the lateness of all ranks
    named: bool  # a straggler: it is the first cause of most lateness, beyond the clocks' error
    inherited_ns: int  # of total_ns: it waited itself, for ranks late in other groups
    first_rank: int | None  # that is the first cause of most of this; None where it is little


class WarmUp(msgspec.Struct, frozen=True):
    """A call at the beginning of a group that is left out of every sum."""

    call: int
    group: int
    seq: int
    longest_ns: int
    typical_ns: float  # what such calls last later


class StreamOverlap(msgspec.Struct, frozen=True):
    """Collectives of one stream; exposed + hidden = total."""

    stream: str
    total_ns: int
    exposed_ns: int
    hidden_ns: int


class RankOverlap(msgspec.Struct, frozen=True):
    """Time of one rank's GPU, from the end of its warm-up to its last row.

    Collective time is the union over streams, and so is compute time.
    """

    rank: int
    span_ns: int
    compute_ns: int
    copy_ns: int  # copies and memsets
    collective_ns: int
    exposed_ns: int  # a collective and no compute kernel
    hidden_ns: int  # of the collective time, what a compute kernel ran beside
    copy_only_ns: int  # of the exposed time, what a copy or memset ran beside
    idle_ns: int  # nothing ran
    streams: tuple[StreamOverlap, ...]


class ChangedClass(msgspec.Struct, frozen=True):
    """What changes in one class. Times of one call: the median over the calls; of a class of
    unknown size, which mixes sizes, the mean.
    """

    collective_class: CollectiveClass
    calls: int  # traced
    old_ns: float | None  # transfer; None: no call was seen on all its ranks, and it may be waiting
    new_ns: float
    # Rooted, and the ranks' clocks cannot be compared: times are those of the shortest kernel of
    # each call, which the transfer may exceed.
    bounded: bool = False


class Bound(msgspec.Struct, frozen=True):
    """Part of what bounds a step: the longest path through it, by kind."""

    # host, compute, collective; waiting: from a cause to its effect
    kind: Annotated[str, ("host", "compute", "collective", "waiting")]
    collective_class: CollectiveClass | None  # of a collective
    ns: float  # a step


class Knowledge(msgspec.Struct, frozen=True):
    """What a prediction rests on; shares are of 1, paces of the recorded one."""

    host_low: float  # time of the host's work without the profiler, in parts of that with it
    host: float
    host_high: float
    host_given: bool  # the step time without the profiler was given
    host_determined: bool  # and shows the host's pace: the host bounds the recorded step
    host_bound: float  # share of the launches that the GPU had to wait for
    gpu_ns: float  # the recorded step with a host that needs no time
    rest_ns: float  # of the given step, which no pace of the recorded host explains
    slowdown: float | None  # of compute by collectives; None: the record does not show it
    blocks: float | None  # thread blocks of the new collectives' kernels, in parts of the old
    # event edges whose waiting stream the traces name
    edges_named: int = msgspec.field(name="edges_told")
    edges_inferred: int
    edges_contradicted: int  # left out
    edges_unknown: int  # waits for which nothing was found
    idle_unexplained: float  # of the step: streams' idle time without a known cause
    # Share of the Sends and Recvs whose partner is not known; None: the traces name every peer.
    exchanges_alone: float | None
    groups_inferred: int  # process groups of some of the ranks that no trace names
    unchanged: float  # of the collectives' kernel time, in classes without a new time
    cpu_activities: bool  # the profiler recorded them, too: a slower host
    profilers: tuple[str, ...]  # dialects of the traces; what others than kineto cost is not known
    host_calls: bool  # all traces have the calls of their hosts
    event_records: bool  # and those that wait for events have their records too


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """A step's time before and after a change."""

    step_ns: float  # without the profiler where that is given, else as recorded
    recorded_ns: float
    simulated_ns: float  # the recorded one, played without the recorded starts
    starts_off_ns: float | None  # how far its collectives start from where they did, median
    other_starts_off_ns: float | None  # after the change, from where they did in the other run
    new_ns: float | None  # None: most of the step has no known cause, so there is a range alone
    low_ns: float
    high_ns: float
    simple_ns: float  # the uplift formula: exposed share saved, nothing else moves
    steps: int  # that the step time is the mean of
    # marks: the profiler's; graphs: launches of graphs; kernels, period: what recurs;
    # given: --steps; window: the whole trace
    step_from: Annotated[str, ("marks", "graphs", "kernels", "period", "given", "window")]
    changed: tuple[ChangedClass, ...]  # the largest change of all calls first
    unchanged: tuple[CollectiveClass, ...]  # classes without a new time
    knowledge: Knowledge
    bound_before: tuple[Bound, ...]  # what bounds the step, the most first
    bound_after: tuple[Bound, ...]
