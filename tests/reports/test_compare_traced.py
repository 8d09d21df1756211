"""`compare` and `check` of traced runs: steps are the samples."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from command import collscope
from inputs import ROOT
from msgspec.structs import replace
from trace_builder import US, Job

from collscope.reports.check.text import render_check
from collscope.reports.check.traced import check_traced
from collscope.reports.check.verdict import Verdict
from collscope.reports.compare.answer import Comparison
from collscope.reports.compare.step_samples import SampledRun, sample_run
from collscope.reports.compare.text import render_compare
from collscope.reports.compare.traced import compare_traced
from collscope.reports.rendering.class_words import class_name
from collscope.timeline.analyse import analyse
from collscope.timeline.unprofiled import PACES, UnprofiledSteps

SCHEMAS = ROOT / "schemas"
SIZES = (1 << 20, 1 << 22)  # elements of the two AllReduces of a step


def run_of(
    name: str,
    steps: Sequence[tuple[int, int]],
    *,
    compute: tuple[int, int] = (1000, 1200),
    transfers: tuple[int, int] = (50, 150),
) -> SampledRun:
    """A job of two ranks; each step computes, and runs two collectives.

    steps      µs by which each rank's compute is longer in a step
    compute    µs of each rank before either collective
    transfers  µs of the two collectives
    """
    job = Job(2, jitter_ns=0)
    for longer in steps:
        for count, transfer in zip(SIZES, transfers, strict=True):
            for rank in range(2):
                job.compute(rank, (compute[rank] + longer[rank]) * US)
            job.collective((0, 1), transfer * US, count=count)
    return traced(name, job)


def traced(name: str, job: Job, steps: int | None = None) -> SampledRun:
    recorded = analyse(job.traces()).recorded(steps)
    return sample_run(
        name, Path("a.db"), recorded, [recorded.calls.classes[c] for c in recorded.calls.class_], {}
    )


def steady(
    name: str, steps: int = 6, factor: float = 1.0, transfers: tuple[int, int] = (50, 150)
) -> SampledRun:
    """Steps that differ by a few µs, otherwise in each run."""
    shift = sum(name.encode())
    wobble = [((k + shift) % 3, (k * k + shift) % 5) for k in range(steps)]
    compute = (round(1000 * factor), round(1200 * factor))
    return run_of(name, wobble, compute=compute, transfers=transfers)


def parts_of(found: Comparison, label: str) -> dict[str, float | None]:
    assert found.traced is not None
    return {
        p.part: cell.time_ns and cell.time_ns / 1000
        for p in found.traced.parts
        if p.rank is None
        for cell in p.cells
        if cell.label == label
    }


def test_parts_of_a_step_by_hand() -> None:
    """Two times 1000 and 1200 us of compute, 50 and 150 us of transfer, 2 us before every row."""
    found = compare_traced([run_of("a", [(0, 0)] * 5), run_of("b", [(0, 0)] * 5)])
    assert found.traced is not None
    assert [(r.steps, r.step_from) for r in found.traced.runs] == [(4, "period")] * 2
    parts = parts_of(found, "a")
    assert parts["step"] == pytest.approx(2 * 1204 + 200)
    assert parts["compute"] == pytest.approx(2 * 1100)
    assert parts["waiting"] == pytest.approx(200)  # rank 0 waits 200 us twice, rank 1 never
    assert parts["exposed"] == parts["collectives"] == pytest.approx(200 + 200)
    assert parts["idle"] == pytest.approx(8)
    by_rank = {(p.part, p.rank): (p.cells[0].time_ns or 0) / 1000 for p in found.traced.parts}
    assert by_rank["waiting", 0] == pytest.approx(400)
    assert by_rank["waiting", 1] == pytest.approx(0)
    assert by_rank["compute", 1] == pytest.approx(2400)
    transfers = {row.key.size_bytes: (row.cells[0].time_ns or 0) / 1000 for row in found.classes}
    assert transfers == {2 * SIZES[0]: pytest.approx(50), 2 * SIZES[1]: pytest.approx(150)}


def cut(name: str, number: int) -> SampledRun:
    """Five steps of two AllReduces, one not in rank 0's trace; rank 0 waits 200 us for each."""
    job = Job(2, jitter_ns=0)
    for _ in range(5):
        for count in SIZES:
            job.compute(0, 1000 * US)
            job.compute(1, 1200 * US)
            job.collective((0, 1), 50 * US, count=count)
    job.drop(0, number)
    return traced(name, job, 5 if number else None)


