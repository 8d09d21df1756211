"""Dumps of large jobs: what processes read is what one process reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inputs import ROOT
from test_hang import loop, write

from collscope.hang.collect import evidence_of
from collscope.hang.dumps import dump_of, read_dump
from collscope.hang.dumps_ahead import pack, unpack
from collscope.ingest.files import open_input
from collscope.parsers.recorders import flight_recorder

if TYPE_CHECKING:
    from pathlib import Path

LARGE = b" " * (5 << 20)  # behind a dump, so that processes are worth their start


def test_a_dump_comes_from_another_process_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, 2, loop(2), 20)
    (path,) = tmp_path.iterdir()
    with open_input(str(path)) as file:
        calls = read_dump(file)
    dump = None if calls is None else dump_of(str(path), calls)
    assert dump is not None
    assert dump.of.calls[0].group == "tp2 [2, 3]"
    assert unpack(pack(dump), str(path)) == dump


def test_processes_read_what_one_process_reads(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, loop(rank)[: 20 if rank == 1 else None], 20 if rank < 2 else 21)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes() + LARGE)
    (tmp_path / "notes.txt").write_text("nothing of ours\n")
    assert evidence_of([str(tmp_path)], processes=2) == evidence_of([str(tmp_path)])


def test_a_dump_as_pytorch_writes_it_is_decoded_without_its_frames() -> None:
    data = (ROOT / "samples/recorders/ddp.fr.rank0.json").read_bytes()
    assert flight_recorder.as_written(data) is not None
    fast = flight_recorder.parse(data, "_dump_0")
    # A number as a text is none that PyTorch writes: all of the dump is decoded.
    other = data.replace(b'"record_id":97,', b'"record_id":"97",')
    assert other != data
    assert flight_recorder.as_written(other) is None
    assert flight_recorder.parse(other, "_dump_0") == fast
