"""`collscope bench backends`: what is planned, the statistics, the answer, the worker on gloo.

The worker runs where an interpreter has PyTorch: this one, or the one that COLLSCOPE_TORCH_PYTHON
names. tests/bench/stand_ins has packages with the interfaces of vLLM, SGLang and FlashInfer.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import jsonschema
import msgspec
import pytest
from command import collscope
from inputs import ROOT, SHARED
from store_builder import StoreBuilder

from collscope.bench import backends_worker as worker
from collscope.bench.backends import BackendsRequest, plan_of, read_demand
from collscope.bench.backends_plan import Demand, StepCalls, calls_in_steps, run_points
from collscope.errors import UsageError
from collscope.model import CollectiveClass, Datatype, Measurement, Op, Redop
from collscope.parsers import replay_csv
from collscope.reports.backends.answer import BackendsReport, BackendTime, build_backends
from collscope.stats import Samples, effects

STAND_INS = ROOT / "tests" / "bench" / "stand_ins"
WORKER = Path(worker.__file__)
DRIFT = (1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4)  # of the machine, over the launches
WOBBLE = (0.0, 0.004, -0.003, 0.002, -0.004, 0.003, 0.001, -0.002, -0.001)


def of_size(size: int | None, datatype: Datatype | None = Datatype.BFLOAT16) -> CollectiveClass:
    return CollectiveClass(Op.ALL_REDUCE, datatype, Redop.SUM, size_bytes=size, nranks=2)


def rows_of(
    times: Mapping[str, Sequence[float]],
    size: int = 8192,
    method: str = "graph",
    behind: str = "",
) -> list[Measurement]:
    return [
        Measurement(
            Op.ALL_REDUCE, Datatype.BFLOAT16, "Sum", size_bytes=size, nranks=2, nnodes=1,
            time_us_median=us, samples_us=(us,), n_wrong=0, method=method, library="nccl 2.30.7",
            device="NVIDIA H200", label=f"backends {behind}{name}", round=number,
        )
        for name, every in times.items()
        for number, us in enumerate(every)
    ]  # fmt: skip


def without_time(name: str, status: str, **more: object) -> Measurement:
    return Measurement(
        Op.ALL_REDUCE, Datatype.BFLOAT16, "Sum", size_bytes=8192, nranks=2, method="graph",
        label=f"backends {name}", status=status, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def drifting(us: float, sign: int = 1) -> list[float]:
    """Times with the drift that all backends meet, and a little noise of their own."""
    return [us * d * (1 + sign * w) for d, w in zip(DRIFT, WOBBLE, strict=True)]


def time_of(report: BackendsReport, backend: str, row: int = 0) -> BackendTime:
    return next(one for one in report.rows[row].backends if one.backend == backend)


def demand(*calls: StepCalls, step_ns: float = 1_418_000.0) -> Demand:
    return Demand("main", tuple((c.collective_class, 8) for c in calls), calls, step_ns)


def step_calls(found: CollectiveClass, calls: float, family: str = "nccl") -> StepCalls:
    return StepCalls(found, calls, family, 1000.0 * calls, 1000.0 * calls)


# What is planned.


def test_the_sizes_of_a_run_are_planned_most_bytes_first() -> None:
    asked = Demand(
        "main",
        (
            (of_size(8192), 10), (of_size(1 << 20), 1), (of_size(64), 9), (of_size(None), 99),
            (CollectiveClass(Op.ALL_REDUCE, size_bytes=4096, nranks=8), 5),
            (of_size(4096, Datatype.INT64), 50),
        ),
    )  # fmt: skip
    plan = run_points(asked, None, limit=2)
    # Most calls are on 2 ranks; 1 MiB and 10 x 8 KiB are most bytes. Backends have no integers.
    assert plan.nranks == 2
    assert [p.size_bytes for p in plan.points] == [8192, 1 << 20]
    assert run_points(asked, 8, limit=2).points == (worker.Point(4096, "Bfloat16"),)


def test_a_run_without_sizes_needs_one() -> None:
    asked = Demand("main", ((of_size(None), 24),))
    with pytest.raises(UsageError, match="--call-size"):
        run_points(asked, None, limit=9)
    assert run_points(asked.sized(524288), None, limit=9).points[0].size_bytes == 524288


def test_a_sweep_needs_ranks() -> None:
    plan = plan_of(BackendsRequest(nranks=2, sizes="8K..32K", datatype="float32"), None)
    assert [p.size_bytes for p in plan.points] == [8192, 16384, 32768]
    assert {p.datatype for p in plan.points} == {"Float32"}
    with pytest.raises(UsageError, match="-n RANKS"):
        plan_of(BackendsRequest(sizes="8K"), None)


def test_calls_of_a_step_are_those_of_the_rank_with_most() -> None:
    rows = [(of_size(8), "nccl", 0, 48, 480.0, 240.0), (of_size(8), "nccl", 1, 46, 460.0, 460.0)]
    (found,) = calls_in_steps(rows, {0: 2, 1: 2})
    assert (found.calls, found.duration_ns, found.exposed_ns) == (24.0, 240.0, 120.0)


def test_a_run_without_steps_has_no_calls_in_them() -> None:
    store = StoreBuilder()
    found = read_demand(store.connection, "main")
    assert (found.classes, found.in_steps, found.step_ns) == ((), (), None)


# The statistics.


def test_drift_that_all_backends_meet_is_no_difference() -> None:
    report = build_backends(rows_of({"nccl": drifting(20), "vllm": drifting(19, -1)}), None)
    one = time_of(report, "vllm")
    # 19 / 20 in each launch but for 0.4 % of noise, while the times drift by 40 %.
    assert one.ratio == pytest.approx(0.95, rel=0.004)
    assert one.ratio_low is not None
    assert one.ratio_high is not None
    assert 0.94 < one.ratio_low < one.ratio < one.ratio_high < 0.96
    assert (one.faster, report.rows[0].best) == (True, "vllm")


def test_a_difference_within_the_noise_is_none() -> None:
    times = {"nccl": drifting(20), "vllm": drifting(19.98, -1)}
    report = build_backends(rows_of(times), None)
    assert (time_of(report, "vllm").faster, report.rows[0].best) == (False, "nccl")


def test_the_hosts_noise_does_not_reach_calls_in_graphs() -> None:
    pair = (
        Samples({k: (t,) for k, t in enumerate(drifting(8))}),
        Samples({k: (t,) for k, t in enumerate(drifting(7.6, -1))}),
    )
    (launched,), (in_graphs,) = effects([pair]), effects([pair], in_graphs=True)
    assert launched.error is not None
    assert in_graphs.error is not None
    assert launched.error > 5 * in_graphs.error
    assert launched.log_ratio == in_graphs.log_ratio


def test_intervals_hold_the_true_ratio() -> None:
    """Of 300 measurements of 3 launches, log-normal noise of 1 %: at least 92 of 100."""
    rng = random.Random(31)
    held = 0
    for _ in range(300):
        drift = [math.exp(rng.gauss(0, 0.1)) for _ in range(3)]
        noisy = {
            name: [us * d * math.exp(rng.gauss(0, 0.01)) for d in drift]
            for name, us in (("nccl", 20.0), ("vllm", 18.0))
        }
        one = time_of(build_backends(rows_of(noisy), None), "vllm")
        held += (one.ratio_low or 9) <= 0.9 <= (one.ratio_high or 0)
    assert held >= 0.92 * 300


# The answer.


def test_a_step_wins_its_calls_times_the_difference() -> None:
    small = {"nccl": drifting(10), "torch-one-shot": drifting(8), "torch-two-shot": drifting(9)}
    large = {"nccl": drifting(100), "torch-one-shot": drifting(120), "torch-two-shot": drifting(80)}
    rows = [*rows_of(small), *rows_of(large, 1 << 20)]
    asked = demand(step_calls(of_size(8192), 24), step_calls(of_size(1 << 20, None), 2))
    # Behind other compute the large calls take as long, the small ones win nothing.
    rows += rows_of({name: drifting(10) for name in small}, behind="behind-copy ")
    rows += rows_of(large, 1 << 20, behind="behind-copy ")
    report = build_backends(rows, asked)
    assert [row.best for row in report.rows] == ["torch-one-shot", "torch-two-shot"]
    step = report.step
    assert step is not None
    # Medians over the launches: 1.2 times the first. (10 - 8) x 24 and (100 - 80) x 2.
    assert step.saved_ns == pytest.approx(1200 * (2 * 24 + 20 * 2), rel=0.01)
    assert step.saved_ns == pytest.approx(sum(row.saved_ns or 0 for row in report.rows))
    assert step.baseline_ns == pytest.approx(1200 * (10 * 24 + 100 * 2), rel=0.01)
    assert (step.calls, step.left_out, step.exposed_share) == (26, (), 1.0)
    assert step.saved_low_ns is not None
    assert step.saved_high_ns is not None
    # Gains of 2 and 0 of 18, 1 and 0 of 19 and twice no difference: squares of half of each, in
    # four degrees of freedom, whose t is 2.776; two kinds of compute differ by the root of 2.
    part = 2.776 * math.sqrt(2 * ((2 / 18) ** 2 + (1 / 19) ** 2) / 2 / 4)
    assert report.other_compute == pytest.approx(part, rel=0.02)
    other = part * 1200 * (18 * 24 + 180 * 2)
    assert step.saved_ns - step.saved_low_ns == pytest.approx(other, rel=0.1)
    assert step.saved_high_ns - step.saved_ns == pytest.approx(other, rel=0.1)


def test_calls_behind_one_kind_of_compute_give_no_range() -> None:
    rows = rows_of({"nccl": drifting(10), "vllm": drifting(8)})
    step = build_backends(rows, demand(step_calls(of_size(8192), 24))).step
    assert step is not None
    assert step.saved_ns > 0
    assert (step.saved_low_ns, step.saved_high_ns) == (None, None)


def test_steps_of_a_job_change_as_predicted() -> None:
    """Ten decode jobs on two H100: three models, float32 and bfloat16, three backends instead of
    NCCL (tests/recordings/h100x2-backends): what `bench backends` measured, and the job's steps."""
    folder = ROOT / "tests/recordings/h100x2-backends"
    rows = replay_csv.parse((folder / "backends.csv").read_text()).measurements
    times: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for row in csv.DictReader((folder / "steps.csv").read_text().splitlines()):
        key = tuple(row[name] for name in ("model", "hidden", "datatype", "size_bytes", "calls"))
        times.setdefault(key, {}).setdefault(row["backend"], []).append(float(row["us"]))
    near, held, changes = 0, 0, 0
    for (_, _, datatype, size, calls), of_backend in times.items():
        steps = {name: median(us) for name, us in of_backend.items()}
        key = of_size(int(size), Datatype.of_label(datatype))
        for name in steps.keys() - {"nccl"}:
            # Of this size the two, and all others: how compute changes them counts for all.
            chosen = [
                row
                for row in rows
                if row.size_bytes != int(size)
                or (row.label or "").rpartition(" ")[2] in ("nccl", name)
            ]
            report = build_backends(chosen, demand(step_calls(key, int(calls))))
            step = report.step
            assert step is not None
            assert step.saved_low_ns is not None
            assert step.saved_high_ns is not None
            real = steps["nccl"] - steps[name]
            if not step.saved_ns:  # a slower backend has no gain
                assert real < 0.05 * steps["nccl"]
                continue
            changes += 1
            near += abs(real - step.saved_ns / 1000) <= 0.05 * steps[name]
            held += step.saved_low_ns <= 1000 * real <= step.saved_high_ns
    assert changes >= 20
    assert near == changes
    assert held >= 0.9 * changes


