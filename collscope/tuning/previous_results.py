"""Results of an earlier tune in the folder: kept until this one has measured something and ended.

They wait in the subfolder `earlier`. A tune that measures nothing puts them back; one that is
interrupted leaves them there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from collscope.errors import InputError, UsageError
from collscope.outputs import require_output
from collscope.tuning.records import Variable
from collscope.tuning.state import EARLIER, EVIDENCE, FILES


def set_aside(out: Path, present: Iterable[Variable]) -> None:
    """Make the folder of the results, and room in it.

    present  the job's own knobs: a file that one of them names must stay, as the ranks read it
    raises   UsageError where they name one; InputError for files that are not of a tune,
             or must stay; OSError
    """
    out.mkdir(parents=True, exist_ok=True)
    for file in (*_files(out), *_files(out / EARLIER)):
        require_output(file, "--out")
    files, waiting = _files(out), _files(out / EARLIER)
    if files and not waiting and out / EVIDENCE not in files:
        raise InputError(
            f"{files[0]}: there is no {EVIDENCE} in its folder, so it is not from a tune. "
            "Name another folder with --out, or remove it."
        )
    for knob in present:
        if any(file.absolute() == Path(knob.value).absolute() for file in files):
            raise UsageError(
                f"tune: the job's {knob.name} ({knob.origin}) names {knob.value}, and this tune "
                "would replace that file. Name another folder with --out."
            )
    if waiting:  # then those beside them are of a tune that was interrupted
        _remove(files)
    elif files:
        _move(files, out / EARLIER)


def restore(out: Path) -> bool:
    """Bring back the waiting results, after a tune that measured nothing; False: none wait."""
    waiting = _files(out / EARLIER)
    if waiting:
        _remove(_files(out))
        _move(waiting, out)
        _leave(out / EARLIER)
    return bool(waiting)


def discard(out: Path) -> None:
    """Remove the results that wait: there are new ones."""
    waiting = _files(out / EARLIER)
    if waiting:
        _remove(waiting)
        _leave(out / EARLIER)


def _files(folder: Path) -> list[Path]:
    return [folder / name for name in FILES if (folder / name).exists()]


def _move(files: Iterable[Path], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for file in files:
        file.rename(folder / file.name)


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink()


def _leave(folder: Path) -> None:
    """Remove a folder, unless there is something of others in it."""
    if not any(folder.iterdir()):
        folder.rmdir()
