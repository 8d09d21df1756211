"""Small jobs that hang in a planted way, many at once, for `benchmarks/hangs.py`.

    python benchmarks/gpu/job_hangs.py OUT [--seed 1] [--cases 220] [--at-once 12] [--seconds 500]
                                           [--world 2]

Of four ranks two groups of neighbours (`tp`) cross two others (`dp`). With fewer GPUs than ranks
each job has an MPS server of its own, which a killed rank may take along (NCCL 2.30 and later).

Every case draws a loop of collectives (`LOOPS`), a fault (`FAULTS`), the guilty rank, the iteration
and the call of it. OUT gets NAME.tar with what the owner of such a job has: flight recorder dumps,
NCCL's logs, each rank's stderr, two answers of the RAS service as text and as JSON, how the
processes ended; and truth.jsonl with what was planted. Processes are forked from this one, which
has imported torch and has not touched the GPU. Cases whose name has an odd CRC-32 are the exam.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.utils.data

WORLD = 2  # or 4, by --world
ITERATIONS = 200
TIMEOUT_S = 12  # of the process groups; it counts from a call's launch
ASK_S = (4.0, 8.0)  # after the fault, when the RAS service is asked
END_S = TIMEOUT_S + 9.0  # after the fault, when the job's processes are killed
_MOST_S = 75.0  # of a job from its start
_RAS_PORT = 28100


class Call(NamedTuple):
    """One call of a loop: operation, group (world, tp or dp), elements, and the root or sender."""

    op: str
    group: str
    count: int
    root: int = 0


LOOPS = {
    "blocks": (
        Call("AllReduce", "tp", 1 << 18),
        Call("AllGather", "world", 1 << 17),
        Call("AllReduce", "world", 1 << 18),
    ),
    "sharded": (
        Call("AllGather", "dp", 1 << 17),
        Call("AllGather", "dp", 1 << 16),
        Call("ReduceScatter", "dp", 1 << 17),
        Call("AllReduce", "tp", 1 << 12),
        Call("ReduceScatter", "dp", 1 << 16),
        Call("AllReduce", "world", 1),
    ),
    "pipeline": (
        Call("SendRecv", "world", 1 << 16, 0),
        Call("AllReduce", "tp", 1 << 14),
        Call("SendRecv", "world", 1 << 16, 1),
        Call("AllReduce", "dp", 1 << 17),
    ),
    "rooted": (
        Call("Broadcast", "tp", 1 << 16, 0),
        Call("AllToAll", "dp", 1 << 16),
        Call("Reduce", "world", 1 << 16, 1),
        Call("AllReduce", "dp", 1 << 16),
    ),
}
# By name: whether a call of the loop can have it.
FAULTS: dict[str, Callable[[Call], bool]] = {
    "sleep": lambda call: True,
    "gil": lambda call: True,
    "stop": lambda call: True,
    "kill": lambda call: True,
    "exit": lambda call: True,
    "exception": lambda call: True,
    "spin": lambda call: call.op != "SendRecv",
    "skip": lambda call: call.op != "SendRecv",
    "extra": lambda call: call.op != "SendRecv",
    "size": lambda call: call.op in ("AllReduce", "AllGather", "ReduceScatter"),
    "operation": lambda call: call.op in ("AllReduce", "AllGather", "ReduceScatter"),
    "root": lambda call: call.op in ("Broadcast", "Reduce"),
    "order": lambda call: call.op != "SendRecv",
    "no_send": lambda call: call.op == "SendRecv",
    "loader": lambda call: True,
    "deadlock": lambda call: call.op != "SendRecv",
    "none": lambda call: True,  # a healthy control: dumps are written on demand
}


class Case(NamedTuple):
    """What is planted where."""

    name: str
    loop: str
    fault: str
    rank: int
    iteration: int
    place: int  # of the call in the loop


def cases(seed: int, count: int) -> list[Case]:
    """As many cases, the faults in turns."""
    draw = random.Random(seed)
    found = []
    names = list(FAULTS)
    for number in range(count):
        fault = names[number % len(names)]
        places = [
            (n, k) for n, loop in LOOPS.items() for k, c in enumerate(loop) if FAULTS[fault](c)
        ]
        loop, place = draw.choice(places)
        rank = draw.randrange(WORLD)
        # Of more ranks than two, only those of a Send and Recv can hold it up.
        if LOOPS[loop][place].op == "SendRecv":
            rank %= 2
        if fault == "no_send":
            rank = LOOPS[loop][place].root
        name = f"{seed}-{number:03d}-{fault}"
        found.append(Case(name, loop, fault, rank, draw.randrange(6, 40), place))
    return found


class Waiting(torch.utils.data.IterableDataset):
    """A data set whose reader waits for ever at a given batch."""

    def __init__(self, batches: int) -> None:
        """Block after so many."""
        self.batches = batches

    def __iter__(self):
        """One number a batch."""
        yield from range(self.batches)
        time.sleep(600)


class Job:
    """One rank of a case."""

    def __init__(self, case: Case, rank: int, folder: Path) -> None:
        """Make the groups and buffers."""
        limit = datetime.timedelta(seconds=TIMEOUT_S)
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device, timeout=limit)
        self.groups: dict[str, dist.ProcessGroup | None] = {"world": None}
        self.members = {"world": list(range(WORLD))}
        half = WORLD // 2
        pairs = {
            "tp": ("tensor_parallel", [[2 * k, 2 * k + 1] for k in range(half)]),
            "dp": ("data_parallel", [[k, k + half] for k in range(half)]),
        }
        for name, (description, all_pairs) in pairs.items():
            for members in all_pairs:
                group = dist.new_group(members, timeout=limit, group_desc=description)
                if rank in members:
                    self.groups[name], self.members[name] = group, members
        self.case, self.rank, self.folder = case, rank, folder
        self.loop = LOOPS[case.loop]
        self.x = torch.ones(1 << 19, device="cuda")
        self.y = torch.ones(1 << 20, device="cuda")
        self.a = torch.randn(512, 512, device="cuda")
        self.data = iter([])
        if case.fault == "loader" and rank == case.rank:
            dataset = Waiting(case.iteration)
            self.data = iter(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1))

    def run(self) -> None:
        """All iterations."""
        for iteration in range(ITERATIONS):
            torch.mm(self.a, self.a)
            now = iteration == self.case.iteration
            if now:
                # What is on its way ends first, so that the planted call is the first that hangs.
                torch.cuda.synchronize()
                self.mark("fault")
                self.fault_iteration()
            else:
                if self.case.fault == "loader" and self.rank == self.case.rank:
                    next(self.data)
                for call in self.loop:
                    self.call(call)
            if iteration % 4 == 0:
                torch.cuda.synchronize()
            if self.case.fault == "none" and iteration == self.case.iteration + 5 + self.rank:
                dump = torch._C._distributed_c10d._dump_nccl_trace()
                (self.folder / "fr" / f"dump_{self.rank}").write_bytes(dump)
                time.sleep(1.0)
        torch.cuda.synchronize()
        self.mark("done")

    def mark(self, what: str) -> None:
        """Leave a file that the parent sees."""
        (self.folder / f"{what}.{self.rank}").touch()

    def fault_iteration(self) -> None:
        """The iteration with the fault; the other rank does what it always does."""
        fault, place = self.case.fault, self.case.place
        guilty = self.rank == self.case.rank
        calls = list(self.loop)
        if guilty:
            self.change(calls, fault, place)
        for number, call in enumerate(calls):
            if guilty and number == place:
                self.before(fault)
            if not (guilty and fault == "no_send" and number == place):
                self.call(call)
            # Each rank waits for its own call before it makes the one that the other waits in.
            if fault == "deadlock" and number == place:
                torch.cuda.synchronize()

    def change(self, calls: list[Call], fault: str, place: int) -> None:
        """The guilty rank's calls."""
        call = calls[place]
        if fault == "skip":
            del calls[place]
        if fault == "extra":
            calls.insert(place, call)
        if fault == "size":
            calls[place] = call._replace(count=max(call.count // 2, 1) if call.count > 1 else 1000)
        if fault == "operation":
            other = {"AllReduce": "AllGather", "AllGather": "ReduceScatter"}
            calls[place] = call._replace(op=other.get(call.op, "AllReduce"))
        if fault == "root":
            calls[place] = call._replace(root=1 - call.root)
        if fault in ("order", "deadlock"):
            other = (place + 1) % len(calls)
            calls[place], calls[other] = calls[other], calls[place]

    def before(self, fault: str) -> None:
        """What the guilty rank does before the call."""
        if fault == "sleep":
            time.sleep(600)
        if fault == "gil":
            ctypes.PyDLL(None).sleep(600)  # a foreign function that keeps the GIL
        if fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "exit":
            os._exit(0)
        if fault == "exception":
            raise ValueError("the planted exception")
        if fault == "spin":
            for _ in range(60):
                torch.cuda._sleep(2_000_000_000)
        if fault == "loader":
            next(self.data)

    def call(self, call: Call) -> None:
        """One call; its root and sender are places in the group, of pairs where two take part."""
        group, members = self.groups[call.group], self.members[call.group]
        x, root = self.x[: call.count], members[call.root]
        if call.op == "AllReduce":
            dist.all_reduce(x, group=group)
        elif call.op == "AllGather":
            dist.all_gather_into_tensor(self.y[: len(members) * call.count], x, group=group)
        elif call.op == "ReduceScatter":
            dist.reduce_scatter_tensor(x, self.y[: len(members) * call.count], group=group)
        elif call.op == "Broadcast":
            dist.broadcast(x, root, group=group)
        elif call.op == "Reduce":
            dist.reduce(x, root, group=group)
        elif call.op == "AllToAll":
            dist.all_to_all_single(self.y[: call.count], x, group=group)
        elif self.rank == root:
            dist.send(x, members[1 - call.root], group=group)
        elif self.rank == members[1 - call.root]:
            dist.recv(x, root, group=group)


def child(case: Case, rank: int, folder: Path, env: dict[str, str]) -> int:
    """A forked rank; its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        err = os.open(folder / f"stderr.{rank}.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(err, 1)
        os.dup2(err, 2)
        os.environ.update(env)
        Job(case, rank, folder).run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ask_ras(port: int, form: str) -> bytes:
    """What a job's RAS service answers; what was read where it ends early."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as service:
            service.settimeout(4)
            service.sendall(b"CLIENT PROTOCOL 2\n")
            answer += service.recv(4096)
            if form == "json":
                service.sendall(b"SET FORMAT json\n")
                answer += service.recv(4096)
            service.sendall(b"VERBOSE STATUS\n")
            while part := service.recv(1 << 16):
                answer += part
    except OSError as error:
        answer += f"\n[{error}]\n".encode()
    return answer


def shared_gpu(folder: str) -> dict[str, str]:
    """What a job's processes need for an MPS server of their own; starts it."""
    Path(folder).mkdir(exist_ok=True)
    env = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **env}, check=True)
    return {**env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(100 // WORLD)}


def run_case(case: Case, number: int, out: Path) -> dict[str, Any]:
    """Start a case, wait for its end, pack what it left; what was planted."""
    folder = out / case.name
    (folder / "fr").mkdir(parents=True)
    port = 29500 + 4 * number
    ras = _RAS_PORT + number
    env = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(WORLD),
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,COLL,P2P,ENV",
        "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log"),
        "NCCL_RAS_ADDR": f"127.0.0.1:{ras}",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / "fr" / "dump_"),
        "TORCH_FR_DUMP_TEMP_FILE": str(folder / "fr" / "dump_"),
        "TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN": "0",
    }
    if torch.cuda.device_count() < WORLD:
        env |= {"NCCL_MULTI_RANK_GPU_ENABLE": "1", **shared_gpu(f"/tmp/mps{number}")}
    begin = time.monotonic()
    ranks = {
        rank: child(case, rank, folder, {**env, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(WORLD)
    }
    ended = follow(case, ranks, folder, ras, begin)
    if "CUDA_MPS_PIPE_DIRECTORY" in env:
        control = ["nvidia-cuda-mps-control"]
        subprocess.run(control, input=b"quit -t 1\n", env={**os.environ, **env}, check=False)
    truth = {
        **case._asdict(),
        "call": LOOPS[case.loop][case.place]._asdict(),
        "pids": ranks,
        "ended": ended,
        "reached": (folder / f"fault.{case.rank}").exists(),
        "done": [(folder / f"done.{rank}").exists() for rank in range(WORLD)],
        "dumps": sorted(p.name for p in (folder / "fr").iterdir()),
        "exam": zlib.crc32(case.name.encode()) % 2 == 1,
    }
    with tarfile.open(out / f"{case.name}.tar", "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith(("fault", "done")):
                archive.add(path, str(path.relative_to(folder)))
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    return truth


def follow(
    case: Case, ranks: dict[int, int], folder: Path, ras: int, begin: float
) -> dict[int, int | None]:
    """How each rank ended: exit code, minus the signal, None where it had to be killed."""
    ended: dict[int, int | None] = {}
    at: float | None = None  # of the fault
    answers = 0
    while len(ended) < WORLD:
        reap(ranks, ended)
        now = time.monotonic()
        if at is None and (folder / f"fault.{case.rank}").exists():
            at = now
        if at is not None and answers < len(ASK_S) and now - at > ASK_S[answers]:
            for form in ("text", "json"):
                (folder / f"ras.{answers}.{form}").write_bytes(ask_ras(ras, form))
            answers += 1
        if now - begin > _MOST_S or (at is not None and now - at > END_S):
            break
        time.sleep(0.05)
    for rank, pid in ranks.items():
        if rank not in ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            ended[rank] = None
        with contextlib.suppress(ProcessLookupError):  # workers of data loaders
            os.killpg(pid, signal.SIGKILL)
    return ended


def reap(ranks: dict[int, int], ended: dict[int, int | None]) -> None:
    """Note how ranks ended that have."""
    for rank, pid in ranks.items():
        if rank not in ended:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                ended[rank] = os.waitstatus_to_exitcode(status)


def supervisor(case: Case, number: int, out: Path) -> int:
    """A forked process that runs one case and writes its truth."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        truth = run_case(case, number, out)
        (out / f"{case.name}.json").write_text(json.dumps(truth))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    """Run the cases, so many at once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=220)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=500, help="no case begins after that")
    parser.add_argument("--world", type=int, choices=(2, 4), default=WORLD)
    given = parser.parse_args()
    globals()["WORLD"] = given.world
    given.out.mkdir(parents=True, exist_ok=True)
    assert threading.active_count() == 1, "fork needs a single thread"
    end = time.monotonic() + given.seconds
    waiting = cases(given.seed, given.cases)[given.first :]
    running: dict[int, str] = {}
    number = 0
    while waiting or running:
        while waiting and len(running) < given.at_once and time.monotonic() < end:
            case = waiting.pop(0)
            running[supervisor(case, number, given.out)] = case.name
            number += 1
        if not running:
            break
        pid, _ = os.wait()
        running.pop(pid, None)
    with (given.out / "truth.jsonl").open("a") as file:
        for path in sorted(given.out.glob("*.json")):
            truth = json.loads(path.read_text())
            path.unlink()
            file.write(json.dumps(truth) + "\n")
            keys = ("name", "loop", "rank", "reached", "done", "ended", "dumps")
            print(*(truth[key] for key in keys), flush=True)
    print("not started:", len(waiting), flush=True)


main()
