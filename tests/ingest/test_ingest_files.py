"""What files may be given in which form, and that the form does not change the calls."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from command import CALLS, CLASSES, collscope, dump, rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packers import PACKERS

from collscope.ingest.files import Input, open_input
from collscope.ingest.paths import expand

_RANKS = 4


@pytest.fixture(scope="module")
def plain(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("plain") / "t.db"
    assert collscope("ingest", "log", samples / "nccl" / "mixed", "--db", db).code == 0
    return db


def _same_calls(db: Path, plain: Path) -> None:
    for query in (CALLS, CLASSES):
        assert rows(db, query) == rows(plain, query)


def _compress(samples: Path, folder: Path, suffix: str) -> Path:
    for log in sorted((samples / "nccl" / "mixed").iterdir()):
        data = log.read_bytes()
        if suffix in PACKERS:
            packed = PACKERS[suffix](data)
        else:  # two members, cut in the middle of a line
            packed = gzip.compress(data[:20001]) + gzip.compress(data[20001:])
        (folder / f"{log.name}.{suffix}").write_bytes(packed)
    return folder


@pytest.mark.parametrize("suffix", [*PACKERS, "members.gz"])
def test_compressed_files_give_the_same_calls(
    samples: Path, plain: Path, tmp_path: Path, suffix: str
) -> None:
    db = tmp_path / "t.db"
    folder = tmp_path / "logs"
    folder.mkdir()
    done = collscope("ingest", "log", _compress(samples, folder, suffix), "--db", db, "--strict")
    assert (done.code, done.err) == (0, "")
    _same_calls(db, plain)


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_cut_compressed_file_keeps_its_beginning(
    samples: Path, tmp_path: Path, suffix: str, share: float
) -> None:
    # Many small frames or blocks, as a logger that flushes writes them.
    data = (samples / "nccl" / "mixed" / "rank0.log").read_bytes()
    parts = [data[i : i + 4000] for i in range(0, len(data), 4000)]
    packed = b"".join(PACKERS[suffix](part) for part in parts)
    cut = tmp_path / f"cut.log.{suffix}"
    cut.write_bytes(packed[: int(len(packed) * share)])
    db = tmp_path / "t.db"
    done = collscope("ingest", "log", cut, "--db", db)
    assert done.code == 0
    assert "data_loss: 1 x truncated_compression" in done.out
    with open_input(str(cut)) as file:
        kept = file.read_all()
    assert data.startswith(kept)
    assert len(kept) > len(data) * share * 0.5
    assert file.truncated
    strict = collscope("ingest", "log", cut, "--db", db, "--run", "strict", "--strict")
    assert strict.code == 3


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3000), st.sampled_from(sorted(PACKERS)), st.data())
def test_a_compressed_file_cut_or_damaged_anywhere_raises_nothing(
    size: int, suffix: str, data: st.DataObject
) -> None:
    import io

    plain = bytes(i * i % 251 for i in range(size))
    packed = PACKERS[suffix](plain)
    told = {"xz": 6, "bz2": 10}.get(suffix, 4)  # bytes that tell the compression
    at = data.draw(st.integers(told, len(packed) - 1))
    cut = Input("x", io.BytesIO(packed[:at]))
    assert plain.startswith(cut.read_all())
    assert cut.truncated
    damaged = packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :]
    Input("x", io.BytesIO(damaged)).read_all()


def test_globs_and_repeated_paths(samples: Path, plain: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    pattern = str(samples / "nccl" / "mixed" / "rank?.log")
    first = str(samples / "nccl" / "mixed" / "rank0.log")
    paths = [pattern, first, str(samples / "nccl" / "mixed")]
    assert len(expand(paths).files) == _RANKS
    assert collscope("ingest", "log", pattern, first, "--db", db).code == 0
    _same_calls(db, plain)


def test_twice_is_once(samples: Path, plain: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    folder = samples / "nccl" / "mixed"
    assert collscope("ingest", "log", folder, "--db", db).code == 0
    before = dump(db)
    again = collscope("ingest", "log", folder, "--db", db)
    assert again.code == 0
    assert again.out.count("already in this run (same bytes), unchanged") == _RANKS
    assert dump(db) == before
    _same_calls(db, plain)


def test_the_same_bytes_under_another_name_are_known(samples: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.log"
    copy.write_bytes((samples / "nccl" / "mixed" / "rank0.log").read_bytes())
    db = tmp_path / "t.db"
    collscope("ingest", "log", samples / "nccl" / "mixed" / "rank0.log", "--db", db)
    done = collscope("ingest", "log", copy, "--db", db)
    assert (done.code, rows(db, "SELECT COUNT(*) FROM sources")) == (0, [(1,)])


def test_runs_are_kept_apart(samples: Path, plain: Path, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    collscope("ingest", "log", samples / "nccl" / "mixed", "--db", db)
    collscope("ingest", "log", samples / "nccl" / "mixed", "--db", db, "--run", "again")
    _same_calls(db, plain)
    counted = dict(rows(db, "SELECT run, COUNT(*) FROM calls GROUP BY run"))
    assert counted["main"] == counted["again"] > 0


def test_one_file_after_the_other_is_as_all_at_once(
    samples: Path, plain: Path, tmp_path: Path
) -> None:
    db = tmp_path / "t.db"
    for rank in (2, 0, 3, 1):
        log = samples / "nccl" / "mixed" / f"rank{rank}.log"
        assert collscope("ingest", "log", log, "--db", db).code == 0
    _same_calls(db, plain)


def test_a_file_name_of_any_bytes(samples: Path, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/rank\xff.log"
    try:
        with open(name, "wb") as file:  # noqa: PTH123 - a name that is no text
            file.write((samples / "nccl" / "mixed" / "rank0.log").read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    done = collscope("ingest", "log", os.fsdecode(name), "--db", tmp_path / "t.db")
    assert done.code == 0
    done.out.encode()
    ((path,),) = rows(tmp_path / "t.db", "SELECT path FROM sources")
    assert str(path).endswith("rank\ufffd.log")


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(choices=st.lists(st.integers(0, _RANKS - 1), min_size=1, max_size=300))
def test_any_interleaving_of_the_ranks_gives_the_same_calls(
    samples: Path, plain: Path, tmp_path_factory: pytest.TempPathFactory, choices: list[int]
) -> None:
    queues = [
        (samples / "nccl" / "mixed" / f"rank{rank}.log").read_bytes().splitlines(keepends=True)
        for rank in range(_RANKS)
    ]
    merged, at, step = [], [0] * _RANKS, 0
    while any(at[r] < len(queues[r]) for r in range(_RANKS)):
        rank = choices[step % len(choices)]
        step += 1
        if at[rank] == len(queues[rank]) or step % 7 == 6:  # no choice may starve a rank
            rank = next(r for r in range(_RANKS) if at[r] < len(queues[r]))
        merged.append(queues[rank][at[rank]])
        at[rank] += 1
    folder = tmp_path_factory.mktemp("merged")
    (folder / "all.log").write_bytes(b"".join(merged))
    assert collscope("ingest", "log", folder / "all.log", "--db", folder / "t.db").code == 0
    _same_calls(folder / "t.db", plain)
