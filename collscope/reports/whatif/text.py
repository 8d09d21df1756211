"""`collscope whatif fusion` in its forms: text, Markdown, CSV, JSON."""

from __future__ import annotations

from collections.abc import Sequence

from collscope.model.note import Note
from collscope.reports.rendering.csv import records_csv
from collscope.reports.rendering.formats import in_format
from collscope.reports.rendering.layout import NUMBER, TEXT, Section, Table, percent, scaled, table
from collscope.reports.rendering.page import Extras
from collscope.reports.whatif.words import setting_text, setting_word
from collscope.units import count, decimals, figure, format_size
from collscope.whatif.policies import Policy
from collscope.whatif.records import Fusion, FusionRow, Recommended

_CSV = (
    "setting", "buckets", "smallest_bytes", "largest_bytes", "time_ns", "low_ns", "high_ns",
    "exposed_ns", "line_ns", "extrapolated",
)  # fmt: skip


def render_fusion(found: Fusion, fmt: str) -> str:
    """In one of `layout.FORMATS`; csv has the settings, the first row what is done now.

    raises  UsageError for another format
    """
    return in_format(
        fmt,
        found,
        lambda: _csv((found.present, *found.rows)),
        lambda: ("collscope whatif fusion", _sections(found)),
        lambda: _extras(found),
    )


def _extras(found: Fusion) -> Extras:
    """Imported here: drawing takes longer than the other forms."""
    from collscope.reports.whatif.page import fusion_extras  # noqa: PLC0415

    return fusion_extras(found)


def _sections(found: Fusion) -> list[Section]:
    sections = [
        Section("", tuple(_head(found))),
        Section(f"Time by {setting_word(found.policy)}", (_rows(found),)),
        Section("Recommendation", tuple(_recommendation(found))),
    ]
    if found.notices:
        sections.append(Section("Notes", tuple(map(_sentence, found.notices))))
    return sections


def _sentence(note: Note) -> str:
    return f"{note.text[:1].upper()}{note.text[1:]}."


def _csv(rows: Sequence[FusionRow]) -> str:
    return records_csv(_CSV, rows)


def _head(found: Fusion) -> list[str]:
    what = (
        f"{found.source}: {count(found.layers, 'gradient')}, {format_size(found.total_bytes)} of "
        f"{found.datatype}, in {found.order} order; policy {found.policy}; "
        f"{count(found.nranks, 'rank')} on {count(found.nnodes, 'node')}."
    )
    how = {
        "blocking": "the job waits for each bucket before the next",
        "queued": "buckets follow each other on a stream, and nothing overlaps them",
        "overlapped": "buckets overlap the backward pass, which ends after "
        f"{figure((found.backward_ns or 0) / 1e6, 4)} ms; gradients are ready {found.production}",
    }[found.execution]
    lines = [what, f"Execution is {found.execution}: {how}.", f"Times: {found.times_from}."]
    if found.interpolation_error:
        lines.append(
            "Intervals are 5 to 95 %, from resampled measurements and interpolation errors of "
            f"up to {percent(found.interpolation_error)} % between measured sizes."
        )
    return lines


def _rows(found: Fusion) -> Table:
    columns = [(setting_word(found.policy), TEXT), ("buckets", NUMBER), ("smallest", NUMBER),
               ("largest", NUMBER), ("time ms", NUMBER), ("low", NUMBER), ("high", NUMBER),
               ("exposed ms", NUMBER), ("line ms", NUMBER)]  # fmt: skip
    body = [_cells(found, row) for row in (found.present, *found.rows)]
    used = [i for i in range(len(columns)) if any(row[i] is not None for row in body)]
    return table([columns[i] for i in used], [[row[i] for i in used] for row in body])


def _cells(found: Fusion, row: FusionRow) -> tuple[object, ...]:
    name = (
        f"now: {found.present_name}"
        if row.setting is None
        else setting_text(found.policy, row.setting)
    )
    return (
        name, row.buckets, format_size(row.smallest_bytes), format_size(row.largest_bytes),
        *(scaled(ns, 1e6) for ns in (row.time_ns, row.low_ns, row.high_ns, row.exposed_ns,
                                     row.line_ns)),
    )  # fmt: skip


def _recommendation(found: Fusion) -> list[str]:
    best = found.recommended
    if best is None:
        why = "could not be measured" if found.measured else "is unknown from these measurements"
        return [f"None: the time of the present setting, or of every other setting, {why}."]
    word = setting_text(found.policy, best.setting)
    lines = [_verdict(found, best, word)]
    others = [setting_text(found.policy, s) for s in best.as_good if s != best.setting]
    if others:
        lines.append(f"Not slower within the uncertainty: {', '.join(others)}.")
    if found.per_bucket is not None:
        lines.append(
            f"One more bucket costs {figure(found.per_bucket.per_bucket_ns / 1000, 4)} us"
            f" (least-squares fit over the rows, r2 {found.per_bucket.r_squared:.2f})."
        )
    return lines


def _verdict(found: Fusion, best: Recommended, word: str) -> str:
    if best.gain < 0:
        return (
            f"The present setting ({found.present_name}) is the fastest. The next best, {word}, "
            f"takes {_part(best, -100)} longer."
        )
    gain = f"{_part(best, 100)} of the present time ({found.present_name})"
    if not best.worth_it:
        return f"Not worth it: the fastest, {word}, saves {gain}."
    # Under another policy the same number would make other buckets in PyTorch.
    torch = found.policy == Policy.TORCH_DDP.value
    cap = f" (bucket_cap_mb={best.bucket_cap_mb:.4g})" if torch else ""
    return f"Use {setting_word(found.policy)} {word}{cap}: it saves {gain}."


def _part(best: Recommended, unit: int) -> str:
    """The gain, or with unit -100 the loss, in percent, with its range."""
    if best.gain_low is None or best.gain_high is None:
        return f"{unit * best.gain:.2f} %"
    low, high = sorted((unit * best.gain_low, unit * best.gain_high))
    digits = decimals(low, high)
    return f"{unit * best.gain:.{digits}f} % ({low:.{digits}f} to {high:.{digits}f})"
