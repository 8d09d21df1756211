"""`collscope bench p2p`: what Send and Recv reach between two ranks, through the replayer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from collscope.bench.p2p_plan import (
    ONE_WAY,
    PASSES,
    TWO_WAY,
    Exchange,
    Pair,
    parse_pairs,
    prepare,
    sizes_by_pair,
)
from collscope.errors import CollscopeError, UsageError
from collscope.model import Measurement
from collscope.model.note import Note
from collscope.replay.measure import measure_parts
from collscope.replay.mpi import RUN_ALONE
from collscope.replay.session import Session, Target

DEFAULT_LABEL = "p2p"
KINDS = {"one-way": (ONE_WAY,), "two-way": (TWO_WAY,), "both": (ONE_WAY, TWO_WAY)}


class P2pRequest(msgspec.Struct, frozen=True):
    """What to measure, from the command line."""

    nranks: int
    pairs: str = "all"
    sizes: str | None = None  # None: a choice by the number of pairs
    direction: str = "both"  # a key of KINDS
    latency: bool = True


class Result(msgspec.Struct, frozen=True):
    """A measurement, and what it is of. A ping-pong has rows of its two messages and of all."""

    variant: str
    exchange: Exchange
    measured: Measurement


class P2pRun(msgspec.Struct, frozen=True):
    """What was measured; if it ended early, also why."""

    nranks: int
    pairs: tuple[Pair, ...]  # as requested
    variants: tuple[str, ...]
    results: tuple[Result, ...]
    points: int  # pairs and sizes that were to be measured of each variant
    error: CollscopeError | None = None
    notice: Note | None = None


def run_p2p(request: P2pRequest, session: Session, target: Target) -> P2pRun:
    """Measure pairs one after the other; one that fails does not stop the others.

    raises  CollscopeError when nothing was measured at all
    """
    if session.place is not None:
        raise UsageError(f"bench p2p: started by srun or mpirun. {RUN_ALONE}")
    pairs = parse_pairs(request.pairs, request.nranks)
    prepared = prepare(
        sizes_by_pair(pairs, request.sizes),
        KINDS[request.direction],
        nranks=request.nranks,
        latency=request.latency,
    )
    if not session.variants:
        target = replace(target, label=target.label or DEFAULT_LABEL)
    session = replace(session, method=replace(session.method, repeat=PASSES))
    outcome = measure_parts(prepared.parts, session, target)
    if outcome.error is not None and not outcome.measurements:
        raise outcome.error
    variants = tuple(v.label for v in session.variants) or (target.label or DEFAULT_LABEL,)
    results = tuple(results_of(outcome.measurements, variants, prepared.exchanges))
    return P2pRun(
        request.nranks, pairs, variants, results, prepared.points, outcome.error, outcome.notice
    )


def results_of(
    measurements: Sequence[Measurement], variants: Sequence[str], exchanges: Sequence[Exchange]
) -> list[Result]:
    """Measurements with the variant and the exchange that their label names."""
    named = {v + exchange.suffix: (v, exchange) for v in variants for exchange in exchanges}
    return [Result(*named[m.label], m) for m in measurements if m.label in named]
