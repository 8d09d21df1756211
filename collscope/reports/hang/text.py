"""The verdict of a hang as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collscope.units import count

if TYPE_CHECKING:
    from collscope.hang.records import Verdict, Who

_WHAT = {
    "host_never_called": "did not make the call (its host sleeps, waits, or skipped it)",
    "silent": "wrote no recording",
    "gpu_not_finished": "has the call open on its GPU though a peer completed it",
    "different_call": "called something else",
    "different_order": "called the groups in another order",
    "extra_call": "made a call too many",
}
_RECORD = (
    "Record next time: TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1 and"
    " TORCH_NCCL_ENABLE_TIMING=1 on every rank."
)


def verdict_text(verdict: Verdict) -> str:
    """At most ten lines."""
    lines = []
    if verdict.decided:
        what = ", or ".join(_WHAT.get(name, name) for name in verdict.what)
        who = ", ".join(map(_who, verdict.who[:8]))
        more = f" and {len(verdict.who) - 8} more" if len(verdict.who) > 8 else ""
        lines.append(f"Verdict: {who}{more} {what}.")
    else:
        lines.append("No verdict.")
        if verdict.candidates:
            lines.append(f"Candidates: ranks {', '.join(map(str, verdict.candidates[:16]))}.")
    if verdict.group is not None:
        lines.append(f"Since: {verdict.op} {verdict.seq} of group {verdict.group}.")
    if verdict.frames:
        lines.append(f"Code: {' < '.join(verdict.frames[:3])}.")
    if verdict.last_completed is not None:
        lines.append(f"Last completed call: {verdict.last_completed}.")
    groups = ", ".join(verdict.waiting.groups[:3])
    more = f" and {n - 3} more" if (n := len(verdict.waiting.groups)) > 3 else ""
    if verdict.waiting.ranks:
        lines.append(f"Waiting: {count(verdict.waiting.ranks, 'rank')}, in groups {groups}{more}.")
    if verdict.certainty is not None:
        lines.append(f"How sure: {verdict.certainty}.")
    lines += [f"Why: {' '.join(verdict.reasons[:3])}"]
    if not verdict.decided:
        lines.append(_RECORD)
    return "\n".join(lines) + "\n"


def _who(who: Who) -> str:
    parts = [f"host {who.host}" if who.host else "", f"process {who.pid}" if who.pid else ""]
    where_it_runs = ", ".join(part for part in parts if part)
    return f"rank {who.rank}" + (f" ({where_it_runs})" if where_it_runs else "")
