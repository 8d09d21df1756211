"""Names of operations, element types and reductions as benchmark programs spell them."""

from __future__ import annotations

import re

from collscope.model import DATATYPE_NAMES, Datatype, Op, parse_datatype, parse_redop

# all_reduce_perf (NCCL 2), all_reduce_test (NCCL 1), alltoall_perf_mpi
_PROGRAM = re.compile(
    r"(?<![A-Za-z])(all_?reduce|all_?gather|reduce_?scatter|broadcast|reduce|all_?to_?allv"
    r"|all_?to_?all|gather|scatter|sendrecv|hypercube)_(?:perf|test)\b",
    re.IGNORECASE,
)
# "All-Gather Latency (us)", "All_reduce on 2 nodes", superbench-nccl_alltoall.log; longest first
_WORD = re.compile(
    r"(?<![A-Za-z])(all[-_ ]?reduce|all[-_ ]?gather|reduce[-_ ]?scatter|all[-_ ]?to[-_ ]?allv"
    r"|all[-_ ]?to[-_ ]?all|send[-_ /]?recv|broadcast|bcast|gather|scatter|reduce|p2p)(?![A-Za-z])",
    re.IGNORECASE,
)
_P2P = {"p2p": Op.SEND_RECV}
_OPS = {op.value.lower(): op for op in Op} | {"bcast": Op.BROADCAST} | _P2P

_TYPES = "|".join(sorted(DATATYPE_NAMES, key=len, reverse=True)).replace("8e", "8_?e")
_TYPE_WORD = re.compile(rf"\b(?:{_TYPES})\b")


def op_of_program(text: str) -> Op | None:
    """Operation of the last benchmark program that a text names; None when it names none.

    >>> op_of_program("srun -n8 ./build/all_reduce_perf -b 8")
    <Op.ALL_REDUCE: 'AllReduce'>
    """
    names = _PROGRAM.findall(text)
    return _OPS.get(_joined(names[-1]), Op.UNKNOWN) if names else None


def op_of_text(text: str) -> Op | None:
    """Operation that a title or a file name speaks of; None when it speaks of none."""
    match = _WORD.search(text)
    return _OPS[_joined(match[1])] if match else None


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
