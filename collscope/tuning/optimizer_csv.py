"""Measurements as the CSV that NVIDIA's example optimiser reads.

Source: NVIDIA/nccl plugins/tuner/example/scripts (optimize_config.py, sample_performance_data.csv).
It takes the row of least latency_us, or of largest bandwidth_gbps, per collective, nodes, ranks,
pipeOps and regBuff in each range of sizes, and skips rows with an empty or negative metric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from collscope.errors import UsageError
from collscope.model import Diagnostic, Op, Severity
from collscope.parsers._notes import Notes, cells
from collscope.parsers._rows import number, text_lines
from collscope.tuning.names import ALGORITHMS, COLLECTIVE_OF, COLLECTIVES, PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = (
    "collective", "size_bytes", "algorithm", "protocol", "channels", "nodes", "ranks", "pipeOps",
    "regBuff", "cost_metric", "bandwidth_gbps", "latency_us",
)  # fmt: skip
_HEADER_TEXT = "The first line is not the header of measurements for optimize_config.py."
_TORN_TEXT = "Rows with too few or too many fields were skipped."
_NAME_TEXT = "Rows of an unknown collective, algorithm or protocol were skipped."
_NUMBER_TEXT = "Rows with an unreadable number were skipped."


class OptimizerRow(msgspec.Struct, frozen=True):
    """One measured setting; None: any, or the library's own channels."""

    op: Op
    size_bytes: int  # nccl-tests size S
    algorithm: str  # one of names.ALGORITHMS
    protocol: str
    channels: int | None
    nnodes: int | None
    nranks: int | None
    busbw_gbps: float  # what the optimiser may maximise
    time_us: float  # what it minimises; also the cost metric, which it does not read
    pipe_ops: int | None = None
    registered: bool | None = None


class OptimizerFile(msgspec.Struct, frozen=True):
    """What such a CSV holds."""

    rows: tuple[OptimizerRow, ...]
    diagnostics: tuple[Diagnostic, ...] = ()


def render(rows: Iterable[OptimizerRow]) -> str:
    """The CSV, with its header.

    raises  UsageError for a collective, algorithm or protocol that tuner plugins do not know
    """
    lines = [",".join(COLUMNS)]
    for row in rows:
        if (
            row.op not in COLLECTIVE_OF
            or row.algorithm not in ALGORITHMS
            or row.protocol not in PROTOCOLS
        ):
            raise UsageError(
                f"measurement of {row.op.value} with {row.algorithm}/{row.protocol}: unknown to "
                "tuner plugins. Leave it out."
            )
        key = (row.channels, row.nnodes, row.nranks, row.pipe_ops, row.registered)
        values = (
            COLLECTIVE_OF[row.op], row.size_bytes, row.algorithm, row.protocol,
            *(-1 if value is None else int(value) for value in key),
            f"{row.time_us:.9g}", f"{row.busbw_gbps:.9g}", f"{row.time_us:.9g}",
        )  # fmt: skip
        lines.append(",".join(str(value) for value in values))
    return "\n".join(lines) + "\n"


def parse(text: str | Iterable[str]) -> OptimizerFile:
    """Rows of such a CSV; rows that cannot be read are counted diagnostics."""
    notes = Notes()
    rows: list[OptimizerRow] = []
    lines = iter(enumerate(text_lines(text), start=1))
    at, first = next(lines, (1, ""))
    header = cells(first.lstrip("\ufeff"))
    if not set(COLUMNS).difference({"cost_metric"}).issubset(header):
        notes.add(Severity.ERROR, "no_header", _HEADER_TEXT, at, first)
        return OptimizerFile((), notes.diagnostics)
    for at, line in lines:
        if line.strip():
            row = _row(header, line, at, notes)
            if row is not None:
                rows.append(row)
    return OptimizerFile(tuple(rows), notes.diagnostics)


def _row(header: list[str], line: str, at: int, notes: Notes) -> OptimizerRow | None:
    # allreduce,1048576,nvls,simple,16,1,8,-1,-1,0.32,551.2,32.1
    values = cells(line)
    if len(values) != len(header):
        notes.add(Severity.DATA_LOSS, "torn_row", _TORN_TEXT, at, line)
        return None
    row = dict(zip(header, values, strict=True))
    op = COLLECTIVES.get(row["collective"])
    if op is None or row["algorithm"] not in ALGORITHMS or row["protocol"] not in PROTOCOLS:
        notes.add(Severity.DATA_LOSS, "unknown_setting", _NAME_TEXT, at, line)
        return None
    size, *optional = (
        None if row[name] == "-1" else number(row[name])
        for name in ("size_bytes", "channels", "nodes", "ranks", "pipeOps", "regBuff")
    )
    metrics = number(row["bandwidth_gbps"]), number(row["latency_us"])
    given = [row[name] != "-1" for name in ("channels", "nodes", "ranks", "pipeOps", "regBuff")]
    unreadable = row["regBuff"] not in ("-1", "0", "1") or any(
        wanted and not isinstance(value, int) for wanted, value in zip(given, optional, strict=True)
    )
    if not isinstance(size, int) or unreadable or metrics[0] is None or metrics[1] is None:
        notes.add(Severity.DATA_LOSS, "bad_number", _NUMBER_TEXT, at, line)
        return None
    channels, nnodes, nranks, pipe_ops, registered = (
        value if isinstance(value, int) else None for value in optional
    )
    return OptimizerRow(
        op, size, row["algorithm"], row["protocol"], channels, nnodes, nranks,
        float(metrics[0]), float(metrics[1]), pipe_ops,
        None if registered is None else bool(registered),
    )  # fmt: skip
