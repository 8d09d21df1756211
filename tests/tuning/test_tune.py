"""What `collscope tune` decides by: legality, worth, halving, decisions, ranges, choices, files."""

from __future__ import annotations

import random
from itertools import pairwise, product
from math import exp, inf
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collscope.errors import UsageError
from collscope.model import Op
from collscope.tuning import csv_format, optimizer_csv
from collscope.tuning.choose import ENVIRONMENT, NOTHING, PLUGIN, Candidate, ChoiceInput, choose
from collscope.tuning.decide import improvement, noise_floor, standings
from collscope.tuning.halving import fitting, order, survivors
from collscope.tuning.intervals import Point, Range, Shape, best_ranges, bounds
from collscope.tuning.offers import screened
from collscope.tuning.output import (
    optimizer_text,
    row_comments,
    shell_lines,
    to_unset,
    tuned_setting,
)
from collscope.tuning.search import Clock, Search
from collscope.tuning.settings import (
    DEFAULT,
    KNOBS,
    Setting,
    TuningTarget,
    channel_settings,
    other_settings,
    pair_setting,
    pair_settings,
    place_of,
    present_setting,
    read_setting,
    why_not,
)
from collscope.tuning.worth import Weighed, worth

if TYPE_CHECKING:
    from collscope.tuning.launches import Launches

_NCCL = TuningTarget("nccl", (2, 28, 9), "NVIDIA H200")
_KIB, _MIB = 1 << 10, 1 << 20


# --- legality


def _legal(place: TuningTarget, op: Op, nranks: int = 8, nnodes: int = 1) -> set[str]:
    return {s.name for s in pair_settings(place) if why_not(s, op, nranks, nnodes, place) is None}


_RINGS = {"ring/simple", "ring/ll128", "ring/ll"}
_TREES = {"tree/simple", "tree/ll128", "tree/ll"}


@pytest.mark.parametrize(
    ("place", "op", "nranks", "nnodes", "expected"),
    [
        (_NCCL, Op.ALL_REDUCE, 8, 1, _RINGS | _TREES | {"nvls/simple"}),
        (_NCCL, Op.ALL_GATHER, 8, 1, _RINGS | {"nvls/simple"}),
        (_NCCL, Op.BROADCAST, 8, 1, _RINGS),
        (_NCCL, Op.ALL_TO_ALL, 8, 1, set()),
        (_NCCL, Op.SEND_RECV, 8, 2, set()),
        (_NCCL, Op.ALL_REDUCE, 16, 2, _RINGS | _TREES | {"nvls_tree/simple"}),
        # one rank per node: PAT; two: not
        (_NCCL, Op.ALL_GATHER, 4, 4, _RINGS | {"pat/simple"}),
        (_NCCL, Op.REDUCE_SCATTER, 8, 4, _RINGS),
        (TuningTarget("nccl", (2, 22, 3)), Op.ALL_GATHER, 4, 4, _RINGS),
        # NVLS of AllGather came with 2.20, of AllReduce with 2.17
        (TuningTarget("nccl", (2, 19, 3)), Op.ALL_GATHER, 8, 1, _RINGS),
        (TuningTarget("nccl", (2, 19, 3)), Op.ALL_REDUCE, 8, 1, _RINGS | _TREES | {"nvls/simple"}),
        (TuningTarget("nccl", (2, 16, 5)), Op.ALL_REDUCE, 8, 1, _RINGS | _TREES),
        # switched off in the job
        (TuningTarget("nccl", (2, 28, 9), nvls=False), Op.ALL_REDUCE, 8, 1, _RINGS | _TREES),
        (TuningTarget("nccl", (2, 28, 9), nvls=False), Op.ALL_REDUCE, 16, 2, _RINGS | _TREES),
        (TuningTarget("rccl", (2, 21, 5), "AMD gfx90a"), Op.ALL_REDUCE, 8, 1, _RINGS | _TREES),
        (
            TuningTarget("rccl", (2, 21, 5), "AMD gfx942"),
            Op.ALL_REDUCE,
            8,
            1,
            (_RINGS | _TREES) - {"ring/ll128", "tree/ll128"},
        ),
        (TuningTarget("rccl", (2, 26, 6), "AMD gfx942"), Op.ALL_REDUCE, 8, 1, _RINGS | _TREES),
        (TuningTarget("rccl", (2, 26, 6), "AMD gfx950"), Op.ALL_REDUCE, 8, 1, _RINGS | _TREES),
        (
            TuningTarget("rccl", (), "AMD gfx950"),
            Op.ALL_REDUCE,
            8,
            1,
            (_RINGS | _TREES) - {"ring/ll128", "tree/ll128"},
        ),
        (
            TuningTarget("rccl", (2, 21, 5), "AMD gfx906"),
            Op.ALL_REDUCE,
            8,
            1,
            {"ring/simple", "ring/ll", "tree/simple", "tree/ll"},
        ),
        (TuningTarget(None), Op.ALL_REDUCE, 8, 1, set()),
    ],
)
def test_settings_that_a_library_can_do(
    place: TuningTarget, op: Op, nranks: int, nnodes: int, expected: set[str]
) -> None:
    assert _legal(place, op, nranks, nnodes) == expected


