"""Some faults and kills of `make torture`, and that its judge sees what it looks for."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fcntl")

from disturb import build, compiler
from judge import disturbed_problems, state_of
from recorder_kills import judged, kill_after
from scenarios import DB, SCENARIOS
from torture import Disturbance, Rig

_CHOSEN = ("log", "report")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    if compiler() is None:
        pytest.skip("no C compiler; install one, or name it by CC")
    folder = tmp_path_factory.mktemp("torture")
    return Rig(build(folder), folder, [s for s in SCENARIOS if s.name in _CHOSEN])


@pytest.mark.parametrize(
    ("scenario", "fault"),
    [
        ("log", "write:90:torn"),
        ("log", "write:60+:ENOSPC"),
        ("log", "read:40:EIO"),
        ("report", "write:17+:short"),
        ("report", "open:3+:EMFILE"),
    ],
)
def test_a_disturbed_command(rig: Rig, scenario: str, fault: str) -> None:
    name = f"{scenario}-{fault.replace(':', '-')}"
    outcome = rig.disturb(rig.scenarios[scenario], Disturbance(fault), name)
    assert outcome.happened
    assert outcome.problems == ()


def test_the_judge_sees_lost_rows_and_half_an_answer(rig: Rig, tmp_path: Path) -> None:
    scenario = rig.scenarios["report"]
    scenario.prepare(tmp_path)
    baseline = rig.baselines["report"]
    with closing(sqlite3.connect(tmp_path / DB, isolation_level=None)) as store:
        store.execute("DELETE FROM _sample")
    now = state_of(scenario, tmp_path)
    (lost, *_) = disturbed_problems(scenario, baseline, baseline.first, now)
    assert lost.startswith("lost: ")


def test_a_killed_rank_leaves_all_its_old_calls(tmp_path: Path) -> None:
    killed = kill_after(0.15, tmp_path)
    assert killed.problems == ()
    assert 0 < killed.old <= killed.timed
    # Its judge sees calls that lack, and those that nobody made.
    now = time.monotonic_ns()
    more = judged(tmp_path, np.full(killed.made + 50, now - 10**9), now)
    assert "old calls not read" in more.problems[0]
    fewer = judged(tmp_path, np.full(killed.made // 2, now), now)
    assert "was not made" in fewer.problems[0]
