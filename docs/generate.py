"""Write what is made from other files: the view of measurements, the pages of the views, and the
JSON Schemas.

usage: python docs/generate.py [--check]    --check writes nothing and fails when it would

The list in docs/data-model.md and schemas/views.md are made from the comments in schemas/views,
schemas/*.schema.json from the records (`json_schemas.py`), docs/records.md from these, and the
columns of the view `measurements` from its record.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / "schemas"
VIEWS = SCHEMAS / "views"  # files by subject, in the order of their names
MEASURED = VIEWS / "4_measurements.sql"
PAGE = ROOT / "docs" / "data-model.md"
RECORDS = ROOT / "docs" / "records.md"
COLUMNS = SCHEMAS / "views.md"
_WRAPPED = textwrap.TextWrapper(
    120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
)
HEAD = """# Columns of the views

After this page you can name every column in a query. The [data model](../docs/data-model.md) has
the rules. Every view also has the column `run`. docs/generate.py writes this page from
schemas/views.
"""
BEGIN = "<!-- views: written by docs/generate.py from schemas/views -->"
END = "<!-- end of views -->"

_VIEW = re.compile(r"(?P<purpose>(?:^--.*\n)+)CREATE VIEW (?P<name>\w+) AS SELECT\n", re.MULTILINE)


class Column(msgspec.Struct, frozen=True):
    """An output column of a view, with its comment in the SQL file."""

    name: str
    comment: str  # empty: the file has none


class View(msgspec.Struct, frozen=True):
    """A view of the store."""

    name: str
    purpose: str  # comment above it, one line
    columns: tuple[Column, ...]


def views_text() -> str:
    """The SQL of all views."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(VIEWS.glob("*.sql")))


def read_views(sql: str) -> tuple[View, ...]:
    """Views of an SQL text, in order, with the comments of their output columns.

    A column's comment is on the line where the column ends, or alone on the lines above it;
    columns that end on one line share its comment.
    """
    views = []
    for match in _VIEW.finditer(sql):
        purpose = " ".join(line.removeprefix("--").strip() for line in match["purpose"].split("\n"))
        columns = tuple(_columns(sql[match.end() :]))
        views.append(View(match["name"], purpose.strip(), columns))
    return tuple(views)


def public_views(sql: str) -> tuple[View, ...]:
    """Those of `read_views` whose names do not begin with an underscore."""
    return tuple(view for view in read_views(sql) if not view.name.startswith("_"))


def _columns(body: str) -> Iterator[Column]:
    """Columns of a select list; `body` starts after SELECT and may go on after its FROM."""
    lines = list(takewhile(lambda line: not line.startswith("FROM "), body.split("\n")))
    above: list[str] = []  # comments that stand alone, since the last column ended
    pending = ""  # text of the column that is being read
    for number, line in enumerate(lines, 1):
        code, _, comment = line.partition("--")
        if not code.strip():
            above.append(comment.strip())
            continue
        comma = "," if number == len(lines) else ""  # the last column has none of its own
        *ended, pending = _split_top_level(f"{pending} {code}{comma}")
        for text in ended:
            yield Column(_output_name(text), comment.strip() or " ".join(above))
        if ended:
            above = []


def _split_top_level(text: str) -> list[str]:
    """Parts between the commas that stand outside parentheses."""
    parts = [""]
    depth = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _output_name(expression: str) -> str:
    """Name SQLite gives to a column: the alias, or the column's own name.

    >>> _output_name(" r.label AS run"), _output_name("s.path")
    ('run', 'path')
    """
    return re.split(r"\s|\.", expression.strip())[-1]


def shared_columns(views: tuple[View, ...]) -> dict[str, str]:
    """What a column means in most of several views, by name: listed once, above the views.

    >>> one = View("a", "", (Column("rank", "world rank"),))
    >>> two = View("b", "", (Column("rank", "world rank"), Column("kind", "of b alone")))
    >>> shared_columns((one, two))
    {'rank': 'world rank'}
    """
    meanings = Counter((column.name, column.comment) for view in views for column in view.columns)
    shared: dict[str, str] = {}
    for (name, comment), number in meanings.most_common():
        if number > 1:
            shared.setdefault(name, comment)
    order = dict.fromkeys(column.name for view in views for column in view.columns)
    return {name: shared[name] for name in order if name in shared}