def test_collnet_is_tried_only_where_the_logs_show_it() -> None:
    assert "collnet_direct/simple" not in _legal(_NCCL, Op.ALL_REDUCE, 64, 8)
    seen = place_of("nccl 2.28.9", None, nvls=True, seen=["COLLNET_DIRECT", "RING"])
    assert seen.version == (2, 28, 9)
    assert "collnet_direct/simple" in _legal(seen, Op.ALL_REDUCE, 64, 8)
    assert "collnet_direct/simple" in _legal(seen, Op.ALL_GATHER, 64, 8)
    assert "collnet_chain/simple" not in _legal(seen, Op.ALL_REDUCE, 64, 8)


def test_names_of_channel_variables() -> None:
    new = pair_setting("ring", "simple", 16, _NCCL)
    assert new.environment[2:] == (("NCCL_MIN_CTAS", "16"), ("NCCL_MAX_CTAS", "16"))
    for place in (TuningTarget("nccl", (2, 16, 5)), TuningTarget("rccl", (2, 21, 5))):
        old = pair_setting("ring", "simple", 16, place)
        assert old.environment[2:] == (("NCCL_MIN_NCHANNELS", "16"), ("NCCL_MAX_NCHANNELS", "16"))
    best = [pair_setting("tree", "ll", None, _NCCL), DEFAULT]
    tried = channel_settings(best, _NCCL)
    assert {s.channels for s in tried} <= set(range(1, 65))
    assert {s.algorithm for s in tried} == {"tree"}


