"""`collscope mcp`: what an assistant may ask, and what it gets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

mcp = pytest.importorskip("mcp")

from collscope.mcp.allowed import Allowed  # noqa: E402 - after the check
from collscope.mcp.bounded import MAX_CHARACTERS, clip, shorten  # noqa: E402
from collscope.mcp.server import make_server  # noqa: E402
from collscope.mcp.tools import TOOLS, Scope, answer_schema, name_of  # noqa: E402


def ask(server: object, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Results of calls by the package's own client, one after the other."""

    async def talk() -> list[Any]:
        async with mcp.Client(server) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return anyio.run(talk)


@pytest.fixture
def scope(tmp_path: Path, samples: Path) -> Scope:
    return Scope(tmp_path / "s.db", Allowed((tmp_path.resolve(), samples.resolve())))


def _text(result: Any) -> str:  # noqa: ANN401 - of the protocol
    return str(result.content[0].text)


def test_every_tool_answers_as_its_schema_says(scope: Scope, samples: Path) -> None:
    traces = samples / "traces"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("ingest", {"paths": [str(traces / "default")]}),
        ("ingest", {"paths": [str(traces / "ringll")], "run": "ring"}),
        ("runs", {}),
        ("verdict", {"run": "ring"}),
        ("report", {"top": 2}),
        ("compare", {"first": "main", "second": "ring"}),
        ("explain", {"first": "main", "second": "ring"}),
        ("predict", {"label": "ring"}),
        ("sql", {}),
        ("sql", {"query": "SELECT run, COUNT(*) AS calls FROM calls GROUP BY run"}),
        ("hang", {"paths": [str(samples / "nccl" / "mixed")]}),
    ]
    results = ask(make_server(scope), *calls)
    tools = {name_of(tool): tool for tool in TOOLS}
    assert {name for name, _ in calls} == set(tools)
    for (name, _), result in zip(calls, results, strict=True):
        assert not result.is_error, _text(result)
        jsonschema.validate(result.structured_content, answer_schema(tools[name]))
        assert len(_text(result)) <= MAX_CHARACTERS
    assert results[2].structured_content == {"runs": ["main", "ring"], "labels": []}
    assert results[3].structured_content["verdict"][0]["cause"] == "slow_setting"
    assert "SLOW SETTING" in _text(results[3])
    assert results[9].structured_content["columns"] == ["run", "calls"]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("hang", {"paths": ["/etc/passwd"]}, "/etc/passwd: outside the allowed folders"),
        ("ingest", {"paths": ["/etc/host*"]}, "/etc: outside the allowed folders"),
        ("ingest", {"paths": ["-"]}, "standard input carries the protocol"),
        ("runs", {"store": "/tmp/../s.db"}, "/tmp/../s.db: outside the allowed folders"),
        ("report", {"system": "/etc/hosts"}, "/etc/hosts: outside the allowed folders"),
        ("compare", {"first": "main", "second": "/etc/hosts"}, "outside the allowed folders"),
        ("sql", {"query": "ATTACH 'x' AS y"}, "it would do more than read the store"),
        ("report", {"runn": "main"}, "unknown field `runn`"),
        ("report", {"top": 0}, ">= 1"),
        ("ingst", {}, "ingst: no such tool. Use one of verdict, report"),
        ("report", {"run": "nightly"}, "no run 'nightly'"),
    ],
)
def test_what_may_not_be_asked_is_an_error_that_the_model_reads(
    scope: Scope, samples: Path, name: str, arguments: dict[str, Any], said: str
) -> None:
    mixed = ("ingest", {"paths": [str(samples / "nccl" / "mixed")]})
    _, result = ask(make_server(scope), mixed, (name, arguments))
    assert result.is_error
    assert said in _text(result)


def test_a_link_does_not_lead_out_of_the_folders(scope: Scope, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "rank0.log").symlink_to("/etc/passwd")
    (result,) = ask(make_server(scope), ("ingest", {"paths": [str(folder)]}))
    assert result.is_error
    assert "rank0.log: outside the allowed folders" in _text(result)
    assert not (tmp_path / "s.db").exists()


def test_the_command_talks_on_standard_input_and_output(tmp_path: Path, samples: Path) -> None:
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "collscope", "mcp", "--db", "s.db", "--allow", ".", "--allow", str(samples)],
        cwd=tmp_path,
    )
    read, report = ask(
        server, ("ingest", {"paths": [str(samples / "nccl" / "mixed")]}), ("report", {})
    )
    assert {i["status"] for i in read.structured_content["inputs"]} == {"added"}
    assert _text(report).startswith("collscope report, run main")


def test_an_internal_error_ends_the_call_and_not_the_server(
    scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr("collscope.mcp.server.call", broken)
    (result,) = ask(make_server(scope), ("runs", {}))
    said = "runs: internal error (ZeroDivisionError). Report it."
    assert (result.is_error, _text(result)) == (True, said)


_JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=50,
)


# Each example is written as JSON many times on the way to its bound.
@settings(max_examples=30)
@given(st.dictionaries(st.text(max_size=3), _JSON), st.integers(1, 2_000))
def test_a_document_is_cut_to_its_bound_and_says_so(inner: dict[str, Any], times: int) -> None:
    document = {"rows": [inner] * times}
    shown, left_out = shorten(document)
    fits = len(json.dumps(document, ensure_ascii=False)) <= MAX_CHARACTERS
    assert (shown == document) == fits == (not left_out)
    assert len(json.dumps(shown, ensure_ascii=False)) <= MAX_CHARACTERS
    if left_out:
        assert len(shown["rows"]) + left_out["/rows"] == times


def test_a_long_text_ends_at_a_line() -> None:
    text = "x" * 79 + "\n"
    cut = clip(text * 1_000)
    assert clip("short") == "short"
    *lines, last = cut.splitlines()
    assert last.endswith("more characters: ask for less, or use sql.")
    assert set(lines) == {"x" * 79}
