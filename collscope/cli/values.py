"""Values of the command line: what a shell completes, and conversion without pydantic.

Typer converts every value with pydantic, the defaults too, and pydantic takes a third of the time
of a report on a small run to load.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

HELP = ["--help", "-h"]


def convert_lightly(command: Any) -> None:  # noqa: ANN401 - click's command, which typer vendors
    """Let a command, or every command of a group, convert what it can by `converted`."""
    for within in getattr(command, "commands", {}).values():
        convert_lightly(within)
    context = typer.Context(command, help_option_names=HELP)
    for parameter in command.get_params(context):  # with --help, which the command keeps
        build = getattr(parameter, "get_runtime_param", None)  # what typer asks for the conversion
        if build is not None and not isinstance(build, _Conversion):
            parameter.get_runtime_param = _Conversion(build)


class _Conversion:
    """Stands for typer's conversion, which is built where a value needs it."""

    def __init__(self, build: Any) -> None:  # noqa: ANN401 - a bound method of the parameter
        """Nothing is built yet."""
        self._build = build

    def __call__(self) -> _Conversion:
        """Typer asks for it per value."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - as in typer
        """The value as the command takes it; typer raises what it has against it."""
        if value is None:  # as typer does
            return () if param.multiple or param.nargs == -1 else None
        described = param.type_descriptor
        light = converted(value, described.annotation, described.parameter_info)
        if light is None:
            return self._build().coerce(value, param=param, ctx=ctx)
        return light


def converted(value: Any, kind: Any, bounds: Any) -> Any | None:  # noqa: ANN401 - any option's
    """What typer makes of a value, where that is plain; None: ask typer.

    value   as written, or a default
    kind    annotation of the parameter
    bounds  its other settings: min, max, parser
    """
    if bounds.parser is not None:
        return None
    if get_origin(kind) is list and isinstance(value, (list, tuple)):
        each = [converted(item, get_args(kind)[0], bounds) for item in value]
        return None if None in each else each
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next((choice for choice in kind if value in (choice, choice.value)), None)
    if kind in (int, float):
        return _number(value, kind, bounds)
    if kind is Path and isinstance(value, (str, Path)):
        if value == "":  # of an unset variable; Path takes it for the current folder
            raise typer.BadParameter("the name is empty. Give a path, or leave it out")
        if not bounds.dir_okay and str(value).endswith(os.sep):  # which a Path does not keep
            raise typer.BadParameter(f"{value}: a folder. Name a file")
        return _path(value)
    return value if kind is str and isinstance(value, str) else None


def _path(value: str | Path) -> Path | None:
    """A path that can be read or is not there; None: ask typer, which refuses others."""
    # Path.exists() raises for a name that is too long.
    unreadable = not os.access(value, os.R_OK) and os.path.exists(value)  # noqa: PTH110
    return None if unreadable else Path(value)


def _number(value: Any, kind: type, bounds: Any) -> Any | None:  # noqa: ANN401
    """A number within its bounds; None: ask typer."""
    if isinstance(value, str):
        digits = value.replace(".", "", 1) if kind is float else value
        if not (digits.isascii() and digits.isdigit() and len(digits) < _DIGITS):
            return None
    number = kind(value)
    low = bounds.min is None or number >= bounds.min
    high = bounds.max is None or number <= bounds.max
    return number if low and high else None


_DIGITS = 16  # that a float and an int hold alike


def complete_system(incomplete: str) -> list[str]:
    """Shipped systems that begin so."""
    from collscope.roofline.catalogue import system_names

    return _beginning(system_names(), incomplete)


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    """Runs of the store that begin so."""
    return _beginning(_stored(context, "runs"), incomplete)


def complete_label(context: typer.Context, incomplete: str) -> list[str]:
    """Labels of measurements that begin so."""
    return _beginning(_stored(context, "labels"), incomplete)


def complete_side(context: typer.Context, incomplete: str) -> list[str]:
    """Labels and runs that begin so: what `compare` and `check` take."""
    return [*complete_label(context, incomplete), *complete_run(context, incomplete)]


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _stored(context: typer.Context, what: str) -> list[str]:
    """Names in the store; none where there is no store that can be read.

    what  method of `library.Store` that gives them
    """
    from collscope.errors import CollscopeError
    from collscope.library import Store

    given = context.params.get("db") or os.environ.get("COLLSCOPE_DB") or "collscope.db"
    try:
        return list(getattr(Store(Path(given)), what)())
    except CollscopeError:
        return []
