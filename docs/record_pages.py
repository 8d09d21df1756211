"""The page of the answers' records, from their JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_HEAD = """# Records of the answers

After this page you can read every field of an answer. In Python the answers of a `Store` have these
fields as attributes; `schema` is in JSON alone. `?`: the value may be null in JSON and `None` in
Python. It is then not known, or does not apply. docs/generate.py writes this page from the JSON
Schemas.
"""


def records_page(documents: dict[str, str]) -> str:
    """Markdown of all documents.

    documents  text of the schema by the document's name
    """
    parts = [_HEAD]
    for name, text in documents.items():
        schema = json.loads(text)
        parts.append(f"## {name}\n\n{schema['description']}\n\n{_fields(schema)}")
        for record, shape in schema.get("$defs", {}).items():
            about = shape.get("description", "")
            parts.append(f"### {record} (of {name})\n\n{about}\n\n{_fields(shape)}")
    return "\n".join(parts)


def _fields(shape: dict[str, Any]) -> str:
    rows = [
        f"| `{name}` | {_type(field)} | {_cell(field.get('description', ''))} |\n"
        for name, field in shape.get("properties", {}).items()
    ]
    return "".join(["| field | type | meaning |\n|---|---|---|\n", *rows])


def _type(field: dict[str, Any]) -> str:
    """Words of a field's type, as ``list of integer?``."""
    kinds = list(_kinds(field))
    words = " or ".join(kind for kind in kinds if kind != "null")
    return words + "?" * ("null" in kinds)


def _kinds(field: dict[str, Any]) -> Iterator[str]:
    if "$ref" in field:
        yield field["$ref"].rpartition("/")[2]
    elif "enum" in field:
        yield from ("null" if v is None else f"`{v}`" for v in field["enum"])
    elif "const" in field:
        yield f"`{field['const']}`"
    elif "anyOf" in field:
        for other in field["anyOf"]:
            yield from _kinds(other)
    elif field.get("type") == "array":
        items = field.get("items")
        yield f"list of {_type(items)}" if isinstance(items, dict) else "list"
    else:
        kinds = field.get("type", "value")
        yield from [kinds] if isinstance(kinds, str) else kinds


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
