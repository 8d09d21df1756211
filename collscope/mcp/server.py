"""The server: tools over the Model Context Protocol, on standard input and output.

Source: https://modelcontextprotocol.io/specification; the protocol's official Python package does
the talking.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from collscope import __version__
from collscope.errors import CollscopeError
from collscope.mcp.bounded import clip, shorten
from collscope.mcp.tools import (
    TOOLS,
    Ingest,
    Scope,
    Tool,
    answer_schema,
    call,
    input_schema,
    name_of,
)

_INSTRUCTIONS = (
    "collscope reads logs, profiles and traces of NCCL and RCCL jobs. Ingest files first, then "
    "ask for the verdict of a run; report, compare and predict have the figures behind it. Ranges "
    "are in every answer: do not state a value without its range. 'not known' is an answer."
)


def make_server(scope: Scope) -> Server[dict[str, Any]]:
    """A server that answers within a scope."""
    one_at_a_time = anyio.Lock()  # a second ingest would wait for the store

    async def list_tools(_context: object, _page: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(tool) for tool in TOOLS])

    async def call_tool(
        _context: object, request: types.CallToolRequestParams
    ) -> types.CallToolResult:
        async with one_at_a_time:
            return await anyio.to_thread.run_sync(
                _called, request.name, request.arguments or {}, scope
            )

    return Server(
        "collscope",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _tool(tool: type[Tool]) -> types.Tool:
    return types.Tool(
        name=name_of(tool),
        description=tool.__doc__,
        input_schema=input_schema(tool),
        output_schema=answer_schema(tool),
        annotations=types.ToolAnnotations(
            read_only_hint=tool is not Ingest,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


def _called(name: str, arguments: dict[str, Any], scope: Scope) -> types.CallToolResult:
    """The result of a call; what goes wrong is one, too, so that the model reads it."""
    try:
        found = call(name, arguments, scope)
    except CollscopeError as error:
        return _failed(str(error))
    except Exception as error:  # whatever it is: the server goes on
        traceback.print_exc(file=sys.stderr)
        return _failed(f"{name}: internal error ({type(error).__name__}). Report it.")
    document, left_out = shorten(found.document)
    lines = [f"Left out of {path or '/'}: {number} entries." for path, number in left_out.items()]
    text = clip("\n".join([found.text.rstrip("\n"), *lines[:_LINES_OF_LISTS]]))
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=document
    )


_LINES_OF_LISTS = 10  # that name shortened lists


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def serve(scope: Scope) -> None:
    """Answer until standard input ends."""

    async def run() -> None:
        server = make_server(scope)
        async with stdio_server() as (given, answers):
            await server.run(given, answers, server.create_initialization_options())

    anyio.run(run)
