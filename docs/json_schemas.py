"""JSON Schemas of the documents that collscope writes, made from the records that hold them.

Names, types and which fields there are come from the records; descriptions from their docstrings
and from the comments at their fields. `docs/generate.py` writes them into schemas/.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import textwrap
import tokenize
from collections.abc import Iterator
from io import StringIO
from typing import Any, get_args, get_type_hints

import msgspec

from collscope.reports.check.verdict import Verdict

# Name of the file: the record, and what the document is.
DOCUMENTS = {
    "allreduce-wrapper": (
        "collscope.whatif.wrapper.WrapperTables",
        "What `collscope bench allreduce-wrapper --format json` prints. Units are in the "
        "names: _ns nanoseconds, _bytes bytes. null: not known, or does not apply.",
    ),
    "backends": (
        "collscope.reports.backends.answer.BackendsReport",
        "What `collscope bench backends --format json` prints. Units are in the names: _ns "
        "nanoseconds, _bytes bytes; ratios of times, 1 is equal. null: not known, or does not"
        " apply.",
    ),
    "check": (
        "collscope.reports.check.answer.Check",
        "What `collscope check --format json` prints. Units are in the names: _ns "
        "nanoseconds, _bytes bytes, _gbps GB/s with GB = 1e9 bytes. null: not known.",
    ),
    "compare": (
        "collscope.reports.compare.answer.Comparison",
        "What `collscope compare --format json` prints. Units are in the names: _ns "
        "nanoseconds, _bytes bytes, _gbps GB/s with GB = 1e9 bytes. null: not known.",
    ),
    "explain": (
        "collscope.reports.explain.answer.Explained",
        "What `collscope compare --explain --format json` prints: the difference of two "
        "steps in parts. The parts and the remainder sum to it exactly. ns a step.",
    ),
    "fusion": (
        "collscope.whatif.records.Fusion",
        "What `collscope whatif fusion --format json` prints. Units are in the names: _ns "
        "nanoseconds, _bytes bytes. null: not known, or does not apply.",
    ),
    "hang": (
        "collscope.hang.records.Verdict",
        "What `collscope hang --format json` prints: which rank holds up a job that hangs.",
    ),
    "interference": (
        "collscope.reports.interference.answer.InterferenceReport",
        "What `collscope bench interference --format json` prints. Ratios are of "
        "performance, 1 is undisturbed; _ns nanoseconds, _bytes bytes, _gbps 1e9 bytes per"
        " second. null: not known, or does not apply.",
    ),
    "memcpy": (
        "collscope.reports.memcpy.answer.CopyReport",
        "What `collscope bench memcpy --format json` prints. Units are in the names: _ns "
        "nanoseconds, _bytes bytes, _gbps GB/s. null: not known, or does not apply.",
    ),
    "msccl": (
        "collscope.reports.msccl.answer.MscclReport",
        "What `collscope msccl --format json` prints. Units are in the names: _ns "
        "nanoseconds, _bytes bytes. null: not known, or does not apply.",
    ),
    "p2p": (
        "collscope.reports.p2p.answer.P2p",
        "What `collscope bench p2p --format json` prints. Units are in the names: _ns "
        "nanoseconds, _bytes bytes, _gbps 1e9 bytes per second. null: not known, or does "
        "not apply.",
    ),
    "predict": (
        "collscope.reports.predict.answer.PredictionReport",
        "What `collscope predict --format json` prints. A step's time before and after. "
        "Times in ns; gains are ratios of step times, minus one. null: not known.",
    ),
    "report": (
        "collscope.reports.report.answer.Report",
        "What `collscope report --format json` prints. Units are in the names: _ns "
        "nanoseconds, _bytes bytes. Ratios lie in 0..1, percentages in 0..100. null: not in"
        " the source.",
    ),
    "roofline": (
        "collscope.reports.roofline.answer.Roofline",
        "What `collscope roofline --format json` prints. Units are in the names: _ns "
        "nanoseconds, _bytes bytes, _gbps GB/s of one direction with GB = 1e9 bytes. null:"
        " not known, or does not apply.",
    ),
    "tune": (
        "collscope.tuning.records.Tuning",
        "What `collscope tune --format json` prints and evidence.json holds. Units are in "
        "the names: _ns nanoseconds, _bytes bytes; ratios lie in 0..1. null: "
        "not known, or does not apply.",
    ),
}

_WORDS = {"type": "string"}
_PERHAPS = {"type": ["string", "null"]}
_REMARK = {
    "type": "object",
    "properties": {
        "code": _WORDS | {"description": "stable snake_case name"},
        "values": {"type": "object"},
        "text": _WORDS | {"description": "the sentence"},
    },
    "required": ["code", "values", "text"],
    "additionalProperties": False,
}


def _remarks(description: str) -> dict[str, Any]:
    return {"type": "array", "items": _REMARK, "description": description}


_UNLIKE = _remarks("what keeps the labels from being like for like, and further remarks")
# What a document has in words where its record has codes: (record, field) to (field, schema).
_IN_WORDS: dict[tuple[str, str], dict[str, Any]] = {
    ("Share", "denominator"): {
        "denominator": _WORDS | {"description": "what the percentage is of"}
    },
    ("Comparison", "notes"): {"notes": _UNLIKE},
    ("Check", "notes"): {"notes": _UNLIKE},
    ("InterferenceReport", "failed"): {
        "failed": {
            "type": "array",
            "items": _WORDS,
            "description": "sentences of what has no figures",
        }
    },
    ("PredictionReport", "times_from"): {"times_from": _WORDS | {"description": "in words"}},
    ("PredictionReport", "assumptions"): {"assumptions": _remarks("what it rests on")},
    ("ApplicationMetric", "speed_up_of"): {
        "speed_up_of": _PERHAPS | {"description": "which collectives these are"}
    },
    ("P2p", "notices"): {"notices": _remarks("what is missing, and what to know of the times")},
    ("AlgorithmRow", "problem"): {
        "problem": _PERHAPS | {"description": "why it cannot be used, or not be judged"}
    },
    ("ServedRow", "why"): {"why": _PERHAPS | {"description": "why none does"}},
    ("MscclReport", "assumptions"): {"assumptions": _remarks("of the cost")},
    ("Check", "decision"): {
        "verdict": {"enum": [verdict.value for verdict in Verdict], "description": "outcome"},
        "why": _WORDS | {"description": "one sentence"},
    },
}

# `name  what it is`, or `name, name  what they are`, in a docstring
_ITEM = re.compile(r"(?P<names>\w+(?:, \w+)*)\s{2,}(?P<text>\S.*)")


def schema_text(name: str) -> str:
    """The file schemas/NAME.schema.json."""
    place, description = DOCUMENTS[name]
    module, _, record = place.rpartition(".")
    root = getattr(importlib.import_module(module), record)
    return json.dumps(_document(root, description), indent=2, ensure_ascii=False) + "\n"


def _document(root: type, description: str) -> dict[str, Any]:
    records = dict(_records(root))
    plain = [(name, kind) for name, kind in get_type_hints(root).items() if not _worded(root, name)]
    keys = dict(zip(root.__struct_fields__, root.__struct_encode_fields__, strict=True))
    stand_in = msgspec.defstruct(root.__name__, plain, rename=keys)
    _, parts = msgspec.json.schema_components([stand_in], ref_template="#/$defs/{name}")
    shapes = {name: _shape(part, records.get(name)) for name, part in parts.items()}
    document = shapes.pop(root.__name__)
    document["properties"]["schema"] = {
        "const": next(f.default for f in msgspec.structs.fields(root) if f.name == "schema"),
        "description": "kind and version of this document",
    }
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": document["properties"]["schema"]["const"],
        "description": description,
    }
    used = _used(document, shapes)
    shapes = {name: shape for name, shape in shapes.items() if name in used}
    return {**head, **{k: v for k, v in document.items() if k != "description"}, "$defs": shapes}


def _used(shape: dict[str, Any], shapes: dict[str, dict[str, Any]]) -> set[str]:
    """Definitions that a shape refers to, also by others; codes that are words are not."""
    used: set[str] = set()
    rest = [shape]
    while rest:
        named = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(rest.pop()))) - used
        used |= named
        rest += [shapes[name] for name in named]
    return used


def _worded(record: type, field: str) -> bool:
    return (record.__name__, field) in _IN_WORDS


def _records(kind: object) -> Iterator[tuple[str, type]]:
    """Every record that a type is made of, with itself."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind.__name__, kind
        for name, part in get_type_hints(kind).items():
            if not _worded(kind, name):
                yield from _records(part)
    for part in get_args(kind):
        yield from _records(part)