def test_point_to_point_and_transport_settings() -> None:
    assert other_settings(_NCCL, [Op.ALL_REDUCE], 1) == ()
    p2p = other_settings(_NCCL, [Op.ALL_TO_ALL], 1)
    assert {s.family for s in p2p} == {"p2p"}
    assert why_not(p2p[0], Op.ALL_REDUCE, 8, 1, _NCCL) is not None
    assert why_not(p2p[0], Op.ALL_TO_ALL, 8, 1, _NCCL) is None
    names = {n for s in other_settings(_NCCL, [Op.SEND_RECV], 2) for n, _ in s.environment}
    assert {"NCCL_CROSS_NIC", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_NCHANNELS_PER_NET_PEER"} <= names


def test_every_launch_unsets_what_its_setting_does_not_name() -> None:
    assert set(DEFAULT.unset) == set(KNOBS)
    ring = pair_setting("ring", "ll", None, _NCCL)
    assert set(KNOBS) - set(ring.unset) == {"NCCL_ALGO", "NCCL_PROTO"}


def test_the_present_setting_as_it_is_read() -> None:
    assert present_setting({}).environment == ()
    forced = present_setting({"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", "NCCL_DEBUG": "INFO"})
    assert (forced.algorithm, forced.protocol, forced.as_row) == ("ring", "ll", True)
    assert dict(forced.environment) == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    # a list is no algorithm, and other knobs cannot be said by a row
    assert present_setting({"NCCL_ALGO": "Ring,Tree"}).algorithm is None
    assert not read_setting("a", [("NCCL_ALGO", "Ring"), ("NCCL_BUFFSIZE", "1")]).as_row
    assert read_setting("a", [("NCCL_MAX_P2P_NCHANNELS", "2")]).family == "p2p"
    assert read_setting("a", [("FI_CXI_X", "2")]).family == "any"


def test_the_model_screens_out_only_where_it_is_near_the_machine() -> None:
    from collscope.roofline.catalogue import load_system

    h100 = load_system("h100")
    shape = Shape(Op.ALL_REDUCE, 8, 1)
    tree_ll = pair_setting("tree", "ll", None, _NCCL)
    size = 256 * _MIB
    # 8 x H100: 256 MiB take about 256 Mi x 1.75 / 370 GB/s = 1270 us
    assert "model estimates" in (screened(h100, tree_ll, shape, size, 1270.0) or "")
    assert screened(h100, pair_setting("ring", "simple", None, _NCCL), shape, size, 1270.0) is None
    assert screened(h100, pair_setting("nvls", "simple", None, _NCCL), shape, size, 1270.0) is None
    # a machine that is ten times slower is not the one of the model
    assert screened(h100, tree_ll, shape, size, 12700.0) is None


# --- worth


def test_classes_that_hold_most_of_what_can_be_won() -> None:
    # weights 100 x (30 - 10) = 2000, 10 x (100 - 50) = 500, 1 x 20 = 20 us, and one at its roof
    classes = [
        Weighed(0, 1, 20.0),
        Weighed(1, 100, 30.0, 10.0),
        Weighed(2, 10, 100.0, 50.0),
        Weighed(3, 1000, 5.0, 6.0),
    ]
    found = worth(classes, None)
    assert found.kept == (1, 2)  # 2500 of 2520 is 99 %, 2000 alone 79 %
    assert set(found.left_out) == {0, 3}
    assert found.worth_it
    assert found.share is None
    assert "the job's time is unknown" in found.why
    assert found.weight_s == pytest.approx(2520e-6)


def test_not_worth_it_below_one_percent_of_the_job() -> None:
    classes = [Weighed(0, 10, 100.0, exposed=0.5)]  # 500 us of exposed time
    assert worth(classes, 0.049).worth_it
    found = worth(classes, 0.051)
    assert (found.worth_it, found.kept) == (False, ())
    assert "less than 1 %" in found.why
    assert not worth([Weighed(0, 10, 100.0, 100.0)], 1.0).worth_it
    with pytest.raises(UsageError, match="its calls alone take"):
        worth(classes, 1e-6)


# --- decisions


def test_the_interval_is_that_of_paired_rounds() -> None:
    before = {1: 100.0, 2: 200.0, 3: 400.0}  # drifts by a factor of four
    after = {1: 90.0, 2: 180.0, 3: 360.0, 4: 1.0}
    found = improvement(before, after)
    assert found is not None
    assert (found.rounds, found.saved) == (3, pytest.approx(0.1))
    assert found.low == pytest.approx(0.1)
    assert found.beyond(0.02)
    assert improvement({1: 1.0}, {2: 1.0}) is None
    # Logarithms -0.1 to -0.5: their mean is sure to 0.1581 / sqrt(5), times t(0.99, 4) = 3.747.
    wide = improvement(dict.fromkeys(range(5), 1.0), {r: exp(-0.1 * (r + 1)) for r in range(5)})
    assert wide is not None
    assert (wide.low, wide.saved, wide.high) == pytest.approx(
        (1 - exp(-0.3 + 0.265), 1 - exp(-0.3), 1 - exp(-0.3 - 0.265)), abs=0.02
    )
    single = improvement({1: 2.0}, {1: 1.0})
    assert single is not None
    assert not single.beyond(0.02)


def test_noise_floor() -> None:
    assert noise_floor([100.0]) == 0.02
    assert noise_floor([100.0, 101.0, 100.5]) == 0.02
    # deviations of 90, 100, 120 from 100: 10, 0, 20; their median is 10, twice that 20 %
    assert noise_floor([90.0, 100.0, 120.0]) == pytest.approx(0.2)


@pytest.mark.parametrize("noise", [0.003, 0.01, 0.03])
def test_nothing_is_accepted_where_nothing_differs(noise: float) -> None:
    rng = random.Random(f"{noise}")
    accepted = 0
    for _ in range(1000):
        rounds = rng.choice((3, 4, 5))
        names = ("present", "default", "a", "b", "c")
        times = {n: {r: rng.lognormvariate(4, noise) for r in range(rounds)} for n in names}
        found, _ = standings(times, "present", "default", list(times["present"].values()))
        accepted += any(s.accepted for s in found.values())
    assert accepted <= 10  # 1 % of the trials, whatever of three settings and the default


def _steady(**us: float) -> dict[str, dict[int, float]]:
    """Five rounds with a slow drift and half a percent of noise."""
    rng = random.Random(5)
    return {
        name: {r: t * (1 + 0.02 * r) * rng.lognormvariate(0, 0.003) for r in range(5)}
        for name, t in us.items()
    }


def test_a_better_setting_is_accepted_and_a_worse_than_default_never() -> None:
    times = _steady(present=100, default=50, better=40, between=60, same=50.1)
    found, floor = standings(times, "present", "default", [100, 101, 102])
    assert floor == 0.02
    assert found["better"].accepted
    assert found["default"].accepted
    assert found["same"].accepted
    # 40 % faster than the present setting, and still slower than the default
    assert not found["between"].accepted
    assert not found["between"].allowed
    assert not found["present"].allowed


def test_the_default_may_be_taken_where_the_present_setting_is_faster() -> None:
    # Seen on two H200 from NCCL_ALGO=allreduce:tree: 243.3 against 247.5 us at 64 MiB, while two
    # smaller sizes took 1.3 and 2 times as long as by default.
    found, _ = standings(_steady(present=243.3, default=247.5), "present", "default", [243.0])
    assert found["default"].allowed
    assert not found["default"].accepted


def test_a_present_setting_that_does_not_run_is_replaced() -> None:
    times = _steady(default=50, a=30, b=49.9)
    found, _ = standings(times, "present", "default", [])
    assert found["default"].accepted
    assert found["a"].accepted
    assert not found["b"].accepted


def test_a_reference_that_fails_once_still_counts() -> None:
    ring = pair_setting("ring", "ll", None, _NCCL)
    search = Search(
        cast("Launches", None), Clock(1.0), {s.name: s for s in (Setting("present"), DEFAULT, ring)}
    )
    search.classes = (0,)
    rounds = {1: 10.0, 2: 10.1, 3: 9.9}
    search.times[0]["present"] = {r: 4 * us for r, us in rounds.items()}
    search.times[0]["default"] = rounds
    search.times[0][ring.name] = {r: 2 * us for r, us in rounds.items()}
    for _ in range(2):  # Ring/LL is faster than the present setting and slower than the default
        found, _ = search.decided()[0]
        assert (found["default"].allowed, found[ring.name].allowed) == (True, False)
        search.failed["default", 0] = "no result in time"  # later than that
    search.failed[ring.name, 0] = "no result in time"
    assert ring.name not in search.decided()[0][0]


# --- halving


def test_halving_keeps_the_references_and_the_faster_half() -> None:
    times = {f"s{k}": {1: 10.0 + k} for k in range(8)} | {
        "present": {1: 99.0},
        "default": {1: 98.0},
    }
    first = survivors(times, ("present", "default"), 1)
    assert first == {"s0", "s1", "s2", "s3", "present", "default"}
    left = {name: times[name] for name in first}
    assert survivors(left, ("present", "default"), 2) == {"s0", "s1", "present", "default"}
    assert survivors(left, ("present", "default"), 3) == first
    assert "s9" not in survivors(left | {"s9": {}}, ("present", "s9"), 1)


def test_drift_does_not_decide_who_stays() -> None:
    # the machine became three times slower in round 2: `late`, measured there, is the faster one
    times = {"early": {1: 90.0}, "late": {2: 240.0}, "slow": {1: 100.0}, "slower": {2: 310.0},
             "present": {1: 100.0, 2: 300.0}}  # fmt: skip
    assert survivors(times, ("present",), 1) == {"early", "late", "present"}


@given(st.sets(st.text("abcdefgh", min_size=1, max_size=3), max_size=20), st.integers())
def test_a_round_has_every_setting_once_and_the_present_one_regularly(
    names: set[str], seed: int
) -> None:
    launches = order({*names, "present"}, "present", random.Random(seed))
    assert sorted(x for x in launches if x != "present") == sorted(names - {"present"})
    assert launches[0] == "present"
    gaps = "".join("p" if x == "present" else "." for x in launches).split("p")
    assert all(len(gap) <= 8 for gap in gaps)


def test_candidates_that_there_is_time_for() -> None:
    names = [f"s{k}" for k in range(12)]
    assert fitting(names, 1.0, 1000.0) == 12
    assert fitting(names, 1.0, 0.0) == 0
    # rounds of 8, 4 and 2 settings, a present one before each and after 8, and 3 to confirm
    assert fitting(names[:8], 1.0, (8 + 4 + 2) + (2 + 1 + 1) + 3) == 8
    assert fitting(names[:8], 1.0, 20.9) == 7
    some = [fitting(names, 4.0, left) for left in (40.0, 80.0, 120.0)]
    assert some == sorted(some)
    assert 0 < some[1] < 12


# --- ranges


def _cost(points: list[Point], ranges: tuple[Range, ...], switch: float) -> float:
    sums = sum(points[i].costs[r.setting] for r in ranges for i in range(r.first, r.last + 1))
    return sums + switch * (len(ranges) - 1)


def _brute(points: list[Point], most: int, switch: float) -> float:
    names = sorted({name for point in points for name in point.costs})
    best = inf
    for choice in product(names, repeat=len(points)):
        if any(name not in point.costs for name, point in zip(choice, points, strict=True)):
            continue
        switches = sum(a != b for a, b in pairwise(choice))
        if switches < most:
            total = sum(p.costs[n] for n, p in zip(choice, points, strict=True))
            best = min(best, total + switch * switches)
    return best


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from("abcd"), st.integers(1, 40), min_size=1),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.01, 0.2]),
)
def test_ranges_are_as_cheap_as_any(
    costs: list[dict[str, int]], most: int, switch_cost: float
) -> None:
    points = [Point(1 << k, {n: float(c) for n, c in d.items()}) for k, d in enumerate(costs)]
    switch = switch_cost * sum(min(p.costs.values()) for p in points)
    ranges = best_ranges(points, most, switch_cost)
    expected = _brute(points, most, switch)
    if ranges is None:
        assert expected == inf
        return
    assert [i for r in ranges for i in range(r.first, r.last + 1)] == list(range(len(points)))
    assert len(ranges) <= most
    assert _cost(points, ranges, switch) == pytest.approx(expected)


