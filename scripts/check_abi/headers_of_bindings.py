"""Write C headers from AMD's Python bindings of HIP and RCCL, for `check.sh`.

    python headers_of_bindings.py FOLDER

FOLDER holds the unpacked wheels rocm-bindings-{core,hip,systems}. Their `.pxd` files declare the
functions and structures as AMD's headers do; the values of enumerations and constants come from the
compiled modules, which load no GPU library for that. FOLDER/include gets hip/hip_runtime_api.h and
rccl/rccl.h; the last line printed is the two versions.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

#     ctypedef enum ncclRedOp_t:
#     cdef struct hipIpcMemHandle_st:
#     cdef struct hipDeviceProp_t "hipDeviceProp_tR0600":
_BLOCK = re.compile(r"\s*(?:cdef|ctypedef) (enum|struct|union) (\w+)(?: \"\w+\")?:$")
#     cdef int hipStreamNonBlocking
_CONSTANT = re.compile(r"\s+cdef int (\w+)$")
#     ctypedef ncclComm * ncclComm_t
_TYPEDEF = re.compile(r"\s*ctypedef (?!enum|struct|union)(.+)$")
# cdef ncclResult_t ncclGetUniqueId(ncclUniqueId * uniqueId) except? ncclInternalError nogil
_FUNCTION = re.compile(r"cdef (.+?\w+\(.*\)) (?:except.*|noexcept.*)?nogil$")


def main() -> None:
    """Write both headers."""
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    hip, rccl = (importlib.import_module(f"rocm.bindings.{name}") for name in ("hip", "rccl"))
    for module, name, place, includes in (
        (hip, "cyhip", "hip/hip_runtime_api.h", ("<stddef.h>", "<stdint.h>")),
        (rccl, "cyrccl", "rccl/rccl.h", ("<hip/hip_runtime_api.h>",)),
    ):
        header = folder / "include" / place
        header.parent.mkdir(parents=True, exist_ok=True)
        text = (folder / "rocm" / "bindings" / f"{name}.pxd").read_text(encoding="utf-8")
        lines = ["#pragma once", *(f"#include {include}" for include in includes)]
        header.write_text("\n".join([*lines, *declarations(text, module), ""]), encoding="utf-8")
    print(
        version(hip.HIP_VERSION, 10_000_000, 100_000), version(rccl.NCCL_VERSION_CODE, 10_000, 100)
    )


def version(code: int, major: int, minor: int) -> str:
    """71526333 is HIP 7.15, 23004 is RCCL 2.30."""
    return f"{code // major}.{code % major // minor}"


def declarations(text: str, module: ModuleType) -> Iterator[str]:
    """C declarations, in the order of the file."""
    if module.__name__.endswith("rccl"):
        yield "#define NCCL_VERSION(X, Y, Z) ((X) * 10000 + (Y) * 100 + (Z))"
    lines = [
        line.partition("#")[0].rstrip().replace("_Bool", "bool").replace("bint", "bool")
        for line in text.splitlines()
    ]
    yield 'extern "C" {'
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if block := _BLOCK.match(line):
            indent = len(line) - len(line.lstrip())
            first = at
            while (
                at < len(lines) and lines[at] and len(lines[at]) - len(lines[at].lstrip()) > indent
            ):
                at += 1
            yield from _block(block[1], block[2], [m.strip() for m in lines[first:at]], module)
        elif constant := _CONSTANT.match(line):
            if isinstance(value := getattr(module, constant[1], None), int):
                yield f"#define {constant[1]} {value}"
        elif (alias := _TYPEDEF.match(line)) and alias[1] != "bool bool":
            yield f"typedef {alias[1]};"
        elif function := _FUNCTION.match(line):
            yield f"{function[1]};"
    yield "}"


def _block(kind: str, name: str, members: list[str], module: ModuleType) -> Iterator[str]:
    if kind == "enum":
        values = getattr(module, name)
        inside = ", ".join(f"{member} = {values[member].value}" for member in members)
        yield f"enum {name} {{ {inside} }};"
    elif members == ["pass"]:
        yield f"{kind} {name};"
    else:
        yield f"{kind} {name} {{ {'; '.join(members)}; }};"


if __name__ == "__main__":
    main()
