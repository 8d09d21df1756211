"""`collscope predict` and `collscope export perfetto` on the recorded A/B."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import collscope
from inputs import ROOT
from msgspec.structs import replace

from collscope.reports.predict.answer import PredictionRequest, predict_run
from collscope.reports.predict.text import render_prediction

# steps.jsonl of the recordings: median step without the profiler, ms
MEASURED = {"default": 5.7059, "ringll": 6.3022}
SCHEMA = ROOT / "schemas" / "predict.schema.json"

HEADER = (
    "op,datatype,redop,root,count,size_bytes,in_place,nranks,nnodes,calls,time_us_median,"
    "time_us_min,time_us_max,time_us_mad,iterations,algbw_gbps,busbw_gbps,n_wrong,method,backend,"
    "library,device,host,status"
)
# Half of what steps of `ringll` took: the largest AllReduce alone has a measurement.
ROW = (
    "AllReduce,Bfloat16,Sum,,33554432,67108864,1,4,1,3,361.0,350.0,372.0,4,30,,,0,batch,cuda,"
    "nccl 2.28.9,H200,n1,ok"
)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    """Both recorded settings, and measurements of one class."""
    folder = tmp_path_factory.mktemp("predict")
    for case in MEASURED:
        done = collscope(
            "ingest", "trace", samples / "traces" / case, "--db", folder / "a.db", "--run", case
        )
        assert done.code == 0, done.err
    table = folder / "half.csv"
    table.write_text(f"{HEADER}\n{ROW}\n")
    done = collscope("ingest", "csv", table, "--db", folder / "a.db", "--run", "ringll")
    assert done.code == 0, done.err
    return folder / "a.db"


@pytest.fixture(scope="module")
def unsized(db: Path, tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    """The same, and both settings as runs NAME-light of traces that tell no sizes."""
    folder = tmp_path_factory.mktemp("unsized")
    mine = Path(shutil.copy(db, folder / "a.db"))
    for case in MEASURED:
        (folder / case).mkdir()
        for path in sorted((samples / "traces" / case).glob("rank*.json.gz")):
            trace = json.loads(gzip.decompress(path.read_bytes()))
            for event in trace["traceEvents"]:
                for name in ("In msg nelems", "Out msg nelems"):
                    event.get("args", {}).pop(name, None)
            (folder / case / path.stem).write_text(json.dumps(trace))
        to_run = ("--db", mine, "--run", f"{case}-light")
        done = collscope("ingest", "trace", folder / case, *to_run)
        assert done.code == 0, done.err
    return mine


def predicted(db: Path, *arguments: str) -> dict[str, Any]:
    done = collscope("predict", "--db", db, "--format", "json", *arguments)
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    jsonschema.validate(found, json.loads(SCHEMA.read_text("utf-8")))
    return found


@pytest.mark.parametrize(("old", "new"), [("default", "ringll"), ("ringll", "default")])
def test_the_measured_change_both_ways(db: Path, old: str, new: str) -> None:
    """From one setting's traces and the other's class times: the other's measured step, 5 %."""
    found = predicted(db, "--run", old, "--with", new, "--step-ms", str(MEASURED[old]))
    assert found["step_ns"] == pytest.approx(1e6 * MEASURED[old])
    assert found["new_ns"] == pytest.approx(1e6 * MEASURED[new], rel=0.05)
    assert found["low_ns"] <= found["new_ns"] <= found["high_ns"]
    assert len(found["changed"]) == 6
    assert not found["unchanged"]
    assert (found["gain"] > 0) == (new == "default")
    # No overlap in this job: the uplift formula says the same.
    assert found["simple_ns"] == pytest.approx(found["new_ns"], rel=0.02)


@pytest.mark.parametrize("status", ["wrong", "failed", "timeout"])
def test_wrong_measurements_give_no_times(db: Path, tmp_path: Path, status: str) -> None:
    mine = Path(shutil.copy(db, tmp_path / "t.db"))
    other = predicted(db, "--run", "ringll", "--with", "half")["unchanged"][0]
    bad = ROW.replace(",ok", f",{status}")
    right = (
        f"{other['op']},{other['datatype']},,,{other['count']},{other['size_bytes']},,"
        f"{other['nranks']},1,3,1.0,,,,30,,,0,batch,cuda,,,,ok"
    )
    for name, rows in (("bad", [bad]), ("mixed", [bad, right])):
        table = tmp_path / f"{name}.csv"
        table.write_text("\n".join([HEADER, *rows, ""]))
        done = collscope("ingest", "csv", table, "--db", mine, "--run", "ringll")
        assert done.code == 0, done.err
    mixed = predicted(mine, "--run", "ringll", "--with", "mixed")
    assert (len(mixed["changed"]), len(mixed["unchanged"])) == (1, 5)
    assert {
        "code": "wrong_results",
        "values": {"classes": 1},
        "text": "1 class measured with wrong results, or failed: kept as recorded.",
    } in mixed["assumptions"]
    refused = collscope("predict", "--db", mine, "--run", "ringll", "--with", "bad")
    assert refused.code == 4
    assert "label 'bad' has no correct result: 1 measurement, all wrong or failed" in refused.err


