"""Writes the synthetic profiles of samples/profiles: one invented step of two devices.

Run from the repository root: python tests/make_profiles.py. The schemas are written from the
documentation of each profiler; see samples/profiles/README.md.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

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


FILES: dict[str, Callable[[sqlite3.Connection], None]] = {
    "synthetic.rpd": rpd,
    "synthetic.rocpd.sqlite": rocpd,
    "synthetic.nsys.sqlite": nsys,
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
