"""Tolerances stand in one file of each engine, with what they bound and where they come from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import collscope

PACKAGE = Path(collscope.__file__).parent
ENGINES = ("match", "timeline", "timeline/step_causes", "reports")
FILES = [PACKAGE / engine / "tolerances.py" for engine in ENGINES]
# Codes and widths of formats, slots, and what an export leaves out: nothing is judged by them.
NO_TOLERANCES = {
    "match/executions.py": {"_P2P_BITS", "_UNCLEAR"},
    "match/kernels.py": {"NONE", "KL", "CL", "KE", "COUNTER_MASK"},
    "match/observations.py": {"COUNT_MODULO_2_32", "POINTERS_ONLY"},
    "match/observe.py": {"_CALL_TRACE"},
    "match/recorded_transfers.py": {"_MOST", "_LIMIT", "_NO_DATATYPE"},
    "match/communicators.py": {"_NO_CALLS"},
    "match/rows.py": {"UNKNOWN_LAUNCH"},
    "match/run.py": {"_MOST_LACKING"},
    "match/run_rows.py": {"ROWS_AT_ONCE", "_KEPT"},
    "match/tuning.py": {"NONE", "_NUMERIC"},
    "timeline/causes/host_side.py": {"AWAITED"},
    "timeline/causes/nodes.py": {"_SLOTS"},
    "timeline/graph.py": {"NONE", "NEVER", "ORIGIN", "FIRST"},
    "timeline/perfetto.py": {"MOST_PARTS", "_CLOSEST_NS", "_SHORT_NAME", "_NAMED_RANKS"},
    "timeline/explanation/swaps.py": {"AS_RECORDED"},
    "timeline/unprofiled.py": {"_AS_RECORDED"},
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_every_tolerance_has_a_quantity_and_a_source(path: Path) -> None:
    body = ast.parse(path.read_text("utf-8")).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign):
            continue
        name = ast.unparse(node.targets[0])
        assert isinstance(following, ast.Expr), name
        text = " ".join(str(ast.literal_eval(following.value)).split())
        quantity, _, source = text.partition("Source: ")
        assert quantity.strip(), name
        assert source.strip(), name


def test_names_of_tolerances_are_of_one_quantity_each() -> None:
    names = [name for path in FILES for name, _ in numbers(path)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("engine", ["match", "timeline"])
def test_modules_of_an_engine_have_no_tolerances_of_their_own(engine: str) -> None:
    for path in sorted((PACKAGE / engine).rglob("*.py")):
        allowed = NO_TOLERANCES.get(path.relative_to(PACKAGE).as_posix(), set())
        if path not in FILES:
            assert {name for name, _ in numbers(path)} <= allowed, path


def numbers(path: Path) -> Iterator[tuple[str, ast.expr]]:
    """Names of a module that are numbers, or tuples of numbers."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if is_number(node.value):
                yield from ((n.id, node.value) for n in ast.walk(target) if isinstance(n, ast.Name))


def is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=parts):
            return bool(parts) and all(map(is_number, parts))
    return False
