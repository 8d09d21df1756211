"""Text and CSV of ROCm's TransferBench: transfers of a test, and the matrix of its p2p preset.

Lines: ReportResults and RunPeerToPeerBenchmarks of src/TransferBench.cpp (1.19 to 1.52),
PrintResults and PeerToPeerPreset of client/include (1.60 on). Sums over an executor are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from collscope.model import CopyTime, MeasurementSet, Severity
from collscope.parsers._notes import Notes, cells, ended_lines
from collscope.parsers.reader import Reader, anywhere
from collscope.parsers.tables._measure import decimal, integer, interval

if TYPE_CHECKING:
    from collscope.parsers.hints import TableHints

DIALECT = "transferbench"
# Test 1:
_TEST = re.compile(r"\s*Test (\d{1,9}):\s*")
#      Transfer 00  |   56.309 GB/s |    4.767 ms |    268435456 bytes | G0 -> G000:004 -> G1
#  Transfer 0    │  56.309 GB/s │   4.767 ms │  268435456 bytes │  G0 -> G0:4 -> G1    from 1.64
#      Transfer 00  ,  56.309 GB/s ,    4.767 ms ,    268435456 bytes , G0 -> GPU00:004 -> G1    CSV
_TRANSFER = re.compile(
    r"[\s|│]*Transfer\s+\d{1,9}\s*[|│,]?\s*(?P<gbps>\d{1,9}\.\d{3}) GB/s\s*[|│,]?"
    r"\s*(?P<ms>\d{1,12}\.\d{3}) ms\s*[|│,]?\s*(?P<bytes>\d{1,18}) bytes\s*[|│,]?"
    r"\s*(?P<route>\S.{3,200}?)[\s|│,]*"
)
# G0 -> G000:004 -> G1 / R0G0 -> R0D0.2:1 -> R1G1 / G0G1 -> GPU00.*:004 -> N
_ROUTE = re.compile(r"(\w+) -> (?:R\d+)?([A-Z]+?)\d+(?:\.[\d*]+)?(?::\d+)? -> (\w+)")
_MEMORY = re.compile(r"(?:R\d{1,6})?([A-Z])(\d{1,6})")
# Test#,Transfer#,NumBytes,Src,Exe,Dst,CUs,BW(GB/s),Time(ms),…               CSV before 1.51
_HEADER = "Test#,Transfer#,NumBytes,Src,Exe,Dst,"
# Bytes Per Direction 67108864 / Bytes Per Direction,67108864
_BYTES = re.compile(r"Bytes Per Direction[ ,](\d{1,18})\s*")
# Unidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)
_MATRIX = re.compile(
    r"(Uni|Bi)directional copy peak bandwidth GB/s \[(Local|Remote) read / \w+ write\] "
    r"\(GPU-Executor: (\w+)\)\s*"
)
# SRC+EXE\DST    CPU 00       GPU 00    GPU 01
_COLUMNS = re.compile(r"\s*SRC(?:\+EXE)?\\(?:EXE\+)?DST\b")
_DEVICE = re.compile(r"(CPU|GPU) (\d{1,4})")
#   GPU 00  ->     27.36        N/A     48.12
_ROW = re.compile(r"\s*(CPU|GPU) (\d{1,4})\s+(->|<-(?!>))\s*,?\s*(.*)")
# In a GPU, fine-grained, managed. U was of the host until 1.6 and is of a GPU since; all others are
# of the host.
_GPU_MEMORY = "GFM"
_EXECUTORS = {"C": "cpu", "G": "gpu", "D": "dma", "B": "dma", "I": "nic", "N": "nic",
              "CPU": "cpu", "GPU": "gpu", "DMA": "dma", "NIC": "nic", "GFX": "gpu"}  # fmt: skip

_CUT_TEXT = "Rows that are cut or broken were left out."
_DIFFERS_TEXT = "A printed bandwidth is not size / time: the figure with more digits was used."


class _Matrix(msgspec.Struct, frozen=True):
    """The table of the p2p preset that is being read."""

    direction: str
    remote: bool  # the destination's side copies
    executor: str  # of copies that a GPU carries out
    size_bytes: int | None
    columns: tuple[tuple[str, int], ...] = ()


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """A copy per transfer, kinds `transfer_gpu`, `_dma`, `_cpu` and `_nic` by what carries it out.

    Transfers of one test run at the same time: the label names the test and the route.
    """
    reader = _Reader(hints)
    last = 0
    for last, line, ended in ended_lines(text):
        reader.feed(line[:2000], last, ended=ended)
    return MeasurementSet(
        DIALECT,
        lines=last,
        diagnostics=reader.notes.diagnostics,
        copies=tuple(reader.copies),
        claimed=frozenset(reader.claimed),
    )


class _Reader:
    """Line by line: the test, the CSV's header, the matrix."""

    def __init__(self, hints: TableHints) -> None:
        self.notes = Notes()
        self.copies: list[CopyTime] = []
        self.claimed: set[int] = set()
        self._hints = hints
        self._test: str | None = None
        self._header: list[str] = []
        self._bytes: int | None = None
        self._matrix: _Matrix | None = None

    def feed(self, line: str, at: int, *, ended: bool) -> None:
        """Take one line; one without its end may have lost digits."""
        if test := _TEST.fullmatch(line):
            self._test = test[1]
        elif transfer := _TRANSFER.fullmatch(line):
            self.claimed.add(at)
            if ended:
                self._add(transfer.groupdict(), self._test, at)
            else:
                self.notes.add(Severity.DATA_LOSS, "cut_row", _CUT_TEXT, at, line)
        elif line.startswith(_HEADER):
            self._header = cells(line)
        elif self._header and integer(line.partition(",")[0]) is not None:
            self._csv_row(line, at, ended=ended)
        else:
            self._preset(line, at, ended=ended)

    def _csv_row(self, line: str, at: int, *, ended: bool) -> None:
        # 1,0,268435456,G0,GPU00,G1,4,56.309,4.767,0x7f…,0x7f…
        self.claimed.add(at)
        found = dict(zip(self._header, cells(line), strict=False))
        if found.get("Transfer#") == "ALL":
            return
        printed = {"gbps": found.get("BW(GB/s)", ""), "ms": found.get("Time(ms)", "")}
        row = {
            **printed,
            "bytes": found.get("NumBytes", ""),
            "route": f"{found.get('Src')} -> {found.get('Exe')} -> {found.get('Dst')}",
        }
        if not ended or not all(decimal(value) for value in (*printed.values(), row["bytes"])):
            self.notes.add(Severity.DATA_LOSS, "cut_row", _CUT_TEXT, at, line)
            return
        self._add(row, found.get("Test#"), at)

    def _add(self, row: dict[str, str], test: str | None, at: int) -> None:
        size, time = integer(row["bytes"]), _time_us(row)
        route = _ROUTE.fullmatch(row["route"].strip())
        executor = _EXECUTORS.get(route[2]) if route else None
        if not size or time is None or route is None or executor is None:
            self.notes.add(Severity.DATA_LOSS, "cut_row", _CUT_TEXT, at, row["route"])
            return
        if not _agrees(size, row):
            self.notes.add(Severity.NOTICE, "bandwidth_mismatch", _DIFFERS_TEXT, at, row["gbps"])
        name = row["route"].strip() if test is None else f"test {test}: {row['route'].strip()}"
        self._keep(executor, size, time, (_gpu(route[1]), _gpu(route[3])), at, label=name)

    def _preset(self, line: str, at: int, *, ended: bool) -> None:
        if size := _BYTES.fullmatch(line):
            self._bytes = int(size[1])
        elif title := _MATRIX.fullmatch(line):
            direction = "one" if title[1] == "Uni" else "both"
            executor = _EXECUTORS.get(title[3], "gpu")
            self._matrix = _Matrix(direction, title[2] == "Remote", executor, self._bytes)
        elif self._matrix is not None and _COLUMNS.match(line):
            columns = tuple((kind, int(n)) for kind, n in _DEVICE.findall(line))
            self._matrix = replace(self._matrix, columns=columns)
        elif (row := _ROW.fullmatch(line)) and self._matrix is not None and self._matrix.size_bytes:
            self._matrix_row(self._matrix, row, at, ended=ended)

    def _matrix_row(self, matrix: _Matrix, row: re.Match[str], at: int, *, ended: bool) -> None:
        self.claimed.add(at)
        values = row[4].replace(",", " ").split()
        if not ended or len(values) != len(matrix.columns) or matrix.size_bytes is None:
            self.notes.add(Severity.DATA_LOSS, "cut_row", _CUT_TEXT, at, row[0])
            return
        for other, printed in zip(matrix.columns, values, strict=True):
            gbps = decimal(printed)
            if not gbps:  # N/A
                continue
            here = (row[1], int(row[2]))
            source, target = (here, other) if row[3] == "->" else (other, here)
            by = target if matrix.remote else source
            executor = matrix.executor if by[0] == "GPU" else "cpu"
            places = tuple(n if kind == "GPU" else None for kind, n in (source, target))
            label = f"{source[0]} {source[1]:02} to {target[0]} {target[1]:02}"
            self._keep(
                executor, matrix.size_bytes, matrix.size_bytes / gbps * 1e-3,
                (places[0], places[1]), at, label=label, direction=matrix.direction,
            )  # fmt: skip

    def _keep(  # noqa: PLR0913 - what a copy is
        self,
        executor: str,
        size: int,
        time_us: float,
        places: tuple[int | None, int | None],
        at: int,
        *,
        label: str,
        direction: str = "one",
    ) -> None:
        self.copies.append(
            CopyTime(
                f"transfer_{executor}",
                size,
                label=f"{self._hints.label}: {label}" if self._hints.label else label,
                src_device=places[0],
                dst_device=places[1],
                direction=direction,
                time_us_median=time_us,
                bandwidth_gbps=size / time_us * 1e-3,
                line=at,
            )
        )


def _gpu(memories: str) -> int | None:
    """GPU of one memory; None for the host's, and where several are read or written."""
    found = _MEMORY.fullmatch(memories)
    return int(found[2]) if found and found[1] in _GPU_MEMORY else None


def _time_us(row: dict[str, str]) -> float | None:
    """Time of a transfer: as printed, or by the bandwidth where that has more digits."""
    ms, gbps, size = decimal(row["ms"]), decimal(row["gbps"]), integer(row["bytes"])
    if not gbps or not size:
        return ms * 1e3 if ms else None
    return ms * 1e3 if ms and ms > gbps else size / gbps * 1e-3


def _agrees(size: int, row: dict[str, str]) -> bool:
    times, rates = interval(row["ms"]), interval(row["gbps"])
    if times is None or rates is None or times[0] <= 0:
        return True
    return size / times[1] * 1e-6 <= rates[1] and rates[0] <= size / times[0] * 1e-6


READER = Reader(DIALECT, "table", anywhere, lambda source, hints: parse(source.text(), hints.table))
