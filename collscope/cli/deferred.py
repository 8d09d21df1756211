"""Commands that are imported and built when they run: `--help` needs their one line only."""

from __future__ import annotations

import re
from functools import cached_property
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_group

from collscope.cli.values import convert_lightly

# What no option begins with, and a query may: an SQL comment. Behind a line end it is no option.
_COMMENT = re.compile(r"--(?:\s|[^=]*\n)")


class Deferred(TyperCommand):
    """Stands for a command, or a group of commands, in a list; becomes it when it is called."""

    def __init__(
        self, name: str, where: str, line: str, settings: dict[str, Any] | None = None
    ) -> None:
        """Nothing is imported yet.

        name      the command's name
        where     module below `collscope.cli` and what it holds there, as "report:sql": a function,
                  or a Typer with the commands of a group
        line      its line in the list: the first of its docstring, or the help of its group
        settings  context settings of the command, as `typer.Typer.command` takes them
        """
        super().__init__(name, help=line, rich_markup_mode=None)
        self._where = where
        self._settings = settings

    @cached_property
    def built(self) -> Any:  # noqa: ANN401 - click's command, which typer >= 0.29 vendors
        """The command itself."""
        module, _, attribute = self._where.partition(":")
        target = getattr(import_module(f"collscope.cli.{module}"), attribute)
        holder = typer.Typer(rich_markup_mode=None)
        if isinstance(target, typer.Typer):
            holder.add_typer(target, name=self.name)
        else:
            holder.command(self.name, context_settings=self._settings)(target)
        command = get_group(holder).commands[str(self.name)]
        convert_lightly(command)
        return command

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **more: Any) -> Any:  # noqa: ANN401 - as in the base
        """Parse the command's arguments; what the context runs is the command itself."""
        args = [f"\n{text}" if _COMMENT.match(text) else text for text in args]
        return self.built.make_context(info_name, args, *rest, **more)
