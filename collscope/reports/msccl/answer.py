"""What MSCCL algorithms are, what they cost, and the classes of a run that they would serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

import msgspec

from collscope.errors import InputError
from collscope.ingest.files import open_input
from collscope.ingest.match import reading, require_run
from collscope.ingest.paths import expand_files, printable
from collscope.model import Datatype, Op, Severity
from collscope.parsers.msccl_xml import MOST_BYTES, MscclAlgorithm, MscclFile, parse
from collscope.reports.calls.answer import ClassRow, class_rows, read_call_totals
from collscope.reports.msccl.cost import Assumption, Costs, Lack, Load, load_of
from collscope.reports.msccl.serve import Refusal, refusal
from collscope.reports.msccl.structure import Structure, Unpaired, structure_of
from collscope.roofline.catalogue import load_system
from collscope.roofline.floors import model_lines
from collscope.roofline.nccl_model import best_line
from collscope.roofline.system import System

SCHEMA = "collscope.msccl/2"
_LEAST_SIZE, _LARGEST_SIZE, _STEP = 1024, 1 << 30, 16  # of the table of costs without a run


class Flaw(Enum):
    """Why an algorithm cannot be used, or not be judged."""

    UNREADABLE = "unreadable"
    UNPAIRED = "unpaired"
    CIRCULAR = "circular"
    SYSTEM = "system"  # it lacks what a cost needs


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with an algorithm.

    messages  of a file that cannot be read
    """

    flaw: Flaw
    messages: tuple[str, ...] = ()
    unpaired: Unpaired | None = None
    lack: Lack | None = None


class AlgorithmRow(msgspec.Struct, frozen=True):
    """One file; everything but `file` and `problem` is None where it cannot be used.

    Loads are parts of the S bytes of a call: what the busiest link, GPU and node carries one way.
    """

    file: str  # path
    problem: Problem | None  # why it cannot be used, or not be judged
    name: str | None = None  # in the file
    op: str | None = None
    nranks: int | None = None
    protocol: str | None = None  # LL, LL128, Simple
    channels: int | None = None
    chunks: int | None = None  # chunks that a call's bytes are cut into
    blocks: int | None = None  # thread blocks of the GPU with most
    steps: int | None = None  # steps of the thread block with most
    in_place: bool | None = None  # may run in place
    out_of_place: bool | None = None  # may run out of place
    min_bytes: int | None = None  # least nccl-tests size
    max_bytes: int | None = None  # largest nccl-tests size; None: none
    messages: int | None = None  # messages between GPUs
    dependent: int | None = None  # messages of the longest chain of dependent ones
    pair_load: float | None = None  # part of the call's bytes on the busiest link between two GPUs
    gpu_load: float | None = None  # part of them out of or into the busiest GPU, within its node
    node_load: float | None = None  # part of them out of or into the busiest node


class CostRow(msgspec.Struct, frozen=True):
    """One algorithm at one size on the system; times in ns."""

    file: str  # path
    size_bytes: int  # nccl-tests size
    msccl_ns: float  # time of one call
    hops_ns: float  # of it, the chain of dependent messages
    transfer_ns: float  # of it, the busiest link
    library_ns: float | None  # best of the library's own model; None without one
    library: str | None  # its algorithm and protocol


class ServedRow(msgspec.Struct, frozen=True):
    """One class of the run; times in ns of one call."""

    class_id: int  # key
    op: Op
    datatype: Datatype | None
    count: int | None  # elements as the API takes it
    size_bytes: int | None  # nccl-tests size
    in_place: bool | None
    nranks: int | None
    calls: int  # calls in the run
    file: str | None  # first algorithm that serves it; None: none
    others: tuple[str, ...]  # further ones that would
    why: Refusal | None  # why none does
    msccl_ns: float | None  # cost of one call on the system
    library_ns: float | None  # the library's own model
    run_ns: float | None  # mean transfer time in the run, where kernel times show it


class FileNote(msgspec.Struct, frozen=True):
    """What was noticed while reading a file."""

    file: str  # path
    severity: str  # info, notice, data_loss, error
    code: str  # stable name
    message: str  # one sentence
    line: int | None  # first line
    count: int  # times seen


