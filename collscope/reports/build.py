"""From an open store to a `Report`: one read per section, then the findings over all of them."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from collscope.reports.classes import class_rows, read_call_totals
from collscope.reports.communicators import communicator_rows
from collscope.reports.findings import find
from collscope.reports.model import Report
from collscope.reports.overview import find_gaps, read_coverage, read_header
from collscope.reports.share import read_shares
from collscope.reports.sizes import histograms
from collscope.reports.transports import read_facts, read_settings, read_transports


def build_report(connection: sqlite3.Connection, run: str, *, top: int | None = 20) -> Report:
    """Everything the store says about one run; sections without data are empty.

    connection  open store, read only; only the views of schemas/views.sql are read
    run         label of the run
    top         how many classes and kernel names to keep, None for all; totals, histograms and
                findings always cover all of them
    """
    totals = read_call_totals(connection, run)
    classes = class_rows(connection, run, totals)
    communicators = communicator_rows(connection, run, totals, classes)
    transports = read_transports(connection, run, communicators)
    report = Report(
        header=read_header(connection, run, classes, communicators),
        shares=read_shares(connection, run, top),
        classes=classes,
        communicators=communicators,
        histograms=histograms(classes),
        transports=transports,
        settings=read_settings(connection, run),
        facts=read_facts(connection, run),
        findings=(),
        coverage=read_coverage(connection, run, totals, communicators),
    )
    return replace(
        report,
        findings=find(report),
        coverage=replace(report.coverage, gaps=find_gaps(report)),
        classes=report.classes[:top],
    )
