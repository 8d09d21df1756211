"""The lines an ingest command ends with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from collscope.ingest.result import Ingested
from collscope.model import Diagnostic, Severity

_SHOWN = (Severity.ERROR, Severity.DATA_LOSS, Severity.NOTICE)


def summary_lines(results: list[Ingested]) -> Iterator[str]:
    """One line per input, then the diagnostics of all of them, summed by code."""
    for r in results:
        if r.status == "known":
            yield f"{r.path}: already in this run (same bytes), left as it is"
        elif r.status == "unusable":
            yield f"{r.path}: skipped: {r.reason}"
        else:
            counts = ", ".join(f"{n:,} {what}" for what, n in r.counts if n)
            again = " (read again, in place of what it gave before)" * (r.status == "replaced")
            yield f"{r.path}: {r.dialect}: {counts or 'nothing counted'}{again}"
    by_code: dict[tuple[Severity, str], list[Diagnostic]] = defaultdict(list)
    for r in results:
        for d in r.diagnostics:
            if d.severity in _SHOWN:
                by_code[d.severity, d.code].append(d)
    for severity, code in sorted(by_code, key=lambda key: _SHOWN.index(key[0])):
        same = by_code[severity, code]
        yield f"  {severity.value}: {sum(d.count for d in same):,} x {code}: {same[0].message}"
