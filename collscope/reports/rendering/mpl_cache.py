"""A folder for matplotlib's cache: imported before matplotlib, which fails or warns without one."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from collscope.errors import MissingToolError

_VARIABLE = "MPLCONFIGDIR"


def choose_cache() -> None:
    """Name a temporary folder in the environment where matplotlib may not write its usual one.

    source  https://matplotlib.org/stable/install/environment_variables_faq.html
    raises  MissingToolError where nothing can be written
    """
    if _VARIABLE in os.environ or _writable(_usual()):
        return
    for place in (None, "/dev/shm", "."):  # the system's temporary folder first
        try:
            folder = tempfile.mkdtemp(prefix="collscope-matplotlib-", dir=place)
        except OSError:
            continue
        os.environ[_VARIABLE] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return
    raise MissingToolError(f"matplotlib: no writable cache folder. Set {_VARIABLE} to one.")


def _usual() -> Path:
    """Where matplotlib keeps its settings on Linux."""
    above = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    return Path(above) / "matplotlib"


def _writable(folder: Path) -> bool:
    """Whether a folder can be written; it is made, as matplotlib would."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


choose_cache()