def test_calls_before_the_steps_do_not_hide_the_waiting() -> None:
    """Windows of a schedule begin at different calls; the steps are the last ones of all ranks."""
    before, inside = cut("before", 0), cut("inside", 5)
    assert parts_of(compare_traced([before, before]), "before")["waiting"] == pytest.approx(200)
    assert "waiting" not in inside.parts
    told = " ".join(render_compare(compare_traced([before, inside]), "text").split())
    assert "inside: the waiting in 1 of 19 kernels of collectives in its steps is not known" in told
    assert "before: the waiting" not in told


def test_parts_are_means_over_the_steps() -> None:
    """One of four steps takes 800 us more on both ranks, 400 before each collective."""
    run = run_of("a", [(0, 0), (0, 0), (400, 400), (0, 0), (0, 0)])
    parts = parts_of(compare_traced([run, run]), "a")
    assert parts["step"] == pytest.approx(2 * 1204 + 200 + 200)
    assert parts["compute"] == pytest.approx(2 * 1100 + 200)


def test_kernel_time_of_classes_holds_the_waiting() -> None:
    """Rank 0 waits 200 us before transfers of 50 and of 150: means of 150 and 250 us a step."""
    found = compare_traced([run_of("a", [(0, 0)] * 5), run_of("b", [(0, 0)] * 5)])
    assert found.traced is not None
    times = {
        kernel.key.size_bytes: (kernel.cells[0].time_ns or 0) / 1000
        for kernel in found.traced.kernels
    }
    assert times == {2 * SIZES[0]: pytest.approx(150), 2 * SIZES[1]: pytest.approx(250)}


def test_one_rank_s_traces_are_compared_by_step_and_kernel_time(
    samples: Path, tmp_path: Path
) -> None:
    """Nothing tells transfer from waiting there: classes have kernel times, the gate the step."""
    db = tmp_path / "t.db"
    for case in ("default", "ringll"):
        trace = samples / "traces" / case / "rank0.json.gz"
        assert collscope("ingest", "trace", trace, "--db", db, "--run", case).code == 0
    told = json.loads(collscope("compare", "default", "ringll", "--db", db, "--format", "json").out)
    assert told["classes"] == []
    assert len(told["traced"]["kernels"]) == 6
    assert told["traced"]["kernels"][0]["cells"][1]["speed_up"] == pytest.approx(0.44, abs=0.02)
    assert collscope("check", "--baseline", "default", "--current", "ringll", "--db", db).code == 1


def test_a_slower_step_is_a_regression_and_the_same_one_passes() -> None:
    base = steady("base")
    assert check_traced(base, steady("same")).verdict is Verdict.PASS
    slower = check_traced(base, steady("slow", factor=1.2))
    assert slower.verdict is Verdict.REGRESSION
    assert slower.decision.step is not None
    assert slower.decision.step.slower
    faster = check_traced(steady("slow", factor=1.2), base)
    assert faster.verdict is Verdict.IMPROVEMENT


def test_a_slower_class_is_a_regression_though_the_step_hardly_moves() -> None:
    """150 us of transfer become 180, of a step of 2608 us."""
    found = check_traced(steady("base"), steady("slow", transfers=(50, 180)))
    assert found.verdict is Verdict.REGRESSION
    assert [row.outcome for row in found.classes if row.key.size_bytes == 2 * SIZES[1]] == [
        "slower"
    ]
    told = " ".join(render_check(found, "text").split())
    assert (
        " The step did not change beyond the noise. Estimated without the profiler, a step of"
        " 'slow' takes 1.01 times as long as a step of 'base' (95 %: " in told
    )
    assert "Slower collectives fail the check even if the step is not slower." in told
    both = render_check(check_traced(steady("base"), steady("slow", factor=1.2)), "text")
    assert "fail the check" not in " ".join(both.split())


