"""Stage 1: rows of all ranks, placed on the common clock and on their streams (pure)."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.match.rows import UNKNOWN_LAUNCH, Rows
from collscope.match.traces import Calls
from collscope.model.trace import Ints
from collscope.timeline.clocks import Clocks
from collscope.timeline.graph import EVER, NONE


class PlacedRows(msgspec.Struct, frozen=True, dict=True):
    """All rows, when each ran, and what ran before it on its stream. Times are ns, common clock."""

    rows: Rows
    start: Ints  # (rows,)
    end: Ints  # (rows,)
    launch: Ints  # (rows,) `EVER` where not known
    previous: Ints  # (rows,) row before each on its stream; `NONE` for the first
    communicator: Ints  # (rows,) number of that of a collective in a call; else `NONE`
    clock_shift: Ints  # (traces,) ns from the base of the rows to that of the common clock

    @cached_property
    def by_end(self) -> tuple[tuple[Ints, Ints], ...]:
        """Rows of each trace in the order of their ends, and these."""
        bounds = self.rows.bounds
        orders = [
            first + np.argsort(self.end[first:behind], kind="stable")
            for first, behind in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]
        return tuple((order, self.end[order]) for order in orders)

    def last_ended(self, trace: int, moment: int, since: int) -> list[int]:
        """The row of a trace that ended last in (`since`, `moment`]; empty where none did."""
        order, ends = self.by_end[trace]
        place = int(np.searchsorted(ends, moment, side="right")) - 1
        return [] if place < 0 or ends[place] <= since else [int(order[place])]


def place_rows(rows: Rows, calls: Calls, clocks: Clocks) -> PlacedRows:
    """Rows on the common clock; the order of each stream is that of their starts."""
    traces = np.arange(len(rows.ranks), dtype=np.int32)
    known = rows.launch != UNKNOWN_LAUNCH
    communicator = np.full(len(rows), NONE)
    communicator[calls.row] = _communicators(calls)[calls.group][calls.call_of_part]
    return PlacedRows(
        rows=rows,
        start=clocks.align(rows.start, rows.trace),
        end=clocks.align(rows.end, rows.trace),
        launch=np.where(known, clocks.align(rows.launch, rows.trace), EVER),
        previous=_previous_on_stream(rows.stream),
        communicator=communicator,
        clock_shift=clocks.align(np.zeros(len(traces), dtype=np.int64), traces),
    )


def _previous_on_stream(stream: npt.NDArray[np.int32]) -> Ints:
    order = np.argsort(stream, kind="stable")
    previous = np.full(len(stream), NONE, dtype=np.int64)
    same = stream[order][1:] == stream[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _communicators(calls: Calls) -> Ints:
    """Group whose communicator each group uses: its own, or one that may be the same.

    Sends and Recvs that were paired by the clock name no group: theirs may be the communicator
    of the collectives of the same ranks, as in an all-to-all.
    """
    found = np.arange(len(calls.groups))
    exchanging = set(np.unique(calls.group[calls.p2p]).tolist())
    of_members: dict[tuple[int, ...], int] = {}
    for k, group in enumerate(calls.groups):
        if k not in exchanging:
            of_members.setdefault(group.members, k)
        elif group.identity == "inferred":
            found[k] = of_members.get(group.members, k)
    return found
