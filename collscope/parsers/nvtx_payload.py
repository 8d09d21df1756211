"""Binary payloads of NVTX events, decoded by the schemas in the same file.

Entry types and rules of alignment: nvToolsExtPayload.h (NVIDIA/NVTX, Apache-2.0 with LLVM
exceptions). In SQLite files of Nsight Systems a payload is in ``NVTX_EVENTS.binaryData`` behind
a head of four 64-bit words, which no document describes. Two public readers of real files agree on
three: domain, schema, bytes of the payload; the fourth they take for the place of the payload (32)
or for the size of the whole. Either is accepted, since both put the payload behind the head.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HEAD = struct.Struct("<4Q")
# NVTX_PAYLOAD_ENTRY_TYPE_*: C types as on 64-bit Linux, little-endian as all machines of Nsight
# Systems. Strings, handles, unions and numbers without a format of `struct` are absent.
_FORMATS = {
    1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "q", 8: "Q", 9: "q", 10: "Q",
    11: "b", 12: "B", 13: "h", 14: "H", 15: "i", 16: "I", 17: "q", 18: "Q", 19: "f", 20: "d",
    22: "Q", 23: "Q", 32: "B", 42: "e", 43: "f", 44: "d", 68: "I", 69: "I", 70: "Q", 73: "I",
    74: "Q",
}  # fmt: skip
_ENUM_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Entry(msgspec.Struct, frozen=True):
    """One row of NVTX_PAYLOAD_SCHEMA_ENTRIES, as the file has it."""

    index: object
    flags: object
    type: object
    name: object
    offset: object


class Enum(msgspec.Struct, frozen=True):
    """An enumeration that was registered: bytes of a value, and names by value."""

    size: int
    names: Mapping[int, str]


class Field(msgspec.Struct, frozen=True):
    """A value of a payload."""

    name: str
    offset: int  # bytes
    format: str  # of `struct`, one value
    enum: Enum | None = None


Value = int | float | str


def fields_of(entries: Iterable[Entry], enums: Mapping[object, Enum]) -> tuple[Field, ...]:
    """Fields of a schema that are single numbers.

    An offset that is missing or 0 behind the first entry means the next aligned place; behind an
    entry of unknown size that is not known, so such fields are left out, too.
    """
    found: list[Field] = []
    end: int | None = 0
    for entry in sorted(entries, key=lambda e: _int(e.index)):
        enum = enums.get(entry.type)
        form = _FORMATS.get(_int(entry.type)) if enum is None else _ENUM_FORMATS.get(enum.size)
        size = struct.calcsize(form or "0s")
        start = _int(entry.offset) if entry.offset else None
        if start is None and end is not None and form:
            start = -(-end // size) * size
        if form is None or start is None or start < 0 or entry.flags not in (None, 0):
            end = None
            continue
        end = start + size
        if isinstance(entry.name, str):
            found.append(Field(entry.name, start, form, enum))
    return tuple(found)


def payload_of(blob: object) -> tuple[int, bytes] | None:
    """Schema and payload of the bytes of an event; None where they are not one whole payload."""
    if not isinstance(blob, bytes) or len(blob) < _HEAD.size:
        return None
    _domain, schema, size, last = _HEAD.unpack_from(blob)
    complete = _HEAD.size + size == len(blob) and last in (_HEAD.size, len(blob))
    return (schema, blob[_HEAD.size :]) if complete else None


def decode(payload: bytes, fields: Iterable[Field]) -> dict[str, Value] | None:
    """Values by name; an enumeration's is its name where it has one. None: the payload is short."""
    values: dict[str, Value] = {}
    for field in fields:
        if field.offset + struct.calcsize(field.format) > len(payload):
            return None
        (value,) = struct.unpack_from("<" + field.format, payload, field.offset)
        values[field.name] = value if field.enum is None else field.enum.names.get(value, value)
    return values


def _int(value: object) -> int:
    return value if isinstance(value, int) else -1
