"""Element types."""

from __future__ import annotations

from enum import Enum


class Datatype(Enum):
    """Element type; `code` is ncclDataType_t's value (nccl.h, rccl.h; equal on both sides)."""

    label: str
    code: int
    itemsize: int | None

    INT8 = ("Int8", 0, 1)
    UINT8 = ("Uint8", 1, 1)
    INT32 = ("Int32", 2, 4)
    UINT32 = ("Uint32", 3, 4)
    INT64 = ("Int64", 4, 8)
    UINT64 = ("Uint64", 5, 8)
    FLOAT16 = ("Float16", 6, 2)
    FLOAT32 = ("Float32", 7, 4)
    FLOAT64 = ("Float64", 8, 8)
    BFLOAT16 = ("Bfloat16", 9, 2)
    FLOAT8E4M3 = ("Float8e4m3", 10, 1)
    FLOAT8E5M2 = ("Float8e5m2", 11, 1)
    UNKNOWN = ("Unknown", -1, None)

    def __init__(self, label: str, code: int, itemsize: int | None) -> None:
        """Name printed and stored, value in the library's enumeration, bytes of one element."""
        self.label = label
        self.code = code
        self.itemsize = itemsize  # None when the type is unknown


DATATYPE_BY_CODE = {d.code: d for d in Datatype if d is not Datatype.UNKNOWN}


def datatype_of(code: int) -> Datatype:
    """Datatype of a logged code; `Datatype.UNKNOWN` for a code no known release defines."""
    return DATATYPE_BY_CODE.get(code, Datatype.UNKNOWN)
