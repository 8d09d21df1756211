"""JSON without names: one object, one a line, or a damaged one (pure).

Only the strings and the numbers that name something change; all else stays byte for byte.
"""

from __future__ import annotations

import json
import re

from collscope.sanitize.text import Text

_TOKEN = re.compile(
    r'"((?:[^"\\]|\\.)*)"(\s*:)?|(?<![\w.])(?:0x[0-9a-fA-F]+|\d{4,20})(?![\w.])', re.DOTALL
)
_HEX = "0x"
_BEGINS = re.compile(rb'\s*(?:\{\s*(?:["}]|\{)|\[\s*[\[{"])')
_HOST = re.compile(r"(?i)(?:host|hostname|host_name|node|nodename|node_name|machine|hostnames?)")
_WHO = re.compile(
    r"(?i)(?:user|username|user_name|login|account|owner|job|jobid|job_id|job_name|uid)"
)
_PATH = re.compile(r"(?i).*(?:path|file|filename|dir|cwd|folder|tracename|command|exe|argv|args)")
# Whole numbers of 13 digits and more that are no names.
_MEASURED = re.compile(
    r"(?i).*(?:time|stamp|start|stop|begin|end|clk|clock|dur|bytes|size|count|mem|alloc|flop|nelem|"
    r"total|sum|min|max|avg|mean|average)|ts|(?:.*[_\s])?[tnum]s|.*[a-z](?:Ns|Us|Ms|Ts)"
)
_MEASURED_PART = re.compile(
    r"(?i)time|stamp|start|stop|begin|clk|clock|duration|bytes|size|count|memory|alloc|flop|nelem|total"
)
_BIG_DIGITS = 13


def is_document(head: bytes) -> bool:
    """Whether a file that begins so is JSON.

    >>> is_document(b'{"a": 1}'), is_document(b'[0] NCCL INFO')
    (True, False)
    """
    return _BEGINS.match(head) is not None


class Document:
    """Replaces names in JSON."""

    def __init__(self, text: Text, kernels: frozenset[str] = frozenset()) -> None:
        """`kernels` are strings that stay: names of kernels and copies."""
        self._text = text
        self._kernels = kernels
        self._key = ""
        self._cache: dict[tuple[str, str], str] = {}

    def __call__(self, document: str) -> str:
        """The document with its names replaced."""
        self._key = ""
        return _TOKEN.sub(self._replaced, document)

    def values(self, value: object, key: str = "") -> object:
        """Plain values, as of a pickle, with other names; `key` is what they stand under."""
        if isinstance(value, dict):
            new = ((self.values(k), self.values(v, k)) for k, v in value.items())
            return dict(new)
        if isinstance(value, list):
            return [self.values(one, key) for one in value]
        if isinstance(value, tuple):
            return tuple(self.values(one, key) for one in value)
        if isinstance(value, bytes):
            return self._value(key, value.decode("utf-8", "replace")).encode()
        if isinstance(value, str):
            return self._value(key, value)
        return self._integer(key, value) if type(value) is int else value

    def _integer(self, key: str, value: int) -> int:
        self._key = key
        new = int(self._number(str(abs(value))))
        return new if value > 0 else -new

    def _replaced(self, found: re.Match[str]) -> str:
        body, colon = found[1], found[2]
        if body is None:
            return self._number(found[0])
        key = "" if colon is not None else self._key
        if colon is not None:
            self._key = body
        known = self._cache.get((key, body))
        if known is None:
            known = self._cache[key, body] = self._string(key, body)
        return f'"{known}"{colon or ""}'

    def _number(self, digits: str) -> str:
        if digits.startswith(_HEX):
            return self._text(digits)
        if _WHO.fullmatch(self._key):
            return self._text.number(digits)
        if len(digits) < _BIG_DIGITS:
            return digits
        measured = _MEASURED.fullmatch(self._key) or _MEASURED_PART.search(self._key)
        return digits if measured or int(digits) >= 1 << 64 else self._text.number(digits)

    def _string(self, key: str, body: str) -> str:
        """What stands between the quotes, by the key in front of it; empty for a key itself."""
        if not body:
            return body
        value = _decoded(body)
        if value in self._kernels and not _is_place(value):
            return body
        new = self._value(key, value)
        return body if new == value else json.dumps(new, ensure_ascii=body.isascii())[1:-1]

    def _value(self, key: str, value: str) -> str:
        text = self._text
        if value.isdecimal() and key:
            before, self._key = self._key, key
            new = self._number(value)
            self._key = before
            return new
        if _HOST.fullmatch(key):
            return text.host(value)
        if _WHO.fullmatch(key):
            return " ".join(text.host(word) for word in value.split(" "))
        if _PATH.fullmatch(key) and "/" in value and " " not in value:
            return text.path(value)
        return text(value)


def _is_place(name: str) -> bool:
    """Whether what a reader takes for a kernel's name holds the path of a source."""
    return "/" in name and ".py" in name


def _decoded(body: str) -> str:
    if "\\" not in body:
        return body
    try:
        value = json.loads(f'"{body}"', strict=False)
    except json.JSONDecodeError:
        return body
    return str(value)