def test_ranges_meet_in_the_middle_of_the_logarithms() -> None:
    sizes = [1 * _KIB, 4 * _KIB, 1 * _MIB]
    assert bounds(sizes, Range(0, 0, "a")) == (512, 2 * _KIB)
    assert bounds(sizes, Range(1, 1, "b")) == (2 * _KIB + 1, 64 * _KIB)
    assert bounds(sizes, Range(2, 2, "c")) == (64 * _KIB + 1, 2 * _MIB)
    assert best_ranges([]) == ()


# --- choices


_RING, _TREE = pair_setting("ring", "simple", None, _NCCL), pair_setting("tree", "ll", None, _NCCL)


def _candidate(number: int, size: int, op: Op = Op.ALL_REDUCE, **us: float) -> Candidate:
    found, floor = standings(_steady(**us), "present", "default", [100.0])
    return Candidate(number, Shape(op, 8, 1), size, 10.0, found, floor)


def _known(*candidates: Candidate, present: Setting | None = None) -> ChoiceInput:
    shown = present or present_setting({})
    known = {s.name: s for s in (shown, DEFAULT, _RING, _TREE)}
    return ChoiceInput(candidates, known, [(c.shape, c.size_bytes) for c in candidates], _NCCL)


def test_stay_where_nothing_is_better() -> None:
    same = {"present": 100.0, "default": 100.0, "ring/simple": 99.5, "tree/ll": 180.0}
    assert choose(_known(_candidate(0, _KIB, **same))).kind == NOTHING


