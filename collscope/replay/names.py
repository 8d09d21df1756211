"""Operations, datatypes and reductions as people write them on a command line (pure)."""

from __future__ import annotations

from collscope.errors import UsageError
from collscope.model import (
    DATATYPE_NAMES,
    Datatype,
    Op,
    Redop,
    parse_datatype,
    parse_op,
    parse_redop,
)
from collscope.replay.plan import REDOPS, REPLAYED


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
    datatype = parse_datatype(text)
    if datatype is Datatype.UNKNOWN:
        names = ", ".join(DATATYPE_NAMES)
        raise UsageError(f"datatype '{text}': unknown. Choose from {names}.")
    return datatype


def redop_named(text: str) -> Redop:
    """Reduction of a name such as `sum`.

    raises  UsageError when there is none of this name
    """
    redop = parse_redop(text)
    if redop not in REDOPS:
        names = ", ".join(r.value.lower() for r in REDOPS)
        raise UsageError(f"reduction '{text}': unknown. Choose from {names}.")
    return redop
