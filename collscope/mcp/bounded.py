"""JSON documents in a bounded number of characters (pure)."""

from __future__ import annotations

import json
from typing import Any

MAX_CHARACTERS = 40_000
"""Of an answer. Source: a choice, some 10 000 tokens, a small part of a model's context."""

_LIST_ENTRIES = 64  # of a list, at first


def shorten(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """A document with its lists cut so that it fits, and how many entries each list lost.

    The longest prefix of 64, 32, …, 1, 0 entries is kept; lists of answers begin with what matters
    most. Keys of the second are JSON pointers.
    """
    left_out: dict[str, int] = {}
    if _size(document) <= MAX_CHARACTERS:
        return document, left_out
    shown, entries = document, _LIST_ENTRIES
    while _size(shown) > MAX_CHARACTERS and entries >= 0:
        left_out = {}
        shown = _cut(document, entries, "", left_out)
        entries = entries // 2 if entries else -1
    return shown, left_out


def _size(document: object) -> int:
    return len(json.dumps(document, ensure_ascii=False))


def _cut(value: Any, entries: int, path: str, left_out: dict[str, int]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {k: _cut(v, entries, f"{path}/{k}", left_out) for k, v in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) > entries:
        left_out[path] = len(value) - entries
    return [_cut(v, entries, f"{path}/{k}", left_out) for k, v in enumerate(value[:entries])]


def clip(text: str) -> str:
    """A text, cut at the end of a line where it is too long."""
    if len(text) <= MAX_CHARACTERS:
        return text
    kept = text[:MAX_CHARACTERS].rsplit("\n", 1)[0]
    return f"{kept}\n… {len(text) - len(kept)} more characters: ask for less, or use sql."