def test_the_missing_side_is_named(db: Path, tmp_path: Path, samples: Path) -> None:
    mine = Path(shutil.copy(db, tmp_path / "t.db"))
    log = samples / "nccl" / "ddp"
    assert collscope("ingest", "log", log, "--db", mine, "--run", "logged").code == 0
    refused = collscope("predict", "--db", mine, "--run", "default", "--with", "logged")
    assert refused.code == 3
    assert "run 'logged' has no time of any class of run 'default'" in refused.err
    assert "there are" not in refused.err


def test_a_label_of_measurements(db: Path) -> None:
    """Its one class takes half the time: 722 to 361 us once a step; the others stay."""
    found = predicted(db, "--run", "ringll", "--with", "half")
    (changed,) = found["changed"]
    assert changed["new_ns"] == pytest.approx(361_000)
    assert len(found["unchanged"]) == 5
    saved = found["step_ns"] - found["new_ns"]
    assert saved == pytest.approx(changed["old_ns"] - 361_000, rel=0.1)
    # The same label before and after: nothing changes.
    same = predicted(db, "--run", "ringll", "--with", "half", "--from", "half")
    assert same["new_ns"] == pytest.approx(same["step_ns"], rel=1e-6)


def test_a_roof(db: Path) -> None:
    found = predicted(db, "--run", "ringll", "--system", "h200")
    assert found["new_ns"] < found["step_ns"]
    assert "h200" in found["times_from"]
    # classes faster than this roof keep their time: their median, as the table has it
    slow = predicted(db, "--run", "ringll", "--system", "pcie-gen3")["changed"]
    kept = [c for c in slow if c["new_ns"] == pytest.approx(c["old_ns"])]
    assert kept
    assert all(c["new_ns"] <= c["old_ns"] for c in slow)


def test_a_roof_is_no_time_in_the_job(db: Path) -> None:
    said = collscope("predict", "--db", db, "--run", "ringll", "--system", "h200").out
    assert "We assume that every collective reaches its reachable speed" in said
    assert "The new times are those of calls" not in said
    measured = collscope("predict", "--db", db, "--run", "ringll", "--with", "half").out
    assert "The new times are those of calls in a job, not alone." in measured


def test_text_states_assumptions(db: Path) -> None:
    done = collscope("predict", "--db", db, "--run", "ringll", "--with", "default")
    assert "ms (" in done.out
    found = predicted(db, "--run", "ringll", "--with", "default")
    shorter = 100 * (1 - found["new_ns"] / found["step_ns"])
    assert f"), {shorter:.1f} % shorter, with" in done.out
    longer = collscope("predict", "--db", db, "--run", "default", "--with", "ringll").out
    found = predicted(db, "--run", "default", "--with", "ringll")
    assert f"{100 * (found['new_ns'] / found['step_ns'] - 1):.1f} % longer" in longer
    assert "Simple estimate: " in done.out
    assert "Assumptions" in done.out
    assert done.out.count("x4") == 6


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--run", "ringll"], 2, "give either --with"),
        (["--run", "ringll", "--with", "a", "--system", "h200"], 2, "give either --with"),
        (
            ["--run", "ringll", "--with", "nothing"],
            3,
            "label 'nothing': no measurements or traced",
        ),
        (["--run", "nothing", "--with", "half"], 3, "no run 'nothing'"),
        (["--run", "default", "--with", "default"], 3, "label 'default' is the run itself"),
        (["--system", "h200", "--step-ms", "0"], 2, "Give more than 0"),
        (["--system", "h200", "--step-ms", "-3"], 2, "Give more than 0"),
        (["--system", "h200", "--step-ms", "nan"], 2, "Give more than 0"),
    ],
)
def test_what_cannot_be_asked(db: Path, arguments: list[str], code: int, text: str) -> None:
    done = collscope("predict", "--db", db, *arguments)
    assert done.code == code
    assert text in done.err


