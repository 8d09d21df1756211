"""The native player of the causal graph against a plain one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collscope import _play
from collscope.model.trace import Ints

ORIGIN = 0


class Network(NamedTuple):
    """As `collscope.timeline.graph.Following`."""

    first: Ints
    target: Ints
    causes: Ints
    trace: Ints
    kernel: Ints
    change: Ints


@st.composite
def networks(draw: st.DrawFn) -> tuple[Network, list[int], list[int], list[float]]:
    """Nodes that wait for nodes and ends before them, with gaps, works and paces; any may tie."""
    nodes, rows = draw(st.integers(1, 12)), draw(st.integers(0, 6))
    node = st.integers(1, nodes - 1) if nodes > 1 else st.nothing()
    starts = draw(st.lists(node, max_size=rows, unique=True)) if nodes > 1 else []
    kernel = np.full(nodes, -1)
    kernel[starts] = np.arange(len(starts))
    change = np.array([0, *draw(st.lists(st.sampled_from([0, 0, 1, -1]),
                                         min_size=nodes - 1, max_size=nodes - 1))])  # fmt: skip
    change[starts] = 0
    # An end follows its kernel's start: whoever waits for it comes after that.
    since = {nodes + k: start for k, start in enumerate(starts)} | {k: k for k in range(nodes)}
    edges = sorted({
        (draw(st.sampled_from([s for s, at in since.items() if at < k])), k)
        for k in range(1, nodes) for _ in range(draw(st.integers(1, 3)))
    })  # fmt: skip
    source, target = (np.array([e[side] for e in edges], dtype=np.int64) for side in (0, 1))
    numbers = {"min_size": rows, "max_size": rows}
    return (
        Network(
            np.searchsorted(source, np.arange(nodes + rows + 1)),
            target,
            np.bincount(target, minlength=nodes),
            np.array(draw(st.lists(st.integers(0, min(1, nodes + rows - 1)), min_size=nodes + rows,
                                   max_size=nodes + rows))),
            kernel,
            change,
        ),
        draw(st.lists(st.integers(0, 9), min_size=len(edges), max_size=len(edges))),
        draw(st.lists(st.integers(0, 9), **numbers)),
        draw(st.lists(st.sampled_from([1.0, 1.5, 2.0]), **numbers)),
    )  # fmt: skip


def plain(after: Network, gap: list[int], work: list[int], pace: list[float]) -> list[float]:
    """The same by looking at everything that may come next, each time."""
    nodes = len(after.causes)
    time, missing = [0.0] * len(after.trace), after.causes.tolist()
    ready, left = {ORIGIN: 0.0}, dict[int, float]()  # nodes, and work of running kernels by end
    beside, now, latest = [0, 0], 0.0, [0.0] * nodes
    while ready or left:
        slow = {e: pace[e - nodes] if beside[after.trace[e]] > 0 else 1.0 for e in left}
        moment, event = min([(t, n) for n, t in ready.items()]
                            + [(now + left[e] * slow[e], e) for e in left])  # fmt: skip
        left = {e: rest - (moment - now) / slow[e] for e, rest in left.items() if e != event}
        ready.pop(event, None)
        now = time[event] = moment
        if event < nodes:
            row = int(after.kernel[event])
            if row >= 0:
                left[nodes + row] = float(work[row])
            beside[after.trace[event]] += int(after.change[event])
        for edge in range(after.first[event], after.first[event + 1]):
            follower = int(after.target[edge])
            latest[follower] = max(latest[follower], now + gap[edge])
            missing[follower] -= 1
            if not missing[follower]:
                ready[follower] = latest[follower]
    return time


@given(networks())
def test_as_the_plain_one(given_: tuple[Network, list[int], list[int], list[float]]) -> None:
    after, gap, work, pace = given_
    # The end of a kernel is on the GPU of its start.
    for start in np.flatnonzero(after.kernel >= 0).tolist():
        after.trace[len(after.causes) + after.kernel[start]] = after.trace[start]
    times = [np.array(v, dtype=np.float64) for v in (gap, work, pace)]
    found = _play.play(*after, *times, ORIGIN)
    assert found.tolist() == pytest.approx(plain(after, gap, work, pace))


def test_what_does_not_fit_is_refused() -> None:
    one, none = np.zeros(1, dtype=np.int64), np.zeros(0)
    with pytest.raises(ValueError, match="do not fit"):
        _play.play(one, one, one, one, one, one, none, none, none, 0)
