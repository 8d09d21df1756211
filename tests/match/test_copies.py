"""Logs that hold lines twice: one commId, rank and process is one communicator."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from command import collscope, rows

HOST = "n1:7:7 [0] NCCL INFO "
CALLS = "SELECT COUNT(*) FROM calls"
CODES = "SELECT code, count FROM diagnostics WHERE code IN ('counted_once', 'communicator_twice')"


def init(commid: int, ptr: int = 0x10) -> str:
    line = f"{HOST}ncclCommInitRank comm {ptr:#x} rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60"
    return f"{line} commId {commid:#x} - Init START\n{line} commId {commid:#x} - Init COMPLETE\n"


def split(ptr: int, number: int) -> str:
    line = f"{HOST}ncclCommSplit comm {ptr:#x} rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60"
    return f"{line} parent 0x10 splitCount {number} color 0 key 0 - Init COMPLETE\n"


def calls(*counts: int, ptr: int = 0x10) -> str:
    return "".join(
        f"{HOST}AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count {n} datatype 7 op 0 root 0"
        f" comm {ptr:#x} [nranks=2] stream 0x3\n"
        for n in counts
    )


JOB = init(0xAB) + calls(1, 2, 2) + split(0x20, 1) + calls(4, 4, ptr=0x20)


def doubled(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) for _ in "ab")


@pytest.mark.parametrize(
    ("text", "expected", "codes"),
    [
        (JOB, 5, []),
        (JOB + JOB, 5, [("counted_once", 5)]),
        (JOB * 3, 5, [("counted_once", 10)]),
        (doubled(JOB), 5, [("counted_once", 5)]),
        # cut before the copy
        (init(0xAB) + calls(1, 2) + JOB, 5, [("counted_once", 2)]),
        # Other communicators at the same address make the same calls.
        (JOB + JOB.replace("0xab", "0xac"), 10, []),
        (JOB + split(0x20, 2) + calls(4, 4, ptr=0x20), 7, []),
        # Other calls: nobody knows.
        (JOB + init(0xAB) + calls(7), 6, [("communicator_twice", 1)]),
    ],
)
def test_in_one_log(
    text: str, expected: int, codes: list[tuple[str, int]], tmp_path: Path, db_path: Path
) -> None:
    (tmp_path / "a.log").write_text(text)
    assert collscope("ingest", "log", tmp_path / "a.log", "--db", db_path).code == 0
    assert rows(db_path, CALLS) == [(expected,)]
    assert rows(db_path, CODES) == codes


def test_plain_and_compressed(tmp_path: Path, db_path: Path) -> None:
    (tmp_path / "a.log").write_text(JOB)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(JOB.encode()))
    done = collscope("ingest", "log", tmp_path, "--db", db_path)
    assert (done.code, rows(db_path, CALLS)) == (0, [(5,)])
    assert "counted once" in done.out
    assert "process_in_two_logs" not in done.out


@pytest.mark.parametrize(
    ("end", "code", "severity"),
    [
        ("", None, None),
        ("n1:7:", "torn_last_line", "data_loss"),
        ("n", "torn_last_line", "data_loss"),
        ("n1:7:7 [0] NCCL IN", "torn_last_line", "data_loss"),
        (HOST + "AllRed", "torn_last_line", "data_loss"),
        (HOST + "Channel 00/0 : 0[0] -> 1[1] via P", "torn_last_line", "notice"),
        (calls(9).rstrip("\n"), None, None),  # whole, but for its line end
        ("step 3 of 9", None, None),
        (calls(9).rstrip("\n")[:60], "torn_line", "data_loss"),
    ],
)
def test_torn_ends(
    end: str, code: str | None, severity: str | None, tmp_path: Path, db_path: Path
) -> None:
    (tmp_path / "a.log").write_text(JOB + end)
    assert collscope("ingest", "log", tmp_path / "a.log", "--db", db_path).code == 0
    found = rows(db_path, "SELECT code, severity FROM diagnostics WHERE code LIKE 'torn%'")
    assert found == ([] if code is None else [(code, severity)])


def test_recordings_in_two_files(samples: Path, tmp_path: Path, db_path: Path) -> None:
    once = (samples / "recorders" / "synthetic.inspector-v4.3.log").read_text()
    (tmp_path / "a.log").write_text(once)
    done = collscope("ingest", "trace", tmp_path / "a.log", "--db", db_path)
    calls = rows(db_path, "SELECT ranks_seen FROM calls")
    # All of its three records, and two of them.
    for name, text, codes in (
        ("b.log", once + "\n", []),
        ("c.log", once[: once.rindex("\n", 0, -1) + 1], [("counted_once", 2)]),
    ):
        (tmp_path / name).write_text(text)
        done = collscope("ingest", "trace", tmp_path / name, "--db", db_path)
        assert done.code == 0
        assert rows(db_path, "SELECT ranks_seen FROM calls") == calls
        assert rows(db_path, CODES) == codes
