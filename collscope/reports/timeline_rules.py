"""Rules about traces and recordings: late ranks, ranks that stopped, calls that differ."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from collscope.reports.model import Evidence, Finding, Report
from collscope.reports.timeline_records import DisagreementRow
from collscope.reports.timeline_sections import late_sentence, matters
from collscope.units import are, count

_MOST = 5

# Per kind of disagreement: severity, title, advice.
_KINDS = {
    "stopped": (
        "problem",
        "ranks stopped: they lack collectives that others called",
        "Look at what these ranks did instead: their log, their stack, an exception, the GPU.",
    ),
    "open": (
        "problem",
        "collectives called and not completed",
        "Find the rank that did not call it, or whose transfer hangs; the views progress and "
        "disagreements have every group.",
    ),
    "missing": (
        "warning",
        "collectives that a rank lacks",
        "Either its recording lost them, or the rank took another branch: compare the program "
        "there. Everything else was matched without them.",
    ),
    "different": (
        "problem",
        "ranks call different operations or sizes at the same place",
        "The ranks disagree on the program's order or shapes: results are wrong, or the job hangs.",
    ),
    "unmatched": (
        "warning",
        "Sends and Recvs without a partner",
        "Check who should have received or sent them.",
    ),
    "different_size": (
        "problem",
        "Sends and Recvs of different sizes",
        "Sender and receiver disagree on the count or the type.",
    ),
}


def stragglers(report: Report) -> Iterable[Finding]:
    """Ranks that the others wait for, beyond chance and the clocks' error."""
    ranks = report.timeline.ranks
    named = [rank for rank in ranks if rank.straggler]
    for severity, late, what, advice in (
        (
            "warning",
            [rank for rank in named if matters(rank, ranks)],
            "late: the others wait",
            "Look for more work or a slower GPU, host or input pipeline on this rank: tuning "
            "collectives does not shorten this wait.",
        ),
        (
            "note",
            [rank for rank in named if not matters(rank, ranks)],
            "last most often, but by little",
            "Nothing to do: the others lose less than 1 % of their time, or under 20 us a call.",
        ),
    ):
        if late:
            numbers = ", ".join(str(rank.rank) for rank in late)
            yield Finding(
                severity=severity,
                code="straggler",
                title=f"rank{'s' * (len(late) > 1)} {numbers} {are(len(late))} {what}",
                detail=" ".join(late_sentence(rank, ranks) for rank in late[:_MOST]),
                advice=advice,
            )


def disagreements(report: Report) -> Iterable[Finding]:
    """What ranks disagree on, one finding per kind and origin."""
    rows = sorted(report.timeline.disagreements, key=_by)
    for (kind, origin), same in groupby(rows, key=_by):
        found = list(same)
        severity, title, advice = _KINDS[kind]
        more = f" And {len(found) - _MOST} more." if len(found) > _MOST else ""
        yield Finding(
            severity=severity,
            code=f"ranks_{kind}",
            title=f"{title} (by {origin}s)",
            detail=" ".join(row.message for row in found[:_MOST]) + more,
            advice=advice,
            evidence=tuple(
                Evidence(f"view disagreements, {origin}", None, count(row.count, "place"))
                for row in found[:_MOST]
                if row.count > 1
            ),
        )


def _by(row: DisagreementRow) -> tuple[str, str]:
    return row.kind, row.origin


RULES = (stragglers, disagreements)
