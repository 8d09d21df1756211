"""docs/json_schemas.py: from a record and its comments to its schema."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Annotated

import msgspec
import pytest

_FILE = Path(__file__).resolve().parent.parent / "docs" / "json_schemas.py"


@pytest.fixture(scope="module")
def schemas() -> ModuleType:
    spec = importlib.util.spec_from_file_location("json_schemas", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Inner(msgspec.Struct, frozen=True):
    """One row.

    first, second  what both are; None:
                   not known
    """

    first: int | None
    second: float = 0.5
    # of the row,
    # as told
    state: Annotated[str, ("ok", "wrong")] = "ok"


class Outer(msgspec.Struct, frozen=True):
    """The answer."""

    rows: tuple[Inner, ...]  # most time first
    best: Inner | None
    schema: str = "collscope.test/1"


def test_comments_are_descriptions_and_every_field_is_required(
    schemas: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(schemas.DOCUMENTS, "test", (f"{__name__}.Outer", "What it is."))
    inner = {"$ref": "#/$defs/Inner"}
    both = {"description": "what both are; null: not known"}
    assert json.loads(schemas.schema_text("test")) == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "collscope.test/1",
        "description": "What it is.",
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": inner, "description": "most time first"},
            "best": {"anyOf": [inner, {"type": "null"}]},
            "schema": {
                "const": "collscope.test/1",
                "description": "kind and version of this document",
            },
        },
        "required": ["rows", "best", "schema"],
        "additionalProperties": False,
        "$defs": {
            "Inner": {
                "type": "object",
                "description": "One row.",
                "properties": {
                    "first": {"type": ["integer", "null"], **both},
                    "second": {"type": "number", **both},
                    "state": {"enum": ["ok", "wrong"], "description": "of the row, as told"},
                },
                "required": ["first", "second", "state"],
                "additionalProperties": False,
            }
        },
    }
