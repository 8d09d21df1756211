"""Every number of every sample replaced by numbers that nothing has, through every reader.

    PYTHONPATH=tests python tests/large_integers.py [EVERY [SAMPLE...]]

Each field of each sample takes each of `VALUES` in turn, once in one place and once in all. What
comes of it is ingested as a run beside a healthy one, and both are reported. Wrong is an internal
error, a run that cannot be matched, a peak of more than 500 MB, and another report of the healthy
run. EVERY takes every n-th field only. `make integers` runs all of it; `test_limits.py` a little.
"""

from __future__ import annotations

import gzip
import json
import math
import multiprocessing
import os
import random
import re
import resource
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, NamedTuple

from command import collscope

import collscope as package

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
VALUES: tuple[int | float, ...] = (
    -1, 10**7, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, 1e308, 1e-320, math.nan,
)  # fmt: skip
MOST_BYTES = 500 << 20  # that a process may hold
_AT_START = 100 << 20  # of these, what one with all modules holds before it reads anything
_STOP_BYTES = 4 << 30  # of address space; what would take more must not take the host's
_HEALTHY = SAMPLES / "recorders" / "ddp.fr.rank0.json"
_LINES = 400  # of a text in which fields are looked for
_EVENTS = 40  # of a trace's category
_ROW = 5  # commas of a line that is a row of a CSV
_EVERYWHERE = (10**7, 2**62, 2**63 - 1, 1e-320)  # values that stand in all places of a field, too
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]*[a-zA-Z_])")
_TABLE_OF_OTHERS = ("README.md",)

_Make = Callable[[int | float, bool], bytes]  # a value, and whether it stands in all places


class Field(NamedTuple):
    """A field of a sample, and the sample with another number there."""

    sample: Path
    name: str
    make: _Make


def fields(sample: Path) -> Iterator[Field]:
    """The numeric fields of a sample."""
    data = sample.read_bytes()
    if sample.suffix == ".gz":
        data = gzip.decompress(data)
    if data.startswith(b"SQLite format 3\0"):
        found = _columns(sample)
    elif b"\0" in data[:4096]:
        found = _words(data)
    elif data.lstrip()[:1] in (b"{", b"[") and _document(data) is not None:
        found = _keys(_shortened(_document(data)))
    else:
        found = _tokens(data.decode("utf-8", "replace"))
    return (Field(sample, name, make) for name, make in found)


def _document(data: bytes) -> Any:  # noqa: ANN401 - JSON of any kind
    try:
        return json.loads(data)
    except ValueError:
        return None


def _shortened(document: Any) -> Any:  # noqa: ANN401 - JSON of any kind
    """A trace with the first events of each category: to write all of it takes long."""
    if not isinstance(document, dict) or "traceEvents" not in document:
        return document
    seen: dict[str, int] = {}
    kept = []
    for event in document["traceEvents"]:
        kind = str(event.get("cat", event.get("name")))
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= _EVENTS:
            kept.append(event)
    return {**document, "traceEvents": kept}


