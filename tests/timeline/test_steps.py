"""Boundaries of steps: per stream the last row that ends by then."""

from __future__ import annotations

import json
import random
from statistics import median

import msgspec
import numpy as np
import pytest
import zstandard
from inputs import ROOT
from readers import parse
from trace_builder import US, Job

from collscope.match.rows import Rows, gather_rows
from collscope.match.traces import match_calls
from collscope.model import Op
from collscope.model.trace import Kind, TraceCollective, TraceColumns, TraceFile
from collscope.timeline.analyse import Timeline, analyse
from collscope.timeline.clocks import estimate_clocks
from collscope.timeline.steps import Steps, find_steps
from collscope.timeline.waits import call_times


def steps_of(job: Job, given: int) -> tuple[Steps, np.ndarray, np.ndarray, np.ndarray]:
    rows = gather_rows(job.traces())
    calls = match_calls(rows)
    times = call_times(rows, calls, estimate_clocks(rows, calls))
    owner = np.repeat(np.arange(len(rows.ranks)), np.diff(rows.bounds))
    return find_steps(rows, calls, times, given), rows.end, rows.stream, owner


@pytest.mark.parametrize("seed", range(5))
def test_a_boundary_holds_the_last_row_of_each_stream(seed: int) -> None:
    pick = random.Random(seed)
    job = Job(2, seed)
    for _ in range(40):
        for rank in range(2):
            job.compute(rank, pick.randrange(5, 40) * 1000)
        job.collective((0, 1), pick.randrange(5, 60) * 1000, blocking=pick.random() < 0.3)
    steps, end, stream, owner = steps_of(job, pick.randrange(3, 9))
    assert len(steps.bounds) > 6
    for place, boundary in enumerate(np.split(steps.rows, steps.bounds[1:])):
        rank = place % 2
        until = end[boundary].max()
        for which in np.unique(stream[owner == rank]).tolist():
            done = np.flatnonzero((owner == rank) & (stream == which) & (end <= until))
            here = [row for row in boundary.tolist() if stream[row] == which]
            assert here == (
                [max(done.tolist(), key=lambda row: (end[row], row))] if len(done) else []
            )


FORWARD, BACKWARD = "f0 f1 f2 f3 ", "b0 b1 b2 reduce "
STEP = "input embed " + 12 * FORWARD + "loss " + 12 * BACKWARD + 3 * "update "
EACH = 11 * US  # from row to row


def found_in(text: str, marks: tuple[tuple[int, int], ...] = ()) -> tuple[str, int, float | None]:
    """Source, number and mean of the steps of two alike ranks, in rows as in `traces_of`."""
    steps, rows, _ = search(traces_of(text, marks))
    mean = steps.mean_ns(rows.end)
    return steps.source, int(steps.count.max(initial=0)), mean and mean / EACH


def search(traces: list[TraceFile]) -> tuple[Steps, Rows, Timeline]:
    timeline = analyse(traces)
    return timeline.steps, timeline.rows, timeline


def traces_of(text: str, marks: tuple[tuple[int, int], ...] = ()) -> list[TraceFile]:
    """Two alike ranks.

    Each row is the name of a kernel that runs for 10 us, 1 us after the one before; `reduce` is an
    all-reduce and `gather` an all-gather, on streams of their own; `wait` is one row of nothing.

    marks  of the profiler, from row to row
    """
    words = text.split()
    place = np.array([k for k, word in enumerate(words) if word != "wait"])
    names = tuple(dict.fromkeys(word for word in words if word != "wait"))
    number = np.array([names.index(words[k]) for k in place], dtype=np.int32)
    ops = [op for op in (Op.ALL_REDUCE, Op.ALL_GATHER) if _WORDS[op] in names]
    table = tuple(TraceCollective(op, group="0", group_size=2, group_ranks=(0, 1)) for op in ops)
    of_name = np.array(
        [next((k for k, op in enumerate(ops) if _WORDS[op] == n), -1) for n in names]
    )
    start = 10**9 + place * EACH
    columns = TraceColumns(
        kind=np.full(len(place), Kind.KERNEL, dtype=np.int8),
        name=number,
        stream=(of_name[number] + 1).astype(np.int32),
        start_ns=start,
        end_ns=start + 10 * US,
        launch_ns=start - 5 * US,
        collective=of_name[number].astype(np.int32),
        seq=np.full(len(place), -1),
    )
    told = tuple((10**9 + a * EACH - 8 * US, 10**9 + b * EACH - 8 * US) for a, b in marks)
    return [
        TraceFile("kineto", names, ("7", "20", "21"), table, columns, r, 2, steps=told)
        for r in (0, 1)
    ]


