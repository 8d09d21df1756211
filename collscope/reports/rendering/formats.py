"""Every output format of a report, by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import asdict

from collscope.errors import UsageError
from collscope.reports.rendering.layout import Section
from collscope.reports.rendering.markdown import to_markdown
from collscope.reports.rendering.text import to_text
from collscope.writing import to_json

if TYPE_CHECKING:
    from collscope.reports.rendering.page import Extras


def in_format(
    fmt: str,
    record: object,
    rows: Callable[[], str],
    readable: Callable[[], tuple[str, Iterable[Section]]],
    extras: Callable[[], Extras] | None = None,
    *,
    wide: bool = False,
) -> str:
    """A report in one of `FORMATS`.

    record    what JSON has
    wide      nothing in the tables of text is cut
    rows      gives the CSV
    extras    gives what only a page shows
    readable  gives title and sections of text and Markdown
    raises    UsageError for another format
    """
    if fmt == "json":
        return to_json(record)
    if fmt == "csv":
        return rows()
    if fmt not in FORMATS:
        raise UsageError(f"format '{fmt}': unknown. Use one of {', '.join(FORMATS)}.")
    title, sections = readable()
    return to_readable(fmt, title, sections, extras, wide=wide)


def to_readable(
    fmt: str,
    title: str,
    sections: Iterable[Section],
    extras: Callable[[], Extras] | None = None,
    *,
    wide: bool = False,
) -> str:
    """Sections in one of `READABLE`; with `wide` nothing in the tables of text is cut."""
    return READABLE[fmt](title, sections, extras, wide)


def _html(
    title: str, sections: Iterable[Section], extras: Callable[[], Extras] | None, _wide: bool
) -> str:
    from collscope.reports.rendering.page import to_html  # noqa: PLC0415 - jinja2

    return to_html(title, sections, None if extras is None else extras())


def in_words(record: msgspec.Struct, **words: object) -> dict[str, object]:
    """Fields of a record for JSON, some of them in words where the record has codes."""
    return asdict(record) | words


_Readable = Callable[[str, Iterable[Section], "Callable[[], Extras] | None", bool], str]

# What is made of a title and sections, by the name of the form; a new one is a line here and one in
# the `Format` of cli/options.py. csv and json are made of records.
READABLE: dict[str, _Readable] = {
    "text": lambda title, sections, _extras, wide: to_text(title, sections, wide=wide),
    "md": lambda title, sections, _extras, _wide: to_markdown(title, sections),
    "html": _html,
}
FORMATS = tuple(dict.fromkeys(("text", "md", "csv", "json", *READABLE)))
