"""Figures of an application: the documents' numbers, units, and damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ROOT

from collscope.model import Metric, MetricSet
from collscope.parsers.hints import MetricHints
from collscope.parsers.metrics import parse

SAMPLE = ROOT / "samples/tables/frontier-applications.txt"
SETTINGS = ("Without the plugin", "With the plugin", "With the plugin + NCCL_NET_GDR_LEVEL=3")


def read(text: str, said: MetricHints | None = None) -> MetricSet:
    found = parse(text, said or MetricHints())
    assert found is not None
    return found


def values(found: MetricSet, name: str) -> dict[str | None, float]:
    return {m.label: m.value for m in found.metrics if m.name == name}


def test_throughput_of_the_slides(samples: Path) -> None:
    found = read((samples / "tables/frontier-applications.txt").read_text())
    gptj = values(found, "GPT-J: train_samples_per_second")
    assert gptj == dict(zip(SETTINGS, (36.372, 60.975, 72.106), strict=True))
    bigbird = values(found, "BigBird Oscar: train_samples_per_second")
    assert bigbird == dict(zip(SETTINGS, (920.145, 938.094, 942.769), strict=True))
    runtime = values(found, "GPT-J: train_runtime")
    assert runtime[SETTINGS[0]] == 1126.1257
    assert {(m.unit, m.higher_is_better) for m in found.metrics} == {
        ("s", False),
        ("samples/s", True),
        ("steps/s", True),
        ("images/s", True),
    }


def test_tensorflow_table(samples: Path) -> None:
    found = read((samples / "tables/frontier-applications.txt").read_text())
    images = [m for m in found.metrics if m.unit == "images/s"]
    assert [m.value for m in images] == [
        118874.19, 129670.74, 133778.7, 219602.73, 252821.21, 261120.75, 388282.87, 477924.70,
        508689.71,
    ]  # fmt: skip
    assert images[8].name == "images_per_second (64 nodes, 512 ranks)"
    assert images[8].label == "With the Plugin + GDR=3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("36.37 samples/s\n", Metric("throughput", 36.37, "samples/s", True, None, 1)),
        ("5.7 ms", Metric("step_time", 5.7, "ms", False, None, 1)),
        ("120 ms/step\n", Metric("step_time", 120.0, "ms/step", False, None, 1)),
        ("943 images per second", Metric("throughput", 943.0, "images/s", True, None, 1)),
        ("5.5 Gb/s", Metric("throughput", 5.5, "Gb/s", True, None, 1)),
        ("17\n", Metric("value", 17.0, None, None, None, 1)),
    ],
)
def test_bare_numbers(text: str, expected: Metric) -> None:
    assert read(text).metrics == (expected,)


def test_number_with_the_users_words() -> None:
    found = read("0.8\n0.9\n", MetricHints("step", "s", "tuned"))
    assert [(m.name, m.value, m.unit, m.higher_is_better, m.label) for m in found.metrics] == [
        ("step", 0.8, "s", False, "tuned"),
        ("step", 0.9, "s", False, "tuned"),
    ]
    assert [d.code for d in read("0.8\n0.9\n").diagnostics] == ["no_unit"]


def test_csv_columns() -> None:
    found = read("step,step_time_ms,tokens_per_sec,loss,label\n1,5.5,900,2.1,a\n2,5.6,890,2.0,b\n")
    assert [(m.name, m.value, m.unit, m.label) for m in found.metrics] == [
        ("step_time_ms", 5.5, "ms", "a"),
        ("tokens_per_sec", 900.0, "tokens/s", "a"),
        ("step_time_ms", 5.6, "ms", "b"),
        ("tokens_per_sec", 890.0, "tokens/s", "b"),
    ]
    found = read("name,value,unit\nepoch,12.5,s\n")
    assert found.metrics == (Metric("epoch", 12.5, "s", False, None, 2),)
    torn = read("step_time_ms,label\n5.5,a\n5.6\n5.7,b,c\n")
    assert [m.value for m in torn.metrics] == [5.5]
    assert [(d.code, d.count) for d in torn.diagnostics] == [("torn_row", 2)]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("setting,median_ms,steps\na,5.75,9\nb,6.25,1", 1),
        ('{"median_ms": 5.75, "tokens_per_s": 1234', 1),
        ("Tokens per second\nGPUs\ta\tb\n8\t10.5\t11.5\n16\t20.5\t2", 2),
    ],
)
def test_a_last_line_without_its_end_gives_no_piece_of_a_number(text: str, kept: int) -> None:
    found = read(text)
    assert (len(found.metrics), sum(d.count for d in found.diagnostics)) == (kept, 1)


def test_trainer_lines_in_a_log() -> None:
    text = (
        "Some weights were not initialised.\n\n"
        "  0: {'train_runtime': 12.5, 'train_samples_per_second': 36.372, 'train_loss': 1.5}\n"
    )
    assert [(m.name, m.value, m.label) for m in read(text).metrics] == [
        ("train_runtime", 12.5, None),
        ("train_samples_per_second", 36.372, None),
    ]


def test_json_lines_take_their_own_label_and_leave_spreads_out() -> None:
    found = read('{"case": "x", "setting": "ringll", "median_ms": 6.3, "iqr_ms": 0.08}\n')
    assert found.metrics == (Metric("x: median_ms", 6.3, "ms", False, "ringll", 1),)


def test_fields_that_tell_jobs_apart_stay_in_the_name() -> None:
    lines = read(
        '{"time": "2026-11-22 09:15", "level": "info", "job": "a", "gpus": 8, "step_ms": 5.0}\n'
        '{"time": "2026-11-22 09:16", "level": "info", "job": "b", "gpus": 16, "step_ms": 6.0}\n'
        '{"msg": "ran step 7", "step": 7, "step_ms": 5.5}\n'
    )
    names = ["a, gpus 8: step_ms", "b, gpus 16: step_ms", "step_ms"]
    assert [m.name for m in lines.metrics] == names
    table = read("case,nranks,setting,median_ms,note\nfsdp,4,ll,5.5,fast run\nddp,4,ll,6.5,\n")
    assert [(m.name, m.label) for m in table.metrics] == [
        ("fsdp, nranks 4: median_ms", "ll"), ("ddp, nranks 4: median_ms", "ll")
    ]  # fmt: skip


def test_jobs_of_a_recording_are_told_apart(recorded_jobs: Path) -> None:
    found = read((recorded_jobs / "steps.jsonl").read_text())
    # 14 lines of four figures each, counted with wc and grep
    assert len(found.metrics) == 56
    assert len({(m.label, m.name) for m in found.metrics}) == 56


def test_a_long_line_of_many_figures_is_read_in_one_pass() -> None:
    assert len(read('{"a_ms": 1, ' * 20_000 + "}").metrics) == 20_000


@pytest.mark.parametrize("text", ["", "\n\n", "hello\n", "a,b\n1,2\n", "Size\tA\n1 KB\t2\n"])
def test_text_without_figures(text: str) -> None:
    assert parse(text, MetricHints()) is None


def test_collective_tables_are_no_throughput(samples: Path) -> None:
    for name in ("frontier-allreduce.txt", "msccl-allgather.md"):
        assert parse((samples / "tables" / name).read_text(), MetricHints()) is None


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 3000), st.text(max_size=30))
def test_damage_never_raises(at: int, junk: str) -> None:
    text = SAMPLE.read_text()
    parse(text[:at], MetricHints())
    parse(text[:at] + junk + text[at + len(junk) :], MetricHints())
    parse(junk, MetricHints())
    parse("step_time_ms,b\n" + junk, MetricHints())


def test_table_and_figures_of_one_file_share_a_run(samples: Path, db_path: Path) -> None:
    from collscope.ingest.commands import ingest_metrics, ingest_tables
    from collscope.parsers.hints import TableHints
    from collscope.store.connection import open_readonly

    both = db_path.parent / "both.txt"
    parts = ("frontier-allreduce.txt", "frontier-applications.txt")
    both.write_text("\n".join((samples / "tables" / part).read_text() for part in parts))
    (table,) = ingest_tables([str(both)], db_path, "main", TableHints())
    (metric,) = ingest_metrics([str(both)], db_path, "main", MetricHints())
    assert (table.status, metric.status) == ("added", "added")
    (again,) = ingest_metrics([str(both)], db_path, "main", MetricHints())
    assert again.status == "known"
    connection = open_readonly(db_path)
    rows = connection.execute(
        "SELECT value, unit, higher_is_better FROM metrics"
        " WHERE name = 'GPT-J: train_samples_per_second' ORDER BY value"
    ).fetchall()
    assert rows == [(36.372, "samples/s", 1), (60.975, "samples/s", 1), (72.106, "samples/s", 1)]
    shas = connection.execute("SELECT DISTINCT length(sha256), kind FROM sources").fetchall()
    assert sorted(shas) == [(64, "metric"), (64, "table")]
    connection.close()


def test_a_csv_further_down_in_a_text_is_another_table() -> None:
    table = "size, time (ms)\n4096, 0.5\n8192, 0.7\n"
    assert parse(table, MetricHints()) is not None
    assert parse("# a note\n\n" + table, MetricHints()) is not None
    assert parse("What copies take.\n\n" + table, MetricHints()) is None
