"""The commands. Thin: parse arguments, call one function, print, and set the exit code.

One module per family; what they need is imported when they run, so that `--help` is quick.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from collscope import __version__
from collscope.cli import (
    bench,
    doctor,
    ingest,
    judge,
    msccl,
    predict,
    record,
    replay,
    report,
    tune,
    whatif,
)
from collscope.cli.options import discard_output
from collscope.errors import CollscopeError


class _Commands(TyperGroup):
    """The commands; what typer's validation says of an option is left without its own prefix."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as in the base, of any typer release
        """Run the command of a command line."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # "Value error, 'pdf' is not one of 'text', 'md', 'csv', 'json'."
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    cls=_Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    help="What collectives cost a distributed GPU job, and what could be gained.",
)
app.add_typer(ingest.ingest_app, name="ingest")
app.add_typer(predict.export_app, name="export")
app.add_typer(whatif.whatif_app, name="whatif")
app.add_typer(bench.bench_app, name="bench")
for command in (
    report.report,
    replay.replay,
    judge.compare,
    judge.check,
    judge.roofline,
    msccl.msccl,
    predict.predict,
    report.sql,
    doctor.doctor,
    tune.tune,
):
    app.command()(command)
# What stands behind the command's name is the job's, its options too.
app.command(context_settings={"allow_interspersed_args": False})(record.record)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"collscope {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version_wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    global _debug  # noqa: PLW0603 - the one switch that main() must see after parsing
    _debug = debug


_debug = False


def main() -> None:
    """Entry point: run a command; errors go to stderr as one line, with their exit code."""
    try:
        app()
    except CollscopeError as error:
        if _debug:
            raise
        sys.stderr.write(f"collscope: {error}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of our output has gone, as in `| head`; nothing is left to say.
        discard_output()
        sys.exit(0)
    except Exception as error:
        if _debug:
            raise
        what = f"{type(error).__name__}: {error}".replace("\n", " ")
        remedy = "Run 'collscope --debug COMMAND ...' and report it"
        sys.stderr.write(f"collscope: internal error: {what}. {remedy}.\n")
        sys.exit(3)
