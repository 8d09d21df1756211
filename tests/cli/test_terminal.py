"""What a terminal gets: its own width, whole names when asked for, completion."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import collscope, on_terminal
from inputs import ROOT

from collscope.reports.rendering.layout import NUMBER, TEXT, table
from collscope.reports.rendering.text import text_table

COMMAND = Path(sys.executable).with_name("collscope")
NAME = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def lines_on_terminal(columns: int, *arguments: str | Path) -> list[str]:
    done = on_terminal(columns, *arguments)
    assert done.code == 0, done.out
    return done.out.splitlines()


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    db = tmp_path_factory.mktemp("terminal") / "t.db"
    assert collscope("ingest", "trace", samples / "traces" / "default", "--db", db).code == 0
    return db


def test_everything_fits_a_terminal_of_80_columns(db: Path) -> None:
    lines = lines_on_terminal(80, "report", "--system", "h200", "--db", db)
    assert max(map(len, lines)) <= 80
    kernel = next(line for line in lines if "ncclDevKernel_AllR" in line)
    assert kernel.split("  ")[0] == "ncclDevKernel_AllReduce_Sum_bf16_RING_LL~"


def test_kernels_and_bins_are_told_apart_on_a_terminal_of_60_columns(db: Path) -> None:
    """What a kernel does stands in the middle and at the end of its name, before its arguments."""
    lines = lines_on_terminal(60, "report", "--db", db)
    kernels = [line.split("  ")[0] for line in lines if line.startswith("ncclDevKernel_")]
    assert len(kernels) == 12  # three of each rank
    assert len(set(kernels)) == 3
    assert {name.replace("~", "").endswith("RING_LL") for name in kernels} == {True}
    assert any(line.startswith("4 KiB .. < 64 KiB  ") for line in lines)


def test_a_table_that_is_too_wide_goes_on_below(db: Path) -> None:
    """Every part names its rows; together the parts have every column."""
    lines = lines_on_terminal(80, "report", "--db", db)
    section = lines[lines.index("Classes") + 2 :]
    section = section[: section.index("Efficiency and gain")]
    heads = [i for i, line in enumerate(section) if line.startswith("class  op ")]
    assert len(heads) > 2
    for head in heads:
        assert section[head + 1].startswith("-----  ---------")
        assert any(line.split()[1] == "AllReduce" for line in section[head + 2 : head + 8])
    words = " ".join(" ".join(section[head - 1 : head + 1]) for head in heads).split()
    whole = collscope("report", "--db", db).out.splitlines()
    titles = next(line for line in whole if line.startswith("class  op ") and "% bytes" in line)
    assert set(titles.split()) <= set(words)


def test_every_part_of_a_table_tells_its_rows_apart() -> None:
    """Outcome and operation name no row here; with the size they do, and the type adds nothing."""
    columns = [("outcome", TEXT), ("op", TEXT), ("type", TEXT), ("size B", NUMBER)]
    columns += [(f"figure {i}", NUMBER) for i in range(12)]
    sizes = [(op, size) for op in ("AllReduce", "AllGather") for size in (1024, 4096)]
    rows = [("slower", op, "Float32", size, *range(12)) for op, size in sizes]
    lines = text_table(table(columns, rows), 60)
    assert max(map(len, lines)) <= 60
    heads = [i for i, line in enumerate(lines) if line.startswith("-------  ")]
    assert len(heads) > 2
    for head in heads:
        named = [(line.split()[1], int(line.split()[2])) for line in lines[head + 1 : head + 5]]
        assert named == sizes


def test_a_text_is_cut_no_more_than_its_part_of_the_table_needs() -> None:
    """At 40 columns the numbers fill the first part; what is left of the second is the text's."""
    numbers = [(f"number{i}", NUMBER) for i in range(5)]
    text = "so many words as 35 columns do not hold"
    block = table([("key", NUMBER), *numbers, ("text", TEXT)], [(7, 1, 2, 3, 4, 5, text)])
    lines = text_table(block, 40)
    assert [line.split() for line in lines if line.startswith("  7")] == [
        ["7", "1", "2", "3", "4"],
        ["7", "5", "so", "many", "words", "as", "35", "colum~"],
    ]
    assert max(map(len, lines)) == 40


def test_sql_shortens_long_texts_on_a_terminal_only(db: Path) -> None:
    query = ("sql", "SELECT name, total_ns FROM kernel_totals WHERE name LIKE '%AllReduce%'")
    short = lines_on_terminal(60, *query, "--db", db)
    assert max(map(len, short)) <= 60
    assert not any(NAME in line for line in short)
    assert any(NAME in line for line in lines_on_terminal(60, *query, "--wide", "--db", db))
    assert NAME in collscope(*query, "--db", db).out


def test_sentences_of_a_wide_terminal_stay_readable(db: Path) -> None:
    lines = lines_on_terminal(200, "report", "--db", db)
    assert 100 < max(map(len, lines[: lines.index("Findings")])) <= 120


def test_wide_shows_whole_names(db: Path) -> None:
    assert any(NAME in line for line in lines_on_terminal(80, "report", "--db", db, "--wide"))


