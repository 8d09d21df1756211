"""Where test inputs lie: the repository's own, and the folder of those that it does not hold."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("COLLSCOPE_SHARED", ROOT.parent / "shared"))
RECORDINGS = ROOT / "tests" / "recordings"
"""Jobs and benchmarks that the project recorded itself (README.md there)."""
