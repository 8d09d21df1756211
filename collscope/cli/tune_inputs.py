"""What `collscope tune` is given: the plan, the job's own setting, its time, and roofs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collscope.errors import UsageError
from collscope.ingest.progress import Progress
from collscope.model import Op
from collscope.model.note import Note
from collscope.replay import command
from collscope.replay.build import Planned
from collscope.replay.select import weights
from collscope.replay.session import Session
from collscope.replay.variants import parse_variant
from collscope.reports.efficiency.time_breakdown import fractions_of
from collscope.reports.rendering.share_words import fraction_words
from collscope.reports.share.answer import read_shares
from collscope.roofline.catalogue import load_system
from collscope.roofline.system_roofs import SystemRoofs
from collscope.roofline.workload import RoofAt, Workload
from collscope.tuning.logged_job import LoggedJob, read_logged_job
from collscope.tuning.records import JobTime, Variable
from collscope.tuning.settings import (
    KNOBS,
    Setting,
    TuningTarget,
    may_come_from_logs,
    other_settings,
    pair_settings,
    read_setting,
)
from collscope.tuning.state import CHANNELS, TuningRequest

# Of a job's other variables these change which algorithms there are, or which way data goes: they
# hold for every launch. Interfaces and devices are left to the machine that measures.
_KEPT = (
    "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL",
    "NCCL_SHM_DISABLE", "NCCL_NET_GDR_LEVEL", "NCCL_PXN_DISABLE", "NCCL_IB_DISABLE",
)  # fmt: skip
# What names files or libraries and changes the way of the data: no log sets it here.
_FILES = (
    "NCCL_NET_PLUGIN", "NCCL_ENV_PLUGIN", "NCCL_CONF_FILE", "NCCL_TOPO_FILE",
    "NCCL_GRAPH_FILE", "LD_PRELOAD",
)  # fmt: skip


class TuneOptions(msgspec.Struct, frozen=True):
    """Options of the command line."""

    source: command.Source
    choice: command.Choice
    session: Session
    candidates: tuple[str, ...]
    named: str | None  # --try
    system: str | None
    step_ms: float | None
    steps: int
    out: Path
    label: str | None
    time_limit_s: float
    seed: int


def make_request(
    options: TuneOptions, progress: Progress
) -> tuple[TuningRequest, tuple[Note, ...]]:
    """What to tune, and remarks on what the plan leaves out.

    raises  UsageError for words that cannot be read; InputError for an unusable source
    """
    _named_once(options.candidates)
    every_class, job, time = _read(options, progress)
    planned = command.choose(every_class, options.choice)
    given = dict(options.session.environment)
    logged = {k: v for k, v in job.variables.items() if may_come_from_logs(k, v)}
    left_out = tuple(
        k for k in (*KNOBS, *_KEPT) if k in job.variables.keys() - logged.keys() - given.keys()
    )
    present = _present(given, logged)
    kept = {k: v for k, v in logged.items() if k in _KEPT} | {
        k: v for k, v in given.items() if k not in KNOBS
    }
    for name in _KEPT:
        if name in os.environ:
            kept.setdefault(name, os.environ[name])
    request = TuningRequest(
        planned.plan,
        planned.class_ids,
        replace(options.session, environment=()),
        present,
        left_out,
        tuple(sorted(kept.items())),
        tuple(_candidate(text) for text in options.candidates),
        _named(options.named),
        _time(options, _part(time, every_class, planned)),
        {} if options.system is None else _roofs(options.system, planned),
        None if options.system is None else load_system(options.system),
        job.seen,
        job.library,
        job.nnodes,
        options.out,
        options.source.db,
        options.source.run,
        job.settings_logged,
        job.blocks,
        options.label or "",
        options.time_limit_s,
        options.seed,
    )
    loaded = tuple(name for name in _FILES if name in job.variables.keys() - given.keys())
    of_plan = (Note("plan", {}, text) for text in planned.notices)
    return request, (*of_plan, *_left_out_notes((*left_out, *loaded)))


def _read(options: TuneOptions, progress: Progress) -> tuple[Planned, LoggedJob, JobTime]:
    if options.source.plan is not None:
        planned = command.make_plan(options.source, progress)
        return planned, LoggedJob({}, frozenset()), JobTime()
    with command.open_run(options.source, progress) as connection:
        planned = command.plan_of_run(connection, options.source)
        run = options.source.run
        return planned, read_logged_job(connection, run), _fraction(connection, run)


def _fraction(connection: sqlite3.Connection, run: str) -> JobTime:
    shares = read_shares(connection, run)
    found = fractions_of(connection, run, shares)
    if len(found) != 1:  # the profiles of several jobs: none is known to be of this one
        return JobTime()
    (known,) = found
    exposed = 1.0 if known.exposure is None else known.exposure
    # A replay has no waiting, so its times stand for the transfers of the job.
    transfers = known.value * (1 - known.waiting)
    what = "transfers of collectives" if known.waiting else "collectives"
    basis = f"{100 * transfers:.3g} % of {fraction_words(known, shares)} are {what}"
    return JobTime(None, transfers, exposed, basis)


def _part(time: JobTime, every_class: Planned, chosen: Planned) -> JobTime:
    """The fraction of the classes chosen, by what all of them weigh in the job."""
    weight = weights(every_class)
    total = sum(weight.values())
    if time.fraction is None or len(chosen.plan.classes) == len(weight) or not total:
        return time
    part = sum(weight[c.id] for c in chosen.plan.classes) / total
    basis = f"{time.basis}, {100 * part:.3g} % of that these classes"
    return replace(time, fraction=part * time.fraction, basis=basis)


def _time(options: TuneOptions, stored: JobTime) -> JobTime:
    """The step time where it is given; what is exposed is the traces' to say."""
    if options.step_ms is None:
        return stored
    time_ns = 1e6 * options.step_ms * options.steps
    steps = "a step" if options.steps == 1 else f"{options.steps} steps"
    basis = f"{steps} of {options.step_ms:g} ms (--step-ms)"
    return replace(stored, time_ns=time_ns, basis=basis)