def test_calls_without_a_measurement_are_not_in_the_gain() -> None:
    asked = demand(
        step_calls(of_size(8192), 24),
        step_calls(of_size(None), 3),
        step_calls(of_size(4096), 5),
        step_calls(CollectiveClass(Op.ALL_REDUCE, size_bytes=8192, nranks=8), 7),
        step_calls(of_size(8192), 9, family="custom"),
    )
    report = build_backends(rows_of({"nccl": drifting(10), "vllm": drifting(8)}), asked)
    step = report.step
    assert step is not None
    assert [(one.reason, one.calls_per_step) for one in step.left_out] == [
        ("size_unknown", 3), ("not_measured", 5), ("other_ranks", 7), ("other_backend", 9),
    ]  # fmt: skip
    assert step.calls == 24


def test_a_wrong_result_has_no_time() -> None:
    rows = [
        *rows_of({"nccl": drifting(10)}),
        without_time("vllm", "wrong", n_wrong=3),
        without_time("sglang", "skipped", message="not installed"),
        without_time("flashinfer", "failed", message="left out: no end after 25 s"),
    ]
    report = build_backends(rows, None)
    assert report.rows[0].best == "nccl"
    assert [(o.status, o.time_ns is None, o.n_wrong) for o in report.rows[0].backends] == [
        ("ok", False, 0), ("wrong", True, 3), ("skipped", True, None), ("failed", True, None),
    ]  # fmt: skip


