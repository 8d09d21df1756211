"""Element types: the one table of their codes, sizes and names."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

import msgspec


class Datatype(Enum):
    """Element type; the value is the name that is printed and stored."""

    __hash__ = object.__hash__  # as of Op

    INT8 = "Int8"
    UINT8 = "Uint8"
    INT32 = "Int32"
    UINT32 = "Uint32"
    INT64 = "Int64"
    UINT64 = "Uint64"
    FLOAT16 = "Float16"
    FLOAT32 = "Float32"
    FLOAT64 = "Float64"
    BFLOAT16 = "Bfloat16"
    FLOAT8E4M3 = "Float8e4m3"
    FLOAT8E5M2 = "Float8e5m2"
    UNKNOWN = "Unknown"

    def __str__(self) -> str:
        """The printed name."""
        return self.value

    @property
    def code(self) -> int:
        """Value in ncclDataType_t (nccl.h, rccl.h; equal on both sides); -1 when unknown."""
        return _FACTS[self].code

    @property
    def itemsize(self) -> int | None:
        """Bytes of one element; None when the type is unknown."""
        return _FACTS[self].itemsize

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The type as names of device kernels spell it."""
        return tuple(_FACTS[self].kernels.split())

    @classmethod
    def of_label(cls, label: str | None) -> Datatype | None:
        """Element type with this value; None when there is none."""
        return _BY_LABEL.get(label or "")


class _Facts(msgspec.Struct, frozen=True):
    code: int
    itemsize: int | None
    names: str = ""  # beside the label, without "nccl", "_" and "-"
    kernels: str = ""


# Sources. Codes: nccl.h. Names: its constants (ncclHalf), test_typenames of NVIDIA/nccl-tests and
# ROCm/rccl-tests src/common.cu, NCCL 1's tests. Kernels: generate.py and common.h of NVIDIA/nccl
# and ROCm/rccl.
_FACTS = {
    Datatype.INT8: _Facts(0, 1, "char", "int8_t i8 char"),
    Datatype.UINT8: _Facts(1, 1, "", "uint8_t u8"),
    Datatype.INT32: _Facts(2, 4, "int", "int32_t i32 int"),
    Datatype.UINT32: _Facts(3, 4, "", "uint32_t u32"),
    Datatype.INT64: _Facts(4, 8, "", "int64_t i64"),
    Datatype.UINT64: _Facts(5, 8, "", "uint64_t u64"),
    Datatype.FLOAT16: _Facts(6, 2, "half fp16", "half f16 __half"),
    Datatype.FLOAT32: _Facts(7, 4, "float fp32", "float f32"),
    Datatype.FLOAT64: _Facts(8, 8, "double fp64", "double f64"),
    Datatype.BFLOAT16: _Facts(
        9, 2, "bf16", "__nv_bfloat16 __hip_bfloat16 hip_bfloat16 rccl_bfloat16 bf16"
    ),
    Datatype.FLOAT8E4M3: _Facts(10, 1, "f8e4m3 fp8e4m3", "__nv_fp8_e4m3 rccl_float8 f8e4m3 f8"),
    Datatype.FLOAT8E5M2: _Facts(11, 1, "f8e5m2 fp8e5m2", "__nv_fp8_e5m2 rccl_bfloat8 f8e5m2 bf8"),
    Datatype.UNKNOWN: _Facts(-1, None),
}
_BY_LABEL = {d.value: d for d in Datatype}
_BY_CODE = {d.code: d for d in Datatype if d is not Datatype.UNKNOWN}
_BY_NAME = {
    name: d for d, facts in _FACTS.items() for name in (d.value.lower(), *facts.names.split())
}
DATATYPE_NAMES = tuple(name for name, d in _BY_NAME.items() if d is not Datatype.UNKNOWN)


def datatype_of(code: int) -> Datatype:
    """Datatype of a logged code; `Datatype.UNKNOWN` for a code no known release defines."""
    return _BY_CODE.get(code, Datatype.UNKNOWN)


@lru_cache(maxsize=1024)
def parse_datatype(name: str) -> Datatype:
    """Element type by a name of the API, a benchmark or a person; else `Datatype.UNKNOWN`.

    >>> parse_datatype("bf16"), parse_datatype("ncclHalf"), parse_datatype("fp8_e4m3")
    ... # doctest: +NORMALIZE_WHITESPACE
    (<Datatype.BFLOAT16: 'Bfloat16'>, <Datatype.FLOAT16: 'Float16'>,
     <Datatype.FLOAT8E4M3: 'Float8e4m3'>)
    """
    plain = name.strip().lower().removeprefix("nccl").replace("_", "").replace("-", "")
    return _BY_NAME.get(plain, Datatype.UNKNOWN)
