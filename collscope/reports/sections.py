"""What the readable forms of a report say, section by section."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collscope.analysis.classes import ClassRow
from collscope.analysis.overview import Header
from collscope.analysis.share import IDLE_PERCENT, Bound, Share, alike, bound_by
from collscope.analysis.transports import TransportRow
from collscope.analysis.withheld import unknown_times
from collscope.model import Op
from collscope.model.diagnostic import TIMES_UNKNOWN
from collscope.reports.class_words import class_words
from collscope.reports.layout import (
    NAME,
    NUMBER,
    PATH,
    TEXT,
    Item,
    Section,
    Table,
    scaled,
    table,
)
from collscope.reports.model import Evidence, Finding, Report
from collscope.reports.overview import (
    NO_SIZES,
    TELL_SIZES,
    calls_lost,
    calls_missing_sentence,
)
from collscope.reports.sections_calls import classes, communicators, histograms
from collscope.reports.sections_judgement import gain_sentences, judgement, measured_sentences
from collscope.reports.share import BOUND_WORDS, denominator, percent_words, range_words
from collscope.reports.timeline_words import (
    cut_sentence,
    idle_percent,
    share_of_time_sentence,
    timeline_sentences,
    traced_ranks,
    withheld_sentences,
)
from collscope.reports.verdict.text import section
from collscope.units import count, format_size, format_time

_MOST_SENTENCES = 4  # profiles named in the first lines
_MOST_TEXTS = 20  # rows of settings, facts, sources and diagnostics

# Facts that tell what carries the data; the others stand in the findings, the header or the store.
_ABOUT_TRANSPORT = ("network", "net_", "channels", "gdr_", "nvls", "msccl", "tuner_plugin")


def sections(report: Report) -> tuple[Section, ...]:
    """All sections, the answer first."""
    found = (
        *_first(report),
        Section("Findings", tuple(_findings(report.findings))),
        Section("Share of GPU time", tuple(_shares(report))),
        *(shown for part in report.parts for shown in part.sections()),
        Section("Classes", tuple(classes(report))),
        Section("Efficiency and gain", tuple(judgement(report))),
        Section("Message sizes", tuple(histograms(report))),
        Section("Communicators", tuple(communicators(report.communicators))),
        Section("Transports and settings", tuple(_transports(report))),
        Section("Run", tuple(_run(report))),
        Section("Coverage", tuple(_coverage(report))),
    )
    if not measured_only(report):
        return found
    # sections that could only say that they hold nothing
    empty = {"Verdict", "Share of GPU time", "Classes", "Message sizes"}
    empty |= {"Findings"} if not report.findings else set()
    empty |= {"Communicators"} if not report.communicators else set()
    empty |= {"Transports and settings"} if not (report.transports or report.settings) else set()
    return tuple(shown for shown in found if shown.title not in empty)


def _first(report: Report) -> tuple[Section, ...]:
    """The verdict and the answer; the answer first where the verdict is that none is possible."""
    verdict, answer = section(report.verdict, report.step), tuple(_answer(report))
    if report.verdict[0].cause == "unknown":
        return (Section("", answer), Section("Verdict", verdict.blocks))
    return (verdict, Section("In short", answer))


def measured_only(report: Report) -> bool:
    """Whether measurements are all that the run tells about time."""
    return bool(report.judgement.reached) and not report.header.calls and not report.shares


def _answer(report: Report) -> Iterable[str]:
    header = report.header
    yield from withheld_sentences(report.timeline)
    yield from cut_sentence(report.timeline.cut)
    yield from measured_sentences(report.judgement)
    yield from share_of_time_sentence(report.timeline)
    if not measured_only(report):
        yield from _share_answer(report)
    yield from timeline_sentences(report.timeline)
    yield from gain_sentences(report)
    if no_sizes(report):
        yield f"No gain is told: {NO_SIZES}. To know them: {TELL_SIZES}."
    if header.communicators or header.calls:
        yield _size(header, at_least=calls_lost(report))
        yield from calls_missing_sentence(report)
    if measured_only(report):
        yield "No calls and no profile in this run: no share of GPU time, and no gain of a job."
    elif not header.calls:
        yield "No calls: no log with COLL lines in this run (collscope ingest log PATH)."
    if report.classes and report.classes[0].op != Op.UNKNOWN.value:
        yield f"Largest class: {_most(report.classes[0])}."
    if any(row.split_ns for row in report.classes) or (
        report.classes and all(row.kernel_ns for row in report.classes)
    ):
        yield "Classes are ordered by kernel time where it is known, the others by bytes."


def no_sizes(report: Report) -> bool:
    """Whether there are calls and no gain, as the size of no call is known."""
    header = report.header
    unknown = header.calls and header.calls == header.calls_without_size
    return bool(unknown) and not report.judgement.uplifts


def _share_answer(report: Report) -> Iterable[str]:
    shares, traced = report.shares, _traced(report)
    idle = idle_percent(report.timeline)
    unsure = _bound_is_unsure(report)
    idles = idle is not None and idle >= IDLE_PERCENT and not unsure
    whole = "busy GPU time" if idles else "GPU time"
    if idles:
        yield (
            f"The GPU idles {idle:.1f} % of the traced time: the job is bound by neither "
            "communication nor computation, but by what keeps the GPU waiting for work."
        )
    if not shares and unknown_times(report.timeline.withheld) is not None:
        return
    if not shares:
        profiled = any(source.kind == "profile" for source in report.coverage.sources)
        why = "no row of the profile has a usable time" if profiled else "no profile"
        if any(row.code in TIMES_UNKNOWN for row in report.coverage.diagnostics):
            why = "times of the profile contradict each other: see Findings"
        yield f"Share of GPU time: not known ({why}; collscope ingest profile PATH)."
    elif len(traced) > 1:
        ranks = traced_ranks(report.timeline, len(report.timeline.ranks) or len(traced))
        yield _together(traced, f"{whole} on {ranks}", idles or unsure)
    elif not traced and (len(shares) > _MOST_SENTENCES or alike(shares)):
        yield _together(shares, f"{whole} in {len(shares)} profiles", idles or unsure)
    else:
        for share in traced or shares:
            of = f" ({share.source})" if len(shares) > 1 else ""
            head = _collectives(None if idles or unsure else bound_by(share))
            yield f"{head} take {share_sentence(share, whole)}{of}."


def _bound_is_unsure(report: Report) -> bool:
    """Kernels are missing from the traces, or no collective of several ranks is known as one."""
    codes = {row.code for row in report.coverage.diagnostics}
    return bool(codes & {"kernels_lost", "no_collective"})


def _together(shares: Sequence[Share], whole: str, unsure: bool) -> str:
    """One sentence over the ranks of a job; what it is bound by is told if all ranks agree."""
    bounds = {None if unsure else bound_by(share) for share in shares}
    bound = bounds.pop() if len(bounds) == 1 else None
    return f"{_collectives(bound)} take {_range(shares, whole)}."


def _traced(report: Report) -> Sequence[Share]:
    """Shares of traces; a table of totals beside them may hold their kernels once more."""
    paths = {row.source for row in report.coverage.sources if row.kind == "trace"}
    return [share for share in report.shares if share.source in paths]


def _collectives(bound: Bound | None) -> str:
    return "Collectives" if bound is None else f"{BOUND_WORDS[bound]}: collectives"


def _range(shares: Sequence[Share], whole: str) -> str:
    """Smallest and largest of several shares, with the denominator that they have in common."""
    denominators = {denominator(share) for share in shares}
    sentence = "; each with its denominator under Share of GPU time"
    if len(denominators) == 1:
        sentence = f" (denominator: {denominators.pop()})"
    return f"{range_words(shares)} of {whole}{sentence}"


def _size(header: Header, *, at_least: bool) -> str:
    """How many calls, on what.

    at_least  calls were made that no source holds
    """
    classes = count(header.classes, "class", "classes")
    known = "at least " * at_least
    # Calls of unknown size have bytes, too.
    bytes_known = "at least " * (at_least or header.calls_without_size > 0)
    calls = (
        f"{known}{count(header.calls, 'call')} in {classes},"
        f" {bytes_known}{format_size(header.total_bytes)}, on "
    )
    libraries = f", {', '.join(header.libraries)}" if header.libraries else ""
    if header.calls and header.calls == header.calls_without_size:
        calls = f"{known}{count(header.calls, 'call')} in {classes}, sizes not known, on "
    sentence = (
        f"{calls if header.calls else ''}{count(header.communicators, 'communicator')}; "
        f"{count(header.ranks, 'rank')}, {count(header.nodes, 'node')}{libraries}."
    )
    return f"{sentence[0].upper()}{sentence[1:]}"


def share_sentence(share: Share, whole: str = "GPU time") -> str:
    """The share of one profile with its denominator in words."""
    return f"{percent_words(share)} of {whole} (denominator: {denominator(share)})"


def _most(row: ClassRow) -> str:
    # of which whole the first class is the largest part: time where it is known, else bytes
    part = ""
    if row.kernel_ns:
        seen = f", of {row.seen_calls} of them" * ((row.seen_calls or row.calls) < row.calls)
        part = f", {format_time(row.kernel_ns)} in the kernels that were seen{seen}"
    elif row.share_of_bytes is not None:
        part = f", {100 * row.share_of_bytes:.1f} % of the run's bytes"
    return f"{class_words(row)}, {count(row.calls, 'call')}{part}"


def _findings(findings: Sequence[Finding]) -> Iterable[str | Item]:
    if not findings:
        yield "No rule found anything."
    for finding in findings:
        evidence = (_evidence(line) for line in finding.evidence)
        yield Item(
            f"[{finding.severity}] {finding.title}",
            (finding.detail, *evidence, f"Advice: {finding.advice}"),
        )


def _evidence(evidence: Evidence) -> str:
    where = evidence.source + (f":{evidence.line}" if evidence.line is not None else "")
    return f"{where}: {evidence.text}" if evidence.text else where


def _shares(report: Report) -> Iterable[str | Table]:
    shares = report.shares
    if not shares:
        doubted = unknown_times(report.timeline.withheld) is not None
        why = "the traces contradict themselves" if doubted else "the run has no profile"
        yield f"Not known: {why}."
    if len(shares) > _MOST_SENTENCES:
        yield _shares_table(shares)
        largest = max(_traced(report) or shares, key=lambda share: share.percent or 0.0)
        yield f"Below are the kernels of {largest.source}, the profile with the largest share."
        shares = (largest,)
    for share in shares:
        yield f"{share.source} ({share.dialect}): {share_sentence(share)}."
        if share.partial:
            yield (
                f"The table is an excerpt ({share.reported_coverage:.2f} % of its total), so its"
                " printed percentages are used."
            )
        elif share.share_of_kernels is not None and share.kernel_ns != share.busy_ns:
            yield f"Of kernels alone, without copies: {100 * share.share_of_kernels:.2f} %."
        if share.kernels:
            yield _family_table(share)
            yield _kernel_table(share)
        if share.kernels_total > len(share.kernels):
            more = count(share.kernels_total - len(share.kernels), "more kernel name")
            yield f"{more} not shown."
        for unclassified in share.unclassified:
            yield (
                f"Not counted, because the name has 'ccl' but is not a known collective:"
                f" {unclassified.name} "
                f"({count(unclassified.calls, 'call')})."
            )


def _shares_table(shares: Sequence[Share]) -> Table:
    columns = [("profile", PATH), ("calls", NUMBER), ("time ms", NUMBER), ("% GPU time", NUMBER)]
    return table(
        columns,
        (
            (s.source, s.collective_calls, s.collective_ns / 1e6, _two(s.percent))
            for s in shares[:_MOST_TEXTS]
        ),
    )


def _family_table(share: Share) -> Table:
    columns = [("family", TEXT), ("calls", NUMBER), ("time ms", NUMBER), ("% GPU time", NUMBER)]
    return table(
        columns,
        (
            (family.family, family.calls, family.total_ns / 1e6, _two(family.percent))
            for family in share.families
        ),
    )


def _kernel_table(share: Share) -> Table:
    columns = [
        ("collective kernel", NAME),
        ("calls", NUMBER),
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
    )


def _two(percentage: float | None) -> str | None:
    return None if percentage is None else f"{percentage:.2f}"


def _transports(report: Report) -> Iterable[str | Table]:
    if report.transports:
        columns = [
            ("transport", TEXT),
            ("net", TEXT),
            ("GDR", TEXT),
            ("pairs", NUMBER),
            ("channels", NUMBER),
            ("intra-node pairs", NUMBER),
            ("inter-node pairs", NUMBER),
            ("unknown", NUMBER),
        ]
        yield table(
            columns,
            (
                (t.transport, t.net, t.gdr, t.pairs, t.channels, *_places(t))
                for t in report.transports
            ),
        )
    else:
        yield "Transports: no channel lines in the sources."
    facts = [fact for fact in report.facts if fact.kind.startswith(_ABOUT_TRANSPORT)]
    if facts:
        shown = ((f.kind, f.value, f.count) for f in facts[:_MOST_TEXTS])
        yield table([("library says", TEXT), ("value", TEXT), ("times", NUMBER)], shown)
        yield from _more(len(facts), "statement")
    if report.settings:
        settings = ((s.name, s.value, s.origin, s.processes) for s in report.settings[:_MOST_TEXTS])
        names = [("setting", TEXT), ("value", TEXT), ("from", TEXT), ("processes", NUMBER)]
        yield table(names, settings)
        yield from _more(len(report.settings), "setting")


def _places(row: TransportRow) -> tuple[int, int, int]:
    return row.intra_node, row.inter_node, row.unknown


def _run(report: Report) -> Iterable[str | Table]:
    header = report.header
    largest = max((row.nranks or 0 for row in report.communicators), default=0)
    which = " in the largest communicator" if header.ranks in (None, largest) else ""
    known = header.ranks or header.processes or header.gpus or header.hosts
    yield (
        f"Run {header.run}: {count(header.ranks, 'rank')}{which}, "
        f"{count(header.processes or None, 'process', 'processes')}, {_gpus(header)}, "
        f"hosts {', '.join(header.hosts) or 'unknown'}."
        if known
        else f"Run {header.run}: its sources name no ranks, processes, GPUs or hosts."
    )
    yield f"Libraries: {', '.join(header.libraries) or 'no version line in the sources'}."
    columns = [("source kind", TEXT), ("dialect", TEXT), ("sources", NUMBER)]
    yield table(columns, ((s.kind, s.dialect, s.sources) for s in header.sources))


def _gpus(header: Header) -> str:
    names = " and ".join(header.gpu_names)
    if header.gpus is None and names:
        return f"GPUs: {names}"
    return count(header.gpus, "GPU") + f" ({names})" * bool(names)


def _coverage(report: Report) -> Iterable[str | Table]:
    coverage = report.coverage
    if report.header.calls:
        yield (
            f"Calls seen on all their ranks: {coverage.calls_complete} of {report.header.calls}; "
            f"by some: {coverage.calls_incomplete}; number of ranks unknown: "
            f"{coverage.calls_unknown}."
        )
    if coverage.sources:
        columns = [
            ("source", PATH),
            ("lines", NUMBER),
            ("parsed", NUMBER),
            ("ignored", NUMBER),
            ("foreign", NUMBER),
            ("damaged", NUMBER),
        ]
        yield table(
            columns,
            (
                (s.source, s.lines, s.parsed, s.ignored, s.foreign_lines, s.damaged)
                for s in coverage.sources[:_MOST_TEXTS]
            ),
        )
        yield from _more(len(coverage.sources), "source")
    if coverage.diagnostics:
        names = [("diagnostic", TEXT), ("code", TEXT), ("count", NUMBER), ("message", TEXT)]
        yield table(
            names,
            ((d.severity, d.code, d.count, d.message) for d in coverage.diagnostics[:_MOST_TEXTS]),
        )
        yield from _more(len(coverage.diagnostics), "diagnostic")
    for gap in coverage.gaps:
        yield f"Not known: {gap.question}. To know it: {gap.remedy}."


def _more(number: int, what: str) -> Iterable[str]:
    if number > _MOST_TEXTS:
        yield f"{count(number - _MOST_TEXTS, f'more {what}')} not shown."
