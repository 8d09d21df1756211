"""Rules about the sources of a run: other jobs, or one job twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from collscope.reports.report.answer import Evidence, Finding, Report
from collscope.reports.share.rocprof_files import again
from collscope.timeline.tolerances import MAX_STEP_RATIO
from collscope.units import count

_MOST_NAMED = 3
_LOGS_OF_ONE = (
    " The logs are joined to the traces of this one alone. To join them to others, ingest those and"
    " the logs with --run NAME."
)

# Per diagnostic: title, what it counts, detail.
_SEVERAL = {
    "several_jobs": (
        "more than one job in this run: {} with several processes",
        "GPU",
        "Processes with different pids used the same GPU for communicators of their own. Calls,"
        " bytes and settings below are those of all these jobs (or starts of one job) together.",
    ),
    "rank_traced_twice": (
        "two jobs or periods in this run: {} left out",
        "trace",
        "Their rank already has a trace. Shares, waiting and overlap are those of the first trace"
        " of each rank, listed under Share of GPU time.",
    ),
    "pauses": (
        "{} of all ranks in the traces, as between two profiled periods in one file",
        "pause",
        "Steps are those of the longest part without a pause, and no pause counts as idle time. All"
        " other times and counts are of all parts together.",
    ),
}

# Per diagnostic: title and advice.
_DOUBTS = {
    "copied_trace": (
        "one trace is there twice, as two ranks",
        "Ingest each rank's own file into a new run (--run NAME).",
    ),
    "no_collective": (
        "no collective is recognised in the traces",
        "If the job has some, name their kernels at ingest (--collective 'REGEX=Operation')."
        " ProfilerActivity.CPU tells those of torch.distributed whatever their kernels are called,"
        " but none that another library launches. Until then shares, waiting and gains say nothing"
        " of them.",
    ),
    "like_collectives": (
        "kernels that behave like collectives count as compute",
        "Look what they are. If they are collectives, ingest again into a new run (--run NAME) with"
        " these options, each with its operation. Until then shares, waiting and gains say nothing"
        " of them.",
    ),
    "may_be_collectives": (
        "kernels that may be collectives count as compute",
        "If they are some, name them at ingest (--collective 'REGEX=Operation'). Until then shares,"
        " waiting and gains say nothing of them.",
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
            advice="Trace the job again, and ingest the files as the profiler wrote them: what"
            " shrinks, merges or converts traces may have changed them.",
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
        advice="Start every rank with the same library, or give other jobs a run of their own"
        " (--run NAME).",
        evidence=tuple(
            Evidence(row.source, None, version) for version, row in sorted(versions.items())
        ),
    )


def several_jobs(report: Report) -> Iterable[Finding]:
    """Processes that share a GPU, or traces that share a rank: of more than one job or period."""
    for row in report.coverage.diagnostics:
        if row.code in _SEVERAL:
            title, counted, detail = _SEVERAL[row.code]
            yield Finding(
                severity="warning",
                code=row.code,
                title=title.format(count(row.count, counted)),
                detail=detail,
                advice="Give each job and each profiled period a run of its own (--run NAME).",
            )


def unlike_traces(report: Report) -> Iterable[Finding]:
    """Traces without a common collective that no one job can have in one period.

    Steps of one job are of one length on all its ranks, whatever groups they are in. And where all
    ranks have a trace, a collective of all of them is in two traces at least.
    """
    said = report.timeline
    component = {clock.rank: clock.component for clock in said.clocks}
    sets = len(set(component.values()))
    if sets < 2:
        return
    steps: dict[int, float] = defaultdict(float)
    for row in said.steps:
        if row.rank in component and not said.cut:
            at = component[row.rank]
            steps[at] = max(steps[at], row.mean_ns)
    least, most = min(steps.values(), default=1.0), max(steps.values(), default=1.0)
    differ = most > MAX_STEP_RATIO * least
    joint = said.traced is None and any(
        row.ranks_seen == len(component) and any(used.op.synchronises for used in row.ops)
        for row in report.communicators
    )
    if not differ and not joint:
        return
    what = f"No collective of one set of ranks was found in the traces of another ({sets} sets)."
    if differ:
        what += (
            f" A step takes {least / 1e6:.2f} ms in one of them, {most / 1e6:.2f} ms in another:"
            f" {most / least:.1f} x."
        )
    yield Finding(
        severity="warning",
        code="unlike_traces",
        title="the ranks' traces share no collective: traces of two jobs?",
        detail=what,
        advice="If so, give each job a run of its own (--run NAME): the figures of this report mix"
        " them. If it is one job, trace the same steps on every rank.",
    )


def traces_apart(report: Report) -> Iterable[Finding]:
    """Traces far apart in time, of which nothing tells whether they are of one start."""
    for row in report.coverage.diagnostics:
        if row.code == "traces_apart":
            yield Finding(
                severity="warning",
                code="traces_apart",
                title="the traces lie far apart in time: of two starts of the job?",
                detail=f"{row.message[:1].upper()}{row.message[1:]}.",
                advice="Compare the dates of the files.",
            )


def doubtful_traces(report: Report) -> Iterable[Finding]:
    """Traces that cannot be of a job as they are: a copied rank, ranks that never meet."""
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
        title=f"{others} beside this one",
        detail=f"Each is a run of its own. {held}." + _LOGS_OF_ONE * logs,
        advice="collscope report --run NAME shows one of them, collscope compare two.",
    )


def logged_twice(report: Report) -> Iterable[Finding]:
    """Processes of which two logs hold calls on the same communicator."""
    for row in report.coverage.diagnostics:
        if row.code == "process_in_two_logs":
            yield Finding(
                severity="warning",
                code="logged_twice",
                title=f"more than one log of {count(row.count, 'process', 'processes')}",
                detail=f"{row.message[:1].upper()}{row.message[1:]}.",
                advice="If one log is a copy of others (a shared stdout beside a file per"
                " process), ingest it into a run of its own (--run NAME).",
            )


def totals_beside_trace(report: Report) -> Iterable[Finding]:
    """Files of totals that rocprofv3 wrote beside the traces of the same process."""
    beside = again(row.source for row in report.coverage.sources if row.kind == "profile")
    counted = {share.source for share in report.shares}
    left_out = [totals for totals, trace in beside.items() if trace in counted]
    if not left_out:
        return
    yield Finding(
        severity="note",
        code="totals_beside_trace",
        title=f"{count(len(left_out), 'file')} of totals left out beside the trace of the same "
        "process",
        detail="Shares and times are those of the trace, which has the same kernels.",
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
