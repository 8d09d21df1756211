"""Whether two reports differ in names alone: one name for each, everywhere the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

# What is numbered in the order of names, among equals; and paths, whose words are all replaced.
_PASSED = ("class_id", "comm_id", "parent_id", "source")
_NUMBERED = re.compile(r'"(?:class|comm|parent)_id": \d+|"source": "[^"]*"|0x[0-9a-f]+')
_HEXADECIMAL = re.compile(r"0x[0-9a-f]+|\b(?=[a-f]*\d)[0-9a-f]{5,}\b")
_WORDS = re.compile(r"[^\W\d_]{3,}")


def differences(before: object, after: object) -> list[str]:
    """Where the second report differs from the first in more than names; empty where nowhere."""
    leaves = list(_pairs(before, after, "$"))
    wrong = [f"{at}: {a!r} became {b!r}" for at, a, b in leaves if not _alike(a, b)]
    new: dict[str, str] = {}
    old: dict[str, str] = {}
    for at, a, b in leaves:
        if isinstance(a, str) and isinstance(b, str):
            for x, y in _parts(a, b):
                if new.setdefault(x, y) != y and old.get(y) is not None:
                    wrong.append(f"{at}: {x!r} is {new[x]!r} and {y!r}")
                if old.setdefault(y, x) != x and x != y and len(x) > 3:
                    wrong.append(f"{at}: {old[y]!r} and {x!r} both became {y!r}")
    return wrong


def _pairs(a: object, b: object, at: str) -> Iterator[tuple[str, object, object]]:
    if isinstance(a, dict) and isinstance(b, dict) and len(a) == len(b):
        for (key, x), (other, y) in zip(a.items(), b.items(), strict=True):
            if key == other and key in _PASSED:
                continue
            yield f"{at}.{key}", key, other
            yield from _pairs(x, y, f"{at}.{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = [(x, y) for k, (x, y) in enumerate(zip(a, b, strict=True))]
        if not all(_alike(x, y) for p in pairs for _, x, y in _pairs(*p, at)):
            # In the order of names: then in that of all else.
            pairs = list(zip(sorted(a, key=_nameless), sorted(b, key=_nameless), strict=True))
        for k, (x, y) in enumerate(pairs):
            yield from _pairs(x, y, f"{at}[{k}]")
    else:
        yield at, a, b


def _words(text: str) -> list[str]:
    return _WORDS.findall(_HEXADECIMAL.sub("", text))


def _nameless(value: object) -> str:
    return _WORDS.sub("", _NUMBERED.sub("", json.dumps(value)))


def _alike(a: object, b: object) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        return len(_words(a)) == len(_words(b))
    return a == b


def _parts(a: str, b: str) -> Iterator[tuple[str, str]]:
    words, others = _words(a), _words(b)
    if len(words) == len(others):
        yield from zip(words, others, strict=True)
