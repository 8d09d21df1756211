"""SQLite profiles: golden totals derived by hand or by an independent query, and damaged input."""

from __future__ import annotations

import _thread
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import make_profiles
import pytest
from command import collscope, rows
from hypothesis import given
from hypothesis import strategies as st

from collscope.ingest import foreign_sqlite
from collscope.ingest.files import open_input
from collscope.ingest.profiles import read_profiles
from collscope.kernel_names import classify
from collscope.model import Profile, Severity
from collscope.parsers import nsys, rocpd, rpd

SAMPLES = make_profiles.SAMPLES
SQLITE = {
    "synthetic.rpd": rpd,
    "synthetic.rocpd.sqlite": rocpd,
    "synthetic.nsys.sqlite": nsys,
}


def codes(profile: Profile) -> dict[str, int]:
    return {d.code: d.count for d in profile.diagnostics}


def plain(profile: Profile) -> set[tuple[str, str | None, str, int, int]]:
    return {(t.name, t.device, t.kind, t.calls, t.total_ns) for t in profile.totals}


@pytest.fixture
def memory() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield connection


@pytest.mark.parametrize("name", make_profiles.FILES)
def test_the_shipped_file_is_what_the_generator_writes(
    name: str, memory: sqlite3.Connection
) -> None:
    make_profiles.FILES[name](memory)
    with closing(sqlite3.connect(SAMPLES / name)) as shipped:
        assert list(shipped.iterdump()) == list(memory.iterdump())


def test_synthetic_rpd() -> None:
    with closing(sqlite3.connect(SAMPLES / "synthetic.rpd")) as connection:
        profile = rpd.parse(connection)
    assert plain(profile) == {
        (make_profiles.RCCL, "0", "kernel", 2, 6_000),
        (make_profiles.RCCL, "1", "kernel", 2, 5_500),
        (make_profiles.GEMM, "0", "kernel", 1, 3_000),
        (make_profiles.GEMM, "1", "kernel", 1, 3_500),
        (make_profiles.DECOY, "0", "kernel", 1, 100),
        ("CopyHostToDevice", "0", "copy", 1, 500),
    }
    assert profile.totals[0].min_ns == 1_000
    assert profile.totals[0].max_ns == 5_000
    assert len(profile.spans) == len(make_profiles.STEP)
    assert (profile.spans[3].start_ns, profile.spans[3].end_ns) == (3_600, 8_600)
    assert (profile.spans[3].stream, profile.spans[3].device) == ("2", "0")
    assert profile.diagnostics == ()


def test_synthetic_rocpd() -> None:
    with closing(sqlite3.connect(SAMPLES / "synthetic.rocpd.sqlite")) as connection:
        profile = rocpd.parse(connection)
    assert plain(profile) == {
        (make_profiles.RCCL, "Agent 4", "kernel", 2, 6_000),
        (make_profiles.RCCL, "Agent 5", "kernel", 2, 5_500),
        (make_profiles.GEMM, "Agent 4", "kernel", 1, 3_000),
        (make_profiles.GEMM, "Agent 5", "kernel", 1, 3_500),
        (make_profiles.DECOY, "Agent 4", "kernel", 1, 100),
        ("MEMORY_COPY_HOST_TO_DEVICE", "Agent 4", "copy", 1, 500),
    }
    assert len(profile.spans) == len(make_profiles.STEP)
    assert profile.diagnostics == ()


def test_synthetic_nsys() -> None:
    with closing(sqlite3.connect(SAMPLES / "synthetic.nsys.sqlite")) as connection:
        profile = nsys.parse(connection)
    assert plain(profile) == {
        (make_profiles.NCCL, "0", "kernel", 2, 6_000),
        (make_profiles.NCCL, "1", "kernel", 2, 5_500),
        (make_profiles.GEMM, "0", "kernel", 1, 3_000),
        (make_profiles.GEMM, "1", "kernel", 1, 3_500),
        ("[CUDA memcpy Host-to-Device]", "0", "copy", 1, 500),
        ("[CUDA memset]", "0", "copy", 1, 100),
    }
    assert codes(profile) == {"no_collective_arguments": 4}  # no ranges of NCCL


