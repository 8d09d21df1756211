"""The verdict as the first cards of a page."""

from __future__ import annotations

from collections.abc import Iterator

from collscope.reports.rendering.page import Fact
from collscope.reports.verdict.answer import VerdictEntry

_HEADS = {"none": "Nothing stands out", "unknown": "Not known"}


def cards(verdict: tuple[VerdictEntry, ...]) -> Iterator[Fact]:
    """A card for each cause: what, how much, and why."""
    for entry in verdict:
        if entry.cause in _HEADS:
            yield Fact("Verdict", _HEADS[entry.cause], f"{entry.evidence} {entry.advice}")
            continue
        ranks = ", ".join(map(str, entry.ranks))
        who = f"rank {ranks}" if ranks else "all ranks"
        ms = entry.ms_per_step
        yield Fact(
            f"{entry.cause.replace('_', ' ').capitalize()}, {who} ({entry.certainty})",
            f"{ms.value:.3g} ms a step ({ms.low:.3g} to {ms.high:.3g})",
            f"{entry.evidence} {entry.advice}",
        )
