"""Every case of the table of truth; a known-wrong row that turned right fails as well."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import judge, load, table

CASES = load()


@pytest.mark.parametrize("name", list(CASES))
def test_truth(name: str, tmp_path: Path) -> None:
    rows = judge(name, CASES[name], tmp_path / "made")
    missing = [r.why for r in rows if r.inside == "not run"]
    if missing:
        pytest.skip(missing[0])
    failed = [r for r in rows if r.inside in ("NO", "STALE MARK")]
    assert not failed, "\n" + table(failed)
