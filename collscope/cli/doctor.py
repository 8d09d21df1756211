"""`collscope doctor`: what is installed."""

from __future__ import annotations

from collscope.cli.options import write
from collscope.errors import MissingToolError


def doctor() -> None:
    """What is installed, and the command that mends what is missing."""
    from collscope.doctor import diagnose, render

    checks = diagnose()
    write(render(checks), None)
    if any(c.found is False and c.required for c in checks):
        raise MissingToolError("doctor: a needed part is missing. Run the commands named above.")
