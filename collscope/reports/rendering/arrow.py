"""Rows as an Arrow stream, without a library of data frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nanoarrow as na

from collscope.reports.rendering.rows import distinct


def arrow_stream(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> object:
    """A PyCapsule with a stream of one array of structs.

    columns  names; of equal ones the later are numbered: a, a:1
    rows     values of SQLite: int, float, str, bytes, None
    """
    arrays = [_array([row[k] for row in rows]) for k in range(len(columns))]
    fields = {name: array.schema for name, array in zip(distinct(columns), arrays, strict=True)}
    c_array = na.c_array_from_buffers(
        na.struct(fields), length=len(rows), buffers=[None], null_count=0, children=arrays
    )
    return na.Array(c_array).__arrow_c_stream__()


def _array(values: list[Any]) -> Any:  # noqa: ANN401 - nanoarrow has no types
    """A column of the narrowest kind that holds all of its values."""
    kinds = {type(value) for value in values} - {type(None)}
    if not kinds:
        return na.c_array_from_buffers(
            na.null(), length=len(values), buffers=[], null_count=len(values)
        )
    if kinds == {int}:
        return na.c_array(values, na.int64())
    if kinds <= {int, float}:
        return na.c_array([None if v is None else float(v) for v in values], na.float64())
    if kinds == {bytes}:
        return na.c_array(values, na.binary())
    texts = [v if v is None or isinstance(v, str) else str(v) for v in values]
    return na.c_array(texts, na.string())
