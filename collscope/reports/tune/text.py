"""`collscope tune` as text, Markdown, JSON or a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from collscope.errors import UsageError
from collscope.reports.rendering.formats import FORMATS as ALL_FORMATS
from collscope.reports.rendering.formats import to_readable
from collscope.reports.rendering.layout import (
    NUMBER,
    TEXT,
    Item,
    Section,
    Table,
    or_unknown,
    percent,
    scaled,
    table,
)
from collscope.reports.rendering.page import Extras
from collscope.tuning.records import DRY_RUN, TUNED, UNCONFIRMED, TunedClass, Tuning
from collscope.tuning.state import ENV, TUNER_CSV
from collscope.units import count, decimals, figure, format_size
from collscope.writing import to_json

FORMATS = tuple(fmt for fmt in ALL_FORMATS if fmt != "csv")


def render_tuning(found: Tuning, fmt: str, out: Path) -> str:
    """In one of `FORMATS`.

    out     folder of the files, as named on the command line
    raises  UsageError for another format
    """
    if fmt == "json":
        return to_json(found)
    if fmt not in FORMATS:
        raise UsageError(f"format '{fmt}': not known. Use one of {', '.join(FORMATS)}.")
    given_up = tuple(_given_up(found))
    sections = [
        Section("", tuple(_head(found))),
        Section("How to apply it", tuple(_apply(found, out))) if found.outcome == TUNED else None,
        Section("Classes", (_classes(found.classes),)),
        Section("Rows of the tuner CSV", (_rows(found),)) if found.rows else None,
        Section("Settings", (_settings(found),)),
        Section("Left out", given_up) if given_up else None,
        Section("Notes", tuple(_notes(found))),
    ]
    shown = [s for s in sections if s is not None]
    return to_readable(fmt, "collscope tune", shown, lambda: _extras(found))


def _extras(found: Tuning) -> Extras:
    from collscope.reports.tune.page import tuning_extras  # noqa: PLC0415 - matplotlib

    return tuning_extras(found)


def _head(found: Tuning) -> Iterator[str]:
    yield f"{found.outcome.capitalize()}: {found.why}."
    if found.gain is not None and found.outcome == TUNED:
        g = found.gain
        yield (
            f"Collective time {_saved(g.collective, g.collective_low, g.collective_high)}, "
            f"{figure(g.saved_ns / 1000, 4)} us over all calls of one rank;"
            f" {count(g.rounds, 'round')} in turns."
        )
        if g.step is not None:
            yield f"The job's time {_saved(g.step, g.step_low, g.step_high)}: {found.job.basis}."
        else:
            yield ("The gain of the job is unknown. Give --step-ms, or ingest a profile or traces.")
    yield from _present(found)
    if found.kept:
        yield "For every launch: " + " ".join(f"{k}={v}" for k, v in found.kept) + "."
    if found.outcome == DRY_RUN:
        yield f"{count(found.nranks, 'rank')}, {or_unknown(found.library)}; seed {found.seed}."
        return
    estimate = "" if found.estimated_ns is None else f", estimated {found.estimated_ns / 1e9:.0f} s"
    yield (
        f"{count(found.nranks, 'rank')}, {or_unknown(found.library)}, {or_unknown(found.device)}; "
        f"{count(found.launches, 'launch', 'launches')} in {found.took_ns / 1e9:.0f} s{estimate},"
        f" limit {found.time_limit_ns / 1e9:g} s; seed {found.seed}."
    )


def _present(found: Tuning) -> Iterator[str]:
    present = " ".join(f"{v.name}={v.value} ({v.origin})" for v in found.present)
    if not present and found.present_known:
        present = "the library default, no knob is set"
    if present:
        yield f"Present setting: {present}."
    else:
        yield (
            "Present setting: unknown, since no log holds the job's variables. We assume the "
            "library's default. Give what the job sets with --env NAME=VALUE."
        )
    if found.traced_blocks is not None:
        fewest, most = found.traced_blocks
        blocks = f"{fewest} to {most}" if fewest < most else f"{most}"
        yield (
            f"In the traces, a collective's kernel has {blocks} thread block{'s' * (most > 1)}. "
            "Rings and trees use one for each channel."
        )


def _saved(saved: float, low: float | None, high: float | None) -> str:
    """A gain with its interval: `-12.3 % (-13.1 to -11.2)`."""
    if low is None or high is None:
        return f"{-100 * saved:+.3g} %"
    digits = decimals(100 * low, 100 * high)
    least, part, most = (f"{-100 * value:+.{digits}f}" for value in (high, saved, low))
    return f"{part} % ({least} to {most})"


def _apply(found: Tuning, out: Path) -> Iterator[str]:
    yield f". {out / ENV}    # in the shell or script that starts the job, on every host"
    if found.unset:
        yield f"It unsets {', '.join(found.unset)}."
    if found.environment:
        yield "It sets " + ", ".join(f"{k}={v}" for k, v in found.environment) + "."
    if found.rows:
        yield (
            f"{out / TUNER_CSV} must be readable by all ranks, at the same path. NCCL_ALGO and "
            "NCCL_PROTO must stay unset: they override a plugin."
        )
    yield "Check it end to end: compare the job's step time with and without it."


def _classes(classes: tuple[TunedClass, ...]) -> Table:
    return table(
        [("class", NUMBER), ("operation", TEXT), ("type", TEXT), ("size", NUMBER),
         ("ranks", NUMBER), ("calls", NUMBER), ("present us", NUMBER), ("default us", NUMBER),
         ("tuned us", NUMBER), ("saved %", NUMBER), ("noise %", NUMBER), ("setting", TEXT)],
        [
            (c.class_id, c.op, c.datatype, format_size(c.size_bytes), c.nranks, c.calls,
             *(scaled(ns, 1e3) for ns in (c.present_ns, c.default_ns, c.tuned_ns)),
             percent(_part(c)), percent(c.noise_floor),
             c.setting or ("-" if c.kept else "not worth it"))
            for c in classes
        ],
    )  # fmt: skip


def _part(c: TunedClass) -> float | None:
    """Part of the present time that is saved."""
    if c.tuned_ns is None or not c.present_ns:
        return None
    return 1 - c.tuned_ns / c.present_ns


def _rows(found: Tuning) -> Table:
    return table(
        [("operation", TEXT), ("from", NUMBER), ("to", NUMBER), ("algorithm", TEXT),
         ("protocol", TEXT), ("channels", NUMBER), ("ranks", NUMBER), ("nodes", NUMBER)],
        [
            (r.op.value, format_size(r.min_bytes),
             None if r.max_bytes is None else format_size(r.max_bytes), r.algorithm, r.protocol,
             r.channels, r.nranks, r.nnodes)
            for r in found.rows
        ],
    )  # fmt: skip


def _settings(found: Tuning) -> Table:
    return table(
        [("setting", TEXT), ("launches", NUMBER), ("classes", NUMBER), ("outcome", TEXT),
         ("variables", TEXT)],
        [
            (s.name, s.launches, s.classes, s.outcome.partition(":")[0], s.variables)
            for s in found.settings
        ],
    )  # fmt: skip


def _given_up(found: Tuning) -> Iterator[Item]:
    """Settings that were refused, wrong, hung or never tried, with the whole reason."""
    for s in found.settings:
        outcome, _, reason = s.outcome.partition(": ")
        if reason:
            yield Item(f"{s.name}: {outcome}", (reason,))


def _notes(found: Tuning) -> Iterator[str]:
    kept = [c for c in found.classes if c.kept]
    if kept and len(kept) < len(found.classes):
        rest = "confirmed, but not tuned" if found.outcome in (TUNED, UNCONFIRMED) else "not tuned"
        yield (
            f"{len(kept)} of {count(len(found.classes), 'class', 'classes')} hold 95 % of the"
            f" possible saving. The rest are {rest}."
        )
    if found.job.exposed < 1:
        yield f"{100 * found.job.exposed:.1f} % of the collective time is exposed."
    if found.outcome != DRY_RUN:
        yield (
            "Times are of the collectives alone. The job's gain assumes that nothing else changes."
            " A GPU that waits less may run at a lower clock; the job then gains less."
        )
    yield from (f"{text[:1].upper()}{text[1:]}." for text in (note.text for note in found.notices))
    if found.files:
        yield f"Files: {', '.join(found.files)}."
