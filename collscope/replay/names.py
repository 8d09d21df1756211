"""Operations, datatypes and reductions as people write them on a command line (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from collscope.errors import UsageError
from collscope.model import Datatype, Op, Redop, parse_op
from collscope.replay.plan import REDOPS, REPLAYED

_DATATYPES = {
    **{d.label.lower(): d for d in Datatype if d is not Datatype.UNKNOWN},
    "char": Datatype.INT8,
    "int": Datatype.INT32,
    "half": Datatype.FLOAT16,
    "float": Datatype.FLOAT32,
    "double": Datatype.FLOAT64,
    "fp16": Datatype.FLOAT16,
    "fp32": Datatype.FLOAT32,
    "fp64": Datatype.FLOAT64,
    "bf16": Datatype.BFLOAT16,
    "fp8e4m3": Datatype.FLOAT8E4M3,
    "fp8e5m2": Datatype.FLOAT8E5M2,
}
_Found = TypeVar("_Found", Datatype, Redop)
_REDOPS = {r.label.lower(): r for r in REDOPS}


def _plain(text: str) -> str:
    return text.strip().lower().replace("_", "").replace("-", "")


def op_named(text: str) -> Op:
    """Operation of a name such as `allreduce`, `all_reduce`, `AllReduce`, `bcast`.

    raises  UsageError when it is none that can be replayed
    """
    op = parse_op(_plain(text))
    if op not in REPLAYED:
        names = ", ".join(o.value.lower() for o in REPLAYED)
        raise UsageError(f"operation '{text}': cannot be replayed. Choose from {names}.")
    return op


def datatype_named(text: str) -> Datatype:
    """Datatype of a name such as `bf16`, `bfloat16`, `float`, `fp8_e4m3`.

    raises  UsageError when there is none of this name
    """
    return _named("datatype", _DATATYPES, text)


def redop_named(text: str) -> Redop:
    """Reduction of a name such as `sum`.

    raises  UsageError when there is none of this name
    """
    return _named("reduction", _REDOPS, text)


def _named(what: str, table: Mapping[str, _Found], text: str) -> _Found:
    found = table.get(_plain(text))
    if found is None:
        raise UsageError(f"{what} '{text}': unknown. Choose from {', '.join(table)}.")
    return found
