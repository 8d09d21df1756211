"""What leaves the program: no terminal obeys it, no spreadsheet runs it, no file is half of it."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from command import collscope
from hypothesis import given
from hypothesis import strategies as st

from collscope.outputs import replaced, write_file
from collscope.reports.rendering.csv import to_csv
from collscope.reports.rendering.formats import to_readable
from collscope.reports.rendering.layout import Column, Item, Section, Table
from collscope.writing import inert, one_line, to_json, visible

_EVIL = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202etxt.exe\u2066\x7f\r"


def _clean(text: str) -> bool:
    bidi = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    return not any(
        (unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n")
        or unicodedata.bidirectional(c) in bidi
        for c in text
    )


@given(st.text(st.characters(exclude_categories=[])))
def test_every_control_and_direction_character_is_shown(text: str) -> None:
    shown = visible(text)
    assert _clean(shown)
    assert visible(shown) == shown
    assert "\n" not in one_line(text)
    hidden = any(unicodedata.category(c) == "Cf" for c in text)
    assert text == shown or not _clean(text) or hidden or "::" in text or "##" in text


def test_nothing_is_a_command_to_a_machine_that_runs_tests() -> None:
    assert visible("::error::x\n  ::add-mask::y\na::b\n") == (
        "\\u003a:error::x\n  \\u003a:add-mask::y\na::b\n"
    )
    assert visible("x ##vso[task] ##[group] ## Heading") == (
        "x \\u0023#vso[task] \\u0023#[group] ## Heading"
    )
    assert visible("::notice title=a::b", commands=True) == "::notice title=a::b"


def test_no_text_of_a_section_begins_a_line() -> None:
    evil = "x\n## Findings\n::error::y\u2028z"
    grid = Table((Column(evil, "text"),), ((evil,),))
    section = Section(
        evil, (evil, Item(evil, (evil,)), grid, "# heading", "[a]: http://b", "x [a](b)")
    )
    told = to_readable("md", evil, [section])
    assert [line for line in told.splitlines() if line.startswith("## ")] == [
        "## x\\\\u000a## Findings\\\\u000a\\\\u003a:error::y\\\\u2028z"
    ]
    for line in ("\\# heading", "\\[a]: http://b", "x [a]\\(b)"):
        assert line in told.splitlines()
    for form in ("text", "md", "html"):
        lines = to_readable(form, evil, [section]).splitlines()
        assert not [line for line in lines if line.lstrip().startswith("::")]


@given(st.text())
def test_json_keeps_its_exact_values(text: str) -> None:
    assert json.loads(visible(to_json({"a": text}))) == {"a": text}


@pytest.mark.parametrize(
    "cell", ["=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "\tx", "\r=1", "-", "--", "-x", "+"]
)
def test_a_spreadsheet_runs_no_cell(cell: str) -> None:
    assert inert(cell) == (cell if cell in ("-", "+") else "'" + cell)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_numbers_stay_numbers(number: float) -> None:
    assert inert(str(number)) == str(number)
    ((cell,),) = list(csv.reader(io.StringIO(to_csv(["a"], [[number]]))))[1:]
    assert type(number)(cell) == number


def test_names_values_and_settings_of_the_input(samples: Path, tmp_path: Path) -> None:
    """Every text that a log can bring is in a file name, a setting or a line that is quoted."""
    raw = (samples / "nccl" / "mixed" / "rank0.log").read_bytes()
    head = raw[: raw.index(b"NCCL INFO")]
    log = tmp_path / f"evil{_EVIL}.log"
    setting = b"NCCL INFO NCCL_ALGO set by environment to =cmd()" + _EVIL.rstrip().encode()
    log.write_bytes(head.rpartition(b"\n")[2] + setting + b"\n" + raw)
    db = tmp_path / "t.db"
    told = collscope("ingest", "log", log, "--db", db)
    assert told.code == 0
    assert _clean(told.out), told.out
    assert "evil\\u001b]0;owned" in told.out
    query = "SELECT s.path, name, value FROM sources s JOIN settings WHERE value LIKE '%cmd%'"
    for form in ("text", "md", "csv", "json"):
        for command in (("report", "--top", "0"), ("sql", query)):
            done = collscope(*command, "--db", db, "--format", form)
            assert done.code == 0
            assert _clean(done.out), (command, form)
            assert form == "csv" or "=cmd()" in done.out  # the report's CSV is of its classes
    ((_, _, value),) = (row.values() for row in json.loads(done.out)["rows"])
    coloured = "\x1b[31m"  # which the scanner of logs takes away
    assert value == ("=cmd()" + _EVIL.rstrip()).replace(coloured, "")
    found = csv.reader(io.StringIO(collscope("sql", query, "--db", db, "--format", "csv").out))
    assert list(found)[1][2].startswith("'=cmd()")
    gone = collscope("ingest", "log", f"{_EVIL}\n", "--db", db)
    assert (gone.code, gone.err.count("\n"), _clean(gone.err)) == (3, 1, True)


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_file(path, "first\n")
    expected = 0o666 & ~_umask()
    assert stat.S_IMODE(path.stat().st_mode) == expected
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    write_file(link, "second\n")
    assert (path.read_text(), link.is_symlink()) == ("second\n", True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def half() -> None:
        with replaced(path) as file:
            file.write(b"half of")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert path.read_text() == "second\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "link"]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_device_is_written_as_it_stands() -> None:
    write_file(Path("/dev/null"), "gone")
    assert not Path("/dev/null").is_file()
    with pytest.raises(OSError, match="No space left on device"):
        write_file(Path("/dev/full"), "x")


# A file-size limit is how a test gets what a full disk does: a write that fails in the middle.
_LIMITED = (
    "import resource, signal, sys\n"
    "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))\n"
    "from collscope.cli import main\n"
    "main()"
)


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (("report",), "report.txt"),
        (("export", "perfetto"), "trace.json"),
        (("report",), "plot.svg"),
    ],
)
def test_a_failed_write_leaves_the_file_of_before(
    samples: Path, tmp_path: Path, command: tuple[str, ...], file: str
) -> None:
    pytest.importorskip("resource")
    db, output = tmp_path / "t.db", tmp_path / file
    given = samples / "replay" / "h200x4-mixed.csv" if "plot" in file else samples / "traces"
    assert collscope("ingest", "auto", given, "--db", db).code == 0
    output.write_text("of before\n")
    where = ("--plot" if "plot" in file else "-o", output)
    arguments = [sys.executable, "-c", _LIMITED, *command, "--db", db, *where]
    done = subprocess.run(arguments, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert "File too large. Name another" in done.stderr
    assert output.read_text() == "of before\n"
    assert [p.name for p in output.parent.iterdir() if p.name.startswith(".")] == []


def test_labels_are_drawn_as_they_are_written(samples: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    given = samples / "replay" / "h200x4-sweep.csv"  # curves have their labels in the legend
    done = collscope("ingest", "csv", given, "--db", db, "--label", r"$\bad{x$ and $y$")
    assert done.code == 0
    done = collscope("report", "--db", db, "--plot", tmp_path / "p.svg")
    assert (done.code, "internal" in done.err) == (0, False)
    assert "bad{x" in (tmp_path / "p.svg").read_text()


def test_names_longer_than_a_file_system_takes(samples: Path, tmp_path: Path) -> None:
    log, long = samples / "rccl" / "guide-coll-klke.log", "x" * 300
    db = tmp_path / "t.db"
    assert collscope("ingest", "log", log, "--db", db).code == 0
    for command in (
        ("ingest", "log", log, "--db", long),
        ("ingest", "auto", long, "--db", db),
        ("report", "--db", long),
        ("report", "--db", db, "-o", long),
        ("report", "--db", db, "--plot", long + ".svg"),
        ("sql", "--db", long),
        ("compare", long, "b", "--db", db),
        ("check", "--baseline", long, "--current", "b", "--db", db),
        ("roofline", "--system", long),
        ("replay", long, "--db", db),
        ("replay", "--db", db, "--csv", long),
        ("replay", "--db", long),
        ("tune", "--db", db, "--out", long),
        ("export", "perfetto", "--db", db, "-o", long + ".json"),
        ("msccl", long, "--db", db),
        ("predict", "--db", long),
        ("bench", "memcpy", "--csv", long),
        ("whatif", "fusion", "--db", long),
    ):
        done = collscope(*command)
        assert done.code in (2, 3, 4, 5), (command, done)
        assert "internal error" not in done.err, (command, done.err)
