"""What the readable forms of a report say, section by section."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collscope.model import Op
from collscope.model.diagnostic import TIMES_UNKNOWN
from collscope.reports.calls.answer import ClassRow
from collscope.reports.calls.text import classes, communicators, histograms
from collscope.reports.coverage.text import (
    NO_SIZES,
    calls_missing_sentence,
    coverage_section,
    library_words,
    run_section,
    sizes_remedy,
)
from collscope.reports.efficiency.text import (
    gain_sentences,
    judgement,
    measured_sentences,
    unjudged_sentence,
)
from collscope.reports.fabric.text import transports_section
from collscope.reports.rendering.class_words import class_words
from collscope.reports.rendering.layout import Item, Section
from collscope.reports.rendering.share_words import BOUND_WORDS, denominator, range_words
from collscope.reports.report.answer import Evidence, Finding, Report, counts_are_lower_bounds
from collscope.reports.share.answer import Bound, Share, alike, bound_by
from collscope.reports.share.recorded_text import recorded_sentences
from collscope.reports.share.text import MOST_PROFILES, share_section, share_sentence, traced_shares
from collscope.reports.tolerances import (
    COMMUNICATION_BOUND_PERCENT,
    COMPUTE_BOUND_PERCENT,
    COPY_BOUND_PERCENT,
    IDLE_PERCENT,
)
from collscope.reports.verdict.answer import BOUND_IN_DOUBT, KERNELS_IN_DOUBT
from collscope.reports.verdict.text import section
from collscope.reports.waiting.first_lines_text import (
    cut_sentence,
    idle_percent,
    share_of_time_sentence,
    timeline_sentences,
    traced_ranks,
    traced_share,
    withheld_sentences,
)
from collscope.reports.waiting.text import timeline_section
from collscope.reports.waiting.withheld import unknown_times
from collscope.units import count, format_size, format_time

_FAR_MORE = 2  # kernels of a profile / one a call and rank
_BOUND_RULES = {
    Bound.COMMUNICATION: f"collectives take at least {COMMUNICATION_BOUND_PERCENT:g} % of GPU time",
    Bound.COMPUTE: f"collectives take at most {COMPUTE_BOUND_PERCENT:g} % of GPU time and compute "
    f"kernels at least {100 - COPY_BOUND_PERCENT:g} %",
    Bound.COPIES: f"copies take at least {COPY_BOUND_PERCENT:g} % of GPU time",
}  # as `bound_by` decides


def sections(report: Report, shown: Report | None = None) -> tuple[Section, ...]:
    """All sections, the answer first.

    shown  the report with the rows of its tables, `shorten` of it; None: with all rows
    """
    rows = shown or report
    found = (
        *_first(report),
        Section("Findings", tuple(_findings(report.findings))),
        Section("Share of GPU time", tuple(share_section(rows))),
        *timeline_section(report.timeline, _extra_work(report)),
        Section("Classes", tuple(classes(rows))),
        Section("Efficiency and gain", tuple(judgement(rows))),
        Section("Message sizes", tuple(histograms(report))),
        Section("Communicators", tuple(communicators(report.communicators))),
        Section("Transports and settings", tuple(transports_section(report))),
        Section("Run", tuple(run_section(report))),
        Section("Coverage", tuple(coverage_section(report))),
    )
    # sections that could only say that they hold nothing
    empty = {"Classes"} if not report.classes else set()
    empty |= {"Message sizes"} if not report.histograms else set()
    empty |= {"Communicators"} if not report.communicators else set()
    fabric = report.transports or report.settings or report.facts
    empty |= {"Transports and settings"} if not fabric else set()
    if measured_only(report):
        empty |= {"Verdict", "Share of GPU time"}
        empty |= {"Findings"} if not report.findings else set()
    return tuple(section for section in found if section.title not in empty)


def _first(report: Report) -> tuple[Section, ...]:
    """The verdict and the answer; the answer first where no verdict is possible."""
    verdict, answer = section(report.verdict, report.step), tuple(_answer(report))
    if report.verdict[0].cause == "unknown" and report.step.hang is None:
        return (Section("", answer), Section("Verdict", verdict.blocks))
    return (verdict, Section("In short", answer))


def measured_only(report: Report) -> bool:
    """Whether measurements are the run's only times."""
    return bool(report.judgement.reached) and not report.header.calls and not report.shares


