"""The vendors of GPUs that collscope knows: one row each.

native/replayer/gpu/vendors.h has the same rows for the replayer; a test holds them equal.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import msgspec


class Backend(str, Enum):
    """What a replay runs on: a vendor's GPUs, or this host's memory."""

    AUTO = "auto"
    CUDA = "cuda"
    HIP = "hip"
    HOST = "host"


class Library(msgspec.Struct, frozen=True):
    """A shared library of a GPU vendor and how to ask it for its version."""

    name: str
    sonames: tuple[str, ...]  # newest first
    version_symbol: str  # int f(int *version), 0 on success
    version: Callable[[int], str]  # of the integer that it gives
    count_symbol: str | None  # int f(int *devices), for runtimes
    fix: str

    @property
    def stem(self) -> str:
        """File name before ``.so``."""
        return self.sonames[0].split(".so")[0]

    @property
    def devices(self) -> str:
        """What a runtime's GPUs are called."""
        return self.name.replace("runtime", "devices")


class Vendor(msgspec.Struct, frozen=True):
    """The two libraries of a vendor's GPUs."""

    backend: Backend
    collectives: Library
    runtime: Library


def nccl_version(code: int) -> str:
    """NCCL_VERSION of nccl.h and rccl.h: 10000 * major since 2.9, 1000 * major before.

    >>> nccl_version(22809), nccl_version(2708)
    ('2.28.9', '2.7.8')
    """
    major = 10_000 if code >= 10_000 else 1000
    return f"{code // major}.{code % major // 100}.{code % 100}"


def cuda_version(code: int) -> str:
    """CUDART_VERSION of cuda_runtime_api.h.

    >>> cuda_version(12090)
    '12.9'
    """
    return f"{code // 1000}.{code % 1000 // 10}"


def hip_version(code: int) -> str:
    """HIP_VERSION of hip_version.h.

    >>> hip_version(50221153)
    '5.2.21153'
    """
    return f"{code // 10_000_000}.{code % 10_000_000 // 100_000}.{code % 100_000}"


VENDORS = (
    Vendor(
        Backend.HIP,
        Library(
            "RCCL",
            ("librccl.so.1",),
            "ncclGetVersion",
            nccl_version,
            None,
            "module load rocm, or: apt install rccl (from AMD's ROCm repository)",
        ),
        Library(
            "HIP runtime",
            ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"),
            "hipRuntimeGetVersion",
            hip_version,
            "hipGetDeviceCount",
            "module load rocm, or: apt install libamdhip64-dev",
        ),
    ),
    Vendor(
        Backend.CUDA,
        Library(
            "NCCL",
            ("libnccl.so.2",),
            "ncclGetVersion",
            nccl_version,
            None,
            "module load nccl, or: pip install nvidia-nccl-cu12",
        ),
        Library(
            "CUDA runtime",
            ("libcudart.so.13", "libcudart.so.12"),
            "cudaRuntimeGetVersion",
            cuda_version,
            "cudaGetDeviceCount",
            "module load cuda, or: pip install nvidia-cuda-runtime-cu12",
        ),
    ),
)
# Collective libraries first, as doctor lists them.
LIBRARIES = (*(v.collectives for v in VENDORS), *(v.runtime for v in VENDORS))