def listing(columns: Mapping[str, str]) -> str:
    """Names and meanings side by side, as a block."""
    width = max(map(len, columns)) + 2
    return "```text\n" + "".join(f"{n:{width}}{c}\n" for n, c in columns.items()) + "```\n"


def columns_page(views: tuple[View, ...]) -> str:
    """Markdown of all columns: shared ones first, then each view's purpose and own ones."""
    shared = shared_columns(views)
    shared.pop("run", None)  # in every view, and mentioned above them
    parts = [HEAD, f"## Columns of several views\n\n{listing(shared)}"]
    for view in views:
        own = {
            c.name: c.comment
            for c in view.columns
            if c.name != "run" and shared.get(c.name) != c.comment
        }
        others = [c.name for c in view.columns if shared.get(c.name) == c.comment]
        purpose = view.purpose
        if others:
            purpose += f"\n\nShared: {', '.join(f'`{name}`' for name in others)}."
        parts.append(f"## {view.name}\n\n{purpose}\n" + (f"\n{listing(own)}" if own else ""))
    return "\n".join(parts)


def subjects() -> str:
    """Markdown of the subject of each SQL file, with the views in it."""
    lines = ""
    for path in sorted(VIEWS.glob("*.sql")):
        sql = path.read_text(encoding="utf-8")
        head = " ".join(
            line.removeprefix("--").strip() for line in sql.partition("\n\n")[0].split("\n")
        )
        names = [view.name for view in public_views(sql)]
        links = ", ".join(f"[`{name}`](../schemas/views.md#{name})" for name in names)
        item = f"- {head.partition('.')[0]}: {links}"
        lines += f"{_WRAPPED.fill(item)}\n"
    return lines


def generated_page(page: str) -> str:
    """`page` with the list of views between the markers replaced."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{subjects()}\n{END}{tail}"


def measurements_view(sql: str) -> str:
    """The SQL of the view with its columns replaced: the fields of the record `Measurement`."""
    from json_schemas import comments  # noqa: PLC0415 - needs collscope, views do not

    from collscope.model import Measurement  # noqa: PLC0415

    meanings = {name: re.sub(r"\bNone\b", "NULL", text) for name, text in comments(Measurement)}
    first, last = ("label", "round"), ("line",)
    names = [n for n in meanings if n not in (*first, *last, "samples_us")]
    columns = [
        ("r.label AS run", "run"),
        ("m.measurement_id", "key"),
        ("m.source_id", "source, see sources"),
        *((f"m.{name}", meanings[name]) for name in (*first, *names)),
        ("s.path", "path of the source"),
        *((f"m.{name}", meanings[name]) for name in last),
    ]
    lines = [
        f"    {name + ',' * (at < len(columns)):<26} -- {text}\n"
        for at, (name, text) in enumerate(columns, 1)
    ]
    head, begin, rest = sql.partition("CREATE VIEW measurements AS SELECT\n")
    _, end, tail = rest.partition("FROM _measurement m")
    return f"{head}{begin}{''.join(lines)}{end}{tail}"


def main(arguments: list[str]) -> int:
    """Write the files, or with --check compare them; returns the exit status."""
    from json_schemas import DOCUMENTS, schema_text  # noqa: PLC0415 - needs collscope, views do not
    from record_pages import records_page  # noqa: PLC0415

    page = PAGE.read_text(encoding="utf-8")
    view = measurements_view(MEASURED.read_text(encoding="utf-8"))
    if "--check" not in arguments:
        MEASURED.write_text(view, encoding="utf-8")  # first: the pages list its columns
    files = {
        MEASURED: (view, "the record Measurement"),
        PAGE: (generated_page(page), "schemas/views"),
        COLUMNS: (columns_page(public_views(views_text())), "schemas/views"),
    }
    schemas = {name: schema_text(name) for name in DOCUMENTS}
    for name, text in schemas.items():
        files[SCHEMAS / f"{name}.schema.json"] = (text, "the records")
    files[RECORDS] = (records_page(schemas), "the records")
    status = 0
    for path, (text, source) in files.items():
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            where = path.relative_to(ROOT)
            sys.stderr.write(f"{where}: not as {source}. Run docs/generate.py.\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
