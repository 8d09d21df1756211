"""Text without names: each token of it is known, or replaced (pure).

A token is what a pattern of `tokens` finds, the first that fits. Numbers, times and sizes stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable

from collscope.sanitize.names import Names
from collscope.sanitize.tokens import (
    ADDRESS,
    ENDINGS,
    HEX,
    HEX_LIKE,
    HOST_POSITION,
    KEPT_SIGNS,
    LABELS,
    LIBRARY_SETTING,
    LINE_HOST,
    MOST_HEX,
    NUMERIC,
    PATTERNS,
    PROFILED,
    PROGRAM,
    RANK,
    RANKED,
    SEPARATE,
    STANDARD_FOLDERS,
    TOKEN,
    VALUE,
    WORD,
)
from collscope.sanitize.words import begins_word, is_kept

_CACHED = 1 << 18  # tokens


class Text:
    """Replaces names in texts; equal names of all texts become equal ones."""

    def __init__(self, names: Names, kept: Iterable[str] = ()) -> None:
        """`kept` are phrases that stay where all of it stands: the kernels' names of a profile."""
        self.names = names
        self._processes: set[tuple[str, str]] = set()
        self._hosts: set[str] = set()
        self._cache: dict[str, str] = {}
        tokens = "|".join(f"(?P<{k}>{v})" for k, v in PATTERNS.items() if k not in SEPARATE)
        host, *others = (PATTERNS[kind] for kind in SEPARATE)
        pattern = TOKEN.format(host, tokens, *others)
        phrases = sorted(set(kept), key=len, reverse=True)
        if phrases:
            escaped = "|".join(map(re.escape, phrases))
            pattern = rf"(?<!\w)(?P<kept>{escaped})(?!\w)|{pattern}"
        self._tokens = re.compile(pattern)
        self._of: dict[str, Callable[[str], str]] = {
            "host": self._host_behind, "url": self._url, "mac": self._digits, "uuid": self._digits,
            "guid": self._digits, "ipv6": self.address, "at": self._at, "ipv4": self.address,
            "buffer": self._buffer, "upper": self._upper, "hex": self._hex,
            "setting": self._setting, "number_of": self._trailing_number,
            "identity": self._trailing_number, "path": self.path, "word": self.word,
            "other": self._other,
        }  # fmt: skip

    def __call__(self, text: str) -> str:
        """The text with its names replaced."""
        return self._tokens.sub(self._replaced, text)

    def line(self, text: str) -> str:
        """Lines of a log or a table, in whose middle another line may begin."""
        new = set(LINE_HOST.findall(text)) - self._processes
        if new:
            self._processes |= new
            self._hosts = {host for host, pid in self._processes if not self._runs_on(host, pid)}
            self._cache.clear()
        text = HOST_POSITION.sub(lambda found: found[1] + "\0" + found[2] + "\0", text)
        if "\0" not in text:
            return self(text)
        parts = re.split(r"\0([\w.-]+)\0(?=\s+device\b)", text)
        return "".join(self.host(p) if k % 2 else self(p) for k, p in enumerate(parts))

    def _replaced(self, found: re.Match[str]) -> str:
        token = found[0]
        new = self._cache.get(token)
        if new is None:
            replace = self._of.get(found.lastgroup or "")
            new = token if replace is None else replace(token)
            if len(self._cache) < _CACHED:
                self._cache[token] = new
        return new

    def host(self, host: str) -> str:
        """A host's name, each of its labels by itself; an address as such."""
        if ADDRESS.fullmatch(host) or ":" in host:
            return self.address(host)
        return self._labels(host)

    def _runs_on(self, host: str, pid: str) -> bool:
        """Whether what a line begins with is the end of another one, and a process's host."""
        return any((host[at:], pid) in self._processes for at in range(1, len(host)))

    def _host_behind(self, text: str) -> str:
        """A host that another line may have run into: INFnode-1."""
        begin = self._begin_of_host(text) or 0
        cut = text[:begin]
        return (cut if begins_word(cut) else self(cut)) + self.host(text[begin:])

    def _begin_of_host(self, text: str) -> int | None:
        return next((at for at in range(len(text)) if text[at:] in self._hosts), None)

    def word(self, word: str) -> str:
        """A word, or several joined by dots; unchanged where all of it is known."""
        if ADDRESS.fullmatch(word):
            return self.address(word)
        if is_kept(word) or NUMERIC.fullmatch(word):
            return word
        if self._begin_of_host(word):
            return self._host_behind(word)
        return self.names.hexadecimal(word) if HEX_LIKE.fullmatch(word) else self._compound(word)

    def _compound(self, word: str) -> str:
        """A word that is not known, or several joined by signs."""
        labels = re.split(r"([.@+])", word)
        if all(_stays(label) for label in labels[::2]):
            return word
        if len(labels) > 1:
            end = labels.pop() if labels[-1] in ENDINGS else ""
            return self._labels("".join(labels)) + end
        pieces = re.split("(_+)", word)  # words of a metric: images_per_second
        stays = len(pieces) > 1
        return "".join(p if stays and _stays(p) else self._label(p) for p in pieces if p)

    def path(self, path: str) -> str:
        """A path: folders of the system, endings of files and numbers of ranks stay."""
        if re.fullmatch(r"[/\\]\w+", path) and is_kept(path[1:]) and path[1:].isalpha():
            return path  # "per /iteration"
        parts = re.split(r"([/\\])", path)
        return "".join(part if k % 2 else self._part(part) for k, part in enumerate(parts))

    def address(self, text: str) -> str:
        """An address of the internet; what only looks like one word by word."""
        try:
            ipaddress.ip_address(text)
        except ValueError:
            return WORD.sub(lambda found: self.word(found[0]), text)
        return self.names.address(text)

    def _at(self, text: str) -> str:
        """An interface and its address."""
        interface, _, address = text.partition(":")
        return f"{self.word(interface)}:{self.address(address)}"

    def number(self, digits: str) -> str:
        """A number that identifies a person or a place."""
        return self.names.number(digits)

    def _part(self, part: str) -> str:
        if PROGRAM.fullmatch(part.removesuffix(".sh")) and _stays(part.removesuffix(".sh")):
            return part
        if part in STANDARD_FOLDERS or part in ("", "~", ".", "..") or part.endswith(":"):
            return part
        if ADDRESS.fullmatch(part):
            return self.address(part)
        *_, end = part.rpartition(".")
        body, dot = (part[: -len(end) - 1], ".") if "." in part and end in ENDINGS else (part, "")
        if dot and not body:
            return part
        if (profiled := PROFILED.fullmatch(body)) is not None:
            return f"{profiled[1]}{self._labels(profiled[2])}{profiled[3]}{dot}{end if dot else ''}"
        pieces = RANKED.split(body)
        new = "".join(p if k % 2 else self._labels(p) for k, p in enumerate(pieces))
        return f"{new}{dot}{end}" if dot else new

    def _labels(self, text: str) -> str:
        """All words of a name replaced, known ones too; short numbers, ranks and endings stay."""
        parts = LABELS.split(text)
        return "".join(part if k % 2 else self._label(part) for k, part in enumerate(parts))

    def _label(self, label: str) -> str:
        if len(label) < 2 or RANK.fullmatch(label) or label in ENDINGS:
            return label
        if label.isdecimal():
            return self.names.number(label)
        if HEX.fullmatch(label):
            return self._hex(label)
        if HEX_LIKE.fullmatch(label):
            return self.names.hexadecimal(label)
        return self.names.name(label)

    def _url(self, url: str) -> str:
        scheme, sign, rest = url.partition("://")
        new = (
            scheme if is_kept(scheme) or scheme in ("http", "https", "tcp", "s3", "file") else None
        )
        where, slash, path = rest.partition("/")
        host, colon, port = where.rpartition(":")
        if not port.isdecimal():
            host, colon, port = where, "", ""
        return (
            (new or self.names.name(scheme)) + sign + self.host(host) + colon + port + slash
            + "/".join(self._part(part) for part in re.split(r"[/?&=]", path))
        )  # fmt: skip

    def _digits(self, text: str) -> str:
        """Hexadecimal digits with signs between them, as one number."""
        digits = re.sub(r"[:-]", "", text)
        new = iter(self.names.hexadecimal(digits))
        return "".join(sign if sign in ":-" else next(new) for sign in text)

    def _hex(self, text: str) -> str:
        digits = text[2:]
        return text if len(digits.lstrip("0")) < MOST_HEX else "0x" + self.names.hexadecimal(digits)

    def _upper(self, text: str) -> str:
        before, sign, digits = text.rpartition("0x")
        return before + sign + self.names.hexadecimal(digits[:-8]) + digits[-8:]

    def _buffer(self, text: str) -> str:
        before, sign, digits = text.rpartition("0x")
        return text if len(digits) < MOST_HEX else before + sign + self.names.pointer(digits)

    def _setting(self, text: str) -> str:
        """An environment variable: of the libraries their own words and numbers stay."""
        name, sign, value = text.partition("=")
        if LIBRARY_SETTING.match(name):
            return f"{name}{sign}{self(value)}"
        return f"{self.word(name)}{sign}{VALUE.sub(lambda found: self._value(found[0]), value)}"

    def _value(self, value: str) -> str:
        """A word or a number of an environment variable that is not the libraries'."""
        return self.names.number(value) if value.isdecimal() else self._labels(value)

    def _trailing_number(self, text: str) -> str:
        found = re.search(r"\d+$", text)
        digits = found[0] if found else ""
        return text[: len(text) - len(digits)] + self.names.number(digits)

    @staticmethod
    def _other(sign: str) -> str:
        return sign if sign in KEPT_SIGNS else "?"


def _stays(label: str) -> bool:
    if is_kept(label) or NUMERIC.fullmatch(label):
        return True
    parts = label.split("-")
    return len(parts) > 1 and all(p.isalpha() and is_kept(p) for p in parts)