def test_without_the_library_nothing_is_compared() -> None:
    rows = [without_time("nccl", "skipped", message="Duplicate GPU"), *rows_of({"a": drifting(9)})]
    report = build_backends(rows, None)
    assert (report.baseline, report.rows[0].best) == ("nccl", None)
    assert time_of(report, "a").ratio is None


# The worker.


def csv_of(launches: Sequence[Sequence[worker.Row]], tmp_path: Path, device: str = "") -> Path:
    """What the worker writes in so many launches."""
    path = tmp_path / "rows.csv"
    for number, rows in enumerate(launches):
        common: dict[str, object] = {
            "label": "backends", "nranks": 2, "method": "graph", "backend": "cuda",
            "device": f"NVIDIA H200{device}", "host": "n1", "round": number,
        }  # fmt: skip
        journal = worker._Journal(path, common)
        head = ["collscope-replay: 1", "classes: 1"]
        journal.begin(head, restarted=False, append=number > 0)
        journal.add(rows)
        journal.end(len(rows))
    return path


def measured_csv(tmp_path: Path, size: int = 8192, device: str = "") -> Path:
    """Nine launches of two backends, and one that is not there."""
    point = worker.Point(size, "Bfloat16")
    refused = worker.Row(0, point, "vllm", status="skipped", message='not installed, "vllm"')
    both = zip(drifting(20), drifting(15, -1), strict=True)
    launches = [
        [
            worker.Row(0, point, "nccl", "nccl 2.30.7", (us, us * 1.1, us * 0.9), 400, 0),
            worker.Row(0, point, "torch-one-shot", "torch 2.11.0", (other,), 400, 0),
            refused,
        ]
        for us, other in both
    ]
    return csv_of(launches, tmp_path, device)


