"""Files of several kinds, sources read again, and what is said of files that hold nothing."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from command import CALLS, collscope, dump, rows
from replay_files import GUIDE, OWN

from collscope.parsers import registry

_KINDS = "SELECT kind, dialect FROM sources ORDER BY kind"
_TOP = "profiles/guide-top.txt"
_TABLES = "tables/frontier-allreduce.txt"
_FIGURES = "tables/frontier-applications.txt"


@pytest.fixture
def document(samples: Path, tmp_path: Path) -> Path:
    """A log, a pasted top, benchmark tables and figures, one below the other."""
    log = (samples / "nccl" / "mixed" / "rank0.log").read_text()
    parts = [(samples / part).read_text() for part in (_TOP, _TABLES, _FIGURES)]
    path = tmp_path / "guide.md"
    path.write_text("\n\n".join([*parts[:1], log, *parts[1:]]))
    return path


@pytest.mark.parametrize("first", ["log", "profile"])
def test_a_log_and_a_profile_in_one_file_are_two_sources(
    document: Path, db_path: Path, first: str
) -> None:
    for kind in (first, "profile" if first == "log" else "log"):
        done = collscope("ingest", kind, document, "--db", db_path)
        assert (done.code, "already" in done.out) == (0, False)
    assert rows(db_path, _KINDS) == [("log", "nccl_log"), ("profile", "top_text")]
    before = dump(db_path)
    for kind in ("log", "profile"):
        assert "already in this run" in collscope("ingest", kind, document, "--db", db_path).out
    assert dump(db_path) == before


def test_auto_takes_every_kind_of_a_file(document: Path, db_path: Path) -> None:
    done = collscope("ingest", "auto", document, "--db", db_path)
    assert done.code == 0
    assert rows(db_path, _KINDS) == [
        ("log", "nccl_log"),
        ("metric", "records+throughput_table"),
        ("profile", "top_text"),
        ("table", "perf_text+summary_table"),
    ]
    before = dump(db_path)
    again = collscope("ingest", "auto", document, "--db", db_path)
    assert again.out.count("already in this run") == 1
    assert dump(db_path) == before


def test_auto_after_one_kind_takes_the_others(document: Path, db_path: Path) -> None:
    collscope("ingest", "log", document, "--db", db_path)
    done = collscope("ingest", "auto", document, "--db", db_path)
    assert "already" not in done.out
    assert [kind for kind, _ in rows(db_path, _KINDS)] == ["log", "metric", "profile", "table"]


def test_a_table_between_lines_of_a_log_that_tell_nothing(samples: Path, db_path: Path) -> None:
    text = "[0] NCCL INFO Setting affinity for GPU 0 to ff\n"
    path = db_path.parent / "run.log"
    path.write_text(text + (samples / "tables/msccl-allgather.md").read_text())
    assert collscope("ingest", "auto", path, "--db", db_path).code == 0
    assert rows(db_path, _KINDS) == [("table", "latency_table")]


def test_auto_says_that_a_table_below_a_log_lacks_its_operation(
    samples: Path, db_path: Path
) -> None:
    log = (samples / "nccl" / "mixed" / "rank0.log").read_text()
    path = db_path.parent / "run.txt"
    path.write_text(log + "\n| size | A (us) | B (us) |\n| 1 KB | 5.1 | 4.2 |\n| 2 KB | 6 | 5 |\n")
    done = collscope("ingest", "auto", path, "--db", db_path)
    assert (done.code, done.out.count("Name it with collscope ingest table --op NAME")) == (0, 1)
    assert rows(db_path, _KINDS) == [("log", "nccl_log")]


@pytest.mark.parametrize("command", ["log", "auto"])
def test_a_log_of_cut_lines_alone_is_called_what_it_is(
    tmp_path: Path, db_path: Path, command: str
) -> None:
    path = tmp_path / "cut.log"
    path.write_text("n1:11:11 [0] NCCL INFO AllReduce: opCount 3 sendbuff 0x7f8bcc\n" * 2)
    done = collscope("ingest", command, path, "--db", db_path)
    assert done.code == 3
    assert "every NCCL or RCCL line is cut or damaged (2 of them)" in done.err


def test_an_sqlite_profile_is_one_source(samples: Path, db_path: Path) -> None:
    path = samples / "profiles" / "synthetic.rpd"
    collscope("ingest", "trace", path, "--db", db_path)
    for kind in ("profile", "auto"):
        assert "already in this run" in collscope("ingest", kind, path, "--db", db_path).out


def test_auto_passes_over_documents_of_many_mib(
    document: Path, db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collscope.ingest.auto.DOCUMENT_BYTES", 10_000)
    collscope("ingest", "auto", document, "--db", db_path)
    assert [kind for kind, _ in rows(db_path, _KINDS)] == ["log", "profile"]


@pytest.mark.parametrize("command", ["auto", "table"])
def test_a_last_line_without_its_end_makes_no_table(command: str, db_path: Path) -> None:
    """A row may begin with a digit, as what random bytes leave behind the last line end."""
    path = db_path.parent / "random.bin"
    path.write_bytes(b"\x93\x01k\xff\n7\xd1\x10zz")
    done = collscope("ingest", command, path, "--db", db_path)
    assert done.code == 3
    assert "no line end" not in done.err


def test_auto_takes_no_numbers_without_a_unit(db_path: Path) -> None:
    path = db_path.parent / "pids.txt"
    path.write_text("101\n102\n")
    done = collscope("ingest", "auto", path, "--db", db_path)
    assert (done.code, done.err) == (
        3,
        f"collscope: {path}: no profile, trace, replay CSV, log, benchmark table or figures found."
        " Nothing was stored.\n",
    )


def test_auto_takes_no_time_of_day(db_path: Path) -> None:
    path = db_path.parent / "mlperf.txt"
    path.write_text(':::MLLOG {"namespace": "", "time_ms": 1696291199345, "key": "run_start"}\n')
    assert collscope("ingest", "auto", path, "--db", db_path).code == 3


def test_auto_reads_standard_input(
    document: Path, db_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with document.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        done = collscope("ingest", "auto", "-", "--db", db_path)
    assert done.code == 0, done.err
    plain = tmp_path / "plain.db"
    assert collscope("ingest", "auto", document, "--db", plain).code == 0
    for query in ("SELECT kind, dialect, lines, parsed FROM sources", CALLS):
        assert rows(db_path, query) == rows(plain, query)


@pytest.mark.parametrize(
    ("kind", "options", "query", "expected"),
    [
        ("csv", ["--ranks", "8"], "SELECT DISTINCT nranks FROM measurements", [(8,)]),
        ("csv", ["--label", "other"], "SELECT DISTINCT label FROM measurements", [("other",)]),
        ("table", ["--ranks", "4"], "SELECT DISTINCT nranks FROM measurements", [(4,)]),
        ("table", ["--datatype", "float"], "SELECT DISTINCT datatype FROM measurements",
         [("Float32",)]),
        ("metric", ["--name", "gpt"], "SELECT DISTINCT name FROM metrics", [("gpt",)]),
    ],
)  # fmt: skip
def test_an_option_reads_a_source_again(
    samples: Path, db_path: Path, kind: str, options: list[str], query: str, expected: object
) -> None:
    path = db_path.parent / f"given.{kind}"
    texts = {
        "csv": GUIDE,
        "table": (samples / "tables/msccl-allgather.md").read_text(),
        "metric": "5.5 ms\n5.7 ms\n",
    }
    path.write_text(texts[kind])
    assert collscope("ingest", kind, path, "--db", db_path).code == 0
    view = "metrics" if kind == "metric" else "measurements"
    counted = rows(db_path, f"SELECT COUNT(*) FROM {view}")
    done = collscope("ingest", kind, path, "--db", db_path, *options)
    assert (done.code, "read again; replaces its" in done.out) == (0, True)
    assert rows(db_path, query) == expected
    assert rows(db_path, f"SELECT COUNT(*) FROM {view}") == counted
    assert rows(db_path, "SELECT COUNT(*) FROM sources") == [(1,)]
    before = dump(db_path)
    assert "already in this run" in collscope("ingest", kind, path, "--db", db_path).out
    assert dump(db_path) == before  # without an option it stays as it was last read


@pytest.mark.parametrize("kind", ["log", "profile", "trace", "csv", "table", "metric", "auto"])
@pytest.mark.parametrize("length", [12, 300])
def test_a_cut_gzip_without_content_says_that_it_is_cut(
    samples: Path, db_path: Path, kind: str, length: int
) -> None:
    path = db_path.parent / "trace.json.gz"
    trace = next((samples / "traces" / "default").iterdir())
    data = trace.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    path.write_bytes(gzip.compress(data)[:length])
    done = collscope("ingest", kind, path, "--db", db_path)
    assert done.code == 3
    assert done.err.startswith(f"collscope: {path}: the compressed data ends early")
    assert done.err.count("ends early") == 1
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("kind", ["log", "trace"])
def test_a_gzip_whose_checksum_differs_is_not_said_to_end_early(
    samples: Path, db_path: Path, kind: str
) -> None:
    source = samples / ("nccl/mixed/rank0.log" if kind == "log" else "traces/default/rank0.json.gz")
    data = source.read_bytes()
    packed = bytearray(data if kind == "trace" else gzip.compress(data))
    packed[-8] ^= 1  # of the checksum: all of it can be read, and any of it may be wrong
    path = db_path.parent / "damaged.gz"
    path.write_bytes(packed)
    done = collscope("ingest", kind, path, "--db", db_path)
    assert done.code == 0
    assert "the compressed file ends early or is damaged: what could be read is kept" in done.out


def test_a_replay_csv_with_new_content_under_its_old_path(db_path: Path) -> None:
    path = db_path.parent / "hand.csv"
    path.write_text(OWN)
    assert "notice" not in collscope("ingest", "csv", path, "--db", db_path).out
    path.write_text(OWN.replace("2.28.9", "2.29.2"))
    done = collscope("ingest", "csv", path, "--db", db_path)
    assert done.code == 0
    said = f"1 x path_with_other_bytes: {path} is already in this run with other content (source 1)"
    assert said in done.out
    found = rows(db_path, "SELECT code FROM diagnostics WHERE code LIKE 'path%'")
    assert found == [("path_with_other_bytes",)]


def test_a_resumed_replay_replaces_what_its_csv_gave_before(db_path: Path) -> None:
    from collscope.replay.results import digest, store_results

    path = db_path.parent / "resumed.csv"
    path.write_text(OWN[: OWN.rindex("\n", 0, -1) + 1])
    store_results(path, db_path, "main", None)
    before = digest(path)
    path.write_text(OWN)
    store_results(path, db_path, "main", before)
    assert rows(db_path, "SELECT COUNT(*) FROM sources") == [(1,)]
    assert rows(db_path, "SELECT COUNT(*) FROM diagnostics") == [(0,)]


def test_what_logs_tell_is_not_said_to_lack(recorded_jobs: Path, tmp_path: Path) -> None:
    """Traces of CUDA activities alone lack sizes; beside the job's logs nothing is left to do."""
    traces = sorted((recorded_jobs / "scheduled" / "default" / "fsdp").glob("light.*"))
    alone = collscope("ingest", "trace", *traces, "--db", tmp_path / "alone.db")
    assert "639 x no_collective_arguments" in alone.out
    db = ("--db", tmp_path / "both.db")
    collscope("ingest", "log", recorded_jobs / "logs" / "fsdp", *db)
    assert "no_collective_arguments" not in collscope("ingest", "trace", *traces, *db).out
    # The diagnostics keep what the files themselves lack.
    kept = collscope("sql", "select sum(count) from diagnostics where code like 'no_coll%'", *db)
    assert kept.out.split()[-1] == "639"


