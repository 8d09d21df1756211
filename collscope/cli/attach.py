"""`collscope attach`: record a job that runs, for a while."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collscope.cli.options import DEFAULT_DB, Db, checked_label, print_stderr, summarise
from collscope.cli.progress import progress
from collscope.cli.record import held_by_store, print_report
from collscope.cli.values import complete_run
from collscope.cli.watch import until_ended
from collscope.errors import UsageError
from collscope.ingest.progress import Reading
from collscope.units import count, count_of, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from collscope.ingest.attach import Recorders
    from collscope.reports.watch.follow import Followed

_SETTLE_S = 2.0  # the recorder reads its control file once a second, and writes every 10 ms
_SILENT = (
    "The other processes ended, made no call, launched only CUDA graphs, or missed the change: "
    "the RAS service forwards it without confirmation."
)
_GRAPHS = (
    "CUDA graphs captured earlier keep their mask: their launches are not recorded until they are "
    "captured again."
)


def attach(
    where: Annotated[
        str,
        typer.Argument(
            metavar="HOST[:PORT]|FILE",
            help="The job's RAS service (NCCL 2.31), or the control file's path, with a slash.",
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Folder of the recorder's files.")],
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long, such as 30s or 5m.")
    ] = "30s",
    db: Db = DEFAULT_DB,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            autocompletion=complete_run,
            callback=checked_label,
            help="New run of the store. Default: attach-DATE-TIME.",
        ),
    ] = None,
) -> None:
    """Record a running job for a while and print the report.

    Start the job with the recorder at level off. Ctrl-C and errors also disarm the recorder.
    """
    from collscope.ingest import commands
    from collscope.ingest.attach import NotDisarmedError, armed, recorders_in
    from collscope.reports.watch.follow import Followed

    seconds = parse_seconds(duration)
    name = run or time.strftime("attach-%Y%m%d-%H%M%S")
    held_by_store(db, name)
    found = recorders_in(folder)
    arm, disarm, by_hand = _control(where, found) if os.sep in where else _service(where, found)
    followed = Followed(folder)
    if found.levels == {"off"}:  # its files are small
        _recording(followed)
    failed: NotDisarmedError | None = None
    with until_ended() as ended:
        try:
            with armed(arm, disarm, by_hand):
                recorders = count(found.processes, "recorder")
                print_stderr(
                    f"collscope: {recorders} of {folder} armed, level {found.armed_level}, for"
                    f" {seconds:g} s. {_GRAPHS} Ctrl-C disarms."
                )
                for fault in found.faults:
                    print_stderr(f"collscope: GPU times are not recorded: {fault}.")
                ended.wait(seconds)
        except NotDisarmedError as error:
            failed = error
    time.sleep(_SETTLE_S)
    if found.levels == {"off"} and (few := _recording(followed)) < found.processes:
        print_stderr(
            f"collscope: {count_of(few, found.processes, 'recorder')} recorded a call. {_SILENT}"
        )
    summarise(
        lambda: commands.ingest_auto([str(folder)], db, name, Reading(progress())), strict=False
    )
    print_report(db, name)
    if failed is not None:
        raise failed


def _recording(followed: Followed) -> int:
    """Processes that recorded a call since the last look."""
    return len({process for process, _, fresh in followed.poll() if fresh.launched})


_Control = tuple["Callable[[], None]", "Callable[[], None]", str]


def _service(address: str, found: Recorders) -> _Control:
    """How to arm and disarm through the RAS service.

    raises  UsageError where the recorders write the mask by themselves
    """
    from collscope.hang.service import parse_address, set_profiler_mask
    from collscope.ingest.attach import DISARMED

    own = sorted(found.levels - DISARMED.keys())
    if own or len(found.levels) != 1:
        levels = ", ".join(sorted(found.levels))
        raise UsageError(
            f"attach {address}: the recorders are at level {levels}. A job can be armed if it "
            "started at level off or calls. To see what this one records: collscope watch FOLDER."
        )
    host, port = parse_address(address)
    (level,) = found.levels
    by_hand = f"echo 'CONTROL PROFILER_MASK 0x{DISARMED[level]:x}' | nc {host} {port}"
    arm = partial(set_profiler_mask, address, found.armed_mask)
    return arm, partial(set_profiler_mask, address, DISARMED[level]), by_hand


def _control(path: str, found: Recorders) -> _Control:
    """How to arm and disarm through the recorder's control file."""
    from collscope.ingest.attach import level_in, write_level

    file = Path(path)
    before = level_in(file)
    by_hand = f"rm {file}" if before is None else f"echo {before} > {file}"
    return (
        partial(write_level, file, found.armed_level),
        partial(write_level, file, before),
        by_hand,
    )
