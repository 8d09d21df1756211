"""`collscope hang`: who holds up a job."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from collscope.cli.options import Output, write


class HangFormat(str, Enum):
    """Output formats of the verdict of a hang."""

    TEXT = "text"
    JSON = "json"


def hang(
    paths: Annotated[list[str], typer.Argument(help="Flight recorder dumps, or their folder.")],
    format: Annotated[
        HangFormat, typer.Option("--format", help="Output format.")
    ] = HangFormat.TEXT,
    output: Output = None,
) -> None:
    """Which rank holds up a job that hangs.

    Exit code 0: a verdict, 4: none.
    """
    import msgspec

    from collscope.hang.collect import evidence_of
    from collscope.hang.judge import judge
    from collscope.reports.hang.text import verdict_text

    verdict = judge(evidence_of(paths))
    as_json = format is HangFormat.JSON
    write(msgspec.json.encode(verdict).decode() if as_json else verdict_text(verdict), output)
    if not verdict.decided:
        raise typer.Exit(4)
