"""`collscope check`: a verdict in every format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from collscope.errors import UsageError
from collscope.model.note import noted
from collscope.reports.check.answer import Check, ClassVerdict
from collscope.reports.check.ci import github, junit
from collscope.reports.check.verdict_text import reasons, scope_words, why
from collscope.reports.rendering.formats import READABLE, in_words, to_readable
from collscope.reports.rendering.layout import (
    NUMBER,
    TEXT,
    WORD,
    Section,
    Table,
    percent,
    scaled,
    table,
)
from collscope.reports.rendering.note_words import note_sentence, note_words
from collscope.reports.rendering.page import Extras
from collscope.reports.rendering.step_words import PAIRED, heading_names, runs_words, step_sections
from collscope.writing import to_json

CHECK_FORMATS = tuple(dict.fromkeys(("text", "md", "json", "junit", "github", *READABLE)))
_LEGEND = (
    "% time: share of the {3} of the compared classes in '{0}'. {0} us, {1} us: {2} ratio: {1} / "
    "{0}, with its 95 % interval. noisy: the interval is too wide to judge the class."
)
_MEASURED = "time of a call, a median."
_TRACED = "transfer of a call. It is the mean in each step, then the median over the steps."
_PLACES = {True: "in", False: "out", None: None}


def render_check(check: Check, fmt: str) -> str:
    """A verdict in one of `CHECK_FORMATS`.

    raises  UsageError for another format
    """
    title = f"collscope check: {check.verdict.value}"
    if fmt in READABLE:
        return to_readable(fmt, title, _check_sections(check), lambda: _extras(check))
    if fmt == "json":
        return to_json(_record(check))
    if fmt == "junit":
        return junit(check)
    if fmt == "github":
        return github(check)
    raise UsageError(f"format '{fmt}': not known. Use one of {', '.join(CHECK_FORMATS)}.")


def verdict_line(check: Check) -> str:
    """The verdict in a line."""
    return f"check: {check.verdict.value}: {why(check.decision)}"


def _check_sections(check: Check) -> list[Section]:
    head = [
        *reasons(check.decision),
        scope_words(check),
        *([] if check.traced is None else [runs_words(check.traced)]),
        *map(note_sentence, check.notes),
    ]
    sections = [Section("", tuple(head))]
    names = heading_names((check.baseline, check.current), ("baseline", "current"))
    if check.traced is not None:
        sections += step_sections(check.traced, names, judged=True)
    if check.classes:
        legend = _LEGEND.format(
            *names.values(),
            *((_MEASURED, "time") if check.traced is None else (_TRACED, "transfer time")),
        )
        paired = (PAIRED,) if any(row.paired for row in check.classes) else ()
        rows = _verdict_table(check.classes, *names.values())
        sections.append(Section("Classes, worst first", (*paired, rows, legend)))
    return sections


def _verdict_table(rows: Sequence[ClassVerdict], baseline: str, current: str) -> Table:
    columns = [("outcome", WORD), ("op", TEXT), ("type", TEXT), ("size B", NUMBER),
               ("ranks", NUMBER), ("place", TEXT), ("% time", NUMBER), (f"{baseline} us", NUMBER),
               (f"{current} us", NUMBER), ("ratio", NUMBER), ("95 % from", NUMBER),
               ("to", NUMBER)]  # fmt: skip
    return table(
        columns,
        [
            (r.outcome, " ".join(filter(None, (r.key.op.value, r.key.shape))),
             "/".join(p.value for p in (r.key.datatype, r.key.redop) if p) or None,
             r.key.size_bytes, r.key.nranks, _PLACES[r.key.in_place], percent(r.share),
             scaled(r.baseline_ns, 1e3), scaled(r.current_ns, 1e3), r.ratio, r.low, r.high)
            for r in rows
        ],
    )  # fmt: skip


def _record(check: Check) -> dict[str, Any]:
    """What JSON has of it."""
    plain = in_words(check, notes=[noted(note, note_words(note)) for note in check.notes])
    del plain["decision"]  # in words
    plain = {"verdict": check.verdict, "why": why(check.decision), **plain}
    body: dict[str, Any] = msgspec.to_builtins(plain)
    return body


def _extras(check: Check) -> Extras:
    """Imported here: drawing takes longer than the other forms."""
    from collscope.reports.check.page import check_extras  # noqa: PLC0415

    return check_extras(check)