class MscclReport(msgspec.Struct, frozen=True):
    """Everything that `collscope msccl` prints."""

    run: str | None  # label; None: no run
    system: str | None  # name; None: no costs
    algorithms: tuple[AlgorithmRow, ...]
    costs: tuple[CostRow, ...]  # empty with a run, whose classes have theirs
    classes: tuple[ServedRow, ...]
    other_classes: int  # of the run, of operations that no algorithm is for
    notes: tuple[FileNote, ...]
    assumptions: tuple[Assumption, ...]  # of the costs
    schema: str = SCHEMA


class _Usable(msgspec.Struct, frozen=True):
    """An algorithm that can run, with what was computed of it."""

    file: str
    algorithm: MscclAlgorithm
    structure: Structure
    load: Load


def msccl_report(
    paths: list[str], db: Path, run: str | None, system: str | None, *, strict: bool = False
) -> MscclReport:
    """What the algorithms in files and folders are, and do for a run.

    run     None: the store is not opened
    strict  a file that cannot be used is an error
    raises  InputError when a path names nothing, a file cannot be read, or none can be used
    """
    machine = None if system is None else load_system(system)
    files = [(printable(path), _read(path)) for path in _xml_files(paths)]
    bad = [(path, f) for path, f in files if f.algorithm is None]
    if len(bad) == len(files) or (strict and bad):
        path, found = bad[0]
        more = f" ({len(bad)} of {len(files)} files)" if len(files) > 1 else ""
        raise InputError(f"{path}: {found.diagnostics[-1].message}{more}")
    if run is None:
        return build_msccl(files, machine)
    with reading(db) as connection:
        require_run(connection, db, run)
        classes = class_rows(connection, run, read_call_totals(connection, run))
        return build_msccl(files, machine, classes, run)


def _xml_files(paths: list[str]) -> list[str]:
    """Files as named; of folders, those whose name ends in .xml."""
    found = expand_files(paths)
    named = {path for path in paths if not Path(path).is_dir()}
    chosen = [path for path in found if path in named or path.endswith(".xml")]
    if not chosen:
        raise InputError(f"{paths[0]}: holds no .xml file. Name the folder of the algorithms.")
    return chosen


def _read(path: str) -> MscclFile:
    """A file's algorithm; no more of it is read than the parser takes."""
    with open_input(path) as file:
        return parse(file.head(MOST_BYTES + 1))


def build_msccl(
    files: Sequence[tuple[str, MscclFile]],
    system: System | None = None,
    classes: Sequence[ClassRow] | None = None,
    run: str | None = None,
) -> MscclReport:
    """Report of algorithms, in the order in which a scheduler would try them.

    system   None: no costs
    classes  of a run; None: no run
    """
    costs = None if system is None else Costs(system)
    rows: list[AlgorithmRow] = []
    usable: list[_Usable] = []
    for file, found in files:
        row, good = _row(file, found, costs)
        rows.append(row)
        if good is not None:
            usable.append(good)
    wanted = {u.algorithm.op for u in usable}
    concerned = [c for c in classes or () if c.op in wanted]
    notes = [
        FileNote(file, d.severity.value, d.code, d.message, d.line, d.count)
        for file, found in files
        for d in found.diagnostics
    ]
    return MscclReport(
        run,
        None if system is None else system.name,
        tuple(rows),
        () if costs is None or classes is not None else tuple(_cost_rows(usable, costs)),
        tuple(_served(found, usable, costs) for found in concerned),
        len(classes or ()) - len(concerned),
        tuple(notes),
        () if costs is None else tuple(Assumption),
    )


