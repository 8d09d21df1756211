"""What a number of a file can be. Every reader's records are held against it before they are used.

A number beyond its limit is not known: it becomes None, or its record is left out where it cannot
do without it. Both are counted. Each limit stands far above what any machine has, and low enough
that products of numbers within them fit the 64 bits of the store. Times of traces, recordings and
logged kernels are a matter of `collscope.stamps`.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from collscope.model.datatype import Datatype
from collscope.model.diagnostic import Diagnostic, Severity
from collscope.model.op import BufferPlace, Op

LIMIT = 2**63  # of the store's integers, and of numpy's
MOST_RANKS = 10**7  # the largest machines have 10^5 GPUs
# Of a call on one rank: its buffers lie in the address space of a process, which has 128 TiB on
# x86-64 and Arm (Linux, Documentation/arch/x86/x86_64/mm.rst), some hundred times a GPU's memory.
MOST_BYTES = 2**47
MOST_ELEMENTS = 2**44  # as many bytes, of 8 each

_Bound = tuple[float, float]  # of what is not 0
_COUNTED: _Bound = (1, 2**62)  # one a nanosecond for 146 years
_DEVICE: _Bound = (1, 2**31 - 1)  # an int of the runtimes, which number devices
_TIME_NS: _Bound = (1, 4 * 10**18)  # to the year 2096, as in `collscope.stamps`
# From a picosecond, in which light goes 0.3 mm, to a week, which no job waits.
_TIME_US: _Bound = (1e-6, 7 * 86_400 * 1e6)
_RATE_GBPS: _Bound = (1e-18, 1e12)  # from a byte in a week to more than all networks together
_FIGURE: _Bound = (1e-30, 1e30)  # of whatever unit


def _alike(bound: _Bound, names: str) -> dict[str, _Bound]:
    return dict.fromkeys(names.split(), bound)


_SIZES = {
    **_alike((1, MOST_ELEMENTS), "count in_count out_count in_split out_split"),
    **_alike((1, MOST_BYTES), "size_bytes count_bytes low_bytes high_bytes"),
}
# By the name of a field; of a tuple the bound of each element.
_BOUNDS = {
    **_SIZES,
    **_alike((1, MOST_RANKS), "nranks nnodes world_size group_size scaled_from local_ranks"),
    **_alike(
        (1, MOST_RANKS - 1),
        "rank root peer group_rank named_rank global_rank src_rank dst_rank group_ranks local_rank",
    ),
    **_alike(_DEVICE, "cuda_dev nvml_dev src_device dst_device net_dev multiprocessors pid"),
    **_alike(
        _COUNTED,
        "seq together blocks calls iterations n_wrong round samples covered channel op_count"
        " last_enqueued last_started last_completed split_count",
    ),
    **_alike(_TIME_NS, "total_ns min_ns max_ns"),
    **_alike(
        _TIME_US,
        "time_us_median time_us_min time_us_max time_us_mad samples_us compute_alone_us"
        " compute_with_us comm_alone_us comm_with_us",
    ),
    **_alike(
        _RATE_GBPS,
        "algbw_gbps busbw_gbps reported_busbw_gbps bandwidth_gbps busbw_alone_gbps busbw_with_gbps",
    ),
    **_alike(
        _FIGURE,
        "value reported_percentage relative_compute relative_compute_mad relative_compute_noise"
        " relative_busbw relative_busbw_mad relative_busbw_noise relative_compute_samples"
        " relative_busbw_samples",
    ),
}
# A rank and how many there are, where a record holds both of one group.
_WITHIN = {
    "CommInit": ("rank", "nranks"),
    "CommTopology": ("rank", "nranks"),
    "TraceFile": ("rank", "world_size"),
    "ProfiledDevice": ("rank", "world_size"),
}
_COUNTS = ("count", "in_count", "out_count")
# Which of them are one rank's part.
_PARTS = {
    BufferPlace.SAME: ("count",),
    BufferPlace.PART_OF_RECV: ("count", "in_count"),
    BufferPlace.PART_OF_SEND: ("count", "out_count"),
}
_NUMBERS = ("int", "float", "tuple[int", "tuple[float")  # how their annotations begin
_TEXTS = {
    "impossible_count": "counts and sizes that no memory could hold are left out: not known",
    "impossible_number": (
        "impossible numbers (more than 10,000,000 ranks, a rank beyond them, a time that no clock "
        "measures) are left out: not known"
    ),
}
_EXCERPT = 200  # characters
_Record = TypeVar("_Record", bound=msgspec.Struct)


class Limits:
    """Holds the records of one file against the limits, and counts what is beyond them."""

    def __init__(self) -> None:
        """Start with nothing beyond them."""
        self._beyond: Counter[str] = Counter()
        self._first: dict[str, tuple[int | None, str]] = {}
        self._held: dict[int, tuple[msgspec.Struct, msgspec.Struct | None]] = {}

    def hold(self, record: _Record) -> _Record | None:
        """The record without its numbers beyond the limits; None where it needs one of them."""
        kind = _kind(type(record))
        wrong = []
        for name, low, high in kind.bounds:
            value = getattr(record, name)
            # 0, nothing and what is not known are within.
            if value and (
                _beyond(value, low, high) if type(value) is tuple else not low <= value <= high
            ):
                wrong.append(name)
                self._note(record, name)
        if kind.sized and not wrong and _too_large(record):
            wrong = [name for name in (*_COUNTS, "size_bytes") if getattr(record, name, None)]
            self._note(record, wrong[0])
        if kind.rank is not None and _beyond_ranks(record, *kind.rank) and "rank" not in wrong:
            wrong.append("rank")
            self._note(record, "rank")
        if not wrong:
            return record
        if any(_BOUNDS[name] in (_TIME_US, _RATE_GBPS) for name in wrong):
            # What else a row holds of times was made of the same ones.
            timed = [name for name, *bound in kind.bounds if tuple(bound) in (_TIME_US, _RATE_GBPS)]
            wrong += [name for name in timed if name not in wrong]
        empty = {name: _empty(type(record), name) for name in wrong}
        return None if _NEEDED in empty.values() else replace(record, **empty)

    def hold_entry(self, record: _Record) -> _Record | None:
        """As `hold`, of an entry that many records name: it counts once."""
        known = self._held.get(id(record))
        if known is None:  # the entry itself is kept, so that no other gets its id
            known = self._held[id(record)] = (record, self.hold(record))
        found: _Record | None = known[1]  # type: ignore[assignment]
        return found

    def ranks(self, ranks: tuple[int, ...]) -> bool:
        """Whether all of a list of ranks can be; one that cannot is counted."""
        low, high = _BOUNDS["group_ranks"]
        wrong = _beyond(ranks, low, high)
        if wrong:
            self.note("rank", max(ranks))
        return not wrong

    def note(self, name: str, value: object, line: int | None = None, number: int = 1) -> None:
        """Count `number` values of a field that are beyond its limit; the first one is shown."""
        code = "impossible_count" if name in _SIZES else "impossible_number"
        self._beyond[code] += number
        self._first.setdefault(code, (line, f"{name} {value}"[:_EXCERPT]))

    def _note(self, record: msgspec.Struct, name: str) -> None:
        value = getattr(record, name)
        if isinstance(value, tuple):
            value = next(v for v in value if _beyond(v, *_BOUNDS[name]))
        if value != -1:  # which the libraries print for none
            self.note(name, value, getattr(record, "line", None))

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What was beyond the limits."""
        return tuple(
            Diagnostic(Severity.DATA_LOSS, code, _TEXTS[code], *self._first[code], number)
            for code, number in sorted(self._beyond.items())
        )


