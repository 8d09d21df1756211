"""`collscope compare`, `check` and `roofline` as commands: files, stores, exit codes, formats."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from command import Outcome, collscope
from inputs import ROOT
from measured_builder import key, label
from replay_files import Sweep, write_replay

from collscope.reports.check import answer as gate
from collscope.reports.check.text import render_check

SCHEMAS = ROOT / "schemas"
# 10 us + size / 100 GB/s at 64 KiB, 1 MiB, 16 MiB, 256 MiB.
TIMES = {1 << p: 10 + (1 << p) / 1e5 for p in (16, 20, 24, 28)}
SLOWER = {size: 1.2 * time for size, time in TIMES.items()}


def schema(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(document)
    return document


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the labels old, same, slow and the job `job` of 100 calls of 1 MiB."""
    folder = tmp_path_factory.mktemp("store")
    db, log = folder / "t.db", folder / "job.log"
    path = write_replay(
        folder / "all.csv",
        Sweep("old", TIMES, seed=1),
        Sweep("same", TIMES, seed=2),
        Sweep("slow", SLOWER, seed=3),
    )
    line = (
        "n1:1:1 [0] NCCL INFO AllReduce: opCount {n:x} sendbuff 0x7f00 recvbuff 0x7f00 count"
        " 262144 datatype 7 op 0 root 0 comm 0xaef8a00 [nranks=4] stream 0xac16b80\n"
    )
    log.write_text("".join(line.format(n=n) for n in range(100)))
    assert collscope("ingest", "csv", path, "--db", db).code == 0
    assert collscope("ingest", "log", log, "--db", db, "--run", "job").code == 0
    return db


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    """A copy of that store."""
    return Path(shutil.copy(built, tmp_path / "t.db"))


def check(store: Path, current: str, *more: str | Path) -> Outcome:
    return collscope("check", "--baseline", "old", "--current", current, "--db", store, *more)


# compare


def test_compare_prints_speed_ups_and_totals(store: Path) -> None:
    outcome = collscope("compare", "old", "slow", "--db", store)
    assert outcome.code == 0, outcome.err
    assert "4 common classes, each with equal weight" in outcome.out
    assert "AllReduce Float32 Sum, 4 ranks, in place" in outcome.out
    document = json.loads(
        collscope("compare", "old", "slow", "--db", store, "--format", "json").out
    )
    total = document["totals"][1]
    assert total["speed_up"] == pytest.approx(1 / 1.2, rel=0.01)
    assert total["low"] < 1 / 1.2 < total["high"]
    assert document["totals"][0]["low"] is None  # a label is not compared with itself


def test_a_table_in_two_runs_changes_nothing(tmp_path: Path, samples: Path) -> None:
    table, db = samples / "tables" / "frontier-allreduce.txt", tmp_path / "f.db"
    labels = ("No Plugin", "With Plugin")
    check = ("check", "--baseline", labels[0], "--current", labels[1], "--db", db)
    said = []
    for run in ("main", "two"):
        assert collscope("ingest", "table", table, "--run", run, "--db", db).code == 0
        said.append((collscope("compare", *labels, "--db", db).out, collscope(*check).out))
    assert said[0] == said[1]
    assert "nan" not in "".join(said[1])
    assert "4.677" in said[1][0]


