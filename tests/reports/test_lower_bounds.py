"""Counts of a run whose sources may lack calls are lower bounds, in its first lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import collscope

SAMPLES = Path(__file__).parents[2] / "samples" / "nccl" / "mixed"


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [(range(4), "\n208 calls in 14 classes, "), (range(2), "\nAt least 208 calls in 14 classes, ")],
)
def test_logs_of_some_ranks(ranks: range, expected: str, db_path: Path) -> None:
    """Communicator {2,3} has a line in no log of ranks 0 and 1, so that its calls are missing."""
    logs = [SAMPLES / f"rank{rank}.log" for rank in ranks]
    assert collscope("ingest", "log", *logs, "--db", db_path).code == 0
    assert expected in collscope("report", "--db", db_path).out


def test_one_rank_of_four_leaves_something_to_do(samples: Path, db_path: Path) -> None:
    """Nothing stands out on the rank that was traced; of the others nothing is known."""
    trace = samples / "traces" / "default" / "rank0.json.gz"
    assert collscope("ingest", "trace", trace, "--db", db_path).code == 0
    brief = " ".join(collscope("report", "--brief", "--db", db_path).out.split())
    assert "Trace all ranks: causes on untraced ranks" in brief
    assert "Nothing to fix" not in brief
    assert ", 1 of 4 ranks," in brief
