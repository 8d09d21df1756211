"""The tools that an assistant may call: their arguments, and what each answers."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from collscope.errors import UsageError
from collscope.ingest.match import reading
from collscope.library import Store, render
from collscope.mcp.allowed import Allowed
from collscope.store.connection import SCHEMAS
from collscope.store.query import VIEWS, select
from collscope.writing import visible

Run = Annotated[str, Meta(description="Label of the run.", max_length=1_000)]
StoreFile = Annotated[
    str | None,
    Meta(description="Path of the store, an SQLite file. Default: that of the server."),
]
Paths = Annotated[
    list[str], Meta(description="Files, folders or globs.", min_length=1, max_length=10_000)
]
First = Annotated[str, Meta(description="The reference: a label, a traced run, a replay CSV.")]
Second = Annotated[str, Meta(description="What is compared with it.")]
StepMs = Annotated[
    float | None, Meta(description="A step without the profiler, in ms, as measured.")
]
System = Annotated[
    str | None, Meta(description="Machine whose ceilings count, such as h200 or mi300x.")
]


class Answered(msgspec.Struct, frozen=True):
    """What a tool answers: for people and models, and for programs."""

    text: str
    document: dict[str, Any]


class Scope(msgspec.Struct, frozen=True):
    """What the user lets an assistant use."""

    db: Path
    allowed: Allowed

    def store(self, name: str | None) -> Store:
        """The store that a call names, or that of the server.

        raises  UsageError when it lies outside the allowed folders
        """
        return Store(self.allowed.path(str(self.db) if name is None else name))


class Note(msgspec.Struct, frozen=True):
    """A diagnostic of an input."""

    severity: str
    code: str  # schemas/findings.md
    count: int
    message: str


class Input(msgspec.Struct, frozen=True):
    """One input after ingest."""

    path: str
    status: str  # added, replaced, known, unusable, matched
    dialect: str  # what it was read as
    counts: dict[str, int]  # what it holds
    reason: str  # why it is unusable
    notes: tuple[Note, ...]


class Inputs(msgspec.Struct, frozen=True):
    """The answer of `ingest`."""

    inputs: tuple[Input, ...]


class Labels(msgspec.Struct, frozen=True):
    """The answer of `runs`."""

    runs: tuple[str, ...]
    labels: tuple[str, ...]  # of measurements


class Rows(msgspec.Struct, frozen=True):
    """The answer of `sql`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]
    more: bool  # there are more rows


class Ingest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Read logs, profiles and traces of NCCL and RCCL jobs into a store."""

    paths: Paths
    run: Run = "main"
    store: StoreFile = None

    def answer(self, scope: Scope) -> Answered:
        """What became of each input."""
        found = scope.store(self.store).ingest(*scope.allowed.files(self.paths), run=self.run)
        inputs = tuple(
            Input(
                one.path, one.status, one.dialect, dict(one.counts), one.reason,
                tuple(Note(d.severity.value, d.code, d.count, d.message) for d in one.diagnostics),
            )
            for one in found
        )  # fmt: skip
        lines = [
            f"{i.path}: {' '.join(filter(None, (i.status, i.dialect, i.reason)))}" for i in inputs
        ]
        return Answered("\n".join(lines), msgspec.to_builtins(Inputs(inputs)))


class Runs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List the runs of a store, and the labels of its measurements."""

    store: StoreFile = None

    def answer(self, scope: Scope) -> Answered:
        """Labels."""
        store = scope.store(self.store)
        found = Labels(tuple(store.runs()), tuple(store.labels()))
        runs, labels = ", ".join(found.runs), ", ".join(found.labels)
        text = f"Runs: {runs or 'none'}. Measurements: {labels or 'none'}."
        return Answered(text, msgspec.to_builtins(found))


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Report how long a step of a traced run takes, what bounds it, why it is long, what to do."""

    run: Run = "main"
    step_ms: StepMs = None
    system: System = None
    store: StoreFile = None

    def answer(self, scope: Scope) -> Answered:
        """Step and causes, as `verdict` and `step` of a report."""
        from collscope.reports.verdict.text import brief  # noqa: PLC0415 - numpy

        system = scope.allowed.name(self.system)
        found = scope.store(self.store).report(self.run, system=system, step_ms=self.step_ms)
        report = json.loads(render(found, "json"))
        document = {"verdict": report["verdict"], "step": report["step"]}
        return Answered(brief(self.run, found.verdict, found.step, "text"), document)


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Report what collectives cost a run, class by class, and what faster ones would save."""

    run: Run = "main"
    step_ms: StepMs = None
    system: System = None
    top: Annotated[int, Meta(description="Rows of a table.", ge=1, le=100)] = 5
    store: StoreFile = None

    def answer(self, scope: Scope) -> Answered:
        """The report, with `top` classes."""
        from collscope.reports.report.build import shorten  # noqa: PLC0415 - numpy
        from collscope.reports.report.formats import render as render_report  # noqa: PLC0415

        system = scope.allowed.name(self.system)
        found = scope.store(self.store).report(self.run, system=system, step_ms=self.step_ms)
        shown = shorten(found, self.top)
        text = visible(render_report(found, "text", shown=shown))
        return Answered(text, json.loads(render_report(shown, "json")))


