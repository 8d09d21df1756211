"""The library: docs/python.md as it stands, what an import loads, and tables."""

from __future__ import annotations

import csv
import doctest
import importlib.util
import pickle
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from command import collscope as command

import collscope
from collscope.errors import InputError, UsageError
from collscope.library import Table

_ROOT = Path(__file__).resolve().parent.parent
_PAGE = _ROOT / "docs" / "python.md"
_PANDAS = doctest.register_optionflag("PANDAS")


class _Examples(doctest.DocTestRunner):
    """Leaves out examples that need pandas where it is not installed."""

    def run(self, test: doctest.DocTest, **options: object) -> doctest.TestResults:  # type: ignore[override]
        if importlib.util.find_spec("pandas") is None:
            test.examples = [e for e in test.examples if _PANDAS not in e.options]
        return super().run(test, **options)  # type: ignore[arg-type]


def _slower(source: Path, target: Path, op: str, factor: float) -> None:
    """A replay CSV in which the times of one operation's largest messages are longer."""
    lines = source.read_text().splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("op,"))
    table = list(csv.DictReader(lines[start:]))
    for row in table:
        if row["op"] == op and int(row["size_bytes"]) >= 1 << 20:
            times = [float(time) * factor for time in row["samples_us"].split(";")]
            row["samples_us"] = ";".join(f"{time:.6g}" for time in times)
            for name in ("median", "min", "max", "mad"):
                row[f"time_us_{name}"] = f"{float(row[f'time_us_{name}']) * factor:.6g}"
            for name in ("algbw_gbps", "busbw_gbps"):
                row[name] = f"{float(row[name]) / factor:.6g}"
    with target.open("w", newline="") as file:
        file.writelines(f"{line}\n" for line in lines[:start])
        writer = csv.DictWriter(file, table[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def test_every_example_of_the_page(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "samples").symlink_to(samples)
    replay = samples / "replay" / "h200x4-mixed.csv"
    _slower(replay, tmp_path / "nightly.csv", "AllReduce", 1.0)
    _slower(replay, tmp_path / "build.csv", "AllReduce", 1.2)
    monkeypatch.chdir(tmp_path)
    text = _PAGE.read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, "python.md", str(_PAGE), 0)
    assert len(test.examples) > 15
    output: list[str] = []
    failed, _ = _Examples().run(test, out=output.append)
    assert failed == 0, "".join(output)


@pytest.mark.parametrize(
    "statement", ["import collscope", "import collscope; collscope.open('x.db')"]
)
def test_an_import_loads_nothing_heavy(statement: str) -> None:
    script = (
        f"import sys\n{statement}\n"
        "heavy = {'numpy', 'polars', 'pandas', 'matplotlib', 'mpi4py', 'typer'}\n"
        "sys.exit(sorted(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_python_started_beside_the_sources_says_what_to_do(tmp_path: Path) -> None:
    """`pip install .` leaves no native parts in the checkout, where Python looks first."""
    sources = Path(collscope.__file__).parent
    without = shutil.ignore_patterns("*.so", "_bin", "_lib", "__pycache__")
    shutil.copytree(sources, tmp_path / "collscope", ignore=without)
    # Without `site` no editable installation comes before the folder that Python is started in.
    script = (
        f"import sys; sys.path.append({sysconfig.get_path('purelib')!r})\n"
        "import collscope; collscope.open('job.db')"
    )
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "the sources, without their native parts. Start Python in another folder" in done.stderr


def test_what_is_exported_is_there() -> None:
    assert all(hasattr(collscope, name) for name in collscope.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = collscope.nothing


def test_the_library_and_the_command_say_the_same(samples: Path, db_path: Path) -> None:
    store = collscope.open(db_path)
    store.ingest(samples / "nccl" / "mixed", samples / "replay" / "h200x4-mixed.csv")
    report = store.report(system="h200")
    for form in ("text", "md", "csv", "json"):
        told = command(
            "report", "--db", db_path, "--system", "h200", "--top", "0", "--format", form
        )
        assert told.out == collscope.render(report, form)
    query = "SELECT * FROM measurements ORDER BY measurement_id LIMIT 3"
    told = command("sql", query, "--db", db_path, "--format", "csv")
    table = store.sql(query)
    assert told.out.splitlines()[0].split(",") == list(table.columns)
    assert len(told.out.splitlines()) == 1 + len(table)


def test_the_library_and_the_command_say_the_same_of_steps(samples: Path, db_path: Path) -> None:
    store = collscope.open(db_path)
    for run in ("default", "ringll"):
        store.ingest(samples / "traces" / run, run=run)
    given = ("--run", "ringll", "--step-ms", "5.9")
    for words, answer in (
        (
            ("predict", *given, "--system", "h200"),
            store.predict("ringll", system="h200", step_ms=5.9),
        ),
        (
            ("predict", *given, "--with", "default"),
            store.predict("ringll", label="default", step_ms=5.9),
        ),
        (("compare", "default", "ringll"), store.compare("default", "ringll")),
        (("compare", "--explain", "default", "ringll"), store.explain("default", "ringll")),
    ):
        for form in ("text", "json"):
            told = command(*words, "--db", db_path, "--format", form)
            assert told.out == collscope.render(answer, form)
    for ask, text in (
        (lambda: store.predict("ringll"), "give either --with LABEL or --system NAME"),
        (lambda: store.predict("ringll", system="h200", label="default"), "give either"),
        (lambda: store.predict("ringll", system="h200", before="default"), "--from goes with"),
        (lambda: store.predict("ringll", system="h200", step_ms=0), "step time of 0 ms"),
        (lambda: store.compare("default"), "Name two different labels"),
        (lambda: store.explain("default", "default"), "Name two traced runs"),
    ):
        with pytest.raises(UsageError, match=text):
            ask()


def test_runs_and_views_that_are_not_there_are_named(samples: Path, db_path: Path) -> None:
    store = collscope.open(db_path)
    with pytest.raises(InputError, match="no such store"):
        store.calls()
    store.ingest(samples / "rccl" / "guide-coll-klke.log", run="guide")
    assert store.runs() == ["guide"]
    assert {row["run"] for row in store.kernels()} == {"guide"}
    for ask in (store.calls, store.report):
        with pytest.raises(InputError, match=r"no run 'other' \(runs: 'guide'\)"):
            ask(run="other")
    for name in ("nothing", "_call", "calls; DROP TABLE _run"):
        with pytest.raises(UsageError, match=r"not in the store. Views: call_keys, .*classes"):
            store.view(name)
    with pytest.raises(UsageError, match="it would do more than read"):
        store.sql("ATTACH 'x' AS y")


def test_queries_take_values_and_stream_rows(samples: Path, db_path: Path) -> None:
    store = collscope.open(db_path)
    store.ingest(samples / "nccl" / "mixed")
    query = "SELECT op, SUM(calls) FROM classes WHERE nranks = :ranks GROUP BY op ORDER BY op"
    found = store.sql(query, {"ranks": 4}).rows
    assert found == store.sql(query.replace(":ranks", "?"), (4,)).rows
    assert found == store.sql(query.replace(":ranks", "4")).rows
    assert list(store.stream(query, {"ranks": 4})) == list(found)
    with pytest.raises(UsageError, match="binding"):
        store.sql(query)
    # Of rows without end the first few are there at once.
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    rows = store.stream(endless)
    assert [next(rows) for _ in range(3)] == [(1,), (2,), (3,)]
    rows.close()
    with pytest.raises(UsageError, match="not finished after 0"):
        list(store.stream(endless, timeout_s=0.01))


def test_a_frame_keeps_values_and_what_is_missing() -> None:
    table = Table(("n", "x", "none", "text"), ((1, 1, None, "a"), (None, 2.5, None, "b")))
    frame = table.to_polars()
    assert frame.rows() == [(1, 1.0, None, "a"), (None, 2.5, None, "b")]
    assert Table(("a", "b"), ()).to_polars().columns == ["a", "b"]
    pandas = pytest.importorskip("pandas")
    frame = table.to_pandas()
    assert frame["n"].tolist() == [1, pandas.NA]
    assert str(frame["n"].dtype) == "Int64"


def test_tables_are_arrow_streams(tmp_path: Path, samples: Path) -> None:
    store = collscope.open(tmp_path / "a.db")
    store.ingest(samples / "nccl" / "mixed")
    query = (
        "SELECT 1 AS a, 2.5 AS b, 'x' AS c, NULL AS d, x'00ff' AS e, 1 AS a, 1 AS mixed UNION ALL"
        " SELECT NULL, 3, NULL, NULL, NULL, 7, 'y'"
    )
    table = store.sql(query)
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(table)
    assert frame.columns == ["a", "b", "c", "d", "e", "a:1", "mixed"]
    assert frame.rows() == [
        (1, 2.5, "x", None, b"\x00\xff", 1, "1"), (None, 3.0, None, None, None, 7, "y"),
    ]  # fmt: skip
    assert polars.DataFrame(store.calls()).height == len(store.calls())
    assert polars.DataFrame(store.sql("SELECT 1 AS a WHERE 0")).shape == (0, 1)


def test_every_answer_is_a_page_and_has_a_plot(tmp_path: Path, samples: Path) -> None:
    store = collscope.open(tmp_path / "a.db")
    for name in ("default", "ringll"):
        store.ingest(samples / "traces" / name, run=name)
    answers = (
        store.report("default"), store.predict("default", system="h200"),
        store.compare("default", "ringll"), store.explain("default", "ringll"),
        store.check("default", "ringll"),
    )  # fmt: skip
    for answer in answers:
        assert "<iframe" in answer._repr_html_()  # type: ignore[attr-defined]
        kind = type(pickle.loads(pickle.dumps(answer)))
        assert kind.__module__.startswith("collscope.reports.")
        assert kind.__name__ == type(answer).__name__
    drawn = [answer.plot(tmp_path / "x.svg") is not None for answer in answers]  # type: ignore[attr-defined]
    assert drawn[0]
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")
