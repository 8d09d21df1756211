"""Where the steps of a job end in each rank's trace (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints, Kind
from collscope.timeline.overlap import warm_until
from collscope.timeline.tolerances import (
    EDGE_LAUNCHES,
    MAX_LAUNCH_SPREAD,
    MAX_LONE_STEP_LEAD,
    MAX_PAUSE_RATIO,
    MAX_PLAIN_STEPS,
    MIN_IN_GRAPHS,
    MIN_LAYER_KERNELS,
    MIN_PAUSE_STEPS,
    MIN_PAUSE_TO_IDLE,
    MIN_RECURRING_COLLECTIVES,
    MIN_TURNS_TAKEN,
    PAUSE_SLACK_NS,
    PERIODS_TRIED,
    SETTLING_PART,
)
from collscope.timeline.waits import CallTimes

Floats = npt.NDArray[np.float64]
# silu_backward_kernel, flash_bwd_kernel, cudnn_..._flash_bprop_wgmma_f16, dgrad2d_grouped
_BACKWARD = re.compile(r"backward|bwd|bprop|[bdw]grad", re.IGNORECASE)
_FRAMEWORK = re.compile("at::native::")  # PyTorch's kernels; matrix products are of libraries
# FusedOptimizerTensorListMetadata, FusedAdamMathFunctor; and no `{lambda()#1}`
_OPTIMIZER = re.compile(r"optimizer|adam|sgd|lamb(?!da)", re.IGNORECASE)
# multi_tensor_apply_kernel<..., PointwiseOpScalarListFunctor<float, 3, 3, 0>, std::divides<float>>:
# PyTorch's optimizers that are not fused add quotients or multiples of lists to the parameters;
# clipping scales lists, and FSDP copies them
_UPDATE = re.compile(r"multi_tensor_apply.*(PointwiseOp\w*|BinaryOpListAlpha)Functor")


class Steps(msgspec.Struct, frozen=True):
    """As many steps of every trace that has any, each from one boundary to the next.

    A boundary is all streams' last rows that had ended by then: whatever is slower afterwards,
    the step ends when all of them have.
    """

    # marks: the profiler's; graphs: of launches of CUDA or HIP graphs;
    # kernels, period: of kernels, collectives; given: as many as given at ingest;
    # optimizer: uneven steps, each ends with the optimizer's kernels;
    # calls: uneven steps, each ends with the call that ends it on a rank whose steps are alike;
    source: str  # window: none
    rows: Ints  # rows of all boundaries, boundary by boundary
    bounds: Ints  # (boundaries,) where each begins; the first ones of all traces, then the second
    count: Ints  # (traces,) steps of each of these traces, the same of all
    traces: Ints  # (traces,) those traces
    # (pauses, 3) trace, begin and end of what lies between two recorded periods of one file
    pauses: Ints

    def mean_ns(self, end: Floats | Ints) -> float | None:
        """Mean step time, the longest of all ranks; None without steps.

        end  (rows,) ends of all rows of the traces, ns
        """
        if not len(self.count):
            return None
        ends = self.ends(end)
        return float(((ends[-1] - ends[0]) / self.count).max())

    def ends(self, end: Floats | Ints) -> Floats:
        """Moments of all boundaries, shape (steps + 1, traces); traces as in `traces`."""
        if not len(self.bounds):
            return np.empty((0, len(self.traces)))
        latest = np.maximum.reduceat(end[self.rows], self.bounds)
        return latest.reshape(-1, len(self.traces)).astype(np.float64)

    def span(self, end: Floats | Ints, n: int) -> tuple[Floats, Floats]:
        """Moments of the first and last boundary of `n` traces; empty spans of those without."""
        ends = self.ends(end)
        begin, finish = np.zeros(n), np.zeros(n)
        if len(ends):
            begin[self.traces], finish[self.traces] = ends[0], ends[-1]
        return begin, finish

    def last_rows(self, trace: int) -> Ints:
        """Rows of a trace's last boundary."""
        k = int(np.flatnonzero(self.traces == trace)[0]) - len(self.traces)
        return np.split(self.rows, self.bounds[1:])[k]


