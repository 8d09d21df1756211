"""The traces and recordings of a run joined to the calls of its logs (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from collscope.match.joining import Joined, join_extra, put_in_order
from collscope.match.observations import TuningSetting
from collscope.match.recordings import RecordedGroup, recorded_groups
from collscope.match.rows import Rows
from collscope.match.run import Matched
from collscope.match.trace_calls import GroupCalls, traced_groups
from collscope.match.traces import Calls
from collscope.model import Diagnostic, Severity
from collscope.model.trace import Ints, RecordedCall, RecordedCalls

_NO_SETTING = TuningSetting(None, None, None, None)
_AGAIN_TEXT = "recorded calls that another file also holds, equal in every field: counted once"


class JoinedExtras(NamedTuple):
    """Where the calls of traces and recordings went: indices in the matched run; -1: left out."""

    traced: Ints  # per call of the traces
    recorded: tuple[tuple[RecordedGroup, Ints], ...]  # per group, and per call of it


def join_extras(
    matched: Matched,
    recordings: Sequence[RecordedCalls],
    rows: Rows,
    calls: Calls,
    arrival: Ints,
) -> JoinedExtras:
    """Join recordings, then traces, to `matched`, which gets what it lacks.

    arrival  per call of the traces ns on a clock that all have in common
    """
    alone = not matched.comms
    recorded = recorded_groups(recordings)
    traced = traced_groups(rows, calls, arrival)
    first = join_extra(matched, [g.group for g in recorded], "recordings")
    second = join_extra(matched, [g.group for g in traced], "traces")
    if alone:
        _order(matched, recorded, traced, (first, second))
    index = np.full(len(calls), -1, dtype=np.int64)
    for group, found in zip(traced, second.call, strict=True):
        index[group.index] = found
    for group, found in zip(recorded, first.call, strict=True):
        _learn_settings(matched, group, found)
    return JoinedExtras(index, tuple(zip(recorded, first.call, strict=True)))


def _learn_settings(matched: Matched, group: RecordedGroup, found: Ints) -> None:
    """Algorithm, protocol and channels of recorded calls, where no log has them.

    found  per call of the group its index in the matched run; -1: left out
    """
    settings = {setting: k for k, setting in enumerate(matched.settings)}
    column = matched.calls["setting"]
    for parts, call in zip(group.parts, found.tolist(), strict=True):
        what = {_setting(part.call) for part in parts}
        if call >= 0 and column[call] < 0 and len(what) == 1 and what != {_NO_SETTING}:
            column[call] = settings.setdefault(what.pop(), len(settings))
    matched.settings = list(settings)


def _setting(call: RecordedCall) -> TuningSetting:
    what = call.collective
    return TuningSetting(what.algorithm, what.protocol, call.channels, None)


def first_of_rank(
    recordings: Mapping[int, RecordedCalls],
) -> tuple[dict[int, RecordedCalls], list[Diagnostic]]:
    """Recordings without a second one of a rank by the same recorder, whatever its form.

    Of files without a rank, which may be several of a process, calls that are there again are
    left out.

    recordings  by their places; what is returned keeps these
    """
    first: dict[tuple[str, object], int] = {}
    for k, recorded in recordings.items():
        # flight_pickle and flight_recorder, rccl_recorder_text and rccl_recorder_binary
        recorder = recorded.dialect.split("_")[0]
        rank = ("unknown", k) if recorded.rank is None else recorded.rank
        first.setdefault((recorder, rank), k)
    twice = len(recordings) - len(first)
    text = "recordings of ranks that already have one: left out"
    notes = [Diagnostic(Severity.NOTICE, "rank_recorded_twice", text, count=twice)]
    kept, repeats = _calls_once({k: recordings[k] for k in first.values()})
    notes.append(Diagnostic(Severity.NOTICE, "counted_once", _AGAIN_TEXT, count=repeats))
    return kept, [note for note in notes if note.count]


def _calls_once(recordings: dict[int, RecordedCalls]) -> tuple[dict[int, RecordedCalls], int]:
    """Recordings without calls that another one holds, equal in every field; how many those are.

    A communicator's hash, the rank in it and the call's number or time are of one call.
    """
    alone = [k for k, recorded in recordings.items() if recorded.rank is None]
    if len(alone) < 2:
        return recordings, 0
    kept = dict(recordings)
    seen: set[tuple[str, RecordedCall]] = set()
    repeats = 0
    for k in alone:
        recorder = recordings[k].dialect.split("_")[0]
        here = [(recorder, call) for call in recordings[k].calls]
        left = tuple(key[1] for key in here if key not in seen or not _distinguished(key[1]))
        repeats += len(here) - len(left)
        seen.update(here)
        if len(left) < len(here):
            kept[k] = replace(recordings[k], calls=left)
    return {k: recorded for k, recorded in kept.items() if recorded.calls}, repeats


def _distinguished(call: RecordedCall) -> bool:
    """Whether nothing else is equal to a call: its number, or of a transfer its time."""
    half = call.collective.op.point_to_point
    return (call.start_ns if half else call.seq) is not None


def _order(
    matched: Matched,
    recorded: Sequence[GroupCalls],
    traced: Sequence[GroupCalls],
    joined: tuple[Joined, Joined],
) -> None:
    """Calls in the order of the traces' time; of recordings' where there are no traces.

    The clocks of traces and of recordings differ, so that one of them must count for all.
    """
    both = Joined([*joined[0].call, *joined[1].call])
    when = [np.zeros_like(g.when) if traced else g.when for g in recorded]
    when += [g.when for g in traced]
    put_in_order(matched, both, when)
    joined[0].call[:] = both.call[: len(recorded)]
    joined[1].call[:] = both.call[len(recorded) :]
