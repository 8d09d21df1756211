"""Flight recorder's dumps of jobs that are written by hand."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SECOND = 10**9
BEGIN = 1_790_000_000 * SECOND  # of each job


def save_dump(
    folder: Path,
    rank: int,
    groups: Mapping[str, Sequence[int]],
    entries: Sequence[Mapping[str, Any]],
    late_s: int,
) -> None:
    """Write the dump of a rank, so many seconds after the job began."""
    config = {
        name: {"name": name, "desc": "undefined", "ranks": str(list(members))}
        for name, members in groups.items()
        if rank in members
    }
    path = folder / f"dump_{rank}"
    path.write_text(json.dumps({"version": "2.10", "pg_config": config, "entries": entries}))
    written = BEGIN // SECOND + late_s
    os.utime(path, (written, written))