def find_steps(
    rows: Rows,
    calls: Calls,
    times: CallTimes,
    given: int | None = None,
    *,
    uneven: bool = False,
) -> Steps:
    """Steps after the warm-up: the profiler's marks, else launches of graphs that hold a step each,
    else what recurs in the order of launches.

    As many steps for every rank, the last ones: windows may begin at different calls. Where pauses
    part them, those of the longest stretch, the last one of equals.

    given   number of steps in each trace, where that is known: equal parts of its launches
    uneven  where no equal steps recur, each ends with the optimizer, or with a call
    """
    warm = warm_until(rows, calls, times)
    n = len(rows.ranks)
    source, found = "window", [_window(rows, t, int(warm[t])) for t in range(n)]
    searched: Sequence[tuple[str, Callable[[Rows, int], Ints]]] = (
        ("marks", _marked), ("graphs", _by_graphs),
        ("kernels", _by_kernels), ("period", _by_collectives),
    )  # fmt: skip
    if uneven:
        searched = (*searched, ("optimizer", _by_optimizer))
    if given is not None:
        cut = [_after(rows, _equal_parts(rows, t, given), int(warm[t])) for t in range(n)]
        source, found, searched = "given", cut, ()
    for name, ends_of in searched:
        ends = [_after(rows, ends_of(rows, t), int(warm[t])) for t in range(n)]
        if ends and min(len(e) for e in ends) > 1:
            source, found = name, ends
            break
    if uneven and source == "window":
        ends = [_after(rows, e, int(warm[t])) for t, e in enumerate(_by_calls(rows, calls))]
        if ends and min(len(e) for e in ends) > 1:
            source, found = "calls", ends
    good = [t for t in range(n) if len(found[t]) > 1]
    count = min((len(found[t]) for t in good), default=2) - 1
    ends = [found[t][-1 - count :] for t in good]
    pauses = np.empty((0, 3), dtype=np.int64)
    if source != "window" and good:
        stretch, pauses = _without_pauses(rows, np.array(good), np.array(ends))
        ends, count = [e[stretch] for e in ends], stretch.stop - stretch.start - 1
    lasts = [_boundaries(rows, t, e) for t, e in zip(good, ends, strict=True)]
    streams = [part.shape[1] for part in lasts]
    table = np.concatenate([np.empty((count + 1, 0), dtype=np.int64), *lasts], axis=1)
    begins = np.cumsum([0, *streams])[: len(good)]
    held = np.add.reduceat(table >= 0, begins, axis=1, dtype=np.int64).ravel()
    return Steps(
        source,
        table[table >= 0],
        np.cumsum(held) - held,
        np.full(len(good), count, dtype=np.int64),
        np.array(good, dtype=np.int64),
        pauses,
    )


