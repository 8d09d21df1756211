"""Plans: from runs, by hand, by sweep; chosen from, scaled, estimated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from collscope.errors import InputError, UsageError
from collscope.ingest.commands import ingest_logs
from collscope.ingest.match import reading
from collscope.model import Datatype, Op, Redop
from collscope.replay.build import Planned, build_plan
from collscope.replay.estimate import describe, estimate
from collscope.replay.load import load_run
from collscope.replay.parse import parse_plan
from collscope.replay.partition import partitions, place
from collscope.replay.patterns import completed, pattern, transfer_bytes
from collscope.replay.plan import (
    SEQUENCE,
    SHAPES,
    UNIQUE,
    Plan,
    PlanClass,
    PlanComm,
    PlanStep,
    PlanTransfer,
    PlanTransfers,
    itemsize,
)
from collscope.replay.records import RunClass, RunComm, RunRecords, RunSlot
from collscope.replay.scale import scale
from collscope.replay.select import select
from collscope.replay.sweep import sweep_plan
from collscope.replay.text import number_list, plan_text


def _plan_of(path: Path, db: Path, mode: str = UNIQUE) -> Planned:
    ingest_logs([str(path)], db, "main")
    with reading(db) as connection:
        return build_plan(load_run(connection, "main", calls=mode == SEQUENCE), mode)


# By hand from samples/README.md and the logs: 13 steps; a world of 4; splits into {0,2} {1,3} and
# {0,1} {2,3}. All-to-all-v: rank s sends (s+1)(d+1)16 elements to d. Most bytes first: calls times
# size, equal ones in the order in which they were found.
_MIXED = """\
collscope-plan 1
mode unique
nranks 4
comm 1 0-3
comm 2 0,2
comm 3 0,1
comm 4 1,3
comm 5 2,3
class 0 op=AllReduce datatype=Bfloat16 redop=Avg count=4194304 in_place=1 calls=26 comms=2,4
class 1 op=AllReduce datatype=Bfloat16 redop=Sum count=4194304 in_place=1 calls=26 comms=3,5
class 2 op=Broadcast datatype=Bfloat16 count=4194304 root=0 in_place=1 calls=13 comms=1
class 3 op=Reduce datatype=Bfloat16 redop=Sum count=4194304 root=1 in_place=1 calls=13 comms=1
class 4 op=SendRecv datatype=Bfloat16 count=4194304 calls=13 comms=1 shape=shift size_bytes=8388608
transfers 4 1 0>1:4194304 1>2:4194304 2>3:4194304 3>0:4194304
class 5 op=ReduceScatter datatype=Float16 redop=Sum count=65536 calls=13 comms=1
class 6 op=AllGather datatype=Float32 count=4096 calls=13 comms=1
class 7 op=AllToAll datatype=Float32 count=1024 calls=13 comms=1
class 8 op=Gather datatype=Int64 count=333 root=0 calls=13 comms=1 shape=gather size_bytes=10656
transfers 8 1 1>0:333 2>0:333 3>0:333
class 9 op=AllToAllv datatype=Float32 calls=13 comms=1 shape=alltoallv size_bytes=2560
transfers 9 1 0>0:16 0>1:32 0>2:48 0>3:64 1>0:32 1>1:64 1>2:96 1>3:128
transfers 9 1 2>0:48 2>1:96 2>2:144 2>3:192 3>0:64 3>1:128 3>2:192 3>3:256
class 10 op=AllGather datatype=Float32 count=50 calls=13 comms=1
class 11 op=Scatter datatype=Uint8 count=100 root=2 calls=13 comms=1 shape=scatter size_bytes=400
transfers 11 1 2>0:100 2>1:100 2>3:100
class 12 op=AllReduce datatype=Float64 redop=Max count=7 in_place=1 calls=13 comms=1
class 13 op=AllReduce datatype=Float32 redop=Sum count=1 in_place=1 calls=13 comms=1
"""


def size_of(plan: Plan, planned: PlanClass) -> int:
    """Size S in bytes of one call of a class of the plan."""
    return planned.size(len(plan.comm_ranks()[planned.comms[0]]))


def test_mixed_sample_unique(samples: Path, db_path: Path) -> None:
    planned = _plan_of(samples / "nccl/mixed", db_path)
    assert planned.plan == parse_plan(_MIXED)
    assert planned.notices == ()


def test_mixed_sample_sequence(samples: Path, db_path: Path) -> None:
    plan = _plan_of(samples / "nccl/mixed", db_path, SEQUENCE).plan
    op_of = {c.id: c.op for c in plan.classes}
    assert len(plan.classes) == 14
    assert len(plan.steps) == 13 * (12 + 4)
    assert all(len(s.items) == 1 for s in plan.steps)  # opCount 0 throughout: no groups told
    # What rank 0 logged in one step of the job, communicators by their ranks.
    ranks = plan.comm_ranks()
    of_rank_0 = [(op_of[k], len(ranks[c])) for s in plan.steps for k, c in s.items if 0 in ranks[c]]
    assert of_rank_0[:14] == [
        (Op.ALL_REDUCE, 2), (Op.ALL_REDUCE, 2), (Op.ALL_REDUCE, 4), (Op.BROADCAST, 4),
        (Op.REDUCE, 4), (Op.ALL_GATHER, 4), (Op.REDUCE_SCATTER, 4), (Op.ALL_TO_ALL, 4),
        (Op.ALL_TO_ALLV, 4), (Op.GATHER, 4), (Op.SCATTER, 4), (Op.SEND_RECV, 4),
        (Op.ALL_GATHER, 4), (Op.ALL_REDUCE, 4),
    ]  # fmt: skip
    assert of_rank_0 == of_rank_0[:14] * 13


def test_guide_sample(samples: Path, db_path: Path) -> None:
    planned = _plan_of(samples / "rccl/guide-coll-klke.log", db_path)
    assert planned.plan.nranks == 8
    assert [(c.op, c.datatype, c.count, c.in_place, c.calls) for c in planned.plan.classes] == [
        (Op.ALL_REDUCE, Datatype.FLOAT16, 268435456, True, 1),
        (Op.ALL_REDUCE, Datatype.FLOAT64, 9, True, 1),
        (Op.ALL_REDUCE, Datatype.FLOAT64, 1, True, 1),
    ]


def test_a_run_beside_another_in_the_store(samples: Path, db_path: Path) -> None:
    alone = _plan_of(samples / "rccl/guide-coll-klke.log", db_path, SEQUENCE).plan
    for run, path in (("other", "nccl/mixed"), ("third", "rccl/guide-coll-klke.log")):
        ingest_logs([str(samples / path)], db_path, run)
    with reading(db_path) as connection:
        third = build_plan(load_run(connection, "third", calls=True), SEQUENCE).plan
        assert load_run(connection, "none").slots == ()
    assert [len(s.items) for s in third.steps] == [1, 1, 1]
    assert [replace(c, comms=()) for c in third.classes] == [
        replace(c, comms=()) for c in alone.classes
    ]


def test_one_rank_of_four_is_completed(samples: Path, db_path: Path) -> None:
    planned = _plan_of(samples / "nccl/mixed/rank0.log", db_path)
    ranks = planned.plan.comm_ranks()
    assert sorted(ranks.values()) == [(0, 1), (0, 1, 2, 3), (0, 2)]
    gather = next(c for c in planned.plan.classes if c.op is Op.GATHER)
    assert gather.transfers[0].items == tuple(PlanTransfer(s, 0, 333) for s in (1, 2, 3))
    assert any("13 calls of AllToAllv: only the transfers" in n for n in planned.notices)
    assert any("without a log" in n for n in planned.notices)


_WORLD = RunComm(1, 4, None, {r: r for r in range(4)})


def _records(classes: Sequence[RunClass], slots: Sequence[RunSlot], *comms: RunComm) -> RunRecords:
    return RunRecords((_WORLD, *comms), tuple(classes), tuple(slots))


def test_what_cannot_be_replayed_is_named() -> None:
    def collective(key: int, op: Op, **values: object) -> RunClass:
        given = {"datatype": Datatype.FLOAT32, "count": 8, "in_place": True, **values}
        return RunClass(op, id=key, **given)  # type: ignore[arg-type]

    classes = [
        collective(1, Op.BARRIER),
        collective(2, Op.SEND),
        collective(3, Op.ALL_REDUCE, datatype=Datatype.UNKNOWN),
        collective(4, Op.ALL_GATHER, count=0),
        collective(5, Op.ALL_TO_ALLV, count=None),
        collective(6, Op.ALL_REDUCE, redop=Redop.CUSTOM, in_place=None),
        collective(7, Op.BROADCAST, root=0),
        collective(8, Op.ALL_REDUCE, count=None),
    ]
    slots = [RunSlot(c.id, 1, 10 + c.id) for c in classes] + [RunSlot(7, 9, 1)]
    planned = build_plan(_records(classes, slots, RunComm(9, None)))
    assert [(c.op, c.calls, c.redop, c.in_place) for c in planned.plan.classes] == [
        (Op.ALL_REDUCE, 16, Redop.SUM, False),
        (Op.BROADCAST, 17, None, True),
    ]
    assert planned.notices == (
        "left out: 11 calls of Barrier (no replay of this operation)",
        "left out: 12 calls of Send without its other half",
        "left out: 13 calls of AllReduce of unknown datatype",
        "left out: 14 calls of AllGather without elements",
        "left out: 15 calls of AllToAllv whose transfers are not known",
        "left out: 18 calls of AllReduce of unknown size",
        "left out: 1 call of Broadcast on a communicator of unknown size",
        "16 calls with a custom or unknown reduction: replayed as Sum",
        "16 calls that may be in place or not (the log does not show it): replayed out of place",
    )


def test_distinct_matrices_are_distinct_classes() -> None:
    found = RunClass(Op.SEND_RECV, Datatype.INT8, count=5, size_bytes=5, shape="sendrecv", id=1)
    slots = [
        RunSlot(1, 2, 3, (PlanTransfer(0, 1, 5),)),
        RunSlot(1, 3, 4, (PlanTransfer(0, 1, 5),)),
        RunSlot(1, 2, 6, (PlanTransfer(1, 0, 5),)),
    ]
    comms = [RunComm(2, 2, 1, {0: 0, 1: 1}), RunComm(3, 2, 1, {0: 2, 1: 3})]
    plan = build_plan(_records([found], slots, *comms)).plan
    assert [(c.calls, c.comms) for c in plan.classes] == [(7, (2, 3)), (6, (2,))]


def test_groups_are_one_step_where_their_first_call_is() -> None:
    classes = [
        RunClass(Op.ALL_REDUCE, Datatype.INT8, Redop.SUM, k, in_place=True, id=k) for k in (1, 2)
    ]
    barrier = RunClass(Op.BARRIER, Datatype.INT8, count=1, id=3)
    slots = [RunSlot(1, 1, 3), RunSlot(2, 1, 3), RunSlot(3, 1, 1)]
    records = replace(
        _records([*classes, barrier], slots),
        slot=np.array([0, 1, 2, 0, 1, 0, 1]),
        group=np.array([-1, 7, 7, -1, 7, 8, 8]),
    )
    plan = build_plan(records, SEQUENCE).plan
    assert [s.items for s in plan.steps] == [
        ((0, 1),),
        ((1, 1), (1, 1)),
        ((0, 1),),
        ((0, 1), (1, 1)),
    ]
    assert plan_text(plan).endswith("step 0@1\nstep 1@1 1@1\nstep 0@1\nstep 0@1 1@1\n")
    assert parse_plan(plan_text(plan)) == plan


def test_partitions_prefer_siblings() -> None:
    ranks = {1: (0, 1), 2: (2, 3), 3: (0, 2), 4: (2, 3), 5: (1, 3), 6: (4,)}
    parents: dict[int, int | None] = {1: 9, 2: None, 3: 9, 4: 9, 5: 9, 6: None}
    # 2 is no sibling of 1, but fits; so 4 opens a set of its own; 6 fits everywhere.
    assert partitions(ranks, ranks, parents) == [[1, 2, 6], [3, 5], [4]]
    del ranks[2]
    assert partitions(ranks, ranks, parents) == [[1, 4, 6], [3, 5]]


def test_unknown_world_ranks_are_placed() -> None:
    comms = [
        RunComm(1, 8),
        RunComm(2, 4, 1, {1: 5}),
        RunComm(3, 4, 1),
        RunComm(4, 2, 1, {0: 3, 1: 3}),  # both of one process: not to be told apart
        RunComm(5, None),
    ]
    placed, notices = place(comms)
    assert placed == {1: tuple(range(8)), 2: (0, 5, 1, 2), 3: (3, 4, 6, 7), 4: (0, 1)}
    assert notices == ["3 communicators of ranks without a log: placed on the first free ranks"]


@pytest.mark.parametrize("shape", ["alltoall", "gather", "scatter", "shift"])
@given(nranks=st.integers(3, 6), root=st.integers(0, 2), data=st.data())
def test_regular_shapes_are_completed(
    shape: str, nranks: int, root: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, nranks - 1))
    # Only the root of a gather or scatter sees whether its own part was sent.
    own = data.draw(st.booleans()) if rank == root or shape == "alltoall" else False
    whole = pattern(shape, nranks, 7, root=root, distance=2, own=own)
    seen = [t for t in whole if rank in t[:2]]
    assert completed(shape, nranks, seen) == whole
    assert completed("alltoallv", nranks, seen) is None


@st.composite
def _plans(draw: st.DrawFn) -> Plan:
    nranks, mode = draw(st.integers(1, 9)), draw(st.sampled_from([UNIQUE, SEQUENCE]))
    size = draw(st.integers(1, nranks))
    order = draw(st.permutations(range(nranks)))
    count = draw(st.integers(1, nranks // size))
    comms = [PlanComm(2 * i + 1, tuple(order[i * size : (i + 1) * size])) for i in range(count)]
    everywhere = [c.id for c in comms]
    classes = [
        draw(_classes(key, size, everywhere))
        for key in draw(st.lists(st.integers(0, 50), min_size=1, max_size=5, unique=True))
    ]
    items = st.sampled_from([(c.id, comm) for c in classes for comm in c.comms])
    step = st.builds(PlanStep, st.lists(items, min_size=1, max_size=3).map(tuple))
    steps = draw(st.lists(step, min_size=1, max_size=6)) if mode == SEQUENCE else []
    scaled = draw(st.none() | st.integers(nranks, 99))
    return Plan(mode, nranks, tuple(comms), tuple(classes), tuple(steps), scaled)


@st.composite
def _classes(draw: st.DrawFn, key: int, size: int, comms: list[int]) -> PlanClass:
    op = draw(st.sampled_from([o for o in Op if o.value in _OPS]))
    needs = op in (Op.ALL_TO_ALLV, Op.SEND_RECV)
    shape = draw(st.sampled_from(SHAPES)) if needs else draw(st.none() | st.sampled_from(SHAPES))
    chosen = draw(st.lists(st.sampled_from(comms), min_size=1, unique=True))
    one = st.builds(
        PlanTransfer, st.integers(0, size - 1), st.integers(0, size - 1), st.integers(0, 2**40)
    )
    lists = [PlanTransfers(c, tuple(draw(st.lists(one, min_size=1, max_size=35)))) for c in chosen]
    reduces = op in (Op.ALL_REDUCE, Op.REDUCE, Op.REDUCE_SCATTER)
    datatype = draw(st.sampled_from([d for d in Datatype if d is not Datatype.UNKNOWN]))
    moved = max(transfer_bytes(op, size, t.items, itemsize(datatype)) for t in lists)
    return PlanClass(
        key,
        op,
        datatype,
        tuple(chosen),
        draw(st.sampled_from([Redop.SUM, Redop.MIN])) if reduces else None,
        draw(st.integers(1, 2**40)) if shape is None else None,
        draw(st.integers(0, size - 1)) if op.rooted else None,
        draw(st.booleans()),
        draw(st.integers(1, 99)),
        shape,
        moved if shape else None,
        tuple(lists) if shape else (),
    )


_OPS = {
    "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AllToAll", "AllToAllv",
    "Gather", "Scatter", "SendRecv",
}  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(_plans())
def test_text_round_trips(plan: Plan) -> None:
    assert parse_plan(plan_text(plan)) == plan


def test_a_missing_size_is_that_of_the_transfers() -> None:
    head = "collscope-plan 1\nmode unique\nnranks 3\ncomm 0 0-2\n"
    # 4 bytes each; without a rank's part for itself, which nccl-tests' S counts all the same
    for op, size in (("AllToAll", 240), ("Gather", 240), ("SendRecv", 80), ("AllToAllv", 120)):
        text = (
            f"class 0 op={op} datatype=Float32 shape=sendrecv comms=0\ntransfers 0 0 1>0:10 2>0:20"
        )
        assert parse_plan(head + text).classes[0].size(3) == size


def test_the_example_of_the_format_is_read(samples: Path) -> None:
    text = (samples.parent / "schemas/plan.md").read_text()
    example = text[text.index("    collscope-plan 1") :].partition("\n\n")[0]
    plan = parse_plan(example)
    assert [(c.op, c.calls, c.comms) for c in plan.classes] == [
        (Op.ALL_REDUCE, 26, (1, 2)),
        (Op.BROADCAST, 13, (0,)),
        (Op.ALL_TO_ALLV, 2, (0,)),
    ]
    assert plan.classes[2].transfers[0].items[1] == PlanTransfer(1, 2, 2048)


def test_the_plan_of_the_guide_is_read(samples: Path) -> None:
    text = (samples.parent / "docs/replay.md").read_text()
    plan = parse_plan(text[text.index("collscope-plan 1") :].partition("```")[0])
    assert [(c.op, c.comms, size_of(plan, c)) for c in plan.classes] == [
        (Op.ALL_REDUCE, (1, 2), 8 << 20),
        (Op.BROADCAST, (0,), 4096),
        (Op.SEND_RECV, (0,), 4096),
    ]


_HEAD = "collscope-plan 1\nmode unique\nnranks 4\ncomm 0 0-3\ncomm 1 0,1\n"
_AR = "op=AllReduce datatype=Float32 redop=Sum"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("mode unique\n", 1, "not a replay plan"),
        ("# plan\ncollscope-plan 2\n", 2, "version 2"),
        ("collscope-plan 1\nspeed 3\n", 2, "unknown statement 'speed'"),
        ("collscope-plan 1\nmode fast\n", 2, "mode must be"),
        ("collscope-plan 1\ncomm 0 0-3\n", 2, "below nranks"),
        (_HEAD + "comm 2 2-4\n", 6, "below nranks"),
        (_HEAD + "comm 1 2\n", 6, "defined twice"),
        (_HEAD + "comm 2 1,1\n", 6, "twice"),
        (_HEAD + f"class 0 {_AR} comms=0\n", 6, "needs a count"),
        (_HEAD + f"class 0 {_AR} count=-1 comms=0\n", 6, "'-1'"),
        (_HEAD + f"class 0 {_AR} count=1 comms=7\n", 6, "defined above"),
        (_HEAD + f"class 0 {_AR} count=1 comms=0,1\n", 6, "one size"),
        (_HEAD + f"comm 2 1,2\nclass 0 {_AR} count=1 comms=1,2\n", 7, "disjoint"),
        (_HEAD + f"class 0 {_AR} count=1 comms=0 speed=1\n", 6, "known KEY"),
        (_HEAD + f"class 0 {_AR} count=1 comms=0 root=1\n", 6, "takes no root"),
        (_HEAD + "class 0 op=AllReduce datatype=Float32 count=1 comms=0\n", 6, "redop"),
        (_HEAD + "class 0 op=Barrier datatype=Float32 count=1 comms=0\n", 6, "op=Barrier"),
        (_HEAD + "class 0 op=Reduce datatype=Int8 redop=Sum count=1 comms=0\n", 6, "needs a root"),
        (_HEAD + "class 0 op=Broadcast datatype=Int8 count=1 root=4 comms=0\n", 6, "root must"),
        (_HEAD + "class 0 op=SendRecv datatype=Int8 count=1 comms=0\n", 6, "needs a shape"),
        (_HEAD + "class 0 op=SendRecv datatype=Int8 shape=shift comms=0\n\n", 6, "no transfers"),
        (_HEAD + f"class 0 {_AR} count=1 comms=0\ntransfers 0 0 0>1:1\n", 7, "with a shape"),
        (_HEAD + f"class 0 {_AR} count=5 size_bytes=21 comms=0\n", 6, "but its count gives 20"),
        # Rank 2 receives most: 2048 elements of 4 bytes.
        (_HEAD + "class 0 op=AllToAllv datatype=Float32 shape=alltoallv size_bytes=16384 comms=0\n"
         "transfers 0 0 0>1:1024 1>2:2048\n", 6, "16384, but its transfers give 8192"),
        (_HEAD + f"class 0 {_AR} count=1 comms=0\nstep 0@0\n", 7, "sequence only"),
        (_HEAD, 5, "nothing to run"),
        ("collscope-plan 1\nmode unique\n", 3, "ends without"),
        ("", 1, "ends without"),
    ],
)  # fmt: skip
def test_a_wrong_plan_is_refused_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(InputError) as error:
        parse_plan(text, "x.plan")
    assert str(error.value).startswith(f"x.plan: line {line}: ")
    assert says in str(error.value)


def test_number_list() -> None:
    assert number_list([0, 2, 5, 6, 7]) == "0,2,5-7"
    assert number_list([3, 2, 1]) == "3,2,1"
    assert number_list([0, 1]) == "0,1"


def test_sweep_sizes_and_counts_by_hand() -> None:
    plan = sweep_plan("allreduce,AllGather:1K..4K*2", datatypes="bf16", nranks=8).plan
    assert plan.comms == (PlanComm(0, tuple(range(8))),)
    found = [(c.op, c.count, size_of(plan, c), c.redop) for c in plan.classes]
    assert found == [
        (Op.ALL_REDUCE, 512, 1024, Redop.SUM),
        (Op.ALL_REDUCE, 1024, 2048, Redop.SUM),
        (Op.ALL_REDUCE, 2048, 4096, Redop.SUM),
        (Op.ALL_GATHER, 64, 1024, None),  # 1024 / (8 * 2)
        (Op.ALL_GATHER, 128, 2048, None),
        (Op.ALL_GATHER, 256, 4096, None),
    ]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ("64K", [65536]),
        ("8,1K", [8, 1024]),
        ("1M..3M+1M", [1 << 20, 2 << 20, 3 << 20]),
        ("1..10*3", [1, 3, 9]),
        ("1K..5K", [1024, 2048, 4096]),
        ("4G", [4 << 30]),
        ("1.5K..3K*1.5", [1536, 2304]),
    ],
)
def test_sweep_ranges(sizes: str, expected: list[int]) -> None:
    plan = sweep_plan(f"allreduce:{sizes}", datatypes="int8", nranks=2).plan
    assert [size_of(plan, c) for c in plan.classes] == expected


def test_sweep_of_every_kind() -> None:
    plan = sweep_plan(
        "reduce_scatter,bcast,all_to_all,gather,sendrecv:100",
        datatypes="float32,fp8_e4m3",
        nranks=4,
        redop="max",
        in_place="both",
    ).plan
    # 100 bytes: 25 floats, or 6 on each of 4 ranks (96 bytes); 100 or 25 of one byte.
    assert [(c.op.value, c.count, size_of(plan, c), c.in_place) for c in plan.classes] == [
        ("ReduceScatter", 6, 96, False), ("ReduceScatter", 6, 96, True),
        ("ReduceScatter", 25, 100, False), ("ReduceScatter", 25, 100, True),
        ("Broadcast", 25, 100, False), ("Broadcast", 25, 100, True),
        ("Broadcast", 100, 100, False), ("Broadcast", 100, 100, True),
        ("AllToAll", 6, 96, False), ("AllToAll", 25, 100, False),
        ("Gather", 6, 96, False), ("Gather", 6, 96, True),
        ("Gather", 25, 100, False), ("Gather", 25, 100, True),
        ("SendRecv", 25, 100, False), ("SendRecv", 100, 100, False),
    ]  # fmt: skip
    assert plan.classes[0].redop is Redop.MAX
    assert plan.classes[-1].transfers[0].items == pattern("shift", 4, 100)
    assert parse_plan(plan_text(plan)) == plan


@pytest.mark.parametrize(
    "text",
    ["allreduce", "allreduce:", "fly:1K", "alltoallv:1K", "allreduce:0", "allreduce:2K..1K",
     "allreduce:1..1G+1", "allreduce:1K..1M*1", "allreduce:1K..2K*x", "barrier:1K"],
)  # fmt: skip
def test_sweep_says_what_it_does_not_understand(text: str) -> None:
    with pytest.raises(UsageError):
        sweep_plan(text, nranks=2)


def _mixed() -> Planned:
    return Planned(parse_plan(_MIXED))


def test_select_by_name_size_and_id() -> None:
    only = select(_mixed(), only="all_gather:64K, 11,allreduce:8M")
    assert [c.id for c in only.plan.classes] == [0, 1, 6, 11]
    assert [c.id for c in select(_mixed(), only="12").plan.classes] == [12]
    with pytest.raises(UsageError, match="alltoall:1K"):
        select(_mixed(), only="alltoall:1K")


def test_a_number_is_the_class_of_the_report(samples: Path, db_path: Path) -> None:
    planned = _plan_of(samples / "nccl/mixed", db_path)
    key = next(k for k, ran in planned.class_ids.items() if k != ran)
    number = planned.class_ids[key]
    (chosen,) = select(planned, only=str(number)).plan.classes
    query = "SELECT op, datatype, redop, count FROM classes WHERE class_id = ?"
    with reading(db_path) as connection:
        said = connection.execute(query, (number,)).fetchone()
    redop = None if chosen.redop is None else chosen.redop.value
    assert (chosen.op.value, chosen.datatype.value, redop, chosen.count) == said
    (row,) = describe(select(planned, only=str(number)))
    assert (row.id, row.plan_id) == (number, chosen.id)


def test_select_by_weight() -> None:
    # 26, 26, 13, 13, 13 calls of 8 MiB are all but 1 % of the bytes.
    assert [c.id for c in select(_mixed(), min_share=0.1).plan.classes] == [0, 1, 2, 3, 4]
    assert [c.id for c in select(_mixed(), limit=2).plan.classes] == [0, 1]
    kernels = {k: 100.0 * k for k in range(14)}
    timed = replace(_mixed(), kernel_ns=kernels)
    assert [c.id for c in select(timed, limit=2).plan.classes] == [12, 13]
    with pytest.raises(UsageError, match="no class is left"):
        select(_mixed(), min_share=0.9)
    with pytest.raises(UsageError, match=r"--min-share 2: not between 0 and 1"):
        select(_mixed(), min_share=2)


def test_select_drops_steps_and_communicators(samples: Path, db_path: Path) -> None:
    planned = _plan_of(samples / "nccl/mixed", db_path, SEQUENCE)
    wanted = next(c for c in planned.plan.classes if c.redop is Redop.AVG)
    plan = select(planned, only=str(planned.class_ids[wanted.id])).plan
    assert [c.ranks for c in plan.comms] == [(0, 2), (1, 3)]
    assert len(plan.steps) == 26
    assert {k for s in plan.steps for k, _ in s.items} == {wanted.id}


def test_scale_to_two_ranks() -> None:
    planned = scale(_mixed(), 2)
    plan = planned.plan
    assert (plan.nranks, plan.scaled_from) == (2, 4)
    assert "remapped from 4 ranks to 2" in planned.notices[-1]
    by_id = {c.id: c for c in plan.classes}
    ranks = plan.comm_ranks()
    assert ranks[by_id[2].comms[0]] == (0, 1)
    # One of the two siblings fits; the class keeps the calls of both.
    assert [len(by_id[k].comms) for k in (0, 1)] == [1, 1]
    assert [by_id[k].calls for k in (0, 1)] == [26, 26]
    assert by_id[3].root == 1
    assert by_id[11].root == 0  # was 2
    assert by_id[4].transfers[0].items == pattern("shift", 2, 4194304)
    assert [t.items for t in by_id[11].transfers] == [(PlanTransfer(0, 1, 100),)]
    assert by_id[8].size_bytes == 2 * 333 * 8
    assert by_id[9].transfers[0].items == ((0, 0, 16), (0, 1, 32), (1, 0, 32), (1, 1, 64))
    assert by_id[9].size_bytes == (32 + 64) * 4  # rank 1 sends 96 elements
    assert parse_plan(plan_text(plan)) == plan


def test_scale_repacks_siblings() -> None:
    text = "collscope-plan 1\nmode unique\nnranks 8\n" + "".join(
        f"comm {i} {i},{i + 4}\n" for i in range(4)
    )
    plan = parse_plan(text + f"class 0 {_AR} count=4 calls=40 comms=0-3\n")
    scaled = scale(Planned(plan), 4).plan
    assert [c.ranks for c in scaled.comms] == [(0, 1), (2, 3)]
    assert scaled.classes[0].comms == (0, 1)
    assert scaled.classes[0].calls == 40
    assert scale(Planned(plan), 8) == Planned(plan)
    assert scale(Planned(plan), 9).plan == plan
    (notice,) = scale(Planned(plan), 9).notices
    assert "--scale-ranks 9 changes nothing: the plan needs 8 ranks" in notice
    with pytest.raises(UsageError, match="--scale-ranks 0"):
        scale(Planned(plan), 0)


@settings(deadline=None, max_examples=40)
@given(_plans(), st.integers(1, 8))
def test_scaled_plans_are_valid(plan: Plan, nranks: int) -> None:
    scaled = scale(Planned(replace(plan, scaled_from=None)), nranks).plan
    assert scaled.nranks <= max(nranks, 1) or nranks >= plan.nranks
    assert parse_plan(plan_text(scaled)) == scaled
    assert sum(c.calls for c in scaled.classes) == sum(c.calls for c in plan.classes)


def test_memory_and_time_by_hand() -> None:
    found = estimate(_mixed().plan, budget_s=0.5)
    # In-place all-reduce of 8 MiB needs one buffer of it, the shift of 8 MiB a pair.
    assert (found.send_bytes, found.recv_bytes, found.seconds) == (1 << 23, 1 << 23, 7.0)
    rows = {r.id: r for r in describe(_mixed())}
    assert (rows[0].send_bytes, rows[0].recv_bytes) == (0, 1 << 23)
    assert (rows[5].send_bytes, rows[5].recv_bytes) == (4 * 65536 * 2, 65536 * 2)
    assert (rows[6].send_bytes, rows[6].recv_bytes) == (4096 * 4, 4 * 4096 * 4)
    assert (rows[7].send_bytes, rows[7].recv_bytes) == (16384, 16384)
    assert (rows[9].send_bytes, rows[9].recv_bytes) == (640 * 4, 640 * 4)  # rank 3: 64+128+192+256
    assert (len(rows[0].planned.comms), rows[0].nranks, rows[0].size_bytes) == (2, 2, 1 << 23)
    assert sum(r.share for r in rows.values()) == pytest.approx(1)


def test_time_of_a_sequence_by_hand() -> None:
    plan = parse_plan(
        "collscope-plan 1\nmode sequence\nnranks 2\ncomm 0 0,1\n"
        f"class 0 {_AR} count=250000000 comms=0\n" + "step 0@0\n" * 3 + "step 0@0 0@0\n"
    )
    # 5 calls of 1 GB at a bus factor of 1: 20 ms each at 50 GB/s; 4 launches of 20 us.
    assert estimate(plan, budget_s=1).seconds == pytest.approx(0.1 + 80e-6)
    assert estimate(plan, budget_s=1, repeat=2).seconds == pytest.approx(0.2 + 160e-6)


def test_ranges_of_a_plan_stand_for_so_many_ranks() -> None:
    """Ranges are short in the file, whatever they stand for."""
    lines = [f"comm {k} {k}-{k + (1 << 20)}" for k in range(5)]
    text = "\n".join(["collscope-plan 1", "mode unique", "nranks 2000000", *lines])
    with pytest.raises(InputError, match="in all"):
        parse_plan(text, "x.plan")
