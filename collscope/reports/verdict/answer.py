"""What makes the steps of a run long, and what each cause costs.

Numbers and codes of `collscope.timeline.step_causes`, with what the run's logs show.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec.structs import replace

from collscope.errors import InputError
from collscope.reports.coverage.answer import traced_gpus
from collscope.units import require_step_like

if TYPE_CHECKING:
    from collscope.model import CollectiveClass
    from collscope.reports.waiting.traced_run import TracedRun
    from collscope.timeline.recorded_job import RecordedJob
    from collscope.timeline.step_causes.records import Cause, Diagnosis

_TRACES = "SELECT COUNT(*) FROM traces WHERE run = ? AND used"
_TIMED = "SELECT 1 FROM recorded_windows WHERE run = ?"
# Kernels that may be collectives count as compute, or rows of the traces are missing or doubtful:
# what bounds a step is not known then.
KERNELS_IN_DOUBT = ("no_collective", "like_collectives", "may_be_collectives")
BOUND_IN_DOUBT = (*KERNELS_IN_DOUBT, "kernels_lost", "idle_while_queued")
_CODES = "SELECT DISTINCT code FROM diagnostics WHERE run = ?"
_DEFAULT_DB, _DEFAULT_RUN = "collscope.db", "main"
CODES = (
    "late_host", "extra_work", "slow_gpu", "uneven_work", "blocking_sync", "small_calls",
    "slow_setting", "slow_transport", "slow_transfer", "contention", "host_bound", "no_overlap",
    "pipeline_bubble", "periodic", "profiler", "none", "unknown",
)  # fmt: skip
"""Every cause that a verdict may name; docs/causes.md has the rule of each."""


class MsPerStep(msgspec.Struct, frozen=True):
    """What a step is shorter by in a start without the cause, in ms; null: not known.

    The range holds what two starts differ by, too.
    """

    value: float | None  # the likely one
    low: float | None  # end of its range
    high: float | None


class VerdictEntry(msgspec.Struct, frozen=True):
    """One cause, in words where a person reads it."""

    cause: Annotated[str, CODES]
    certainty: Annotated[str, ("certain", "likely")]
    ranks: tuple[int, ...]  # world ranks that have it, sorted; empty: no particular one
    where: str  # in the step
    ms_per_step: MsPerStep
    evidence: str  # what the recording shows
    advice: str  # what to do


class StepSummary(msgspec.Struct, frozen=True):
    """The steps that the causes were looked for in."""

    recorded_ms: float | None  # mean of the whole steps; null: the traces have none
    given_ms: float | None  # without the profiler, as given
    steps: int  # whole ones
    ranks: int  # with a trace
    world: int | None  # ranks of the job; null: not known
    cpu_activities: bool  # the traces hold these, too
    # what most of the step's longest path is; null: not known
    bound: Annotated[str | None, ("host", "compute", "collective", "waiting", None)]
    bound_percent: float | None  # of the step
    look: str  # command that writes the steps for ui.perfetto.dev
    kernels_in_doubt: bool = False  # kernels that may be collectives count as compute
    sizes_unknown: bool = False  # of the calls that transfer for most of the time
    # command that gives the verdict of the hang; null: the recordings show none
    hang: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """The causes of a run's long steps.

    unknown  why there is no verdict: no_traces, no_compute, no_steps, contradiction,
             idle_while_queued; None: it can
    """

    step: StepSummary
    causes: tuple[Cause, ...] = ()
    unknown: str | None = None


def find_answer(
    connection: sqlite3.Connection,
    run: str,
    *,
    step_ms: float | None = None,
    system: str | None = None,
) -> Answer:
    """Read a run's traces and logs, and name the causes.

    connection  an open store
    step_ms     the step without the profiler, ms; None: not measured
    system      whose reachable speed the calls are held against; None: that of the traced GPUs
    raises      UsageError when `step_ms` cannot be the recorded step's
    """
    db = _path(connection)
    step = StepSummary(None, step_ms, 0, 0, None, False, None, None, _look(db, run))
    if not connection.execute(_TRACES, (run,)).fetchone()[0]:
        timed = connection.execute(_TIMED, (run,)).fetchone()
        return Answer(step, unknown="no_compute" if timed else "no_traces")
    # numpy: a run without traces is answered without it.
    from collscope.timeline.step_bounds import recorded_bounds  # noqa: PLC0415

    try:
        found, recorded = read_diagnosis(connection, run, step_ms=step_ms, system=system)
    except InputError:
        return Answer(step, unknown="contradiction")
    rows = recorded.rows
    step = replace(
        step, ranks=len(rows.ranks), world=rows.world_size, cpu_activities=recorded.full,
        steps=found.steps,
    )  # fmt: skip
    if found.step_ns is None:
        return Answer(step, unknown="no_steps")
    require_step_like(step_ms, found.step_ns)
    kinds: dict[str, float] = {}
    for bound in recorded_bounds(recorded):
        kinds[bound.kind] = kinds.get(bound.kind, 0.0) + bound.ns
    most = max(kinds, key=kinds.__getitem__, default=None)
    codes = {code for (code,) in connection.execute(_CODES, (run,))}
    step = replace(
        step, kernels_in_doubt=not codes.isdisjoint(KERNELS_IN_DOUBT),
        sizes_unknown=_sizes_unknown(recorded),
    )  # fmt: skip
    if most is not None and codes.isdisjoint(BOUND_IN_DOUBT):
        percent = 100 * kinds[most] / max(1.0, sum(kinds.values()))
        step = replace(step, bound=most, bound_percent=percent)
    if not found.causes and "idle_while_queued" in codes:
        return Answer(step, unknown="idle_while_queued")
    return Answer(replace(step, recorded_ms=found.step_ns / 1e6), found.causes)


def _sizes_unknown(recorded: RecordedJob) -> bool:
    """Whether calls of unknown size transfer for most of the time: how fast they are is unknown."""
    calls, transfer = recorded.linked, recorded.graph.transfer
    of_call = calls.class_[calls.call_of_part]
    unknown = [k for k, key in enumerate(calls.classes) if key.size_bytes is None]
    spent = sum(int(transfer[of_call == k].sum()) for k in unknown)
    return 2 * spent > int(transfer.sum())


def read_diagnosis(
    connection: sqlite3.Connection, run: str, *, step_ms: float | None, system: str | None = None
) -> tuple[Diagnosis, RecordedJob]:
    """The causes of a traced run with their places, and the job.

    raises  InputError when the run has no traces, or these contradict themselves
    """
    from collscope.reports.efficiency.answer import links_of, traced_system  # noqa: PLC0415
    from collscope.reports.waiting.traced_run import read_facts, read_traced_run  # noqa: PLC0415
    from collscope.timeline.step_causes.diagnose import diagnose  # noqa: PLC0415

    traced = read_traced_run(connection, _path(connection), run)
    known = system or traced_system(connection, run)
    direct, nvls = links_of(known)
    facts = replace(
        read_facts(connection, run), reachable=_reachable(connection, run, traced, known),
        direct=direct, nvls=nvls,
    )  # fmt: skip
    given = None if step_ms is None else step_ms * 1e6
    return diagnose(traced.timeline, facts, steps=traced.steps, step_ns=given)


def _path(connection: sqlite3.Connection) -> Path:
    """File of an open store; SQLite gives it as UTF-8, whatever this system's names are in."""
    (name, *_) = (row[2] for row in connection.execute("PRAGMA database_list"))
    return Path(os.fsdecode(name.encode()))


