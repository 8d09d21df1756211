"""What rocm-bandwidth-test prints: peak bandwidths of copies between pairs of devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import collscope, rows

# As Report.cpp lays it out, with a device that is left out of a table; the values are invented.
TEXT = """\
          RocmBandwidthTest Version: 2.6.0

          Inter-Device Access

          D/D       0         1

          0         1         1

          1         1         1


          Unidirectional copy peak bandwidth GB/s

          D/D       0           1

          0         N/A         84.364

          1         84.147      212.419


          {bi} copy peak bandwidth GB/s

          D/D       0           1

          0         N/A         83.489

          1         83.5        N/A
"""
QUERY = "SELECT name, value, unit FROM metrics ORDER BY line, name"
EXPECTED = [
    ("copy peak bandwidth: device 0 -> device 1", 84.364, "GB/s"),
    ("copy peak bandwidth: device 1 -> device 0", 84.147, "GB/s"),
    ("copy peak bandwidth: device 1 -> device 1", 212.419, "GB/s"),
    ("copy peak bandwidth: device 0 <-> device 1", 83.489, "GB/s"),
    ("copy peak bandwidth: device 1 <-> device 0", 83.5, "GB/s"),
]


@pytest.mark.parametrize("bi", ["Bidirectional", "Bdirectional"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_each_pair_is_a_figure(bi: str, newline: str, tmp_path: Path, db_path: Path) -> None:
    path = tmp_path / "rbt.txt"
    path.write_text(TEXT.format(bi=bi).replace("\n", newline), newline="")
    assert "5 figures" in collscope("ingest", "auto", path, "--db", db_path).out
    assert rows(db_path, QUERY) == EXPECTED


def test_lines_of_other_programs_end_a_table(tmp_path: Path, db_path: Path) -> None:
    path = tmp_path / "rbt.txt"
    path.write_text(TEXT.format(bi="Bidirectional") + "step 7 done\n 1         83.5        99.0\n")
    assert collscope("ingest", "auto", path, "--db", db_path).code == 0
    assert rows(db_path, QUERY) == EXPECTED


def test_a_cut_row_is_told(tmp_path: Path, db_path: Path) -> None:
    path = tmp_path / "rbt.txt"
    path.write_text(TEXT.format(bi="Bidirectional")[: -len("        N/A\n")])
    assert "1 x cut_row" in collscope("ingest", "auto", path, "--db", db_path).out
    assert rows(db_path, QUERY) == EXPECTED[:-1]


def test_published_output(corpus: Path, db_path: Path) -> None:
    path = corpus / "wild-2026-11" / "unread" / "rbt.txt"
    assert "12 figures" in collscope("ingest", "auto", path, "--db", db_path).out
    name = "copy peak bandwidth: device 2 -> device 3"
    assert rows(db_path, f"SELECT value FROM metrics WHERE name = '{name}'") == [(47.9,)]


def test_the_database_of_rocprof_names_what_lies_beside_it(corpus: Path, db_path: Path) -> None:
    path = corpus / "wild-2026-11" / "unread" / "rocprof_v1_results.db"
    for command in ("auto", "profile"):
        done = collscope("ingest", command, path, "--db", db_path)
        assert (done.code, "ingest the .json or the .stats.csv" in done.err) == (3, True)
