"""Times that cannot be true reach no number: one rule, held against every kind of source."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import make_profiles
import numpy as np
import pytest
from command import collscope
from hypothesis import given, settings
from hypothesis import strategies as st
from readers import parse_recording

from collscope import stamps
from collscope.model.op import Op
from collscope.model.trace import (
    Kind,
    RecordedCall,
    RecordedCalls,
    TraceCollective,
    TraceColumns,
    TraceFile,
)
from collscope.store.connection import SCHEMAS
from collscope.store.trace_columns import encode_trace

SECOND = 10**9
LAST = 2**63 - 1
HOUR = 3600 * SECOND
_Row = tuple[int, int, int, bool]  # start, end, stream, collective


def _judge(rows: list[_Row]) -> stamps.Judgement:
    start, end, stream, collective = zip(*rows, strict=True)
    return stamps.judge(
        np.array(start, dtype=np.int64),
        np.array(end, dtype=np.int64),
        np.array(stream, dtype=np.int64),
        np.array(collective, dtype=bool),
    )


@st.composite
def _schedules(draw: st.DrawFn) -> list[_Row]:
    """Streams that run one row after the other; collectives of any length, others below a minute.

    At least one short row in front, so that no row begins at 0.
    """
    base = draw(st.integers(1, stamps.LATEST_NS // 2))
    rows: list[_Row] = []
    for stream in range(draw(st.integers(1, 3))):
        now = base + draw(st.integers(0, SECOND))
        for _ in range(draw(st.integers(8, 20))):
            collective = draw(st.booleans())
            longest = stamps.LONGEST_NS if collective else stamps.LONG_NS - 1
            length = draw(st.integers(0, 100_000) | st.integers(0, longest))
            now += draw(st.integers(0, 100_000) | st.integers(0, HOUR))
            rows.append((now, now + length, stream, collective))
            now += length
    return rows


@settings(deadline=None, max_examples=60)
@given(_schedules())
def test_what_a_gpu_can_do_is_believed(rows: list[_Row]) -> None:
    assert _judge(rows).believed.all()
    start, end, stream, collective = (np.array(c) for c in zip(*rows, strict=True))
    # Launched in order, however long before.
    launch = np.maximum(start - HOUR, 0)
    assert stamps.judge(start, end, stream, collective, stamps.Launches(launch)).believed.all()


@settings(deadline=None, max_examples=60)
@given(_schedules(), st.data())
def test_one_wrong_stamp_costs_its_own_row_only(rows: list[_Row], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    start, end, stream, collective = rows[at]
    ends = [LAST, stamps.LATEST_NS + 1, -1]
    if start < end:
        ends.append(start - 1)
    wrong = [(start, e) for e in ends] + [(LAST, end), (-1, end), (LAST, LAST)]
    broken = [*rows]
    broken[at] = (*data.draw(st.sampled_from(wrong)), stream, collective)
    found = _judge(broken).believed
    assert not found[at]
    assert found.sum() == len(rows) - 1


def _steady(n: int = 40) -> list[_Row]:
    """Kernels of 100 us every 200 us on a stream of compute and one of collectives."""
    return [(200_000 * i, 200_000 * i + 100_000, i % 2, i % 2 == 1) for i in range(1, n + 1)]


@pytest.mark.parametrize("at", [0, 1, 20, 37])
def test_a_row_that_runs_over_others_of_its_stream_is_out(at: int) -> None:
    rows = _steady()
    start, _, stream, collective = rows[at]
    rows[at] = (start, start + 1000 * SECOND, stream, collective)
    assert np.flatnonzero(~_judge(rows).believed).tolist() == [at]


@pytest.mark.parametrize("by", [1000 * SECOND, -1000 * SECOND])
@pytest.mark.parametrize("at", [0, 1, 20, 39])
def test_a_row_out_of_the_order_of_launches_is_out(at: int, by: int) -> None:
    columns = [np.array(c) for c in zip(*_steady(), strict=True)]
    start, end, stream, collective = columns[0] + HOUR, columns[1] + HOUR, *columns[2:]
    launch = start - 50_000
    start[at] += by
    end[at] += by
    found = stamps.judge(start, end, stream, collective, stamps.Launches(launch))
    # The last of a stream may come as late as it likes, and the first as early.
    free = (at >= 38 and by > 0) or (at <= 1 and by < 0)
    assert np.flatnonzero(~found.believed).tolist() == ([] if free else [at])


def test_a_last_copy_of_an_hour_is_out_and_a_last_collective_is_kept_and_told() -> None:
    copy = _judge([*_steady(), (SECOND, SECOND + HOUR, 7, False)])
    assert np.flatnonzero(copy.reason == stamps.OUTLYING).tolist() == [40]
    wait = _judge([*_steady(), (SECOND, SECOND + HOUR, 1, True)])
    assert wait.believed.all()
    assert wait.long_waits.tolist() == [40]
    (told,) = stamps.diagnostics(wait, str)
    assert (told.code, told.severity.value, told.excerpt) == ("long_wait", "notice", "40")


def test_ten_minutes_for_a_late_rank_are_kept_wherever_they_stand() -> None:
    wait = 600 * SECOND
    first = [(1_000, 1_000 + wait, 1, True)]
    first += [(s + wait, e + wait, k, c) for s, e, k, c in _steady()]
    assert _judge(first).believed.all()
    # In the middle, while another stream goes on for a while.
    steady = _steady()
    middle = [*steady[:20], (steady[20][0], steady[20][0] + wait, 1, True)]
    middle += [(s + i * SECOND, e + i * SECOND, 0, False) for i, (s, e, _, _) in enumerate(steady)]
    middle += [(s + wait, e + wait, k, c) for s, e, k, c in steady[22:]]
    assert _judge(middle).believed.all()


@pytest.mark.parametrize("by", [1000 * SECOND, -1000 * SECOND])
def test_a_row_far_from_all_others_is_kept_and_told(by: int) -> None:
    rows = [(s + HOUR, e + HOUR, k, c) for s, e, k, c in _steady()]
    alone = (HOUR + SECOND + by, HOUR + SECOND + by + 5_000, 3, False)
    found = _judge([*rows, alone])
    assert found.believed.all()
    assert found.distant.tolist() == [40]
    assert [d.code for d in stamps.diagnostics(found, str)] == ["row_apart"]
    # Two periods of work are not apart, nor is the first kernel of a minute's work a minute before.
    assert not len(_judge([*rows, *((s + by, e + by, k, c) for s, e, k, c in rows)]).distant)
    long = [(s * 1000 + HOUR, e * 1000 + HOUR, k, c) for s, e, k, c in _steady(400)]
    assert not len(_judge([(HOUR - 30 * SECOND, HOUR - 29 * SECOND, 0, False), *long]).distant)


def test_of_streams_that_run_several_rows_at_once_nothing_follows() -> None:
    # Every tenth row lasts over the nine behind it: a hardware queue without barriers.
    rows = [
        (10**7 * i, 10**7 * i + (95 * 10**6 if i % 10 == 0 else 10**6), 0, False)
        for i in range(200)
    ]
    assert _judge(rows).believed.all()


def test_a_start_of_zero_is_no_stamp_where_the_source_begins_hours_later() -> None:
    late = [(s + 30 * HOUR, e + 30 * HOUR, k, c) for s, e, k, c in _steady()]
    found = _judge([*late, (0, late[-1][1], 9, True)])
    assert np.flatnonzero(found.reason == stamps.UNTIMED).tolist() == [40]


def test_sums_of_what_is_believed_fit_sqlite() -> None:
    # A week is the longest row, and 15 000 of them fit; TOTAL in the views bounds the rest.
    assert 15_000 * stamps.LONGEST_NS < 2**63


# One row of each source that ends at another time than it did.


def _sqlite(name: str, change: str) -> Callable[[Path, int], Path]:
    def write(folder: Path, by: int) -> Path:
        path = folder / name
        shutil.copy(make_profiles.SAMPLES / name, path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(change.format(by=by if by == LAST else f"start + {by}"))
            connection.commit()
        return path

    return write


def _rocprof_csv(folder: Path, by: int) -> Path:
    lines = [
        '"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name","Start_Timestamp","End_Timestamp"'
    ]
    for i in range(1, 41):
        name = make_profiles.RCCL if i % 2 else "gemm"
        start = 200_000 * i
        end = start + 100_000 if i != 4 else by if by == LAST else start + by
        lines.append(f'"KERNEL_DISPATCH",4,{1 + i % 2},{i % 2},"{name}",{start},{end}')
    path = folder / "x_kernel_trace.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


_COPY = {
    "synthetic.rpd": 'UPDATE rocpd_op SET "end" = {by} WHERE id = 1',
    "synthetic.rocpd.sqlite": 'UPDATE rocpd_memory_copy_1f SET "end" = {by}',
    "synthetic.nsys.sqlite": 'UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET "end" = {by}',
}
_PROFILES = {name: _sqlite(name, change) for name, change in _COPY.items()}
_PROFILES["rocprofv3 CSV"] = _rocprof_csv


@pytest.mark.parametrize("dialect", _PROFILES)
@pytest.mark.parametrize("by", [HOUR, -50, LAST], ids=["hour", "backwards", "sentinel"])
def test_a_wrong_stamp_of_a_profile_is_told_and_in_no_sum(
    tmp_path: Path, db_path: Path, dialect: str, by: int
) -> None:
    path = _PROFILES[dialect](tmp_path, by)
    told = collscope("ingest", "profile", path, "--db", db_path)
    assert told.code == 0
    assert "data_loss: 1 x" in told.out
    with closing(sqlite3.connect(db_path)) as db:
        sums = db.execute("SELECT busy_ns, collective_ns FROM share").fetchone()
        shown = db.execute("SELECT SUM(duration_ns), COUNT(*) FROM kernels").fetchone()
    # Of the synthetic step all rows but the copy, see make_profiles.
    rest = sum(end - start for *_, start, end in make_profiles.STEP[1:])
    expected = (39 * 100_000, 20 * 100_000) if "CSV" in dialect else (rest, 11_500)
    assert sums == expected
    assert shown == (expected[0], 39 if "CSV" in dialect else 7)
    assert "Communication-bound" in collscope("report", "--db", db_path).out


@pytest.mark.parametrize("by", [HOUR, LAST], ids=["hour", "sentinel"])
def test_a_wrong_stamp_of_a_trace_is_told_and_in_no_sum(
    tmp_path: Path, samples: Path, by: int
) -> None:
    results = []
    for number, wrong in enumerate((None, by)):
        db = tmp_path / f"{number}.db"
        folder = tmp_path / str(number)
        folder.mkdir()
        for rank in range(4):
            trace = json.loads(
                gzip.decompress((samples / f"traces/default/rank{rank}.json.gz").read_bytes())
            )
            kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel"]
            gemm = next(e for e in kernels[50:] if "nccl" not in e["name"])
            if rank == 1 and wrong is None:
                number_of = gemm["args"]["correlation"]  # its launch has it, too
                trace["traceEvents"] = [
                    e
                    for e in trace["traceEvents"]
                    if e.get("args", {}).get("correlation") != number_of
                ]
            elif rank == 1:
                gemm["dur"] = wrong / 1000
            (folder / f"rank{rank}.json").write_text(json.dumps(trace))
        told = collscope("ingest", "trace", folder, "--db", db)
        assert told.code == 0
        assert (wrong is None) == ("data_loss" not in told.out)
        with closing(sqlite3.connect(db)) as store:
            tables = [
                store.execute(f"SELECT * FROM {view} ORDER BY 1, 2, 3").fetchall()
                for view in ("rank_times", "call_times", "share", "classes")
            ]
        results.append((tables, collscope("report", "--db", db).out.splitlines()[:6]))
    assert results[0] == results[1]


# Kernel traces of RCCL: eight ranks, six calls, rank 5 comes 200 us after the others.


def _rccl_log(fault: str | None, rank: int = 2, call: int = 3, late_us: int = 200) -> str:
    def stamp(us: int) -> str:
        return f"{us // 1_000_000:06d}.{us % 1_000_000:06d}"

    lines, shift = [], 0
    for r in range(8):
        who, clock = f"h:{10 + r}:99 [{r}] NCCL INFO", 7_000_000 + r * 1_234_567
        for c in range(1, 7):
            buffers = f"sendbuff 0x{1 + r}000 recvbuff 0x{1 + r}000"
            lines.append(
                f"{who} AllReduce: opCount {c:x} {buffers} count 1024 datatype 7 op 0 root 0 "
                f"comm 0x{r + 1}00 [nranks=8] stream 0x{r + 1}10 task 0 globalrank {r}"
            )
            waits = late_us if c == call else 200
            shift = late_us - 200 if c >= call else 0
            start = clock + c * 1_000 + shift - (0 if r == 5 else waits)
            end = clock + c * 1_000 + shift + 100
            if (r, c) == (rank, call):
                start += 1_000_000_000 * (fault == "shift")
                end += 1_000_000_000 * (fault in ("jump", "shift"))
                end = start - 50_000 if fault == "back" else end
            kernel = f"{c:06x} {{}} busId {r + 1}000 nRanks 8"
            launch = "KL HWID 42300700 ncclDevFunc_AllReduce_RING_LL_Sum_f32 nw 4 bi 0 nc 0"
            lines.append(f"{who} ## [{stamp(start)}] [{r:02d}:00] " + kernel.format(launch))
            lines.append(f"{who} ## [{stamp(end)}] [{r:02d}:00] " + kernel.format("KE"))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("fault", "call", "code"),
    [
        ("back", 3, "ends_before_start"),
        ("jump", 3, "impossible_time"),
        ("jump", 6, "kernel_end_apart"),
        ("shift", 3, "kernel_end_apart"),
    ],
)
def test_a_jump_of_a_kernel_trace_is_no_waiting(
    tmp_path: Path, db_path: Path, fault: str, call: int, code: str
) -> None:
    log = tmp_path / "a.log"
    log.write_text(_rccl_log(fault, call=call))
    told = collscope("ingest", "log", log, "--db", db_path)
    assert f"1 x {code}" in told.out
    with closing(sqlite3.connect(db_path)) as db:
        rows = db.execute(
            "SELECT transfer_ns, wait_ns, COUNT(*) FROM kernels GROUP BY 1, 2 ORDER BY 1, 2"
        ).fetchall()
    # 5 of 6 calls of 100 us, for which 7 ranks wait 200 us each; nothing of the call of the kernel
    # that jumped: its rank may be the one that the others waited for.
    assert rows == [(None, None, 8), (100_000, 0, 5), (100_000, 200_000, 35)]
    # 35 x 200 of 35 x 300 + 5 x 100 us, and the time of the eight may be waiting or transfer
    said = " ".join(collscope("report", "--db", db_path).out.split())
    found = re.search(
        r"waiting takes ([\d.]+) to ([\d.]+) % of the time in collective kernels "
        r"Of ([\d.]+) ms over all ranks, 7 ms is waiting [^;]*; ([\d.]+) ms may be waiting or ",
        said,
    )
    assert found is not None
    low, high, whole, unknown = map(float, found.groups())
    assert whole == pytest.approx(11 + unknown, abs=0.01)
    assert low == pytest.approx(100 * 7 / whole, abs=0.06)
    assert high == pytest.approx(100 * (7 + unknown) / whole, abs=0.06)


def test_a_true_wait_of_ten_minutes_of_a_kernel_trace_is_kept(
    tmp_path: Path, db_path: Path
) -> None:
    log = tmp_path / "a.log"
    log.write_text(_rccl_log(None, call=4, late_us=600_000_000))
    told = collscope("ingest", "log", log, "--db", db_path)
    assert "data_loss" not in told.out
    assert "kernel_end_apart" not in told.out
    with closing(sqlite3.connect(db_path)) as db:
        found = db.execute(
            "SELECT wait_ns, COUNT(*) FROM kernels WHERE wait_ns > 200000 GROUP BY 1"
        ).fetchall()
    assert found == [(600 * SECOND, 7)]


def test_of_two_ranks_that_disagree_neither_is_believed(tmp_path: Path, db_path: Path) -> None:
    text = _rccl_log("jump", rank=1, call=6)
    two = [line for line in text.splitlines() if line.startswith(("h:10:", "h:11:"))]
    log = tmp_path / "a.log"
    log.write_text("\n".join(two).replace("nranks=8", "nranks=2").replace("nRanks 8", "nRanks 2"))
    collscope("ingest", "log", log, "--db", db_path)
    with closing(sqlite3.connect(db_path)) as db:
        last = db.execute("SELECT wait_ns FROM kernels WHERE op_count = 6").fetchall()
        longest = db.execute("SELECT MAX(wait_ns) FROM kernels").fetchone()
    assert last == [(None,), (None,)]
    assert longest == (0,)  # rank 5, for which they wait, has no log here


def test_recorded_times_that_are_none_are_left_out_and_counted() -> None:
    op = TraceCollective(Op.ALL_REDUCE)
    good = RecordedCall(op, 1, start_ns=10, end_ns=20, duration_ns=10)
    bad = RecordedCall(op, 2, start_ns=LAST, end_ns=30, duration_ns=LAST)
    back = RecordedCall(op, 3, start_ns=50, end_ns=40)
    found = stamps.believed_recording(RecordedCalls("inspector", (good, bad, back)))
    assert [(c.start_ns, c.end_ns, c.duration_ns) for c in found.calls] == [
        (10, 20, 10),
        (None, 30, None),
        (50, None, None),
    ]
    assert [(d.code, d.count) for d in found.diagnostics] == [("untimed_call", 2)]


def test_a_recorder_that_is_read_is_held_to_it() -> None:
    text = (
        '{"header":{"id":"0xa","rank":0,"n_ranks":2,"nnodes":1},"coll_perf":'
        '{"coll":"AllReduce","coll_sn":1,"coll_exec_time_us":9e14}}\n'
    )
    found = parse_recording([text.encode()], "node-pid1.log")
    assert found is not None
    assert [c.duration_ns for c in found.calls] == [None]
    assert [(d.code, d.count) for d in found.diagnostics] == [("untimed_call", 1)]


def _old_store(path: Path) -> None:
    """A store of schema version 6 with a profile and a trace that hold 2^63 - 1."""
    with closing(sqlite3.connect(path)) as db:
        for number in range(1, 7):
            (script,) = SCHEMAS.glob(f"{number:03d}_*.sql")
            db.executescript(script.read_text())
        db.executescript("""
            PRAGMA user_version = 6;
            INSERT INTO _run VALUES (1, 'main', 1), (2, 'traced', 1);
            INSERT INTO _source (source_id, run_id, path, sha256, kind, dialect) VALUES
                (1, 1, 'a.rpd', 'a:profile', 'profile', 'rpd'),
                (2, 2, 'b.json', 'b:trace', 'trace', 'kineto');
            INSERT INTO _kernel_name (name_id, name, family) VALUES
                (1, 'gemm', NULL), (2, 'ncclDevKernel_Generic', 'nccl');
            INSERT INTO _kernel (kernel_id, source_id, name_id, kind, start_ns, end_ns) VALUES
                (1, 1, 1, 'kernel', 100, 400), (2, 1, 2, 'kernel', 400, 500),
                (3, 1, 1, 'kernel', 500, 9223372036854775807),
                (4, 2, 1, 'kernel', 100, 400), (5, 2, 2, 'kernel', 400, 500),
                (6, 2, 1, 'kernel', 500, 9223372036854775807);
            INSERT INTO _kernel_total (source_id, name_id, kind, calls, total_ns) VALUES
                (1, 1, 'kernel', 2, 9223372036854775607), (1, 2, 'kernel', 1, 100),
                (2, 1, 'kernel', 2, 9223372036854775607), (2, 2, 'kernel', 1, 100);
        """)
        columns = TraceColumns(
            kind=np.full(3, Kind.KERNEL, dtype=np.int8),
            name=np.array([0, 1, 0], dtype=np.int32),
            stream=np.zeros(3, dtype=np.int32),
            start_ns=np.array([100, 400, 500]),
            end_ns=np.array([400, 500, LAST]),
            launch_ns=np.full(3, -1),
            collective=np.array([-1, 0, -1], dtype=np.int32),
            seq=np.full(3, -1),
        )
        names = ("gemm", "ncclDevKernel_Generic")
        trace = TraceFile("kineto", names, ("7",), (TraceCollective(Op.ALL_REDUCE),), columns, 0)
        db.execute(
            "INSERT INTO _trace VALUES (1, 2, 0, 1, NULL, '0', 4, 3, ?)", (encode_trace(trace),)
        )
        db.commit()


@pytest.mark.parametrize("run", ["main", "traced"])
def test_a_store_of_before_that_holds_sentinels_is_reported(db_path: Path, run: str) -> None:
    _old_store(db_path)
    report = collscope("report", "--db", db_path, "--run", run)
    assert report.code == 0
    assert re.fullmatch(
        r".*upgraded from schema version 6 to \d+; 1 run to match again\.\n", report.err
    )
    with closing(sqlite3.connect(db_path)) as db:
        query = "SELECT collective_ns, busy_ns FROM share WHERE run = ?"
        assert db.execute(query, (run,)).fetchall() == [(100, 400)]
        told = "SELECT code, count FROM diagnostics WHERE run = ? AND severity = 'data_loss'"
        assert db.execute(told, (run,)).fetchall() == [("untimed_row", 1)]


def _one_stream(lasts: list[int], gap: int = 100) -> tuple[np.ndarray, ...]:
    """Rows of one stream one after the other, with the lengths they truly have."""
    ends = np.cumsum(np.array(lasts) + gap) + 10**9
    start = ends - np.array(lasts)
    return start, ends, np.zeros(len(lasts), dtype=np.int64), np.zeros(len(lasts), dtype=bool)


def test_rows_that_outlast_later_ones_are_counted_however_short() -> None:
    start, end, stream, collective = _one_stream([5_000] * 200)
    assert not len(stamps.judge(start, end, stream, collective).overlaps)
    long = end.copy()
    long[::10] += 45_000  # below what is left out
    found = stamps.judge(start, long, stream, collective)
    assert found.believed.all()
    assert found.overlaps.tolist() == list(range(0, 200, 10))
    # Of a hardware queue nothing is known, and branches of a graph may run at once.
    assert not len(stamps.judge(start, long, stream - 1, collective).overlaps)
    graph = stamps.Launches(np.full(200, 10**8))
    assert not len(stamps.judge(start, long, stream, collective, graph).overlaps)


def test_a_kernel_may_begin_before_the_end_of_the_one_before() -> None:
    """Programmatic dependent launch: half of each beside the next, and none ends out of order."""
    start, end, stream, collective = _one_stream([5_000] * 200, gap=-2_500)
    assert not len(stamps.judge(start, end, stream, collective).overlaps)


def test_starts_against_the_order_of_launches_are_found_once_their_call_returned() -> None:
    start, end, stream, collective = _one_stream([5_000] * 100)
    launch = np.arange(100) * 1_000 + 1
    late = np.arange(100) % 50 == 7
    moved = start + late * 10_000_000, end + late * 10_000_000
    known = stamps.Launches(launch, launch + 900)
    assert len(stamps.judge(*moved, stream, collective, known).disordered) == 2
    # While a call runs, another thread may launch before it does.
    held = stamps.Launches(launch, launch + 10**9)
    assert not len(stamps.judge(*moved, stream, collective, held).disordered)
    assert not len(stamps.judge(start, end, stream, collective, known).disordered)


def test_kernels_without_a_length_are_counted_unless_all_is_in_whole_microseconds() -> None:
    start, end, stream, collective = _one_stream([5_000] * 100, gap=1_000)
    kernel = np.arange(100) % 2 == 0
    end[::4] = start[::4]
    found = stamps.judge(start, end, stream, collective, kernel=kernel)
    assert (len(found.zero_length), found.of_kernels) == (0, 50)  # whole microseconds
    found = stamps.judge(start + 1, end + 1, stream, collective, kernel=kernel)
    assert found.zero_length.tolist() == list(range(0, 100, 4))
    codes = [d.code for d in stamps.diagnostics(found, str)]
    assert codes == ["zero_length_kernels"]


def test_collectives_of_one_stream_never_overlap_by_half_of_one() -> None:
    start, end, stream, compute = _one_stream([5_000] * 200)
    longer = end.copy()
    longer[:-1:40] += 4_000  # into the next, and not beyond it
    assert stamps.judge(start, longer, stream, ~compute).overlaps.tolist() == list(
        range(1, 200, 40)
    )
    # Kernels that depend on each other may.
    assert not len(stamps.judge(start, longer, stream, compute).overlaps)
    # One or two of so many are no contradiction yet, and streams run beside each other.
    end[:80:40] += 4_000
    assert not len(stamps.judge(start, end, stream, ~compute).overlaps)
    assert not len(stamps.judge(start, longer, np.arange(200), ~compute).overlaps)


def test_rows_of_two_launches_that_start_at_one_instant_are_counted() -> None:
    """Starts rounded to 1 ms, as by a tool that divides, while the lengths are as before."""
    start, end, stream, collective = _one_stream([5_000] * 1000)
    lasts = end - start
    rounded = start // 10**6 * 10**6
    launch = stamps.Launches(start - 50_000)
    assert not len(stamps.judge(start, end, stream, collective, launch).overlaps)
    found = stamps.judge(rounded, rounded + lasts, stream, collective, launch)
    assert len(found.overlaps) > 900
    # A graph's rows may start at once.
    graph = stamps.Launches(np.repeat(np.arange(10), 100))
    assert not len(stamps.judge(rounded, rounded + lasts, stream, collective, graph).overlaps)


def test_two_equal_rows_of_each_launch_are_one_trace_twice() -> None:
    start = _one_stream([5_000] * 100)[0]
    start = np.sort(np.concatenate([start, start + 500]))
    columns = start, start + 5_000, np.zeros(200, dtype=np.int64), np.zeros(200, dtype=bool)
    assert len(stamps.judge(*columns, stamps.Launches(np.arange(200) // 2)).overlaps) == 100
    assert not len(stamps.judge(*columns, stamps.Launches(np.arange(200))).overlaps)


def test_rows_that_end_after_the_host_waited_for_them_are_counted() -> None:
    start, end, stream, collective = _one_stream([50_000] * 100)
    waited = np.full(100, end[-1] + 10_000)
    known = stamps.Launches(start - 20_000, None, waited)
    assert not len(stamps.judge(start, end, stream, collective, known).after_wait)
    first = start[0]
    slow = [first + (column - first) * 3 for column in (start, end)]
    found = stamps.judge(*slow, stream, collective, known)
    assert len(found.after_wait) > 50
    assert "ends_after_wait" in [d.code for d in stamps.diagnostics(found, str)]
    free = stamps.Launches(start - 20_000, None, np.full(100, stamps.LATEST_NS))
    assert not len(stamps.judge(*slow, stream, collective, free).after_wait)
