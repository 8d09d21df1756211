"""JSON of nccl-tests (-J, versions 1 to 3) and of rccl-tests (-x FILE -Z json).

nccl-tests writes one object, unfinished when the program dies; rccl-tests writes one object per
result, since July 2025 as a list. Both are read value by value, so that a cut keeps what is before.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec.structs import replace

from collscope.model import Measurement, MeasurementSet, Op, Severity, parse_datatype
from collscope.parsers._names import op_of_program, op_of_text, redop_of_name
from collscope.parsers._notes import Notes
from collscope.parsers._rows import line_count
from collscope.parsers.reader import Reader, whole_if
from collscope.parsers.tables._context import library_of_device, version_of_code
from collscope.parsers.tables._measure import LIMIT, Result, Setting, measure
from collscope.parsers.tables._rccl import result_of, setting_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from collscope.parsers.hints import TableHints

NCCL_DIALECT, RCCL_DIALECT = "nccl_tests_json", "rccl_tests_json"
_DECODER = json.JSONDecoder()
_HEAD = 65536
# {"version":3,"start_time":"2025-11-03 10:11:12","args":["./build/all_reduce_perf", …
_NCCL = re.compile(r'^\s*\{\s*"version"\s*:\s*\d+\s*,\s*"start_time"')
# {"#wrong":"0","algBw":0.0533,"busBw":0.0800,"gpus":4,"inPlace":0,"name":"AllReduce", …
_RCCL = re.compile(r'^\s*(?:\[\s*)?\{(?=[^{}]{0,2000}"busBw")(?=[^{}]{0,2000}"inPlace")')

_CUT_TEXT = "The JSON ends early or is damaged: the results before that were kept."
_ROW_TEXT = "Results that lack a size or a time were left out."
_OP_TEXT = (
    "Results without an operation were left out. Name it with collscope ingest table --op NAME"
)


def sniff(text: str) -> bool:
    """True for the JSON of either program, also when it is cut."""
    head = text[:_HEAD]
    return bool(_NCCL.match(head) or _RCCL.match(head))


def parse(text: str, hints: TableHints) -> MeasurementSet:
    """Measurements of a JSON file; per-iteration times are samples."""
    notes = Notes()
    if _RCCL.match(text[:_HEAD]):
        return _parse_rccl(text, hints, notes)
    return _parse_nccl(text, hints, notes)


def _parse_nccl(text: str, hints: TableHints, notes: Notes) -> MeasurementSet:
    top: dict[str, Any] = {}
    results: list[tuple[int, Any]] = []
    if not _read_object(text, top, results):
        notes.add(Severity.DATA_LOSS, "cut_json", _CUT_TEXT, text.count("\n") + 1)
    setting = _nccl_setting(top, hints)
    if setting.op is Op.UNKNOWN:
        notes.add(Severity.DATA_LOSS, "op_unknown", _OP_TEXT, 1)
        results = []
    found: list[Measurement] = []
    for line, record in results:
        read = _nccl_results(line, record)
        if not read:
            notes.add(Severity.DATA_LOSS, "bad_result", _ROW_TEXT, line)
        for result, iterations in read:
            own = replace(setting, iterations=iterations or setting.iterations)
            if (m := measure(result, own, notes)) is not None:
                found.append(m)
    version = _version(top)
    library = (setting.library or "nccl").split()[0]
    lines = line_count(text)
    return MeasurementSet(NCCL_DIALECT, tuple(found), library, version, lines, notes.diagnostics)


def _read_object(text: str, top: dict[str, Any], results: list[tuple[int, Any]]) -> bool:
    """Members of the outer object, and those of its list "results"; False when it is cut."""
    at = text.find("{") + 1
    while True:
        at = _skip(text, at, ", \t\r\n")
        if text[at : at + 1] == "}":
            return True
        key, at = _value(text, at)
        if at < 0 or not isinstance(key, str):
            return False
        at = _skip(text, at, ": \t\r\n")
        if key == "results" and text[at : at + 1] == "[":
            at = _read_list(text, at + 1, results)
        else:
            top[key], at = _value(text, at)
        if at < 0:
            return False


def _read_list(text: str, at: int, results: list[tuple[int, Any]]) -> int:
    """Objects of a list, with their lines; the place behind it, or -1 when it is cut."""
    line, counted = text.count("\n", 0, at) + 1, at
    while True:
        at = _skip(text, at, ", \t\r\n")
        if text[at : at + 1] == "]":
            return at + 1
        line, counted = line + text.count("\n", counted, at), at
        record, at = _value(text, at)
        if at < 0:
            return -1
        results.append((line, record))


def _value(text: str, at: int) -> tuple[Any, int]:
    """A JSON value and the place behind it, -1 when none can be read."""
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):  # huge integers raise ValueError as well
        return None, -1


def _skip(text: str, at: int, characters: str) -> int:
    while at < len(text) and text[at] in characters:
        at += 1
    return at


def _nccl_setting(top: Mapping[str, Any], hints: TableHints) -> Setting:
    args = [a for a in _list(top.get("args")) if isinstance(a, str)]
    config = _mapping(top.get("config"))
    devices = [d for d in _list(config.get("devices")) if isinstance(d, dict)]
    group = devices[0].get("group") if devices else None
    own = [d for d in devices if d.get("group") == group]
    device = _text(own[0].get("device_info")) if own else None
    op = hints.op or op_of_program(" ".join(args[:1])) or op_of_text(hints.name)
    # The program lists the first device of each process only (util.cu, parseRankInfo).
    each = (_parse_int(config.get("nthreads")) or 1) * (_parse_int(config.get("ngpus")) or 1)
    library = library_of_device(device) or "nccl"
    version = _version(top)
    return Setting(
        op=op or Op.UNKNOWN,
        nranks=hints.nranks or len(own) * each or None,
        nnodes=hints.nnodes or len({str(d.get("hostname")) for d in own}) or None,
        iterations=_parse_int(config.get("iterations")),
        method=_method(library, config),
        library=f"{library} {version}" if version else library,
        device=device,
        label=hints.label,
    )


def _method(library: str, config: Mapping[str, Any]) -> str:
    parts = [f"{library}-tests average over ranks"]
    if graphs := _parse_int(config.get("graph")):
        parts.append(f"{graphs} graph launches")
    if config.get("blocking_collectives") == "true":
        parts.append("blocking")
    return ", ".join(parts)


def _version(top: Mapping[str, Any]) -> str | None:
    code = _parse_int(top.get("nccl_version"))
    return version_of_code(code) if code else None


def _nccl_results(line: int, record: object) -> list[tuple[Result, int | None]]:
    """Both forms of one result; none when it is not one."""
    if not isinstance(record, dict):
        return []
    size = _parse_int(record.get("size"))
    if size is None:
        return []
    root = str(record.get("root", "")).strip()
    shared = Result(
        line, size, "", _parse_int(record.get("count")), parse_datatype(str(record.get("type"))),
        redop_of_name(str(record.get("redop"))),
        int(root) if root.isdecimal() and len(root) < 10 else None,
    )  # fmt: skip
    iterations = _parse_int(record.get("actual_iterations"))
    found = []
    for form in ("out_of_place", "in_place"):
        block = _mapping(record.get(form))
        time = _digits(block.get("time", block.get("cpu_time")))
        if time is None:
            continue
        own = _mapping(record.get(f"{form}_per_iter"))
        samples = tuple(float(t) for t in _list(own.get("times_us")) if _is_number(t) and t > 0)
        found.append((
            replace(
                shared, time=time, in_place=form == "in_place",
                busbw=_digits(block.get("bus_bw")), n_wrong=_parse_int(block.get("nwrong")),
                shortest=_digits(own.get("min_us")), longest=_digits(own.get("max_us")),
                samples_us=samples,
            ),
            iterations,
        ))  # fmt: skip
    return found


def _parse_rccl(text: str, hints: TableHints, notes: Notes) -> MeasurementSet:
    found: list[Measurement] = []
    at, line, counted = 0, 1, 0
    while (at := _skip(text, at, "[], \t\r\n")) < len(text):
        line, counted = line + text.count("\n", counted, at), at
        record, end = _value(text, at)
        if end < 0:
            notes.add(Severity.DATA_LOSS, "cut_json", _CUT_TEXT, line, text[at : at + 200])
            break
        at = end
        fields = {str(k).lower(): v for k, v in record.items()} if isinstance(record, dict) else {}
        result = result_of(fields, line)
        if result is None:
            notes.add(Severity.DATA_LOSS, "bad_result", _ROW_TEXT, line)
            continue
        setting = setting_of(fields, hints)
        if setting.op is Op.UNKNOWN:
            notes.add(Severity.DATA_LOSS, "op_unknown", _OP_TEXT, line)
        elif (m := measure(result, setting, notes)) is not None:
            found.append(m)
    lines = line_count(text)
    return MeasurementSet(RCCL_DIALECT, tuple(found), "rccl", None, lines, notes.diagnostics)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18


def _digits(value: object) -> str | None:
    """A number with the six decimals that the program writes."""
    return f"{value:.6f}" if _is_number(value) and value >= 0 else None


def _parse_int(value: object) -> int | None:
    if not _is_number(value) or not 0 <= value < LIMIT or value != int(value):
        return None
    return int(value)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


READER = Reader(
    "perf_json", "table", whole_if(sniff), lambda source, hints: parse(source.text(), hints.table)
)
