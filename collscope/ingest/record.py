"""A job run with its collectives logged: environment, process, and what the files grew to."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import msgspec

from collscope.errors import InputError, MissingToolError, UsageError
from collscope.parsers.recorders.own_recorder import cost_of
from collscope.units import count

RECORDINGS = "recorder"  # folder of our recorder's files
LEVELS = ("calls", "sampled", "all", "proxy")
SUBSYSTEMS = "INIT,ENV,NET,P2P,SHM,GRAPH,TUNING,COLL"
# What ends a job is passed on to it, so that it can end itself and its logs stay whole.
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_SIGNAL_BASE = 128  # exit code of a shell for a process that a signal ended

_Handler = Callable[[int, FrameType | None], object] | int | None


class RecordOptions(msgspec.Struct, frozen=True):
    """What to record besides the logs."""

    kernel_trace: bool = False  # RCCL's, with GPU times
    inspector: bool = False  # NCCL's profiler plugin
    recorder: Path | None = None  # our profiler plugin, to load
    level: str = "sampled"  # of the recorder
    log: bool = True  # the library's, with its collectives


class Recording(msgspec.Struct, frozen=True):
    """What a recorded job left behind."""

    exit_code: int
    seconds: float
    files: int
    size_bytes: int
    recordings: int = 0  # files of our recorder among them
    logged: bool = True  # the library was asked for its log


def environment(base: Mapping[str, str], folder: Path, options: RecordOptions) -> dict[str, str]:
    """Variables that make every process record into a file of its own in `folder`.

    A level above INFO that is set already stays.
    """
    found = dict(base)
    if options.log:
        # %h and %p are the library's: host and process id.
        found |= {
            "NCCL_DEBUG": "TRACE" if base.get("NCCL_DEBUG", "").upper() == "TRACE" else "INFO",
            "NCCL_DEBUG_SUBSYS": SUBSYSTEMS,
            "NCCL_DEBUG_FILE": str(folder / "log.%h.%p"),
        }
    if options.recorder is not None:
        found |= {
            "NCCL_PROFILER_PLUGIN": str(options.recorder),
            "COLLSCOPE_RECORDER_DIR": str(folder / RECORDINGS),
            "COLLSCOPE_RECORDER_LEVEL": options.level,
        }
    if options.kernel_trace:
        # Without the thread newer releases print the trace at the end only, if the job gets there.
        found |= {
            "RCCL_KERNEL_COLL_TRACE_ENABLE": "1",
            "RCCL_KERNEL_COLL_TRACE_THREAD_ENABLE": "1",
        }
    if options.inspector:
        found |= {
            "NCCL_PROFILER_PLUGIN": base.get("NCCL_PROFILER_PLUGIN", "inspector"),
            "NCCL_INSPECTOR_ENABLE": "1",
            "NCCL_INSPECTOR_DUMP_DIR": str(folder / "inspector"),
            "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "1000000",
        }
    return found


def new_folder(folder: Path | None) -> Path:
    """The folder to record into, made if need be; None: one named by the time.

    raises  InputError when it holds files already, or cannot be made
    """
    chosen = folder or Path(time.strftime("collscope-record-%Y%m%d-%H%M%S"))
    try:
        chosen.mkdir(parents=True, exist_ok=True)
        if any(chosen.iterdir()):
            raise InputError(f"{chosen}: not empty. Name a new folder with --out.")
    except OSError as error:
        raise InputError(f"{chosen}: {error.strerror}. Name another folder with --out.") from error
    return chosen.absolute()


def discard(folder: Path) -> None:
    """Remove a folder that was recorded into and holds no file; one that holds some stays."""
    with suppress(OSError):
        for inner in folder.iterdir():
            inner.rmdir()
        folder.rmdir()


def run_recorded(command: Sequence[str], folder: Path, options: RecordOptions) -> Recording:
    """Run a command with its collectives logged; its output and input are ours.

    Signals that end a job are passed on to it. The exit code is the command's; of one that a
    signal ended 128 plus its number, as in a shell.
    raises  UsageError without a command, MissingToolError when it cannot be started
    """
    if not command:
        raise UsageError("record: no command. Write it after --: collscope record -- COMMAND.")
    begin = time.monotonic()
    try:
        process = subprocess.Popen(command, env=environment(os.environ, folder, options))
    except OSError as error:
        folder.rmdir()
        raise MissingToolError(
            f"{command[0]}: {error.strerror}. Check the command after --."
        ) from error
    with _passing_on(process):
        code = process.wait()
    seconds = time.monotonic() - begin
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    exit_code = code if code >= 0 else _SIGNAL_BASE - code
    recordings = len(recordings_in(folder))
    return Recording(exit_code, seconds, len(sizes), sum(sizes), recordings, options.log)


def recordings_in(folder: Path) -> list[Path]:
    """Files of our recorder, by name."""
    return sorted((folder / RECORDINGS).glob("*.collrec"))


@contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals to us go to the process while it runs; what it does with them is its affair."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        # A terminal sends ^C to the process as well: twice would cut its orderly end short.
        if number != signal.SIGINT or not os.isatty(0):
            process.send_signal(number)

    # What is ignored here is ignored there, too: `nohup` ignores SIGHUP.
    handled = [s for s in _PASSED_ON if signal.getsignal(s) is not signal.SIG_IGN]
    before: dict[signal.Signals, _Handler] = {s: signal.signal(s, pass_on) for s in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def cost_notes(recorded: Recording, folder: Path) -> Iterator[str]:
    """What the recording cost, in sentences for people."""
    megabytes = recorded.size_bytes / 1e6
    per_minute = megabytes / recorded.seconds * 60 if recorded.seconds > 0 else 0.0
    yield (
        f"{folder}: {count(recorded.files, 'file')}, {megabytes:.1f} MB in"
        f" {recorded.seconds:.1f} s "
        f"({per_minute:.0f} MB a minute of the job)."
    )
    yield from _recorder_cost(folder)
    if not recorded.logged:
        return
    yield (
        "Every rank wrote a line or two per collective on the launching thread, which slows many "
        "small collectives. Take step times from a run without logging."
    )


def _recorder_cost(folder: Path) -> Iterator[str]:
    """What our recorder took of the processes, by its own clock."""
    costs = [cost for path in recordings_in(folder) if (cost := cost_of(path.read_bytes()))]
    seconds = sum(cost.seconds for cost in costs)
    callbacks = sum(cost.callbacks for cost in costs)
    if not callbacks or not seconds:
        return
    callback_ns = sum(cost.callback_ns for cost in costs)
    writer_ns = sum(cost.writer_ns for cost in costs)
    yield (
        f"The recorder used {callback_ns / callbacks:.0f} ns of the job's threads per event, "
        f"{callback_ns / seconds / 1e7:.3f} % of the time of a process. Its own thread used "
        f"{writer_ns / seconds / 1e7:.3f} % of a core. The times of the job's threads are those of "
        "its callbacks, without the library's work to call them."
    )
