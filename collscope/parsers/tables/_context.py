"""What the lines around a table of nccl-tests or rccl-tests say of its rows.

Operation, ranks, hosts, devices, options and library are in the preamble that the program
prints, or in the command above a pasted table.
"""

from __future__ import annotations

import re

from collscope.model import Op
from collscope.parsers._names import op_of_program, op_of_text
from collscope.parsers._titles import Titles
from collscope.parsers.tables._measure import Setting

# #   Rank  0 Pid 167261 on localhost device  0 [0x00] A100-SXM4-40GB             (2021)
# #  Rank  7 Group  0 Pid  37300 on   g100n126 device  7 [0000:e7:00] AMD Instinct MI300X
# #   Rank  0 uses device  0 [0x04] Tesla K80       (NCCL 1; nccl-tests of 2017 "on HOST device")
_RANK = re.compile(
    r"Rank\s+(\d{1,9})\s(?:\s*Group\s+(\d{1,9})\s)?\s*(?:Pid\s+\d+\s+)?(?:on\s+(\S+)|uses)"
    r"\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)"
)
# # nccl-tests version 2.19.6 nccl-headers=22807 nccl-library=22807
# # rccl-tests version 2.17.9-develop:83d38d9 rccl-headers=22606 rccl-library=22606
# rccl-tests: Version develop:83d38d9
_TESTS = re.compile(r"\b(nccl|rccl)-tests:? version\b(?:.*?-library=(\d{4,7})\b)?", re.IGNORECASE)
# A title with RCCL and not "NCCL/RCCL"; the folder or address of rccl-tests
_RCCL = re.compile(r"(?<![\w/])RCCL\b(?!/)|\brccl-tests\b")
# NCCL version 2.18.5+cuda12.2 / RCCL version : 2.22.3-HEAD:271856d
# What it was built for is no part of the version, as in logs.
_LIBRARY = re.compile(r"\b([NR]CCL) version\s*:?\s*(\d[\w.:-]*)")
# # nThread 1 nGpus 8 minBytes 1 … step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 … graph: 0
_OPTIONS = re.compile(r"\bnThread (\d{1,6}) nGpus (\d{1,6})\b")
_ITERATIONS = re.compile(r"(?<!warmup )(?<!agg )\biters: (\d{1,9})\b")
_GRAPH = re.compile(r"\bgraph: (\d{1,9})\b")
# # Blocking Enabled: wait and barrier after each inner iteration (-m)
_BLOCKING = re.compile(r"^#\s*Blocking Enabled: ([^(]*)")
# srun -n16 -N2 … / mpirun -np 8 … / srun --ntasks=16 --nodes 2
# …/gib/scripts/run_nccl_tests.sh -t all_gather -b 1K: a script that takes the test's name
_WRAPPER = re.compile(r"(?<![A-Za-z])[nr]ccl[-_]?tests?\S*\s(?:.*\s)?-t[= ]([a-z][a-z_]+)\b")
_LAUNCHER = re.compile(r"\b(srun|mpirun|mpiexec|orterun)\b(.*)")
_PROCESSES = re.compile(r"(?:^|\s)(?:-np?|--np?|--ntasks)[=\s]?(\d{1,7})\b")
_NODES = re.compile(r"(?:^|\s)(?:-N|--nodes)[=\s]?(\d{1,7})\b")
_PROGRAM_OPTION = re.compile(r"\s(?:-|--)(t|g|a|G|z|C|nthreads|ngpus|average|cudagraph|blocking)"
                             r"[=\s]+(\d{1,7})\b")  # fmt: skip
_AVERAGES = {0: "rank 0", 1: "average over ranks", 2: "minimum over ranks", 3: "maximum over ranks"}
_LONG = {"nthreads": "t", "ngpus": "g", "average": "a", "cudagraph": "G", "blocking": "z"}


def version_of_code(code: int) -> str:
    """Release of an NCCL_VERSION_CODE (nccl.h): major, minor and patch, since 2.9 with two digits.

    >>> version_of_code(22807), version_of_code(2708)
    ('2.28.7', '2.7.8')
    """
    size = 10000 if code >= 10000 else 1000
    return f"{code // size}.{code % size // 100}.{code % 100}"


def library_of_device(device: str | None) -> str | None:
    """nccl or rccl by the maker of a device; None when it is not known."""
    if device is None:
        return None
    if re.search(r"\bAMD\b|\bInstinct\b|\bMI\d{2,3}|\bgfx\d", device):
        return "rccl"
    return "nccl" if re.search(r"NVIDIA|Tesla|\b[AHBVGL]\d{2,3}\b", device) else None


