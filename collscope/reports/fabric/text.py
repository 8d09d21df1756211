"""Transports, settings and facts of a run, in tables."""

from __future__ import annotations

from collections.abc import Iterable

from collscope.reports.fabric.answer import TransportRow
from collscope.reports.rendering.layout import MOST_ROWS, NUMBER, TEXT, Table, more_not_shown, table
from collscope.reports.rendering.origin import origin
from collscope.reports.report.answer import Report

# Facts about what carries the data; other facts are in the findings, the header or the store.
_ABOUT_TRANSPORT = ("network", "net_", "channels", "gdr_", "nvls", "msccl", "tuner_plugin")


def transports_section(report: Report) -> Iterable[str | Table]:
    """What carries the data, settings and facts."""
    if report.transports:
        columns = [
            ("transport", TEXT),
            ("net", TEXT),
            ("GDR", TEXT),
            ("pairs", NUMBER),
            ("channels", NUMBER),
            ("intra-node pairs", NUMBER),
            ("inter-node pairs", NUMBER),
            ("unknown pairs", NUMBER),
        ]
        yield table(
            columns,
            (
                (t.transport, t.net, t.gdr, t.pairs, t.channels, *_places(t))
                for t in report.transports
            ),
            (
                origin("links", transport=t.transport, net=t.net, gdr=t.gdr)
                for t in report.transports
            ),
        )
        yield "pairs: of ranks, each direction counted. channels: sum over the pairs."
    else:
        yield "Transports: no channel lines in the sources."
    facts = [fact for fact in report.facts if fact.kind.startswith(_ABOUT_TRANSPORT)]
    if facts:
        yield table(
            [("library reports", TEXT), ("value", TEXT), ("times", NUMBER)],
            ((f.kind, f.value, f.count) for f in facts[:MOST_ROWS]),
            (origin("facts", kind=f.kind, value=f.value) for f in facts[:MOST_ROWS]),
        )
        yield from more_not_shown(len(facts), "statement")
    if report.settings:
        settings = report.settings[:MOST_ROWS]
        yield table(
            [("setting", TEXT), ("value", TEXT), ("from", TEXT), ("processes", NUMBER)],
            ((s.name, s.value, s.origin, s.processes) for s in settings),
            (origin("settings", name=s.name, value=s.value, origin=s.origin) for s in settings),
        )
        yield from more_not_shown(len(report.settings), "setting")


def _places(row: TransportRow) -> tuple[int, int, int]:
    return row.intra_node, row.inter_node, row.unknown
