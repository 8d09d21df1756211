"""The built replayer under mpiexec on the host backend: results, timing columns and failures.

Faults are injected into a build of their own (`collscope-replayer-test`, which `make native` makes,
with sanitizers); the rest runs the program that was installed.
"""

from __future__ import annotations

import csv
import os
import subprocess
from itertools import product
from pathlib import Path

import msgspec
import pytest
from inputs import ROOT

from collscope.model import (
    Datatype,
    Op,
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
    parse_op,
    size_bytes,
    transfers_size_bytes,
)
from collscope.programs import installed_replayer, launchers
from collscope.replay.plan import ONLY_TRANSFERS, REPLAYED

_TEST_BUILD = ROOT / "build" / "sanitized" / "native" / "replayer" / "collscope-replayer-test"
_DATATYPES = (
    "Int8", "Uint8", "Int32", "Uint32", "Int64", "Uint64",
    "Float16", "Float32", "Float64", "Bfloat16", "Float8e4m3", "Float8e5m2",
)  # fmt: skip
_REDOPS = ("Sum", "Prod", "Max", "Min", "Avg")
_HEAD = "collscope-plan 1\nmode {mode}\nnranks 4\ncomm 0 0-3\ncomm 1 0,2\ncomm 2 3,1\n"
_SMALL = _HEAD.format(mode="unique") + (
    "class 0 op=AllReduce datatype=Bfloat16 redop=Avg count=99 in_place=1 calls=26 comms=1,2\n"
    "class 1 op=Broadcast datatype=Float32 count=64 root=0 calls=13 comms=0\n"
    "class 2 op=AllToAllv datatype=Float32 shape=alltoallv calls=2 comms=0\n"
    "transfers 2 0 0>1:24 1>2:48 2>3:16\n"
)
_SHAPES = {
    ("alltoallv", "AllToAllv"): "0>0:5 0>1:7 1>2:20 3>0:1 2>2:9 1>3:4",
    ("shift", "SendRecv"): "0>1:33 1>2:33 2>3:33 3>0:33",
    ("sendrecv", "SendRecv"): "2>1:40",
    ("gather", "Gather"): "0>2:8 1>2:8 2>2:8 3>2:8",
    ("scatter", "Scatter"): "1>0:8 1>1:8 1>2:8 1>3:8",
    ("alltoall", "AllToAll"): " ".join(f"{a}>{b}:6" for a, b in product(range(4), repeat=2)),
}


class Outcome(msgspec.Struct, frozen=True):
    """What a run left behind."""

    code: int
    err: str
    csv: Path

    def rows(self) -> list[dict[str, str]]:
        lines = self.csv.read_text().splitlines()
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))

    def statuses(self) -> dict[str, str]:
        return {row["class_id"]: row["status"] for row in self.rows()}


class Replayer(msgspec.Struct, frozen=True):
    """Runs a program on plans below a folder."""

    program: Path
    folder: Path

    def __call__(
        self, plan: str, *options: str, ranks: int = 4, env: dict[str, str] | None = None
    ) -> Outcome:
        path, out = self.folder / "a.plan", self.folder / "out.csv"
        path.write_text(plan)
        fixed = ("--csv", str(out), "--backend", "host", "--budget", "1e-6")
        words = [str(path), *fixed, *options]
        # MPICH keeps memory until the end; the leak checker would report it.
        environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"} | (env or {})
        done = subprocess.run(
            [launchers()[0], "-n", str(ranks), self.program, *words],
            capture_output=True, text=True, env=environment, timeout=300, check=False,
        )  # fmt: skip
        return Outcome(done.returncode, done.stderr, out)


@pytest.fixture
def replayer(tmp_path: Path) -> Replayer:
    program = installed_replayer()
    if program is None or not launchers():
        pytest.skip("collscope-replayer or mpiexec is not installed")
    return Replayer(program, tmp_path)


@pytest.fixture
def faulty(tmp_path: Path) -> Replayer:
    program = Path(os.environ.get("COLLSCOPE_REPLAYER_TEST", _TEST_BUILD))
    if not program.is_file() or not launchers():
        pytest.skip("no collscope-replayer-test; run `make native`")
    return Replayer(program, tmp_path)


