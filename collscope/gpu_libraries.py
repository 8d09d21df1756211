"""What this machine has of the GPU vendors' libraries: paths, versions, number of GPUs.

`probe` opens a library and calls it, so it belongs into a child process: a broken one can crash.
"""

from __future__ import annotations

import ctypes
import json
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from collscope.gpu_vendors import LIBRARIES, Library


def probe(name: str) -> str:
    """Open a library of `LIBRARIES` and ask it, as JSON. For a child process: it may crash.

    returns path (None: nothing could be opened), reason, version, status and devices
    """
    library = next(known for known in LIBRARIES if known.name == name)
    reason = f"not found: {' or '.join(library.sonames)}"
    for candidate in _candidates(library):
        try:
            handle = ctypes.CDLL(candidate)
        except OSError as error:
            # A file that exists but does not load has a more useful error than a missing name.
            if os.sep in candidate or "cannot open shared object file" not in str(error):
                reason = str(error)
            continue
        answer = {"path": _mapped_path(library.stem) or candidate}
        return json.dumps({**answer, **_ask(handle, library)})
    return json.dumps({"path": None, "reason": reason})


def _candidates(library: Library) -> Iterator[str]:
    """Names for the loader first, then files of Python wheels and of a ROCm installation."""
    yield from library.sonames
    site = Path(sysconfig.get_path("purelib"))
    rocm = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
    wheels = (f for kind in ("nvidia/*", "_rocm_sdk_*") for f in sorted(site.glob(f"{kind}/lib")))
    for folder in (*wheels, site / "torch/lib", rocm / "lib"):
        yield from map(str, sorted(folder.glob(f"{library.stem}.so*"), reverse=True))


def _ask(handle: ctypes.CDLL, library: Library) -> dict[str, str | int | None]:
    """Version and, for a runtime, the status and result of counting devices."""
    version = ctypes.c_int(0)
    status = getattr(handle, library.version_symbol)(ctypes.byref(version))
    text = library.version(version.value) if status == 0 else "?"
    if library.count_symbol is None:
        return {"version": text}
    # CUDA leaves the count alone when it fails, so it has to start at 0.
    devices = ctypes.c_int(0)
    status = getattr(handle, library.count_symbol)(ctypes.byref(devices))
    return {"version": text, "status": status, "devices": devices.value}


def _mapped_path(stem: str) -> str | None:
    """File that the loader mapped for a library into this process; None where it is unknown."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    paths = (line.split(maxsplit=5)[-1] for line in maps.splitlines())
    return next((path for path in paths if Path(path).name.startswith(f"{stem}.so")), None)