def test_too_few_steps_are_no_verdict() -> None:
    """Nothing tells the noise of a single step, and transfers that are equal are no proof."""
    for steps, words in ((None, "0 steps"), (1, "1 step")):
        jobs = [Job(2, jitter_ns=0) for _ in range(2)]
        for job, longer in zip(jobs, (0, 10), strict=True):
            for rank in range(2):
                job.compute(rank, (1000 + longer) * US)
            for count in SIZES:
                job.collective((0, 1), 50 * US, count=count)
        found = check_traced(traced("base", jobs[0], steps), traced("slow", jobs[1], steps))
        assert (found.verdict, found.verdict.exit_code) == (Verdict.NO_VERDICT, 4)
        told = words_of(render_check(found, "text"))
        assert f"'base' has {words} and 'slow' has {words}. Record 10 steps of each run" in told


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_a_run_checked_against_itself_passes(steps: int) -> None:
    """However few steps, and however much of them is the hosts'."""
    run = steady("base", steps=steps)
    run = replace(run, unprofiled=run.unprofiled and on_hosts(run.unprofiled))
    again = replace(run, label=replace(run.label, name="again"))
    found = check_traced(run, again)
    assert found.verdict is Verdict.PASS
    told = words_of(render_check(found, "text"))
    assert "Both runs hold the same recording, so nothing changed." in told
    assert "all times in their traces are equal" in told


def test_steps_that_differ_too_much_are_no_verdict_and_told_how_many_would_do() -> None:
    """As many steps with the same spread do give one."""
    wild = [(0, 0), (200, 200), (0, 0), (160, 160), (40, 40)]
    found = check_traced(run_of("base", wild), run_of("same", wild[::-1]))
    assert found.verdict is Verdict.NO_VERDICT
    assert found.step is not None
    assert (found.step.doubt, found.step.outcome) == ("spread", "unsure")
    enough = found.step.steps_enough
    assert enough is not None
    told = words_of(render_check(found, "text"))
    assert f"'same' has 4 steps, too few for their noise. Record {enough} steps of each run" in told
    more = (wild * enough)[: enough + 1]
    assert check_traced(run_of("base", more), run_of("same", more[::-1])).verdict is Verdict.PASS


@pytest.mark.parametrize("order", [("all", "one"), ("one", "all")])
def test_a_rank_against_all_ranks_is_no_pass(
    samples: Path, db_path: Path, order: tuple[str, str]
) -> None:
    """One of four ranks: its calls have no partner, so no class has a transfer time."""
    default = samples / "traces" / "default"
    for run, traces in (("all", default), ("one", default / "rank0.json.gz")):
        assert collscope("ingest", "-q", traces, "--db", db_path, "--run", run).code == 0
    found = collscope("check", *order, "--db", db_path)
    assert (found.code, found.out.splitlines()[0]) == (4, "collscope check: no verdict")
    told = words_of(found.out)
    assert "Too little was measured: 'one' has 1 of 4 ranks, and no class can be judged." in told
    assert "The step did not change beyond the noise. Estimated without the profiler," in told


def test_ranks_that_are_missing_matter_only_where_the_runs_differ_in_them() -> None:
    def of(name: str, ranks: tuple[int, ...], factor: float = 1.0) -> SampledRun:
        run = steady(name, factor=factor)
        label = replace(run.label, classes={})
        return replace(run, ranks=ranks, world_size=4, label=label)

    def verdict(base: tuple[int, ...], new: tuple[int, ...], factor: float = 1.0) -> Verdict:
        return check_traced(of("base", base), of("same", new, factor)).verdict

    assert verdict((0,), (0,)) is Verdict.PASS
    assert verdict((0, 1, 2, 3), (0, 1, 2, 3)) is Verdict.PASS
    for base, new in (((0,), (0, 1, 2, 3)), ((0, 1, 2, 3), (0,)), ((0,), (1,))):
        assert verdict(base, new) is Verdict.NO_VERDICT
        assert verdict(base, new, 0.7) is Verdict.NO_VERDICT
        assert verdict(base, new, 1.3) is Verdict.REGRESSION
    # with classes that can be judged, the ranks in common are enough
    both = replace(steady("same"), ranks=(0, 1), world_size=4)
    assert check_traced(steady("base"), replace(both, ranks=(0,))).verdict is Verdict.PASS


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_a_control_raises_the_threshold_of_the_step() -> None:
    base, slow = steady("base"), steady("slow", factor=1.2)
    again = steady("again", factor=1.1)
    assert check_traced(base, slow, control=again).verdict is not Verdict.REGRESSION


