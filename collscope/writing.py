"""Texts on their way out: what a terminal would obey is shown, and no spreadsheet runs a cell."""

from __future__ import annotations

import os
import re
import textwrap

# Control characters but tab and line end, marks that change the direction or the order of what is
# read (Unicode 9.4 and TR 36), others that have no width, and halves of characters.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
# What a machine that runs tests takes for a command where it is in a log: GitHub `::name` where
# a line begins (actions/runner, ActionCommand.cs), and `##[name]` anywhere, Azure Pipelines
# `##vso[name]` anywhere (azure-pipelines-agent, Command.cs).
_COMMAND = re.compile(r"^([ \t]*):(?=:)|#(?=#(?:\[|vso\[))", re.MULTILINE)
# A number as a spreadsheet reads it; what else begins with a sign is a formula.
_NUMBER = re.compile(r"[+-](?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)?")
_NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mun]?s|GB/s|[KMG]iB)(?!\w))")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


_BYTES = re.compile("[\udc80-\udcff]+")  # that Python could not decode (PEP 383)


def as_utf8(text: str) -> str:
    r"""Text with bytes that Python did not decode (a name, with LC_ALL=C) as UTF-8, where they are.

    >>> as_utf8("\udcc3\udcb6.db"), as_utf8("\udcff.db")
    ('ö.db', '\udcff.db')
    """
    return _BYTES.sub(lambda found: os.fsencode(found[0]).decode("utf-8", "surrogateescape"), text)


def visible(text: str, *, commands: bool = False) -> str:
    r"""Text without a character that a terminal obeys or hides; each is written as ``\u001b``.

    So is a sign of what a machine that runs tests would take for a command. In a JSON string that
    is the same character, so JSON keeps its exact values.

    commands  the text is such commands

    >>> visible("a\x1b]0;title\x07b\n"), visible("::add-mask::x")
    ('a\\u001b]0;title\\u0007b\n', '\\u003a:add-mask::x')
    """
    shown = _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", as_utf8(text))
    return shown if commands else _COMMAND.sub(_defused, shown)


def _defused(found: re.Match[str]) -> str:
    return "\\u0023" if found[0] == "#" else f"{found[1]}\\u003a"


def one_line(text: str) -> str:
    r"""`visible` text, line ends too.

    >>> one_line("a\nb")
    'a\\u000ab'
    """
    return visible(text).replace("\n", "\\u000a")


def folded(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Lines of at most `width` columns; a word is never broken, so an option, a name or a path can
    be copied from one line. A number and its unit stay together.

    first, rest  what the first line begins with, and what all others do

    >>> folded("give the time as --step-ms", 22, "- ", "  ")
    ['- give the time as', '  --step-ms']
    >>> folded("a step is 12 % shorter", 12)
    ['a step is', '12 % shorter']
    """
    lines = textwrap.wrap(
        _NUMBER_AND_UNIT.sub("\0", text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines]


def inert(cell: str) -> str:
    """Text of a CSV cell that no spreadsheet runs: what it takes for a formula gets an apostrophe.

    The characters are those of OWASP's page "CSV Injection". Numbers stay numbers.

    >>> inert("=1+1"), inert("-5.2e3"), inert("-"), inert("--run"), inert("a=b")
    ("'=1+1", '-5.2e3', '-', "'--run", 'a=b')
    """
    return f"'{cell}" if cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell) else cell


def to_json(value: object) -> str:
    """A report's records as indented JSON, with a final newline."""
    import msgspec  # noqa: PLC0415 - who writes plain text needs none

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
