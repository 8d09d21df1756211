"""Shared libraries of the GPU vendors: where they are, their versions, how many GPUs they see.

`probe` opens a library and calls it, so it belongs into a child process: a broken one can crash.
"""

from __future__ import annotations

import ctypes
import json
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library of a GPU vendor and how to ask it for its version."""

    name: str
    sonames: tuple[str, ...]  # newest first
    version_symbol: str  # int f(int *version), 0 on success
    count_symbol: str | None  # int f(int *devices), for runtimes
    fix: str

    @property
    def stem(self) -> str:
        """File name before ``.so``."""
        return self.sonames[0].split(".so")[0]


LIBRARIES = (
    Library(
        "RCCL",
        ("librccl.so.1",),
        "ncclGetVersion",
        None,
        "module load rocm, or: apt install rccl (from AMD's ROCm repository)",
    ),
    Library(
        "NCCL",
        ("libnccl.so.2",),
        "ncclGetVersion",
        None,
        "module load nccl, or: pip install nvidia-nccl-cu12",
    ),
    Library(
        "HIP runtime",
        ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"),
        "hipRuntimeGetVersion",
        "hipGetDeviceCount",
        "module load rocm, or: apt install libamdhip64-dev",
    ),
    Library(
        "CUDA runtime",
        ("libcudart.so.13", "libcudart.so.12"),
        "cudaRuntimeGetVersion",
        "cudaGetDeviceCount",
        "module load cuda, or: pip install nvidia-cuda-runtime-cu12",
    ),
)


def probe(name: str) -> str:
    """Open a library of `LIBRARIES` and ask it, as JSON. For a child process: it may crash.

    returns path (None: nothing could be opened), reason, version, status and devices
    """
    library = next(known for known in LIBRARIES if known.name == name)
    reason = f"none of {', '.join(library.sonames)} found"
    for candidate in _candidates(library):
        try:
            handle = ctypes.CDLL(candidate)
        except OSError as error:
            # A file that exists and does not load says more than a name that is not there.
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
    for folder in (*sorted(site.glob("nvidia/*/lib")), site / "torch/lib", rocm / "lib"):
        yield from map(str, sorted(folder.glob(f"{library.stem}.so*"), reverse=True))


def _ask(handle: ctypes.CDLL, library: Library) -> dict[str, str | int | None]:
    """Version and, for a runtime, the status and result of counting devices."""
    version = ctypes.c_int(0)
    status = getattr(handle, library.version_symbol)(ctypes.byref(version))
    text = format_version(library.version_symbol, version.value) if status == 0 else "?"
    if library.count_symbol is None:
        return {"version": text}
    # CUDA leaves the count alone when it fails, so it has to start at 0.
    devices = ctypes.c_int(0)
    status = getattr(handle, library.count_symbol)(ctypes.byref(devices))
    return {"version": text, "status": status, "devices": devices.value}


def format_version(symbol: str, code: int) -> str:
    """Version that a library's integer stands for.

    source  NCCL_VERSION in nccl.h and rccl.h (10000 * major since 2.9, 1000 * major before),
            CUDART_VERSION in cuda_runtime_api.h, HIP_VERSION in hip_version.h

    >>> format_version("ncclGetVersion", 22809), format_version("hipRuntimeGetVersion", 50221153)
    ('2.28.9', '5.2.21153')
    """
    if symbol == "ncclGetVersion":
        major = 10_000 if code >= 10_000 else 1000
        return f"{code // major}.{code % major // 100}.{code % 100}"
    if symbol == "cudaRuntimeGetVersion":
        return f"{code // 1000}.{code % 1000 // 10}"
    return f"{code // 10_000_000}.{code % 10_000_000 // 100_000}.{code % 100_000}"


def _mapped_path(stem: str) -> str | None:
    """File that the loader mapped for a library into this process; None where it cannot tell."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    paths = (line.split(maxsplit=5)[-1] for line in maps.splitlines())
    return next((path for path in paths if Path(path).name.startswith(f"{stem}.so")), None)
