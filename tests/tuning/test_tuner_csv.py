"""The CSVs of tuning: reading, writing, and agreement with the plugin and with the example."""

from __future__ import annotations

import csv
import io
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collscope.errors import UsageError
from collscope.model import Op, Severity
from collscope.tuning import optimizer_csv
from collscope.tuning.csv_format import (
    MOST_ROWS,
    TunerCall,
    TunerRow,
    parse,
    render,
)
from collscope.tuning.names import ALGORITHMS, COLLECTIVES, PROTOCOLS, plugin_name
from collscope.tuning.optimizer_csv import OptimizerRow
from collscope.tuning.plugin import installed_plugin, plugin_environment

_sizes = st.tuples(st.integers(0, 2**40), st.none() | st.integers(0, 2**40)).map(
    lambda pair: (pair[0], None if pair[1] is None else pair[0] + pair[1])
)
_numbers = st.none() | st.integers(1, 1 << 20)
_rows = st.builds(
    lambda op, sizes, *rest: TunerRow(op, *sizes, *rest),
    st.sampled_from(list(COLLECTIVES.values())), _sizes, st.sampled_from(ALGORITHMS),
    st.sampled_from(PROTOCOLS), st.none() | st.integers(1, 128), _numbers, _numbers,
    st.none() | st.integers(0, 99), st.none() | st.booleans(),
)  # fmt: skip


def codes(text: str) -> list[str]:
    return [d.code for d in parse(text).diagnostics]


def test_the_example_file_reads_as_its_plugin_reads_it(corpus: Path) -> None:
    found = parse((corpus / "tuner" / "nccl_tuner.conf").read_text())
    assert found.diagnostics == ()
    assert len(found.rows) == 9  # its lines without #
    assert found.rows[0] == TunerRow(
        Op.ALL_REDUCE, 0, 65536, "tree", "simple", 2, 1, None, None, True
    )
    assert found.rows[-1] == TunerRow(Op.REDUCE, 0, 4294967295, "tree", "simple")
    assert parse(render(found.rows, found.comments)).rows == found.rows


def test_columns_may_end_early() -> None:
    text = "allreduce,0,9,ring,ll,4\nallreduce,0,9,ring,ll,4,2\nallreduce,0,9,ring,ll,4,2,8\n"
    first, second, third = parse(text).rows
    assert (first.nnodes, first.nranks, first.pipe_ops) == (None, None, None)
    assert (second.nnodes, second.nranks) == (2, None)
    assert (third.nnodes, third.nranks, third.registered) == (2, 8, None)
    assert [(d.code, d.count) for d in parse(text).diagnostics] == [("short_row", 2)]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("allreduce,0,9,ring,simple", "torn_row"),
        ("allreduce,0,9,ring,simple,1,1,1,1,1,1", "torn_row"),
        ("alltoall,0,9,ring,simple,1", "unknown_collective"),
        ("AllReduce,0,9,ring,simple,1", "unknown_collective"),
        ("allreduce,-1,9,ring,simple,1", "bad_size"),
        ("allreduce,9,0,ring,simple,1", "bad_size"),
        ("allreduce,0,18446744073709551616,ring,simple,1", "bad_size"),
        ("allreduce,0,٩,ring,simple,1", "bad_size"),
        ("allreduce,0,9,butterfly,simple,1", "unknown_algorithm"),
        ("allreduce,0,9,RING,simple,1", "unknown_algorithm"),
        ("allreduce,0,9,ring,ll64,1", "unknown_protocol"),
        ("allreduce,0,9,ring,simple,0", "bad_number"),
        ("allreduce,0,9,ring,simple,129", "bad_number"),
        ("allreduce,0,9,ring,simple,1,0", "bad_number"),
        ("allreduce,0,9,ring,simple,1,1,1,1,2", "bad_number"),
        ("allreduce,0,9,ring,simple,", "bad_number"),
    ],
)
def test_wrong_rows_are_counted_and_the_rest_is_kept(line: str, code: str) -> None:
    found = parse(f"{line}\n{line}\nallreduce,0,9,tree,ll,5,1,8\n")
    assert [(d.code, d.count, d.line) for d in found.diagnostics] == [(code, 2, 1)]
    assert [row.algorithm for row in found.rows] == ["tree"]


def test_what_the_plugin_refuses_as_a_whole() -> None:
    newer = parse("# collscope.tuner_csv/2\nallreduce,0,9,ring,ll,4,1,8\n")
    assert newer.rows == ()
    assert newer.diagnostics[0].severity is Severity.ERROR
    line = "allreduce,0,9,ring,ll,4,1,8\n"
    assert len(parse(line * MOST_ROWS).rows) == MOST_ROWS
    assert codes(line * (MOST_ROWS + 1)) == ["too_many_rows"]
    with pytest.raises(UsageError, match="Merge size ranges"):
        render(parse(line).rows * (MOST_ROWS + 1))