def _reachable(
    connection: sqlite3.Connection, run: str, traced: TracedRun, known: str | None
) -> dict[CollectiveClass, float]:
    """Ns of a call of each class at the system's reachable speed; of no class: not known."""
    from collscope.reports.predict.new_times import roof_times  # noqa: PLC0415 - numpy

    if known is None or known == "fit":
        return {}
    times = roof_times(known, traced.rows, traced_gpus(connection, run))
    return {key: time.time_ns for key, time in times.times.items()}


def _look(db: Path, run: str) -> str:
    """The command that shows the steps; it runs where this one did."""
    words = ["collscope", "export", "perfetto", *_db_option(db)]
    words += ["--run", run] if run != _DEFAULT_RUN else []
    return shlex.join([*words, "-o", "trace.json.gz"])


def hang_command(connection: sqlite3.Connection, run: str) -> str:
    """The command that gives the verdict of a run's hang; it runs where this one did."""
    options = _db_option(_path(connection))
    return shlex.join(["collscope", "hang", *options, "--run", run])


def _db_option(db: Path) -> list[str]:
    """The option that names a store; none for the default."""
    here = Path.cwd()
    if db.resolve() == here / _DEFAULT_DB:
        return []
    return ["--db", str(db.relative_to(here) if here in db.parents else db)]
