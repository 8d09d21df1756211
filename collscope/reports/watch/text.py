"""A watched job in lines for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.reports.rendering.layout import NAME, NUMBER, TEXT, Table, table
from collscope.reports.rendering.text import text_table
from collscope.units import count, figure, format_size, us_or_ms
from collscope.writing import folded, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collscope.hang.records import Verdict
    from collscope.reports.watch.answer import Missing, Watched, WatchedClass, WatchedRank

_UNTIMED = {
    "level": "no GPU times: the recorder's level is off or calls",
    "interface": (
        "no GPU times: the library has profiler interface v3, which lacks them (NCCL 2.26)"
    ),
    "foreign_stamps": "no GPU times: the library gave stamps of other kernels",
    "none_came": "no GPU times: the library has delivered none yet",
}
_NO_BANDWIDTH = {
    "ranks": "no bandwidth: no call has the GPU times of all ranks yet",
    "no_common_end": "no bandwidth: a rank may leave such a call before all ranks have arrived",
    "size": "no bandwidth: the size or the number of ranks is not known",
}
_UNCOUNTED = (
    "Missing ranks are not known: no communicator has recordings of all its ranks, from the "
    "first file on and without a lost record."
)
_NAMED = 8  # ranks
_MISSING = 3  # calls that ranks are missing in
_SHORT = 8  # digits of a communicator


def render_watch(watched: Watched, width: int, most_rows: int | None = None) -> str:
    """Lines of at most `width` columns.

    most_rows  of classes, those with most GPU time; None: all
    """
    if not watched.processes:
        return "No recording yet. Check that the job's processes have NCCL_PROFILER_PLUGIN.\n"
    lines = folded(_head(watched), width)
    if watched.classes:
        lines += ["", *text_table(_table(watched.classes[:most_rows]), width)]
    hidden = 0 if most_rows is None else len(watched.classes) - most_rows
    notes = [f"{count(hidden, 'class', 'classes')} not shown"] if hidden > 0 else []
    notes += _reasons(watched.classes)
    if watched.lost:
        notes.append(f"{count(watched.lost, 'record')} lost: counts are lower bounds")
    if watched.newer:
        processes = count(watched.newer, "process", "processes")
        notes.append(
            f"{processes} not read: their format is newer. Use the recorder's own collscope"
        )
    lines += [part for note in notes for part in folded(f"({note})", width, rest=" ")]
    sentences = [*map(_late, watched.late), *_still(watched)]
    lines += [""] if sentences else []
    lines += [part for sentence in sentences for part in folded(sentence, width, rest="  ")]
    return "".join(f"{one_line(line)}\n" if line else "\n" for line in lines)


def _head(watched: Watched) -> str:
    ended = f", {watched.ended} ended" if watched.ended else ""
    pace = "" if watched.per_s is None else f", {figure(watched.per_s)} calls/s"
    return (
        f"{count(watched.processes, 'process', 'processes')}{ended};"
        f" {count(watched.ranks, 'rank')}; {count(watched.calls, 'call')} of ranks{pace}"
    )


def _table(classes: Sequence[WatchedClass]) -> Table:
    ceilings = any(c.ceiling_gbps is not None for c in classes)
    columns = [
        ("operation", NAME), ("size", TEXT), ("comm", TEXT), ("ranks", NUMBER), ("calls", NUMBER),
        ("timed", NUMBER), ("GPU time", TEXT), ("GB/s", NUMBER),
    ]  # fmt: skip
    rows = [
        [
            c.op, None if c.size_bytes is None else format_size(c.size_bytes), _short(c.group),
            c.nranks, c.calls, c.timed,
            "-" if c.gpu_ns is None else us_or_ms(c.gpu_ns),
            None if c.busbw_gbps is None else figure(c.busbw_gbps),
        ]
        for c in classes
    ]  # fmt: skip
    if ceilings:
        columns.append(("of GB/s", NUMBER))
        for row, c in zip(rows, classes, strict=True):
            row.append(None if c.ceiling_gbps is None else figure(c.ceiling_gbps))
    return table(columns, rows)


def _short(group: str) -> str:
    return group.removeprefix("0x")[:_SHORT]


def _reasons(classes: Sequence[WatchedClass]) -> list[str]:
    """Why classes lack a time or a bandwidth, each reason once."""
    found: dict[str, list[str]] = {}
    for c in classes:
        words = [_UNTIMED.get(c.untimed or ""), _NO_BANDWIDTH.get(c.no_bandwidth or "")]
        for text in filter(None, words):
            found.setdefault(text, []).append(c.op)
    return [f"{', '.join(dict.fromkeys(ops))}: {text}" for text, ops in found.items()]


def _late(late: WatchedRank) -> str:
    who = f"rank {late.world_rank}"
    if late.world_rank is None:
        who = f"rank {late.rank} of {_short(late.group)}"
    return (
        f"{who[:1].upper()}{who[1:]} is late: last in {late.last} of {count(late.of, 'call')} "
        f"of {_short(late.group)}, {us_or_ms(late.lateness_ns)} after the second last "
        "(median)."
    )


def _still(watched: Watched) -> list[str]:
    if watched.still_s is None:
        return []
    lines = [f"No call and no kernel end for {watched.still_s:.0f} s."]
    lines += map(_missing, watched.missing[:_MISSING])
    if len(watched.missing) > _MISSING:
        lines.append(f"{len(watched.missing) - _MISSING} more such calls.")
    return [*lines, _UNCOUNTED if watched.verdict is None else _verdict(watched.verdict)]


def _missing(missing: Missing) -> str:
    ranks = ", ".join(map(str, missing.ranks[:_NAMED]))
    more = f" and {len(missing.ranks) - _NAMED} more" if len(missing.ranks) > _NAMED else ""
    made = count(missing.made, "rank")
    return (
        f"Missing in {missing.op} {missing.number} of {_short(missing.group)}, which {made} made:"
        f" rank {ranks}{more}."
    )


def _verdict(verdict: Verdict) -> str:
    if not verdict.decided:
        return f"Which rank holds up the job is not known: {verdict.reasons[0]}"
    who = ", ".join(
        f"rank {w.rank}" + (f" (host {w.host}, process {w.pid})" if w.host else "")
        for w in verdict.who[:_NAMED]
    )
    hold = "holds" if len(verdict.who) == 1 else "hold"
    return f"{who[:1].upper()}{who[1:]} {hold} up the job. {verdict.reasons[0]}"
