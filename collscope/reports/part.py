"""A section of the report that has data of its own: one class, and one field of `Report`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collscope.reports.layout import Section


class Part:
    """What a part of the report holds, how it is read, and what it says.

    A subclass is a record (`class X(msgspec.Struct, Part, frozen=True)`): its fields are what JSON
    and its schema have. A field of `Report` with that type is all that the report needs to read,
    show and write it.
    """

    __slots__ = ()

    @classmethod
    def read(cls, connection: sqlite3.Connection, run: str) -> Part:
        """The part of a run, out of the store's views."""
        raise NotImplementedError

    def sections(self) -> Iterable[Section]:
        """What readable forms show of it; none where it holds nothing."""
        raise NotImplementedError
