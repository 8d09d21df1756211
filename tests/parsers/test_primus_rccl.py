"""Reports of Primus' benchmark of RCCL."""

from __future__ import annotations

import csv
import io
import json

import pytest
from inputs import ROOT

from collscope.model import MeasurementSet, Op
from collscope.parsers.hints import Hints, TableHints
from collscope.parsers.registry import read_bytes
from collscope.parsers.tables.primus_rccl import parse

TEXT = (ROOT / "samples/tables/synthetic.primus-rccl.md").read_text()
# op, S of nccl-tests, ranks, us: median, least, most; bytes are one rank's part of an AllGather.
EXPECTED = [
    (Op.ALL_REDUCE, 1 << 20, 8, 50.0, 48.0, 900.0),
    (Op.ALL_GATHER, 8 << 20, 8, 70.0, 67.5, 500.0),
    (Op.ALL_TO_ALL, 8 << 20, 8, 100.0, 98.0, 300.0),
]


def _table() -> list[list[str]]:
    rows = [line.strip("|").split("|") for line in TEXT.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows]


def _delimited(mark: str) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=mark, lineterminator="\n").writerows(_table())
    return out.getvalue()


def _json_lines() -> str:
    header, *rows = _table()
    return "".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows)


@pytest.mark.parametrize("text", [TEXT, _delimited(","), _delimited("\t"), _json_lines()])
def test_every_form_has_the_same_rows(text: str) -> None:
    found = parse(text, TableHints())
    assert [
        (m.op, m.size_bytes, m.nranks, m.time_us_median, m.time_us_min, m.time_us_max)
        for m in found.rows
    ] == EXPECTED
    assert [d.code for d in found.diagnostics] == ["op_unknown"]
    first = found.rows[0]
    # 1 MiB in 50 us, times 2 x 7 / 8
    assert first.busbw_gbps == pytest.approx(36.70016)
    assert (first.reported_busbw_gbps, first.redop) == (36.70, "Sum")


def test_a_table_in_a_report_is_found() -> None:
    found = read_bytes("table", TEXT.encode(), Hints())
    assert isinstance(found, MeasurementSet)
    assert (found.dialect, len(found.rows), found.rows[0].iterations) == ("primus_rccl", 3, 100)


def test_torn_rows_are_counted() -> None:
    cut = TEXT[: TEXT.index("| 0.070") + 20]
    found = parse(cut, TableHints())
    assert [m.op for m in found.rows] == [Op.ALL_REDUCE]
    assert [d.code for d in found.diagnostics] == ["cut_row"]
    damaged = TEXT.replace("| 0.050 |", "| x |")
    assert [d.code for d in parse(damaged, TableHints()).diagnostics] == ["torn_row", "op_unknown"]
