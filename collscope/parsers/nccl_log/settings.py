"""The library's settings (environment, configuration) and versions, as it prints them."""

from __future__ import annotations

import re

from collscope.model import Fact, LibraryVersion, Setting

# NCCL 2.4: NCCL_NET_GDR_LEVEL set by environment to 5.     numbers end with a full stop
# NCCL 2.4: NCCL_ALGO set by environment to Ring            texts do not
_ENVIRONMENT = re.compile(r"([A-Z][A-Z0-9_]+) set by environment to (.+)")
_NUMBER_STOP = re.compile(r"(-?\d+)\.")
# NCCL 2.10: NCCL_SOCKET_IFNAME set to eth0
_VARIABLE = re.compile(r"([A-Z]+_[A-Z0-9_]+) set to (.+)")
# NCCL 2.30: Comm config cgaClusterSize reset to NCCL_MAX_CGA_CLUSTER_SIZE=4
_OVERRIDE = re.compile(r"Comm config .+? reset to ([A-Z][A-Z0-9_]+)=(.+)")
# NCCL 2.17: Comm config Blocking set to 1
_CONFIG = re.compile(r"Comm config (.+?) set to (.+)")
# NCCL 2.4: Invalid value 99999999999999999999 for NCCL_BUFFSIZE, using default -2.
_INVALID = re.compile(r"Invalid value .*? for (\S+), using default (-?\d+)\.")

_ORIGINS = (
    (_ENVIRONMENT, "environment"),
    (_OVERRIDE, "environment"),
    (_CONFIG, "config"),
    (_INVALID, "invalid"),
    (_VARIABLE, "environment"),
)

# NCCL 2.18, bare or after the prefix:  NCCL version 2.18.5+cuda12.2
# PyTorch's own builds of 2.10:         NCCL version 2.10.3+cudaCUDA_MAJOR.CUDA_MINOR
# RCCL to ROCm 5.7:                     RCCL version 2.11.4+hip5.2 HEAD:3a0b1c2+
# RCCL of ROCm 6:                       RCCL version : 2.22.3-HEAD:271856d
_LIBRARY = re.compile(
    r"\b(NCCL|RCCL) version(?: :)? (\d[\w.:-]*)(?:\+(?:cuda|hip)[\w.]*)?(?: (\w+:\w+\+?))?"
)
_BUILT_FOR = re.compile(r"\b[NR]CCL version(?: :)? \d[\w.:-]*\+(cuda|hip)(\d+\.\d+)")
# NCCL 2.29: NCCL git version stable dcf2a2fbe
# RCCL of ROCm 6, three of the lines after its version, never with a prefix:
#   HIP version  : 6.4.43482-0f2d60242
#   ROCm version : 6.4.0.0-47-73dae9c
#   Librccl path : /opt/rocm/lib/librccl.so.1
_COMPONENTS = (
    (re.compile(r"\bNCCL git version (.+)"), "nccl_git"),
    (re.compile(r"\bHIP version *: *(\S+)"), "hip"),
    (re.compile(r"\bROCm version *: *(\S+)"), "rocm"),
    (re.compile(r"\bLibrccl path *: *(.+)"), "librccl_path"),
)
# NCCL 2.16: cudaDriverVersion 12020       RCCL 2.22: cudaDriverVersion 60443482
_DRIVER = re.compile(r"cudaDriverVersion (\d{1,9})\b")
# RCCL of ROCm 6: Hostname     : mi325x-01
_HOSTNAME = re.compile(r"\bHostname *: *(\S+)")


def parse_setting(process: int | None, line: int, text: str) -> Setting | None:
    """Value the library uses; origin `invalid` marks the default used in place of a bad value."""
    for pattern, origin in _ORIGINS:
        if match := pattern.match(text):
            name, value = match.groups()
            if pattern is _ENVIRONMENT and (number := _NUMBER_STOP.fullmatch(value)):
                value = number[1]
            return Setting(process, line, name, value, origin)
    return None


def parse_version(process: int | None, line: int, text: str) -> LibraryVersion | Fact | None:
    """Version of the library, driver or runtime; the RCCL block's host name as a Fact.

    The commit stays in the version of RCCL, as `2.22.3-HEAD:271856d`.
    """
    if match := _LIBRARY.search(text):
        name, version, commit = match.groups()
        full = f"{version}-{commit}" if commit else version
        return LibraryVersion(process, line, name.lower(), full)
    for pattern, component in _COMPONENTS:
        if match := pattern.search(text):
            return LibraryVersion(process, line, component, match[1])
    if match := _DRIVER.search(text):
        return LibraryVersion(process, line, "driver", _driver_version(int(match[1])))
    if match := _HOSTNAME.search(text):
        return Fact(process, line, "hostname", match[1])
    return None


def parse_built_for(process: int | None, line: int, text: str) -> LibraryVersion | None:
    """Release of CUDA or HIP that the library was built for, by its own version line."""
    match = _BUILT_FOR.search(text)
    return LibraryVersion(process, line, match[1], match[2]) if match else None


def _driver_version(code: int) -> str:
    """Dotted version of cudaDriverGetVersion's 1000 * major + 10 * minor, or of HIP_VERSION's
    10^7 * major + 10^5 * minor + patch.

    >>> _driver_version(12020), _driver_version(60443482)
    ('12.2', '6.4.43482')
    """
    if code >= 10_000_000:
        return f"{code // 10_000_000}.{code // 100_000 % 100}.{code % 100_000}"
    return f"{code // 1000}.{code % 1000 // 10}"
