"""What a tune would try, and about how long: nothing is started (pure).

Only a launch shows the library, the nodes and the times of a machine. Before the first launch,
library and nodes come from the job's logs. The time that launches measure is known. How long
their ranks take to start is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from collscope.gpu_vendors import VENDORS
from collscope.model.note import Note
from collscope.tuning import confirm
from collscope.tuning.choose import NOTHING, PRESENT
from collscope.tuning.intervals import Shape
from collscope.tuning.offers import Offered, search_launches, settings_offered
from collscope.tuning.records import DRY_RUN, SettingRow, TunedClass, Tuning
from collscope.tuning.settings import (
    CHANNELS,
    DEFAULT,
    Setting,
    TuningTarget,
    place_of,
    present_setting,
    why_not,
)
from collscope.tuning.state import CHANNELS as BY_CHANNELS
from collscope.tuning.state import TuningRequest
from collscope.units import count, in_ns

_ASSUMED = "nccl"


def preview(request: TuningRequest) -> Tuning:
    """The record of a tune that has not begun: every class, every setting, no time."""
    library, basis = _library(request)
    nvls = dict(request.kept).get("NCCL_NVLS_ENABLE", "") != "0"
    place = place_of(library, None, nvls=nvls, seen=request.seen)
    shapes = _shapes(request)
    present = present_setting({v.name: v.value for v in request.present})
    known = {PRESENT: present} | ({DEFAULT.name: DEFAULT} if present.environment else {})

    def reason_of(setting: Setting, class_id: int) -> str | None:
        shape = shapes[class_id]
        return why_not(setting, shape.op, shape.nranks, shape.nnodes, place)

    found = settings_offered(request, place, shapes, known, reason_of)
    return Tuning(
        outcome=DRY_RUN,
        why=_why(request, len(known), len(found.settings), place),
        kind=NOTHING,
        library=library,
        device=None,
        nranks=request.plan.nranks,
        seed=request.seed,
        present=request.present,
        present_known=request.settings_logged,
        traced_blocks=request.blocks,
        kept=request.kept,
        job=request.job,
        classes=_classes(request, shapes, found),
        settings=tuple(_settings(known, found)),
        environment=(),
        unset=(),
        rows=(),
        gain=None,
        tried=(),
        launches=0,
        took_ns=0.0,
        estimated_ns=None,
        time_limit_ns=1e9 * request.time_limit_s,
        files=(),
        notices=(basis, *_notices(request, place)),
    )


def _settings(known: Mapping[str, Setting], found: Offered) -> Iterator[SettingRow]:
    for name, s in known.items():
        yield SettingRow(name, s.variables_text, 0, len(found.legal), "reference")
    for name, s in found.settings.items():
        classes = sum(name in names for names in found.legal.values())
        yield SettingRow(name, s.variables_text, 0, classes, "to be tried")
    for name, why in found.excluded.items():
        yield SettingRow(name, "", 0, 0, f"left out: {why}")


def _library(request: TuningRequest) -> tuple[str, Note]:
    """The library to plan for, and where it is known from."""
    method = request.session.method
    file = Path(method.library or "").name
    libraries = {v.backend.value: v.collectives.name.lower() for v in VENDORS}
    named = next((name for name in libraries.values() if name in file), None)
    named = named or libraries.get(method.backend)
    if request.library is not None and (named or request.library).startswith(request.library[:4]):
        return request.library, Note(
            "library_of_logs",
            {"library": request.library},
            "the library comes from the job's logs; the first launch verifies it",
        )
    if named is not None:
        return named, Note(
            "version_unknown",
            {"library": named},
            "the library's version is not known before the first launch",
        )
    return _ASSUMED, Note(
        "library_unknown",
        {"library": _ASSUMED},
        "the library is not known before the first launch: the settings of NCCL are listed",
    )


def _shapes(request: TuningRequest) -> dict[int, Shape]:
    """Classes of the plan on as many nodes as the job had, at most one of each rank."""
    ranks = request.plan.comm_ranks()
    found = {}
    for c in request.plan.classes:
        nranks = len(ranks[c.comms[0]])
        found[c.id] = Shape(c.op, nranks, min(request.nnodes or 1, nranks))
    return found


def _why(request: TuningRequest, references: int, settings: int, place: TuningTarget) -> str:
    """Launches and seconds, in words."""
    survey, labels = references, references + 1
    search = round(search_launches(references + settings, place.library))
    confirmation = labels * confirm.ROUNDS
    launches = survey + search + confirmation
    classes = len(request.plan.classes)
    budget = request.session.method.budget_s or 0.0
    return (
        f"nothing was started. A tune needs about {count(launches, 'launch', 'launches')}: {survey}"
        f" for the survey, at most {search} for the search, {confirmation} for the confirmation. "
        f"Each measures at most {count(classes, 'class', 'classes')} for {budget:g} s: up to "
        f"{launches * classes * budget:.0f} s of timed calls. Starting the ranks takes additional "
        f"time; the first launch shows how much. A tune ends after {request.time_limit_s:g} s "
        "(--time-limit)"
    )


def _classes(
    request: TuningRequest, shapes: dict[int, Shape], found: Offered
) -> tuple[TunedClass, ...]:
    rows = []
    for c in request.plan.classes:
        shape = shapes[c.id]
        rows.append(
            TunedClass(
                class_id=request.report_id(c.id),
                plan_id=c.id,
                op=c.op.value,
                datatype=c.datatype.value,
                size_bytes=c.size(shape.nranks),
                nranks=shape.nranks,
                nnodes=shape.nnodes,
                calls=c.calls / len(c.comms),
                roof_ns=in_ns(request.roofs_us.get(c.id)),
                weight_ns=0.0,
                kept=True,
                setting=f"{len(found.legal[c.id])} to try",
                present_ns=None,
                default_ns=None,
                tuned_ns=None,
                noise_floor=None,
            )
        )
    return tuple(rows)


def _notices(request: TuningRequest, place: TuningTarget) -> tuple[Note, ...]:
    where = "planned for one node"
    if request.nnodes:
        where = f"planned for {count(request.nnodes, 'node')}, as in the job's logs"
    found = [
        Note("nodes", {"nodes": request.nnodes}, where),
        Note(
            "survey",
            {},
            "the survey leaves out classes that are not worth tuning, and may end the tune",
        ),
    ]
    if request.named is None or BY_CHANNELS in request.named:
        channels = CHANNELS[place.library or _ASSUMED]
        numbers = ", ".join(map(str, channels))
        found.append(
            Note(
                "channels_join",
                {"channels": channels},
                f"after the first round, {numbers} channels are tried with the two best pairs",
            )
        )
    return tuple(found)
