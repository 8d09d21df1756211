"""The rows of a run's logs; only the rows in use are in memory (pure).

Matching goes through the logs three times: once for what it needs to know of each handle, once for
the rows of some communicators after the other, and once for the order in which each process made
its calls. Memory grows with calls and communicators; of the lines of logs a fixed number is held.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from collscope.match.observations import (
    COLUMNS,
    Ints,
    Observations,
    Signature,
    TuningSetting,
    constant,
    intern_values,
    join_columns,
)
from collscope.model.comm_handle import CommHandle

ROWS_AT_ONCE = 1 << 22  # of communicators matched together
_KEPT = 8  # the rows of logs that are kept for later are such a part of that
_DTYPES = {**COLUMNS, "group": np.int64, "row": np.int64}


class LoadedRows(NamedTuple):
    """Some columns of a log, and the settings of its rows, as `Observations` has them."""

    columns: dict[str, Ints]
    tuning: dict[str, Ints]


class Log(msgspec.Struct, frozen=True):
    """One log of a run, whose rows are read when they are needed."""

    handles: Sequence[CommHandle]
    signatures: Sequence[Signature]
    settings: Sequence[TuningSetting]
    rows: int
    load: Callable[[Collection[str]], LoadedRows]  # some of its columns, by name


class RunRows:
    """Rows of all logs of a run, numbered through in the order of the logs.

    Its handles are those of all logs; equal signatures and settings are one.
    """

    def __init__(self, logs: Sequence[Log]) -> None:
        """Take logs; the processes of their handles are numbered over the run."""
        signatures: dict[Signature, int] = {}
        settings: dict[TuningSetting, int] = {}
        self.at_once = ROWS_AT_ONCE
        self._logs = logs
        self._sig = [intern_values(log.signatures, signatures) for log in logs]
        self._setting = [intern_values(log.settings, settings) for log in logs]
        self.signatures: Sequence[Signature] = list(signatures)
        self.settings: Sequence[TuningSetting] = list(settings)
        self.handles: Sequence[CommHandle] = [h for log in logs for h in log.handles]
        ends = list(accumulate((len(log.handles) for log in logs), initial=0))
        # Of each log's handles, which of the run they are; -1: their rows are left out.
        self._handle: list[Ints] = [np.arange(a, b, dtype=np.int32) for a, b in pairwise(ends)]
        self._left: Mapping[int, Ints] = {}  # log: which of its rows count, where not all do
        self._loaded = _Loaded(logs, self.at_once // _KEPT)
        self._in_order(range(len(logs)))

    def _in_order(self, order: Sequence[int]) -> None:
        self._order = list(order)
        self._place = {log: place for place, log in enumerate(self._order)}
        rows = [self._logs[log].rows for log in self._order]
        self._first = list(accumulate(rows, initial=0))  # row number of each log's first row
        self._logs_of: list[list[int]] = [[] for _ in self.handles]
        for log in self._order:
            for handle in sorted(set(self._handle[log].tolist())):
                if handle >= 0:
                    self._logs_of[handle].append(log)

    def with_handles(self, handles: Sequence[CommHandle]) -> RunRows:
        """The same run with what else is known of its handles, in the same order."""
        found = copy.copy(self)
        found.handles = handles
        return found

    def without(self, dropped: Collection[int], lost: Ints) -> RunRows:
        """The same run without some handles and rows, by their numbers."""
        found = copy.copy(self)
        gone = set(dropped)
        kept = [h for h in range(len(self.handles)) if h not in gone]
        found.handles = [self.handles[h] for h in kept]
        number = np.full(len(self.handles) + 1, -1, dtype=np.int32)  # the last for what is dropped
        number[kept] = np.arange(len(kept), dtype=np.int32)
        found._handle = [number[own] for own in self._handle]
        left = dict(self._left)
        for place, log in enumerate(self._order):
            own = lost[(lost >= self._first[place]) & (lost < self._first[place + 1])]
            if len(own):
                counts = left.get(log, np.ones(self._logs[log].rows, dtype=bool)).copy()
                counts[own - self._first[place]] = False
                left[log] = counts
        found._left = left
        found._in_order(self._order)
        return found

    def joined(self, target: Mapping[int, int], order: Sequence[int]) -> RunRows:
        """The same run with some handles' rows as those of others, and its logs in another order.

        order  places of the logs in the present order
        """
        found = copy.copy(self)
        kept = [h for h in range(len(self.handles)) if h not in target]
        found.handles = [self.handles[h] for h in kept]
        number = {h: n for n, h in enumerate(kept)}
        new = [number[target.get(h, h)] for h in range(len(self.handles))]
        renumbered = np.array([*new, -1], dtype=np.int32)
        found._handle = [renumbered[own] for own in self._handle]
        found._in_order([self._order[place] for place in order])
        return found

    def logs_of(self, handle: int) -> list[int]:
        """Places of the logs that hold rows of a handle, rising."""
        return [self._place[log] for log in self._logs_of[handle]]

    def units(self) -> list[list[int]]:
        """Handles of logs that share none with others: of one log mostly, or of its parts."""
        parent = list(range(len(self._logs)))

        def find(log: int) -> int:
            while parent[log] != log:
                parent[log] = parent[parent[log]]
                log = parent[log]
            return log

        for own in self._logs_of:
            for log in own[1:]:
                parent[find(log)] = find(own[0])
        units: dict[int, list[int]] = {find(log): [] for log in self._order}
        for handle, own in enumerate(self._logs_of):
            if own:
                units[find(own[0])].append(handle)
        return [handles for handles in units.values() if handles]

    def rows(self, handles: Collection[int], names: Collection[str]) -> Observations:
        """Rows of some handles in the order of the run, with some of their columns.

        `handle` is among them. `row`, a further column, is their number, and `group` that of the
        group's first row.
        """
        wanted = np.zeros(len(self.handles) + 1, dtype=bool)  # the last for rows that do not count
        wanted[list(handles)] = True
        places = sorted({self._place[log] for handle in handles for log in self._logs_of[handle]})
        parts = [self._part(place, wanted, names) for place in places]
        ends = accumulate((len(part) for part in parts), initial=0)
        tuned = [part.tuning["row"] + end for part, end in zip(parts, ends, strict=False)]
        tuning = {
            "row": join_columns(tuned, np.int64),
            "setting": join_columns([part.tuning["setting"] for part in parts], np.int64),
        }
        columns = {  # a part's column is let go of when it has been joined
            name: join_columns([part.columns.pop(name) for part in parts], _DTYPES[name])
            for name in {"handle", *names}
        }
        return Observations(self.handles, self.signatures, columns, tuning, self.settings)

    def _part(self, place: int, wanted: Ints, names: Collection[str]) -> Observations:
        """What one log has of the handles that are wanted."""
        log = self._order[place]
        found = self._loaded.columns(log, [name for name in names if name != "row"])
        columns = {name: found.columns[name] for name in names if name != "row"}
        tuned, setting = found.tuning["row"], self._setting[log][found.tuning["setting"]]
        own, handle = self._handle[log], found.columns["handle"]
        if "row" in names or "group" in names:
            columns["row"] = np.arange(self._first[place], self._first[place + 1])
        if "group" in names:
            counting = self._counting(log, own >= 0, handle)
            columns["group"] = _first_rows(columns["group"], columns["row"], counting)
        # A column is looked up row by row only where its log has other numbers than the run.
        chosen = self._counting(log, (own >= 0) & wanted[own], handle)
        if not chosen.all():
            at = np.flatnonzero(chosen)
            columns = {name: values[at] for name, values in columns.items()}
            handle, setting = handle[at], setting[chosen[tuned]]
            tuned = np.searchsorted(at, tuned[chosen[tuned]])
        if "sig" in names:
            columns["sig"] = _renumbered(columns["sig"], self._sig[log])
        columns = {name: columns[name] for name in names}
        columns["handle"] = _renumbered(handle, own)
        tuning = {"row": tuned, "setting": setting}
        return Observations(self.handles, self.signatures, columns, tuning, self.settings)

    def _counting(self, log: int, counts: Ints, handle: Ints) -> Ints:
        """Which rows of a log are of handles that count, and count themselves.

        counts  of each handle of the log
        """
        left = self._left.get(log)
        own = constant(np.True_, len(handle)) if counts.all() else counts[handle]
        return own if left is None else own & left

    def place_of(self, row: int) -> tuple[int, int]:
        """The log that a row stands in, as the number it was given with, and its line."""
        place = bisect_right(self._first, row) - 1
        log = self._order[place]
        lines = self._loaded.columns(log, ("line",)).columns["line"]
        return log, int(lines[row - self._first[place]])


class _Loaded:
    """Columns of logs; those used last are kept."""

    def __init__(self, logs: Sequence[Log], most_rows: int) -> None:
        self._logs = logs
        self._most_rows = most_rows
        self._kept: OrderedDict[int, LoadedRows] = OrderedDict()
        self._rows = 0

    def columns(self, log: int, names: Collection[str]) -> LoadedRows:
        """At least these columns of a log, and the settings of its rows."""
        found = self._kept.pop(log, None)
        if found is None:
            found = self._logs[log].load({"handle", *names})
            self._rows += self._logs[log].rows
        elif lacking := set(names) - set(found.columns):
            columns = found.columns | self._logs[log].load(lacking).columns
            found = LoadedRows(columns, found.tuning)
        self._kept[log] = found
        while self._rows > self._most_rows and len(self._kept) > 1:
            oldest, _ = self._kept.popitem(last=False)
            self._rows -= self._logs[oldest].rows
        return found


def _renumbered(values: Ints, new: Ints) -> Ints:
    """Values by their new numbers; themselves where those are the same."""
    return values if np.array_equal(new, np.arange(len(new))) else new[values]


def _first_rows(group: Ints, row: Ints, counting: Ints) -> Ints:
    """Per row the number of the first one that counts of its group; -1: it is in none."""
    if (group < 0).all():
        return group
    traced = counting & (group >= 0)
    _, first, inverse = np.unique(group[traced], return_index=True, return_inverse=True)
    found = np.full(len(group), -1, dtype=np.int64)
    found[traced] = row[np.flatnonzero(traced)[first][inverse]]
    return found