def in_graphs(text: str, *sizes: int) -> tuple[str, int, float | None]:
    """As `found_in`, where the host launches the rows as graphs of so many rows each."""
    traces = traces_of(text)
    begins = np.cumsum([0, *(100 * sizes)])
    found = []
    for trace in traces:
        launch = trace.columns.launch_ns
        which = np.searchsorted(begins, np.arange(len(launch)), side="right") - 1
        columns = msgspec.structs.replace(trace.columns, launch_ns=launch[begins[which]])
        found.append(msgspec.structs.replace(trace, columns=columns))
    steps, rows, _ = search(found)
    mean = steps.mean_ns(rows.end)
    return steps.source, int(steps.count.max(initial=0)), mean and mean / EACH


def test_each_launch_of_a_graph_is_a_step() -> None:
    """The layers in it recur, too."""
    assert in_graphs(5 * (12 * "k0 k1 k2 reduce "), 48) == ("graphs", 4, 48)


def test_pieces_of_a_step_that_graphs_launch_are_no_steps() -> None:
    step = "embed k0 k1 " + 10 * "reduce k2 k0 k1 " + "reduce head "
    assert in_graphs(5 * step, 3, *(10 * [4]), 2) == ("graphs", 4, 45)


def test_graphs_beside_many_launches_of_their_own_tell_no_step() -> None:
    step = "k0 k1 reduce " + "".join(f"e{k} " for k in range(6))
    assert in_graphs(6 * step, 3, *(6 * [1]))[0] != "graphs"


_WORDS = {Op.ALL_REDUCE: "reduce", Op.ALL_GATHER: "gather"}


@pytest.mark.parametrize("first", [0, 1, 2, 30, 51, 80, 101])
def test_steps_recur_wherever_the_trace_begins(first: int) -> None:
    words = (4 * STEP).split()
    assert found_in(" ".join(words[first:])) == ("kernels", 3, len(STEP.split()))


@pytest.mark.parametrize("first", [0, 1, 2, 30])
@pytest.mark.parametrize("last", [0, 2, 3, 4, 20, 50])
def test_layers_of_one_step_are_no_steps(first: int, last: int) -> None:
    words = STEP.split()
    assert found_in(" ".join(words[first : len(words) - last]))[0] == "window"


def test_a_step_that_recurs_but_once_is_not_told_by_its_layers() -> None:
    words = (2 * STEP).split()
    assert found_in(" ".join(words))[0] == "window"
    assert found_in(" ".join(words[40:-30]))[0] == "window"


def test_equal_layers_between_waits_of_the_host_are_no_steps() -> None:
    """Nothing but layers: the host waits after every twelfth, so a step has twelve."""
    assert found_in(5 * (12 * "k0 k1 k2 reduce " + "wait "))[0] == "window"


def test_a_loop_of_one_thing_is_told() -> None:
    assert found_in(20 * "k0 k1 reduce wait ") == ("kernels", 19, 4)


def test_collectives_of_one_kind_alone_tell_no_step() -> None:
    assert found_in(20 * "reduce ")[0] == "window"


def test_parts_of_a_batch_are_no_steps() -> None:
    part = "embed " + 3 * FORWARD + 3 * "b0 b1 b2 "
    step = 4 * part + "reduce fused_adam_kernel "
    assert found_in(step)[0] == "window"
    assert found_in(3 * step) == ("kernels", 2, len(step.split()))