class Context:
    """Statements that hold for the next rows. A new run's first statement drops the old ones."""

    def __init__(self) -> None:
        """Know nothing."""
        self.library: str | None = None
        self.library_version: str | None = None
        self.titles = Titles()
        self.rows_seen = False
        self._forget()

    def _forget(self) -> None:
        self.op: Op | None = None
        self._processes: int | None = None
        self._nodes: int | None = None
        self._ranks: dict[int, tuple[str, str, str]] = {}  # rank: group, host, device
        self._per_process: int | None = None
        self._iterations: int | None = None
        self._options: dict[str, int] = {}
        self._blocking: str | None = None
        self.rows_seen = False

    def _renew(self) -> None:
        if self.rows_seen:
            self._forget()

    def read(self, line: str) -> bool:
        """Take one line that is no row; True when it opens a run's preamble (its nThread line)."""
        self.titles.read(line)
        if len(line) > 4000:
            return False
        if "ersion" in line:
            self._read_version(line)
        if self.library is None and _RCCL.search(line):
            self.library = "rccl"
        if "oncluded" not in line:  # "Collective test concluded: all_reduce_perf" ends a table
            self._read_command(line)
        return self._read_preamble(line)

    def _read_version(self, line: str) -> None:
        if match := _TESTS.search(line):
            self._renew()
            self.library = match[1].lower()
            if match[2]:
                self.library_version = version_of_code(int(match[2]))
        elif match := _LIBRARY.search(line):
            self.library, self.library_version = match[1].lower(), match[2]

    def _read_command(self, line: str) -> None:
        op = op_of_program(line)
        wrapped = _WRAPPER.search(line) if op is None else None
        op = op_of_text(wrapped[1]) if wrapped else op
        launcher = _LAUNCHER.search(line)
        if op is None and launcher is None:
            return
        self._renew()
        before, _, after = line.partition("_perf") if op is not None else (line, "", "")
        if launcher:
            options = before[launcher.start(2) :]
            processes, nodes = _PROCESSES.search(options), _NODES.search(options)
            self._processes = int(processes[1]) if processes else None
            # mpirun's -N counts processes of a node, not nodes
            self._nodes = int(nodes[1]) if nodes and launcher[1] == "srun" else None
        if op is not None:
            self.op = op
            found = _PROGRAM_OPTION.findall(" " + after)
            self._options |= {_LONG.get(name, name): int(value) for name, value in found}

    def _read_preamble(self, line: str) -> bool:
        if match := _OPTIONS.search(line):
            self._renew()
            self._per_process = int(match[1]) * int(match[2])
            iterations, graph = _ITERATIONS.search(line), _GRAPH.search(line)
            self._iterations = int(iterations[1]) if iterations else None
            if graph:
                self._options["G"] = int(graph[1])
            return True
        if match := _RANK.search(line):
            self._renew()
            self._ranks[int(match[1])] = (match[2] or "0", match[3] or "", match[4].strip())
        elif match := _BLOCKING.search(line):
            self._blocking = match[1].strip()
        return False

    def setting(self) -> Setting:
        """What is known for the rows that follow; the operation may still be unknown."""
        first = self._ranks[min(self._ranks)] if self._ranks else None
        own = [r for r in self._ranks.values() if first is not None and r[0] == first[0]]
        device = first[2] or None if first else None
        library = self.library or library_of_device(device)
        version = self.library_version
        named = len(own)
        least = max(self._ranks, default=-1) + 1
        if least > len(self._ranks):  # people cut long lists
            own = []
        return Setting(
            op=self.op or Op.UNKNOWN,
            nranks=len(own) or self._launched(),
            nnodes=len({host for _, host, _ in own}) or self._nodes,
            least=least if named and not own else None,
            iterations=self._iterations,
            method=self._method(library),
            library=" ".join((library, version)) if library and version else library,
            device=device,
        )

    def _launched(self) -> int | None:
        """Ranks by the launcher's processes and the threads and GPUs of each."""
        if self._processes is None:
            return None
        per = self._per_process or self._options.get("t", 1) * self._options.get("g", 1)
        return self._processes * per or None

    def _method(self, library: str | None) -> str:
        average = _AVERAGES.get(self._options.get("a", 1), "average over ranks")
        parts = [f"{library or 'nccl'}-tests {average}"]
        if graphs := self._options.get("G"):
            parts.append(f"{graphs} graph launches")
        if self._blocking is not None:
            parts.append(f"blocking: {self._blocking}")
        elif self._options.get("z"):
            parts.append(f"blocking mode {self._options['z']}")
        if self._options.get("C"):
            parts.append("host clock")
        return ", ".join(parts)
