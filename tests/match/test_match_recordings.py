"""The matching on real recordings, against counts made independently of it."""

from __future__ import annotations

import random
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from collscope.ingest.commands import ingest_logs

_COLL = re.compile(r"NCCL INFO (\w+): opCount \w+ .* root (-?\d+) comm (0x\w+) \[nranks=(\d+)\]")
_SPLIT = re.compile(r"comm (0x\w+) rank (\d+) nranks 2 .*splitCount (\d+) color (-?\d+) .*COMPLETE")


def _store(paths: Iterable[Path], db: Path) -> sqlite3.Connection:
    ingest_logs([str(p) for p in paths], db, "main")
    return sqlite3.connect(db)


def _ranks_lines(folder: Path) -> list[Path]:
    return sorted(folder.glob("nccl.vm.*.log"))


def _collective_counts(log: Path) -> Counter[tuple[str, str]]:
    """Lines per (operation, communicator pointer) of one rank, Send and Recv left out."""
    found = (_COLL.search(line) for line in log.read_text(errors="replace").splitlines())
    return Counter((m[1], m[3]) for m in found if m and m[1] not in ("Send", "Recv"))


@pytest.mark.parametrize("case", ["ddp", "mixed"])
def test_calls_per_operation_and_communicator_equal_an_independent_count(
    case: str, recordings: Path, db_path: Path
) -> None:
    logs = _ranks_lines(recordings / case)
    with _store(logs, db_path) as db:
        for log in logs:
            stored = Counter(
                {
                    ("AlltoAll" if op == "AllToAll" else op, ptr): n
                    for op, ptr, n in db.execute(
                        "SELECT op, comm_ptr, COUNT(*) FROM calls JOIN members USING (comm_id)"
                        " JOIN sources USING (source_id) WHERE path = ? AND shape IS NULL"
                        " GROUP BY op, comm_ptr",
                        (str(log),),
                    )
                }
            )
            assert stored == _collective_counts(log)
        everyone = db.execute("SELECT COUNT(*) FROM calls WHERE ranks_seen <> nranks").fetchone()
        assert everyone == (0,)


def test_the_two_by_two_split_is_found_with_world_ranks(recordings: Path, db_path: Path) -> None:
    logs = _ranks_lines(recordings / "mixed")
    with _store(logs, db_path) as db:
        sizes = db.execute("SELECT nranks, COUNT(*) FROM communicators GROUP BY 1 ORDER BY 1")
        assert sizes.fetchall() == [(2, 4), (4, 1)]
        found = {
            (tuple(int(w) for w in world.split(",")), matched_by)
            for world, matched_by in db.execute(
                "SELECT group_concat(world_rank), matched_by FROM"
                " (SELECT * FROM members ORDER BY rank) JOIN communicators USING (comm_id)"
                " WHERE nranks = 2 GROUP BY comm_id"
            )
        }
    # By hand: the n-th file is world rank n; the split's key is the order of ranks.
    groups: dict[tuple[str, str], dict[int, int]] = {}
    for world, log in enumerate(logs):
        for m in _SPLIT.finditer(log.read_text()):
            groups.setdefault((m[3], m[4]), {})[int(m[2])] = world
    expected = {(tuple(g[r] for r in sorted(g)), "parent/color") for g in groups.values()}
    assert found == expected
    assert len(expected) == 4


def test_point_to_point_groups_become_their_patterns(recordings: Path, db_path: Path) -> None:
    # record.py: 13 steps, each one uneven all-to-all, gather to 0, scatter from 2, ring shift.
    with _store(_ranks_lines(recordings / "mixed"), db_path) as db:
        shapes = db.execute(
            "SELECT op, shape, root, count, size_bytes, calls FROM classes"
            " WHERE shape IS NOT NULL ORDER BY op"
        ).fetchall()
        # Rank r sends (r+1)(j+1)*16 floats to j: the most any sends is 4*(1+2+3+4)*16*4 = 2560 B.
        assert shapes == [
            ("AllToAllv", "alltoallv", None, None, 2560, 13),
            ("Gather", "gather", 0, 333, 333 * 8 * 4, 13),
            ("Scatter", "scatter", 2, 100, 100 * 4, 13),
            ("SendRecv", "shift", None, 4 << 20, (4 << 20) * 2, 13),
        ]
        matrix = db.execute(
            "SELECT src_rank, dst_rank, count FROM transfers WHERE call_id ="
            " (SELECT MIN(call_id) FROM calls WHERE op = 'AllToAllv') ORDER BY 1, 2"
        ).fetchall()
    assert matrix == [(s, d, (s + 1) * (d + 1) * 16) for s in range(4) for d in range(4)]


