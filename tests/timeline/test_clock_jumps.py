"""A clock that jumps within a trace, close to the trace's beginning too."""

from __future__ import annotations

import numpy as np
import pytest

from collscope.timeline.contradictions import _jump
from collscope.timeline.tolerances import JUMP_PLACES, MIN_ENDS_BESIDE_JUMP


@pytest.mark.parametrize("place", [MIN_ENDS_BESIDE_JUMP, 20 * JUMP_PLACES, 39 * JUMP_PLACES])
def test_a_jump_is_found_wherever_it_is(place: int) -> None:
    # ends 1 ms apart that scatter by 1 us, and a jump of 5 ms; warnings of numpy are errors here
    draw = np.random.default_rng(1)
    level = draw.normal(0.0, 1e3, 40 * JUMP_PLACES)
    level[place:] += 5e6
    time = np.arange(len(level)) * 1e6
    found = _jump(level, time, np.zeros(len(level), dtype=np.int64))
    assert found == pytest.approx(5e6, rel=0.01)
