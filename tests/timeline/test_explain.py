"""`compare --explain`: the difference of two steps in parts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import collscope
from inputs import ROOT, SHARED
from msgspec.structs import replace
from trace_builder import COMM, COMPUTE, US, Job

from collscope.errors import NoVerdictError
from collscope.reports.explain.answer import explained
from collscope.reports.explain.text import render_explained
from collscope.timeline.analyse import analyse
from collscope.timeline.explanation.explain import Explanation, explain
from collscope.timeline.recorded_job import RecordedJob

SCHEMA = json.loads((ROOT / "schemas" / "explain.schema.json").read_text("utf-8"))
STEPS = 6


def job(
    compute: Callable[[int], int] = lambda rank: 1000,
    transfer: int = 100,
    gap: int = 2,
    kernels: int = 1,
    host: int = 0,
    first: int = 20,
) -> RecordedJob:
    """Two ranks; in each step they compute twice, in `kernels` each, and meet twice. us.

    host   what it needs for a launch, with all on one stream; 0: it is far ahead
    first  the two collectives have 2^first elements, and 2^(first + 2)
    """
    made = Job(2, jitter_ns=0, host_work=host * US)
    for _ in range(STEPS):
        for count in (1 << first, 1 << first + 2):
            for rank in range(2):
                for _ in range(kernels):
                    made.compute(rank, compute(rank) * US, gap=gap * US)
            made.collective((0, 1), transfer * US, count=count, comm=COMPUTE if host else COMM)
    return analyse(made.traces()).recorded()


def ranks(*compute: int) -> RecordedJob:
    """One rank for each time that it computes in a step, us, before a collective of all."""
    made = Job(len(compute), jitter_ns=0)
    for _ in range(2 * STEPS):
        for rank, lasts in enumerate(compute):
            made.compute(rank, lasts * US)
        made.collective(tuple(range(len(compute))), 100 * US)
    return analyse(made.traces()).recorded()


def text(first: RecordedJob, second: RecordedJob) -> str:
    """What is said of runs a and b, on one line."""
    found = explain(first, second)
    assert found is not None
    said = explained(Path("t.db"), ("a", "b"), (first, second), found)
    return " ".join(render_explained(said, "text").split())


def parts_of(found: Explanation | None) -> dict[str, float]:
    assert found is not None
    return {part.part: part.ns / US for part in found.parts if part.ns is not None}


def test_longer_transfers_are_the_collectives() -> None:
    """Two transfers of 100 us become 160: 120 us a step."""
    found = explain(job(), job(transfer=160))
    assert found is not None
    assert found.second_ns - found.first_ns == 120 * US
    assert parts_of(found) == pytest.approx(
        {"host": 0, "compute": 0, "collectives": 120, "arrivals": 0, "profiler": 0}, abs=0.01
    )


def test_longer_kernels_everywhere_are_compute() -> None:
    """Two kernels of 1000 us become 1150: 300 us a step."""
    assert parts_of(explain(job(), job(lambda rank: 1150))) == pytest.approx(
        {"host": 0, "compute": 300, "collectives": 0, "arrivals": 0, "profiler": 0}, abs=0.01
    )


def test_more_calls_of_a_kernel_are_compute() -> None:
    """Two kernels of 1000 us become four: 2000 us a step, and two gaps of 2 us."""
    found = parts_of(explain(job(), job(kernels=2)))
    assert found["compute"] == pytest.approx(2000, abs=5)
    assert found["collectives"] == pytest.approx(0, abs=0.01)


def test_one_slow_rank_of_two_may_be_compute_or_arrivals() -> None:
    """Rank 1 computes 200 us longer, twice: 400 us a step.

    It is the one that changed, or both did, and rank 0 changed back. No majority tells: both parts
    may be all of it, or nothing.
    """
    said = explain(job(), job(lambda rank: 1000 + 200 * rank))
    found = parts_of(said)
    assert found["compute"] + found["arrivals"] == pytest.approx(400, abs=1)
    assert found["collectives"] == pytest.approx(0, abs=0.01)
    assert said is not None
    for part in said.parts:
        if part.part in ("compute", "arrivals"):
            assert part.low_ns <= 0
            assert part.high_ns >= 400 * US


def test_one_slow_rank_of_several_is_a_difference_between_ranks() -> None:
    """Rank 2 of four computes 200 us longer: so does the step, and none of it of the others."""
    said = explain(ranks(1000, 1000, 1000, 1000), ranks(1000, 1000, 1200, 1000))
    assert said is not None
    assert parts_of(said) == pytest.approx(
        {"host": 0, "compute": 0, "collectives": 0, "arrivals": 200, "profiler": 0}, abs=1
    )
    (late,) = (part for part in said.parts if part.part == "arrivals")
    assert late.low_ns > 150 * US


def late_host(later: int = 0) -> RecordedJob:
    """The host of rank 1 needs `later` us more in each step, of two launches of 300."""
    made = Job(2, jitter_ns=0, host_work=300 * US)
    for _ in range(STEPS):
        made.host[1] += later * US
        for rank in range(2):
            made.compute(rank, 100 * US)
        made.collective((0, 1), 100 * US, comm=COMPUTE)
    return analyse(made.traces()).recorded()


def test_the_rank_with_the_slower_host_may_be_another_in_another_start() -> None:
    """That a host comes 200 us later is of its start; that a rank's kernels last longer is not."""
    found = {}
    for name, first, second in (
        ("host", late_host(), late_host(200)),
        ("compute", ranks(1000, 1000, 1000), ranks(1000, 1200, 1000)),
    ):
        said = explain(first, second)
        assert said is not None
        (found[name],) = (p for p in said.parts if p.part == "arrivals")
    assert found["host"].low_ns <= 0 < found["host"].high_ns
    assert found["host"].widest == "hosts"
    assert found["compute"].low_ns > 0


