"""Text of the OSU Micro-Benchmarks: latencies and bandwidths of MPI, NCCL and RCCL calls.

Titles and columns: util/osu_util_mpi.c and the tests of release 7.4. Bandwidths are in 1e6 bytes a
second; latencies are averages over ranks. Tests of calls other than
collectives and plain sends (one-sided, vector forms, non-blocking, neighbourhoods) are passed over
and counted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from collscope.model import Datatype, Measurement, MeasurementSet, Op, Severity
from collscope.parsers._names import op_of_text
from collscope.parsers._notes import Notes, ended_lines
from collscope.parsers.reader import Reader, anywhere
from collscope.parsers.tables._context import Context
from collscope.parsers.tables._measure import LIMIT, Result, Setting, decimal, integer, measure
from collscope.parsers.tables._rows import clean
from collscope.units import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collscope.parsers.hints import TableHints

DIALECT = "osu"
# # OSU MPI-CUDA Bandwidth Test v7.4 / # OSU MPI Allreduce Latency Test v7.4
# # OSU NCCL-CUDA Allreduce Latency Test v7.4 / # OSU MPI_Put-ROCM Bandwidth Test v7.4
_TITLE = re.compile(
    r"#\s*OSU (MPI|NCCL|RCCL)(_\w+)?(?:-(CUDA|ROCM|OPENACC|CXL)( MANAGED)?)?\s+(.{1,80}?)\s+"
    r"Test(?: v(\S{1,20}))?\s*",
    re.IGNORECASE,
)
# # Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)
# # Rank 0 Memory on DEVICE (D) and Rank 1 Memory on HOST (H)       (before 7)
_MEMORY = re.compile(
    r"#\s*(?:Send Buffer|Rank 0 Memory) on (\w+) .*(?:Receive Buffer|Rank 1 Memory) on (\w+).*"
)
# # [ pairs: 4 ] [ window size: 64 ]
_PAIRS = re.compile(r"#\s*\[ pairs: (\d{1,6}) \]")
# # Size      Bandwidth (MB/s) / # Size       Avg Latency(us)   Min Latency(us)   …  Validation
_HEADER = re.compile(r"#\s*Size\s{2,}(\S.*)")
_GAP = re.compile(r"\s{2,}")
_BANDWIDTHS = ("bandwidth (mb/s)", "mb/s")
_LATENCIES = ("latency (us)", "avg latency(us)")
# # Datatype: MPI_CHAR.
_DATATYPE = re.compile(r"#\s*Datatype: MPI_(\w+)\.?")
_TYPES = {"CHAR": Datatype.INT8, "INT": Datatype.INT32, "FLOAT": Datatype.FLOAT32}
_SENDS = re.compile(
    r"(bi-directional )?(?:multiple )?bandwidth(?: / message rate)?(?: persistent)?"
    r"|(?:multi(?:-process|-threaded)? )?latency(?: persistent)?",
    re.IGNORECASE,
)
_COLLECTIVE = re.compile(
    r"([\w-]+?)(?:_block)?(?: personalized exchange)?(?: persistent)? latency", re.IGNORECASE
)
_BACKENDS = {"CUDA": "cuda", "ROCM": "hip"}
_LONGEST = 400  # characters of a line that are looked at

_OTHER_TEXT = (
    "Tests of calls other than collectives and plain sends (one-sided, non-blocking, vector "
    "forms) were skipped."
)
_RANKS_TEXT = (
    "The size of a whole call depends on the number of ranks, which the text does not give: rows"
    " were left out. Give it with collscope ingest table --ranks N"
)
_CUT_TEXT = "Rows that are cut or broken were left out."


class _Test(msgspec.Struct, frozen=True):
    """A test, and what its head defines for the rows."""

    setting: Setting
    datatype: Datatype | None = None
    columns: tuple[str, ...] = ()
    at_once: int = 1  # messages of the printed size in the time of one
    begun: bool = False  # a row was read


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """Measurements of every test of a text, as exact as the digits that were printed.

    Sizes are those of nccl-tests: of an AllGather, AllToAll, Gather and Scatter, OSU's times the
    ranks, which the command above the test or `hints` gives.
    """
    notes = Notes()
    context = Context()
    found: list[Measurement] = []
    claimed: set[int] = set()
    test: _Test | None = None
    tests = 0
    of_test: list[int] = []  # of each measurement
    last = 0
    for last, raw, ended in ended_lines(text):
        line = clean(raw[:_LONGEST]).strip()
        if (title := _TITLE.fullmatch(line)) is not None:
            test = _test(title, context.setting().nranks, hints)
            tests += 1
            context.rows_seen = True  # the next command is of another test
        elif test is not None and test.columns and integer(line.partition(" ")[0]) is not None:
            claimed.add(last)
            test = replace(test, begun=True)
            # A last line without its end may have lost digits.
            cells = line.split() if ended else line.split()[:1]
            measured = _row(test, cells, last, notes)
            if measured is not None:
                found.append(measured)
                of_test.append(tests)
        else:
            test = None if test is None else _headed(test, line)
            if test is None:
                context.read(line)
    return MeasurementSet(
        DIALECT,
        _distinguished(found, of_test),
        lines=last,
        diagnostics=notes.diagnostics,
        claimed=frozenset(claimed),
    )


def _distinguished(found: Sequence[Measurement], of_test: Sequence[int]) -> tuple[Measurement, ...]:
    """Measurements of one test again, perhaps on other hosts, under a label of their own."""
    order: dict[tuple[object, ...], dict[int, int]] = {}
    labelled = []
    for m, test in zip(found, of_test, strict=True):
        places = order.setdefault((m.label, m.op, m.nranks), {})
        place = places.setdefault(test, len(places) + 1)
        labelled.append(m if place == 1 else replace(m, label=f"{m.label} ({place})"))
    return tuple(labelled)


def _test(title: re.Match[str], launched: int | None, hints: TableHints) -> _Test:
    library, one_sided, memory, managed, name, version = title.groups()
    op, both = Op.UNKNOWN, False
    if (sends := _SENDS.fullmatch(name)) is not None:
        op, both = Op.SEND_RECV, sends[1] is not None
    elif (collective := _COLLECTIVE.fullmatch(name)) is not None:
        op = op_of_text(collective[1]) or Op.UNKNOWN
    known = not one_sided and op is not Op.ALL_TO_ALLV
    backend = "host" if not memory else None if managed else _BACKENDS.get(memory.upper())
    setting = Setting(
        op=op if known else Op.UNKNOWN,
        nranks=2 if op is Op.SEND_RECV else hints.nranks or launched,
        nnodes=hints.nnodes,
        method=f"OSU {version or ''}: {library}{one_sided or ''} {name.lower()} test",
        library=library.upper() if library.upper() == "MPI" else library.lower(),
        label=": ".join(part for part in (hints.label, f"OSU {name}") if part),
        backend=backend,
    )
    return _Test(setting, at_once=2 if both else 1)


def _headed(test: _Test, line: str) -> _Test | None:
    """The test with what a line of its head adds; None where the line ends it."""
    setting = test.setting
    if header := _HEADER.fullmatch(line):
        return replace(test, columns=tuple(name.lower() for name in _GAP.split(header[1])))
    if datatype := _DATATYPE.fullmatch(line):
        return replace(test, datatype=_TYPES.get(datatype[1]))
    if test.begun or (line and not line.startswith("#")):
        return None
    label, backend = setting.label, setting.backend
    if memory := _MEMORY.fullmatch(line):
        places = tuple(place.lower() for place in memory.groups())
        if places == ("host", "host"):
            backend = "host"
        elif len(set(places)) == 2:
            label, backend = f"{label}, {' to '.join(places)}", None
    elif pairs := _PAIRS.match(line):
        label = f"{label}, {count(int(pairs[1]), 'pair')}"
        test = replace(test, at_once=int(pairs[1]))
    return replace(test, setting=replace(setting, label=label, backend=backend))


def _row(test: _Test, cells: list[str], line: int, notes: Notes) -> Measurement | None:
    # 65536                 544.88
    # 1024                    1.55              Pass
    setting, first = test.setting, test.columns[0]
    if setting.op is Op.UNKNOWN or first not in (*_BANDWIDTHS, *_LATENCIES):
        notes.add(Severity.NOTICE, "other_test", _OTHER_TEXT, line, setting.method)
        return None
    fields = dict(zip(test.columns, cells[1:], strict=False))
    size, value = integer(cells[0]), decimal(fields.get(first))
    if len(cells) != len(test.columns) + 1 or size is None or not value:
        notes.add(Severity.DATA_LOSS, "cut_row", _CUT_TEXT, line, " ".join(cells))
        return None
    time = fields[first]
    if first in _BANDWIDTHS:  # 1e6 bytes per second
        time = f"{size * test.at_once / value:.17g}"
        setting = replace(setting, method=f"{setting.method}, time computed from a bandwidth")
    # OSU prints one rank's part of these; of a ReduceScatter it prints what a rank puts in.
    if setting.op.count_is_part and setting.op is not Op.REDUCE_SCATTER:
        if setting.nranks is None:
            notes.add(Severity.DATA_LOSS, "nranks_unknown", _RANKS_TEXT, line)
            return None
        size *= setting.nranks
    if size >= LIMIT:
        notes.add(Severity.DATA_LOSS, "cut_row", _CUT_TEXT, line, " ".join(cells))
        return None
    result = Result(
        line,
        size,
        time,
        datatype=test.datatype,
        n_wrong=0 if fields.get("validation") == "Pass" else None,
        beyond_threshold=fields.get("validation") == "Fail",
    )
    iterations = integer(fields.get("iterations", ""))
    return measure(result, replace(setting, iterations=iterations), notes)


READER = Reader(DIALECT, "table", anywhere, lambda source, hints: parse(source.text(), hints.table))
