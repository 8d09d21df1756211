"""Rows of tables are never given to an operation that the text does not name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, combinations
from pathlib import Path

import pytest
from inputs import RECORDINGS, ROOT, SHARED

from collscope.model import MeasurementSet, Op
from collscope.parsers import registry
from collscope.parsers.hints import Hints, TableHints

# Every spelling of an operation, also as part of a program's name or of a test of OSU.
_NAMES = re.compile(
    r"all[-_ /]?reduce|all[-_ /]?gather|reduce[-_ /]?scatter|all[-_ /]?to[-_ /]?all|send[-_ /]?recv"
    r"|hypercube|broadcast|bcast|p2p|scatter|gather|reduce\b|reduce(?=_)"
    r"|(?<=OSU MPI )[\w /-]*(?:Latency|Bandwidth|Rate)|(?<=OSU MPI-CUDA )[\w /-]*Latency"
    r"|(?<=OSU MPI-ROCM )[\w /-]*(?:Latency|Bandwidth)|(?<=OSU NCCL-CUDA )[\w /-]*Latency",
    re.IGNORECASE,
)


def tables() -> list[Path]:
    """Every file with tables that is at hand."""
    folders = (
        (ROOT / "samples" / "tables", "*"),
        (ROOT / "samples" / "replay", "*.csv"),
        (SHARED / "corpus" / "perf-tables", "*"),
        (SHARED / "background", "*"),
        (RECORDINGS, "**/nccl-tests/*.txt"),
    )
    return [path for folder, what in folders for path in sorted(folder.glob(what))]


def read(text: str, name: str = "tables.txt") -> MeasurementSet | None:
    found = registry.read_bytes("table", text.encode(), Hints(table=TableHints(name=name)))
    assert found is None or isinstance(found, MeasurementSet)
    return found


@pytest.mark.parametrize("path", tables(), ids=lambda path: path.name)
def test_without_the_name_of_its_operation_a_table_gives_no_row(path: Path) -> None:
    text = path.read_text(errors="replace")
    bare = read(_NAMES.sub("it", text))
    whole = read(text, path.name)
    rows = () if bare is None else (*bare.measurements, *bare.interference)
    assert [row for row in rows if row.op is not Op.UNKNOWN] == []
    assert rows == ()
    if whole is not None and (whole.measurements or whole.interference):
        # It is asked for, or the file is of no dialect that could ask.
        assert bare is None or bare.diagnostics or bare.copies


def _subsets(lines: list[int]) -> Iterable[tuple[int, ...]]:
    return chain.from_iterable(combinations(lines, n) for n in range(len(lines) + 1))


def _sweep() -> tuple[str, dict[int, Op]]:
    """Three programs' output behind each other, and the operation of every row's size."""
    header = (
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
        "     time   algbw   busbw  #wrong\\n"
    ).replace("\\n", "\n")
    ops = {
        Op.ALL_REDUCE: "all_reduce",
        Op.REDUCE_SCATTER: "reduce_scatter",
        Op.ALL_GATHER: "all_gather",
    }
    text, sizes = "", {}
    for place, (op, name) in enumerate(ops.items()):
        text += f"# Collective test starting: {name}_perf\n# Using devices\n{header}"
        for step in range(3):
            size = (1 << (20 + 2 * step)) + 1024 * place
            count = size // 4 if op is Op.ALL_REDUCE else size // 16
            redop = "none" if op is Op.ALL_GATHER else "sum"
            times = "100.0   10.00   10.00       0" * 1
            text += f"{size:>12} {count:>12}     float     {redop}      -1    {times}    {times}\n"
            sizes[size] = op
        text += f"# Avg bus bandwidth    : 10.0\n#\n# Collective test concluded: {name}_perf\n"
    return text, sizes


def test_lost_lines_that_name_operations_move_no_row_to_another() -> None:
    text, sizes = _sweep()
    lines = text.splitlines(keepends=True)
    naming = [at for at, line in enumerate(lines) if "Collective test" in line]
    assert len(naming) == 6
    for lost in _subsets(naming):
        kept = "".join(line for at, line in enumerate(lines) if at not in lost)
        found = read(kept)
        assert found is not None
        wrong = [m for m in found.measurements if m.op is not sizes[m.size_bytes or 0]]
        assert wrong == [], f"without lines {lost}"


def test_head_and_end_that_disagree_name_none() -> None:
    text, _ = _sweep()
    torn = text.replace("concluded: all_reduce_perf", "concluded: all_gather_perf")
    found = read(torn)
    assert found is not None
    assert {m.op for m in found.measurements} == {Op.REDUCE_SCATTER, Op.ALL_GATHER}
    assert len(found.measurements) == 12
    assert "op_unknown" in {d.code for d in found.diagnostics}