def test_what_no_factor_holds_remains() -> None:
    """28 us more before each of two kernels, with no cause that a trace tells."""
    found = explain(job(), job(gap=30))
    assert found is not None
    assert found.remainder_ns == pytest.approx(56 * US, rel=0.02)
    # It may belong to any part but the profiler's, of which each graph tells by itself.
    assert all(part.high_ns >= found.remainder_ns for part in found.parts[:-1])
    assert {p.part for p in found.parts if p.widest == "remainder"} == {"host", "arrivals"}
    told = text(job(), job(gap=30))
    assert "Unexplained: +0.06 ms, more than any part." in told
    assert told.index("Unexplained") < told.index("ms a step")


@pytest.mark.parametrize("other", [job(transfer=160), job(lambda rank: 900 + 300 * rank)])
def test_parts_and_remainder_are_the_difference_both_ways(other: RecordedJob) -> None:
    there, back = explain(job(), other), explain(other, job())
    for found in (there, back):
        assert found is not None
        total = sum(part.ns or 0 for part in found.parts) + found.remainder_ns
        assert total == found.second_ns - found.first_ns
        assert all(p.ns is None or p.low_ns <= p.ns <= p.high_ns for p in found.parts)
    assert parts_of(there) == pytest.approx({k: -v for k, v in parts_of(back).items()}, abs=0.002)


def test_a_profiled_host_does_not_hide_the_collectives() -> None:
    """A host of 300 us a launch hides that collectives of 100 us become 400: both steps are 1200.

    Without the profiler it needs 0.4 to 0.95 of that, at the middle 0.62: 740 us a step against
    the GPU's 408, and against 1008 with longer collectives, which are 268 us of that then.
    """
    found = explain(*(job(lambda rank: 100, transfer, host=300) for transfer in (100, 400)))
    assert found is not None
    assert found.second_ns == found.first_ns == 1200 * US
    parts = {part.part: part for part in found.parts}
    assert parts["collectives"].ns == pytest.approx(268.3 * US, rel=0.01)
    assert parts["profiler"].ns == pytest.approx(-268.3 * US, rel=0.01)
    # With 0.95 the host bounds either step. In another start a host of 0.4 may need 0.35:
    # ln(0.62 / 0.35) squared is ln(0.62 / 0.4) squared and ln(1 / 0.7) squared. That is 422 us, and
    # 1008 - 422 = 586.
    assert parts["collectives"].low_ns <= 0
    assert parts["collectives"].high_ns == pytest.approx(587 * US, rel=0.01)
    assert parts["collectives"].widest == parts["profiler"].widest == "hosts"


