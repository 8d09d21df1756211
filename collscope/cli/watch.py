"""`collscope watch`: a job's recordings while they grow."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collscope.cli.options import SYSTEM, SYSTEM_VARIABLE, write
from collscope.cli.values import complete_system

if TYPE_CHECKING:
    from collscope.reports.watch.answer import Watch
    from collscope.reports.watch.follow import Followed

_OTHER_LINES = 14  # of a terminal, beside the rows of classes


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder of the recorder's files.")],
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            envvar=SYSTEM_VARIABLE,
            autocompletion=complete_system,
            help=f"Machine whose ceilings to show: {SYSTEM}.",
        ),
    ] = None,
    every: Annotated[float, typer.Option("--every", help="Seconds between updates.", min=0.1)] = (
        2.0
    ),
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
) -> None:
    """Show what a job does while it is recorded.

    On a terminal the lines are refreshed; elsewhere they are printed at each update. Ctrl-C and
    SIGTERM end it.
    """
    from collscope.reports.rendering.text import text_width
    from collscope.reports.watch.answer import Watch
    from collscope.reports.watch.follow import Followed
    from collscope.reports.watch.text import render_watch
    from collscope.roofline.chosen import make_roofs

    seen = Watch(make_roofs(system, ()))
    followed = Followed(folder)
    with until_ended() as ended, _shown(refreshed=not once) as show:
        while True:
            _look(followed, seen, ended)
            rows = None if once else max(shutil.get_terminal_size().lines - _OTHER_LINES, 1)
            show(render_watch(seen.moment(time.monotonic()), text_width(), rows))
            if once or ended.wait(every):
                return


def _look(followed: Followed, seen: Watch, ended: threading.Event) -> None:
    for process, recording, fresh in followed.poll():
        seen.take(process, recording.process(), fresh, time.monotonic())
        if ended.is_set():
            return


@contextmanager
def until_ended() -> Iterator[threading.Event]:
    """What Ctrl-C, SIGTERM and a lost connection set, which would end the process."""
    ended = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: ended.set())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(*, refreshed: bool) -> Iterator[Callable[[str], None]]:
    """How lines are shown: in the place of those before on a terminal, else below them."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    if not refreshed or not console.is_terminal or console.is_dumb_terminal:
        yield lambda text: write(text + ("\n" if refreshed else ""), None)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda text: live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)
