"""Values of untyped records: what is not of the expected kind is None and raises nothing."""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from collscope.model.limits import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from collscope.model import Op

_UNSIGNED = 2**64
_LONGEST_TEXT = 512
_LARGEST_LIST = 1 << 20
_DECIMAL = re.compile(r"\s*[0-9]{1,40}\s*")
_HEX = re.compile(r"\s*(?:0[xX])?([0-9a-fA-F]{1,16})\s*")
_RANKS = re.compile(r"\s*\[?([0-9,\s]*)\]?\s*")
_UNKNOWN = {"unknown", "n/a", "none"}
_DEEPEST = 64  # levels
# A text, so that brackets in it do not count, or a bracket. One that is cut reaches to the end:
# else each of its quotes would be looked at as the beginning of another one.
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_DECODER = json.JSONDecoder()


def parse_int(value: object) -> int | None:
    """Value as an integer from 0; text may hold a decimal one.

    returns  2^63 − 1 for what is larger, so that `collscope.parsers.bounds` counts it
    """
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = int(value)
    # bool is an int to Python.
    if type(value) is not int or value < 0:
        return None
    return value if value < LIMIT else LIMIT - 1


def number(value: object) -> float | None:
    """Value as a finite number from 0 on."""
    if type(value) is not int and type(value) is not float:
        return None
    return float(value) if 0 <= value < _UNSIGNED and math.isfinite(value) else None


def text(value: object) -> str | None:
    """Value as a non-empty text of at most 512 characters."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) and value else None


def communicator(value: object) -> str | None:
    """Communicator hash as ``0x…``; a number up to 2^64 − 1, or hexadecimal text.

    >>> communicator(17093776592125785438), communicator("0x7f8c496ae9f661")
    ('0xed394b3e6b8b755e', '0x7f8c496ae9f661')
    """
    if isinstance(value, str) and (match := _HEX.fullmatch(value)):
        value = int(match[1], 16)
    return f"0x{value:x}" if type(value) is int and 0 <= value < _UNSIGNED else None


def name_of(value: object) -> str | None:
    """Name of an algorithm or a protocol, upper case; None where the recorder knew none."""
    name = text(value)
    return None if name is None or name.lower() in _UNKNOWN else name.upper()


def whole_size(op: Op, part_bytes: int | None, nranks: int | None) -> int | None:
    """S of nccl-tests of what the libraries hand to a profiler: count times element size."""
    if not op.count_is_part or part_bytes is None:
        return part_bytes
    return None if nranks is None else min(part_bytes * nranks, LIMIT - 1)


def mapping(value: object) -> Mapping[object, object]:
    """Value itself if it is a dictionary, else an empty one; keys may be anything.

    No copy is made: in a hostile pickle a million places may name one large dictionary.
    """
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[object]:
    """Value itself if it is a list or a tuple of at most a million items, else an empty one."""
    return value if isinstance(value, list | tuple) and len(value) <= _LARGEST_LIST else ()


def ranks(value: object) -> tuple[int, ...]:
    """Ranks of a list or of text that holds one; empty when it is cut or something else.

    >>> ranks("[0, 1, 2, 3]"), ranks([4, 5]), ranks("[0, 1, ..., 31]")
    ((0, 1, 2, 3), (4, 5), ())
    """
    if isinstance(value, str) and len(value) < 8 * _LARGEST_LIST:
        return _listed(value)
    return _ranks(value)


@lru_cache(maxsize=64)
def _listed(value: str) -> tuple[int, ...]:
    """Ranks of a text: that of the group of all ranks is in every rank's file."""
    match = _RANKS.fullmatch(value)
    return _ranks(match[1].replace(",", " ").split() if match else ())


def _ranks(value: object) -> tuple[int, ...]:
    found = [parse_int(item) for item in sequence(value)]
    known = tuple(item for item in found if item is not None)
    return known if len(known) == len(found) else ()


def decode(source: str, start: int) -> tuple[object, int] | None:
    """The JSON value that begins at `start` and where it ends; None when it is none or is cut."""
    try:
        return _DECODER.raw_decode(source, start)
    # A number of thousands of digits is a ValueError too.
    except (ValueError, RecursionError):
        return None


def decode_document(
    source: str, start: int, shape: object | None = None
) -> tuple[object, int] | None:
    """As `decode`, faster where nothing stands behind the value.

    What msgspec refuses and the json module does not (NaN, a second value, half a surrogate) is
    left to that.
    shape  a type of msgspec for the value: what it leaves out is passed over; a value of another
           form is decoded whole
    """
    kind = object if shape is None else shape
    try:
        value = msgspec.json.decode(source[start:], type=kind)
        return value, len(source)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return decode(source, start) if shape is None else decode_document(source, start)


def without_deep(source: str) -> tuple[str, int]:
    """JSON text with ``null`` for what is nested too deep for a decoder, and how often.

    A recorder's own fields lie a few levels deep.
    """
    parts: list[str] = []
    depth, kept = 0, 0
    for found in _BRACKETS.finditer(source):
        bracket = found[0]
        if bracket in "[{":
            depth += 1
            if depth == _DEEPEST + 1:
                parts.append(source[kept : found.start()])
                kept = len(source)  # until it is closed
        elif bracket in "]}":
            if depth == _DEEPEST + 1:
                parts.append("null")
                kept = found.end()
            depth -= 1
    return "".join([*parts, source[kept:]]), len(parts) // 2


def json_objects(source: str) -> Iterator[tuple[int, Mapping[object, object] | None]]:
    """Objects of a text, each with its 1-based line; None for one that cannot be read.

    They may stand on one line each, over several lines, or in an array that nobody closed. After
    one that cannot be read, the next line is tried.
    """
    place, line, counted = 0, 1, 0
    while (place := source.find("{", place)) >= 0:
        line, counted = line + source.count("\n", counted, place), place
        found = decode(source, place)
        yield line, None if found is None else mapping(found[0])
        if found is not None:
            place = found[1]
        elif (place := source.find("\n", place)) < 0:
            return
