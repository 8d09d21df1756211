"""Prose and names that a reader of the field stumbles over (docs/style.md).

The rules are in style.toml, each with the number of places that older text still has.
More places than that fail; `--tighten` writes the numbers of today where they have become smaller.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

ROOT = Path(__file__).resolve().parent.parent
RULES = Path(__file__).with_suffix(".toml")
_PROSE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/*.md", "schemas/*.md")
_CODE = ("collscope/**/*.py",)
# The first quotes what not to write; the second repeats comments of records.
_LEFT_OUT = ("docs/style.md", "docs/records.md")
_FENCE = re.compile(r"^\s*(```|~~~)")
_INLINE_CODE = re.compile(r"`[^`]*`")
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)")
_F_STRING = getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)  # from Python 3.12 on


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What not to write, and what instead."""

    pattern: str
    where: Literal["prose", "names"]
    write: str
    allowed: int  # places in the tree that are older than the rule


class Piece(msgspec.Struct, frozen=True):
    """A line of prose, or one name."""

    path: str
    line: int
    kind: Literal["prose", "names"]
    text: str


def pieces() -> Iterator[Piece]:
    """All prose and names of the project."""
    for pattern in _PROSE:
        for path in sorted(ROOT.glob(pattern)):
            if (name := path.relative_to(ROOT).as_posix()) not in _LEFT_OUT:
                yield from _of_markdown(name, path.read_text("utf-8"))
    for pattern in _CODE:
        for path in sorted(ROOT.glob(pattern)):
            yield from _of_python(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))


def _of_markdown(path: str, text: str) -> Iterator[Piece]:
    """Lines outside of code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield Piece(path, number, "prose", _INLINE_CODE.sub("", line))


def _of_python(path: str, text: str) -> Iterator[Piece]:
    """Comments and strings as prose, line by line; every name once, where it first stands."""
    names = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, _F_STRING):
            for offset, line in enumerate(token.string.splitlines()):
                yield Piece(path, token.start[0] + offset, "prose", _INLINE_CODE.sub("", line))
        elif token.type == tokenize.NAME and token.string not in names:
            names.add(token.string)
            yield Piece(path, token.start[0], "names", token.string)


def changed_lines() -> set[tuple[str, int]]:
    """Lines that the last commit or the work tree added: the places to look at first."""
    base = subprocess.run(
        ["git", "rev-parse", "--verify", "-q", "HEAD~1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    command = ["git", "diff", "-U0", "--no-color", base or "HEAD"]
    diff = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found, path, number = set(), "", 0
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[6:]
        elif hunk := _HUNK.match(line):
            number = int(hunk[1])
        elif line.startswith("+"):
            found.add((path, number))
            number += 1
    return found


def main() -> int:
    """Print what is new, and return 1 if anything is."""
    rules = msgspec.toml.decode(RULES.read_bytes(), type=dict[str, Rule])
    found: dict[str, list[Piece]] = {name: [] for name in rules}
    compiled = {name: re.compile(rule.pattern) for name, rule in rules.items()}
    for piece in pieces():
        for name, rule in rules.items():
            if rule.where == piece.kind and compiled[name].search(piece.text):
                found[name].append(piece)
    if "--tighten" in sys.argv[1:]:
        _tighten(rules, found)
        return 0
    worse = {name for name, rule in rules.items() if len(found[name]) > rule.allowed}
    changed = changed_lines() if worse else set()
    for name in sorted(worse):
        rule = rules[name]
        print(f"{name}: {len(found[name])} places, {rule.allowed} allowed. Write {rule.write}.")
        for piece in [p for p in found[name] if (p.path, p.line) in changed]:
            print(f"  {piece.path}:{piece.line}: {piece.text.strip()[:90]}")
    return int(bool(worse))


def _tighten(rules: dict[str, Rule], found: dict[str, list[Piece]]) -> None:
    """Write the numbers that have become smaller."""
    text = RULES.read_text("utf-8")
    for name, rule in rules.items():
        now = min(len(found[name]), rule.allowed)
        text = re.sub(
            rf"(^\[{re.escape(name)}\]\n(?:(?!\[).*\n)*?allowed = )\d+",
            rf"\g<1>{now}",
            text,
            flags=re.MULTILINE,
        )
    RULES.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
