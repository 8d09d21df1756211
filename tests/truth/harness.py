"""The table of truth: what collscope tells, beside what was computed without it.

`make truth` prints the table; `test_truth.py` holds every case to it. README.md: how to add one.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import builders
import msgspec
from command import collscope, on_terminal
from inputs import RECORDINGS, ROOT, SHARED

CASES = Path(__file__).resolve().parent / "cases"
# What `alone` allows a command: a guard against endless work, far above what any needs.
WALL_S, CPU_S, MEMORY_BYTES = 12, 8, 4 << 30
_WIDTHS = {"case": 4, "what": 52, "answer": 44, "truth": 34, "inside": 0}

Scalar = bool | int | float | str
Verdict = Literal["yes", "NO", "known wrong", "STALE MARK", "not run"]


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One number or sentence of an answer, and its truth."""

    what: str
    # Of what: one of the four. `store` is all that the case's own store commands printed.
    sql: str | None = None
    command: str | None = None
    store: bool = False
    file: str | None = None
    # Where in a printed answer: a JSON pointer, SQL over the JSON `:answer`, a pattern with a
    # group, or how the command ended. None of them: all of the text, blanks made one.
    at: str | None = None
    select: str | None = None
    find: str | None = None
    ends: Literal["exit", "peak_mb", "failed"] | None = None
    # The truth: one of the four, and `within` of a number, relative.
    truth: Scalar | None = None
    between: tuple[float, float] | None = None
    says: str | None = None
    never: str | None = None
    within: float = 0.0
    or_unknown: bool = False  # "not known" is right as well
    known_wrong: str | None = None
    # How the command runs.
    alone: bool = False  # in a process of its own, which is killed where it does not end
    together: str | None = None  # a second command, started at the same time
    tries: int = 1
    columns: int | None = None  # of the terminal; lines are then as printed


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Inputs, a store made of them, and what is asked."""

    title: str
    source: str
    ask: list[Ask]
    needs: str | None = None
    make: list[list[Any]] = []
    store: list[str] = []


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    case: str
    what: str
    answer: str
    truth: str
    inside: Verdict
    why: str = ""


class Ran(msgspec.Struct, frozen=True):
    """What a command left behind."""

    code: int | None
    text: str
    out: str
    peak_mb: float = 0.0
    failed: int = 0


class AbsentError(Exception):
    """An input of the case is not on this machine."""


def load() -> dict[str, Case]:
    """Every case by its name, in the order of the names."""
    return {
        path.stem: msgspec.toml.decode(path.read_bytes(), type=Case)
        for path in sorted(CASES.glob("*.toml"))
    }


def judge(name: str, case: Case, folder: Path) -> list[Row]:
    """The rows of a case; `folder` is an empty one for what it makes."""
    if case.needs is not None:
        return [_not_run(name, ask, f"needs {case.needs}") for ask in case.ask]
    try:
        bench = _Bench(case, folder)
        return [_row(name, ask, bench) for ask in case.ask]
    except AbsentError as missing:
        return [_not_run(name, ask, f"no {missing}") for ask in case.ask]


class _Bench:
    """A case's made inputs and its store."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.folder = folder
        self._answers: dict[tuple[str, int | None], Ran] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for builder, *arguments in case.make:
            getattr(builders, builder)(*(self._path(a) for a in arguments))
        ran = [self.run(command) for command in case.store]
        self.stored = Ran(
            max((r.code or 0 for r in ran), default=0), "\n".join(r.text for r in ran), ""
        )

    def _path(self, word: Any) -> Any:  # noqa: ANN401
        """A word as it is, or the file that it names below a folder of inputs."""
        if not isinstance(word, str):
            return word
        top = word.partition("/")[0]
        if top == "made":
            return self.folder / word.removeprefix("made/") if "/" in word else self.folder
        if top in ("samples", "docs") or word == "README.md":
            return ROOT / word
        if top == "recordings" and "/" in word and (RECORDINGS.parent / word).exists():
            return RECORDINGS.parent / word
        if top in ("corpus", "background", "recordings") and "/" in word:
            if not (SHARED / top).is_dir():
                raise AbsentError(f"{top} folder (COLLSCOPE_SHARED)")
            return SHARED / word
        return word

    def file(self, name: str) -> Ran:
        text = Path(self._path(name)).read_text("utf-8")
        return Ran(0, text, text)

    def words(self, command: str) -> list[str]:
        return [str(self._path(word)) for word in shlex.split(command)]

    def run(self, command: str, columns: int | None = None) -> Ran:
        """The command in this process, on the case's store; asked again, the same answer."""
        if (command, columns) in self._answers:
            return self._answers[command, columns]
        with _environment(COLUMNS="120", COLLSCOPE_DB=str(self.folder / "s.db")):
            words = self.words(command)
            done = collscope(*words) if columns is None else on_terminal(columns, *words)
        ran = Ran(done.code, done.out + "\n" + done.err, done.out)
        self._answers[command, columns] = ran
        return ran

    def run_alone(self, ask: Ask) -> Ran:
        """`ask.tries` times in processes of their own, each on a store of its own."""
        failed, done = 0, Ran(0, "", "")
        for number in range(ask.tries):
            commands = [c for c in (ask.command, ask.together) if c is not None]
            db = self.folder / (f"alone{number}.db" if ask.together else "s.db")
            started = [_start(self.words(c), db, self.folder) for c in commands]
            for process in started:
                done = _finish(process)
                failed += done.code != 0
        return Ran(done.code, done.text, done.out, done.peak_mb, failed)

    def sql(self, query: str) -> Any:  # noqa: ANN401
        with contextlib.closing(sqlite3.connect(self.folder / "s.db")) as connection:
            return _first(connection.execute(query).fetchone())