@pytest.mark.parametrize("command", [["predict", "--with", "half"], ["report", "--brief"]])
@pytest.mark.parametrize(
    ("step", "refused"),
    [
        (100.0, ": 100 times the recorded step of"),
        (0.01, ": 0.01 times the recorded step of"),
        (19.0, None),
        (0.06, None),
    ],
)
def test_a_step_in_another_unit_is_refused(
    db: Path, command: list[str], step: float, refused: str | None
) -> None:
    """Profilers make steps a few times as long at most: 20 times is another unit."""
    recorded = predicted(db, "--run", "ringll", "--with", "half")["recorded_ns"] / 1e6
    given = ("--step-ms", str(step * recorded), "--run", "ringll", "--db", db)
    done = collscope(*command, *given)
    assert done.code == (0 if refused is None else 2)
    assert (refused or "") in done.err
    assert ("Give milliseconds" in done.err) == (refused is not None)


@pytest.mark.parametrize(
    ("old_us", "new_us", "words"),
    [
        (5000.0, 5000.0, "no change"),
        (5000.0, 4999.9999, "no change"),
        (5000.0, 5001.0, "under 0.1 % longer"),
        (5000.0, 4999.0, "under 0.1 % shorter"),
        (5000.0, 6000.0, "20.0 % longer"),
        (5000.0, 4000.0, "20.0 % shorter"),
    ],
)
def test_a_step_that_stays_is_no_change(db: Path, old_us: float, new_us: float, words: str) -> None:
    said = predict_run(db, PredictionRequest("ringll", "half", "half"))
    old, new = 1e3 * old_us, 1e3 * new_us
    made = replace(said, step_ns=old, new_ns=new, simple_ns=new)
    for fmt in ("text", "md"):
        assert " ".join(render_prediction(made, fmt).split()).count(f", {words}") == 2


def test_a_trace_without_a_known_step_is_not_called_a_step(db: Path) -> None:
    said = predict_run(db, PredictionRequest("ringll", "default"))
    whole = replace(said, step_from="window")
    text = " ".join(render_prediction(whole, "text").split())
    assert "No step is known: the whole trace counts as one." in text
    assert f"Time of the whole trace {said.step_ns / 1e6:.4g} -> " in text
    given = " ".join(render_prediction(replace(whole, step_ns=5e6), "text").split())
    assert "No step is known" in given
    assert "Step time 5 -> " in given


def test_the_words_for_a_host_that_is_the_limit_hold_both_ways(db: Path) -> None:
    said = predict_run(db, PredictionRequest("ringll", "default"))
    bound = replace(
        said, knowledge=replace(said.knowledge, host_bound=0.56), new_ns=2 * said.step_ns
    )
    text = " ".join(render_prediction(bound, "text").split())
    assert "56 % of the launches found the GPU idle. While the host is the limit, other" in text
    assert "Faster collectives" not in text


def test_runs_of_different_collectives_are_refused(unsized: Path, tmp_path: Path) -> None:
    """No class of the one is one of the other: nothing would change."""
    wanted = ("--db", unsized, "--run", "default", "--with", "ringll-light")
    page = tmp_path / "a.json"
    for command in (("predict",), ("export", "perfetto", "-o", page)):
        refused = collscope(*command, *wanted)
        assert refused.code == 4
        assert (
            "'ringll-light' gives no class of run 'default' a time: the two share no" in refused.err
        )
        assert not refused.out
    assert not page.exists()


def test_what_lacks_is_the_sizes(unsized: Path) -> None:
    refused = collscope("predict", "--db", unsized, "--run", "default-light", "--system", "h200")
    assert refused.code == 4
    assert "sizes are not known. Ingest the job's logs, or trace with ProfilerAc" in refused.err
    assert "replay" not in refused.err


def test_the_other_runs_own_step_is_told(db: Path) -> None:
    """Beside the prediction: as predict of that run has it."""
    own = predicted(db, "--run", "ringll", "--with", "default")["recorded_ns"]
    wanted = ("--run", "default", "--with", "ringll")
    found = predicted(db, *wanted)
    assert found["other_step_ns"] == own
    assert found["low_ns"] <= own <= found["high_ns"]
    said = " ".join(collscope("predict", "--db", db, *wanted).out.split())
    told = f"Run ringll itself took {own / 1e6:.4g} ms a step with the profiler"
    assert f"{told}. The prediction does not use that time." in said
    given = collscope("predict", "--db", db, *wanted, "--step-ms", "5.7").out
    assert f"{told}. The prediction is for steps without it" in " ".join(given.split())
    beyond = replace(predict_run(db, PredictionRequest("default", "ringll")), other_step_ns=99e6)
    said = " ".join(render_prediction(beyond, "text").split())
    assert "99 ms a step with the profiler, outside the predicted range" in said
    for origin in (("--with", "half"), ("--system", "h200")):
        assert predicted(db, "--run", "ringll", *origin)["other_step_ns"] is None


