"""The confirmation: its rounds, what it says is won, and what is taken back."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from collscope.model import Measurement, Op
from collscope.tuning.choose import ENVIRONMENT, PLUGIN, Choice
from collscope.tuning.confirm import Confirmed, confirm
from collscope.tuning.csv_format import TunerRow
from collscope.tuning.intervals import Shape
from collscope.tuning.judging import (
    doubtful,
    gain,
    slower_than_present,
    unproven,
    why_withdrawn,
)
from collscope.tuning.settings import DEFAULT
from collscope.tuning.worth import Weighed

_SIZES = {0: 8 << 20, 1: 256 << 20}
_FIRST = {c: Measurement(op=Op.ALL_GATHER, size_bytes=size, nranks=2) for c, size in _SIZES.items()}


class _State(msgspec.Struct):
    """What is asked of the state: two AllGathers, of which a row names the smaller."""

    choice: Choice
    taken_back: set[int] = msgspec.field(default_factory=set)
    search: SimpleNamespace = msgspec.field(
        default_factory=lambda: SimpleNamespace(default="present", first=_FIRST)
    )
    exposed: float = 1.0
    seconds: float | None = None
    gain: object = None

    def weighed(self) -> list[Weighed]:
        return [Weighed(c, 10.0, 1.0, None, self.exposed) for c in _SIZES]

    def shape(self, class_id: int) -> Shape:
        return self.size(class_id)[0]

    def size(self, class_id: int) -> tuple[Shape, int]:
        return Shape(Op.ALL_GATHER, 2, 1), _SIZES[class_id]

    def job_seconds(self) -> float | None:
        return self.seconds


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
    assert found.saved_ns == pytest.approx(45e3, rel=0.01)
    assert found.collective_low > 0
    # Half exposed: half is won. Of 2 ms: 0.5 * 355 us are 0.089 of the job, and 4.5 / 35.5 of that.
    half = replace(state, exposed=0.5, seconds=0.002)
    found = gain(half, _confirmed(_TIMES[:2]))  # type: ignore[arg-type]
    assert found is not None
    assert found.saved_ns == pytest.approx(22.5e3, rel=0.01)
    assert found.step == pytest.approx(0.5 * 355 / 2000 * 4.5 / 35.5, rel=0.01)
    once = gain(state, _confirmed([(0, "present", (35.5,)), (0, "tuned", (31.0,))]))  # type: ignore[arg-type]
    assert once is not None
    assert (once.collective_low, once.collective_high) == (-1.0, 1.0)


def test_a_row_for_all_counts_all() -> None:
    row = TunerRow(Op.ALL_GATHER, 0, None, "ring", "ll128")
    state = _State(Choice(PLUGIN, {0: "ring/ll128", 1: "ring/ll128"}, (), (row,)))
    found = gain(state, _confirmed(_TIMES))  # type: ignore[arg-type]
    assert found is not None
    assert found.collective_low < 0


def _row_state(**more: object) -> _State:
    row = TunerRow(Op.ALL_GATHER, 4 << 20, 16 << 20, "ring", "ll128", None, 1, 2)
    choice = Choice(PLUGIN, {0: "ring/ll128", 1: DEFAULT.name}, (), (row,))
    return _State(choice, **more)  # type: ignore[arg-type]


def _both(small: float, large: float = 110.0, rounds: int = 3) -> Confirmed:
    """Both classes take 100 us with the present setting, give or take 0.1, and so with another."""
    noise = (0.0, 0.1, -0.1)[:rounds]
    return _confirmed(
        (c, label, tuple(us + n for n in noise))
        for c, tuned in enumerate((small, large))
        for label, us in (("present", 100.0), ("tuned", tuned))
    )


@pytest.mark.parametrize(
    ("tuned", "rounds", "doubted", "useless"),
    [
        (90.0, 3, False, False),
        (90.0, 1, False, False),  # too few rounds for an interval: its gain counts as it is
        (100.0, 3, False, True),
        (101.5, 3, False, True),  # within the 2 % of noise
        (103.0, 3, True, True),
    ],
)
def test_rows_that_do_not_hold(tuned: float, rounds: int, doubted: bool, useless: bool) -> None:
    state, found = _row_state(), _both(tuned, rounds=rounds)
    # Class 1 is 10 % slower, but no row is for it.
    assert doubtful(state, found, [0, 1]) == ({0} if doubted else set())  # type: ignore[arg-type]
    assert unproven(state, found, [0, 1]) == ({0} if useless else set())  # type: ignore[arg-type]


def test_what_does_not_run_is_doubtful_and_withdraws_the_choice() -> None:
    state, found = _row_state(), _both(90.0)
    assert why_withdrawn(state, found, [0, 1]) is None  # type: ignore[arg-type]
    found.broken.add(0)
    assert doubtful(state, found, [0, 1]) == {0}  # type: ignore[arg-type]
    why = why_withdrawn(state, found, [0, 1])  # type: ignore[arg-type]
    assert why == "the choice failed on AllGather of 8388608 bytes"
    # A row that loses against the present setting; no other setting was chosen for class 1.
    assert slower_than_present(state, _both(110.0), [0, 1]) == {0}  # type: ignore[arg-type]
    assert why_withdrawn(replace(state, taken_back={0}), found, [0, 1]) is None  # type: ignore[arg-type]
    unmeasured = _both(90.0)
    unmeasured.times[0]["tuned"].clear()
    assert doubtful(state, unmeasured, [0, 1]) == {0}  # type: ignore[arg-type]
    unmeasured.times[0]["default"] = dict(unmeasured.times[0]["present"])
    everywhere = Choice(PLUGIN, {}, (), (TunerRow(Op.ALL_GATHER, 0, None, "ring", "ll128"),))
    won = gain(_State(everywhere), unmeasured)  # type: ignore[arg-type]
    assert won is not None
    assert won.saved_ns == pytest.approx(-10e3 * 10)  # of class 1 alone


def test_variables_that_make_any_class_surely_worse_are_withdrawn() -> None:
    everywhere = Choice(ENVIRONMENT, {0: "tree/ll"}, (("NCCL_ALGO", "Tree"),), ())
    state, found = _State(everywhere), _both(90.0)
    why = why_withdrawn(state, found, [0, 1])  # type: ignore[arg-type]
    assert why == "slower than the library default on AllGather of 268435456 bytes"
    assert slower_than_present(state, found, [0, 1]) == {1}  # type: ignore[arg-type]
    assert slower_than_present(replace(state, taken_back={1}), found, [0, 1]) == set()  # type: ignore[arg-type]
    lost = replace(
        _row_state(), gain=SimpleNamespace(collective=0.1, collective_low=-0.1, rounds=3)
    )
    why = why_withdrawn(lost, _both(90.0), [0])  # type: ignore[arg-type]
    assert why == "the gain of the search was not confirmed"


class _Launches(msgspec.Struct):
    """Starts that say what was asked of them; of the tuned setting class 1 never comes back."""

    asked: list[tuple[str, tuple[int, ...], int, bool]] = msgspec.field(default_factory=list)

    def start(
        self, setting: str, classes: list[int], number: int, *, verify: bool, label: str
    ) -> SimpleNamespace:
        self.asked.append((label, tuple(classes), number, verify))
        rows = {
            c: replace(_FIRST[c], time_us_median=10.0 + number)
            for c in classes
            if (setting, c) != ("t", 1)
        }
        return SimpleNamespace(rows=rows, problem=None if len(rows) == len(classes) else "cut off")


def test_rounds_of_a_confirmation() -> None:
    labels = {"present": "p", "default": "d", "tuned": "t"}
    launches, answers = _Launches(), iter((True, False))
    found = confirm(
        launches, labels, [0, 1], "x-", {"default": [1]}, lambda: next(answers)  # type: ignore[arg-type]
    )  # fmt: skip
    assert launches.asked == [
        ("x-default", (0,), 1, True), ("x-tuned", (0, 1), 1, True), ("x-present", (0, 1), 1, True),
        ("x-tuned", (0, 1), 2, False), ("x-present", (0, 1), 2, False),
        ("x-default", (0,), 2, False),
    ]  # fmt: skip
    assert found.times[0]["tuned"] == found.times[0]["default"] == {1: 11.0, 2: 12.0}
    assert found.broken == {1}
    assert [note.text for note in found.problems] == [
        "tuned: cut off",
        "tuned: cut off",
        "the time limit allowed only 2 of 3 rounds",
    ]
