"""Damages of recorders' files and of tables.

Records that carry a number of their own (flight recorder, Inspector, profiler plugin, torchcomms,
clog) decide a loss between two of them. Rows of a table made by somebody else do not: nothing says
how many there were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

from damages import Damage, Damaged, Files, one

from collscope.parsers._gaps import count_missing

Rows = list[Any]


class _Form:
    """A file as rows: how it is taken apart, put together, and how rows are numbered."""

    def __init__(self, name: str, data: bytes) -> None:
        self.numbered: Callable[[Rows], list[Any]] | None = None
        self.head: list[bytes] = []
        self.kind = "lines"
        self.table = False
        if ".fr." in name and name.endswith(".json"):
            self.kind, self.document = "fr", json.loads(data)
            self.rows: Rows = self.document["entries"]
            self.numbered = lambda rows: [(0, r["record_id"]) for r in rows]
        else:
            lines = data.splitlines(keepends=True)
            first = next((i for i, x in enumerate(lines) if x.startswith(b"op,")), -1)
            if lines[0].startswith(b"# collscope-replay") and first >= 0:
                self.kind, self.table = "own", True
                self.head, self.rows = lines[: first + 1], lines[first + 1 :]
                # The header of a file that states its number of rows decides any loss.
                self.stated = any(re.match(rb"# (?:classes|rows): \d", x) for x in self.head)
                at = lines[first].decode().strip().split(",").index("class_id")
                self.numbered = lambda rows: [(0, int(_cells(r)[at])) for r in rows]
            elif b'"coll_sn"' in data:
                self.kind = "inspector"
                self.rows = lines
                self.numbered = _serials
            elif "profiler-plugin" in name:
                self.kind, self.rows = "plugin", lines
                self.numbered = _serials
            else:
                self.rows = lines
                self.table = not ("clog" in name or "replay." in name or "torchcomms" in name)

    def bytes(self, rows: Rows) -> bytes:
        if self.kind == "fr":
            return json.dumps({**self.document, "entries": rows}, separators=(",", ":")).encode()
        return b"".join(self.head) + b"".join(rows)


def _cells(row: bytes) -> list[str]:
    import csv

    return next(csv.reader([row.decode()]))


def _serials(rows: Rows) -> list[Any]:
    """Operation's and communicator's serial numbers of the calls of an Inspector or plugin file."""
    out = []
    for r in rows:
        if b'"ph": "e"' in r:
            continue
        sn = re.search(rb'"(coll_sn|p2p_sn|SeqNum)": ?(\d+)', r)
        comm = re.search(rb'"CommHash": ?(\d+)', r)
        if sn is not None:
            out.append((sn[1] + (comm[1] if comm else b""), int(sn[2])))
    return out


def _gaps(form: _Form, rows: Rows) -> int:
    """Numbers that are missing between the first and the last, and those that are there twice."""
    if form.numbered is None:
        return 0
    by: dict[Any, list[int]] = {}
    for key, number in form.numbered(rows):
        by.setdefault(key, []).append(number)
    return sum(max(n) - min(n) + 1 - len(set(n)) + 2 * (len(n) - len(set(n))) for n in by.values())


def _judged(form: _Form, rows: Rows, undecided: str) -> tuple[bool, str]:
    if form.kind == "own" and form.stated and len(rows) != len(form.rows):
        return True, "the header states another number of classes"
    try:
        if _gaps(form, rows) > _gaps(form, form.rows):
            return True, "numbers of records are missing, or there twice"
    except (ValueError, IndexError):
        return True, "a row whose cells do not fit their header"
    if b'"TotalDurationNs"' in form.rows[0] and len(set(rows)) < len(rows):
        return True, "a kernel's totals twice in one table"
    if form.kind == "own" and rows and not rows[-1].endswith(b"\n"):
        return True, "the last row has no end"
    return False, undecided


def _rows(
    change: Callable[[Rows, Random, float], Rows], undecided: str
) -> Callable[[Files, Random, float], Damaged | None]:
    def apply(files: Files, draw: Random, severity: float) -> Damaged | None:
        name = one(files, draw)
        form = _Form(name, files[name])
        if len(form.rows) < 2:
            return None
        rows = change(list(form.rows), draw, severity)
        if rows == form.rows:
            return None
        return Damaged({**files, name: form.bytes(rows)}, *_judged(form, rows, undecided))

    return apply


def _gone(rows: Rows, draw: Random, part: float) -> Rows:
    return [r for r in rows if draw.random() >= part]


def _second(rows: Rows, draw: Random, _part: float) -> Rows:
    return rows[draw.randrange(2) :: 2]


def _interval(rows: Rows, draw: Random, part: float) -> Rows:
    size = max(1, int(len(rows) * part))
    at = draw.randrange(len(rows) - size + 1)
    return rows[:at] + rows[at + size :]


def _tail(rows: Rows, _draw: Random, part: float) -> Rows:
    return rows[: max(1, int(len(rows) * (1 - part)))]


def _repeated(rows: Rows, draw: Random, part: float) -> Rows:
    size = max(1, int(len(rows) * part))
    at = draw.randrange(len(rows) - size + 1)
    return rows[: at + size] + rows[at:]


def _third(rows: Rows, draw: Random, _part: float) -> Rows:
    off = draw.randrange(3)
    return [r for i, r in enumerate(rows) if i % 3 != off]


def _doubled(rows: Rows, draw: Random, part: float) -> Rows:
    return [r for r in rows for _ in range(1 + (draw.random() < part))]


def _all_twice(rows: Rows, _draw: Random, _part: float) -> Rows:
    return rows * 2


def _merged(rows: Rows, draw: Random, part: float) -> Rows:
    """Two entries become one, which has the first's beginning and the second's rest."""
    out: Rows = []
    for row in rows:
        if not (out and draw.random() < part):
            out.append(row)
        elif isinstance(row, dict):
            last, keys = out[-1], sorted(row)
            taken = keys[: draw.randrange(len(keys))]
            out[-1] = {**row, **{k: last[k] for k in taken if k in last}}
        else:
            at = draw.randrange(min(len(out[-1]), len(row)))
            out[-1] = out[-1][:at] + row[at:]
    return out


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _hole(files: Files, draw: Random, severity: float) -> Damaged | None:
    name = one(files, draw)
    data = files[name]
    size = max(1, int(len(data) * severity))
    if size + 1 >= len(data):
        return None
    at = draw.randrange(1, len(data) - size)
    cut = data[:at] + data[at + size :]
    if _is_json(data) and not _is_json(cut):
        return Damaged({**files, name: cut}, True, "the JSON is broken")
    try:
        form = _Form(name, data)
        found = _judged(form, _Form(name, cut).rows, "what stays reads as a whole file")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        found = True, "the file is broken"
    return Damaged({**files, name: cut}, *found)


def _torn(files: Files, draw: Random, severity: float) -> Damaged | None:
    name = one(files, draw)
    data = files[name].rstrip()
    cut = data[: int(len(data) * (1 - severity)) - 1]
    if not cut or cut.endswith((b"\n", b"\r")) or data[len(cut) : len(cut) + 1] in b"\r\n":
        return None
    # The last line of a pasted table often has no end; then only a row that is too short tells.
    rows = cut.splitlines()
    short = len(rows) > 1 and len(rows[-1].split()) < len(rows[-2].split())
    found = short or not _Form(name, data).table
    why = "the last line is incomplete" if found else "a table's last line may have no end"
    return Damaged({**files, name: cut}, found, why)


def _file_twice(files: Files, draw: Random, _severity: float) -> Damaged:
    name = one(files, draw)
    form = _Form(name, files[name])
    why = "the same record numbers twice" if form.numbered else "a measurement may be repeated"
    return Damaged({**files, f"again-{name}": files[name] + b"\n"}, form.numbered is not None, why)


def _digits(files: Files, draw: Random, severity: float) -> Damaged | None:
    name = one(files, draw)
    text = files[name]

    def change(m: re.Match[bytes]) -> bytes:
        if draw.random() >= severity:
            return m[0]
        at = draw.randrange(len(m[0]))
        return m[0][:at] + m[0][at + 1 :]

    cut = re.sub(rb"(?<![\w.])\d{3,}(?![\w])", change, text)
    if cut == text:
        return None
    return Damaged({**files, name: cut}, False, "a smaller number is possible")


def _columns(files: Files, draw: Random, severity: float) -> Damaged | None:
    name = one(files, draw)
    form = _Form(name, files[name])
    if not form.table or b"," not in form.rows[-1]:
        return None
    rows = []
    for r in form.rows:
        cells = r.split(b",")
        if len(cells) > 4 and draw.random() < severity:
            del cells[draw.randrange(1, len(cells) - 1)]
        rows.append(b",".join(cells))
    if rows == form.rows:
        return None
    return Damaged(
        {**files, name: form.bytes(rows)}, True, "rows have a cell less than their header"
    )


def _entries(
    change: Callable[[dict[str, Any], dict[str, Any]], None], why: str
) -> Callable[[Files, Random, float], Damaged | None]:
    """Flight recorder: an entry's fields, or the dump's, that others of the file contradict."""

    def apply(files: Files, draw: Random, severity: float) -> Damaged | None:
        name = one(files, draw)
        form = _Form(name, files[name])
        if form.kind != "fr":
            return None
        for entry in form.rows:
            if draw.random() < severity:
                change(form.document, entry)
        return Damaged({**files, name: form.bytes(form.rows)}, True, why)

    return apply


def _other_type(_dump: dict[str, Any], entry: dict[str, Any]) -> None:
    entry["input_dtypes"] = ["Double"]


def _other_size(_dump: dict[str, Any], entry: dict[str, Any]) -> None:
    entry["input_sizes"] = [[3 * length + 1 for length in s] or [7] for s in entry["input_sizes"]]


def _other_output(_dump: dict[str, Any], entry: dict[str, Any]) -> None:
    entry["output_sizes"] = [[3 * length + 1 for length in s] or [7] for s in entry["output_sizes"]]


def _other_status(dump: dict[str, Any], _entry: dict[str, Any]) -> None:
    for status in dump["pg_status"].values():
        status["last_enqueued_collective"] = "3"


def _unnumbered(files: Files, draw: Random, severity: float) -> Damaged | None:
    name = one(files, draw)
    form = _Form(name, files[name])
    if form.kind != "fr":
        return None
    rows = [{k: v for k, v in r.items() if k != "record_id"} for r in form.rows]
    rows = _interval(rows, draw, severity)
    numbers = [r["collective_seq_id"] for r in rows]
    gaps = max(numbers) - min(numbers) + 1 > len(set(numbers))
    why = "the group's own numbers have a gap" if gaps else _MIDDLE
    return Damaged({**files, name: form.bytes(rows)}, gaps, why)


def _other_group(files: Files, draw: Random, _severity: float) -> Damaged | None:
    """The dump of another rank beside it, which gives the group twice as many ranks."""
    name = one(files, draw)
    form = _Form(name, files[name])
    if form.kind != "fr" or "rank0" not in name:
        return None
    other = json.loads(files[name])
    for group in other["pg_config"].values():
        ranks = json.loads(group["ranks"])
        group["ranks"] = json.dumps([*ranks, *(r + len(ranks) for r in ranks)])
    beside = {name.replace("rank0", "rank1"): json.dumps(other).encode()}
    return Damaged({**files, **beside}, True, "a member gives its group other ranks")


def _renumbered(files: Files, draw: Random, severity: float) -> Damaged | None:
    """Entries of an interval gone, and record_id without a gap again."""
    name = one(files, draw)
    form = _Form(name, files[name])
    if form.kind != "fr":
        return None
    rows = _interval(form.rows, draw, severity)
    first = form.rows[0]["record_id"]
    gaps = count_missing([r["op_id"] for r in rows]) > 0
    rows = [{**r, "record_id": first + k} for k, r in enumerate(rows)]
    why = "the numbers of operations have a gap" if gaps else _MIDDLE
    return Damaged({**files, name: form.bytes(rows)}, gaps, why)


def _no_groups(files: Files, draw: Random, _severity: float) -> Damaged | None:
    """The dump of another rank beside it, which does not tell the ranks of its groups."""
    name = one(files, draw)
    form = _Form(name, files[name])
    if form.kind != "fr" or "rank0" not in name:
        return None
    other = {k: v for k, v in json.loads(files[name]).items() if k != "pg_config"}
    beside = {name.replace("rank0", "rank1"): json.dumps(other).encode()}
    return Damaged({**files, **beside}, True, "the other dump tells the ranks of the group")


def _other_side(files: Files, draw: Random, _severity: float) -> Damaged | None:
    """One of two fields of a recorder that say one thing, twice as large in all records."""
    name = one(files, draw)
    fields = rb'("coll_msg_size_bytes": ?|"Count": (?=\d+, "Datatype": "ncclFloat32"))(\d+)'
    cut = re.sub(fields, lambda m: m[1] + str(2 * int(m[2])).encode(), files[name])
    if cut == files[name]:
        return None
    return Damaged({**files, name: cut}, True, "another field of the record gives the size, too")


def _beyond_memory(files: Files, draw: Random, severity: float) -> Damaged | None:
    """A size of a recorder, twelve digits longer: more than the addresses of a process."""
    name = one(files, draw)

    def change(m: re.Match[bytes]) -> bytes:
        return m[1] + m[2] + b"0" * 12 if draw.random() < severity else m[0]

    sizes = rb'("(?:coll_msg_size_bytes|Count)": ?|\bcount : |\bin_count=)(\d{3,9})(?!\d)'
    cut = re.sub(sizes, change, files[name])
    if cut == files[name]:
        return None
    return Damaged({**files, name: cut}, True, "no process has so much memory")


_FOREIGN = "nothing says how many rows there were"
_MIDDLE = "no record's number is missing between the first and the last"
_ANY = (0.05, 0.2, 0.5)

DAMAGES = (
    Damage("records gone", _rows(_gone, _FOREIGN), _ANY),
    Damage("every second record gone", _rows(_second, _FOREIGN), (1.0,)),
    Damage("records of an interval gone", _rows(_interval, _MIDDLE), _ANY),
    Damage("last records gone", _rows(_tail, _MIDDLE), _ANY),
    Damage("records doubled", _rows(_doubled, "a measurement may be repeated"), _ANY),
    Damage("all records twice", _rows(_all_twice, "a measurement may be repeated"), (1.0,)),
    Damage("records merged", _rows(_merged, _FOREIGN), _ANY),
    Damage("bytes gone from the middle", _hole, (0.01, 0.1, 0.4)),
    Damage("end torn off", _torn, (0.0, 0.1, 0.4)),
    Damage("a file twice", _file_twice, (1.0,)),
    Damage("numbers lose a digit", _digits, (0.01, 0.1)),
    Damage("cells gone", _columns, (0.1, 1.0)),
    Damage("other types in than out", _entries(_other_type, "in and out differ"), _ANY),
    Damage("other counts in than out", _entries(_other_size, "in and out differ"), _ANY),
    Damage("status behind the entries", _entries(_other_status, "completed, not enqueued"), (1.0,)),
    Damage("entries gone without record ids", _unnumbered, _ANY),
    Damage("two dumps, other ranks", _other_group, (1.0,)),
    Damage("entries gone, records renumbered", _renumbered, _ANY),
    Damage("two dumps, one without groups", _no_groups, (1.0,)),
    Damage("sizes beside bandwidths and the API", _other_side, (1.0,)),
    Damage("sizes beyond any memory", _beyond_memory, (0.3, 1.0)),
    Damage(
        "records of an interval repeated",
        _rows(_repeated, "a measurement may be repeated"),
        _ANY,
        exam=True,
    ),
    Damage(
        "other counts out than in",
        _entries(_other_output, "in and out differ"),
        _ANY,
        exam=True,
    ),
    Damage("every third record gone", _rows(_third, _FOREIGN), (1.0,), exam=True),
)
