"""The walks of docs/architecture.md pass through the files that they name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from command import collscope
from inputs import ROOT

PACKAGE = ROOT / "collscope"
_FILE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.py)`")


@contextmanager
def files_that_run(seen: set[str]) -> Iterator[None]:
    """Add the files of the package of which a function runs; the rest of a walk is native."""

    def note(frame: FrameType, event: str, _argument: object) -> None:
        place = Path(frame.f_code.co_filename)
        if event == "call" and frame.f_code.co_name != "<module>" and PACKAGE in place.parents:
            seen.add(place.relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize(
    ("command", "source"), [("log", "rccl/guide-coll-klke.log"), ("trace", "traces/ringll")]
)
def test_a_walk_passes_through_the_files_that_it_names(
    command: str, source: str, samples: Path, db_path: Path
) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8").split("## Two walks")[1]
    (walk,) = (part for part in text.split("\n## ")[0].split("`collscope ingest ")[1:]
               if part.startswith(command))  # fmt: skip
    named = set(_FILE.findall(walk))
    assert len(named) > 10
    seen: set[str] = set()
    with files_that_run(seen):
        assert collscope("ingest", command, samples / source, "--db", db_path).code == 0
        assert collscope("report", "--db", db_path).code == 0
    assert named - seen == set()
