"""The class of collectives: equality, and the one rule of which measurement serves it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from collscope.model import CollectiveClass, Datatype, Gap, Op, Redop

_SUM = CollectiveClass(
    Op.ALL_REDUCE, Datatype.BFLOAT16, Redop.SUM, 1024, 2048, None, False, 8, 1, None
)
_CAST = CollectiveClass(Op.BROADCAST, Datatype.FLOAT32, None, 256, 1024, 0, True, 8, 2, None)


def _or_none(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | values


_CLASSES = st.builds(
    CollectiveClass,
    op=st.sampled_from((Op.ALL_REDUCE, Op.BROADCAST, Op.SEND_RECV, Op.ALL_TO_ALL)),
    datatype=_or_none(st.sampled_from((Datatype.INT8, Datatype.FLOAT32, Datatype.UNKNOWN))),
    redop=_or_none(st.sampled_from(Redop)),
    count=_or_none(st.integers(1, 2)),
    size_bytes=_or_none(st.integers(1, 2)),
    root=_or_none(st.integers(0, 1)),
    in_place=_or_none(st.booleans()),
    nranks=_or_none(st.integers(2, 3)),
    nnodes=_or_none(st.integers(1, 3)),
    shape=_or_none(st.sampled_from(("alltoall", "shift"))),
)


@given(_CLASSES)
def test_a_class_equals_and_serves_itself(one: CollectiveClass) -> None:
    same = replace(one)
    assert (same, hash(same)) == (one, hash(one))
    gaps = one.fits(one)
    assert gaps is not None
    unknown = {gap for gap in Gap if gap.value.endswith("unknown")}
    assert set(gaps) <= unknown


@given(_CLASSES, _CLASSES)
def test_serving_is_symmetric(one: CollectiveClass, other: CollectiveClass) -> None:
    assert one.fits(other) == other.fits(one)
    assert one.distance(other) == other.distance(one)
    if one.fits(other) == ():
        assert one.distance(other) == (0,) * len(Gap)


@given(_CLASSES, st.sampled_from(("datatype", "redop", "in_place", "nnodes", "root")))
def test_what_becomes_unknown_still_serves_and_is_told(one: CollectiveClass, part: str) -> None:
    gap = Gap(f"{_WORDS[part]}_unknown")
    has = {"redop": one.op.reduces, "root": one.op.rooted}.get(part, True)
    blank = replace(one, **{part: None})
    if part == "datatype" and one.size_bytes is None:
        return  # the count of an unknown type is no amount
    for gaps in (one.fits(blank), blank.fits(one)):
        assert gaps is not None
        assert (gap in gaps) == has


_WORDS = {
    "datatype": "datatype", "redop": "redop", "in_place": "place", "nnodes": "nodes",
    "root": "root",
}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "changes", "told"),
    [
        (_SUM, {}, ()),
        (_SUM, {"count": None}, ()),
        (_SUM, {"size_bytes": None}, ()),  # then the count of a known type decides
        (_SUM, {"size_bytes": 4096}, None),
        (_SUM, {"count": 2048, "size_bytes": None}, None),
        (_SUM, {"op": Op.REDUCE_SCATTER}, None),
        (_SUM, {"nranks": 4}, None),
        (_SUM, {"nranks": None}, None),
        (_SUM, {"datatype": Datatype.FLOAT16}, None),
        (_SUM, {"datatype": None}, (Gap.DATATYPE_UNKNOWN,)),
        (_SUM, {"redop": Redop.MAX}, None),
        (_SUM, {"redop": Redop.CUSTOM}, (Gap.REDOP_UNKNOWN,)),
        (_SUM, {"in_place": True}, None),
        (_SUM, {"root": 3}, ()),  # an all-reduce has none
        (_SUM, {"nnodes": 2}, (Gap.NODES_DIFFER,)),
        (_SUM, {"nnodes": None, "in_place": None}, (Gap.NODES_UNKNOWN, Gap.PLACE_UNKNOWN)),
        (_CAST, {"redop": Redop.SUM}, ()),  # a broadcast reduces nothing
        (_CAST, {"root": 1}, (Gap.ROOT_DIFFERS,)),
        (_CAST, {"root": None}, (Gap.ROOT_UNKNOWN,)),
    ],
)
def test_rule(
    wanted: CollectiveClass, changes: dict[str, object], told: tuple[Gap, ...] | None
) -> None:
    assert wanted.fits(replace(wanted, **changes)) == told


def test_shapes() -> None:
    own = CollectiveClass(Op.ALL_TO_ALL, Datatype.INT8, None, 1, 4, None, False, 4, 1)
    assert own.fits(replace(own, shape="alltoall")) == ()
    assert own.fits(replace(own, shape="alltoallv")) is None
    shift = replace(own, op=Op.SEND_RECV, shape="shift")
    assert shift.fits(replace(shift, shape="sendrecv")) is None
    assert shift.fits(replace(shift, shape=None)) == (Gap.SHAPE_UNKNOWN,)


def test_the_nearest_number_of_nodes_is_nearest() -> None:
    order = [_SUM, *(replace(_SUM, nnodes=n) for n in (None, 2, 4))]
    assert sorted(set(order), key=_SUM.distance) == order


def test_scaled_measurements_keep_the_count() -> None:
    gathered = CollectiveClass(Op.ALL_GATHER, Datatype.INT8, None, 10, 640, None, False, 64, 8)
    small = replace(gathered, size_bytes=80, nranks=8, nnodes=1)
    assert gathered.fits(small) is None
    assert gathered.fits_scaled(small, 8) == (Gap.SCALED,)
    assert gathered.fits_scaled(small, 4) is None
    assert gathered.fits_scaled(replace(small, count=20), 8) is None


def test_a_family_is_a_curve() -> None:
    assert _SUM.family == replace(_SUM, count=4096, size_bytes=8192).family
    assert _SUM.family != replace(_SUM, nnodes=2).family
