"""Why a step of one traced run takes longer than one of another: the answer for two runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collscope.errors import InputError, NoVerdictError, UsageError
from collscope.ingest.match import reading
from collscope.model import CollectiveClass
from collscope.reports.compare.sides import Runs, name_traced_runs
from collscope.reports.compare.step_samples import classes_with_transfers
from collscope.reports.waiting.traced_run import read_facts, read_traced_run
from collscope.timeline.explanation.explain import ExplainedPart, Explanation, explain
from collscope.timeline.recorded_job import RecordedJob
from collscope.timeline.records import ChangedClass
from collscope.timeline.step_causes.diagnose import diagnose
from collscope.timeline.step_causes.kernels import ChangedKernel, kernel_changes
from collscope.timeline.step_causes.records import Cause, RunCause
from collscope.timeline.unprofiled import StepRatio, step_ratio
from collscope.units import count, format_size

SCHEMA = "collscope.explain/2"


class ExplainedRun(msgspec.Struct, frozen=True):
    """One of the two runs; ns a step."""

    run: str  # label of the run
    step_ns: int  # step as recorded, with the profiler
    steps: int  # that this is the mean of
    cpu_activities: bool  # the profiler recorded them, too: a slower host
    # Simulated step with all parts of the other run; it should equal the other run's step.
    reached_ns: float
    unprofiled_ns: float  # step at the middle of the assumed profiler overhead
    unprofiled_low_ns: float  # least step without the profiler, over runs with equal settings
    unprofiled_high_ns: float  # greatest
    # of compute that overlaps collectives, a ratio minus one; None: not in the traces
    slowdown: float | None
    alone_ns: float  # kernels and copies that only this run has, the mean over the ranks
    unswapped_ns: float  # exposed time of collectives whose transfers could not be swapped
    # process groups of some of the ranks without a name in the traces: inferred from the ranks
    # whose calls end together
    groups_inferred: int
    # thread blocks of its collectives' kernels, the median by time; None: not in the traces
    blocks: float | None


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The difference of two steps; the parts and the remainder sum to it. ns a step."""

    schema: str = SCHEMA
    store: str  # path of the store that both runs are in
    first: ExplainedRun  # the reference
    second: ExplainedRun  # what is explained
    difference_ns: int  # step of the second run minus step of the first
    # step of the second / step of the first, without the profiler, with run-to-run variation, as
    # in `compare`; None: a run has a single step
    unprofiled_ratio: StepRatio | None
    parts: tuple[ExplainedPart, ...]  # host, compute, collectives, arrivals, profiler
    remainder_ns: int  # unexplained
    # time of the second's host work / the first's, mean over the ranks; None: not known
    host_pace: float | None
    # One run does not show it: compute alone is assumed to be equally fast in both.
    slowdown_assumed: bool
    # whose transfers were swapped, the largest change first; old: in the first run. Times of a call
    # are those of `check`: the mean in each step, then the median over the steps
    classes: tuple[ChangedClass, ...]
    causes: tuple[RunCause, ...] = ()  # of either run, as `report` names them; the second's first
    kernels: tuple[ChangedKernel, ...] = ()  # that differ by over 1 % of a step, on each rank
    unmatched: tuple[str, ...]  # classes of either run whose transfers could not be swapped