def test_rows_that_no_plugin_could_apply_are_not_written() -> None:
    with pytest.raises(UsageError, match="unknown algorithm"):
        render([TunerRow(Op.ALL_REDUCE, 0, 9, "RING", "ll")])
    with pytest.raises(UsageError, match="collective"):
        render([TunerRow(Op.ALL_TO_ALL, 0, 9, "ring", "ll")])


@given(st.lists(_rows, max_size=8), st.lists(st.text(max_size=300), max_size=3))
def test_round_trip(rows: list[TunerRow], comments: list[str]) -> None:
    text = render(rows, comments)
    found = parse(text)
    assert found.rows == tuple(rows)
    assert found.diagnostics == ()
    assert render(found.rows, found.comments) == text
    # The example plugin reads lines into 256 bytes.
    assert all(len(line.encode()) <= 255 for line in text.split("\n"))
    assert all(line.count(",") == 9 for line in text.split("\n") if line and line[0] != "#")


@given(st.text(max_size=300))
def test_no_content_raises(text: str) -> None:
    parse(text)
    optimizer_csv.parse(text)


def test_names_of_logs_and_environment() -> None:
    spellings = {
        "TREE": "tree", "Ring": "ring", "CollnetDirect": "collnet_direct", "NVLSTree": "nvls_tree",
        "COLLNET_CHAIN": "collnet_chain", "PAT": "pat", "Simple": "simple", "LL128": "ll128",
    }  # fmt: skip
    assert {name: plugin_name(name) for name in spellings} == spellings
    assert plugin_name("butterfly") is None


def first_match(rows: Iterable[TunerRow], call: TunerCall) -> TunerRow | None:
    """The row that a plugin applies, as long as the library offers what it asks for."""
    return next((row for row in rows if row.matches(call)), None)


def example_choice(text: str, call: TunerCall) -> tuple[str, str, int] | None:
    """First match by the example plugin's rules, on rows that it can read: C's atoi and strtoull.

    Its loop is that of plugins/tuner/example/plugin.cc; here only to hold our files against it.
    """
    for line in text.split("\n"):
        fields = [field.strip(" \t") for field in line.split(",")]
        if line.startswith("#") or not 8 <= len(fields) <= 10:
            continue
        numbers = [int(fields[i]) for i in (1, 2, *range(5, len(fields)))]
        low, high, channels, nodes, ranks, *optional = numbers
        conditions = (nodes, ranks, *optional)
        facts = (call.nnodes, call.nranks, call.pipe_ops, int(call.registered))
        if (
            COLLECTIVES[fields[0]] is call.op
            and low % 2**64 <= call.size_bytes <= high % 2**64
            and all(c in (-1, fact) for c, fact in zip(conditions, facts, strict=False))
        ):
            return fields[3], fields[4], channels
    return None


@given(
    st.lists(_rows, max_size=12),
    st.builds(
        TunerCall, st.sampled_from(list(COLLECTIVES.values())), st.integers(0, 2**41),
        st.integers(1, 9), st.integers(1, 3), st.integers(0, 3), st.booleans(),
    ),
)  # fmt: skip
def test_the_example_reads_our_files_alike(rows: list[TunerRow], call: TunerCall) -> None:
    ours = first_match(rows, call)
    choice = None if ours is None else (ours.algorithm, ours.protocol, ours.channels or -1)
    assert example_choice(render(rows), call) == choice


# The plugin reads its file once per process, so the calls are made in one of its own.
_ASK_PLUGIN = """
import ctypes, sys
size, pointer = ctypes.c_size_t, ctypes.c_void_p
ask = ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.c_int, size, ctypes.c_int, pointer,
                       ctypes.c_int, ctypes.c_int, ctypes.c_int, pointer)
class Tuner(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("init", ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(pointer), ctypes.c_uint64, size, size, pointer, pointer,
        pointer)), ("get", ask), ("finalize", ctypes.CFUNCTYPE(ctypes.c_int, pointer))]
tuner = Tuner.in_dll(ctypes.CDLL(sys.argv[1]), "ncclTunerPlugin_v5")
for line in sys.stdin:
    op, bytes_, nranks, nnodes, pipe_ops, registered = map(int, line.split())
    context, channels = pointer(), ctypes.c_int(0)
    assert tuner.init(ctypes.byref(context), 1, nranks, nnodes, None, None, None) == 0
    costs = (ctypes.c_float * 21)(*[1.0] * 21)
    assert tuner.get(context, op, bytes_, pipe_ops, costs, 7, 3, registered,
                     ctypes.byref(channels)) == 0
    assert tuner.finalize(context) == 0
    print([i for i, cost in enumerate(costs) if cost == 0.0], channels.value)
"""


