"""The CI gate: verdicts in simulation and by hand, and their formats."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from measured_builder import Noise, key, label, noisy_label
from msgspec.structs import replace

from collscope.model import CollectiveClass, Op
from collscope.parsers import replay_csv
from collscope.reports.check.answer import Check, Rules, check
from collscope.reports.check.text import CHECK_FORMATS, render_check
from collscope.reports.check.verdict import Verdict
from collscope.reports.check.verdict_text import why
from collscope.reports.compare.labels import Label
from collscope.reports.compare.notes import FewLaunches
from collscope.reports.rendering.note_words import note_words
from collscope.stats import Samples

# Sizes of a sweep and times of 10 us + size / 100 GB/s.
SWEEP = {key(1 << p): 10 + (1 << p) / 1e5 for p in range(10, 30, 3)}
DOMINANT = key(1 << 28)


def said(found: Check) -> str:
    """The sentence of a verdict."""
    return why(found.decision)


def slowed(
    base: dict[CollectiveClass, float], which: CollectiveClass, factor: float
) -> dict[CollectiveClass, float]:
    return {k: t * factor if k == which else t for k, t in base.items()}


def verdicts(trials: int, current: dict[CollectiveClass, float], noise: Noise) -> Counter[Verdict]:
    rng = random.Random(7)
    found: Counter[Verdict] = Counter()
    for _ in range(trials):
        a = noisy_label("base", rng, SWEEP, noise)
        b = noisy_label("new", rng, current, noise)
        found[check(a, b).verdict] += 1
    return found


def test_a_against_a_gives_under_one_percent_false_alarms() -> None:
    found = verdicts(1000, SWEEP, Noise(0.03, launch=0.01))
    assert found[Verdict.REGRESSION] < 10
    assert found[Verdict.NO_VERDICT] < 10


def test_two_sessions_give_under_one_percent_false_alarms() -> None:
    rng = random.Random(11)
    found: Counter[Verdict] = Counter()
    for _ in range(500):
        # All classes of a session share its clocks.
        drifts = [math.exp(rng.gauss(0, 0.01)) for _ in range(2)]
        times = [{key: drift * us for key, us in SWEEP.items()} for drift in drifts]
        a = noisy_label("base", rng, times[0], Noise(0.03, launch=0.01))
        b = apart(noisy_label("new", rng, times[1], Noise(0.03, launch=0.01)))
        found[check(a, b).verdict] += 1
    assert found[Verdict.REGRESSION] < 5
    assert found[Verdict.NO_VERDICT] < 5


def test_two_sessions_find_ten_percent_of_the_dominant_class() -> None:
    rng = random.Random(12)
    slow = slowed(SWEEP, DOMINANT, 1 / 0.9)
    found: Counter[Verdict] = Counter()
    for _ in range(200):
        a = noisy_label("base", rng, SWEEP, Noise(0.03, launch=0.01))
        b = apart(noisy_label("new", rng, slow, Noise(0.03, launch=0.01)))
        found[check(a, b).verdict] += 1
    assert found[Verdict.REGRESSION] > 190


def apart(label: Label) -> Label:
    """The label as another session measured it: no round in common with any other label."""
    classes = {
        key: replace(m, samples=Samples({(label.name, r): t for r, t in m.samples.rounds.items()}))
        for key, m in label.classes.items()
    }
    return replace(label, classes=classes)


def test_ten_percent_less_bandwidth_of_the_dominant_class_is_found() -> None:
    found = verdicts(200, slowed(SWEEP, DOMINANT, 1 / 0.9), Noise(0.03, launch=0.01))
    assert found[Verdict.REGRESSION] > 190


def test_three_samples_of_much_noise_give_no_verdict() -> None:
    found = verdicts(100, SWEEP, Noise(0.2, rounds=1, samples=3))
    assert found[Verdict.NO_VERDICT] == 100


def quick(
    current: dict[CollectiveClass, float], base: dict[CollectiveClass, float] | None = None
) -> Check:
    rng = random.Random(3)
    a = noisy_label("base", rng, base or SWEEP, Noise(0.01))
    b = noisy_label("new", rng, current, Noise(0.01))
    return check(a, b)


def test_one_small_class_alone_does_not_decide() -> None:
    small = key(1 << 13)
    result = quick(slowed(SWEEP, small, 1.5))
    assert result.verdict is Verdict.PASS
    assert result.classes[0].key == small
    assert result.classes[0].outcome == "slower"


# Fourteen classes without neighbours, as a step of training has them: times in us, 14 % at most.
STEP = {
    key(1 << power, op, place): us
    for op, place, power, us in (
        ("AllReduce", 1, 23, 47.0), ("AllReduce", 0, 23, 46.0), ("Broadcast", 1, 23, 40.0),
        ("Reduce", 1, 23, 38.0), ("AllGather", 1, 23, 44.0), ("SendRecv", 0, 23, 45.0),
        ("ReduceScatter", 0, 19, 12.0), ("AllGather", 0, 16, 10.0), ("AllToAll", 0, 14, 12.0),
        ("Gather", 0, 13, 10.0), ("Scatter", 0, 9, 11.0), ("Reduce", 0, 6, 10.0),
        ("Broadcast", 0, 4, 10.0), ("AllToAll", 1, 2, 12.0),
    )
}  # fmt: skip


def test_several_classes_decide_together_without_neighbours() -> None:
    # Three classes, of 12 to 14 % of the time each, 20 % slower.
    slow = {k: t * (1.2 if k.op in (Op.ALL_REDUCE, Op.REDUCE) else 1) for k, t in STEP.items()}
    found = quick(slow, STEP)
    assert (found.verdict, "classes are slower" in said(found)) == (
        Verdict.REGRESSION,
        True,
    )
    assert "slower. Largest effect: AllReduce of 8388608 B" in said(found)  # the one with most time
    fast = quick(slowed(STEP, max(STEP, key=STEP.__getitem__), 1 / 1.5), STEP)
    assert fast.classes[-1].outcome == "faster"


@pytest.mark.parametrize(("factor", "verdict"), [(1.5, "regression"), (1.12, "pass")])
def test_one_class_decides_when_it_is_sure_and_moves_the_total(factor: float, verdict: str) -> None:
    one = max(STEP, key=STEP.__getitem__)
    found = quick(slowed(STEP, one, factor), STEP)
    assert found.classes[0].outcome == "slower"
    assert found.classes[0].share < 0.15
    assert found.verdict.value == verdict
    assert "1 class is slower" in said(found)


def test_a_pass_names_what_is_slower() -> None:
    found = quick(slowed(SWEEP, key(1 << 13), 1.5))
    assert "no change beyond the noise" not in said(found)
    assert "1 class is slower: AllReduce of 8192 B on 8 ranks takes 1.5" in said(found)
    assert " times as long. This alone is not enough for a regression. Not judged: 2 of 7" in said(
        found
    )


@pytest.mark.parametrize(("launch", "session"), [(0.0, 0.01), (0.02, 0.0)])
def test_single_launches_of_many_classes_give_under_one_percent_false_alarms(
    launch: float, session: float
) -> None:
    rng, noise = random.Random(31), Noise(0.02, launch=launch, rounds=1, samples=11)
    found: Counter[Verdict] = Counter()
    for _ in range(500):
        drifts = [math.exp(rng.gauss(0, session)) for _ in range(2)]
        a, b = (
            noisy_label(name, rng, {k: drift * us for k, us in STEP.items()}, noise)
            for name, drift in zip("ab", drifts, strict=True)
        )
        found[check(a, b).verdict] += 1
    assert found[Verdict.REGRESSION] < 5


def recorded_classes(samples: Path) -> dict[CollectiveClass, dict[int, tuple[float, ...]]]:
    """Every class of two H200 that the file has: samples by launch."""
    text = (samples / "replay/h200x2-rounds.csv").read_text()
    launches: dict[CollectiveClass, dict[int, tuple[float, ...]]] = {}
    for m in replay_csv.parse(text).measurements:
        if m.size_bytes and m.round and m.in_place is not None:
            k = key(m.size_bytes, m.op.value, int(m.in_place))
            launches.setdefault(k, {})[m.round] = m.samples_us
    assert len({k.op for k in launches}) > 1
    return launches


def test_every_recorded_class_against_itself_gives_under_one_percent_false_alarms(
    samples: Path,
) -> None:
    launches = recorded_classes(samples)
    rng = random.Random(23)
    found = Counter(
        check(alike(redrawn("a", rng, launches, 1.0)), redrawn("b", rng, launches, 1.0)).verdict
        for _ in range(300)
    )
    assert found[Verdict.REGRESSION] < 3


@pytest.mark.parametrize("most_us", [20, math.inf])
def test_no_recorded_launch_alone_regresses_against_another(samples: Path, most_us: float) -> None:
    # Calls of 6 to 11 us differ by up to 60 % from launch to launch of the same thing.
    launches = {
        k: by for k, by in recorded_classes(samples).items() if max(map(max, by.values())) < most_us
    }
    single = [label(str(n), {k: {n: by[n]} for k, by in launches.items()}) for n in range(1, 6)]
    found = Counter(check(a, b).verdict for a in single for b in single if a is not b)
    assert found[Verdict.PASS if math.isinf(most_us) else Verdict.NO_VERDICT] == 20


def alike(found: Label) -> Label:
    """The label without calls: every class weighs the same."""
    return replace(found, classes={k: replace(m, calls=None) for k, m in found.classes.items()})


def test_two_neighbouring_sizes_decide() -> None:
    two = slowed(slowed(SWEEP, key(1 << 13), 1.5), key(1 << 16), 1.5)
    assert quick(two).verdict is Verdict.REGRESSION


def test_improvement_is_not_a_failure() -> None:
    result = quick({k: t * 0.8 for k, t in SWEEP.items()})
    assert (result.verdict, result.verdict.exit_code) == (Verdict.IMPROVEMENT, 0)


def test_no_common_class_is_no_verdict() -> None:
    result = quick({key(3): 5.0})
    assert (result.verdict, result.verdict.exit_code) == (Verdict.NO_VERDICT, 4)
    assert result.classes_missing == len(SWEEP)


def test_a_control_raises_the_threshold() -> None:
    rng = random.Random(5)
    base = noisy_label("base", rng, SWEEP, Noise(0.01))
    slow = noisy_label("new", rng, {k: 1.08 * t for k, t in SWEEP.items()}, Noise(0.01))
    assert check(base, slow).verdict is Verdict.REGRESSION
    # The same thing measured twice differs by 10 % here: 8 % says nothing.
    control = (base, noisy_label("again", rng, {k: 1.1 * t for k, t in SWEEP.items()}, Noise(0.01)))
    assert check(base, slow, control=control).verdict is Verdict.PASS
    steady = [label("x", {k: {0: (t * f,) * 9} for k, t in SWEEP.items()}) for f in (1, 1.1)]
    # Three robust standard deviations: 3 ln(1.1) / 0.67449 = 0.42392, which is 52.8 %.
    notes = [note_words(n) for n in check(base, slow, control=(steady[0], steady[1])).notes]
    assert "the control raises thresholds to 52.8 %" in notes


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((3.8, 5.0, 7.6), Verdict.REGRESSION),
        ((1 / 3.8, 1 / 5, 1 / 7.6), Verdict.IMPROVEMENT),
        ((3.8, 5.0, 1 / 5), Verdict.NO_VERDICT),  # they contradict each other
        ((3.8, 5.0), Verdict.NO_VERDICT),  # two may be slips
        ((1.3, 1.5, 1.9), Verdict.NO_VERDICT),  # as launches differ
    ],
)
def test_single_values_far_apart_in_several_classes_are_judged(
    ratios: tuple[float, ...], verdict: Verdict
) -> None:
    old = {key(k): {0: (100.0,)} for k in range(len(ratios))}
    new = {key(k): {0: (100.0 * ratio,)} for k, ratio in enumerate(ratios)}
    assert check(label("a", old), label("b", new)).verdict is verdict


def test_single_samples_cannot_be_judged() -> None:
    a = label("a", {key(1): {0: (10.0,)}})
    found = check(a, label("b", {key(1): {0: (20.0,)}}))
    # Nothing says that it is noisy.
    assert (found.verdict, found.classes[0].outcome) == (Verdict.NO_VERDICT, "unknown")
    assert "The noise of 1 class is unknown, because a label has a single value" in said(found)
    assert 'message="Noise unknown' in render_check(found, "junit")


def tables(name: str, seed: int, times: dict[CollectiveClass, float], files: int = 5) -> Label:
    """A label as so many tables make it: a value a file, in a session of its own, no calls."""
    noise = Noise(0.012, rounds=files, samples=1)
    return alike(apart(noisy_label(name, random.Random(seed), times, noise)))


@pytest.mark.parametrize("files", [5, 30])
def test_tables_are_judged_where_the_host_hides_nothing(files: int) -> None:
    # Eleven take 162 us of 17488 us together, and at most 14 + 2^20 / 2.5e5 = 18.2 us each.
    sweep = {key(1 << p): 14 + (1 << p) / 2.5e5 for p in range(10, 32)}
    base = tables("base", 1, sweep, files)
    found = check(base, tables("new", 2, sweep, files))
    assert found.verdict is Verdict.PASS
    assert "Not judged: 11 of 22 classes with 0.9 % of the time and up to 18.2 us" in said(found)
    assert found.classes_judged == 11
    assert note_words(found.notes[0]).startswith(
        "the number of calls is not known: each class counts as one call"
    )
    slow = {k: t * (1.1 if 20 < t < 100 else 1) for k, t in sweep.items()}
    assert check(base, tables("new", 3, slow, files)).verdict is Verdict.REGRESSION


def test_short_classes_alone_get_a_remedy_that_works() -> None:
    short = {key(1 << p): 14.0 for p in range(10, 18)}
    pair = tables("base", 1, short), tables("new", 2, short)
    found = check(*pair)
    assert found.verdict is Verdict.NO_VERDICT
    assert "hides changes of less than 18 %. Measuring the labels separately more often" in said(
        found
    )
    enough = int(said(found).rpartition("--resolution ")[2].rstrip("."))
    assert check(*pair, rules=Rules(resolution=enough / 100)).verdict is Verdict.PASS
    less = Rules(resolution=enough / 100 - 0.02)
    assert check(*pair, rules=less).verdict is Verdict.NO_VERDICT
    turns = [noisy_label(n, random.Random(s), short, Noise(0.02)) for s, n in enumerate("ab")]
    assert check(turns[0], turns[1]).verdict is Verdict.PASS


@pytest.mark.parametrize(("backend", "rounds"), [("cuda", 1), ("host", 1), ("host", 3)])
def test_few_launches_on_a_host_decide_nothing(backend: str, rounds: int) -> None:
    # One launch of 4 KiB on two ranks of one machine took 1.65 x the time of the other.
    times = {k: 10 * t for k, t in STEP.items()}
    slow = slowed(times, max(times, key=times.__getitem__), 1.65)
    a, b = (
        apart(noisy_label(n, random.Random(s), us, Noise(0.02, rounds=rounds)))
        for s, (n, us) in enumerate((("a", times), ("b", slow)))
    )
    a = replace(a, circumstances={**a.circumstances, "backend": (backend,)})
    found = check(a, b)
    known = backend == "cuda" or rounds >= 3
    assert found.verdict is (Verdict.REGRESSION if known else Verdict.NO_VERDICT)
    assert ("fewer than 3 launches do not show" in said(found)) is not known
    assert any(note == FewLaunches(14, 14) for note in found.notes) is (known and rounds < 3)


def test_a_green_result_says_how_many_classes_it_looked_at() -> None:
    assert "Compared 7 classes" in render_check(quick(SWEEP), "text")


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_junit_counts_what_it_lists(factor: float) -> None:
    result = quick({k: t * factor for k, t in SWEEP.items()})
    suite = ElementTree.fromstring(render_check(result, "junit"))
    cases = suite.findall("testcase")
    assert int(suite.attrib["tests"]) == len(cases) == len(SWEEP) + 1
    failures = [c for c in cases if c.find("failure") is not None]
    assert int(suite.attrib["failures"]) == len(failures) == (len(cases) if factor > 1 else 0)


def test_github_annotations_escape_what_ends_their_parts() -> None:
    text = render_check(quick({k: t * 1.3 for k, t in SWEEP.items()}), "github")
    first, *rest = text.splitlines()
    assert first.startswith("::error title=collscope%3A regression::")
    assert "%25" in first  # "95 %" of the text
    assert len(rest) == len(SWEEP)


@pytest.mark.parametrize("fmt", CHECK_FORMATS)
def test_every_format_renders_an_empty_result(fmt: str) -> None:
    assert render_check(quick({key(3): 5.0}), fmt)


def recorded(samples_folder: Path) -> dict[CollectiveClass, dict[int, tuple[float, ...]]]:
    """In-place AllReduce of two H200: samples by size and launch."""
    text = (samples_folder / "replay/h200x2-rounds.csv").read_text()
    found: dict[CollectiveClass, dict[int, tuple[float, ...]]] = {}
    for m in replay_csv.parse(text).measurements:
        if m.op is Op.ALL_REDUCE and m.in_place and m.size_bytes and m.round:
            found.setdefault(key(m.size_bytes), {})[m.round] = m.samples_us
    return found


def redrawn(
    name: str,
    rng: random.Random,
    launches: dict[CollectiveClass, dict[int, tuple[float, ...]]],
    slow: float,
) -> Label:
    """A label of five launches drawn from the recorded ones, the largest size slowed."""
    drawn = [rng.choice([1, 2, 3, 4, 5]) for _ in range(5)]
    largest = max(launches)
    times = {
        k: {
            number: tuple(
                rng.choice(by_launch[launch]) * (slow if k == largest else 1)
                for _ in by_launch[launch]
            )
            for number, launch in enumerate(drawn)
        }
        for k, by_launch in launches.items()
    }
    return label(name, times)


@pytest.mark.parametrize(
    ("slow", "trials", "least", "most"), [(1.0, 1000, 0, 9), (1 / 0.9, 200, 191, 200)]
)
def test_on_noise_as_recorded(
    samples: Path, slow: float, trials: int, least: int, most: int
) -> None:
    # A against A: under 1 % regressions. 10 % less bandwidth of the dominant size: over 95 %.
    launches, rng = recorded(samples), random.Random(21)
    assert len(launches) == 6
    found = Counter(
        check(redrawn("a", rng, launches, 1.0), redrawn("b", rng, launches, slow)).verdict
        for _ in range(trials)
    )
    assert least <= found[Verdict.REGRESSION] <= most
