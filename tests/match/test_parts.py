"""A log in parts, as log rotation leaves it, is one log."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from command import collscope, rows

DDP = Path(__file__).parents[2] / "samples" / "nccl" / "ddp"
CALLS = "SELECT seq, op, count, ranks_seen, algorithm FROM calls ORDER BY comm_id, seq"
COMMS = "SELECT COUNT(*) FROM communicators"
CODES = "SELECT code, count FROM diagnostics WHERE severity <> 'info' ORDER BY code"
CUTS = {"halves": lambda k: (0.5,), "thirds": lambda k: (0.4 + 0.05 * k, 0.7 + 0.02 * k)}


def rotate(folder: Path, cuts: Callable[[int], tuple[float, ...]], packed: bool) -> list[Path]:
    """Parts of the sample's logs, named as logrotate names them; the newest last."""
    folder.mkdir()
    written = []
    for k, log in enumerate(sorted(DDP.glob("*.log"))):
        lines = log.read_bytes().splitlines(keepends=True)
        ends = [0, *(int(len(lines) * cut) for cut in cuts(k)), len(lines)]
        parts = [b"".join(lines[a:b]) for a, b in pairwise(ends)]
        for age, part in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
            path = folder / (f"r{k}.log.{age}" if age else f"r{k}.log")
            if packed and age:
                path = path.with_name(path.name + ".gz")
            path.write_bytes(gzip.compress(part) if path.suffix == ".gz" else part)
            written.append(path)
    return written


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("cuts", "packed"), [("halves", False), ("thirds", True)])
def test_a_rotated_log_is_one_log(
    cuts: str, packed: bool, backwards: bool, tmp_path: Path, db_path: Path
) -> None:
    whole = tmp_path / "whole.db"
    assert collscope("ingest", "log", DDP, "--db", whole).code == 0
    paths = rotate(tmp_path / "logs", CUTS[cuts], packed)
    given = paths[::-1] if backwards else paths
    assert collscope("ingest", "log", *given, "--db", db_path).code == 0
    for query in (CALLS, COMMS, CODES):
        assert rows(db_path, query) == rows(whole, query)


def test_parts_of_two_ingests_are_one_log(tmp_path: Path, db_path: Path) -> None:
    whole = tmp_path / "whole.db"
    assert collscope("ingest", "log", DDP, "--db", whole).code == 0
    paths = rotate(tmp_path / "logs", CUTS["thirds"], packed=False)
    for some in (paths[1::2], paths[::2]):
        assert collscope("ingest", "log", *some, "--db", db_path).code == 0
    assert rows(db_path, CALLS) == rows(whole, CALLS)
    assert rows(db_path, CODES) == rows(whole, CODES)
