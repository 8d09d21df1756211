"""Counted problems of one source, and what tables of comma-separated values have in common."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from msgspec.structs import replace

from collscope.model import Diagnostic, Severity

CUT_TEXT = "The last line has no line end, so it may be cut: its last value was left out."
_EXCERPT = 200


class Notes:
    """Diagnostics by code: the first of a code keeps its line and excerpt, the rest are counted."""

    def __init__(self) -> None:
        """Start without a problem."""
        self._found: dict[str, Diagnostic] = {}

    def add(
        self,
        severity: Severity,
        code: str,
        message: str,
        line: int | None,
        excerpt: str | None = None,
        *,
        count: int = 1,
    ) -> None:
        """Count so many problems of a kind, the first of them at a 1-based line; 0 is none."""
        known = self._found.get(code)
        if known is not None:
            self._found[code] = replace(known, count=known.count + count)
        elif count:
            cut = None if excerpt is None else excerpt[:_EXCERPT]
            self._found[code] = Diagnostic(severity, code, message, line, cut, count)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All of them, in the order in which their codes were first seen."""
        return tuple(self._found.values())


def ended_lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Lines of a text, numbered from 1, and whether each has its line end.

    A writer that was stopped leaves a last line without one. Its last number may have lost digits
    and look whole.
    """
    *ended, rest = text.split("\n")
    for number, line in enumerate(ended, start=1):
        yield number, line.rstrip("\r"), True
    if rest:
        yield len(ended) + 1, rest.rstrip("\r"), False


def cells(line: str) -> list[str]:
    """Fields of one line without the blanks around them; none when it is not CSV.

    >>> cells('3, AllReduce, "a, b"')
    ['3', 'AllReduce', 'a, b']
    """
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []
