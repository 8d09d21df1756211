"""Replay CSVs: collscope's own and rccl_replayer's, into the store and out again."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import collscope, rows
from hypothesis import given
from hypothesis import strategies as st
from replay_files import COLUMNS, FAILED, GUIDE, OWN, ROW

from collscope.model import Datatype, Measurement, Op
from collscope.parsers import rccl_replayer_csv, replay_csv
from collscope.replay.results import rccl_replayer_layout

DIFFERENT = "SELECT code, count FROM diagnostics WHERE code LIKE 'reported%'"


def test_guide_rows_get_the_bus_bandwidth_of_eight_ranks(tmp_path: Path, db_path: Path) -> None:
    csv = tmp_path / "guide.csv"
    csv.write_text(GUIDE)
    outcome = collscope("ingest", "csv", csv, "--db", db_path, "--ranks", "8")
    assert outcome.code == 0
    found = rows(
        db_path,
        "SELECT label, op, datatype, redop, root, count, size_bytes, in_place, nranks,"
        " round(busbw_gbps, 2), reported_busbw_gbps, line FROM measurements ORDER BY line",
    )
    # 536870912 B / 3.25299 ms * 2 * 7 / 8 = 288.82 GB/s; the printed figure is 2 * S / t.
    shared = ("guide", "AllReduce", "Float16", "Sum", None, 268435456, 536870912, 1, 8)
    assert found == [
        (*shared, 288.82, 330.079, 2),
        (*shared, 290.93, 332.494, 3),
        (*shared, 293.34, 335.244, 4),
    ]
    assert rows(db_path, DIFFERENT) == [("reported_busbw_is_2S_over_t", 3)]
    assert "reported_busbw_is_2S_over_t" in outcome.out


def test_nranks_come_from_the_run_when_it_has_one_size(
    tmp_path: Path, db_path: Path, samples: Path
) -> None:
    csv = tmp_path / "guide.csv"
    csv.write_text(GUIDE)
    log = samples / "rccl" / "guide-coll-klke.log"
    assert collscope("ingest", "log", log, "--db", db_path).code == 0
    assert collscope("ingest", "csv", csv, "--db", db_path).code == 0
    assert rows(db_path, "SELECT DISTINCT nranks FROM measurements") == [(8,)]


def test_unknown_nranks_leave_the_bus_bandwidth_out(tmp_path: Path, db_path: Path) -> None:
    csv = tmp_path / "guide.csv"
    csv.write_text(GUIDE)
    assert collscope("ingest", "csv", csv, "--db", db_path).code == 0
    query = "SELECT DISTINCT nranks, busbw_gbps, size_bytes FROM measurements"
    assert rows(db_path, query) == [(None, None, 536870912)]
    codes = rows(db_path, "SELECT code, count FROM diagnostics ORDER BY code")
    assert ("nranks_unknown", 3) in codes


def test_rows_of_every_kind_that_rccl_replayer_writes() -> None:
    header = rccl_replayer_csv.HEADER + "\n"
    body = (
        "1, AllGather, 0, 1024, Bfloat16, Sum, 0, 0.1, 0.02048\n"
        "2, Send/Recv, 0, 1000000, Int8, Sum, 0, 0.5, 2\n"
        "3, Reduce, 1, 1000, Fp8E4M3, Product, 3, 0.5, 0.002\n"
        "4, AllReduce, 1, 1000, Float64, Average, 0, 0.5, 0.\n"
        "5, AllReduce, 1, 10\n"
        "6, Mystery, 1, 1000, Float64, Sum, 0, 0.5, 0.1\n"
        "7, AllReduce, 1, ten, Float64, Sum, 0, 0.5, 0.1\n"
    )
    found = rccl_replayer_csv.parse(header + body, 4)
    classes = [(m.op, m.datatype, m.redop, m.root, m.size_bytes) for m in found.measurements]
    assert classes == [
        # S counts all shards: 1024 elements of 2 bytes on 4 ranks.
        (Op.ALL_GATHER, Datatype.BFLOAT16, None, None, 8192),
        (Op.SEND_RECV, Datatype.INT8, None, None, 1000000),
        (Op.REDUCE, Datatype.FLOAT8E4M3, "Prod", 3, 1000),
        (Op.ALL_REDUCE, Datatype.FLOAT64, "Avg", None, 8000),
    ]
    # 8192 B * 3/4 / 100 us
    assert found.measurements[0].busbw_gbps == pytest.approx(0.06144)
    codes = {d.code: d.count for d in found.diagnostics}
    # AllGather's is (nranks - 1) times too small; that of a Send/Recv of 1 MB in 0.5 ms is right.
    assert codes == {
        "reported_busbw_differs": 2, "torn_row": 1, "unknown_class": 1, "bad_number": 1,
    }  # fmt: skip


def test_own_csv_keeps_every_field_and_sample(tmp_path: Path, db_path: Path) -> None:
    csv = tmp_path / "out.csv"
    csv.write_text(OWN)
    assert collscope("ingest", "csv", csv, "--db", db_path).code == 0
    columns = (
        "op, datatype, redop, count, size_bytes, in_place, nranks, nnodes, calls, time_us_median,"
        " time_us_min, time_us_max, time_us_mad, iterations, n_wrong, checked, method, backend,"
        " library, device, host, status, label, round, scaled_from, message, line"
    )
    ok, failed = rows(db_path, f"SELECT {columns} FROM measurements ORDER BY line")
    assert ok == (
        "AllReduce", "Bfloat16", "Avg", 4194304, 8388608, 1, 4, 1, 26, 100.0, 99.0, 110.5, 1.0, 60,
        0, "all", "batch", "cuda", "nccl 2.28.9", "NVIDIA, one", "n1", "ok", "plugin", 2, 8, None,
        4,
    )  # fmt: skip
    assert failed[-7:] == (None, "failed", "plugin", 2, 8, 'said "no", twice', 5)
    samples = "SELECT ordinal, time_us FROM measurement_samples ORDER BY ordinal"
    assert rows(db_path, samples) == [(0, 99.0), (1, 100.0), (2, 110.5)]
    (rate,) = rows(db_path, "SELECT busbw_gbps FROM measurements WHERE status = 'ok'")
    assert rate[0] == pytest.approx(8388608 / 100e-6 / 1e9 * 1.5)
    assert rows(db_path, "SELECT library, library_version, kind FROM sources") == [
        ("nccl", "2.28.9", "csv")
    ]
    assert rows(db_path, "SELECT * FROM diagnostics") == []


def test_twice_is_once_and_label_names_every_row(tmp_path: Path, db_path: Path) -> None:
    csv = tmp_path / "out.csv"
    csv.write_text(OWN)
    for _ in range(2):
        arguments = ("ingest", "csv", csv, "--db", db_path, "--label", "night")
        assert collscope(*arguments).code == 0
    assert rows(db_path, "SELECT label, COUNT(*) FROM measurements") == [("night", 2)]


def test_auto_knows_both_layouts(tmp_path: Path, db_path: Path) -> None:
    for name, text in (("a.csv", OWN), ("b.csv", "\ufeff" + GUIDE)):  # as spreadsheets save it
        (tmp_path / name).write_text(text)
    assert collscope("ingest", "auto", tmp_path, "--db", db_path).code == 0
    dialects = rows(db_path, "SELECT dialect FROM sources ORDER BY dialect")
    assert dialects == [("rccl_replayer_csv",), ("replay_csv",)]


def test_a_row_of_an_unknown_datatype_is_counted_not_read() -> None:
    found = replay_csv.parse(OWN.replace("Bfloat16", "Bfloat61"))
    assert [m.datatype for m in found.measurements] == [Datatype.FLOAT8E4M3]
    assert [(d.code, d.count) for d in found.diagnostics] == [("unknown_class", 1)]


def test_appended_and_joined_replays() -> None:
    appended = "# collscope-replay: 1\n# label: a\n" + ROW.replace("plugin", "")
    other = "# collscope-replay: 1\n# label: b\nop,datatype,redop,root,count,nranks,"
    other += "time_us_median,status\nAllReduce,Float32,Sum,,8,2,5,ok\n"
    found = replay_csv.parse(OWN + appended + other).measurements
    assert [(m.label, m.time_us_median) for m in found] == [
        ("plugin", 100.0), ("plugin", None), ("a", 100.0), ("b", 5.0),
    ]  # fmt: skip


def test_another_version_is_refused_and_said(tmp_path: Path, db_path: Path) -> None:
    csv = tmp_path / "new.csv"
    csv.write_text(OWN.replace("replay: 1", "replay: 2"))
    outcome = collscope("ingest", "csv", csv, "--db", db_path)
    assert outcome.code == 3
    assert "another version" in outcome.err


def test_wrong_bandwidth_in_the_file_is_noted_and_not_kept() -> None:
    assert replay_csv.parse(OWN.replace("125.829", "")).diagnostics == ()
    found = replay_csv.parse(OWN.replace("125.829", "167.772"))
    assert found.measurements[0].busbw_gbps == pytest.approx(125.829, rel=1e-5)
    assert [d.code for d in found.diagnostics] == ["busbw_differs"]


def test_sequence_row_has_a_time_and_no_bandwidth() -> None:
    row = "Sequence,,,,120,,,4,1,120,5000,5000,5000,0,1,,,0,sequence,host,,,n1,ok,,,,all,r,,,,5000"
    (found,) = replay_csv.parse(OWN.replace(ROW + FAILED, row + "\n")).measurements
    assert (found.op, found.time_us_median, found.busbw_gbps) == (Op.SEQUENCE, 5000.0, None)


@given(cut=st.integers(min_value=0, max_value=len(OWN) - 1))
def test_a_cut_keeps_the_rows_before_it_and_no_piece_of_one(cut: int) -> None:
    whole = replay_csv.parse(OWN).measurements
    found = replay_csv.parse(OWN[:cut])
    ends = [OWN.index(ROW) + len(ROW), len(OWN)]
    assert found.measurements == whole[: sum(end <= cut for end in ends)]
    if cut > OWN.index(ROW):
        pieces = 0 if cut in ends else 1
        assert sum(d.count for d in found.diagnostics) == pieces


def test_a_row_cut_inside_its_last_sample_is_none() -> None:
    found = replay_csv.parse("".join((COLUMNS, ROW)).removesuffix("0.5\n"))  # …;99;100;11
    assert found.measurements == ()
    assert [(d.code, d.line, d.severity.value) for d in found.diagnostics] == [
        ("cut_row", 2, "data_loss")
    ]
    foreign = rccl_replayer_csv.parse(GUIDE.removesuffix("4\n"), 8)  # …, 335.24
    assert [m.line for m in foreign.measurements] == [2, 3]
    assert ("cut_row", 4) in [(d.code, d.line) for d in foreign.diagnostics]


@given(st.text())
def test_parsers_never_raise_on_content(text: str) -> None:
    replay_csv.parse(OWN + text)
    rccl_replayer_csv.parse(GUIDE + text, 8)


def test_nine_columns_are_read_back_with_the_right_bandwidth() -> None:
    text = rccl_replayer_layout(replay_csv.parse(OWN).measurements)
    # 8388608 B in 100 us on 4 ranks; the failed row has no time and is left out.
    assert text.splitlines()[1:] == ["1, AllReduce, 1, 4194304, Bfloat16, Average, 0, 0.1, 125.829"]
    back = rccl_replayer_csv.parse(text, 4)
    assert back.diagnostics == ()
    assert back.measurements[0].reported_busbw_gbps == 125.829


def test_nine_columns_spell_types_and_functions_as_the_tool_does() -> None:
    m = Measurement(
        Op.SEND_RECV, Datatype.FLOAT8E5M2, count=4, nranks=2, time_us_median=2.0, busbw_gbps=0.002
    )
    line = rccl_replayer_layout([m]).splitlines()[1]
    assert line == "1, Send/Recv, 0, 4, Fp8E5M2, Sum, 0, 0.002, 0.002"


def _extent(text: str) -> dict[str, int]:
    return {d.code: d.count for d in replay_csv.parse(text).diagnostics}


def test_a_file_tells_its_own_extent() -> None:
    planned = OWN.replace("# mode: unique\n", "# mode: unique\n# classes: 2\n")
    whole = planned + "# end: 2 rows\n"
    assert _extent(OWN) == _extent(whole) == {}
    joined = whole + whole.replace("plugin", "b")
    assert _extent(joined) == {}
    assert _extent(planned.replace(FAILED, "")) == {"classes_missing": 1}
    assert _extent(whole.replace(FAILED, "")) == {"rows_missing": 1}
    assert _extent(planned) == {"no_end": 1}
    # A second launch adds rows, and its end counts all.
    second = "# collscope-replay: 1\n# classes: 2\n" + ROW.replace("plugin", "b")
    assert _extent(planned + second + "# end: 3 rows\n") == {}
    assert _extent(whole + second) == {"classes_missing": 1}


def test_a_row_twice_is_read_once() -> None:
    found = replay_csv.parse(OWN + ROW)
    assert len(found.measurements) == 2
    assert [(d.code, d.count) for d in found.diagnostics] == [("counted_once", 1)]


def test_a_gap_in_the_classes_of_a_csv_without_their_number(samples: Path) -> None:
    """It is a notice: the file may be a part of another. Labels share one numbering."""
    lines = (samples / "replay/h200x4-mixed.csv").read_text().splitlines(keepends=True)
    assert [d.code for d in replay_csv.parse("".join(lines)).diagnostics] == []
    found = replay_csv.parse("".join(lines[:-5] + lines[-3:])).diagnostics
    assert [(d.severity.value, d.code, d.count) for d in found] == [
        ("notice", "classes_missing", 2)
    ]
