"""Which traces were recorded together."""

from __future__ import annotations

import random

import pytest

from collscope.match.periods import Recording, assign_periods


def recording(
    rank: int | None, start: int, *, folder: str = "traces", size: int | None = 2
) -> Recording:
    return Recording(rank, size, start, folder)


def test_periods_follow_each_other_in_time() -> None:
    found = assign_periods([recording(0, 10), recording(1, 12), recording(1, 52), recording(0, 50)])
    assert found == [0, 0, 1, 1]


def test_clocks_far_apart_do_not_matter_where_ranks_have_as_many() -> None:
    """Rank 1's clock is an hour ahead."""
    hour = 3_600_000
    traces = [recording(0, 10), recording(0, 50), recording(1, hour + 10), recording(1, hour + 50)]
    assert assign_periods(traces) == [0, 1, 0, 1]


def test_a_rank_that_lacks_a_period() -> None:
    assert assign_periods([recording(0, 10), recording(0, 50), recording(1, 51)]) == [0, 1, 1]


def test_one_more_trace_of_a_rank_leaves_the_others_together() -> None:
    """Ranks 0 to 2 and a second export of rank 0, be it read first or last."""
    own = [Recording(rank, 3, 10 + rank, "", end_ns=100) for rank in (0, 1, 2)]
    second = Recording(0, 3, 11, "", end_ns=99)
    assert assign_periods([*own, second]) == [0, 0, 0, 1]
    assert assign_periods([second, *own]) == [1, 0, 0, 0]


def test_a_second_period_that_begins_as_the_first_ends() -> None:
    """Rank 1 lacks the first: a kernel of rank 0 runs across the border."""
    traces = [Recording(0, 2, 10, "", end_ns=101), Recording(0, 2, 100, "", end_ns=190),
              Recording(1, 2, 100, "", end_ns=190)]  # fmt: skip
    assert assign_periods(traces) == [0, 1, 1]


def test_folders_with_the_same_ranks_are_jobs() -> None:
    """Both ran at once, so that their order in time says nothing."""
    traces = [recording(0, 10, folder="a"), recording(1, 13, folder="a"),
              recording(0, 11, folder="b"), recording(1, 12, folder="b")]  # fmt: skip
    assert assign_periods(traces) == [0, 0, 1, 1]


def test_a_folder_of_each_rank_or_node_is_no_job() -> None:
    traces = [recording(0, 10, folder="a"), recording(0, 50, folder="a"),
              recording(1, 11, folder="b"), recording(1, 51, folder="b")]  # fmt: skip
    assert assign_periods(traces) == [0, 1, 0, 1]


def test_jobs_of_other_sizes_are_apart() -> None:
    traces = [recording(0, 10), recording(1, 11), recording(0, 12, size=4), recording(3, 9, size=4)]
    assert assign_periods(traces) == [0, 0, 1, 1]


def test_traces_without_ranks_stay_together() -> None:
    assert assign_periods([recording(None, 10), recording(None, 50)]) == [0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_no_period_has_a_rank_twice(seed: int) -> None:
    rng = random.Random(seed)
    traces = [
        recording(rng.choice([0, 1, 2, 3, None]), rng.randint(0, 99), folder=rng.choice("ab"))
        for _ in range(rng.randint(1, 12))
    ]
    found = assign_periods(traces)
    told = [(p, t.rank) for p, t in zip(found, traces, strict=True) if t.rank is not None]
    assert len(set(told)) == len(told)
    assert set(found) == set(range(max(found) + 1))
