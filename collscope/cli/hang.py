"""`collscope hang`: who holds up a job."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from collscope.cli.answers import targets, write_answer
from collscope.cli.options import FORMAT_HELP, Output


class HangFormat(str, Enum):
    """Output formats of the verdict of a hang."""

    TEXT = "text"
    JSON = "json"


def hang(
    paths: Annotated[list[str], typer.Argument(help="Flight recorder dumps, or their folder.")],
    format: Annotated[HangFormat | None, typer.Option("--format", help=FORMAT_HELP)] = None,
    output: Output = None,
) -> None:
    """Which rank holds up a job that hangs.

    Exit code 0: a verdict, 4: none.
    """
    import msgspec

    from collscope.hang.collect import evidence_of
    from collscope.hang.judge import judge
    from collscope.reports.hang.text import verdict_text

    places = targets(format, output, HangFormat)

    verdict = judge(evidence_of(paths))

    def rendered(fmt: str) -> str:
        return msgspec.json.encode(verdict).decode() if fmt == "json" else verdict_text(verdict)

    write_answer(places, rendered)
    if not verdict.decided:
        raise typer.Exit(4)
