"""Disagreements between ranks: recordings without any, dumps of a hang, and made ones."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from readers import parse_recording

from collscope.match.consistency import CallFinding, check
from collscope.model import Datatype, Op
from collscope.model.trace import GroupStatus, RecordedCall, RecordedCalls, TraceCollective

RANKS = (0, 1, 4, 5)  # of the group, in the world


def call(place: int, seq: int | None, op: Op = Op.ALL_REDUCE, **more: object) -> RecordedCall:
    state = more.pop("state", "completed")
    collective = TraceCollective(
        op=op,
        datatype=Datatype.FLOAT32,
        in_count=100,
        out_count=100,
        group="7",
        group_ranks=RANKS,
    )
    changed = replace(collective, **more)  # type: ignore[arg-type]
    return RecordedCall(changed, seq, state=state, group_rank=place)  # type: ignore[arg-type]


def ranks(*calls: list[RecordedCall], coverage: str = "whole") -> list[RecordedCalls]:
    return [RecordedCalls("flight_recorder", tuple(c), coverage=coverage) for c in calls]


def steps(place: int, last: int, first: int = 1) -> list[RecordedCall]:
    return [call(place, seq) for seq in range(first, last + 1)]


def only(recorded: list[RecordedCalls]) -> CallFinding:
    (finding,) = check(recorded).findings
    return finding


def test_recording_without_disagreement(recordings: Path) -> None:
    files = [recordings / f"ddp/ddp.fr.rank{rank}.json" for rank in range(4)]
    found = [parse_recording([path.read_bytes()], path.name) for path in files]
    result = check([each for each in found if each is not None])
    assert result.findings == ()
    assert result.unplaced == 0
    assert [(p.rank, p.last_called, p.last_completed) for p in result.progress] == [
        (0, 116, 116), (1, 116, 116), (2, 116, 116), (3, 116, 116),
    ]  # fmt: skip


def test_a_rank_of_the_recording_that_stops(recordings: Path) -> None:
    files = [recordings / f"ddp/ddp.fr.rank{rank}.json" for rank in range(4)]
    found = [parse_recording([path.read_bytes()], path.name) for path in files]
    whole = [each for each in found if each is not None]
    whole[2] = replace(whole[2], calls=whole[2].calls[:100], status=())
    finding = only(whole)
    assert (finding.kind, finding.ranks, finding.seq, finding.count) == ("stopped", (2,), 101, 16)
    progress = {p.rank: p for p in check(whole).progress}
    assert (progress[2].last_completed, progress[2].first_missing) == (100, 101)


def test_dumps_of_a_hang(corpus: Path) -> None:
    files = [corpus / "flight-recorder" / name for name in ("_dump_0", "_dump_1")]
    found = [parse_recording([path.read_bytes()], path.name) for path in files]
    result = check([each for each in found if each is not None])
    # pg_status of pg_id 5: completed 39406 of 39416 enqueued on both ranks of the group
    tensor = [p for p in result.progress if p.group == "35"]
    assert [(p.rank, p.last_completed, p.first_open) for p in tensor] == [
        (0, 39406, 39407), (1, 39406, 39407),
    ]  # fmt: skip
    waiting = next(f for f in result.findings if f.group == "35")
    assert (waiting.kind, waiting.ranks, waiting.seq, waiting.count) == ("open", (0, 1), 39407, 10)
    # Their peers in the pipeline left no dump: nothing is said of them.
    assert ("43", (4, 8, 12)) in result.not_recorded
    assert {f.kind for f in result.findings} == {"open"}


def test_rank_that_stopped() -> None:
    finding = only(ranks(steps(0, 9), steps(1, 9), steps(2, 6), steps(3, 9)))
    assert (finding.kind, finding.ranks, finding.seq, finding.count) == ("stopped", (4,), 7, 3)
    assert "ranks 0, 1, 5 went on to 9" in finding.message


def test_call_missing_in_the_middle() -> None:
    calls = [steps(place, 9) for place in range(4)]
    del calls[1][4]
    finding = only(ranks(*calls))
    assert (finding.kind, finding.ranks, finding.seq, finding.count) == ("missing", (1,), 5, 1)


def test_what_a_ring_buffer_forgot_is_not_missing() -> None:
    result = check(ranks(steps(0, 9, 1), steps(1, 9, 5), coverage="tail"))
    assert result.findings == ()


def test_a_sample_shows_no_absence() -> None:
    result = check(ranks(steps(0, 9)[::2], steps(1, 6), coverage="sample"))
    assert result.findings == ()


def test_different_size_is_of_the_minority() -> None:
    calls = [steps(place, 9) for place in range(4)]
    for seq in (3, 4):
        calls[3][seq - 1] = call(3, seq, in_count=50)
    finding = only(ranks(*calls))
    assert (finding.kind, finding.ranks, finding.seq, finding.count) == ("different", (5,), 3, 2)
    assert "AllReduce of 50 Float32 where ranks 0, 1, 4 called AllReduce of 100" in finding.message


def test_different_operation() -> None:
    calls = [steps(place, 3) for place in range(2)]
    calls[1][1] = call(1, 2, Op.BROADCAST)
    finding = only(ranks(*calls))
    assert (finding.kind, finding.ranks, finding.seq) == ("different", (1,), 2)


def test_uneven_inputs_of_an_all_gather_are_no_difference() -> None:
    calls = [[call(p, 1, Op.ALL_GATHER, in_count=n, out_count=9)] for p, n in ((0, 4), (1, 5))]
    assert check(ranks(*calls)).findings == ()


def test_what_one_source_does_not_tell_is_no_difference() -> None:
    other = [call(1, 1, datatype=None, in_count=None, out_count=None)]
    assert check(ranks(steps(0, 1), other)).findings == ()


def test_unmatched_send() -> None:
    sends = [call(0, n, Op.SEND, peer=2) for n in range(3)]
    receives = [call(2, n, Op.RECV, peer=0) for n in range(2)]
    finding = only(ranks(sends, receives))
    assert (finding.kind, finding.ranks, finding.count) == ("unmatched", (0, 4), 1)
    assert "3 Send and 2 Recv" in finding.message


def test_transfers_to_a_rank_without_recording_are_left_alone() -> None:
    assert check(ranks([call(0, 1, Op.SEND, peer=2)])).findings == ()


def test_transfer_of_different_size() -> None:
    sends = [call(0, n, Op.SEND, peer=1) for n in range(2)]
    receives = [call(1, 0, Op.RECV, peer=0), call(1, 1, Op.RECV, peer=0, out_count=99)]
    finding = only(ranks(sends, receives))
    assert (finding.kind, finding.ranks) == ("different_size", (0, 1))
    assert "transfer 2 sends 100 Float32 and receives 99 Float32" in finding.message


def test_done_transfers_that_a_ring_buffer_forgot() -> None:
    sends = [call(0, n, Op.SEND, peer=1) for n in range(5)]
    waiting = [*sends, call(0, 9, Op.SEND, peer=1, state="started")]
    receives = [call(1, 4, Op.RECV, peer=0)]
    assert check(ranks(sends, receives, coverage="tail")).findings == ()
    finding = only(ranks(waiting, receives, coverage="tail"))
    assert (finding.kind, finding.count) == ("unmatched", 1)


def test_counters_tell_of_calls_that_the_dump_lost() -> None:
    status = (GroupStatus("7", last_enqueued=30, last_completed=29),)
    kept = RecordedCalls(
        "flight_recorder",
        (call(0, None, Op.UNKNOWN),),
        status=status,
        coverage="tail",
    )
    progress = check([kept]).progress[0]
    assert (progress.last_called, progress.last_completed) == (30, 29)


def test_operations_counted_by_themselves_do_not_meet() -> None:
    calls = [[call(place, 0), call(place, 0, Op.BROADCAST), call(place, 1)] for place in (0, 1)]
    recorded = [
        RecordedCalls("inspector", tuple(c), seq_per_op=True, coverage="sample") for c in calls
    ]
    assert check(recorded).findings == ()
    calls[1][2] = call(1, 1, in_count=7)
    recorded[1] = replace(recorded[1], calls=tuple(calls[1]))
    assert only(recorded).kind == "different"


def test_captured_calls_are_not_counted() -> None:
    extra = [call(0, None, state="captured"), *steps(0, 2)]
    assert check(ranks(extra, steps(1, 2))).findings == ()


def test_calls_without_a_place_are_counted() -> None:
    lost = replace(call(0, 1), group_rank=None)
    assert check(ranks([lost])).unplaced == 1


def test_group_ranks_where_world_ranks_are_not_known() -> None:
    calls = [[replace(c, collective=replace(c.collective, group_ranks=None)) for c in steps(p, n)]
             for p, n in ((0, 3), (1, 2))]  # fmt: skip
    finding = only(ranks(*calls))
    assert (finding.ranks, finding.world_ranks) == ((1,), False)
    assert "group rank 1 stopped" in finding.message


@settings(deadline=None)
@given(st.permutations(range(4)), st.integers(1, 8), st.integers(0, 3))
def test_order_of_files_does_not_matter(order: list[int], last: int, slow: int) -> None:
    files = ranks(*[steps(place, last if place == slow else 9) for place in range(4)])
    expected = check(files)
    assert check([files[index] for index in order]) == expected
    assert [f.ranks for f in expected.findings] == [(RANKS[slow],)]