def _answer(report: Report) -> Iterable[str]:
    header = report.header
    yield from withheld_sentences(report.timeline)
    yield from cut_sentence(report.timeline.cut)
    yield from measured_sentences(report.judgement)
    for row in report.coverage.diagnostics:
        # All that follows is without these kernels.
        if row.code in (*KERNELS_IN_DOUBT, "fused_kernels"):
            yield f"{row.message[0].upper()}{row.message[1:]}."
    yield from share_of_time_sentence(report.timeline)
    if not measured_only(report):
        yield from _share_answer(report)
    yield from timeline_sentences(report.timeline, report.step.given_ms)
    yield from gain_sentences(report)
    if no_sizes(report):
        yield f"Gain not known: {NO_SIZES}. To get it: {sizes_remedy(report)}."
    if header.communicators or header.calls:
        yield _size(report, at_least=counts_are_lower_bounds(report))
        yield from calls_missing_sentence(report)
        yield from _part_of_profile(report)
    yield from unjudged_sentence(report.judgement)
    if measured_only(report):
        yield (
            "This run has no calls and no profile, so neither the share of GPU time nor the gain "
            "of a job is known."
        )
    elif not header.calls:
        yield "No calls: the run has no log with COLL lines (collscope ingest log PATH)."
    if report.classes and report.classes[0].op is not Op.UNKNOWN:
        all_timed = all(row.kernel_ns for row in report.classes)
        yield f"{_first_by(report)}: {_most(report.classes[0], all_timed=all_timed)}."


def no_sizes(report: Report) -> bool:
    """Whether there are calls and no gain, as the size of no call is known."""
    header = report.header
    unknown = header.calls and header.calls == header.calls_without_size
    return bool(unknown) and not report.judgement.uplifts


def _share_answer(report: Report) -> Iterable[str]:
    shares, traced = report.shares, traced_shares(report)
    idle = idle_percent(report.timeline)
    unsure = _bound_is_unsure(report)
    idles = idle is not None and idle >= IDLE_PERCENT and not unsure
    denominator_words = "busy GPU time" if idles else "GPU time"
    if idles:
        yield (
            f"The GPU idles {idle:.1f} % of the traced time. Neither communication nor "
            "computation bounds the job: the GPU waits for work."
        )
    if not shares and unknown_times(report.timeline.withheld) is not None:
        return
    if not shares:
        profiled = any(source.kind == "profile" for source in report.coverage.sources)
        why = "no row of the profile has a usable time" if profiled else "no profile"
        if any(row.code in TIMES_UNKNOWN for row in report.coverage.diagnostics):
            why = "times in the profile contradict each other: see Findings"
        if report.recorded_share is not None:
            yield from recorded_sentences(report.recorded_share)
            return
        yield f"Share of GPU time: not known ({why}; collscope ingest profile PATH)."
    elif len(traced) > 1:
        if traced_share(report.timeline) is not None:
            yield from _bound_alone(traced, idles or unsure)
            return
        ranks = traced_ranks(report.timeline, len(report.timeline.ranks) or len(traced))
        yield _together(traced, f"{denominator_words} on {ranks}", idles or unsure)
    elif not traced and (len(shares) > MOST_PROFILES or alike(shares)):
        yield _together(shares, f"{denominator_words} in {len(shares)} profiles", idles or unsure)
    else:
        for share in traced or shares:
            of = f" ({share.source})" if len(shares) > 1 else ""
            head = _collectives(None if idles or unsure else bound_by(share))
            yield f"{head} take {share_sentence(share, denominator_words)}{of}."


def _bound_is_unsure(report: Report) -> bool:
    """Rows of the traces are missing or doubtful, or no collective of several ranks is known."""
    codes = {row.code for row in report.coverage.diagnostics}
    return bool(codes & set(BOUND_IN_DOUBT))


def _bound_alone(shares: Sequence[Share], unsure: bool) -> Iterable[str]:
    """What bounds the job, where the line above has the share of the traced time."""
    bound = None if unsure else _common_bound(shares)
    if bound is not None:
        yield f"{BOUND_WORDS[bound]}, by this rule: on every rank, {_BOUND_RULES[bound]}."


def _common_bound(shares: Sequence[Share]) -> Bound | None:
    bounds = {bound_by(share) for share in shares}
    return bounds.pop() if len(bounds) == 1 else None


def _together(shares: Sequence[Share], denominator_words: str, unsure: bool) -> str:
    """One sentence over the ranks of a job; the bound is named if all ranks agree."""
    bound = None if unsure else _common_bound(shares)
    return f"{_collectives(bound)} take {_range(shares, denominator_words)}."


