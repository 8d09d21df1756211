"""The share of collectives in words: the number, its denominator, and what the job is bound by."""

from __future__ import annotations

from collections.abc import Sequence

from collscope.reports.efficiency.time_breakdown import Fraction
from collscope.reports.share.answer import HOST_FUNCTIONS, Bound, Share, Whole, hidden_percent
from collscope.units import count

BOUND_WORDS = {
    Bound.COMMUNICATION: "Communication-bound",
    Bound.COMPUTE: "Compute-bound",
    Bound.COPIES: "Copy-bound",
}


def denominator(share: Share) -> str:
    """What the percentage is of."""
    printed = "the profile's own total"
    rows = count(share.rows, "row")
    file = f"holds only {share.rows} of its rows" if share.partial else f"has {rows}"
    return {
        Whole.KERNELS_AND_COPIES: "all kernels and copies",
        Whole.KERNELS: "all kernels; the profile has no times of copies",
        Whole.PRINTED: f"{printed}; the file {file}",
        Whole.PRINTED_WITH_COPIES: f"{printed} of kernels and copies; the file {file}",
    }[share.denominator]


def fraction_words(fraction: Fraction, shares: Sequence[Share]) -> str:
    """What the collective share of a job's time is of; `shares` are those of the run."""
    if fraction.ranks is not None:
        warm_up = ", warm-up left out" * fraction.warm_up
        if fraction.of_steps:
            return f"whole steps of {count(fraction.ranks, 'traced rank')}"
        return f"wall time of {count(fraction.ranks, 'traced rank')}{warm_up}"
    if len(fraction.profiles) > 1:
        return f"all kernels and copies of {len(fraction.profiles)} profiles together"
    return next(denominator(share) for share in shares if share.source in fraction.profiles)


def percent_words(share: Share) -> str:
    """The share in percent; with its limits where none of the rows shown is a collective.

    Of functions of the host, and of an excerpt, it is the least: "at least 17.80 %".
    """
    if share.percent is None:
        return "an unknown part"
    if _least(share):
        return f"at least {share.percent:.2f} %"
    if share.partial:
        return f"0.00 to {hidden_percent(share):.2f} %"
    return f"{share.percent:.2f} %"


def _least(share: Share) -> bool:
    """Whether rows that the share lacks may be collectives too."""
    return share.dialect == HOST_FUNCTIONS or bool(share.partial and share.percent)


def range_words(shares: Sequence[Share]) -> str:
    """Least and largest share of several profiles in percent, of those that have it."""
    known = [share for share in shares if share.percent is not None]
    if not known:
        return "an unknown part"
    least = min(share.percent or 0.0 for share in known)
    if all(map(_least, known)):
        return f"at least {least:.2f} %"
    # Of an excerpt, what is not listed may be collectives.
    most = max((share.percent or 0.0) + hidden_percent(share) for share in known)
    return f"{least:.2f} to {most:.2f} %"


def waiting_words(wait_ns: float, unknown_ns: float, kernel_ns: float) -> str:
    """The part of the kernels' time that is waiting: a range where some may be transfer.

    >>> waiting_words(60, 0, 100), waiting_words(60, 10, 100), waiting_words(60, 0.01, 100)
    ('60.0 %', '60.0 to 70.0 %', '60.0 %')
    """
    low, high = (f"{100 * ns / kernel_ns:.1f}" for ns in (wait_ns, wait_ns + unknown_ns))
    return f"{low} %" if low == high else f"{low} to {high} %"