def _present(given: Mapping[str, str], logged: Mapping[str, str]) -> tuple[Variable, ...]:
    """The job's knobs: as given, else as its logs say, else as in this shell."""
    origins = (("--env", given), ("logs", logged), ("shell", os.environ))
    found = []
    for knob in KNOBS:
        known = next(((o, where[knob]) for o, where in origins if knob in where), None)
        if known is not None and known[1]:  # --env NAME= means that the job does not set it
            found.append(Variable(knob, known[1], known[0]))
    return tuple(found)


def _left_out_notes(names: Sequence[str]) -> tuple[Note, ...]:
    """A remark on what the logs set and the ranks do not get."""
    if not names:
        return ()
    left_out = Note(
        "variables_left_out",
        {"variables": tuple(names)},
        f"set in the logs, but not for these measurements: {', '.join(names)}. A log must not "
        "choose files that the ranks load, or numbers that the library does not accept: give "
        "what the job needs with --env NAME=VALUE",
    )
    return (left_out,)


def _candidate(text: str) -> Setting:
    """A setting of the user's own: ``NAME:VAR=VALUE,…``."""
    variant = parse_variant(text)
    if variant.library or variant.runtime:
        raise UsageError(
            f"candidate '{text}': names a library. Compare libraries with replay --variant."
        )
    if not variant.environment:
        raise UsageError(f"candidate '{text}': sets nothing. Write for instance a:NCCL_ALGO=Ring.")
    if variant.label in ("present", "default", "tuned"):
        raise UsageError(f"candidate '{text}': the name is taken. Choose another one.")
    return read_setting(variant.label, variant.environment)


def _named(text: str | None) -> frozenset[str] | None:
    """Settings of ours that are asked for by name, `ring/ll128,nvls/simple,channels`.

    raises  UsageError for a name that no library has
    """
    if text is None:
        return None
    names = frozenset(name.strip() for name in text.split(","))
    place = TuningTarget("nccl")
    every = [*pair_settings(place), *other_settings(place, [Op.ALL_TO_ALL], 2)]
    known = [CHANNELS, *(s.name for s in every)]
    unknown = sorted(names - set(known))
    if unknown:
        raise UsageError(f"--try {unknown[0]}: unknown. Choose from {', '.join(known)}.")
    return names


def _roofs(system: str, planned: Planned) -> dict[int, float]:
    """Roof of each class of the plan that has one, us."""
    roofs = SystemRoofs(system)
    nranks = {c.id: len(c.ranks) for c in planned.plan.comms}
    found = {}
    for c in planned.plan.classes:
        n = nranks[c.comms[0]]
        roof = roofs.at(Workload(c.op, c.size(n), n), nodes_known=False)
        if isinstance(roof, RoofAt):
            found[c.id] = roof.time_ns / 1000
    return found


def _named_once(texts: Sequence[str]) -> None:
    """Refuse two candidates of one name.

    raises  UsageError
    """
    names = [text.partition(":")[0] for text in texts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"candidate '{twice}': named twice. Give each its own name.")
