"""Figures of an application: step times and throughput, from whatever prints them.

Lines of records (Hugging Face Trainer's `train_runtime`, JSON lines), a table with one column per
setting whose text has "… per second", CSV with units in its column names, or bare numbers.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

from collscope.model import Metric, MetricSet, Severity
from collscope.parsers._grid import Grid, grids
from collscope.parsers._notes import CUT_TEXT, Notes, cells
from collscope.parsers._rows import text_lines
from collscope.parsers._titles import Titles
from collscope.parsers.reader import Reader, anywhere

if TYPE_CHECKING:
    from collections.abc import Mapping

    from collscope.parsers.hints import MetricHints

_NUMBER = r"-?\d{1,19}(?:\.\d{0,19})?(?:[eE][+-]?\d{1,3})?"
# {'train_runtime': 1126.1257, 'train_samples_per_second': 36.372, 'epoch': 0.09}   (Trainer, 4.x)
# {"setting": "default", "median_ms": 5.7059}; slides lose quotes: 'train_samples_per_second: 920.1
_PAIR = re.compile(rf"['\"]?([A-Za-z_][\w./-]{{0,60}})['\"]?\s*:\s*['\"]?({_NUMBER})(?![\w.])")
_NAMED = re.compile(r"['\"](?:label|setting)['\"]\s*:\s*['\"]([^'\"]{1,80})['\"]")
# What distinguishes jobs: "set": "plain", "case": "fsdp", "nranks": 8; no times, no sentences.
_TEXT = re.compile(
    r"['\"]([A-Za-z_]\w{0,40})['\"]\s*:\s*(?:['\"]([^'\"]{1,40})['\"]|(\d{1,9})(?![\w.]))"
)
_WORD = re.compile(r"(?!\d{4}-\d\d|[\d.:]+$)\w[\w.+/-]*")
_SIZES = {"nodes", "nnodes", "ranks", "nranks", "world", "world_size", "gpus", "ngpus"}
_NO_JOB = {
    "label", "setting", "name", "metric", "unit", "value", "level", "severity", "logger", "msg",
    "message", "event", "time", "timestamp", "date", "ts",
}  # fmt: skip
# - With the plugin + NCCL_NET_GDR_LEVEL=3
_BULLET = re.compile(r"\s*[-–*•]\s+(\S.*)")
# train_samples_per_second, tokens_per_sec, images/s
_RATE = re.compile(r"(?:.*[_\W])?([A-Za-z]+)(?:_per_s(?:ec(?:ond)?)?|/s(?:ec)?)", re.IGNORECASE)
# median_ms, step_time (s), train_runtime
_TIME = re.compile(r".*[_\s(](ns|us|ms|s|sec|secs|seconds)\)?", re.IGNORECASE)
_SECONDS = re.compile(r"(?:train|eval|test|predict)_runtime")
# iqr_ms, step_time_std_ms: how far figures spread is no figure
_SPREAD = re.compile(r"(?:^|_)(?:iqr|std|stdev|stddev|mad|var|cv)(?:_|$)", re.IGNORECASE)
# Numbers = Images per second, higher is better.
_PER_SECOND = re.compile(r"\b([A-Za-z]+)\s+per\s+second\b", re.IGNORECASE)
# 36.37 samples/s | 5.7 ms | 120 ms/step | 0.8
_BARE = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z][A-Za-z /]{{0,30}})?\s*")
# GB/s is not Gb/s
_BYTES = re.compile(r"[kKMGTP]?i?[Bb]")
_TIME_UNITS = {"ns": "ns", "us": "us", "ms": "ms", "s": "s", "sec": "s", "secs": "s",
               "second": "s", "seconds": "s"}  # fmt: skip
_NAMES = {True: "throughput", False: "step_time", None: "value"}  # by higher_is_better
_PER_SECOND_OF = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}
_CLOCK_S = 1e9  # since 1970; no step takes 30 years
_LONGEST = 4000  # characters of a line that is looked at
_LONGEST_NAME = 100

_UNIT_TEXT = "Figures without a unit: whether more is better is not known. Give it with --unit."
_JSON_TEXT = (
    "The text begins as JSON and cannot be read as such: it is cut or damaged, and only single"
    " figures were found."
)
_ROW_TEXT = "Rows with too few or too many fields, or an unreadable number, were left out."


def parse(text: str, hints: MetricHints) -> MetricSet | None:
    """Figures of a text: records and tables wherever they stand, else CSV, else bare numbers.

    hints    a name, unit or label given here counts more than the text's
    returns  None when there are none; `dialect` joins the names of those found with "+"
    """
    notes = Notes()
    lines = list(text_lines(text))
    ended = text.endswith("\n")
    documents = {
        "records": _records(lines if ended else _closed(lines, notes), hints),
        "throughput_table": _tables(text, hints, notes),
    }
    found = {dialect: metrics for dialect, metrics in documents.items() if metrics}
    if not found:
        if metrics := _csv(lines, ended, hints, notes):
            found = {"metric_csv": metrics}
        elif metrics := _numbers(lines, hints):
            found = {"numbers": metrics}
    every = [m for part in found.values() for m in part]
    metrics = [m for m in every if math.isfinite(m.value) and not _is_clock(m)]
    if not notes.diagnostics and _broken_json(text):
        notes.add(Severity.DATA_LOSS, "broken_json", _JSON_TEXT, 1)
    for m in metrics:
        if m.unit is None:
            notes.add(Severity.NOTICE, "no_unit", _UNIT_TEXT, m.line or 1, m.name)
    if not metrics:
        return None
    return MetricSet("+".join(found), tuple(metrics), len(lines), notes.diagnostics)


def _broken_json(text: str) -> bool:
    """True for a text that begins as a JSON object with a quoted key, and is none.

    The lines of Hugging Face's Trainer have single quotes: they begin as no JSON.
    """
    if not re.match(r'\s*\{\s*"', text):
        return False
    try:
        json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return True
    return False


def _is_clock(m: Metric) -> bool:
    """True for a point in time: ":::MLLOG {…, "time_ms": 1696291199345, …" of MLPerf's logs."""
    per_second = _PER_SECOND_OF.get(m.unit or "")
    return per_second is not None and m.value >= _CLOCK_S * per_second


