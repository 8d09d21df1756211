"""Damages through the tool: which headline numbers move without a word (`make semantics`).

    PYTHONPATH=tests python tests/damage/semantics.py [--seed N] [--damages N] [--out FILE]
        [--only traces|logs|profiles|records] [--kind TEXT] [--input TEXT] [--exam]

Each damaged recording goes into a fresh store. A headline number that moved by more than 2 % has
to be explained: by a diagnostic, finding or unusable file that the undamaged recording does not
have, or because the number itself is "not known" now. README.md says how the rest is judged.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import math
import multiprocessing
import os
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import damages_harmless
import damages_logs
import damages_profiles
import damages_records
import damages_traces
import msgspec
import trace_converter
import zstandard
from command import collscope
from damages import Files
from inputs import ROOT, SHARED
from readers import parse

Headline = dict[str, float | None]
_FEW = 4
_MOVED = 0.02  # relative; what a reader would act on
_DAMAGES = {
    "traces": damages_traces.DAMAGES,
    "logs": damages_logs.DAMAGES,
    "profiles": damages_profiles.DAMAGES,
    "records": damages_records.DAMAGES,
}
# Public views: name, and what is taken of them. One number each, or NULL.
_QUERIES = {
    "kernel rows": "SELECT sum(calls) FROM kernel_totals",
    "kernel time": "SELECT sum(total_ns) FROM kernel_totals",
    "measurements": "SELECT count(*) FROM measurements WHERE status = 'ok'",
    "measured time": "SELECT sum(time_us_median) FROM measurements WHERE status = 'ok'",
}


class Told(msgspec.Struct, frozen=True):
    """What a store says beside its numbers."""

    diagnostics: dict[str, int]
    findings: dict[str, int]
    unusable: int
    # What the report itself says of missing ranks, lost kernels, cuts and calls that do not agree.
    stated: dict[str, int] = {}


class Seen(msgspec.Struct, frozen=True):
    """A store's headline numbers, and what it says beside them."""

    numbers: Headline
    told: Told


class Row(msgspec.Struct, frozen=True):
    """What became of one damage. `silent` are the moves that nothing explains."""

    group: str
    kind: str
    input: str
    seed: int
    severity: float
    moved: bool
    silent: tuple[str, ...]
    decidable: bool
    why: str
    error: str = ""


def inputs(part: str = "") -> dict[str, dict[str, Files]]:
    """Undamaged recordings by group and name; those that are not on this machine are left out.

    part  of the names that are asked for
    """
    samples = ROOT / "samples"
    traces = {f"traces/{p.name}": p for p in sorted((samples / "traces").iterdir())}
    recorded = SHARED / "recordings/h200x4-jobs/plain"
    for name in ("default/ddp", "ch2/fsdp"):
        if (recorded / name).is_dir():
            traces[f"recordings/{name}"] = recorded / name
    logs = {
        "nccl/ddp": [samples / "nccl/ddp"],
        "nccl/mixed": [samples / "nccl/mixed"],
        "rccl/guide": [samples / "rccl/guide-coll-klke.log"],
    }
    records = [
        p
        for folder in ("recorders", "replay", "tables", "profiles")
        for p in sorted((samples / folder).iterdir())
        if p.suffix not in (".sqlite", ".rpd", ".pickle") and p.name != "README.md"
    ]
    return {
        "traces": {k: _traces(p) for k, p in traces.items() if part in k},
        "logs": {
            k: {f.name: f.read_bytes() for p in paths for f in _files(p)}
            for k, paths in logs.items()
            if part in k
        },
        "profiles": {
            form: _profile(samples / "traces/ringll/rank0.json.gz", form)
            for form in trace_converter.SQLITE
            if part in form
        },
        "records": {
            name: {p.name: p.read_bytes()}
            for p in records
            if part in (name := f"{p.parent.name}/{p.name}")
        },
    }


