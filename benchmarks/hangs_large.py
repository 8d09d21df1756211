"""Seconds that `collscope hang` takes for dumps of a large job, with a planted hang.

    python benchmarks/hangs_large.py [--ranks 1024] [--entries 2000] [--form json|pickle] [--seed 1]
                                     [--fault stop] [--runs 3] [--keep FOLDER]

The job is one of `hangs_generated.py`; its dumps have the fields, frames and pickle instructions
that PyTorch 2.10 writes. Printed are the answer, and the wall time and the memory of the command.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path
from typing import Any

from hangs_generated import FAULTS, Job, case, job

from collscope.hang.records import Call

_NAMES = {
    "AllReduce": "all_reduce", "AllGather": "_all_gather_base", "Broadcast": "broadcast",
    "ReduceScatter": "_reduce_scatter_base", "AllToAll": "all_to_all",
}  # fmt: skip
_TORCH = "/opt/venv/lib/python3.12/site-packages/torch/"
_TIMEOUT_MS = 600_000


def frames_of(name: str) -> list[dict[str, Any]]:
    """The stack of a call: PyTorch's part and a training loop's."""
    places = [
        (name, _TORCH + "distributed/distributed_c10d.py", 3068),
        ("wrapper", _TORCH + "distributed/c10d_logger.py", 83),
        ("backward", _TORCH + "autograd/__init__.py", 347),
        ("train_step", "/workspace/train/loop.py", 212),
        ("main", "/workspace/train/run.py", 88),
        ("<module>", "/workspace/train/run.py", 121),
    ]
    return [{"name": n, "filename": f, "line": line} for n, f, line in places]


_FRAMES = {name: frames_of(name) for name in _NAMES.values()}


def dump_of(calls: tuple[Call, ...], made: Job, rank: int, end_ns: int) -> dict[str, Any]:
    """One rank's dump; its clock is moved so that its calls timed out at `end_ns`."""
    own = [name for name, members in made.groups.items() if rank in members]
    numbers = {name: str(place) for place, name in enumerate(own)}
    offset = end_ns - _TIMEOUT_MS * 1_000_000 - 1 - max(c.time_ns or 0 for c in calls)
    entries = []
    enqueued: dict[str, int] = {}
    completed: dict[str, int] = {}
    first = sum(c.seq - 1 for c in {c.group: c for c in reversed(calls)}.values())
    for place, call in enumerate(calls):
        name = _NAMES[call.op]
        created = (call.time_ns or 0) + offset
        into, group_size = call.count or 0, len(made.groups[call.group])
        out = {"AllGather": into * group_size, "ReduceScatter": into // group_size}.get(
            call.op, into
        )
        entries.append({
            "frames": _FRAMES[name], "record_id": first + place, "pg_id": int(numbers[call.group]),
            "process_group": (call.group, call.group), "thread_name": "pt_autograd_0",
            "thread_id": "140675578470720", "collective_seq_id": call.seq, "p2p_seq_id": 0,
            "op_id": call.seq, "profiling_name": f"nccl:{name}", "time_created_ns": created,
            "input_sizes": [[into]], "input_dtypes": ["BFloat16"],
            "output_sizes": [[out]], "output_dtypes": ["BFloat16"],
            "state": "completed" if call.completed else "scheduled",
            "time_discovered_started_ns": created + 9000 if call.completed else None,
            "time_discovered_completed_ns": created + 90000 if call.completed else None,
            "retired": call.completed, "timeout_ms": _TIMEOUT_MS, "is_p2p": False,
        })  # fmt: skip
        enqueued[call.group] = call.seq
        if call.completed:
            completed[call.group] = call.seq
    return {
        "entries": entries,
        "pg_config": {
            name: {"name": name, "desc": name, "ranks": str(list(made.groups[name]))}
            for name in own
        },
        "pg_status": {
            numbers[name]: {
                "last_enqueued_collective": enqueued.get(name, -1),
                "last_started_collective": completed.get(name, -1),
                "last_completed_collective": completed.get(name, -1),
            }
            for name in own
        },
        "comm_lib_version": "2.28.9",
        "version": "2.10",
    }