LISTS = "multi_tensor_apply_kernel<TensorListMetadata<3>,{}<float,3,3,0>>"
UNLIKE = "f0 f1 f2 f3 f4 f5 loss b5_dgrad b4_dgrad b3_dgrad b2_dgrad b1_dgrad b0_wgrad reduce "


@pytest.mark.parametrize("functor", ["PointwiseOpScalarListFunctor", "BinaryOpListAlphaFunctor"])
@pytest.mark.parametrize("first", [0, 1, 7, 14])
def test_an_optimizer_of_lists_tells_the_steps_of_unlike_layers(functor: str, first: int) -> None:
    """PyTorch's optimizers that are not fused have no name of their own."""
    step = UNLIKE + LISTS.format(functor) + " gather "
    assert found_in(" ".join((4 * step).split()[first:])) == ("kernels", 3, len(step.split()))


def test_uneven_steps_end_with_an_optimizer_of_lists() -> None:
    """The second of three whole steps reads every layer back."""
    first, rest = UNLIKE.split(maxsplit=1)
    update = LISTS.format("PointwiseOpScalarFunctor") + " "
    saved = " ".join(f"copy{k}" for k in range(12)) + " "
    text = "".join(f"{first} {more}{rest}{update}" for more in ("", "", saved, ""))
    timeline = search(traces_of(text))[2]
    assert timeline.steps.source == "window"
    steps = find_steps(timeline.rows, timeline.calls, timeline.times, uneven=True)
    assert steps.source == "optimizer"
    n = len(UNLIKE.split()) + 1
    lengths = np.diff(steps.ends(timeline.rows.end), axis=0) / EACH
    assert lengths.tolist() == [[n, n], [n + 12, n + 12], [n, n]]


def test_two_optimizers_of_a_step_are_no_two_steps() -> None:
    """The second one computes with kernels that the forward pass has, too."""
    update = LISTS.format("PointwiseOpScalarFunctor") + " "
    made = "f0 f1 f2 f3 f4 f5 " + update
    more = ("", "copy0 copy1 copy2 copy3 copy4 copy5 copy6 ", "", "copy8 ")
    text = "".join(m + UNLIKE + update + made for m in more)
    timeline = search(traces_of(text))[2]
    steps = find_steps(timeline.rows, timeline.calls, timeline.times, uneven=True)
    assert steps.source == "optimizer"
    n = len((UNLIKE + update + made).split())
    lengths = np.diff(steps.ends(timeline.rows.end), axis=0)[:, 0] / EACH
    assert lengths.tolist() == [n + 7, n, n + 1]


PLAIN = "embed " + 6 * FORWARD + "loss " + 6 * "b0_dgrad b1_wgrad reduce " + 12 * "norm mm "


def uneven(own: str, other: str) -> tuple[str, list[float]]:
    """Source and lengths of the steps, in rows, where the third of four has something more.

    own    of the first rank
    other  of the second, as many rows
    """
    texts = ["".join(m + PLAIN for m in ("", "", more, "")) for more in (own, other)]
    timeline = search([traces_of(text)[rank] for rank, text in enumerate(texts)])[2]
    assert timeline.steps.source == "window"
    steps = find_steps(timeline.rows, timeline.calls, timeline.times, uneven=True)
    return steps.source, (np.diff(steps.ends(timeline.rows.end), axis=0)[:, 1] / EACH).tolist()


SAVED = " ".join(f"copy{k}" for k in range(12)) + " "


def test_steps_of_one_rank_tell_those_of_another_by_their_calls() -> None:
    """An optimizer without a name, and one rank reads all of its layers back in one step."""
    n = len(PLAIN.split())
    assert uneven(SAVED, 12 * "wait ") == ("calls", [n, n + 12])


def test_a_few_more_launches_of_kinds_that_every_step_has_leave_a_step_alike() -> None:
    """The other rank waits for the one that saves: a barrier fills its element and reduces it."""
    n = len(PLAIN.split())
    found = uneven(SAVED + "norm reduce ", 12 * "wait " + "norm reduce ")
    assert found == ("calls", [n, n + 14, n])


