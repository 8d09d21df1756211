"""`collscope attach`: the built recorder in a rank of a played library, and a RAS service beside it
with the protocol of NCCL 2.31 (src/ras/client_support.cc)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socketserver
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import collscope, rows
from inputs import ROOT
from recorder_player import Player, player

from collscope.cli import attach as attach_module
from collscope.ingest.attach import (
    CALL_EVENTS,
    KERNEL_EVENTS,
    KERNEL_EVENTS_OF_RCCL,
    recorders_in,
)
from collscope.programs import KERNEL_FAULTS, kernel_fault


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The played recorder is done when it answers."""
    monkeypatch.setattr(attach_module, "_SETTLE_S", 0.0)


@contextlib.contextmanager
def service(on_mask: Callable[[int], str]) -> Iterator[str]:
    """Address of a RAS service; `on_mask` gives its answer to a mask that it knows."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                word, _, rest = line.decode().strip().partition(" ")
                known = re.fullmatch(r"profiler_mask +(0x[0-9a-f]+|\d+)", rest, re.IGNORECASE)
                if word.upper() == "CLIENT":
                    answer = "SERVER PROTOCOL 2"
                elif word.upper() == "CONTROL" and known:
                    answer = on_mask(int(known[1], 0))
                else:
                    answer = f"ERROR: Unknown command {line.decode().strip()}"
                self.wfile.write(f"{answer}\n".encode())

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class Job:
    """A rank at level off, and what the service was asked for."""

    def __init__(self, rank: Player, calls: int = 4) -> None:
        self.rank, self.calls = rank, calls
        self.masks: list[int] = []

    def on_mask(self, mask: int) -> str:
        """What comes after each change: calls, of which only those of an armed job are kept."""
        self.masks.append(mask)
        self.rank.ask(mask=mask)
        self.rank.ask(calls=self.calls)
        return "OK"


def test_an_armed_job_is_recorded_disarmed_and_reported(tmp_path: Path) -> None:
    with player(tmp_path, level="off") as rank:
        rank.ask(calls=3)
        job = Job(rank)
        with service(job.on_mask) as address:
            done = collscope(
                "attach", address, tmp_path, "--for", "0.1", "--db", tmp_path / "a.db", "--run", "x"
            )
        assert rank.ask(calls=2) == 0
    assert done.code == 0, done.err
    assert job.masks == [CALL_EVENTS | KERNEL_EVENTS, 0]
    assert "CUDA graphs captured earlier keep their mask" in done.err
    assert "collscope report, run x" in done.out
    assert "recorded a call" not in done.err
    # Of the 3 before, the 4 armed and the 6 after: the 4, with their GPU times.
    assert rows(tmp_path / "a.db", "SELECT op, count(*) FROM calls") == [("AllReduce", 4)]


def test_processes_that_record_nothing_are_counted(tmp_path: Path) -> None:
    with player(tmp_path, 0, level="off") as rank, player(tmp_path, 1, level="off") as other:
        rank.ask(calls=1)
        other.ask(calls=1)
        job = Job(rank)
        with service(job.on_mask) as address:
            done = collscope("attach", address, tmp_path, "--for", "0.1", "--db", tmp_path / "a.db")
    assert "2 recorders of" in done.err
    assert "1 of 2 recorders recorded a call" in done.err


def test_ctrl_c_disarms(tmp_path: Path) -> None:
    with player(tmp_path, level="off") as rank:
        rank.ask(calls=1)
        job = Job(rank)

        def interrupted(mask: int) -> str:
            answer = job.on_mask(mask)
            if mask:
                os.kill(os.getpid(), signal.SIGINT)
            return answer

        with service(interrupted) as address:
            done = collscope("attach", address, tmp_path, "--for", "1h", "--db", tmp_path / "a.db")
    assert (done.code, job.masks[-1], len(job.masks)) == (0, 0, 2)
    assert re.search(r"run attach-\d{8}-\d{6}", done.out)


def test_a_service_that_fails_while_it_arms_is_disarmed(tmp_path: Path) -> None:
    masks: list[int] = []

    def silent(mask: int) -> str:
        masks.append(mask)
        return "OK" if mask == 0 else ""

    with player(tmp_path, level="off") as rank:
        rank.ask(calls=1)
        with service(silent) as address:
            done = collscope("attach", address, tmp_path, "--db", tmp_path / "a.db")
    assert (done.code, masks) == (3, [CALL_EVENTS | KERNEL_EVENTS, 0])
    assert "did not answer" in done.err


def test_a_job_that_cannot_be_disarmed_is_reported_with_the_command(tmp_path: Path) -> None:
    with player(tmp_path, level="off") as rank:
        rank.ask(calls=1)
        job = Job(rank)
        with service(lambda mask: job.on_mask(mask) if mask else "ERROR: no") as address:
            host, port = address.split(":")
            done = collscope("attach", address, tmp_path, "--for", "0.1", "--db", tmp_path / "a.db")
    assert done.code == 3
    assert f"echo 'CONTROL PROFILER_MASK 0x0' | nc {host} {port}" in done.err
    assert "4 calls in 1 class" in done.out


def test_a_library_before_2_31_is_pointed_to_the_control_file(tmp_path: Path) -> None:
    with player(tmp_path, level="off") as rank:
        rank.ask(calls=1)
        with service(lambda mask: f"ERROR: Unknown command CONTROL PROFILER_MASK {mask}") as where:
            done = collscope("attach", where, tmp_path, "--db", tmp_path / "a.db")
    assert done.code == 3
    assert "COLLSCOPE_RECORDER_CONTROL=FILE" in done.err


def test_a_recorder_that_writes_the_mask_itself_is_not_armed(tmp_path: Path) -> None:
    asked: list[int] = []
    with player(tmp_path, level="sampled") as rank:
        rank.ask(calls=1)
        with service(lambda mask: asked.append(mask) or "OK") as address:
            done = collscope("attach", address, tmp_path, "--db", tmp_path / "a.db")
    assert (done.code, asked) == (2, [])
    assert "level sampled" in done.err


def test_recorded_calls_go_on_after_the_kernels(tmp_path: Path) -> None:
    with player(tmp_path, level="calls") as rank:
        rank.ask(calls=1)
        job = Job(rank)
        with service(job.on_mask) as address:
            collscope("attach", address, tmp_path, "--for", "0.1", "--db", tmp_path / "a.db")
    assert job.masks == [CALL_EVENTS | KERNEL_EVENTS, CALL_EVENTS]


@pytest.mark.parametrize("before", [None, "calls\n"])
def test_a_control_file_is_as_before_at_the_end(tmp_path: Path, before: str | None) -> None:
    control = tmp_path / "control"
    if before is not None:
        control.write_text(before)
    with player(tmp_path, level="off") as rank:
        rank.ask(calls=1)
    levels = []

    def look(seconds: float | None = None) -> bool:
        levels.append((control.read_text(), seconds))
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Event, "wait", lambda _self, seconds=None: look(seconds))
        collscope("attach", control, tmp_path, "--for", "2m", "--db", tmp_path / "a.db")
    assert levels == [("all\n", 120.0)]
    assert (control.read_text() if control.exists() else None) == before


def test_without_a_recorder_there_is_nothing_to_arm(tmp_path: Path) -> None:
    done = collscope("attach", "localhost", tmp_path, "--db", tmp_path / "a.db")
    assert done.code == 3
    assert "COLLSCOPE_RECORDER_LEVEL=off" in done.err


def test_masks_and_faults_are_those_of_the_recorder() -> None:
    header = (ROOT / "native/recorder/plugin_api.h").read_text()
    bits = {name: 1 << int(bit) for name, bit in re.findall(r"(\w+)_event = 1u << (\d+)", header)}
    calls = ("coll", "p2p", "group_api", "coll_api", "p2p_api", "ce_coll")
    assert sum(bits[name] for name in calls) == CALL_EVENTS
    assert bits["kernel"] + bits["nccl_phase"] == KERNEL_EVENTS
    assert bits["kernel"] + bits["rccl_phase"] == KERNEL_EVENTS_OF_RCCL
    settings = (ROOT / "native/recorder/settings.cpp").read_text()
    faults = dict(re.findall(r'case (\d+):\s+return "([^"]+)"', settings))
    assert faults == {
        "{}{:02}{:02}".format(*map(int, version.split("."))): why
        for version, why in KERNEL_FAULTS.items()
    }
    later = re.search(r'times_need_all\(version\) \? "([^"]+)"\s+"([^"]+)"', settings)
    assert later is not None
    assert "".join(later.groups()) == kernel_fault("2.31.0") == kernel_fault("2.32.3")
    assert "version >= 23100" in settings


@pytest.mark.parametrize(("code", "version"), [(22707, "2.27.7"), (23203, "2.32.3")])
def test_beside_a_faulty_library_kernels_are_not_armed(
    tmp_path: Path, code: int, version: str
) -> None:
    sample = next((ROOT / "samples/recorders").glob("*.collrec"))
    data = bytearray(sample.read_bytes())
    (tmp_path / sample.name).write_bytes(data)
    assert recorders_in(tmp_path).armed_level == "all"
    # The first record begins at 8, the library's version in it at 16 + 36 (format.h).
    struct.pack_into("<I", data, 8 + 16 + 36, code)
    (size,) = struct.unpack_from("<H", data, 8 + 4)
    struct.pack_into("<I", data, 8, zlib.crc32(data[8 + 4 : 8 + size]))
    (tmp_path / sample.name).write_bytes(data)
    found = recorders_in(tmp_path)
    assert (found.armed_level, found.faults) == ("calls", (kernel_fault(version),))
