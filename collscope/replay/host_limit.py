"""How many ranks hosts serve on CPU memory, before so many are started."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from collscope.errors import UsageError

# 64 ranks on 2 cores still measure a small plan in seconds; more only wait for each other.
RANKS_PER_CORE = 32
# Memory of a rank of MPICH with its share of MPI's shared memory: a generous bound.
BYTES_PER_RANK = 64 << 20
# Variables that name a launcher's hosts: it then decides how many ranks a host gets.
_HOST_FILES = ("HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE", "PBS_NODEFILE", "LSB_DJOB_HOSTFILE")


def check_host_ranks(ranks: int, hosts: int, cores: int, memory_bytes: int | None) -> None:
    """Refuse more ranks than hosts like this one serve.

    ranks         to be started, spread evenly over `hosts`
    memory_bytes  that can be had on each; None: not known
    raises        UsageError that states the bound
    """
    of_cores = cores * RANKS_PER_CORE
    of_memory = None if memory_bytes is None else memory_bytes // BYTES_PER_RANK
    most = max(1, of_cores if of_memory is None else min(of_cores, of_memory))
    here = -(-ranks // hosts)
    if here <= most:
        return
    bound = f"{RANKS_PER_CORE} on each of {cores} core{'s' * (cores != 1)}"
    if most != of_cores:
        assert memory_bytes is not None  # it gave the bound
        bound = f"{memory_bytes / 1e9:.1f} GB of free memory, {BYTES_PER_RANK >> 20} MiB a rank"
    each = "" if hosts == 1 else f" on each of {hosts} hosts"
    raise UsageError(
        f"replay: {here} ranks{each} without a GPU, but a host like this one serves {most} "
        f"({bound}). Measure on at most {most * hosts} (replay --scale-ranks {most * hosts}), "
        "or start all of them with --oversubscribe."
    )


def hosts_of(environment: Mapping[str, str], launcher_arguments: Sequence[str]) -> int | None:
    """Hosts over which a launcher will spread ranks; None where it alone knows."""
    nodes = environment.get("SLURM_JOB_NUM_NODES", environment.get("SLURM_NNODES", ""))
    if nodes.isdigit() and int(nodes) > 0:
        return int(nodes)
    named = launcher_arguments or any(name in environment for name in _HOST_FILES)
    return None if named else 1


def available_memory() -> int | None:
    """Bytes of memory that are available on this host; None where the system does not show it."""
    # MemAvailable:   12345678 kB
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    found = [line.split() for line in text.splitlines() if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None


def available_cores() -> int:
    """Cores that processes started here may use."""
    return len(os.sched_getaffinity(0))
