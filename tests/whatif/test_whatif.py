"""Fusion what-if: the printed batch lists, policies, prediction, recommendation, commands.

Numbers of the all-reduce wrapper stand here as its document prints them (background document
allreduce-wrapper.md, sections "tested with fusion" and "testing output measuring").
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from command import collscope, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ROOT

from collscope.errors import InputError, NoVerdictError, UsageError
from collscope.model import Datatype, Measurement, Op
from collscope.programs import installed_replayer
from collscope.replay.parse import parse_plan
from collscope.replay.session import Method, Session
from collscope.replay.text import plan_text
from collscope.roofline.fit import Hockney, fit
from collscope.whatif.cycle import last_cycle
from collscope.whatif.layers import Layer, parse_layers
from collscope.whatif.plans import fused_plan, unique_plan
from collscope.whatif.policies import Bucket, Policy, make_buckets
from collscope.whatif.predict import line_us, recorded, slope, step_us, uniform
from collscope.whatif.recommend import bucket_cap_mb, choose
from collscope.whatif.resnet50 import resnet50
from collscope.whatif.times import Floats, make_times
from collscope.whatif.wrapper import Mode, fused_resnet50, modes, tables, wrapper_plan

KIB, MIB = 1024, 1 << 20

# The document's "Batches of params after fusion", KB, of mode 1 (2 GPUs per thread).
PRINTED = {
    1: (
        "37.0 17.2 145.2 66.0 65.0 4.0 4.0 64.2 145.2 66.0 4.0 64.2 145.2 66.0 4.0 128.5 2.0 576.5"
        " 2.0 258.0 514.0 8.0 8.0 256.5 2.0 576.5 2.0 258.0 8.0 256.5 2.0 576.5 2.0 258.0 8.0 256.5"
        " 2.0 576.5 2.0 258.0 8.0 513.0 4.0 2305.0 4.0 1028.0 2052.0 16.0 16.0 1025.0 4.0 2305.0"
        " 4.0 1028.0 16.0 1025.0 4.0 2305.0 4.0 1028.0 16.0 1025.0 4.0 2305.0 4.0 1028.0 16.0"
        " 1025.0 4.0 2305.0 4.0 1028.0 16.0 1025.0 4.0 2305.0 4.0 1028.0 16.0 2050.0 8.0 9218.0 8.0"
        " 4104.0 8200.0 32.0 32.0 4098.0 8.0 9218.0 8.0 4104.0 32.0 4098.0 8.0 9218.0 8.0 4104.0"
        " 32.0 8003.9"
    ),
    10: (
        "37.0 17.2 145.2 66.0 65.0 72.2 145.2 66.0 68.2 145.2 66.0 132.5 578.5 260.0 514.0 16.0"
        " 256.5 578.5 260.0 264.5 578.5 260.0 264.5 578.5 260.0 521.0 2309.0 1032.0 2052.0 16.0"
        " 16.0 1025.0 2309.0 1032.0 16.0 1025.0 2309.0 1032.0 16.0 1025.0 2309.0 1032.0 16.0 1025.0"
        " 2309.0 1032.0 16.0 1025.0 2309.0 1032.0 16.0 2050.0 9226.0 4112.0 8200.0 32.0 32.0 4098.0"
        " 9226.0 4112.0 32.0 4098.0 9226.0 4112.0 32.0 8003.9"
    ),
    100: (
        "199.5 131.0 217.5 134.2 145.2 198.5 578.5 260.0 514.0 272.5 578.5 260.0 264.5 578.5 260.0"
        " 264.5 578.5 260.0 521.0 2309.0 1032.0 2052.0 1057.0 2309.0 1032.0 1041.0 2309.0 1032.0"
        " 1041.0 2309.0 1032.0 1041.0 2309.0 1032.0 1041.0 2309.0 1032.0 2066.0 9226.0 4112.0"
        " 8200.0 4162.0 9226.0 4112.0 4130.0 9226.0 4112.0 8035.9"
    ),
    1000: (
        "1026.0 1352.5 1111.0 1103.0 1103.0 2830.0 1032.0 2052.0 1057.0 2309.0 1032.0 1041.0 2309.0"
        " 1032.0 1041.0 2309.0 1032.0 1041.0 2309.0 1032.0 1041.0 2309.0 1032.0 2066.0 9226.0"
        " 4112.0 8200.0 4162.0 9226.0 4112.0 4130.0 9226.0 4112.0 8035.9"
    ),
    10000: "11609.5 12130.0 11862.0 13338.0 12362.0 13338.0 13356.0 12147.9",
}
COUNTS = {1: 100, 10: 66, 100: 48, 1000: 34, 10000: 8}  # "Total Batches"
# "avg over repeated 10 times", seconds, in the order of COUNTS.
MODE_1 = (2.310482182, 2.282010829, 2.353430335, 2.365061736, 1.996319349)
MODE_2 = (2.533200475, 2.364754549, 2.256444651, 2.276045096, 2.188430121)


def texts(found: dict[str, Any]) -> list[str]:
    """Sentences of the notices of an answer."""
    return [notice["text"] for notice in found["notices"]]


def resnet_sizes() -> tuple[int, ...]:
    return tuple(4 * layer.parameters for layer in resnet50())


def as_printed(buckets: tuple[Bucket, ...]) -> list[str]:
    return [f"{bucket.size_bytes / KIB:.1f}" for bucket in buckets]


def sweep(
    times: dict[int, float],
    *,
    samples_us: tuple[float, ...] = (),
    n_wrong: int | None = None,
    status: str = "ok",
) -> list[Measurement]:
    return [
        Measurement(
            Op.ALL_REDUCE, size_bytes=size, nranks=4, nnodes=1, time_us_median=time,
            samples_us=samples_us, n_wrong=n_wrong, status=status,
        )
        for size, time in times.items()
    ]  # fmt: skip


# Layers and policies


def test_resnet50_is_what_the_document_says_it_is() -> None:
    layers = resnet50()
    assert len(layers) == 107
    assert sum(layer.parameters for layer in layers) == 25_636_712  # "Total params"
    # its table of extracted counts
    assert [layer.parameters for layer in layers[:3]] == [9472, 256, 4160]
    # "Non-trainable params": the moving means and variances, half of each normalisation
    assert sum(x.parameters // 2 for x in layers if x.name.startswith("bn")) == 53_120


def test_the_shipped_layer_list_is_resnet50(samples: Path) -> None:
    path = samples / "layers" / "resnet50.csv"
    assert parse_layers(path.read_text(), str(path)) == resnet50()


@pytest.mark.parametrize("kib", PRINTED)
def test_the_wrapper_s_printed_batches_are_reproduced(kib: int) -> None:
    buckets = make_buckets(resnet_sizes(), Policy.POST_GT, kib * KIB)
    assert as_printed(buckets) == PRINTED[kib].split()
    assert len(buckets) == COUNTS[kib]


def test_both_modes_print_the_same_batches_in_the_document() -> None:
    path = ROOT.parent / "shared" / "background" / "allreduce-wrapper.md"
    if not path.is_file():
        pytest.skip("no background document")
    found = re.findall(
        r"Threshold is (\d+) KB - Total Batches: (\d+)\nBatches[^:]*: (.*)\n(?:\n\*+gpu per thread:"
        r" (\d) - Time: ([\d.]+))",
        path.read_text(),
    )
    assert len(found) == 10
    for kib, count, printed, per_thread, seconds in found:
        assert re.findall(r"([\d.]+)KB", printed) == PRINTED[int(kib)].split()
        assert int(count) == COUNTS[int(kib)]
        mode = MODE_1 if per_thread == "2" else MODE_2
        assert float(seconds) == mode[list(COUNTS).index(int(kib))]


@pytest.mark.parametrize(
    ("policy", "counts"),
    [
        # bn_conv1 is exactly 1 KiB: with >= it ends a bucket at 1 KiB, with > it does not
        (Policy.POST_GE, (107, 66, 48, 34, 8)),
        # ending before the overflow, as a cap
        (Policy.PRE, (107, 106, 92, 63, 13)),
    ],
)
def test_other_policies_give_other_batches(policy: Policy, counts: tuple[int, ...]) -> None:
    found = [len(make_buckets(resnet_sizes(), policy, kib * KIB)) for kib in COUNTS]
    assert found == list(counts)


def test_a_kilobyte_of_the_document_is_1024_bytes() -> None:
    buckets = make_buckets(resnet_sizes(), Policy.POST_GT, 10_000 * 1000)
    assert [f"{b.size_bytes / 1000:.1f}" for b in buckets] != PRINTED[10000].split()
    assert as_printed(buckets) != PRINTED[10000].split()


def test_post_ends_with_the_layer_and_pre_before_it() -> None:
    sizes = (4, 4, 4, 10, 2)

    def cut(policy: Policy, setting: int) -> list[int]:
        return [b.size_bytes for b in make_buckets(sizes, policy, setting, first_bytes=4)]

    assert cut(Policy.POST_GT, 8) == [12, 10, 2]
    assert cut(Policy.POST_GE, 8) == [8, 14, 2]
    assert cut(Policy.PRE, 8) == [8, 4, 10, 2]  # a layer above the cap is alone
    assert [b.size_bytes for b in make_buckets((4,) * 5, Policy.PRE, 8)] == [8, 8, 4]
    assert cut(Policy.TORCH_DDP, 8) == [4, 8, 10, 2]
    assert cut(Policy.FIXED_COUNT, 1) == [24]
    assert cut(Policy.FIXED_COUNT, 2) == [12, 12]
    assert cut(Policy.FIXED_COUNT, 9) == [4, 4, 4, 10, 2]


def test_torch_ddp_gives_the_recorded_buckets(samples: Path) -> None:
    """The job of samples/nccl/ddp: embedding, 4 transformer layers of width 1024, a linear layer.

    PyTorch's default, 25 MiB after a first bucket of 1 MiB, over parameters as their gradients
    come: from the last module to the first.
    """
    width, vocabulary, inner = 1024, 8192, 4096
    forward = [vocabulary * width]
    for _ in range(4):
        attention = (3 * width * (width + 1), width * (width + 1), 2 * width)
        forward += [*attention, inner * (width + 1), width * (inner + 1), 2 * width]
    forward += [vocabulary * (width + 1)]
    sizes = [4 * count for count in reversed(forward)]
    found = [b.size_bytes // 4 for b in make_buckets(sizes, Policy.TORCH_DDP, 25 * MIB)]
    log = (samples / "nccl" / "ddp" / "rank0.log").read_text()
    counts = [int(c) for c in re.findall(r"AllReduce: .*? count (\d+)", log)]
    step = counts[2 : 2 + len(found)]  # after the first step's one bucket and a loss
    assert counts[0] == sum(found)
    assert found == step
    assert counts.count(step[0]) > 5


sizes_strategy = st.lists(st.integers(1, 5000), min_size=1, max_size=60)


@given(sizes_strategy, st.sampled_from(Policy), st.integers(1, 9000))
def test_every_layer_is_in_one_bucket_in_order(
    sizes: list[int], policy: Policy, setting: int
) -> None:
    buckets = make_buckets(sizes, policy, setting, first_bytes=100)
    assert buckets[0].begin == 0
    assert buckets[-1].end == len(sizes)
    assert all(a.end == b.begin for a, b in itertools.pairwise(buckets))
    assert all(b.size_bytes == sum(sizes[b.begin : b.end]) > 0 for b in buckets)
    if policy is Policy.POST_GT:
        assert all(b.size_bytes > setting for b in buckets[:-1])
    if policy is Policy.PRE:
        assert all(b.size_bytes <= setting or b.end - b.begin == 1 for b in buckets)
    if policy is Policy.FIXED_COUNT:
        assert len(buckets) == min(setting, len(sizes))


def test_a_layer_list_may_have_comments_and_layers_without_parameters() -> None:
    text = "# from a summary\nName,Parameters\n\nconv1,9472\nact,0\n"
    assert parse_layers(text, "x.csv") == (Layer("conv1", 9472),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("conv1,9472\n", "x.csv:1: no header line"),
        ("", "x.csv:1: no header line"),
        ("name,parameters\n", "x.csv: no layer with parameters"),
        ("name,parameters\na,1\nb,\n", "x.csv:3: layer 'b' has no number of parameters"),
        ("name,parameters\na,1\n,3\n", "x.csv:3: no name"),
        ("name,parameters\na,1\nb\n", "x.csv:3: 1 fields"),
        ("name,parameters\na,1\nb,2\na,1\n", "x.csv:4: layer 'a' is also on line 2"),
        ("name,parameters\na,-5\n", "x.csv:2: layer 'a' has -5 parameters"),
        ("name,parameters\na,1.5\n", "x.csv:2: '1.5' is not a number of parameters"),
        ("name,parameters\na,1e400\n", "x.csv:2: '1e400' is not a number of parameters"),
        ("name,parameters\na,٣\n", "is not a number of parameters"),
    ],
)
def test_a_bad_layer_list_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        parse_layers(text, "x.csv")


@settings(max_examples=50)
@given(st.text(max_size=80))
def test_no_layer_list_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(InputError):
        assert parse_layers("name,parameters\n" + text, "x")


# Times


def test_times_are_the_envelope_of_the_roofline_fit() -> None:
    measured = sweep({1000: 10.0, 2000: 30.0, 4000: 25.0, 8000: 50.0})
    times = make_times(measured, "m")
    curve = fit(measured, "m").curve(Op.ALL_REDUCE, 4, 1)
    assert curve is not None
    for size in (10, 1000, 1500, 2000, 3000, 4000, 7999, 8000, 64_000):
        assert times.us([size])[0, 0] == pytest.approx(curve.time_us(size))
    assert times.outside([10, 1000, 2000, 8000, 64_000]) == 2


@pytest.mark.parametrize(
    ("sizes", "told"),
    [([250], True), ([249], False), ([32_000], True), ([1000, 32_001], False), ([5000], True)],
)
def test_times_reach_four_times_beyond_the_measured_sizes(sizes: list[int], told: bool) -> None:
    measured = sweep({1000: 10.0, 8000: 50.0})
    times = make_times(measured, "m")
    curve = fit(measured, "m").curve(Op.ALL_REDUCE, 4, 1)
    assert curve is not None
    assert times.reaches(sizes) is told is all(curve.reaches(size) for size in sizes)


def test_settings_beyond_the_measured_sizes_are_not_known(samples: Path, db_path: Path) -> None:
    # All-reduces of 4 ranks were measured at 4 and 56 B; ResNet-50's gradients have up to 9 MiB.
    path = samples / "replay" / "h200x4-mixed.csv"
    assert collscope("ingest", "csv", path, "--db", db_path, "--label", "mixed").code == 0
    found = fusion(
        "--layers", samples / "layers" / "resnet50.csv", "--db", db_path, "--label", "mixed",
        "--ranks", "4", "--policy", "post_gt", "--thresholds", "1K,10M",
    )  # fmt: skip
    assert {row["time_ns"] for row in [found["present"], *found["rows"]]} == {None}
    assert found["recommended"] is None
    (note,) = [n["text"] for n in found["notices"] if n["code"] == "sizes_too_far"]
    assert note.endswith("have 1 KiB to 13.04 MiB. Measure them with 'collscope replay --sweep "
                         "allreduce:1K..16M*2'")  # fmt: skip


def test_measured_buckets_keep_their_own_times() -> None:
    measured = sweep({1000: 10.0, 2000: 30.0, 4000: 25.0})
    exact = make_times(measured, "m", exact=True)
    assert exact.us([1000, 2000, 4000])[0].tolist() == pytest.approx([10.0, 30.0, 25.0])
    assert exact.interpolation_error == 0


def test_a_single_size_gives_its_bandwidth_above_and_its_time_below() -> None:
    times = make_times(sweep({1000: 10.0}), "m")
    assert times.us([10, 1000, 2000])[0].tolist() == pytest.approx([10.0, 10.0, 20.0])


def test_samples_and_interpolation_give_the_interval() -> None:
    steady = sweep({1000: 10.0, 2000: 20.0, 4000: 40.0})
    # a power law has no interpolation error, and one sample does not vary
    assert np.ptp(make_times(steady, "m").us([3000])) == pytest.approx(0)
    noisy = sweep({1000: 10.0, 2000: 20.0, 4000: 40.0}, samples_us=(9.0, 10.0, 12.0))
    assert np.ptp(make_times(noisy, "m").us([1000])) > 0
    bent = make_times(sweep({1000: 10.0, 2000: 10.0, 4000: 40.0}), "m")
    assert np.ptp(bent.us([2000])) == pytest.approx(0)
    assert np.ptp(bent.us([3000])) > 0
    # at 2000 the neighbours give 20, twice what is there
    assert bent.interpolation_error == pytest.approx(np.log(2) / np.sqrt(3))


def test_wrong_and_failed_measurements_do_not_count() -> None:
    bad = sweep({500: 1.0}, n_wrong=3) + sweep({600: 1.0}, status="failed")
    assert make_times(bad + sweep({1000: 10.0}), "m").sizes.tolist() == [1000]
    with pytest.raises(NoVerdictError):
        make_times(bad, "m")


# Prediction

# §5.2 of the roofline facts, from the document's time test: 1 float 2.367 ms, 1e6 floats 52.83 ms.
LINE = Hockney(2367.0, (4e6 - 4) / (52831 - 2367) / 1000, 0.0, 0.0)


def test_the_line_of_the_time_test_predicts_what_the_facts_say() -> None:
    found = [
        line_us(make_buckets(resnet_sizes(), Policy.POST_GT, kib * KIB), LINE) / 1e6
        for kib in COUNTS
    ]
    assert found == pytest.approx([1.530, 1.450, 1.407, 1.374, 1.313], abs=1e-3)


@pytest.mark.parametrize(
    ("measured", "rest_s", "per_bucket_ms", "r_squared"),
    [(MODE_1, 2.132, 2.53, 0.33), (MODE_2, 2.134, 3.71, 0.93)],
)
def test_the_slope_over_the_number_of_buckets(
    measured: tuple[float, ...], rest_s: float, per_bucket_ms: float, r_squared: float
) -> None:
    found = slope(list(COUNTS.values()), [1e6 * seconds for seconds in measured])
    assert found is not None
    assert found.rest_us / 1e6 == pytest.approx(rest_s, abs=6e-4)
    assert found.per_bucket_us / 1e3 == pytest.approx(per_bucket_ms, abs=6e-3)
    assert found.r_squared == pytest.approx(r_squared, abs=6e-3)


def test_a_line_is_its_own_slope() -> None:
    found = slope([1, 2, 5], [12.0, 14.0, 20.0])
    assert found is not None
    assert (found.rest_us, found.per_bucket_us, found.r_squared) == pytest.approx((10, 2, 1))
    assert slope([1, 2, 2], [1.0, 2.0, 3.0]) is None


def test_blocking_is_the_sum_and_overlapped_waits_for_gradients_and_the_stream() -> None:
    times = make_times(sweep({100: 10.0, 200: 20.0, 400: 40.0}), "m")
    buckets = (Bucket(0, 1, 200), Bucket(1, 2, 100), Bucket(2, 3, 100))
    assert step_us(buckets, times, None)[0] == pytest.approx(40)
    # ready at 10, 15, 20; finished at 10 + 20, then 10 more each: the stream is the limit
    assert step_us(buckets, times, uniform(20.0))[0] == pytest.approx(50)
    # ready at 100, 150, 200: only the last is not hidden
    assert step_us(buckets, times, uniform(200.0))[0] == pytest.approx(210)


def test_recorded_starts_say_when_gradients_are_there() -> None:
    production = recorded([100, 100, 200], [1010.0, 1020.0, 1050.0])
    # the first quarter came at the mean rate: 40 us for three quarters
    first = 40 / 3
    assert production.of((Bucket(0, 1, 100), Bucket(1, 3, 300))).tolist() == pytest.approx(
        [first, first + 40]
    )
    assert production.end_us == pytest.approx(first + 40)


@settings(max_examples=40)
@given(sizes_strategy, st.integers(1, 9000), st.floats(0.1, 1e4))
def test_overlap_never_ends_before_either_part(
    sizes: list[int], setting: int, backward_us: float
) -> None:
    times = make_times(sweep({100: 10.0, 1000: 20.0, 9000: 90.0}), "m")
    buckets = make_buckets(sizes, Policy.POST_GT, setting)
    alone = step_us(buckets, times, None)[0]
    beside = step_us(buckets, times, uniform(backward_us))[0]
    assert max(alone, backward_us) < beside * (1 + 1e-9)
    assert beside <= (alone + backward_us) * (1 + 1e-9)


# Recommendation


def resampled(estimate: float, *, spread: float = 0.0) -> Floats:
    noise = np.random.default_rng(1).normal(0, spread, 500)
    return np.concatenate([[estimate], estimate + noise])


def test_the_fastest_is_taken_when_it_is_surely_faster() -> None:
    found = choose([resampled(90), resampled(50, spread=1)], resampled(100))
    assert (found.best, found.as_good, found.worth_it) == (1, (1,), True)
    assert found.gain == pytest.approx(0.5)
    assert found.gain_low is not None
    assert found.gain_high is not None
    assert 0.45 < found.gain_low < 0.5 < found.gain_high < 0.55


def test_what_may_be_noise_is_not_worth_it() -> None:
    found = choose([resampled(99, spread=5), resampled(98, spread=6)], resampled(100))
    assert found.as_good == (0, 1)
    assert not found.worth_it
    # nothing varies, and less than 1 % is gained
    assert not choose([resampled(99.5)], resampled(100)).worth_it
    assert choose([resampled(110)], resampled(100)).gain == pytest.approx(-0.1)


def test_bucket_cap_is_in_mib() -> None:
    assert bucket_cap_mb(Policy.TORCH_DDP, 25 * MIB, 100 * MIB) == 25
    assert bucket_cap_mb(Policy.FIXED_COUNT, 8, 100 * MIB) == 12.5


# Plans and the step of a run


def test_plans_hold_the_buckets() -> None:
    buckets = make_buckets((400, 400, 800, 398), Policy.POST_GE, 700)
    fused = fused_plan(buckets, Datatype.FLOAT32, 2)
    by_id = {planned.id: planned.count for planned in fused.classes}
    assert [by_id[step.items[0][0]] for step in fused.steps] == [200, 200, 100]
    assert parse_plan(plan_text(fused), "p") == fused
    unique = unique_plan([800, 800, 398], Datatype.FLOAT32, 2)
    assert [(c.count, c.calls) for c in unique.classes] == [(100, 1), (200, 2)]
    assert parse_plan(plan_text(unique), "p") == unique


def test_a_step_of_equal_parts_is_found_whole() -> None:
    step = [8, 1, 2, 3, 1, 2, 3]
    assert last_cycle([9, 9, *step * 4]) == (2 + 3 * 7, 7)
    assert last_cycle([1, 2, 3]) is None
    assert last_cycle([]) is None


# Commands


def write_csv(path: Path, times: dict[int, float], method: str = "batch") -> Path:
    header = (
        "op,datatype,redop,root,count,size_bytes,in_place,nranks,nnodes,calls,time_us_median,"
        "time_us_min,time_us_max,time_us_mad,iterations,algbw_gbps,busbw_gbps,n_wrong,method,"
        "backend,library,device,host,status"
    )
    lines = [
        f"AllReduce,Float32,Sum,,{size // 4},{size},1,4,1,,{time},,,,50,,,0,{method},cuda,"
        "nccl 2.28.9,,,ok"
        for size, time in times.items()
    ]
    path.write_text("\n".join(["# collscope-replay: 1", header, *lines]) + "\n")
    return path


@pytest.fixture
def measured(db_path: Path, tmp_path: Path) -> Path:
    """A store with a label `fast`: 20 µs and 100 GB/s, back to back."""
    times = {1 << p: 20 + (1 << p) / 100_000 for p in range(10, 29)}
    path = write_csv(tmp_path / "fast.csv", times)
    assert collscope("ingest", "csv", path, "--db", db_path, "--label", "fast").code == 0
    return db_path


def test_wrong_measurements_are_left_out_and_told(
    measured: Path, samples: Path, tmp_path: Path
) -> None:
    fixed = ("--layers", samples / "layers" / "resnet50.csv", "--db", measured, "--label")
    for label, us in (("fast", 1.0), ("bad", 2.0)):
        wrong = write_csv(tmp_path / f"{label}.csv", {1 << 20: us, 1 << 21: us})
        wrong.write_text(wrong.read_text().replace(",ok", ",wrong"))
        assert collscope("ingest", "csv", wrong, "--db", measured, "--label", label).code == 0
    found = fusion(*fixed, "fast")
    assert (
        "label 'fast': 2 of 21 measurements failed or gave wrong results, and are left out"
        in texts(found)
    )
    refused = collscope("whatif", "fusion", *fixed, "bad")
    assert refused.code == 4
    assert "every AllReduce measured under it failed or gave wrong results" in refused.err


def fusion(*arguments: str | Path) -> dict[str, Any]:
    outcome = collscope("whatif", "fusion", *arguments, "--format", "json")
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    schema = json.loads((ROOT / "schemas" / "fusion.schema.json").read_text())
    jsonschema.validate(found, schema)
    return found


def test_the_command_predicts_the_wrapper_s_table(measured: Path, samples: Path) -> None:
    layers = samples / "layers" / "resnet50.csv"
    fixed = ("--layers", layers, "--db", measured, "--label", "fast", "--policy", "post_gt")
    found = fusion(*fixed, "--thresholds", "1K..10000K*10")
    assert [row["buckets"] for row in found["rows"]] == list(COUNTS.values())
    assert [f"{b / KIB:.1f}" for b in found["rows"][4]["sizes_bytes"]] == PRINTED[10000].split()
    # 20 us each and 100 GB/s: one bucket more costs its latency
    expected = [20 * row["buckets"] + 4 * 25_636_712 / 100_000 for row in found["rows"]]
    assert [row["time_ns"] / 1e3 for row in found["rows"]] == pytest.approx(expected, rel=0.02)
    assert [row["line_ns"] / 1e3 for row in found["rows"]] == pytest.approx(expected, rel=1e-6)
    assert found["per_bucket"]["per_bucket_ns"] == pytest.approx(20e3, rel=0.1)
    assert found["recommended"]["setting"] == 10000 * KIB
    assert found["recommended"]["worth_it"]
    assert found["present"]["buckets"] == 107
    assert any("measured back to back" in notice for notice in texts(found))


def test_overlap_hides_all_but_the_last_bucket(measured: Path, samples: Path) -> None:
    layers = samples / "layers" / "resnet50.csv"
    fixed = ("--layers", layers, "--db", measured, "--label", "fast", "--overlap", "uniform:100")
    found = fusion(*fixed, "--thresholds", "4M,25M,64M")
    note = "--overlap uniform:MS"
    assert not any(note in notice for notice in texts(found))
    assert any(note in notice for notice in texts(fusion(*fixed[:-2])))
    assert (found["execution"], found["order"]) == ("overlapped", "reversed")
    for row in found["rows"]:
        last = 20 + row["sizes_bytes"][-1] / 100_000
        assert row["exposed_ns"] == pytest.approx(1e3 * last, rel=0.05)
        assert row["time_ns"] == pytest.approx(100e6 + row["exposed_ns"])
    assert found["present_name"].startswith("PyTorch")
    assert found["present"]["sizes_bytes"] == found["rows"][1]["sizes_bytes"]


def test_a_bucket_that_costs_nothing_is_no_line(
    samples: Path, db_path: Path, tmp_path: Path
) -> None:
    # time rises with the square of the size: the more buckets, the faster
    path = write_csv(tmp_path / "a.csv", {1 << p: 1 + (1 << p >> 20) ** 2 for p in range(10, 29)})
    assert collscope("ingest", "csv", path, "--db", db_path, "--label", "square").code == 0
    layers = samples / "layers" / "resnet50.csv"
    found = fusion("--layers", layers, "--db", db_path, "--label", "square")
    assert found["per_bucket"] is None


def test_a_recorded_run_is_merged_beside_its_own_compute(recordings: Path, measured: Path) -> None:
    traces = sorted((recordings / "ddp").glob("trace.rank*.json.gz"))
    assert collscope("ingest", "trace", *traces, "--db", measured, "--run", "job").code == 0
    fixed = ("--run", "job", "--db", measured, "--label", "fast")
    # What waits for every bucket recommends otherwise, so it says that the traces would tell.
    note = "--overlap recorded, which uses the run's traces, includes the overlap"
    assert any(note in notice for notice in texts(fusion(*fixed)))
    by_cap = texts(fusion(*fixed, "--policy", "pre"))
    assert not any(note in notice for notice in by_cap)
    found = fusion(*fixed, "--overlap", "recorded", "--thresholds", "32M,64M,512M")
    assert [row["buckets"] for row in found["rows"]] == [8, 5, 2]
    assert found["present"]["sizes_bytes"][0] == 4 * 8_396_800
    exposed = [row["exposed_ns"] for row in found["rows"]]
    assert exposed == sorted(exposed)  # larger last buckets hide less
    assert found["present"]["exposed_ns"] == pytest.approx(exposed[0])
    slower = collscope("whatif", "fusion", *fixed, "--overlap", "recorded", "--thresholds", "512M")
    assert "is the fastest. The next best, 512 MiB, takes" in slower.out
    assert "saves" not in slower.out
    assert not any(note in notice for notice in texts(found))


def test_a_run_s_order_and_step_come_from_its_log(measured: Path, samples: Path) -> None:
    log = samples / "nccl" / "ddp"
    assert collscope("ingest", "log", log, "--db", measured, "--run", "job").code == 0
    fixed = ("--run", "job", "--db", measured, "--label", "fast", "--policy", "fixed_count")
    found = fusion(*fixed, "--thresholds", "1,2,8")
    assert (found["layers"], found["order"], found["nranks"]) == (8, "listed", 4)
    assert found["total_bytes"] == 4 * 67_170_304
    assert [row["buckets"] for row in found["rows"]] == [1, 2, 8]
    text = collscope("whatif", "fusion", *fixed, "--thresholds", "1,2,8")
    assert "Use number of buckets 1: it saves" in text.out
    outcome = collscope("whatif", "fusion", *fixed, "--overlap", "recorded")
    assert outcome.code == 3
    assert "lacks the times of two calls" in outcome.err


def test_run_main_is_taken_where_none_is_named(
    measured: Path, samples: Path, tmp_path: Path
) -> None:
    assert collscope("ingest", "log", samples / "nccl" / "ddp", "--db", measured).code == 0
    fixed = ("--db", measured, "--label", "fast", "--thresholds", "32M,64M")
    found = fusion(*fixed, "--run", "main")
    assert fusion(*fixed) == found
    # Measurements of another run with the same label are not mixed in, and told where they are.
    path = write_csv(tmp_path / "other.csv", {1 << p: 1 for p in range(10, 29)})
    other = ("--label", "fast", "--run", "other")
    assert collscope("ingest", "csv", path, "--db", measured, *other).code == 0
    assert fusion(*fixed) == found
    layers = samples / "layers" / "resnet50.csv"
    assert "in the runs main, other" in texts(fusion(*fixed, "--layers", layers))[1]


def test_text_csv_and_plot(measured: Path, samples: Path, tmp_path: Path) -> None:
    layers = samples / "layers" / "resnet50.csv"
    fixed = ("whatif", "fusion", "--layers", layers, "--db", measured, "--label", "fast")
    plot = tmp_path / "fusion.svg"
    text = collscope(*fixed, "--thresholds", "1M..64M*4", "--plot", plot)
    assert text.code == 0, text.err
    assert "bucket_cap_mb=" in text.out
    assert plot.read_text().startswith("<?xml")
    table = list(csv.DictReader(io.StringIO(collscope(*fixed, "--format", "csv").out)))
    assert table[0]["setting"] == ""
    assert all(float(row["time_us"]) > 0 for row in table)
    assert "| threshold |" in collscope(*fixed, "--format", "md").out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "either --layers FILE or --run"),
        (("--layers", "none.csv"), 3, "none.csv: No such file"),
        (("--layers", "LAYERS"), 2, "--label, or --measure"),
        (("--layers", "LAYERS", "--label", "slow"), 3, "labels: 'fast'"),
        (("--layers", "LAYERS", "--label", "fast", "-n", "8"), 3, "measured with 4 ranks"),
        (("--layers", "LAYERS", "--label", "fast", "--thresholds", "9M..1M"), 2, "Swap them"),
        (("--layers", "LAYERS", "--label", "fast", "--overlap", "uniform:x"), 2, "not understood"),
        (("--layers", "LAYERS", "--label", "fast", "--overlap", "recorded"), 2, "has no times"),
        (("--layers", "LAYERS", "--label", "fast", "--budget", "1"), 2, "Add --measure"),
        (("--layers", "LAYERS", "--measure"), 2, "number of ranks"),
        (("--run", "none", "--label", "fast"), 3, "no run 'none'"),
        (("--layers", "LAYERS", "--label", "fast", "--plot", "x.txt"), 2, ".png, .svg or .pdf"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    arguments: tuple[str, ...], code: int, says: str, measured: Path, samples: Path
) -> None:
    layers = str(samples / "layers" / "resnet50.csv")
    given = [layers if word == "LAYERS" else word for word in arguments]
    outcome = collscope("whatif", "fusion", *given, "--db", measured)
    assert (outcome.code, outcome.out) == (code, "")
    assert says in outcome.err
    assert outcome.err.count("\n") == 1


needs_replayer = pytest.mark.skipif(installed_replayer() is None, reason="built without a replayer")


@needs_replayer
@pytest.mark.parametrize(
    ("extra", "method"),
    [((), "isolated"), (("--overlap", "uniform:2"), "batch"), (("--queued",), "sequence")],
)
def test_measure_replays_the_buckets_on_the_host(
    extra: tuple[str, ...], method: str, db_path: Path, tmp_path: Path
) -> None:
    layers = tmp_path / "layers.csv"
    layers.write_text("name,parameters\n" + "".join(f"l{i},{300 + i}\n" for i in range(6)))
    fixed = ("--layers", layers, "--db", db_path, "--policy", "post_gt", "-n", "2")
    how = ("--measure", "--backend", "host", "--budget", "0.01", "--thresholds", "1K,3K")
    found = fusion(*fixed, *how, *extra)
    assert found["measured"]
    assert found["interpolation_error"] is None
    assert (found["nranks"], found["present"]["buckets"]) == (2, 6)
    # a layer has 1200 to 1220 bytes: above 1 KiB alone, above 3 KiB by threes
    assert [row["buckets"] for row in found["rows"]] == [6, 2]
    assert all(row["time_ns"] > 0 for row in (found["present"], *found["rows"]))
    assert f"method {method}" in found["times_from"]
    kept = rows(db_path, "SELECT DISTINCT method, n_wrong FROM measurements WHERE op <> 'Sequence'")
    assert kept == [(method, 0)]
    if method == "isolated":
        # the sum of the buckets' own times, to the last digit
        times = dict(rows(db_path, "SELECT size_bytes, time_us_median FROM measurements"))
        for row in found["rows"]:
            assert row["time_ns"] == pytest.approx(1e3 * sum(times[s] for s in row["sizes_bytes"]))
    if method == "sequence":
        whole = rows(
            db_path,
            "SELECT time_us_median FROM measurements WHERE op = 'Sequence' ORDER BY measurement_id",
        )
        every = [found["present"], *found["rows"]]
        assert [t for (t,) in whole] == pytest.approx([row["time_ns"] / 1e3 for row in every])


# The all-reduce wrapper's tests


def test_the_wrapper_s_plan_has_every_size_once() -> None:
    plan = wrapper_plan(4)
    counts = [planned.count for planned in plan.classes]
    assert len(set(counts)) == len(counts)
    wanted = {5, 1, 100, 10_000, 1_000_000}
    wanted |= {size // 4 for _, sizes in fused_resnet50() for size in sizes}
    assert set(counts) == wanted


def test_the_wrapper_s_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Session(Method(backend="cuda"))
    assert modes(cuda, 4, None) == (
        Mode("1 thread with 4 GPUs", 4, "one"),
        Mode("4 threads with 1 GPU", 4, "per-gpu"),
    )
    assert [m.gpus_per_process for m in modes(cuda, 4, 2)] == [2, 2]
    assert [m.gpus_per_process for m in modes(Session(Method(backend="host")), 4, None)] == [1]
    # A library without a GPU makes no GPU backend; who names one means a GPU all the same.
    replayer = tmp_path / "replayer"
    replayer.write_text("#!/bin/sh\necho 'cuda collectives: nccl 2.28.9, x'\necho \"$GPUS\"\n")
    replayer.chmod(0o755)
    for gpus, library, per_process in (
        ("cuda GPUs: no usable GPU: no driver", None, [1]),
        ("cuda GPUs: 4", None, [1, 1]),
        ("cuda GPUs: no usable GPU: no driver", "libnccl.so", [1, 1]),
    ):
        monkeypatch.setenv("GPUS", gpus)
        auto = Session(Method(library=library), replayer=replayer)
        assert [m.gpus_per_process for m in modes(auto, 1, None)] == per_process
    with pytest.raises(UsageError, match="not a multiple"):
        modes(cuda, 4, 3)


def test_a_missing_size_leaves_only_its_rows_empty() -> None:
    found = [
        Measurement(Op.ALL_REDUCE, size_bytes=s, time_us_median=1.0)
        for s in {size for kib, sizes in fused_resnet50() for size in sizes if kib == 10_000}
    ]
    table = tables(4, {"one": tuple(found)})
    assert [row.time_ns for row in table.fusion] == [None, None, None, None, 8e3]
    assert table.values[0].status == "not measured"


@needs_replayer
def test_the_wrapper_s_tables_on_the_host(db_path: Path) -> None:
    command = ("bench", "allreduce-wrapper", "-n", "2", "--backend", "host", "--db", db_path)
    outcome = collscope(*command, "--budget", "1e-6", "--format", "json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    schema = json.loads((ROOT / "schemas" / "allreduce-wrapper.schema.json").read_text())
    jsonschema.validate(found, schema)
    assert [(row["elements"], row["n_wrong"]) for row in found["values"]] == [(5, 0)]
    assert [row["elements"] for row in found["times"]] == [1, 100, 10_000, 1_000_000]
    assert [row["batches"] for row in found["fusion"]] == list(COUNTS.values())
    assert all(row["time_ns"] > 0 for row in found["fusion"])


@needs_replayer
@pytest.mark.parametrize(
    "command",
    [("whatif", "fusion", "--layers", "LAYERS", "--measure"), ("bench", "allreduce-wrapper")],
)
def test_what_cannot_be_measured_without_its_library_is_an_error(
    command: tuple[str, ...], db_path: Path, samples: Path
) -> None:
    layers = str(samples / "layers" / "resnet50.csv")
    given = [layers if word == "LAYERS" else word for word in command]
    none = ("--backend", "cuda", "--library", "/none/libnccl.so", "-n", "2", "--db", db_path)
    outcome = collscope(*given, *none)
    assert (outcome.code, outcome.out) == (5, "")
    assert "Nothing was measured" in outcome.err
