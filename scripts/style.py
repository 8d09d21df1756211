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
# What a person reads, by the way its prose is found. The samples are files of others.
_MARKDOWN = (
    "*.md",
    "docs/*.md",
    "schemas/*.md",
    "samples/README.md",
    "samples/profiles/README.md",
    "benchmarks/**/*.md",
    "tests/**/*.md",
)
_PYTHON = ("collscope/**/*.py", "docs/*.py", "scripts/**/*.py", "benchmarks/**/*.py")
_NATIVE = (
    "native/**/*.h",
    "native/**/*.cpp",
    "tests/native/**/*.cpp",
    "tests/torture/*.c",
    "benchmarks/*.cpp",
)
_SQL = ("schemas/**/*.sql",)
_SCHEMAS = ("schemas/*.schema.json",)
_MARKED = (  # comments after #
    "Makefile",
    "Containerfile",
    "CMakeLists.txt",
    "pyproject.toml",
    "collscope/**/*.toml",
    "collscope/**/*.tsv",
    "scripts/**/*.sh",
    "scripts/**/*.sbatch",
    "packaging/**/*",
)
_LINES = (".github/**/*.yml", "CITATION.cff")
_FENCE = re.compile(r"^\s*(```|~~~)")
_INLINE_CODE = re.compile(r"`[^`]*`")
# Comments and strings of C++; a character in quotes is none.
_CPP = re.compile(
    r"""(?P<text>//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*")|'(?:[^'\\\n]|\\.)+'""", re.DOTALL
)
_DESCRIPTION = re.compile(r'"description": ("(?:[^"\\]|\\.)*")')
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)")
_F_STRING = getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)  # from Python 3.12 on


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What not to write, and what instead."""

    pattern: str
    where: Literal["prose", "names"]
    write: str
    allowed: int  # places in the tree that are older than the rule


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of style.toml."""

    exceptions: tuple[str, ...]  # files that are not checked, at most ten
    rules: dict[str, Rule]


class Piece(msgspec.Struct, frozen=True):
    """A line of prose, or one name."""

    path: str
    line: int
    kind: Literal["prose", "names"]
    text: str


def pieces(exceptions: tuple[str, ...]) -> Iterator[Piece]:
    """All prose and names of the project."""
    for read, patterns in _READERS:
        for pattern in patterns:
            for path in sorted(ROOT.glob(pattern)):
                name = path.relative_to(ROOT).as_posix()
                if path.is_file() and name not in exceptions:
                    yield from read(name, path.read_text("utf-8"))


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
            yield from _lines(path, token.start[0], token.string)
        elif token.type == tokenize.NAME and token.string not in names:
            names.add(token.string)
            yield Piece(path, token.start[0], "names", token.string)


def _of_native(path: str, text: str) -> Iterator[Piece]:
    """Comments and strings, line by line."""
    for match in _CPP.finditer(text):
        if match["text"]:
            yield from _lines(path, text.count("\n", 0, match.start()) + 1, match["text"])


def _of_sql(path: str, text: str) -> Iterator[Piece]:
    """Comments, line by line."""
    for number, line in enumerate(text.splitlines(), 1):
        yield from _lines(path, number, line.partition("--")[2])


def _of_schema(path: str, text: str) -> Iterator[Piece]:
    """Descriptions."""
    for match in _DESCRIPTION.finditer(text):
        yield from _lines(path, text.count("\n", 0, match.start()) + 1, match[1])


def _of_marked(path: str, text: str) -> Iterator[Piece]:
    """Comments after a #."""
    for number, line in enumerate(text.splitlines(), 1):
        yield from _lines(path, number, line.partition("#")[2])


def _of_lines(path: str, text: str) -> Iterator[Piece]:
    """Every line."""
    yield from _lines(path, 1, text)


def _lines(path: str, first: int, text: str) -> Iterator[Piece]:
    """Lines of prose, without code in backticks."""
    for number, line in enumerate(text.splitlines(), first):
        yield Piece(path, number, "prose", _INLINE_CODE.sub("", line))


_READERS = (
    (_of_markdown, _MARKDOWN),
    (_of_python, _PYTHON),
    (_of_native, _NATIVE),
    (_of_sql, _SQL),
    (_of_schema, _SCHEMAS),
    (_of_marked, _MARKED),
    (_of_lines, _LINES),
)


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
    style = msgspec.toml.decode(RULES.read_bytes(), type=Rules)
    rules = style.rules
    found: dict[str, list[Piece]] = {name: [] for name in rules}
    compiled = {name: re.compile(rule.pattern) for name, rule in rules.items()}
    for piece in pieces(style.exceptions):
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
        for piece in [p for p in found[name] if not rule.allowed or (p.path, p.line) in changed]:
            print(f"  {piece.path}:{piece.line}: {piece.text.strip()[:90]}")
    return int(bool(worse))


def _tighten(rules: dict[str, Rule], found: dict[str, list[Piece]]) -> None:
    """Write the numbers that have become smaller."""
    text = RULES.read_text("utf-8")
    for name, rule in rules.items():
        now = min(len(found[name]), rule.allowed)
        text = re.sub(
            rf"(^\[rules\.{re.escape(name)}\]\n(?:(?!\[).*\n)*?allowed = )\d+",
            rf"\g<1>{now}",
            text,
            flags=re.MULTILINE,
        )
    RULES.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
