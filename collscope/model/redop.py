"""Reductions."""

from __future__ import annotations

from enum import Enum


class Redop(Enum):
    """Reduction; `code` is ncclRedOp_t's value (note 2 is Max and 3 is Min)."""

    label: str
    code: int

    SUM = ("Sum", 0)
    PROD = ("Prod", 1)
    MAX = ("Max", 2)
    MIN = ("Min", 3)
    AVG = ("Avg", 4)
    CUSTOM = ("Custom", 5)

    def __init__(self, label: str, code: int) -> None:
        """Name printed and stored, value in the library's enumeration."""
        self.label = label
        self.code = code  # from 5 on every value is a custom operator


def redop_of(code: int) -> Redop:
    """Reduction of a logged code; 5 and above are created at run time (PreMulSum): Custom."""
    return next((r for r in Redop if r.code == code), Redop.CUSTOM)