class Compare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Compare two labels of measurements, or two traced runs: speed-ups and crossovers."""

    first: First
    second: Second
    store: StoreFile = None

    def answer(self, scope: Scope) -> Answered:
        """The comparison."""
        names = [scope.allowed.name(name) or "" for name in (self.first, self.second)]
        return _rendered(scope.store(self.store).compare(*names))


class Explain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Explain why a step of the second traced run takes longer than one of the first."""

    first: First
    second: Second
    store: StoreFile = None

    def answer(self, scope: Scope) -> Answered:
        """The parts of the difference."""
        return _rendered(scope.store(self.store).explain(self.first, self.second))


class Predict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Predict the step time of a traced run with other times of its collectives."""

    run: Run = "main"
    label: Annotated[
        str | None, Meta(description="Of the new times: measurements, or another traced run.")
    ] = None
    before: Annotated[
        str | None, Meta(description="Label of the recorded setting, measured as the new one.")
    ] = None
    system: System = None
    step_ms: StepMs = None
    store: StoreFile = None

    def answer(self, scope: Scope) -> Answered:
        """The prediction, with its range."""
        found = scope.store(self.store).predict(
            self.run, label=scope.allowed.name(self.label),
            before=scope.allowed.name(self.before), system=scope.allowed.name(self.system),
            step_ms=self.step_ms,
        )  # fmt: skip
        return _rendered(found)


class Hang(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Name the rank that holds up a job that hangs, from dumps, logs, stderr and RAS answers."""

    paths: Paths

    def answer(self, scope: Scope) -> Answered:
        """The verdict, decided or not."""
        from collscope.hang.collect import evidence_of  # noqa: PLC0415
        from collscope.hang.judge import judge  # noqa: PLC0415
        from collscope.reports.hang.text import render_hang  # noqa: PLC0415

        verdict = judge(evidence_of(scope.allowed.files(self.paths)))
        return Answered(render_hang(verdict, "text"), json.loads(render_hang(verdict, "json")))