def test_rows_of_the_worker_are_a_replay_csv(tmp_path: Path) -> None:
    path = measured_csv(tmp_path)
    found = replay_csv.parse(path.read_text())
    assert not found.diagnostics
    first, last = found.measurements[0], found.measurements[-1]
    assert (first.label, first.round, first.time_us_median) == ("backends nccl", 0, 20.0)
    assert first.samples_us == (20.0, 22.0, 18.0)
    # 8192 bytes in 20 us; 2 (n - 1) / n is 1 for two ranks.
    assert (first.algbw_gbps, first.busbw_gbps) == (pytest.approx(0.4096), pytest.approx(0.4096))
    assert (last.status, last.message) == ("skipped", 'not installed, "vllm"')
    assert not path.with_name("rows.csv.state").exists()


def test_a_measurement_that_was_stopped_is_known_to_be(tmp_path: Path) -> None:
    path = measured_csv(tmp_path)
    path.write_text(path.read_text().rpartition("# end")[0])
    assert {d.code for d in replay_csv.parse(path.read_text()).diagnostics} == {"no_end"}


def test_every_backend_begins_a_turn_once() -> None:
    names = ["a", "b", "c"]
    order = list(worker.turns(names, 3))
    assert [name for k, (_, name) in enumerate(order) if k % 3 == 0] == names
    assert sorted(order) == [(number, name) for number in range(3) for name in names]


