"""A few damages of each group, as `make semantics` judges them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import semantics
from semantics import Told

_NUMBERS = ("every second record gone", "entries gone without record ids")
_FIELDS = ("other counts in than out", "other types in than out", "two dumps, other ranks")
CHOSEN = {
    "traces": ("traces/ringll", ("durations x100 of some kernels", "last kernels gone")),
    "logs": ("nccl/ddp", ("a file after itself", "torn within a call", "lines of calls gone")),
    "profiles": ("rpd", ("near copies", "ends later")),
    "records": ("recorders/ddp.fr.rank0.json", (*_NUMBERS, *_FIELDS)),
}


@pytest.mark.parametrize(
    ("group", "kind"), [(g, kind) for g, (_, kinds) in CHOSEN.items() for kind in kinds]
)
def test_a_decidable_damage_is_explained(group: str, kind: str) -> None:
    rows = semantics.judge([group], 1, 3, kind, CHOSEN[group][0])
    assert rows
    assert [r for r in rows if r.silent and r.decidable] == []


def test_what_moved_and_what_explains_it() -> None:
    before: dict[str, float | None] = {"calls": 100.0, "idle": 5.0, "ranks": 4.0}
    assert semantics.moves(before, {"calls": 97.0, "ranks": 4.0}) == [
        ("calls", 100.0, 97.0),
        ("idle", 5.0, None),
    ]
    quiet = Told({"a": 1}, {}, 0)
    assert not semantics.explained(quiet, quiet)
    assert semantics.explained(quiet, Told({"a": 2}, {}, 0))
    assert semantics.explained(quiet, Told({"a": 1}, {}, 1))
