"""Kinds of link, and which part of their line rate the libraries leave to data.

An efficiency belongs to a kind of link and a protocol, never to a system: two systems with the
same links share it. The table with its sources is links.toml.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import msgspec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TABLE = Path(__file__).parent / "links.toml"


class Usable(msgspec.Struct, frozen=True):
    """The part of a line rate that data can use: large messages, Simple protocol.

    value      most likely; low, high: range of what machines with such links reach
    source     of the value
    evidence   of the range
    assumed    True where nobody measured the value on this kind of link
    hop_us     what a step over such a network takes beyond one over InfiniBand; from 0 to twice
    fill_us    what filling the pipeline over it takes beyond InfiniBand; from 0 to twice
    """

    value: float
    low: float
    high: float
    source: str
    evidence: str = ""
    assumed: bool = False
    hop_us: float = 0.0
    fill_us: float = 0.0


@cache
def link_kinds() -> dict[str, Usable]:
    """The kinds of link by name."""
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return {
        name: Usable(
            row["usable"], row["low"], row["high"], row["source"], row["evidence"],
            row.get("assumed", False), row.get("hop_us", 0.0), row.get("fill_us", 0.0),
        )
        for name, row in table.items()
    }  # fmt: skip
