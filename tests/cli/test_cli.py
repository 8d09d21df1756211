"""The command line as a user types it: exit codes, messages, and what it imports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command import collscope, dump, rows

from collscope import __version__
from collscope.cli import COMMANDS
from collscope.cli.deferred import Deferred
from collscope.ingest import logs
from collscope.ingest.result import Ingested
from collscope.store.connection import open_store, remove_empty


@pytest.fixture(scope="module")
def store(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("store") / "t.db"
    assert collscope("ingest", "log", samples / "nccl" / "ddp", "--db", db).code == 0
    return db


def _process(*arguments: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "collscope", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, check=False)


def test_version() -> None:
    done = _process("--version")
    assert (done.returncode, done.stdout.decode()) == (0, f"collscope {__version__}\n")


def test_errors_are_one_line_without_a_traceback(tmp_path: Path) -> None:
    done = _process("ingest", "log", tmp_path / "none.log", "--db", tmp_path / "t.db")
    assert done.returncode == 3
    assert done.stderr.decode() == (
        f"collscope: {tmp_path}/none.log: no such file or folder. Check the path.\n"
    )
    assert done.stdout == b""
    assert not (tmp_path / "t.db").exists()


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = _process("--debug", "ingest", "log", tmp_path / "none.log", "--db", tmp_path / "t.db")
    assert done.returncode != 0
    assert b"Traceback" in done.stderr


def test_standard_input(samples: Path, tmp_path: Path) -> None:
    log = (samples / "nccl" / "mixed-coll-only.log").read_bytes()
    done = _process("ingest", "log", "-", "--db", tmp_path / "t.db", given=log)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"-: nccl_log: 656 lines, ")
    empty = _process("ingest", "log", "-", "--db", tmp_path / "t.db")
    assert (empty.returncode, empty.stdout) == (3, b"")
    assert b"-: the file is empty." in empty.stderr


# What plots, pages and MPI need is not there; its absence shows where something imports it.
_WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("matplotlib", "jinja2", "mpi4py", "polars", "pandas")))
from collscope.cli import main
main()
"""


