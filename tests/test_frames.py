"""Views as data frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from collscope.errors import UsageError
from collscope.frames import read_view
from collscope.ingest.commands import ingest_logs


def test_a_view_is_a_frame_of_its_rows(samples: Path, db_path: Path) -> None:
    ingest_logs([str(samples / "nccl" / "mixed")], db_path, "main", lambda _path, _done: None)
    classes = read_view(db_path, "classes", "main")
    # record.py of the recording: 13 steps of 16 calls, two of them on the 2 x 2 groups.
    assert classes["calls"].sum() == 208
    assert read_view(db_path, "classes", "other").height == 0
    assert read_view(db_path, "communicators")["nranks"].sort().to_list() == [2, 2, 2, 2, 4]


def test_an_unknown_view_is_named_with_those_that_exist(samples: Path, db_path: Path) -> None:
    log = samples / "rccl" / "guide-coll-klke.log"
    ingest_logs([str(log)], db_path, "main", lambda _path, _done: None)
    with pytest.raises(UsageError, match=r"view 'nothing'.*classes"):
        read_view(db_path, "nothing")