@pytest.mark.parametrize("more", ["lion ", 5 * "norm "])
def test_parts_of_a_batch_with_an_optimizer_of_no_name_are_no_steps(more: str) -> None:
    """Behind some parts stands what no other part has, or one launch for each tensor."""
    assert uneven(more, more)[0] == "window"


def test_uneven_steps_of_two_models_end_with_the_second_optimizer() -> None:
    """A generator and what judges it: half a step lacks what the other half has."""
    passed, end = 4 * "d0 d1 d2 ", "reduce fused_adam_kernel "
    judge = "g0 g1 " + 2 * passed + "loss d1_dgrad d0_wgrad " + end
    made = "g0 g1 " + passed + "loss d1_dgrad " + 6 * "g1_dgrad g0_wgrad " + "{}" + end
    more = ("x0 x1 ", "x2 gather ", "x3 gather gather ", "x4 x5 ", "x6 x7 ", "x8 gather ")
    text = "".join(judge + made.format(m) for m in more)
    timeline = search(traces_of(text))[2]
    steps = find_steps(timeline.rows, timeline.calls, timeline.times, uneven=True)
    assert steps.source == "optimizer"
    n = len((judge + made.format("")).split())
    lengths = np.diff(steps.ends(timeline.rows.end), axis=0)[:, 0] / EACH
    assert lengths.tolist() == [n + 2, n + 3, n + 2, n + 2, n + 2]


def test_batches_of_two_lengths_in_turns_are_steps_of_one_model() -> None:
    """Long ones have other products and sum their parts; PyTorch's own kernels are as many."""
    own = "at::native::add at::native::gelu "
    end = "loss b1_dgrad at::native::add b0_wgrad reduce fused_adam_kernel "
    short, long = 6 * ("short_mm " + own) + end, 6 * ("long_mm splitK " + own) + end
    text = "".join(f"{a}{b}" for a, b in ((short, long), (short + "copy ", long), (short, long)))
    timeline = search(traces_of(text))[2]
    steps = find_steps(timeline.rows, timeline.calls, timeline.times, uneven=True)
    assert steps.source == "optimizer"
    n, more = len(short.split()), len(long.split())
    lengths = np.diff(steps.ends(timeline.rows.end), axis=0)[:, 0] / EACH
    assert lengths.tolist() == [more, n, more + 1, n, more]


@pytest.mark.parametrize("functor", ["CopyFunctor", "UnaryOpFunctor", "BinaryOpScalarFunctor"])
def test_copies_and_scales_of_lists_tell_no_step(functor: str) -> None:
    """FSDP copies a list in every layer."""
    assert found_in(4 * (UNLIKE + LISTS.format(functor) + " gather "))[0] == "window"


def test_parts_of_a_batch_without_the_optimizer_of_lists_are_no_steps() -> None:
    """The update ends all four parts: it stands once in what recurs four times."""
    step = 4 * UNLIKE + LISTS.format("PointwiseOpScalarFunctor") + " "
    assert found_in(step)[0] == "window"
    assert found_in(3 * step) == ("kernels", 2, len(step.split()))


def test_kernels_that_the_data_choose_leave_the_collectives_to_tell_the_step() -> None:
    """A name in ten differs from step to step; the optimizer's kernels recur."""
    step = "embed " + 8 * "f0 f{0}x f1 f{0}y f2 gather " + "loss fused_adam_kernel reduce "
    text = "".join(step.format(k) for k in range(4))
    assert found_in(text) == ("period", 3, len(step.split()))


def test_the_wait_before_the_first_step_goes_with_a_step_of_its_own() -> None:
    """The trace begins with the gather behind the first wait: three whole waits are in it."""
    step = "wait wait wait gather " + 6 * FORWARD + 6 * "b0 b1 gather " + "update update "
    assert found_in(4 * step) == ("kernels", 3, len(step.split()))


