"""The share of the wall time by recordings, in sentences and a table."""

from __future__ import annotations

from collections.abc import Iterable

from collscope.reports.rendering.layout import NUMBER, TEXT, Table, scaled, table
from collscope.reports.rendering.origin import origin
from collscope.reports.share.recorded import RecordedShare
from collscope.units import count, figure, format_size

_MOST_CLASSES = 20


def recorded_sentences(share: RecordedShare) -> Iterable[str]:
    """Part of the wall time, what it rests on, and what it leaves out."""
    lack = share.untimed_calls
    yield (
        f"Collectives run for {'at least ' * bool(lack)}{_range(share)} of the wall time "
        f"({count(share.ranks, 'rank')}, {share.wall_ns / 1e9:.3g} s each), by the GPU times of "
        f"{share.timed_calls} of {count(share.calls, 'recorded call')}."
    )
    if lack:
        yield f"{count(lack, 'call')} of classes without any GPU time: in no share."


def recorded_tables(share: RecordedShare) -> Iterable[str | Table]:
    """The share by communicator and class."""
    columns = [
        ("communicator", NUMBER),
        ("class", NUMBER),
        ("op", TEXT),
        ("size", NUMBER),
        ("calls", NUMBER),
        ("timed", NUMBER),
        ("mean us", NUMBER),
        ("% wall time", NUMBER),
    ]
    shown = share.classes[:_MOST_CLASSES]
    yield table(
        columns,
        (
            (
                row.comm_id,
                row.class_id,
                row.op if row.nranks is None else f"{row.op} x{row.nranks}",
                None if row.size_bytes is None else format_size(row.size_bytes),
                row.calls,
                row.timed_calls,
                scaled(row.mean_ns, 1e3),
                None if row.percent is None else f"{row.percent:.2f}",
            )
            for row in shown
        ),
        (
            origin("recorded_windows", comm_id=row.comm_id, class_id=row.class_id)
            for row in shown
        ),
    )  # fmt: skip
    if len(share.classes) > len(shown):
        more = count(len(share.classes) - len(shown), "more class", "more classes")
        yield f"{more} not shown (view recorded_windows)."
    yield (
        "Of the time from the first recorded call to the last one, without the warm-up. Calls "
        "without a GPU time count with the mean of their class on their communicator; of calls "
        "that run at the same time each counts. The rest of the GPU time is not recorded."
    )
    if share.callback_percent is not None:
        yield (
            f"The recorder's callbacks took {figure(share.callback_percent, 2)} % of the wall time."
        )


def _range(share: RecordedShare) -> str:
    if share.low is None or share.high is None:
        return f"about {share.percent:.1f} % (range not known: too few windows)"
    if share.high - share.low < 0.1:
        return f"{share.percent:.1f} %"
    return f"{share.percent:.1f} % ({share.low:.1f} to {share.high:.1f} %)"
