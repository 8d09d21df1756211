"""`collscope msccl`: files and the store in, the report out."""

from __future__ import annotations

from pathlib import Path

from collscope.errors import InputError
from collscope.ingest.files import open_input
from collscope.ingest.match import reading, require_run
from collscope.ingest.paths import expand_files, printable
from collscope.parsers.msccl_xml import MOST_BYTES, MscclFile, parse
from collscope.reports.msccl.build import MscclReport, build_msccl, classes_of_run
from collscope.roofline.catalogue import load_system


def msccl_report(
    paths: list[str], db: Path, run: str | None, system: str | None, *, strict: bool = False
) -> MscclReport:
    """Report of the algorithms in files and folders.

    run     None: the store is not opened
    strict  a file that cannot be used is an error
    raises  InputError when a path names nothing, a file cannot be read, or none can be used
    """
    machine = None if system is None else load_system(system)
    files = [(printable(path), _read(path)) for path in _xml_files(paths)]
    bad = [(path, f) for path, f in files if f.algorithm is None]
    if len(bad) == len(files) or (strict and bad):
        path, found = bad[0]
        more = f" ({len(bad)} of {len(files)} files)" if len(files) > 1 else ""
        raise InputError(f"{path}: {found.diagnostics[-1].message}{more}")
    if run is None:
        return build_msccl(files, machine)
    with reading(db) as connection:
        require_run(connection, db, run)
        return build_msccl(files, machine, classes_of_run(connection, run), run)


def _xml_files(paths: list[str]) -> list[str]:
    """Files as named; of folders, those whose name ends in .xml."""
    found = expand_files(paths)
    named = {path for path in paths if not Path(path).is_dir()}
    chosen = [path for path in found if path in named or path.endswith(".xml")]
    if not chosen:
        raise InputError(f"{paths[0]}: holds no .xml file. Name the folder of the algorithms.")
    return chosen


def _read(path: str) -> MscclFile:
    """A file's algorithm; no more of it is read than the parser takes."""
    with open_input(path) as file:
        return parse(file.head(MOST_BYTES + 1))