def _every_class() -> tuple[list[str], list[str]]:
    """Lines of all classes, and of steps that group those of one operation and datatype."""
    lines: list[str] = []
    groups: dict[tuple[str, str], list[str]] = {}

    def add(op: str, datatype: str, comms: str, keys: str) -> int:
        number = sum(line.startswith("class") for line in lines)
        lines.append(f"class {number} op={op} datatype={datatype} comms={comms} {keys}")
        items = groups.setdefault((op, datatype), [])
        items += [f"{number}@{comm}" for comm in comms.split(",")]
        return number

    for datatype, (comms, size), in_place in product(_DATATYPES, (("0", 4), ("1,2", 2)), (0, 1)):
        common = f"count=37 in_place={in_place}"
        for op, redop in product(("AllReduce", "ReduceScatter"), _REDOPS):
            add(op, datatype, comms, f"{common} redop={redop}")
        for op in ("AllGather", "AllToAll"):
            add(op, datatype, comms, common)
        for root in range(size):
            for redop in _REDOPS:
                add("Reduce", datatype, comms, f"{common} root={root} redop={redop}")
            for op in ("Broadcast", "Gather", "Scatter"):
                add(op, datatype, comms, f"{common} root={root}")
    for datatype, ((shape, op), transfers) in product(_DATATYPES, _SHAPES.items()):
        number = add(op, datatype, "0", f"shape={shape}")
        lines.append(f"transfers {number} 0 {transfers}")
    return lines, [f"step {' '.join(items)}" for items in groups.values()]


def test_every_combination_is_right(replayer: Replayer) -> None:
    # Steps that group many classes are verified together, which takes far fewer messages than
    # mode unique; what a class does is the same.
    classes, steps = _every_class()
    plan = "\n".join([_HEAD.format(mode="sequence"), *classes, *steps, ""])
    done = replayer(plan, "--repeat", "1")
    assert (done.code, done.err) == (0, "")
    rows = done.rows()
    assert len(rows) == 12 * (4 * (5 + 5 + 2) + 2 * (4 + 2) * (5 + 3) + len(_SHAPES)) + 1
    measured = [row for row in rows if row["op"] != "Sequence"]
    assert {(row["status"], row["n_wrong"], row["checked"]) for row in measured} == {
        ("ok", "0", "all")
    }


def test_csv_agrees_with_an_independent_computation(replayer: Replayer) -> None:
    done = replayer(_SMALL, "--label", "base, old", "--round", "2", "--budget", "0.01")
    assert done.code == 0
    text = done.csv.read_text()
    for line in ("# collscope-replay: 1", "# mode: unique", "# backend: host", "# nranks: 4"):
        assert line in text.splitlines()
    rows = done.rows()
    assert [row["calls"] for row in rows] == ["26", "13", "2"]
    assert [row["nranks"] for row in rows] == ["2", "4", "4"]
    assert [row["comms"] for row in rows] == ["1,2", "0", "0"]
    assert {(row["label"], row["round"], row["method"]) for row in rows} == {
        ("base, old", "2", "batch")
    }
    for row in rows:
        _check_figures(row)


def _check_figures(row: dict[str, str]) -> None:
    op = parse_op(row["op"])
    nranks, time_s = int(row["nranks"]), float(row["time_us_median"]) / 1e6
    datatype = Datatype(row["datatype"])
    size = 48 * 4  # of the transfers: rank 1 sends most
    if row["count"]:
        size = size_bytes(op, count=int(row["count"]), datatype=datatype, nranks=nranks)
    assert int(row["size_bytes"]) == size
    algbw = algorithm_bandwidth(size, time_s)
    busbw = bus_bandwidth(op, size=size, time_s=time_s, nranks=nranks)
    assert float(row["algbw_gbps"]) == pytest.approx(algbw, rel=1e-4)
    assert float(row["busbw_gbps"]) == pytest.approx(busbw, rel=1e-4)
    samples = sorted(float(sample) for sample in row["samples_us"].split(";"))
    assert [float(row["time_us_min"]), float(row["time_us_max"])] == [samples[0], samples[-1]]
    assert int(row["iterations"]) % len(samples) == 0