def on_hosts(steps: UnprofiledSteps, needed: float = 0.0) -> UnprofiledSteps:
    """As if the hosts bounded the steps down to the part of them that the GPUs need."""
    whole = sum(steps.recorded) / len(steps.recorded)
    return replace(
        steps,
        played=tuple(
            tuple(whole * max(needed, cost * pace) for pace in PACES) for cost in (0.4, 0.6, 0.95)
        ),
    )


def test_a_step_that_is_slower_needs_more_than_95_percent_to_fail() -> None:
    """Hosts of two starts differ by 30 %: 1.05 to 2.1 times the time at 95 %, more at 99.9 %."""
    found = check_traced(bound_by_hosts("base"), bound_by_hosts("slow", 1.5))
    assert found.verdict is Verdict.NO_VERDICT
    assert found.step is not None
    assert found.step.low is not None
    assert found.step.low > 1.02
    told = words_of(render_check(found, "text"))
    assert (
        "No verdict: the step is slower, but a slowdown of more than 2 % is less than 99.9 %"
        " certain." in told
    )


def bound_by_hosts(name: str, factor: float = 1.0, needed: float = 0.0) -> SampledRun:
    run = steady(name, factor=factor)
    assert run.unprofiled is not None
    return replace(run, unprofiled=on_hosts(run.unprofiled, needed))


def test_hosts_of_another_start_are_in_the_step_s_interval() -> None:
    """The same profiler slows both hosts alike, but those of two starts differ by 30 %."""
    base, slow = bound_by_hosts("base"), bound_by_hosts("slow", 1.05)
    found = check_traced(base, slow)
    step = found.step
    assert found.verdict is Verdict.NO_VERDICT
    assert step is not None
    assert step.ratio == pytest.approx(1.05, abs=0.01)
    assert step.low == pytest.approx(1.05 * 0.7, abs=0.02)
    assert step.high == pytest.approx(1.05 / 0.7, abs=0.03)
    told = words_of(render_check(found, "github"))
    assert (
        "The largest uncertainty is host work, which varies by about 30 %25 from run to run."
        in told
    )
    assert "collscope predict --db a.db --run base --with slow --step-ms N" in told
    document = json.loads(render_check(found, "json"))
    jsonschema.validate(document, schema("check"))
    assert (document["step"]["outcome"], document["step"]["doubt"]) == ("unsure", "hosts")
    assert {run["profiler"] for run in document["traced"]["runs"]} == {"full"}
    assert check_traced(base, bound_by_hosts("thrice", 3)).verdict is Verdict.REGRESSION
    assert check_traced(bound_by_hosts("thrice", 3), base).verdict is Verdict.IMPROVEMENT


def test_faster_classes_are_told_where_the_step_is_in_doubt() -> None:
    """They would be an improvement: that they are not enough for one would be wrong."""
    base, other = bound_by_hosts("base"), bound_by_hosts("other", 1.05)
    faster = steady("other", factor=1.05, transfers=(20, 60))
    found = check_traced(base, replace(faster, unprofiled=other.unprofiled))
    assert found.verdict is Verdict.NO_VERDICT
    told = words_of(render_check(found, "text"))
    assert (
        "2 classes are faster. Largest effect: AllReduce of 8388608 B on 2 ranks takes 0.40 times"
        " as long." in told
    )


def test_what_the_profiler_hides_is_in_the_step_s_interval() -> None:
    """Recorded alike; without the profiler one needs 0.9 of that time, the other 0.4 at the least.

    Hosts at 0.4, 0.6 and 0.95 of the recorded time: ratios of 0.9 / 0.4, 0.9 / 0.6 and 1.
    """
    found = check_traced(bound_by_hosts("base"), bound_by_hosts("hidden", 1.001, needed=0.9))
    assert found.step is not None
    assert found.step.recorded == pytest.approx(1, abs=0.01)
    assert found.step.ratio == pytest.approx(1.5, abs=0.01)
    assert found.step.high is not None
    assert found.step.high > 0.9 / 0.4
    assert found.verdict is Verdict.NO_VERDICT
    told = words_of(render_check(found, "text"))
    assert "); as recorded, 1.00 times." in told
    assert told.count("--step-ms N") == 1  # the verdict has the advice, and no section repeats it