def test_a_backend_that_hung_is_left_out_of_further_launches(tmp_path: Path) -> None:
    point = worker.Point(8192, "Bfloat16")
    hung = worker.Row(0, point, "vllm", status="failed", message="left out: no end after 25 s")
    hidden = worker.Row(0, point, "nccl", status="failed", message=worker._HIDDEN, kind="copy")
    rows = csv_of([[hung, hidden]], tmp_path).read_text()
    assert worker.failed_in(rows) == {"vllm": "no end after 25 s"}
    assert "backends behind-copy nccl" in rows


def test_one_launch_is_not_taken_for_many() -> None:
    """Samples of one launch agree better than launches do: 2 % are assumed of each backend."""
    times = {"nccl": [20.0], "vllm": [19.9]}
    rows = [
        msgspec.structs.replace(row, samples_us=tuple(us * w for w in (0.999, 1.0, 1.001)))
        for row, us in zip(rows_of(times), (20.0, 19.9), strict=True)
    ]
    one = time_of(build_backends(rows, None), "vllm")
    assert not one.faster
    assert one.ratio_low is not None
    assert one.ratio is not None
    assert one.ratio_low < one.ratio * (1 - 1.96 * 0.02 * math.sqrt(2) * 0.95)


def test_a_shared_gpu_is_known_to_be(tmp_path: Path) -> None:
    csv = measured_csv(tmp_path, device=worker.SHARED)
    found = collscope(
        "bench", "backends", "--from", csv, "--sizes", "8K", "--db", tmp_path / "none.db"
    )
    assert "Ranks shared a GPU. With a GPU for each rank, times" in found.out


def test_multimem_is_there_only_when_it_is_wanted() -> None:
    assert "torch-multimem" not in worker.backends_of("nccl", multimem=False)
    assert "torch-multimem" in worker.backends_of("nccl", multimem=True)
    assert next(iter(worker.backends_of("rccl", multimem=False))) == "rccl"


def torch_python() -> str:
    given = os.environ.get("COLLSCOPE_TORCH_PYTHON")
    if given is None and importlib.util.find_spec("torch") is None:
        pytest.skip("no PyTorch: COLLSCOPE_TORCH_PYTHON names an interpreter that has it")
    return given or sys.executable


def start(path: Path, **more: str) -> list[Measurement]:
    """Rows of the worker on two processes, with the stand-ins."""
    environment = {**os.environ, "PYTHONPATH": str(STAND_INS), "OMP_NUM_THREADS": "1", **more}
    subprocess.run(
        [
            torch_python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            "--max-restarts", "3", str(WORKER), "--points", "8192:Bfloat16,8388608:Float32",
            "--csv", str(path), "--turns", "3", "--device", "cpu", "--timeout", "6",
        ],
        env=environment, check=True, capture_output=True, timeout=200,
    )  # fmt: skip
    found = replay_csv.parse(path.read_text())
    assert not found.diagnostics
    return list(found.measurements)


def statuses(rows: Sequence[Measurement], size: int) -> dict[str, str]:
    return {(m.label or "").split()[1]: m.status for m in rows if m.size_bytes == size}


def test_the_worker_measures_and_verifies_every_backend(tmp_path: Path) -> None:
    rows = start(tmp_path / "rows.csv")
    assert statuses(rows, 8192) == {
        "gloo": "ok", "vllm": "ok", "sglang": "skipped", "flashinfer": "ok",
    }  # fmt: skip
    assert statuses(rows, 1 << 23)["vllm"] == "skipped"  # vLLM takes less than 8 MiB
    timed = [m for m in rows if m.status == "ok"]
    assert all(m.usable and m.n_wrong == 0 for m in timed)
    assert {len(m.samples_us) for m in timed} == {3}
    why = next(m.message for m in rows if m.label == "backends sglang")
    assert why == "sglang disables it here: see its log"


