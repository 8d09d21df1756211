"""scripts/style.py: every kind of file gives its prose, and nothing but its prose."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

_FILE = Path(__file__).resolve().parent.parent / "scripts" / "style.py"


@pytest.fixture(scope="module")
def style() -> ModuleType:
    spec = importlib.util.spec_from_file_location("style", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["style"] = module  # msgspec resolves the annotations of its records there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("reader", "text", "lines"),
    [
        ("_of_markdown", "told\n```\ntold\n```\n`told` is code\n", [1]),
        ("_of_python", 'a = told(\n    "told",\n)  # told\n"""One.\n\ntold\n"""\n', [2, 3, 6]),
        (
            "_of_native",
            "int told;  // told\nf('\\'', \"told\"); /* a\ntold */\n'\"'; told;\n",
            [1, 2, 3],
        ),
        ("_of_sql", "SELECT told -- told\nFROM told\n", [1]),
        ("_of_schema", '{"told": 1,\n"description": "a \\" told",\n"x": "told"}\n', [2]),
        ("_of_marked", "told = 1\nx = 2  # told\n", [2]),
        ("_of_lines", "a\ntold\n", [2]),
    ],
)
def test_each_reader_finds_prose_alone(
    style: ModuleType, reader: str, text: str, lines: list[int]
) -> None:
    found = getattr(style, reader)("x", text)
    prose = [piece.line for piece in found if piece.kind == "prose" and "told" in piece.text]
    assert prose == lines


def test_the_exceptions_are_few_and_the_patterns_compile(style: ModuleType) -> None:
    rules = msgspec.toml.decode(style.RULES.read_bytes(), type=style.Rules)
    assert len(rules.exceptions) <= 10
    assert all((style.ROOT / name).is_file() for name in rules.exceptions)
    assert all(re.compile(rule.pattern) for rule in rules.rules.values())


def test_every_pattern_of_files_matches_a_file(style: ModuleType) -> None:
    patterns = [pattern for _, group in style._READERS for pattern in group]
    unused = [p for p in patterns if not any(path.is_file() for path in style.ROOT.glob(p))]
    assert unused == []
