"""Files of the own recorder; the sample is made by tests/native/recorder/make_sample.cpp."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import ROOT
from readers import parse_recording

from collscope.model import Datatype, Op
from collscope.model.trace import RecordedCalls
from collscope.parsers.recorders.own_recorder import GrowingRecording, cost_of, parse

FOLDER = ROOT / "samples/recorders"
FIRST, SECOND = (path.read_bytes() for path in sorted(FOLDER.glob("*.collrec")))
BEGIN = 8  # of the first record


def codes(found: RecordedCalls) -> dict[str, int]:
    return {d.code: d.count for d in found.diagnostics}


def places(data: bytes) -> list[tuple[int, int, int]]:
    """Place, size and kind of each record."""
    found, place = [], BEGIN
    while place < len(data):
        size, kind = struct.unpack_from("<HB", data, place + 4)
        found.append((place, size, kind))
        place += size
    return found


def end_of(data: bytes) -> int:
    """Place of the record that ends a whole file."""
    return next(place for place, _, kind in places(data) if kind == 12)


def changed(data: bytes, place: int, form: str, value: int | bytes) -> bytes:
    """A file with another value in a record, whose check is right again."""
    start, size, _ = next(r for r in places(data) if r[0] <= place < r[0] + r[1])
    out = bytearray(data)
    struct.pack_into(form, out, place, value)
    struct.pack_into("<I", out, start, zlib.crc32(out[start + 4 : start + size]))
    return bytes(out)


def test_the_sample_is_what_its_program_plays() -> None:
    for data, rank in ((FIRST, 0), (SECOND, 1)):
        found = parse_recording([data], "x.collrec")
        assert found is not None
        assert (found.rank, found.world_size, found.host) == (rank, 2, "node-1")
        assert (found.coverage, found.diagnostics) == ("whole", ())
        ops = [call.collective.op for call in found.calls]
        last = Op.RECV if rank else Op.SEND
        assert ops == [*[Op.ALL_REDUCE] * 4, Op.ALL_GATHER, Op.REDUCE_SCATTER, last]
        first = found.calls[0].collective
        assert (first.group, first.group_size) == ("0xfeedfacecafebeef", 2)
        assert (first.in_count, first.datatype) == (1_048_576, Datatype.FLOAT32)
        assert (first.algorithm, first.protocol) == ("RING", "LL128")
        assert [call.seq for call in found.calls] == [0, 1, 2, 3, 0, 0, None]
        # Channel c of whole_call begins and ends c ns later; rank 1 begins 1000 × k ns later.
        lasted = [100_001 - 1000 * k * rank for k in range(4)]
        assert [c.duration_ns for c in found.calls] == [*lasted, 20_000, 25_000, None]
        assert found.calls[5].collective.out_count == 4096
        assert found.calls[6].collective.peer == 1 - rank
        assert found.calls[0].in_place is True


def test_ticks_of_amd_are_of_10_ns() -> None:
    hip = BEGIN + 16 + 44  # the last field of the first record's body
    data = changed(FIRST, hip, "<I", 1)
    for place, _, kind in places(FIRST):
        for stamp in (place + 24, place + 32) if kind == 7 else ():
            data = changed(data, stamp, "<Q", struct.unpack_from("<Q", data, stamp)[0] // 10)
    assert [c.duration_ns for c in parse(data, "x").calls[4:6]] == [20_000, 25_000]


def test_stamps_of_other_kernels_are_no_times() -> None:
    """NCCL 2.30 on H200: one channel's stamps were those of a kernel before."""
    spans = [place for place, _, kind in places(FIRST) if kind == 7]

    def with_stamps_of(later: int, earlier: int) -> RecordedCalls:
        data = FIRST
        for stamp in (24, 32):
            (value,) = struct.unpack_from("<Q", FIRST, spans[earlier] + stamp)
            data = changed(data, spans[later] + stamp, "<Q", value)
        return parse(data, "x")

    times = [100_001] * 4 + [20_000, 25_000, None]
    assert [c.duration_ns for c in parse(FIRST, "x").calls] == times
    # Two channels each of four AllReduces, then AllGather and ReduceScatter with one each.
    one_channel = with_stamps_of(later=5, earlier=3)
    a_call_of_one_channel = with_stamps_of(later=9, earlier=8)
    for found in (one_channel, a_call_of_one_channel):
        assert {c.duration_ns for c in found.calls} == {None}
        assert codes(found) == {"foreign_stamps": 6}