class Sql(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Query a store's views in SQL, read-only; without a query, list the views and columns."""

    query: Annotated[str | None, Meta(description="One SELECT over the views.")] = None
    limit: Annotated[int, Meta(description="Rows at most.", ge=1, le=1_000)] = 100
    store: StoreFile = None

    def answer(self, scope: Scope) -> Answered:
        """Columns and rows, and whether there are more."""
        path = scope.store(self.store).path
        with reading(path) as connection:
            query = VIEWS if self.query is None else self.query
            columns, rows = select(connection, query, timeout_s=_QUERY_S)
            with closing(rows):
                read = list(islice(rows, self.limit + 1))
        shown = tuple(tuple(map(_plain, row)) for row in read[: self.limit])
        found = Rows(tuple(columns), shown, len(read) > self.limit)
        lines = ["\t".join("" if v is None else str(v) for v in row) for row in (columns, *shown)]
        lines += ["… more rows: raise limit, or select less."] * found.more
        return Answered("\n".join(lines), msgspec.to_builtins(found))


_QUERY_S = 30.0  # for a query; a model does not wait longer

Tool = Verdict | Report | Compare | Explain | Predict | Hang | Ingest | Runs | Sql
# What a tool answers: a record, or a file of schemas/ and the properties of it, none: all.
TOOLS: dict[type[Tool], type[msgspec.Struct] | tuple[str, ...]] = {
    Verdict: ("report", "verdict", "step"),
    Report: ("report",),
    Compare: ("compare",),
    Explain: ("explain",),
    Predict: ("predict",),
    Hang: ("hang",),
    Ingest: Inputs,
    Runs: Labels,
    Sql: Rows,
}


def name_of(tool: type[Tool]) -> str:
    """Name of a tool in the protocol."""
    return tool.__name__.lower()


def input_schema(tool: type[Tool]) -> dict[str, Any]:
    """JSON Schema of a tool's arguments."""
    return {k: v for k, v in _schema(tool).items() if k != "description"}


def answer_schema(tool: type[Tool]) -> dict[str, Any]:
    """JSON Schema of a tool's answer, without the descriptions of its properties."""
    answer = TOOLS[tool]
    if not isinstance(answer, tuple):
        return _bare(_schema(answer))
    name, *properties = answer
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    if properties:
        chosen = {key: schema["properties"][key] for key in properties}
        kept = {"type": "object", "properties": chosen, "required": properties}
        schema = {**kept, "$defs": _needed(chosen, schema["$defs"])}
    return _bare(schema)


def _schema(record: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON Schema of a record, its own properties at the top."""
    _, components = msgspec.json.schema_components((record,), ref_template="#/$defs/{name}")
    own = components.pop(record.__name__)
    return {**own, "$defs": components} if components else dict(own)


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without its descriptions, which are no part of what it allows."""

    def bare(value: Any) -> Any:  # noqa: ANN401 - JSON
        return _bare(value) if isinstance(value, dict) else value

    return {
        key: [bare(one) for one in part] if isinstance(part, list) else bare(part)
        for key, part in schema.items()
        if key != "description" or not isinstance(part, str)
    }


def _needed(value: object, definitions: dict[str, Any]) -> dict[str, Any]:
    """The definitions that a part of a schema refers to, and those that they refer to."""
    found: dict[str, Any] = {}
    left = [value]
    while left:
        text = json.dumps(left.pop())
        for name, definition in definitions.items():
            if name not in found and f'"#/$defs/{name}"' in text:
                found[name] = definition
                left.append(definition)
    return found


def call(name: str, arguments: dict[str, Any], scope: Scope) -> Answered:
    """Answer a call.

    raises  CollscopeError for arguments that do not fit, and as the command would
    """
    tool = next((tool for tool in TOOLS if name_of(tool) == name), None)
    if tool is None:
        known = ", ".join(map(name_of, TOOLS))
        raise UsageError(f"{name}: no such tool. Use one of {known}.")
    try:
        chosen = msgspec.convert(arguments, tool)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}. See the tool's input schema.") from error
    return chosen.answer(scope)


def _rendered(answer: Any) -> Answered:  # noqa: ANN401 - an answer of any question
    return Answered(render(answer, "text"), json.loads(render(answer, "json")))


def _plain(value: Any) -> str | int | float | None:  # noqa: ANN401 - as SQLite has it
    """A value of SQLite as JSON has it."""
    found: str | int | float | None = value.hex() if isinstance(value, bytes) else value
    return found