def test_each_file_is_sniffed_by_its_parser_only() -> None:
    for name, owner in SQLITE.items():
        with closing(sqlite3.connect(SAMPLES / name)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        assert [parser for parser in SQLITE.values() if parser.sniff_tables(tables)] == [owner]


def test_corpus_rpd_equals_a_direct_query(corpus: Path) -> None:
    path = corpus / "rpd" / "rocmProfileData-matmul_result.rpd"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        profile = rpd.parse(connection)
        # The file's own `op` view, not the tables that the parser joins.
        expected = {
            (name, str(gpu)): (calls, total)
            for name, gpu, calls, total in connection.execute(
                "SELECT CASE description WHEN '' THEN opType ELSE description END, gpuId,"
                " count(*), sum(end - start) FROM op GROUP BY 1, 2"
            )
        }
        printed = dict(connection.execute("SELECT Name, TotalDuration FROM top"))
    assert {(t.name, t.device): (t.calls, t.total_ns) for t in profile.totals} == expected
    assert {t.name: t.total_ns // 1000 for t in profile.totals} == printed
    assert sum(t.total_ns for t in profile.totals) == 183_918_056
    assert {t.name for t in profile.totals if t.kind == "copy"} == {
        "CopyHostToDevice",
        "CopyDeviceToHost",
        "FillBuffer",
    }
    assert len(profile.spans) == 85
    assert not any(classify(t.name) for t in profile.totals)
    assert profile.diagnostics == ()


@pytest.mark.parametrize("suffix", ["", "_us"])
def test_rpd_with_only_top(memory: sqlite3.Connection, suffix: str) -> None:
    memory.execute(
        f"CREATE TABLE top AS SELECT 'k<int>(int)' AS Name, 4 AS TotalCalls,"
        f" 2500 AS TotalDuration{suffix}, 625 AS Ave{suffix}, 60.5 AS Percentage"
        " UNION ALL SELECT 'CopyHostToDevice', 1, 1000, 1000, 39.5"
    )
    assert rpd.sniff_tables({"top"})
    profile = rpd.parse(memory)
    assert plain(profile) == {
        ("k<int>(int)", None, "kernel", 4, 2_500_000),
        ("CopyHostToDevice", None, "copy", 1, 1_000_000),
    }
    assert [t.reported_percentage for t in profile.totals] == [60.5, 39.5]
    assert profile.spans == ()
    assert codes(profile) == {"totals_only": 1}


def test_rpd_with_a_filtered_top_is_noted(memory: sqlite3.Connection) -> None:
    memory.execute("CREATE TABLE top (Name, TotalCalls, TotalDuration, Ave, Percentage)")
    memory.execute("INSERT INTO top VALUES ('k', 1, 10, 10, 12.5), (NULL, 1, 1, 1, 1.0)")
    assert codes(rpd.parse(memory)) == {"totals_only": 1, "row_without_name": 1, "partial_top": 1}


def test_rpd_rows_without_their_name_are_no_operations_of_another_name(
    memory: sqlite3.Connection,
) -> None:
    """A kernel whose name is not in the file is not one of no collective."""
    make_profiles.rpd(memory)
    memory.execute("UPDATE rocpd_op SET description_id = 9999 WHERE id % 2")
    found = rpd.parse(memory)
    assert codes(found) == {"row_without_name": 4}
    assert len(found.spans) == 4


def test_rpd_skips_and_counts_bad_rows(memory: sqlite3.Connection) -> None:
    make_profiles.rpd(memory)
    good = rpd.parse(memory)
    memory.executescript(
        """
        INSERT INTO rocpd_op VALUES
            (9, 0, 0, 0, '', 50, 40, 4, 2), (10, 0, 0, 0, '', -5, 40, 4, 2),
            (11, 0, 0, 0, '', 'soon', 40, 4, 2), (12, 0, 0, 0, '', 10, 40, 777, 778),
            (13, 0, 0, 0, '', x'00', 40, 4, 2);
        """
    )
    profile = rpd.parse(memory)
    assert profile.totals == good.totals
    assert profile.spans == good.spans
    assert codes(profile) == {"ends_before_start": 1, "bad_number": 3, "row_without_name": 1}
    assert {d.severity for d in profile.diagnostics} == {Severity.DATA_LOSS}


def test_names_that_are_not_utf8_are_kept(memory: sqlite3.Connection) -> None:
    make_profiles.rpd(memory)
    memory.execute("UPDATE rocpd_string SET string = CAST(x'6bff' AS TEXT) WHERE id = 5")
    assert "k\ufffd" in {t.name for t in rpd.parse(memory).totals}
    assert memory.text_factory is str


def test_rocpd_draft_schema_with_timestamps_and_tracks(memory: sqlite3.Connection) -> None:
    memory.executescript(
        """
        CREATE TABLE rocpd_timestamp_a (id INTEGER PRIMARY KEY, value BIGINT);
        CREATE TABLE rocpd_track_a (id INTEGER PRIMARY KEY, agent_id, stream_id);
        CREATE TABLE rocpd_info_agent_a (id INTEGER PRIMARY KEY, type, absolute_index);
        CREATE TABLE rocpd_info_kernel_symbol_a (id INTEGER PRIMARY KEY, kernel_name, display_name);
        CREATE TABLE rocpd_kernel_dispatch_a (id INTEGER PRIMARY KEY, track_id, kernel_id,
            start_id, end_id);
        INSERT INTO rocpd_timestamp_a VALUES (1, 100), (2, 350);
        INSERT INTO rocpd_track_a VALUES (1, 9, 3);
        INSERT INTO rocpd_info_agent_a VALUES (9, 'GPU', 2);
        INSERT INTO rocpd_info_kernel_symbol_a VALUES (1, '_Z1k', NULL);
        INSERT INTO rocpd_kernel_dispatch_a VALUES (1, 1, 1, 1, 2), (2, 1, 1, 2, 1);
        """
    )
    profile = rocpd.parse(memory)
    assert plain(profile) == {("_Z1k", "Agent 2", "kernel", 1, 250)}
    assert profile.spans[0].stream == "3"
    assert codes(profile) == {"ends_before_start": 1}


def test_rocpd_tables_named_like_its_views(memory: sqlite3.Connection) -> None:
    memory.execute(
        "CREATE TABLE top_kernels (name, total_calls, total_duration, average, percentage)"
    )
    memory.execute("INSERT INTO top_kernels VALUES ('k', 2, 1.5, 0.75, 100.0)")
    assert plain(rocpd.parse(memory)) == {("k", None, "kernel", 2, 1_500)}
    memory.execute('CREATE TABLE kernels (name, start, "end", agent_abs_index, stream_id)')
    memory.execute("INSERT INTO kernels VALUES ('k', 5, 25, 4, 1)")
    assert plain(rocpd.parse(memory)) == {("k", "Agent 4", "kernel", 1, 20)}


def test_two_processes_of_rocpd_are_read_once_each(memory: sqlite3.Connection) -> None:
    make_profiles.rocpd(memory)
    once = rocpd.parse(memory)
    for name, sql in memory.execute(
        "SELECT name, sql FROM sqlite_master WHERE name LIKE '%\\_1f' ESCAPE '\\'"
    ).fetchall():
        other = name.replace("_1f", "_2e")
        memory.execute(sql.replace(name, other))
        memory.execute(f"INSERT INTO {other} SELECT * FROM {name}")
    twice = rocpd.parse(memory)
    assert len(twice.spans) == 2 * len(once.spans)
    assert [t.total_ns for t in twice.totals] == [2 * t.total_ns for t in once.totals]


def test_nsys_separates_processes_and_reports_graphs(memory: sqlite3.Connection) -> None:
    make_profiles.nsys(memory)
    memory.executescript(
        """
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 0, 0, 1, 33554432, 1, 1),
            (10, 30, 0, 1, 33554432, 1, 1), (10, 30, 0, 1, 33554432, 999, 998);
        DROP TABLE ENUM_CUDA_MEMCPY_OPER;
        CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, "end");
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1, 2), (3, 4);
        """
    )
    assert nsys.sniff_tables({"CUPTI_ACTIVITY_KIND_GRAPH_TRACE"})  # nothing but graphs
    profile = nsys.parse(memory)
    totals = plain(profile)
    assert (make_profiles.NCCL, "2:0", "kernel", 1, 20) in totals
    assert (make_profiles.NCCL, "1:0", "kernel", 2, 6_000) in totals
    # Named like the kernels' device, though one process alone has copies.
    assert ("[CUDA memcpy Host-to-Device]", "1:0", "copy", 1, 500) in totals
    assert codes(profile) == {
        "bad_number": 1,
        "row_without_name": 1,
        "graphs_without_kernels": 2,
        "no_collective_arguments": 5,
    }


@pytest.mark.parametrize("name", SQLITE)
@given(cut=st.integers(0, 6_000), hole=st.integers(0, 6_000))
def test_damaged_database_never_raises(
    name: str, tmp_path_factory: pytest.TempPathFactory, cut: int, hole: int
) -> None:
    raw = bytearray((SAMPLES / name).read_bytes())
    raw[hole : hole + 64] = b"\xff" * len(raw[hole : hole + 64])
    path = tmp_path_factory.mktemp("damaged") / "p"
    path.write_bytes(raw[: max(1, cut)])
    with closing(sqlite3.connect(path)) as connection:
        profile = SQLITE[name].parse(connection)
    assert all(t.total_ns >= 0 for t in profile.totals)


def test_rows_in_the_log_beside_a_file_are_missed(tmp_path: Path, db_path: Path) -> None:
    profile = tmp_path / "run.rpd"
    profile.write_bytes((SAMPLES / "synthetic.rpd").read_bytes())
    with closing(sqlite3.connect(profile)) as open_profiler:
        open_profiler.execute("PRAGMA journal_mode = WAL")
        open_profiler.execute("UPDATE rocpd_op SET end = end + 1000")
        open_profiler.commit()
        outcome = collscope("ingest", "profile", profile, "--db", db_path)
    assert (outcome.code, "data_loss: 1 x rows_beside" in outcome.out) == (0, True)


@pytest.mark.parametrize("name", SQLITE)
def test_a_cut_database_is_reported(name: str, tmp_path: Path) -> None:
    raw = (SAMPLES / name).read_bytes()
    (tmp_path / "p").write_bytes(raw[: len(raw) - 512])
    with closing(sqlite3.connect(tmp_path / "p")) as connection:
        profile = SQLITE[name].parse(connection)
    found = {d.code: d.severity for d in profile.diagnostics}
    assert found["corrupt_database"] is Severity.ERROR


_ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT "
_HUGE = "hex(zeroblob(490000000))"


@pytest.fixture
def small_machine() -> Iterator[None]:
    """A process that cannot take 1.5 GB more, so that a huge value fails and does not hurt."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 1_500_000_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("small_machine")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit needs /proc")
@pytest.mark.parametrize(
    "script",
    [
        f"CREATE VIEW top AS {_ENDLESS} 'k' AS Name, n AS TotalCalls, n AS TotalDuration,"
        " n AS Ave, 0 AS Percentage FROM r",
        f"CREATE VIEW top AS SELECT {_HUGE} AS Name, 1 AS TotalCalls, 1 AS TotalDuration,"
        " 1 AS Ave, 100 AS Percentage",
        "CREATE TABLE rocpd_op (gpuId, queueId, start, end, description_id, opType_id);"
        "INSERT INTO rocpd_op VALUES (0, 0, 1, 2, 1, 1);"
        f"CREATE VIEW rocpd_string AS {_ENDLESS} 1 AS id, 'k' AS string FROM r",
        "CREATE TABLE rocpd_op (gpuId, queueId, start, end, description_id, opType_id);"
        "INSERT INTO rocpd_op VALUES (0, 0, 1, 2, 1, 1);"
        "CREATE TABLE rocpd_string (id, string AS (hex(zeroblob(id)))); "
        "INSERT INTO rocpd_string (id) VALUES (1)",
        f"CREATE VIEW top_kernels AS {_ENDLESS} 'k' AS name, 1 AS total_calls,"
        " 1 AS total_duration, 1 AS average, 1 AS percentage FROM r",
        f"CREATE VIEW kernels AS {_ENDLESS} 'k' AS name, n AS start, n + 1 AS \"end\" FROM r;"
        "CREATE TABLE rocpd_kernel_dispatch_1 (start)",
        # The drafts' joined tables are named in the query alone.
        "CREATE TABLE rocpd_kernel_dispatch_1 (start_id, end_id, track_id, kernel_id);"
        "INSERT INTO rocpd_kernel_dispatch_1 VALUES (1, 1, 1, 1);"
        "CREATE TABLE rocpd_info_kernel_symbol_1 (id, display_name, kernel_name);"
        "CREATE TABLE rocpd_info_agent_1 (id, absolute_index);"
        "CREATE TABLE rocpd_track_1 (id, agent_id, stream_id);"
        f"CREATE VIEW rocpd_timestamp_1 AS {_ENDLESS} 1 AS id, n AS value FROM r",
        f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {_ENDLESS} n AS start, n AS end,"
        " 0 AS deviceId, 1 AS demangledName FROM r;"
        f"CREATE VIEW StringIds AS SELECT 1 AS id, {_HUGE} AS value",
        "CREATE VIRTUAL TABLE top USING fts4(Name, TotalCalls, TotalDuration, Ave, Percentage)",
    ],
)
def test_nothing_of_a_foreign_file_runs(tmp_path: Path, db_path: Path, script: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "foreign.db")) as connection:
        connection.executescript(script)
    (folder / "good.rpd").write_bytes((SAMPLES / "synthetic.rpd").read_bytes())
    done = collscope("ingest", "auto", folder, "--db", db_path)
    assert (done.code, done.err) == (0, "")
    assert "good.rpd: rpd: " in done.out
    alone = db_path.with_name("alone.db")
    collscope("ingest", "auto", folder / "good.rpd", "--db", alone)
    query = "SELECT name, device, calls, total_ns FROM kernel_totals ORDER BY 1, 2"
    assert rows(db_path, query) == rows(alone, query) != []


def test_a_tree_of_pages_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interior pages that name the same child again and again: 10^6 rows in 150 KB."""
    path = tmp_path / "bomb.rpd"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 4096")
        make_profiles.rpd(connection)
        connection.executemany(
            "INSERT INTO rocpd_op VALUES (NULL, 0, 0, 0, '', 1, 2, 4, 2)", [()] * 4_000
        )
        connection.commit()
        ((root,),) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'rocpd_op'"
        ).fetchall()
    raw = path.read_bytes()
    pages = [raw[at : at + 4096] for at in range(0, len(raw), 4096)]
    interior = pages[root - 1]
    assert interior[0] == 5  # interior page of a table (sqlite.org/fileformat2.html, 1.6)
    cells = int.from_bytes(interior[3:5], "big")
    places = [int.from_bytes(interior[12 + 2 * k : 14 + 2 * k], "big") for k in range(cells)]
    children = [interior[at : at + 4] for at in places]

    def all_to(child: bytes) -> bytes:
        page = bytearray(interior)
        for at in (8, *places):  # the rightmost child, and the others
            page[at : at + 4] = child
        return bytes(page)

    leaf, second, third = children[:3]
    pages[int.from_bytes(second, "big") - 1] = all_to(leaf)
    pages[int.from_bytes(third, "big") - 1] = all_to(second)
    pages[root - 1] = all_to(third)
    monkeypatch.setattr(foreign_sqlite, "_STEPS", 100_000)
    path = tmp_path / "endless.rpd"
    path.write_bytes(b"".join(pages))
    profile = _profile(path)
    assert profile is not None
    (found,) = (
        d for d in profile.diagnostics if d.code not in ("overlapping_rows", "repeated_row")
    )
    assert (found.code, found.severity) == ("corrupt_database", Severity.ERROR)
    assert "it is far longer than its file" in found.message
    repeated = next(d.count for d in profile.diagnostics if d.code == "repeated_row")
    assert 4_000 < len(profile.spans) + repeated < 100_000


def _profile(path: Path) -> Profile | None:
    with open_input(str(path)) as file:
        found = read_profiles(file)
    return None if found is None else found.tables[0].profile


@pytest.mark.parametrize("name", SQLITE)
def test_real_work_is_far_below_the_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _profile(SAMPLES / name)
    monkeypatch.setattr(foreign_sqlite, "_STEPS_AT_ONCE", 1)
    monkeypatch.setattr(foreign_sqlite, "_STEPS", 0)
    assert whole is not None
    assert _profile(SAMPLES / name) == whole
    monkeypatch.setattr(foreign_sqlite, "_STEPS_PER_BYTE", 0)
    monkeypatch.setattr(foreign_sqlite, "_STEPS", 100)
    stopped = _profile(SAMPLES / name)
    assert stopped is None or "corrupt_database" in codes(stopped)


def test_ctrl_c_during_a_foreign_file_ends_the_command(tmp_path: Path) -> None:
    """SQLite reports it as an error of the file, which readers take for damage."""
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT name FROM pragma_function_list LIMIT 100")
        connection.commit()
    stopped = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            stopped += _with_ctrl_c(path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped == []


def _with_ctrl_c(path: Path) -> list[str]:
    """The errors of two queries, the first interrupted; not returned, since Ctrl-C came."""
    interrupting = f"SELECT count(coalesce({signal.SIGINT.value})) FROM t, t a, t b"
    with foreign_sqlite.open_foreign(path) as connection:
        # A function in C: Python heeds the signal only where SQLite calls Python.
        connection.create_function("coalesce", 1, _thread.interrupt_main)
        found = [
            _error(connection, interrupting),
            _error(connection, "SELECT count(*) FROM t a, t b, t"),
        ]
        assert found == ["interrupted"] * 2
    return found


def _error(connection: sqlite3.Connection, query: str) -> str:
    with pytest.raises(sqlite3.DatabaseError) as error:
        connection.execute(query).fetchall()
    return str(error.value)


def test_a_cut_sqlite_profile_says_that_rows_are_missing(tmp_path: Path, corpus: Path) -> None:
    whole = (corpus / "rpd" / "rocmProfileData-matmul_result.rpd").read_bytes()
    # 98304 bytes in pages of 4096: without the last one two names are gone, and nothing else shows.
    cut, db = tmp_path / "cut.rpd", tmp_path / "store.db"
    cut.write_bytes(whole[:-2304])
    done = collscope("ingest", "profile", cut, "--db", db)
    assert done.code == 0
    assert "data_loss: 1 x cut_database" in done.out
    strict = collscope("ingest", "profile", cut, "--db", tmp_path / "other.db", "--strict")
    assert strict.code == 3
    cut.write_bytes(whole[:20000])
    done = collscope("ingest", "profile", cut, "--db", db)
    assert done.code == 3
    assert "ends before its last page" in done.err


def test_a_whole_sqlite_profile_is_not_called_cut(tmp_path: Path, samples: Path) -> None:
    for name in ("synthetic.rpd", "synthetic.rocpd.sqlite", "synthetic.nsys.sqlite"):
        done = collscope(
            "ingest", "profile", samples / "profiles" / name, "--db", tmp_path / "x.db"
        )
        assert "cut_database" not in done.out


def test_a_profile_of_which_nothing_can_be_read_is_unusable(tmp_path: Path) -> None:
    bad = tmp_path / "bad.sqlite"
    with closing(sqlite3.connect(bad)) as connection:
        make_profiles.nsys(connection)
        connection.commit()
    # The schema stands in the first page of 4096 bytes; behind it is garbage.
    with bad.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    for command in ("profile", "auto", "trace"):
        done = collscope("ingest", command, bad, "--db", tmp_path / f"{command}.db")
        assert done.code == 3
        assert "cannot be read to its end" in done.err
        assert not (tmp_path / f"{command}.db").exists()
