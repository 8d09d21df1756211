"""`collscope bench interference` in its forms: text, Markdown, CSV, JSON."""

from __future__ import annotations

from collections.abc import Sequence

from collscope.reports.interference.answer import Failed, InterferenceReport, InterferenceRow
from collscope.reports.rendering.csv import records_csv
from collscope.reports.rendering.formats import in_format, in_words
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, Table, or_unknown, table
from collscope.reports.rendering.page import Extras
from collscope.units import count, format_size

_MOST_FAILED = 10
_HOST_TEXT = (
    "On the host, the computation is a thread and the calls are MPI calls. They share cores, so"
    " these figures do not apply to a GPU."
)
_MODEL_TEXT = (
    "The model is R = 1 - channels / multiprocessors: a channel's block takes a multiprocessor "
    "from the computation. It ignores memory bandwidth, power, multiprocessors that two blocks"
    " share, and kernels that run in whole waves. Use it as a bound. A slower collective disturbs"
    " less, so read R together with the bus bandwidth during overlap."
)


def render_interference(found: InterferenceReport, fmt: str) -> str:
    """In one of `layout.FORMATS`; csv has a row for each class and setting.

    raises  UsageError for another format
    """
    failed = tuple(map(failed_words, found.failed))
    return in_format(
        fmt,
        in_words(found, failed=failed),
        lambda: records_csv(InterferenceRow.__struct_fields__, found.rows),
        lambda: ("collscope bench interference", _sections(found, failed)),
        lambda: _extras(found),
    )


def _extras(found: InterferenceReport) -> Extras:
    """Imported here: drawing takes longer than the other forms."""
    from collscope.reports.interference.page import interference_extras  # noqa: PLC0415

    return interference_extras(found)


def failed_words(one: Failed) -> str:
    """A measurement without figures, and why."""
    size = "" if one.size_bytes is None else f" of {one.size_bytes} bytes"
    why = one.message or "no reason given"
    return f"{one.label or ''}: {one.op.value}{size}: {one.status}: {why}"


def _sections(found: InterferenceReport, failed: Sequence[str]) -> list[Section]:
    sections = [Section("", tuple(_head(found)))]
    if found.rows:
        sections += [
            Section("Computation during collectives", (_compute(found.rows),)),
            Section("Collectives during computation", (_busbw(found.rows),)),
        ]
    notes = _notes(found, failed)
    if notes:
        sections.append(Section("Notes", tuple(notes)))
    return sections


def _head(found: InterferenceReport) -> list[str]:
    units = "" if found.multiprocessors is None else f", {found.multiprocessors} multiprocessors"
    priority = "" if found.priority is None else f" on a stream of {found.priority} priority"
    lines = [
        f"Backend {or_unknown(found.backend)}, device {or_unknown(found.device)}{units}, library "
        f"{or_unknown(found.library)}{priority}.",
        f"Computation: {'; '.join(found.descriptions) or 'unknown'}.",
        "R is the computation's performance during calls, divided by its performance without"
        " calls. Each is measured between two baselines.",
    ]
    if found.rows and (alike := _alike(found.rows)):
        lines.append(alike)
    return lines + ([_HOST_TEXT] if found.backend == "host" else [])


_CLASS = (
    ("operation", TEXT), ("type", TEXT), ("ranks", NUMBER), ("in-place", NUMBER), ("compute", TEXT),
)  # fmt: skip


def _class(row: InterferenceRow) -> tuple[object, ...]:
    return (row.op, row.datatype, row.nranks, row.in_place, row.compute)


def _varying(rows: Sequence[InterferenceRow]) -> list[int]:
    """Columns of `_CLASS` in which rows differ, and the operation.

    With all of them the tables would be so wide that names are cut, and rows look alike.
    """
    return [i for i in range(len(_CLASS)) if not i or len({_class(r)[i] for r in rows}) > 1]


def _alike(rows: Sequence[InterferenceRow]) -> str:
    """What all calls have in common; it has no column."""
    varying, first = _varying(rows), rows[0]
    place = {True: "in-place", False: "out of place", None: None}[first.in_place]
    ranks = None if first.nranks is None else count(first.nranks, "rank")
    compute = None if first.compute is None else f"during {first.compute}"
    common = enumerate((None, first.datatype, ranks, place, compute))
    parts = [part for i, part in common if part and i not in varying]
    return f"All calls: {', '.join(parts)}." if parts else ""


def _setting(row: InterferenceRow) -> str:
    return "default" if row.channels is None else str(row.channels)


def _compute(rows: Sequence[InterferenceRow]) -> Table:
    varying = _varying(rows)
    columns = [
        *(_CLASS[i] for i in varying), ("size", NUMBER), ("channels", NUMBER),
        ("R", NUMBER), ("+-", NUMBER), ("worst", NUMBER), ("noise", NUMBER),
        ("model", NUMBER), ("SMs lost", NUMBER), ("samples", NUMBER),
    ]  # fmt: skip
    return table(
        columns,
        [
            (
                *(_class(r)[i] for i in varying), _size(r), _setting(r),
                _ratio(r.relative_compute), _ratio(r.relative_compute_ci),
                _ratio(r.relative_compute_worst), _ratio(r.relative_compute_noise),
                _ratio(r.model),
                None if r.lost_multiprocessors is None else f"{r.lost_multiprocessors:.1f}",
                r.samples,
            )
            for r in rows
        ],
    )  # fmt: skip


def _busbw(rows: Sequence[InterferenceRow]) -> Table:
    varying = _varying(rows)
    columns = [
        *(_CLASS[i] for i in varying), ("size", NUMBER), ("channels", NUMBER),
        ("alone us", NUMBER), ("beside us", NUMBER), ("alone GB/s", NUMBER),
        ("beside GB/s", NUMBER), ("relative", NUMBER), ("worst", NUMBER), ("noise", NUMBER),
    ]  # fmt: skip
    return table(
        columns,
        [
            (
                *(_class(r)[i] for i in varying), _size(r), _setting(r),
                r.comm_alone_ns / 1e3, r.comm_with_ns / 1e3, r.busbw_alone_gbps, r.busbw_with_gbps,
                _ratio(r.relative_busbw), _ratio(r.relative_busbw_worst),
                _ratio(r.relative_busbw_noise),
            )
            for r in rows
        ],
    )  # fmt: skip


def _size(row: InterferenceRow) -> str | None:
    return None if row.size_bytes is None else format_size(row.size_bytes)


def _ratio(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"


def _notes(found: InterferenceReport, failed: Sequence[str]) -> list[str]:
    notes = []
    within = [
        r for r in found.rows if abs(1 - r.relative_compute) <= (r.relative_compute_noise or 0)
    ]
    if found.rows:
        notes.append(
            "Noise is the standard deviation of the ratio of two undisturbed batches of the same "
            f"launch. {len(within)} of {len(found.rows)} R differ from 1 by no more than the noise."
        )
    if any(r.model is not None for r in found.rows):
        notes.append(_MODEL_TEXT)
    uncovered = sum(r.uncovered for r in found.rows)
    if uncovered:
        notes.append(
            f"{uncovered} samples do not count: one side ended before the other, even after it was"
            " lengthened."
        )
    notes += failed[:_MOST_FAILED]
    if len(failed) > _MOST_FAILED:
        more = count(len(failed) - _MOST_FAILED, "more failure")
        notes.append(f"{more} (view interference).")
    return notes
