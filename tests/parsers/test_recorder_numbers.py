"""What recorders' own numbers tell: records that lack, records that stand there twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from inputs import ROOT
from readers import parse_recording
from recorder_builder import TIME_MS, record

SAMPLES = ROOT / "samples" / "recorders"
ACCL = "accl_profiler_rank2_node-1_pid4711_0x7f8c496ae9f661.jsonl"
FLIGHT = "ddp.fr.rank0.json"
Entries = list[dict[str, Any]]


def told(data: bytes, name: str) -> tuple[int, dict[str, int]]:
    """Calls of a recording, and its diagnostics of gaps and copies."""
    found = parse_recording([data], name)
    assert found is not None
    codes = {d.code: d.count for d in found.diagnostics}
    wanted = ("numbers_missing", "counted_once", "second_dump", "no_end", "torn_line")
    return len(found.calls), {code: codes[code] for code in wanted if code in codes}


def dump(change: Callable[[Entries], Entries]) -> bytes:
    found = json.loads((SAMPLES / FLIGHT).read_bytes())
    return json.dumps({**found, "entries": change(found["entries"])}).encode()


def without_id(entries: Entries) -> Entries:
    return [{k: v for k, v in e.items() if k != "record_id"} for e in entries]


def transfer(entry: dict[str, Any]) -> dict[str, Any]:
    """A Send that has the number of a collective, as after startCoalescing of a batch."""
    return {**entry, "is_p2p": True, "p2p_seq_id": 1, "profiling_name": "nccl:send 0->1"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda e: e, (20, {})),
        (lambda e: e[5:], (15, {})),  # what a ring buffer forgets is not missing
        (lambda e: e[:7] + e[9:], (18, {"numbers_missing": 2})),
        (lambda e: e[::2], (10, {"numbers_missing": 10})),  # the last one by pg_status
        (lambda e: e[:-3], (17, {"numbers_missing": 3})),
        (lambda e: [x for x in e for _ in "ab"], (20, {"counted_once": 20})),
        (lambda e: [{**e[0], "record_id": None}, *e[1:]], (20, {})),
        # Without numbers of the process, those of each group count.
        (without_id, (20, {})),
        (lambda e: without_id(e[:5] + e[10:]), (15, {"numbers_missing": 5})),
        (lambda e: without_id(e[5:]), (15, {})),
        (lambda e: without_id([*e[:9], transfer(e[9]), *e[10:]]), (20, {})),
    ],
)
def test_flight_recorder(
    change: Callable[[Entries], Entries], expected: tuple[int, dict[str, int]]
) -> None:
    assert told(dump(change), FLIGHT) == expected


def test_a_dump_of_open_calls_alone_may_have_gaps() -> None:
    data = dump(lambda e: [{**x, "state": "scheduled"} for x in e[::2]])
    found = parse_recording([data], FLIGHT)
    assert found is not None
    assert [(d.code, d.count, d.severity.value) for d in found.diagnostics] == [
        ("only_active", 10, "notice")
    ]


def test_a_second_dump_in_one_file() -> None:
    one = (SAMPLES / FLIGHT).read_bytes()
    other = dump(lambda entries: entries[:9])
    assert told(one + b"\n" + one, FLIGHT) == (20, {"counted_once": 1})
    assert told(one + other, FLIGHT) == (20, {"second_dump": 1})


def test_numbers_that_no_file_can_hold() -> None:
    data = dump(lambda e: [*e[:-1], {**e[-1], "record_id": 2**63 - 1}])
    calls, codes = told(data, FLIGHT)
    assert (calls, codes["numbers_missing"] < 2**63) == (20, True)


@pytest.mark.parametrize(
    ("enqueued", "change", "expected"),
    [
        ("116", lambda e: e, 0),
        ("115", lambda e: e, 1),
        # An entry is made before its call is enqueued.
        ("115", lambda e: [*e[:-1], {**e[-1], "state": "scheduled"}], 0),
        ("5", lambda e: [transfer(e[0]), *e[1:]], 0),  # the status may be of transfers
        ("-1", lambda e: e, 0),
    ],
)
def test_a_status_that_its_entries_contradict(
    enqueued: str, change: Callable[[Entries], Entries], expected: int
) -> None:
    document = json.loads(dump(change))
    document["pg_status"]["0"]["last_enqueued_collective"] = enqueued
    found = parse_recording([json.dumps(document).encode()], FLIGHT)
    assert found is not None
    codes = [d.code for d in found.diagnostics]
    assert codes.count("contradicting_status") == expected
    assert len(found.status) == 1 - expected


def test_a_value_nested_too_deep_costs_only_itself() -> None:
    one = (SAMPLES / FLIGHT).read_bytes()
    deep = b"[" * 100_000 + b'"]"' + b"]" * 100_000
    found = parse_recording([one.rstrip()[:-1] + b',"more":' + deep + b"}"], FLIGHT)
    sound = parse_recording([one], FLIGHT)
    assert found is not None
    assert sound is not None
    assert [(d.code, d.count) for d in found.diagnostics] == [("deep_value", 1)]
    assert (found.calls, found.groups, found.status) == (sound.calls, sound.groups, sound.status)


def test_a_communicators_line_that_is_cut() -> None:
    name = "replay.4711.node-1.json"
    data = (SAMPLES / name).read_bytes().rstrip()
    assert told(data, name) == (7, {})
    assert told(data[:-3], name) == (7, {"torn_line": 1})


def numbered(line: str, number: int, key: str = "coll_sn") -> str:
    return re.sub(rf'"{key}": ?\d+', f'"{key}": {number}', line)


def inspector(numbers: list[int], dropped: int) -> bytes:
    marker, first, *_ = (SAMPLES / "synthetic.inspector-v4.3.log").read_text().splitlines()
    marker = marker.replace('"coll_records":2', f'"coll_records":{len(numbers)}')
    marker = marker.replace('"proxy_records":1', '"proxy_records":0')
    marker = marker.replace('"coll_dropped_total":0', f'"coll_dropped_total":{dropped}')
    return "\n".join([marker, *(numbered(first, n) for n in numbers), ""]).encode()


@pytest.mark.parametrize(
    ("numbers", "dropped", "expected"),
    [
        ([4, 5, 6], 0, (3, {})),  # it may begin anywhere
        ([4, 5, 9], 0, (3, {"numbers_missing": 3})),
        ([4, 5, 9], 3, (3, {})),  # what its ring buffers dropped, it says
        ([4, 4, 5, 5], 0, (2, {"counted_once": 2})),
    ],
)
def test_inspector(numbers: list[int], dropped: int, expected: tuple[int, dict[str, int]]) -> None:
    assert told(inspector(numbers, dropped), "insp.log") == expected


def test_accl_profiler_begins_with_its_communicator() -> None:
    first, _, _, summary = (SAMPLES / ACCL).read_text().splitlines()
    summary = re.sub(r'"(dropped|leaked)_collectives":\d+', r'"\1_collectives":0', summary)

    def of(*numbers: int) -> bytes:
        return "\n".join([*(numbered(first, n) for n in numbers), summary, ""]).encode()

    assert told(of(0, 1, 2), ACCL) == (3, {})
    assert told(of(0, 2, 5), ACCL) == (3, {"numbers_missing": 3})
    assert told(of(2, 3), ACCL) == (2, {"numbers_missing": 2})
    assert told(of(0, 1, 1, 0), ACCL) == (2, {"counted_once": 2})


def plugin(numbers: list[int]) -> bytes:
    sample = (SAMPLES / "synthetic.profiler-plugin.txt").read_text().splitlines()
    begin, end = sample[3], sample[5]
    lines = ["["]
    for n in numbers:
        lines.append(numbered(numbered(begin, n, "id"), n, "SeqNum").replace("1002.25", f"{n}2.25"))
        lines.append(numbered(end, n, "id").replace("1102.5", f"{n}5.5"))
    return "\n".join([*lines, "{}]", ""]).encode()


def test_profiler_plugin() -> None:
    name = "trace-node-1-7.txt"
    assert told(plugin([3, 4, 5]), name) == (3, {})
    assert told(plugin([3, 5, 8]), name) == (3, {"numbers_missing": 3})
    assert told(plugin([3, 4, 4, 3]), name) == (2, {"counted_once": 2})
    assert told(plugin([3, 4])[:-4], name) == (2, {"no_end": 1})


def clog(works: list[int]) -> bytes:
    head = (SAMPLES / "synthetic.clog.txt").read_text().splitlines()[:4]
    calls = [f"C1|Q|work_id={n}|+{n}.001\nC1|S|+{n}.002\nC1|E|+{n}.003" for n in works]
    return "\n".join([*head, *calls, ""]).encode()


def test_clog() -> None:
    assert told(clog([1, 2, 3]), "x") == (3, {})
    assert told(clog([2, 5]), "x") == (2, {"numbers_missing": 3})
    assert told(clog([1, 2, 2, 1]), "x") == (2, {"counted_once": 2})
    once = (SAMPLES / "synthetic.clog.txt").read_bytes()
    calls, codes = told(once + once, "x")
    assert (calls, codes["counted_once"] > 0) == (told(once, "x")[0], True)


def test_rccl_recorder() -> None:
    name = "replay.4711.node-1.json"
    once = (SAMPLES / name).read_bytes()
    calls, codes = told(once + once, name)
    assert (calls, list(codes)) == (7, ["counted_once"])
    lines = once.decode().splitlines(keepends=True)
    # The beginning of one line runs into another one.
    glued = lines[4][: lines[4].index(" recvbuff")] + lines[5].lstrip()
    assert told("".join([*lines[:4], glued, *lines[6:]]).encode(), name) == (5, {"torn_line": 1})
    call = {"comm": 1, "nranks": 2, "rank": 0, "count": 8, "datatype": 7}
    records = [record("AllReduce", time=TIME_MS + k, **call) for k in (0, 1, 1)]
    assert told(b"".join(records), "replay.4711.h") == (2, {"counted_once": 1})
