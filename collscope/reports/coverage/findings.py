"""Rules about the sources of a run: other jobs, or one job twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from collscope.reports.report.answer import Evidence, Finding, Report
from collscope.reports.share.rocprof_files import totals_shadowed_by_traces
from collscope.timeline.tolerances import MAX_STEP_RATIO
from collscope.units import count

_MOST_NAMED = 3
_LOGS_OF_ONE = (
    " The logs are joined to the traces of this run only. To join them to other runs, ingest "
    "those traces and the logs with --run NAME."
)

# Per diagnostic: title, what it counts, detail.
_SEVERAL = {
    "several_jobs": (
        "more than one job in this run: {} used by several processes",
        "GPU",
        "Each of these GPUs was used by several processes, for separate communicators.{} Calls, "
        "bytes and settings below cover all these jobs (or starts of one job) together.",
    ),
    "rank_traced_twice": (
        "two jobs or periods in this run: {} left out",
        "trace",
        "Their rank already has a trace. Shares, waiting and overlap use the first trace of "
        "each rank, listed under Share of GPU time.",
    ),
    "pauses": (
        "{} in the traces of all ranks, as between two profiled periods in one file",
        "pause",
        "Steps are taken from the longest part without a pause. Pauses do not count as idle "
        "time. All other times and counts cover all parts.",
    ),
}

# Per diagnostic: title and advice.
_DOUBTS = {
    "copied_trace": (
        "one trace was ingested twice, as two ranks",
        "Ingest each rank's own file into a new run (--run NAME).",
    ),
    "no_collective": (
        "no collective is recognised in the traces",
        "If the job has collectives, name their kernels at ingest (--collective "
        "'REGEX=Operation'). ProfilerActivity.CPU identifies those of torch.distributed, "
        "whatever their kernels are called, but none that another library launches. Until "
        "then, shares, waiting and gains do not include them.",
    ),
    "like_collectives": (
        "kernels that behave like collectives count as compute",
        "Check what they are. If they are collectives, ingest again into a new run (--run "
        "NAME) with these options, naming the operation of each. Until then, shares, waiting "
        "and gains do not include them.",
    ),
    "may_be_collectives": (
        "kernels that may be collectives count as compute",
        "If they are collectives, name them at ingest (--collective 'REGEX=Operation'). "
        "Until then, shares, waiting and gains do not include them.",
    ),
}


def contradictions(report: Report) -> Iterable[Finding]:
    """Traces that contradict themselves, so that times or steps are not known."""
    for one in report.timeline.withheld:
        lost = "the step time is" if one.steps_only else "times are"
        yield Finding(
            severity="problem",
            code="contradictions",
            title=f"the traces contradict themselves, so {lost} not known: {one.code}"
            f" ({count(one.count, 'time')})",
            detail=one.words,
            advice="Trace the job again, and ingest the files as the profiler wrote them. Tools "
            "that shrink, merge or convert traces may have changed them.",
            evidence=(Evidence(one.source, None, one.first),) if one.source else (),
        )


def library_differs(report: Report) -> Iterable[Finding]:
    """Sources that name different libraries or versions."""
    versions = {
        f"{row.library} {row.library_version}": row
        for row in reversed(report.coverage.sources)
        if row.library and row.library_version
    }
    # "rccl 2.26.6" of a table or trace is "rccl 2.26.6-HEAD:f224e2c" of a log.
    versions = {
        name: row
        for name, row in versions.items()
        if not any(longer.startswith(name + "-") for longer in versions)
    }
    if len(versions) < 2:
        return
    yield Finding(
        severity="warning",
        code="library_differs",
        title=f"{len(versions)} different library versions in one run",
        detail=", ".join(sorted(versions)) + ".",
        advice="Start every rank with the same library, or give each job its own run (--run NAME).",
        evidence=tuple(
            Evidence(row.source, None, version) for version, row in sorted(versions.items())
        ),
    )


def several_jobs(report: Report) -> Iterable[Finding]:
    """Processes that share a GPU, or traces that share a rank: of more than one job or period."""
    for row in report.coverage.diagnostics:
        if row.code in _SEVERAL:
            title, counted, detail = _SEVERAL[row.code]
            # As many processes would not suffice if each used one GPU.
            processes, gpus = report.header.processes, report.header.gpus or 0
            few = row.count <= gpus and 1 < processes < gpus + row.count
            yield Finding(
                severity="warning",
                code=row.code,
                title=title.format(count(row.count, counted)),
                detail=detail.format(" At least one process used several GPUs." * few),
                advice="Give each job and each profiled period its own run (--run NAME).",
            )


def unlike_traces(report: Report) -> Iterable[Finding]:
    """Traces without a common collective that no one job can have in one period.

    Steps of one job are of one length on all its ranks, whatever groups they are in. And where all
    ranks have a trace, a collective of all of them is in two traces at least.
    """
    timeline = report.timeline
    component = {clock.rank: clock.component for clock in timeline.clocks}
    sets = len(set(component.values()))
    if sets < 2:
        return
    steps: dict[int, float] = defaultdict(float)
    for row in timeline.steps:
        if row.rank in component and not timeline.cut:
            at = component[row.rank]
            steps[at] = max(steps[at], row.mean_ns)
    least, most = min(steps.values(), default=1.0), max(steps.values(), default=1.0)
    differ = most > MAX_STEP_RATIO * least
    joint = timeline.traced is None and any(
        row.ranks_seen == len(component) and any(used.op.synchronises for used in row.ops)
        for row in report.communicators
    )
    if not differ and not joint:
        return
    what = f"The {sets} sets of ranks share no collective in their traces."
    if differ:
        what += (
            f" A step takes {least / 1e6:.2f} ms in one set, {most / 1e6:.2f} ms in another: "
            f"{most / least:.1f} x."
        )
    yield Finding(
        severity="warning",
        code="unlike_traces",
        title="the ranks' traces share no collective: are they from two jobs?",
        detail=what,
        advice="If so, give each job its own run (--run NAME): this report mixes their figures. If "
        "it is one job, trace the same steps on every rank.",
    )


def traces_apart(report: Report) -> Iterable[Finding]:
    """Traces far apart in time that may come from two starts."""
    for row in report.coverage.diagnostics:
        if row.code == "traces_apart":
            yield Finding(
                severity="warning",
                code="traces_apart",
                title="the traces are far apart in time: are they from two starts of the job?",
                detail=f"{row.message[:1].upper()}{row.message[1:]}.",
                advice="Compare the dates of the files.",
            )


def doubtful_traces(report: Report) -> Iterable[Finding]:
    """Traces that cannot come from one job: a copied rank, ranks that never meet."""
    for row in report.coverage.diagnostics:
        if row.code in _DOUBTS:
            title, advice = _DOUBTS[row.code]
            yield Finding(
                severity="warning",
                code=row.code,
                title=title,
                detail=f"{row.message[:1].upper()}{row.message[1:]}.",
                advice=advice,
            )


def several_periods(report: Report) -> Iterable[Finding]:
    """Profiled periods or jobs that were read together and have runs of their own."""
    periods = report.timeline.periods
    if not periods:
        return
    others = count(len(periods) - 1, "other period, start or job", "other periods, starts or jobs")
    here = report.header.run
    held = "; ".join(f"{p.run}{' (this one)' * (p.run == here)}: {p.words}" for p in periods)
    logs = any(row.kind == "log" for row in report.coverage.sources)
    yield Finding(
        severity="note",
        code="several_periods",
        title=f"{others} in addition to this one",
        detail=f"Each has its own run. {held}." + _LOGS_OF_ONE * logs,
        advice="collscope report --run NAME shows one of them; collscope compare compares two.",
    )


def logged_twice(report: Report) -> Iterable[Finding]:
    """Processes with two logs that hold calls on the same communicator."""
    for row in report.coverage.diagnostics:
        if row.code == "process_in_two_logs":
            yield Finding(
                severity="warning",
                code="logged_twice",
                title=f"more than one log for {count(row.count, 'process', 'processes')}",
                detail=f"{row.message[:1].upper()}{row.message[1:]}.",
                advice="If one log is a copy (a shared stdout in addition to a file per process), "
                "ingest it into its own run (--run NAME).",
            )


def totals_beside_trace(report: Report) -> Iterable[Finding]:
    """Files of totals that rocprofv3 wrote beside the traces of the same process."""
    beside = totals_shadowed_by_traces(
        row.source for row in report.coverage.sources if row.kind == "profile"
    )
    counted = {share.source for share in report.shares}
    left_out = [totals for totals, trace in beside.items() if trace in counted]
    if not left_out:
        return
    yield Finding(
        severity="note",
        code="totals_beside_trace",
        title=f"{count(len(left_out), 'file')} of totals left out: the same process has a trace",
        detail="Shares and times come from the trace, which has the same kernels.",
        advice="Nothing to do, or ingest the traces alone.",
        evidence=tuple(Evidence(path, None, "") for path in sorted(left_out)[:_MOST_NAMED]),
    )


RULES = (
    contradictions,
    library_differs,
    several_jobs,
    unlike_traces,
    traces_apart,
    doubtful_traces,
    several_periods,
    logged_twice,
    totals_beside_trace,
)
