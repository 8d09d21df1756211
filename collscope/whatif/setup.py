"""What a fusion what-if starts from: layers, candidates, measured times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collscope.errors import InputError, UnreadableError, UsageError
from collscope.ingest.files import open_input
from collscope.ingest.match import reading, require_run
from collscope.model import Datatype, Gap, Measurement
from collscope.model.note import Note
from collscope.replay.names import datatype_named
from collscope.replay.plan import itemsize
from collscope.replay.sweep import sizes_of
from collscope.units import count
from collscope.whatif.layers import Layer, parse_layers
from collscope.whatif.load import RecordedStep, load_measured, load_step
from collscope.whatif.policies import DEFAULT_CAP_BYTES, Bucket, Policy, make_buckets
from collscope.whatif.predict import Production, recorded, uniform
from collscope.whatif.records import BLOCKING, LISTED, OVERLAPPED, QUEUED, REVERSED, FusionRequest
from collscope.whatif.times import AllReduceTimes, make_times, require_alike

_DEFAULT_THRESHOLDS = "64K..256M*2"
_DEFAULT_COUNTS = "1..64*2"
_ISOLATED = "isolated"
_MAIN = "main"
_ANY = "SELECT 1 FROM calls WHERE run = ? AND op = 'AllReduce' LIMIT 1"


class Job(msgspec.Struct, frozen=True):
    """What is reduced in a step, in the order in which it is put into buckets.

    present  buckets of today, and their name
    """

    source: str
    layers: tuple[Layer, ...]
    sizes: tuple[int, ...]  # bytes
    datatype: Datatype
    nranks: int | None
    nnodes: int | None
    order: str
    execution: str
    production: Production | None
    present_name: str
    present: tuple[Bucket, ...]
    notices: tuple[Note, ...]


def make_job(request: FusionRequest) -> Job:
    """The job of a layer list or of a run.

    raises  UsageError for options that exclude each other; InputError for an unusable source
    """
    if request.layers is None and request.run is None and _has_main(request.db):
        request = replace(request, run=_MAIN)
    if (request.layers is None) == (request.run is None):
        raise UsageError("whatif fusion: give either --layers FILE or --run LABEL.")
    if request.queued and request.overlap is not None:
        raise UsageError("whatif fusion: --queued and --overlap exclude each other. Choose one.")
    step = _step(request)
    layers = _layers(request.layers) if step is None else step.layers
    datatype = datatype_named(request.datatype or "float32") if step is None else step.datatype
    order = request.order
    if order is None:
        # A run's calls are in the order of the gradients already.
        order = REVERSED if step is None and request.policy is Policy.TORCH_DDP else LISTED
    if order == REVERSED:
        layers = layers[::-1]
    sizes = tuple(layer.parameters * itemsize(datatype) for layer in layers)
    name, present = _present(sizes, request, recorded=step is not None)
    production = _production(request, step, sizes)
    return Job(
        f"run '{request.run}'" if step is not None else str(request.layers),
        layers,
        sizes,
        datatype,
        request.nranks or (None if step is None else step.nranks),
        request.nnodes or (None if step is None else step.nnodes),
        order,
        QUEUED if request.queued else BLOCKING if production is None else OVERLAPPED,
        production,
        name,
        present,
        (*_run_notes(step), *_overlap_notes(request, step, production)),
    )


def _has_main(db: Path) -> bool:
    """Whether a store has all-reduces of the run that commands take where none is named."""
    with reading(db) as connection:
        return connection.execute(_ANY, (_MAIN,)).fetchone() is not None


def _run_notes(step: RecordedStep | None) -> tuple[Note, ...]:
    if step is None:
        return ()
    smaller = Note("calls_not_cut", {}, "buckets smaller than the calls are not considered")
    return (*step.notices, smaller)


def _overlap_notes(
    request: FusionRequest, step: RecordedStep | None, production: Production | None
) -> tuple[Note, ...]:
    """What an answer about PyTorch without `--overlap` does not take into account."""
    if production is not None or request.policy is not Policy.TORCH_DDP:
        return ()
    if step is not None and len(step.ready_us) > 1:  # of every rank
        how = "--overlap recorded, which uses the run's traces,"
    else:
        how = "--overlap uniform:MS, with the milliseconds of the backward pass,"
    ignored = Note(
        "overlap_ignored",
        {},
        "PyTorch overlaps these calls with the backward pass, and this answer ignores that; "
        f"{how} includes the overlap and may recommend other buckets",
    )
    return (ignored,)


def candidates(request: FusionRequest, sizes: Sequence[int]) -> dict[int, tuple[Bucket, ...]]:
    """Buckets by setting, rising; of settings that give equal buckets the first.

    raises  UsageError for thresholds that cannot be read
    """
    counted = request.policy is Policy.FIXED_COUNT
    text = request.thresholds or (_DEFAULT_COUNTS if counted else _DEFAULT_THRESHOLDS)
    settings = sorted(
        {s for part in text.split(",") for s in sizes_of(part.strip(), "--thresholds")}
    )
    found = {s: make_buckets(sizes, request.policy, s, request.first_bytes) for s in settings}
    first: dict[tuple[Bucket, ...], int] = {}
    for setting, buckets in found.items():
        first.setdefault(buckets, setting)
    return {setting: buckets for buckets, setting in first.items()}


def measured_times(
    request: FusionRequest, job: Job
) -> tuple[AllReduceTimes, Job, str, tuple[Note, ...]]:
    """Times of a label, the job with the ranks measured, where they are from, and notices.

    raises  InputError, NoVerdictError when the label has nothing that fits
    """
    if request.label is None:
        raise UsageError("whatif fusion: there is no source of times. Give --label, or --measure.")
    run = request.run or (_MAIN if request.layers is None else None)
    with reading(request.db) as connection:
        found, mixed = load_measured(connection, request.label, run)
    notices = list(mixed)
    served = [(m, gaps) for m in found if (gaps := _gaps(job, m)) is not None]
    if job.nnodes is not None and any(Gap.NODES_UNKNOWN in gaps for _, gaps in served):
        notices.append(
            Note(
                "nodes_unknown",
                {},
                "the nodes of the measurements are unknown; we assume those of the job",
            )
        )
    fitting = [m for m, _ in served]
    require_alike(fitting or found, f"--label '{request.label}'")
    if not fitting:
        raise InputError(
            f"--label '{request.label}': measured with {count(found[0].nranks, 'rank')} on "
            f"{count(found[0].nnodes or 1, 'node')}, but the job has {job.nranks} on"
            f" {job.nnodes or 1}. "
            "Measure the job's shape, or name the measured one with --ranks and --nodes."
        )
    fitting = _preferred(fitting, job, notices)
    times = make_times(fitting, f"--label '{request.label}'")
    methods = ", ".join(sorted({m.method or "unknown" for m in fitting}))
    shaped = replace(job, nranks=fitting[0].nranks, nnodes=fitting[0].nnodes or 1)
    return times, shaped, f"label '{request.label}', method {methods}", tuple(notices)


def _gaps(job: Job, m: Measurement) -> tuple[Gap, ...] | None:
    """Gaps to report when a measurement serves the job's curve, of any place and reduction."""
    measured = m.collective_class.family
    request = replace(
        measured, nranks=job.nranks or measured.nranks, nnodes=job.nnodes or measured.nnodes
    )
    gaps = request.fits(measured)
    return None if gaps is None or Gap.NODES_DIFFER in gaps else gaps