def test_a_slower_host_of_another_start_may_hide_the_collectives() -> None:
    """A host of 250 us a launch needs 950 us a step at most without the profiler, the GPU 1008.

    In another start the host may need 1.02 instead of 0.95 of the recorded time, and the GPU waits
    for it, however long collectives last: the sign is not known.
    """
    found = explain(*(job(lambda rank: 100, transfer, host=250) for transfer in (100, 400)))
    assert found is not None
    (part,) = (p for p in found.parts if p.part == "collectives")
    assert part.ns == pytest.approx(392 * US, rel=0.02)
    assert part.low_ns <= 0 < part.high_ns
    assert part.widest == "hosts"


def test_collectives_without_a_counterpart_are_not_known() -> None:
    """Other sizes in the other run: 200 and 320 us a step that may be all of the difference."""
    found = explain(job(), job(transfer=160, first=21))
    assert found is not None
    part = next(p for p in found.parts if p.part == "collectives")
    assert part.ns is None
    assert part.low_ns <= -200 * US
    assert part.high_ns >= 320 * US
    assert found.remainder_ns == pytest.approx(120 * US, rel=0.02)


def test_no_part_differs_from_start_to_start_by_more_than_it_takes() -> None:
    """3 % of two steps of 2028 us are 86 us, but collectives of 20 us have no more than 28."""
    found = explain(job(transfer=10), job(transfer=10))
    assert found is not None
    parts = {part.part: part for part in found.parts}
    assert parts["collectives"].high_ns == pytest.approx(28 * US, rel=0.05)
    assert parts["compute"].high_ns == pytest.approx(86 * US, rel=0.05)


def test_other_ranks_are_not_explained() -> None:
    three = Job(3, jitter_ns=0)
    for _ in range(STEPS):
        for rank in range(3):
            three.compute(rank, 1000 * US)
        three.collective((0, 1, 2), 100 * US)
    assert explain(job(), analyse(three.traces()).recorded()) is None


def test_the_pace_of_hosts_is_no_effect_of_the_setting() -> None:
    """Hosts of 300 us a launch become 450: 600 us a step, as two starts of one setting may."""
    told = text(*(job(lambda rank: 100, host=host) for host in (300, 450)))
    assert "In these recordings: host speed +0." in told
    assert (
        "Host speed varies from run to run: one recording of each run cannot show whether it"
        " belongs to 'b'." in told
    )
    assert "ause: host" not in told
    other = text(job(), job(transfer=160))
    assert "Cause: collectives +0.12 ms" in other
    assert "run to run: one recording" not in other


def test_the_self_check_prints_the_larger_difference() -> None:
    """Of the steps as printed, from which a reader may take it."""
    runs = job(), job(gap=200, transfer=400, kernels=2)
    found = explain(*runs)
    assert found is not None
    recorded = found.second_ns, found.first_ns
    misses = [
        abs(round(reached / 1e6, 2) - round(step / 1e6, 2))
        for reached, step in zip(found.reached, recorded, strict=True)
    ]
    assert len(set(misses)) == 2
    assert f"'a' and 'b' come within {max(misses):.2f} ms of the other" in text(*runs)


def test_slowdown_by_collectives_is_in_one_row() -> None:
    """Where no compute overlaps a collective, the legend and the basis put it into one row."""
    told = text(job(), job(transfer=160))
    assert "Neither run shows how much a collective slows down compute" in told
    assert "that all ranks share, with slowdown by collectives. collectives: transfers without" in (
        told
    )
    assert "how much they slow down compute" not in told


def test_steps_without_the_profiler_are_a_range() -> None:
    """Host 0.4 to 0.95 of 1200 us a step, 0.7 to 1.3 of that in another start; the GPU needs 408.

    3 % more from start to start: 0.97 x 408 = 396 us, and 1.03 x 1.3 x 0.95 x 1200 = 1526 us.
    """
    same = job(lambda rank: 100, host=300)
    found = explain(same, same)
    assert found is not None
    for steps in found.unprofiled:
        assert steps.ends == pytest.approx((396 * US, 1526 * US), rel=0.02)
    # Hosts of two starts differ by 30 %: a ratio of 0.7 to 1 / 0.7.
    assert "a step of 'b' takes 0.70 to 1.43 times as long as a step of 'a' (95 %), so" in text(
        same, same
    )