def _shape(part: dict[str, Any], record: type | None) -> dict[str, Any]:
    """One definition: every field is always there, and no other."""
    if record is None:  # an enumeration
        return {key: value for key, value in part.items() if key != "title"}
    about, fields = _described(record)
    hints = get_type_hints(record, include_extras=True)
    properties: dict[str, Any] = {}
    for name, key in zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True):
        replaced = _IN_WORDS.get((record.__name__, name))
        if replaced is not None:
            properties |= replaced
            continue
        value = _plain(part["properties"][key])
        words = [m for m in getattr(hints[name], "__metadata__", ()) if isinstance(m, tuple)]
        if words:
            value = {"enum": list(words[0])}
        properties[key] = value | ({"description": fields[name]} if name in fields else {})
    return {
        "type": "object",
        "description": about,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    """A type without its default, and `type: [string, null]` for a choice of plain types."""
    found: dict[str, Any] = {}
    for key, value in part.items():
        if key == "anyOf" and all(set(one) == {"type"} for one in value):
            found["type"] = [one["type"] for one in value]
        elif isinstance(value, dict):
            found[key] = _plain(value)
        elif isinstance(value, list):
            found[key] = [_plain(one) if isinstance(one, dict) else one for one in value]
        elif key not in ("default", "title"):
            found[key] = value
    return found


def _described(record: type) -> tuple[str, dict[str, str]]:
    """The description of a record, and those of its fields."""
    about, items = _docstring(inspect.getdoc(record) or "")
    fields: dict[str, str] = {}
    for base in reversed(record.__mro__[: record.__mro__.index(msgspec.Struct)]):
        fields |= _docstring(inspect.getdoc(base) or "")[1] | dict(comments(base))
    names = set(record.__struct_fields__)
    fields |= {name: text for name, text in items.items() if name in names}
    return _json(about), {n: _json(text) for n, text in fields.items() if n in names and text}


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The text without its list of fields, and that list."""
    rest: list[str] = []
    items: dict[str, str] = {}
    names: tuple[str, ...] = ()
    for line in text.split("\n"):
        found = _ITEM.fullmatch(line)
        if found:
            names = tuple(found["names"].split(", "))
            items |= dict.fromkeys(names, found["text"])
        elif names and line.startswith("  "):
            items |= {name: f"{items[name]} {line.strip()}" for name in names}
        else:
            names = ()
            rest.append(line)
    return " ".join(" ".join(rest).split()), items


def comments(record: type) -> Iterator[tuple[str, str]]:
    """Comments of a record's fields, in order: at the end of a field's line, or alone above it."""
    source = textwrap.dedent(inspect.getsource(record))
    lines = source.split("\n")
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = comments.get(node.end_lineno or 0)
            if text is None:
                above = node.lineno - 1
                while above in comments and lines[above - 1].lstrip().startswith("#"):
                    above -= 1
                text = " ".join(comments[n] for n in range(above + 1, node.lineno))
            yield node.target.id, text


def _json(text: str) -> str:
    """A sentence about Python as one about JSON."""
    return re.sub(r"\bNone\b", "null", text)
