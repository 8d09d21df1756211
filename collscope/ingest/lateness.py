"""How late a rank comes, as columns that ranks of traces and of logs have alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collscope.timeline.records import LateRank


def lateness(late: LateRank) -> tuple[float, ...]:
    """Columns of `_trace_rank` and `_rank_wait` for how late a rank arrives."""
    return (
        late.calls, late.last, late.behind, late.typical_ns, late.max_ns, late.total_ns,
        late.caused_wait_ns, late.share, late.named,
    )  # fmt: skip