def test_a_step_that_is_surely_not_slower_passes_however_wide_its_range() -> None:
    """0.4 x the time, between 0.28 and 0.57 x: not surely less than 0.98 x, surely not 1.1 x."""
    found = check_traced(bound_by_hosts("base"), bound_by_hosts("faster", 0.6))
    assert found.verdict is Verdict.PASS
    assert found.step is not None
    assert found.step.doubt is None


def test_compare_tells_the_steps_without_the_profiler() -> None:
    base, other = bound_by_hosts("a b"), steady("other")
    told = words_of(render_compare(compare_traced([base, other]), "text"))
    assert "Step without the profiler: estimated. Its interval covers " in told
    assert "collscope predict --db a.db --run 'a b' --with other --step-ms N" in told
    assert "Totals ------ Transfer times only, without waiting" in told
    alone = words_of(render_compare(compare_traced([other, steady("b")]), "text"))
    assert "Step without the profiler: estimated. Its interval covers " in alone
    assert "--step-ms" not in alone


def test_recordings_of_other_activities_are_no_like_for_like() -> None:
    full, light = steady("full"), replace(steady("light"), profiler="light")
    told = words_of(render_check(check_traced(full, light), "text"))
    assert (
        "The profilers recorded different things (full: CPU and GPU activities, light: GPU "
        "activities), so their cost on the hosts differs too"
    ) in told
    assert "The profilers recorded different things" not in words_of(
        render_check(check_traced(full, steady("other")), "text")
    )


def test_a_rank_that_changes_alone_is_named() -> None:
    late = run_of("late", [(400, 0)] * 5)
    told = render_compare(compare_traced([run_of("base", [(0, 0)] * 5), late]), "text")
    ranks = told.split("Ranks\n-----\n")[1].split("Totals")[0]
    assert "compute     0" in ranks
    assert "waiting     0" in ranks


def test_a_class_of_unknown_size_has_a_name_in_ci() -> None:
    (key,) = steady("base").label.classes.keys() - {min(steady("base").label.classes)}
    assert (
        class_name(replace(key, size_bytes=None)) == "AllReduce Bfloat16 Sum unknown size 2 ranks"
    )


def test_junit_counts_the_step() -> None:
    suite = ElementTree.fromstring(
        render_check(check_traced(steady("base"), steady("slow", factor=1.2)), "junit")
    )
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert cases["step"].find("failure") is not None
    assert int(suite.get("tests") or 0) == len(cases) == 4
    assert int(suite.get("failures") or 0) == sum(
        c.find("failure") is not None for c in cases.values()
    )


# Commands, on the recorded A/B


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    path = tmp_path_factory.mktemp("traced") / "t.db"
    for case in ("default", "ringll"):
        done = collscope("ingest", "trace", samples / "traces" / case, "--db", path, "--run", case)
        assert done.code == 0, done.err
    table = samples / "replay" / "h200x4-mixed.csv"
    assert collscope("ingest", "csv", table, "--db", path, "--label", "alone").code == 0
    return path


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    return found