def _preferred(found: list[Measurement], job: Job, notices: list[Note]) -> list[Measurement]:
    """Measurements of the job's datatype and way of execution, else all with a notice."""
    alike = [m for m in found if m.datatype is job.datatype]
    if not alike:
        notices.append(
            Note(
                "other_datatypes",
                {"datatype": job.datatype.value},
                f"{job.datatype.value} was not measured; times are of other datatypes with the same"
                " size in bytes",
            )
        )
    found = alike or found
    blocking = job.execution == BLOCKING
    alike = [m for m in found if (m.method == _ISOLATED) == blocking]
    if not alike:
        notices.append(
            Note(
                "measured_back_to_back",
                {},
                "calls were measured back to back; waiting after each bucket costs more"
                " (measure it with replay --isolated)",
            )
            if blocking
            else Note(
                "measured_one_by_one",
                {},
                "calls were measured one by one, with waiting; queued buckets cost less",
            )
        )
    return alike or found


def _step(request: FusionRequest) -> RecordedStep | None:
    if request.run is None:
        return None
    if request.datatype is not None:
        raise UsageError("--datatype: the run defines it. Leave it out, or give --layers.")
    with reading(request.db) as connection:
        require_run(connection, request.db, request.run)
        return load_step(connection, str(request.db), request.run)


def _layers(path: Path | None) -> tuple[Layer, ...]:
    assert path is not None  # `make_job` has seen to it
    try:
        with open_input(str(path)) as file:
            text = file.read_all().decode()
    except (UnreadableError, UnicodeDecodeError) as error:
        why = error.reason if isinstance(error, UnreadableError) else "not UTF-8 text"
        raise InputError(f"{path}: {why}. Name a layer list, see docs/whatif.md.") from error
    return parse_layers(text, str(path))


def _present(
    sizes: Sequence[int], request: FusionRequest, *, recorded: bool
) -> tuple[str, tuple[Bucket, ...]]:
    """What is compared with, and its name."""
    if not recorded and request.policy is Policy.TORCH_DDP:
        buckets = make_buckets(sizes, Policy.TORCH_DDP, DEFAULT_CAP_BYTES, request.first_bytes)
        return "PyTorch's default, 25 MiB", buckets
    alone = tuple(Bucket(i, i + 1, size) for i, size in enumerate(sizes))
    return ("as recorded" if recorded else "every layer alone"), alone


def _production(
    request: FusionRequest, step: RecordedStep | None, sizes: Sequence[int]
) -> Production | None:
    """When gradients are ready, from `--overlap`; None without it.

    raises  UsageError for unknown words; InputError without traces
    """
    text = request.overlap
    if text is None:
        return None
    kind, _, value = text.partition(":")
    if kind == "uniform":
        try:
            backward_ms = float(value)
        except ValueError:
            backward_ms = 0.0
        if 0 < backward_ms < float("inf"):
            return uniform(backward_ms * 1000)
    elif text == "recorded" and step is None:
        raise UsageError("--overlap recorded: a layer list has no times. Give --run LABEL instead.")
    elif text == "recorded" and step is not None:
        if len(step.ready_us) < 2:
            raise InputError(
                f"--overlap recorded: run '{request.run}' lacks the times of two calls of a step. "
                "Ingest its traces, or give --overlap uniform:MS."
            )
        return recorded(sizes, step.ready_us)
    raise UsageError(f"--overlap {text}: not understood. Write recorded, or uniform:12.5 (ms).")
