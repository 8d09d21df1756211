"""Comparisons of labels: effects and their certainty, crossovers, totals, refusals."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from measured_builder import Noise, key, label, noisy_label
from msgspec.structs import replace
from store_builder import StoreBuilder, Value

from collscope.errors import InputError
from collscope.model import CollectiveClass, Datatype, Measurement, Op, Redop
from collscope.reports.check.answer import check
from collscope.reports.compare.answer import compare
from collscope.reports.compare.labels import CIRCUMSTANCES, Label, aligned, load_labels
from collscope.reports.compare.page import compare_extras
from collscope.reports.compare.text import render_compare
from collscope.reports.compare.weights import run_weights
from collscope.reports.rendering.note_words import note_words
from collscope.reports.rendering.plot import write_plot
from collscope.reports.replayed.text import render_measured
from collscope.stats import (
    Effect,
    Samples,
    discoveries,
    effects,
    sigma,
    weighted_total,
)

NOTHING: dict[str, tuple[str, ...]] = dict.fromkeys(CIRCUMSTANCES, ())


def one(*times: float) -> dict[int, tuple[float, ...]]:
    return {0: times}


def test_speed_up_is_the_ratio_of_the_medians() -> None:
    # Medians 10 and 5: twice as fast.
    a = label("a", {key(1024): one(9, 10, 11)})
    b = label("b", {key(1024): one(5, 5, 6)})
    row = compare([a, b]).classes[0]
    assert [cell.time_ns for cell in row.cells] == [10_000, 5_000]
    assert row.cells[1].speed_up == pytest.approx(2)


def test_times_are_medians_of_the_rounds_medians() -> None:
    # Medians 10, 20 and 12 of rounds of 1, 5 and 1 samples: 12, though the samples' median is 20.
    rounds = {1: (10.0,), 2: (18.0, 19.0, 20.0, 21.0, 22.0), 3: (12.0,)}
    assert compare([label("a", {key(1): rounds}), label("b", {key(1): rounds})]).classes[0].cells[
        0
    ].time_ns == pytest.approx(12_000)
    store = StoreBuilder()
    source = store.source("r.csv", kind="csv")
    for number, times in rounds.items():
        store.measured(source, list(times), label="a", round=number)
    (found,) = load_labels(store.connection, ["a"])[0].classes.values()
    assert found.samples.time_us == 12
    # The table that a replay ends with has the same.
    rows = [
        Measurement(op=Op.ALL_REDUCE, round=number, samples_us=times, status="ok",
                    time_us_median=sorted(times)[len(times) // 2])
        for number, times in rounds.items()
    ]  # fmt: skip
    assert "AllReduce       12" in render_measured(rows)
    # A wrong result has no time; that it was wrong is told.
    rows.append(replace(rows[1], round=4, samples_us=(90.0,), status="wrong", n_wrong=2))
    (line,) = (li for li in render_measured(rows).splitlines() if li.startswith("AllReduce"))
    assert line.split() == ["AllReduce", "12", "2", "wrong"]


def test_rounds_in_common_are_compared_pair_by_pair() -> None:
    # A drift of 100 % over the rounds hits both labels; in each round b takes 1.25 times as long.
    drift = {0: (1e5,), 1: (1.2e5,), 2: (1.5e5,), 3: (2e5,)}
    slower = {r: tuple(1.25 * t for t in samples) for r, samples in drift.items()}
    effect = effects([(Samples(drift), Samples(slower))])[0]
    assert effect.paired
    assert math.exp(effect.log_ratio) == pytest.approx(1.25)
    assert effect.error == pytest.approx(0, abs=1e-6)
    assert effect.p_slower() < 0.001


def test_rounds_of_two_sessions_are_compared_as_groups() -> None:
    # Medians of the rounds: 1000 and 1250, and no two rounds in common.
    first = {("x", n): (1000.0 + n % 2, 1000.0, 1000.0) for n in range(5)}
    second = {("y", n): (1250.0, 1250.0, 1250.0 + n % 2) for n in range(5)}
    effect = effects([(Samples(first), Samples(second))])[0]
    assert not effect.paired
    assert effect.speed_up == pytest.approx(0.8)
    # No spread between the rounds: what is left is 1 % of noise for each session.
    assert effect.error == pytest.approx(0.01 * math.sqrt(2))
    # It is common to all classes, so that more of them do not lessen it.
    assert weighted_total([effect] * 9, [1] * 9).error == pytest.approx(0.01 * math.sqrt(2))


def test_launches_that_are_slow_for_every_class_do_not_average_out() -> None:
    # In each round all nine classes differ alike, by -10 to +10 %: the total is as unsure as one.
    one_class = dict.fromkeys(range(5), (100.0,))
    moved = {n: (100.0 * math.exp(d),) for n, d in enumerate((-0.1, -0.05, 0.0, 0.05, 0.1))}
    found = effects([(Samples(one_class), Samples(moved))] * 9)
    total = weighted_total(found, [1] * 9)
    assert total.error is not None
    # Four degrees of freedom for the rounds, and four for classes that are a quarter alike.
    alone = found[0].error
    assert alone is not None
    assert total.error == pytest.approx(alone * math.sqrt((4 + 4 * (0.75 / 9 + 0.25)) / 8))


def test_a_total_with_an_unknown_part_has_no_error() -> None:
    known, unknown = Effect(0.1, 0.01, 10, paired=True), Effect(3.0, None, 0, paired=False)
    assert weighted_total([known, known], [1, 3]).error == pytest.approx(0.01 * math.sqrt(10) / 4)
    total = weighted_total([known, unknown], [0.9, 0.1])
    assert (total.log_ratio, total.error, total.p_slower()) == (pytest.approx(0.39), None, 1)
    assert weighted_total([known, unknown], [1, 0]).error == pytest.approx(0.01)


def test_one_sample_each_has_no_error() -> None:
    effect = effects([(Samples(one(10)), Samples(one(11)))])[0]
    assert effect.error is None
    assert effect.half_width() is None
    assert effect.p_slower() == 1


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    # 400 simulated A-against-A comparisons of normal noise: 95 % of the intervals hold 0.
    rng = random.Random(1)
    covered = 0
    for _ in range(400):
        a, b = (noisy_label(n, rng, {key(1): 1e3}, Noise(0.05, rounds=7, samples=5)) for n in "ab")
        effect = effects([(a.classes[key(1)].samples, b.classes[key(1)].samples)])[0]
        half = effect.half_width()
        assert half is not None
        covered += abs(effect.log_ratio) <= half
    assert 0.90 <= covered / 400 <= 0.99


def test_sigma_agrees_with_the_standard_deviation_of_normal_noise() -> None:
    rng = random.Random(2)
    assert sigma([rng.gauss(0, 3) for _ in range(4001)]) == pytest.approx(3, rel=0.05)
    assert sigma([1, 2, 3]) == pytest.approx(1)  # by hand: variance (1 + 0 + 1) / 2


def test_discoveries_by_hand() -> None:
    # Benjamini-Hochberg at 5 % of five: bounds .01 .02 .03 .04 .05; .03 <= .03 is the last that
    # holds, so the three smallest are accepted although .025 > .02.
    assert discoveries([0.20, 0.005, 0.025, 0.03, 0.9], 0.05) == [False, True, True, True, False]
    assert discoveries([0.5, 0.6], 0.05) == [False, False]


def test_crossover_is_the_first_size_at_which_another_label_leads() -> None:
    sizes = [1024, 2048, 4096, 8192]
    a = label("a", {key(s): one(float(t)) for s, t in zip(sizes, (1, 2, 4, 8), strict=True)})
    b = label("b", {key(s): one(float(t)) for s, t in zip(sizes, (3, 3, 3, 3), strict=True)})
    found = compare([a, b]).crossovers
    assert [(c.size_bytes, c.before, c.to) for c in found] == [(4096, "a", "b")]


def test_a_lead_within_the_noise_is_no_crossover() -> None:
    a = label("a", {key(1): one(10.0), key(2): one(20.0)})
    b = label("b", {key(1): one(10.1), key(2): one(19.8)})
    assert compare([a, b]).crossovers == ()


def test_a_lead_that_its_own_noise_explains_is_no_crossover() -> None:
    # b is 10 % faster at 2 B, but its samples reach from 140 to 220 us; at 4 B it surely is.
    times = {1: (80.0, 81, 82), 2: (180.0, 140.0, 220.0), 4: (200.0, 201.0, 202.0)}
    own = {1: (50.0, 51.0, 52.0), 2: (160.0, 200.0, 240.0), 4: (400.0, 410.0)}
    a = label("a", {key(s): one(*t) for s, t in own.items()})
    b = label("b", {key(s): one(*t) for s, t in times.items()})
    found = compare([a, b])
    cell = found.classes[1].cells[1]
    assert cell.low is not None
    assert cell.low < 1 < cell.speed_up
    assert [(c.size_bytes, c.before, c.to) for c in found.crossovers] == [(4, "a", "b")]


def test_a_leader_by_chance_is_not_overtaken() -> None:
    # At 1 B a leads by 0.5 %, which is noise: at 2 B b is faster, but never was slower.
    a = label("a", {key(1): one(10.0), key(2): one(20.0)})
    b = label("b", {key(1): one(10.05), key(2): one(10.0)})
    assert compare([a, b]).crossovers == ()


def test_crossovers_between_labels_that_are_not_the_first() -> None:
    sizes = (1, 2, 4)
    rows = {"a": (90.0, 90.0, 90.0), "b": (10.0, 20.0, 40.0), "c": (30.0, 30.0, 30.0)}
    labels = [
        label(name, {key(s): one(t) for s, t in zip(sizes, times, strict=True)})
        for name, times in rows.items()
    ]
    found = compare(labels).crossovers
    assert [(c.size_bytes, c.before, c.to) for c in found] == [(4, "b", "c")]


def test_samples_without_spread_leave_the_noise_between_launches() -> None:
    pairs = [(Samples({0: (t, t)}), Samples({0: (t / 2, t / 2)})) for t in (1e6, 2e6, 3e6, 4e6)]
    found = effects(pairs)
    # One launch each, 2 % of noise each.
    assert [e.error for e in found] == [pytest.approx(0.02 * math.sqrt(2))] * 4
    total = weighted_total(found, [1] * 4)
    half = total.half_width()
    assert half is not None
    assert half == pytest.approx(1.96 * 0.02 * math.sqrt(2), rel=0.01)
    assert total.p_faster() < 0.001


def test_the_host_makes_short_calls_unsure() -> None:
    # One launch each: 2 % and what the host adds, (3.3 / t)^2 and 20 % at most.
    for us, host in ((1.0, 0.2), (10.0, 0.1089), (33.0, 0.01)):
        same = Samples({0: (us, us)})
        error = effects([(same, Samples({1: (us, us)}))])[0].error
        assert error == pytest.approx(math.sqrt(2 * (0.02**2 + host**2)))
    # Three rounds that agree by chance: two degrees of freedom of their own, four of the host's.
    a, b = (Samples(dict.fromkeys(range(3), (us,))) for us in (10.0, 14.0))
    prior = math.pi / 2 * (0.1089**2 + 0.1089**2 / 1.4**4) / 3
    assert effects([(a, b)])[0].error == pytest.approx(math.sqrt(4 / 6 * prior))


def test_a_file_in_two_runs_counts_once() -> None:
    store = StoreBuilder()
    other = store.insert("_run", label="two")
    for path, bytes_of, run in (("t", "aa", store.run), ("u", "aa", other), ("v", "bb", other)):
        store.run = run
        source = store.source(f"{path}.txt", kind="table", sha256=bytes_of)
        store.measured(source, [5.0], label="a")
        store.measured(source, [5.0], label="a")
    (found,) = load_labels(store.connection, ["a"])[0].classes.values()
    # two rows of the file, and two of the other one, which happens to have the same times
    assert found.samples.all == [5.0] * 4
    (found,) = load_labels(store.connection, ["a"], "two")[0].classes.values()
    assert len(found.samples.all) == 4


def test_weights_say_what_it_means_for_a_job() -> None:
    # 10 calls of 100 us and 1 call of 1000 us; b halves the first: 2000 us become 1500 us.
    a = label("a", {key(1): one(100), key(2): one(1000)})
    b = label("b", {key(1): one(50), key(2): one(1000)})
    comparison = compare([a, b], "job", {key(1): 10, key(2): 1})
    assert comparison.totals[1].time_ratio == pytest.approx(0.75)
    assert [row.weight for row in comparison.classes] == [pytest.approx(0.5)] * 2


def test_siblings_weigh_as_often_as_a_rank_runs_them() -> None:
    # 8 ranks: 10 calls of all of them, and 10 of each of four pairs, 100 us each.
    pair = replace(key(1), nranks=2)
    a = label("a", {key(1): one(100), pair: one(100)})
    comparison = compare([a, replace(a, name="b")], "job", {key(1): 10, pair: 40})
    assert [row.weight for row in comparison.classes] == [pytest.approx(0.5)] * 2
    calls = {key(1): 10, pair: 40}
    counted = {k: replace(m, calls=calls[k]) for k, m in a.classes.items()}
    verdict = check(replace(a, classes=counted), replace(a, name="b"))
    assert [row.share for row in verdict.classes] == [pytest.approx(0.5)] * 2


def test_a_class_is_of_one_root_and_its_calls_are_counted_once() -> None:
    store = StoreBuilder()
    source = store.source("r.csv", kind="csv")
    for number in (1, 2):
        for root, calls in ((0, 3), (1, 4)):
            store.measured(source, [5.0], op="Broadcast", root=root, calls=calls, round=number)
    # of another communicator
    store.measured(source, [5.0], op="Broadcast", root=1, calls=2, round=2)
    classes = load_labels(store.connection, ["replay"])[0].classes
    found = {key.root: (m.calls, len(m.samples.all)) for key, m in classes.items()}
    assert found == {0: (3, 2), 1: (6, 3)}


def test_other_nodes_are_another_class() -> None:
    store = StoreBuilder()
    source = store.source("r.csv", kind="csv")
    for nnodes, time_us in ((1, 5.0), (2, 50.0)):
        for name in "ab":
            store.measured(source, [time_us], label=name, nnodes=nnodes, round=1)
    found = compare(load_labels(store.connection, "ab"))
    assert [(r.key.nnodes, r.cells[1].time_ns) for r in found.classes] == [(1, 5e3), (2, 50e3)]


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ({"nnodes": None}, "the nodes are not known"),
        ({"nnodes": 2}, "measured on another number of nodes"),
        ({"in_place": None}, "in place or out of place is not known"),
        ({"redop": None}, "the reduction is not known"),
    ],
)
def test_what_a_label_does_not_know_is_compared_and_told(
    columns: dict[str, Value], note: str
) -> None:
    store = StoreBuilder()
    source = store.source("r.csv", kind="csv")
    store.measured(source, [5.0], label="a")
    store.measured(source, [4.0], label="b", **columns)
    a, b = load_labels(store.connection, "ab")
    found = compare([a, aligned(a, b)])
    assert [cell.time_ns for cell in found.classes[0].cells] == [5e3, 4e3]
    assert f"b: 1 class compared although {note}" in map(note_words, found.notes)


def test_what_would_serve_two_classes_serves_none() -> None:
    store = StoreBuilder()
    source = store.source("r.csv", kind="csv")
    for in_place in (0, 1):
        store.measured(source, [5.0], label="a", in_place=in_place)
    store.measured(source, [4.0], label="b", in_place=None)
    a, b = load_labels(store.connection, "ab")
    assert aligned(a, b) == b


def notes(labels: Sequence[Label]) -> list[str]:
    return [note_words(note) for note in compare(labels).notes]


def test_scaled_measurements_are_told_from_whole_ones() -> None:
    store = StoreBuilder()
    source = store.source("r.csv", kind="csv")
    for name, scaled in (("a", None), ("b", 8), ("c", None), ("c", 8)):
        store.measured(source, [5.0], label=name, scaled_from=scaled)
    a, b, c = load_labels(store.connection, "abc")
    assert "scaled_from differs (a: not scaled, b: 8)" in notes([a, b])
    (note,) = (n for n in notes([c, replace(c, name="d")]) if "scaled_from" in n)
    assert note.endswith("several values of scaled_from (8/not scaled)")


def test_an_out_of_place_outlier_is_noted() -> None:
    a = label("gdr", {key(1 << 25, in_place=0): one(1810.3), key(1 << 25): one(886.4)})
    b = label("other", {key(1 << 25): one(900)})
    (note,) = [n for n in notes([b, a]) if "out of place" in n]
    assert "33554432 B takes 1810.3 us out of place and 886.4 us in place (ratio 2.04)" in note


def test_long_labels_become_letters() -> None:
    names = ("with the plugin, and more", "none")
    labels = [label(name, {key(1024): one(t)}) for name, t in zip(names, (10, 5), strict=True)]
    text = render_compare(compare(labels), "text")
    assert "A  with the plugin, and more" in text
    assert "  A us  busbw GB/s  B us  busbw GB/s  speed-up" in text


def test_circumstances_that_differ_are_named() -> None:
    a, b = (
        replace(label(n, {key(1): one(1)}), circumstances={**NOTHING, "library": (v,)})
        for n, v in (("a", "nccl 2.27"), ("b", "nccl 2.28"))
    )
    assert notes([a, b]) == ["library differs (a: nccl 2.27, b: nccl 2.28)"]
    mixed = {**NOTHING, "method": ("batch", "graph")}
    c, d = (replace(label(n, {key(1): one(1)}), circumstances=mixed) for n in "cd")
    (note,) = notes([c, d])
    assert note == "every label mixes measurements with several values of method (batch/graph)"


def test_run_weights_fit_what_is_not_contradicted() -> None:
    store = StoreBuilder()
    _, comm = store.group()  # two ranks
    called = {"op": "AllReduce", "datatype": "Float32", "redop": "Sum", "nranks": 2}
    for size, in_place, calls in ((1024, 1, 3), (2048, None, 5), (4096, 0, 7), (8192, 1, 11)):
        same = store.collective(**called, size_bytes=size, in_place=in_place)
        store.calls(comm, same, calls)
    known = CollectiveClass(
        Op.ALL_REDUCE, Datatype.FLOAT32, Redop.SUM, None, 1024, None, True, 2, None, None
    )
    loose = replace(known, datatype=None, redop=None, in_place=None)
    out = replace(known, in_place=False, size_bytes=2048)
    keys = (
        known, loose,  # the whole key is taken before one that tells less
        out, replace(out, in_place=True),  # place not known: out of place
        replace(known, size_bytes=4096),  # contradicts the place
        replace(loose, size_bytes=8192, nranks=4),  # other ranks
    )  # fmt: skip
    measured = label("a", {k: one(1) for k in keys})
    weights = run_weights(store.connection, "main", [measured])
    assert weights.calls == {known: 3, out: 5}
    # 8 of 26 calls; 3 * 1024 + 5 * 2048 of 132096 bytes.
    assert note_words(weights.notes[0]).startswith(
        "run main: measured 2 of 4 classes, 30.8 % of its calls and 10.1 % of their bytes"
    )


def test_labels_without_a_common_class_are_refused_with_the_reason() -> None:
    a, b = label("a", {key(1): one(1)}), label("b", {key(2): one(1)})
    with pytest.raises(InputError, match=r"no common classes \(size_bytes 1 against 2\)"):
        compare([a, b])
    c = label("c", {replace(key(1), datatype=None, nranks=None, in_place=None): one(1)})
    with pytest.raises(InputError, match=r"\(datatype Bfloat16 against not known; nranks 8 against"
                       r" not known; in_place 1 against not known\)"):  # fmt: skip
        compare([a, c])


def test_the_plot_is_logarithmic(tmp_path: Path) -> None:
    curve = {key(1 << p): one(10 + (1 << p) / 1e5) for p in range(3, 30)}
    a = label("a", curve)
    rated = {k: replace(m, busbw_gbps=k.size_bytes / 1e3) for k, m in a.classes.items()}
    rated[key(8)] = replace(rated[key(8)], busbw_gbps=0.0)  # has no place on the axis
    both = [replace(a, name=name, classes=rated) for name in "ab"]
    write_plot(compare_extras(compare(both)).figures(), tmp_path / "p.svg")
    text = (tmp_path / "p.svg").read_text()
    assert all(f"<!-- {tick} -->" in text for tick in ("0.01", "1", "100", "10000"))
