"""Rules about what a run was put together from: other jobs, or one job twice."""

from __future__ import annotations

from collections.abc import Iterable

from collscope.reports.model import Evidence, Finding, Report


def library_differs(report: Report) -> Iterable[Finding]:
    """Sources that name different libraries or versions."""
    versions = {
        f"{row.library} {row.library_version}": row
        for row in reversed(report.coverage.sources)
        if row.library and row.library_version
    }
    if len(versions) < 2:
        return
    yield Finding(
        severity="warning",
        code="library_differs",
        title=f"{len(versions)} different library versions in one run",
        detail=", ".join(sorted(versions)) + ".",
        advice="Start every rank with the same library, or give other jobs a run of their own "
        "(--run LABEL).",
        evidence=tuple(
            Evidence(row.source, None, version) for version, row in sorted(versions.items())
        ),
    )


def logged_twice(report: Report) -> Iterable[Finding]:
    """Processes of which two logs hold calls on the same communicator."""
    for row in report.coverage.diagnostics:
        if row.code == "process_in_two_logs":
            yield Finding(
                severity="warning",
                code="logged_twice",
                title=f"{row.count} processes stand in more than one log",
                detail=f"{row.message[:1].upper()}{row.message[1:]}.",
                advice="Where one log is a copy of others (a shared stdout beside a file per "
                "process), ingest it into a run of its own (--run LABEL).",
            )


RULES = (library_differs, logged_twice)