def test_analysis_needs_neither_plots_nor_mpi(samples: Path, tmp_path: Path) -> None:
    """The three commands of the README; a page says what it lacks."""
    environment = {**os.environ, "COLLSCOPE_DB": str(tmp_path / "t.db"), "PATH": "/nowhere"}
    for arguments, status in (
        (("ingest", "trace", samples / "traces" / "ringll"), 0),
        (("report", "--system", "h200"), 0),
        (("predict", "--system", "h200"), 0),
        (("report", "--format", "html"), 5),
    ):
        command = [sys.executable, "-c", _WITHOUT, *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert done.returncode == status, done.stderr
    assert b"not installed. Run 'pip install " in done.stderr


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv = ['collscope', '--help']\n"
        "from collscope.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "light = {'', '.cli', '.cli.deferred', '.cli.options', '.cli.values'}\n"
        "light |= {'.errors', '.outputs', '.writing'}\n"
        "own = {name[len('collscope'):] for name in sys.modules if name.startswith('collscope')}\n"
        "heavy = {'numpy', 'polars', 'matplotlib', 'msgspec', 'zstandard', 'rich', 'pydantic'}\n"
        "sys.exit(sorted(heavy & set(sys.modules)) + sorted(own - light) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"ingest" in done.stdout


@pytest.fixture(scope="module")
def measured(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A traced run, and the labels a and b of one sweep."""
    folder = tmp_path_factory.mktemp("measured")
    db, sweep = folder / "t.db", (samples / "replay" / "h200x4-sweep.csv").read_text()
    assert collscope("ingest", "trace", samples / "traces" / "ringll", "--db", db).code == 0
    for label in "ab":
        (folder / f"{label}.csv").write_text(f"{sweep}# {label}\n")
        done = collscope("ingest", "csv", folder / f"{label}.csv", "--label", label, "--db", db)
        assert done.code == 0, done.err
    return db


@pytest.mark.parametrize(
    "command",
    [
        ("runs",),
        ("compare", "a", "b"),
        ("check", "--baseline", "a", "--current", "b"),
    ],
)
def test_what_reads_stored_numbers_loads_no_arrays_and_no_systems(
    measured: Path, command: tuple[str, ...]
) -> None:
    script = (
        f"import sys; sys.argv = {['collscope', *command, '--db', str(measured)]!r}\n"
        "from collscope.cli import main\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code, ended.code\n"
        "heavy = {'numpy', 'zstandard', 'jinja2', 'collscope.roofline.system'}\n"
        "sys.exit(sorted(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def _options(command: Any, name: str) -> list[tuple[str, str, str]]:  # noqa: ANN401
    """(command, option, its help) of a command or a group of them."""
    if hasattr(command, "commands"):
        within = [_options(c, f"{name} {n}") for n, c in command.commands.items()]
        return [row for rows in within for row in rows]
    return [(name, o, p.help or "") for p in command.params for o in p.opts if o.startswith("-")]


def test_an_option_means_the_same_in_every_command() -> None:
    every = [row for c in COMMANDS for row in _options(c.built, str(c.name))]
    told = {o: {help for _, option, help in every if option == o} for _, o, _ in every}
    assert (
        told["-o"]
        == told["--output"]
        == {
            "Write to a file, in the format of its ending; - is standard output. May be repeated.",
            "File, .json or .json.gz; - is standard output.",
        }
    )
    assert told["-n"] == told["--ranks"]
    named = "ame of 'roofline --list', a file, or NODE+NETWORK"
    assert [help for help in told["--system"] if named not in help] == []
    assert all(help.endswith(": .png, .svg, .pdf.") for help in told["--plot"])
    assert all("folder" in help.lower() for help in told["--out"])
    assert all(re.search(r"\brun\b", help) for help in told["--run"])
    for option in ("--db", "--format", "--mpiexec", "--library", "--runtime", "--microbench"):
        assert len(told[option]) == 1, option


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_the_list_says_what_the_command_says(command: Deferred) -> None:
    assert command.help == command.built.help.splitlines()[0]
    assert command.name == command.built.name


@pytest.mark.parametrize("group", ["", "ingest", "export", "whatif", "bench"])
def test_the_lists_are_not_cut_on_a_terminal_of_80_columns(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = collscope(*group.split(), "--help")
    assert "Commands:" in done.out
    assert "..." not in done.out.partition("Commands:")[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--no-such-option",),
        ("no-such-command",),
        ("ingest", "log"),
        ("ingest", "log", "x", "--no-such-option"),
        ("ingest", "log", "x", "--run", "a\nb"),
        ("ingest", "log", "x", "--run", os.fsdecode(b"\xff")),
        ("report", "--format", "pdf"),
        ("report", "--top", "-1"),
        ("report", "--run", ""),
        ("check", "--baseline", " ", "--current", "a"),
        ("replay", "--label", ""),
    ],
)
def test_usage_errors(arguments: tuple[str, ...]) -> None:
    done = collscope(*arguments)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert done.err


def test_sql_answers_and_lists_views(store: Path) -> None:
    done = collscope("sql", "SELECT COUNT(*) AS n FROM sources", "--db", store, "--format", "csv")
    assert (done.code, done.out.split()) == (0, ["n", "4"])
    views = collscope("sql", "--db", store)
    assert views.code == 0
    assert "communicators\n    run, " in views.out
    assert max(map(len, views.out.splitlines())) <= 120
    assert collscope("sql", " ", "--db", store).code == 2


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO _run (label) VALUES ('x')",
        "DELETE FROM _source",
        "DELETE FROM calls",
        "DROP VIEW calls",
        "PRAGMA user_version = 7",
        "CREATE TABLE t (x)",
        "SELECT no_such_column FROM calls",
        "SELEC 1",
        "SELECT 1; SELECT 2",
        "SELECT ?",
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'other.db'",
        "CREATE TEMP TABLE t (x)",
        "BEGIN",
    ],
)
def test_sql_is_read_only_and_bad_queries_are_usage_errors(store: Path, query: str) -> None:
    before = dump(store)
    done = collscope("sql", query, "--db", store)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("collscope: query: ")
    assert done.err.count("\n") == 1
    assert ".." not in done.err
    assert "cannot modify" not in done.err
    assert dump(store) == before
    assert not Path("other.db").exists()


def test_sql_is_given_up(store: Path) -> None:
    endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"
    done = collscope("sql", endless, "--db", store, "--timeout", "0.05")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "collscope: query: not finished after 0.05 s. Ask for less, or raise --timeout.\n"
    )


def test_sql_is_given_up_within_one_call_of_a_function(store: Path) -> None:
    # memcmp of 15 MB at 15 million places
    endless = "SELECT instr(zeroblob(30000000), zeroblob(15000000) || x'01')"
    done = _process("sql", endless, "--db", store, "--timeout", "0.05")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == (
        b"collscope: query: not finished after 0.05 s. Ask for less, or raise --timeout.\n"
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 has no setlimit")
def test_sql_makes_no_value_of_gigabytes(store: Path) -> None:
    done = collscope("sql", "SELECT hex(zeroblob(490000000))", "--db", store)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "collscope: query: a value of more than 64 MiB. Ask for a part of it, with substr().\n"
    )
    assert collscope("sql", "SELECT length(zeroblob(60000000)) AS n", "--db", store).code == 0


@pytest.mark.parametrize("command", ["report", "sql"])
def test_a_missing_store(tmp_path: Path, command: str) -> None:
    done = collscope(command, "--db", tmp_path / "t.db")
    assert done.code == 3
    assert f"{tmp_path}/t.db: no such store. Run 'collscope ingest auto PATH' first" in done.err
    assert not list(tmp_path.iterdir())


def test_an_unknown_run_names_the_known(store: Path) -> None:
    done = collscope("report", "--db", store, "--run", "other")
    assert done.code == 3
    assert "no run 'other' (runs: 'main'). Name one of them." in done.err


def test_a_store_of_nothing_does_not_stay_and_one_that_does_says_so(tmp_path: Path) -> None:
    rubbish, db = tmp_path / "rubbish.log", tmp_path / "t.db"
    rubbish.write_text("nothing of the library\n")
    assert collscope("ingest", "log", rubbish, "--db", db).code == 3
    assert list(tmp_path.iterdir()) == [rubbish]
    db.touch()  # there before the command, so not its to remove
    assert collscope("ingest", "log", rubbish, "--db", db).code == 3
    done = collscope("report", "--db", db)
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        f"collscope: {db}: the store is empty. Run 'collscope ingest auto PATH' first.\n"
    )


def test_a_store_of_nothing_stays_for_another_process(tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    with closing(open_store(db)) as mine, closing(open_store(db)) as other:
        remove_empty(mine, db)
        other.execute("INSERT INTO _run (label) VALUES ('other')")
    assert rows(db, "SELECT label FROM _run") == [("other",)]


def test_ctrl_c_says_what_an_ingest_kept(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, db, left = logs.store_log, tmp_path / "t.db", [2]

    def interrupted(*arguments: Any) -> Ingested:  # noqa: ANN401 - passed on
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return whole(*arguments)

    monkeypatch.setattr(logs, "store_log", interrupted)
    command = ("ingest", "log", samples / "nccl" / "ddp", "--db", db)
    done = collscope(*command)
    assert (done.code, done.out.count("observations")) == (130, 2)
    assert done.err == (
        f"collscope: ingest: interrupted. 2 of 4 files are read and kept in {db}; run the command "
        "again to continue.\n"
    )
    monkeypatch.undo()
    again = collscope(*command)
    assert (again.code, again.out.count("already in this run")) == (0, 2)
    left[0] = 0
    monkeypatch.setattr(logs, "store_log", interrupted)
    nothing = collscope(*command[:-1], tmp_path / "none.db")
    assert nothing.err == "collscope: ingest: interrupted. Nothing was stored.\n"
    assert not (tmp_path / "none.db").exists()


def test_a_notice_of_several_files_names_the_first(samples: Path, tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("a.log", "b.log"))
    text = (samples / "rccl" / "guide-coll-klke.log").read_text()
    first.write_text(text)
    second.write_text(text + "\n")
    both = collscope("ingest", "log", first, second, "--db", tmp_path / "t.db")
    assert (
        " kernel_without_end: kernel-start lines (KL) without their kernel-end line (KE): the"
        f" kernels have no duration ({first} and 1 more)\n" in both.out
    )
    one = collscope("ingest", "log", first, "--db", tmp_path / "u.db")
    assert " no duration\n" in one.out


@pytest.mark.parametrize(
    ("closed", "said"),
    [
        (">&-", b"collscope: standard output: closed. Open it, or write to a file with -o.\n"),
        ("2>&- >&-", b""),  # the exit code still tells
    ],
)
def test_a_closed_output_is_one_clear_error(store: Path, closed: str, said: bytes) -> None:
    command = f"{sys.executable} -m collscope sql 'SELECT 1' --db {store} {closed}"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (3, said)


def test_the_output_file(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    done = collscope("report", "--db", store, "-o", target)
    assert (done.code, done.out) == (0, "")
    assert target.read_text() == collscope("report", "--db", store).out
    refused = collscope("report", "--db", store, "-o", tmp_path / "none" / "report.txt")
    assert refused.code == 3
    assert refused.err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "command",
    [
        ("report",), ("sql", "SELECT 1"), ("sql",), ("--version",), ("--help",), ("sql", "--help"),
        ("--show-completion", "bash"), (),
    ],
)  # fmt: skip
def test_output_that_cannot_be_written_is_an_error(store: Path, command: tuple[str, ...]) -> None:
    arguments = [sys.executable, "-m", "collscope", *command]
    if command and not command[-1].startswith("--") and command[-1] != "bash":
        arguments += ["--db", str(store)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            arguments, stdout=full, stderr=subprocess.PIPE, check=False, env=environment
        )
    assert done.returncode == 3
    assert done.stderr == (
        b"collscope: standard output: No space left on device. Make room, or write to a file.\n"
    )


# A file-size limit is how a test gets what a nearly full disk does: a write that is done in part.
_LIMITED = (
    "import resource, signal, sys\n"
    "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    "from collscope.cli import main\n"
    "main()"
)


@pytest.mark.parametrize("unbuffered", ["", "1"])  # 1: as in most containers
def test_output_that_is_written_in_part_is_an_error(
    store: Path, tmp_path: Path, unbuffered: str
) -> None:
    out = tmp_path / "out"
    padding = 100_000 - len(collscope("report", "--db", store).out) // 2
    out.write_text("." * padding)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with out.open("a") as file:
        done = subprocess.run(
            [sys.executable, "-c", _LIMITED, "report", "--db", store],
            stdout=file, stderr=subprocess.PIPE, check=False, env=environment,
        )  # fmt: skip
    assert out.stat().st_size == 100_000
    assert done.returncode == 3
    assert done.stderr.startswith(b"collscope: standard output: File too large.")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_error_that_cannot_be_told_is_no_regression(store: Path, unbuffered: str) -> None:
    arguments = [sys.executable, "-m", "collscope", "check", "a", "b", "--db", str(store)]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(arguments, stderr=full, check=False, env=environment)
    assert done.returncode == collscope("check", "a", "b", "--db", store).code == 3


def test_a_refused_log_leaves_no_object_of_the_scanner(samples: Path, tmp_path: Path) -> None:
    logs, db = samples / "nccl" / "ddp", tmp_path / "t.db"
    done = _process("ingest", "log", logs, "--db", db, "--max-size", "1K")
    assert done.returncode == 3
    assert b"nanobind" not in done.stderr


def test_a_choice_that_there_is_not_is_told_without_internals() -> None:
    err = collscope("report", "--format", "docx").err
    assert "'docx' is not one of" in err
    assert "Value error" not in err


def test_strict_makes_lost_data_an_error(samples: Path, tmp_path: Path) -> None:
    log = (samples / "rccl" / "guide-coll-klke.log").read_bytes()
    torn = tmp_path / "torn.log"
    torn.write_bytes(log[: log.rindex(b"nranks") + 3])
    relaxed = collscope("ingest", "log", torn, "--db", tmp_path / "a.db")
    assert relaxed.code == 0
    assert "data_loss: 1 x torn_line" in relaxed.out
    strict = collscope("ingest", "log", torn, "--db", tmp_path / "b.db", "--strict")
    assert strict.code == 3
    assert f"{torn}: data was lost or skipped (--strict)." in strict.err
    assert "What could be read is in the store" in strict.err
    whole = samples / "rccl" / "guide-coll-klke.log"
    assert collscope("ingest", "log", whole, "--db", tmp_path / "c.db", "--strict").code == 0


def test_strict_makes_a_skipped_file_an_error(samples: Path, tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.txt"
    rubbish.write_text("nothing of the library\n")
    paths = (samples / "rccl" / "guide-coll-klke.log", rubbish)
    assert collscope("ingest", "log", *paths, "--db", tmp_path / "a.db").code == 0
    strict = collscope("ingest", "log", *paths, "--db", tmp_path / "b.db", "--strict")
    assert strict.code == 3
    assert f"{rubbish}: data was lost or skipped (--strict)." in strict.err
