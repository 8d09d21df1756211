"""The lines an ingest command ends with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from collscope.ingest.result import Ingested
from collscope.model import Diagnostic, Severity

_SHOWN = (Severity.ERROR, Severity.DATA_LOSS, Severity.NOTICE)


_ONE = {"copies": "copy", "classes": "class"}  # singulars that do not just lose an s


def summary_lines(results: list[Ingested]) -> Iterator[str]:
    """One line per input, then the diagnostics of all of them, summed by code.

    Of several inputs the first one that has a diagnostic is named behind it.
    """
    for r in results:
        if r.status == "known":
            yield f"{r.path}: already in this run (same bytes), left as it is"
        elif r.status == "unusable":
            yield f"{r.path}: skipped: {r.reason}"
        elif r.status != "matched":
            counts = ", ".join(_counted(n, what) for what, n in r.counts if n)
            again = " (read again, in place of what it gave before)" * (r.status == "replaced")
            yield f"{r.path}: {r.dialect}: {counts or 'nothing counted'}{again}"
    inputs = {r.path for r in results if r.status != "matched"}
    by_code: dict[tuple[Severity, str], list[tuple[str, Diagnostic]]] = defaultdict(list)
    for r in results:
        for d in r.diagnostics:
            if d.severity in _SHOWN:
                by_code[d.severity, d.code].append((r.path, d))
    for severity, code in sorted(by_code, key=lambda key: _SHOWN.index(key[0])):
        same = by_code[severity, code]
        total = sum(d.count for _, d in same)
        among = list(dict.fromkeys(path for path, _ in same if path in inputs))
        where = _where(among) if among and len(inputs) > 1 else ""
        yield f"  {severity.value}: {total:,} x {code}: {same[0][1].message}{where}"


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
