"""Gaps and repetitions in a recorder's own numbers: records that the file lacks, or holds twice.

A recorder numbers its records one by one. The first number may be any: a ring buffer forgets its
oldest records, and a profiler may begin late. A number that lacks between two others is a record
that was made and is not in the file.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from collscope.model import Severity
from collscope.parsers._gaps import count_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from collscope.model.trace import RecordedCall
    from collscope.parsers._notes import Notes

_T = TypeVar("_T")

_MISSING_TEXT = (
    "The recorder's own numbering shows at least this many calls that are not in the file: they "
    "were lost, or the recorder left them out."
)
_OPEN_TEXT = "The process did not close the file: later calls may be missing."
_MOST = 2**62  # a number that a damaged file gives; the sums of a run stay whole numbers of SQLite
_TWICE_TEXT = "Records that appear twice in the file, equal in every field, were counted once."


def lacking_calls(calls: Iterable[RecordedCall], *, first: int | None = None) -> int:
    """Calls whose numbers lack, where a rank's communicator counts each operation by itself.

    first   as `count_missing` takes it
    source  ncclComm.seqNumber has one counter per function (comm.h since NCCL 2.23)
    """
    numbers: dict[Hashable, list[int]] = defaultdict(list)
    for call in calls:
        what = call.collective
        if call.seq is not None and not what.op.point_to_point:
            numbers[what.group, call.group_rank, what.op].append(call.seq)
    return sum(count_missing(own, first=first) for own in numbers.values())


def call_once(call: RecordedCall) -> Hashable | None:
    """Key for `once` of a call: numbered ones that are equal in every field are one.

    What numbers a Send or Recv differs between recorders: their times, where known, distinguish
    them.
    """
    number_of_call = call.seq
    if call.collective.op.point_to_point and call.start_ns is not None:
        number_of_call = call.start_ns
    return None if number_of_call is None else call


def note_open(notes: Notes, line: int) -> None:
    """Note a file whose writer ends it, and that is not ended."""
    notes.add(Severity.NOTICE, "no_end", _OPEN_TEXT, line)


def note_missing(notes: Notes, missing: int) -> None:
    """Count calls that a recorder numbered and the file lacks."""
    notes.add(Severity.DATA_LOSS, "numbers_missing", _MISSING_TEXT, 1, count=min(missing, _MOST))


def once(records: Sequence[_T], key: Callable[[_T], Hashable | None], notes: Notes) -> list[_T]:
    """Records without those that are repeated, which are counted.

    key  equal for records that cannot be two; None for one that cannot be distinguished from others
    """
    keys = [key(record) for record in records]
    if len(set(keys)) == len(keys):
        return list(records)
    seen: set[Hashable] = set()
    kept = []
    for record, known in zip(records, keys, strict=True):
        if known is not None and known in seen:
            continue
        seen.add(known)
        kept.append(record)
    note_again(notes, len(records) - len(kept))
    return kept


def note_again(notes: Notes, repeats: int = 1, line: int = 1) -> None:
    """Count records that are in the file already, and were left out."""
    notes.add(Severity.NOTICE, "counted_once", _TWICE_TEXT, line, count=repeats)