def _without_pauses(rows: Rows, traces: Ints, ends: Ints) -> tuple[slice, Ints]:
    """The longest stretch of boundaries that no pause parts, and the pauses as in `Steps`.

    A pause is of all ranks, nearly as long as a step, and far longer than what most steps have of
    idle time in one piece.

    ends  (traces, boundaries) rows
    """
    moments = rows.end[ends]
    silent = np.zeros((3, len(traces), ends.shape[1] - 1), dtype=np.int64)
    for k, trace in enumerate(traces.tolist()):
        trace_rows = rows.of(trace)
        reach, start = np.maximum.accumulate(rows.end[trace_rows])[:-1], rows.start[trace_rows][1:]
        step = np.searchsorted(moments[k], start, side="right") - 1
        order = np.argsort(start - reach)
        order = order[(step[order] >= 0) & (step[order] < silent.shape[2])]
        # The last one that is written to a step stays: its longest.
        silent[:, k, step[order]] = np.maximum(start - reach, 0)[order], reach[order], start[order]
    longest, least = np.diff(moments).max(axis=0), silent[0].min(axis=0)
    usual, piece = (np.sort(v)[(len(v) - 1) // 2] for v in (longest, least))
    paused = np.flatnonzero((least > MIN_PAUSE_STEPS * usual) & (least > MIN_PAUSE_TO_IDLE * piece))
    bounds = np.concatenate([[-1], paused, [len(least)]])
    k = len(bounds) - 2 - int(np.diff(bounds)[::-1].argmax())
    found = [(t, *silent[1:, i, j]) for j in paused.tolist() for i, t in enumerate(traces.tolist())]
    stretch = slice(int(bounds[k]) + 1, int(bounds[k + 1]) + 1)
    return stretch, np.array(found, dtype=np.int64).reshape(-1, 3)


def _boundaries(rows: Rows, trace: int, ends: Ints) -> Ints:
    """Per row of `ends` the last row of each stream that ends with it at the latest; -1: none."""
    trace_rows = rows.of(trace)
    order = trace_rows.start + np.lexsort((rows.end[trace_rows], rows.stream[trace_rows]))
    begins = np.unique(rows.stream[order], return_index=True)[1].tolist()
    lasts = np.full((len(ends), len(begins)), -1, dtype=np.int64)
    for column, (a, b) in enumerate(pairwise([*begins, len(order)])):
        place = np.searchsorted(rows.end[order[a:b]], rows.end[ends], side="right")
        lasts[:, column] = np.where(place > 0, order[a + place - 1], -1)
    return lasts


def _after(rows: Rows, ends: Ints, warm: int) -> Ints:
    """Rows of `ends` that end when the warm-up is over."""
    late: Ints = ends[rows.end[ends] >= warm]
    return late


def _marked(rows: Rows, trace: int) -> Ints:
    """Per marked step the row that ends last of those that the host launched in it.

    Before a lone one stands its first row: what it does until then must be next to nothing.
    """
    trace_rows = rows.of(trace)
    when = np.where(
        rows.launch[trace_rows] != UNKNOWN_LAUNCH, rows.launch[trace_rows], rows.start[trace_rows]
    )
    found = []
    for begin, finish in rows.steps[trace]:
        inside = np.flatnonzero((when >= begin) & (when < finish))
        if len(inside):
            found.append(trace_rows.start + int(inside[rows.end[trace_rows][inside].argmax()]))
    if len(found) == 1 == len(rows.steps[trace]):
        ((begin, finish),) = rows.steps[trace]
        first = trace_rows.start + int(inside[when[inside].argmin()])
        if rows.end[found[0]] - rows.end[first] >= (1 - MAX_LONE_STEP_LEAD) * (finish - begin):
            found.insert(0, first)
    return np.array(found, dtype=np.int64)


def _by_graphs(rows: Rows, trace: int) -> Ints:
    """Per step that the host launches as one graph, or as a few, the row that ends last of it.

    Graphs that hold equally many rows are a step each. Where a step is captured in pieces, its
    first and last piece differ from those of its layers, and the pieces recur together.
    """
    trace_rows: Ints = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    trace_rows = trace_rows[rows.launch[trace_rows] != UNKNOWN_LAUNCH]
    _, call = np.unique(rows.launch[trace_rows], return_inverse=True)
    held = np.bincount(call)
    graphs = np.flatnonzero(held > 1)
    with_collective = np.bincount(call, rows.entry[trace_rows] >= 0)[graphs] > 0
    if with_collective.sum() < 2 or held[graphs].sum() < MIN_IN_GRAPHS * len(trace_rows):
        return trace_rows[:0]
    sizes = held[graphs]
    if np.ptp(sizes[with_collective]) == 0:
        ends = graphs[with_collective]
    else:
        period = find_period(sizes)
        if period is None or period < 2 or not with_collective[-period:].any():
            return trace_rows[:0]
        ends = graphs[::-1][::period][::-1]
    ends = _of_one_kind(ends, np.cumsum(held))
    of_graph = [trace_rows[call == graph] for graph in ends.tolist()]
    return np.array([own[rows.end[own].argmax()] for own in of_graph], dtype=np.int64)


def _of_one_kind(graphs: Ints, launched: Ints) -> Ints:
    """The longest stretch of graphs with as much between them, the last one of equals.

    Engines read prompts without a graph between steps that generate: such a step is of another
    kind.

    graphs    numbers of launches
    launched  rows up to each launch
    """
    between = launched[graphs[1:] - 1] - launched[graphs[:-1]]
    if not len(between):
        return graphs
    other = np.flatnonzero(between > np.median(between) + EDGE_LAUNCHES)
    bounds = np.concatenate([[-1], other, [len(between)]])
    k = len(bounds) - 2 - int(np.diff(bounds)[::-1].argmax())
    return graphs[int(bounds[k]) + 1 : int(bounds[k + 1]) + 1]


def recurring_kernels(rows: Rows, trace: int) -> tuple[Ints, int | None]:
    """Kernels on the busiest stream in their order, and after how many they recur.

    What a step launches recurs in its order, whatever streams and ranks do meanwhile. None where
    nothing recurs. Rows of a trace stand in the order of their starts: on a stream that is the one
    of their launches; launches before the trace began are not known.
    """
    trace_rows: Ints = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    trace_rows = trace_rows[(rows.kind[trace_rows] == Kind.KERNEL) & (rows.entry[trace_rows] < 0)]
    if not len(trace_rows):
        return trace_rows, None
    streams, number = np.unique(rows.stream[trace_rows], return_inverse=True)
    busiest: Ints = trace_rows[rows.stream[trace_rows] == streams[np.bincount(number).argmax()]]
    names = rows.name[busiest].astype(np.int64)
    period = find_period(names)
    # Kernels of one name recur after every one: that is no step.
    return busiest, period if period and len(np.unique(names[-period:])) > 1 else None


def _by_kernels(rows: Rows, trace: int) -> Ints:
    """Per period of the kernels the row that ends last of those launched by then."""
    recurring, period = recurring_kernels(rows, trace)
    kernels: Ints = recurring[rows.launch[recurring] != UNKNOWN_LAUNCH]
    if not period or not len(kernels):
        return kernels[:0]
    trace_rows, when = _in_order(rows, trace)
    cuts = np.searchsorted(when, rows.launch[kernels[::-1][::period][::-1]], side="right")
    # Each period ends as many launches behind its last kernel as the trace does: what lies between
    # two steps' kernels may be the end of one, or the beginning of the next.
    cuts += len(trace_rows) - cuts[-1]
    if not _are_steps(rows, trace_rows, cuts, rows.name[recurring[-period:]].astype(np.int64)):
        return kernels[:0]
    ends = [trace_rows[:cut][rows.end[trace_rows[:cut]].argmax()] for cut in cuts.tolist()]
    return np.array(ends, dtype=np.int64)


def _by_optimizer(rows: Rows, trace: int) -> Ints:
    """Per run of the optimizer's kernels the row that ends last of those launched by then."""
    trace_rows, _ = _in_order(rows, trace)
    name = np.where(rows.entry[trace_rows] >= 0, len(rows.names), rows.name[trace_rows])
    place = np.flatnonzero(_of_optimizer(rows, name)[name])
    if not len(place):
        return place
    # Between the optimizers of two steps stands far more than between two kernels of one.
    distances = np.diff(place)
    ends_step = distances > max(EDGE_LAUNCHES, int(distances.max(initial=0)) // 4)
    # So does a backward pass, where its kernels have names; not between two optimizers of a step.
    passes = np.cumsum(_named(rows, _BACKWARD)[name])
    if passes[-1]:
        ends_step &= np.diff(passes[place]) > 0
    cuts = place[np.append(np.flatnonzero(ends_step), len(place) - 1)]
    if _in_turns(name, cuts, _named(rows, _FRAMEWORK)):
        cuts = cuts[::-1][::2][::-1]
    ends = [
        trace_rows[: cut + 1][rows.end[trace_rows[: cut + 1]].argmax()] for cut in cuts.tolist()
    ]
    return np.array(ends, dtype=np.int64)


def _by_calls(rows: Rows, calls: Calls) -> list[Ints]:
    """Per rank its rows of the calls that end the steps of a rank whose steps are alike.

    What else a rank does in some steps, it takes part in the same calls.
    """
    n = len(rows.ranks)
    shared = (calls.seen == n) & ~calls.p2p
    of_row = np.full(len(rows), -1, dtype=np.int64)
    of_row[calls.row] = np.where(shared, np.arange(len(calls)), -1)[calls.call_of_part]
    for trace in range(n):
        ends = of_row[_calls_beside(rows, trace, of_row >= 0, _alike_steps(rows, trace))]
        if len(ends) > 1:
            return [calls.row[calls.offsets[ends] + t] for t in range(n)]
    return [np.empty(0, dtype=np.int64)] * n


def _calls_beside(rows: Rows, trace: int, shared: npt.NDArray[np.bool_], steps: Ints) -> Ints:
    """Per step the row of the call before one of its rows, or of the one behind it.

    Of the same call in every step, so as far from the row: another one, as a barrier, may be nearer
    in some.

    shared  (rows,) whether they are of a call of all ranks
    steps   a row of each step
    """
    # Rows that were launched before the trace began come first, as they ran.
    ordered: Ints = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    ordered = ordered[np.argsort(rows.launch[ordered], kind="stable")]
    place = np.flatnonzero(shared[ordered])
    begins = np.flatnonzero(np.isin(ordered, steps))
    for side in (-1, 0):
        index = np.searchsorted(place, begins) + side
        known = (index >= 0) & (index < len(place))
        chosen = place[index[known]]
        if len(chosen) > 1 and np.ptp(chosen - begins[known]) <= EDGE_LAUNCHES:
            found: Ints = ordered[chosen]
            return found
    return ordered[:0]


def _alike_steps(rows: Rows, trace: int) -> Ints:
    """Rows, one of each step, if what a trace launches between them is alike.

    A step may hold something more, as a barrier: a few launches, and of things that all steps hold.
    An optimizer behind the last part of a batch has kernels of its own, or launches one for each
    tensor.
    """
    launched, _ = _in_order(rows, trace)
    what = np.where(rows.entry[launched] >= 0, len(rows.names), rows.name[launched])
    kernel = (rows.kind[launched] == Kind.KERNEL) & (rows.entry[launched] < 0)
    tail = what[len(what) // SETTLING_PART :][kernel[len(what) // SETTLING_PART :]]
    known, counts = np.unique(tail, return_counts=True)
    if not (counts > 1).any():
        return launched[:0]
    rarest = known[np.where(counts > 1, counts, len(tail) + 1).argmin()]
    places = np.flatnonzero((what == rarest) & kernel)
    for stride in range(1, min(PERIODS_TRIED, (len(places) - 1) // 2) + 1):
        cuts: Ints = places[::-1][::stride][::-1]
        held = np.array(
            [np.bincount(what[a:b], minlength=len(rows.names) + 1) for a, b in pairwise(cuts)]
        )
        usual = held.min(axis=0)
        own = (usual == 0) & (np.bincount(what, minlength=len(usual)) > 0)
        period = what[cuts[-2] : cuts[-1]][kernel[cuts[-2] : cuts[-1]]]
        if (
            not own.any()
            and (held - usual).sum(axis=1).max() <= EDGE_LAUNCHES
            and _named(rows, _BACKWARD)[period].any()
            and _are_steps(rows, launched, cuts, period)
        ):
            return launched[cuts]
    return launched[:0]


def _in_turns(names: Ints, cuts: Ints, own: npt.NDArray[np.bool_]) -> bool:
    """Whether two models train in turns: every second part of a trace has the same kernels, and of
    two neighbours each has some that the other lacks.

    A step with something more, as an evaluation, lacks nothing. One model that gets long and short
    batches in turns runs other kernels of libraries for them, and as many of the framework.

    names  of rows in the order of launches
    cuts   places of the last rows of the parts
    own    of each name, whether it is a kernel of the framework
    """
    kinds = int(names.max(initial=0)) + 1
    held = [np.bincount(names[a + 1 : b + 1], minlength=kinds) for a, b in pairwise(cuts.tolist())]
    if len(held) < MIN_TURNS_TAKEN:
        return False

    def lacking(one: Ints, other: Ints) -> float:
        return float(np.maximum(one - other, 0).sum()) / max(1, int(one.sum()))

    of_model = [int(part[own].sum()) for part in held]
    if min(of_model) and all(
        abs(a - b) <= MAX_LAUNCH_SPREAD * max(a, b) for a, b in pairwise(of_model)
    ):
        return False
    neighbours = min(min(lacking(a, b), lacking(b, a)) for a, b in pairwise(held))
    alike = max(max(lacking(a, b), lacking(b, a)) for a, b in zip(held, held[2:], strict=False))
    return neighbours > 2 * alike and neighbours > MAX_LAUNCH_SPREAD


def _by_collectives(rows: Rows, trace: int) -> Ints:
    """The last collective of every period, the last one of the trace among them."""
    trace_rows = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    trace_rows = trace_rows[rows.entry[trace_rows] >= 0]
    kind = rows.entry[trace_rows].astype(np.int64) * len(rows.streams) + rows.stream[trace_rows]
    period = find_period(kind)
    if not period:
        return trace_rows[:0]
    ends: Ints = trace_rows[::-1][::period][::-1]
    ordered, _ = _in_order(rows, trace)
    begin = int(rows.bounds[trace])
    place = np.full(len(rows.start[rows.of(trace)]), -1)
    place[ordered - begin] = np.arange(len(ordered))
    cuts = place[ends - begin][place[ends - begin] >= 0] + 1
    return ends if _are_steps(rows, ordered, cuts, kind[-period:]) else ends[:0]


def _in_order(rows: Rows, trace: int) -> tuple[Ints, Ints]:
    """Rows of a trace in the order of their launches, and when these were.

    Of those whose launch is known; of all in the order of their starts where none is.
    """
    trace_rows: Ints = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    launched = trace_rows[rows.launch[trace_rows] != UNKNOWN_LAUNCH]
    if not len(launched):
        return trace_rows, rows.start[trace_rows]
    launched = launched[np.argsort(rows.launch[launched], kind="stable")]
    return launched, rows.launch[launched]


def _are_steps(rows: Rows, launched: Ints, cuts: Ints, period: Ints) -> bool:
    """Whether what recurs is a step, and not one of the layers of a step.

    What a step launches once, as its input, loss and optimizer, is left over where layers recur.
    So a step holds an optimizer's kernels, or nothing is left over. Where it has no layers, the
    host waits as long in each: in a layer it does not wait for the input or the end of a step. And
    there are few of them: a profiler records some steps, and each may have dozens of layers.

    launched  rows in the order of their launches
    cuts      places in it where periods begin, and where the last one ends
    period    what recurs, place by place of the period
    """
    size = np.diff(cuts)
    # One collective after another, and nothing else, shows no step.
    if (
        not len(size)
        or size.max() < 2
        or np.ptp(size) > MAX_LAUNCH_SPREAD * size.max() + EDGE_LAUNCHES
    ):
        return False
    what = np.where(rows.entry[launched] >= 0, len(rows.names), rows.name[launched])
    step = np.searchsorted(cuts, np.arange(len(launched)), side="right")  # 0: before them
    inside = (step > 0) & (step < len(cuts))
    pairs = np.unique(what[inside].astype(np.int64) * len(cuts) + step[inside])
    recurs = np.bincount(pairs // len(cuts), minlength=len(rows.names) + 1) == len(size)
    optimizer = _of_optimizer(rows, what)
    if optimizer[what].any():
        return bool(optimizer[recurs].any())
    left = int((~recurs[what]).sum())
    if max(cuts[0], len(launched) - cuts[-1]) > size.max() + EDGE_LAUNCHES or left > EDGE_LAUNCHES:
        return False
    if layered(period) >= MIN_LAYER_KERNELS:
        return True
    trained = any(_BACKWARD.search(rows.names[name]) for name in set(rows.name[launched].tolist()))
    if trained or len(size) > MAX_PLAIN_STEPS:
        return False
    # The first one may wait for what came before.
    gaps = _longest_gaps(rows, launched, step)[2 : len(cuts)]
    return (
        not left
        and len(gaps) > 0
        and max(gaps) <= MAX_PAUSE_RATIO * np.median(gaps) + PAUSE_SLACK_NS
    )


def _of_optimizer(rows: Rows, names: Ints) -> npt.NDArray[np.bool_]:
    """Per name whether it is an optimizer's: by its own name, else by what it does with lists.

    names  of a trace's rows; one more than there are: a collective
    """
    for pattern in (_OPTIMIZER, _UPDATE):
        found = _named(rows, pattern)
        if found[names].any():
            break
    return found


def _named(rows: Rows, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Per name whether it has the pattern; one more than there are: a collective."""
    return np.array([bool(pattern.search(name)) for name in rows.names] + [False])


def _longest_gaps(rows: Rows, launched: Ints, step: Ints) -> Ints:
    """Per step the longest time, ns, that nothing runs, up to a row of the step.

    launched  rows of a trace
    step      of each of them
    """
    order = np.argsort(launched)
    start, end = rows.start[launched[order]], rows.end[launched[order]]
    found = np.zeros(int(step.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(found, step[order][1:], start[1:] - np.maximum.accumulate(end)[:-1])
    return found


def layered(values: Ints) -> float:
    """Part of a sequence that are blocks of several things which recur at once.

    >>> layered(np.array([9, 1, 2, 1, 2, 1, 2, 5]))
    0.75
    """
    order = np.argsort(values, kind="stable")
    distances = np.diff(order)[np.diff(values[order]) == 0]
    known, often = np.unique(distances[distances > 1], return_counts=True)
    covered = np.zeros(len(values), dtype=bool)
    for distance in known[np.argsort(-often, kind="stable")][:PERIODS_TRIED].tolist():
        same = values[distance:] == values[:-distance]
        runs = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]))).reshape(-1, 2)
        for begin, end in runs[np.diff(runs)[:, 0] >= distance].tolist():
            if np.ptp(values[begin : begin + distance]):
                covered[begin : end + distance] = True
    return float(covered.mean())


def find_period(values: Ints) -> int | None:
    """Smallest period of a sequence that recurs at least once, with up to 2 % of exceptions.

    >>> find_period(np.array([9, 1, 2, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3]))
    4
    """
    tail = values[len(values) // SETTLING_PART :]  # the beginning may be initialisation
    known, counts = np.unique(tail, return_counts=True)
    if not (counts > 1).any():
        return None
    rarest = known[np.where(counts > 1, counts, len(tail) + 1).argmin()]
    places = np.flatnonzero(tail == rarest)
    for distance in (places[-1] - places[-2 : -2 - PERIODS_TRIED : -1]).tolist():
        if (
            2 * distance <= len(tail) + 1
            and (tail[distance:] == tail[:-distance]).mean() >= MIN_RECURRING_COLLECTIVES
        ):
            return int(distance)
    return None


def _equal_parts(rows: Rows, trace: int, steps: int) -> Ints:
    """The first row launched, and per step the row that ends last of those launched by then.

    Every step launches as much as the others: where in its step a trace begins does not matter.
    """
    trace_rows = np.arange(rows.bounds[trace], rows.bounds[trace + 1])
    if len(trace_rows) <= steps:
        return trace_rows[:0]
    launch = np.where(
        rows.launch[trace_rows] != UNKNOWN_LAUNCH, rows.launch[trace_rows], rows.start[trace_rows]
    )
    trace_rows = trace_rows[np.argsort(launch, kind="stable")]
    end = rows.end[trace_rows]
    latest = np.maximum.accumulate(
        np.where(end == np.maximum.accumulate(end), np.arange(len(trace_rows)), 0)
    )
    cuts = np.rint(np.linspace(0, len(trace_rows), steps + 1)).astype(np.int64)
    chosen: Ints = trace_rows[latest[np.maximum(cuts - 1, 0)]]
    return chosen


def _window(rows: Rows, trace: int, warm: int) -> Ints:
    """First row after the warm-up and the row that ends last."""
    trace_rows = rows.of(trace)
    after: Ints = trace_rows.start + np.flatnonzero(rows.start[trace_rows] >= warm)
    if len(after) < 2:
        return after[:0]
    return np.array([after[0], after[rows.end[after].argmax()]])
