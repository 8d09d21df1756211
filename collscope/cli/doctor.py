"""`collscope doctor`: what is installed."""

from __future__ import annotations

from collscope.cli.options import DEFAULT_DB, Db, write
from collscope.errors import MissingToolError


def doctor(db: Db = DEFAULT_DB) -> None:
    """Show what is installed and how to get what is missing."""
    from collscope.doctor import diagnose, render
    from collscope.reports.rendering.text import terminal_width

    checks = diagnose(db)
    write(render(checks, terminal_width()), None)
    if any(c.found is False and c.required for c in checks):
        raise MissingToolError("doctor: a required part is missing. Run the commands named above.")
