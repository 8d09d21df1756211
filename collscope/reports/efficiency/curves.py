"""Bus bandwidth over size: every label and shape measured, with the roof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

import msgspec

from collscope.model import Measurement, Op, bus_bandwidth
from collscope.roofline.chosen import AnyRoofs
from collscope.roofline.workload import Workload


class CurvePoint(msgspec.Struct, frozen=True):
    """One point of a curve."""

    size_bytes: int
    busbw_gbps: float


class Curve(msgspec.Struct, frozen=True):
    """Bus bandwidth over size: one label on one communicator shape, with the reachable speed."""

    op: Op
    nranks: int
    nnodes: int | None
    label: str
    points: tuple[CurvePoint, ...]
    roof: str | None
    roof_points: tuple[CurvePoint, ...]


_Shape = tuple[Op, int, int | None, str]


def curves_of(measurements: Iterable[Measurement], roofs: AnyRoofs | None) -> tuple[Curve, ...]:
    """One curve per operation, ranks, nodes and label.

    Measurements of one size (places, types, rounds) are one point: the best of their times.
    """
    times: dict[_Shape, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for m in measurements:
        if m.usable and m.size_bytes and m.nranks:
            shape = (m.op, m.nranks, m.nnodes, m.label or "")
            times[shape][m.size_bytes].append(median(m.times_us))
    found = [_curve(shape, sizes, roofs) for shape, sizes in times.items()]
    return tuple(curve for curve in found if curve.points)


def _curve(shape: _Shape, sizes: dict[int, list[float]], roofs: AnyRoofs | None) -> Curve:
    op, nranks, nnodes, label = shape
    points = []
    for size in sorted(sizes):
        busbw = bus_bandwidth(op, size=size, time_s=min(sizes[size]) / 1e6, nranks=nranks)
        if busbw is not None:
            points.append(CurvePoint(size, busbw))
    name, roof = _roof(shape, sorted(sizes), roofs)
    return Curve(op, nranks, nnodes, label, tuple(points), name, roof)


def _roof(
    shape: _Shape, sizes: list[int], roofs: AnyRoofs | None
) -> tuple[str | None, tuple[CurvePoint, ...]]:
    """The roof at the ends of the measured sizes, and at powers of two between them."""
    if roofs is None:
        return None, ()
    op, nranks, nnodes, _ = shape
    between = (2**k for k in range(sizes[0].bit_length(), sizes[-1].bit_length()))
    points, name = [], None
    for size in sorted({sizes[0], *between, sizes[-1]}):
        work = Workload(op, size, nranks, nnodes or 1)
        found = roofs.at(work, nodes_known=nnodes is not None)
        if not isinstance(found, str):
            name = found.name
            points.append(CurvePoint(size, found.busbw_gbps))
    return name, tuple(points)
