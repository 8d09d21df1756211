"""Evidence of a job from the files that its owner has: each kind of source for itself."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from collscope.errors import InputError, UnreadableError
from collscope.hang.answers import is_answer, ras_evidence
from collscope.hang.dumps import dump_evidence, dump_of, read_dump
from collscope.hang.dumps_ahead import DumpsAhead
from collscope.hang.logs import call_lines, log_evidence
from collscope.hang.messages import Messages, message_evidence
from collscope.hang.recorders import read_recording, recorder_evidence
from collscope.ingest.files import open_input
from collscope.ingest.paths import expand
from collscope.parsers import log_scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from collscope.hang.dumps import Dump
    from collscope.hang.records import Evidence
    from collscope.ingest.files import Input
    from collscope.model.scanned_log import LogScan
    from collscope.model.trace import RecordedCalls


def evidence_of(
    paths: list[str], answers: Sequence[tuple[str, str]] = (), processes: int = 1
) -> tuple[Evidence, ...]:
    """What the files say, by kind of source: what shows most of a call first.

    Folders without a file, and files of other kinds, are passed over.
    answers    of the RAS service, with where each comes from
    processes  of this host that read many dumps
    raises  InputError when a path names nothing, or nothing below the paths can be read
    """
    found = _Files()
    files = _files(paths)
    with DumpsAhead(files, processes) as ahead:
        for path in files:
            found.read(path, ahead.take(path))
    made = (
        dump_evidence(found.dumps, found.others),
        log_evidence(found.logs, found.torn),
        *recorder_evidence(found.recordings),
        ras_evidence([*found.answers, *answers]),
        message_evidence(found.messages),
    )
    found_any = tuple(evidence for evidence in made if evidence is not None)
    if not found_any:
        where = paths[0] if paths else answers[0][0]
        raise InputError(
            f"{where}: nothing that shows a hang. Name flight recorder dumps, NCCL logs, "
            ".collrec files, stderr of the ranks, or answers of the RAS service."
        )
    return found_any


class _Files:
    """What was read, by kind."""

    def __init__(self) -> None:
        self.dumps: list[Dump] = []
        self.logs: list[tuple[str, LogScan]] = []
        self.recordings: list[tuple[str, RecordedCalls]] = []  # of other recorders
        self.answers: list[tuple[str, str]] = []
        self.torn: set[str] = set()  # paths of logs with a line that is nearly a call
        self.messages = Messages()
        self._texts: set[bytes] = set()  # digests of what the logs hold, decompressed
        self.others: list[tuple[str, bool]] = []  # path, whether it holds anything

    def read(self, path: str, dump: Dump | None) -> None:
        """Take a file; `dump` is what a worker made of it."""
        if dump is not None:
            self.dumps.append(dump)
            return
        try:
            with open_input(path) as file:
                file.leave_unhashed()
                self._take(path, file)
        except UnreadableError:
            self.others.append((path, True))

    def _take(self, path: str, file: Input) -> None:
        head = file.head()
        # Looking for an answer in the bytes of a pickle takes as long as reading it.
        if b"\0" not in head and is_answer(head.decode("utf-8", errors="replace")):
            self.answers.append((path, file.text()))
        elif (calls := read_dump(file)) is not None:
            if (dump := dump_of(path, calls)) is not None:
                self.dumps.append(dump)
        elif (recording := read_recording(file)) is not None:
            self.recordings.append((path, recording))
        elif b"\0" in head or not head:
            self.others.append((path, bool(head)))
        else:
            digest = hashlib.blake2b(digest_size=16)
            scan = log_scan.scan(_hashed(file.chunks(), digest))
            if digest.digest() in self._texts:  # a copy, as beside its compressed file
                return
            self._texts.add(digest.digest())
            if is_log := scan.is_log or scan.counters["messages"] > 0:
                self.logs.append((path, scan))
                if call_lines(file.chunks()) != len(scan.coll.comm):
                    self.torn.add(path)
            if not self.messages.read(path, file.chunks()) and not is_log:
                self.others.append((path, True))


def _hashed(chunks: Iterable[bytes], digest: hashlib.blake2b) -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


def _files(paths: list[str]) -> list[str]:
    files: list[str] = []
    for path in paths:
        if Path(path).is_dir() and not any(Path(path).iterdir()):
            continue
        files += expand([path]).files
    return list(dict.fromkeys(files))
