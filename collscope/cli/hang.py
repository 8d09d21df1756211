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
    MD = "md"
    JSON = "json"
    HTML = "html"


def hang(
    paths: Annotated[list[str], typer.Argument(help="Flight recorder dumps, or their folder.")],
    format: Annotated[HangFormat | None, typer.Option("--format", help=FORMAT_HELP)] = None,
    output: Output = None,
) -> None:
    """Which rank holds up a job that hangs.

    Exit code 0: a verdict, 4: none.
    """
    from collscope.hang.collect import evidence_of
    from collscope.hang.judge import judge
    from collscope.reports.hang.text import render_hang

    places = targets(format, output, HangFormat)
    verdict = judge(evidence_of(paths))
    write_answer(places, lambda fmt: render_hang(verdict, fmt))
    if not verdict.decided:
        raise typer.Exit(4)