def unit_of_name(name: str) -> tuple[str, bool] | None:
    """Unit that a name carries, and whether more of it is better; None when it carries none.

    >>> unit_of_name("train_samples_per_second"), unit_of_name("median_ms")
    (('samples/s', True), ('ms', False))
    """
    if len(name) > _LONGEST_NAME or _SPREAD.search(name):
        return None
    if match := _RATE.fullmatch(name.strip()):
        return _rate(match[1]), True
    if match := _TIME.fullmatch(name.strip()):
        return _TIME_UNITS[match[1].lower()], False
    return ("s", False) if _SECONDS.fullmatch(name) else None


def unit_of_text(text: str) -> tuple[str | None, bool | None]:
    """Unit as written behind a number, and whether more of it is better.

    >>> unit_of_text("images per second"), unit_of_text("ms/step"), unit_of_text("GB")
    (('images/s', True), ('ms/step', False), ('GB', None))
    """
    unit = " ".join(text.split())
    if match := re.fullmatch(r"([A-Za-z]+)(?: per second|/s(?:ec(?:ond)?)?)", unit):
        return _rate(match[1]), True
    first, slash, rest = unit.partition("/")
    known = _TIME_UNITS.get(first.strip().lower())
    if known is not None:
        return known + slash + rest, False
    return unit or None, None


def _rate(word: str) -> str:
    """Unit of so many per second: ``samples/s``; bits and bytes keep their letters."""
    return f"{word if _BYTES.fullmatch(word) else word.lower()}/s"


def _records(lines: list[str], hints: MetricHints) -> list[Metric]:
    titles = Titles()
    bullet: str | None = None
    found: list[Metric] = []
    for number, line in enumerate(lines, start=1):
        pairs = _PAIR.findall(line) if "{" in line[:_LONGEST] else []
        known = [(name, value, kind) for name, value in pairs if (kind := unit_of_name(name))]
        named = _NAMED.search(line) if known else None  # once: a line may hold thousands
        job = _job({key: text or size for key, text, size in _TEXT.findall(line)}) if known else ""
        for name, value, (unit, higher) in known:
            label = hints.label or (named[1] if named else bullet)
            # "Experiment Data - GPT-J" above a bullet names what ran
            title = (titles.title or "").rpartition(" - ")[2] if bullet else ""
            full = job + (hints.name or (f"{title}: {name}" if title else name))
            found.append(Metric(full, float(value), unit, higher, label, number))
        if not known:
            titles.read(line)
            if line.strip() and not line.startswith("```"):
                match = _BULLET.fullmatch(line[:_LONGEST])
                bullet = match[1].strip()[:120] if match else None
    return found


