"""Input that is no input: each ends in one clear line or a counted diagnostic, and costs nothing.

The store holds the same rows before and after; what was readable of a damaged log is kept.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from command import Outcome, collscope, dump, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from collscope._logscan import Scanner

_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89"
_MESSAGE = re.compile(r"collscope: [^\n]+: [^\n]+\. [^\n]+\.\n")


@pytest.fixture
def db(samples: Path, tmp_path: Path) -> Path:
    """A store that already holds a run."""
    db = tmp_path / "t.db"
    log = samples / "rccl" / "guide-coll-klke.log"
    assert collscope("ingest", "log", log, "--db", db).code == 0
    return db


def _refused(done: Outcome, where: Path | str) -> None:
    assert done.code == 3
    assert done.out == ""
    assert done.err.startswith(f"collscope: {where}")
    assert _MESSAGE.fullmatch(done.err), done.err


def _rubbish() -> dict[str, bytes]:
    return {
        "empty": b"",
        "newline": b"\n",
        "zeros": bytes(100_000),
        "noise": random.Random(7).randbytes(200_000),
        "text": b"epoch 1 loss 0.3\nNCCL is a library\n" * 50,
        "png": _PNG + random.Random(8).randbytes(5000),
        "gzip magic": b"\x1f\x8b",
        "gzip of nothing": bytes.fromhex("1f8b08000000000000030300000000000000" + "0000"),
        "zstd magic": b"\x28\xb5\x2f\xfd",
        "sqlite magic": b"SQLite format 3\0" + random.Random(9).randbytes(4096),
    }


@pytest.mark.parametrize("kind", ["log", "profile", "auto"])
@pytest.mark.parametrize("name", list(_rubbish()))
def test_rubbish_is_refused(db: Path, tmp_path: Path, kind: str, name: str) -> None:
    file = tmp_path / "rubbish"
    file.write_bytes(_rubbish()[name])
    before = dump(db)
    _refused(collscope("ingest", kind, file, "--db", db), file)
    assert dump(db) == before


def test_a_profile_is_no_log(db: Path, samples: Path) -> None:
    before = dump(db)
    for profile in sorted((samples / "profiles").iterdir()):
        _refused(collscope("ingest", "log", profile, "--db", db), profile)
    assert dump(db) == before


def test_a_log_is_no_profile(db: Path, samples: Path) -> None:
    before = dump(db)
    log = samples / "nccl" / "ddp" / "rank0.log"
    done = collscope("ingest", "profile", log, "--db", db)
    _refused(done, log)
    assert "looks like a log: use 'collscope ingest log'" in done.err
    assert dump(db) == before


@pytest.mark.parametrize(
    ("kind", "name", "other"),
    [
        ("profile", "nccl/mixed/rank0.log", "log"),
        ("csv", "nccl/mixed/rank0.log", "log"),
        ("log", "profiles/guide-top.txt", "profile"),
        ("csv", "tables/frontier-allreduce.txt", "table"),
        ("log", "tables/frontier-applications.txt", "metric"),
    ],
)
def test_the_right_command_is_named(
    samples: Path, tmp_path: Path, kind: str, name: str, other: str
) -> None:
    done = collscope("ingest", kind, samples / name, "--db", tmp_path / "t.db")
    _refused(done, samples / name)
    assert f"It looks like a {other}: use 'collscope ingest {other}'." in done.err


def test_where_no_command_is_right_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("nothing of the library\n")
    done = collscope("ingest", "csv", path, "--db", tmp_path / "t.db")
    assert "looks like" not in done.err


def test_paths_that_cannot_be_read(db: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    before = dump(db)
    for path in ("none", "empty", "file/below", "*.none", "dangling", "x" * 5000):
        _refused(collscope("ingest", "log", tmp_path / path, "--db", db), tmp_path / path)
    assert dump(db) == before


def test_rubbish_among_logs_is_skipped(samples: Path, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for log in (samples / "nccl" / "ddp").iterdir():
        (folder / log.name).write_bytes(log.read_bytes())
    (folder / "below").mkdir()
    for name, data in _rubbish().items():
        (folder / "below" / name).write_bytes(data)
    done = collscope("ingest", "log", folder, "--db", tmp_path / "t.db")
    assert (done.code, done.err) == (0, "")
    assert done.out.count(": skipped: ") == len(_rubbish())
    assert rows(tmp_path / "t.db", "SELECT COUNT(*) FROM sources") == [(4,)]
    alone = collscope("ingest", "log", folder / "below", "--db", tmp_path / "u.db")
    _refused(alone, folder / "below" / "empty")
    assert f"(and {len(_rubbish()) - 1} more)" in alone.err


def test_auto_takes_each_file_for_what_it_is(samples: Path, tmp_path: Path) -> None:
    done = collscope("ingest", "auto", samples, "--db", tmp_path / "t.db")
    assert done.code == 0
    kinds = dict(rows(tmp_path / "t.db", "SELECT kind, COUNT(*) FROM sources GROUP BY kind"))
    assert kinds["log"] == 11
    assert kinds["profile"] >= 7
    assert "README.md: skipped: " in done.out


def _observations(data: bytes) -> list[tuple[int, ...]]:
    scanner = Scanner()
    scanner.feed(data)
    scan = scanner.finish()
    coll, table = scan["coll"], scan["signatures"]
    return [
        (line, op, *(int(table[c][sig]) for c in ("count", "datatype", "redop", "root")))
        for line, op, sig in zip(
            coll["line"].tolist(), coll["op_count"].tolist(), coll["sig"].tolist(), strict=True
        )
    ]


@pytest.mark.parametrize(
    "name", ["rccl/guide-coll-klke.log", "rccl/guide-replayer-stdout.log", "nccl/ddp/rank1.log"]
)
def test_a_cut_loses_no_earlier_record(samples: Path, name: str) -> None:
    data = (samples / name).read_bytes()
    whole = _observations(data)
    for cut in range(0, len(data), 41):
        kept = _observations(data[:cut])
        lines = data[:cut].count(b"\n")
        expected = [o for o in whole if o[0] <= lines]
        assert kept[: len(expected)] == expected, cut
        assert len(kept) <= len(expected) + 1  # the cut line itself may still be whole


@pytest.mark.parametrize("cut", [1, 900, 5_003, 12_345, 22_558])
def test_a_cut_log_is_ingested_up_to_the_cut(samples: Path, tmp_path: Path, cut: int) -> None:
    data = (samples / "nccl" / "ddp" / "rank1.log").read_bytes()[:cut]
    file = tmp_path / "cut.log"
    file.write_bytes(data)
    done = collscope("ingest", "log", file, "--db", tmp_path / "t.db")
    if b" NCCL INFO " not in data:
        _refused(done, file)
        return
    assert done.code == 0
    # The calls of one rank alone: as many as it has lines "opCount".
    whole = data[: data.rfind(b"\n") + 1]
    calls = sum(b": opCount " in line for line in whole.splitlines())
    ((stored,),) = rows(tmp_path / "t.db", "SELECT COUNT(*) FROM calls")
    assert stored in (calls, calls + 1)


# Numbers that no library prints, in every place that has a number.
_NUMBERS = (b"18446744073709551615", b"9223372036854775807", b"99999999999999999999999", b"-1")
_PLACES = (rb"count \d+", rb"nranks \d+", rb" rank \d+", rb"root \d+", rb"vm:\d+", rb"busId \w+")


@pytest.mark.parametrize("number", _NUMBERS)
@pytest.mark.parametrize("name", ["nccl/mixed/rank0.log", "rccl/guide-coll-klke.log"])
def test_impossible_numbers_are_counted_not_raised(
    samples: Path, tmp_path: Path, number: bytes, name: str
) -> None:
    data = (samples / name).read_bytes()
    for i, place in enumerate((*_PLACES, rb"\d+")):
        file, db = tmp_path / f"{i}.log", tmp_path / f"{i}.db"
        file.write_bytes(re.sub(place, lambda m: re.sub(rb"[^ :]+$", number, m[0]), data))
        done = collscope("ingest", "log", file, "--db", db)
        assert done.code in (0, 3), done.err
        assert "Traceback" not in done.err
        if done.code == 0:
            assert collscope("report", "--db", db).code == 0


def test_a_trace_in_ns_is_called_that(tmp_path: Path) -> None:
    """All of its rows lie behind the year 2096, so none can be kept."""
    row = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "args": {"stream": 7}}
    rows = [{**row, "ts": (4479851130250 + k) * 10**6, "dur": 16640} for k in range(3)]
    (tmp_path / "rank0.json").write_text(
        json.dumps({"schemaVersion": 1, "traceEvents": rows}), encoding="utf-8"
    )
    done = collscope("ingest", "trace", tmp_path / "rank0.json", "--db", tmp_path / "t.db")
    said = " ".join((done.out + done.err).split())
    assert "none of its 3 kernels and copies has a possible time" in said
    assert "nanoseconds are too large" in said
    assert "no kernel, copy or collective" not in said


def test_an_impossible_count_is_a_lost_call(samples: Path, tmp_path: Path) -> None:
    data = (samples / "nccl" / "ddp" / "rank1.log").read_bytes()
    file = tmp_path / "x.log"
    # 2^62 elements of 4 bytes are 2^64 bytes.
    file.write_bytes(re.sub(rb"count \d+ ", b"count 4611686018427387904 ", data, count=1))
    done = collscope("ingest", "log", file, "--db", tmp_path / "t.db")
    assert done.code == 0
    assert "data_loss: 1 x impossible_count" in done.out
    calls = data.count(b": opCount ")
    assert rows(tmp_path / "t.db", "SELECT COUNT(*) FROM calls") == [(calls - 1,)]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), which=st.integers(0, 100))
def test_damaged_profiles_raise_nothing(
    samples: Path, tmp_path_factory: pytest.TempPathFactory, seed: int, which: int
) -> None:
    profiles = sorted((samples / "profiles").iterdir())
    source, rng = profiles[which % len(profiles)], random.Random(seed)
    data = bytearray(source.read_bytes())
    for _ in range(rng.randrange(1, 100)):
        data[rng.randrange(16, len(data))] = rng.randrange(256)
    folder = tmp_path_factory.mktemp("damaged")
    (folder / source.name).write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
    done = collscope("ingest", "profile", folder / source.name, "--db", folder / "t.db")
    assert done.code in (0, 3)


@pytest.mark.parametrize(
    ("sample", "field"),
    [
        ("recorders/ddp.fr.rank0.json", '"process_group":["'),
        ("recorders/synthetic.torchcomms_trace_rank_2.json", '"state":"'),
        ("tables/synthetic.nccl-tests.json", '"device_info":"'),
    ],
)
def test_half_of_a_character_keeps_no_file_out(
    samples: Path, tmp_path: Path, db_path: Path, sample: str, field: str
) -> None:
    text = (samples / sample).read_text()
    assert field in text
    (tmp_path / "b.json").write_text(text.replace(field, field + "\\udfff"))
    log = samples / "nccl/ddp/rank0.log"
    done = collscope("ingest", "auto", log, tmp_path / "b.json", "--db", db_path)
    assert done.code == 0
    assert collscope("report", "--db", db_path).code == 0


@pytest.mark.parametrize("kind", ["trace", "auto"])
def test_records_that_lost_their_communicators_are_no_figures(
    samples: Path, tmp_path: Path, kind: str
) -> None:
    """Every second line is gone: both headers, and one call of three."""
    lines = (samples / "recorders" / "synthetic.inspector-v4.3.log").read_text().splitlines()
    (tmp_path / "half.log").write_text("\n".join(lines[1::2]) + "\n")
    done = collscope("ingest", kind, tmp_path / "half.log", "--db", tmp_path / "t.db")
    assert done.code == 3
    assert "2 records of calls, and none of their communicators" in " ".join(done.err.split())
