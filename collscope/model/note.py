"""A remark on an answer: a code and values for programs, a sentence for people."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec.structs import asdict

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # where a word of a type's name begins


class Note(msgspec.Struct, frozen=True):
    """A remark: what it is, the values in it, and its sentence."""

    code: str  # stable snake_case name
    values: dict[str, Any]
    text: str


def noted(record: msgspec.Struct, text: str) -> Note:
    """A remark that an answer has as a record of its own kind: the kind is its code.

    >>> Lost = msgspec.defstruct("CallsLost", [("calls", int)])
    >>> noted(Lost(3), "3 calls are lost")
    Note(code='calls_lost', values={'calls': 3}, text='3 calls are lost')
    """
    return Note(_WORD.sub("_", type(record).__name__).lower(), asdict(record), text)
