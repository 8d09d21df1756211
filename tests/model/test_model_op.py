"""The table of operations: expectations by hand from nccl.h and nccl-tests' PERFORMANCE.md."""

from __future__ import annotations

import re

import pytest
from inputs import ROOT

from collscope.kernel_names import classify
from collscope.model import (
    BufferPlace,
    Datatype,
    Op,
    Redop,
    bus_factor,
    parse_datatype,
    parse_op,
    parse_redop,
    size_bytes,
    transfers_size_bytes,
)
from collscope.parsers._names import op_of_program, op_of_text
from collscope.replay.plan import REPLAYED

_NATIVE = ROOT / "native" / "replayer"


# S for 3 ranks, count 5, 4 bytes; busbw/algbw as (numerator, denominator) for 3 ranks
@pytest.mark.parametrize(
    ("op", "size", "factor", "place"),
    [
        (Op.ALL_REDUCE, 20, (4, 3), BufferPlace.SAME),
        (Op.ALL_GATHER, 60, (2, 3), BufferPlace.PART_OF_RECV),
        (Op.REDUCE_SCATTER, 60, (2, 3), BufferPlace.PART_OF_SEND),
        (Op.BROADCAST, 20, (1, 1), BufferPlace.SAME),
        (Op.REDUCE, 20, (1, 1), BufferPlace.SAME),
        (Op.ALL_TO_ALL, 60, (2, 3), BufferPlace.SAME),
        (Op.ALL_TO_ALLV, None, (2, 3), BufferPlace.SAME),
        (Op.GATHER, 60, (2, 3), BufferPlace.PART_OF_RECV),
        (Op.SCATTER, 60, (2, 3), BufferPlace.PART_OF_SEND),
        (Op.SEND_RECV, 20, (1, 1), BufferPlace.SAME),
        (Op.SEND, 20, (1, 1), BufferPlace.SAME),
        (Op.RECV, 20, (1, 1), BufferPlace.SAME),
        (Op.BARRIER, None, None, BufferPlace.SAME),
        (Op.UNKNOWN, None, None, BufferPlace.SAME),
    ],
)
def test_size_factor_and_place(
    op: Op, size: int | None, factor: tuple[int, int] | None, place: BufferPlace
) -> None:
    assert size_bytes(op, count=5, datatype=Datatype.FLOAT32, nranks=3) == size
    found = bus_factor(op, 3)
    assert found == (None if factor is None else pytest.approx(factor[0] / factor[1]))
    assert op.place is place
    assert bus_factor(op, 1) is None


def test_roots_reductions_and_barriers() -> None:
    assert {op.value for op in Op if op.rooted} == {"Broadcast", "Reduce", "Gather", "Scatter"}
    assert {op.value for op in Op if op.reduces} == {"AllReduce", "ReduceScatter", "Reduce"}
    assert {op.value for op in Op if op.synchronises} == {
        "AllReduce", "AllGather", "ReduceScatter", "AllToAll", "AllToAllv", "Barrier",
    }  # fmt: skip


def test_size_of_transfers() -> None:
    uneven = [(0, 1, 8), (0, 2, 16), (1, 2, 4)]
    # rank 0 sends 24, rank 2 receives 20
    assert transfers_size_bytes(Op.ALL_TO_ALLV, 3, uneven) == 24
    assert transfers_size_bytes(Op.ALL_TO_ALL, 3, uneven) == 48
    assert transfers_size_bytes(Op.SEND_RECV, 3, uneven) == 16
    assert transfers_size_bytes(Op.SEND_RECV, 3, []) == 0


def test_every_program_and_spelling_names_its_operation() -> None:
    for op in Op:
        assert parse_op(op.value) is op
        if op.benchmark is not None:
            assert op_of_program(f"./build/{op.benchmark}_perf -b 8") is op
            assert op_of_text(f"{' '.join(op.words)} on 2 nodes") is op
        if op.kernel is not None and op.reduces:
            named = classify(f"ncclDevKernel_{op.kernel}_Sum_f32_RING_LL()")
            assert named is not None
            assert (named.op_hint, named.datatype_hint) == (op.value, "Float32")


def test_every_name_of_a_type_names_it() -> None:
    # nccl.h of 2.24: ncclInt8 … ncclFloat8e5m2 are 0 … 11
    assert [d.code for d in Datatype] == [*range(12), -1]
    for datatype in Datatype:
        assert parse_datatype(datatype.value) is datatype
        assert Datatype.of_label(datatype.value) is datatype
        for name in datatype.kernel_names:
            hint = classify(f"ncclDevKernel_AllReduce_Sum_{name}_RING_LL()")
            assert hint is not None
            assert hint.datatype_hint == datatype.value
    assert (Datatype.of_label("float"), parse_datatype("floaty")) == (None, Datatype.UNKNOWN)
    assert [r.code for r in Redop] == list(range(6))
    assert (parse_redop("Product"), parse_redop("none")) == (Redop.PROD, None)


def test_the_replayer_knows_the_same_operations() -> None:
    header = (_NATIVE / "plan.h").read_text()
    (names,) = re.findall(r"enum class Op : std::uint8_t \{(.*?)\}", header, re.DOTALL)
    assert [name.strip() for name in names.split(",")] == [op.value for op in REPLAYED]
    types = re.findall(r'\{"(\w+)", (\d),', (_NATIVE / "datatype.cpp").read_text())
    known = [d for d in Datatype if d is not Datatype.UNKNOWN]
    assert types == [(d.value, str(d.itemsize)) for d in known]