def test_sizes_and_factors_are_those_of_the_table(replayer: Replayer) -> None:
    comms = {2: "comm 1 0,1", 3: "comm 2 0,1,2", 4: "comm 0 0,1,2,3"}
    lines = ["collscope-plan 1", "mode unique", "nranks 4", *comms.values()]
    wanted = []
    for op, (nranks, comm) in product(REPLAYED, comms.items()):
        number, key = len(wanted), comm.split()[1]
        redop = " redop=Sum" if op.reduces else ""
        root = " root=0" if op.rooted else ""
        if op in ONLY_TRANSFERS:
            shape = "shift" if op is Op.SEND_RECV else "alltoallv"
            pairs = [(r, (r + 1) % nranks, 5) for r in range(nranks)]
            lines.append(f"class {number} op={op.value} datatype=Int8 comms={key} shape={shape}")
            lines.append(
                f"transfers {number} {key} {' '.join(f'{s}>{d}:{n}' for s, d, n in pairs)}"
            )
            size = transfers_size_bytes(op, nranks, pairs)
        else:
            keys = f"datatype=Int8 comms={key} count=5{redop}{root}"
            lines.append(f"class {number} op={op.value} {keys}")
            size = size_bytes(op, count=5, datatype=Datatype.INT8, nranks=nranks) or 0
        wanted.append((op.value, nranks, size, bus_factor(op, nranks)))
    found = [
        (
            row["op"], int(row["nranks"]), int(row["size_bytes"]),
            pytest.approx(float(row["busbw_gbps"]) / float(row["algbw_gbps"]), rel=1e-3),
        )
        for row in replayer("\n".join([*lines, ""])).rows()
    ]  # fmt: skip
    assert found == wanted


def test_isolated_calls_are_samples(replayer: Replayer) -> None:
    rows = replayer(_SMALL, "--isolated").rows()
    assert {row["method"] for row in rows} == {"isolated"}
    assert all(int(row["iterations"]) == len(row["samples_us"].split(";")) for row in rows)


def test_no_verification_leaves_the_column_empty(replayer: Replayer) -> None:
    done = replayer(_SMALL, "--verify", "0")
    assert done.code == 0
    assert {(row["n_wrong"], row["checked"]) for row in done.rows()} == {("", "")}


def test_huge_buffers_are_checked_in_part(replayer: Replayer) -> None:
    plan = _HEAD.format(mode="unique") + "class 0 op=AllGather datatype=Int32 count=9999 comms=0\n"
    (row,) = replayer(plan, "--verify-limit", "4096").rows()
    assert (row["status"], row["n_wrong"], row["checked"]) == ("ok", "0", "sample")


def test_sequence_has_its_own_row(replayer: Replayer) -> None:
    steps = "step 0@1\nstep 0@2 1@0\nstep 2@0\n" * 3
    done = replayer(_SMALL.replace("unique", "sequence") + steps, "--repeat", "2")
    assert done.code == 0
    *classes, total = done.rows()
    assert [(row["class_id"], row["iterations"]) for row in classes] == [
        ("0", "6"), ("1", "3"), ("2", "3"),
    ]  # fmt: skip
    assert {row["method"] for row in (*classes, total)} == {"sequence"}
    assert {row["n_wrong"] for row in classes} == {"0"}
    assert (total["op"], total["count"], total["iterations"]) == ("Sequence", "9", "2")
    assert float(total["time_us_median"]) > 0
    again = replayer(_SMALL.replace("unique", "sequence") + steps, "--resume")
    assert again.rows() == [*classes, total]


def test_out_of_memory_fails_one_class(replayer: Replayer) -> None:
    huge = "class 3 op=AllReduce datatype=Float32 redop=Sum count=1000000000000 comms=0\n"
    done = replayer(_SMALL + huge)
    assert done.code == 6
    assert done.statuses() == {"0": "ok", "1": "ok", "2": "ok", "3": "failed"}
    assert "out of memory" in done.rows()[3]["message"]
    assert "class 3 (AllReduce Float32 Sum, 4000000000000 bytes, 4 ranks): failed" in done.err
    steps = "step 0@1\nstep 3@0\n"
    done = replayer((_SMALL + huge).replace("unique", "sequence") + steps)
    assert done.code == 6
    assert done.statuses() == {"0": "ok", "3": "failed", "": "failed"}


