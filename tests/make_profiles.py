"""Writes the synthetic profiles of samples/profiles: one invented step of two devices.

Run from the repository root: python tests/make_profiles.py. The schemas are written from the
documentation of each profiler; see samples/profiles/README.md.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
from nsys_builder import SCHEMAS, STATIC, Export, blob

SAMPLES = Path(__file__).resolve().parent.parent / "samples" / "profiles"

RCCL = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "gemm_bf16(float*, float const*, int)"
DECOY = "__amd_rocclr_copyBuffer.kd"
COPY = "copy to the device"

# what, device, stream, start in ns, end in ns
STEP = [
    (COPY, 0, 1, 100, 600),
    (GEMM, 0, 1, 600, 3_600),
    (GEMM, 1, 1, 600, 4_100),
    ("collective", 0, 2, 3_600, 8_600),
    ("collective", 1, 2, 4_100, 8_600),
    (DECOY, 0, 1, 8_700, 8_800),
    ("collective", 0, 2, 9_000, 10_000),
    ("collective", 1, 2, 9_000, 10_000),
]


def rpd(connection: sqlite3.Connection) -> None:
    """Schema version 2 of ROCm/rocmProfileData with its view `top`."""
    connection.executescript(
        """
        CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string TEXT NOT NULL);
        CREATE TABLE rocpd_op (id INTEGER PRIMARY KEY, gpuId INTEGER NOT NULL,
            queueId INTEGER NOT NULL, sequenceId INTEGER NOT NULL, completionSignal TEXT NOT NULL,
            start INTEGER NOT NULL, "end" INTEGER NOT NULL, description_id INTEGER NOT NULL,
            opType_id INTEGER NOT NULL);
        CREATE VIEW top AS
            SELECT n.string AS Name, COUNT(*) AS TotalCalls,
                   SUM(o."end" - o.start) / 1000 AS TotalDuration,
                   SUM(o."end" - o.start) / COUNT(*) / 1000 AS Ave,
                   SUM(o."end" - o.start) * 100.0
                       / (SELECT SUM("end" - start) FROM rocpd_op) AS Percentage
            FROM rocpd_op o JOIN rocpd_string n
                ON n.id = CASE o.description_id WHEN 1 THEN o.opType_id ELSE o.description_id END
            GROUP BY 1 ORDER BY 3 DESC;
        """
    )
    strings = ["", "KernelExecution", "CopyHostToDevice", RCCL, GEMM, DECOY]
    ids = {string: place for place, string in enumerate(strings, start=1)}
    connection.executemany("INSERT INTO rocpd_string VALUES (?, ?)", enumerate(strings, start=1))
    for what, device, stream, start, end in STEP:
        name = "" if what == COPY else RCCL if what == "collective" else what
        op_type = "CopyHostToDevice" if what == COPY else "KernelExecution"
        row = (device, stream, 0, "", start, end, ids[name], ids[op_type])
        connection.execute("INSERT INTO rocpd_op VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def rocpd(connection: sqlite3.Connection) -> None:
    """Released rocprofiler-sdk schema: start and end in the row, uuid behind each table name."""
    connection.executescript(
        """
        CREATE TABLE rocpd_string_1f (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
        CREATE TABLE rocpd_info_agent_1f (id INTEGER PRIMARY KEY, guid TEXT, type TEXT,
            absolute_index INTEGER);
        CREATE TABLE rocpd_info_kernel_symbol_1f (id INTEGER PRIMARY KEY, guid TEXT,
            kernel_name TEXT, display_name TEXT);
        CREATE TABLE rocpd_kernel_dispatch_1f (id INTEGER PRIMARY KEY, guid TEXT,
            agent_id INTEGER, kernel_id INTEGER, queue_id INTEGER, stream_id INTEGER,
            start BIGINT NOT NULL, "end" BIGINT NOT NULL);
        CREATE TABLE rocpd_memory_copy_1f (id INTEGER PRIMARY KEY, guid TEXT,
            start BIGINT NOT NULL, "end" BIGINT NOT NULL, name_id INTEGER, dst_agent_id INTEGER,
            src_agent_id INTEGER, size INTEGER, queue_id INTEGER, stream_id INTEGER);
        CREATE VIEW rocpd_kernel_dispatch AS SELECT * FROM rocpd_kernel_dispatch_1f;
        CREATE VIEW top_kernels AS
            SELECT s.display_name AS name, COUNT(*) AS total_calls,
                   SUM(k."end" - k.start) / 1000.0 AS total_duration,
                   SUM(k."end" - k.start) / COUNT(*) / 1000.0 AS average,
                   SUM(k."end" - k.start) * 100.0
                       / (SELECT SUM("end" - start) FROM rocpd_kernel_dispatch_1f) AS percentage
            FROM rocpd_kernel_dispatch_1f k JOIN rocpd_info_kernel_symbol_1f s
                ON s.id = k.kernel_id
            GROUP BY 1 ORDER BY 3 DESC;
        INSERT INTO rocpd_string_1f VALUES (1, 'g', 'MEMORY_COPY_HOST_TO_DEVICE');
        INSERT INTO rocpd_info_agent_1f VALUES (1, 'g', 'CPU', 0), (2, 'g', 'GPU', 4),
            (3, 'g', 'GPU', 5);
        """
    )
    symbols = {RCCL: 1, GEMM: 2, DECOY: 3}
    for name, place in symbols.items():
        row: tuple[object, ...] = (place, name, name)
        connection.execute("INSERT INTO rocpd_info_kernel_symbol_1f VALUES (?, 'g', ?, ?)", row)
    for what, device, stream, start, end in STEP:
        if what == COPY:
            row = (start, end, device + 2, stream)
            sql = "INSERT INTO rocpd_memory_copy_1f VALUES (NULL, 'g', ?, ?, 1, ?, 1, 64, 1, ?)"
        else:
            symbol = symbols[RCCL if what == "collective" else what]
            row = (device + 2, symbol, stream, start, end)
            sql = "INSERT INTO rocpd_kernel_dispatch_1f VALUES (NULL, 'g', ?, ?, 1, ?, ?, ?)"
        connection.execute(sql, row)


def nsys(connection: sqlite3.Connection) -> None:
    """Export of Nsight Systems, the columns that matter."""
    connection.executescript(
        """
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER PRIMARY KEY, name TEXT, label TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" INTEGER NOT NULL,
            deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, globalPid INTEGER,
            demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, "end" INTEGER NOT NULL,
            deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, globalPid INTEGER,
            bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, "end" INTEGER NOT NULL,
            deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, globalPid INTEGER,
            bytes INTEGER NOT NULL);
        INSERT INTO ENUM_CUDA_MEMCPY_OPER
            VALUES (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device');
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (8700, 8800, 0, 1, 16777216, 64);
        """
    )
    names = {NCCL: 1, GEMM: 2, NCCL.partition("(")[0]: 3, GEMM.partition("(")[0]: 4}
    for name, place in names.items():
        connection.execute("INSERT INTO StringIds VALUES (?, ?)", (place, name))
    process = 1 << 24
    for what, device, stream, start, end in STEP:
        if what == COPY:
            row: tuple[object, ...] = (start, end, device, stream, process)
            sql = "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, 64, 1)"
        elif what == DECOY:
            continue
        else:
            place = names[NCCL if what == "collective" else what]
            row = (start, end, device, stream, process, place, place + 2)
            sql = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)"
        connection.execute(sql, row)


def nsys_nccl(connection: sqlite3.Connection) -> None:
    """Two ranks in one export, with NCCL's ranges and payloads. What a rank does, by its kernels:

    - AllReduce of 4096 B, bf16 (by the kernel's name), and one in a group of its own, of 8192 B;
    - AllGather of 1000 B a rank; Broadcast of 256 B from root 1; Send of 512 B from rank 0 to 1;
    - one kernel for Send and Recv together, one for two ReduceScatters: no call explains either;
    - AllReduces whose payload is cut, and whose schema is another: known by their names;
    - an AllReduce launched before the capture, and a GEMM.
    """
    export = Export(connection, nvtx=True)
    export.insert("TARGET_INFO_GPU", 0, "NVIDIA H200")
    export.insert("TARGET_INFO_GPU", 1, "NVIDIA H200")
    export.schemas(SCHEMAS)
    export.schemas(["ncclAllReduce"])  # the second process registers them again
    export.reductions()
    comm = 0xC0FFEE00DDBA11
    all_reduce, scatter = "AllReduce_Sum_bf16_RING_LL", "ReduceScatter_Sum_bf16_RING_LL"
    for rank in (0, 1):
        own, peer = _NcclRank(export, rank), 1 - rank
        own.call("ncclCommInitRankConfig", blob("ncclCommInitRankConfig", [comm, 2, rank, rank]))
        export.kernel(_GENERIC.format(all_reduce), (100, 900), (4711 + rank, rank, 7), 1)
        own.kernel(GEMM)
        own.call("ncclAllReduce", blob("ncclAllReduce", [comm, 4096, 0]), all_reduce)
        own.group([("ncclAllReduce", [comm, 8192, 4])], all_reduce)
        own.call("ncclAllGather", blob("ncclAllGather", [comm, 1000]), "AllGather_RING_LL")
        own.call("ncclBroadcast", blob("ncclBroadcast", [comm, 256, 1]), "Broadcast_RING_LL")
        one_way = "ncclRecv" if rank else "ncclSend"
        own.call(one_way, blob(one_way, [comm, 512, peer]), "SendRecv")
        own.group([("ncclSend", [comm, 64, peer]), ("ncclRecv", [comm, 64, peer])], "SendRecv")
        two = [("ncclReduceScatter", [comm, 128, 0]), ("ncclReduceScatter", [comm, 96, 0])]
        own.group(two, scatter)
        whole = blob("ncclAllReduce", [comm, 2048, 0])
        own.call("ncclAllReduce", whole[:-5], all_reduce)
        foreign = whole[:8] + (STATIC + 99).to_bytes(8, "little") + whole[16:]
        own.call("ncclAllReduce", foreign, all_reduce)


_GENERIC = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"


class _NcclRank(msgspec.Struct):
    """Calls of one rank in their order; its clock is their correlation id, too."""

    export: Export
    rank: int
    clock: int = 1_000

    def kernel(self, name: str) -> None:
        times = (self.clock + 3_000, self.clock + 8_000)
        launch = (self.clock, self.clock + 400)
        self.export.call("cudaLaunchKernelExC_v11060", launch, self._thread, self.clock)
        self.export.kernel(name, times, (4711 + self.rank, self.rank, 7), self.clock, 24)
        self.clock += 10_000

    def call(self, function: str, binary: bytes, kernel: str | None = None) -> None:
        """One call, with the kernel that it launches, if it does."""
        self._range(function, (self.clock - 100, self.clock + 600), binary)
        if kernel is None:
            self.clock += 10_000
        else:
            self.kernel(_GENERIC.format(kernel))

    def group(self, calls: list[tuple[str, list[int]]], kernel: str) -> None:
        """Several calls, whose kernel the end of the group launches."""
        self._range("ncclGroupStart", (self.clock, self.clock + 10))
        for function, values in calls:
            self.clock += 20
            self._range(function, (self.clock, self.clock + 10), blob(function, values))
        self.clock += 200
        self._range("ncclGroupEnd", (self.clock - 100, self.clock + 9_000))
        self.kernel(_GENERIC.format(kernel))

    @property
    def _thread(self) -> tuple[int, int]:
        return 4711 + self.rank, 4811 + self.rank

    def _range(self, name: str, times: tuple[int, int], binary: bytes | None = None) -> None:
        self.export.range(name, times, self._thread, binary)


FILES: dict[str, Callable[[sqlite3.Connection], None]] = {
    "synthetic.rpd": rpd,
    "synthetic.rocpd.sqlite": rocpd,
    "synthetic.nsys.sqlite": nsys,
    "synthetic.nccl.nsys.sqlite": nsys_nccl,
}


def main() -> None:
    """Write every file anew."""
    SAMPLES.mkdir(parents=True, exist_ok=True)
    for name, fill in FILES.items():
        (SAMPLES / name).unlink(missing_ok=True)
        with closing(sqlite3.connect(SAMPLES / name)) as connection:
            connection.execute("PRAGMA page_size = 512")
            fill(connection)
            connection.commit()


if __name__ == "__main__":
    main()
