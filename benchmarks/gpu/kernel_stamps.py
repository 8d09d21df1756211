"""How much longer a kernel is in a Kineto trace than by its own stamps: python kernel_stamps.py.

The kernel does nothing but wait between two reads of the GPU's clock, as the recorder has them from
NCCL's kernels. Each line: blocks, bytes of shared memory, the wait, and the difference in us.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from itertools import product
from pathlib import Path

import cupy
import torch
from torch.profiler import ProfilerActivity, profile

LAUNCHES = 40
THREADS = 544  # as NCCL's
SOURCE = r"""
extern "C" __global__ void stamped(unsigned long long* stamps, unsigned long long wait) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - begin < wait);
  __syncthreads();
  if (threadIdx.x == 0) {
    stamps[2 * blockIdx.x] = begin;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    stamps[2 * blockIdx.x + 1] = now;
  }
}
"""

kernel = cupy.RawKernel(SOURCE, "stamped")
kernel.max_dynamic_shared_size_bytes = 80 << 10


def differences(blocks: int, shared: int, wait: int, alone: bool) -> list[float]:
    """Duration in the trace less the time from the first stamp to the last, per launch in us."""
    stamps = cupy.zeros((LAUNCHES, blocks, 2), dtype=cupy.uint64)
    for launch in range(3):
        kernel((blocks,), (THREADS,), (stamps[launch], cupy.uint64(wait)), shared_mem=shared)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for launch in range(LAUNCHES):
            kernel((blocks,), (THREADS,), (stamps[launch], cupy.uint64(wait)), shared_mem=shared)
            if alone:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        p.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kernels = sorted((e["ts"], e["dur"]) for e in events if e.get("name") == "stamped")
    seen = (stamps[:, :, 1].max(axis=1) - stamps[:, :, 0].min(axis=1)).get()
    return [dur - int(own) / 1e3 for (_, dur), own in zip(kernels, seen, strict=True)]


torch.zeros(1, device="cuda")
for case in product((1, 24), (0, 80 << 10), (0, 100_000), (True, False)):
    found = sorted(differences(*case))
    words = ("blocks", "shared", "wait_ns", "alone")
    shown = {"least": found[0], "median": statistics.median(found), "most": found[-1]}
    print("STAMPS " + json.dumps({**dict(zip(words, case, strict=True)), **shown}), flush=True)
