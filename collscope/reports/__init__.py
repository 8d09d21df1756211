"""Reports: what a run's collectives are, from the store's views to text, tables and JSON."""

from collscope.reports.build import build_report, shorten
from collscope.reports.model import Report
from collscope.reports.render import FORMATS, render

__all__ = ["FORMATS", "Report", "build_report", "render", "shorten"]