def test_a_known_part_of_the_collectives_is_not_called_unknown() -> None:
    """Hosts so slow that they hide the collectives whatever the profiler costs: a range of 0."""
    told = text(*(job(lambda rank: 100, host=host) for host in (1500, 2400)))
    assert "is unknown" not in told
    assert "Collectives and profiler overhead:" not in told
    hidden = text(*(job(lambda rank: 100, transfer, host=300) for transfer in (100, 400)))
    assert "is unknown" not in hidden
    assert "Collectives and profiler overhead: the profiler slows the hosts" in hidden
    assert "Record both with GPU activities alone. Measure the step of both runs without" in hidden


def other_kernels(first: int) -> RecordedJob:
    """As `job`, with kernels of another name."""
    made = Job(2, jitter_ns=0)
    for _ in range(STEPS):
        for count in (1 << first, 1 << first + 2):
            for rank in range(2):
                made.compute(rank, 1500 * US)
            made.collective((0, 1), 100 * US, count=count)
    return analyse([replace(t, names=("conv", *t.names[1:])) for t in made.traces()]).recorded()


def test_different_jobs_have_no_parts() -> None:
    """No collectives in common; where the kernels are the same ones, only the sizes changed."""
    one, sizes, other = job(), job(first=21), other_kernels(first=21)
    assert "The share of the collectives is unknown" in text(one, sizes)
    assert "Cause: compute" not in text(one, other_kernels(first=20))  # collectives are in common
    with pytest.raises(NoVerdictError, match="'a' and 'b' have no collectives in common") as told:
        text(one, other)
    assert told.value.exit_code == 4


def test_a_slower_host_that_adds_nothing_is_hidden() -> None:
    """Hosts of 20 us a launch become 40, and kernels last 1000."""
    hidden = " (mean over the ranks). GPU work hides the difference."
    assert hidden in text(job(host=20), job(host=40))
    assert hidden not in text(job(host=20), job(host=20))
    assert hidden not in text(*(job(lambda rank: 100, host=host) for host in (300, 450)))


@pytest.mark.parametrize(("known", "old", "new"), [(True, 100, 200), (False, 200, 400)])
def test_classes_without_a_size_have_means(known: bool, old: int, new: int) -> None:
    """Transfers of 100, 100 and 400 us: their median is 100, their mean 200; both double."""

    def run(factor: int) -> RecordedJob:
        made = Job(2, jitter_ns=0)
        for _ in range(STEPS):
            for transfer in (100, 100, 400):
                for rank in range(2):
                    made.compute(rank, 1000 * US)
                made.collective((0, 1), factor * transfer * US)
        traces = made.traces()
        if not known:
            traces = [
                replace(t, collectives=tuple(replace(c, in_count=None, out_count=None)
                                             for c in t.collectives))
                for t in traces
            ]  # fmt: skip
        return analyse(traces).recorded()

    found = explain(run(1), run(2))
    assert found is not None
    (swapped,) = found.classes
    assert (swapped.old_ns, swapped.new_ns) == pytest.approx((old * US, new * US), rel=0.02)
    assert ("A row of unknown size mixes calls" in text(run(1), run(2))) is not known


def pairs(named: bool) -> RecordedJob:
    """Four ranks that meet in two pairs, which the traces may name."""
    made = Job(4, jitter_ns=0)
    for step in range(STEPS):
        for pair in ((0, 1), (2, 3)):
            for rank in pair:
                made.compute(rank, (1000 + 7 * step * pair[0]) * US)
            made.collective(pair, 100 * US)
    traces = made.traces()
    if not named:
        traces = [
            replace(t, collectives=tuple(replace(c, group=None, group_size=None, group_ranks=())
                                         for c in t.collectives))
            for t in traces
        ]  # fmt: skip
    return analyse(traces).recorded()


def test_groups_without_a_name_are_told() -> None:
    assert [pairs(named).groups_inferred for named in (True, False)] == [0, 2]
    told = text(pairs(named=False), pairs(named=False))
    assert "2 process groups of some of the ranks have no name in the traces" in told
    assert "process group" not in text(pairs(named=True), pairs(named=True))


# Commands


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    path = tmp_path_factory.mktemp("explain") / "t.db"
    for case in ("default", "ringll"):
        done = collscope("ingest", "trace", samples / "traces" / case, "--db", path, "--run", case)
        assert done.code == 0, done.err
    return path


