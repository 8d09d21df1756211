"""A class of calls in words."""

from __future__ import annotations

from collscope.analysis.classes import ClassRow
from collscope.units import count, format_size


def class_words(row: ClassRow) -> str:
    """A class in a sentence."""
    what = row.op
    if row.count is not None and row.datatype is not None:
        what += f" of {row.count} {row.datatype} ({format_size(row.size_bytes)})"
    elif row.size_bytes is not None:
        what += f" of {format_size(row.size_bytes)}"
    else:
        what += ", size not known,"
    return f"{what} on {count(row.nranks, 'rank')}"