def test_a_lone_marked_step_is_a_step() -> None:
    """From the end of its first row; the layers in it are none."""
    n = len(STEP.split())
    assert found_in(STEP, marks=((0, n),)) == ("marks", 1, n - 1)


def test_a_lone_marked_step_that_begins_with_a_wait_is_not_known() -> None:
    text = 20 * "wait " + STEP
    assert found_in(text, marks=((0, len(text.split())),))[0] == "window"


@pytest.mark.parametrize(("before", "after"), [(3, 3), (2, 4), (5, 3)])
@pytest.mark.parametrize("marked", [False, True])
def test_a_pause_between_two_periods_is_no_step_and_no_idle_time(
    before: int, after: int, *, marked: bool
) -> None:
    """Where a period begins, nothing tells when the step before ended: it has a step less."""
    n, gap = len(STEP.split()), 250
    text = before * STEP + gap * "wait " + after * STEP
    begins = [n * k + gap * (k >= before) for k in range(before + after)]
    traces = traces_of(text, tuple((b, b + n) for b in begins) if marked else ())
    steps, rows, timeline = search(traces)
    assert steps.count.tolist() == [max(before, after) - 1] * 2
    assert steps.mean_ns(rows.end) == n * EACH
    assert (steps.pauses[:, 2] - steps.pauses[:, 1]).tolist() == [gap * EACH + US] * 2
    (overlap, _) = timeline.overlaps
    assert overlap.span_ns == (before + after) * n * EACH - 2 * US
    assert overlap.idle_ns == overlap.span_ns - (before + after) * n * 10 * US


def test_a_wait_in_every_step_is_no_pause() -> None:
    steps, rows, timeline = search(traces_of(4 * ("wait " * 300 + STEP)))
    assert not len(steps.pauses)
    assert steps.mean_ns(rows.end) == (300 + len(STEP.split())) * EACH
    assert timeline.overlaps[0].idle_ns > 3 * 300 * EACH


@pytest.mark.parametrize(("steps", "layers"), [(10, 24), (64, 32), (40, 2)])
def test_decoding_without_graphs_has_steps_by_what_is_not_in_a_layer(
    steps: int, layers: int
) -> None:
    """An engine's step begins with the embedding, and ends with the head and the sampling."""
    layer = "norm qkv rope attention out reduce norm up silu down reduce "
    step = "embed " + layers * layer + "norm head sample "
    assert found_in(steps * step) == ("kernels", steps - 1, len(step.split()))
    # A prompt of the same layers between them has other kernels, and the steps are not mixed.
    assert found_in(4 * ("wait " * 300 + steps * step))[2] == len(step.split())


def decoding(job: str) -> tuple[Steps, np.ndarray]:
    """Steps of a decode job on two H100, and how long each took, ms (tests/recordings)."""
    traces = []
    for path in sorted((ROOT / "tests/recordings/h100x2-decode" / job).glob("light.rank*")):
        data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
        traces += parse([data], path.name)
    steps, rows, _ = search(traces)
    return steps, np.diff(steps.ends(rows.end), axis=0) / 1e6


def test_prompts_between_launches_of_graphs_are_of_another_kind() -> None:
    """Two prompts of 18 ms without a graph, each before eight steps with one."""
    steps, lasted = decoding("llama-serve-nccl-b16")
    lines = (ROOT / "tests/recordings/h100x2-decode/truth.jsonl").read_text().splitlines()
    truth = {line["job"]: line for line in map(json.loads, lines)}["llama-serve-nccl-b16"]
    assert (steps.source, steps.count.tolist()) == ("graphs", [7, 7])
    usual = median(truth["step_ms"])
    assert abs(lasted / usual - 1).max() < 0.03


def test_layers_that_a_host_launches_one_by_one_are_no_steps() -> None:
    """24 equal layers in each of eight steps, and nothing else: nothing tells where steps end."""
    steps, _ = decoding("mlp-eager-nccl-b1")
    assert steps.source == "window"