def test_bad_plans_are_refused_by_line(replayer: Replayer) -> None:
    done = replayer("collscope-plan 2\n", ranks=2)
    assert done.code == 3
    assert "a.plan: line 1: plan version `2` is unknown" in done.err
    done = replayer(_SMALL + "speed 9\n", ranks=2)
    assert done.code == 3
    assert "a.plan: line 11: statement `speed` is unknown" in done.err
    done = replayer(_SMALL, ranks=2)
    assert done.code == 3
    assert "it needs 4 ranks, and there are 2" in done.err
    assert not done.csv.exists()


def test_usage_is_refused(replayer: Replayer) -> None:
    done = replayer(_SMALL, "--fast", ranks=1)
    assert done.code == 2
    assert "`--fast` is unknown" in done.err
    assert replayer(_SMALL, "--graph").code == 2  # the host has none


def test_unwritable_csv_is_refused(replayer: Replayer) -> None:
    done = replayer(_SMALL, "--csv", "/nonexistent/out.csv")
    assert done.code == 3
    assert "/nonexistent/out.csv: No such file or directory." in done.err
    full = replayer(_SMALL, "--csv", "/dev/full")
    assert full.code == 3
    assert "/dev/full: No space left on device." in full.err


def test_missing_library_is_told(replayer: Replayer) -> None:
    done = replayer(_SMALL, "--backend", "cuda", "--library", "/nonexistent/libnccl.so")
    assert done.code == 5
    assert "/nonexistent/libnccl.so" in done.err


def test_append_adds_rows_of_another_setting(replayer: Replayer) -> None:
    assert replayer(_SMALL, "--label", "a").code == 0
    done = replayer(_SMALL, "--label", "b", "--append")
    assert done.code == 0
    assert [row["label"] for row in done.rows()] == ["a"] * 3 + ["b"] * 3


def test_resume_keeps_what_is_finished(replayer: Replayer) -> None:
    first = replayer(_SMALL)
    kept = first.rows()
    text = first.csv.read_text()
    # As if the last class had been cut short while it was written.
    first.csv.write_text(text[: text.rindex("AllToAllv") + 30])
    done = replayer(_SMALL, "--resume")
    assert done.code == 0
    assert done.rows()[:2] == kept[:2]
    assert done.statuses() == {"0": "ok", "1": "ok", "2": "ok"}
    other = replayer(_SMALL + "# another plan\n", "--resume")
    assert other.code == 3
    assert "it holds results of another plan" in other.err
    assert other.rows() == done.rows()


def test_a_wrong_element_is_caught(faulty: Replayer) -> None:
    done = faulty(_SMALL, env={"COLLSCOPE_TEST_WRONG_CLASS": "1"})
    assert done.code == 6
    assert [(row["status"], row["n_wrong"]) for row in done.rows()] == [
        ("ok", "0"), ("wrong", "1"), ("ok", "0"),
    ]  # fmt: skip
    assert done.rows()[1]["message"].startswith("rank 1 on ")
    assert "class 1 (Broadcast Float32, 256 bytes, 4 ranks): wrong: rank 1 on " in done.err


def test_a_hang_ends_with_what_was_finished(faulty: Replayer) -> None:
    done = faulty(_SMALL, "--timeout", "4", env={"COLLSCOPE_TEST_HANG_CLASS": "1"})
    assert done.code == 6
    assert done.statuses() == {"0": "ok", "1": "timeout"}
    assert "class 1 (Broadcast Float32, 256 bytes, 4 ranks): no result on rank 0 on " in done.err
    again = faulty(_SMALL, "--resume")
    assert again.code == 0
    assert again.statuses() == {"0": "ok", "1": "ok", "2": "ok"}
    # Of a sequence no class has a time, but each one its row.
    steps = "step 0@1\nstep 1@0\n"
    fault = {"COLLSCOPE_TEST_HANG_CLASS": "1"}
    done = faulty(_SMALL.replace("unique", "sequence") + steps, "--timeout", "1", env=fault)
    assert done.code == 6
    assert done.statuses() == {"0": "timeout", "1": "timeout", "": "timeout"}


def test_a_dying_rank_ends_the_run(faulty: Replayer) -> None:
    done = faulty(_SMALL, env={"COLLSCOPE_TEST_DIE_CLASS": "1"})
    assert done.code != 0
    assert done.statuses() == {"0": "ok"}


def test_the_shipped_program_has_no_faults_built_in(replayer: Replayer) -> None:
    assert b"COLLSCOPE_TEST" not in replayer.program.read_bytes()
