"""Views and columns that a wrong name in a query may mean."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

_SHOWN = 3
# Words of other tools' tables, in the singular; each has the views that hold such rows.
_VIEWS = {
    "collective": ("calls", "classes"), "coll": ("calls", "classes"), "op": ("calls", "classes"),
    "operation": ("calls", "classes"), "observation": ("calls",),
    "size": ("classes",), "message": ("message_bins", "classes"),
    "comm": ("communicators",), "group": ("communicators",), "process_group": ("communicators",),
    "rank": ("rank_times", "members"), "gpu": ("members",), "device": ("members",),
    "host": ("members",), "node": ("members",),
    "straggler": ("rank_waits",), "wait": ("rank_waits",),
    "event": ("kernels",), "span": ("kernels",), "activity": ("kernels",), "slice": ("kernels",),
    "profile": ("kernel_totals",), "overlap": ("stream_overlaps",), "stream": ("stream_overlaps",),
    "timeline": ("call_times",), "time": ("call_times",), "duration": ("call_times",),
    "file": ("sources",), "input": ("sources",), "log": ("sources",),
    "env": ("settings",), "environment": ("settings",), "variable": ("settings",),
    "config": ("settings",), "version": ("facts",),
    "error": ("diagnostics",), "warning": ("diagnostics",), "notice": ("diagnostics",),
    "label": ("measurements",), "benchmark": ("measurements",), "result": ("measurements",),
    "replay": ("measurements",), "bandwidth": ("measurements",), "busbw": ("measurements",),
    "sample": ("measurement_samples",), "memcpy": ("copies",),
    "p2p": ("transfers",), "send": ("transfers",), "recv": ("transfers",),
    "iteration": ("steps",), "topology": ("links",), "channel": ("links",),
    "transport": ("links",), "hang": ("progress",),
}  # fmt: skip
_COLUMNS = {
    "dtype": "datatype", "type": "datatype", "collective": "op", "operation": "op", "name": "op",
    "world_size": "nranks", "bytes": "size_bytes", "duration": "duration_ns", "time": "time_us",
    "latency": "time_us", "bandwidth": "busbw_gbps", "algo": "algorithm", "proto": "protocol",
    "hostname": "host", "filename": "path", "file": "path",
}  # fmt: skip


def near_views(name: str, views: Sequence[str]) -> list[str]:
    """Views whose rows are what a name means, then those that are spelled like it.

    >>> near_views("collectives", ["call_times", "calls", "classes"])
    ['calls', 'classes']
    """
    word = name.lower()
    meant = [view for view in _VIEWS.get(_singular(word), ()) if view in views]
    return meant or get_close_matches(word, views, n=_SHOWN)


def near_columns(name: str, columns: Sequence[str]) -> list[str]:
    """Columns that a name means, contains part by part, or is spelled like.

    >>> near_columns("size", ["op", "size_bytes"]), near_columns("dtype", ["datatype"])
    (['size_bytes'], ['datatype'])
    """
    word = name.lower()
    meant = [column for column in columns if column == _COLUMNS.get(word)]
    holding = [column for column in columns if word in column.split("_")]
    return (meant or holding or get_close_matches(word, columns, n=_SHOWN))[:_SHOWN]


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    return word if word in _VIEWS else word.removesuffix("s")
