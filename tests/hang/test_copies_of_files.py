"""A file beside its compressed copy: the verdict is that of the file alone."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
from command import collscope

if TYPE_CHECKING:
    from pathlib import Path


def verdict(*paths: Path) -> dict[str, object]:
    found = json.loads(collscope("hang", *paths, "--format", "json").out)
    return {key: value for key, value in found.items() if key != "sources"}


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("nccl/ddp", [f"rank{rank}.log" for rank in range(4)]),
        ("recorders", ["ddp.fr.rank0.json", "ddp.fr.rank1.json"]),
        ("recorders", ["ddp.fr.rank1.pickle"]),
        ("recorders", ["synthetic.torchcomms_trace_rank_2.json"]),
        ("recorders", [f"node-1.{pid}.18eab1bfcad93c74.0.collrec" for pid in (4710, 4711)]),
        ("recorders", ["synthetic.inspector-v4.3.log"]),
        ("recorders", ["synthetic.ras.json"]),
    ],
)
def test_the_verdict_is_that_of_the_files_alone(
    folder: str, names: list[str], samples: Path, tmp_path: Path
) -> None:
    paths = [samples / folder / name for name in names]
    copy = tmp_path / f"{names[0]}.gz"
    copy.write_bytes(gzip.compress(paths[0].read_bytes()))
    expected = verdict(*paths)
    assert verdict(*paths, copy) == expected
    assert verdict(copy, *paths) == expected
