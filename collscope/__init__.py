"""collscope: what collectives cost a distributed GPU job, and what could be gained.

As a library: `store = collscope.open("job.db")`, see docs/python.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

    from collscope.errors import CollscopeError
    from collscope.library import Store, Table, render

__version__ = "0.1.0"
__all__ = ["CollscopeError", "Store", "Table", "__version__", "open", "render"]


def open(path: str | PathLike[str]) -> Store:
    """A store by its path; it is made when something is ingested, if it does not exist.

    raises  MissingToolError when Python found the source tree instead of what was installed
    """
    from importlib.util import find_spec  # noqa: PLC0415 - the command line imports this module, too
    from pathlib import Path  # noqa: PLC0415

    if find_spec("collscope._logscan") is None:
        from collscope.errors import MissingToolError  # noqa: PLC0415

        raise MissingToolError(
            f"{Path(__file__).parent}: the sources, without their native parts. Start Python in"
            " another folder, or run 'pip install -e .' in this one."
        )
    store: Store = __getattr__("Store")(Path(path))
    return store


def __dir__() -> list[str]:
    """The exported names, which a shell completes."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as any module's
    """The other exported names, imported when they are first used."""
    if name not in __all__:
        raise AttributeError(f"module 'collscope' has no attribute '{name}'{_of_store(name)}")
    from importlib import import_module  # noqa: PLC0415

    module = "errors" if name == "CollscopeError" else "library"
    return getattr(import_module(f"collscope.{module}"), name)


def _of_store(name: str) -> str:
    """The call to make where a name is a method of stores."""
    if name.startswith("_") or not hasattr(__getattr__("Store"), name):
        return ""
    return f". Open a store: collscope.open('collscope.db').{name}(...)"
