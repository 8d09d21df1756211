"""The native scanner: real recordings against an independent count, and its invariants."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ROOT

from collscope._logscan import Scanner

NONE = 0xFFFFFFFF
DIALECTS = ROOT / "tests" / "native" / "dialects.log"

# An independent reading of a COLL line, in NCCL's one order (NCCL 2.28.9).
COLL = re.compile(
    rb"NCCL INFO (\w+): opCount ([0-9a-f]+) sendbuff (\S+) recvbuff (\S+) count (\d+)"
    rb" datatype (\d+) op (\d+) root (\d+) comm 0x([0-9a-f]+) \[nranks=(\d+)\] stream"
)

# Verbatim from the guide (RCCL of ROCm 6.1).
GUIDE_COLL = (
    b"banff-cyxtera-s78-4:52939:52939 [2] NCCL INFO AllReduce: opCount 2 sendbuff 0x7f2a8436e600"
    b" recvbuff 0x7f2a8436e600 count 1 datatype 8 op 0 root 0 comm 0xac3ea00 [nranks=8]"
    b" stream 0xa78f810 task 0 globalrank 2\n"
)
GUIDE_KL = (
    b"banff-cyxtera-s78-4:52944:53177 [0] NCCL INFO ## [170260.347287] [07:00] 000001 KL HWID"
    b" 42300700 ncclDevFunc_AllReduce_RING_LL_Sum_double nw 4 bi 0 nc 0 busId df000 nRanks 8\n"
)
GUIDE_KE = (
    b"banff-cyxtera-s78-4:52943:53178 [0] NCCL INFO ## [170260.348516] [06:00] 000001 KE"
    b" busId bf000 nRanks 8\n"
)


def scan(*pieces: bytes) -> dict[str, Any]:
    """Tables of the log made of `pieces`."""
    scanner = Scanner()
    for piece in pieces:
        scanner.feed(piece)
    return scanner.finish()


def flatten(tables: object) -> object:
    """The same tables with arrays as text, comparable by ==; NaN equals NaN."""
    if isinstance(tables, np.ndarray):
        return repr(tables.tolist())
    if isinstance(tables, dict):
        return {key: flatten(value) for key, value in tables.items()}
    return tables


def call_rows(tables: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Per COLL row what the regular expression reads, without the pointers."""
    coll, sig, comms = tables["coll"], tables["signatures"], tables["comms"]
    rows = []
    for i in range(len(coll["sig"])):
        s, c = int(coll["sig"][i]), int(coll["comm"][i])
        rows.append(
            (
                tables["ops"][int(sig["op"][s])],
                int(coll["op_count"][i]),
                *(int(sig[name][s]) for name in ("count", "datatype", "redop", "root")),
                int(comms["ptr"][c]),
                int(sig["nranks"][s]),
            )
        )
    return rows


def expected_rows(log: bytes) -> list[tuple[Any, ...]]:
    """`call_rows` by the regular expression."""
    return [
        (
            m[1].decode(),
            int(m[2], 16),
            *(int(m[i]) for i in (5, 6, 7, 8)),
            int(m[9], 16),
            int(m[10]),
        )
        for m in COLL.finditer(log)
    ]


def test_what_is_no_record_gives_none() -> None:
    tables = scan(b"", b"\n\n", b"AllReduce: 4 things\n", b"NCCL INFOrmation\n", b"\xff\xfe\0")
    assert len(tables["coll"]["line"]) == 0
    assert tables["counters"]["lines"] == 5
    assert tables["counters"]["foreign"] == 5
    assert tables["counters"]["nul"] == 1
    assert tables["processes"]["host"] == []


def test_a_spent_scanner_refuses_work() -> None:
    scanner = Scanner()
    scanner.finish()
    with pytest.raises(RuntimeError, match="Make a new one"):
        scanner.feed(b"x")
    with pytest.raises(RuntimeError, match="Make a new one"):
        scanner.finish()


