"""Columns of a source while it is read."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Hashable

    from collscope.model.trace import Ints

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
