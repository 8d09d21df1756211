"""Rows of collscope's own CSVs whose columns say different things about one measurement.

The columns of a row repeat each other: what a summary gives follows from the samples, the size from
the count. Where they differ, one of them is wrong, and nothing shows which: such a row keeps its
class, the status ``contradictory``, and no time.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TypeVar

from msgspec.structs import replace

from collscope.model import CopyTime, Interference, Measurement, Severity, size_bytes
from collscope.parsers._notes import Notes

CONTRADICTORY = "contradictory"
_TEXT = (
    "Rows whose columns contradict each other have no time here: the file was changed, or is"
    " damaged. Measure them again."
)
# csv_text.cpp writes 6 digits: a number is off by at most 5e-6 of it, and two are compared.
_ROUNDED = 1e-5
# Of more than 4096 samples every n-th is written: from half as many on they may be a part.
_ALL_BELOW = 2048
_SUMMARY = ("time_us_median", "time_us_min", "time_us_max", "time_us_mad")
_RELATIVE = ("relative_compute", "relative_busbw")

_Timed = TypeVar("_Timed", Measurement, CopyTime)
_Of = TypeVar("_Of", Measurement, CopyTime, Interference)


def checked_measurement(
    found: Measurement, most_ranks: int | None, line: str, notes: Notes
) -> Measurement:
    """A measured class, without its times where its columns contradict each other.

    most_ranks  ranks of the job by the header; None: not there
    """
    what = [*_of_class(found), *_of_times(found)]
    if most_ranks is not None and found.nranks is not None and found.nranks > most_ranks:
        what.append(f"{found.nranks} ranks of the header's {most_ranks}")
    if found.root is not None and found.nranks is not None and found.root >= found.nranks:
        what.append(f"root {found.root} of {found.nranks} ranks")
    untimed = _without_times(found, what, line, notes)
    return replace(untimed, algbw_gbps=None, busbw_gbps=None) if what else untimed


def checked_copy(found: CopyTime, line: str, notes: Notes) -> CopyTime:
    """A measured copy, without its times where its columns contradict each other."""
    what = list(_of_times(found))
    untimed = _without_times(found, what, line, notes)
    return replace(untimed, bandwidth_gbps=None) if what else untimed


def checked_interference(
    found: Interference, most_ranks: int | None, line: str, notes: Notes
) -> Interference:
    """Calls during work, without times and ratios where the columns contradict each other."""
    what = list(_of_class(found))
    if most_ranks is not None and found.nranks is not None and found.nranks > most_ranks:
        what.append(f"{found.nranks} ranks of the header's {most_ranks}")
    if found.samples is not None and (found.covered or 0) > found.samples:
        what.append(f"{found.covered} of {found.samples} rounds count")
    for name in _RELATIVE:
        samples, ratio = getattr(found, f"{name}_samples"), getattr(found, name)
        if ratio is not None and samples and len(samples) < _ALL_BELOW:
            what += _differs(name, ratio, median(samples), max(samples))
    if not what:
        return found
    gone = (*_NUMBERS, *_RELATIVE)
    return replace(
        _marked(found, what, line, notes),
        **dict.fromkeys(gone),
        relative_compute_samples=(),
        relative_busbw_samples=(),
    )


_NUMBERS = (
    "compute_alone_us", "compute_with_us", "relative_compute_mad", "relative_compute_noise",
    "comm_alone_us", "comm_with_us", "relative_busbw_mad", "relative_busbw_noise",
    "busbw_alone_gbps", "busbw_with_gbps",
)  # fmt: skip


def _of_class(found: Measurement | Interference) -> Iterator[str]:
    """What the columns of a class contradict."""
    op, count, datatype = found.op, found.count, found.datatype
    if count is not None and datatype is not None and found.size_bytes is not None:
        size = size_bytes(op, count=count, datatype=datatype, nranks=found.nranks)
        if size is not None and size != found.size_bytes:
            yield f"count {count} makes {size} bytes, size_bytes {found.size_bytes}"
    if found.nranks is not None and found.nnodes is not None and found.nnodes > found.nranks:
        yield f"{found.nranks} ranks on {found.nnodes} nodes"


def _of_times(found: _Timed) -> Iterator[str]:
    """What the columns of times, and the outcome next to them, contradict."""
    if found.status == "ok" and found.n_wrong:
        yield f"status ok with {found.n_wrong} wrong"
    middle, least, most, spread = (getattr(found, name) for name in _SUMMARY)
    if middle is not None and found.iterations == 0:
        yield "a time of 0 iterations"
    slack = 1 + _ROUNDED
    for low, high in ((least, middle), (middle, most), (least, most)):
        if low is not None and high is not None and low > high * slack:
            yield f"least, median and largest are {least:.6g}, {middle or 0:.6g}, {most or 0:.6g}"
            return
    samples = found.samples_us
    if not samples:
        return
    top = max(samples)
    if len(samples) >= _ALL_BELOW:
        low, high = least or 0.0, most or top
        if min(samples) * slack < low or top > high * slack:
            yield "samples outside least and largest"
        return
    centre = median(samples)
    summary = (centre, min(samples), top, median(abs(s - centre) for s in samples))
    given = (middle, least, most, spread)
    for name, written, computed in zip(_SUMMARY, given, summary, strict=True):
        if written is not None:
            yield from _differs(name, written, computed, top)


def _differs(name: str, written: float, computed: float, largest: float) -> Iterator[str]:
    """A summary that does not follow from its samples, which are rounded."""
    if abs(written - computed) > _ROUNDED * 2 * max(written, largest):
        yield f"{name} {written:.6g}, of the samples {computed:.6g}"


def _without_times(found: _Timed, what: list[str], line: str, notes: Notes) -> _Timed:
    if not what:
        return found
    return replace(_marked(found, what, line, notes), **dict.fromkeys(_SUMMARY), samples_us=())


def _marked(found: _Of, what: list[str], line: str, notes: Notes) -> _Of:
    notes.add(Severity.DATA_LOSS, "contradictory_row", _TEXT, found.line or 0, line)
    message = "the row contradicts itself: " + "; ".join(what)
    return replace(found, status=CONTRADICTORY, message=message)