def test_a_pipe_has_the_columns_that_the_environment_names(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    named = collscope("report", "--db", db).out.splitlines()
    assert max(map(len, named)) <= 60
    monkeypatch.setenv("COLUMNS", "300")
    assert max(map(len, collscope("report", "--db", db).out.splitlines())) > 120


@pytest.mark.parametrize("columns", [None, "", "0", "-5", "wide", "9" * 5000])
def test_a_pipe_has_120_columns_where_the_environment_names_none(
    columns: str | None, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    lines = collscope("report", "--db", db).out.splitlines()
    assert NAME in "\n".join(lines)
    assert 100 < max(map(len, lines)) <= 120


def test_lines_of_ingest_fold_in_a_pipe_where_the_environment_names_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ROOT / "samples" / "nccl" / "ddp" / "rank0.log"
    lines = collscope("ingest", "log", log, "--db", tmp_path / "wide.db").out.splitlines()
    assert max(map(len, lines)) > 60
    monkeypatch.setenv("COLUMNS", "60")
    folded = collscope("ingest", "log", log, "--db", tmp_path / "named.db").out.splitlines()
    assert " ".join(map(str.strip, folded)) == " ".join(map(str.strip, lines))
    assert len(folded) > len(lines)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("collscope re", {"report", "replay", "record"}),
        ("collscope report --sy", {"--system"}),
        ("collscope ingest t", {"trace", "table"}),
    ],
)
def test_bash_completes_commands_and_options(words: str, expected: set[str]) -> None:
    place = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    environment = {**os.environ, **place, "_COLLSCOPE_COMPLETE": "complete_bash"}
    done = subprocess.run([COMMAND], env=environment, capture_output=True, text=True, check=False)
    assert set(done.stdout.split()) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("collscope report --system h10", {"h100"}),
        ("collscope report --run ot", {"other"}),
        ("collscope compare m", {"mine", "main"}),
        ("collscope runs rm o", {"other"}),
        ("collscope report --label m", {"mine"}),
    ],
)
def test_bash_completes_values(
    words: str, expected: set[str], samples: Path, tmp_path: Path
) -> None:
    db, table = tmp_path / "a.db", samples / "tables" / "synthetic.nccl-tests.txt"
    assert collscope("ingest", "table", table, "--db", db, "--label", "mine").code == 0
    log = samples / "nccl" / "mixed"
    assert collscope("ingest", "log", log, "--db", db, "--run", "other").code == 0
    place = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    environment = {
        **os.environ, **place, "_COLLSCOPE_COMPLETE": "complete_bash", "COLLSCOPE_DB": str(db),
    }  # fmt: skip
    done = subprocess.run([COMMAND], env=environment, capture_output=True, text=True, check=False)
    assert set(done.stdout.split()) == expected


def test_a_long_ingest_says_how_far_it_is(samples: Path, tmp_path: Path) -> None:
    """Standard input stays open until the line stands on the terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "collscope", "ingest", "log", "-", "--db", tmp_path / "t.db"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert child.stdin is not None
    child.stdin.write((samples / "nccl" / "mixed" / "rank0.log").read_bytes())
    child.stdin.flush()
    said = b""
    while b"so far" not in said:
        said += os.read(ours, 65536)
    child.stdin.close()
    with contextlib.suppress(OSError):  # the child has closed its end
        while part := os.read(ours, 65536):
            said += part
    os.close(ours)
    assert child.wait() == 0
    nothing, first, *_, last = said.decode().split("\r\x1b[K")
    assert nothing == ""
    assert re.fullmatch(r"0 of 1 file, [\d.]+ MiB, \d+ s so far", first)
    assert last.startswith("-: nccl_log: ")


def test_a_pipe_gets_no_progress(samples: Path, tmp_path: Path) -> None:
    done = collscope("ingest", "log", samples / "nccl" / "mixed", "--db", tmp_path / "t.db")
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out


def test_notices_of_an_ingest_fit_the_terminal(samples: Path, tmp_path: Path) -> None:
    """A pipe gets a line for each, so that grep finds whole sentences."""
    (tmp_path / "one").mkdir()
    for rank in range(2):
        log = (samples / "nccl" / "mixed" / f"rank{rank}.log").read_bytes()
        (tmp_path / "one" / f"rank{rank}.log").write_bytes(log[:-2000])
    command = ("ingest", "log", tmp_path / "one", "--db")
    piped = collscope(*command, tmp_path / "a.db").out
    shown = on_terminal(80, *command, tmp_path / "b.db").out
    folded, _ = shown.rpartition("\x1b[K")[2].split("next: ")  # what follows the progress
    assert max(map(len, piped.splitlines())) > 80
    assert max(len(line) for line in folded.splitlines() if "/" not in line) <= 80
    assert folded.split() == piped.split()


def test_no_option_is_broken_at_its_hyphens(db: Path) -> None:
    for columns in (67, 93, 118):
        said = " ".join(lines_on_terminal(columns, "predict", "--system", "h200", "--db", db))
        assert "--step-ms" in said
        assert not re.search(r"--[a-z]+- ", said)
