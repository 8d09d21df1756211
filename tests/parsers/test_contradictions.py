"""Rows of collscope's own CSVs that contradict themselves: no time, and a status of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import collscope, rows
from replay_files import COLUMNS, OWN, ROW

from collscope.model import MeasurementSet
from collscope.parsers import interference_csv, memcpy_csv, replay_csv

REPLAY = Path(__file__).parents[2] / "samples" / "replay"
COPY = (
    "# collscope.memcpy_csv/1\nlabel,round,kind,src_device,dst_device,direction,access,size_bytes,"
    "time_us_median,time_us_min,time_us_max,time_us_mad,iterations,bandwidth_gbps,n_wrong,checked,"
    "status,message,device,runtime,hostname,started,samples_us\n"
    "m,0,memcpy,,,one,,4096,2,1,3,1,30,2.048,0,all,ok,,cpu,mpi,n1,2026-11-23T08:00:00Z,1;2;3\n"
)
BESIDE = (
    "# collscope.interference_csv/1\n# nranks: 4\nlabel,round,op,datatype,redop,size_bytes,count,"
    "shape,nranks,nnodes,rank,relative_compute,relative_busbw,comm_alone_us,samples,covered,status,"
    "relative_compute_samples,relative_busbw_samples\n"
    "two,1,AllReduce,Bfloat16,Sum,1024,512,,4,1,0,0.985,0.8,40,9,8,ok,0.984;0.986,0.8;0.8\n"
)


def changed(column: str, value: str) -> str:
    """The replay CSV of `replay_files` with one column of its first row changed."""
    names, cells = COLUMNS.strip().split(","), ROW.strip().split('"')
    # The two quoted fields hold commas: they stand for themselves while the row is taken apart.
    whole = "".join(c.replace(",", "\0") if k % 2 else c for k, c in enumerate(cells)).split(",")
    whole[names.index(column)] = value
    quoted = (f'"{c.replace(chr(0), ",")}"' if "\0" in c else c for c in whole)
    return OWN.replace(ROW, ",".join(quoted) + "\n").replace("# mode", "# nranks: 4\n# mode")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("time_us_median", "300"),  # above the largest sample
        ("time_us_min", "101"),
        ("time_us_max", "0.5"),
        ("time_us_mad", "7"),
        ("samples_us", "101;102;110"),
        ("iterations", "0"),
        ("count", "8388608"),
        ("datatype", "Float64"),
        ("size_bytes", "8388610"),
        ("op", "AllGather"),
        ("root", "4"),
        ("nnodes", "5"),
        ("nranks", "64"),  # of the header's 4
        ("n_wrong", "5"),
    ],
)
def test_a_changed_column_takes_the_time(column: str, value: str) -> None:
    found = replay_csv.parse(changed(column, value))
    first = found.measurements[0]
    times = (first.time_us_median, first.time_us_min, first.samples_us, first.busbw_gbps)
    assert (first.status, *times) == ("contradictory", None, None, (), None)
    assert first.message is not None
    assert [(d.code, d.count) for d in found.diagnostics] == [("contradictory_row", 1)]


@pytest.mark.parametrize(
    ("parse", "text", "old", "new"),
    [
        (memcpy_csv.parse, COPY, ",2,1,3,1,30,", ",7,1,3,1,30,"),
        (memcpy_csv.parse, COPY, "1;2;3", "1;1;3"),
        (memcpy_csv.parse, COPY, ",0,all,ok", ",9,all,ok"),
        (interference_csv.parse, BESIDE, ",1024,512,", ",1024,513,"),
        (interference_csv.parse, BESIDE, ",4,1,0,0.985", ",4,9,0,0.985"),
        (interference_csv.parse, BESIDE, ",4,1,0,0.985", ",8,1,0,0.985"),
        (interference_csv.parse, BESIDE, ",9,8,ok", ",9,18,ok"),
        (interference_csv.parse, BESIDE, "0.984;0.986", "0.5;0.5"),
    ],
)
def test_the_other_files_of_ours(
    parse: Callable[[str], MeasurementSet], text: str, old: str, new: str
) -> None:
    assert not parse(text).diagnostics
    found = parse(text.replace(old, new))
    assert [row.status for row in found.rows] == ["contradictory"]
    assert [(d.code, d.count) for d in found.diagnostics] == [("contradictory_row", 1)]
    (row,) = found.rows
    for name in ("time_us_median", "bandwidth_gbps", "relative_busbw", "comm_alone_us"):
        assert getattr(row, name, None) is None


@pytest.mark.parametrize("path", sorted(REPLAY.glob("*.csv")), ids=lambda path: path.stem)
def test_what_was_measured_agrees_with_itself(path: Path) -> None:
    found = replay_csv.parse(path.read_text())
    assert "contradictory_row" not in {d.code for d in found.diagnostics}


def test_check_does_not_believe_it(tmp_path: Path, db_path: Path) -> None:
    good, bad = (tmp_path / name for name in ("good.csv", "bad.csv"))
    good.write_text(OWN.replace("plugin", "good"))
    # Half the time, while the samples are those of before.
    bad.write_text(OWN.replace("plugin", "bad").replace(",26,100,99,", ",26,50,49,"))
    for path in (good, bad):
        collscope("ingest", "csv", path, "--db", db_path)
    query = "SELECT status, time_us_median FROM measurements WHERE label = 'bad' AND line = 4"
    assert rows(db_path, query) == [("contradictory", None)]
    done = collscope("check", "--baseline", "good", "--current", "bad", "--db", db_path)
    assert done.code != 0
    assert "faster" not in done.out
