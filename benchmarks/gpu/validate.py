"""Validation of the replayer on a multi-GPU host: what docs/validation.md reports.

    RANKS=4 python3 benchmarks/gpu/validate.py BUILD_FOLDER OUT_FOLDER PLANS_FOLDER [STEP...]

Needs Open MPI's mpirun, a CUDA GPU per rank, PyTorch with NCCL, and nothing of collscope but the
built executable BUILD_FOLDER/collscope-replayer. Steps: sweep (against torch.distributed, in
turns), plans (every *.plan of PLANS_FOLDER, verified), methods, processes, overhead.
"""

from __future__ import annotations

import csv
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AllToAll", "SendRecv")
SIZES = [1 << p for p in range(10, 33, 2)]
ROUNDS = 5
RANKS = int(os.environ.get("RANKS", "4"))
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def torch_library() -> Path:
    """The libnccl that this Python's PyTorch uses."""
    code = "import nvidia.nccl, pathlib; print(list(nvidia.nccl.__path__)[0])"
    folder = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return Path(folder.stdout.strip()) / "lib" / "libnccl.so.2"


def sweep_plan() -> str:
    """Each operation and size in bfloat16, on all ranks, in place and out of place."""
    lines = ["collscope-plan 1", "mode unique", f"nranks {RANKS}", f"comm 0 0-{RANKS - 1}"]
    number = 0
    for op in OPS:
        for size in SIZES:
            for in_place in (0, 1):
                if in_place and op in ("AllToAll", "SendRecv"):
                    continue
                per_rank = op in ("AllGather", "ReduceScatter", "AllToAll")
                count = size // 2 // (RANKS if per_rank else 1)
                text = f"class {number} op={op} datatype=Bfloat16 in_place={in_place} comms=0"
                if op in ("AllReduce", "ReduceScatter"):
                    text += " redop=Sum"
                if op == "Broadcast":
                    text += " root=0"
                if op == "SendRecv":
                    lines.append(f"{text} shape=shift size_bytes={size}")
                    pairs = (f"{r}>{(r + 1) % RANKS}:{count}" for r in range(RANKS))
                    lines.append(f"transfers {number} 0 {' '.join(pairs)}")
                else:
                    lines.append(f"{text} count={count}")
                number += 1
    return "\n".join(lines) + "\n"


