"""The matching's input: one row per logged call of one rank, as columns (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from collscope.model import Datatype, Op, datatype_of
from collscope.model.comm_handle import CommHandle

Ints = npt.NDArray[Any]

# Flags of a signature.
COUNT_MODULO_2_32 = 1  # newest RCCL prints count with %u
POINTERS_ONLY = 4  # AllToAllv of ROCm 4: where the counts lie is printed, not what they are


class Signature(msgspec.Struct, frozen=True):
    """What all ranks of one call log alike (Send and Recv: what one rank logs)."""

    op: Op
    backend: str  # native, msccl, mscclpp
    count: int
    datatype: int  # ncclDataType_t
    redop: int  # ncclRedOp_t, 5 for every custom operator
    root: int  # root, or peer of Send and Recv
    flags: int

    @property
    def element(self) -> Datatype:
        """Element type."""
        return datatype_of(self.datatype)


# A new column is signed: what a store without it holds is read with -1.
COLUMNS: dict[str, type[np.generic]] = {
    "handle": np.int32,  # index into the handles
    "sig": np.int32,  # index into the signatures
    "op_count": np.uint64,  # opCount as logged
    "slot": np.int32,  # rank for which the buffers are in place; -1 none, -2 not known
    "task": np.int32,  # RCCL's task, -1 absent
    "thread": np.int32,  # logging thread
    "line": np.uint32,  # line in the source
    "group": np.int32,  # ncclGroupStart/End interval of a CALL trace, -1 outside
}


class Observations(msgspec.Struct, frozen=True):
    """Rows of many ranks. `columns` are arrays of equal length, see `COLUMNS`."""

    handles: Sequence[CommHandle]
    signatures: Sequence[Signature]
    columns: dict[str, Ints]
    tuning: dict[str, Ints]  # row, setting: index into `tuning_settings`
    tuning_settings: Sequence[TuningSetting]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.columns["handle"])


class TuningSetting(NamedTuple):
    """What the library chose, by a TUNING line."""

    algorithm: str | None
    protocol: str | None
    channels: int | None
    kernel: str | None


def concatenate(parts: Sequence[Observations]) -> Observations:
    """One set of rows from several sources; equal signatures and settings are joined.

    Processes of the parts' handles must already be numbered apart; threads are renumbered here.
    """
    if len(parts) == 1:
        return parts[0]  # nothing to renumber, no copy
    signatures: dict[Signature, int] = {}
    settings: dict[TuningSetting, int] = {}
    handles: list[CommHandle] = []
    columns: dict[str, list[Ints]] = {name: [] for name in COLUMNS}
    tuning: dict[str, list[Ints]] = {"row": [], "setting": []}
    rows = threads = groups = 0
    for part in parts:
        sig_map = intern_values(part.signatures, signatures)
        set_map = intern_values(part.tuning_settings, settings)
        for name, values in part.columns.items():
            columns[name].append(values)
        columns["handle"][-1] = part.columns["handle"] + np.int32(len(handles))
        columns["sig"][-1] = sig_map[part.columns["sig"]]
        columns["thread"][-1] = part.columns["thread"] + np.int32(threads)
        grouped = part.columns["group"]
        columns["group"][-1] = np.where(grouped >= 0, grouped + np.int32(groups), np.int32(-1))
        groups += int(grouped.max(initial=-1)) + 1
        tuning["row"].append(part.tuning["row"] + rows)
        tuning["setting"].append(set_map[part.tuning["setting"]])
        threads += int(part.columns["thread"].max(initial=-1)) + 1
        rows += len(part)
        handles.extend(part.handles)
    return Observations(
        handles,
        list(signatures),
        {n: join_columns(v, COLUMNS[n]) for n, v in columns.items()},
        {n: join_columns(v, np.int64) for n, v in tuning.items()},
        list(settings),
    )


def intern_values(values: Sequence[Any], known: dict[Any, int]) -> Ints:
    """Number of each value in `known`, which takes in those that it lacks."""
    return np.array([known.setdefault(v, len(known)) for v in values], dtype=np.int32)


def distinct(values: Ints) -> tuple[Ints, Ints, Ints]:
    """Distinct values that are not negative, rising; of each value its place there; how often.

    >>> [found.tolist() for found in distinct(np.array([5, 2, 5]))]
    [[2, 5], [1, 0, 1], [1, 2]]
    """
    if int(values.max(initial=0)) > 4 * len(values) + 4096:  # too many numbers to count
        return np.unique(values, return_inverse=True, return_counts=True)
    counts = np.bincount(values)
    found = np.flatnonzero(counts)
    place = np.zeros(len(counts), dtype=np.int64)
    place[found] = np.arange(len(found))
    return found, place[values], counts[found]


def constant(value: np.generic, rows: int) -> Ints:
    """A column of one value, which takes the memory of one."""
    return np.broadcast_to(value, (rows,))


def join_columns(arrays: Sequence[Ints], dtype: npt.DTypeLike) -> Ints:
    """One column of several; constant where all are."""
    held = [array for array in arrays if len(array)]
    if len(held) == 1:
        return held[0].astype(dtype, copy=False)
    if held and all(a.strides == (0,) and a[0] == held[0][0] for a in held):
        return constant(held[0][0].astype(dtype), sum(map(len, held)))
    return np.concatenate(held, dtype=dtype, casting="unsafe") if held else np.empty(0, dtype)
