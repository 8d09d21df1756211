"""One self-contained page of sections, tables and figures.

The page works from `file://` with the network off. Its Content-Security-Policy allows nothing but
the page's own scripts, by their hashes, and inline styles. Everything that came from input goes
through jinja2 with autoescape, or stands as JSON in a block that no browser runs.

Figures are matplotlib's SVG with a small script of our own. The alternatives were bokeh (1.3 MB
more a page), plotly (1.2) and altair with vl-convert (0.8; Vega compiles expressions), each a
second charting library.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from collscope.reports.rendering.layout import BAR, NUMBER, Item, Section, Table, in_lines
from collscope.reports.rendering.origin import query
from collscope.writing import visible

if TYPE_CHECKING:
    from jinja2 import Environment

    from collscope.reports.rendering.drawing import Drawing, Sheet

_FOLDER = Path(__file__).parent
CLICK = "A click filters the tables."  # of a figure's text, on a page alone


class Fact(msgspec.Struct, frozen=True):
    """One thing of the first screen: what, how much, and where its evidence stands.

    target  title of the section with the evidence
    query   what gives the evidence by `collscope sql`
    """

    label: str
    value: str
    note: str = ""
    target: str = ""
    query: str = ""


class Figure(msgspec.Struct, frozen=True):
    """A drawing with the same data as a table.

    make     draws it on a sheet: when the page is written, or the file of `--plot`
    table    its data
    marks    what the pointer and the keyboard read of a mark, by its `data-mark` in the SVG
    filters  text that a click on a mark puts into a table's filter, by the same
    cells    of a heat map, by row and column: what the pointer reads; it is the mark `heat-map`
    """

    title: str
    text: str
    make: Callable[[Sheet], Drawing]
    table: Table
    marks: Mapping[str, str]
    filters: Mapping[str, str] = msgspec.field(default_factory=dict)
    cells: Sequence[Sequence[str]] = ()


class Strip(msgspec.Struct, frozen=True):
    """A timeline: kernels of all ranks as base64 of gzipped arrays, drawn by the page's script.

    document  what the script reads: arrays, names of ranks and classes, units
    table     the whole window in numbers; the script replaces it by the window shown
    """

    title: str
    text: str
    document: Mapping[str, object]
    table: Table


class Extras(msgspec.Struct, frozen=True):
    """What only a page shows.

    facts     of the first screen
    drawings  by section title; a drawing of a section that is not there is left out
    run       label of the run, for the queries of rows
    """

    facts: tuple[Fact, ...] = ()
    drawings: Mapping[str, Sequence[Figure | Strip]] = msgspec.field(default_factory=dict)
    run: str = ""

    def figures(self) -> Sequence[Figure]:
        """The drawings that a file can hold, in the page's order."""
        found = (d for drawings in self.drawings.values() for d in drawings)
        return tuple(d for d in found if isinstance(d, Figure))


def to_html(title: str, sections: Iterable[Section], extras: Extras | None = None) -> str:
    """The page.

    title     of the document, and its first heading
    sections  the first one, without a title, is the answer
    """
    extras = extras or Extras()
    known = tuple(in_lines(sections))
    anchors = {s.title: _anchor(s.title, number) for number, s in enumerate(known)}
    data: dict[str, Any] = {"figures": {}, "strips": {}}
    parts = []
    for section in known:
        shown = []
        for drawing in extras.drawings.get(section.title, ()):
            key = f"d{len(data['figures']) + len(data['strips'])}"
            shown.append(_drawing(drawing, key, data, extras.run))
        parts.append({
            "title": visible(section.title), "anchor": anchors[section.title], "drawings": shown,
            "blocks": [_block(block, extras.run) for block in section.blocks],
        })  # fmt: skip
    script = _asset("page.js")
    return _environment().get_template("page.html.j2").render(
        title=visible(title), parts=parts,
        facts=[(_shown(f), anchors.get(f.target, "") if f.target else "") for f in extras.facts],
        style=_asset("page.css"), script=script, script_hash=_hash(script), data=_json(data),
    )  # fmt: skip


def table_html(columns: Sequence[str], rows: Sequence[Sequence[object]], total: int) -> str:
    """A plain table for a notebook; these rows of `total`."""
    cells = [["-" if v is None else visible(str(v)) for v in row] for row in rows]
    return (
        _environment()
        .get_template("table.html.j2")
        .render(columns=[visible(name) for name in columns], rows=cells, total=total)
    )


def framed(page: str) -> str:
    """A page inside another one: a frame that runs its scripts and reaches nothing else."""
    return (
        _environment()
        .from_string(
            '<iframe sandbox="allow-scripts" srcdoc="{{ page }}" title="collscope" '
            'style="width:100%;height:80vh;border:1px solid #ccc"></iframe>'
        )
        .render(page=page)
    )


def _shown(fact: Fact) -> Fact:
    return replace(
        fact, label=visible(fact.label), value=visible(fact.value), note=visible(fact.note),
        query=visible(fact.query),
    )  # fmt: skip


def _drawing(
    drawing: Figure | Strip, key: str, data: dict[str, Any], run: str
) -> dict[str, object]:
    common = {
        "key": key, "title": visible(drawing.title), "text": visible(drawing.text),
        "table": _table(drawing.table, run),
    }  # fmt: skip
    if isinstance(drawing, Strip):
        data["strips"][key] = drawing.document
        return {**common, "kind": "strip"}
    data["figures"][key] = {
        "marks": {mark: visible(text) for mark, text in drawing.marks.items()},
        "filters": drawing.filters,
        "cells": [[visible(text) for text in row] for row in drawing.cells],
    }
    from collscope.reports.rendering.drawing import draw  # noqa: PLC0415 - matplotlib

    picture = draw(drawing.make)
    legend = [replace(key, name=visible(key.name)) for key in picture.legend]
    return {**common, "kind": "figure", "svg": picture.svg, "legend": legend}


def _block(block: str | Item | Table, run: str) -> dict[str, object]:
    if isinstance(block, Table):
        return {"kind": "table", "table": _table(block, run)}
    if isinstance(block, str):
        return {"kind": "text", "text": visible(block)}
    return {
        "kind": "item", "head": visible(block.head),
        "lines": [visible(line) for line in block.lines],
    }  # fmt: skip


def _table(found: Table, run: str) -> dict[str, object]:
    shown = [i for i, c in enumerate(found.columns) if c.kind != BAR]
    columns = [(visible(found.columns[i].title), found.columns[i].kind == NUMBER) for i in shown]
    rows = [[visible(row[i]) for i in shown] for row in found.rows]
    origins = found.origins or (None,) * len(rows)
    of_rows = [visible(query(run, origin)) if origin else "" for origin in origins]
    return {"columns": columns, "rows": list(zip(rows, of_rows, strict=True)),
            "queries": any(of_rows)}  # fmt: skip


def _anchor(title: str, number: int) -> str:
    words = "".join(c if c.isalnum() and c.isascii() else " " for c in title.lower()).split()
    return "-".join(words) or f"part-{number}"


def _json(data: object) -> str:
    """JSON that stands in a script block: no text of it can end the block."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(script: str) -> str:
    import hashlib  # noqa: PLC0415 - start-up, as below

    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - start-up

    return Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