def test_guide_lines() -> None:
    tables = scan(GUIDE_COLL + GUIDE_KL + GUIDE_KE)
    assert call_rows(tables) == [("AllReduce", 2, 1, 8, 0, 0, 0xAC3EA00, 8)]
    assert tables["coll"]["slot"].tolist() == [0]
    assert tables["comms"]["global_rank"].tolist() == [2]
    assert tables["processes"]["pid"] == [52939, 52944, 52943]
    assert tables["threads"]["tid"].tolist() == [52939, 53177, 53178]
    kernel = tables["kernel"]
    assert kernel["time_ns"].tolist() == [170260347287000, 170260348516000]
    assert kernel["kind"].tolist() == [0, 4]
    assert kernel["rank"].tolist() == [7, 6]
    assert kernel["bus_id"].tolist() == [0xDF000, 0xBF000]
    assert kernel["name"].tolist() == [0, NONE]
    assert tables["kernel_names"] == ["ncclDevFunc_AllReduce_RING_LL_Sum_double"]
    assert kernel["op_count2"].tolist() == [2**64 - 1] * 2


def test_columns_have_the_promised_types() -> None:
    tables = scan(DIALECTS.read_bytes())
    promised = {
        "coll": "comm u4 sig u4 op_count u8 slot i4 task i4 thread u4 line u4 source u1",
        "comms": "process u4 ptr u8 nranks i4 global_rank i4 generation u4",
        "signatures": "op u4 count u8 datatype i4 redop i4 root i4 nranks i4 flags u4",
        "groups": "process u4 thread u4 line u4 delta i1",
        "threads": "process u4 tid i8",
        "tuning": "process u4 thread u4 line u4 kind u1 op u4 bytes u8 algorithm u4 protocol u4"
        " kernel u4 channels i4 time_us f8 comm_ptr u8",
        "kernel": "process u4 kind u1 time_ns i8 rank i4 block i4 channel i4 thread i4 op_count u8"
        " op_count2 u8 name u4 bus_id i8 nranks i4 comm_ptr u8 root i4 nc i4 line u4",
    }
    for table, columns in promised.items():
        words = columns.split()
        assert list(tables[table]) == words[::2]
        for name, code in zip(words[::2], words[1::2], strict=True):
            assert tables[table][name].dtype == np.dtype(code), f"{table}.{name}"


def test_every_line_has_one_outcome() -> None:
    log = DIALECTS.read_bytes()
    counters = scan(log)["counters"]
    outcomes = ("coll", "call", "kernel", "tuning", "messages", "data_trace", "torn", "foreign")
    groups = 2  # ncclGroupStart, ncclGroupEnd
    assert counters["unknown"] == counters["structure_skipped"] == 0
    assert sum(counters[name] for name in outcomes) + groups == counters["lines"]
    assert counters["lines"] == log.count(b"\n")
    assert counters["bytes"] == len(log)


@given(cuts=st.lists(st.integers(0, 6000), max_size=40))
@settings(max_examples=60, deadline=None)
def test_pieces_do_not_matter(cuts: list[int]) -> None:
    log = DIALECTS.read_bytes()
    edges = [0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]
    pieces = [log[a:b] for a, b in itertools.pairwise(edges)]
    assert flatten(scan(*pieces)) == flatten(scan(log))


def test_halves_of_large_pieces_do_not_matter() -> None:
    # A second thread scans the later half of pieces beyond 1 MiB; every rank is in both halves.
    text = DIALECTS.read_bytes()
    call, start, end = GUIDE_COLL, GUIDE_KL, GUIDE_KE
    lines = [text, *(call.replace(b"52939", b"%d" % (i % 97)) for i in range(9000)), start, end]
    log = b"".join([*lines, text, *reversed(lines)])
    whole = scan(log)
    assert len(whole["coll"]["line"]) > 18_000
    small = (log[at : at + 100_000] for at in range(0, len(log), 100_000))
    assert flatten(whole) == flatten(scan(*small))


@given(cut=st.integers(0, 6000))
@settings(max_examples=60, deadline=None)
def test_a_cut_loses_no_earlier_record(cut: int) -> None:
    log = DIALECTS.read_bytes()
    part, whole = scan(log[:cut]), scan(log)
    finished = log[:cut].count(b"\n")
    earlier = [
        row
        for row, line in zip(call_rows(whole), whole["coll"]["line"], strict=True)
        if line <= finished
    ]
    assert call_rows(part)[: len(earlier)] == earlier


