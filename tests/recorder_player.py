"""A rank whose library has the built recorder loaded (plugin v5), in a process of its own.

`player(...)` starts it; each line that it is sent is a JSON object and one of:

    {"calls": 5, "op": "AllReduce", "took_ns": 20000}   a communicator, its calls, and its end
    {"calls": 99, "ledger": "FILE"}                     the same; FILE gets the end of each call
    {"mask": 4867}                                      what the RAS service writes

The answer is the library's mask, once everything is in the file: the recorder waits for that where
the last communicator ends. Numbers of calls go on from one communicator to the next.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_uint8, c_uint64, c_void_p
from pathlib import Path

import numpy as np
import pytest

from collscope.programs import installed_recorder

GROUP = "0xfeedfacecafebeef"
_COLL, _KERNEL, _GROUP_API, _COLL_API, _KERNEL_STOP = 1 << 1, 1 << 6, 1 << 8, 1 << 9, 22


class _CollApi(ctypes.Structure):
    _fields_ = (
        ("func", c_char_p), ("count", c_size_t), ("datatype", c_char_p), ("root", c_int),
        ("stream", c_void_p), ("captured", c_bool),
    )  # fmt: skip


class _Coll(ctypes.Structure):
    _fields_ = (
        ("seq", c_uint64), ("func", c_char_p), ("send", c_void_p), ("recv", c_void_p),
        ("count", c_size_t), ("root", c_int), ("datatype", c_char_p), ("channels", c_uint8),
        ("warps", c_uint8), ("algorithm", c_char_p), ("protocol", c_char_p), ("group", c_void_p),
    )  # fmt: skip


class _Kernel(ctypes.Structure):
    _fields_ = (("channel", c_uint8), ("timer", c_uint64))


class _Of(ctypes.Union):
    _fields_ = (("coll_api", _CollApi), ("coll", _Coll), ("kernel", _Kernel))


class _Descriptor(ctypes.Structure):
    _fields_ = (("type", c_uint64), ("parent", c_void_p), ("rank", c_int), ("of", _Of))


_Init = ctypes.CFUNCTYPE(
    c_int, POINTER(c_void_p), c_uint64, POINTER(c_int), c_char_p, c_int, c_int, c_int, c_void_p
)
_Start = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p), POINTER(_Descriptor))
_Stop = ctypes.CFUNCTYPE(c_int, c_void_p)
_State = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)


class _Profiler(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p), ("init", _Init), ("start", _Start), ("stop", _Stop), ("state", _State),
        ("finalize", _Stop),
    )  # fmt: skip


class Player:
    """The process, from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, **what: object) -> None:
        """Send a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def ask(self, **what: object) -> int:
        """Send a line; the library's mask once it is done."""
        assert self.process.stdout is not None
        self.tell(**what)
        return int(self.process.stdout.readline())

    def end(self) -> None:
        """End in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def player(folder: Path, rank: int = 0, nranks: int = 2, level: str = "all") -> Iterator[Player]:
    """A rank that records into a folder."""
    if installed_recorder() is None:
        pytest.skip("the recorder is not built")
    named = {
        "COLLSCOPE_RECORDER_DIR": str(folder), "COLLSCOPE_RECORDER_LEVEL": level,
        "RANK": str(rank), "WORLD_SIZE": str(nranks),
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, __file__, str(rank), str(nranks)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **named},
    ) as process:
        yield Player(process)
        assert process.stdin is not None
        process.stdin.close()


class _Rank:
    def __init__(self, rank: int, nranks: int) -> None:
        library = ctypes.CDLL(str(installed_recorder()))
        self.plugin = _Profiler.in_dll(library, "ncclProfiler_v5")
        self.rank, self.nranks = rank, nranks
        self.mask = c_int(0)
        self.context = c_void_p()
        self.numbers: dict[str, int] = {}
        self.overridden = False

    def start(self, type_: int, parent: c_void_p, **of: ctypes.Structure) -> c_void_p:
        event = _Descriptor(type=type_, parent=parent, rank=self.rank, of=_Of(**of))
        handle = c_void_p()
        self.plugin.start(self.context, byref(handle), byref(event))
        return handle

    def call(self, op: str, took_ns: int) -> None:
        """One call of 1 MiB, as the library makes its events by the mask that it reads before."""
        mask, name, floats = self.mask.value, op.encode(), b"ncclFloat32"
        none = c_void_p()
        group = self.start(_GROUP_API, none) if mask & _GROUP_API else none
        api = none
        if mask & _COLL_API:
            of = _CollApi(func=name, count=1 << 18, datatype=floats)
            api = self.start(_COLL_API, group, coll_api=of)
        if mask & _COLL:
            number = self.numbers.get(op, 0)
            coll = self.start(
                _COLL,
                api,
                coll=_Coll(
                    seq=number, func=name, count=1 << 18, datatype=floats, channels=1,
                    algorithm=b"RING", protocol=b"LL",
                ),
            )  # fmt: skip
            if mask & _KERNEL and coll:
                # The GPU's clock is a second behind; the host sees the end when it is there.
                begin = time.monotonic_ns()
                while time.monotonic_ns() < begin + took_ns:
                    pass
                behind = begin - 10**9
                kernel = self.start(_KERNEL, coll, kernel=_Kernel(channel=0, timer=behind))
                self.plugin.state(kernel, _KERNEL_STOP, byref(c_uint64(behind + took_ns)))
        self.numbers[op] = self.numbers.get(op, 0) + 1

    def calls(
        self, calls: int, op: str = "AllReduce", took_ns: int = 20_000, ledger: str | None = None
    ) -> None:
        override = self.mask.value
        self.plugin.init(
            byref(self.context), int(GROUP, 16), byref(self.mask), b"world", 1, self.nranks,
            self.rank, None,
        )  # fmt: skip
        if self.overridden:  # NCCL 2.31 puts the RAS service's mask back
            self.mask.value = override
        # Monotonic ns, in 8 bytes each: what stands in memory is there whatever ends the process.
        ends = np.memmap(ledger, np.int64, "r+") if ledger else np.empty(calls, np.int64)
        for number in range(calls):
            self.call(op, took_ns)
            ends[number] = time.monotonic_ns()
        self.plugin.finalize(self.context)


def _main() -> None:
    rank = _Rank(int(sys.argv[1]), int(sys.argv[2]))
    for line in sys.stdin:
        what = json.loads(line)
        if "mask" in what:
            rank.mask.value, rank.overridden = what["mask"], True
        else:
            rank.calls(**what)
        print(rank.mask.value, flush=True)


if __name__ == "__main__":
    _main()
