"""Answers as notebooks show them: the page of the command, and its figures by `plot()`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

if TYPE_CHECKING:
    from os import PathLike

    from collscope.reports.rendering.page import Figure

_Answer = TypeVar("_Answer", bound=msgspec.Struct)


def shown(
    answer: _Answer, render: Callable[[Any, str], str], figures: Callable[[], Sequence[Figure]]
) -> _Answer:
    """The answer with `_repr_html_()`, which notebooks call, and `plot(path=None)`.

    It is a record of a subclass; pickled and read back, one of its own class.

    render   gives the answer in a format
    figures  gives the figures of its page
    """
    kind = type(answer)
    fields = {name: getattr(answer, name) for name in kind.__struct_fields__}

    def as_html(self: msgspec.Struct) -> str:
        from collscope.reports.rendering.page import framed  # noqa: PLC0415 - for notebooks alone

        return framed(render(self, "html"))

    def plot(_: msgspec.Struct, path: str | PathLike[str] | None = None) -> object:
        """The page's figures, one below the other: a figure of matplotlib, None without any.

        path    a file to write them into, .png, .svg or .pdf
        raises  UsageError for another ending, InputError when the file cannot be written
        """
        from collscope.reports.rendering.plot import stacked, write_plot  # noqa: PLC0415

        found = figures()
        if found and path is not None:
            write_plot(found, Path(path))
        return stacked(found) if found else None

    methods = {
        "_repr_html_": as_html, "plot": plot,
        "__reduce__": lambda _: (partial(kind, **fields), ()),
    }  # fmt: skip
    subclass = msgspec.defstruct(
        kind.__name__, [], bases=(kind,), namespace=methods, frozen=True, kw_only=True
    )
    return cast("_Answer", subclass(**fields))
