"""What to write instead, where a command line has the words of other tools."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

# Commands of other tools that have another name here.
_COMMANDS = {
    "version": "collscope --version",
    "help": "collscope --help, or collscope COMMAND --help",
    **dict.fromkeys(("add", "import", "insert", "load", "read"), "collscope ingest PATH"),
    **dict.fromkeys(("analyse", "analyze", "show", "stats", "summary", "view"), "collscope report"),
    **dict.fromkeys(("describe", "info", "inspect", "list", "ls"), "collscope runs"),
    **dict.fromkeys(("query", "tables", "views", "schema"), "collscope sql"),
    "diff": "collscope compare A B",
    "perfetto": "collscope export perfetto",
    "open": "collscope export perfetto RUN -o trace.json --open",
    **dict.fromkeys(
        ("gui", "serve", "ui", "web"), "datasette STORE, or collscope mcp for an assistant"
    ),
    **dict.fromkeys(("profile", "run", "launch"), "collscope record -- COMMAND"),
    **{kind: f"collscope ingest {kind} PATH" for kind in ("log", "trace", "csv", "table")},
    "completion": "collscope --install-completion",
    "simulate": "collscope predict",
    **dict.fromkeys(("delete", "drop", "remove", "rm"), "collscope runs rm RUN"),
}
_FORMATS = ("text", "md", "csv", "json", "jsonl", "html", "parquet", "junit", "github")
_ROWS = ("-n", "--limit", "--rows", "--top")
_OUTPUTS = ("--html", "--csv", "--out")  # of commands without -o
_OPTIONS = {
    **{f"--{name}": f"--format {name}" for name in _FORMATS},
    "--markdown": "--format md",
    **dict.fromkeys(("-t", "--table"), "--format text"),
    "--all": "--top 0",
    "--nl": "--format jsonl",
    "-f": "--format",
    "--output-format": "--format",
    "--out": "-o",
    "--output-file": "-o",
    **dict.fromkeys(_ROWS, "--top"),
    "-d": "--db",
    "--database": "--db",
    **dict.fromkeys(("-q", "--quiet"), "--brief"),
    "--store": "--db",
    "--name": "--run",
}
_ANYWHERE = {  # whatever the command
    **dict.fromkeys(("-V", "--version"), "Run collscope --version"),
    **dict.fromkeys(("-v", "--verbose"), "collscope --debug COMMAND shows tracebacks"),
    **dict.fromkeys(("--color", "--colour", "--no-color"), "Output has no colours"),
    **dict.fromkeys(
        ("--check", "--exit-code", "--fail-on", "--fail-under"),
        "Run collscope check BASELINE CURRENT: its exit code is the verdict",
    ),
}
_NEAR = 0.7
_SQLITE = b"SQLite format 3\0"  # sqlite.org/fileformat2.html, 1.3.1


def is_path(word: str) -> bool:
    """Whether a word names a file or folder, or looks as if it should."""
    ending = os.path.splitext(word)[1]  # noqa: PTH122 - any text
    return word == "-" or os.sep in word or len(ending) > 1 or os.path.exists(word)  # noqa: PTH110


def is_sqlite(path: str) -> bool:
    """Whether a path is that of an SQLite file; of a pipe nothing is read."""
    try:
        if not os.path.isfile(path):  # noqa: PTH113 - any text
            return False
        with open(path, "rb") as file:  # noqa: PTH123 - any text
            return file.read(len(_SQLITE)) == _SQLITE
    except (OSError, ValueError):
        return False


def instead_of_command(words: Sequence[str]) -> str | None:
    """What to run instead of an unknown command; None where no command is similar.

    words  of the command line, the unknown command first
    """
    word = words[0]
    if word == "help" and len(words) > 1:
        return f"Run collscope {shlex.join(words[1:])} --help."
    if is_sqlite(word):
        return f"Run 'collscope report --db {shlex.quote(word)}'."
    if is_path(word):
        return f"Run 'collscope ingest {shlex.quote(word)}'."
    command = _COMMANDS.get(word.lower())
    return None if command is None else f"Run {command}."


def _siblings_with(option: str, context: Any) -> list[str]:  # noqa: ANN401 - click's context
    """Commands of the same group that have an option; none beside the commands of the top."""
    parent = None if context is None else context.parent
    if parent is None or parent.parent is None:
        return []
    commands = parent.command.commands.items()
    path = parent.command_path
    return [
        f"'{path} {name}'"
        for name, command in commands
        if any(option in parameter.opts for parameter in command.params)
    ]


def _has(context: Any, words: str) -> bool:  # noqa: ANN401 - click's context
    """Whether the command of a context has the option that these words begin with."""
    option = words.split(maxsplit=1)[0]
    return context is not None and any(option in p.opts for p in context.command.params)


def _takes_arguments(context: Any) -> bool:  # noqa: ANN401 - click's context
    return any(p.param_type_name == "argument" for p in context.command.params)


def correct(error: Any, words: Sequence[str]) -> None:  # noqa: ANN401 - click's UsageError
    """Put what to write instead into click's report of an unknown option or argument.

    words  of the command line
    """
    name = getattr(error, "option_name", None)
    if name is None:
        if error.message.startswith("Got unexpected extra argument"):
            error.message += _instead_of_argument(error, words)
        elif error.message.startswith("No such command") and error.ctx.parent is not None:
            error.message += f" Commands: {', '.join(error.ctx.command.commands)}."
    elif (message := _instead_of_option(error, name)) is not None:
        error.message = message
        error.possibilities = None
    elif error.possibilities:
        error.possibilities = [option for option in error.possibilities if _is_near(name, option)]


def _instead_of_option(error: Any, name: str) -> str | None:  # noqa: ANN401 - click's UsageError
    """The report of an unknown option with what to write instead; None where that is not known."""
    context, message = error.ctx, error.message
    of_command = name in ("--db", "--run", "--format", "-o", "--output")
    if of_command and context is not None and context.parent is None:
        return f"{name}: an option of commands. Write it after a command's name"
    if others := _siblings_with(name, context):
        return f"{message} here. {', '.join(others)} {'have' if len(others) > 1 else 'has'} it"
    instead = _instead(name, context)
    return None if instead is None else f"{message}. {instead}"


def _instead(name: str, context: Any) -> str | None:  # noqa: ANN401 - click's context
    """What to write or run instead of an option that a command does not have."""
    of_sql = context is not None and context.info_name == "sql"
    if of_sql and name in ("-f", "--file"):
        return "Write < FILE for a query in a file, or --format FORMAT"
    if of_sql and name in _ROWS:
        return "Write LIMIT in the query"
    if name in _ANYWHERE:
        return _ANYWHERE[name]
    option = _option_for_output(context) if name in ("-o", "--output") else _OPTIONS.get(name)
    return None if option is None or not _has(context, option) else f"Write {option}"


def _option_for_output(context: Any) -> str | None:  # noqa: ANN401 - click's context
    """The option that names the output of a command without -o; None where it has no such."""
    if context is not None and any(word in context.command_path for word in (" ingest", " merge")):
        return "--db"
    return next((option for option in _OUTPUTS if _has(context, option)), None)


def _instead_of_argument(error: Any, words: Sequence[str]) -> str:  # noqa: ANN401 - as above
    """What to write instead of arguments that a command does not take; may be empty."""
    stores = [word for word in words if is_sqlite(word)]
    if stores and "--db" not in words:
        return f". Write --db {shlex.quote(stores[0])}"
    if _has(error.ctx, "--run") and not _takes_arguments(error.ctx):
        run = error.message.partition("(s) (")[2].removesuffix(")")
        return f". Write --run {shlex.quote(run)}" if run in words else ""  # one word
    if error.ctx is not None and error.ctx.info_name == "sql":
        return ". Write the query as one argument, in quotes"
    if error.ctx is not None and error.ctx.info_name == "report":
        return ". It takes one run; collscope compare A B takes two"
    return ""


def _is_near(given: str, option: str) -> bool:
    """Whether an option is spelled like what was given, apart from the hyphens of both."""
    from difflib import get_close_matches

    return bool(get_close_matches(given.lstrip("-"), [option.lstrip("-")], cutoff=_NEAR))
