"""A log that is read again after it grew counts once, everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import collscope, rows

SAMPLES = Path(__file__).parents[2] / "samples" / "nccl" / "mixed"
VIEWS = (
    "SELECT transport, src_rank, dst_rank, channels FROM links ORDER BY 1, 2, 3, 4",
    "SELECT kind, value, count FROM facts ORDER BY 1, 2, 3",
    "SELECT name, value, origin FROM settings ORDER BY 1, 2, 3",
    "SELECT path, lines FROM sources ORDER BY 1",
    "SELECT comm_id, class_id, seq FROM calls ORDER BY 1, 2, 3",
    "SELECT code, count FROM diagnostics WHERE severity = 'data_loss' ORDER BY 1, 2",
)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder for logs."""
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def copy(folder: Path, share: float) -> None:
    """Put the beginnings of the sample's logs into a folder; where they end, a line may be cut."""
    for path in SAMPLES.glob("*.log"):
        content = path.read_bytes()
        (folder / path.name).write_bytes(content[: int(len(content) * share)])


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_grown_logs_replace_what_was_read_of_them(logs: Path, tmp_path: Path, jobs: str) -> None:
    grown, whole = tmp_path / "grown.db", tmp_path / "whole.db"
    for share in (0.1, 0.5, 1):
        copy(logs, share)
        done = collscope("ingest", "log", logs, "--db", grown, "--jobs", jobs)
        assert done.code == 0
    assert "4 x grown_log" in done.out
    assert collscope("ingest", "log", logs, "--db", whole).code == 0
    for query in VIEWS:
        assert rows(grown, query) == rows(whole, query), query


def test_other_logs_of_one_name_are_kept(logs: Path, db_path: Path) -> None:
    """Another job's log took the place of the first one's: both were read."""
    for rank in (1, 2):
        (logs / "job.log").write_bytes((SAMPLES / f"rank{rank}.log").read_bytes())
        done = collscope("ingest", "log", logs, "--db", db_path)
    assert "grown_log" not in done.out
    assert rows(db_path, "SELECT COUNT(*) FROM sources") == [(2,)]


def test_a_log_that_shrank_is_kept_beside(logs: Path, db_path: Path) -> None:
    """A file that was cut is no longer log: nothing that was read is removed."""
    for share in (1, 0.5):
        copy(logs, share)
        assert collscope("ingest", "log", logs, "--db", db_path).code == 0
    assert rows(db_path, "SELECT COUNT(*) FROM sources") == [(8,)]
