"""A store built row by row, for tests of what reads it: no parser or matcher involved."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from collscope.reports.report.answer import Report
from collscope.reports.report.build import build_report

Value = str | int | float | None

_SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"
_CLASS: dict[str, Value] = {
    "op": "AllReduce",
    "datatype": "Float32",
    "redop": "Sum",
    "count": 1024,
    "size_bytes": 4096,
    "in_place": 1,
    "nranks": 2,
    "nnodes": 1,
}


class StoreBuilder:
    """One run named main in a store in memory; every method adds rows and returns a key."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        for script in (*sorted(_SCHEMAS.glob("*.sql")), *sorted(_SCHEMAS.glob("views/*.sql"))):
            self.connection.executescript(script.read_text(encoding="utf-8"))
        self.run = self.insert("_run", label="main")
        self._seq = 0

    def insert(self, table: str, **columns: Value) -> int:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        cursor = self.connection.execute(
            f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values())
        )
        return cursor.lastrowid or 0

    def source(self, path: str = "a.log", **columns: Value) -> int:
        defaults: dict[str, Value] = {"sha256": path, "kind": "log", "dialect": "nccl_log"}
        return self.insert("_source", run_id=self.run, path=path, **{**defaults, **columns})

    def process(self, source: int, host: str = "n1", pid: int = 1) -> int:
        return self.insert("_process", source_id=source, host=host, pid=pid)

    def comm(
        self,
        processes: Sequence[int | None],
        *,
        world_ranks: Sequence[int] | None = None,
        **columns: Value,
    ) -> int:
        """Communicator with one rank per process; None is a rank that no source shows."""
        defaults: dict[str, Value] = {
            "nranks": len(processes),
            "nnodes": 1,
            "matched_by": "commId",
            "ranks_seen": sum(process is not None for process in processes),
        }
        worlds = world_ranks or range(len(processes))
        comm = self.insert("_comm", run_id=self.run, **{**defaults, **columns})
        for rank, (process, world) in enumerate(zip(processes, worlds, strict=True)):
            if process is not None:
                handle = self.insert(
                    "_comm_handle",
                    process_id=process,
                    comm_ptr="0x1",
                    generation=0,
                    rank=rank,
                    cuda_dev=rank,
                    bus_id=f"{rank:x}000",
                )
                self.insert("_member", comm_id=comm, rank=rank, world_rank=world, handle_id=handle)
        return comm

    def group(self) -> tuple[int, int]:
        """A log of two ranks on one host: its source and its communicator."""
        source = self.source()
        return source, self.comm([self.process(source, pid=1), self.process(source, pid=2)])

    def collective(self, **columns: Value) -> int:
        """Class; an all-reduce of 1024 Float32 (4096 bytes) on 2 ranks unless said otherwise."""
        return self.insert("_class", run_id=self.run, **{**_CLASS, **columns})

    def tuning(self, algorithm: str, protocol: str, channels: int) -> int:
        return self.insert(
            "_tuning", algorithm=algorithm, protocol=protocol, channels=channels, kernel=""
        )

    def calls(
        self, comm: int, kind: int, number: int, *, ranks_seen: int = 2, tuning: int | None = None
    ) -> list[int]:
        total = self.insert(
            "_call_total",
            comm_id=comm,
            class_id=kind,
            tuning_id=tuning,
            ranks_seen=ranks_seen,
            calls=number,
        )
        ids = []
        for _ in range(number):
            ids.append(self.insert("_call_row", total_id=total, seq=self._seq))
            self._seq += 1
        return ids

    def kernel(self, call: int, source: int, *, transfer_ns: int, wait_ns: int) -> None:
        end_ns = transfer_ns + wait_ns
        kernel = self.insert("_kernel", source_id=source, kind="kernel", start_ns=0, end_ns=end_ns)
        self.insert(
            "_kernel_call", kernel_id=kernel, call_id=call, transfer_ns=transfer_ns, wait_ns=wait_ns
        )

    def total(
        self, source: int, name: str, family: str | None, total_ns: int, **columns: Value
    ) -> None:
        """One row of a profile's table."""
        self.insert(
            "_kernel_total",
            source_id=source,
            total_ns=total_ns,
            name_id=self.insert("_kernel_name", name=name, family=family),
            **{"kind": "kernel", "calls": 1, **columns},
        )

    def measured(
        self,
        source: int,
        samples_us: Sequence[float],
        *,
        label: str = "replay",
        **columns: Value,
    ) -> int:
        """Measurement with every sample; of the class that `collective` makes unless said."""
        defaults: dict[str, Value] = {
            **_CLASS,
            "status": "ok",
            "time_us_median": median(samples_us) if samples_us else None,
        }
        key = self.insert(
            "_measurement",
            run_id=self.run,
            source_id=source,
            label=label,
            **{**defaults, **columns},
        )
        for ordinal, time_us in enumerate(samples_us):
            self.insert("_sample", measurement_id=key, ordinal=ordinal, time_us=time_us)
        return key

    def metric(self, source: int, label: str, value: float, **columns: Value) -> None:
        defaults: dict[str, Value] = {
            "name": "throughput",
            "unit": "samples/s",
            "higher_is_better": 1,
        }
        self.insert(
            "_metric",
            run_id=self.run,
            source_id=source,
            label=label,
            value=value,
            **{**defaults, **columns},
        )

    def link(self, source: int, src: int, dst: int, transport: str, **columns: Value) -> None:
        """Connection as logged by `handle`, which tells its communicator."""
        defaults: dict[str, Value] = {
            "channels": 2,
            "line": 7,
            "excerpt": f"{src} -> {dst} via {transport}",
        }
        self.insert(
            "_link",
            source_id=source,
            src_rank=src,
            dst_rank=dst,
            transport=transport,
            **{**defaults, **columns},
        )

    def setting(self, source: int, name: str, value: str, **columns: Value) -> None:
        defaults: dict[str, Value] = {
            "origin": "environment",
            "line": 3,
            "excerpt": f"{name} set to {value}",
        }
        self.insert("_setting", source_id=source, name=name, value=value, **{**defaults, **columns})

    def fact(self, source: int, kind: str, value: str, **columns: Value) -> None:
        defaults: dict[str, Value] = {"line": 4, "excerpt": value, "count": 1}
        self.insert("_fact", source_id=source, kind=kind, value=value, **{**defaults, **columns})

    def deviation(self, call: int, rank: int, what: str, **columns: Value) -> None:
        self.insert("_deviation", call_id=call, rank=rank, what=what, **columns)

    def diagnostic(self, severity: str, code: str, **columns: Value) -> None:
        defaults: dict[str, Value] = {"message": f"what {code} means", "count": 1}
        self.insert(
            "_diagnostic", run_id=self.run, severity=severity, code=code, **{**defaults, **columns}
        )

    def report(
        self, *, top: int | None = 20, system: str | None = None, label: str | None = None
    ) -> Report:
        return build_report(self.connection, "main", top=top, system=system, label=label)
