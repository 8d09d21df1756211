"""What users of sqlite3, pytest, git and their kin type first (a trial of 30 habitual commands)."""

from __future__ import annotations

import _thread
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from command import collscope, on_terminal, rows

import collscope as library
from collscope.ingest import commands
from collscope.store import near_names
from collscope.store.connection import open_store
from collscope.store.query import VIEWS, select


@pytest.fixture(scope="module")
def traced(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two traced runs, d and l, and logs in main."""
    db = tmp_path_factory.mktemp("habits") / "t.db"
    for run, folder in (("d", "traces/default"), ("l", "traces/ringll"), ("main", "nccl/ddp")):
        assert collscope("ingest", samples / folder, "--run", run, "--db", db).code == 0
    return db


def program(*arguments: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "collscope", *map(str, arguments)],
        input=given, capture_output=True, check=False, timeout=60,
    )  # fmt: skip


def test_debug_keeps_the_exit_code(traced: Path) -> None:
    for arguments in (("check", "d", "nosuch"), ("report", "--run", "nosuch")):
        plain = collscope(*arguments, "--db", traced)
        debug = collscope("--debug", *arguments, "--db", traced)
        assert debug.code == plain.code == 3
        assert debug.err.startswith("Traceback")


def test_a_step_may_be_slower_by_the_users_threshold(traced: Path) -> None:
    slower = collscope("check", "d", "l", "--db", traced, "--threshold", "300")
    assert slower.code == 1
    assert "The limit is 2 % (--total-threshold)" in slower.out
    loose = ("--threshold", "300", "--total-threshold", "300", "--resolution", "30")
    assert collscope("check", "d", "l", "--db", traced, *loose).code == 0


@pytest.mark.parametrize(("shell", "sign"), [("zsh", "compdef"), ("fish", "complete --command")])
def test_completion_is_of_the_shell_that_is_named(shell: str, sign: str) -> None:
    outcome = collscope("--show-completion", shell)
    assert (outcome.code, sign in outcome.out) == (0, True)
    assert collscope("--show-completion", "tcsh").code == 2


def test_completion_is_installed_for_the_shell_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    outcome = collscope("--install-completion", "zsh")
    assert outcome.out.startswith("zsh completion installed in")
    assert {p.name for p in tmp_path.iterdir()} == {".zshrc", ".zfunc"}


def test_ingest_without_a_kind_is_auto(samples: Path, tmp_path: Path) -> None:
    log = samples / "nccl" / "ddp" / "rank0.log"
    plain = collscope("ingest", log, "--db", tmp_path / "a.db")
    kind = collscope("ingest", "auto", log, "--db", tmp_path / "b.db")
    assert (plain.code, plain.out) == (0, kind.out)
    option_first = collscope("ingest", "--db", tmp_path / "c.db", log)
    assert (option_first.code, option_first.out) == (0, kind.out)
    assert "No such command 'lgo'" in collscope("ingest", "lgo", log).err
    assert "Commands:" in collscope("ingest", "-h").out


def test_report_takes_the_run_as_it_stands(traced: Path) -> None:
    named = collscope("report", "l", "--brief", "--db", traced)
    assert named == collscope("report", "--run", "l", "--brief", "--db", traced)
    assert named.code == 0
    missing = collscope("report", "nosuch", "--db", traced)
    assert "no run 'nosuch' (runs: 'd', 'l', 'main')" in missing.err


def test_piped_sql_is_run(traced: Path, tmp_path: Path) -> None:
    piped = program("sql", "--db", traced, "--format", "csv", given=b"select 1 as a")
    assert piped.stdout == b"a\n1\n"
    query = tmp_path / "q.sql"
    query.write_text("select 2 as b")
    with query.open("rb") as file:
        redirected = subprocess.run(
            [sys.executable, "-m", "collscope", "sql", "--db", str(traced), "--format", "csv"],
            stdin=file, capture_output=True, check=True, timeout=60,
        )  # fmt: skip
    assert redirected.stdout == b"b\n2\n"
    nothing = subprocess.run(
        [sys.executable, "-m", "collscope", "sql", "--db", str(traced)],
        stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    assert b"call_times" in nothing.stdout
    assert collscope("sql", "", "--db", traced).code == 2
    assert program("sql", "-", "--db", traced).returncode == 2


def test_no_rows_are_no_lines(traced: Path) -> None:
    found = program("sql", "select 1 a where 0", "--format", "jsonl", "--db", traced)
    assert found.stdout == b""
    assert program("sql", "select 1 a", "--format", "jsonl", "--db", traced).stdout == b'{"a":1}\n'


@pytest.mark.parametrize("query", ["drop table calls", "Insert into runs values (1)", "vacuum"])
def test_what_writes_is_refused_for_that(traced: Path, query: str) -> None:
    outcome = collscope("sql", query, "--db", traced)
    assert (outcome.code, "it would do more than read the store" in outcome.err) == (2, True)


def test_a_trace_for_perfetto_goes_to_standard_output(traced: Path) -> None:
    found = program("export", "perfetto", "-o", "-", "--run", "d", "--db", traced)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["traceEvents"]
    opened = collscope("export", "perfetto", "-o", "-", "--open", "--run", "d", "--db", traced)
    assert opened.code == 2


def test_names_that_are_no_files_are_refused(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = samples / "nccl" / "ddp" / "rank0.log"
    memory = collscope("ingest", log, "--db", ":memory:")
    assert (memory.code, memory.err) == (
        3, "collscope: :memory:: not a file, but a store must be one. Name a file with --db.\n"
    )  # fmt: skip
    for arguments in (("ingest", log, "--db", "s3://b/t.db"), ("report", "--db", "s3://b/t.db")):
        outcome = collscope(*arguments)
        assert (outcome.code, "an address, but collscope" in outcome.err) == (3, True)
    assert collscope("ingest", log, "--db", "t.db").code == 0
    output = collscope("report", "--db", "t.db", "-o", "s3://b/r.html")
    assert (output.code, "Name one with -o" in output.err) == (3, True)
    assert {p.name for p in tmp_path.iterdir()} == {"t.db"}


def test_two_stars_are_any_folders(samples: Path, tmp_path: Path) -> None:
    outcome = collscope("ingest", f"{samples}/**/ddp/rank0.log", "--db", tmp_path / "t.db")
    assert outcome.code == 0
    assert "nccl/ddp/rank0.log" in outcome.out
    nothing = collscope("ingest", f"{samples}/*.nothing", "--db", tmp_path / "t.db")
    assert "a pattern that matches no file" in nothing.err


def test_a_run_that_is_not_there_is_named_without_an_option(traced: Path) -> None:
    outcome = collscope("runs", "rm", "nosuch", "--db", traced)
    assert outcome.err.endswith("no run 'nosuch' (runs: 'd', 'l', 'main'). Name one of them.\n")


def test_a_summary_that_cannot_be_written_changes_no_exit_code(
    traced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/nowhere/summary")
    outcome = collscope("check", "d", "l", "--db", traced, "--format", "github")
    assert outcome.code == 1
    assert "GITHUB_STEP_SUMMARY: /nowhere/summary: No such file" in outcome.err


def test_tables_behave_as_sequences(traced: Path) -> None:
    with library.open(traced) as store:
        table = store.sql("SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, 'y'")
    assert table[0] == {"a": 1, "b": "x"}
    assert table[-1]["a"] == 2
    assert table["b"] == ["x", "y"]
    assert list(table[1:]) == [{"a": 2, "b": "y"}]
    with pytest.raises(KeyError):
        table["c"]
    many = store.sql(
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 9999)"
        " SELECT x FROM c"
    )
    assert repr(many).endswith("… 9979 more rows")
    assert len(repr(many).splitlines()) == 23


def test_python_takes_lists_and_formats_by_name(samples: Path, tmp_path: Path) -> None:
    store = library.open(tmp_path / "t.db")
    logs = sorted((samples / "nccl" / "ddp").glob("*.log"))
    assert len(store.ingest([logs[0], str(logs[1])], logs[2])) >= 3
    assert library.render(store.report(), format="md").startswith("# collscope report")


def test_a_store_in_a_folder_that_only_reads(traced: Path, tmp_path: Path) -> None:
    """As docs/neighbours.md has it."""
    copy = tmp_path / "t.db"
    copy.write_bytes(traced.read_bytes())
    os.chmod(copy, 0o444)  # noqa: PTH101 - the mode alone
    connection = sqlite3.connect(f"file:{copy}?immutable=1", uri=True)
    assert connection.execute("SELECT COUNT(*) FROM calls").fetchone()[0] > 0
    connection.close()


def test_own_stores_and_answers_are_no_logs(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is ingested again after the report was written into it."""
    monkeypatch.chdir(tmp_path)
    for log in (samples / "nccl" / "ddp").glob("*.log"):
        (tmp_path / log.name).write_bytes(log.read_bytes())
    assert collscope("ingest", "log", ".").code == 0
    outputs = [part for end in ("json", "md", "html", "txt") for part in ("-o", f"r.{end}")]
    assert collscope("report", *outputs).code == 0
    before = collscope("sql", "SELECT * FROM facts").out
    for kind in ("log", "auto"):
        again = collscope("ingest", kind, ".", "--db", "collscope.db")
        assert again.code == 0
        assert collscope("sql", "SELECT COUNT(*) FROM sources", "--format", "csv").out.split() == [
            "COUNT(*)", "4",
        ]  # fmt: skip
    assert collscope("sql", "SELECT * FROM facts").out == before


def test_skipped_files_are_counted_by_reason(samples: Path, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "rank0.log").write_bytes((samples / "nccl" / "ddp" / "rank0.log").read_bytes())
    for number in range(30):
        (folder / f"f{number:02}.bin").write_bytes(bytes([number, 0, 255, 17] * 20))
    for options in ((), ("-q",)):
        outcome = collscope("ingest", "auto", folder, "--db", tmp_path / "t.db", *options)
        skipped = [line for line in outcome.out.splitlines() if " skipped: " in line]
        assert len(skipped) == 1
        assert skipped[0].startswith("30 files skipped: no profile, trace, replay CSV, log,")
        assert skipped[0].endswith(f"(first {folder / 'f00.bin'})")


def test_of_several_outputs_each_ending_counts(traced: Path, tmp_path: Path) -> None:
    junit = tmp_path / "j.xml"
    outcome = collscope(
        "check", "d", "l", "--db", traced, "--format", "github", "-o", junit, "-o", "-"
    )
    assert outcome.out.startswith("::error ")
    assert junit.read_text().startswith("<?xml")
    only = tmp_path / "x.html"
    assert collscope("report", "d", "--db", traced, "--format", "json", "-o", only).code == 0
    assert json.loads(only.read_text())["schema"].startswith("collscope.report/")


@pytest.mark.parametrize(
    "command",
    [
        "report --brief", "predict --system h200", "export perfetto -o x.json",
        "export inspector --out x", "whatif fusion --label x", "replay --dry-run", "tune --dry-run",
        "hang", "bench backends --dry-run",
    ],
)  # fmt: skip
def test_a_run_is_an_argument_of_every_command_that_reads_one(
    traced: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*command.split(), "--db", traced]
    option = collscope(*words, "--run", "l")
    assert collscope(*words, "l") == option
    assert collscope(*words, "nosuch") != option
    assert "No such" not in option.err


def test_a_run_is_named_once(traced: Path) -> None:
    outcome = collscope("report", "d", "--run", "main", "--db", traced)
    assert (outcome.code, "the run is d and --run main" in outcome.err) == (2, True)
    assert collscope("report", "d", "--run", "d", "--db", traced).code == 0


def test_an_unknown_cause_has_no_cost(traced: Path) -> None:
    verdict = json.loads(collscope("report", "--format", "json", "--db", traced).out)["verdict"]
    assert [entry["cause"] for entry in verdict] == ["unknown"]
    assert verdict[0]["ms_per_step"] == {"value": None, "low": None, "high": None}


def test_pages_are_drawn_without_a_home(traced: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": "/proc/nowhere"}
    environment.pop("XDG_CONFIG_HOME", None)
    environment.pop("MPLCONFIGDIR", None)
    page = tmp_path / "r.html"
    done = subprocess.run(
        [sys.executable, "-m", "collscope", "report", "d", "--db", str(traced), "-o", str(page)],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "<svg" in page.read_text()


@pytest.mark.parametrize("run", ["d", "l"])
def test_the_axis_of_lateness_has_numbers(traced: Path, tmp_path: Path, run: str) -> None:
    """All ranks of a run may be late by about as much: within one power of ten."""
    plot = tmp_path / "r.svg"
    assert collscope("report", run, "--db", traced, "--plot", plot).code == 0
    before, _ = plot.read_text().split("<!-- late by (us) -->")
    axis = before.rsplit('<g id="matplotlib.axis_', 1)[1]
    numbers = [float(text) for text in re.findall(r"<!-- ([0-9.]+) -->", axis)]
    assert len(numbers) >= 2


@pytest.mark.parametrize("command", ["predict --system h200", "export perfetto -o -"])
def test_runs_with_traces_are_named(traced: Path, command: str) -> None:
    """Without --run these take main, which has logs only here."""
    done = collscope(*command.split(), "--db", traced)
    assert done.code == 3
    assert "run 'main' has no traces (runs with traces: 'd', 'l'). Name one of them" in done.err


@pytest.mark.parametrize("command", ["report d --db {}", "--version", "--help", "sql --help"])
def test_a_closed_pipe_is_no_regression(traced: Path, command: str) -> None:
    program = f"{sys.executable} -m collscope {command.format(traced)}"
    shell = f"set -o pipefail; {program} | true"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    "command",
    [
        "export perfetto d -o -", "report d", "sql 'select 1 a' --format parquet",
        "runs --format jsonl", "sql 'select 1 a'",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("target", "message"), [("/dev/full", b"No space left on device"), ("&-", b"closed. Open it")]
)
def test_standard_output_that_takes_nothing(
    traced: Path, command: str, target: str, message: bytes
) -> None:
    shell = f"{sys.executable} -m collscope {command} --db {traced} >{target}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    assert done.stderr.startswith(b"collscope: standard output: ")
    assert message in done.stderr


def test_ctrl_c_while_modules_load_leaves_no_traceback() -> None:
    script = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from collscope.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_long_time_limit_is_none(traced: Path) -> None:
    for limit in ("1e12", "inf"):
        found = program("sql", "select 1 a", "--timeout", limit, "--db", traced)
        assert (found.returncode, b"Traceback" in found.stderr) == (0, False)


def test_markdown_of_rows_shows_names_as_they_are(traced: Path) -> None:
    query = "select 'Kernel<4096ul>*_x_ `a|b`' as name"
    found = collscope("sql", query, "--format", "md", "--db", traced).out
    assert found.splitlines()[-1] == "| Kernel\\<4096ul>\\*\\_x\\_ \\`a\\|b\\` |"


def test_a_store_is_no_profile_either(traced: Path, tmp_path: Path) -> None:
    outcome = collscope("ingest", "log", traced, "--db", tmp_path / "n.db")
    assert (outcome.code, "It looks like" in outcome.err) == (3, False)


@pytest.mark.parametrize("query", ["-- a comment\nSELECT 7 AS n", "--a comment\nSELECT 7 AS n"])
def test_a_query_may_begin_with_a_comment(traced: Path, query: str) -> None:
    found = collscope("sql", query, "--db", traced, "--format", "csv")
    assert (found.code, found.out) == (0, "n\n7\n")
    wrong = collscope("sql", "--formt", "csv", "--db", traced)
    assert (wrong.code, "--format" in wrong.err) == (2, True)


@pytest.mark.parametrize("command", [("compare", "nosuch"), ("compare", "d", "d")])
def test_what_can_be_compared_is_named(traced: Path, command: tuple[str, ...]) -> None:
    found = collscope(*command, "--db", traced)
    assert (found.code, "(here: 'd'" in found.err) == (2, True)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("report d --db {db} -o out/r.html", "-o"),
        ("sql nosuch --db {db} -o out/r.parquet", "-o"),
        ("report d --db {db} --plot out/r.png", "--plot"),
        ("export perfetto d --db {db} -o out/r.json", "-o"),
        ("roofline h200 --fit x --save out/r.toml", "--save"),
        ("bench ceilings -n 2 --system h200 --save out/r.toml", "--save"),
        ("replay d --db {db} --backend host --csv out/r.csv", "--csv"),
        ("record --html out/r.html -- touch job-ran", "--html"),
        ("record --db out/r.db -- touch job-ran", "--db"),
        ("attach ./control . --db out/r.db", "--db"),
        ("ingest {log} --db out/r.db", "--db"),
        ("merge {db} --db out/r.db", "--db"),
    ],
)
def test_a_folder_that_is_missing_is_made_by_the_command_that_is_named(
    traced: Path,
    samples: Path,
    command: str,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    log = samples / "nccl" / "ddp" / "rank0.log"
    done = collscope(*command.format(db=traced, log=log).split())
    assert done.code == 3
    assert "no such folder. Make it with 'mkdir -p out', or name another file with" in done.err
    assert done.err.endswith(f" with {option}.\n")
    assert list(tmp_path.iterdir()) == []


def test_the_verdict_is_on_the_console_where_the_answer_goes_into_files(
    traced: Path, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check = ("check", "d", "l", "--db", traced)
    told = collscope(*check, "-o", "j.xml", "-o", "r.html")
    assert (told.code, told.out, told.err.count("\n")) == (1, "", 1)
    begin = (
        "check: regression: The step is slower. Estimated without the profiler, a step of 'l' takes"
    )
    assert told.err.startswith(f"{begin} 1.12 times as long as a step of 'd'")
    assert collscope(*check, "-o", "j.xml", "-o", "-").err == ""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert collscope(*check, "-o", "j.xml").err == told.err
    assert collscope(*check).err == ""
    hang = collscope("hang", samples / "nccl/ddp", "-o", "h.json")
    assert (hang.out, json.loads(Path("h.json").read_text())["decided"]) == ("", False)
    assert (hang.code, hang.err) == (4, "hang: Verdict: not decided.\n")


def test_a_terminal_names_the_files_that_were_written(traced: Path, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    command = ("report", "d", "--db", traced, "-o", page)
    assert on_terminal(80, *command).out == f"{page}: written\n"
    assert collscope(*command).err == ""


def test_ingest_names_labels_and_on_a_terminal_the_next_command(
    samples: Path, tmp_path: Path
) -> None:
    replays, db = samples / "replay", tmp_path / "a b.db"
    mixed, sweep = replays / "h200x4-mixed.csv", replays / "h200x4-sweep.csv"
    piped = collscope("ingest", "csv", mixed, "--db", db)
    assert (piped.code, piped.err) == (0, "")
    assert piped.out.splitlines()[0].endswith("294 samples; label 'h200x4-mixed'")
    named = collscope("ingest", "csv", mixed, "--db", db, "--label", "mine")
    assert named.out.splitlines()[0].endswith(
        "label 'mine' (read again; replaces its earlier rows)"
    )
    several = collscope("ingest", "csv", mixed, sweep, "--db", tmp_path / "q.db", "-q")
    assert "; labels 'h200x4-mixed', 'h200x4-sweep'" in several.out
    shown = on_terminal(200, "ingest", sweep, "--db", db, "--run", "r 2")
    assert shown.out.splitlines()[-1] == f"next: collscope report 'r 2' --db '{db}'"
    quiet = on_terminal(200, "ingest", sweep, "--db", db, "--run", "other", "-q")
    assert "next:" not in quiet.out
    table = collscope("ingest", samples / "tables" / "osu-7.4-host.txt", "--db", db)
    assert "; labels 'OSU " in table.out
    assert " more\n" in table.out


def test_names_beyond_ascii_where_the_system_has_none(samples: Path, tmp_path: Path) -> None:
    """Python decodes no name as UTF-8 there; SQLite and the schema's scripts are UTF-8 still."""
    environment = {
        **os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
    }  # fmt: skip
    store = tmp_path / "ü" / "ö.db"
    store.parent.mkdir()
    log = tmp_path / "lög.log"
    shutil.copy(samples / "nccl" / "mixed" / "rank0.log", log)
    for command in (
        ["ingest", "log", log, "--run", "rün"],
        ["report", "rün"],
        ["report", "rün", "-o", tmp_path / "ä.html"],
        ["export", "perfetto", "--run", "rün", "-o", tmp_path / "ä.json"],
        ["sql", "SELECT 'ß' AS \"ß\"", "-o", tmp_path / "ä.json"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "collscope", *command, "--db", store],
            env=environment, capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        assert b"internal error" not in done.stderr
        assert done.returncode == (3 if command[0] == "export" else 0), done.stderr
    assert rows(store, "SELECT run, path FROM sources") == [("rün", str(log))]
    assert "ß" in (tmp_path / "ä.json").read_text("utf-8")
    missing = subprocess.run(
        [sys.executable, "-m", "collscope", "runs", "--db", tmp_path / "é.db"],
        env=environment, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert b"\\udc" not in missing.stderr


def test_a_query_that_is_no_text_is_wrong_use(traced: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "collscope", "sql", b"SELECT '\xff'", "--db", traced],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, b"no UTF-8" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("command", "code", "hint"),
    [
        ("version", 2, "Run collscope --version."),
        ("help report", 2, "Run collscope report --help."),
        ("help", 2, "collscope COMMAND --help"),
        ("stats {db}", 2, "Run collscope report."),
        ("{db}", 2, "Run 'collscope report --db {db}'."),
        ("nosuch.log", 2, "Run 'collscope ingest nosuch.log'."),
        ("reprot", 2, "Did you mean 'report'"),
        ("rows {db} runs --limit 3", 2, "No such command 'rows'. Run collscope sql."),
        ("absent.db", 2, "No such store. Run 'collscope ingest PATH --db absent.db' to make it."),
        ("report - --db {db}", 2, "report -: it does not read standard input. Read it first with"),
        ("predict - --db {db}", 2, "'collscope ingest auto - --run NAME', then name the run."),
        ("ingest --run x", 2, "To read standard input: collscope ingest auto -"),
        ("ingest log", 2, "To read standard input: collscope ingest auto -"),
        ("--db {db} runs", 2, "--db: an option of commands. Write it after"),
        ("report -V", 2, "No such option: -V. Run collscope --version"),
        ("ingest nosuch", 3, "nosuch: no such file or folder."),
        ("ingest trce {db}", 2, "Did you mean 'trace'"),
        ("report {db}", 2, "a file, not a run. Write --db {db}."),
        ("report d --json", 2, "No such option: --json. Write --format json"),
        ("report d --db {db} -f json", 2, "Write --format"),
        ("report d --db {db} -o out/", 2, "out/: a folder. Name a file"),
        ("sql {db}", 2, "a file, not a query. Write --db {db}."),
        ("sql {db} x", 2, "Write --db {db}"),
        ("sql q --nl --db {db}", 2, "Write --format jsonl"),
        ("sql -f q.sql", 2, "Write < FILE for a query in a file, or --format FORMAT"),
        ("sql select 1 from calls", 2, "Write the query as one argument, in quotes"),
        ("report d --limit 5", 2, "No such option: --limit. Write --top"),
        ("report d -n 5", 2, "Write --top"),
        ("watch x --run d", 2, "No such option: --run"),
        ("bench ceilings d -n 2 --system h200", 2, "(d). Write --run d"),
        ("ingest x.csv --label a", 2, "collscope ingest csv', 'python -m collscope ingest table'"),
        ("ingest log x.csv --name a", 2, "collscope ingest metric' has it"),
        ("report d --db {db} -o .", 2, ".: a folder. Name a file with -o."),
        ("replay --run nosuch --dry-run --db {db}", 3, "no run 'nosuch' (runs: 'd', 'l', 'main')"),
        (
            "replay nosuch --dry-run --db {db}",
            3,
            "nosuch: no such file or folder, and no run of {db} (runs: 'd', 'l', 'main').",
        ),
        ("hang nosuch --db {db}", 3, "nosuch: no such file or folder, and no run of {db}"),
        ("hang nosuch.log --db {db}", 3, "nosuch.log: no such file or folder. Check the path."),
        ("hang nosuch --db absent.db", 3, "nosuch: no such file or folder. Check the name."),
        ("sql q --limit 5 --db {db}", 2, "No such option: --limit. Write LIMIT in the query"),
        ("record -o r.html -- true", 2, "No such option: -o. Write --html"),
        ("replay -o r.csv", 2, "No such option: -o. Write --csv"),
        ("merge nosuch.db --db new.db", 3, "nosuch.db: no such store. Check the path."),
        ("whatif fusion --label x --db absent.db", 3, "absent.db: no such store."),
        ("ingest trace {db} --db absent.db", 3, "a store, not an input. Write --db {db} to read"),
        ("ingest {db} x.log", 3, "a store, not an input. Write --db {db} to read files into it"),
        ("ingest x.log -o x.db", 2, "No such option: -o. Write --db"),
        (
            "export chrome d -o x.json",
            2,
            "No such command 'chrome'. Commands: perfetto, inspector.",
        ),
        ("report d l --db {db}", 2, "(l). It takes one run; collscope compare A B takes two"),
        ("report d --all", 2, "No such option: --all. Write --top 0"),
        ("sql q -t", 2, "No such option: -t. Write --format text"),
        (
            "report nosuch.db --db {db}",
            2,
            "report nosuch.db: no such run or file. Name a store with --db.",
        ),
        ("report d -d {db}", 2, "No such option: -d. Write --db"),
        ("report d -q", 2, "No such option: -q. Write --brief"),
        ("compare d l --no-color", 2, "Output has no colours"),
        ("-v report d", 2, "collscope --debug COMMAND shows tracebacks"),
        ("report d --exit-code", 2, "Run collscope check BASELINE CURRENT: its exit code"),
        ("compare d l --fail-under 5", 2, "Run collscope check BASELINE CURRENT"),
        ("profile python x.py", 2, "Run collscope record -- COMMAND."),
        ("trace x.json", 2, "Run collscope ingest trace PATH."),
        ("drop d", 2, "Run collscope runs rm RUN."),
        ("report d --brief --format csv --db {db}", 2, "report: --brief is text or md."),
        ("report d --brief -o r.html --db {db}", 2, "report: --brief is text or md."),
        ("serve {db}", 2, "Run datasette STORE, or collscope mcp for an assistant."),
        ("runs list --db {db}", 2, "'collscope runs' alone lists the runs"),
    ],
)
def test_words_of_other_tools(traced: Path, command: str, code: int, hint: str) -> None:
    done = program(*command.format(db=traced).split())
    assert (done.returncode, done.stdout) == (code, b"")
    assert hint.format(db=traced) in " ".join(done.stderr.decode().split())


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("SELECT * FROM class", "no such table: class. Did you mean classes"),
        ("SELECT c.callls FROM classes c", "no such column: c.callls. Did you mean calls"),
        ("SELECT xyzxyz FROM classes", "'collscope sql' alone lists views"),
        ("SELECT 1; SELECT 2", "Run 'collscope sql' for each"),
        (
            "SELECT * FROM runs",
            "no such table: runs. 'collscope runs' lists the runs",
        ),
        ("SELECT * FROM collectives", "no such table: collectives. Did you mean calls or classes?"),
        ("SELECT * FROM files", "Did you mean sources? 'collscope sql' alone lists views"),
        ("SELECT * FROM Ranks", "Did you mean rank_times or members?"),
        ("SELECT * FROM call_time", "Did you mean call_times or"),
        ("SELECT size FROM calls", "no such column: size. Did you mean size_bytes?"),
        ("SELECT dtype FROM calls", "Did you mean datatype?"),
        # nme is near name and net, which other views have
        ("SELECT nme FROM calls", "no such column: nme. 'collscope sql' alone lists views"),
    ],
)
def test_a_wrong_query_names_what_is_near(traced: Path, query: str, hint: str) -> None:
    done = collscope("sql", query, "--db", traced)
    assert (done.code, hint in done.err) == (2, True)


def test_a_word_that_is_meant_leads_to_a_view(traced: Path) -> None:
    views = dict(rows(traced, VIEWS))
    assert {view for views_of in near_names._VIEWS.values() for view in views_of} <= set(views)
    columns = {column for text in views.values() for column in str(text).split(", ")}
    assert set(near_names._COLUMNS.values()) <= columns
    assert not set(near_names._VIEWS) & set(views)


@pytest.mark.parametrize("timeout_s", [None, 600.0])
def test_ctrl_c_ends_a_query(timeout_s: float | None) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            # Functions in C: Python heeds the signal only where SQLite calls Python.
            connection.create_function("ctrl_c", 0, _thread.interrupt_main)
            connection.create_function("end", 1, seen.append)
            numbers = "SELECT coalesce(ctrl_c(), 1) UNION ALL SELECT n + 1 FROM r WHERE n < 1000000"
            query = f"WITH RECURSIVE r(n) AS ({numbers}) SELECT end(count(*)) FROM r"
            with pytest.raises(KeyboardInterrupt):
                list(select(connection, query, timeout_s=timeout_s)[1])
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == []


def test_the_variable_names_the_run_of_a_whatif(
    traced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fusion = ("whatif", "fusion", "--label", "x", "--db", traced)
    monkeypatch.setenv("COLLSCOPE_RUN", "nosuch")
    assert "no run 'nosuch' (runs: 'd', 'l', 'main')" in collscope(*fusion).err
    assert "nosuch" not in collscope(*fusion, "--run", "d").err
    assert "nosuch" not in collscope(*fusion, "d").err


def test_only_options_that_are_spelled_alike_are_offered(traced: Path) -> None:
    for words in ("compare d l --limit 3", "compare d l --top 3", "replay --out x"):
        assert "Possible options" not in collscope(*words.split(), "--db", traced).err
    assert "--format" in collscope("compare", "d", "l", "--fromat", "md").err


@pytest.mark.parametrize(
    "command",
    [
        "report d", "compare d l", "check d l", "predict d", "roofline", "tune d --dry-run",
        "msccl {msccl}", "watch {recorded} --once", "bench ceilings -n 2",
    ],
)  # fmt: skip
def test_the_variable_names_the_machine_of_every_command(
    traced: Path, samples: Path, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLLSCOPE_DB", str(traced))
    monkeypatch.setenv("COLLSCOPE_SYSTEM", "nosuch")
    algorithm = tmp_path / "a.xml"
    algorithm.write_text("<algo/>")
    paths = {"msccl": algorithm, "recorded": samples / "recorders"}
    done = collscope(*command.format(**paths).split())
    assert (done.code, done.out) == (3, "")
    assert "system 'nosuch': not known." in done.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("ingest", "auto", ""), 3), (("ingest", "log", ""), 3), (("hang", ""), 3),
        (("replay", ""), 3), (("watch", ""), 2), (("sanitize", "", "out"), 2),
        (("merge", "", "--db", "new.db"), 2),
        (("msccl", ""), 3), (("report", "-o", ""), 2), (("report", "--plot", ""), 2),
        (("report", "--db", ""), 2),
    ],
)  # fmt: skip
def test_an_empty_name_is_not_the_current_folder(
    samples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: int,
) -> None:
    """As of "$LOGS" where LOGS is not set."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(samples / "nccl/ddp/rank0.log", tmp_path)
    done = collscope(*words)
    assert (done.code, done.out) == (code, "")
    assert " is empty" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["rank0.log"]


def test_the_version_has_a_short_option() -> None:
    assert collscope("-V") == collscope("--version")
    assert collscope("-V").out == f"collscope {library.__version__}\n"


def test_a_query_in_a_file_is_redirected(traced: Path, tmp_path: Path) -> None:
    query = tmp_path / "a b.sql"
    query.write_text("SELECT 1 AS one")
    for word in (str(query), f"@{query}"):
        done = program("sql", word, "--db", traced)
        assert done.returncode == 2
        assert f"a file, not a query. Write < '{query}'." in done.stderr.decode()
    assert program("sql", "--db", traced, given=query.read_bytes()).stdout.startswith(b"one")


def test_a_folder_is_no_run(traced: Path, samples: Path) -> None:
    folder = samples / "nccl/ddp"
    for words in (
        ("report", folder), ("predict", folder, "--system", "h200"),
        ("export", "perfetto", folder, "-o", "t.json"),
        ("compare", "d", folder), ("check", "d", folder), ("check", folder, "d"),
    ):  # fmt: skip
        done = program(*words, "--db", traced)
        assert done.returncode == 2
        told = done.stderr.decode()
        assert f"first with 'collscope ingest {folder} --run" in told
        assert "then name the run." in told


@pytest.mark.parametrize("store", ["{db}", "absent.db"])
def test_a_store_before_a_query_leads_to_sql(traced: Path, store: str) -> None:
    name, query = store.format(db=traced), "select name from sqlite_master"
    for options in ((), ("--csv",), ("--format", "csv")):
        done = program(name, query, *options)
        assert done.returncode == 2
        told = " ".join(done.stderr.decode().split())
        assert f"Run: collscope sql --db {name} '{query}'" in told


def test_stores_and_folders_are_compared_by_the_commands_that_are_named(
    traced: Path, samples: Path, tmp_path: Path
) -> None:
    for store, folder in (("a.db", "default"), ("b.db", "ringll")):
        ingest = ("ingest", samples / "traces" / folder, "--db", tmp_path / store)
        assert collscope(*ingest).code == 0
    both = [tmp_path / "a.db", tmp_path / "b.db"]
    stores = program("compare", *both, "--db", traced)
    assert stores.returncode == 2
    assert b"a store, not a label. Join the stores with 'collscope merge --rename" in stores.stderr
    assert program("merge", "--rename", "--db", tmp_path / "ab.db", *both).returncode == 0
    assert program("compare", "main", "b.main", "--db", tmp_path / "ab.db").returncode == 0
    folder = samples / "traces/ringll"
    folders = program("compare", "d", folder, "--db", traced)
    assert folders.returncode == 2
    assert f"a folder, not a label. Ingest it first with 'collscope ingest {folder} --run" in (
        folders.stderr.decode()
    )


def test_help_of_rows_says_what_the_formats_change(traced: Path) -> None:
    words = " ".join(program("sql", "--help").stdout.decode().split())
    assert "csv has ' before a text that a spreadsheet would run, such as =1." in words
    for command in ("sql", "runs"):
        shown = " ".join(program(command, "--help").stdout.decode().split())
        assert "json is an object with the rows (jq '.rows[]')" in shown
    query = ("sql", "SELECT '=1' AS a", "--db", traced, "--format")
    assert program(*query, "csv").stdout == b"a\n'=1\n"
    assert program(*query, "jsonl").stdout == b'{"a":"=1"}\n'
    assert list(json.loads(program(*query, "json").stdout)) == ["schema", "columns", "rows"]


def test_a_method_of_stores_is_named_where_the_module_is_asked() -> None:
    with pytest.raises(AttributeError, match=r"collscope\.open\('collscope\.db'\)\.report"):
        library.report  # noqa: B018 - the look-up is what fails
    with pytest.raises(AttributeError, match=r"has no attribute 'nosuch'$"):
        library.nosuch  # noqa: B018


def test_a_store_takes_its_path_as_text(traced: Path) -> None:
    assert library.Store(str(traced)).runs() == ["d", "l", "main"]  # type: ignore[arg-type]


def test_ctrl_c_while_a_store_is_made_leaves_none(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, made = tmp_path / "t.db", []

    def interrupted(path: Path) -> sqlite3.Connection:
        _thread.interrupt_main()
        made.append(open_store(path))
        return made[0]

    monkeypatch.setattr(commands, "open_store", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            commands.ingest_auto([str(samples / "nccl/ddp/rank0.log")], db, "main")
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(made) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_shell_completes_what_is_exported() -> None:
    assert dir(library) == sorted(library.__all__)


@pytest.fixture(scope="module")
def many(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose run has more classes than a table shows, and kernel times of some of them."""
    db = tmp_path_factory.mktemp("many") / "t.db"
    folders = [samples / folder for folder in ("nccl/mixed", "nccl/ddp", "rccl", "traces/ringll")]
    assert collscope("ingest", "-q", *folders, "--db", db).code == 0
    return db


def test_data_for_programs_has_every_row(many: Path, tmp_path: Path) -> None:
    ((classes,),) = rows(many, "SELECT COUNT(*) FROM classes WHERE run = 'main'")
    assert classes > 20

    def lengths(*options: str) -> tuple[int, int]:
        report = ("report", "--db", many, *options)
        table = collscope(*report, "--format", "csv").out.splitlines()
        body = json.loads(collscope(*report, "--format", "json").out)
        assert body["header"]["classes"] == classes
        return len(table) - 1, len(body["classes"])

    assert lengths() == (classes, classes)
    assert lengths("--top", "5") == (5, 5)
    files = [tmp_path / name for name in ("x.csv", "x.json", "x.md", "x.html", "x.txt")]
    named = [word for file in files for word in ("-o", str(file))]
    assert collscope("report", "--db", many, *named).code == 0
    table, body, *readable = (file.read_text() for file in files)
    assert len(table.splitlines()) - 1 == len(json.loads(body)["classes"]) == classes
    for page in readable:
        assert f"{classes - 20} more classes not shown." in page
    assert "not shown" not in collscope("report", "--db", many, "--top", "0").out


def test_a_cut_table_changes_no_sentence(many: Path) -> None:
    def summary(top: str) -> str:
        return collscope("report", "--db", many, "--top", top).out.partition("\nFindings\n")[0]

    whole = summary("0")
    assert "Class with the most transfer and waiting" in whole
    assert {summary(top) for top in ("1", "5", "20")} == {whole}
