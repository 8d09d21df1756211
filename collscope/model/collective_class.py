"""Collectives that cost the same: the class, and which measurement serves it.

**Equality.** Two classes are equal when every part is equal; None is a part that is not known, or
that the operation does not have.

**Which measurement serves a class** (`fits`), decided here and nowhere else:

- Equal must be the operation, the amount, the number of ranks and the shape. The amount is the
  size S of nccl-tests where both sides know it, else the count. The library's own AllToAll,
  AllToAllv, Gather and Scatter are of the same shape as a group of Send and Recv that does it.
- Equal, or not known on one side or both, must be the datatype, the reduction, the place, and the
  shape of a SendRecv. Unknown values are reported: the size is in bytes, so that another type costs
  the same but for the reduction's arithmetic. A custom reduction is not known: it is replayed as
  Sum.
- The root and the number of nodes may differ. Differences and unknown values are reported: they are
  a distance, and of several measurements the nearest serves.

A report is a code (`Gap`); words are made where people read.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from collscope.model.datatype import Datatype
from collscope.model.op import Op
from collscope.model.redop import Redop


class Gap(Enum):
    """What keeps a measurement from being of exactly a class; the gravest first."""

    SCALED = "scaled"  # measured on fewer ranks than the job has
    NODES_DIFFER = "nodes_differ"
    NODES_UNKNOWN = "nodes_unknown"
    SHAPE_UNKNOWN = "shape_unknown"
    PLACE_UNKNOWN = "place_unknown"
    DATATYPE_UNKNOWN = "datatype_unknown"
    REDOP_UNKNOWN = "redop_unknown"
    ROOT_DIFFERS = "root_differs"
    ROOT_UNKNOWN = "root_unknown"


Distance = tuple[int, ...]  # per Gap, compared element by element: smaller is nearer
_GAPS = tuple(Gap)
_NO_DISTANCE: Distance = (0,) * len(_GAPS)


# Parts of a class that every kind of row has as they stand here.
_other_parts = attrgetter("count", "size_bytes", "root", "in_place", "nranks", "nnodes", "shape")


class CollectiveClass(msgspec.Struct, frozen=True):
    """Calls that cost the same; None: not known, or the operation has no such part."""

    op: Op
    datatype: Datatype | None = None
    redop: Redop | None = None
    count: int | None = None  # elements as the API takes it
    size_bytes: int | None = None  # size S of nccl-tests
    root: int | None = None  # rank of the communicator
    in_place: bool | None = None  # None: not known
    nranks: int | None = None
    nnodes: int | None = None
    shape: str | None = None  # of a group of Send and Recv; None: the library's own function

    @staticmethod
    def of(op: Op, datatype: Datatype | None, redop: Redop | None, row: object) -> CollectiveClass:
        """The class of a row that has the other parts as fields of the same names."""
        return _made_once(op, datatype, redop, *_other_parts(row))

    @property
    def kind(self) -> str:
        """Operation, datatype, reduction and shape, where known."""
        parts = (self.op, self.datatype, self.redop)
        return " ".join(filter(None, (*(p.value for p in parts if p), self.shape)))

    @property
    def family(self) -> CollectiveClass:
        """The class without its amount: what the points of a curve have in common."""
        return replace(self, count=None, size_bytes=None)

    def fits(self, measured: CollectiveClass) -> tuple[Gap, ...] | None:
        """Differences to report when a measurement of that class serves here; None: it does not.

        >>> wanted = CollectiveClass(Op.ALL_GATHER, Datatype.INT8, size_bytes=8, nranks=4)
        >>> wanted.fits(replace(wanted, nnodes=2, in_place=True))
        (<Gap.NODES_UNKNOWN: 'nodes_unknown'>, <Gap.PLACE_UNKNOWN: 'place_unknown'>)
        >>> wanted.fits(replace(wanted, nranks=8)) is None
        True
        """
        if self.nranks != measured.nranks or not self._same_amount(measured):
            return None
        return self._gaps(measured)

    def fits_scaled(self, measured: CollectiveClass, nranks: int) -> tuple[Gap, ...] | None:
        """`fits` of a measurement of a job that was remapped to fewer ranks.

        Remapping keeps the count where there is one, while the size of many operations shrinks.

        nranks  what this class's communicator became
        """
        same = self.size_bytes == measured.size_bytes
        if self.count is not None:
            same = self.count == measured.count
        gaps = self._gaps(measured) if same and nranks == measured.nranks else None
        if gaps is None:
            return None
        left = (Gap.NODES_DIFFER, Gap.NODES_UNKNOWN, Gap.ROOT_DIFFERS, Gap.ROOT_UNKNOWN)
        return (Gap.SCALED, *(gap for gap in gaps if gap not in left))

    def distance(self, measured: CollectiveClass) -> Distance | None:
        """How far a measurement that serves is from this class; None where it does not serve."""
        gaps = self.fits(measured)
        return None if gaps is None else self.distance_of(measured, gaps)

    def distance_of(self, measured: CollectiveClass, gaps: tuple[Gap, ...]) -> Distance:
        """The distance that gaps to a measurement make: nodes count by how many they differ."""
        if not gaps:
            return _NO_DISTANCE
        nodes = abs((self.nnodes or 0) - (measured.nnodes or 0))
        return tuple(
            0 if gap not in gaps else nodes if gap is Gap.NODES_DIFFER else 1 for gap in _GAPS
        )

    def __lt__(self, other: CollectiveClass) -> bool:
        """Order of tables: operation, type, reduction, ranks, place, shape, size; unknown first."""
        return self._order < other._order

    @property
    def _order(self) -> tuple[str | int, ...]:
        return (
            self.op.value,
            "" if self.datatype is None else self.datatype.value,
            "" if self.redop is None else self.redop.value,
            self.nranks or 0,
            -1 if self.in_place is None else self.in_place,
            self.shape or "",
            self.size_bytes or 0,
            self.count or 0,
            self.nnodes or 0,
            -1 if self.root is None else self.root,
        )

    def _same_amount(self, other: CollectiveClass) -> bool:
        if self.size_bytes is None or other.size_bytes is None:
            # A count means nothing without its type; a family has neither count nor size.
            same_type = self.count is None or self.datatype is other.datatype
            return self.count == other.count and same_type
        return self.size_bytes == other.size_bytes

    def _gaps(self, other: CollectiveClass) -> tuple[Gap, ...] | None:
        """What ranks and amount leave open; None where a part contradicts."""
        if self.op is not other.op:
            return None
        gaps = []  # in the order of Gap
        if self.nnodes is None or other.nnodes is None:
            gaps.append(Gap.NODES_UNKNOWN)
        elif self.nnodes != other.nnodes:
            gaps.append(Gap.NODES_DIFFER)
        ours, theirs = self._known, other._known
        if None in ours or ours != theirs:
            for gap, own, measured in zip(_UNKNOWN, ours, theirs, strict=True):
                if own is None or measured is None:
                    gaps.append(gap)
                elif own != measured:
                    return None
        if self.op.rooted and (self.root is None or other.root is None):
            gaps.append(Gap.ROOT_UNKNOWN)
        elif self.op.rooted and self.root != other.root:
            gaps.append(Gap.ROOT_DIFFERS)
        return tuple(gaps)

    @property
    def _known(self) -> tuple[object, ...]:
        """Shape, place, datatype and reduction in the form compared; None: not known."""
        return (
            self.shape.lower() if self.shape else _SHAPES[self.op],
            self.in_place,
            None if self.datatype is _NO_DATATYPE else self.datatype,
            (None if self.redop is _CUSTOM else self.redop) if self.op.reduces else "",
        )


# An operation is a shape; a SendRecv does not say which ranks it is between.
_SHAPES = {op: None if op is Op.SEND_RECV else op.value.lower() for op in Op}
_UNKNOWN = (Gap.SHAPE_UNKNOWN, Gap.PLACE_UNKNOWN, Gap.DATATYPE_UNKNOWN, Gap.REDOP_UNKNOWN)
# Many rows are of one class, and each is asked for it again and again.
_made_once = lru_cache(maxsize=1 << 16, typed=True)(CollectiveClass)
_NO_DATATYPE, _CUSTOM = Datatype.UNKNOWN, Redop.CUSTOM