def test_unset_a_bad_variable() -> None:
    bad = present_setting({"NCCL_PROTO": "LL"})
    us = {"present": 300.0, "default": 100.0, "ring/simple": 99.5, "tree/ll": 310.0}
    found = choose(_known(_candidate(0, _MIB, **us), present=bad))
    assert (found.kind, found.environment, found.rows) == (ENVIRONMENT, (), ())
    assert found.by_class == {0: "default"}


def test_one_setting_that_dominates_is_two_variables() -> None:
    us = {"present": 100.0, "default": 100.0, "ring/simple": 70.0, "tree/ll": 180.0}
    found = choose(_known(_candidate(0, _KIB, **us), _candidate(1, _MIB, **us)))
    assert found.kind == ENVIRONMENT
    assert dict(found.environment) == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}


def test_trees_for_all_would_stop_other_collectives_so_they_are_a_row() -> None:
    us = {"present": 100.0, "default": 100.0, "ring/simple": 120.0, "tree/ll": 70.0}
    found = choose(_known(_candidate(0, _KIB, **us)))
    assert found.kind == PLUGIN
    (row,) = found.rows
    assert (row.algorithm, row.protocol, row.min_bytes, row.max_bytes) == ("tree", "ll", 512, 2048)
    assert (row.nranks, row.nnodes, row.channels) == (8, 1, None)


