"""What a confirmation says is won: only classes that the result reaches count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from collscope.model import Op
from collscope.tuning.choose import PLUGIN, Choice
from collscope.tuning.confirm import Confirmed
from collscope.tuning.csv_format import TunerRow
from collscope.tuning.intervals import Shape
from collscope.tuning.judging import gain
from collscope.tuning.worth import Weighed

_SIZES = {0: 8 << 20, 1: 256 << 20}


@dataclass
class _State:
    """What `gain` asks of the state: two AllGathers, of which a row names the smaller."""

    choice: Choice
    taken_back: set[int] = field(default_factory=set)
    search: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(default="present"))

    def weighed(self) -> list[Weighed]:
        return [Weighed(c, 10.0, 1.0, None, 1.0) for c in _SIZES]

    def size(self, class_id: int) -> tuple[Shape, int]:
        return Shape(Op.ALL_GATHER, 2, 1), _SIZES[class_id]

    def job_seconds(self) -> float | None:
        return None


def _confirmed(times: Iterable[tuple[int, str, tuple[float, ...]]]) -> Confirmed:
    found = Confirmed()
    for class_id, label, rounds in times:
        found.times[class_id][label] = dict(enumerate(rounds, start=1))
    return found


# Two H200: AllGather of 8 MiB, and launches of an untouched class that differ by 3 %.
_TIMES = (
    (0, "present", (35.4, 35.5, 35.6)), (0, "tuned", (31.0, 31.1, 30.9)),
    (1, "present", (895.0, 880.0, 899.0)), (1, "tuned", (870.0, 899.0, 890.0)),
)  # fmt: skip


def test_the_noise_of_classes_without_a_row_is_left_out() -> None:
    row = TunerRow(Op.ALL_GATHER, 4 << 20, 16 << 20, "ring", "ll128", None, 1, 2)
    state = _State(Choice(PLUGIN, {0: "ring/ll128", 1: "default"}, (), (row,)))
    found = gain(state, _confirmed(_TIMES))  # type: ignore[arg-type]
    assert found is not None
    # (35.4 - 31.0 + 35.5 - 31.1 + 35.6 - 30.9) / 3 = 4.5 us, ten calls
    assert found.saved_us == pytest.approx(45.0, rel=0.01)
    assert found.collective_low > 0


def test_a_row_for_all_counts_all() -> None:
    row = TunerRow(Op.ALL_GATHER, 0, None, "ring", "ll128")
    state = _State(Choice(PLUGIN, {0: "ring/ll128", 1: "ring/ll128"}, (), (row,)))
    found = gain(state, _confirmed(_TIMES))  # type: ignore[arg-type]
    assert found is not None
    assert found.collective_low < 0
