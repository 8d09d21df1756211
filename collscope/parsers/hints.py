"""What is known of a file that the file itself does not say."""

from __future__ import annotations

import msgspec

from collscope.errors import UsageError
from collscope.model import Datatype, Op, parse_datatype, parse_op
from collscope.parsers._names import op_of_text


class TableHints(msgspec.Struct, frozen=True):
    """The user's facts about a table that lacks them. None: unknown."""

    op: Op | None = None
    nranks: int | None = None
    nnodes: int | None = None
    datatype: Datatype | None = None
    label: str | None = None
    name: str = ""  # of the file, which often names the operation


class MetricHints(msgspec.Struct, frozen=True):
    """The user's facts about figures that lack them. None: unknown."""

    name: str | None = None
    unit: str | None = None
    label: str | None = None


class Hints(msgspec.Struct, frozen=True):
    """All hints; each reader takes its own."""

    table: TableHints = TableHints()
    metric: MetricHints = MetricHints()
    nranks: int | None = None  # of an rccl_replayer CSV


def table_hints(
    op: str | None,
    nranks: int | None,
    nnodes: int | None,
    datatype: str | None,
    label: str | None,
) -> TableHints:
    """Hints from a user's words.

    raises  UsageError for an operation or a datatype that is not known
    """
    known_op = None if op is None else op_of_text(op) or parse_op(op)
    if known_op is Op.UNKNOWN:
        names = ", ".join(o.value for o in Op if o is not Op.UNKNOWN)
        raise UsageError(f"--op {op}: not an operation. Choose one of {names}.")
    known_type = None if datatype is None else parse_datatype(datatype)
    if known_type is Datatype.UNKNOWN:
        names = ", ".join(d.value for d in Datatype if d is not Datatype.UNKNOWN)
        raise UsageError(f"--datatype {datatype}: not an element type. Choose one of {names}.")
    return TableHints(known_op, nranks, nnodes, known_type, label)