def test_a_log_without_foreign_lines_is_searched_for_nothing_else(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = (samples / "nccl" / "mixed" / "rank0.log").read_bytes()
    asked: list[str] = []
    read = registry.read

    def noted(kind: str, *arguments: Any) -> object:  # noqa: ANN401 - as `read`
        asked.append(kind)
        return read(kind, *arguments)

    monkeypatch.setattr(registry, "read", noted)
    pure, with_more = tmp_path / "pure.log", tmp_path / "more.log"
    pure.write_bytes(log)
    with_more.write_bytes(log + b"{'train_samples_per_second': 36.372}\n")
    db = tmp_path / "t.db"
    assert collscope("ingest", "auto", pure, "--db", db).code == 0
    assert asked == []
    assert collscope("ingest", "auto", with_more, "--db", db, "--run", "b").code == 0
    assert asked == ["profile", "table", "metric"]
    assert rows(db, "SELECT value FROM metrics") == [(36.372,)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.nsys-rep", "run 'nsys export --type sqlite' on it"),
        ("b.xplane.pb.gz", "a profile of JAX or TensorFlow: log NCCL"),
        ("c.pftrace", "give rocprofv3 '--output-format rocpd'"),
    ],
)
def test_what_another_program_keeps_to_itself_says_what_to_export(
    tmp_path: Path, name: str, words: str
) -> None:
    # Nsight Systems keeps what the program printed: its file holds lines of a log.
    printed = b"\nn:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nNCCL version 2.23.4\n"
    content = b"\x0a\x12\x08\x01binary" * 20 + printed
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    outcome = collscope("ingest", path, "--db", tmp_path / "t.db")
    assert (outcome.code, words in outcome.err) == (3, True)
