"""Two processes that are one rank of one communicator: a commId is random, so one is wrong."""

from __future__ import annotations

from pathlib import Path

from command import collscope, rows

DDP = Path(__file__).parents[2] / "samples" / "nccl" / "ddp"


def test_their_calls_count_once(tmp_path: Path, db_path: Path) -> None:
    for k, log in enumerate(sorted(DDP.glob("*.log"))):
        text = log.read_text()
        (tmp_path / f"{k}.log").write_text(text.replace("rank 1 n", "rank 0 n"))
    done = collscope("ingest", "log", *sorted(tmp_path.glob("*.log")), "--db", db_path)
    assert "rank_claimed_twice" in done.out
    assert rows(db_path, "SELECT COUNT(*) FROM calls") == [(116,)]
    assert rows(db_path, "SELECT COUNT(*) FROM communicators") == [(1,)]
    query = "SELECT severity, count FROM diagnostics WHERE code = 'rank_claimed_twice'"
    assert rows(db_path, query) == [("data_loss", 1)]
    report = collscope("report", "--db", db_path).out
    assert "[warning] records were lost: rank_claimed_twice" in report
    above, _, _ = report.partition("Findings")
    assert (
        "The calls of 1 process are left out: other processes of the communicator have the same"
        in above
    )
