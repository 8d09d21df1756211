"""The parsers, one per source dialect, and which of them reads a file.

A new dialect is one module here and one line in a registry below. Modules are imported when
asked for, so that a command loads only the parser it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType

# Each offers sniff_tables(set of table and view names) -> bool and parse(connection) -> Profile.
SQLITE_DIALECTS = ("rocpd", "rpd", "nsys")
# Each offers sniff_text(head) -> bool and parse(text) -> Profile.
TEXT_DIALECTS = ("rocprof_csv", "key_averages", "top_text")


def sqlite_parser(tables: set[str]) -> ModuleType | None:
    """Parser of an SQLite profile that has these tables; None if no dialect fits."""
    return _first(SQLITE_DIALECTS, lambda module: module.sniff_tables(tables))


def text_parser(head: str) -> ModuleType | None:
    """Parser of a text profile that begins so; None if no dialect fits."""
    return _first(TEXT_DIALECTS, lambda module: module.sniff_text(head))


def _first(names: Sequence[str], accepts: Callable[[ModuleType], bool]) -> ModuleType | None:
    modules = (import_module(f"collscope.parsers.{name}") for name in names)
    return next((module for module in modules if accepts(module)), None)