def test_compare_takes_the_measurements_of_one_run(tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    for run, factor in (("a", 2.0), ("b", 3.0)):
        for name, times in (("old", TIMES), ("new", {s: t / factor for s, t in TIMES.items()})):
            path = write_replay(tmp_path / f"{run}-{name}.csv", Sweep(name, times, seed=1))
            assert collscope("ingest", "csv", path, "--run", run, "--db", db).code == 0
    for run, factor in (("a", 2.0), ("b", 3.0)):
        said = collscope("compare", "old", "new", "--run", run, "--db", db, "--format", "json")
        assert json.loads(said.out)["totals"][1]["speed_up"] == pytest.approx(factor, rel=0.02)


def test_compare_weights_by_the_calls_of_a_run(store: Path) -> None:
    outcome = collscope(
        "compare", "old", "slow", "--weights", "job", "--db", store, "--format", "json"
    )
    document = json.loads(outcome.out)
    weights = {row["key"]["size_bytes"]: row["weight"] for row in document["classes"]}
    assert weights == {1 << 16: 0, 1 << 20: 1, 1 << 24: 0, 1 << 28: 0}
    assert document["totals"][1]["time_ratio"] == pytest.approx(1.2, rel=0.02)
    assert any("measured 1 of 1 class, 100 % of its calls" in n["text"] for n in document["notes"])


def test_paired_ratios_are_told_from_quotients_of_times(store: Path) -> None:
    arguments = ("compare", "old", "slow", "--db", store)
    pairs = "Measured in turns: ratios and speed-ups are paired by round"
    assert pairs in collscope(*arguments).out
    assert pairs in check(store, "slow").out
    row = json.loads(collscope(*arguments, "--format", "json").out)["classes"][0]
    assert [cell["paired"] for cell in row["cells"]] == [False, True]


def test_more_ranks_than_a_node_has_are_told(tmp_path: Path) -> None:
    db, table = tmp_path / "t.db", SCHEMAS.parent / "samples/tables/frontier-allreduce.txt"
    assert collscope("ingest", "table", table, "--db", db).code == 0
    both = ("compare", "No Plugin", "With Plugin", "--db", db, "--system")
    told = " ".join(collscope(*both, "h200").out.split())
    assert "16 ranks are more than the 8 GPUs of one h200: compared with 2 of them over 8 x" in told
    alone = " ".join(collscope(*both, "pcie-gen3").out.split())
    assert "pcie-gen3 does not apply, and nothing is compared with it" in alone


def test_compare_csv_has_a_row_per_class_and_label(store: Path) -> None:
    outcome = collscope("compare", "old", "same", "slow", "--db", store, "--format", "csv")
    found = list(csv.DictReader(io.StringIO(outcome.out)))
    assert len(found) == 4 * 3
    assert {row["in_place"] for row in found} == {"1"}


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_compare_draws(store: Path, tmp_path: Path, ending: str) -> None:
    plot, again = tmp_path / f"curve.{ending}", tmp_path / f"again.{ending}"
    for path in (plot, again):
        drawing = ("--plot", path, "--system", "h200")
        outcome = collscope("compare", "old", "slow", "--db", store, *drawing)
        assert outcome.code == 0, outcome.err
    assert plot.read_bytes() == again.read_bytes()
    start = {"png": b"\x89PNG", "svg": b"<?xml"}[ending]
    assert plot.read_bytes().startswith(start)
    if ending == "svg":
        assert b"h200 reachable" in plot.read_bytes().replace(b"<!-- ", b"")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("old",), 2, "compare 'old': nothing to compare. Name two different labels (here: 'old',"),
        (("old", "old"), 2, "compare 'old' and 'old': nothing to compare."),
        (("old", "none"), 3, "label 'none': no measurements (labels: 'old', 'same', 'slow')."),
        (("old", "slo"), 3, "label 'slo': no measurements. Did you mean 'slow'"),
        (("old", "none.csv"), 3, "none.csv: no such file or folder."),
        (("old", "slow", "--run", "job"), 3, "--run names the run of the measurements. To weight"),
        (("old.csv", "slow.csv", "--run", "job"), 2, "use --weights job."),
        (("old", "slow", "--weights", "x"), 3, "no run 'x' (runs: 'job', 'main')"),
        (("old", "slow", "--run", "x"), 3, "no run 'x' (runs: 'job', 'main')"),
        (("old", "slow", "--weights", "main"), 3, "run 'main': no class of it was measured"),
        (("old", "slow", "--plot", "a.gif"), 2, "--plot a.gif: not .png, .svg or .pdf."),
        (
            ("old", "slow", "--plot", "no/folder/a.png"),
            3,
            "a.png: no such folder. Make it with 'mkdir -p no/folder'",
        ),
        (("old", "slow", "--system", "h20"), 3, "system 'h20': not known. Did you mean"),
    ],
)
def test_compare_refuses(store: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    outcome = collscope("compare", *arguments, "--db", store)
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err


def test_an_empty_store_says_what_to_do(tmp_path: Path, samples: Path) -> None:
    db = tmp_path / "t.db"
    none = collscope("compare", "a", "b", "--db", db)
    assert (none.code, "no such store" in none.err) == (3, True)
    assert collscope("ingest", "log", samples / "nccl" / "ddp", "--db", db).code == 0
    empty = collscope("check", "--baseline", "a", "--current", "b", "--db", db)
    assert empty.code == 3
    assert "label 'a': there are no measurements. Measure with collscope replay" in empty.err


def test_labels_without_a_common_class_are_refused(tmp_path: Path) -> None:
    paths = [
        write_replay(tmp_path / f"{size}.csv", Sweep("x", {size: 10.0})) for size in (1024, 2048)
    ]
    outcome = collscope("compare", *paths)
    assert outcome.code == 3
    assert "no common classes (size_bytes 1024 against 2048)" in outcome.err


# check


def test_verdicts_and_exit_codes(store: Path) -> None:
    same, slow = check(store, "same"), check(store, "slow")
    assert (same.code, slow.code) == (0, 1), same.out + slow.out
    assert same.out.startswith("collscope check: pass\n")
    assert "Compared 4 classes" in same.out
    assert slow.out.startswith("collscope check: regression\n")
    faster = collscope("check", "--baseline", "slow", "--current", "old", "--db", store)
    assert (faster.code, faster.out.splitlines()[0]) == (0, "collscope check: improvement")


def test_the_gate_looks_at_the_job_only(store: Path, tmp_path: Path) -> None:
    # Everything is slower but the one size that the job calls.
    times = {**SLOWER, 1 << 20: TIMES[1 << 20]}
    path = write_replay(tmp_path / "n.csv", Sweep("new", times, seed=4))
    assert collscope("ingest", "csv", path, "--db", store).code == 0
    assert check(store, "new").code == 1
    job = check(store, "new", "--weights", "job")
    assert job.code == 0, job.out
    assert "Compared 1 class" in job.out


def test_paths_need_no_store(tmp_path: Path) -> None:
    base = write_replay(tmp_path / "base.csv", Sweep("x", TIMES, seed=1))
    new = write_replay(tmp_path / "new.csv", Sweep("x", SLOWER, seed=2))
    missing = tmp_path / "missing.db"
    arguments = ("check", "--baseline", base, "--current", new, "--db", missing)
    outcome = collscope(*arguments)
    assert outcome.code == 1, outcome.err
    assert not missing.exists()
    # Rounds of two files did not take turns, whatever their numbers.
    document = json.loads(collscope(*arguments, "--format", "json").out)
    assert (document["baseline"], document["current"]) == (str(base), str(new))
    assert {row["paired"] for row in document["classes"]} == {False}


def test_rounds_of_one_file_are_pairs(store: Path) -> None:
    document = json.loads(check(store, "slow", "--format", "json").out)
    assert {row["paired"] for row in document["classes"]} == {True}


def test_a_path_and_a_label_together(store: Path, tmp_path: Path) -> None:
    new = write_replay(tmp_path / "new.csv", Sweep("old", SLOWER, seed=9))
    assert check(store, str(new)).code == 1


def test_a_control_raises_the_threshold(store: Path, tmp_path: Path) -> None:
    again = write_replay(tmp_path / "again.csv", Sweep("x", SLOWER, seed=5))
    outcome = check(store, "slow", "--control", again)
    assert outcome.code == 0, outcome.out
    assert "the control raises thresholds to" in outcome.out


def test_noise_gives_no_verdict(tmp_path: Path) -> None:
    noisy = [
        write_replay(tmp_path / f"{n}.csv", Sweep("x", TIMES, n, noise=0.2, rounds=1, samples=3))
        for n in (1, 2)
    ]
    outcome = collscope("check", "--baseline", noisy[0], "--current", noisy[1])
    assert outcome.code == 4
    assert "with noise low enough to judge" in " ".join(outcome.out.split())


def test_wrong_results_and_failures_are_regressions(store: Path, tmp_path: Path) -> None:
    right = {size: t for size, t in TIMES.items() if size < 1 << 28}
    bad = [
        Sweep("wrong", {1 << 28: 1.0}, seed=6, status="wrong", n_wrong=7, rounds=1),
        Sweep("wrong", TIMES, seed=6),
        Sweep("dead", {1 << 28: 1.0}, seed=7, status="failed"),
        Sweep("dead", right, seed=8),
    ]
    path = write_replay(tmp_path / "bad.csv", *bad)
    assert collscope("ingest", "csv", path, "--db", store).code == 0
    wrong, dead = check(store, "wrong"), check(store, "dead")
    assert (wrong.code, dead.code) == (1, 1)
    # One wrong round is enough, and its class has no time, whatever the other rounds say.
    assert "'wrong' has 1 class with wrong results (AllReduce of 268435456 B on 4 r" in wrong.out
    assert "wrong results  AllReduce  Float32/Sum  268435456      4  in          -" in wrong.out
    assert "'dead' has 1 class without a time (AllReduce of 268435456 B on 4 ranks)" in " ".join(
        dead.out.split()
    )


@pytest.fixture(scope="module")
def all_bad(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store with the labels wrong, dead (no right result) and half (two of four wrong)."""
    folder = tmp_path_factory.mktemp("bad")
    small, large = (
        {s: t for s, t in TIMES.items() if (s < 1 << 22) == is_} for is_ in (True, False)
    )
    path = write_replay(
        folder / "bad.csv",
        Sweep("wrong", TIMES, seed=6, status="wrong", n_wrong=7),
        Sweep("dead", TIMES, seed=7, status="failed"),
        Sweep("half", small, seed=8, status="wrong", n_wrong=1),
        Sweep("half", large, seed=9),
    )
    db = Path(shutil.copy(built, folder / "t.db"))
    assert collscope("ingest", "csv", path, "--db", db).code == 0
    return db


@pytest.mark.parametrize(
    ("label", "why"),
    [("wrong", "4 classes are wrong"), ("dead", "4 classes have no time")],
)
def test_a_side_without_a_right_result_gives_no_verdict(
    all_bad: Path, label: str, why: str
) -> None:
    sides = (("--baseline", label, "--current", "old"), ("--baseline", "old", "--current", label))
    for number, names in enumerate(sides):
        outcome = collscope("check", *names, "--db", all_bad, "--format", "json")
        document = json.loads(outcome.out)
        jsonschema.validate(document, schema("check"))
        assert (outcome.code, document["verdict"]) == (4, "no verdict")
        assert document["why"] == f"'{label}' has no right result: {why}."
        told = {(r["outcome"], r["baseline_ns"], r["ratio"]) for r in document["classes"]}
        if number == 0:
            assert told == {(f"baseline {'wrong' if label == 'wrong' else 'failed'}", None, None)}
        else:
            assert {row[0] for row in told} == {"wrong results" if label == "wrong" else "failed"}
            assert document["classes_missing"] == 4
            junit = ElementTree.fromstring(
                collscope("check", *names, "--db", all_bad, "--format", "junit").out
            )
            assert (junit.get("failures"), junit.get("skipped")) == ("4", "1")
    for names in (("old", label), (label, "old")):
        refused = collscope("compare", *names, "--db", all_bad)
        assert refused.code == 4
        assert (
            f"compare: label '{label}' has no right result: 4 classes, all wrong or failed. "
            "Measure again" in refused.err
        )


def test_compare_tells_wrong_classes_and_gives_them_no_numbers(all_bad: Path) -> None:
    for names in (("old", "half"), ("half", "old")):
        outcome = collscope("compare", *names, "--db", all_bad)
        assert outcome.code == 0
        text = " ".join(outcome.out.split())
        assert "half: 2 classes with wrong results, so without a time (AllReduce of 65536 B" in text
        document = json.loads(collscope("compare", *names, "--db", all_bad, "--format", "json").out)
        jsonschema.validate(document, schema("compare"))
        cells = {
            row["key"]["size_bytes"]: {cell["label"]: cell for cell in row["cells"]}
            for row in document["classes"]
        }
        assert {s: c["half"]["status"] for s, c in cells.items()} == {
            1 << 16: "wrong", 1 << 20: "wrong", 1 << 24: "ok", 1 << 28: "ok",
        }  # fmt: skip
        small = cells[1 << 16]
        assert {small["half"][name] for name in ("time_ns", "busbw_gbps", "speed_up")} == {None}
        assert (small["old"]["time_ns"] is None, small["old"]["speed_up"]) == (False, None)
        assert [total["classes"] for total in document["totals"]] == [2, 2]


def test_a_baseline_that_is_half_wrong_gives_no_verdict(all_bad: Path) -> None:
    outcome = collscope("check", "--baseline", "half", "--current", "old", "--db", all_bad)
    assert outcome.code == 4
    text = " ".join(outcome.out.split())
    assert "The baseline has no right result for 2 of its 4 classes. Measure it again." in text
    assert "half: 2 classes with wrong results, so without a time" in text


def test_rounds_of_a_file_are_not_those_of_the_store(tmp_path: Path) -> None:
    # Both are the first source of their store, with rounds of the same numbers.
    files = [write_replay(tmp_path / f"{n}.csv", Sweep(n, TIMES, seed=1)) for n in ("old", "new")]
    db = tmp_path / "t.db"
    assert collscope("ingest", "csv", files[0], "--db", db).code == 0
    outcome = check(db, str(files[1]), "--format", "json")
    assert {row["paired"] for row in json.loads(outcome.out)["classes"]} == {False}


def test_a_baseline_measured_again_in_part_gives_no_verdict(store: Path, tmp_path: Path) -> None:
    part = write_replay(tmp_path / "part.csv", Sweep("x", {1 << 16: TIMES[1 << 16]}, seed=5))
    outcome = check(store, str(part))
    assert outcome.code == 4
    text = " ".join(outcome.out.split())
    assert (
        "Too little was measured again. Missing: 3 of the baseline's 4 classes with 100 %" in text
    )
    assert "AllReduce of 268435456 B on 4 ranks" in text


def test_missing_classes_are_named_in_the_sentence(store: Path, tmp_path: Path) -> None:
    quick = sorted(TIMES)[:2]
    cut = write_replay(tmp_path / "c.csv", Sweep("x", {s: TIMES[s] for s in (*quick[1:], 1 << 28)}))
    # Half of the classes, 6 % of the time: they may not go unsaid.
    half = check(store, str(cut))
    assert (half.code, "Missing: 2 of the baseline's 4 classes" in half.out) == (4, True)
    more = write_replay(tmp_path / "m.csv", Sweep("x", {s: TIMES[s] for s in (*quick, 1 << 28)}))
    most = check(store, str(more))
    text = " ".join(most.out.split())
    assert most.code == 0
    assert " Missing: 1 of the baseline's 4 classes with 6 % of its time (AllReduce of 167" in text


def test_classes_of_the_run_that_are_missing_are_told(store: Path, tmp_path: Path) -> None:
    times = {size: t for size, t in TIMES.items() if size != 1 << 16}
    new = write_replay(tmp_path / "n.csv", Sweep("x", times, seed=5))
    assert check(store, str(new), "--weights", "job").code == 0
    gone = write_replay(tmp_path / "g.csv", Sweep("x", {1 << 16: 11.0}, seed=5))
    outcome = check(store, str(gone), "--weights", "job", "--format", "json")
    document = json.loads(outcome.out)
    assert (outcome.code, document["classes_common"]) == (4, 0)
    assert any("measured 1 of 1 class," in n["text"] for n in document["notes"])
    few = write_replay(tmp_path / "f.csv", Sweep("x", {1 << 16: 11.0, 1 << 28: 2700.0}, seed=5))
    log = tmp_path / "two.log"
    line = (
        "n1:1:1 [0] NCCL INFO AllReduce: opCount {n:x} sendbuff 0x7f00 recvbuff 0x7f00 count"
        " {count} datatype 7 op 0 root 0 comm 0xaef8a00 [nranks=4] stream 0xac16b80\n"
    )
    counts = (1 << 18, 1 << 14, 1 << 26)  # 1 MiB, which `few` lacks, 64 KiB and 256 MiB
    log.write_text("".join(line.format(n=n, count=count) for n, count in enumerate(counts)))
    assert collscope("ingest", "log", log, "--db", store, "--run", "two").code == 0
    missing = json.loads(check(store, str(few), "--weights", "two", "--format", "json").out)
    assert missing["classes_missing"] == 1
    assert "Missing: 1 of the baseline's 3 classes" in missing["why"]


@pytest.mark.parametrize("command", ["compare", "check"])
def test_damaged_rows_of_a_file_are_told(tmp_path: Path, command: str) -> None:
    base = write_replay(tmp_path / "base.csv", Sweep("x", TIMES, seed=1))
    torn = tmp_path / "torn.csv"
    lines = base.read_text().splitlines()
    torn.write_text("\n".join([*lines[:-1], lines[-1][:40]]) + "\n")
    given = (base, torn) if command == "compare" else ("--baseline", base, "--current", torn)
    outcome = collscope(command, *given, "--format", "json")
    notes = json.loads(outcome.out)["notes"]
    assert any(n["text"].startswith(f"{torn}: data_loss: 1 x torn_row: Rows") for n in notes), notes


def test_values_above_the_roof_are_impossible(store: Path, tmp_path: Path) -> None:
    possible = check(store, "same", "--system", "h200")
    assert (possible.code, "impossible" in possible.out) == (0, False)
    # 9, 76, 141 and 149 GB/s; a PCIe 3 slot carries 15.75.
    some = check(store, "same", "--system", "pcie-gen3")
    assert some.code == 0
    assert "which is impossible: the limit is 15.75" in " ".join(some.out.split())
    document = json.loads(check(store, "same", "--system", "pcie-gen3", "--format", "json").out)
    found = [(v["label"], v["key"]["size_bytes"].bit_length() - 1) for v in document["impossible"]]
    assert found == [(label, p) for label in ("old", "same") for p in (20, 24, 28)]
    fast = write_replay(tmp_path / "f.csv", Sweep("x", {1 << 28: 100.0, 1 << 26: 25.0}, seed=1))
    again = write_replay(tmp_path / "g.csv", Sweep("x", {1 << 28: 100.0, 1 << 26: 25.0}, seed=2))
    every = collscope("check", "--baseline", fast, "--current", again, "--system", "h200")
    assert every.code == 4
    assert "Every class is faster than h200 can be" in every.out


@pytest.mark.parametrize("fmt", ["text", "md", "json", "junit", "github"])
def test_every_format_of_a_check(store: Path, tmp_path: Path, fmt: str) -> None:
    target = tmp_path / "out"
    outcome = check(store, "slow", "--format", fmt, "-o", target)
    assert (outcome.code, outcome.out) == (1, "")
    text = target.read_text()
    assert "regression" in text
    if fmt == "junit":
        assert ElementTree.fromstring(text).attrib["failures"] == "5"
    if fmt == "json":
        jsonschema.validate(json.loads(text), schema("check"))


def test_junit_of_nothing(tmp_path: Path) -> None:
    a = write_replay(tmp_path / "a.csv", Sweep("x", {1024: 10.0}))
    b = write_replay(tmp_path / "b.csv", Sweep("x", {2048: 10.0}))
    outcome = collscope("check", "--baseline", a, "--current", b, "--format", "junit")
    assert outcome.code == 4
    suite = ElementTree.fromstring(outcome.out)
    assert [case.attrib["name"] for case in suite.findall("testcase")] == ["verdict"]
    assert (suite.attrib["tests"], suite.attrib["skipped"]) == ("1", "1")


def test_junit_of_a_label_with_control_characters() -> None:
    found = gate.check(label("a\x1b\x00", {key(1): {0: (1.0,)}}), label("b", {key(2): {0: (1.0,)}}))
    suite = ElementTree.fromstring(render_check(found, "junit"))
    assert suite.attrib["name"] == "collscope check a?? b"


def test_a_control_of_other_classes_is_refused(store: Path, tmp_path: Path) -> None:
    other = write_replay(tmp_path / "other.csv", Sweep("x", {1024: 10.0}))
    outcome = check(store, "same", "--control", other)
    assert outcome.code == 3
    assert f"control '{other}': no class in common with 'old'." in outcome.err
    assert check(store, "same", "--threshold", "nan").code == 2


def test_check_refuses(store: Path, tmp_path: Path) -> None:
    assert collscope("check", "--baseline", "old", "--db", store).code == 2
    twice = check(store, "old")
    assert (twice.code, "check 'old' and 'old'" in twice.err) == (2, True)
    two = write_replay(tmp_path / "two.csv", Sweep("a", TIMES), Sweep("b", TIMES))
    several = check(store, str(two))
    assert several.code == 2
    assert f"{two}: holds 2 labels (a, b)." in several.err
    table = tmp_path / "my table.txt"
    table.write_text("# no label\n")
    for db in (store, tmp_path / "none.db"):
        unread = check(db, str(table))
        hint = f"'collscope ingest table '{table}' --label 'my table'', then name the label"
        assert (unread.code, f"'{table}': a file, not a label" in unread.err) == (2, True)
        assert hint in unread.err
    (tmp_path / "empty.csv").write_text("")
    empty = check(store, str(tmp_path / "empty.csv"))
    assert (empty.code, "the file is empty. Name a CSV" in empty.err) == (3, True)


# roofline


def test_roofline_lists_systems() -> None:
    outcome = collscope("roofline", "--list", "--format", "csv")
    found = list(csv.DictReader(io.StringIO(outcome.out)))
    assert len(found) >= 30
    assert {"mi300x", "h100", "frontier", "slingshot-11"} <= {row["name"] for row in found}


def test_roofline_of_a_system() -> None:
    outcome = collscope("roofline", "--system", "frontier", "--ranks", "16", "--nodes", "2")
    assert outcome.code == 0
    assert "limit: the most that the fabric allows" in outcome.out
    assert "2 equal nodes, a non-blocking network, all 4 NICs used" in outcome.out
    document = json.loads(
        collscope(
            "roofline", "--system", "frontier", "--nodes", "2", "--op", "all_gather",
            "--format", "json",
        ).out
    )  # fmt: skip
    assert [row["op"] for row in document["bounds"]] == ["AllGather"]
    # roofline/bounds.py: (n - 1) B_N / (g (N - 1)) = 15 * 100 / 8
    assert document["bounds"][0]["limit_gbps"] == pytest.approx(187.5)
    assert {row["limit"] for row in document["roofs"]} == {"network"}


def test_roofline_fits_a_label(store: Path) -> None:
    arguments = ("roofline", "--system", "h200", "--ranks", "4", "--db", store, "--fit")
    document = json.loads(collscope(*arguments, "old", "--format", "json").out)
    assert [row["size_bytes"] for row in document["roofs"]] == list(TIMES)
    for row in document["roofs"]:
        assert row["roof"] == "h200 fit"
        assert row["time_ns"] == pytest.approx(1000 * TIMES[row["size_bytes"]], rel=0.02)
    other = collscope(*arguments, "old", "--op", "AllGather")
    assert other.code == 4
    assert "measured: AllReduce with 4 ranks on 1 node)" in other.err
    unknown = collscope(*arguments, "odl")
    assert unknown.code == 3
    assert "label 'odl': no measurements. Did you mean 'old'?" in unknown.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "roofline: give --list, or one system"),
        (("--list", "--system", "h100"), 2, "roofline: give --list, or one system"),
        (("--system", "frontire", "--ranks", "8"), 3, "Did you mean frontier"),
        (
            ("--system", "h100", "--ranks", "16"),
            2,
            "16 per node, but a node has 8 GPUs. Give --nodes",
        ),
        (("--system", "h100", "--ranks", "1"), 2, "one rank moves no data"),
        (("--system", "ib-ndr"), 2, "a network alone, without links between GPUs"),
        (
            ("--system", "h100", "--op", "Barrier"),
            2,
            "--op Barrier: this operation has no ceilings.",
        ),
    ],
)
def test_roofline_refuses(arguments: tuple[str, ...], code: int, message: str) -> None:
    outcome = collscope("roofline", *arguments)
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err


# JSON


def test_json_follows_its_schema(store: Path) -> None:
    commands = {
        "compare": [("old", "slow"), ("old", "same", "slow", "--weights", "job")],
        "roofline": [("--list",), ("--system", "h100+8xib-ndr", "--ranks", "16", "--nodes", "2")],
    }
    for name, arguments in commands.items():
        for given in arguments:
            outcome = collscope(name, *given, "--db", store, "--format", "json")
            document = json.loads(outcome.out)
            jsonschema.validate(document, schema(name))
            assert document["schema"] == schema(name)["properties"]["schema"]["const"]
    for current, code in (("same", 0), ("slow", 1)):
        outcome = check(store, current, "--format", "json", "--system", "pcie-gen3")
        assert outcome.code == code
        jsonschema.validate(json.loads(outcome.out), schema("check"))


@pytest.mark.parametrize(
    "command", [("compare", "old", "same"), ("report", "--run", "job")], ids=lambda c: c[0]
)
def test_labels_of_a_store_and_a_run_without_traces_load_no_numpy(
    store: Path, command: tuple[str, ...]
) -> None:
    script = (
        f"import sys; sys.argv = {['collscope', *command, '--db', str(store)]!r}\n"
        "from collscope.cli import main\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code, ended.code\n"
        "sys.exit('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
