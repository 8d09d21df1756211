"""The commands. Thin: parse arguments, call one function, print, and set the exit code.

One module per family, imported when one of its commands runs, and what a command needs is imported
by the command: start-up counts.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from collscope import __version__
from collscope.cli.deferred import Deferred
from collscope.cli.options import discard_output, print_stderr, write_error_message
from collscope.cli.values import HELP, convert_lightly
from collscope.errors import CollscopeError, UsageError
from collscope.outputs import begin_command
from collscope.writing import one_line

# In the order of `--help`. A line is the first of the command's docstring (held by test_cli).
COMMANDS = (
    Deferred("ingest", "ingest:ingest_app", "Read logs, profiles and traces into the store."),
    Deferred(
        "record",
        "record:record",
        "Log or record a job's collectives and print the report.",
        # What stands behind the command's name is the job's, its options too.
        {"allow_interspersed_args": False},
    ),
    Deferred("watch", "watch:watch", "Show what a job does while it is recorded."),
    Deferred("attach", "attach:attach", "Record a running job for a while and print the report."),
    Deferred(
        "report",
        "report:report",
        "Show what collectives cost a run and what faster ones save.",
    ),
    Deferred(
        "hang",
        "hang:hang",
        "Find the rank that holds up a hung job.",
    ),
    Deferred(
        "compare",
        "judge:compare",
        "Compare labels or traced runs: speed-ups and crossovers.",
    ),
    Deferred(
        "check",
        "judge:check",
        "Did a build regress? Exit code 0: no, 1: yes, 4: no verdict.",
    ),
    Deferred(
        "predict",
        "predict:predict",
        "Simulate the step time of a traced run after a change.",
    ),
    Deferred(
        "replay",
        "replay:replay",
        "Measure the collectives of a run, a plan or a sweep.",
    ),
    Deferred(
        "tune",
        "tune:tune",
        "Find faster settings for a job's collectives and confirm them.",
    ),
    Deferred(
        "roofline",
        "judge:roofline",
        "Show the speed limits of a fabric by operation and size.",
    ),
    Deferred("bench", "bench:bench_app", "Run microbenchmarks on this machine."),
    Deferred("whatif", "whatif:whatif_app", "Estimate AllReduce time with other gradient buckets."),
    Deferred(
        "msccl",
        "msccl:msccl",
        "Show which classes MSCCL algorithms serve, and at what cost.",
    ),
    Deferred("export", "predict:export_app", "Export a run to the formats of other tools."),
    Deferred(
        "runs",
        "runs:runs",
        "List the runs of the store; 'runs rm NAME' removes one.",
    ),
    Deferred(
        "merge",
        "merge:merge",
        "Merge several stores into one and match its runs again.",
    ),
    Deferred(
        "sanitize",
        "sanitize:sanitize",
        "Copy logs, traces or a store without names, for sharing.",
    ),
    Deferred(
        "sql",
        "report:sql",
        "Query the store in SQL (read-only), or list its views.",
    ),
    Deferred(
        "mcp",
        "mcp:mcp",
        "Serve an assistant over the Model Context Protocol.",
    ),
    Deferred(
        "doctor",
        "doctor:doctor",
        "Show what is installed and how to get what is missing.",
    ),
)


@contextmanager
def _closed_pipe() -> Iterator[None]:
    """End as a program does whose reader has gone: typer ends with 1, a regression to a script."""
    try:
        yield
    except BrokenPipeError:
        discard_output(sys.stdout)
        sys.exit(_CLOSED_PIPE)


_WrongUse: Any = typer.BadParameter.__base__  # click's UsageError, which typer vendors


@contextmanager
def _corrected(words: Sequence[str]) -> Iterator[None]:
    """Say what to write instead of an unknown option, or of a store given alone.

    words  of the command line
    """
    try:
        yield
    except _WrongUse as error:
        from collscope.cli.hints import correct

        correct(error, words)
        raise


class _Commands(TyperGroup):
    """The commands; validation errors of options drop typer's own prefix."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - as in the base
        """Hold every command of `COMMANDS`, still deferred."""
        super().__init__(**attributes)
        for command in COMMANDS:
            self.add_command(command)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as in the base
        """Parse what stands before the command."""
        convert_lightly(self)  # typer adds the options of completion last
        with _closed_pipe(), _corrected(args):  # --version and --help print here
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as in the base
        """Find the command; where there is none, say which is meant."""
        try:
            return super().resolve_command(ctx, args)
        except _WrongUse as error:
            from collscope.cli.hints import instead_of_command

            if instead := instead_of_command(args):
                error.message = f"No such command '{one_line(args[0])}'. {instead}"
            raise

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as in the base, of any typer release
        """Run the command of a command line."""
        try:
            with _closed_pipe(), _corrected([*ctx._protected_args, *ctx.args]):
                return super().invoke(ctx)
        except typer.BadParameter as error:
            # "Value error, 'pdf' is not one of 'text', 'md', 'csv', 'json'."
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    cls=_Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
    invoke_without_command=True,
    context_settings={"help_option_names": HELP},
    epilog=(
        "Exit codes: 0 done; 1 'check' found a regression; 2 wrong use; 3 an input or the store "
        "cannot be used; 4 no verdict; 5 a needed package or tool is missing; 6 a replay failed; "
        "130 ended by Ctrl-C; 141 the reader of the output closed it."
    ),
    help="Shows what collectives cost a GPU job and what faster ones would save.",
)


