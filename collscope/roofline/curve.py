"""Time by size of one operation and shape on a system, with its range.

Each algorithm and protocol of the library is a branch of a `Pipeline`: the least time of a message,
the library's own latency beyond that of its fastest protocol, what `reachable` finds of endless
messages, what the protocol leaves of it, and the cost of filling the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from collscope.model import Op, bus_factor
from collscope.model.note import Note
from collscope.roofline.bounds import Request
from collscope.roofline.floors import Floor, model_lines
from collscope.roofline.nccl_constants import NVLS_US
from collscope.roofline.nccl_model import MODELLED_OPS, CostLine
from collscope.roofline.pipeline import (
    DIRECT,
    NETWORK,
    NODE,
    RINGS,
    SWITCHED,
    Branch,
    Channels,
    Fill,
    Pipeline,
    Schedule,
    fill_of,
    schedule_of,
)
from collscope.roofline.reachable import RING, SCHEDULE, SWITCHES, TREE, Reach
from collscope.roofline.system import System

NVLS = "NVLS"
_TRANSFERS = (Op.SEND_RECV, Op.SEND, Op.RECV)
# LL sends a flag with every four bytes: half of the rate. NCCL's table has 0.92 for LL128; of 0.5,
# 0.6, 0.75 and 0.92 the calibration half of benchmarks/published agrees best with 0.6.
_PART = {"LL": 0.5, "LL128": 0.6}
# A tree between nodes leaves less of both than NCCL's table has: 43, 59 and 98 us for 128, 256 and
# 512 KiB on 2 x 8 H100 (Nebius), 81 and 77 for 512 KiB and 1 MiB on 2 x 8 H200 (Dell).
_BETWEEN_TREES = 0.5
# The chunks of Broadcast and Reduce are a quarter of those of AllReduce (src/include/collectives.h
# of NCCL: one step, not four), so that a quarter is in flight.
_ROOTED_FILL = 0.25
# Channels of a pair on one node: NCCL gives each rank its share of 32 channels to begin with, and
# twice as many while one carries over 16 MiB, 32 chunks (src/enqueue.cc, src/init.cc). One carries
# 21 GB/s: benchmarks/published/MECHANICS.md, from 64 to 512 MiB on 8 B200.
_CHANNELS, _CHANNEL_GBPS, _CHANNEL_BYTES = 32, 21.0, 16 << 20
# Protocols' latencies and parts at the ends of the range, of their most likely value.
_SOONER, _LATER, _MORE, _LESS = 0.7, 1.3, 1.3, 0.8


class TimeCurve(msgspec.Struct, frozen=True):
    """Times of one shape by size: the most likely, and the ends of the range.

    notes    where the constants come from
    assumed  one of them was borrowed from other GPUs
    """

    value: Pipeline
    fast: Pipeline
    slow: Pipeline
    notes: tuple[Note, ...]
    assumed: bool


class _Protocol(NamedTuple):
    """A branch before the floor and the rates are known."""

    name: str
    late_us: float  # beyond the floor
    part: float  # of the rate: value, and its range
    low: float
    high: float
    fills: bool = False  # its chunks are large enough for the pipeline to count
    above: float = 0.0  # bytes of data from which
    most: float = inf  # and up to which the library takes it


def curve_of(system: System, request: Request, ways: tuple[Reach, ...], floor: Floor) -> TimeCurve:
    """The curve of one shape.

    ways  what the library's algorithms reach, as `reachable_ways`
    """
    nodes = system.domains(request.nnodes)
    tuning = system.tuning
    modelled = request.op if request.op in MODELLED_OPS else Op.BROADCAST
    lines = model_lines(system, modelled, request.nranks, request.nnodes)
    channels = _channels(system, request, nodes)
    ends: tuple[list[Branch], list[Branch], list[Branch]] = ([], [], [])
    notes: dict[str, Note] = {}  # by source
    assumed = False
    for way in ways:
        fill = _fill(None if tuning is None else tuning.architecture, request, way, nodes)
        if nodes > 1 and system.network is not None:
            fill = fill.over(system.network.usable.fill_us)
        assumed = assumed or fill.borrowed
        notes[fill.source] = Note(
            "pipeline_filling", {"source": fill.source}, f"filling the pipeline: {fill.source}"
        )
        schedule = None
        if nodes == 1 and tuning is not None and not request.scheduled:
            schedule = schedule_of(tuning.architecture, request.op, request.nranks)
        for one in _protocols(request, lines, fill, way, schedule):
            value, fast, slow = (fill.value, fill.low, fill.high) if one.fills else (0.0, 0.0, 0.0)
            likely = Branch(
                one.name,
                floor.us + one.late_us,
                one.part * way.busbw_gbps,
                value,
                channels,
                one.above,
                one.most,
            )
            ends[0].append(likely)
            ends[1].append(
                replace(
                    likely,
                    latency_us=floor.low_us + _SOONER * one.late_us,
                    gbps=one.high * way.high_gbps,
                    fill_us=fast,
                    channels=None,
                    together=True,
                )
            )
            ends[2].append(
                replace(
                    likely,
                    latency_us=floor.high_us + _LATER * one.late_us,
                    gbps=one.low * way.low_gbps,
                    fill_us=slow,
                )
            )
    value_of, fast_of, slow_of = (Pipeline(tuple(end)) for end in ends)
    return TimeCurve(value_of, fast_of, slow_of, tuple(notes.values()), assumed)


def _fill(architecture: str | None, request: Request, way: Reach, nodes: int) -> Fill:
    """Constants of an algorithm, for the chunks of the operation."""
    if way.algorithm == SWITCHES:
        kind = SWITCHED
    else:
        kind = RINGS if way.algorithm in (RING, TREE, SCHEDULE) else DIRECT
    fill = fill_of(architecture, kind, NODE if nodes == 1 else NETWORK)
    if not request.op.rooted:
        return fill
    part = _ROOTED_FILL
    return replace(fill, value=part * fill.value, low=part * fill.low, high=2 * part * fill.high)


def _protocols(
    request: Request,
    lines: tuple[CostLine, ...],
    fill: Fill,
    way: Reach,
    schedule: Schedule | None,
) -> Iterator[_Protocol]:
    """The protocols of one algorithm.

    lines     the library's model; without it the protocols of one step
    schedule  serves its sizes in place of Simple
    """
    least = min((line.latency_us for line in lines), default=0.0)
    several = fill.place == NETWORK
    if way.algorithm == SWITCHES:
        late = fill.late_us if fill.late_us is not None else max(NVLS_US - least, 0.0)
        yield _Protocol(NVLS, late, 1.0, 1.0, 1.0, fills=True)
        return
    above = 0.0
    if schedule is not None:
        above = schedule.most_bytes * (bus_factor(request.op, request.nranks) or 1.0)
        yield _Protocol("MSCCL", 0.0, schedule.part, schedule.low, schedule.high, most=above)
    if not lines:
        ll = _PART["LL"]
        yield _Protocol("LL", 0.0, ll, _LESS * ll, _MORE * ll)
        yield _Protocol("Simple", fill.late_us or 0.0, 1.0, 1.0, 1.0, fills=True, above=above)
    modelled = request.op if request.op in MODELLED_OPS else Op.BROADCAST
    factor = bus_factor(modelled, request.nranks) or 1.0
    for line in lines:
        late = line.latency_us - least
        tree = line.algorithm == "Tree"
        if line.protocol in _PART:
            part = _PART[line.protocol]
            if line.channel_bound:
                part = min(part, line.algbw_gbps * factor / way.busbw_gbps)
            part *= _BETWEEN_TREES if several and request.op is Op.ALL_REDUCE else 1.0
            name = f"{line.algorithm} {line.protocol}"
            yield _Protocol(name, late, part, _LESS * part, _MORE * part)
        elif not tree or several:  # on one node a tree is never the fastest way of much data
            late = late if fill.late_us is None else fill.late_us
            name = f"{line.algorithm} Simple"
            yield _Protocol(name, late, 1.0, 1.0, 1.0, fills=True, above=above)


def _channels(system: System, request: Request, nodes: int) -> Channels | None:
    """Channels of a pair on one node of switches; None where they do not bound the rate."""
    tuning, fabric = system.tuning, system.fabric
    if request.op not in _TRANSFERS or nodes > 1 or fabric is None or fabric.wiring != "switch":
        return None
    if tuning is None or tuning.library != "nccl":
        return None
    share = max(_CHANNELS // request.nranks, 1)
    return Channels(1 << (share.bit_length() - 1), _CHANNELS, _CHANNEL_GBPS, _CHANNEL_BYTES)