def test_classes_of_unknown_size_show_means(unsized: Path) -> None:
    """One class holds all sizes: its mean is that of the sized classes, weighed by calls."""
    sized = predicted(unsized, "--run", "default", "--with", "ringll")["changed"]
    wanted = ("--run", "default-light", "--with", "ringll-light")
    mixed = predicted(unsized, *wanted)["changed"]
    assert all(c["collective_class"]["size_bytes"] is None for c in mixed)
    for side in ("old_ns", "new_ns"):
        one, other = (sum(c["calls"] * c[side] for c in found) for found in (sized, mixed))
        assert other == pytest.approx(one, rel=0.1)
    said = collscope("predict", "--db", unsized, *wanted).out
    assert "unknown size" in said
    assert "A class of unknown size may mix sizes, so its times are means." in " ".join(
        said.split()
    )
    sizes = collscope("predict", "--db", unsized, "--run", "default", "--with", "ringll").out
    assert "means" not in sizes


def test_classes_that_stay_have_no_empty_columns(unsized: Path) -> None:
    said = predict_run(unsized, PredictionRequest("default-light", "ringll-light"))
    kept = said.changed[0].collective_class
    text = render_prediction(replace(said, unchanged=(kept,)), "text")
    table = text.split("so kept as recorded:")[1].split("Assumptions")[0].splitlines()
    assert next(line.split() for line in table if line.strip()) == ["op", "type", "size"]
    assert any(line.endswith("unknown size") for line in table)


def test_a_run_without_traces(db_path: Path, samples: Path) -> None:
    collscope("ingest", "log", samples / "nccl" / "mixed-coll-only.log", "--db", db_path)
    done = collscope("predict", "--db", db_path, "--system", "h200")
    assert done.code == 3
    assert "has no traces" in done.err


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_export(db: Path, tmp_path: Path, name: str) -> None:
    """72 kernels on 4 ranks, each a transfer; arrows begin and end in pairs."""
    path = tmp_path / name
    done = collscope("export", "perfetto", "--db", db, "--run", "default", "-o", path)
    assert done.code == 0, done.err
    data = path.read_bytes()
    events = json.loads(gzip.decompress(data) if name.endswith("gz") else data)["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["pid"] for e in slices} == {0, 1, 2, 3}
    assert sum(e["cat"] == "transfer" for e in slices) == 72
    assert all(e["dur"] > 0 for e in slices)
    begins, ends = (sorted(e["id"] for e in events if e["ph"] == phase) for phase in "sf")
    assert begins == ends != []


def test_export_refuses_another_name(db: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    done = collscope("export", "perfetto", "--db", db, "--run", "default", "-o", path)
    assert done.code == 2
    assert ".json.gz" in done.err
    assert not path.exists()


def test_export_is_bounded(db: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    arguments = ("--db", db, "--run", "default", "-o", path, "--limit", "8")
    assert "without the 16 shortest calls" in collscope("export", "perfetto", *arguments).out
    assert sum(e.get("cat") == "transfer" for e in json.loads(path.read_text())["traceEvents"]) == 8


def test_the_digits_of_a_prediction_follow_its_range(db: Path) -> None:
    """A tenth of the range is the least that a digit stands for; of what was recorded there are
    four."""
    said = predict_run(db, PredictionRequest("default", "ringll"))
    for low, new, high, told in (
        (109_166.0, 114_203.0, 122_398.0, "114 ms (109 to 122), 42 % longer,"),
        (84_000.0, 84_250.0, 84_500.0, "84.25 ms (84.00 to 84.50), 4.5 % longer,"),
        (80_000.0, 80_900.0, 88_000.0, "80.9 ms (80.0 to 88.0), 0.4 % longer,"),
        (70_000.0, 80_900.0, 90_000.0, "81 ms (70 to 90), under 1 % longer,"),
        (80_600.0, 80_600.0, 80_600.0, "80.60 ms, no change,"),
    ):
        shown = replace(
            said, step_ns=80.6e6, low_ns=1e3 * low, new_ns=1e3 * new, high_ns=1e3 * high
        )
        assert f"Step time 80.6 -> {told}" in " ".join(render_prediction(shown, "text").split())