def _job(fields: Mapping[str, str]) -> str:
    """Beginning of a figure's name, of its row's fields that distinguish jobs; may be empty.

    >>> _job({"set": "plain", "setting": "default", "nranks": "8", "at": "2026-11-22T09:15:00"})
    'plain, nranks 8: '
    """
    parts = []
    for key, value in fields.items():
        name = key.lower()
        if name in _SIZES and value.isdecimal():
            parts.append(f"{name} {value}")
        elif name not in _NO_JOB and unit_of_name(name) is None and _WORD.fullmatch(value):
            parts.append(value)
    return ", ".join(parts) + ": " if parts else ""


def _closed(lines: list[str], notes: Notes) -> list[str]:
    """Lines without what may be a piece of a number: the last one's end behind its last mark."""
    last = lines[-1]
    at = max(last.rfind(","), last.rfind("}")) + 1
    if "{" in last and _PAIR.search(last, at):
        notes.add(Severity.DATA_LOSS, "cut_row", CUT_TEXT, len(lines), last)
    return [*lines[:-1], last[:at]]


def _tables(text: str, hints: MetricHints, notes: Notes) -> list[Metric]:
    found: list[Metric] = []
    for grid in grids(text):
        near = " | ".join((*grid.header, *grid.above[:1], *grid.below[:2]))
        if match := _PER_SECOND.search(near):
            found += _cells(grid, f"{match[1].lower()}/s", hints)
            for row in grid.cut:
                notes.add(Severity.DATA_LOSS, "torn_row", _ROW_TEXT, row.line, " ".join(row.cells))
    return found


def _cells(grid: Grid, unit: str, hints: MetricHints) -> list[Metric]:
    name = hints.name or unit.replace("/s", "_per_second")
    found = []
    for row in grid.rows:
        for label, cell in zip(grid.header[1:], row.cells[1:], strict=True):
            if re.fullmatch(_NUMBER, cell):
                full = f"{name} ({row.cells[0]})" if row.cells[0] else name
                own = f"{hints.label}: {label}" if hints.label else label
                found.append(Metric(full, float(cell), unit, True, own, row.line))
    return found


def _csv(lines: list[str], ended: bool, hints: MetricHints, notes: Notes) -> list[Metric]:
    header: list[str] = []
    found: list[Metric] = []
    for number, line in enumerate(lines, start=1):
        values = cells(line) if "," in line[:_LONGEST] else []
        if line.startswith("#") or not line.strip():
            continue
        if not header:
            # The first line shows what the file is; further down in a text it is another's table.
            header = [value.lower() for value in values]
            if "value" not in header and not any(unit_of_name(name) for name in header):
                return []
            continue
        if number == len(lines) and not ended:
            notes.add(Severity.DATA_LOSS, "cut_row", CUT_TEXT, number, line)
            break
        row = dict(zip(header, values, strict=False))
        metrics = _csv_row(row, number, hints) if len(values) == len(header) else []
        if not metrics:
            notes.add(Severity.DATA_LOSS, "torn_row", _ROW_TEXT, number, line)
        found += metrics
    return found


def _csv_row(row: Mapping[str, str], number: int, hints: MetricHints) -> list[Metric]:
    """Figures of a row: of its column "value", else of every column with a unit in its name."""
    label = hints.label or row.get("label") or row.get("setting") or None
    job = _job(row)
    if "value" in row:
        if not re.fullmatch(_NUMBER, row["value"]):
            return []
        name = job + (hints.name or row.get("name") or row.get("metric") or "value")
        unit, higher = unit_of_text(hints.unit or row.get("unit") or "")
        return [Metric(name, float(row["value"]), unit, higher, label, number)]
    return [
        Metric(job + (hints.name or name), float(value), *kind, label, number)
        for name, value in row.items()
        if (kind := unit_of_name(name)) and re.fullmatch(_NUMBER, value)
    ]


def _numbers(lines: list[str], hints: MetricHints) -> list[Metric]:
    found: list[Metric] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _BARE.fullmatch(line[:_LONGEST])
        if match is None:  # other text is no list of figures
            return []
        unit, higher = unit_of_text(hints.unit or match[2] or "")
        name = hints.name or _NAMES[higher]
        found.append(Metric(name, float(match[1]), unit, higher, hints.label, number))
    return found


READER = Reader(
    "figures",
    "metric",
    anywhere,
    lambda source, hints: parse(source.text(), hints.metric),
)
