"""Where answers go and in which format; what stands in for an option."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from command import collscope

BEGINS = {
    "txt": "collscope report", "md": "# collscope report", "json": "{", "csv": "class_id,",
    "html": "<!doctype html>", "htm": "<!doctype html>",
}  # fmt: skip


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    path = tmp_path_factory.mktemp("answers") / "a.db"
    assert collscope("ingest", "log", samples / "nccl" / "mixed", "--db", path).code == 0
    return path


@pytest.mark.parametrize("ending", BEGINS)
def test_the_ending_decides_the_format(ending: str, db: Path, tmp_path: Path) -> None:
    path = tmp_path / f"x.{ending}"
    done = collscope("report", "--db", db, "-o", path)
    assert (done.code, done.out) == (0, "")
    assert path.read_text().startswith(BEGINS[ending])


def test_a_format_that_is_given_decides(db: Path, tmp_path: Path) -> None:
    assert collscope("report", "--db", db, "--format", "json", "-o", tmp_path / "x.html").code == 0
    assert json.loads((tmp_path / "x.html").read_text())["schema"].startswith("collscope.report/")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x.pdf", "the ending .pdf names no format. Use one of .txt, .md, .markdown, .json"),
        ("x.xml", "the ending .xml means junit, which this command does not write"),
    ],
)
def test_other_endings_are_errors(name: str, words: str, db: Path, tmp_path: Path) -> None:
    done = collscope("report", "--db", db, "-o", tmp_path / name)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert not (tmp_path / name).exists()


def test_a_name_without_ending_has_text(db: Path, tmp_path: Path) -> None:
    assert collscope("report", "--db", db, "-o", tmp_path / "answer").code == 0
    assert (tmp_path / "answer").read_text().startswith("collscope report")


def test_a_dash_is_standard_output(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = collscope("report", "--db", db).out
    assert collscope("report", "--db", db, "-o", "-").out == plain
    assert collscope("report", "--db", db, "-o", "-", "-o", "x.md").out == plain
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.md"]


def test_one_check_writes_page_junit_and_markdown(
    tmp_path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    (tmp_path / "summary").write_text("before\n")
    db, table = tmp_path / "a.db", samples / "tables" / "synthetic.nccl-tests.txt"
    for label in ("old", "new"):
        done = collscope("ingest", "table", table, "--db", db, "--label", label, "--run", label)
        assert done.code == 0
    outputs = [part for name in ("x.html", "x.xml", "x.md") for part in ("-o", tmp_path / name)]
    done = collscope("check", "old", "new", "--db", db, *outputs)
    assert done.out == ""
    assert (tmp_path / "x.html").read_text().startswith("<!doctype html>")
    assert "<testsuite" in (tmp_path / "x.xml").read_text()
    markdown = (tmp_path / "x.md").read_text()
    assert (tmp_path / "summary").read_text() == f"before\n{markdown.rstrip()}\n\n"
    assert collscope("check", "old", "new", "--db", db).code == done.code


def test_a_query_from_standard_input(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1 AS a, 2 AS a, NULL AS b"))
    done = collscope("sql", "-", "--db", db, "--format", "jsonl")
    assert (done.code, done.out) == (0, '{"a":1,"a:1":2,"b":null}\n')


def test_rows_are_objects(db: Path, tmp_path: Path) -> None:
    query = "SELECT 1 AS a, 'x' AS b UNION ALL SELECT NULL, 'y'"
    done = collscope("sql", query, "--db", db, "--format", "json")
    expected = [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    assert json.loads(done.out)["rows"] == expected
    assert collscope("sql", query, "--db", db, "-o", tmp_path / "x.parquet").code == 0
    polars = pytest.importorskip("polars")
    assert polars.read_parquet(tmp_path / "x.parquet").to_dicts() == expected


@pytest.mark.parametrize(
    ("address", "command"),
    [
        ("s3://bucket/a.log", "aws s3 cp s3://bucket/a.log - | collscope ingest auto -"),
        ("https://host/a.json", "curl -fsSL https://host/a.json | collscope ingest auto -"),
    ],
)
def test_an_address_is_refused_with_what_works(address: str, command: str, tmp_path: Path) -> None:
    done = collscope("ingest", "auto", address, "--db", tmp_path / "a.db")
    assert done.code == 3
    assert f"Run '{command}'" in done.err


@pytest.mark.parametrize("command", ["", "report", "ingest", "ingest trace", "bench p2p", "runs"])
def test_a_short_option_for_help(command: str) -> None:
    short, long = (collscope(*command.split(), option) for option in ("-h", "--help"))
    assert short == long
    assert (short.code, short.out.startswith("Usage: ")) == (0, True)


def test_many_files_have_one_line_together(tmp_path: Path, samples: Path) -> None:
    text = (samples / "nccl" / "mixed" / "rank0.log").read_text()
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(21):
        (logs / f"{number}.log").write_text(f"{text}# {number}\n")
    few = [logs / f"{number}.log" for number in range(20)]
    (logs / "nothing.bin").write_bytes(b"\x00\x01")
    done = collscope("ingest", "log", *few, "--db", tmp_path / "few.db")
    assert done.out.count(".log: nccl_log: ") == 20
    done = collscope("ingest", "log", *few, "--db", tmp_path / "quiet.db", "-q")
    assert done.out.startswith("20 files: nccl_log: ")
    done = collscope("ingest", "auto", logs, "--db", tmp_path / "many.db")
    assert done.out.startswith("21 files: nccl_log: ")
    assert f"{logs / 'nothing.bin'}: skipped: " in done.out


def test_variables_stand_for_options(
    db: Path, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLSCOPE_SYSTEM", "h100")
    monkeypatch.setenv("COLLSCOPE_RUN", "other")
    log = samples / "nccl" / "ddp"
    assert collscope("ingest", "log", log, "--db", tmp_path / "b.db").code == 0
    runs = collscope("runs", "--db", tmp_path / "b.db", "--format", "csv").out
    assert runs.splitlines()[1].startswith("other,")
    assert "run 'other'" in collscope("report", "--db", db).err
    roof = collscope("roofline").out
    assert roof == collscope("roofline", "h100").out
    assert collscope("roofline", "--list").out != roof
