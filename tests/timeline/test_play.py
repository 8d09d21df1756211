"""The native player of the causal graph against a plain one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collscope import _play
from collscope.model.trace import Ints

ORIGIN = 1  # of a player; of the networks it is 0


class Network(NamedTuple):
    """What follows what: as `_play.Player` reads it, without what the edges add to times."""

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
    ready, left = {0: 0.0}, dict[int, float]()  # nodes, and work of running kernels by end
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


def player_of(after: Network, gap: list[int], **more: object) -> _play.Player:
    """The same network behind a node that never takes place."""
    edges, nodes, rows = len(after.target), len(after.causes), len(after.trace)
    given_ = {
        "first": np.append(0, after.first),
        "target": after.target + ORIGIN,
        "lasted": np.full(edges, -1),
        "host": np.zeros(edges, dtype=bool),
        "gap": np.array(gap, dtype=np.float64),
        "unexplained": np.zeros(edges),
        "trace": np.append(0, after.trace),
        "kernel": np.append(-1, after.kernel),
        "change": np.append(0, after.change),
        "part": np.full(nodes + 1, -1),
        "parts": 0,
    }
    assert rows >= nodes
    return _play.Player(**(given_ | more))


def played(player: _play.Player, after: Network, **durations: object) -> list[float]:
    """Times of the network's nodes and ends."""
    places, rows = len(after.causes) - 1, len(after.trace) - len(after.causes)
    given_ = {
        "work": np.zeros(places),
        "lasting": np.zeros(rows),
        "transfer": np.zeros(0),
        "alone": np.zeros(rows),
        "pace": np.ones(rows),
    }
    found: list[float] = player.play(**(given_ | durations)).tolist()
    return found[ORIGIN:]


def on_their_gpus(after: Network) -> Network:
    """The end of a kernel is on the GPU of its start."""
    for start in np.flatnonzero(after.kernel >= 0).tolist():
        after.trace[len(after.causes) + after.kernel[start]] = after.trace[start]
    return after


@given(networks())
def test_as_the_plain_one(given_: tuple[Network, list[int], list[int], list[float]]) -> None:
    after, gap, work, pace = given_
    after = on_their_gpus(after)
    player = player_of(after, gap)
    alone = np.array(work, dtype=np.float64)
    found = played(player, after, alone=alone, pace=np.array(pace))
    assert found == pytest.approx(plain(after, gap, work, pace))
    # A player keeps nothing of what it played before; without paces all counts in whole ns.
    assert played(player, after, alone=alone) == plain(after, gap, work, [1.0] * len(work))
    assert played(player, after, alone=alone, pace=np.array(pace)) == found


@given(networks(), st.data())
def test_what_the_edges_add(
    given_: tuple[Network, list[int], list[int], list[float]], data: st.DataObject
) -> None:
    after, gap, work, pace = given_
    after = on_their_gpus(after)
    nodes, rows, edges = len(after.causes), len(work), len(after.target)

    def numbers(count: int, least: int, most: int) -> list[int]:
        return data.draw(st.lists(st.integers(least, most), min_size=count, max_size=count))

    lasted, part = numbers(edges, -1, rows - 1), [-1, *numbers(nodes - 1, -1, 2)]
    host = numbers(edges, 0, 1)
    unexplained = [min(pair) for pair in zip(gap, numbers(edges, 0, 9), strict=True)]
    of_host, lasting, transfer = numbers(nodes - 1, 0, 5), numbers(rows, 0, 5), numbers(3, 0, 5)
    at_once, behind_host = numbers(nodes - 1, 0, 1), numbers(nodes - 1, 0, 1)
    left = data.draw(st.sampled_from([0.0, 1.0]))
    kept, weights = [], []
    for edge, target in enumerate(after.target.tolist()):
        free = at_once[target - 1] and not host[edge]
        weight = 0 if free else gap[edge] - round(unexplained[edge] * (1 - left))
        weight += lasting[lasted[edge]] if lasted[edge] >= 0 else 0
        if host[edge]:
            weight += of_host[target - 1] + (transfer[part[target]] if part[target] >= 0 else 0)
        kept.append(bool(host[edge] or not behind_host[target - 1]))
        weights.append(weight)
    player = player_of(
        after, gap, lasted=np.array(lasted, dtype=np.int64), host=np.array(host, dtype=bool),
        unexplained=np.array(unexplained, dtype=np.float64), part=np.array([-1, *part]), parts=3,
    )  # fmt: skip
    found = played(
        player, after, work=np.array(of_host, dtype=np.float64),
        lasting=np.array(lasting, dtype=np.float64), transfer=np.array(transfer, dtype=np.float64),
        alone=np.array(work, dtype=np.float64), pace=np.array(pace), unexplained=left,
        at_once=np.array(at_once, dtype=bool), behind_host=np.array(behind_host, dtype=bool),
    )  # fmt: skip
    source = np.repeat(np.arange(len(after.first) - 1), np.diff(after.first))[kept]
    target = after.target[kept]
    rest = after._replace(
        first=np.searchsorted(source, np.arange(len(after.first))),
        target=target,
        causes=np.bincount(target, minlength=nodes),
    )
    expected = plain(rest, [w for w, stays in zip(weights, kept, strict=True) if stays], work, pace)
    assert found == pytest.approx(expected)


def test_what_does_not_fit_is_refused() -> None:
    one = Network(*(np.array(column) for column in ([0, 1, 1], [1], [0, 1], [0, 0], [-1, -1],
                                                     [0, 0])))  # fmt: skip
    player = player_of(one, [3])
    assert played(player, one) == [0.0, 3.0]
    with pytest.raises(ValueError, match="do not fit"):
        played(player, one, work=np.zeros(2))
    with pytest.raises(ValueError, match="do not fit"):
        player_of(one, [3], target=np.array([1]))  # a cause that is no smaller
    with pytest.raises(ValueError, match="do not fit"):
        player_of(one, [])