_CONSTANTS = {None: b"N", True: b"\x88", False: b"\x89"}
_Item = str | int | list[Any] | tuple[Any, ...] | dict[str, Any] | None


class _Pickler:
    """Instructions as torch/csrc/jit/serialization/pickler.cpp writes them: protocol 2, texts and
    frames by its memo.
    """

    def __init__(self) -> None:
        self._out = bytearray(b"\x80\x02")
        self._memo: dict[str | int, int] = {}

    def bytes_of(self, value: _Item) -> bytes:
        """The pickle of one value."""
        self._put(value)
        return bytes(self._out + b".")

    def _put(self, value: _Item) -> None:
        shared = value if isinstance(value, str) else id(value)
        if value is None or isinstance(value, bool):
            self._out += _CONSTANTS[value]
        elif isinstance(value, int):
            self._out += _packed_integer(value)
        elif shared in self._memo:
            at = self._memo[shared]
            self._out += struct.pack("<cB", b"h", at) if at < 256 else struct.pack("<cI", b"j", at)
        elif isinstance(value, str):
            text = value.encode()
            self._out += b"X" + struct.pack("<I", len(text)) + text
            self._keep(value)
        else:
            self._put_items(value)

    def _put_items(self, value: list[Any] | tuple[Any, ...] | dict[str, Any]) -> None:
        pairs = isinstance(value, dict)
        begin, end = (b"}(", b"u") if pairs else (b"", b"\x86")
        if isinstance(value, list):
            begin, end = b"](", b"e"
        self._out += begin
        for item in chain(*value.items()) if pairs else value:
            self._put(item)
        self._out += end
        if pairs and "filename" in value:
            self._keep(id(value))

    def _keep(self, key: str | int) -> None:
        at = len(self._memo)
        self._memo[key] = at
        self._out += struct.pack("<cB", b"q", at) if at < 256 else struct.pack("<cI", b"r", at)


def _packed_integer(value: int) -> bytes:
    if 0 <= value < 1 << 16:
        small = value < 1 << 8
        return struct.pack("<cB", b"K", value) if small else struct.pack("<cH", b"M", value)
    if -(1 << 31) <= value < 1 << 31:
        return struct.pack("<ci", b"J", value)
    return struct.pack("<cBq", b"\x8a", 8, value)


def write_dumps(folder: Path, given: argparse.Namespace) -> tuple[int, set[str]]:
    """Write the dumps; the guilty rank and the right answers."""
    made = job(given.ranks)
    turns = given.entries // len(made.loops[0]) + 2
    draw = random.Random(given.seed)
    guilty, allowed, evidence = case(made, draw, given.fault, turns)
    end_ns = time.time_ns()
    for rank in evidence.ranks:
        dump = dump_of(rank.calls[-given.entries :], made, rank.rank, end_ns)
        path = folder / f"dump_{rank.rank}"
        if given.form == "json":
            path.write_text(json.dumps(dump))
        else:
            path.write_bytes(_Pickler().bytes_of(dump))
    return guilty, allowed


def main() -> None:
    """Write, judge, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--form", choices=("json", "pickle"), default="json")
    parser.add_argument("--fault", choices=tuple(FAULTS), default="stop")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        guilty, allowed = write_dumps(folder, given)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{given.ranks} ranks, {given.entries} entries, {given.form}: {size / 1e6:.0f} MB")
        # Byte code is kept, as an installation keeps it.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment.setdefault("PYTHONPYCACHEPREFIX", f"{scratch}/bytecode")
        for _ in range(given.runs):
            begin = time.perf_counter()
            command = [sys.executable, "-m", "collscope", "hang", str(folder), "--format", "json"]
            run = subprocess.run(command, capture_output=True, check=False, env=environment)
            found = json.loads(run.stdout)
            seconds = time.perf_counter() - begin
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(
                f"{seconds:.1f} s, {peak:.0f} MB at most in a process: {found['who']}"
                f" {found['what']}; planted: rank {guilty}, {sorted(allowed)}"
            )


if __name__ == "__main__":
    main()