class Host:
    """The folders of one validation and how programs are run in it."""

    def __init__(self, build: Path, out: Path) -> None:
        self.replayer = build / "collscope-replayer"
        self.out = out
        self.library = torch_library()

    def run(self, name: str, command: Iterable[str | Path], **environment: str) -> float:
        """Run a command, its output in OUT/name.log; seconds it took."""
        begin = time.monotonic()
        with (self.out / f"{name}.log").open("w") as log:
            done = subprocess.run(
                [str(c) for c in command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                check=False,
            )  # fmt: skip
        seconds = time.monotonic() - begin
        if done.returncode:
            print(f"!! {name}: exit {done.returncode}")
            print((self.out / f"{name}.log").read_text()[-1500:])
        return seconds

    def replay(self, name: str, plan: Path, *options: str, ranks: int = RANKS, **env: str) -> float:
        """Run the replayer, its CSV in OUT/name.csv; seconds it took."""
        (self.out / f"{name}.csv").unlink(missing_ok=True)
        library = [] if "--library" in options else ["--library", str(self.library)]
        command = [*MPIRUN, "-np", str(ranks), self.replayer, plan,
                   "--csv", self.out / f"{name}.csv", *library, *options]  # fmt: skip
        return self.run(name, command, **env)

    def rows(self, name: str) -> list[dict[str, str]]:
        """Rows of OUT/name.csv."""
        path = self.out / f"{name}.csv"
        if not path.is_file():
            return []
        with path.open(newline="") as file:
            return list(csv.DictReader(line for line in file if not line.startswith("#")))


def show(title: str, rows: list[dict[str, str]], seconds: float) -> None:
    """One line on a finished replay."""
    wrong = sum(int(r["n_wrong"] or 0) for r in rows)
    checked = sum(r["n_wrong"] != "" for r in rows)
    bad = [r for r in rows if r["status"] != "ok"]
    print(
        f"{title}: {len(rows)} rows, {checked} verified, {wrong} wrong, {len(bad)} not ok,"
        f" {seconds:.1f} s"
    )
    for row in bad[:5]:
        print("   ", row["op"], row["datatype"], row["count"], row["status"], row["message"])


def sweep(host: Host) -> None:
    """The sweep, replayer and torch.distributed in turns."""
    plan = host.out / "sweep.plan"
    plan.write_text(sweep_plan())
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    for round_ in range(ROUNDS):
        verify = "1" if round_ == 0 else "0"
        seconds = host.replay(f"sweep{round_}", plan, "--budget", "0.15", "--verify", verify)
        rows = host.rows(f"sweep{round_}")
        show(f"sweep round {round_}", rows, seconds)
        for row in rows:
            ours.setdefault(row["class_id"], []).append(float(row["time_us_median"] or "nan"))
        target = host.out / f"torch{round_}.csv"
        peer = [sys.executable, HERE / "torch_peer.py", plan, target, "0.15"]
        host.run(f"torch{round_}", [*MPIRUN, "-np", str(RANKS), *peer])
        if target.is_file():
            with target.open(newline="") as file:
                for row in csv.DictReader(file):
                    theirs.setdefault(row["class_id"], []).append(float(row["time_us_median"]))
    print(
        "op,in_place,size_bytes,ours_us,torch_us,torch/ours (1 or more: ours is as fast),busbw_gbps"
    )
    for row in host.rows("sweep0"):
        a, b = ours[row["class_id"]], theirs.get(row["class_id"], [math.nan])
        ratio = statistics.median(y / x for x, y in zip(a, b, strict=False))
        scale = float(row["busbw_gbps"] or 0) * float(row["time_us_median"] or 0)
        ours_us = statistics.median(a)
        print(
            f"{row['op']},{row['in_place']},{row['size_bytes']},{ours_us:.2f},"
            f"{statistics.median(b):.2f},{ratio:.4f},{scale / ours_us:.2f}"
        )


def plans(host: Host, folder: Path) -> None:
    """Every recorded plan, verified, with its wall time."""
    for plan in sorted(folder.glob("*.plan")):
        seconds = host.replay(plan.stem, plan, "--budget", "0.3")
        show(plan.stem, host.rows(plan.stem), seconds)


def small_plan(host: Host) -> Path:
    """AllReduce and AllGather at three sizes, for the checks of methods."""
    path = host.out / "small.plan"
    lines = ["collscope-plan 1", "mode unique", f"nranks {RANKS}", f"comm 0 0-{RANKS - 1}"]
    for k, size in enumerate((1 << 10, 1 << 20, 1 << 26)):
        reduce = f"op=AllReduce datatype=Bfloat16 redop=Sum in_place=1 count={size // 2}"
        gather = f"op=AllGather datatype=Bfloat16 count={size // 2 // RANKS}"
        lines += [f"class {2 * k} {reduce} comms=0", f"class {2 * k + 1} {gather} comms=0"]
    path.write_text("\n".join(lines) + "\n")
    return path


def methods(host: Host) -> None:
    """batch, graph and isolated side by side."""
    plan = small_plan(host)
    table = {}
    for name, options in (("batch", []), ("graph", ["--graph"]), ("isolated", ["--isolated"])):
        seconds = host.replay(name, plan, "--budget", "0.3", *options)
        show(name, host.rows(name), seconds)
        table[name] = {(r["op"], r["size_bytes"]): r["time_us_median"] for r in host.rows(name)}
    for key in table["batch"]:
        print(key, {name: times.get(key) for name, times in table.items()})


def processes(host: Host) -> None:
    """One process with all GPUs, by threads and in one thread, against one process per GPU."""
    plan = small_plan(host)
    for name, options in (
        ("one-process-threads", ["--gpus-per-process", str(RANKS), "--threads", "per-gpu"]),
        ("one-process-one-thread", ["--gpus-per-process", str(RANKS), "--threads", "one"]),
        ("two-processes", ["--gpus-per-process", str(RANKS // 2)]),
    ):
        ranks = 2 if name == "two-processes" else 1
        seconds = host.replay(name, plan, "--budget", "0.3", *options, ranks=ranks)
        show(name, host.rows(name), seconds)
        print("   ", [(r["op"], r["size_bytes"], r["time_us_median"]) for r in host.rows(name)])


def overhead(host: Host) -> None:
    """The timed loop against the library called directly, 1 MiB, alternating."""
    binary = host.out / "direct"
    include, library = host.library.parent.parent / "include", host.library.parent
    cuda = Path("/usr/local/cuda")
    flags = [f"-I{include}", f"-I{cuda}/include", f"-L{cuda}/lib64", "-lcudart", host.library]
    paths = [f"-Wl,-rpath,{library}", f"-Wl,-rpath,{cuda}/lib64"]
    host.run("direct-build", ["mpicxx", "-O2", "-o", binary, HERE / "direct.cpp", *flags, *paths])
    plan = host.out / "one.plan"
    plan.write_text(
        f"collscope-plan 1\nmode unique\nnranks {RANKS}\ncomm 0 0-{RANKS - 1}\n"
        "class 0 op=AllReduce datatype=Bfloat16 redop=Sum in_place=1 count=524288 comms=0\n"
    )
    ratios = []
    for k in range(ROUNDS):
        host.replay(f"one{k}", plan, "--budget", "1", "--verify", "0")
        host.run(f"direct{k}", [*MPIRUN, "-np", str(RANKS), binary, str(1 << 20), "200", "21"])
        rows = host.rows(f"one{k}")
        text = (host.out / f"direct{k}.log").read_text().split()
        if rows and text:
            direct = statistics.median(float(t) for t in text)
            ratios.append(float(rows[0]["time_us_median"]) / direct)
            print(
                f"1 MiB AllReduce: replayer {rows[0]['time_us_median']} us, direct {direct:.2f} us"
            )
    if ratios:
        middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
        print(f"overhead: median ratio {middle:.4f} ({low:.4f}-{high:.4f})")


def main() -> None:
    build, out, folder = (Path(p).resolve() for p in sys.argv[1:4])
    out.mkdir(parents=True, exist_ok=True)
    host = Host(build, out)
    steps = {
        "sweep": lambda: sweep(host),
        "plans": lambda: plans(host, folder),
        "methods": lambda: methods(host),
        "processes": lambda: processes(host),
        "overhead": lambda: overhead(host),
    }
    for name in sys.argv[4:] or steps:
        begin = time.monotonic()
        print(f"== {name}")
        steps[name]()
        print(f"== {name}: {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
