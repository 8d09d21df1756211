"""Processes of a run that collscope's recorder recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from collscope.errors import InputError
from collscope.ingest.match import reading, require_run
from collscope.model.trace import RecordedCall, RecordedCalls
from collscope.stamps import believed_recording
from collscope.store.recordings import recordings_of

_DIALECT = "own_recorder"


class RecordedProcess(msgspec.Struct, frozen=True):
    """One process: the calls of all its files, in the order of the files."""

    host: str | None
    pid: int | None
    rank: int | None  # world rank; None where it drives several, or its environment has none
    calls: tuple[RecordedCall, ...]  # those whose communicator and rank in it are known


def recorded_processes(db: Path, run: str) -> tuple[RecordedProcess, ...]:
    """Processes in the order of their ranks.

    raises  InputError for an unknown run, or one without recordings
    """
    with reading(db) as connection:
        require_run(connection, db, run)
        recordings = recordings_of(connection, run, _DIALECT)
    if not recordings:
        raise InputError(
            f"{db}: run '{run}' has no recordings. Make them with collscope record --level sampled."
        )
    files: dict[str | None, list[RecordedCalls]] = defaultdict(list)
    for recording in map(believed_recording, recordings):
        files[recording.process].append(recording)
    found = [_process_of(sorted(of, key=lambda r: r.part)) for of in files.values()]
    return tuple(sorted(found, key=lambda p: (p.rank is None, p.rank, p.host or "", p.pid or 0)))


def _process_of(files: Sequence[RecordedCalls]) -> RecordedProcess:
    first = files[0]
    calls = tuple(c for file in files for c in file.calls if _is_placed(c))
    return RecordedProcess(first.host, first.pid, first.rank, calls)


def has_recordings_alone(db: Path, run: str) -> bool:
    """Whether a run has recordings of collscope's recorder, and no traces.

    raises  InputError for an unknown run
    """
    with reading(db) as connection:
        require_run(connection, db, run)
        query = "SELECT dialect FROM sources WHERE run = ? AND kind = 'trace'"
        return {dialect for (dialect,) in connection.execute(query, (run,))} == {_DIALECT}


def _is_placed(call: RecordedCall) -> bool:
    return call.collective.group is not None and call.group_rank is not None


def hosts_of(processes: tuple[RecordedProcess, ...]) -> dict[str, int]:
    """Hosts of each communicator whose ranks all were recorded."""
    hosts: dict[str, dict[int, str | None]] = defaultdict(dict)
    sizes: dict[str, int | None] = {}
    for process in processes:
        for call in process.calls:
            group, place = call.collective.group, call.group_rank
            assert group is not None
            assert place is not None
            hosts[group][place] = process.host
            sizes[group] = call.collective.group_size
    return {
        group: len(set(of.values()))
        for group, of in hosts.items()
        if len(of) == sizes[group] and None not in of.values()
    }
