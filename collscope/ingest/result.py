"""What became of one input, and the lines that an ingest command ends with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping

import msgspec

from collscope.errors import CollscopeError
from collscope.model import Diagnostic, Severity
from collscope.units import count

_SHOWN = (Severity.ERROR, Severity.DATA_LOSS, Severity.NOTICE)
_USED = ("added", "replaced", "known")
_MOST_LINES = 20  # inputs that each have one
_MOST_REASONS = 10  # why inputs were skipped
_MOST_LABELS = 3  # of a line
_MOST_MESSAGES = 3  # of one code that each have a line
_ONE = {"copies": "copy", "classes": "class"}  # singulars that do not just lose an s


_KNOWN = "already in this run (same bytes), unchanged"

_Found = tuple[str, Diagnostic]  # path of the input, and what it has


class Ingested(msgspec.Struct, frozen=True):
    """One input after ingest. `counts` is what it held, in words for the summary line.

    The last may be the run itself, matched, with what makes it more than one job.
    """

    path: str
    # added, replaced (read again), known (same bytes in the run), unusable, matched
    status: str
    dialect: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    diagnostics: tuple[Diagnostic, ...] = msgspec.field(default=())
    reason: str = ""  # why it is unusable
    code: str = ""  # the same, for programs: see `collscope.ingest.adding`
    labels: tuple[str, ...] = ()  # of its measurements, for `compare` and `check`

    @property
    def lost_data(self) -> bool:
        """True if the input was damaged or incomplete."""
        return any(d.severity in (Severity.DATA_LOSS, Severity.ERROR) for d in self.diagnostics)


class IngestInterruptedError(CollscopeError):
    """Ctrl-C ended an ingest; `results` are those of the inputs before, which are kept."""

    exit_code = 130

    def __init__(self, text: str, results: list[Ingested]) -> None:
        """Say `text` at the command's end."""
        super().__init__(text)
        self.results = results


def summary_lines(results: list[Ingested], *, quiet: bool = False) -> Iterator[str]:
    """One line per input, then the diagnostics of all of them, summed by code and message.

    Of many inputs, or with `quiet`, one line for each dialect, and for each reason why some could
    not be used.

    Of several inputs the first one that has a diagnostic is named behind it. Where a code has many
    messages, since they name files, they are summed behind the first.
    """
    added = [r for r in results if r.status in _USED]
    unusable = [r for r in results if r.status == "unusable"]
    together = quiet or len(added) > _MOST_LINES
    if together:
        yield from _together(added)
    few = added * (not together) + unusable * (not _many(unusable, quiet=quiet))
    yield from (_line(r) for r in results if r in few)
    if _many(unusable, quiet=quiet):
        reasons = Counter(r.reason for r in unusable)
        for reason, number in reasons.most_common(_MOST_REASONS):
            first = next(r.path for r in unusable if r.reason == reason)
            yield f"{count(number, 'file')} skipped: {reason} (first {first})"
        if (left := len(unusable) - sum(n for _, n in reasons.most_common(_MOST_REASONS))) > 0:
            yield (
                f"{count(left, 'file')} skipped for other reasons: ingest some by name to see them"
            )
    inputs = {r.path for r in results if r.status != "matched"}
    by_code: dict[tuple[Severity, str], list[tuple[str, Diagnostic]]] = defaultdict(list)
    for r in results:
        for d in r.diagnostics:
            if d.severity in _SHOWN:
                by_code[d.severity, d.code].append((r.path, d))
    for severity, code in sorted(by_code, key=lambda key: _SHOWN.index(key[0])):
        for same in _by_message(by_code[severity, code]):
            total = sum(d.count for _, d in same)
            among = list(dict.fromkeys(path for path, _ in same if path in inputs))
            where = _where(among) if among and len(inputs) > 1 else ""
            yield f"  {severity.value}: {total:,} x {code}: {same[0][1].message}{where}"


def _many(unusable: list[Ingested], *, quiet: bool) -> bool:
    """Whether skipped inputs are in one line for each reason."""
    return len(unusable) > (1 if quiet else _MOST_LINES)


def _line(found: Ingested) -> str:
    """The line of one input."""
    if found.status == "unusable":
        return f"{found.path}: skipped: {found.reason}"
    counts = _held(dict(found.counts))
    if found.status == "known":
        held = f": {found.dialect}: {counts}" if counts else ""
        return f"{found.path}: {_KNOWN}{held}{_label_words(found.labels)}"
    reread = " (read again; replaces its earlier rows)" * (found.status == "replaced")
    labels = _label_words(found.labels)
    return f"{found.path}: {found.dialect}: {counts or 'nothing counted'}{labels}{reread}"


def _label_words(labels: Collection[str]) -> str:
    """Labels as `compare` takes them; empty where there are none."""
    if not labels:
        return ""
    shown = ", ".join(f"'{label}'" for label in list(labels)[:_MOST_LABELS])
    more = f" and {len(labels) - _MOST_LABELS} more" if len(labels) > _MOST_LABELS else ""
    return f"; {'label' if len(labels) == 1 else 'labels'} {shown}{more}"


def _together(added: list[Ingested]) -> Iterator[str]:
    """A line for each dialect with what its inputs held, and one for those of the run already."""
    known = [r for r in added if r.status == "known"]
    added = [r for r in added if r.status != "known"]
    files: Counter[str] = Counter(r.dialect for r in added)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for r in added:
        counts[r.dialect].update(dict(r.counts))
    for dialect, number in files.items():
        held = _held(counts[dialect])
        labels = _label_words(
            dict.fromkeys(name for r in added if r.dialect == dialect for name in r.labels)
        )
        yield f"{_counted(number, 'files')}: {dialect}: {held or 'nothing counted'}{labels}"
    if known:
        labels = _label_words(dict.fromkeys(name for r in known for name in r.labels))
        yield f"{_counted(len(known), 'files')}: {_KNOWN}{labels}"


def _by_message(found: list[_Found]) -> list[list[_Found]]:
    """Diagnostics of one code, those of one message together; all together where these are many."""
    same: dict[str, list[_Found]] = defaultdict(list)
    for path, diagnostic in found:
        same[diagnostic.message].append((path, diagnostic))
    return list(same.values()) if len(same) <= _MOST_MESSAGES else [found]


def _held(counts: Mapping[str, int]) -> str:
    """What inputs held.

    >>> _held({"ranks": 0, "kernels and copies": 996, "collective kernels": 72})
    '996 kernels and copies, 72 of them collectives'
    """
    return ", ".join(
        f"{n:,} of them collectives" if what == "collective kernels" else _counted(n, what)
        for what, n in counts.items()
        if n
    )


def _counted(number: int, what: str) -> str:
    """A number with its noun, which is given in the plural.

    >>> _counted(1, "kernel names"), _counted(1, "kernels and copies"), _counted(2_000, "lines")
    ('1 kernel name', '1 kernel or copy', '2,000 lines')
    """
    if number != 1:
        return f"{number:,} {what}"
    return "1 " + " or ".join(_ONE.get(w, w.removesuffix("s")) for w in what.split(" and "))


def _where(paths: list[str]) -> str:
    """The first of some inputs, and how many more there are."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f" ({paths[0]}{more})"
