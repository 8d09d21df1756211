"""Rows of a trace while it is read, and their columns at the end."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from collscope.model.trace import Ints, TraceColumns

if TYPE_CHECKING:
    from collections.abc import Hashable

K = TypeVar("K", bound="Hashable")
Floats = npt.NDArray[np.float64]


class Index(Generic[K]):
    """Distinct values in the order of their first appearance."""

    def __init__(self) -> None:
        """Start empty."""
        self._places: dict[K, int] = {}

    def __getitem__(self, value: K) -> int:
        """Place of a value, which is added when new."""
        return self._places.setdefault(value, len(self._places))

    def __len__(self) -> int:
        """Distinct values."""
        return len(self._places)

    @property
    def values(self) -> tuple[K, ...]:
        """The values, by place."""
        return tuple(self._places)


class Rows:
    """GPU activities in arrays: 57 bytes a row, not an object each.

    `start` and `duration` are in the unit of the source.
    """

    def __init__(self) -> None:
        """Start without a row."""
        self.kind = array("b")
        self.name = array("i")
        self.stream = array("i")
        self.device = array("i")
        self.collective = array("i")
        self.blocks = array("i")  # of a collective's kernel; -1: not told, or none
        self.seq = array("q")
        self.correlation = array("q")
        self.start = array("d")
        self.duration = array("d")

    def __len__(self) -> int:
        """Rows."""
        return len(self.kind)


@dataclass(frozen=True, slots=True)
class Times:
    """Times of rows in ns; a launch of -1 is not known."""

    start_ns: Ints
    end_ns: Ints
    launch_ns: Ints


def columns(rows: Rows, times: Times, which: Ints) -> TraceColumns:
    """Columns of some rows, given by number, in the order of their start."""
    order = which[np.argsort(times.start_ns[which], kind="stable")]
    return TraceColumns(
        kind=as_numpy(rows.kind, np.int8)[order],
        name=as_numpy(rows.name, np.int32)[order],
        stream=as_numpy(rows.stream, np.int32)[order],
        start_ns=times.start_ns[order],
        end_ns=times.end_ns[order],
        launch_ns=times.launch_ns[order],
        collective=as_numpy(rows.collective, np.int32)[order],
        seq=as_numpy(rows.seq, np.int64)[order],
    )


def as_numpy(values: array[int] | array[float], kind: type[np.generic]) -> np.ndarray:
    """An array's values as a numpy array that shares its memory."""
    return np.frombuffer(values, dtype=kind)


def launches(correlation: Ints, host: Ints, host_start: Floats | Ints) -> Ints:
    """Place of the first host call with each activity's correlation id; -1 where there is none.

    correlation   ids of the activities; none is below 1
    host          ids of the host calls, in any order
    host_start    their starts
    """
    if not len(host):
        return np.full(len(correlation), -1, dtype=np.int64)
    order = np.lexsort((host_start, host))
    ids = host[order]
    place = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
    known = (ids[place] == correlation) & (correlation > 0)
    return np.where(known, order[place], -1)