@pytest.mark.parametrize(
    ("how", "status", "why"),
    [
        ("wrong", "wrong", None),
        ("exit", "failed", "left out: it ended the process at 8192 bytes"),
        ("hang", "failed", "left out: no end after 6 s"),
    ],
)
def test_a_backend_that_fails_does_not_take_the_others_along(
    tmp_path: Path, how: str, status: str, why: str | None
) -> None:
    rows = start(tmp_path / "rows.csv", STAND_IN=how)
    assert statuses(rows, 8192) == {
        "gloo": "ok", "vllm": status, "sglang": "skipped", "flashinfer": "ok",
    }  # fmt: skip
    found = next(m for m in rows if m.label == "backends vllm")
    assert found.message == why
    # One rank has ones where the other has zeros: its own data are wrong wherever the other's is 1.
    assert (found.n_wrong or 0) > 0 or how != "wrong"


# The command.


def test_rows_from_elsewhere_are_answered(tmp_path: Path) -> None:
    csv, db = measured_csv(tmp_path), tmp_path / "none.db"
    found = collscope("bench", "backends", "--from", csv, "--sizes", "8K", "--db", db)
    assert found.code == 0
    assert "Another backend is faster than nccl at 1 of 1 size." in found.out
    assert 'vllm: skipped: not installed, "vllm".' in found.out
    answer = collscope(
        "bench", "backends", "--from", csv, "--sizes", "8K", "--db", db, "--format", "json"
    )
    schema = json.loads((ROOT / "schemas" / "backends.schema.json").read_text())
    jsonschema.validate(json.loads(answer.out), schema)
    for fmt in ("md", "csv"):
        other = collscope(
            "bench", "backends", "--from", csv, "--sizes", "8K", "--db", db, "--format", fmt
        )
        assert "torch-one-shot" in other.out


def test_the_gain_of_recorded_decode_steps(tmp_path: Path) -> None:
    """24 layers, one AllReduce of 32 x 8192 bfloat16 each, a step of 1.418 ms."""
    db, job = tmp_path / "job.db", SHARED / "recordings" / "h200x2-causes" / "infer-nccl"
    if not job.is_dir():
        pytest.skip("no recordings/h200x2-causes folder")
    traces = [job / f"light.b32.rank{rank}.json.xz" for rank in (0, 1)]
    assert collscope("ingest", "trace", *traces, "--db", db).code == 0
    csv = measured_csv(tmp_path, 32 * 8192 * 2)
    found = collscope(
        "bench", "backends", "--from", csv, "--call-size", "512K", "--db", db, "--format", "json"
    )
    step = json.loads(found.out)["step"]
    assert step["calls"] == 24
    # 1.2 times 20 us, and three quarters of it.
    assert step["saved_ns"] == pytest.approx(24 * 1200 * 5, rel=0.01)
    assert step["step_ns"] == pytest.approx(1_418_000, rel=0.03)
    unsized = collscope("bench", "backends", "--from", csv, "--sizes", "512K", "--db", db)
    assert "24 AllReduces a step are not in the gain: their size was not recorded" in unsized.out


def test_a_wrong_result_ends_the_command_with_an_error(tmp_path: Path) -> None:
    point = worker.Point(8192, "Bfloat16")
    rows = [
        worker.Row(0, point, "nccl", "nccl 2.30.7", (20.0,), 400, 0),
        worker.Row(0, point, "vllm", "vllm 0.0", n_wrong=7, status="wrong"),
    ]
    csv = csv_of([rows], tmp_path)
    found = collscope(
        "bench", "backends", "--from", csv, "--sizes", "8K", "--db", tmp_path / "none.db"
    )
    assert found.code == 6
    assert "wrong results by backends vllm" in found.err


def test_a_dry_run_prints_the_command(tmp_path: Path) -> None:
    found = collscope(
        "bench", "backends", "--sizes", "8K", "-n", "2", "--dry-run", "--db", tmp_path / "none.db"
    )
    assert found.out.startswith("torchrun --standalone --nproc-per-node 2 --max-restarts 8 ")
    lines = found.out.splitlines()
    assert len(lines) == 3
    assert "--points 8192:Bfloat16 --csv backends.csv --round 2 --append" in lines[2]