def _files(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


def _traces(folder: Path) -> Files:
    out = {}
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        elif path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().stream_reader(data).read()
        # Written as the damages write it, so that only the damage differs.
        out[path.stem] = msgspec.json.encode(msgspec.json.decode(data))
    return out


def _profile(trace: Path, form: str) -> Files:
    """A trace as another profiler would have written it."""
    with tempfile.TemporaryDirectory() as folder:
        traces = parse([gzip.decompress(trace.read_bytes())], trace.name)
        return {p.name: p.read_bytes() for p in trace_converter.write(traces, form, Path(folder))}


def look(files: Files, folder: Path) -> Seen:
    """The files in a fresh store below `folder`."""
    kept = folder / "in"
    kept.mkdir()
    for name, data in files.items():
        (kept / name).write_bytes(data)
    db = folder / "s.db"
    done = collscope("ingest", "auto", kept, "--db", db)
    _sound(done.err)
    unusable = done.out.count(": skipped: ") + done.err.count(": skipped: ")
    if not db.exists():
        return Seen({}, Told({}, {}, max(1, unusable)))
    report = collscope("report", "--db", db, "--format", "json")
    _sound(report.err)
    if report.code != 0:
        return Seen({}, Told({}, {}, max(1, unusable)))
    answer = json.loads(report.out)
    with contextlib.closing(sqlite3.connect(db)) as connection:
        numbers = _numbers(answer, connection)
        codes = connection.execute("SELECT code, sum(count) FROM diagnostics GROUP BY code")
        told = Told(
            {code: int(n) for code, n in codes},
            dict(Counter(f["code"] for f in answer["findings"])),
            unusable,
            _stated(answer),
        )
    return Seen(numbers, told)


def _stated(answer: dict[str, Any]) -> dict[str, int]:
    timeline = answer.get("timeline") or {}
    return {
        "missing ranks": sum(c["missing_ranks"] is not None for c in answer["communicators"]),
        "lost kernels": timeline.get("kernels_lost") or 0,
        "cut": len(timeline.get("cut") or []),
        "disagreements": len(timeline.get("disagreements") or []),
    }


def _sound(errors: str) -> None:
    """An error inside the tool is a failure of the tool, not of the input."""
    if "internal error" in errors:
        raise AssertionError(errors[-500:])


def _numbers(answer: dict[str, Any], connection: sqlite3.Connection) -> Headline:
    header, timeline = answer["header"], answer.get("timeline") or {}
    ranks, steps = timeline.get("ranks") or [], timeline.get("steps") or []
    numbers: Headline = {
        "ranks": header["ranks"],
        "calls": header["calls"],
        "classes": header["classes"],
        "bytes": header["total_bytes"],
        "communicators": header["communicators"],
        "share": _mean(s["percent"] for s in answer["shares"]),
        "steps": _mean(s["steps"] for s in steps),
        "step time": _mean(s["mean_ns"] for s in steps),
        "longest step": max((s["mean_ns"] for s in steps if s["mean_ns"]), default=None),
    }
    for part in ("exposed", "idle", "transfer", "wait", "span", "compute"):
        numbers[part] = _mean(r.get(f"{part}_ns") for r in ranks)
    for name, query in _QUERIES.items():
        numbers[name] = connection.execute(query).fetchone()[0]
    return numbers


def _sum(values: Any) -> float | None:  # noqa: ANN401
    found = list(values)
    return None if not found or None in found else sum(found)


def _mean(values: Any) -> float | None:  # noqa: ANN401
    found = list(values)
    return None if not found or None in found else sum(found) / len(found)


def explained(before: Told, after: Told) -> bool:
    """Whether the store says something that the undamaged one's does not."""
    return (
        after.unusable > before.unusable
        or any(n > before.diagnostics.get(code, 0) for code, n in after.diagnostics.items())
        or any(n > before.findings.get(rule, 0) for rule, n in after.findings.items())
        or any(n > before.stated.get(what, 0) for what, n in after.stated.items())
    )


def moves(before: Headline, after: Headline) -> list[tuple[str, float, float | None]]:
    """Headline numbers that moved; a number that is not known now is None."""
    out = []
    for name, old in before.items():
        new = after.get(name)
        if old is None or old == new:
            continue
        if new is None or abs(new - old) > _MOVED * abs(old):
            out.append((name, old, new))
    return out


# Set before the workers are forked.
_INPUTS: dict[str, dict[str, Files]] = {}
_BEFORE: dict[tuple[str, str], Seen] = {}

Task = tuple[str, str, str, int, float]


def run(task: Task) -> Row | None:
    """One damage; None where the kind finds nothing to damage in the input."""
    group, kind, name, seed, severity = task
    files = _INPUTS[group][name]
    damage = next(d for d in _DAMAGES[group] if d.name == kind)
    damaged = damage.apply(files, Random(f"{seed} {kind} {name} {severity}"), severity)
    if damaged is None or damaged.files == dict(files):
        return None
    base = (group, kind, name, seed, severity)
    with tempfile.TemporaryDirectory() as folder:
        try:
            after = look(damaged.files, Path(folder))
        except Exception:
            text = traceback.format_exc()[-400:]
            return Row(*base, True, ("internal error",), True, damaged.why, text)
    before = _BEFORE[group, name]
    moved = moves(before.numbers, after.numbers)
    silent: tuple[str, ...] = ()
    if not explained(before.told, after.told):
        silent = tuple(f"{n}: {o:g} -> {v:g}" for n, o, v in moved if v is not None)
    return Row(*base, bool(moved), silent, damaged.decidable, damaged.why)


def _look_at(key: tuple[str, str]) -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        return look(_INPUTS[key[0]][key[1]], Path(folder))


def _mapped(function: Callable[[Any], Any], over: Sequence[Any]) -> list[Any]:
    """In workers that know what this process read; a few in this process itself."""
    if len(over) <= _FEW:
        return list(map(function, over))
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        return pool.map(function, over, chunksize=1)


def judge(
    groups: list[str], seed: int, count: int, kind: str = "", name: str = "", exam: bool = False
) -> list[Row]:
    """About `count` damages of each group, of all kinds and inputs alike."""
    _INPUTS.update(inputs(name))
    tasks: list[Task] = []
    for group in groups:
        names = [n for n in _INPUTS[group] if name in n]
        kinds = [d for d in _DAMAGES[group] if kind in d.name and (exam or not d.exam)]
        every = [(d, n, s) for d in kinds for n in names for s in d.severities]
        if not every:
            continue
        draw = Random(f"{seed} {group}")
        rounds = -(-count // len(every))
        chosen = [(d, n, s, r) for r in range(rounds) for d, n, s in every]
        if len(chosen) > count:
            chosen = draw.sample(chosen, count)
        tasks += [(group, d.name, n, seed * 1000 + r, s) for d, n, s, r in chosen]
    keys = sorted({(t[0], t[2]) for t in tasks})
    _BEFORE.update(zip(keys, _mapped(_look_at, keys), strict=True))
    return [row for row in _mapped(run, tasks) if row is not None]


def controls() -> list[str]:
    """Harmless changes that moved a number, or that a store says something new about."""
    _INPUTS.update(inputs())
    tasks = [
        (group, name, what)
        for group, of in _INPUTS.items()
        for name in of
        for what, change in damages_harmless.CHANGES.items()
        if group in change.groups
    ]
    keys = sorted({(group, name) for group, name, _ in tasks})
    _BEFORE.update(zip(keys, _mapped(_look_at, keys), strict=True))
    return [line for line in _mapped(control, tasks) if line]


def control(task: tuple[str, str, str]) -> str:
    """What a harmless change did; "" where it did nothing."""
    group, name, what = task
    files = damages_harmless.CHANGES[what].apply(_INPUTS[group][name])
    before = _BEFORE[group, name]
    with tempfile.TemporaryDirectory() as folder:
        after = look(files, Path(folder))
    other = {
        k: (old, new)
        for k, old in before.numbers.items()
        # Sums of the same numbers in another order.
        if (new := after.numbers.get(k)) != old
        and (old is None or new is None or not math.isclose(old, new))
    }
    if not other and not explained(before.told, after.told):
        return ""
    return f"{what} of {name}: {other} {before.told} {after.told}"


def table(rows: list[Row]) -> str:
    """The result by kind."""
    by: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by[row.group, row.kind].append(row)
        by[row.group, "all"].append(row)
    lines = [
        "| | damages | unmoved | moved, explained | silent, decidable | silent, undecidable |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (group, kind), of in sorted(by.items()):
        silent = [r for r in of if r.silent]
        numbers = (
            len(of),
            sum(not r.moved for r in of),
            sum(r.moved and not r.silent for r in of),
            sum(r.decidable for r in silent),
            sum(not r.decidable for r in silent),
        )
        lines.append(f"| {group}: {kind} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(lines)


def details(rows: list[Row]) -> str:
    """Every silent move: what moved, why it is decidable or not, how it is repeated."""
    order = sorted(rows, key=lambda r: (not r.decidable, r.group, r.kind, r.input, r.severity))
    return "\n".join(
        f"{'DECIDABLE' if r.decidable else 'undecidable'}  {r.group}: {r.kind}"
        f" {r.severity:g} of {r.input}, seed {r.seed}\n"
        f"    {'; '.join(r.silent)}\n    {r.why}\n"
        "    PYTHONPATH=tests python tests/damage/semantics.py"
        f" --again '{json.dumps([r.group, r.kind, r.input, r.seed, r.severity])}'"
        f" --keep FOLDER{chr(10) + r.error if r.error else ''}"
        for r in order
        if r.silent
    )


def main() -> int:
    """Exit 1 where a decidable damage is silent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--damages", type=int, default=600, help="of each group")
    parser.add_argument("--only", choices=sorted(_DAMAGES))
    parser.add_argument("--kind", default="")
    parser.add_argument("--input", default="")
    parser.add_argument("--out", type=Path, help="write every silent move there")
    parser.add_argument("--exam", action="store_true", help="kinds of the second set, too")
    parser.add_argument("--again", help="one damage of a list, as its line names it")
    parser.add_argument("--keep", type=Path, help="with --again: leave the damaged files there")
    given = parser.parse_args()
    if given.again:
        group, kind, name, seed, severity = json.loads(given.again)
        _INPUTS.update(inputs(name))
        _BEFORE[group, name] = _look_at((group, name))
        if given.keep:
            damage = next(d for d in _DAMAGES[group] if d.name == kind)
            draw = Random(f"{seed} {kind} {name} {severity}")
            damaged = damage.apply(_INPUTS[group][name], draw, severity)
            given.keep.mkdir(parents=True, exist_ok=True)
            for file, data in ({} if damaged is None else damaged.files).items():
                (given.keep / file).write_bytes(data)
        row = run((group, kind, name, seed, severity))
        rows = [] if row is None else [row]
    else:
        groups = [given.only] if given.only else sorted(_DAMAGES)
        rows = judge(groups, given.seed, given.damages, given.kind, given.input, given.exam)
    alarms = [] if given.again or given.kind else controls()
    print("\n".join(f"HARMLESS  {line}" for line in alarms))
    print(table(rows))
    print(details(rows))
    if given.out:
        given.out.write_text(table(rows) + "\n\n" + details(rows) + "\n", "utf-8")
    return int(bool(alarms) or any(r.silent and r.decidable for r in rows))


if __name__ == "__main__":
    sys.exit(main())