def _row(file: str, found: MscclFile, costs: Costs | None) -> tuple[AlgorithmRow, _Usable | None]:
    algorithm = found.algorithm
    if algorithm is None:
        errors = [d for d in found.diagnostics if d.severity is Severity.ERROR]
        return AlgorithmRow(file, Problem(Flaw.UNREADABLE, tuple(d.message for d in errors))), None
    structure = structure_of(algorithm)
    ranks_per_node = algorithm.nranks if costs is None else costs.ranks_per_node(algorithm)
    load = load_of(algorithm, structure, ranks_per_node)
    hops = structure.critical(ranks_per_node, 1.0, 1.0)
    row = AlgorithmRow(
        file=file,
        problem=_problem(algorithm, structure, load, costs),
        name=algorithm.name,
        op=algorithm.op.value,
        nranks=algorithm.nranks,
        protocol=algorithm.protocol,
        channels=algorithm.channels,
        chunks=algorithm.chunks,
        blocks=max(len(blocks) for blocks in algorithm.blocks),
        steps=max((len(b.steps) for blocks in algorithm.blocks for b in blocks), default=0),
        in_place=algorithm.in_place,
        out_of_place=algorithm.out_of_place,
        min_bytes=algorithm.min_bytes,
        max_bytes=algorithm.max_bytes,
        messages=structure.messages,
        dependent=hops.inside + hops.between if structure.finishes else None,
        pair_load=load.pair,
        gpu_load=load.gpu,
        node_load=load.node,
    )
    return row, _Usable(file, algorithm, structure, load) if structure.finishes else None


def _problem(
    algorithm: MscclAlgorithm, structure: Structure, load: Load, costs: Costs | None
) -> Problem | None:
    if structure.unpaired is not None:
        return Problem(Flaw.UNPAIRED, unpaired=structure.unpaired)
    if structure.circular:
        return Problem(Flaw.CIRCULAR)
    lack = None if costs is None else costs.lacks(algorithm, load)
    return None if lack is None else Problem(Flaw.SYSTEM, lack=lack)


def _cost_rows(usable: Sequence[_Usable], costs: Costs) -> Iterator[CostRow]:
    for one in usable:
        if costs.lacks(one.algorithm, one.load) is not None:
            continue
        low = max(_LEAST_SIZE, one.algorithm.min_bytes)
        high = min(_LARGEST_SIZE, one.algorithm.max_bytes or _LARGEST_SIZE)
        sizes = [low]
        while sizes[-1] * _STEP < high:
            sizes.append(sizes[-1] * _STEP)
        for size in (*sizes, *((high,) if high > low else ())):
            cost = costs.cost(one.algorithm, one.structure, one.load, size)
            library_ns, library = _library(one.algorithm, costs, size)
            yield CostRow(
                one.file, size, cost.time_ns, cost.hops_ns, cost.transfer_ns, library_ns, library
            )


def _library(algorithm: MscclAlgorithm, costs: Costs, size: int) -> tuple[float | None, str | None]:
    """Time and choice of the library's own model for the same call."""
    nnodes = -(-algorithm.nranks // costs.ranks_per_node(algorithm))
    lines = model_lines(costs.system, algorithm.op, algorithm.nranks, nnodes)
    if not lines:
        return None, None
    line = best_line(lines, size)
    return 1000 * line.time_us(size), f"{line.algorithm}/{line.protocol}"


def _served(found: ClassRow, usable: Sequence[_Usable], costs: Costs | None) -> ServedRow:
    refusals = [(refusal(one.algorithm, found), one) for one in usable]
    serving = [one for why, one in refusals if why is None]
    refused = [why for why, _ in refusals if why is not None]
    nearest = max(refused, key=lambda one: one.why, default=None)  # of equals the first
    msccl_ns = library_ns = None
    if serving and costs is not None and found.size_bytes is not None:
        first = serving[0]
        if costs.lacks(first.algorithm, first.load) is None:
            size = found.size_bytes
            msccl_ns = costs.cost(first.algorithm, first.structure, first.load, size).time_ns
            library_ns, _ = _library(first.algorithm, costs, size)
    return ServedRow(
        found.class_id, found.op, found.datatype, found.count, found.size_bytes, found.in_place,
        found.nranks, found.calls,
        serving[0].file if serving else None,
        tuple(one.file for one in serving[1:]),
        None if serving else nearest,
        msccl_ns, library_ns, found.transfer_ns,
    )  # fmt: skip
