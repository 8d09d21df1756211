"""Replay CSVs of made-up measurements, for the tests of commands that read them."""

from __future__ import annotations

import csv
import random
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import msgspec

# background: the three AllReduce rows of a guide to RCCL, measured on 8 GPUs of one node.
GUIDE = """\
callNumber, functionName, inPlace, count(numElements), datatype, op, root, time(msec), groupCallBusBandwidth(GB/s)
3, AllReduce, 1, 268435456, Float16, Sum, 0, 3.25299, 330.079
6, AllReduce, 1, 268435456, Float16, Sum, 0, 3.22935, 332.494
9, AllReduce, 1, 268435456, Float16, Sum, 0, 3.20286, 335.244
"""  # noqa: E501
COLUMNS = (
    "op,datatype,redop,root,count,size_bytes,in_place,nranks,nnodes,calls,time_us_median,"
    "time_us_min,time_us_max,time_us_mad,iterations,algbw_gbps,busbw_gbps,n_wrong,method,backend,"
    "library,device,host,status,class_id,shape,comms,checked,label,round,scaled_from,message,"
    "samples_us\n"
)
# S = 8 388 608 bytes in 100 us: algbw 83.886; on 4 ranks busbw = 1.5 * algbw = 125.829 GB/s.
ROW = (
    "AllReduce,Bfloat16,Avg,,4194304,8388608,1,4,1,26,100,99,110.5,1,60,83.886,125.829,0,batch,"
    'cuda,nccl 2.28.9,"NVIDIA, one",n1,ok,0,,"0,1",all,plugin,2,8,,99;100;110.5\n'
)
FAILED = (
    "AllReduce,Float8e4m3,Sum,,16,16,0,4,1,1,,,,,,,,,batch,cuda,nccl 2.28.9,,,failed,1,,0,,plugin,"
    '2,8,"said ""no"", twice",\n'
)
OWN = "# collscope-replay: 1\n# mode: unique\n" + COLUMNS + ROW + FAILED

_COLUMNS = tuple(COLUMNS.strip().split(","))


class Sweep(msgspec.Struct, frozen=True):
    """AllReduces on four ranks of one host: a time in us by size, give or take `noise`."""

    label: str
    times: Mapping[int, float]
    seed: int = 1
    noise: float = 0.005
    rounds: int = 5
    samples: int = 5
    status: str = "ok"
    n_wrong: int = 0


def write_replay(path: Path, *sweeps: Sweep) -> Path:
    """One CSV of `collscope replay` with every sweep's rounds."""
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write("# collscope-replay: 1\n")
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        for sweep in sweeps:
            writer.writerows(_rows(sweep))
    return path


def _rows(sweep: Sweep) -> list[dict[str, object]]:
    rng = random.Random(sweep.seed)
    noise = sweep.noise
    return [
        _row(sweep, number, size, [us * rng.lognormvariate(0, noise) for _ in range(sweep.samples)])
        for number in range(1, sweep.rounds + 1)
        for size, us in sweep.times.items()
    ]


def _row(sweep: Sweep, number: int, size: int, samples: list[float]) -> dict[str, object]:
    time = median(samples)
    algbw = size / time / 1e3
    done = sweep.status != "failed"
    return {
        "op": "AllReduce", "datatype": "Float32", "redop": "Sum", "count": size // 4,
        "size_bytes": size, "in_place": 1, "nranks": 4, "nnodes": 1, "calls": 10,
        "time_us_median": time if done else "", "iterations": 100 if done else "",
        "algbw_gbps": algbw if done else "", "busbw_gbps": 1.5 * algbw if done else "",
        "n_wrong": sweep.n_wrong if done else "", "method": "batch", "backend": "cuda",
        "library": "nccl 2.28.9", "device": "GPU", "host": "n1", "status": sweep.status,
        "class_id": 0, "comms": "0", "checked": "all", "label": sweep.label, "round": number,
        "samples_us": ";".join(map(str, samples)) if done else "",
    }  # fmt: skip
