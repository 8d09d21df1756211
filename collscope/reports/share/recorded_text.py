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
    if share.impossible_percent is not None:
        yield (
            f"The GPU times of one communicator's calls sum to {share.impossible_percent:.0f} % of"
            " the wall time, although these calls run one after the other: the times are wrong, and"
            " the share of collectives is not known."
        )
        return
    if share.overlapping_percent is not None:
        yield (
            f"Calls of several communicators overlap: they sum to {share.overlapping_percent:.0f} %"
            " of the wall time."
        )
    yield (
        f"Collectives run for {percent_of_wall(share)} of the wall time "
        f"({count(share.ranks, 'rank')}, {share.wall_ns / 1e9:.3g} s each), "
        f"by the GPU times of {share.timed_calls} of "
        f"{count(share.calls, 'recorded call')}."
    )


def percent_of_wall(share: RecordedShare) -> str:
    """The share with what it is: exact, an estimate, or a lower bound."""
    if share.impossible_percent is not None:
        return "not known"
    if share.timed_calls + share.untimed_calls >= share.calls and share.percent is not None:
        return f"{'at least ' * bool(share.untimed_calls)}{share.percent:.1f} %"
    estimate = "" if share.percent is None else f", {share.percent:.1f} % estimated,"
    return f"at least {share.least_percent:.1f} %{estimate}"


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
        ("at least", NUMBER),
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
                f"{row.least_percent:.2f}" if row.timed_calls else None,
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
        "The wall time is from the first recorded call to the last, without the warm-up. "
        "Calls without a GPU time count with the mean of the timed calls of their class and "
        "communicator (at least: with the shortest). A call that waited longer than all "
        "timed calls makes the true share larger. Calls that overlap all count. Other GPU "
        "work is not recorded."
    )
    if share.callback_percent is not None:
        yield (
            f"The recorder's callbacks took {figure(share.callback_percent, 2)} % of the wall time."
        )
