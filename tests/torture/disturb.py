"""Commands that are run whole, with a fault in one of their I/O calls, or killed."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import msgspec

KINDS = (
    *("read", "write", "open", "sync", "rename", "truncate", "unlink", "mmap", "close"),
    *("allocate", "stat"),
)
# What the manual pages of these calls name.
ERRORS = {
    "read": ("EIO", "EINTR", "short"),
    "write": ("EIO", "ENOSPC", "EDQUOT", "EINTR", "short"),
    "open": ("EIO", "EMFILE", "EACCES", "EINTR", "ENOSPC", "ENOMEM"),
    "sync": ("EIO", "ENOSPC", "EINTR"),
    "rename": ("EIO", "ENOSPC", "EACCES"),
    "truncate": ("EIO", "ENOSPC", "EINTR", "EACCES"),
    "unlink": ("EIO", "EACCES"),
    "mmap": ("ENOMEM", "EACCES", "EMFILE"),
    "close": ("EIO", "EINTR", "ENOSPC", "EDQUOT"),
    "allocate": ("ENOSPC", "EINTR", "EIO"),
    "stat": ("EIO", "EACCES", "ENOMEM"),
}
# A call that was interrupted is repeated: always interrupted, it would be repeated for ever.
NEVER_STAYS = ("EINTR",)
STDOUT = "stdout"  # files whose names begin so hold what commands print
LIMIT_S = 300.0  # a command of less than a second that takes so long hangs

_SOURCE = Path(__file__).with_name("shim.c")
_STATE = struct.Struct("12Q Q 256s")  # struct state of shim.c


class Ended(msgspec.Struct, frozen=True):
    """How a command ended. `code` is negative where a signal ended it, None where it hung."""

    code: int | None
    out: str
    err: str
    seconds: float
    calls: dict[str, int]
    met: str | None = None  # the call that met the fault, with its file

    @property
    def killed(self) -> bool:
        """True for a command that SIGKILL ended."""
        return self.code == -signal.SIGKILL


def compiler() -> str | None:
    """A C compiler; None where there is none."""
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")


def build(folder: Path) -> Path:
    """The library that `shim.c` is compiled into."""
    cc, library = compiler(), folder / "shim.so"
    if cc is None:
        raise SystemExit("torture: no C compiler. Install one, or name it by CC.")
    options = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run([cc, *options, "-o", library, _SOURCE, "-ldl"], check=True)
    return library


def run(
    shim: Path,
    folder: Path,
    command: tuple[str, ...],
    fault: str = "",
    kill_after_s: float = 0.0,
    *,
    name: str = "",
) -> Ended:
    """`collscope COMMAND` in a folder, whose files are those that the fault concerns.

    Standard output is one of these files.

    fault         as shim.c has it; empty: calls are counted
    kill_after_s  SIGKILL after so many seconds; 0: none
    name          of one of several commands that run at once in the folder
    """
    state, errors = folder.with_suffix(f".{name}state"), folder.with_suffix(f".{name}err")
    printed = folder / f"{STDOUT}{name}"
    state.write_bytes(bytes(_STATE.size))
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("COLLSCOPE_", "TORTURE_"))},
        "LD_PRELOAD": str(shim),
        "TORTURE_BELOW": str(folder),
        "TORTURE_STATE": str(state),
        "TMPDIR": str(folder / "tmp"),
        **({"TORTURE_FAULT": fault} if fault else {}),
    }
    begin = time.monotonic()
    with printed.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("collscope"), *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        code: int | None
        try:
            code = process.wait(kill_after_s or LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()  # which may have ended by itself at that very moment
            code = code if kill_after_s else None
    *calls, fired, met = _STATE.unpack(state.read_bytes())
    return Ended(
        code,
        printed.read_text(errors="replace"),
        errors.read_text(errors="replace"),
        time.monotonic() - begin,
        dict(zip((*KINDS, "any"), calls, strict=True)),
        met.rstrip(b"\0").decode(errors="replace") if fired else None,
    )