# Within the limits a process of its own; the process that waits for it measures its memory.
_WAITER = f"""
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_S}, {CPU_S}))
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
code = subprocess.call([sys.executable, "-m", "collscope", *sys.argv[1:]])
print("PEAK", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
sys.exit(code if code >= 0 else 128 - code)
"""


def _start(words: list[str], db: Path, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _WAITER, *words],
        cwd=folder,
        env=os.environ | {"COLLSCOPE_DB": str(db), "COLUMNS": "120"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _finish(process: subprocess.Popen[str]) -> Ran:
    try:
        out, err = process.communicate(timeout=WALL_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return Ran(None, f"killed after {WALL_S} s", "")
    body, _, peak = out.rpartition("PEAK ")
    return Ran(process.returncode, body + "\n" + err, body, float(peak or 0))


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _row(name: str, ask: Ask, bench: _Bench) -> Row:
    try:
        answer = _find_answer(ask, bench)
    except (LookupError, ValueError, sqlite3.Error) as error:
        answer = _Nothing(f"no such answer: {error}")
    inside = _inside(ask, answer)
    verdict: Verdict = "yes" if inside else "NO"
    if ask.known_wrong is not None:
        verdict = "STALE MARK" if inside else "known wrong"
    return Row(
        case=name,
        what=ask.what,
        answer=_shown(ask, answer),
        truth=_truth(ask),
        inside=verdict,
        why=ask.known_wrong or "",
    )


class _Nothing(str):
    """Why there is no answer to compare with the truth."""

    __slots__ = ()


def _find_answer(ask: Ask, bench: _Bench) -> Any:  # noqa: ANN401
    if ask.sql is not None:
        return bench.sql(ask.sql)
    ran = _ran(ask, bench)
    if ask.ends is not None:
        ends = {"exit": ran.code, "peak_mb": ran.peak_mb, "failed": ran.failed}
        return _Nothing(ran.text) if ran.code is None else ends[ask.ends]
    if ask.at is not None or ask.select is not None:
        return _in_json(ask, ran)
    text = _plain(ran.text) if ask.columns is None else ran.text
    found = re.search(ask.find or "(?s)(.*)", text)
    return found[1] if found else _Nothing(f"not found: {ask.find}")


def _ran(ask: Ask, bench: _Bench) -> Ran:
    if ask.store:
        return bench.stored
    if ask.file is not None:
        return bench.file(ask.file)
    assert ask.command is not None, ask.what
    if ask.alone or ask.together:
        return bench.run_alone(ask)
    return bench.run(ask.command, ask.columns)


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _in_json(ask: Ask, ran: Ran) -> Any:  # noqa: ANN401
    if ran.code != 0:
        return _Nothing(f"exit {ran.code}: {_plain(ran.text)}")
    if ask.select is not None:
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            return _first(connection.execute(ask.select, {"answer": ran.out}).fetchone())
    assert ask.at is not None
    found: Any = json.loads(ran.out)
    for step in ask.at.split("/")[1:]:
        found = found[int(step)] if isinstance(found, list) else found[step]
    return found


def _first(row: tuple[Any, ...] | None) -> Any:  # noqa: ANN401
    return _Nothing("no row") if row is None else row[0]


def _inside(ask: Ask, answer: Any) -> bool:  # noqa: ANN401
    """Whether the answer is the truth."""
    if answer is None or isinstance(answer, _Nothing):
        return answer is None and ask.or_unknown
    if ask.says is not None or ask.never is not None:
        found = re.search(ask.says or ask.never or "", str(answer))
        return (found is not None) == (ask.says is not None)
    if isinstance(ask.truth, str):
        return str(answer) == ask.truth
    low, high = ask.between or (ask.truth, ask.truth)
    assert low is not None, ask.what
    assert high is not None, ask.what
    with contextlib.suppress(ValueError):
        return low - ask.within * abs(low) <= float(answer) <= high + ask.within * abs(high)
    return False


def _shown(ask: Ask, answer: Any) -> str:  # noqa: ANN401
    if answer is None:
        return "not known"
    if isinstance(answer, _Nothing):
        return str(answer)
    pattern = ask.says or ask.never
    if pattern is not None:
        found = re.search(pattern, str(answer))
        return f"“{_plain(found[0])}”" if found else "does not say it"
    try:
        return f"{float(answer):.6g}"
    except ValueError:
        return str(answer)


def _truth(ask: Ask) -> str:
    if ask.says is not None:
        return f"says {ask.says}"
    if ask.never is not None:
        return f"never says {ask.never}"
    unknown = " or not known" if ask.or_unknown else ""
    if ask.between is not None:
        low, high = ask.between
        return f"{low:g} to {high:g}{unknown}"
    near = f" ± {100 * ask.within:g} %" if ask.within else ""
    return f"{ask.truth}{near}{unknown}"


def _not_run(name: str, ask: Ask, why: str) -> Row:
    return Row(case=name, what=ask.what, answer="", truth=_truth(ask), inside="not run", why=why)


def table(rows: list[Row]) -> str:
    """All rows as one text table, and how many are what."""
    widths = _WIDTHS | {"case": max(len(r.case) for r in rows)}
    lines = [_line(widths, {c: c for c in widths}), _line(widths, dict.fromkeys(widths, "-" * 8))]
    for row in rows:
        cells = {c: getattr(row, c) for c in widths}
        lines.append(_line(widths, cells) + (f": {row.why}" if row.why else ""))
    counts = {v: sum(r.inside == v for r in rows) for v in Verdict.__args__}
    lines.append(
        f"\n{len(rows)} rows: {counts['yes']} inside, {counts['known wrong']} known wrong, "
        f"{counts['not run']} not run here, {counts['NO']} WRONG, "
        f"{counts['STALE MARK']} right with a mark that must go"
    )
    return "\n".join(lines)


def _line(widths: dict[str, int], cells: dict[str, str]) -> str:
    def cut(text: str, width: int) -> str:
        text = _printable(text)
        return text if not width or len(text) <= width else text[: width - 1] + "…"

    return "  ".join(cut(cells[c], w).ljust(w) for c, w in widths.items()).rstrip()


def _judged(name: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return judge(name, load()[name], Path(folder) / "made")


def main() -> int:
    """Print the table of all cases, or of those whose names begin with the arguments."""
    wanted = tuple(sys.argv[1:])
    names = [n for n in load() if not wanted or n.startswith(wanted)]
    fork = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=fork) as pool:
        rows = [row for rows in pool.map(_judged, names) for row in rows]
    print(table(rows))
    return int(any(r.inside in ("NO", "STALE MARK") for r in rows))


if __name__ == "__main__":
    sys.exit(main())