def explain_runs(db: Path, names: Sequence[str]) -> Explained:
    """Explain the step of the second run by the first's.

    raises  UsageError where there are not two runs; InputError where they are not traced, or of
            different ranks; NoVerdictError where one has no steps, or they may be different jobs
    """
    if len(names) != 2 or len(set(names)) != 2:
        raise UsageError(
            f"compare --explain: {count(len(set(names)), 'run')} named. Name two traced runs."
        )
    if not name_traced_runs(db, names, Runs()):
        raise InputError(
            f"compare --explain: {' and '.join(map(repr, names))} are not both traced runs. Ingest"
            " the traces of each with collscope ingest trace --run."
        )
    with reading(db) as store:
        traced = [read_traced_run(store, db, name) for name in names]
        first, second = (run.recorded() for run in traced)
        diagnosed = [
            diagnose(run.timeline, read_facts(store, name), steps=run.steps)[0].causes
            for run, name in zip(traced, names, strict=True)
        ]
    if first.rows.ranks != second.rows.ranks:
        ranks = (",".join(map(str, r.rows.ranks)) for r in (first, second))
        raise InputError(
            f"compare --explain: the traces are of different ranks ({' and '.join(ranks)}). Ingest"
            " traces of the same ranks."
        )
    for name, recorded in zip(names, (first, second), strict=True):
        if recorded.steps.source == "window":
            raise NoVerdictError(
                f"compare --explain: no step recurs in the traces of '{name}'. Record several"
                " steps."
            )
    found = explain(first, second)
    if found is None:
        raise NoVerdictError("compare --explain: the traces hold no step. Record several steps.")
    answer = explained(db, names, (first, second), found)
    return replace(
        answer,
        classes=tuple(_with_times_of_check(answer.classes, first, second)),
        causes=tuple(_of_either(names, diagnosed)),
        kernels=kernel_changes(first, second),
    )


def _with_times_of_check(
    classes: Sequence[ChangedClass], first: RecordedJob, second: RecordedJob
) -> Iterator[ChangedClass]:
    """Classes with the transfer of a call as `check` and `compare` have it, where both do."""
    before, after = (
        classes_with_transfers("", run, [run.calls.classes[k] for k in run.calls.class_])[0]
        for run in (first, second)
    )
    for row in classes:
        key = replace(row.collective_class, count=None)
        if key in before and key in after:
            times = before[key].samples.time_ns, after[key].samples.time_ns
            yield replace(row, old_ns=times[0], new_ns=times[1])
        else:
            yield row


def _of_either(names: Sequence[str], causes: Sequence[tuple[Cause, ...]]) -> Iterator[RunCause]:
    """Causes of two runs; those of the second come first."""
    for own, other in ((1, 0), (0, 1)):
        there = {(c.cause, c.ranks) for c in causes[other]}
        for cause in causes[own]:
            yield RunCause(names[own], (cause.cause, cause.ranks) in there, cause)


def explained(
    db: Path, names: Sequence[str], recorded: tuple[RecordedJob, RecordedJob], found: Explanation
) -> Explained:
    """The explanation of two runs of these names in the store `db`.

    raises  NoVerdictError where they may be different jobs
    """
    if not found.alike:
        raise NoVerdictError(
            f"compare --explain: '{names[0]}' and '{names[1]}' have no collectives in common, and"
            " most of their kernels differ. They may be different jobs. Name two runs of one job."
        )
    one, other = (
        ExplainedRun(
            run=name,
            step_ns=(found.first_ns, found.second_ns)[k],
            steps=int(run.steps.count.max()),
            cpu_activities=run.full,
            reached_ns=found.reached[k],
            unprofiled_ns=found.unprofiled[k].middle,
            unprofiled_low_ns=found.unprofiled[k].ends[0],
            unprofiled_high_ns=found.unprofiled[k].ends[1],
            slowdown=run.contention.mean,
            alone_ns=(found.alone_first, found.alone_second)[k],
            unswapped_ns=found.unswapped[k],
            groups_inferred=run.groups_inferred,
            blocks=run.blocks,
        )
        for k, (name, run) in enumerate(zip(names, recorded, strict=True))
    )
    return Explained(
        store=str(db),
        first=one,
        second=other,
        difference_ns=found.second_ns - found.first_ns,
        unprofiled_ratio=step_ratio(*found.unprofiled),
        parts=found.parts,
        remainder_ns=found.remainder_ns,
        host_pace=found.pace,
        slowdown_assumed=found.slowdown_assumed,
        classes=found.classes,
        unmatched=tuple(map(_named, found.unmatched)),
    )


def _named(key: CollectiveClass) -> str:
    size = "" if key.size_bytes is None else f" {format_size(key.size_bytes)}"
    ranks = "" if key.nranks is None else f" on {count(key.nranks, 'rank')}"
    return f"{key.kind}{size}{ranks}"