def told(db: Path, *names: str) -> dict[str, Any]:
    done = collscope("compare", "--explain", *names, "--db", db, "--format", "json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    jsonschema.validate(found, SCHEMA)
    total = sum(part["ns"] or 0 for part in found["parts"]) + found["remainder_ns"]
    assert total == found["difference_ns"]
    return found


def test_the_recorded_setting_is_the_collectives(db: Path) -> None:
    """Unprofiled steps take 5.7059 and 6.3022 ms (steps.jsonl); only the algorithm differs."""
    parts = {part["part"]: part for part in told(db, "default", "ringll")["parts"]}
    truth = 6_302_200 - 5_705_900
    assert parts["collectives"]["low_ns"] <= truth <= parts["collectives"]["high_ns"]
    assert parts["collectives"]["ns"] == pytest.approx(truth, rel=0.15)


def test_every_form(db: Path) -> None:
    for form in ("text", "md", "csv", "html"):
        done = collscope("compare", "--explain", "default", "ringll", "--db", db, "--format", form)
        assert done.code == 0, done.err
        assert "collectives" in done.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("default",), 2, "Name two traced runs"),
        (("default", "ringll", "--weights", "default"), 2, "Leave them out"),
        (("alone", "other"), 3, "are not both traced runs"),
    ],
)
def test_what_is_not_explained(db: Path, words: tuple[str, ...], code: int, message: str) -> None:
    done = collscope("compare", "--explain", *words, "--db", db)
    assert (done.code, done.out) == (code, "")
    assert message in done.err


def test_the_collectives_part_holds_the_truth(recorded_jobs: Path, tmp_path: Path) -> None:
    """DDP with two channels: steps of 61.7 ms take 84.4 (steps.jsonl, medians of all blocks)."""
    for setting in ("default", "ch2"):
        traces = sorted((recorded_jobs / "plain" / setting / "ddp").glob("light.*"))
        done = collscope("ingest", "trace", *traces, "--db", tmp_path / "t.db", "--run", setting)
        assert done.code == 0, done.err
    found = told(tmp_path / "t.db", "default", "ch2")
    (part,) = (p for p in found["parts"] if p["part"] == "collectives")
    # What NCCL_MAX_CTAS=2 does: every grid in the file is of 2 blocks, for 24 by default.
    assert (found["first"]["blocks"], found["second"]["blocks"]) == (24, 2)
    text = collscope("compare", "--explain", "default", "ch2", "--db", tmp_path / "t.db").out
    assert "2 thread blocks in 'ch2' and 24 in 'default'" in " ".join(text.split())
    assert 0 < part["low_ns"] < part["ns"]
    assert part["ns"] == pytest.approx(22.7e6, rel=0.15)
    assert part["low_ns"] <= 22.7e6 <= part["high_ns"]


def test_few_channels_have_advice_without_a_setting(tmp_path: Path) -> None:
    """NCCL_MAX_CTAS=1 is in no trace: one thread block is."""
    jobs = SHARED / "recordings" / "h200x2-causes"
    if not jobs.is_dir():
        pytest.skip("no recordings/h200x2-causes folder")
    db = tmp_path / "t.db"
    for run in ("base", "ctas1"):
        assert collscope("ingest", "trace", jobs / run, "--run", run, "--db", db).code == 0
    text = " ".join(collscope("compare", "base", "ctas1", "--explain", "--db", db).out.split())
    assert "Few channels; kernels use 1 thread block; collective transfers take" in text
    assert "Unset what limits the channels, unless this machine needs it" in text


def test_a_late_host_has_advice_and_may_be_in_the_row_of_the_profiler(tmp_path: Path) -> None:
    """The loader of rank 1 sleeps 25 ms a step; the profiler may account for none of it."""
    jobs = SHARED / "recordings" / "h200x2-causes"
    if not jobs.is_dir():
        pytest.skip("no recordings/h200x2-causes folder")
    db = tmp_path / "t.db"
    for run in ("base", "loader"):
        assert collscope("ingest", "auto", jobs / run, "--run", run, "--db", db).code == 0
    text = " ".join(collscope("compare", "base", "loader", "--explain", "--db", db).out.split())
    assert "in 'loader' only: Late host, rank 1" in text
    assert "Only part of this lengthens the step. Find what the host does in this gap" in text
    (value, low) = re.findall(r"profiler overhead \+([\d.]+) \+([\d.]+) ", text)[0]
    assert float(value) > float(low) == 0
    assert f"If the overhead is less than {value} ms, other parts" in text
    assert "that all ranks share, without slowdown by collectives." in text
    assert "transfers without waiting, and how much they slow down compute." in text