def test_sizes_that_want_different_settings_are_rows() -> None:
    small = {"present": 10.0, "default": 10.0, "ring/simple": 14.0, "tree/ll": 7.0}
    large = {"present": 100.0, "default": 100.0, "ring/simple": 60.0, "tree/ll": 300.0}
    fine = {"present": 1000.0, "default": 1000.0, "ring/simple": 1400.0, "tree/ll": 3000.0}
    known = _known(
        _candidate(0, _KIB, **small),
        _candidate(1, _MIB, **large),
        _candidate(2, 64 * _MIB, **fine),
        _candidate(3, _MIB, Op.ALL_GATHER, **fine),
    )
    found = choose(known)
    assert found.kind == PLUGIN
    assert found.by_class == {0: "tree/ll", 1: "ring/simple", 2: "default", 3: "default"}
    assert [(r.algorithm, r.min_bytes, r.max_bytes) for r in found.rows] == [
        ("tree", 512, 32 * _KIB),
        ("ring", 32 * _KIB + 1, 8 * _MIB),
    ]


def test_what_was_not_tried_on_every_class_is_a_row_that_ends_before_the_others() -> None:
    us = {"present": 100.0, "default": 100.0, "ring/simple": 70.0, "tree/ll": 180.0}
    known = _known(_candidate(0, _KIB, **us), _candidate(1, _MIB, **us))
    between = (known.candidates[0].shape, 32 * _KIB)
    found = choose(ChoiceInput(known.candidates, known.settings, [*known.sizes, between], _NCCL))
    assert found.kind == PLUGIN
    # sqrt(1 Ki x 32 Ki) is 5792.6, sqrt(32 Ki x 1 Mi) is 185363.8
    assert [(r.min_bytes, r.max_bytes) for r in found.rows] == [(512, 5792), (185364, 2 * _MIB)]


def test_classes_of_one_size_share_a_row_only_if_all_allow_it() -> None:
    gains = {"present": 10.0, "default": 10.0, "ring/simple": 14.0, "tree/ll": 5.0}
    loses = {"present": 10.0, "default": 10.0, "ring/simple": 14.0, "tree/ll": 12.0}
    found = choose(_known(_candidate(0, _KIB, **gains), _candidate(1, _KIB, **loses)))
    assert found.kind == NOTHING


