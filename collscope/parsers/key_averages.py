"""Tables that ``torch.profiler`` prints: ``prof.key_averages().table(…)``, as text.

Columns vary with what was recorded; times are in us, ms or s; long names end in ``...``. A paste
from slides may have tabs for columns, some of them doubled, and lack ``# of Calls``. Columns:
_build_table of torch/autograd/profiler_util.py, releases 1.8 to 2.11; CUDA, HIP, XPU and others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from collscope.kernel_names import classify
from collscope.model import KernelTotal, Profile, ProfileSet, ProfileTable, Severity
from collscope.parsers._notes import Notes
from collscope.parsers._rows import kind_of, text_lines
from collscope.parsers.reader import text_profile_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

DIALECT = "key_averages"
# Self CUDA %, Self XPU %, Self PrivateUse1 %; "Self CPU %" is the host's
_DEVICE = re.compile(r"self (?!cpu\b)(\w+) %")
# [default3]:, [rank3]: of torchrun, [1,3]<stdout>: of mpirun, 3: of srun -l
_LABEL = re.compile(r"(?:\[(?:default|rank)?\d{1,9}(?:,\d{1,9})?\](?:<\w+>)?:|\s*\d{1,9}: ?)")
# The sums below a table, and the header of a table of the host alone.
_ENDS = re.compile(r"\s*(?:Self \w+ time total:|Name\s+Self CPU %)")
_RULER = re.compile(r"\s*-{3,}(?:\s+-{3,})+\s*")
# 482.253us, -233.000us, 6478.273s
_TIME = re.compile(r"(-?\d{1,18}(?:\.\d{1,9})?)(ns|us|ms|s)")
_PERCENT = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?)%")
_COUNT = re.compile(r"\d{1,18}")
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_LIMIT = 2**63
_WHOLE_TABLE_PERCENT = 99.5
_ROUNDED = 0.005  # percent
# Collective kernels stand for their operator where their times differ by this part at most.
_TIE = 0.02
_COMMS = "record_param_comms"

# Calls of the runtimes; roctracer counts device time to them that their kernels have as well.
_RUNTIME = re.compile(r"(?:hip|hsa|cuda|cu|ze|ur|xpu)[A-Z]\w*")
# Ranges on the device's time line: their kernels are in the table too. PyTorch for ROCm before
# 2.1.2 names many of them "Marker". ".kd" ends the name of an AMD kernel.
_RANGE = re.compile(
    r"(?:nccl|rccl|xccl|gloo|mpi|ucc):\w.*|ProfilerStep.*|Optimizer\.\w+#.*|## .*|Marker"
    r"|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?<!\.kd)|Torch-Compiled Region.*|PyTorch Profiler.*"
)
_NOT_READ = "Rows with too few or too many fields, or an unreadable number, were skipped."


class _Header(msgspec.Struct, frozen=True):
    """Places of the columns of a table."""

    titles: tuple[str, ...]  # lower case
    device: str  # CUDA, XPU, …, lower case
    spans: tuple[tuple[int, int | None], ...] = ()  # of fixed columns; none where tabs part them


class _Row(msgspec.Struct, frozen=True):
    """One row, times in ns."""

    name: str
    host_ns: int  # Self CPU; it may be a little below zero
    host_total_ns: int
    device_ns: int  # Self CUDA
    percentage: float | None
    calls: int
    line: int


def sniff_text(head: str) -> bool:
    """True when the header of such a table is in the text."""
    # A launcher's label may stand before it; only such lines are worth the search for one.
    candidates = (line for line in text_lines(head) if "Self CPU" in line)
    return any(_header(_LABEL.sub("", line), "") is not None for line in candidates)


def parse(text: str | Iterable[str]) -> Profile:
    """The first table of a text, see `tables`; without rows where there is none."""
    found = tables(text)
    return found[0].profile if found else _profile([], Notes())


def tables(text: str | Iterable[str]) -> list[ProfileTable]:
    """Device time of every row that is counted once, per table; no spans.

    Operators, kernels, runtime calls and annotated ranges share a table, and each counts the
    same kernels again. Either the kernels are taken or the operators, whichever cover more of the
    device time: tables are cut after some rows. ``record_param_comms`` is the operator of every
    collective; where the table lists the kernels of all of them too, these stand for it. Tables of
    several ranks may be in one log, their lines mixed, where a launcher labelled every line.

    text     whole text, or its lines
    returns  in the order of their headers: totals in ns with the printed percentages of the
             device's time; diagnostic ``partial_top`` when they do not add up to 100, which is
             usual
    """
    by_label: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for number, line in enumerate(text_lines(text), start=1):
        match = _LABEL.match(line)
        by_label[match[0] if match else ""].append((number, line[match.end() :] if match else line))
    found = [table for lines in by_label.values() for table in _tables(lines)]
    return sorted(found, key=lambda table: table.line)


def _tables(lines: Sequence[tuple[int, str]]) -> Iterator[ProfileTable]:
    """Tables of lines that are of one rank, each with its number in the document."""
    header: _Header | None = None
    above, first = "", 0
    notes, rows = Notes(), list[_Row]()
    for number, line in lines:
        start = _header(line, above)
        ruler = _RULER.fullmatch(line) is not None
        # Below its last row stands a ruler, and then: Self CUDA time total: 67.201ms
        ends = start is not None or _ENDS.match(line) or (ruler and bool(rows))
        if header is not None and ends:
            yield ProfileTable(first, _profile(rows, notes))
            header = None
        if start is not None:
            header, first, notes, rows = start, number, Notes(), []
        elif header is not None and not ruler and line.strip():
            row = _row_of(line, header, number)
            if row is not None:
                rows.append(row)
            elif _TIME.search(line):
                notes.add(Severity.DATA_LOSS, "torn_row", _NOT_READ, number, line)
        above = line
    if header is not None:
        yield ProfileTable(first, _profile(rows, notes))


def _profile(read: Sequence[_Row], notes: Notes) -> Profile:
    if any(row.calls < 0 for row in read):
        message = (
            "The table has no column of calls: the calls were computed from total and average."
        )
        notes.add(Severity.NOTICE, "calls_computed", message, 1)
    rows = [_counted(row) for row in read]
    kernels, operators = _kernels(rows), _operators(rows)
    by_kernels = _sum(kernels) >= _sum(operators)
    chosen = kernels if by_kernels else _named(operators, kernels)
    if not chosen:
        message = "The table has no device time: it was recorded without the GPU's activity."
        notes.add(Severity.NOTICE, "no_rows", message, 1)
    _check_coverage(chosen, "kernels" if by_kernels else "operators", notes)
    totals = [
        KernelTotal(
            row.name,
            row.calls,
            row.device_ns,
            kind=kind_of(row.name),
            reported_percentage=row.percentage,
        )
        for row in sorted(chosen, key=lambda row: (-row.device_ns, row.name))
    ]
    return Profile(DIALECT, tuple(totals), diagnostics=notes.diagnostics)


def _counted(row: _Row) -> _Row:
    if row.calls >= 0:
        return row
    return _Row(
        row.name,
        row.host_ns,
        row.host_total_ns,
        row.device_ns,
        row.percentage,
        ~row.calls,
        row.line,
    )


def _header(line: str, above: str) -> _Header | None:
    #    Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg     Self CUDA …
    if "Self CPU" not in line or "%" not in line or len(line) > 4000:
        return None
    # Titles may be wider than their columns, so the ruler above parts the rows only.
    titles = tuple(cell.lower() for cell in _split(line, ()))
    spans = _spans(above) if _RULER.fullmatch(above) else ()
    spans = spans if len(spans) == len(titles) else ()
    device = next((m[1] for title in titles if (m := _DEVICE.fullmatch(title))), None)
    if device is None or titles[0] != "name" or f"self {device}" not in titles:
        return None
    return _Header(titles, device, spans)


def _spans(ruler: str) -> tuple[tuple[int, int | None], ...]:
    dashes = [(m.start(), m.end()) for m in re.finditer(r"-+", ruler)]
    # Numbers are at the right of their columns and may be wider than them.
    ends = [end for _, end in dashes[:-1]]
    return tuple(zip([0, *ends], [*ends, None], strict=True))


def _split(line: str, spans: Sequence[tuple[int, int | None]]) -> list[str]:
    """Cells of a line; empty ones are left out where the table has no fixed columns."""
    if spans:
        return [line[start:end].strip() for start, end in spans]
    cells = line.split("\t") if "\t" in line else re.split(r"\s{2,}", line)
    return [cell.strip() for cell in cells if cell.strip()]


def _cells(line: str, header: _Header) -> list[str]:
    cells = _split(line, header.spans)
    if header.spans and any(" " in cell for cell in cells[1:-1]):
        # A row that does not keep to the columns: its fields are two blanks apart at least.
        cells = _split(line, ())
    return cells


def _row_of(line: str, header: _Header, number: int) -> _Row | None:
    cells = _cells(line, header)
    return _row(cells, header, number) if len(cells) == len(header.titles) else None


def _row(cells: Sequence[str], header: _Header, line: int) -> _Row | None:
    values = dict(zip(header.titles, cells, strict=True))
    device_ns = _ns(values.get(f"self {header.device}", ""))
    host_ns = _ns(values.get("self cpu", ""))
    total_ns = _ns(values.get("cpu total", "0us"))
    calls = _calls(values, header.device)
    if not cells[0] or device_ns is None or host_ns is None or total_ns is None or calls is None:
        return None
    percent = _PERCENT.fullmatch(values.get(f"self {header.device} %", ""))
    return _Row(
        name=cells[0][:1000],
        host_ns=host_ns,
        host_total_ns=total_ns,
        device_ns=max(device_ns, 0),
        percentage=float(percent[1]) if percent else None,
        calls=calls,
        line=line,
    )


def _calls(values: dict[str, str], device: str) -> int | None:
    """Calls of a row; where no column has them, ~n of the number that total and average give."""
    printed = values.get("# of calls")
    if printed is not None:
        return int(printed) if _COUNT.fullmatch(printed) else None
    for total, mean in (
        ("cpu total", "cpu time avg"),
        (f"{device} total", f"{device} time avg"),
    ):
        whole_ns, mean_ns = _ns(values.get(total, "")), _ns(values.get(mean, ""))
        if whole_ns and mean_ns and whole_ns >= mean_ns > 0:
            return ~round(whole_ns / mean_ns)
    return ~0


def _ns(cell: str) -> int | None:
    match = _TIME.fullmatch(cell)
    if match is None:
        return None
    value = round(Decimal(match[1]) * _NS[match[2]])
    return value if abs(value) < _LIMIT else None


def _kernels(rows: Sequence[_Row]) -> list[_Row]:
    """What ran on the device: rows without time on the host that are no range."""
    on_host = {row.name for row in rows if row.host_total_ns != 0 or row.host_ns != 0}
    return [
        row
        for row in rows
        if row.device_ns > 0 and row.name not in on_host and not _RANGE.fullmatch(row.name)
    ]


def _operators(rows: Sequence[_Row]) -> list[_Row]:
    """What started it: rows with time on the host that are neither runtime calls nor ranges."""
    return [
        row
        for row in rows
        if row.device_ns > 0
        and row.host_total_ns != 0
        and not _RUNTIME.fullmatch(row.name)
        and not _RANGE.fullmatch(row.name)
    ]


def _named(operators: Sequence[_Row], kernels: Sequence[_Row]) -> list[_Row]:
    """The operators, but the collectives' kernels for their one operator where all are listed."""
    collectives = [row for row in kernels if classify(row.name) is not None]
    comms = [row for row in operators if row.name == _COMMS]
    if not collectives or abs(_sum(collectives) - _sum(comms)) > _TIE * _sum(comms):
        return list(operators)
    return [*collectives, *(row for row in operators if row.name != _COMMS)]


def _sum(rows: Sequence[_Row]) -> int:
    return sum(row.device_ns for row in rows)


def _check_coverage(rows: Sequence[_Row], what: str, notes: Notes) -> None:
    printed = [row.percentage for row in rows if row.percentage is not None]
    covered = sum(printed)
    if printed and covered < _WHOLE_TABLE_PERCENT:
        message = (
            f"The {what} of the table add up to {covered:.4g} % of the device's time: the table "
            "was cut after some rows. Use the printed percentages for shares."
        )
        notes.add(Severity.NOTICE, "partial_top", message, 1)
    # Each is rounded to two digits.
    if covered > 100 + _ROUNDED * len(printed):
        message = (
            f"The {what} of the table add up to {covered:.4g} % of the printed device time: some "
            "of them count the same time twice, and shares are uncertain."
        )
        notes.add(Severity.NOTICE, "counted_again", message, 1)


def _every(text: str) -> ProfileSet:
    return ProfileSet(tuple(tables(text)) or (ProfileTable(1, _profile([], Notes())),))


READER = text_profile_reader(DIALECT, sniff_text, _every)
