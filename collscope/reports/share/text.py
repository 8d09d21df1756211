"""The share of each profile, in sentences and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collscope.kernel_names import classify
from collscope.reports.rendering.layout import (
    MOST_ROWS,
    NAME,
    NUMBER,
    PATH,
    TEXT,
    Table,
    scaled,
    table,
)
from collscope.reports.rendering.origin import origin
from collscope.reports.rendering.share_words import denominator, percent_words
from collscope.reports.report.answer import Report
from collscope.reports.share.answer import Share
from collscope.reports.share.recorded_text import recorded_tables
from collscope.reports.waiting.withheld import unknown_times
from collscope.units import count

_NAMES = "Algorithm and protocol in a kernel's name are only a hint: one kernel serves several."
_CHOICE = " The section Classes has the choice (column algorithm)."
MOST_PROFILES = 4  # profiles named in the first lines


def traced_shares(report: Report) -> Sequence[Share]:
    """Shares of traces; a table of totals beside them may hold their kernels once more."""
    paths = {row.source for row in report.coverage.sources if row.kind == "trace"}
    return [share for share in report.shares if share.source in paths]


def share_sentence(share: Share, denominator_words: str = "GPU time") -> str:
    """The share of one profile with its denominator in words."""
    return f"{percent_words(share)} of {denominator_words} (denominator: {denominator(share)})"


def share_section(report: Report) -> Iterable[str | Table]:
    """The share of each profile, with its families and kernels."""
    shares = report.shares
    if not shares and report.recorded_share is not None:
        yield from recorded_tables(report.recorded_share)
        return
    if not shares:
        doubted = unknown_times(report.timeline.withheld) is not None
        why = "the traces contradict themselves" if doubted else "the run has no profile"
        yield f"Not known: {why}."
    if len(shares) > MOST_PROFILES:
        yield _shares_table(shares)
        largest = max(traced_shares(report) or shares, key=lambda share: share.percent or 0.0)
        yield (
            f"The tables show the kernels of {largest.source}, the profile with the largest share."
        )
        shares = (largest,)
    if any(_names_protocol(kernel.name) for share in shares for kernel in share.kernels):
        chosen = any(row.algorithm or row.protocol for row in report.classes)
        yield _NAMES + _CHOICE * chosen
    for share in shares:
        yield from _one_share(share)


def _one_share(share: Share) -> Iterable[str | Table]:
    """The share of one profile, and where it comes from."""
    yield f"{share.source} ({share.dialect}): {share_sentence(share)}."
    if share.partial:
        yield (
            f"The rows in the file add up to {share.reported_coverage:.2f} % of that total. The "
            "shares are the file's own percentages."
        )
    elif share.share_of_kernels is not None and share.kernel_ns != share.busy_ns:
        yield f"Of kernels only, without copies: {100 * share.share_of_kernels:.2f} %."
    if share.warm_up_calls:
        it_was, it = ("it was", "it") if share.warm_up_calls == 1 else ("they were", "them")
        yield (
            f"This table includes {count(share.warm_up_calls, 'warm-up call')}, which "
            f"{it_was.split()[1]} short on this rank. Tables of ranks where {it_was} long leave "
            f"{it} out. All times in later sections also leave {it} out."
        )
    if share.kernels:
        if len(share.families) > 1:
            yield _family_table(share)
        yield _kernel_table(share)
    if share.kernels_total > len(share.kernels):
        more = count(share.kernels_total - len(share.kernels), "more kernel name")
        yield f"{more} not shown."
    for unclassified in share.unclassified:
        yield (
            "Not counted, because the name contains 'ccl' but is not a known collective: "
            f"{unclassified.name} ({count(unclassified.calls, 'call')})."
        )


def _names_protocol(name: str) -> bool:
    hints = classify(name)
    return hints is not None and hints.protocol_hint is not None


def _shares_table(shares: Sequence[Share]) -> Table:
    columns = [("profile", PATH), ("kernels", NUMBER), ("time ms", NUMBER), ("% GPU time", NUMBER)]
    return table(
        columns,
        (
            (s.source, s.collective_calls, s.collective_ns / 1e6, _two(s.percent))
            for s in shares[:MOST_ROWS]
        ),
        (
            origin("share JOIN sources USING (run, source_id)", path=s.source)
            for s in shares[:MOST_ROWS]
        ),
    )


def _family_table(share: Share) -> Table:
    columns = [("family", TEXT), ("kernels", NUMBER), ("time ms", NUMBER), ("% GPU time", NUMBER)]
    return table(
        columns,
        (
            (family.family, family.calls, family.total_ns / 1e6, _two(family.percent))
            for family in share.families
        ),
        (origin("kernel_totals", family=family.family) for family in share.families),
    )


def _kernel_table(share: Share) -> Table:
    columns = [
        ("collective kernel", NAME),
        ("kernels", NUMBER),
        ("time ms", NUMBER),
        ("mean us", NUMBER),
        ("% GPU time", NUMBER),
    ]
    return table(
        columns,
        (
            (k.name, k.calls, k.total_ns / 1e6, scaled(k.mean_ns, 1e3), _two(k.percent))
            for k in share.kernels
        ),
        (origin("kernel_totals", name=k.name) for k in share.kernels),
    )


def _two(percentage: float | None) -> str | None:
    return None if percentage is None else f"{percentage:.2f}"