def plugin_choices(text: str, calls: list[TunerCall], folder: Path) -> list[str]:
    """What the built plugin does for each call: cells made cheapest, and channels."""
    file = folder / "tuner.csv"
    file.write_text(text)
    places = {op: i for i, op in enumerate(COLLECTIVES.values())}
    lines = (
        f"{places[c.op]} {c.size_bytes} {c.nranks} {c.nnodes} {c.pipe_ops} {int(c.registered)}"
        for c in calls
    )
    environment = plugin_environment(file)
    done = subprocess.run(
        [sys.executable, "-c", _ASK_PLUGIN, environment["NCCL_TUNER_PLUGIN"]],
        input="\n".join(lines),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_plugin_reads_our_files_alike(tmp_path: Path) -> None:
    assert installed_plugin() is not None
    chance = random.Random(1)
    ops = list(COLLECTIVES.values())

    def one(low: int) -> TunerRow:
        return TunerRow(
            chance.choice(ops), low, chance.choice([None, low, low + chance.randrange(2000)]),
            chance.choice(ALGORITHMS), chance.choice(PROTOCOLS), chance.choice([None, 1, 16]),
            chance.choice([None, 1, 2]), chance.choice([None, 4, 8]),
            chance.choice([None, None, 1, 2]), chance.choice([None, None, True, False]),
        )  # fmt: skip

    rows = [one(chance.randrange(5000)) for _ in range(200)]
    calls = [
        TunerCall(chance.choice(ops), chance.randrange(8000), chance.choice([4, 8, 16]),
                  chance.choice([1, 2]), chance.choice([1, 2, 3]), chance.random() < 0.5)
        for _ in range(1000)
    ]  # fmt: skip
    expected = []
    for call in calls:
        row = first_match(rows, call)
        cell = row and ALGORITHMS.index(row.algorithm) * 3 + PROTOCOLS.index(row.protocol)
        expected.append(f"{[] if row is None else [cell]} {row.channels or 0 if row else 0}")
    assert plugin_choices(render(rows), calls, tmp_path) == expected
    assert 100 < sum(line != "[] 0" for line in expected) < 1000


def test_the_example_file_in_the_plugin(corpus: Path, tmp_path: Path) -> None:
    text = (corpus / "tuner" / "nccl_tuner.conf").read_text()
    calls = [
        TunerCall(Op.ALL_REDUCE, 1000, 8, 1, 1, registered=True),
        TunerCall(Op.ALL_REDUCE, 1000, 8, 1, 1, registered=False),
        TunerCall(Op.ALL_GATHER, 1 << 20, 16, 2),
        TunerCall(Op.BROADCAST, 32769, 8, 1, 1),
    ]
    # tree/simple 2; nothing; ring/simple 4; ring/simple 2 (cells: algorithm · 3 + protocol)
    assert plugin_choices(text, calls, tmp_path) == ["[2] 2", "[] 0", "[5] 4", "[5] 2"]


_measured = OptimizerRow(Op.ALL_REDUCE, 1048576, "nvls", "simple", 16, 1, 8, 551.2, 32.1)


def test_measurements_are_what_the_example_optimiser_reads() -> None:
    text = optimizer_csv.render([_measured])
    row = next(csv.DictReader(io.StringIO(text)))
    # The conversions of optimize_config.py.
    assert (row["collective"], row["algorithm"], row["protocol"]) == ("allreduce", "nvls", "simple")
    whole = [int(row[name]) for name in ("size_bytes", "channels", "nodes", "ranks", "pipeOps")]
    assert whole == [1048576, 16, 1, 8, -1]
    assert int(row["regBuff"]) == -1
    assert (float(row["bandwidth_gbps"]), float(row["latency_us"])) == (551.2, 32.1)
    assert None not in row


@given(
    st.lists(
        st.builds(
            OptimizerRow, st.sampled_from(list(COLLECTIVES.values())), st.integers(0, 2**40),
            st.sampled_from(ALGORITHMS), st.sampled_from(PROTOCOLS), _numbers, _numbers, _numbers,
            st.integers(0, 1 << 20).map(float), st.integers(0, 1 << 20).map(float),
            st.none() | st.integers(0, 99), st.none() | st.booleans(),
        ), max_size=6,
    )
)  # fmt: skip
def test_measurements_round_trip(rows: list[OptimizerRow]) -> None:
    found = optimizer_csv.parse(optimizer_csv.render(rows))
    assert found.rows == tuple(rows)
    assert found.diagnostics == ()


def test_measurements_that_cannot_be_read_are_counted() -> None:
    good = optimizer_csv.render([_measured])
    line = good.splitlines()[1]
    bad = [line + ",1", line.replace("nvls", "star"), line.replace("32.1", "-1"),
           line.replace("1048576", "many"), line.replace(",-1,-1,", ",-1,7,")]  # fmt: skip
    found = optimizer_csv.parse(good + "\n".join(bad))
    assert found.rows == (_measured,)
    assert {d.code: d.count for d in found.diagnostics} == {
        "torn_row": 1, "unknown_setting": 1, "bad_number": 3
    }  # fmt: skip
    assert optimizer_csv.parse("a,b\n").diagnostics[0].code == "no_header"
    with pytest.raises(UsageError, match="Leave it out"):
        optimizer_csv.render([OptimizerRow(Op.SEND, 1, "ring", "ll", 1, 1, 2, 1.0, 1.0)])
