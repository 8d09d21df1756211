"""The native alignment of sequences that lost elements."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from collscope._align import align

sequences = st.lists(st.integers(0, 5), max_size=30)


def array(values: list[int]) -> NDArray[np.uint64]:
    """`values` as the function takes them."""
    return np.array(values, dtype=np.uint64)


def common_length(a: list[int], b: list[int]) -> int:
    """Length of the longest common subsequence, by the textbook's table."""
    row = [0] * (len(b) + 1)
    for x in a:
        previous = row
        row = [0]
        for j, y in enumerate(b):
            row.append(previous[j] + 1 if x == y else max(previous[j + 1], row[j]))
    return row[-1]


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError):
        align(np.zeros((2, 2), np.uint64), array([]))
    with pytest.raises(TypeError):
        align([1, 2], array([]))  # type: ignore[arg-type]


def test_lost_elements_leave_the_rest_in_place() -> None:
    assert align(array([1, 2, 3, 4, 5]), array([1, 3, 4, 5])).tolist() == [0, 2, 3, 4]
    assert align(array([1, 2, 3]), array([1, 9, 2, 3])).tolist() == [0, -1, 1, 2]
    assert align(array([]), array([1, 2])).tolist() == [-1, -1]
    assert align(array([2**64 - 1]), array([2**64 - 1])).dtype == np.int32


@given(a=sequences, b=sequences)
def test_is_the_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    partners = align(array(a), array(b))
    pairs = [(int(i), j) for j, i in enumerate(partners) if i >= 0]
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(p[0] < q[0] for p, q in itertools.pairwise(pairs))
    assert len(pairs) == common_length(a, b)


@given(seed=st.integers(0, 2**31))
def test_removals_from_a_periodic_sequence(seed: int) -> None:
    random = np.random.default_rng(seed)
    reference = (np.arange(3000) % 37).astype(np.uint64)
    kept = np.flatnonzero(random.random(reference.size) > 0.01)
    partners = align(reference, reference[kept])
    assert (partners >= 0).all()
    assert (np.diff(partners) > 0).all()
    assert (reference[partners] == reference[kept]).all()