def test_shared_stdout_of_four_ranks(recordings: Path) -> None:
    log = (recordings / "mixed" / "all-ranks-one-stream.coll-only.log").read_bytes()
    tables = scan(log)
    assert call_rows(tables) == expected_rows(log)
    assert len(tables["processes"]["pid"]) == 4
    assert tables["counters"]["torn"] == 0


def test_recordings(recordings: Path) -> None:
    logs = sorted(recordings.rglob("nccl.*.log"))
    assert logs
    for path in logs:
        log = path.read_bytes()
        tables = scan(log)
        assert call_rows(tables) == expected_rows(log), path.name
        bytes_lines = re.findall(rb"NCCL INFO (?:\w+: )?(\d+) Bytes -> Algo", log)
        assert tables["tuning"]["bytes"].tolist() == [int(size) for size in bytes_lines]
        damage = ("torn", "interleaved", "invalid_number", "nul", "overlong")
        assert [tables["counters"][name] for name in damage] == [0] * 5


def test_recorded_slots(recordings: Path) -> None:
    log = (recordings / "mixed" / "nccl.vm.1256.log").read_bytes()
    slots = Counter(scan(log)["coll"]["slot"].tolist())
    expected: Counter[int] = Counter()
    item = {0: 1, 1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2}
    for m in COLL.finditer(log):
        if b"(nil)" in (m[3], m[4]) or int(m[5]) == 0 or m[1] in (b"Send", b"Recv"):
            expected[-2] += 1
            continue
        distance = int(m[3], 16) - int(m[4], 16)
        if m[1] in (b"AllGather", b"ReduceScatter"):
            distance = distance if m[1] == b"AllGather" else -distance
            rank, rest = divmod(distance, int(m[5]) * item[int(m[6])])
            expected[rank if rest == 0 and 0 <= rank < int(m[10]) else -1] += 1
        else:
            expected[0 if distance == 0 else -1] += 1
    assert slots == expected


def test_corpus_messages(corpus: Path) -> None:
    logs = sorted((corpus / "nccl-init").glob("*.txt"))
    assert len(logs) == 3
    for path in logs:
        log = path.read_bytes()
        tables = scan(log)
        texts = tables["messages"]["text"]
        inits = re.findall(rb"NCCL INFO .*- (?:Init (?:START|COMPLETE)|Destroy COMPLETE)", log)
        links = re.findall(rb"NCCL INFO (?:Channel|Ring|Coll) .* via ", log)
        warns = re.findall(rb"NCCL WARN ", log)
        kinds = Counter(tables["messages"]["kind"].tolist())
        assert (kinds[1], kinds[3], kinds[7]) == (len(inits), len(links), len(warns)), path.name
        printers = set(re.findall(rb"(\S+):(\d+):\d+ \[\d+\] (?:\S+ )?NCCL ", log))
        hosts, pids = tables["processes"]["host"], tables["processes"]["pid"]
        assert set(zip(hosts, pids, strict=True)) == {(h.decode(), int(p)) for h, p in printers}
        assert not any("\r" in text or text != text.rstrip() for text in texts)
        assert tables["counters"]["torn"] == 0


def test_work_items_may_end_with_their_name() -> None:
    # RCCL 2.22 prints a batch number and the name, 2025 builds add a position and td->type.
    head, name = (
        b"h:1:9 [0] NCCL INFO ## [1.000001] [00:00-01:c0] 00000f ",
        b"ncclDevFunc_AllGather",
    )
    whole = head + b"CL 3 " + name + b"\n" + head + b"CL " + name + b" [00:00-01:c0] 3 td->type:1\n"
    tables = scan(whole, head + b"CL 3 " + name[:-4])  # the file ends within a name
    assert tables["kernel"]["kind"].tolist() == [1, 1]
    assert tables["kernel_names"] == [name.decode()]
    assert tables["counters"]["torn"] == 1


def test_the_level_attn_of_nccl_2_31() -> None:
    scanner = Scanner()
    scanner.feed(b"n1:100:200 [0] src/graph/topo.cc:12 NCCL ATTN half the width\n")
    scan = scanner.finish()
    assert (scan["counters"]["messages"], scan["counters"]["foreign"]) == (1, 0)
    assert scan["messages"]["text"] == ["src/graph/topo.cc:12 NCCL ATTN half the width"]
