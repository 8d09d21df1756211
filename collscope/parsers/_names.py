"""Names of operations, element types and reductions as benchmark programs spell them."""

from __future__ import annotations

import re

from collscope.model import DATATYPE_NAMES, Datatype, Op, parse_datatype, parse_op, parse_redop


def _any_of(separator: str) -> str:
    """Pattern of the operations that benchmarks measure, longest first: reduce begins others."""
    names = [separator.join(op.words) for op in Op if op.benchmark]
    return "|".join(sorted(names, key=len, reverse=True))


# all_reduce_perf (NCCL 2), all_reduce_test (NCCL 1), alltoall_perf_mpi (make NAME_SUFFIX=_mpi)
_PROGRAM = re.compile(
    rf"(?<![A-Za-z])({_any_of('_?')}|hypercube)_(?:perf|test)(?:_mpi)?\b", re.IGNORECASE
)
# # Collective test starting: all_gather_perf_cuda12
_TEST = re.compile(r"Collective test (?:starting|concluded): (?:\S*/)?(\S{1,80})")
_SUFFIXED = re.compile(rf"({_any_of('_?')}|hypercube)_(?:perf|test)(?:_\w+)?", re.IGNORECASE)
# "All-Gather Latency (us)", "All_reduce on 2 nodes", superbench-nccl_alltoall.log
_WORD = re.compile(rf"(?<![A-Za-z])({_any_of('[-_ /]?')}|bcast|p2p)(?![A-Za-z])", re.IGNORECASE)
_TYPES = "|".join(sorted(DATATYPE_NAMES, key=len, reverse=True)).replace("8e", "8_?e")
_TYPE_WORD = re.compile(rf"\b(?:{_TYPES})\b")


def op_of_program(text: str) -> Op | None:
    """Operation of the last benchmark program that a text names; None when it names none.

    returns  UNKNOWN where nccl-tests prints that it runs a test of another operation

    >>> op_of_program("srun -n8 ./build/all_reduce_perf -b 8")
    <Op.ALL_REDUCE: 'AllReduce'>
    """
    named = [*_PROGRAM.finditer(text), *_TEST.finditer(text)]
    if not named:
        return None
    last = max(named, key=lambda match: match.end())
    known = _SUFFIXED.fullmatch(last[1]) if last.re is _TEST else last
    return parse_op(_joined(known[1])) if known else Op.UNKNOWN


def only_program(text: str) -> Op | None:
    """Operation of the benchmark programs of a text; None when it names none, or of several."""
    found = {parse_op(_joined(name)) for name in _PROGRAM.findall(text)}
    return found.pop() if len(found) == 1 else None


def op_of_text(text: str) -> Op | None:
    """Operation that a title or a file name speaks of; None when it speaks of none, or of several.

    >>> op_of_text("allgather_and_reduce_scatter.log") is None
    True
    """
    names = {_joined(name) for name in _WORD.findall(text)}
    found = {Op.SEND_RECV if name == "p2p" else parse_op(name) for name in names}
    return found.pop() if len(found) == 1 else None


def datatype_of_text(text: str) -> Datatype | None:
    """Element type that a sentence names, as in "FP16 All-Gather algorithms"; None if it does not.

    "float" and "half" alone are ordinary words and do not count.
    """
    words = (m[0] for m in _TYPE_WORD.finditer(text.lower()))
    return next((parse_datatype(word) for word in words if any(c.isdigit() for c in word)), None)


def redop_of_name(name: str) -> str | None:
    """Reduction's label by a benchmark's name for it; None for "none"."""
    redop = parse_redop(name)
    return None if redop is None else redop.value


def _joined(name: str) -> str:
    return re.sub(r"[-_ /]", "", name.lower())