_NEEDED = object()


class _Kind(NamedTuple):
    """What of a kind of record is held against the limits."""

    bounds: tuple[tuple[str, float, float], ...]  # of each bounded field
    sized: bool  # it holds an operation's counts
    rank: tuple[str, str] | None  # as in `_WITHIN`


@cache
def _kind(kind: type[msgspec.Struct]) -> _Kind:
    fields = kind.__struct_fields__
    bounds = tuple(
        (name, *_BOUNDS[name])
        for name in fields
        if name in _BOUNDS and str(kind.__annotations__[name]).startswith(_NUMBERS)
    )
    sized = "op" in fields and any(name in fields for name in _COUNTS)
    return _Kind(bounds, sized, _WITHIN.get(kind.__name__))


@cache
def _empty(kind: type[msgspec.Struct], name: str) -> object:
    """What replaces a value that is not known; `_NEEDED` where a record must have one."""
    annotation = str(kind.__annotations__[name])
    if "None" in annotation:
        return None
    return () if annotation.startswith("tuple") else _NEEDED


def _beyond(value: object, low: float, high: float) -> bool:
    if not value:
        return False  # 0, nothing, or not known
    if isinstance(value, tuple):
        # Most are long and right. NaN is neither the least nor the largest, but it makes the sum.
        ends = min(value), max(value)
        return any(_beyond(v, low, high) for v in ends) or sum(value) != sum(value)
    return not (low <= value <= high)  # type: ignore[operator]


def _too_large(record: msgspec.Struct) -> bool:
    """Whether the bytes of a call, elements times their size, are more than a process can hold.

    An API's count, and the side of a call that has one rank's part, stand for all ranks' parts.
    """
    op, datatype = getattr(record, "op"), getattr(record, "datatype", None)  # noqa: B009
    counts = {name: getattr(record, name, None) or 0 for name in _COUNTS}
    most = max(counts.values())
    if not most or not isinstance(op, Op):
        return False
    item = (datatype.itemsize if isinstance(datatype, Datatype) else None) or 1
    ranks = getattr(record, "nranks", None) or getattr(record, "group_size", None) or 1
    part = max(counts[name] for name in _PARTS[op.place]) if op.count_is_part else 0
    return max(most, part * ranks) * item > MOST_BYTES


def _beyond_ranks(record: msgspec.Struct, rank: str, ranks: str) -> bool:
    """Whether a rank is not below the number of ranks in the record."""
    place, number = getattr(record, rank), getattr(record, ranks)
    return place is not None and bool(number) and place >= number
