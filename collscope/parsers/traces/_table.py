"""Rows of a trace while it is read, and their columns at the end."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import numpy as np

from collscope.model.trace import Ints, TraceColumns
from collscope.parsers._columns import as_numpy


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
        self.blocks = array("i")  # of a collective's kernel; -1: unknown, or none
        self.seq = array("q")
        self.correlation = array("q")
        self.start = array("d")
        self.duration = array("d")

    def __len__(self) -> int:
        """Rows."""
        return len(self.kind)

    def extend(self, **columns: np.ndarray[Any, Any]) -> None:
        """Append values to some columns, given with the types they have here."""
        for name, values in columns.items():
            getattr(self, name).frombytes(values.tobytes())


class RowTimes(msgspec.Struct, frozen=True):
    """Times of rows in ns; a launch of -1 is not known."""

    start_ns: Ints
    end_ns: Ints
    launch_ns: Ints


def columns(rows: Rows, times: RowTimes, which: Ints) -> TraceColumns:
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