def _places(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:  # noqa: ANN401
    """Numbers of a document: names on the way to it, what holds it, and under which key."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    kind = (str(node.get("cat")),) if isinstance(node, dict) and "cat" in node else ()
    for key, value in items:
        below = (*path, *kind, key if isinstance(node, dict) else "[]")
        if isinstance(value, dict | list):
            yield from _places(value, below)
        elif type(value) in (int, float) or (isinstance(value, str) and value.isdigit()):
            yield below, node, key


def _keys(document: Any) -> Iterator[tuple[str, _Make]]:  # noqa: ANN401 - JSON of any kind
    found: dict[tuple[str, ...], list[tuple[Any, Any]]] = {}
    for path, node, key in _places(document):
        found.setdefault(path, []).append((node, key))

    def make(places: list[tuple[Any, Any]], value: float, everywhere: bool) -> bytes:
        chosen = places if everywhere else places[:1]
        before = [node[key] for node, key in chosen]
        for node, key in chosen:
            node[key] = str(value) if isinstance(node[key], str) else value
        text = json.dumps(document).encode()
        for (node, key), old in zip(chosen, before, strict=True):
            node[key] = old
        return text

    for path, places in found.items():
        yield ".".join(path), partial(make, places)


def _tokens(text: str) -> Iterator[tuple[str, _Make]]:
    """Numbers of a text by the form of their line and their place in it."""
    lines = text.split("\n")
    found: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for number, line in enumerate(lines[:_LINES]):
        commas = line.count(",")
        whole = re.sub(r"[0-9a-f]*\d[0-9a-f]*", "#", line)
        for place, match in enumerate(_NUMBER.finditer(line)):
            # Of a row the columns count, and of a record the names before its numbers.
            name = re.sub(r"[\d.]+", "#", line[max(match.start() - 16, 0) : match.start()])
            form = whole if commas < _ROW else f"{commas} commas {name.rpartition(',')[2]}"
            found.setdefault((form, place), []).append((number, *match.span()))

    def make(places: list[tuple[int, int, int]], value: float, everywhere: bool) -> bytes:
        changed = list(lines)
        for number, start, end in places if everywhere else places[:1]:
            changed[number] = f"{lines[number][:start]}{value}{lines[number][end:]}"
        return "\n".join(changed).encode()

    for (form, place), places in found.items():
        yield f"{form[:60]} #{place}", partial(make, places)


def _columns(sample: Path) -> Iterator[tuple[str, _Make]]:
    """Columns of the tables of an SQLite file that hold a number."""

    def make(table: str, column: str, value: float, everywhere: bool) -> bytes:
        with tempfile.TemporaryDirectory() as name:
            copy = Path(shutil.copy(sample, Path(name) / "x"))
            # What 64 bits do not hold can stand there as a real number only.
            given = value if isinstance(value, float) or abs(value) < 2**63 else float(value)
            where = "" if everywhere else f" WHERE rowid = (SELECT MIN(rowid) FROM {table})"
            with (
                closing(sqlite3.connect(copy, isolation_level=None)) as db,
                suppress(sqlite3.IntegrityError),  # a key takes no real number
            ):
                db.execute(f'UPDATE OR IGNORE {table} SET "{column}" = ?{where}', (given,))
            return copy.read_bytes()

    with closing(sqlite3.connect(sample)) as db:
        tables = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for _, column, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall():
                kinds = (
                    f"SELECT 1 FROM \"{table}\" WHERE typeof(\"{column}\") IN ('integer', 'real')"
                )
                if db.execute(kinds).fetchone() is not None:
                    yield f"{table}.{column}", partial(make, f'"{table}"', column)


def _words(data: bytes) -> Iterator[tuple[str, _Make]]:
    """Words of 4 and 8 bytes of a binary recording's first records."""

    def make(at: int, size: int, value: float, everywhere: bool) -> bytes:
        number = 0 if math.isnan(value) else max(-1, min(int(value), 2**64 - 1))
        word = (number % 2 ** (8 * size)).to_bytes(size, "little")
        out = bytearray(data)
        for place in range(at, len(data) - size + 1, 8 if everywhere else len(data)):
            out[place : place + size] = word
        return bytes(out)

    for at in range(0, min(len(data), 800) - 8, 4):
        for size in (4, 8):
            yield f"byte {at}, {size}", partial(make, at, size)


def all_fields(samples: list[Path] | None = None) -> list[Field]:
    """Fields of samples; None: of all that are inputs."""
    if samples is None:
        files = sorted(path for path in SAMPLES.rglob("*") if path.is_file())
        samples = [path for path in files if path.name not in _TABLE_OF_OTHERS]
        # Of traces and logs of one job the first rank's are enough.
        samples = [p for p in samples if not re.search(r"rank[1-9]\.(?:log|json\.gz)$", p.name)]
    return [field for sample in samples for field in fields(sample)]


def problems(
    field: Field, template: Path, told: str, values: Sequence[int | float] = VALUES
) -> list[str]:
    """What is wrong with any of the values in a field.

    template  a store with the healthy run "good"
    told      its report
    """
    found = []
    # A test's process holds what earlier tests took.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with tempfile.TemporaryDirectory() as name:
        db = Path(shutil.copy(template, Path(name) / "t.db"))
        for k, value in enumerate(values):
            for everywhere in (False, True) if value in _EVERYWHERE else (False,):
                case = f"{field.sample.name}: {field.name} = {value}{' everywhere' * everywhere}"
                run = f"bad{k}{everywhere}"
                file = Path(name) / field.sample.name.removesuffix(".gz")
                file.write_bytes(field.make(value, everywhere))
                commands: list[tuple[str | Path, ...]] = [("ingest", "auto", file, "--run", run)]
                commands.append(("report", "--run", run))
                for command in commands:
                    done = collscope(*command, "--db", db)
                    said = done.out + done.err
                    if (
                        done.code not in (0, 3, 4)
                        or "internal error" in said
                        or "Traceback" in said
                    ):
                        found.append(f"{case}: {command[0]}: {done.code} {done.err.strip()[:300]}")
                    if "match_failed" in said:
                        found.append(f"{case}: {done.err.strip()[:300]}")
                    if done.code:
                        break
                more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
                if more > MOST_BYTES - _AT_START:
                    return [*found, f"{case}: {more >> 20} MB more"]
        found += _views(db, field)
        again = collscope("report", "--run", "good", "--db", db)
        if (again.code, again.out) != (0, told):
            found.append(f"{field.sample.name}: {field.name}: the healthy run: {again.err[:200]}")
    return found


def _views(db: Path, field: Field) -> list[str]:
    """Views that raise over all the runs of a field, as a sum that 64 bits do not hold."""
    found = []
    with closing(sqlite3.connect(db)) as plain:
        for (view,) in plain.execute("SELECT name FROM sqlite_master WHERE type = 'view'"):
            try:
                plain.execute(f"SELECT * FROM {view}").fetchall()
            except sqlite3.Error as error:  # noqa: PERF203 - each view may
                found.append(f"{field.sample.name}: {field.name}: view {view}: {error}")
    return found


def healthy(folder: Path) -> tuple[Path, str]:
    """A store with a healthy run, and its report."""
    template = folder / "good.db"
    collscope("ingest", "auto", _HEALTHY, "--run", "good", "--db", template)
    return template, collscope("report", "--run", "good", "--db", template).out


def _one(number: int) -> list[str]:
    """Problems of a field, in a process of its own."""
    resource.setrlimit(resource.RLIMIT_AS, (_STOP_BYTES, _STOP_BYTES))
    return problems(_WORK[number], *_TEMPLATE[0])


_WORK: list[Field] = []
_TEMPLATE: list[tuple[Path, str]] = []


def main() -> int:
    """Every n-th field of the samples that are named."""
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    chosen = [p for name in sys.argv[2:] for p in SAMPLES.rglob(name)] or None
    for module in walk_packages(package.__path__, "collscope."):  # once, not in each process
        if not module.name.endswith("__main__"):
            import_module(module.name)
    _WORK.extend(all_fields(chosen)[::every])
    random.Random(0).shuffle(_WORK)  # what is slow is not all at one end
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        _TEMPLATE.append(healthy(Path(name)))
        fork = multiprocessing.get_context("fork")
        with fork.Pool(os.cpu_count(), maxtasksperchild=1) as pool:
            done = pool.imap_unordered(_one, range(len(_WORK)))
            for number, found in enumerate(done, 1):
                bad += len(found)
                for problem in found[:4]:
                    print(problem, flush=True)
                if number % 100 == 0:
                    print(f"{number} of {len(_WORK)} fields, {bad} problems", flush=True)
    cases = len(_WORK) * (len(VALUES) + len(_EVERYWHERE))
    print(f"{len(_WORK)} fields, {cases} files: {bad} problems")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
