"""What a kernel's name alone shows about a collective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.model import Datatype, Op
from collscope.model.trace import TraceCollective

if TYPE_CHECKING:
    from collscope.kernel_names import KernelName


def from_name(hints: KernelName | None) -> TraceCollective:
    """What a kernel's name alone shows: the operation, and the type where it is reduced.

    The name's algorithm, protocol and reduction are those of the specialised kernel that NCCL
    starts for many functions, so they are left out (best_kernel of NCCL's generate.py).
    """
    op = Op.UNKNOWN if hints is None or hints.op_hint is None else Op(hints.op_hint)
    return TraceCollective(op, None if hints is None else Datatype.of_label(hints.datatype_hint))
