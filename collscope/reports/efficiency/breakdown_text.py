"""Where the collective time goes, as a table or a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from collscope.reports.efficiency.time_breakdown import Basis, Breakdown
from collscope.reports.rendering.layout import NUMBER, TEXT, Table, scaled, table
from collscope.units import count

NAME_SYSTEM = "report --system NAME; roofline --list has the names"
_IN_TUNABLE = "slowdown by other work: not known without a replay, counted in tunable"
_INSIDE = "not known: contained in the parts below; trace all ranks (collscope ingest trace)"
_BASES = {
    Basis.TRACED: "all kernels of collectives in the traces, over all ranks",
    Basis.IN_JOB: "transfer + waiting in the job, scaled to all calls of each class",
    Basis.SEEN: (
        "all collective kernels of the profile, divided among the classes in proportion to their "
        "kernels in logs and recordings"
    ),
    Basis.EXPECTED: (
        "all collective kernels of the profile, divided among the classes in proportion to calls x "
        "expected time"
    ),
    Basis.ALONE: "times measured alone x calls; the job's own time is not known",
}


def basis_words(found: Breakdown) -> str:
    """What the collective time of a run is of."""
    left = ""
    if found.left_out:
        left = f"; {count(found.left_out, 'class', 'classes')} without kernel times left out"
    return _BASES[found.basis] + left


def breakdown(found: Breakdown, no_roof: str) -> Iterable[str | Table]:
    """Where the collective time goes; a sentence where none of it is judged.

    no_roof  why no class has a reachable speed, where that is not for want of a system
    """
    timed = found.basis in (Basis.IN_JOB, Basis.TRACED)
    if found.roofs and not timed and found.unjudged_ns == found.device_ns:
        yield (
            f"How the collective time ({found.device_ns / 1e9:.4g} s, summed over all GPUs) splits "
            "into waiting, transfer and possible saving is not known: no transfer was timed. Trace "
            "all ranks (collscope ingest trace), or measure the classes (collscope replay)."
        )
        return
    yield _breakdown_table(found, no_roof)
    yield f"Collective time: {basis_words(found)}."


def _breakdown_table(found: Breakdown, no_roof: str) -> Table:
    """Parts in ms of the traces, as their other tables; of all calls in seconds of GPUs."""
    traced = found.basis is Basis.TRACED
    unit, ns_per_unit = ("ms", 1e6) if traced else ("GPU s", 1e9)
    columns = [("part", TEXT), (unit, NUMBER), ("%", NUMBER), ("from", TEXT)]
    total_ns = found.device_ns
    rows = [
        (name, scaled(ns, ns_per_unit), _tenths(None if ns is None else ns / (total_ns or 1)), why)
        for name, ns, why in _parts(found, no_roof)
    ]
    source = "over all GPUs" if not traced else None
    return table(columns, [*rows, ("collective time", total_ns / ns_per_unit, "100.0", source)])


def _tenths(ratio: float | None) -> str | None:
    return None if ratio is None else f"{100 * ratio:.1f}"


def _parts(found: Breakdown, no_roof: str) -> Iterable[tuple[str, float | None, str]]:
    """Name, ns, and what they were computed from or why they are not known."""
    in_job = found.basis in (Basis.IN_JOB, Basis.TRACED)
    no_roof = no_roof or f"not known: name the system ({NAME_SYSTEM})"
    if found.roofs:
        no_roof = "not known: nothing measured on GPUs (collscope replay, collscope ingest csv)"
    contention = (
        "slowdown by other work: not known without a replay, counted in tunable"
        if in_job
        else _INSIDE
    )
    if found.compared:
        contention = "transfer in the job - measured alone"
    yield "wait", found.wait_ns, "kernel time before the last rank arrived" if in_job else _INSIDE
    yield "contention", found.contention_ns, contention
    if found.unknown_ns:
        yield "wait or transfer", found.unknown_ns, "calls that are not in every rank's trace"
    tunable = no_roof if found.tunable_ns is None else "measured - reachable"
    yield "tunable", found.tunable_ns, tunable
    yield "reachable", found.roof_ns, no_roof if found.roof_ns is None else "reachable x calls"
    rest = "transfer of classes without a reachable speed"
    if found.basis is not Basis.TRACED:
        rest = "classes that were not measured, or have no reachable speed"
    if found.unjudged_ns:
        yield "unjudged", found.unjudged_ns, rest
