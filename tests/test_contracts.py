"""What the repository promises of itself: views, samples, pages and paths."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType

import pytest

from collscope.cli import options
from collscope.reports.check.text import CHECK_FORMATS
from collscope.reports.rendering import formats as layout
from collscope.reports.tune import text as tune

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / "schemas"
PAGES = ("README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))))


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def store_schema() -> sqlite3.Connection:
    """An empty store made from the SQL files alone."""
    connection = sqlite3.connect(":memory:")
    for script in (*sorted(SCHEMAS.glob("*.sql")), *sorted(SCHEMAS.glob("views/*.sql"))):
        connection.executescript(script.read_text(encoding="utf-8"))
    return connection


def test_every_view_runs_and_every_column_has_a_comment(generate: ModuleType) -> None:
    connection = store_schema()
    names = [
        row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type='view'")
    ]
    views = generate.read_views(generate.views_text())
    assert [view.name for view in views] == names
    for view in views:
        output = [item[0] for item in connection.execute(f"SELECT * FROM {view.name}").description]
        assert [column.name for column in view.columns] == output
        assert [c.name for c in view.columns if not c.comment] == []
        assert view.purpose


def test_objects_that_are_not_views_are_private() -> None:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    assert [name for (name,) in store_schema().execute(query) if not name.startswith("_")] == []


def test_missing_comment_is_seen(generate: ModuleType) -> None:
    sql = "-- Purpose.\nCREATE VIEW v AS SELECT\n    a, -- first\n    f(b, c) AS d\nFROM t;\n"
    (view,) = generate.read_views(sql)
    assert [(column.name, column.comment) for column in view.columns] == [("a", "first"), ("d", "")]


def test_the_page_of_views_and_the_schemas_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def shell_sessions(text: str) -> Iterator[list[tuple[str, str]]]:
    """Fenced blocks that start with ``$ collscope``, as (command, expected output) pairs."""
    for body in re.findall(r"^```(?:console|sh)\n(\$ collscope .*?)^```$", text, re.M | re.S):
        steps = re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
        yield [(command, output) for command, _, output in (s.partition("\n") for s in steps)]


def test_shell_sessions_are_found() -> None:
    text = "```sh\n$ collscope a\nout\n\n$ collscope b | c\n```\n```console\n$ make\n```\n"
    expected = [[("collscope a", "out\n\n"), ("collscope b | c", "")]]
    assert list(shell_sessions(text)) == expected


def test_readme_shows_a_session() -> None:
    assert list(shell_sessions((ROOT / "README.md").read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES)
def test_documented_sessions_run_as_shown(page: str, tmp_path: Path) -> None:
    """Commands work, in order in one folder; where the page shows output, it is the output."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    scripts = Path(sys.executable).parent
    path = os.pathsep.join([str(scripts), os.environ.get("PATH", os.defpath)])
    for step in shell_sessions((ROOT / page).read_text(encoding="utf-8")):
        for command, expected in step:
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                env={**os.environ, "PATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if expected.strip():
                assert done.stdout.strip("\n") == expected.strip("\n"), command
            else:
                assert done.returncode == 0, f"{command}\n{done.stdout}"


def test_every_sample_has_its_provenance(samples: Path) -> None:
    listed = re.findall(r"^\| `([^`]+)`", (samples / "README.md").read_text("utf-8"), re.MULTILINE)
    files = [
        path.relative_to(samples).as_posix()
        for path in sorted(samples.rglob("*"))
        if path.is_file() and path.name != "README.md"
    ]
    assert [file for file in files if not any(fnmatch(file, name) for name in listed)] == []
    assert [name for name in listed if not any(fnmatch(file, name) for file in files)] == []


def repository_files() -> list[Path]:
    """Files of the repository, without what git ignores."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_home_directory_in_a_file() -> None:
    homes = {Path.home(), ROOT.parent} - {Path("/")}
    own = "|".join(re.escape(f"{home}/") for home in sorted(homes))
    pattern = re.compile(rf"(?<![\w.-])(?:{own}|/(?:home|Users)/\w)")
    # The pattern takes half a minute for all lines, a search for the words that it needs none.
    words = [f"{home}/".encode() for home in homes] + [b"/home/", b"/Users/"]
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in repository_files()
        for data in [path.read_bytes()]
        if any(word in data for word in words)
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


# Three words or more in a row: a sentence, or part of one.
_SENTENCE = re.compile(r"[a-z]+ [a-z]+ [a-z]+")


def _sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Texts for people in a module: not its docstrings, and not those of errors."""
    silent: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            silent.update(ast.walk(node))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(node.value)
    for node in ast.walk(tree):
        told = isinstance(node, ast.Constant) and node not in silent
        if told and isinstance(node.value, str) and _SENTENCE.search(node.value):
            yield node.lineno, node.value


def test_analysis_writes_no_sentences() -> None:
    found = {
        f"{path.name}:{line}: {text}"
        for path in sorted((ROOT / "collscope" / "analysis").rglob("*.py"))
        for line, text in _sentences(ast.parse(path.read_text("utf-8")))
    }
    assert not found
    # the test itself: a sentence in a record, and one in an error
    assert len(list(_sentences(ast.parse("x = f'{n} classes are wrong here'")))) == 1
    assert not list(_sentences(ast.parse("raise ValueError('classes are wrong here')")))


_SQL = re.compile(r"\bSELECT\b.*\bFROM\b|\b(?:FROM|JOIN|INTO|UPDATE) _[a-z]+", re.DOTALL)


def _texts(folder: Path) -> Iterator[tuple[str, str]]:
    """The literal texts of each module below a folder, with its path."""
    for module in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield module.relative_to(ROOT).as_posix(), node.value


def test_the_command_line_has_no_sql() -> None:
    assert {
        place for place, text in _texts(ROOT / "collscope" / "cli") if _SQL.search(text)
    } == set()


def test_private_tables_are_read_by_those_who_write_them() -> None:
    """All others read views: they are the store's interface."""
    private = re.compile(r"\b(?:FROM|JOIN) _[a-z]+")
    readers = {place for place, text in _texts(ROOT / "collscope") if private.search(text)}
    assert readers
    assert {place for place in readers if place.split("/")[1] not in ("store", "ingest")} == set()


def test_the_command_line_has_every_format() -> None:
    assert {form.value for form in options.Format} == set(layout.FORMATS)
    assert {form.value for form in options.TuneFormat} == set(tune.FORMATS)
    assert {form.value for form in options.CheckFormat} == set(CHECK_FORMATS)