BEGIN = """\
collscope: what collectives cost a GPU job and what faster ones would save.

  collscope record -- torchrun train.py   log a job's collectives and report
  collscope ingest auto PATH...           read logs, profiles, traces and tables
  collscope report --system h200          their cost and possible savings
  collscope predict --with LABEL          the step time after a change
  collscope runs                          what the store holds
  collscope doctor                        what is installed and what is missing

All commands: collscope --help. One of them: collscope COMMAND --help."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"collscope {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    _version_wanted: Annotated[
        bool,
        typer.Option(
            "-V", "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    global _debug  # noqa: PLW0603 - the one switch that main() must see after parsing
    _debug = debug
    if context.invoked_subcommand is None:
        typer.echo(BEGIN)


_debug = False


def _printed_by_rank_0(error: CollscopeError) -> bool:
    """Whether another rank of the launcher prints this error: all ranks have one command line."""
    if not isinstance(error, UsageError):
        return False
    # Not before: where files cannot be opened, no module can be loaded to say so.
    from collscope.replay.mpi import launched

    place = launched(os.environ)
    return place is not None and place.rank > 0


_CLOSED_PIPE = 141  # as shells have it of a program that SIGPIPE ended
_COMPLETIONS = ("--show-completion", "--install-completion")
_SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


def _complete_for_shell(arguments: list[str]) -> None:
    """Show or install completion for a shell that is named, and end; else do nothing.

    Typer's options take no name, and would write for the shell that runs them.
    raises  UsageError for a name of no shell
    """
    if not arguments or arguments[0] not in _COMPLETIONS or len(arguments) == 1:
        return
    option, shell = arguments[0], arguments[1]
    if shell not in _SHELLS:
        known = ", ".join(_SHELLS)
        raise UsageError(f"{option} {shell}: no such shell. Name one of {known}, or none.")
    from typer._completion_shared import get_completion_script, install

    variable = "_COLLSCOPE_COMPLETE"
    if option == "--show-completion":
        script = get_completion_script(prog_name="collscope", complete_var=variable, shell=shell)
        typer.echo(script)
    else:
        shell, path = install(shell=shell, prog_name="collscope", complete_var=variable)
        typer.echo(f"{shell} completion installed in {path}. New shells use it.")
    sys.exit(0)


def main() -> None:
    """Entry point: run a command; errors go to stderr as one line, with their exit code."""
    # Records by the thousand hold no cycles: looking for them so often takes 5 % of a report.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)  # nor at the end, where Python looks through all that there is
    # numpy asks for huge pages, which the kernel clears whole: a tenth of the ingest of a log.
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    if sys.stderr is None:  # a shell's `2>&-`; the exit code still reports it
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - to the process's end
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        # PYTHONUNBUFFERED, usual in containers: of a text that the system takes in part, as a disk
        # that is nearly full does, Python would silently drop the rest.
        sys.stdout = os.fdopen(
            sys.stdout.fileno(),
            "w",
            buffering=1,
            encoding=sys.stdout.encoding,
            errors=sys.stdout.errors,
            closefd=False,
        )
    begin_command()
    try:
        with _closed_pipe():
            _complete_for_shell(sys.argv[1:])
            app()
    except CollscopeError as error:
        if sys.stdout is not None and not _flushed(sys.stdout):
            discard_output(sys.stdout)  # Python would try again at its end, and exit with 120
        if _debug:
            traceback.print_exc()
        elif not _printed_by_rank_0(error):
            print_stderr(f"collscope: {error}")
        sys.exit(error.exit_code)
    except Exception as error:
        message, status = _other_error(error)
        if _debug:
            traceback.print_exc()
        else:
            print_stderr(f"collscope: {message}")
        sys.exit(status)


def _flushed(stream: TextIO) -> bool:
    """Whether all that was written to a stream has reached its file."""
    try:
        stream.flush()
    except OSError:
        return False
    return True


def _other_error(error: Exception) -> tuple[str, int]:
    """Message and exit code of an error that no command raised for its user."""
    if isinstance(error, OSError):
        if not _flushed(sys.stdout):
            discard_output(sys.stdout)
            return write_error_message(error), 3
        where = error.filename or "a file"
        return f"{where}: {error.strerror}. Check its name, permissions and disk.", 3
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        package = error.name.partition(".")[0]
        if package != "collscope":
            return f"{package}: not installed. Run 'pip install {package}'.", 5
    what = f"{type(error).__name__}: {error}"
    remedy = "Run 'collscope --debug COMMAND ...' and report it"
    return f"internal error: {what}. {remedy}.", 3
