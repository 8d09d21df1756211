"""Recorders of calls: what each dialect gives, and that no content makes a parser fail."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import ROOT
from readers import parse_recording, reader_of, sniff
from recorder_builder import TIME_MS, TYPES, record, recording

from collscope._picklejson import convert
from collscope.model import Datatype, Op, Severity
from collscope.model.trace import RecordedCalls
from collscope.parsers import registry
from collscope.parsers.reader import Fit
from collscope.parsers.recorders import flight_pickle
from collscope.parsers.traces.kineto_names import parse_collective

SAMPLES = ROOT / "samples" / "recorders"
FILES = sorted(path.name for path in SAMPLES.iterdir())
DATA = {name: (SAMPLES / name).read_bytes() for name in FILES}
ACCL = "accl_profiler_rank2_node-1_pid4711_0x7f8c496ae9f661.jsonl"
DATA["replay.1.h"] = recording(acc=False)
DATA["replay.2.h"] = recording(acc=True)


def read(name: str, data: bytes | None = None) -> RecordedCalls:
    found = parse_recording([DATA[name] if data is None else data], name)
    assert found is not None
    return found


def codes(found: RecordedCalls) -> dict[str, int]:
    return {d.code: d.count for d in found.diagnostics}


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("ddp.fr.rank0.json", "flight_recorder"),
        ("ddp.fr.rank1.pickle", "flight_pickle"),
        ("synthetic.inspector-v4.0.log", "inspector"),
        ("synthetic.inspector-v4.3.log", "inspector"),
        (ACCL, "accl_profiler"),
        ("synthetic.clog.txt", "clog"),
        ("synthetic.torchcomms_trace_rank_2.json", "flight_recorder"),
        ("node-1.4710.18eab1bfcad93c74.0.collrec", "own_recorder"),
        ("synthetic.profiler-plugin.txt", "profiler_plugin"),
        ("replay.4711.node-1.json", "rccl_recorder_text"),
        ("replay.1.h", "rccl_recorder_binary"),
        ("replay.2.h", "rccl_recorder_binary"),
    ],
)
def test_sniffs_its_dialect(name: str, dialect: str) -> None:
    assert sniff(DATA[name]) == dialect
    assert read(name).dialect == dialect


@pytest.mark.parametrize("head", [b"", b"{", b"[1]", b"\x80\x02}.", b"NCCL INFO", b"\x00" * 400])
def test_sniffs_nothing_else(head: bytes) -> None:
    assert sniff(head) is None


def test_leaves_traces_to_their_parsers(recordings: Path, corpus: Path) -> None:
    for path in (
        recordings / "ddp/trace.rank0.json.gz",
        recordings / "blocking/default/rank0.json.gz",
        corpus / "kineto/hta-nccl_data.json.gz",
        corpus / "rocprof/tracelens-908_results.json.gz",
    ):
        with gzip.open(path) as file:
            head = file.read(registry.HEAD_BYTES)
        taken = [r.name for r in registry.readers("trace") if r.sniff(head) is not Fit.NONE]
        assert taken in (["kineto"], ["rocprof_json"])


# --- flight recorder ---------------------------------------------------------------------------


def test_flight_recorder_counts_of_the_recording(recordings: Path) -> None:
    # grep -o '"profiling_name":"[^"]*"' FILE | sort | uniq -c
    found = read("ddp.fr.rank2.json", (recordings / "ddp/ddp.fr.rank2.json").read_bytes())
    ops = Counter(call.collective.op for call in found.calls)
    assert ops == {Op.ALL_REDUCE: 110, Op.BROADCAST: 5, Op.ALL_GATHER: 1}
    assert (found.rank, found.world_size, found.library_version) == (2, 4, "2.28.9")
    assert found.coverage == "whole"
    assert [call.seq for call in found.calls] == list(range(1, 117))
    first = found.calls[0]
    assert first.collective.datatype is Datatype.INT64
    assert (first.collective.in_count, first.collective.out_count) == (1, 4)
    assert first.group_rank == 2
    assert found.groups == (("0", (0, 1, 2, 3)),)
    # input_sizes [[]] is one element, not none
    assert found.calls[-1].collective.in_count == 1


def test_flight_recorder_json_and_pickle_agree(recordings: Path) -> None:
    as_json = read("ddp.fr.rank1.json", (recordings / "ddp/ddp.fr.rank1.json").read_bytes())
    pickled = read("ddp.fr.rank1.pickle", (recordings / "ddp/ddp.fr.rank1.pickle").read_bytes())
    assert [c.collective for c in as_json.calls] == [c.collective for c in pickled.calls]
    assert [c.seq for c in as_json.calls] == [c.seq for c in pickled.calls]
    assert as_json.status[0].last_enqueued == pickled.status[0].last_enqueued == 116


def test_flight_pickles_of_others(corpus: Path) -> None:
    found = read("_dump_1", (corpus / "flight-recorder/_dump_1").read_bytes())
    assert (found.rank, found.world_size, found.library_version) == (1, 16, "2.27.3")
    assert found.coverage == "tail"  # its first record is 86676
    assert {call.state for call in found.calls} == {"scheduled"}
    first = found.calls[0]
    assert (first.collective.op, first.collective.peer, first.seq) == (Op.SEND, 3, 11981)
    assert first.collective.in_count == 4096 * 1 * 5120
    assert first.collective.group_ranks == (1, 5, 9, 13)
    assert first.end_ns is None
    tensor_parallel = next(s for s in found.status if s.group == "35")
    assert (tensor_parallel.last_enqueued, tensor_parallel.last_completed) == (39416, 39406)


def test_flight_recorder_without_entries() -> None:
    found = read("_dump_3", pickle.dumps({"version": "2.9", "pg_config": {}, "entries": []}, 2))
    assert found.calls == ()
    assert codes(found) == {"no_calls": 1}


def test_flight_recorder_cut_keeps_whole_entries() -> None:
    data = DATA["ddp.fr.rank0.json"]
    ends = [place for place in range(len(data)) if data.startswith(b'"timeout_ms":600000}', place)]
    assert len(ends) == 20
    for kept, end in enumerate(ends):
        found = read("ddp.fr.rank0.json", data[: end + len(b'"timeout_ms":600000}')])
        assert len(found.calls) == kept + 1
        assert codes(found) == {"torn_dump": 1}


@pytest.mark.parametrize(
    "payload",
    [
        b"\x80\x02cos\nsystem\nX\x07\x00\x00\x00entries\x85R.",
        b"\x80\x02X\x07\x00\x00\x00entries0(S'true'\nios\nsystem\n.",
        b"\x80\x04\x8c\x07entries\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02X\x07\x00\x00\x00entriesQ.",  # persistent reference
        b"\x80\x02X\x07\x00\x00\x00entries\x82\x01.",  # extension registry
        b"\x80\x02X\x07\x00\x00\x00entriesr\xff\xff\xff\x7f.",  # room for 2^31 memo entries
        b"\x80\x02X\x07\x00\x00\x00entries0" + b"]" * 100_000 + b".",
        # A tuple of tuples as a key: hashing it would fill the stack.
        b"\x80\x02}X\x07\x00\x00\x00entries0)" + b"\x85" * 500_000 + b"Ns.",
    ],
)
def test_pickles_that_want_more_are_not_loaded(payload: bytes) -> None:
    found = read("_dump_0", payload)
    assert found.calls == ()
    assert found.diagnostics[0].code == "refused_pickle"
    assert found.diagnostics[0].severity is Severity.ERROR


def test_unpickler_itself_refuses_classes() -> None:
    with pytest.raises(pickle.UnpicklingError):
        flight_pickle._PlainUnpickler.find_class(
            flight_pickle._PlainUnpickler.__new__(flight_pickle._PlainUnpickler), "os", "system"
        )


_DUMPS = [
    pickle.dumps(
        {"entries": [{"record_id": k, "state": "completed", "time": -1.5, "sizes": ([2**k, 3],)}
                     for k in range(60)], "pg_config": {"0": {"ranks": "[0, 1]", "q": 'a"\\b\n'}}},
        protocol,
    )
    for protocol in (2, 3)
]  # fmt: skip


def unpickled(data: bytes) -> object:
    """What the restricted unpickler makes of a pickle, with lists for tuples."""
    found = flight_pickle._PlainUnpickler(io.BytesIO(data)).load()
    return json.loads(json.dumps(found))


@pytest.mark.parametrize("data", _DUMPS)
def test_a_plain_pickle_becomes_json(data: bytes) -> None:
    assert json.loads(convert(data) or b"") == unpickled(data)


@settings(max_examples=1000)
@given(
    st.sampled_from(_DUMPS),
    st.lists(st.tuples(st.integers(2, 1 << 20), st.binary(max_size=3)), max_size=4),
)
def test_a_damaged_pickle_becomes_what_the_unpickler_makes_of_it(
    data: bytes, changes: list[tuple[int, bytes]]
) -> None:
    for place, new in changes:
        at = 2 + place % (len(data) - 2)
        data = data[:at] + new + data[at + len(new) + place % 2 :]
    text = convert(data)
    assert text is None or json.loads(text) == unpickled(data)


def test_what_is_not_plain_becomes_no_json() -> None:
    def with_values(*values: bytes) -> bytes:
        return b"\x80\x02" + b"".join(values) + b"."

    assert convert(with_values(b"]")) == b"[]"
    assert convert(with_values(b"]q\0(K\x01h\0e")) is None  # in itself
    assert convert(with_values(b"](}q\0h\0e")) is None  # one entry in two places
    assert convert(with_values(b"](" * 65, b"e" * 65)) is None
    assert convert(with_values(b"}(K\x01K\x02u")) is None  # a key that is no text
    assert convert(with_values(b"]r\0\0\0\x01")) is None
    assert convert(with_values(b"X\xff\xff\xff\x7f")) is None
    assert convert(with_values(b"X\x02\0\0\0\xc3\xa4")) is None  # left to the unpickler
    assert convert(with_values(b"cos\nsystem\n")) is None
    assert convert(with_values(b"K\x01K\x02")) is None
    assert convert(b"\x80\x02]") is None


def test_a_member_is_left_out_where_another_one_has_a_text() -> None:
    entries: list[dict[str, object]] = [
        {"frames": [1], "state": "completed", "id": 1},
        {"id": 2, "state": "started", "frames": [1]},
        {"state": "completed"},
        {"frames": "completed", "other": ["completed"]},
        {"id": 3, "frames": [{"frames": 1, "state": "completed"}]},
    ]
    left_out: list[dict[str, object]] = [dict(entry) for entry in entries]
    del left_out[0]["frames"]
    left_out[4]["frames"] = [{"state": "completed"}]
    found = convert(pickle.dumps(entries, 2), "frames", "state", "completed")
    assert json.loads(found or b"") == left_out
    # Of equal keys the last one counts: the call is open.
    twice = b"\x80\x02}(X\1\0\0\0sX\1\0\0\0cX\1\0\0\0sX\1\0\0\0oX\1\0\0\0fK\1u."
    assert convert(twice, "f", "s", "c") == b'{"s":"c","s":"o","f":1}'
    assert convert(twice, "f", "s", "o") == b'{"s":"c","s":"o"}'


def test_a_text_in_many_places_is_not_written_without_end() -> None:
    doubled = b"](X\xff\0\0\0" + b"a" * 255 + b"q\0" + b"h\0" * 60_000 + b"e."
    assert convert(b"\x80\x02" + doubled) is None


def test_shared_objects_of_a_hostile_pickle_are_read_once() -> None:
    shape = [[1] * 60] * 1000
    entry = {"profiling_name": "nccl:all_reduce", "input_sizes": shape, "input_dtypes": ["Float"]}
    entries = [dict(entry) for _ in range(500)] + [entry] * 100_000
    found = read("_dump_0", pickle.dumps({"pg_config": {}, "entries": entries}, 2))
    assert len(found.calls) == 501


# --- Inspector ---------------------------------------------------------------------------------


def test_inspector_v40() -> None:
    found = read("synthetic.inspector-v4.0.log")
    reduce, gather, send = found.calls
    assert (found.host, found.pid, found.seq_per_op) == ("node-1", 4711, True)
    assert reduce.collective.group == "0x7f8c496ae9f661"
    assert (reduce.collective.group_size, reduce.group_rank, reduce.seq) == (8, 2, 0)
    assert reduce.duration_ns == 4_000_000
    assert reduce.size_bytes == 1 << 30
    # printed: 2^30 B / 4 ms = 268.435456 GB/s, times 2·7/8
    assert reduce.busbw_gbps == pytest.approx(268.435456 * 1.75)
    # Inspector's AllGather size is one rank's; S is the whole: 8 × 1 MiB
    assert gather.size_bytes == 8 << 20
    assert (send.collective.op, send.collective.peer, send.seq) == (Op.SEND, 3, 5)
    assert send.timing_source == "kernel_cpu"


def test_inspector_v43_takes_context_from_its_marker() -> None:
    found = read("synthetic.inspector-v4.3.log")
    first, second, third = found.calls
    assert (first.collective.algorithm, first.collective.protocol) == ("RING", "LL")
    assert first.start_ns == 1752867229235180_000  # earliest channel
    assert first.end_ns == 1752867229239180_000  # latest
    assert (second.collective.op, second.size_bytes) == (Op.REDUCE_SCATTER, 8 << 20)
    assert (third.collective.group, third.group_rank) == ("0xe62dedaa97644a", 0)
    assert codes(found) == {"recorder_dropped": 1}


def test_inspector_record_without_marker_is_counted_not_guessed() -> None:
    lines = DATA["synthetic.inspector-v4.3.log"].splitlines(keepends=True)
    found = read("x.log", b"".join(lines[1:4]))
    assert found.calls == ()
    assert codes(found)["record_without_communicator"] == 2


def test_inspector_records_over_several_lines() -> None:
    lines = DATA["synthetic.inspector-v4.0.log"].splitlines()
    spread = "\n".join(json.dumps(json.loads(line), indent=2) for line in lines)
    assert read("x", spread.encode()).calls == read("synthetic.inspector-v4.0.log").calls


def test_inspector_torn_line_loses_only_itself() -> None:
    lines = DATA["synthetic.inspector-v4.0.log"].splitlines(keepends=True)
    torn = lines[0] + lines[1][:200] + b"\n" + lines[2]
    found = read("x", torn)
    assert [call.collective.op for call in found.calls] == [Op.ALL_REDUCE, Op.SEND]
    assert codes(found) == {"torn_record": 1}


def ten_times_short(data: bytes) -> bytes:
    """As RCCL's Inspector wrote it: microseconds of the GPU's clock by a tenth of the ticks."""
    data = re.sub(rb'("coll_(?:algo|bus)bw_gbs":)([\d.]+)', ten_times, data)
    return re.sub(rb'"coll_exec_time_us":(\d+)0,', rb'"coll_exec_time_us":\1,', data)


def ten_times(found: re.Match[bytes]) -> bytes:
    return found[1] + str(float(found[2]) * 10).encode()


def test_times_that_are_ten_times_too_short_are_left_out() -> None:
    # By the host's stamps: 4000 us between the first start and the last stop, 400 us told.
    short = read("x", ten_times_short(DATA["synthetic.inspector-v4.3.log"]))
    assert codes(short)["times_too_short"] == 1
    assert {call.duration_ns for call in short.calls} == {None}
    assert short.calls[0].start_ns == 1752867229235180_000  # the host's own stay
    # By what it would mean: 1 GiB in 400 us are 2684 GB/s, times 2·7/8.
    short = read("x", ten_times_short(DATA["synthetic.inspector-v4.0.log"]))
    assert codes(short)["times_too_short"] == 1
    # Timed by the host (kernel_cpu), so not by the ticks.
    assert [call.duration_ns for call in short.calls] == [None, None, 12_000]


@pytest.mark.parametrize("name", ["synthetic.inspector-v4.0.log", "synthetic.inspector-v4.3.log"])
def test_true_times_stay(name: str) -> None:
    found = read(name)
    assert "times_too_short" not in codes(found)
    assert found.calls[0].duration_ns == 4_000_000


def test_inspector_v41_and_v42() -> None:
    # v4.1: markers beside records that have a context of their own; v4.2: algorithm and protocol.
    marker, first, second, *_ = DATA["synthetic.inspector-v4.3.log"].splitlines(keepends=True)
    context = json.loads(marker)
    del context["dump_stats"]
    lines = [marker.replace(b"v4.3", b"v4.2").replace(b',"proxy_records":1', b"")]
    lines += [
        json.dumps({**context, **json.loads(line)}).encode() + b"\n" for line in (first, second)
    ]
    found = read("x", b"".join(lines))
    assert codes(found) == {}
    assert found.calls == read("synthetic.inspector-v4.3.log").calls[:2]


# --- torchcomms --------------------------------------------------------------------------------


def test_clog() -> None:
    found = read("synthetic.clog.txt")
    assert (found.rank, found.world_size, found.coverage) == (2, 4, "whole")
    assert found.groups == (("world", (0, 1, 2, 3)), ("dp", (0, 2)))
    first, gather, again, send, captured, replayed, open_, batch = found.calls
    # grep -c '|Q|' says 6 enqueued, and the graph that was captured starts twice (G42|R.|C1|S).
    assert Counter(call.state for call in found.calls) == {
        "completed": 3, "started": 2, "scheduled": 2, "captured": 1,
    }  # fmt: skip
    assert (first.collective.redop, first.in_place, first.group_rank) == ("Sum", True, 2)
    # 1714234567.890 + 0.001 s; milliseconds are all that is told, so no duration follows.
    assert (first.start_ns, first.end_ns) == (1714234567_891_000_000, 1714234567_895_000_000)
    assert first.duration_ns is None
    assert (gather.collective.op, gather.collective.in_count) == (Op.ALL_GATHER, 2048)
    assert (gather.collective.datatype, gather.group_rank) == (Datatype.BFLOAT16, 1)
    assert (again.state, again.end_ns) == ("started", None)  # its E is of the graph
    assert (send.collective.peer, send.collective.group_ranks) == (1, (0, 2))
    assert (captured.state, replayed.state, open_.state) == ("captured", "completed", "started")
    assert batch.collective.op is Op.UNKNOWN
    assert codes(found) == {"batch_not_told": 1, "recorder_warned": 1}


def test_clog_without_lifecycle_tells_no_state() -> None:
    lines = DATA["synthetic.clog.txt"].splitlines(keepends=True)
    found = read("x", b"".join(line for line in lines if not re.search(rb"\|[SEW]\|", line)))
    assert {call.state for call in found.calls} == {None, "captured"}
    assert len(found.calls) == 6


def test_clog_without_its_beginning() -> None:
    lines = DATA["synthetic.clog.txt"].splitlines(keepends=True)
    found = read("x", b"".join([lines[0], *lines[4:]])[:-30])
    # C1 is enqueued twice, started thrice, ended once and captured with three events; R1, R2.
    assert codes(found)["lost_signature"] == sum(b"C1|" in line for line in lines[4:])
    assert codes(found)["torn_record"] == 1


def test_torchcomms_flight_recorder_numbers_no_group() -> None:
    name = "synthetic.torchcomms_trace_rank_2.json"
    found = read(name)
    assert (found.rank, found.world_size) == (2, 4)
    # One counter for all groups: the order in each group numbers its calls.
    assert {call.seq for call in found.calls} == {None}
    # p2p_seq_id is 0 always, so it does not tell which sends were launched together.
    assert {call.together for call in found.calls} == {None}
    scatter = found.calls[-1]
    assert (scatter.collective.in_count, scatter.collective.out_count) == (1024, 256)
    assert found.calls[1].collective.op is Op.ALL_GATHER
    tail = json.loads(DATA[name])
    tail["entries"] = tail["entries"][1:]
    kept = read(name, json.dumps(tail).encode())
    assert [call.seq for call in kept.calls] == [1, 2, 3, 4, 5]
    assert codes(kept) == {"numbers_of_process": 1}


def test_pytorch_numbers_stay_those_of_the_group() -> None:
    found = read("ddp.fr.rank0.json")
    assert found.calls[0].seq == 97
    assert "numbers_of_process" not in codes(found)


# --- accl profiler plugin ----------------------------------------------------------------------


def test_accl_profiler() -> None:
    found = read(ACCL)
    reduce, gather, enqueued = found.calls
    assert (found.host, found.pid, found.seq_per_op) == ("node-1", 4711, True)
    # Of the file's name; the records do not tell it.
    assert {call.collective.group for call in found.calls} == {"0x7f8c496ae9f661"}
    assert (reduce.collective.group_size, reduce.group_rank, reduce.seq) == (8, 2, 0)
    assert (reduce.duration_ns, reduce.size_bytes) == (150_300, 4 << 20)
    assert (reduce.collective.algorithm, reduce.collective.protocol) == ("RING", "SIMPLE")
    assert gather.size_bytes == 8 << 20  # one rank's part is 1 MiB
    # No kernel times: 12 us are what enqueuing took.
    assert (enqueued.duration_ns, enqueued.timing_source) == (None, "cpu_wallclock")
    assert codes(found) == {"enqueue_time": 1, "recorder_dropped": 1}
    assert "lost 4 collectives" in found.diagnostics[-1].message


def test_accl_profiler_without_its_name_is_refused_not_guessed() -> None:
    found = read("renamed.jsonl", DATA[ACCL])
    assert found.calls == ()
    assert codes(found)["record_without_communicator"] == 3


def test_accl_profiler_without_its_end() -> None:
    lines = DATA[ACCL].splitlines(keepends=True)
    found = read(ACCL, b"".join(lines[:2]) + lines[2][:300])
    assert len(found.calls) == 2
    assert codes(found) == {"torn_record": 1, "no_summary": 1}


# --- profiler plugin ---------------------------------------------------------------------------


def test_profiler_plugin() -> None:
    found = read("synthetic.profiler-plugin.txt")
    reduce, send, gather = found.calls
    assert int(str(reduce.collective.group), 16) == 17093776592125785438  # above 2^63
    assert (reduce.collective.in_count, reduce.collective.datatype) == (32768, Datatype.FLOAT32)
    assert (reduce.start_ns, reduce.end_ns) == (1_002_250, 1_102_500)
    assert (reduce.collective.algorithm, reduce.collective.protocol) == ("RING", "LL")
    assert (send.start_ns, send.end_ns) == (None, 1_200_000)  # ts 0.000000 is no time
    assert (send.collective.peer, send.collective.datatype) == (3, Datatype.BFLOAT16)
    assert (gather.start_ns, gather.end_ns) == (1_300_000, None)  # the process died
    assert codes(found) == {}


# --- RCCL recorder -----------------------------------------------------------------------------


def test_rccl_text() -> None:
    found = read("replay.4711.node-1.json")
    assert (found.pid, found.host, found.coverage) == (4711, "node-1", "whole")
    reduce, gather, send, receive, uneven, split, captured = found.calls
    # uniqueID 17168916771200794912 is INIT's commId
    assert reduce.collective.group == f"0x{17168916771200794912:x}"
    assert (reduce.collective.redop, reduce.in_place, reduce.seq) == ("Sum", True, 1)
    assert reduce.start_ns == pytest.approx(1745623615678_207520, abs=300)  # a double of ms
    # rank 1 of 4: sendbuff = recvbuff + 1 × 1024 × 4 bytes
    assert (gather.in_place, gather.collective.out_count) == (True, 4096)
    assert (send.collective.op, send.collective.peer, send.seq) == (Op.SEND, 2, None)
    assert (receive.collective.peer, receive.collective.out_count) == (0, 256)
    assert uneven.collective.in_split == (1, 2, 3, 4)
    assert uneven.collective.out_split == (5, 6, 7, 8)
    assert (uneven.collective.in_count, uneven.collective.out_count) == (10, 26)
    # printed color -2147418096 is the lower half of 0x7f2080010010, printed key 1 the colour
    assert split.collective.group == f"{reduce.collective.group}/1.1"
    assert (split.collective.redop, split.collective.root) == ("Max", 1)
    assert (captured.state, captured.seq) == ("captured", None)
    assert codes(found) == {}


@pytest.mark.parametrize("acc", [False, True])
def test_rccl_binary(acc: bool) -> None:
    data = recording(acc=acc)
    assert len(record("Send", acc=acc)) == (160 if acc else 152)
    found = read("replay.4711.node-1", data)
    assert (found.pid, found.host, codes(found)) == (4711, "node-1", {})
    reduce, send, receive, uneven, split = found.calls
    assert reduce.collective.group == "0xee443ed6adab8120"
    assert (reduce.collective.op, reduce.in_place, reduce.seq) == (Op.ALL_REDUCE, True, 1)
    assert reduce.start_ns == 1_745_623_615_676_250_000
    assert (send.collective.peer, receive.collective.peer) == (2, 0)
    assert uneven.collective.in_split == (1, 2, 3, 4)
    assert uneven.collective.out_split == (5, 6, 7, 8)
    assert split.collective.group == "0xee443ed6adab8120/1.1"
    assert split.in_place is True  # rank 1: recvbuff = sendbuff + 1 × 10 × 8 bytes
    assert (split.collective.in_count, split.collective.out_count) == (20, 10)
    assert split.collective.redop == "Max"


@pytest.mark.parametrize("acc", [False, True])
@pytest.mark.parametrize("name", [n for n in TYPES if n[0] in "ABRS" and n != "AllToAllv"])
def test_rccl_binary_operations(name: str, acc: bool) -> None:
    if name == "AllReduceWithBias" and not acc:
        pytest.skip("came with acc")
    common = {"comm": 1, "nranks": 2, "rank": 0, "root": 0, "count": 8, "datatype": 7}
    data = [record(name, acc=acc, time=TIME_MS + k, **common) for k in range(3)]
    # One record alone makes sense in one layout only when it is of that size.
    found = read("x", b"".join(data))
    expected = "AllReduce" if name == "AllReduceWithBias" else name
    assert [call.collective.op.value for call in found.calls] == [expected] * 3


def test_rccl_binary_damage_loses_only_itself() -> None:
    common = {"comm": 1, "nranks": 2, "rank": 0, "count": 8, "datatype": 7}
    records = [record("AllReduce", time=TIME_MS + k, **common) for k in range(5)]
    data = b"".join(records[:3]) + b"\xff" * 77 + b"".join(records[3:])
    found = read("x.4711.h", data)
    assert len(found.calls) == 5
    assert codes(found) == {"torn_record": 1}


def test_ranks_of_one_process_are_numbered_each() -> None:
    first = {"comm": 0x10, "nranks": 2, "rank": 0, "comm_id": 0xAB}
    second = {"comm": 0x20, "nranks": 2, "rank": 1, "comm_id": 0xAB}
    data = b"".join(
        [record("CommInitDev", **first), record("CommInitDev", **second)]
        + [
            record("AllReduce", **rank, time=TIME_MS + k, count=4, datatype=7)
            for k in range(2)
            for rank in (first, second)
        ]
    )
    calls = read("x.4711.h", data).calls
    assert [(c.collective.group, c.group_rank, c.seq) for c in calls] == [
        ("0xab", 0, 1), ("0xab", 1, 1), ("0xab", 0, 2), ("0xab", 1, 2),
    ]  # fmt: skip


# --- any content -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(DATA))
def test_cut_at_any_byte(name: str) -> None:
    reader = reader_of(DATA[name])
    assert reader is not None
    module = import_module(f"collscope.parsers.recorders.{reader.name}")
    whole = [c.collective for c in module.parse(DATA[name], name).calls]
    for end in range(0, len(DATA[name]), 3 if len(DATA[name]) < 4000 else 29):
        calls = [c.collective for c in module.parse(DATA[name][:end], name).calls]
        assert [c.op for c in calls] == [c.op for c in whole[: len(calls)]]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_wrong_types_in_any_field(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["ddp.fr.rank0.json", "synthetic.inspector-v4.3.log"]))
    records = [json.loads(line) for line in DATA[name].splitlines()]
    for value in records:
        _spoil(value, data)
    text = "\n".join(json.dumps(value) for value in records).encode()
    for dialect in ("flight_recorder", "inspector", "profiler_plugin"):
        module = __import__(f"collscope.parsers.recorders.{dialect}", fromlist=["parse"])
        module.parse(text, name)
    flight_pickle.parse(pickle.dumps(records[0], 4), name)


def _spoil(value: object, data: st.DataObject) -> None:
    """Replace one field somewhere in a record by something else."""
    while isinstance(value, dict | list) and value:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = data.draw(st.sampled_from(keys))
        inner = value[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.integers(0, 3)) == 0:
            value[key] = data.draw(JSON)
            return
        value = inner


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(DATA)), st.randoms(use_true_random=False))
def test_damaged_bytes(name: str, random: object) -> None:
    from fuzz_recorders import damaged, parse_all

    parse_all(damaged(DATA[name], random), name)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("nccl2:all_reduce", Op.ALL_REDUCE),
        ("nccl2:allreduce_coalesced", Op.ALL_REDUCE),
        ("ncclx:reduce_scatter_single", Op.REDUCE_SCATTER),
        ("gloo:all_reduce", Op.UNKNOWN),
    ],
)
def test_names_of_this_years_backends(name: str, op: Op) -> None:
    assert parse_collective(name) is op
