"""The one reader of measurements, and the index that finds those that serve a class."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from store_builder import StoreBuilder

from collscope.model import CollectiveClass, Datatype, Gap, Measurement, Op
from collscope.reports.efficiency.serving import MeasurementIndex
from collscope.store.measurements import measurement_labels, no_such_label, read_measurements

_WANTED = CollectiveClass(
    Op.ALL_GATHER, Datatype.INT8, None, count=10, size_bytes=80, in_place=False, nranks=8, nnodes=1
)


def _measurement(c: CollectiveClass, scaled_from: int | None = None) -> Measurement:
    return Measurement(
        c.op, c.datatype, None, c.root, c.count, c.size_bytes, c.in_place, c.nranks, c.nnodes,
        c.shape, time_us_median=1.0, scaled_from=scaled_from,
    )  # fmt: skip


def test_a_measurement_knows_its_class() -> None:
    measured = _measurement(_WANTED)
    assert measured.collective_class == _WANTED
    assert replace(measured, redop="Sum").collective_class != _WANTED


@given(st.lists(st.tuples(st.sampled_from((4, 8)), st.sampled_from((None, 1, 2)))))
def test_the_index_finds_what_fits(shapes: list[tuple[int, int | None]]) -> None:
    known = [replace(_WANTED, nranks=ranks, nnodes=nodes) for ranks, nodes in shapes]
    found = MeasurementIndex(map(_measurement, known)).serving(_WANTED)
    fitting = [c for c in known if _WANTED.fits(c) is not None]
    assert [s.measurement.collective_class for s in found] == fitting
    assert [s.distance for s in found] == [_WANTED.distance(c) for c in fitting]


def test_a_remapped_job_serves_its_larger_communicators() -> None:
    # 16 ranks of which 4 were measured: a communicator of 8 became one of 4, one of 2 stayed
    small = replace(_WANTED, nranks=4, size_bytes=40)
    pair = replace(_WANTED, nranks=2, size_bytes=20)
    index = MeasurementIndex([_measurement(small, 16), _measurement(pair, 16)])
    for ranks, served in ((8, small), (4, small), (2, pair)):
        (found,) = index.serving(replace(_WANTED, nranks=ranks, size_bytes=10 * ranks))
        assert (found.measurement.collective_class, found.gaps) == (served, (Gap.SCALED,))
    assert index.serving(replace(_WANTED, nranks=32)) == []


def test_one_reader_by_run_and_label() -> None:
    store = StoreBuilder()
    source = store.source("r.csv", kind="csv", sha256="ab")
    store.measured(source, [3.0, 1.0, 2.0], label="one", redop="Max", in_place=None)
    store.measured(source, [], label="two", time_us_median=7.0, status="failed")
    first, second = read_measurements(store.connection)
    assert (first.run, first.sha256, first.label) == ("main", "ab", "one")
    m = first.measurement
    assert (m.samples_us, m.op, m.redop, m.in_place) == (
        (3.0, 1.0, 2.0),
        Op.ALL_REDUCE,
        "Max",
        None,
    )
    assert (second.measurement.usable, second.measurement.times_us) == (False, (7.0,))
    assert read_measurements(store.connection, label="two") == (second,)
    assert read_measurements(store.connection, run="other") == ()
    assert measurement_labels(store.connection) == ["one", "two"]


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ((), "label 'base': there are no measurements. Measure with"),
        (("bases", "new"), "label 'base': no measurements. Did you mean 'bases'?"),
        (("x", "y"), "label 'base': no measurements (labels: 'x', 'y'). Choose one"),
    ],
)
def test_one_error_for_a_label_that_nothing_has(known: tuple[str, ...], text: str) -> None:
    assert text in str(no_such_label("base", known))