def test_recorded_settings_are_compared(db: Path) -> None:
    """Transfers of a step are 0.63 and 1.26 ms (samples/README.md), steps 5.71 and 6.30 ms."""
    done = collscope("compare", "default", "ringll", "--db", db, "--format", "json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    jsonschema.validate(found, schema("compare"))
    step, unprofiled = (part["cells"][1] for part in found["traced"]["parts"][:2])
    assert 1 / step["speed_up"] == pytest.approx(6.3022 / 5.7059, rel=0.03)
    assert unprofiled["low"] < 5.7059 / 6.3022 < unprofiled["high"]
    assert found["totals"][1]["time_ratio"] == pytest.approx(1.26 / 0.63, rel=0.03)


def test_one_range_of_the_step_everywhere(db: Path) -> None:
    """compare, compare --explain and check tell the same range of the steps' ratio."""
    pair = ("default", "ringll")
    compared, explained, checked = (
        json.loads(collscope(*words, *pair, "--db", db, "--format", "json").out)
        for words in (("compare",), ("compare", "--explain"), ("check",))
    )
    cell = compared["traced"]["parts"][1]["cells"][1]
    ratio = explained["unprofiled_ratio"]
    step = checked["step"]
    assert ratio["middle"] == pytest.approx(step["ratio"]) == pytest.approx(1 / cell["speed_up"])
    for key, end in (("low", "high"), ("high", "low")):
        assert ratio[key] == pytest.approx(step[key]) == pytest.approx(1 / cell[end])
    steps = [cell["time_ns"] / 1000 for cell in compared["traced"]["parts"][0]["cells"]]
    told_ns = [explained[run]["step_ns"] for run in ("first", "second")]
    assert [1000 * us for us in steps] == pytest.approx(told_ns)
    texts = [words_of(collscope(*words, *pair, "--db", db).out) for words in (
        ("compare",), ("compare", "--explain"), ("check",))]  # fmt: skip
    low, high = f"{step['low']:.2f}", f"{step['high']:.2f}"
    assert f"step of 'ringll' takes {low} to {high} times as long" in texts[1]
    assert f" as a step of 'default' (95 %: {low} to {high})" in texts[2]


def test_a_call_s_transfer_is_one_number_everywhere(db: Path) -> None:
    """compare, compare --explain and check have the same transfers of both runs."""
    pair = ("default", "ringll")
    compared, explained, checked = (
        json.loads(collscope(*words, *pair, "--db", db, "--format", "json").out)["classes"]
        for words in (("compare",), ("compare", "--explain"), ("check",))
    )
    assert len(checked) == 6
    wanted = {
        (row["key"]["op"], row["key"]["size_bytes"]): (row["baseline_ns"], row["current_ns"])
        for row in checked
    }
    assert {
        (row["key"]["op"], row["key"]["size_bytes"]): tuple(c["time_ns"] for c in row["cells"])
        for row in compared
    } == wanted
    assert {
        (key["op"], key["size_bytes"]): (row["old_ns"], row["new_ns"])
        for row in explained
        for key in (row["collective_class"],)
    } == wanted


def test_the_gate_of_recorded_settings(db: Path) -> None:
    for baseline, current, code in (("default", "ringll", 1), ("ringll", "default", 0)):
        done = collscope(
            "check", "--baseline", baseline, "--current", current, "--db", db, "--format", "json"
        )
        assert done.code == code, done.out
        jsonschema.validate(json.loads(done.out), schema("check"))
    for form in ("text", "md", "junit", "github", "html"):
        done = collscope(
            "check", "--baseline", "default", "--current", "ringll", "--db", db, "--format", form
        )
        assert done.code == 1
        assert "step" in done.out


def test_check_takes_the_two_runs_without_options_too(db: Path) -> None:
    named = collscope("check", "--baseline", "default", "--current", "ringll", "--db", db)
    assert collscope("check", "default", "ringll", "--db", db) == named
    for words in (("default",), ("default", "--current", "ringll"), ("a", "b", "c"), ()):
        done = collscope("check", *words, "--db", db)
        assert done.code == 2
        assert "Give 'check --baseline A --current B', or 'check A B'" in done.err


def test_every_form_has_the_step(db: Path) -> None:
    for form in ("text", "md", "html"):
        done = collscope("compare", "default", "ringll", "--db", db, "--format", form)
        assert done.code == 0
        assert "exposed" in done.out
    done = collscope("compare", "default", "ringll", "--db", db, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert {row["part"] for row in rows if not row["op"]} == {
        "step", "unprofiled", "compute", "collectives", "exposed", "waiting", "idle",
    }  # fmt: skip
    assert {row["part"] for row in rows if row["op"]} == {"", "kernels"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("compare", "default", "alone"), 2, "'default' is a traced run, but 'alone' was measured"),
        (("compare", "default", "ringll", "--weights", "default"), 2, "Leave out --weights"),
        (("compare", "default", "ringl"), 3, "'ringl'"),
    ],
)
def test_what_cannot_be_compared(db: Path, words: tuple[str, ...], code: int, message: str) -> None:
    done = collscope(*words, "--db", db)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
