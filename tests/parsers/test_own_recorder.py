"""Files of the own recorder; the sample is made by tests/native/recorder/make_sample.cpp."""

from __future__ import annotations

import struct
import zlib

from hypothesis import given
from hypothesis import strategies as st
from inputs import ROOT
from readers import parse_recording

from collscope.model import Datatype, Op
from collscope.model.trace import RecordedCalls
from collscope.parsers.recorders.own_recorder import cost_of, parse

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


def changed(data: bytes, place: int, form: str, value: int) -> bytes:
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
    found = parse(changed(FIRST, hip, "<I", 1), "x")
    assert [c.duration_ns for c in found.calls[4:6]] == [200_000, 250_000]


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
    assert [c.seq for c in found.calls] == [0, 1, 3, 0, 0, None]
    assert codes(found) == {
        "torn_record": size, "numbers_missing": 1, "stray_record": 1, "not_launched": 1,
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