def test_point_to_point_channels_beside_rows() -> None:
    few = Setting("few", (("NCCL_MAX_P2P_NCHANNELS", "2"),), family="p2p")
    us = {"present": 100.0, "default": 100.0, "ring/simple": 120.0, "tree/ll": 70.0}
    p2p = _candidate(1, _MIB, Op.ALL_TO_ALL, present=100.0, default=100.0, few=50.0)
    known = _known(_candidate(0, _KIB, **us), p2p)
    found = choose(
        ChoiceInput(known.candidates, {**known.settings, "few": few}, known.sizes, _NCCL)
    )
    assert found.kind == PLUGIN
    assert found.environment == few.environment
    assert found.by_class == {0: "tree/ll", 1: "few"}


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([_KIB, 16 * _KIB, _MIB]),
            st.fixed_dictionaries(
                {n: st.floats(5, 500) for n in ("present", "default", "ring/simple", "tree/ll")}
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_choice_is_worse_than_the_default_nor_in_sum_than_the_present(
    classes: list[tuple[int, dict[str, float]]],
) -> None:
    bad = present_setting({"NCCL_MAX_CTAS": "2"})
    known = _known(*(_candidate(k, size, **us) for k, (size, us) in enumerate(classes)),
                   present=bad)  # fmt: skip
    found = choose(known)
    present = chosen = 0.0
    for c in known.candidates:
        name = found.by_class.get(c.class_id, "present")
        us = {n: s.time_us for n, s in c.standings.items()}
        present += c.calls * us["present"]
        chosen += c.calls * us[name]
        if name != "present":
            assert us[name] <= 1.025 * us["default"]
    assert chosen <= present


# --- files


def test_files_round_trip() -> None:
    us = {"present": 10.0, "default": 10.0, "ring/simple": 14.0, "tree/ll": 7.0}
    known = _known(_candidate(0, _KIB, **us), _candidate(1, _MIB, Op.ALL_GATHER, **us))
    found = choose(known)
    text = csv_format.render(found.rows, row_comments(found.rows, None))
    read = csv_format.parse(text)
    assert read.rows == found.rows
    assert read.diagnostics == ()
    # NVIDIA's example: lines below 256 bytes, at least 8 columns
    for line in text.splitlines():
        assert len(line.encode()) < 256
        assert line.startswith("#") or len(line.split(",")) >= 8
    measured = optimizer_csv.parse(optimizer_text(known.candidates, known.settings))
    assert measured.diagnostics == ()
    assert {(r.op, r.algorithm, r.protocol, r.size_bytes) for r in measured.rows} == {
        (op, a, p, size)
        for op, size in ((Op.ALL_REDUCE, _KIB), (Op.ALL_GATHER, _MIB))
        for a, p in (("ring", "simple"), ("tree", "ll"))
    }


def test_what_is_unset_and_set() -> None:
    us = {"present": 10.0, "default": 10.0, "ring/simple": 14.0, "tree/ll": 7.0}
    choice = choose(_known(_candidate(0, _KIB, **us)))
    tuned = tuned_setting(choice, {"NCCL_TUNER_PLUGIN": "/a b/t.so", "COLLSCOPE_TUNER_CSV": "/t"})
    unset = to_unset(tuned, ["NCCL_MAX_CTAS", "NCCL_TUNER_PLUGIN"], choice)
    assert unset == ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_CTAS")
    assert "NCCL_TUNER_PLUGIN" not in tuned.unset
    lines = shell_lines(tuned, unset, ["one\ntwo"]).splitlines()
    assert lines == [
        "# one two",
        "unset NCCL_ALGO NCCL_PROTO NCCL_MAX_CTAS",
        "export NCCL_TUNER_PLUGIN='/a b/t.so'",
        "export COLLSCOPE_TUNER_CSV=/t",
    ]
