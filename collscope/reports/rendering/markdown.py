"""Sections as GitHub Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from collscope.reports.rendering.layout import NUMBER, Item, Section, Table, in_lines
from collscope.writing import one_line

# Of Markdown: headings, quotations, lists, rules, code, and what a link is defined by.
_BEGINS_A_BLOCK = ("#", ">", "- ", "+ ", "---", "===", "~~~", "[")


def to_markdown(title: str, sections: Iterable[Section]) -> str:
    """GitHub Markdown: the same sections with tables that GitHub renders."""
    lines = [f"# {escaped(one_line(title))}", ""]
    for section in in_lines(sections):
        if section.title:
            lines += [f"## {escaped(section.title)}", ""]
        for block in section.blocks:
            lines += [*_markdown_block(block), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _markdown_block(block: str | Item | Table) -> list[str]:
    if isinstance(block, Table):
        return _markdown_table(block)
    if isinstance(block, str):
        text = escaped(block)
        return [f"\\{text}" if text.startswith(_BEGINS_A_BLOCK) else text]
    return [f"- **{escaped(block.head)}**", *(f"  - {escaped(line)}" for line in block.lines)]


def _markdown_table(block: Table) -> list[str]:
    header = [escaped(column.title) for column in block.columns]
    rule = ["---:" if column.kind == NUMBER else "---" for column in block.columns]
    body = [[escaped(text) for text in row] for row in block.rows]
    return ["| " + " | ".join(row) + " |" for row in (header, rule, *body)]


def escaped(text: str) -> str:
    """Text that Markdown shows as it stands: no tag, link or image."""
    for character in "\\|*_<`":
        text = text.replace(character, "\\" + character)
    return text.strip().replace("](", "]\\(")