@pytest.mark.parametrize(("width", "datatype"), [(1, "Uint8"), (4, None)])
def test_a_type_without_a_name_contradicts_nothing(width: int, datatype: str | None) -> None:
    """NCCL's name of ncclUint8 is "Unknown", and it counts an AllGather in bytes."""
    api = next(place for place, _, kind in places(FIRST) if kind == 5)
    call = next(place for place, _, kind in places(FIRST) if kind == 6)
    (count,) = struct.unpack_from("<Q", FIRST, call + 48)  # of four bytes each
    unnamed = FIRST[call + 86]  # the algorithm's number as that of the type
    data = changed(changed(FIRST, api + 69, "<B", unnamed), api + 40, "<Q", count * 4 // width)
    first, before = parse(data, "x"), parse(FIRST, "x").calls[0]
    assert codes(first) == {}
    assert str(first.calls[0].collective.datatype or None) == str(datatype)
    assert first.calls[0].collective.in_count == count * 4 // width
    assert before.collective.in_count == count


def test_stamps_behind_calls_without_kernel_events_are_no_times_from_2_31_on() -> None:
    # The library's version in the first record, and its level: a text behind the host's (format.h).
    level = FIRST.index(b"all\0", BEGIN)
    later = changed(FIRST, BEGIN + 16 + 36, "<I", 23203)
    kept = [c.duration_ns for c in parse(FIRST, "x").calls]
    assert [c.duration_ns for c in parse(later, "x").calls] == kept  # kernel events of all calls
    for data, is_right in ((FIRST, True), (later, False)):
        without_events = changed(data, level, "<4s", b"off\0")
        assert ([c.duration_ns for c in parse(without_events, "x").calls] == kept) == is_right
        (switch,) = [place for place, _, kind in places(data) if kind == 11]
        switched_off = changed(data, switch + 7, "<B", 0)
        assert ([c.duration_ns for c in parse(switched_off, "x").calls] == kept) == is_right
    assert codes(parse(switched_off, "x")) == {"foreign_stamps": 6}


def test_a_kernel_that_began_before_its_call_is_another() -> None:
    """All channels are behind alike: only the host's clock shows it."""
    data = FIRST
    spans = [place for place, _, kind in places(FIRST) if kind == 7]
    for number in (9, 8):
        for stamp in (24, 32):
            (value,) = struct.unpack_from("<Q", FIRST, spans[number - 1] + stamp)
            data = changed(data, spans[number] + stamp, "<Q", value)
    # Before: 3.1 ms (second channel of the last AllReduce) and 4 ms after the first.
    assert codes(parse(data, "x")) == {"foreign_stamps": 6}


def test_an_event_that_comes_late_makes_no_stamp_foreign() -> None:
    """NCCL 2.28 on two H100: the host paused for 3 ms between a launch and the event that tells of
    it. The application had called before the kernel began."""
    data = FIRST
    for place, _, kind in places(FIRST):
        if kind == 6:
            (event_ns,) = struct.unpack_from("<Q", FIRST, place + 32)
            data = changed(data, place + 32, "<Q", event_ns + 3_000_000)
    found = parse(data, "x")
    assert codes(found) == {}
    assert [c.duration_ns for c in found.calls] == [100_001] * 4 + [20_000, 25_000, None]


def test_a_kernel_without_its_end_is_not_timed_and_is_open_in_a_file_without_end() -> None:
    kernel = next(place for place, _, kind in places(FIRST) if kind == 7)
    open_ = changed(FIRST, kernel + 16 + 16, "<Q", 0)
    first = parse(open_, "x").calls[0]
    assert (first.duration_ns, first.state) == (None, None)
    cut = open_[: end_of(open_)]
    assert parse(cut, "x").calls[0].state == "started"
    assert codes(parse(cut, "x")) == {"no_end": 1}


def test_a_channel_that_lacks_leaves_the_time_unknown_and_is_counted() -> None:
    place, size, _ = next(record for record in places(FIRST) if record[2] == 7)
    found = parse(FIRST[:place] + FIRST[place + size :], "x")
    assert found.calls[0].duration_ns is None
    assert found.calls[1].duration_ns == 100_001
    assert codes(found) == {"numbers_missing": 1}
    assert found.coverage == "sample"


def test_damage_costs_the_records_that_it_touches() -> None:
    calls = [record for record in places(FIRST) if record[2] == 6]
    place, size, _ = calls[2]
    found = parse(FIRST[: place + 40] + b"\xff" + FIRST[place + 41 :], "x")
    # The application's own record of the call is whole.
    assert [c.seq for c in found.calls] == [0, 1, None, 3, 0, 0, None]
    assert (found.calls[2].collective.in_count, found.calls[2].duration_ns) == (1_048_576, None)
    assert codes(found) == {
        "torn_record": size, "numbers_missing": 1, "stray_record": 1, "no_profiler_event": 1,
    }  # fmt: skip
    # Bytes that came in: the records behind them are found at any place.
    found = parse(FIRST[:place] + b"abc" + FIRST[place:], "x")
    assert (len(found.calls), codes(found)) == (7, {"torn_record": 3})


@given(st.integers(min_value=0, max_value=len(FIRST)))
def test_a_cut_loses_no_earlier_call_and_no_byte_in_silence(cut: int) -> None:
    found = parse(FIRST[:cut], "x")
    whole = [r for r in places(FIRST) if r[0] + r[1] <= cut]
    assert len(found.calls) == sum(kind == 6 for _, _, kind in whole)
    torn = cut - (whole[-1][0] + whole[-1][1] if whole else BEGIN)
    assert codes(found).get("torn_record", 0) == max(torn, 0)
    assert ("no_end" in codes(found)) == all(kind != 12 for _, _, kind in whole)


@given(st.binary(max_size=300), st.integers(min_value=8, max_value=len(FIRST)))
def test_damaged_files_never_raise(noise: bytes, place: int) -> None:
    data = FIRST[:place] + noise + FIRST[place + len(noise) :]
    parse(data, "x")
    cost_of(data)


def without(data: bytes, kind: int, number: int) -> bytes:
    """A file whose n-th record of a kind was never written, with its spans."""
    place, _, _ = [record for record in places(data) if record[2] == kind][number]
    (id_,) = struct.unpack_from("<Q", data, place + 16)
    gone = [
        (start, length)
        for start, length, kind in places(data)
        if start == place or (kind == 7 and struct.unpack_from("<Q", data, start + 16) == (id_,))
    ]
    out = bytearray(data[:BEGIN])
    for ordinal, (start, length, _) in enumerate(r for r in places(data) if r[:2] not in gone):
        record = bytearray(data[start : start + length])
        struct.pack_into("<I", record, 8, ordinal)
        struct.pack_into("<I", record, 0, zlib.crc32(record[4:]))
        out += record
    return bytes(out)


def test_a_call_without_an_event_of_the_library_counts() -> None:
    """As Broadcast of NCCL 2.30: its place among the others is that of the application's call."""
    broadcast = next(place for place, _, kind in places(FIRST) if kind == 5)
    name = next(
        number
        for place, _, kind in places(FIRST)
        if kind == 2 and FIRST[place + 16 :].startswith(b"AllReduce\0")
        for number in [FIRST[place + 7]]
    )
    assert FIRST[broadcast + 16 + 52] == name
    found = parse(without(FIRST, 6, 0), "x")
    assert [c.collective.op for c in found.calls] == [
        c.collective.op for c in parse(FIRST, "x").calls
    ]
    first = found.calls[0]
    assert (first.collective.in_count, first.duration_ns, first.seq) == (1_048_576, None, None)
    assert first.start_ns is not None
    assert codes(found) == {"no_profiler_event": 1}


def test_the_last_call_of_a_killed_process_may_not_have_been_launched() -> None:
    whole = without(FIRST, 6, 5)
    assert (len(parse(whole, "x").calls), codes(parse(whole, "x"))) == (7, {"no_profiler_event": 1})
    killed = whole[: end_of(whole)]
    assert len(parse(killed, "x").calls) == 6
    assert codes(parse(killed, "x")) == {"not_launched": 1, "no_end": 1}


def test_in_place_of_parts_is_by_the_rank() -> None:
    gather, scatter = [record[0] for record in places(SECOND) if record[2] == 6][4:6]
    part = 4096 * 4
    for place, send, recv, expected in (
        (gather, 0x1000 + part, 0x1000, True),
        (gather, 0x1000, 0x1000, False),
        (scatter, 0x1000, 0x1000 + part, True),
        (scatter, 0x1000, 0x1000, False),
        (scatter, 0x1000, 0, None),
    ):
        data = changed(changed(SECOND, place + 16 + 40, "<Q", send), place + 16 + 48, "<Q", recv)
        number = 4 if place == gather else 5
        assert parse(data, "x").calls[number].in_place is expected


def test_another_version_is_refused_in_words() -> None:
    found = parse(FIRST[:7] + b"\x02" + FIRST[8:], "x")
    assert (found.calls, codes(found)) == ((), {"unknown_version": 1})


def test_what_the_recorder_dropped_is_counted() -> None:
    cost = [place for place, _, kind in places(FIRST) if kind == 10][-1]
    found = parse(changed(FIRST, cost + 16 + 40, "<Q", 17), "x")
    assert codes(found) == {"recorder_dropped": 17}


def test_cost_is_of_the_process() -> None:
    found = cost_of(FIRST)
    assert found is not None
    # 7 calls, 6 calls of the application, 10 starts and 10 ends of channels, the communicator's end
    assert found.callbacks == 34
    assert found.callback_ns > 0
    assert found.lost == 0


@given(st.lists(st.integers(min_value=0, max_value=len(FIRST)), max_size=20))
def test_a_file_that_grows_gives_what_the_whole_file_has(cuts: list[int]) -> None:
    recording = GrowingRecording()
    recording.begin_file()
    places_ = [0, *sorted(cuts), len(FIRST)]
    parts = [recording.feed(FIRST[a:b]) for a, b in pairwise(places_)]
    whole = parse(FIRST, "x").calls
    launched = [call.collective for part in parts for call in part.launched]
    assert launched == [call.collective for call in whole]
    timed = [(call.seq, call.duration_ns) for part in parts for call in part.timed]
    assert timed == [(call.seq, call.duration_ns) for call in whole if call.duration_ns]
    known = recording.process()
    assert (known.rank, known.world_size, known.host, known.level) == (0, 2, "node-1", "all")
    assert (known.ended, known.lost, known.from_start, known.interface) == (True, 0, True, 5)


def test_damage_in_a_file_that_grows_costs_the_records_that_it_touches() -> None:
    place, _, _ = [record for record in places(FIRST) if record[2] == 6][2]
    data = FIRST[: place + 40] + b"\xff" + FIRST[place + 41 :]
    recording = GrowingRecording()
    recording.begin_file()
    parts = [recording.feed(data[k : k + 100]) for k in range(0, len(data), 100)]
    seqs = [call.seq for part in parts for call in part.launched]
    assert sorted(map(str, seqs)) == sorted(map(str, [0, 1, None, 3, 0, 0, None]))
    assert recording.process().lost == 1


@given(st.binary(max_size=300), st.integers(min_value=0, max_value=len(FIRST)))
def test_damage_in_a_file_that_grows_never_raises(noise: bytes, place: int) -> None:
    recording = GrowingRecording()
    recording.begin_file()
    for part in (FIRST[:place], noise, FIRST[place + len(noise) :]):
        recording.feed(part)
    recording.process()


def test_a_call_that_was_passed_over_counts_once_a_later_group_was_launched() -> None:
    recording = GrowingRecording()
    recording.begin_file()
    data = without(FIRST, 6, 1)
    second = [record[0] for record in places(data) if record[2] == 5][1]
    third = [record[0] for record in places(data) if record[2] == 6][1]
    before = recording.feed(data[:third])
    assert (second < third, len(before.launched)) == (True, 1)
    assert len(recording.feed(data[third:]).launched) == 6


def test_stamps_of_other_kernels_are_no_times_while_a_file_grows() -> None:
    spans = [place for place, _, kind in places(FIRST) if kind == 7]
    data = FIRST
    for stamp in (24, 32):
        (value,) = struct.unpack_from("<Q", FIRST, spans[3] + stamp)
        data = changed(data, spans[5] + stamp, "<Q", value)
    recording = GrowingRecording()
    recording.begin_file()
    for place in range(0, len(data), 500):
        recording.feed(data[place : place + 500])
    assert recording.process().unsound == {"0xfeedfacecafebeef"}


def test_launches_of_a_graph_are_made_when_they_are_launched() -> None:
    """A graph on two H100 was captured once and launched for two seconds: those of its calls are
    not all of the moment of the capture."""
    data = FIRST
    for place, _, kind in places(FIRST):
        if kind == 5:
            data = changed(data, place + 7, "<B", 2)  # captured
        if kind == 6:
            (event_ns,) = struct.unpack_from("<Q", FIRST, place + 32)
            data = changed(data, place + 32, "<Q", event_ns + 5_000_000)
    before, after = (
        [call.start_ns for call in parse(one, "x").calls if call.start_ns] for one in (FIRST, data)
    )
    moved = [b - a for a, b in zip(before, after, strict=True)]
    assert min(moved) >= 4_900_000
    assert max(moved) <= 5_100_000
