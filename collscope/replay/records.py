"""What planning a replay needs to know of a run (see `collscope.replay.load`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.model import CollectiveClass
from collscope.replay.plan import PlanTransfer

Ints = npt.NDArray[Any]


class RunComm(msgspec.Struct, frozen=True):
    """A communicator of the run; `world_ranks` by rank, of the ranks whose world rank is known."""

    id: int
    nranks: int | None
    parent: int | None = None
    world_ranks: Mapping[int, int] = msgspec.field(default_factory=dict)


class RunClass(CollectiveClass, frozen=True, kw_only=True):
    """A class of the run, see the view `classes`."""

    id: int
    kernel_ns: float | None = None  # mean duration of its kernels, waiting included


class RunSlot(msgspec.Struct, frozen=True):
    """Calls of a class on a communicator that are equal also in what they transfer.

    transfers  of one of the calls, in elements, ordered; empty without a point-to-point shape
    complete   every rank's halves were logged
    """

    class_id: int
    comm_id: int
    calls: int
    transfers: tuple[PlanTransfer, ...] = ()
    complete: bool = True


class RunRecords(msgspec.Struct, frozen=True):
    """A run: its communicators, classes and slots, and where wanted its calls in launch order.

    slot   per call the index into `slots`, shape (calls,); empty when only totals were loaded
    group  per call a number that calls launched together share, -1 alone; shape (calls,)
    """

    comms: tuple[RunComm, ...]
    classes: tuple[RunClass, ...]
    slots: tuple[RunSlot, ...]
    slot: Ints = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    group: Ints = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