def test_coll_only_stream_gives_the_same_classes_and_calls_marked_inferred(
    recordings: Path, tmp_path: Path
) -> None:
    query = (
        "SELECT op, datatype, redop, root, count, size_bytes, in_place, nranks, nnodes, shape,"
        " calls FROM classes ORDER BY 1, 2, 3, 4, 5"
    )
    folder = recordings / "mixed"
    with _store(_ranks_lines(folder), tmp_path / "whole.db") as whole:
        expected = whole.execute(query).fetchall()
    with _store([folder / "all-ranks-one-stream.coll-only.log"], tmp_path / "bare.db") as bare:
        assert bare.execute(query).fetchall() == expected
        how = bare.execute("SELECT matched_by, nranks, COUNT(*) FROM communicators GROUP BY 1, 2")
        assert how.fetchall() == [("inferred", 2, 4), ("inferred", 4, 1)]


def test_tuning_lines_reach_the_calls_they_speak_of(recordings: Path, db_path: Path) -> None:
    # Rank 0's log, first step: "AllReduce: 56 Bytes -> Algo RING proto LL channel{0..0}" and so on.
    with _store(_ranks_lines(recordings / "mixed"), db_path) as db:
        chosen = db.execute(
            "SELECT op, size_bytes, algorithm, protocol, channels, COUNT(*) FROM calls"
            " WHERE algorithm IS NOT NULL AND comm_id = (SELECT comm_id FROM communicators"
            " WHERE nranks = 4) GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2"
        ).fetchall()
    assert chosen == [
        ("AllGather", 800, "RING", "LL", 1, 13),
        ("AllGather", 65536, "RING", "LL", 4, 13),
        ("AllReduce", 4, "RING", "LL", 1, 13),
        ("AllReduce", 56, "RING", "LL", 1, 13),
        ("Broadcast", 8388608, "RING", "SIMPLE", 24, 13),
        ("Reduce", 8388608, "RING", "SIMPLE", 24, 13),
        ("ReduceScatter", 524288, "RING", "LL", 22, 13),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_one_percent_of_one_ranks_lines_lost_leaves_the_rest_matched(
    seed: int, tmp_path: Path
) -> None:
    """Eight ranks, opCount moving: what is left of rank 3 must still meet its peers."""
    rng = random.Random(seed)
    ops = [("AllReduce", c) for c in (1, 7, 4096, 1 << 20)] + [("AllGather", 64), ("Broadcast", 9)]
    calls = [rng.choice(ops) for _ in range(4000)]
    lost = set(rng.sample(range(4000), 40))
    paths = []
    for rank in range(8):
        path = tmp_path / f"rank{rank}.log"
        lines = (
            f"n0:{100 + rank}:{100 + rank} [{rank}] NCCL INFO {op}: opCount {k:x} sendbuff 0x10"
            f" recvbuff 0x10 count {count} datatype 7 op 0 root 0 comm 0x{rank + 1:x}0"
            f" [nranks=8] stream 0x1 task 0 globalrank {rank}"
            for k, (op, count) in enumerate(calls)
            if not (rank == 3 and k in lost)
        )
        path.write_text("\n".join(lines) + "\n")
        paths.append(path)
    with _store(paths, tmp_path / "t.db") as db:
        assert db.execute("SELECT COUNT(*) FROM calls").fetchone() == (4000,)
        seen = db.execute("SELECT seq, ranks_seen, op_count FROM calls ORDER BY seq").fetchall()
        missing = db.execute("SELECT rank, what, seq FROM deviations ORDER BY seq").fetchall()
        counted = db.execute(
            "SELECT severity, count FROM diagnostics WHERE code = 'observation_missing'"
        ).fetchall()
    assert seen == [(k, 7 if k in lost else 8, k) for k in range(4000)]
    assert missing == [(3, "missing", k) for k in sorted(lost)]
    assert counted == [("data_loss", 40)]


def test_lost_lines_of_a_recording_are_counted_and_the_rest_matched(
    recordings: Path, tmp_path: Path
) -> None:
    """NCCL 2.28: opCount never moves, so the order alone must do."""
    rng = random.Random(7)
    paths = []
    lost = 0
    for rank, log in enumerate(_ranks_lines(recordings / "mixed")):
        lines = log.read_text(errors="replace").splitlines()
        if rank == 2:
            collectives = [
                k
                for k, line in enumerate(lines)
                if _COLL.search(line) and not re.search("INFO (Send|Recv):", line)
            ]
            drop = set(rng.sample(collectives, max(2, len(collectives) // 100)))
            lost = len(drop)
            lines = [line for k, line in enumerate(lines) if k not in drop]
        paths.append(tmp_path / log.name)
        paths[-1].write_text("\n".join(lines) + "\n")
    assert lost
    with _store(paths, tmp_path / "t.db") as db:
        assert db.execute("SELECT COUNT(*) FROM calls").fetchone() == (208,)
        assert db.execute("SELECT rank, what FROM deviations").fetchall() == [(2, "missing")] * lost


def test_every_mlperf_communicator_has_its_ranks_hosts_and_transports(
    corpus: Path, tmp_path: Path
) -> None:
    init = re.compile(r"comm (0x\w+) rank (\d+) nranks (\d+) .*commId (0x\w+).* - Init COMPLETE")
    for log in ("mlperf31_Dell_8xH100_bert.txt", "mlperf51_MangoBoost_16xMI325X_rccl.txt"):
        path = corpus / "nccl-init" / log
        expected: dict[int, set[int]] = {}
        hosts: dict[int, set[str]] = {}
        for line in path.read_text(errors="replace").splitlines():
            if m := init.search(line):
                comm = int(m[4], 16)
                expected.setdefault(comm, set()).add(int(m[2]))
                before = line.split(" NCCL INFO")[0]
                hosts.setdefault(comm, set()).add(re.findall(r"(\S+):\d+:\d+ \[", before)[0])
        with _store([path], tmp_path / f"{log}.db") as db:
            ranks: dict[int, set[int]] = {}
            found_hosts: dict[int, set[str]] = {}
            for comm_hash, rank, host in db.execute(
                "SELECT comm_hash, rank, host FROM members JOIN communicators USING (comm_id)"
            ):
                ranks.setdefault(int(comm_hash, 16), set()).add(rank)
                found_hosts.setdefault(int(comm_hash, 16), set()).add(host)
            transports = {t for (t,) in db.execute("SELECT DISTINCT transport FROM links")}
        assert ranks == expected
        assert found_hosts == hosts
        text = path.read_text(errors="replace")
        assert any(t.startswith("NET/IB") for t in transports) == ("via NET/IB" in text)
        assert any(t.startswith("P2P/") for t in transports) == ("via P2P/" in text)


def test_mlperf_2_12_without_comm_ids_still_yields_its_communicators(
    corpus: Path, tmp_path: Path
) -> None:
    path = corpus / "nccl-init" / "mlperf21_Azure_8xA100_hugectr.txt"
    init = re.compile(r"comm (0x\w+) rank (\d+) nranks (\d+) .* - Init COMPLETE")
    text = path.read_text(errors="replace")
    expected = Counter((int(m[2]), int(m[3])) for m in init.finditer(text))
    with _store([path], tmp_path / "t.db") as db:
        found = Counter(
            db.execute("SELECT rank, nranks FROM members JOIN communicators USING (comm_id)")
        )
        full = db.execute("SELECT COUNT(*) FROM communicators WHERE ranks_seen <> nranks")
        assert full.fetchone() == (0,)
    assert found == expected
