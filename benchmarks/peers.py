"""Times collscope against HolisticTraceAnalysis and TraceLens on the traces of one job.

    python benchmarks/peers.py FOLDER [--hta PYTHON] [--tracelens PYTHON] [--rounds 3]

FOLDER holds one Kineto trace per rank as NAME.rankN.json, not compressed. PYTHON is the interpreter
of an environment with the peer in it. Every round runs each once, one after the other, from the
files to the answer; the figure is processor time (user and system) with all child processes, since
the wall time of a shared machine varies (it is also printed). Ratios are medians of the
ratios per round, of processor time; a first round warms up.

collscope   `ingest trace` into a new store, then `report`: classes with transfer and waiting,
            exposed time, steps, kernels, findings
HTA         temporal breakdown, overlap of communication with compute, breakdown by kernel
TraceLens   its report of the collectives over all ranks; and with its report of each rank's GPU
            timeline and kernels besides
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

_HTA = """
import sys, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
traces = TraceAnalysis(trace_dir=sys.argv[1])
traces.get_temporal_breakdown(visualize=False)
traces.get_comm_comp_overlap(visualize=False)
traces.get_gpu_kernel_breakdown(visualize=False)
"""
_LENS = """
import importlib, sys
main = importlib.import_module(f"TraceLens.Reporting.{sys.argv.pop(1)}").main
main()
"""
_Job = list[list[str]]  # commands, one after the other


def jobs(traces: list[Path], out: Path, hta: str | None, lens: str | None) -> dict[str, _Job]:
    """What each contender runs on the traces; `out` is empty."""
    folder = traces[0].parent
    ours = [sys.executable, "-m", "collscope"]
    db = ["--db", str(out / "p.db")]
    found = {
        "collscope": [[*ours, "ingest", "trace", str(folder), *db], [*ours, "report", *db]],
    }
    if hta:
        found["HTA"] = [[hta, "-c", _HTA, str(folder)]]
    if lens:
        each = f"{folder}/{traces[0].name.rpartition('.rank')[0]}.rank*.json"
        several = [lens, "-c", _LENS, "generate_multi_rank_collective_report_pytorch"]
        several += ["--trace_pattern", each, "--world_size", str(len(traces))]
        several += ["--output_csvs_dir", str(out / "several")]
        one = [lens, "-c", _LENS, "generate_perf_report_pytorch", "--profile_json_path"]
        found["TraceLens, collectives"] = [several]
        found["TraceLens, collectives and ranks"] = [
            several,
            *([*one, str(t), "--output_csvs_dir", str(out / t.stem)] for t in traces),
        ]
    return found


def spent_s(job: _Job) -> tuple[float, float]:
    """Processor time of the commands with all their children, and wall time."""
    # Installed packages are compiled; a checkout is so after its first run, unless this is set.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in job:
        subprocess.run(
            command,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return processor, perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hta")
    parser.add_argument("--tracelens")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    traces = sorted(args.folder.glob("*.rank*.json"))
    megabytes = sum(trace.stat().st_size for trace in traces) / 1e6
    print(f"{len(traces)} traces, {megabytes:.0f} MB")
    times: dict[str, list[float]] = {}
    walls: dict[str, list[float]] = {}
    for number in range(args.rounds + 1):  # the first one warms up
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            for name, job in jobs(traces, out, args.hta, args.tracelens).items():
                processor, wall = spent_s(job)
                if number:
                    times.setdefault(name, []).append(processor)
                    walls.setdefault(name, []).append(wall)
                shutil.rmtree(out)
                out.mkdir()
    for name, spent in times.items():
        ratios = [peer / ours for ours, peer in zip(times["collscope"], spent, strict=True)]
        print(
            f"{name:34} {median(spent):6.2f} s  {median(ratios):5.1f} x"
            f"  ({min(ratios):.1f} to {max(ratios):.1f})  wall {median(walls[name]):.2f} s"
        )


if __name__ == "__main__":
    main()