def _collectives(bound: Bound | None) -> str:
    return "Collectives" if bound is None else f"{BOUND_WORDS[bound]}: collectives"


def _range(shares: Sequence[Share], denominator_words: str) -> str:
    """Smallest and largest of several shares, with the denominator that they have in common."""
    denominators = {denominator(share) for share in shares}
    sentence = "; each has its denominator under Share of GPU time"
    if len(denominators) == 1:
        sentence = f" (denominator: {denominators.pop()})"
    return f"{range_words(shares)} of {denominator_words}{sentence}"


def _part_of_profile(report: Report) -> Iterable[str]:
    """That the logs hold fewer calls than a profile beside them has kernels for."""
    header, traces = report.header, traced_shares(report)
    kernels = sum(share.collective_calls for share in report.shares)
    if header.calls and not traces and kernels > _FAR_MORE * header.calls * (header.ranks or 1):
        yield (
            f"The profile has {kernels} kernels of collectives, far more than these calls need: "
            "the logs hold only part of the profiled run, or come from another job."
        )


def _size(report: Report, *, at_least: bool) -> str:
    """How many calls, on what.

    at_least  calls may have been made that no source holds
    """
    header = report.header
    classes = count(header.classes, "class", "classes")
    known = "at least " * at_least
    # Calls of unknown size have bytes, too.
    bytes_known = "at least " * (at_least or header.calls_without_size > 0)
    calls = (
        f"{known}{count(header.calls, 'call')} in {classes},"
        f" {bytes_known}{format_size(header.total_bytes)}, on "
    )
    libraries = f", {', '.join(library_words(header))}" if header.libraries else ""
    if header.calls and header.calls == header.calls_without_size:
        calls = f"{known}{count(header.calls, 'call')} in {classes}, sizes not known, on "
    nodes = "nodes not known" if header.nodes is None else count(header.nodes, "node")
    has_nodes = [row.nnodes is not None for row in report.communicators]
    if any(has_nodes) and not all(has_nodes):
        nodes += f" (known for {sum(has_nodes)} of {len(has_nodes)} communicators)"
    sentence = (
        f"{calls if header.calls else ''}{count(header.communicators, 'communicator')}; "
        f"{count(header.ranks, 'rank')}, {nodes}{libraries}."
    )
    return f"{sentence[0].upper()}{sentence[1:]}"


def _first_by(report: Report) -> str:
    """What the first class has the most of."""
    first = report.classes[0]
    if all(row.kernel_ns for row in report.classes):
        return "Class with the most kernel time"
    return "Class with the most transfer and waiting" if first.split_ns else "Largest class"


def _extra_work(report: Report) -> frozenset[int]:
    """Ranks whose extra work the verdict names."""
    causes = (entry for entry in report.verdict if entry.cause == "extra_work")
    return frozenset(rank for cause in causes for rank in cause.ranks)


def _most(row: ClassRow, *, all_timed: bool) -> str:
    """A class with what it has the most of.

    all_timed  all classes have a kernel time, so they are ordered by it
    """
    part = ""
    if row.kernel_ns and all_timed:
        part = f", {format_time(row.kernel_ns)} over all ranks"
        if (row.seen_calls or row.calls) < row.calls:
            timed = f"the {row.seen_calls} timed ones take {format_time(row.kernel_ns)}"
            part = f"; {timed} over all ranks"
    elif row.split_ns:
        split = (
            ""
            if row.kernel_calls == row.calls
            else f" in the {row.kernel_calls} of them where both are known"
        )
        part = f"; transfer and waiting take {format_time(row.split_ns)} over all ranks{split}"
    elif row.share_of_bytes is not None:
        part = f", {100 * row.share_of_bytes:.1f} % of the run's bytes"
    return f"{class_words(row)}, {count(row.calls, 'call')}{part}"


def _findings(findings: Sequence[Finding]) -> Iterable[str | Item]:
    if not findings:
        yield "No finding."
    for finding in findings:
        evidence = (_evidence(line) for line in finding.evidence)
        yield Item(
            f"[{finding.severity}] {finding.title}",
            (finding.detail, *evidence, f"Advice: {finding.advice}"),
        )


def _evidence(evidence: Evidence) -> str:
    where = evidence.source + (f":{evidence.line}" if evidence.line is not None else "")
    return f"{where}: {evidence.text}" if evidence.text else where
